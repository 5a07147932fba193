"""Conversions of types of at most 8 bits, by all their encodings: the evaluator's against those of ml_dtypes, and those
that the pass drops."""

from __future__ import annotations

import itertools
import subprocess
import sys

import numpy as np
import pytest
from agreement import difference
from narrow_values import ALL, every, wide_values
from tfbridge.compiler import ShapeError
from tfbridge.compiler.ir.element_types import SMALL_INTEGERS, ElementType, Specials, integer_info
from tfbridge.compiler.ir.literal import Literal
from tfbridge.compiler.ir.module import make
from tfbridge.compiler.ir.shape import array
from tfbridge.compiler.ops import Convert, Parameter, numeric
from tfbridge.compiler.passes.rules.conversions import convert_of_convert
from tfbridge.runtime.code import float_mode

E = ElementType


def is_another_rule(old: ElementType, new: ElementType, values: np.ndarray) -> np.ndarray:
    """Where conversions are not those of ml_dtypes: NaN becomes -0.0 of either sign; what is between the two lowest
    powers of two is rounded to the nearer one, and from f64 once."""
    result = np.zeros(values.shape, bool)
    if new.specials is Specials.FINITE and old.is_float:
        result |= np.isnan(numeric.wide(values))
    if new.specials is Specials.POWERS and old.is_float:
        result |= np.abs(numeric.wide(values)) < 2.0**-126
        result |= (old is E.F64) & (values != values.astype(np.float32))
    return result


def test_conversions_of_ml_dtypes() -> None:
    for old, new in itertools.product(ALL, ALL):
        if old is new or min(old.bits, new.bits) > 8 or old.is_complex or E.PRED in (old, new):
            continue
        if old.is_float and new.is_integer:  # what does not fit is not defined there
            continue
        values = every(old) if old.bits <= 8 else wide_values(old)
        with np.errstate(all="ignore"):
            try:
                wanted = values.astype(new.dtype)
            except TypeError:  # ml_dtypes 0.6 does not convert some types to f8e8m0fnu and back
                continue
            found = numeric.convert(values, new.dtype)
        if new.is_complex:
            found, wanted = found.real, wanted.real
        same = found == wanted
        if not new.is_integer:
            same &= np.signbit(numeric.wide(found)) == np.signbit(numeric.wide(wanted))
            same |= np.isnan(numeric.wide(found)) & np.isnan(numeric.wide(wanted))
        wrong = ~same & ~is_another_rule(old, new, values)
        assert not wrong.any(), f"{old.value} to {new.value}: {values[wrong][:5]}"


def test_conversions_by_way_of_another_type() -> None:
    """The rule convert_of_convert drops a conversion that loses nothing."""
    dropped = 0
    for old, between, new in itertools.product(ALL, repeat=3):
        if (
            len({old, between, new}) < 3
            or (old.is_complex > between.is_complex)
            or (between.is_complex > new.is_complex)
        ):
            continue
        values = every(old) if old.bits <= 8 else wide_values(old)[::17]
        between_ = make(Convert(between), make(Parameter(0, array(old, values.size))))
        if convert_of_convert.apply(make(Convert(new), between_)) is None:
            continue
        dropped += 1
        with float_mode.of_runs():
            found = numeric.convert(values, new.dtype)
            wanted = numeric.convert(numeric.convert(values, between.dtype), new.dtype)
        assert not difference(found, wanted), f"{old.value}, {between.value}, {new.value}"
    assert dropped > 1000


@pytest.mark.parametrize("t", sorted(SMALL_INTEGERS, key=lambda t: t.value), ids=lambda t: t.value)
def test_integers_that_do_not_fit(t: ElementType) -> None:
    low, high = int(integer_info(t.dtype).min), int(integer_info(t.dtype).max)
    assert Literal([low, high], t).array.astype(np.int8).tolist() == [low, high]
    for value in (low - 1, high + 1, [0, high + 1], 300):
        with pytest.raises(ShapeError, match="constant: .*out of bounds"):
            Literal(value, t)


def test_an_older_ml_dtypes() -> None:
    """Types that it lacks are refused by name; the others work."""
    lacks = ["float8_e8m0fnu", "float4_e2m1fn", "float8_e3m4", "float8_e4m3", "int2", "uint2"]
    program = f"""
import ml_dtypes
for name in {lacks}:
    delattr(ml_dtypes, name)
import numpy as np
from tfbridge.compiler import LocalClient, UnsupportedError, parse_hlo
text = "HloModule m\\nENTRY e {{ x = f32[3] parameter(0)  y = f8e5m2[3] convert(x)  ROOT r = f32[3] convert(y) }}"
(found,) = LocalClient("cpu").compile(parse_hlo(text)).execute([np.float32([1.1, -2, 300])])
assert found.tolist() == [1, -2, 320], found
try:
    parse_hlo(text.replace("f8e5m2", "f8e8m0fnu"))
except UnsupportedError as error:
    print(error)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "element type f8e8m0fnu, which the installed ml_dtypes lacks" in ran.stdout
