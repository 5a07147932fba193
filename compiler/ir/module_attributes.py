"""Attributes of modules that code is made from, each with the check that it fits the program. CHECKS names them; others
are kept and printed."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from ..errors import ShapeError
from ..hlo_text.attributes import Malformed, integer
from ..hlo_text.scanner import inner, parse_entry_layout
from ..limits import Limits
from .element_types import ElementType
from .module import Module
from .shape import Shape

_INDEX = r"\{([\d,\s]*)\}"
_ALIAS = re.compile(
    rf"\s*{_INDEX}\s*:\s*\(\s*(\d+)\s*,\s*{_INDEX}\s*(?:,\s*(?:may|must)-alias\s*)?\)\s*", re.ASCII
)
_ALIASES = re.compile(rf"\{{(?:{_ALIAS.pattern}(?:,{_ALIAS.pattern})*|\s*)\}}", re.ASCII)


def aliases(text: str) -> list[tuple[tuple[int, ...], int, tuple[int, ...]]]:
    """(index of a part of the result, number of a parameter, index of a part of it) for each entry of
    `{ {0}: (1, {}, may-alias), ... }`.

    Raises: Malformed.
    """
    if _ALIASES.fullmatch(text.strip()) is None:
        raise Malformed(f"expected {{ {{result index}}: (parameter, {{index}}), ... }}, got {text[:60]!r}")
    return [(_index(entry[1]), integer(entry[2]), _index(entry[3])) for entry in _ALIAS.finditer(text)]


def _index(text: str) -> tuple[int, ...]:
    return tuple(integer(part) for part in text.split(",")) if text.strip() else ()


def check_aliases(what: str, text: str, parameters: Sequence[Shape], result: Shape) -> None:
    """Raises: Malformed. ShapeError  alias_c1: an index of no part; alias_c2: the two parts have different shapes, or
    one occurs twice."""
    seen: set[tuple[object, ...]] = set()
    for place, number, inside in aliases(text):
        if number >= len(parameters):
            raise ShapeError(f"{what}: parameter {number}, there are {len(parameters)} (alias_c1)")
        target, source = _part(what, result, place), _part(what, parameters[number], inside)
        names = {("result", place), ("parameter", number, inside)}
        if not target.compatible(source) or names & seen:
            raise ShapeError(
                f"{what}: part {list(place)} of the result is {target}, that of parameter {number} is "
                f"{source}; equal shapes are wanted, each once (alias_c2)"
            )
        seen |= names


def _part(what: str, shape: Shape, index: Sequence[int]) -> Shape:
    for k in index:
        if k >= len(shape.tuple_shapes):
            raise ShapeError(f"{what}: {list(index)} is the index of no part (alias_c1)")
        shape = shape.tuple_shapes[k]
    return shape


def _check_aliases(module: Module, limits: Limits) -> None:
    check_aliases(
        "input_output_alias",
        module.attributes["input_output_alias"],
        module.entry.parameter_shapes,
        module.entry.root.shape,
    )


def _check_layout(module: Module, limits: Limits) -> None:
    with inner("entry_computation_layout"):
        parse_entry_layout(
            module.attributes["entry_computation_layout"],
            module.entry.parameter_shapes,
            module.entry.root.shape,
        )


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


def _check_kept(module: Module, limits: Limits) -> None:
    _numbers_below("kept_parameters", module, len(module.entry.parameters))


def _check_sizes(module: Module, limits: Limits) -> None:
    results = list(module.entry.root.shape.leaves())
    count = len(_numbers_below("result_sizes", module, len(results)))
    if count and any(size != Shape(ElementType.S32) for size in results[-count:]):
        raise ShapeError(f"result_sizes: {count} results at the end are sizes, s32[] is wanted for each")


def _numbers_below(name: str, module: Module, limit: int) -> list[int]:
    """The numbers in `{0, 2}`. Raises: Malformed. ShapeError  one is too large, or occurs twice."""
    text = module.attributes[name].strip()
    if text[:1] != "{" or text[-1:] != "}":
        raise Malformed(f"expected numbers in braces, got {text[:60]!r}")
    numbers = [integer(part) for part in text[1:-1].split(",")] if text[1:-1].strip() else []
    if any(not 0 <= n < limit for n in numbers) or len(set(numbers)) < len(numbers):
        raise ShapeError(f"{name}: {text[:60]}, distinct numbers below {limit} are wanted")
    return numbers


CHECKS: dict[str, Callable[[Module, Limits], None]] = {
    "entry_computation_layout": _check_layout,
    "input_output_alias": _check_aliases,
    "replica_count": _check_devices,
    "num_partitions": _check_devices,
    "kept_parameters": _check_kept,
    "result_sizes": _check_sizes,
}
"""By name of an attribute.

Raises: Malformed, ShapeError, LimitError  it does not fit the module.
"""
