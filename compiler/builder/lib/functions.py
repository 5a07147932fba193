"""Functions of one operand by name, for floats of every width and complex numbers."""

from __future__ import annotations

from collections.abc import Callable

from ...errors import ShapeError
from ...ir.element_types import ElementType
from ..computation_builder import ComputationBuilder, Operand
from . import complex_functions
from .gamma_functions import digamma, lgamma
from .special_functions import bessel_i1e, erfinv

_B = ComputationBuilder
_F32, _F64 = ElementType.F32, ElementType.F64
FUNCTIONS: dict[str, Callable[[ComputationBuilder, Operand], Operand]] = {
    "acos": _B.acos,
    "acosh": _B.acosh,
    "asin": _B.asin,
    "asinh": _B.asinh,
    "atan": _B.atan,
    "atanh": _B.atanh,
    "bessel_i1e": bessel_i1e,
    "cosh": _B.cosh,
    "digamma": digamma,
    "erf": lambda b, x: b.erf(x),
    "erf_inv": erfinv,
    "erfc": lambda b, x: b.erfc(x),
    "lgamma": lgamma,
    "sinh": lambda b, x: b.sinh(x),
    "tan": lambda b, x: b.tan(x),
}
"""Functions of floats; those below f32 are computed in f32."""


def apply_function(b: ComputationBuilder, name: str, operand: Operand) -> Operand:
    """The function of this name. Raises: ShapeError  function_c1: the operand is no array of floats or complex numbers,
    or the function is not one of complex numbers."""
    shape = b.get_shape(operand)
    kind = shape.element_type
    if kind.is_complex:
        if name.capitalize() in complex_functions.UNARY and name != "sinh":
            return complex_functions.apply(b, name.capitalize(), operand)
        return FUNCTIONS[name](b, operand)
    if not shape.is_array or not kind.is_float:
        raise ShapeError(
            f"{name}: operand is {shape}, an array of floats or complex numbers is wanted (function_c1)"
        )
    wide = b.convert_element_type(operand, _F32) if kind not in (_F32, _F64) else operand
    return b.convert_element_type(FUNCTIONS[name](b, wide), kind)
