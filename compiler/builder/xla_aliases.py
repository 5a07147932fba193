"""The builder's methods under the names that the operation semantics and the ComputationBuilder class give them."""

from __future__ import annotations

import inspect
from typing import TypeVar

T = TypeVar("T")

ODD_NAMES = {
    "constant_r2_from_array2d": "ConstantR2FromArray2D",
    "constant_r3_from_array3d": "ConstantR3FromArray3D",
    "constant_r4_from_array4d": "ConstantR4FromArray4D",
}
"""Those that do not follow from the method's own name."""


def document_name(method: str) -> str:
    """`add` is Add, `while_` is While, `eq_total_order` is EqTotalOrder."""
    return ODD_NAMES.get(method) or "".join(part[:1].upper() + part[1:] for part in method.split("_"))


def with_document_names(cls: type[T]) -> type[T]:
    """The class with every public method under its document name too."""
    for name in dir(cls):
        if not name.startswith("_") and callable(getattr(cls, name)):
            setattr(cls, document_name(name), inspect.getattr_static(cls, name))
    return cls
