"""Platforms: where a module can run. Found by entry points of the group `tfbridge.platforms`; cpu and interpreter are
always there."""

from __future__ import annotations

import functools
import importlib.metadata
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from ...runtime.code.executable import Executable as NativeExecutable
from ..errors import ShapeError
from ..evaluator.evaluator import evaluate, flattened, nested
from ..ir.module import Module
from ..options import Options
from ..passes.normalize_layouts import entry_shapes, inverted, leaf_orders, normalize_layouts

GROUP = "tfbridge.platforms"
Order = tuple[int, ...] | None


class Compiled(Protocol):
    """A module made ready by a platform."""

    def execute(self, arguments: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Runs on flattened arguments; returns the flattened results."""


class Platform(Protocol):
    """What a platform provides. `device_count` devices can run modules at the same time."""

    name: str
    device_count: int

    def compile(self, module: Module, options: Options) -> Compiled:
        """Makes a module ready to run.

        Raises: UnsupportedError  the platform cannot compile it.
        """


class CpuPlatform:
    """Native code for this machine."""

    name = "cpu"
    device_count = 1

    def compile(self, module: Module, options: Options) -> Compiled:
        """Compiles with LLVM; artifacts come from the disk cache when they are there."""
        from ..cpu.compile import load_module

        # Before the cache is asked: how a custom call is laid out depends on who is registered for it.
        plain = normalize_layouts(module, options)
        return row_major(module, NativeExecutable(load_module(plain, options), options.threads or None))


class InterpreterPlatform:
    """The evaluator: slow, and the meaning of every op."""

    name = "interpreter"
    device_count = 1

    def compile(self, module: Module, options: Options) -> Compiled:
        """Nothing is compiled."""
        return row_major(module, _Interpreted(normalize_layouts(module, options)))


class _Interpreted:
    def __init__(self, module: Module) -> None:
        self._module = module

    def execute(self, arguments: Sequence[np.ndarray]) -> list[np.ndarray]:
        rest = iter(arguments)
        given = [nested(shape, rest) for shape in self._module.entry.parameter_shapes]
        return [
            np.array(leaf, order="C") for leaf in flattened(evaluate(self._module, given))
        ]  # no views of arguments


class _Transposed:
    """An executable whose arrays have the dims from the slowest axis to the fastest, called with logical ones."""

    def __init__(self, compiled: Compiled, parameters: Sequence[Order], results: Sequence[Order]) -> None:
        self._compiled, self._parameters, self._results = compiled, parameters, results

    def execute(self, arguments: Sequence[np.ndarray]) -> list[np.ndarray]:
        lying = [a if o is None else a.transpose(o) for a, o in zip(arguments, self._parameters)]
        found = self._compiled.execute(lying)
        return [a if o is None else a.transpose(inverted(o)) for a, o in zip(found, self._results)]


def row_major(module: Module, compiled: Compiled) -> Compiled:
    """What `normalize_layouts` made of the module, called with arrays of the module's own dims.

    An array that lies in memory as the parameter's layout says is not copied, and results lie as theirs say.
    """
    parameters, result = entry_shapes(module)
    orders = [o for shape in parameters for o in leaf_orders(shape)], list(leaf_orders(result))
    return compiled if not any((*orders[0], *orders[1])) else _Transposed(compiled, *orders)


@functools.cache
def platform(name: str) -> Platform:
    """The platform of that name.

    Raises: ShapeError  no platform has this name.
    """
    known: dict[str, Any] = {"cpu": CpuPlatform, "interpreter": InterpreterPlatform}
    for point in importlib.metadata.entry_points(group=GROUP):
        known.setdefault(point.name, point.load)
    if name not in known:
        raise ShapeError(f"client: no platform {name!r}; known: {', '.join(sorted(known))}")
    made = known[name]()
    return made() if isinstance(made, type) else made
