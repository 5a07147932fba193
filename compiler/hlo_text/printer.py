"""HLO text of a module, as XLA prints it in its short form: no types of operands, no `%`, layouts where not
default."""

from __future__ import annotations

import re
from collections.abc import Callable

from ..ir.literal import Literal
from ..ir.module import NO_METADATA, Computation, Instruction, Metadata, Module
from ..ir.module_attributes import TYPED_ATTRIBUTES
from .attributes import implied, show_attributes
from .literals import digest_of_large, print_literal
from .sizes import declared_symbols


class Names:
    """Names that are valid in HLO text and all different; the first request of a name gets it unchanged."""

    def __init__(self) -> None:
        self._used: set[str] = set()

    def take(self, requested: str) -> str:
        """The requested name, made valid; with a number appended where it is in use."""
        requested = re.sub(r"[^\w.\-]", "_", requested, flags=re.ASCII)
        if not requested[0].isalpha() and requested[0] != "_":
            requested = "_" + requested
        name, number = requested, 0
        while name in self._used:
            number += 1
            name = f"{requested}.{number}"
        self._used.add(name)
        return name


def print_module(module: Module, is_brief: bool = False) -> str:
    """The module's text; `parse_hlo` of it prints the same. `is_brief`: a digest stands for each large literal, so that
    the text is only good to tell modules apart."""
    names = Names()
    computations = module.computations()
    of = {c: names.take(c.name or "computation") for c in computations}
    header = f"HloModule {Names().take(module.name or 'module')}"
    header += "".join(f", {key}={value}" for key, value in module.attributes.items())
    for key, attribute in TYPED_ATTRIBUTES.items():
        if value := getattr(module, attribute.field):
            header += f", {key}={attribute.print(value)}"
    if symbols := declared_symbols(module):
        header += f", sizes={symbols}"
    texts = [
        ("ENTRY " if c is module.entry else "") + print_computation(c, of.__getitem__, of[c], is_brief)
        for c in computations
    ]
    return "\n\n".join([header, *texts]) + "\n"


Module.printer = print_module


def print_computation(
    computation: Computation,
    name_of: Callable[[Computation], str] | None = None,
    name: str | None = None,
    is_brief: bool = False,
) -> str:
    """The text of one computation; `name_of` names those that it calls."""
    return (
        f"{name or computation.name or 'computation'} {{\n"
        + "\n".join(
            f"  {'ROOT ' if instruction is computation.root else ''}{line}"
            for instruction, line in print_instructions(computation, name_of, is_brief)
        )
        + "\n}"
    )


def print_instructions(
    computation: Computation,
    name_of: Callable[[Computation], str] | None = None,
    is_brief: bool = False,
) -> list[tuple[Instruction, str]]:
    """Every instruction with its line of text."""
    names, of = Names(), {}
    for index, instruction in enumerate(computation.instructions):
        of[instruction] = names.take(instruction.name or f"{instruction.opcode}.{index}")
    show = digest_of_large if is_brief else print_literal
    return [(i, _print_instruction(i, of, name_of or _own_name, show)) for i in computation.instructions]


def _own_name(computation: Computation) -> str:
    return computation.name


def _print_instruction(
    instruction: Instruction,
    of: dict[Instruction, str],
    name_of: Callable[[Computation], str],
    show_literal: Callable[[Literal], str],
) -> str:
    op = instruction.op
    operands = ", ".join([of.get(o, f"{o.name}?") for o in instruction.operands])
    for field, kind in implied(type(op)).items():
        if kind == "number":
            operands = str(getattr(op, field))
        elif kind == "literal":
            operands = show_literal(getattr(op, field))
    metadata = "" if instruction.metadata is NO_METADATA else _print_metadata(instruction.metadata)
    return (
        f"{of[instruction]} = {instruction.shape} {op.opcode}({operands})"
        f"{show_attributes(op, name_of)}{metadata}"
    )


def _print_metadata(metadata: Metadata) -> str:
    named = [
        f'{name}="{_escaped(value)}"'
        for name, value in (
            ("op_type", metadata.op_type),
            ("op_name", metadata.op_name),
            ("source_file", metadata.source_file),
        )
        if value
    ]
    if metadata.source_line:
        named.append(f"source_line={metadata.source_line}")
    others = []
    for key, value in metadata.extra:
        if key.startswith("metadata."):
            named.append(f"{key.removeprefix('metadata.')}={value}")
        else:
            others.append(f", {key}={value}")
    return "".join(others) + (f", metadata={{{' '.join(named)}}}" if named else "")


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
