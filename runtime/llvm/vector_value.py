"""Data under construction: numbers, conditions and bits, in one lane or several, with Python's operators.

Nothing here becomes a library call on any target: only generic LLVM instructions, and intrinsics that a
target has as instructions (`Target.fuses`, `Target.rounds`, `Target.has_scaling`); where it has not, longer
plain code.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TypeVar

from ..sizes import Size
from .types import (
    FLOAT_BITS,
    MANTISSA_BITS,
    constant_text,
    intrinsic_name,
    is_float,
    mask_type,
    splat_text,
    split_vector,
    vector_type,
)
from .value import InstructionWriter, Value, same_type

V = TypeVar("V", bound=Value)
Number = float | int | bool


class VectorValue(Value):
    """A float, an integer or a condition (i1), in one lane or several; `x * y + 1.0` writes the instructions.

    Numbers become constants of the other operand's type. `>>` is the arithmetic shift, `shift_right` the logical one,
    `/` the signed quotient; integers wrap around. Comparisons are IEEE's ordered ones (`differs` is unordered) or
    signed; they give i1 lanes.
    """

    __slots__ = ()

    # -- types
    @property
    def element(self) -> str:
        """The LLVM type of one lane."""
        return split_vector(self.type)[0]

    @property
    def lanes(self) -> int:
        """Number of lanes; a scalar has one."""
        return split_vector(self.type)[1]

    @property
    def is_float(self) -> bool:
        """float or double lanes."""
        return is_float(self.type)

    @property
    def bits(self) -> int:
        """Bits of one lane."""
        return FLOAT_BITS.get(self.element) or int(self.element[1:])

    def number(self, number: Number) -> VectorValue:
        """The constant of this type; of a size known at run time only its value in every lane."""
        return VectorValue(self.type, self._text(number), self.f)

    def _text(self, number: Number) -> str:
        if not isinstance(number, Size):
            return constant_text(self.type, number)
        value = VectorValue("i64", self.f.size_text(number), self.f)
        if self.is_float:
            return value.cast("sitofp", self.element).splat(self.lanes).text
        return (value.cast("trunc", self.element) if self.bits < 64 else value).splat(self.lanes).text

    def same(self, other: Value | Number) -> VectorValue:
        """A Python number as a constant of this type; a value as it is.

        Raises: TypeError  a value of another type.
        """
        if not isinstance(other, Value):
            return self.number(other)
        same_type(self, other, "arithmetic")
        return other if isinstance(other, VectorValue) else VectorValue.of(self.f, other)

    def write(self, instruction: str, type_: str = "") -> VectorValue:
        """The result of one instruction, of this type or another one."""
        return VectorValue(type_ or self.type, self.f.assign(instruction), self.f)

    # -- arithmetic
    def operation(self, opcode: str, other: Value | Number) -> VectorValue:
        """Any binary LLVM instruction."""
        return VectorValue(self.type, self._binary(opcode, other), self.f)

    def _binary(self, opcode: str, other: Value | Number) -> str:
        """The name of the result of an instruction on this value and another one of its type."""
        if isinstance(other, Value):
            if other.type != self.type:
                same_type(self, other, opcode)
            text = other.text
        else:
            text = self._text(other)
        return self.f.assign(f"{opcode} {self.type} {self.text}, {text}")

    def __add__(self, other: Value | Number) -> VectorValue:
        return self.operation("fadd" if is_float(self.type) else "add", other)

    def __sub__(self, other: Value | Number) -> VectorValue:
        return self.operation("fsub" if is_float(self.type) else "sub", other)

    def __mul__(self, other: Value | Number) -> VectorValue:
        return self.operation("fmul" if is_float(self.type) else "mul", other)

    def __truediv__(self, other: Value | Number) -> VectorValue:
        return self.operation("fdiv" if is_float(self.type) else "sdiv", other)

    def __radd__(self, other: Number) -> VectorValue:
        return self.number(other) + self

    def __rsub__(self, other: Number) -> VectorValue:
        return self.number(other) - self

    def __rmul__(self, other: Number) -> VectorValue:
        return self.number(other) * self

    def __rtruediv__(self, other: Number) -> VectorValue:
        return self.number(other) / self

    def __neg__(self) -> VectorValue:
        return self.write(f"fneg {self}") if self.is_float else self.number(0) - self

    def __and__(self, other: Value | int) -> VectorValue:
        return self.operation("and", other)

    def __or__(self, other: Value | int) -> VectorValue:
        return self.operation("or", other)

    def __xor__(self, other: Value | int) -> VectorValue:
        return self.operation("xor", other)

    def __invert__(self) -> VectorValue:
        return self ^ (1 if self.element == "i1" else -1)

    def __lshift__(self, other: Value | int) -> VectorValue:
        return self.operation("shl", other)

    def __rshift__(self, other: Value | int) -> VectorValue:
        return self.operation("ashr", other)

    def shift_right(self, other: Value | int) -> VectorValue:
        """Logical shift right."""
        return self.operation("lshr", other)

    # -- comparisons
    def compare(self, opcode: str, other: Value | Number) -> VectorValue:
        """`icmp slt`, `fcmp olt`, ...: i1 per lane."""
        return VectorValue(mask_type(self.type), self._binary(opcode, other), self.f)

    def __lt__(self, other: Value | Number) -> VectorValue:
        return self.compare("fcmp olt" if is_float(self.type) else "icmp slt", other)

    def __le__(self, other: Value | Number) -> VectorValue:
        return self.compare("fcmp ole" if is_float(self.type) else "icmp sle", other)

    def __gt__(self, other: Value | Number) -> VectorValue:
        return self.compare("fcmp ogt" if is_float(self.type) else "icmp sgt", other)

    def __ge__(self, other: Value | Number) -> VectorValue:
        return self.compare("fcmp oge" if is_float(self.type) else "icmp sge", other)

    def equals(self, other: Value | Number) -> VectorValue:
        """Equal lanes; a NaN equals nothing."""
        return self.compare("fcmp oeq" if is_float(self.type) else "icmp eq", other)

    def differs(self, other: Value | Number) -> VectorValue:
        """Unequal lanes; a NaN differs from everything."""
        return self.compare("fcmp une" if is_float(self.type) else "icmp ne", other)

    def below(self, other: Value | int) -> VectorValue:
        """Unsigned less-than."""
        return self.compare("icmp ult", other)

    def is_nan(self) -> VectorValue:
        """Lanes that hold a NaN."""
        return self.compare("fcmp uno", self)

    def choose(self, yes: V | int, no: V | int) -> V:
        """`yes` in the lanes where this condition holds, else `no`; with one lane, for all of theirs. A Python number
        is a constant of the other's type."""
        f = self.f
        if isinstance(yes, Value):
            if isinstance(no, Value) and no.type != yes.type:
                same_type(yes, no, "select")
            type_, other = yes.type, no.text if isinstance(no, Value) else constant_text(yes.type, no)
            text = f"select {self.type} {self.text}, {type_} {yes.text}, {type_} {other}"
            return type(yes)(type_, f.assign(text), f)
        if not isinstance(no, Value):
            raise TypeError(f"select: one of {yes} and {no} must be a value")
        constant = constant_text(no.type, yes)
        return type(no)(no.type, f.assign(f"select {self}, {no.type} {constant}, {no}"), f)

    # -- one instruction, or a few
    def call(self, intrinsic: str, *others: Value | Number) -> VectorValue:
        """An intrinsic whose operands and result have this type."""
        type_, f = self.type, self.f
        name = intrinsic_name(intrinsic, type_)
        if name not in f.module.declarations:
            f.module.declare(name, type_, [type_] * (1 + len(others)))
        texts = [o.text if isinstance(o, Value) else self._text(o) for o in others]
        listed = f", {type_} ".join([self.text, *texts])
        return VectorValue(type_, f.assign(f"call {type_} @{name}({type_} {listed})"), f)

    def fma(self, a: Value | Number, b: Value | Number) -> VectorValue:
        """self * a + b, fused where the target fuses."""
        return self.call("fma" if has_fma(self) else "fmuladd", a, b)

    def __abs__(self) -> VectorValue:
        if self.is_float:
            return self.call("fabs")
        return self.write(self.f.intrinsic_text("abs", self.type, [self, Value("i1", "false")]))

    def copysign(self, sign: VectorValue) -> VectorValue:
        """This magnitude with the other's sign."""
        return self.call("copysign", sign)

    def at_most(self, bound: VectorValue | Number) -> VectorValue:
        """min(self, bound); a NaN here stays, so does a -0.0."""
        bound = self.same(bound)
        return (self > bound).choose(bound, self)

    def at_least(self, bound: VectorValue | Number) -> VectorValue:
        """max(self, bound); a NaN here stays."""
        bound = self.same(bound)
        return (self < bound).choose(bound, self)

    def sqrt(self) -> VectorValue:
        """Square root, rounded correctly."""
        return self.call("sqrt")

    def scaled(self, exponent: VectorValue) -> VectorValue:
        """self * 2^exponent, rounded once, for integral exponents in lanes of this type; where `has_scaling`."""
        return _by_register(self.f, "mask.scalef", (self, exponent), (4,))

    def quotient(self, divisor: VectorValue, corrected: bool = False) -> VectorValue:
        """self / divisor within two ulp, or one if corrected, where the divisor and its reciprocal are normal numbers;
        a NaN stays."""
        if not has_scaling(self.f):
            return self / divisor
        reciprocal = _by_register(self.f, "rcp14", (divisor,))
        for _ in range(1 if self.bits == 32 else 2):  # each of Newton's steps doubles the bits
            reciprocal = reciprocal.fma((-divisor).fma(reciprocal, 1.0), reciprocal)
        estimate = self * reciprocal
        return (-estimate).fma(divisor, self).fma(reciprocal, estimate) if corrected else estimate

    def inverse_sqrt(self) -> VectorValue:
        """1 / sqrt(self), within 1.6 ulp."""
        if not has_scaling(self.f):
            return 1.0 / self.sqrt()
        estimate = root = _by_register(self.f, "rsqrt14", (self,))
        for _ in range(1 if self.bits == 32 else 2):
            root = (root * 0.5).fma((-(self * root)).fma(root, 1.0), root)
        return root.is_nan().choose(estimate, root)  # of zero and infinity the estimate is exact

    # -- conversions
    def cast(self, opcode: str, element: str) -> VectorValue:
        """An LLVM cast of every lane; nothing where the type is the same."""
        type_ = vector_type(element, self.lanes)
        if (opcode, element, self.lanes) == (
            "trunc",
            "i8",
            3,
        ) and self.bits == 64:  # LLVM 22 fails on it for AArch64
            return self.shuffle((0, 1, 2, -1)).cast(opcode, element).shuffle((0, 1, 2))
        return self if type_ == self.type else self.write(f"{opcode} {self} to {type_}", type_)

    def as_bits(self) -> VectorValue:
        """The bits of floating lanes as integers of the same width."""
        return self.cast("bitcast", f"i{self.bits}")

    def as_float(self) -> VectorValue:
        """Integer lanes of 32 or 64 bits as the floats with these bits."""
        return self.cast("bitcast", {32: "float", 64: "double"}[self.bits])

    def widen(self) -> VectorValue:
        """float lanes as double."""
        return self.cast("fpext", "double")

    def narrow(self) -> VectorValue:
        """double lanes as float, rounded."""
        return self.cast("fptrunc", "float")

    # -- rounding to integral values; the sign of zero is kept
    def rint(self) -> VectorValue:
        """To nearest, ties to even."""
        if _has_rounding(self):
            return self.call("rint")
        magic = 2.0 ** MANTISSA_BITS[self.element]
        size = abs(self)
        return (size < magic).choose((size + magic) - magic, size).copysign(self)

    def floor(self) -> VectorValue:
        """Towards minus infinity."""
        if _has_rounding(self):
            return self.call("floor")
        nearest = self.rint()
        return (nearest > self).choose(nearest - 1.0, nearest).copysign(self)

    def ceil(self) -> VectorValue:
        """Towards plus infinity."""
        if _has_rounding(self):
            return self.call("ceil")
        nearest = self.rint()
        return (nearest < self).choose(nearest + 1.0, nearest).copysign(self)

    def trunc(self) -> VectorValue:
        """Towards zero."""
        if _has_rounding(self):
            return self.call("trunc")
        size = abs(self)
        nearest = size.rint()
        return (nearest > size).choose(nearest - 1.0, nearest).copysign(self)

    # -- several lanes at once
    def any(self) -> VectorValue:
        """Whether an i1 lane is true."""
        if self.lanes == 1:
            return self
        return self.write(f"bitcast {self} to i{self.lanes}", f"i{self.lanes}").differs(0)

    def extract(self, lane: int | Value) -> VectorValue:
        """One lane; a scalar is its own."""
        element, lanes = split_vector(self.type)
        at = f"i64 {lane}" if isinstance(lane, int) else str(lane)
        return self if lanes == 1 else self.write(f"extractelement {self}, {at}", element)

    def insert(self, scalar: Value, lane: int | Value) -> VectorValue:
        """This vector with another scalar in one lane."""
        at = f"i64 {lane}" if isinstance(lane, int) else str(lane)
        return self.write(f"insertelement {self}, {scalar}, {at}")

    def splat(self, lanes: int) -> VectorValue:
        """A vector with this scalar in every lane; the scalar itself for one lane."""
        if lanes == 1:
            return self
        vector = vector_type(self.type, lanes)
        if not self.text.startswith("%"):
            return VectorValue(vector, splat_text(str(self), lanes), self.f)
        one = self.f.assign(f"insertelement {vector} poison, {self}, i64 0")
        return self.write(
            f"shufflevector {vector} {one}, {vector} poison, <{lanes} x i32> zeroinitializer", vector
        )

    def shuffle(self, order: Sequence[int], other: Value | None = None) -> VectorValue:
        """Lanes of this vector and another one, numbered through, in this order; -1 is any lane."""
        second = str(other) if other else f"{self.type} poison"
        type_ = vector_type(self.element, len(order))
        return self.write(f"shufflevector {self}, {second}, {_shuffle_mask(tuple(order))}", type_)


@functools.lru_cache(1024)
def _shuffle_mask(order: tuple[int, ...]) -> str:
    index = ", ".join([f"i32 {k}" if k >= 0 else "i32 poison" for k in order])
    return f"<{len(order)} x i32> <{index}>"


def has_fma(x: VectorValue) -> bool:
    """Whether the function's target has a fused multiply-add instruction for such values."""
    return x.f.module.target is not None and x.f.module.target.fuses(x.bits)


def _has_rounding(x: VectorValue) -> bool:
    return x.f.module.target is not None and x.f.module.target.rounds(x.bits)


def has_scaling(f: InstructionWriter) -> bool:
    """Whether the function's target multiplies by powers of two and approximates reciprocals to 14 bits."""
    return f.module.target is not None and f.module.target.has_scaling


def _by_register(
    f: InstructionWriter, name: str, operands: Sequence[VectorValue], numbers: Sequence[int] = ()
) -> VectorValue:
    """An instruction of AVX-512 on lanes of any number. `numbers` are its operands after the mask."""
    element = operands[0].element
    size = 512 // FLOAT_BITS[element]
    register = vector_type(element, size)
    name = f"llvm.x86.avx512.{name}.{'ps' if element == 'float' else 'pd'}.512"
    last: list[Value] = [Value(register, "poison"), Value(f"i{max(size, 8)}", "-1")]
    last += [Value("i32", str(n)) for n in numbers]

    def call(*registers: VectorValue) -> VectorValue:
        return registers[0].write(f.call_text(name, register, [*registers, *last]))

    return by_registers(operands, size, call)


def by_registers(
    operands: Sequence[VectorValue], size: int, function: Callable[..., VectorValue]
) -> VectorValue:
    """A function of registers of `size` lanes on operands of any number of lanes: cut into whole registers, the last
    one filled up with poison. Its results have the type of its arguments."""
    first = operands[0]
    parts = [
        function(*(_lanes_at(x, start, size) for x in operands)) for start in range(0, first.lanes, size)
    ]
    while len(parts) > 1:
        parts.extend([VectorValue(parts[0].type, "poison", first.f)] * (len(parts) % 2))
        parts = [a.shuffle(range(2 * a.lanes), b) for a, b in zip(parts[::2], parts[1::2])]
    return parts[0] if parts[0].type == first.type else _lanes_at(parts[0], 0, first.lanes)


def _lanes_at(x: VectorValue, start: int, count: int) -> VectorValue:
    """Lanes from `start` on; poison where x has no more."""
    element, lanes = split_vector(x.type)
    if lanes == count:
        return x
    if count == 1:
        return x.extract(start)
    if lanes == 1:
        return VectorValue(vector_type(element, count), "poison", x.f).insert(x, 0)
    return x.shuffle([k if k < lanes else -1 for k in range(start, start + count)])


def horner(x: VectorValue, coefficients: Sequence[float]) -> VectorValue:
    """The polynomial with these coefficients, highest degree first: the fewest instructions."""
    total = x.number(coefficients[0])
    for coefficient in coefficients[1:]:
        total = total.fma(x, coefficient)
    return total


def per_lane(f: InstructionWriter, name: str, arguments: Sequence[VectorValue]) -> VectorValue:
    """Calls a scalar external function on every lane."""
    first = arguments[0]
    vector = VectorValue(first.type, "poison", f)
    for lane in range(first.lanes):
        lanes: list[Value] = [a.extract(lane) for a in arguments]
        result = first.write(f.call_text(name, first.element, lanes), first.element)
        if first.lanes == 1:
            return result
        vector = vector.insert(result, lane)
    return vector
