"""The table of translations: what each operator of a file is in TensorFlow's operations."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from .operation import Operation, Result

Function = Callable[[Operation], Result]


@dataclasses.dataclass(frozen=True)
class Translation:
    """How an operator is translated.

    function: the operation in, its results out. stores: whether these are as they are stored, where they are quantised;
    they are numbers otherwise, which the caller quantises. is_elementwise: whether it computes each element by itself,
    so that it is in one kernel with those of its operands that do, too.
    """

    function: Function
    stores: bool = False
    is_elementwise: bool = False


TRANSLATIONS: dict[str, Translation] = {}


def translates(
    *names: str, stores: bool = False, is_elementwise: bool = False
) -> Callable[[Function], Function]:
    """Registers the translation of operators."""

    def register(function: Function) -> Function:
        TRANSLATIONS.update(dict.fromkeys(names, Translation(function, stores, is_elementwise)))
        return function

    return register
