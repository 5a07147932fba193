"""A value of a function under construction: its LLVM type, its text, and the function that it is written into.

There are three kinds: `Int` and `Ptr` (addressing.py) for indices and addresses, `VectorValue` (vector_value.py) for
data: numbers, conditions and bits, in one lane or several. Their operators write instructions and check types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..sizes import Size
from .module_text import ModuleText
from .types import intrinsic_name

if TYPE_CHECKING:
    from typing_extensions import Self

_MEMORY_FUNCTIONS = frozenset({"memcpy", "memmove", "memset"})


class InstructionWriter:
    """Writes instructions one after the other; `ir_builder.Function` adds parameters, blocks and loops."""

    def __init__(self, module: ModuleText) -> None:
        self.module = module
        self.lines: list[str] = []
        self._count = 0

    def fresh(self, prefix: str = "v") -> str:
        """A name not used yet in this function, without `%`."""
        self._count += 1
        return f"{prefix}{self._count}"

    def reserve_names(self, count: int) -> int:
        """The first of so many numbers of names not used yet in this function."""
        first = self._count + 1
        self._count += count
        return first

    def size_text(self, size: Size) -> str:
        """The name of a size's value at run time."""
        raise TypeError(f"{size} is known at run time only, and this function gets no sizes")

    def do(self, text: str) -> None:
        """Writes one instruction without a result."""
        self.lines.append("  " + text)

    def assign(self, text: str) -> str:
        """Writes one instruction; returns the name of its result, with `%`."""
        self._count += 1
        name = f"%v{self._count}"
        self.lines.append(f"  {name} = {text}")
        return name

    def op(self, type_: str, text: str) -> Value:
        """Writes one instruction; returns its result of the given type."""
        self._count += 1
        name = f"%v{self._count}"
        self.lines.append(f"  {name} = {text}")
        return Value(type_, name, self)

    def call_text(self, name: str, result: str, arguments: list[Value], signature: str = "") -> str:
        """A `call` of a function by its name; declares it. `signature` stands for the result's type in the call of a
        function with variable arguments."""
        if name in _MEMORY_FUNCTIONS:  # the intrinsic takes a 64-bit length on every target
            to, source, length = arguments
            if source.type == "i32":
                source = self.op("i8", f"trunc {source} to i8")
            result, arguments = "void", [to, source, length, Value("i1", "false")]
            name = f"llvm.{name}.p0.{'' if source.type == 'i8' else 'p0.'}i64"
        if not signature and name not in self.module.declarations:
            self.module.declare(name, result, [a.type for a in arguments])
        listed = ", ".join([f"{a.type} {a.text}" for a in arguments])
        return f"call {signature or result} @{name}({listed})"

    def intrinsic_text(self, name: str, result: str, arguments: list[Value]) -> str:
        """A `call` of `llvm.name.<suffix of the result>`."""
        return self.call_text(intrinsic_name(name, result), result, arguments)


class _NoFunction(InstructionWriter):
    """The function of a constant that belongs to none: nothing is written from it."""

    def assign(self, text: str) -> str:
        raise TypeError(f"an operator's left operand is a constant without a function: {text}")


NO_FUNCTION = _NoFunction(ModuleText())


class Value:
    """An SSA value or a constant: `text` is what stands after the type. Values of one type and text are equal.

    One of this class itself is an operand that nothing is computed from.
    """

    __slots__ = ("f", "text", "type")

    def __init__(self, type_: str, text: str, f: InstructionWriter = NO_FUNCTION) -> None:
        self.f, self.type, self.text = f, type_, text

    @classmethod
    def of(cls, f: InstructionWriter, value: Value) -> Self:
        """The value as one of this class, in a function."""
        return value if type(value) is cls and value.f is f else cls(value.type, value.text, f)

    def __str__(self) -> str:
        return f"{self.type} {self.text}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.type} {self.text})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Value) and self.text == other.text and self.type == other.type

    def __hash__(self) -> int:
        return hash((self.type, self.text))

    @property
    def is_constant(self) -> bool:
        """A constant, not the result of an instruction or a parameter."""
        return not self.text.startswith("%")


def same_type(a: Value, b: Value, what: str) -> None:
    """Checks the operands of an instruction.

    Raises: TypeError  they have different types.
    """
    if a.type != b.type:
        raise TypeError(f"{what}: the operands are {a} and {b}")
