"""Operations of MLIR text as data: names, attributes, types and regions, whatever form they were written in."""

from __future__ import annotations

import dataclasses

from ..errors import UnsupportedError
from ..ir.shape import Shape
from .attributes import Attribute, Dense, Dialect, Symbol


@dataclasses.dataclass(eq=False)
class Operation:
    """One operation. `results` and `operands` are names of values, `%0`, `%1#2`; `types` are the results' types,
    `operand_types` those of the operands where they were said. `words` are what stands bare in its own form (`LT`)."""

    name: str
    at: int
    results: list[str] = dataclasses.field(default_factory=list)
    operands: list[str] = dataclasses.field(default_factory=list)
    attributes: dict[str, Attribute] = dataclasses.field(default_factory=dict)
    words: list[str] = dataclasses.field(default_factory=list)
    types: tuple[Shape, ...] = ()
    operand_types: tuple[Shape, ...] | None = None
    regions: list[Region] = dataclasses.field(default_factory=list)
    location: str = ""

    def has(self, name: str) -> bool:
        """Whether it has an attribute of this name."""
        return name in self.attributes

    def integer(self, name: str, default: int | None = None) -> int:
        """An attribute that is a whole number. Raises: UnsupportedError  it is none."""
        value = self.attributes.get(name, default)
        if isinstance(value, Dense) and value.shape.elements == 1:
            value = int(value.array().reshape(()))
        if not isinstance(value, int):
            raise UnsupportedError(f"{self.name}: expected a number as {name}, got {shown(value)}")
        return int(value)

    def number(self, name: str, default: float | None = None) -> float:
        """An attribute that is a number. Raises: UnsupportedError  it is none."""
        value = self.attributes.get(name, default)
        if not isinstance(value, int | float):
            raise UnsupportedError(f"{self.name}: expected a number as {name}, got {shown(value)}")
        return float(value)

    def boolean(self, name: str, default: bool = False) -> bool:
        """An attribute that is true or false. Raises: UnsupportedError  it is neither."""
        value = self.attributes.get(name, default)
        if not isinstance(value, bool):
            raise UnsupportedError(f"{self.name}: expected true or false as {name}, got {shown(value)}")
        return value

    def integers(self, name: str, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """An attribute that is a list of whole numbers. Raises: UnsupportedError  it is none."""
        return integers(self.attributes.get(name, default), f"{self.name}: {name}")

    def rows(self, name: str) -> tuple[tuple[int, ...], ...]:
        """An attribute that is a matrix of whole numbers. Raises: UnsupportedError  it is none."""
        return rows(self.attributes.get(name), f"{self.name}: {name}")

    def word(self, name: str, default: str = "") -> str:
        """An attribute that is one word, bare or of a dialect."""
        return word(self.attributes.get(name, default))

    def string(self, name: str, default: str = "") -> str:
        """An attribute that is a string. Raises: UnsupportedError  it is none."""
        value = self.attributes.get(name, default)
        if not isinstance(value, str):
            raise UnsupportedError(f"{self.name}: expected a string as {name}, got {shown(value)}")
        return value

    def symbol(self, name: str) -> str:
        """An attribute that is a function's name. Raises: UnsupportedError  it is none."""
        value = self.attributes.get(name)
        if not isinstance(value, Symbol):
            raise UnsupportedError(f"{self.name}: expected a function as {name}, got {shown(value)}")
        return value.name


@dataclasses.dataclass(eq=False)
class Region:
    """A block: arguments by name, operations, and the values of outside that it uses."""

    arguments: dict[str, Shape] = dataclasses.field(default_factory=dict)
    operations: list[Operation] = dataclasses.field(default_factory=list)
    captures: dict[str, Shape] = dataclasses.field(default_factory=dict)
    constants: dict[str, Operation] = dataclasses.field(default_factory=dict)
    """Those of the captures that are constants."""

    @property
    def returned(self) -> list[str]:
        """The names of the values that the block's last operation returns."""
        last = self.operations[-1] if self.operations else None
        return last.operands if last is not None and last.name in RETURNS else []


@dataclasses.dataclass(eq=False)
class Function:
    """A function: its region, the types of its results, the attributes of arguments and results, and the functions that
    it calls. `inner` are the operations in it that have regions, those inside others first."""

    name: str
    at: int
    is_public: bool
    region: Region = dataclasses.field(default_factory=Region)
    types: tuple[Shape, ...] = ()
    argument_attributes: list[dict[str, Attribute]] = dataclasses.field(default_factory=list)
    calls: list[str] = dataclasses.field(default_factory=list)
    inner: list[Operation] = dataclasses.field(default_factory=list)
    has_body: bool = False


RETURNS = frozenset({"stablehlo.return", "func.return", "return", "sdy.return", "mhlo.return", "chlo.return"})
"""Operations that end a block."""


def integers(value: Attribute, what: str) -> tuple[int, ...]:
    """The whole numbers of a list. Raises: UnsupportedError  it is none."""
    if isinstance(value, Dense) and value.shape.rank <= 1 and value.shape.element_type.is_integer:
        return tuple(map(int, value.array().reshape(-1).tolist()))
    if isinstance(value, list | tuple) and all(type(v) is int for v in value):
        return tuple(v for v in value if isinstance(v, int))
    raise UnsupportedError(f"{what}: expected a list of numbers, got {shown(value)}")


def rows(value: Attribute, what: str) -> tuple[tuple[int, ...], ...]:
    """The rows of a matrix of whole numbers. Raises: UnsupportedError  it is none."""
    if isinstance(value, Dense) and value.shape.rank == 2 and value.shape.element_type.is_integer:
        return tuple(tuple(map(int, row)) for row in value.array().tolist())
    if isinstance(value, list):
        return tuple(integers(row, what) for row in value)
    raise UnsupportedError(f"{what}: expected rows of numbers, got {shown(value)}")


def word(value: Attribute) -> str:
    """The word that a value is: bare, a string, or the last of `#stablehlo<comparison_direction LT>`."""
    if isinstance(value, Dialect):
        return value.words.split()[-1] if value.words else value.name
    return value if isinstance(value, str) else ""


def shown(value: Attribute) -> str:
    """A value in a message."""
    return "nothing" if value is None else f"{str(value)[:60]}"
