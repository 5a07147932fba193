"""The shapes that a user gives arguments: numbers, and sizes that change from run to run."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from ...compiler.errors import ShapeError
from .writers.model import ChangingSize
from .writers.names import identifier, is_reserved

if TYPE_CHECKING:
    import tensorflow as tf

FedDim: TypeAlias = "int | str | None"
Feeds: TypeAlias = "Mapping[str, Sequence[FedDim] | str]"
_DIM = re.compile(r"(?P<number>\d+)|\?(?P<name>[A-Za-z](?:_?[A-Za-z0-9])*)?(?:<=(?P<most>\d+))?", re.ASCII)
_MAX_NAME = 40
_OF_HEADER = ("self", "memory", "sizes", "context", "most", "axis", "max", "min")


@dataclasses.dataclass(frozen=True)
class ChangingDim:
    """A dim as it was given: `?`, `?n`, `?<=8`. An empty name: it is a size of its own."""

    name: str
    most: int | None


Dim: TypeAlias = "int | ChangingDim"


def parse_dims(text: str) -> tuple[str, ...]:
    """The dims in `1,28,28,1` or `?x28x28x1`. Raises: ValueError  one of them is none."""
    dims = tuple(text.split("," if "," in text else "x")) if text else ()
    for dim in dims:
        _dim(dim)
    return dims


def _dim(dim: FedDim) -> Dim:
    """Raises: ValueError  it is none."""
    if dim is None:
        return ChangingDim("", None)
    if not isinstance(dim, str):
        return int(dim)
    match = _DIM.fullmatch(dim.strip())
    if match is None:
        raise ValueError(f"{dim!r} is no dim: a number, ?, ?name, ?<=8 or ?name<=8")
    if match["number"]:
        return int(match["number"])
    name = match["name"] or ""
    if len(name) > _MAX_NAME or name in _OF_HEADER or is_reserved(name):
        raise ValueError(f"size {name!r}: the header needs that name, or C does, or it is too long")
    return ChangingDim(name, int(match["most"]) if match["most"] else None)


def shapes_of(names: Sequence[str], traced: Sequence[tf.TensorShape], feeds: Feeds) -> list[tuple[Dim, ...]]:
    """The dims of every argument, from what the trace knows and the feeds."""
    fed: dict[int, tuple[Dim, ...]] = {}
    by_name = {f"arg{k}": k for k in range(len(names))} | {name: k for k, name in enumerate(names)}
    for feed, dims_of_feed in feeds.items():
        if feed not in by_name:
            similar = difflib.get_close_matches(feed, names, 1)
            raise ShapeError(
                f"feed {feed!r}: there is no such argument; there are {listed(names)}"
                + (f". Did you mean {similar[0]!r}?" if similar else "")
            )
        dims = parse_dims(dims_of_feed) if isinstance(dims_of_feed, str) else dims_of_feed
        fed[by_name[feed]] = tuple(map(_dim, dims))
    return [_dims(name, shape, fed.get(k)) for k, (name, shape) in enumerate(zip(names, traced))]


def _dims(name: str, shape: tf.TensorShape, fed: tuple[Dim, ...] | None) -> tuple[Dim, ...]:
    """The dims of an argument. Raises: ShapeError  they are not known, or do not fit the trace."""
    if fed is None:
        if shape.is_fully_defined():
            return tuple(shape.as_list())
        known = [None] if shape.rank is None else shape.as_list()
        numbers, changing = (",".join(str(d or unknown) for d in known) for unknown in ("1", "?"))
        fed_changing = changing.replace(",", "x")
        raise ShapeError(
            f"argument {name} has the shape {_dims_text(shape)}; give it the sizes of all runs with "
            f"--feed {name}:{numbers} or feeds={{{name!r}: ({numbers},)}}, or let them change from run to run with "
            f"--feed '{name}:{fed_changing}' or feeds={{{name!r}: {fed_changing!r}}}"
        )
    numbers_only = [None if isinstance(d, ChangingDim) else d for d in fed]
    if any(d is not None and d < 0 for d in numbers_only) or not shape.is_compatible_with(numbers_only):
        shown = ", ".join("?" if d is None else str(d) for d in numbers_only)
        raise ShapeError(f"feed {name}: [{shown}] does not fit the argument's shape {_dims_text(shape)}")
    dims = () if shape.rank is None else shape.as_list()
    for axis, (dim, known) in enumerate(zip(fed, dims)):
        if isinstance(dim, ChangingDim) and known is not None:
            raise ShapeError(
                f"feed {name}: axis {axis} is ?, but the function was traced for {known} there: "
                f"{_dims_text(shape)}"
            )
    return fed


def with_names(
    function: str, arguments: Sequence[str], all_dims: Sequence[Sequence[Dim]]
) -> tuple[list[tuple[int | str, ...]], list[ChangingSize]]:
    """The dims with names in the places of those that change, and the sizes of these names.

    Raises: ShapeError  a size has two bounds.
    """
    sizes: dict[str, ChangingSize] = {}
    named: list[tuple[int | str, ...]] = []
    for number, (argument, dims) in enumerate(zip(arguments, all_dims, strict=True)):
        row: list[int | str] = []
        for axis, dim in enumerate(dims):
            if isinstance(dim, ChangingDim):
                place = f"axis {axis} of {argument}"
                called = identifier(argument)
                own = called if called and len(called) <= _MAX_NAME else f"arg{number}"
                name = dim.name or "_".join(filter(None, (function, own, f"dim{axis}")))
                sizes[name] = _merged(sizes.get(name), ChangingSize(name, dim.most, place))
                row.append(name)
            else:
                row.append(dim)
        named.append(tuple(row))
    return named, list(sizes.values())


def merged_sizes(lists: Iterable[Sequence[ChangingSize]]) -> list[ChangingSize]:
    """The sizes of all functions: equal names are one size."""
    sizes: dict[str, ChangingSize] = {}
    for one in lists:
        for size in one:
            sizes[size.name] = _merged(sizes.get(size.name), size)
    return list(sizes.values())


def _merged(known: ChangingSize | None, size: ChangingSize) -> ChangingSize:
    if known is None:
        return size
    if None not in (known.most, size.most) and known.most != size.most:
        raise ShapeError(f"size {size.name} has the bounds {known.most} and {size.most}; give it one")
    return dataclasses.replace(known, most=size.most if known.most is None else known.most)


def _dims_text(shape: tf.TensorShape) -> str:
    return (
        "unknown" if shape.rank is None else "[" + ",".join("?" if d is None else str(d) for d in shape) + "]"
    )


def listed(names: Iterable[object]) -> str:
    """Names for a message."""
    return ", ".join(map(repr, names)) or "none"
