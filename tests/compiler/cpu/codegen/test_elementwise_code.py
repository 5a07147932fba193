"""Every elementwise opcode on every element type that it allows, one, four and eight lanes, against NumPy."""

from __future__ import annotations

import functools

import ml_dtypes
import numpy as np
import pytest
from element_loop import HOST, PLAIN, Kernels, run
from tfbridge.compiler.cpu.codegen import elementwise, memory_types
from tfbridge.compiler.errors import InternalError, UnsupportedError
from tfbridge.compiler.ir.element_types import ARRAYS, COMPLEXES, FLOATS, INTEGERS, ElementType
from tfbridge.compiler.ops.elementwise import ROWS, Elementwise
from tfbridge.compiler.ops.numeric import bit_pattern, narrow
from tfbridge.runtime.code import float_mode
from tfbridge.runtime.llvm.ir_builder import VectorValue

E = ElementType
LANES = (1, 4, 8)
TARGETS = {"host": HOST, "plain": PLAIN}
RNG = np.random.default_rng(3)
by_name = pytest.mark.parametrize("target", TARGETS)
every = functools.partial(pytest.mark.parametrize, "t", ids=repr)


def ordered(types):
    return sorted(types, key=lambda t: t.value)


def form(t):
    """What is alike of types whose elements are moved by the same code."""
    if t.bits > 8:
        return t
    return memory_types.register_type(t, 1), memory_types.memory_type(t), t.is_small_integer, t.is_signed


# One type of each form. The others have one number of lanes in tests of values, and none in those of addresses:
# test_narrow_types.py compares all values of them.
OF_EACH_FORM = {form(t): t for t in ordered(ARRAYS)}.values()


def lanes_of(*types):
    return LANES if all(t in OF_EACH_FORM for t in types) else (4,)


@functools.cache
def numbers(t):
    """Special values and random ones of a type: 32 of them."""
    rng = np.random.default_rng(3)
    if t is E.PRED:
        return np.arange(32) % 3 == 0
    if t.is_integer:
        low, high = ml_dtypes.iinfo(t.dtype).min, ml_dtypes.iinfo(t.dtype).max
        special = [0, 1, 2, 3, 7, high, high - 1, low, low + 1, *([-1, -2, -7] if t.is_signed else [])]
        random = [
            int(v)
            for v in rng.integers(
                int(low), int(high), 32, endpoint=True, dtype=np.int64 if t.is_signed else np.uint64
            )
        ]
        return np.array(
            [int(v) for v in (special + random)[:32]], np.int64 if t.is_signed else np.uint64
        ).astype(t.dtype)
    if t.is_float:
        info = ml_dtypes.finfo(t.dtype)
        special = [
            0.0,
            1.0,
            0.5,
            2.0,
            3.0,
            2.5,
            1.5,
            np.inf,
            float(info.max),
            float(info.tiny),
            float(info.smallest_subnormal),
        ]
        values = np.array([*special, *(-s for s in special), np.nan, *rng.normal(0, 4, 9)])
        with np.errstate(all="ignore"):
            return values.astype(t.dtype)
    parts = np.array([0, 1, -1, 0.5, -2, 3.5, *rng.normal(0, 2, 26)])
    return (parts + 1j * rng.permutation(parts)).astype(t.dtype)


def pairs(t):
    """Every pair of `numbers`."""
    values = numbers(t)
    return np.repeat(values, values.size), np.tile(values, values.size)


def as_int(x):
    return [int(v) for v in x]


def wrapped(values, t):
    """Python integers modulo 2^bits as elements."""
    bits = t.bits
    low = [v & ((1 << bits) - 1) for v in values]
    if t.is_signed:
        low = [v - (1 << bits) if v >> (bits - 1) else v for v in low]
    return np.array(low, np.int64 if t.is_signed else np.uint64).astype(t.dtype)


# -- integers: Python's own, with the rules that XLA adds


def quotient(a, b, t):
    if b == 0:
        return -1
    whole = abs(a) // abs(b)
    return whole if (a < 0) == (b < 0) else -whole


def rest(a, b, t):
    return a if b == 0 else a - b * quotient(a, b, t)


def integer_power(a, b, t):
    if b < 0:
        return a if a == 1 else 0 if a != -1 else (1 if b % 2 == 0 else -1)
    return pow(a, b, 1 << t.bits)


def unsigned(a, t):
    return a & ((1 << t.bits) - 1)


def right_shift(a, b, t):
    signed = int(wrapped([a], E("s" + t.value[1:]))[0])
    return signed >> min(unsigned(b, t), t.bits - 1)


INTEGER_UNARY = {
    "abs": lambda a, t: abs(a),
    "negate": lambda a, t: -a,
    "sign": lambda a, t: (a > 0) - (a < 0),
    "not": lambda a, t: ~a,
    "popcnt": lambda a, t: unsigned(a, t).bit_count(),
    "count-leading-zeros": lambda a, t: t.bits - unsigned(a, t).bit_length(),
}
INTEGER_BINARY = {
    "add": lambda a, b, t: a + b,
    "subtract": lambda a, b, t: a - b,
    "multiply": lambda a, b, t: a * b,
    "mulhi": lambda a, b, t: (a * b) >> t.bits,
    "divide": quotient,
    "remainder": rest,
    "power": integer_power,
    "maximum": lambda a, b, t: max(a, b),
    "minimum": lambda a, b, t: min(a, b),
    "and": lambda a, b, t: a & b,
    "or": lambda a, b, t: a | b,
    "xor": lambda a, b, t: a ^ b,
    "shift-left": lambda a, b, t: a << unsigned(b, t) if unsigned(b, t) < t.bits else 0,
    "shift-right-arithmetic": right_shift,
    "shift-right-logical": lambda a, b, t: unsigned(a, t) >> unsigned(b, t),
}


def check_all(target, t, cases, arrays, exact, same=None):
    """Compiles the cases {opcode: result type} at once and compares each with `exact(opcode)`."""
    kernels = Kernels(target)
    names = {
        (opcode, lanes): kernels.add(opcode, [t] * len(arrays(opcode)), result, lanes)
        for opcode, result in cases.items()
        for lanes in (lanes_of(t) if target is HOST else (4,))
    }
    for (opcode, lanes), name in names.items():
        found = kernels.run(name, arrays(opcode), cases[opcode].dtype)
        (same or equal)(found, exact(opcode), f"{opcode} {t!r} {lanes} lanes")


def equal(found, wanted, what):
    assert found.dtype == wanted.dtype, what
    left, right = (x if x.dtype.isbuiltin == 1 else x.astype(np.float64) for x in (found, wanted))
    np.testing.assert_array_equal(left, right, what)
    if left.dtype.kind == "f":
        kept = ~np.isnan(right)
        assert np.array_equal(np.signbit(left[kept]), np.signbit(right[kept])), f"sign of zero: {what}"


@by_name
@every(argvalues=ordered(INTEGERS))
def test_integers(t, target):
    one, two = (numbers(t),), pairs(t)
    cases = dict.fromkeys((*INTEGER_UNARY, *INTEGER_BINARY), t)

    def exact(opcode):
        if opcode in INTEGER_UNARY:
            return wrapped([INTEGER_UNARY[opcode](a, t) for a in as_int(one[0])], t)
        return wrapped([INTEGER_BINARY[opcode](a, b, t) for a, b in zip(*map(as_int, two))], t)

    check_all(TARGETS[target], t, cases, lambda opcode: one if opcode in INTEGER_UNARY else two, exact)


@by_name
def test_pred(target):
    x, y = pairs(E.PRED)
    exact = {
        "and": x & y,
        "or": x | y,
        "xor": x ^ y,
        "add": x | y,
        "multiply": x & y,
        "maximum": x | y,
        "minimum": x & y,
        "not": ~x,
    }
    check_all(
        TARGETS[target],
        E.PRED,
        dict.fromkeys(exact, E.PRED),
        lambda opcode: (x,) if opcode == "not" else (x, y),
        exact.__getitem__,
    )


# -- floats: computed in f64, rounded to the element's type


def away(x):
    return np.copysign(np.floor(np.abs(x) + 0.5), x)


def maximum(x, y):
    return np.where(np.isnan(x) | np.isnan(y), np.nan, np.where(x > y, x, y))


def minimum(x, y):
    return np.where(np.isnan(x) | np.isnan(y), np.nan, np.where(x < y, x, y))


FLOAT_EXACT = {
    "abs": np.abs,
    "negate": np.negative,
    "sign": lambda x: np.where(x == 0, x, np.sign(x)),
    "ceil": np.ceil,
    "floor": np.floor,
    "round-nearest-afz": away,
    "round-nearest-even": np.rint,
    "sqrt": np.sqrt,
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "maximum": maximum,
    "minimum": minimum,
    "remainder": np.fmod,
}
FLOAT_NEAR = {
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "cbrt": np.cbrt,
    "exponential": np.exp,
    "exponential-minus-one": np.expm1,
    "log": np.log,
    "log-plus-one": np.log1p,
    "logistic": lambda x: np.where(x < 0, np.exp(-np.abs(x)), 1) / (1 + np.exp(-np.abs(x))),
    "tanh": np.tanh,
    "sinh": np.sinh,
    "tan": np.tan,
    "sine": np.sin,
    "cosine": np.cos,
    "power": np.power,
    "atan2": np.arctan2,
}


def float_operands(t, opcode):
    if ROWS[opcode].arity == 1:
        return (numbers(t),)
    x, y = pairs(t)
    if opcode in ("maximum", "minimum"):
        apart = ~((x == 0) & (y == 0))  # which zero is the larger one is not said
        keep = np.flatnonzero(apart)[: apart.sum() // 8 * 8]
        return x[keep], y[keep]
    return x, y


def float_reference(t, table):
    def exact(opcode):
        with np.errstate(all="ignore"):
            return narrow(table[opcode](*(x.astype(np.float64) for x in float_operands(t, opcode))), t.dtype)

    return exact


@by_name
@every(argvalues=ordered(FLOATS))
def test_floats_exact(t, target):
    check_all(
        TARGETS[target],
        t,
        dict.fromkeys(FLOAT_EXACT, t),
        lambda opcode: float_operands(t, opcode),
        float_reference(t, FLOAT_EXACT),
    )


@by_name
@every(argvalues=ordered(FLOATS))
def test_floats_near(t, target):
    """Within the last place of a narrow type; the errors of f32 and f64 are tested in test_vector_math."""

    def near(found, wanted, what):
        left, right = found.astype(np.float64), wanted.astype(np.float64)
        info = ml_dtypes.finfo(t.dtype)
        steps = 1 if t in memory_types.NARROW else 4
        np.testing.assert_allclose(
            left,
            right,
            rtol=steps * float(info.eps),
            atol=steps * float(info.smallest_subnormal),
            err_msg=what,
        )

    check_all(
        TARGETS[target],
        t,
        dict.fromkeys(FLOAT_NEAR, t),
        lambda opcode: float_operands(t, opcode),
        float_reference(t, FLOAT_NEAR),
        near,
    )


@every(argvalues=ordered(FLOATS))
def test_is_finite(t):
    x = numbers(t)
    np.testing.assert_array_equal(run(HOST, "is-finite", [x], np.bool_), np.isfinite(x.astype(np.float64)))


# -- complex

COMPLEX_UNARY = {
    "negate": np.negative,
    "sign": lambda x: np.where(x == 0, 0, x / np.abs(x)),
    "exponential": np.exp,
    "exponential-minus-one": np.expm1,
    "log": np.log,
    "log-plus-one": np.log1p,
    "logistic": lambda x: 1 / (1 + np.exp(-x)),
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "cbrt": lambda x: np.where(x == 0, 0, np.exp(np.log(x) / 3)),
    "sine": np.sin,
    "cosine": np.cos,
    "tan": np.tan,
    "tanh": np.tanh,
    "sinh": np.sinh,
}
COMPLEX_BINARY = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "power": lambda x, y: np.where(
        y == 0, 1, np.where(x == 0, np.where(y.real > 0, 0, np.nan), np.exp(y * np.log(x)))
    ),
    "maximum": lambda x, y: np.where((x.real > y.real) | ((x.real == y.real) & (x.imag >= y.imag)), x, y),
    "minimum": lambda x, y: np.where((x.real < y.real) | ((x.real == y.real) & (x.imag <= y.imag)), x, y),
    "atan2": lambda y, x: -1j * np.log((x + 1j * y) / np.sqrt(x * x + y * y)),
}


@by_name
@every(argvalues=ordered(COMPLEXES))
def test_complex(t, target):
    values = numbers(t)
    other = np.concatenate([values[1:], values[:1]])
    real = t.real

    def exact(opcode):
        with np.errstate(all="ignore"):
            x, y = values.astype(np.clongdouble), other.astype(np.clongdouble)
            if opcode in ("abs", "real", "imag"):
                return {"abs": np.abs(x), "real": x.real, "imag": x.imag}[opcode].astype(real.dtype)
            found = COMPLEX_UNARY[opcode](x) if opcode in COMPLEX_UNARY else COMPLEX_BINARY[opcode](x, y)
            return found.astype(t.dtype)

    def near(found, wanted, what):
        kept = np.isfinite(wanted)
        assert kept.sum() >= 24, what
        rtol = 4e-7 if t is E.C64 else 4e-14
        np.testing.assert_array_less(
            np.abs(found[kept] - wanted[kept]), rtol * (np.abs(wanted[kept]) + 1e-3), err_msg=what
        )

    cases = dict.fromkeys((*COMPLEX_UNARY, *COMPLEX_BINARY), t) | dict.fromkeys(("abs", "real", "imag"), real)
    check_all(
        TARGETS[target],
        t,
        cases,
        lambda opcode: (values, other) if opcode in COMPLEX_BINARY else (values,),
        exact,
        near,
    )


@every(argvalues=ordered(COMPLEXES))
def test_complex_extremes(t):
    inf, large = np.inf, float(np.finfo(t.dtype).max)

    def one(opcode, *arguments):
        arrays = [np.array([a] * 8, t.dtype) for a in arguments]
        return run(HOST, opcode, arrays, t.real.dtype if opcode == "abs" else None)[0]

    assert one("abs", complex(inf, np.nan)) == inf
    np.testing.assert_allclose(one("abs", complex(large / 2, large / 2)), large / 2 * 2**0.5)
    assert one("exponential", complex(-inf, 1.0)) == 0
    assert one("exponential", complex(inf, 0.0)) == complex(inf, 0.0)
    assert one("sqrt", complex(-4.0, -0.0)) == complex(0.0, -2.0)
    half = (large / 2) ** 0.5
    np.testing.assert_allclose(one("sqrt", complex(0.0, large)), complex(half, half), rtol=1e-6)
    assert one("divide", complex(1.0, 2.0), complex(inf, 0.0)) == 0
    assert one("divide", 1.0, complex(0.0, 0.0)).real == inf
    assert one("tanh", complex(400.0, 1.0)) == 1
    assert one("power", 0.0, 0.0) == 1
    assert one("log", 0.0).real == -inf


_PARTS = (0.0, -0.0, 1.0, -2.5, np.inf, -np.inf, np.nan, 1e30, -1e30)


@every(argvalues=ordered(COMPLEXES))
@pytest.mark.parametrize(
    "opcode",
    [
        "sign",
        "exponential",
        "exponential-minus-one",
        "log",
        "log-plus-one",
        "logistic",
        "sqrt",
        "rsqrt",
        "sine",
        "cosine",
        "tan",
        "tanh",
        "sinh",
        "divide",
        "maximum",
        "minimum",
        "power",
    ],
)
def test_complex_ends_are_those_of_the_reference(t, opcode):
    """Infinities, NaN and signs of zeros: constants are folded by the reference, all others by compiled code."""
    op = Elementwise(opcode)
    parts = _PARTS if ROWS[opcode].arity == 1 else _PARTS[:7]
    values = np.array([complex(x, y) for x in parts for y in parts], t.dtype)
    arrays = [a.ravel() for a in np.meshgrid(*[values] * ROWS[opcode].arity)]
    if opcode == "power":  # the reference multiplies for integer powers, which has other zeros
        finite = np.isfinite(arrays[0]) & np.isfinite(arrays[1])
        arrays = [a[~finite] for a in arrays]
    found = run(HOST, opcode, arrays)
    with float_mode.of_runs():
        wanted = op.reference(*arrays)
    for a, b in ((found.real, wanted.real), (found.imag, wanted.imag)):
        np.testing.assert_allclose(a, b, rtol=1e-6 if t is E.C64 else 1e-13, atol=1e-38)
        known = ~np.isnan(b)
        np.testing.assert_array_equal(np.signbit(a[known]), np.signbit(b[known]))


def test_complex_of_parts():
    x, y = (RNG.normal(size=8).astype(np.float32) for _ in range(2))
    np.testing.assert_array_equal(run(HOST, "complex", [x, y], np.complex64), x + 1j * y)
    np.testing.assert_array_equal(run(HOST, "real", [x]), x)
    np.testing.assert_array_equal(run(HOST, "imag", [x]), 0 * abs(x))


# -- comparison, selection

COMPARE = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "GE": np.greater_equal,
    "GT": np.greater,
    "LE": np.less_equal,
    "LT": np.less,
}


@every(argvalues=ordered(ARRAYS))
def test_compare(t):
    x, y = pairs(t)
    plain = (
        (lambda v: v.astype(np.float64))
        if t in memory_types.NARROW
        else (lambda v: v.astype(np.int64))
        if t.bits == 4
        else (lambda v: v)
    )
    kernels = Kernels(HOST)
    names = {
        (direction, lanes): kernels.add("compare", [t, t], E.PRED, lanes, {"direction": direction})
        for direction in (("EQ", "NE") if t.is_complex else COMPARE)
        for lanes in lanes_of(t)
    }
    for (direction, lanes), name in names.items():
        found = kernels.run(name, [x, y], np.bool_)
        wanted = COMPARE[direction](plain(x), plain(y))
        np.testing.assert_array_equal(found, wanted, f"{direction} {lanes} lanes")


def test_compare_orders_no_complex_numbers():
    with pytest.raises(UnsupportedError, match="direction LT is not defined"):
        run(HOST, "compare", [np.zeros(8, np.complex64)] * 2, np.bool_, attributes={"direction": "LT"})


@every(argvalues=ordered(FLOATS))
def test_compare_total_order(t):
    x, y = pairs(t)

    def key(v):
        if t.lacks_signs:  # the one NaN is above all
            v = np.where(np.isnan(wide := v.astype(np.float32)), np.float32("nan"), wide)
        integer = np.dtype(f"i{v.itemsize}")
        bits = v.view(integer).astype(np.int64)
        return np.where(bits < 0, np.iinfo(integer).min - bits - 1, bits)

    kernels = Kernels(HOST)
    names = {
        direction: kernels.add("compare", [t, t], E.PRED, 8, {"direction": direction, "type": "TOTALORDER"})
        for direction in COMPARE
    }
    for direction, name in names.items():
        np.testing.assert_array_equal(
            kernels.run(name, [x, y], np.bool_), COMPARE[direction](key(x), key(y)), direction
        )


@every(argvalues=ordered(ARRAYS))
def test_select(t):
    x, y = pairs(t)
    condition = np.random.default_rng(5).random(x.size) < 0.5
    kernels = Kernels(HOST)
    for name in [kernels.add("select", [E.PRED, t, t], t, lanes) for lanes in lanes_of(t)]:
        equal(kernels.run(name, [condition, x, y], t.dtype), np.where(condition, x, y), "select")


@every(argvalues=ordered(INTEGERS | FLOATS))
def test_clamp(t):
    x, low = pairs(t)
    high = np.roll(x, 5)
    plain = [
        v.astype(np.int64 if t.is_signed else np.uint64) if t.is_integer else v.astype(np.float64)
        for v in (low, x, high)
    ]
    smaller, larger = (np.minimum, np.maximum) if t.is_integer else (minimum, maximum)
    kernels = Kernels(HOST)
    for name in [kernels.add("clamp", [t, t, t], t, lanes) for lanes in lanes_of(t)]:
        found = kernels.run(name, [low, x, high], t.dtype).astype(plain[0].dtype)
        np.testing.assert_array_equal(found, smaller(larger(plain[0], plain[1]), plain[2]))


# -- conversions


def converted(x, source, target):
    """The rules of conversion in NumPy and Python."""
    if target is E.PRED:
        return x.astype(np.complex128 if source.is_complex else np.float64) != 0
    if source.is_complex and not target.is_complex:
        x, source = x.real, source.real
    with np.errstate(all="ignore"):
        if target.is_integer and source.is_float:
            low, high = int(ml_dtypes.iinfo(target.dtype).min), int(ml_dtypes.iinfo(target.dtype).max)
            finite = [np.nan_to_num(float(v), posinf=1e300, neginf=-1e300) for v in x]
            return wrapped([min(max(int(v), low), high) for v in finite], target)
        if target.is_integer:
            return wrapped(as_int(x), target)
        if source.is_small_integer:
            x = x.astype(np.int32)
        if target is E.F8E8M0FNU:  # ml_dtypes converts by way of f32
            return narrow(as_int(x) if source.is_small_integer else x, target.dtype)
        if target in memory_types.NARROW and not source.is_float:
            return x.astype(np.float32).astype(target.dtype)
        if target.is_complex and not source.is_complex:
            return x.astype(target.real.dtype).astype(target.dtype)
        if source in memory_types.NARROW:
            x = x.astype(np.float32)
        if target is E.F4E2M1FN and source.is_float:  # of ml_dtypes the sign of NaN decides
            x = np.where(np.isnan(x), x.dtype.type(-0.0), x)
        return x.astype(target.dtype)


@by_name
@every(argvalues=ordered(ARRAYS))
def test_convert(t, target):
    x = numbers(t)
    if t.is_float:
        with np.errstate(all="ignore"):
            more = np.array(
                [
                    1e5,
                    3e9,
                    -3e9,
                    1e19,
                    2e19,
                    -1e19,
                    2e38,
                    0.1,
                    255.5,
                    127.9,
                    -128.9,
                    65504,
                    65519.9,
                    65520,
                    448,
                    464,
                    465,
                    57344,
                    61439,
                    61441,
                    2.0**-9,
                    1.5 * 2.0**-10,
                    6e-8,
                    2.9e-8,
                ]
            )
            x = np.concatenate([x, more.astype(t.dtype)])
    kernels = Kernels(TARGETS[target])
    names = {
        (to, lanes): kernels.add("convert", [t], to, lanes)
        for to in ordered(ARRAYS)
        for lanes in lanes_of(t, to)
    }
    for (to, lanes), name in names.items():
        found, wanted = kernels.run(name, [x], to.dtype), converted(x, t, to)
        if to.is_complex:
            np.testing.assert_array_equal(found, wanted, f"{t!r} to {to!r}")
        else:
            equal(found, wanted, f"{t!r} to {to!r} {lanes} lanes")


@by_name
@pytest.mark.parametrize("t", ordered(memory_types.NARROW), ids=repr)
def test_narrow_floats_exhaustively(t, target):
    """Every bit pattern to f32 and back; every f32 near a boundary of two of its numbers down to it."""
    target = TARGETS[target]
    every_bits = np.arange(1 << t.bits, dtype=np.dtype(f"u{t.item_bytes}"))
    values = every_bits.view(t.dtype)
    with np.errstate(all="ignore"):
        exact = values.astype(np.float32)
    np.testing.assert_array_equal(run(target, "convert", [values], np.float32), exact)
    back = run(target, "convert", [exact], t.dtype)
    numeric = ~np.isnan(exact)
    np.testing.assert_array_equal(back.view(every_bits.dtype)[numeric], every_bits[numeric])
    assert np.isnan(back[~numeric].astype(np.float32)).all()
    finite = np.sort(exact[np.isfinite(exact)])
    middles = ((finite[1:].astype(np.float64) + finite[:-1]) / 2).astype(np.float32)
    with np.errstate(over="ignore"):
        largest = finite[-1] * np.array([1.01, 1.03, 1.0625, 1.1, 1.5, 3], np.float32)
    edges, infinity = np.concatenate([middles, largest, -largest]), np.float32(np.inf)
    hard = np.concatenate([edges, np.nextafter(edges, infinity), np.nextafter(edges, -infinity)])
    with np.errstate(all="ignore"):
        doubles = np.nextafter(hard.astype(np.float64), np.inf)
        wanted, from_doubles = (narrow(x, t.dtype) for x in (hard, doubles))
    equal(run(target, "convert", [hard], t.dtype), wanted, "from f32")
    equal(run(target, "convert", [doubles], t.dtype), from_doubles, "from f64")


@every(argvalues=ordered(ARRAYS))
def test_bitcast(t):
    x = numbers(t)
    kept = ~np.isnan(x.astype(np.float64)) if t.is_float else np.ones(x.size, bool)
    kernels = Kernels(HOST)
    names = {
        (to, lanes): kernels.add("bitcast-convert", [t], to, lanes)
        for to in ordered(ARRAYS)
        for lanes in lanes_of(t, to)
        if to.item_bytes == t.item_bytes and to is not E.PRED and (to.bits == t.bits or t is E.PRED)
    }
    for (to, lanes), name in names.items():
        found = kernels.run(name, [x], to.dtype)
        if 1 < t.bits < 8:
            np.testing.assert_array_equal(*(bit_pattern(v) for v in (found, x)))
        else:
            same = kept & ~np.isnan(found.astype(np.float64)) if to.is_float else kept
            left, right = (v.view(np.uint8).reshape(x.size, -1)[same] for v in (found, x))
            np.testing.assert_array_equal(left, right, f"{t!r} to {to!r} {lanes} lanes")


def test_bitcast_keeps_the_width():
    with pytest.raises(InternalError, match="different widths"):
        run(HOST, "bitcast-convert", [np.zeros(8, np.int8)], np.int32)


def test_reduce_precision():
    x = np.concatenate([numbers(E.F32), RNG.normal(0, 1e4, 96).astype(np.float32)])
    found = run(HOST, "reduce-precision", [x], attributes={"exponent_bits": 5, "mantissa_bits": 10})
    with np.errstate(all="ignore"):
        wanted = x.astype(np.float16).astype(np.float32)
    equal(found, np.where(np.abs(wanted) < 2.0**-14, np.copysign(np.float32(0), x), wanted), "as f16")
    found = run(HOST, "reduce-precision", [x], attributes={"exponent_bits": 8, "mantissa_bits": 7})
    with np.errstate(all="ignore"):
        wanted = x.astype(ml_dtypes.bfloat16).astype(np.float32)
    equal(found, np.where(np.abs(x) < 2.0**-126, found, wanted), "as bf16")
    x = numbers(E.F64)
    found = run(HOST, "reduce-precision", [x], attributes={"exponent_bits": 11, "mantissa_bits": 52})
    equal(found, x, "as f64")


# -- memory


def first_lanes(f, lanes):
    """A mask of the lanes below the parameter n."""
    if lanes == 1:
        return f.integer("n") > 0
    steps = "<" + ", ".join(f"i64 {k}" for k in range(lanes)) + ">"
    return VectorValue(f"<{lanes} x i64>", steps, f) < VectorValue.of(f, f["n"]).splat(lanes)


def bytes_of(x, t):
    """Elements as bytes; integers of fewer bits as the whole byte that holds them."""
    return (x.astype(np.int8) if t.is_small_integer else x).tobytes()


@by_name
@every(argvalues=OF_EACH_FORM)
def test_masked_load_and_store(t, target):
    x, kernels = numbers(t), Kernels(TARGETS[target])

    def writer(lanes):
        def write(f):
            mask = first_lanes(f, lanes)
            value = memory_types.load(f, t, f["a"], lanes, mask=mask)
            memory_types.store(f, t, value, f["r"], lanes)
            memory_types.store(f, t, value, f.pointer("r") + lanes * t.item_bytes, lanes, mask=mask)

        return write

    names = {lanes: kernels.write(writer(lanes)) for lanes in LANES}
    for lanes, name in names.items():
        size = lanes * t.item_bytes
        for count in range(lanes + 1):
            out = np.full(2 * size, 1, np.uint8)
            kernels.call(name, x, out, count)
            kept = bytes_of(x[:count], t)
            assert out[:size].tobytes() == kept.ljust(size, b"\0")
            assert out[size:].tobytes() == kept.ljust(size, b"\1")


@by_name
@every(argvalues=OF_EACH_FORM)
def test_strided_load(t, target):
    """Strides known and not known; the buffer holds no more than what the lanes lie on."""
    kernels = Kernels(TARGETS[target])

    def writer(stride, lanes, masked):
        def write(f):
            by = f.integer("n") - (lanes - 2) if stride is None else stride
            mask = first_lanes(f, lanes) if masked else None
            value = memory_types.load_strided(f, t, f["a"], by, lanes, mask)
            memory_types.store(f, t, value, f["r"], lanes)

        return write

    cases = [
        (stride, lanes, masked)
        for stride in (0, 1, -1, 2, -2, 3, None)
        for lanes in (4, 8)
        for masked in (False, True)
    ]
    names = {case: kernels.write(writer(*case)) for case in cases}
    for (stride, lanes, masked), name in names.items():
        step = 2 if stride is None else stride
        x = numbers(t)[: abs(step) * (lanes - 1) + 1].copy()
        first = x.size - 1 if step < 0 else 0
        out = np.zeros(lanes, t.dtype)
        kernels.call(name, x[first:], out, lanes)
        wanted = x[[first + step * k for k in range(lanes)]]
        assert out.tobytes() == bytes_of(wanted, t), (stride, lanes, masked)


@by_name
@every(argvalues=OF_EACH_FORM)
def test_gather(t, target):
    x, order = numbers(t), np.array([3, 31, 0, 7, 7, 12, 30, 1], np.int64)
    kernels = Kernels(TARGETS[target])

    def writer(lanes, masked):
        def write(f):
            indices = memory_types.load(f, E.S64, f.pointer("r") + 256, lanes)
            mask = first_lanes(f, lanes) if masked else None
            value = memory_types.gather(f, t, f["a"], indices, lanes, mask)
            memory_types.store(f, t, value, f["r"], lanes)

        return write

    names = {
        (lanes, masked): kernels.write(writer(lanes, masked)) for lanes in LANES for masked in (False, True)
    }
    for (lanes, masked), name in names.items():
        buffer = np.zeros(256 + 64, np.uint8)
        buffer[256:] = order.view(np.uint8)
        kernels.call(name, x, buffer, lanes - 1)
        wanted = bytes_of(x[order[: lanes - 1 if masked else lanes]], t)
        assert buffer[: lanes * t.item_bytes].tobytes() == wanted.ljust(lanes * t.item_bytes, b"\0")


@every(argvalues=ordered(ARRAYS))
def test_constants(t):
    chosen = [x for x in numbers(t) if not (t.is_float and np.isnan(float(x)))]
    kernels = Kernels(PLAIN)

    def write(f):
        for k, number in enumerate(chosen):
            at = f.pointer("r") + 8 * k * t.item_bytes
            memory_types.store(f, t, memory_types.constant_element(t, number, 4), at, 4)
            spread = memory_types.splat(f, memory_types.constant_element(t, number, 1), 4)
            memory_types.store(f, t, spread, at + 4 * t.item_bytes, 4)

    name, out = kernels.write(write), np.zeros(8 * len(chosen), t.dtype)
    kernels.call(name, out, out, 0)
    assert out.tobytes() == bytes_of(np.repeat(np.array(chosen, t.dtype), 8), t)


def test_maximum_with_a_constant_hands_nan_on():
    kernels = Kernels(HOST)

    def write(f):
        x = memory_types.load(f, E.F32, f["a"], 8)
        zero, nan = (memory_types.constant_element(E.F32, c, 8) for c in (0.0, np.nan))
        for k, operands in enumerate(([x, zero], [zero, x], [x, nan])):
            found = elementwise.apply(f, "maximum", {}, [E.F32] * 2, E.F32, operands)
            memory_types.store(f, E.F32, found, f.pointer("r") + 32 * k, 8)

    name = kernels.write(write)
    x, out = np.array([1, -1, np.nan, 0, np.inf, -np.inf, 2, -3], np.float32), np.zeros(24, np.float32)
    kernels.call(name, x, out, 0)
    wanted = np.maximum(x, 0)
    np.testing.assert_array_equal(out, np.concatenate([wanted, wanted, np.full(8, np.nan)]))


def test_unsupported_is_said():
    with pytest.raises(UnsupportedError, match="popcnt: not defined for elements of type f32"):
        run(HOST, "popcnt", [np.zeros(8, np.float32)])
    for t in ARRAYS:
        for opcode in ("add", "popcnt", "tanh", "not", "clamp", "remainder", "is-finite"):
            arity = {"popcnt": 1, "tanh": 1, "not": 1, "clamp": 3, "is-finite": 1}.get(opcode, 2)
            result = E.PRED if opcode == "is-finite" else t
            try:
                Kernels(PLAIN).add(opcode, [t] * arity, result, 4)
                written = True
            except UnsupportedError:
                written = False
            assert written == elementwise.supports(opcode, t), (opcode, t)


@every(argvalues=ordered(COMPLEXES))
def test_rounding_does_not_choose_the_side_of_the_cut_of_atan2(t):
    """Where the quotient is about -1, code and evaluator take one side: pi on the cut itself."""
    count = 1000
    x = (-np.abs(RNG.normal(size=count)) + 1j * RNG.normal(size=count)).astype(t.dtype)
    tiny = (1e-20 * RNG.normal(size=count) + 1e-20j * RNG.normal(size=count)).astype(t.dtype)
    for y in (np.zeros_like(x), tiny):
        found = run(HOST, "atan2", [y, x], t.dtype)
        want = ROWS["atan2"].function(y, x)
        assert (np.sign(found.real) == np.sign(want.real)).all()
        np.testing.assert_allclose(found, want, rtol=1e-6)
        if y is not tiny:
            np.testing.assert_allclose(found.real, np.pi, rtol=1e-6)
    # Quotients that are imaginary numbers keep their side, too.
    y, x = np.array([[-2 - 2j, -2 + 2j, -2 - 2j], [1 - 1j, 0.5 + 0.5j, -1 + 1j]], t.dtype)
    found = run(HOST, "atan2", [y, x], t.dtype)
    np.testing.assert_allclose(found.real, [-np.pi / 2] * 3, rtol=1e-6)
