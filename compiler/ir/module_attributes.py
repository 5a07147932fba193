"""Attributes of modules that the compiler reads: TYPED_ATTRIBUTES are fields of Module, CHECKS are for those that stay
text. Others are only printed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from ..errors import ShapeError
from ..hlo_text.scanner import Malformed, inner, integer, parse_entry_layout, parse_shapes
from ..limits import Limits
from .element_types import ElementType
from .module import InputOutputAlias, Module
from .shape import Shape, assumptions_of

_INDEX = r"\{([\d,\s]*)\}"
_ALIAS = re.compile(
    rf"\s*{_INDEX}\s*:\s*\(\s*(\d+)\s*,\s*{_INDEX}\s*(?:,\s*((?:may|must)-alias)\s*)?\)\s*", re.ASCII
)
_ALIASES = re.compile(rf"\{{(?:{_ALIAS.pattern}(?:,{_ALIAS.pattern})*|\s*)\}}", re.ASCII)


def parse_aliases(text: str) -> tuple[InputOutputAlias, ...]:
    """The entries of `{ {0}: (1, {}, may-alias), ... }`.

    Raises: Malformed.
    """
    if _ALIASES.fullmatch(text.strip()) is None:
        raise Malformed(f"expected {{ {{result index}}: (parameter, {{index}}), ... }}, got {text[:60]!r}")
    return tuple(
        InputOutputAlias(_integers(entry[1]), integer(entry[2]), _integers(entry[3]), entry[4] or "may-alias")
        for entry in _ALIAS.finditer(text)
    )


def print_aliases(aliases: Iterable[InputOutputAlias]) -> str:
    """The text that `parse_aliases` reads."""
    entries = (
        f"{{{_listed(a.result_index)}}}: ({a.parameter}, {{{_listed(a.parameter_index)}}}, {a.kind})"
        for a in aliases
    )
    return f"{{ {', '.join(entries)} }}"


def _parse_numbers(text: str) -> tuple[int, ...]:
    """The numbers in `{0, 2}`. Raises: Malformed."""
    text = text.strip()
    if text[:1] != "{" or text[-1:] != "}":
        raise Malformed(f"expected numbers in braces, got {text[:60]!r}")
    return _integers(text[1:-1])


def _print_numbers(numbers: Iterable[int]) -> str:
    return f"{{{_listed(numbers)}}}"


def _integers(text: str) -> tuple[int, ...]:
    return tuple(integer(part) for part in text.split(",")) if text.strip() else ()


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))


def check_aliases(
    what: str, aliases: Iterable[InputOutputAlias], parameters: Sequence[Shape], result: Shape
) -> None:
    """Raises: ShapeError  alias_c1: an index of no part; alias_c2: the two parts have different shapes, or one occurs
    twice."""
    seen: set[tuple[object, ...]] = set()
    for result_index, number, parameter_index, _ in aliases:
        if number >= len(parameters):
            raise ShapeError(f"{what}: parameter {number}, there are {len(parameters)} (alias_c1)")
        target, source = _part(what, result, result_index), _part(what, parameters[number], parameter_index)
        parts = {("result", result_index), ("parameter", number, parameter_index)}
        if not target.compatible(source) or parts & seen:
            raise ShapeError(
                f"{what}: part {list(result_index)} of the result is {target}, that of parameter {number} is "
                f"{source}; equal shapes are wanted, each once (alias_c2)"
            )
        seen |= parts


def _part(what: str, shape: Shape, index: Sequence[int]) -> Shape:
    for k in index:
        if k >= len(shape.tuple_shapes):
            raise ShapeError(f"{what}: {list(index)} is the index of no part (alias_c1)")
        shape = shape.tuple_shapes[k]
    return shape


def _check_layout(module: Module, limits: Limits) -> None:
    with inner("entry_computation_layout"):
        entry_shapes(module)


def entry_shapes(module: Module) -> tuple[tuple[Shape, ...], Shape]:
    """Shapes of the entry's parameters and of its result, with the layouts that hold at the entry.

    Raises: ParseError, ShapeError  entry_computation_layout is malformed or of other shapes.
    """
    parameters, result = module.entry.parameter_shapes, module.entry.root.shape
    text = module.attributes.get(LAYOUT)
    if text is None:
        return parameters, result
    return parse_entry_layout(text, parameters, result)


def operand_shapes(text: str, operands: Iterable[Shape] = ()) -> tuple[Shape, ...]:
    """The shapes in `{shape, ...}`, the value of a custom-call's operand_layout_constraints; symbols are those of the
    operands.

    Raises: ParseError  malformed text.
    """
    return parse_shapes(text, assumptions_of(operands)) if text else ()


def devices(module: Module, name: str) -> int:
    """The number of replicas (`replica_count`) or partitions (`num_partitions`) that the module says; 1 where it says
    none.

    Raises: Malformed. ShapeError  less than 1.
    """
    count = integer(module.attributes.get(name, "1"), "a number")
    if count < 1:
        raise ShapeError(f"{name} is {count}, at least 1 is wanted")
    return count


def _check_devices(module: Module, limits: Limits) -> None:
    count = devices(module, "replica_count") * devices(module, "num_partitions")
    limits.check("devices", count, "replicas times partitions")


def check_fields(module: Module) -> None:
    """Checks the typed attributes.

    Raises: ShapeError  one does not fit the module, or stands among the attributes that are text.
    """
    for name, attribute in TYPED_ATTRIBUTES.items():
        if name in module.attributes:
            raise ShapeError(f"{name}: set Module.{attribute.field}, not the text attribute (verify_c4)")
    entry = module.entry
    check_aliases("input_output_alias", module.input_output_aliases, entry.parameter_shapes, entry.root.shape)
    _check_numbers("invariant_parameters", module.invariant_parameters, len(entry.parameters))
    results = list(entry.root.shape.leaves())
    _check_numbers("result_sizes", module.sized_results, len(results))
    count = len(module.sized_results)
    if count and any(size != Shape(ElementType.S32) for size in results[-count:]):
        raise ShapeError(f"result_sizes: {count} results at the end are sizes, s32[] is wanted for each")


def _check_numbers(name: str, numbers: Sequence[int], limit: int) -> None:
    if any(not 0 <= n < limit for n in numbers) or len(set(numbers)) < len(numbers):
        raise ShapeError(f"{name}: {list(numbers)}, distinct numbers below {limit} are wanted")


class TypedAttribute(NamedTuple):
    """An attribute of HLO text that is a field of Module: the field, its parser (which raises Malformed) and its
    printer."""

    field: str
    parse: Callable[[str], tuple[object, ...]]
    print: Callable[[Iterable[Any]], str]


TYPED_ATTRIBUTES = {
    "input_output_alias": TypedAttribute("input_output_aliases", parse_aliases, print_aliases),
    "invariant_parameters": TypedAttribute("invariant_parameters", _parse_numbers, _print_numbers),
    "result_sizes": TypedAttribute("sized_results", _parse_numbers, _print_numbers),
}
FORMER_NAMES = {"kept_parameters": "invariant_parameters"}
"""Attributes of HLO text of older versions."""

LAYOUT = "entry_computation_layout"
"""The shapes at the entry, with their layouts."""

CHECKS: dict[str, Callable[[Module, Limits], None]] = {
    LAYOUT: _check_layout,
    "replica_count": _check_devices,
    "num_partitions": _check_devices,
}
"""By name of a text attribute, the check that it fits the module.

Raises: Malformed, ShapeError, LimitError.
"""
