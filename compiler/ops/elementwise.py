"""Elementwise ops: every element of the result depends on the same element of the operands.

Most are rows of one table; those with attributes (compare, convert, bitcast-convert, reduce-precision) are
classes.
"""

from __future__ import annotations

import dataclasses
import enum
import operator
from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np

from ..ir.element_types import ARRAYS, COMPLEXES, FLOATS, INTEGERS, NUMBERS, ElementType
from ..ir.module import Instruction, make
from ..ir.shape import Shape
from . import numeric
from .op import OPS, Op, attribute, require, require_arrays

_PRED = ElementType.PRED
_REAL_NUMBERS = INTEGERS | FLOATS
_LOGICAL = INTEGERS | {_PRED}
_INEXACT = FLOATS | COMPLEXES
_PARTS = frozenset({ElementType.F32, ElementType.F64})

Function = Callable[..., np.ndarray]


@dataclasses.dataclass(frozen=True)
class Row:
    """One elementwise op: how many operands, of which types, its meaning on arrays of the operands' own
    types, a description, its result's type ("same", "pred", "real": of a complex type's parts,
    "complex"), and as of `Op` its cost in cycles and the arithmetic operations for one element."""

    arity: int
    types: frozenset[ElementType]
    function: Function
    meaning: str
    result: str = "same"
    cycles: int = 1
    flops: int = 1


def _in_wide(function: Function) -> Function:
    return lambda *arrays: numeric.apply(function, *arrays)


def _absolute(a: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return numeric.narrow(np.abs(numeric.wide(a)), _part_dtype(a))


def _part_dtype(a: np.ndarray) -> np.dtype:
    return a.real.dtype if a.dtype.kind == "c" else a.dtype


def _real(a: np.ndarray) -> np.ndarray:
    return a.real if a.dtype.kind == "c" else a


def _imaginary(a: np.ndarray) -> np.ndarray:
    return a.imag if a.dtype.kind == "c" else numeric.narrow(np.zeros(a.shape), a.dtype)


def _complex(real: np.ndarray, imaginary: np.ndarray) -> np.ndarray:
    # Not real + 1j * imaginary: that makes NaN of an infinite imaginary part.
    dtype = np.complex64 if real.dtype == np.float32 else np.complex128
    result = np.empty(np.broadcast_shapes(real.shape, imaginary.shape), dtype)
    result.real, result.imag = real, imaginary
    return result


def _is_finite(a: np.ndarray) -> np.ndarray:
    result: np.ndarray = np.isfinite(a)
    return result


def _select(chooser: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.where(chooser, a, b)


def _clamp(low: np.ndarray, a: np.ndarray, high: np.ndarray) -> np.ndarray:
    return numeric.apply(np.minimum, numeric.apply(np.maximum, low, a), high)


class Opcode(str, enum.Enum):
    """The elementwise ops without attributes, by the names that they have in HLO text."""

    row: Row

    def __new__(cls, name: str, row: Row) -> Opcode:
        opcode = str.__new__(cls, name)
        opcode._value_ = name
        opcode.row = row
        return opcode

    __str__ = str.__str__
    __format__ = str.__format__  # type: ignore[assignment]  # typeshed: of instances only

    ABS = (
        "abs",
        Row(1, NUMBERS, _absolute, "|x|; the length of a complex number; the lowest integer stays", "real"),
    )
    NEGATE = "negate", Row(1, NUMBERS, _in_wide(np.negative), "-x, wrapping")
    SIGN = "sign", Row(1, NUMBERS, _in_wide(numeric.sign), "-1, 0 or 1; -0.0 and NaN stay; complex: x / |x|")
    CEIL = "ceil", Row(1, FLOATS, _in_wide(np.ceil), "the nearest integer not below x")
    FLOOR = "floor", Row(1, FLOATS, _in_wide(np.floor), "the nearest integer not above x")
    ROUND_NEAREST_AFZ = (
        "round-nearest-afz",
        Row(1, FLOATS, _in_wide(numeric.round_away), "the nearest integer, ties away from zero"),
    )
    ROUND_NEAREST_EVEN = (
        "round-nearest-even",
        Row(1, FLOATS, _in_wide(np.rint), "the nearest integer, ties to even"),
    )
    SQRT = "sqrt", Row(1, _INEXACT, _in_wide(np.sqrt), "square root; NaN below zero", cycles=6)
    RSQRT = "rsqrt", Row(1, _INEXACT, _in_wide(numeric.reciprocal_root), "1 / sqrt(x)", cycles=8)
    CBRT = (
        "cbrt",
        Row(
            1,
            _INEXACT,
            _in_wide(numeric.cubic_root),
            "cubic root, also of negative numbers; of complex numbers exp(log(x) / 3)",
            cycles=40,
        ),
    )
    EXPONENTIAL = "exponential", Row(1, _INEXACT, _in_wide(np.exp), "e to the x", cycles=10)
    EXPONENTIAL_MINUS_ONE = (
        "exponential-minus-one",
        Row(
            1,
            _INEXACT,
            _in_wide(numeric.exponential_minus_one),
            "e to the x, minus 1, exact near 0",
            cycles=16,
        ),
    )
    LOG = (
        "log",
        Row(1, _INEXACT, _in_wide(np.log), "natural logarithm; log(0) = -inf, NaN below zero", cycles=14),
    )
    LOG_PLUS_ONE = (
        "log-plus-one",
        Row(1, _INEXACT, _in_wide(numeric.log_plus_one), "log(1 + x), exact near 0", cycles=18),
    )
    LOGISTIC = "logistic", Row(1, _INEXACT, _in_wide(numeric.logistic), "1 / (1 + exp(-x))", cycles=16)
    TANH = "tanh", Row(1, _INEXACT, _in_wide(np.tanh), "hyperbolic tangent", cycles=14)
    SINH = "sinh", Row(1, _INEXACT, _in_wide(np.sinh), "hyperbolic sine, exact near 0", cycles=14)
    TAN = "tan", Row(1, _INEXACT, _in_wide(np.tan), "tangent", cycles=40)
    SINE = "sine", Row(1, _INEXACT, _in_wide(np.sin), "sine", cycles=20)
    COSINE = "cosine", Row(1, _INEXACT, _in_wide(np.cos), "cosine", cycles=20)
    ERF = "erf", Row(1, FLOATS, _in_wide(numeric.erf), "the error function", cycles=14)
    ERFC = (
        "erfc",
        Row(1, FLOATS, _in_wide(numeric.erfc), "1 - erf(x), exact where erf is nearly 1", cycles=24),
    )
    IS_FINITE = "is-finite", Row(1, FLOATS, _is_finite, "neither infinite nor NaN", "pred")
    NOT = "not", Row(1, _LOGICAL, _in_wide(np.invert), "all bits flipped; pred: the other one")
    POPCNT = "popcnt", Row(1, INTEGERS, numeric.population, "number of one bits", cycles=4)
    COUNT_LEADING_ZEROS = (
        "count-leading-zeros",
        Row(1, INTEGERS, numeric.leading_zeros, "zero bits above the highest one bit", cycles=6),
    )
    REAL = "real", Row(1, _INEXACT, _real, "the real part; a real number is its own", "real", flops=0)
    IMAG = "imag", Row(1, _INEXACT, _imaginary, "the imaginary part; 0 for a real number", "real", flops=0)
    ADD = "add", Row(2, ARRAYS, _in_wide(np.add), "a + b, wrapping; pred: a or b")
    SUBTRACT = "subtract", Row(2, NUMBERS, _in_wide(np.subtract), "a - b, wrapping")
    MULTIPLY = "multiply", Row(2, ARRAYS, _in_wide(np.multiply), "a * b, wrapping; pred: a and b")
    DIVIDE = (
        "divide",
        Row(
            2,
            NUMBERS,
            _in_wide(numeric.divide),
            "a / b; integers toward zero, x / 0 = -1 (all bits one), lowest / -1 = lowest",
            cycles=5,
        ),
    )
    REMAINDER = (
        "remainder",
        Row(
            2,
            _REAL_NUMBERS,
            _in_wide(numeric.remainder),
            "rest of division toward zero, sign of a; integers: x rem 0 = x, x rem -1 = 0",
            cycles=20,
        ),
    )
    MULHI = "mulhi", Row(2, INTEGERS, numeric.multiply_high, "the upper half of the exact product", cycles=6)
    POWER = (
        "power",
        Row(
            2,
            NUMBERS,
            _in_wide(numeric.power),
            "a to the b; integers wrap, a negative exponent gives 0 unless a is 1 or -1",
            cycles=40,
        ),
    )
    MAXIMUM = (
        "maximum",
        Row(2, ARRAYS, _in_wide(np.maximum), "the larger; NaN if one is; complex: by the real parts first"),
    )
    MINIMUM = (
        "minimum",
        Row(2, ARRAYS, _in_wide(np.minimum), "the smaller; NaN if one is; complex: by the real parts first"),
    )
    AND = "and", Row(2, _LOGICAL, _in_wide(operator.and_), "bits of both")
    OR = "or", Row(2, _LOGICAL, _in_wide(operator.or_), "bits of either")
    XOR = "xor", Row(2, _LOGICAL, _in_wide(operator.xor), "bits of exactly one")
    SHIFT_LEFT = (
        "shift-left",
        Row(2, INTEGERS, numeric.shift("left"), "a << b; 0 where b, unsigned, is the width or more"),
    )
    SHIFT_RIGHT_ARITHMETIC = (
        "shift-right-arithmetic",
        Row(
            2,
            INTEGERS,
            numeric.shift("sign"),
            "a >> b with the sign; the sign where b, unsigned, is the width or more",
        ),
    )
    SHIFT_RIGHT_LOGICAL = (
        "shift-right-logical",
        Row(
            2,
            INTEGERS,
            numeric.shift("right"),
            "a >> b with zeros; 0 where b, unsigned, is the width or more",
        ),
    )
    ATAN2 = (
        "atan2",
        Row(
            2,
            _INEXACT,
            _in_wide(numeric.angle),
            "angle of the point (x = b, y = a), -pi to pi; complex: -i log((x + iy) / sqrt(x^2 + y^2))",
            cycles=40,
        ),
    )
    COMPLEX = "complex", Row(2, _PARTS, _complex, "the complex number a + bi", "complex", flops=0)
    SELECT = "select", Row(3, ARRAYS, _select, "b where a (pred) holds, else c")
    CLAMP = "clamp", Row(3, ARRAYS, _clamp, "min(max(low, x), high) of (low, x, high)")


ROWS: dict[str, Row] = {opcode.value: opcode.row for opcode in Opcode}


def is_op(instruction: Instruction, *opcodes: Opcode) -> bool:
    """Whether an instruction applies one of these elementwise ops."""
    return instruction.opcode in opcodes


def elementwise(opcode: Opcode, *operands: Instruction) -> Instruction:
    """An elementwise op on instructions."""
    return make(Elementwise(opcode.value), *operands)


@dataclasses.dataclass(frozen=True)
class Elementwise(Op):
    """An op of the table `Opcode`, by name.

    elementwise_c1: as many array operands as the row says.
    elementwise_c2: the operands' element type is one of the row's.
    elementwise_c3: all operands have the same element type (select: the last two).
    elementwise_c4: all operands have the same dims (select: the last two; clamp: see c6).
    elementwise_c5: select's first operand is pred, of the others' dims or a scalar.
    elementwise_c6: clamp's bounds have the dims of the operand between them or are scalars.
    Source: operation semantics, element-wise functions, Select, Clamp.
    """

    is_elementwise: ClassVar[bool] = True
    name: str = attribute("opcode", "")

    opcode = property(operator.attrgetter("name"), doc="The row's name.")

    @property
    def cycles(self) -> int:  # type: ignore[override]  # a class variable of other ops
        """The row's cost."""
        return ROWS[self.name].cycles

    def flops(self, instruction: Instruction) -> int:
        """The row's operations for each element."""
        return ROWS[self.name].flops * instruction.shape.elements

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """The shape of the operands, with the row's result type."""
        row, name = ROWS[self.name], self.name
        require_arrays(name, operands, row.arity, "elementwise_c1")
        main = operands[-1] if name == "select" else operands[row.arity // 2]
        if name == "select":
            chooser, values = operands[0], operands[1:]
            if chooser.element_type is not _PRED or (chooser.dims and chooser.dims != main.dims):
                require(
                    False,
                    f"select: the first operand is {chooser}, pred of the dims of {main} or a scalar is "
                    "wanted",
                    "elementwise_c5",
                )
        else:
            values = operands
        if main.element_type not in row.types:
            types = " ".join(t.value for t in ElementType if t in row.types)
            require(
                False,
                f"{name}: operand {main} has type {main.element_type.value}, one of {types} is wanted",
                "elementwise_c2",
            )
        for value in values:
            if value.element_type is not main.element_type:
                require(
                    False, f"{name}: operands {value} and {main} differ in element type", "elementwise_c3"
                )
            if value.dims != main.dims:
                if name == "clamp":
                    require(
                        not value.dims,
                        f"clamp: bound {value} is neither a scalar nor of the dims of {main}",
                        "elementwise_c6",
                    )
                else:
                    require(False, f"{name}: operands {value} and {main} differ in dims", "elementwise_c4")
        if row.result == "same":
            return main
        kind = main.element_type
        if row.result == "complex":
            return main.with_type(kind.complex)
        return main.with_type(_PRED if row.result == "pred" else kind.real)

    def reference(self, *operands: np.ndarray) -> np.ndarray:
        """The row's function."""
        return np.asarray(ROWS[self.name].function(*operands))


for _name in ROWS:
    OPS[_name] = Elementwise

_COMPARISONS: dict[str, Function] = {
    "EQ": operator.eq,
    "NE": operator.ne,
    "GE": operator.ge,
    "GT": operator.gt,
    "LE": operator.le,
    "LT": operator.lt,
}


@dataclasses.dataclass(frozen=True)
class Compare(Op):
    """Comparison of two arrays, element by element, into pred.

    `direction` is EQ NE GE GT LE LT. `type` is "" (follows from the element type), FLOAT (IEEE: NaN is
    unordered and only NE to anything), TOTALORDER (-NaN < -inf < ... < -0 < +0 < ... < inf < NaN), SIGNED or
    UNSIGNED.
    compare_c1: two array operands of one element type and the same dims.
    compare_c2: direction is one of the six.
    compare_c3: type is "" or fits the element type: FLOAT and TOTALORDER floats (FLOAT complex too), SIGNED
    signed integers, UNSIGNED unsigned ones and pred.
    compare_c4: complex numbers compare only by EQ and NE.
    Source: operation semantics, Element-wise comparison operations.
    """

    opcode: ClassVar[str] = "compare"
    is_elementwise: ClassVar[bool] = True
    direction: str = attribute("word", "direction")
    type: str = attribute("word", "type", default="")

    def flops(self, instruction: Instruction) -> int:
        """One for each element."""
        return instruction.shape.elements

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """pred of the operands' dims."""
        require_arrays("compare", operands, 2, "compare_c1")
        a, b = operands
        kind = a.element_type
        if kind is not b.element_type or a.dims != b.dims:
            require(False, f"compare: operands {a} and {b} differ", "compare_c1")
        if self.direction not in _COMPARISONS:
            require(
                False,
                f"compare: direction is {self.direction}, one of {' '.join(_COMPARISONS)} is wanted",
                "compare_c2",
            )
        fits = {
            "": True,
            "FLOAT": kind in _INEXACT,
            "TOTALORDER": kind.is_float,
            "SIGNED": kind.is_signed,
            "UNSIGNED": kind.is_unsigned or kind is _PRED,
        }
        if not fits.get(self.type, False):
            require(False, f"compare: type is {self.type}, operands are {kind.value}", "compare_c3")
        if kind.is_complex and self.direction not in ("EQ", "NE"):
            require(
                False,
                f"compare: direction is {self.direction}, for {kind.value} EQ or NE is wanted",
                "compare_c4",
            )
        return a.with_type(_PRED)

    def reference(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Comparison of the values, or of their positions in the total order."""
        prepared = numeric.total_order if self.type == "TOTALORDER" else numeric.wide
        return np.asarray(_COMPARISONS[self.direction](prepared(a), prepared(b)))


@dataclasses.dataclass(frozen=True)
class Convert(Op):
    """Values in another element type: to pred by != 0; float to integer truncates and saturates, NaN gives 0;
    integer to integer wraps; to a narrower float rounds to nearest even; real to complex has imaginary part
    0.

    convert_c1: one array operand.
    convert_c2: the new type is a type of arrays.
    convert_c3: a complex operand becomes complex again (or take `real` first).
    Source: operation semantics, ConvertElementType.
    """

    opcode: ClassVar[str] = "convert"
    is_elementwise: ClassVar[bool] = True
    cycles: ClassVar[int] = 2
    element_type: ElementType = attribute("result_type", "")

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """The operand's dims with the new element type."""
        require_arrays("convert", operands, 1, "convert_c1")
        old, new = operands[0].element_type, self.element_type
        if new not in ARRAYS:
            require(False, f"convert: new type is {new.value}, a type of arrays is wanted", "convert_c2")
        if old.is_complex and not new.is_complex:
            require(
                False, f"convert: operand is {old.value}, new type {new.value} is not complex", "convert_c3"
            )
        return operands[0].with_type(new)

    def reference(self, operand: np.ndarray) -> np.ndarray:
        """Conversion by value."""
        return numeric.convert(operand, self.element_type.dtype)


@dataclasses.dataclass(frozen=True)
class BitcastConvert(Op):
    """The same bits as another element type.

    To a type n times narrower, a new last axis of size n holds the parts, lowest bits first; to one n times
    wider, the last axis, of size n, goes. Not marked elementwise: it is so only between types of one width.
    bitcast_convert_c1: one array operand.
    bitcast_convert_c2: both types are integers of at least 8 bits or real floats, or both are pred, or both
    have 4 bits, or both are the same complex type.
    bitcast_convert_c3: to a type n times wider, the operand's last axis has size n.
    Source: operation semantics, BitcastConvertType.
    """

    opcode: ClassVar[str] = "bitcast-convert"
    element_type: ElementType = attribute("result_type", "")

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """The operand's dims, with an axis more or less where the widths differ."""
        require_arrays("bitcast-convert", operands, 1, "bitcast_convert_c1")
        operand = operands[0]
        old, new = operand.element_type, self.element_type
        fits = old is new or (
            {old, new} <= _REAL_NUMBERS and (old.bits == new.bits or min(old.bits, new.bits) >= 8)
        )
        require(
            fits,
            f"bitcast-convert: {operand} cannot have its bits taken as {new.value}",
            "bitcast_convert_c2",
        )
        if old.bits == new.bits:
            return operand.with_type(new)
        if old.bits > new.bits:
            return Shape(new, (*operand.dims, old.bits // new.bits))
        factor = new.bits // old.bits
        require(
            operand.rank > 0 and operand.dims[-1] == factor,
            f"bitcast-convert: operand is {operand}, a last axis of size {factor} is wanted for {new.value}",
            "bitcast_convert_c3",
        )
        return Shape(new, operand.dims[:-1])

    def reference(self, operand: np.ndarray) -> np.ndarray:
        """The bytes, seen as the other type."""
        old, dtype = operand.dtype, self.element_type.dtype
        if 1 < self.element_type.bits < 8:
            return numeric.from_bit_pattern(numeric.bit_pattern(operand), dtype)
        dims = operand.shape
        if old.itemsize > dtype.itemsize:
            dims = (*dims, old.itemsize // dtype.itemsize)
        elif old.itemsize < dtype.itemsize:
            dims = dims[:-1]
        return np.frombuffer(operand.tobytes(), dtype).reshape(dims)


@dataclasses.dataclass(frozen=True)
class ReducePrecision(Op):
    """Rounding to a float format with fewer bits, and back: ties to even, too large becomes infinite, too
    small zero.

    reduce_precision_c1: one array operand.
    reduce_precision_c2: its type is f16, bf16, f32 or f64.
    reduce_precision_c3: at least one exponent bit.
    reduce_precision_c4: the number of mantissa bits is not negative.
    Source: operation semantics, ReducePrecision.
    """

    opcode: ClassVar[str] = "reduce-precision"
    is_elementwise: ClassVar[bool] = True
    exponent_bits: int = attribute("int", "exponent_bits")
    mantissa_bits: int = attribute("int", "mantissa_bits")

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """The operand's shape."""
        require_arrays("reduce-precision", operands, 1, "reduce_precision_c1")
        kind = operands[0].element_type
        require(
            kind.is_float and kind.bits >= 16,
            f"reduce-precision: operand is {operands[0]}, f16, bf16, f32 or f64 is wanted",
            "reduce_precision_c2",
        )
        require(
            self.exponent_bits >= 1,
            f"reduce-precision: {self.exponent_bits} exponent bits given, at least 1 is wanted",
            "reduce_precision_c3",
        )
        require(
            self.mantissa_bits >= 0,
            f"reduce-precision: {self.mantissa_bits} mantissa bits given, 0 or more is wanted",
            "reduce_precision_c4",
        )
        return operands[0]

    def reference(self, operand: np.ndarray) -> np.ndarray:
        """On the bit patterns."""
        return numeric.reduce_precision(operand, self.exponent_bits, self.mantissa_bits)
