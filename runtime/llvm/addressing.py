"""Indices and addresses under construction: `Int` and `Ptr`, with Python's operators."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from ..sizes import Size
from .types import element_bytes
from .value import InstructionWriter, Value
from .vector_value import VectorValue

if TYPE_CHECKING:
    from typing_extensions import Self


class Int(Value):
    """An index, a count or a stride: a signed 64-bit number that never overflows.

    Operators take Python ints; what is known while the code is built is computed then: `i + 0` is `i`, `i * 0` is 0.
    `//` and `%` want operands that are not negative.
    """

    __slots__ = ()

    @classmethod
    def of(cls, f: InstructionWriter, value: Value | Size | int) -> Self:
        """A Python int, a size or an i64, as an Int in a function.

        Raises: TypeError  a value of another type.
        """
        if type(value) is cls and value.f is f:
            return value
        if isinstance(value, int | Size):
            return cls("i64", index_text(f, value), f)
        if value.type != "i64":
            raise TypeError(f"an index is i64, this is {value}")
        return cls("i64", value.text, f)

    @classmethod
    def zero_extended(cls, value: VectorValue) -> Self:
        """A condition as 0 or 1, or an unsigned number of at most 64 bits."""
        if value.type == "i64":
            return cls.of(value.f, value)
        return cls("i64", value.f.assign(f"zext {value} to i64"), value.f)

    @property
    def number(self) -> int | None:
        """The number, of a constant."""
        return None if self.text.startswith("%") else int(self.text)

    # -- arithmetic
    def _operation(self, opcode: str, other: Index) -> Int:
        """`opcode self, other`; known numbers are computed."""
        left, right = self.text, index_text(self.f, other)
        if right[0] != "%" or left[0] != "%":
            result = _folded(opcode, left, right)
            if result:
                return Int("i64", result, self.f)
        f = self.f
        return Int("i64", f.assign(f"{opcode} i64 {left}, {right}"), f)

    def __add__(self, other: Index) -> Int:
        return self._operation("add nsw", other)

    def __radd__(self, other: int | Size) -> Int:
        return Int.of(self.f, other)._operation("add nsw", self)

    def __sub__(self, other: Index) -> Int:
        return self._operation("sub nsw", other)

    def __rsub__(self, other: int | Size) -> Int:
        return Int.of(self.f, other)._operation("sub nsw", self)

    def __neg__(self) -> Int:
        return 0 - self

    def __mul__(self, other: Index) -> Int:
        return self._operation("mul nsw", other)

    def __rmul__(self, other: int | Size) -> Int:
        return Int.of(self.f, other)._operation("mul nsw", self)

    def __floordiv__(self, other: Index) -> Int:
        return self._operation("udiv", other)

    def __mod__(self, other: Index) -> Int:
        return self._operation("urem", other)

    def signed_quotient(self, other: Index) -> Int:
        """The quotient rounded towards zero, of numbers of any sign."""
        return self._operation("sdiv", other)

    def __and__(self, other: Index) -> Int:
        return self._operation("and", other)

    def __or__(self, other: Index) -> Int:
        return self._operation("or", other)

    def __xor__(self, other: Index) -> Int:
        return self._operation("xor", other)

    def __lshift__(self, other: Index) -> Int:
        return self._operation("shl", other)

    def __rshift__(self, other: Index) -> Int:
        """The logical shift: of a number that is not negative."""
        return self._operation("lshr", other)

    def round_down(self, multiple: int) -> Int:
        """The largest multiple (of a power of two) that is not above."""
        return self & -multiple

    def minimum(self, other: Index) -> Int:
        """The smaller one."""
        return self._intrinsic("smin", other, min)

    def maximum(self, other: Index) -> Int:
        """The larger one."""
        return self._intrinsic("smax", other, max)

    def _intrinsic(self, name: str, other: Index, fold: Callable[[int, int], int]) -> Int:
        right = Int.of(self.f, other)
        a, b = self.number, right.number
        if a is not None and b is not None:
            return Int("i64", str(fold(a, b)), self.f)
        text = self.f.intrinsic_text(name, "i64", [self, right])
        return Int("i64", self.f.assign(text), self.f)

    # -- comparisons
    def compare(self, opcode: str, other: Index) -> VectorValue:
        """`icmp slt`, ...: one i1."""
        right = index_text(self.f, other)
        return VectorValue("i1", self.f.assign(f"{opcode} i64 {self.text}, {right}"), self.f)

    def __lt__(self, other: Index) -> VectorValue:
        return self.compare("icmp slt", other)

    def __le__(self, other: Index) -> VectorValue:
        return self.compare("icmp sle", other)

    def __gt__(self, other: Index) -> VectorValue:
        return self.compare("icmp sgt", other)

    def __ge__(self, other: Index) -> VectorValue:
        return self.compare("icmp sge", other)

    def equals(self, other: Index) -> VectorValue:
        """Whether they are equal."""
        return self.compare("icmp eq", other)

    def differs(self, other: Index) -> VectorValue:
        """Whether they are not."""
        return self.compare("icmp ne", other)

    # -- as data
    def truncate(self, type_: str) -> VectorValue:
        """Its low bits, as a number of a shorter type."""
        return VectorValue(type_, self.f.assign(f"trunc {self} to {type_}"), self.f)

    def as_pointer(self) -> Ptr:
        """The address with this number."""
        return Ptr("ptr", self.f.assign(f"inttoptr {self} to ptr"), self.f)


Index: TypeAlias = Int | Size | int


def index_text(f: InstructionWriter, index: Index) -> str:
    """What stands after the type of an index."""
    if isinstance(index, int):
        return str(index)
    return index.text if isinstance(index, Value) else f.size_text(index)


_FOLDS: dict[str, Callable[[int, int], int]] = {
    "add nsw": operator.add,
    "sub nsw": operator.sub,
    "mul nsw": operator.mul,
    "sdiv": lambda a, b: int(a / b),
    "udiv": operator.floordiv,
    "urem": operator.mod,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "shl": operator.lshift,
    "lshr": operator.rshift,
}
_RIGHT_NEUTRAL = {"add nsw": "0", "sub nsw": "0", "mul nsw": "1", "udiv": "1"}
_LEFT_NEUTRAL = {"add nsw": "0", "mul nsw": "1"}


def _folded(opcode: str, left: str, right: str) -> str:
    """The result of an operation with a constant where no instruction is needed."""
    if left[0] != "%" and right[0] != "%":
        return str(_FOLDS[opcode](int(left), int(right)))
    if right == _RIGHT_NEUTRAL.get(opcode):
        return left
    if left == _LEFT_NEUTRAL.get(opcode):
        return right
    is_zero = opcode == "mul nsw" and "0" in (left, right) or opcode == "urem" and right == "1"
    return "0" if is_zero else ""


_PREFETCH = "llvm.prefetch.p0"


class Ptr(Value):
    """An address. `p + bytes` is another one, `p.at(i, type)` that of an element of an array."""

    __slots__ = ()

    @classmethod
    def of(cls, f: InstructionWriter, value: Value) -> Self:
        """A `ptr` in a function.

        Raises: TypeError  a value of another type.
        """
        if type(value) is cls and value.f is f:
            return value
        if value.type != "ptr":
            raise TypeError(f"an address is ptr, this is {value}")
        return cls("ptr", value.text, f)

    # -- other addresses
    def __add__(self, offset: Index) -> Ptr:
        text = index_text(self.f, offset)
        if text == "0":
            return self
        f = self.f
        return Ptr("ptr", f.assign(f"getelementptr inbounds i8, ptr {self.text}, i64 {text}"), f)

    def at(self, index: Index, type_: str = "i8") -> Ptr:
        """The address of element `index` (of `type_`). Tables of pointers have 8 bytes for each, always."""
        text = index_text(self.f, index)
        if text == "0":
            return self
        if type_ == "ptr":
            type_ = "i64"
        return Ptr(
            "ptr", self.f.assign(f"getelementptr inbounds {type_}, ptr {self.text}, i64 {text}"), self.f
        )

    def as_bits(self) -> VectorValue:
        """The address as a number, whose arithmetic wraps around."""
        return VectorValue("i64", self.f.assign(f"ptrtoint {self} to i64"), self.f)

    # -- memory; `align` in bytes, by default that of one element
    def load(self, type_: str, align: int = 0, note: str = "") -> VectorValue:
        """The data there; `note` is metadata such as `!invariant.load !{}`."""
        f, end = self.f, f", {note}" if note else ""
        text = f"load {type_}, ptr {self.text}, align {align or element_bytes(type_)}{end}"
        return VectorValue(type_, f.assign(text), f)

    def load_int(self, note: str = "") -> Int:
        """The index there."""
        return Int("i64", self.load("i64", 8, note).text, self.f)

    def load_ptr(self, note: str = "") -> Ptr:
        """The address there."""
        return Ptr("ptr", self.load("ptr", 8, note).text, self.f)

    def store(self, value: Value | int, align: int = 0, nontemporal: bool = False) -> None:
        """Stores a value; a Python int as i64."""
        type_, text = ("i64", str(value)) if isinstance(value, int) else (value.type, value.text)
        end = ", !nontemporal !2" if nontemporal else ""
        self.f.do(f"store {type_} {text}, ptr {self.text}, align {align or element_bytes(type_)}{end}")

    def prefetch(self, locality: int = 3, writes: bool = False) -> None:
        """Fetches the cache line, to be read or written soon; locality 3: into L1, 2: into L2."""
        module = self.f.module
        if _PREFETCH not in module.declarations:
            module.declare(_PREFETCH, "void", ["ptr", "i32", "i32", "i32"])
        self.f.do(f"call void @{_PREFETCH}(ptr {self.text}, i32 {int(writes)}, i32 {locality}, i32 1)")

    # -- comparisons
    def equals(self, other: Ptr) -> VectorValue:
        """Whether it is the same address."""
        return VectorValue("i1", self.f.assign(f"icmp eq ptr {self.text}, {other.text}"), self.f)

    def differs(self, other: Ptr) -> VectorValue:
        """Whether it is another address."""
        return VectorValue("i1", self.f.assign(f"icmp ne ptr {self.text}, {other.text}"), self.f)

    def is_null(self) -> VectorValue:
        """Whether there is nothing."""
        return VectorValue("i1", self.f.assign(f"icmp eq ptr {self.text}, null"), self.f)

    def is_not_null(self) -> VectorValue:
        """Whether there is something."""
        return VectorValue("i1", self.f.assign(f"icmp ne ptr {self.text}, null"), self.f)

    # -- memory that other threads change; orderings as LLVM names them
    def atomic_load(self, type_: str, ordering: str) -> VectorValue:
        """The data there."""
        text = f"load atomic {type_}, ptr {self.text} {ordering}, align {element_bytes(type_)}"
        return VectorValue(type_, self.f.assign(text), self.f)

    def atomic_store(self, value: Value, ordering: str) -> None:
        """Stores a value."""
        self.f.do(f"store atomic {value}, ptr {self.text} {ordering}, align {element_bytes(value.type)}")

    def atomic_rmw(self, operation: str, value: Value, ordering: str) -> VectorValue:
        """`add`, `sub`, `and`, `or`, `xchg`, ...; returns the data before."""
        text = f"atomicrmw {operation} ptr {self.text}, {value} {ordering}"
        return VectorValue(value.type, self.f.assign(text), self.f)

    def compare_exchange(
        self, expected: Value, new: Value, success: str, failure: str
    ) -> tuple[VectorValue, VectorValue]:
        """Stores `new` where `expected` was; returns the data before and whether it was stored."""
        type_ = new.type
        text = f"cmpxchg ptr {self.text}, {expected}, {new} {success} {failure}"
        pair = f"{{{type_}, i1}} {self.f.assign(text)}"
        before, stored = (self.f.assign(f"extractvalue {pair}, {k}") for k in (0, 1))
        return VectorValue(type_, before, self.f), VectorValue("i1", stored, self.f)
