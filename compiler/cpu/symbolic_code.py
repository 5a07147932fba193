"""Code for sizes that are known at run time only, called like any other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import numpy as np

from ...runtime.code.executable import Executable
from ..errors import ShapeError
from ..ir.module import Module
from ..ir.specialization import specialized, symbol_values
from ..ir.verifier import verify

_MAX_BOUND = 64
Dims = tuple[tuple[int, ...], ...]


class SymbolicCode:
    """Code for symbolic sizes, bound to the dims of each call's arguments; the last ones bound are kept.

    Sizes that the code does not serve, all where there is none, get code of their own, which `compile` makes.
    """

    def __init__(
        self, module: Module, code: Executable | None, compile: Callable[[Module], Executable]
    ) -> None:
        self._module, self.code, self._compile = module, code, compile
        self._bound: dict[Dims, Executable] = {}
        self._lock = threading.Lock()

    def execute(self, arguments: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Runs on arrays. Raises: ShapeError  the program has no such sizes."""
        dims = tuple([a.shape for a in arguments])
        bound = self._bound.get(dims)
        if bound is None:
            bound = self._bind(dims)
            with self._lock:
                self._bound[dims] = bound
                while len(self._bound) > _MAX_BOUND:
                    del self._bound[next(iter(self._bound))]
        return bound.execute(arguments)

    def _bind(self, dims: Dims) -> Executable:
        if self.code is not None and not isinstance(bound := self.code.bound(dims), str):
            return bound
        values = symbol_values(self._module, dims)
        if isinstance(values, str):
            raise ShapeError(f"execute: {values}")
        return self._compile(verify(specialized(self._module, values)))
