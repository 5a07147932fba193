"""Modules with the machine that they are compiled for."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from ...runtime.llvm.target import Target
from .module import Module
from .sized_module import SizedModule


@dataclasses.dataclass(frozen=True)
class Level:
    """What processors of an architecture have, by its name. `needs`: words that a processor tells of itself, and their
    bits that are set where it has all."""

    name: str
    target: Target
    needs: Mapping[str, int]


@dataclasses.dataclass(frozen=True)
class CodeVersion:
    """Modules, by the names of their entries, and the machine to compile them for; `level` where their object has code
    for several."""

    modules: Mapping[str, Module | SizedModule]
    target: Target
    level: Level | None = None
