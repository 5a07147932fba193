"""Options of objects that stand alone, and what a compilation to one gives."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence

from ..runtime.code.artifact import Artifact

OPTIMIZE = ("speed", "size")
NUMERICS = ("tf", "fast")
"""Those of all options but `reproducible`: objects add in one order, however many threads there are."""
LAYER_MARK = "; layer "
"""Begins a line of LLVM text before the code that calls the kernel of a layer; its number follows."""
_SECTION = re.compile(r"[A-Za-z_.$][\w.$,-]{0,99}", re.ASCII)


@dataclasses.dataclass(frozen=True)
class ObjectOptions:
    """How an object is written.

    code_section, constants_section: the sections of functions, and of weights and other constants; empty: LLVM's.
    debug: functions bear the names of the layers that they compute, and have debug lines. layers_file: the name of the
    file that these are lines of.
    Raises: ValueError  a section cannot have the name.
    """

    code_section: str = ""
    constants_section: str = ""
    debug: bool = False
    layers_file: str = "layers"

    def __post_init__(self) -> None:
        for name in (self.code_section, self.constants_section):
            if name and not _SECTION.fullmatch(name):
                raise ValueError(
                    f"section {name[:100]!r}: letters, digits, '_', '.', '$', '-' and ',' are wanted"
                )
        if self.code_section and self.code_section == self.constants_section:
            raise ValueError(f"section {self.code_section!r}: code and constants want one of their own each")


DEFAULT_OBJECT_OPTIONS = ObjectOptions()


@dataclasses.dataclass(frozen=True)
class StandaloneCode:
    """An object that needs the C library alone: the artifacts of its entries, each with the whole object.

    stack_bytes: the most that a call of an entry takes of the stack, by entry, functions of the C library not counted.
    layers: what the lines of the file of layers are.
    """

    artifacts: Sequence[Artifact]
    stack_bytes: Mapping[str, int]
    layers: Sequence[str] = ()
