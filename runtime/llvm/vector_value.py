"""Arithmetic on LLVM values written with Python's operators: the notation of the vector maths.

Nothing here becomes a library call on any target: only generic LLVM instructions, and intrinsics that a
target has as instructions (`Target.has_fma`, `Target.has_rounding`, `Target.has_scaling`); where it has not, longer
plain code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .ir_builder import Function, Value, constant, split_vector, vector_type

FLOAT_BITS = {"float": 32, "double": 64}
MANTISSA_BITS = {"float": 23, "double": 52}


class Lanes:
    """A value of a function under construction; `x * y + 1.0` writes the instructions.

    Numbers become constants of the other operand's type. `>>` is the arithmetic shift, `shift_right` the
    logical one. Comparisons are IEEE's ordered ones (`differs` is unordered) or signed; they give i1 lanes.
    """

    __slots__ = ("f", "value")

    def __init__(self, f: Function, value: Value) -> None:
        self.f, self.value = f, value

    # -- types
    @property
    def type(self) -> str:
        """The LLVM type."""
        return self.value.type

    @property
    def element(self) -> str:
        """The LLVM type of one lane."""
        return split_vector(self.value.type)[0]

    @property
    def lanes(self) -> int:
        """Number of lanes; a scalar has one."""
        return split_vector(self.value.type)[1]

    @property
    def is_float(self) -> bool:
        """float or double lanes."""
        return self.element in FLOAT_BITS

    @property
    def bits(self) -> int:
        """Bits of one lane."""
        return FLOAT_BITS.get(self.element) or int(self.element[1:])

    @property
    def is_constant(self) -> bool:
        """A constant, not the result of an instruction or a parameter."""
        return not self.value.text.startswith("%")

    def number(self, number: float | int | bool) -> Lanes:
        """The constant of this type."""
        return Lanes(self.f, constant(self.type, number))

    def same(self, other: Lanes | float | int) -> Lanes:
        """A Python number as a constant of this type; lanes as they are."""
        return other if isinstance(other, Lanes) else self.number(other)

    # -- arithmetic
    def _binary(self, integer: str, floating: str, other: Lanes | float) -> Lanes:
        opcode = floating if self.is_float else integer
        return Lanes(self.f, self.f.binary(opcode, self.value, self.same(other).value))

    def __add__(self, other: Lanes | float) -> Lanes:
        return self._binary("add", "fadd", other)

    def __sub__(self, other: Lanes | float) -> Lanes:
        return self._binary("sub", "fsub", other)

    def __mul__(self, other: Lanes | float) -> Lanes:
        return self._binary("mul", "fmul", other)

    def __truediv__(self, other: Lanes | float) -> Lanes:
        return self._binary("sdiv", "fdiv", other)

    def __radd__(self, other: float) -> Lanes:
        return self.same(other) + self

    def __rsub__(self, other: float) -> Lanes:
        return self.same(other) - self

    def __rmul__(self, other: float) -> Lanes:
        return self.same(other) * self

    def __rtruediv__(self, other: float) -> Lanes:
        return self.same(other) / self

    def __neg__(self) -> Lanes:
        if not self.is_float:
            return self.number(0) - self
        return Lanes(self.f, self.f.op(self.type, f"fneg {self.value}"))

    def __and__(self, other: Lanes | int) -> Lanes:
        return self._binary("and", "", other)

    def __or__(self, other: Lanes | int) -> Lanes:
        return self._binary("or", "", other)

    def __xor__(self, other: Lanes | int) -> Lanes:
        return self._binary("xor", "", other)

    def __invert__(self) -> Lanes:
        return self ^ (1 if self.element == "i1" else -1)

    def __lshift__(self, other: Lanes | int) -> Lanes:
        return self._binary("shl", "", other)

    def __rshift__(self, other: Lanes | int) -> Lanes:
        return self._binary("ashr", "", other)

    def shift_right(self, other: Lanes | int) -> Lanes:
        """Logical shift right."""
        return self._binary("lshr", "", other)

    def operation(self, opcode: str, other: Lanes | int) -> Lanes:
        """Any binary LLVM instruction."""
        return Lanes(self.f, self.f.binary(opcode, self.value, self.same(other).value))

    # -- comparisons
    def _compare(self, integer: str, floating: str, other: Lanes | float) -> Lanes:
        opcode = f"fcmp {floating}" if self.is_float else f"icmp {integer}"
        return Lanes(self.f, self.f.compare(opcode, self.value, self.same(other).value))

    def __lt__(self, other: Lanes | float) -> Lanes:
        return self._compare("slt", "olt", other)

    def __le__(self, other: Lanes | float) -> Lanes:
        return self._compare("sle", "ole", other)

    def __gt__(self, other: Lanes | float) -> Lanes:
        return self._compare("sgt", "ogt", other)

    def __ge__(self, other: Lanes | float) -> Lanes:
        return self._compare("sge", "oge", other)

    def equals(self, other: Lanes | float) -> Lanes:
        """Equal lanes; a NaN equals nothing."""
        return self._compare("eq", "oeq", other)

    def differs(self, other: Lanes | float) -> Lanes:
        """Unequal lanes; a NaN differs from everything."""
        return self._compare("ne", "une", other)

    def below(self, other: Lanes | int) -> Lanes:
        """Unsigned less-than."""
        return Lanes(self.f, self.f.compare("icmp ult", self.value, self.same(other).value))

    def is_nan(self) -> Lanes:
        """Lanes that hold a NaN."""
        return Lanes(self.f, self.f.compare("fcmp uno", self.value, self.value))

    def choose(self, yes: Lanes, no: Lanes) -> Lanes:
        """`yes` in the lanes where this condition holds, else `no`."""
        return Lanes(self.f, self.f.select(self.value, yes.value, no.value))

    # -- one instruction, or a few
    def call(self, intrinsic: str, *others: Lanes | float) -> Lanes:
        """An intrinsic whose operands and result have this type."""
        arguments = [self.value, *(self.same(o).value for o in others)]
        return Lanes(self.f, self.f.intrinsic(intrinsic, self.type, arguments))

    def fma(self, a: Lanes | float, b: Lanes | float) -> Lanes:
        """self * a + b, fused where the target fuses."""
        return self.call("fma" if has_fma(self.f) else "fmuladd", a, b)

    def __abs__(self) -> Lanes:
        if self.is_float:
            return self.call("fabs")
        return Lanes(self.f, self.f.intrinsic("abs", self.type, [self.value, Value("i1", "false")]))

    def copysign(self, sign: Lanes) -> Lanes:
        """This magnitude with the other's sign."""
        return self.call("copysign", sign)

    def at_most(self, bound: Lanes | float) -> Lanes:
        """min(self, bound); a NaN here stays, so does a -0.0."""
        bound = self.same(bound)
        return (self > bound).choose(bound, self)

    def at_least(self, bound: Lanes | float) -> Lanes:
        """max(self, bound); a NaN here stays."""
        bound = self.same(bound)
        return (self < bound).choose(bound, self)

    def sqrt(self) -> Lanes:
        """Square root, rounded correctly."""
        return self.call("sqrt")

    def scaled(self, exponent: Lanes) -> Lanes:
        """self * 2^exponent, rounded once, for integral exponents in lanes of this type; where `has_scaling`."""
        return Lanes(self.f, _by_register(self.f, "mask.scalef", (self.value, exponent.value), (4,)))

    def quotient(self, divisor: Lanes, corrected: bool = False) -> Lanes:
        """self / divisor within two ulp, or one if corrected, where the divisor and its reciprocal are normal numbers;
        a NaN stays."""
        if not has_scaling(self.f):
            return self / divisor
        found = Lanes(self.f, _by_register(self.f, "rcp14", (divisor.value,)))
        for _ in range(1 if self.bits == 32 else 2):  # each of Newton's steps doubles the bits
            found = found.fma((-divisor).fma(found, 1.0), found)
        near = self * found
        return (-near).fma(divisor, self).fma(found, near) if corrected else near

    def inverse_sqrt(self) -> Lanes:
        """1 / sqrt(self), within 1.6 ulp."""
        if not has_scaling(self.f):
            return 1.0 / self.sqrt()
        near = found = Lanes(self.f, _by_register(self.f, "rsqrt14", (self.value,)))
        for _ in range(1 if self.bits == 32 else 2):
            found = (found * 0.5).fma((-(self * found)).fma(found, 1.0), found)
        return found.is_nan().choose(near, found)  # of zero and infinity the first one is exact

    # -- conversions
    def cast(self, opcode: str, element: str) -> Lanes:
        """An LLVM cast of every lane."""
        return Lanes(self.f, self.f.cast(opcode, self.value, vector_type(element, self.lanes)))

    def as_bits(self) -> Lanes:
        """The bits of floating lanes as integers of the same width."""
        return self.cast("bitcast", f"i{self.bits}")

    def as_float(self) -> Lanes:
        """Integer lanes of 32 or 64 bits as the floats with these bits."""
        return self.cast("bitcast", {32: "float", 64: "double"}[self.bits])

    def widen(self) -> Lanes:
        """float lanes as double."""
        return self.cast("fpext", "double")

    def narrow(self) -> Lanes:
        """double lanes as float, rounded."""
        return self.cast("fptrunc", "float")

    # -- rounding to integral values; the sign of zero is kept
    def rint(self) -> Lanes:
        """To nearest, ties to even."""
        if _has_rounding(self.f):
            return self.call("rint")
        magic = 2.0 ** MANTISSA_BITS[self.element]
        size = abs(self)
        return (size < magic).choose((size + magic) - magic, size).copysign(self)

    def floor(self) -> Lanes:
        """Towards minus infinity."""
        if _has_rounding(self.f):
            return self.call("floor")
        near = self.rint()
        return (near > self).choose(near - 1.0, near).copysign(self)

    def ceil(self) -> Lanes:
        """Towards plus infinity."""
        if _has_rounding(self.f):
            return self.call("ceil")
        near = self.rint()
        return (near < self).choose(near + 1.0, near).copysign(self)

    def trunc(self) -> Lanes:
        """Towards zero."""
        if _has_rounding(self.f):
            return self.call("trunc")
        size = abs(self)
        near = size.rint()
        return (near > size).choose(near - 1.0, near).copysign(self)

    # -- several lanes at once
    def any(self) -> Value:
        """Whether an i1 lane is true."""
        if self.lanes == 1:
            return self.value
        mask = self.f.op(f"i{self.lanes}", f"bitcast {self.value} to i{self.lanes}")
        return self.f.compare("icmp ne", mask, constant(mask.type, 0))


def has_fma(f: Function) -> bool:
    """Whether the function's target has fused multiply-add instructions."""
    return f.module.target is not None and f.module.target.has_fma


def _has_rounding(f: Function) -> bool:
    return f.module.target is not None and f.module.target.has_rounding


def has_scaling(f: Function) -> bool:
    """Whether the function's target multiplies by powers of two and approximates reciprocals to 14 bits."""
    return f.module.target is not None and f.module.target.has_scaling


def _by_register(f: Function, name: str, operands: Sequence[Value], more: Sequence[int] = ()) -> Value:
    """An instruction of AVX-512 on lanes of any number: cut into whole registers, the last one filled up with poison.
    `more` are the numbers after its mask."""
    element, lanes = split_vector(operands[0].type)
    size = 512 // FLOAT_BITS[element]
    wide, mask = vector_type(element, size), constant(f"i{max(size, 8)}", -1)
    name = f"llvm.x86.avx512.{name}.{'ps' if element == 'float' else 'pd'}.512"
    poison = Value(wide, "poison")
    found: list[Value] = []
    for start in range(0, lanes, size):
        given = [_lanes_at(f, x, start, size) for x in operands]
        numbers = [constant("i32", n) for n in more]
        found.append(f.call(name, wide, [*given, poison, mask, *numbers]))
    while len(found) > 1:
        found.extend([Value(found[0].type, "poison")] * (len(found) % 2))
        found = [_joined(f, a, b) for a, b in zip(found[::2], found[1::2])]
    return found[0] if found[0].type == operands[0].type else _lanes_at(f, found[0], 0, lanes)


def _lanes_at(f: Function, x: Value, start: int, count: int) -> Value:
    """Lanes from `start` on; poison where x has no more."""
    element, lanes = split_vector(x.type)
    if lanes == count:
        return x
    if count == 1:
        return f.extract(x, start)
    wide = vector_type(element, count)
    if lanes == 1:
        return f.op(wide, f"insertelement {wide} poison, {x}, i64 0")
    order = ", ".join(f"i32 {k}" if k < lanes else "i32 poison" for k in range(start, start + count))
    return f.op(wide, f"shufflevector {x}, {x.type} poison, <{count} x i32> <{order}>")


def _joined(f: Function, a: Value, b: Value) -> Value:
    """The lanes of a, then those of b."""
    element, lanes = split_vector(a.type)
    order = ", ".join(f"i32 {k}" for k in range(2 * lanes))
    return f.op(vector_type(element, 2 * lanes), f"shufflevector {a}, {b}, <{2 * lanes} x i32> <{order}>")


def horner(x: Lanes, coefficients: Sequence[float]) -> Lanes:
    """The polynomial with these coefficients, highest degree first: the fewest instructions."""
    total = x.number(coefficients[0])
    for coefficient in coefficients[1:]:
        total = total.fma(x, coefficient)
    return total


def rarely(
    f: Function, condition: Value, then: Callable[[], Sequence[Lanes]], otherwise: Sequence[Lanes]
) -> list[Lanes]:
    """`then()` where the (one, rarely true) condition holds, else the values at hand; it lies out of line."""
    slow, end, before = f.fresh("rare"), f.fresh("end"), f.block
    f.do(f'br {condition}, label %{slow}, label %{end}, !prof !{{!"branch_weights", i32 1, i32 100000}}')
    f.start_block(slow)
    found, found_block = list(then()), f.block
    f.do(f"br label %{end}")
    f.start_block(end)
    return [
        Lanes(f, f.op(a.type, f"phi {a.type} [{a.value.text}, %{found_block}], [{b.value.text}, %{before}]"))
        for a, b in zip(found, otherwise, strict=True)
    ]


def per_lane(f: Function, name: str, arguments: Sequence[Lanes]) -> Lanes:
    """Calls a scalar external function on every lane."""
    element, lanes = arguments[0].element, arguments[0].lanes
    result = Value(arguments[0].type, "poison")
    for lane in range(lanes):
        one = f.call(name, element, [f.extract(a.value, lane) for a in arguments])
        if lanes == 1:
            return Lanes(f, one)
        result = f.op(result.type, f"insertelement {result}, {one}, i64 {lane}")
    return Lanes(f, result)


def map_lanes(x: Lanes, function: Callable[[Lanes], Sequence[Lanes]], like: Sequence[Lanes]) -> list[Lanes]:
    """`function` of each lane of x in a loop; its results have the types of the lanes of `like`."""
    if x.lanes == 1:
        return list(function(x))
    f = x.f

    def body(lane: Value, results: list[Value]) -> list[Value]:
        one = function(Lanes(f, f.op(x.element, f"extractelement {x.value}, {lane}")))
        return [
            f.op(r.type, f"insertelement {r}, {v.value}, {lane}") for r, v in zip(results, one, strict=True)
        ]

    return [Lanes(f, r) for r in f.loop(0, x.lanes, 1, body, [value.value for value in like])]
