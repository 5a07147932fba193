"""How exact functions that are made of others are, and results that are not TensorFlow's, with reasons.

`python -m tfbridge.bridge.api.numerics_table` prints these tables of docs/numerics.md; with `--measure` the
largest errors found on this machine, ours and TensorFlow's (that needs scipy).
"""

from __future__ import annotations

import dataclasses
import functools
import math
import sys
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from .jit import jit

BEGIN, END = "<!-- {} -->", "<!-- /{} -->"


@dataclasses.dataclass(frozen=True)
class Function:
    """A function of TensorFlow, where it is measured, and its largest errors.

    name: in `tf.math`. reference: in `scipy.special` or `numpy`. domain: an interval for each argument.
    Units: f32 and f64 are ulp of the exact result.
    """

    name: str
    reference: str
    domain: tuple[tuple[float, float], ...]
    f32: float
    f64: float
    note: str = ""

    def arguments(self, count: int, dtype: type) -> list[np.ndarray]:
        """Arguments from all over the domain; those of `igamma` are near each other, where it is hard."""
        rng = np.random.default_rng(5)
        first, *rest = (rng.uniform(*interval, count) for interval in self.domain)
        if self.name.startswith("igamma"):
            rest = [np.abs(first * (1 + rng.normal(size=count) * 2 / np.sqrt(first)))]
        if self.name == "polygamma":
            first = np.floor(first)
        return [x.astype(dtype) for x in (first, *rest)]

    def exact(self, arguments: Sequence[np.ndarray]) -> np.ndarray:
        """The reference's values, of arguments in f64. Needs scipy."""
        import scipy.special

        function = getattr(scipy.special, self.reference, None) or getattr(np, self.reference)
        with np.errstate(all="ignore"):
            exact_arguments = [x.astype(np.float64) for x in arguments]
            return np.asarray(
                function(exact_arguments[0].astype(int), *exact_arguments[1:])
                if self.name == "polygamma"
                else function(*exact_arguments)
            )


def ulps(result: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Errors of results in ulp of the exact values, which are f64."""
    with np.errstate(all="ignore"):
        spacing = np.spacing(np.maximum(np.abs(exact.astype(result.dtype)), np.finfo(result.dtype).tiny))
        error = np.abs(result.astype(np.float64) - exact) / spacing.astype(np.float64)
    is_normal = np.abs(exact) > 2 * np.finfo(result.dtype).tiny  # below, results are zero
    return np.where(is_normal & (result != exact.astype(result.dtype)), error, 0)


_ZERO = "not near its zeros"
FUNCTIONS = (
    Function("asin", "arcsin", ((-1, 1),), 3, 3),
    Function("acos", "arccos", ((-1, 1),), 3, 3),
    Function("atan", "arctan", ((-50, 50),), 3, 3),
    Function("asinh", "arcsinh", ((-50, 50),), 3, 3),
    Function("acosh", "arccosh", ((1, 50),), 3, 3),
    Function("atanh", "arctanh", ((-1, 1),), 3, 3),
    Function("cosh", "cosh", ((-80, 80),), 4, 4),
    Function("log_sigmoid", "log_expit", ((-50, 50),), 2, 2),
    Function("lgamma", "gammaln", ((2.1, 100),), 0.51, 8, _ZERO),
    Function("digamma", "digamma", ((2, 100),), 0.51, 8, _ZERO),
    Function("ndtri", "ndtri", ((0.001, 0.999),), 6, 8),
    Function("erfinv", "erfinv", ((0.05, 0.999),), 60, 60, _ZERO),
    Function("bessel_i0e", "i0e", ((-50, 50),), 8, 8),
    Function("bessel_i1e", "i1e", ((-50, 50),), 12, 12),
    Function("igamma", "gammainc", ((0.5, 300),), 0.51, 2000),
    Function("igammac", "gammaincc", ((0.5, 300),), 0.51, 2000),
    Function("betainc", "betainc", ((0.2, 20), (0.2, 20), (0.01, 0.99)), 0.51, 1500),
    Function("zeta", "zeta", ((1.1, 20), (0.05, 30)), 0.51, 8),
    Function("polygamma", "polygamma", ((1, 6), (0.05, 30)), 0.51, 20),
    Function("xlogy", "xlogy", ((-9, 9), (0.01, 9)), 2, 3),
)


@dataclasses.dataclass(frozen=True)
class Difference:
    """A result that is not TensorFlow's: a function in tf, its arguments, both results as text, and the reason."""

    function: str
    dtype: str
    arguments: tuple[complex, ...]
    here: str
    tensorflow: str
    reason: str
    count: int = 1  # elements of every argument; the first one of the result is shown

    def evaluate(self, compiled: bool) -> str:
        """The result by tfbridge or by TensorFlow, as text."""
        function = functools.reduce(getattr, self.function.split("."), tf)
        type_ = tf.as_dtype(
            self.dtype
        ).as_numpy_dtype  # an array: TensorFlow takes scalars of equal value for the same
        arguments = [tf.constant(np.full(self.count, value, type_)) for value in self.arguments]
        result = (jit(function) if compiled else function)(*arguments).numpy()
        return str(result[0])

    def call(self) -> str:
        """The call as text."""
        return f"{self.function}({', '.join(map(str, self.arguments))})"


_VECTORS = "so in TensorFlow's vectors; its elements left at the end are as here"
_END = "so in TensorFlow's elements left at the end; its vectors are as here"
_EXACT = "it is the exact result, rounded"
_C64 = "TensorFlow squares in c64"
_INF, _F64 = math.inf, "float64"
DIFFERENCES = (
    Difference("nn.relu", "float32", (-0.0,), "-0.0", "0.0", _VECTORS, 8),
    Difference("nn.relu6", _F64, (-0.0,), "-0.0", "0.0", _VECTORS, 8),
    Difference("math.xlogy", "float32", (-0.0, 2.0), "-0.0", "0.0", _END),
    Difference("math.erf", _F64, (_INF,), "1.0", "nan", _EXACT),
    Difference("math.bessel_i1e", "float16", (6e-8,), "0.0", "6e-08", _EXACT),
    Difference("math.igamma", "float32", (710.0, 710.0), "0.5049907", "0.505088", _EXACT),
    Difference("math.igamma", "float32", (1.2e-38, 0.5), "1.0", "0.0", _EXACT),
    Difference("math.igammac", "float32", (3e9, 3e9), "0.4999976", "2.871661e-05", _EXACT),
    Difference("math.igammac", _F64, (2.3e-308, 0.5), "0.0", "1.0", _EXACT),
    Difference("math.zeta", "float32", (2.0, -7.25), "19.610355", "19.550385", _EXACT),
    Difference("math.zeta", "float32", (1.5, 3.4e38), "1.0846523e-19", "0.0", _EXACT),
    Difference("math.polygamma", "float32", (10.0, -2.5), "-4.026693", "416.1402", _EXACT),
    Difference(
        "math.polygamma", "float32", (20.0, 88.7), "-1.4953642e-22", "-0.0", "TensorFlow's zeta underflows"
    ),
    Difference(
        "math.polygamma", "float32", (104.0, 200.0), "-0.0", "nan", "TensorFlow's factorial overflows"
    ),
    Difference("exp", "complex64", (complex(_INF, -_INF),), "(inf+nanj)", "(-inf+nanj)", _VECTORS, 8),
    Difference(
        "math.log", "complex64", (1e30,), "(69.07755+0j)", "(nan+0j)", "TensorFlow's vectors square in c64", 8
    ),
    Difference(
        "math.log",
        "complex128",
        (1 + 1e-3j,),
        "(4.999997500001667e-07+0.0009999996666668668j)",
        "(4.999997500588806e-07+0.0009999996666668668j)",
        _EXACT,
    ),
    Difference(
        "math.log1p",
        "complex64",
        (complex(_INF, 20),),
        "(inf+0j)",
        "(nan+nanj)",
        "TensorFlow's is x log(u) / (u - 1) with u = 1 + x",
    ),
    Difference(
        "math.expm1",
        "complex64",
        (complex(_INF, 0),),
        "(inf+0j)",
        "(nan+nanj)",
        "TensorFlow's parts are inf - inf and inf * 0",
    ),
    Difference(
        "math.xlogy",
        "complex128",
        (complex(0, _INF), 1 + 1e-30j),
        "(-inf+infj)",
        "(-inf+nanj)",
        "the length of the logarithm is exact, not 0",
    ),
    Difference(
        "math.xlog1py",
        "complex128",
        (1j, complex(0, _INF)),
        "(nan+infj)",
        "(nan+nanj)",
        "TensorFlow's log1p of infinities is NaN",
    ),
    Difference(
        "math.rsqrt", "complex64", (1 + 1e30j,), "(7.0710676e-16-7.0710676e-16j)", "(7.0710676e-16-0j)", _C64
    ),
    Difference("math.sign", "complex64", (1e-30j,), "1j", "0j", _C64),
    Difference("pow", "complex64", (0j, 0j), "(1+0j)", "(nan+nanj)", "it is that of real numbers, and XLA's"),
    Difference(
        "pow",
        "complex64",
        (complex(_INF, 1), 0j),
        "(1+0j)",
        "(nan+nanj)",
        "it is that of real numbers, and XLA's",
    ),
    Difference(
        "pow",
        "complex64",
        (1e30j, 1 + 20j),
        "(1.5475911e+16+1.662186e+16j)",
        "(1.5476325e+16+1.662143e+16j)",
        "TensorFlow computes in c64",
    ),
    Difference("divide", "complex64", (1 + 0j, complex(_INF, 1)), "0j", "(nan+nanj)", _VECTORS, 8),
    Difference(
        "divide",
        "complex64",
        (complex(0, _INF), 1e30 + 1e-30j),
        "(inf+infj)",
        "(nan+infj)",
        "TensorFlow divides in c64",
    ),
    Difference("math.reciprocal", "complex64", (0j,), "(inf+nanj)", "(nan+nanj)", _VECTORS, 8),
    Difference("math.divide_no_nan", "complex64", (1e-30 + 1e-30j, 1e-30), "(1+1j)", "0j", _C64),
    Difference("sqrt", "complex64", (complex(-_INF, -1),), "-infj", "infj", _VECTORS, 8),
    Difference("sqrt", "complex64", (complex(-1.0, -0.0),), "-1j", "1j", _END),
)


def bounds_table() -> str:
    """The largest errors of functions of `tf.math`."""
    lines = ["| function | f32 | f64 | measured on |", "|---|---|---|---|"]
    lines += [f"| `{f.name}` | {f.f32:g} | {f.f64:g} | {_domain(f)} |" for f in FUNCTIONS]
    return "\n".join(lines)


def _domain(function: Function) -> str:
    where = " x ".join(f"[{low:g}, {high:g}]" for low, high in function.domain)
    return f"{where}{', ' + function.note if function.note else ''}"


def differences_table() -> str:
    """Calls whose results are not TensorFlow's."""
    lines = ["| call | type | here | TensorFlow | why |", "|---|---|---|---|---|"]
    lines += [f"| `{d.call()}` | {d.dtype} | {d.here} | {d.tensorflow} | {d.reason} |" for d in DIFFERENCES]
    return "\n".join(lines)


TABLES = {"derived": bounds_table, "differences": differences_table}


def tables() -> str:
    """All tables between their marks."""
    return "\n\n".join(
        f"{BEGIN.format(name)}\n{table()}\n{END.format(name)}" for name, table in TABLES.items()
    )


def measure(function: Function, dtype: type, count: int, compiled: bool) -> float:
    """The largest error in ulp among so many arguments."""
    call = getattr(tf.math, function.name)
    arguments = function.arguments(count, dtype)
    result = (jit(call) if compiled else call)(*map(tf.constant, arguments)).numpy()
    return float(np.max(ulps(result, function.exact(arguments))))


def _print_measurements() -> None:
    for function in FUNCTIONS:
        for dtype, bound in ((np.float32, function.f32), (np.float64, function.f64)):
            here, there = (measure(function, dtype, 4000, compiled) for compiled in (True, False))
            print(
                f"{function.name:12} {np.dtype(dtype).name}  bound {bound:g}  here {here:.3g}  "
                f"TensorFlow {there:.3g}"
            )
    for d in DIFFERENCES:
        print(f"{d.call()} {d.dtype}: here {d.evaluate(True)}, TensorFlow {d.evaluate(False)}")


if __name__ == "__main__":
    _print_measurements() if "--measure" in sys.argv else print(tables())
