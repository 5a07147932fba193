"""Rewrite rules, each a law with a name.

    a = f32[4,2] transpose(x), dimensions={1,0}
    b = f32[2,4] transpose(a), dimensions={1,0}   =>       r = f32[2,4] multiply(x, x)
    r = f32[2,4] multiply(b, x)

The rules are in rules/, by subject; they are exact unless they say fast_math.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.module import NO_METADATA, Instruction, Module
from ..options import Options
from ..progress import Progress
from .rules import arithmetic, control_and_reductions, conversions, data_movement, windows
from .rules.rule import Rule

RULES: tuple[Rule, ...] = (
    *data_movement.RULES,
    *conversions.RULES,
    *arithmetic.RULES,
    *control_and_reductions.RULES,
    *windows.RULES,
)

_MAX_REWRITES = 100
"""Limit of the rewrites of one instruction, of the depth of rewrites within rewrites, and of the rewrites of a module
per instruction: beyond, rules must be undoing each other."""


def simplify(module: Module, options: Options, rules: Sequence[Rule] = RULES) -> Module:
    """The module with the rules applied until none holds.

    Rules look at operands only, and those are done first, so that one pass over each computation is enough.
    """
    fast_math = options.numerics == "fast"
    table = _RULES_BY_OPCODE[fast_math] if rules is RULES else _rules_by_opcode(rules, fast_math)
    size = sum(len(c.instructions) for c in module.computations())
    total = Progress("simplify", _MAX_REWRITES * (size + _MAX_REWRITES))

    def simplified(instruction: Instruction, depth: int = 0) -> Instruction:
        here: Progress | None = None
        while True:
            rules = table.get(instruction.opcode)
            new = _first(rules, instruction) if rules else None
            if new is None or new in seen:
                return new or instruction
            here = here or Progress("simplify", _MAX_REWRITES - depth)
            here.step(instruction)
            total.step(instruction)
            metadata = new.metadata if new.metadata is not NO_METADATA else instruction.metadata
            operands = [o if o in seen else simplified(o, depth + 1) for o in new.operands]
            instruction = Instruction(
                new.op, tuple(operands), new.shape, new.name or instruction.name, metadata
            )

    def change(instruction: Instruction) -> Instruction:
        simpler = simplified(instruction)
        seen.add(simpler)
        return simpler

    seen: set[Instruction] = set()
    return module.map_computations(lambda computation: computation.rewrite(change))


def _rules_by_opcode(rules: Sequence[Rule], fast_math: bool) -> dict[str, list[Rule]]:
    """The rules for each opcode, in order."""
    table: dict[str, list[Rule]] = {}
    for rule in rules:
        if fast_math or not rule.fast_math:
            for opcode in rule.opcodes:
                table.setdefault(opcode, []).append(rule)
    return table


_RULES_BY_OPCODE = {fast_math: _rules_by_opcode(RULES, fast_math) for fast_math in (False, True)}


def _first(rules: Sequence[Rule], instruction: Instruction) -> Instruction | None:
    for rule in rules:
        new = rule.apply(instruction)
        if new is not None:
            return new
    return None
