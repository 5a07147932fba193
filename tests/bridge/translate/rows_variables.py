"""Rows of ops on variables."""

from __future__ import annotations

from op_row import NUMBERS, Content, Random, row

R = Random
row("AssignVariableOp AssignAddVariableOp AssignSubVariableOp", Content(R((5, 3))), R((5, 3)), types=NUMBERS)
