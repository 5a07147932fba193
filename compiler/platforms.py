"""Platforms: where a module can run. Found by entry points of the group `tfbridge.platforms`; cpu and interpreter are
always there."""

from __future__ import annotations

import functools
import importlib.metadata
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from ..runtime.executable import Executable as NativeExecutable
from .errors import ShapeError
from .evaluator import evaluate
from .ir import Module
from .options import Options

GROUP = "tfbridge.platforms"


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
        from .cpu.compile import load_module
        return NativeExecutable(load_module(module, options), options.threads or None)


class InterpreterPlatform:
    """The evaluator: slow, and the meaning of every op."""

    name = "interpreter"
    device_count = 1

    def compile(self, module: Module, options: Options) -> Compiled:
        """Nothing is compiled."""
        return _Interpreted(module)


class _Interpreted:
    def __init__(self, module: Module) -> None:
        self._module = module

    def execute(self, arguments: Sequence[np.ndarray]) -> list[np.ndarray]:
        rest = iter(arguments)
        nested = [_nest(shape, rest) for shape in self._module.entry.parameter_shapes]
        return [np.array(leaf, order="C") for leaf in _flatten(evaluate(self._module, nested))]  # no views of arguments


def _nest(shape: Any, leaves: Any) -> Any:
    return tuple(_nest(s, leaves) for s in shape.tuple_shapes) if shape.is_tuple else next(leaves)


def _flatten(value: Any) -> Any:
    if isinstance(value, tuple):
        for part in value:
            yield from _flatten(part)
    else:
        yield value


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
