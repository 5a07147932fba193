"""The computations of HLO text in an order in which callees come first, where the text has another one, or has
computations inside the attributes that name them: `to_apply={ a = f32[] parameter(0) ... }`."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from .scanner import STRING

_CALLING = (
    "to_apply|calls|body|condition|select|scatter|true_computation|false_computation|branch_computations"
    "|called_computations"
)
_TOKEN = re.compile(
    rf"{STRING}|/\*.*?\*/|//[^\n]*"
    rf"|(?<=[\s,])(?:{_CALLING})\s*=\s*(?:%?(?P<name>[\w.\-]+)|\{{(?P<names>[^{{}}=\"]*)\}}|(?P<open>\{{))"
    r"|[{}]",
    re.DOTALL | re.ASCII,
)
_NAME = re.compile(r"%?([\w.\-]+)", re.ASCII)
_INSTRUCTION = re.compile(r"\s*(?:ROOT\s+)?%?[\w.\-]+\s*=", re.ASCII)


@dataclasses.dataclass
class Unit:
    """The text of one computation, from `start` to `end`: of a computation with a header where it begins, of one in an
    attribute from its brace to behind the other. `calls` are the names of those that it calls."""

    name: str
    start: int
    end: int = 0
    is_nested: bool = False
    calls: list[str] = dataclasses.field(default_factory=list)


class _Open:
    """A brace that is open: of a computation, of a list of computations, or of anything else."""

    __slots__ = ("names_at", "unit")

    def __init__(self, unit: Unit | None = None, names_at: int = 0) -> None:
        self.unit, self.names_at = unit, names_at  # of a list: where names begin, behind a computation in it


def scan_body(text: str, at: int, unit: Unit, taken: Iterable[str]) -> list[Unit]:
    """Scans a computation's text behind its brace: sets `calls` and `end`, which is behind its closing brace, or the
    end of the text. Returns the computations inside it, whose names are not among the taken ones."""
    names = set(taken)
    nested: list[Unit] = []
    braces = [_Open(unit)]
    units = [unit]  # those that are open

    def opened(start: int) -> _Open:
        inner = Unit(_new_name(names), start, is_nested=True)
        names.add(inner.name)
        units[-1].calls.append(inner.name)
        units.append(inner)
        nested.append(inner)
        return _Open(inner)

    for token in _TOKEN.finditer(text, at):
        if token["name"] is not None:
            units[-1].calls.append(token["name"])
        elif token["names"] is not None:
            units[-1].calls += _NAME.findall(token["names"])
        elif token["open"] is not None:
            start = token.end() - 1
            is_computation = _INSTRUCTION.match(text, start + 1)
            braces.append(opened(start) if is_computation else _Open(names_at=start))
        elif token[0] in "{}":
            outer = braces[-1]
            if outer.names_at:
                units[-1].calls += _NAME.findall(text, outer.names_at, token.start())
                outer.names_at = token.end()
            if token[0] == "{":
                braces.append(opened(token.start()) if outer.names_at else _Open())
                continue
            braces.pop()
            if outer.unit is not None:
                outer.unit.end = token.end()
                units.pop()
            if not braces:
                return nested
            if braces[-1].names_at:
                braces[-1].names_at = token.end()
    for rest in units:
        rest.end = len(text)
    return nested


def _new_name(taken: set[str]) -> str:
    number = len(taken)
    while (name := f"computation.{number}") in taken:
        number += 1
    return name


def callees_first(names: Iterable[str], calls: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """The names, and those that they call, so that one comes behind those that it calls; those of which no calls are
    known are left out. Raises: RecursionError  of a name that calls itself."""
    ordered: set[str] = set()
    for first in names:
        stack, path = [(first, iter(calls[first]))], {first}
        while stack and first not in ordered:
            name, rest = stack[-1]
            callee = next((c for c in rest if c in calls and c not in ordered), None)
            if callee in path:
                raise RecursionError(callee)
            if callee is not None:
                stack.append((callee, iter(calls[callee])))
                path.add(callee)
                continue
            stack.pop()
            path.discard(name)
            ordered.add(name)
            yield name
