"""Platforms: where a module can run. Found by entry points of the group `tfbridge.platforms`; cpu and interpreter are
always there."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, cast

import numpy as np

from ...runtime.code.artifact import Artifact
from ...runtime.code.peak_rates import PeakRates
from ...runtime.code.symbolic_sizes import SymbolicSizes
from ...runtime.llvm.target import Target
from ..errors import ShapeError
from ..evaluator.evaluate import evaluate, flattened, nested
from ..ir.code_version import CodeVersion, Level
from ..ir.layout import inverse_permutation, leaf_orders
from ..ir.module import Module
from ..ir.module_attributes import entry_shapes
from ..object_options import DEFAULT_OBJECT_OPTIONS, ObjectOptions, StandaloneCode
from ..options import Options
from ..passes.normalize_layouts import normalize_layouts

GROUP = "tfbridge.platforms"
Order = tuple[int, ...] | None


class Compiled(Protocol):
    """A module made ready by a platform."""

    def execute(self, arguments: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Runs on flattened arguments; returns the flattened results."""


class Platform(Protocol):
    """The interface of a platform. `device_count` devices can run modules at the same time."""

    name: str
    device_count: int

    def compile(self, module: Module, options: Options) -> Compiled:
        """Makes a module ready to run.

        Raises: UnsupportedError  the platform cannot compile it.
        """


class NativePlatform(Platform, Protocol):
    """A platform whose compiled modules are artifacts: objects that are stored, loaded and exported."""

    def load_artifact(
        self, key: str, build: Callable[[], Module], options: Options, source: str = ""
    ) -> Artifact:
        """The artifact of the module that `build` returns: from the disk cache, or compiled now and stored there.

        `key` says all that the module is built from; `build` is called only when the cache has no artifact for it.
        `source` is the text that the module was translated from, for the dump.
        Raises: UnsupportedError  an op without code; ShapeError  the module is ill-formed; BudgetError  the compilation
            takes more than the options allow.
        """

    def has_artifact(self, key: str, options: Options) -> bool:
        """Whether `load_artifact` finds the artifact in the disk cache."""

    def compile_self_contained(
        self,
        versions: Sequence[CodeVersion],
        options: Options,
        embed_constants: bool,
        object_options: ObjectOptions = DEFAULT_OBJECT_OPTIONS,
    ) -> StandaloneCode:
        """One object of modules, by the names of their entries, that needs the C library alone; of several versions,
        for levels of processors with the lowest first, a run takes the highest that there is.

        With `embed_constants` the object has the constants too.
        Raises: as `load_artifact`.
        """

    def prepare_self_contained(self) -> None:
        """Starts, beside this thread, what `compile_self_contained` waits for."""

    def symbolic_sizes_of(self, module: Module, options: Options, target: Target) -> SymbolicSizes:
        """What a module's code needs and assumes of symbolic sizes, without compiling it.

        Raises: as `load_artifact`.
        """

    def print_thunks(self, module: Module, options: Options) -> str:
        """Instruction order, buffers and thunks of the module as text, for people.

        Raises: as `load_artifact`.
        """

    def target(self, options: Options) -> Target:
        """The machine that code is generated for."""

    def named_target(
        self,
        triple: str,
        cpu: str = "",
        features: str = "",
        threads: int = 1,
        l1_bytes: int | None = None,
        l2_bytes: int | None = None,
    ) -> Target:
        """Another machine by name, with usual caches unless their bytes are given.

        Raises: ValueError  a text that is no triple, CPU or list of features, or bytes that are none;
        UnsupportedError  there is no code generator for the target.
        """

    def named_levels(
        self,
        triple: str,
        names: Sequence[str],
        threads: int = 1,
        l1_bytes: int | None = None,
        l2_bytes: int | None = None,
    ) -> list[Level]:
        """The levels of an architecture by their names, the lowest first.

        Raises: ValueError  an architecture or a name without levels; else as `named_target`.
        """

    def peak_rates(self) -> PeakRates:
        """What a thread of this machine does at most, measured once."""

    def code_fingerprint(self, folder: Path | None = None) -> str:
        """A digest of the sources in `folder` (default: the compiler) and of the versions of all that generates
        code."""

    def load_emitters(self) -> None:
        """Imports the kernel emitters that most programs need, which otherwise happens at their first use."""

    def prefetch_kernel_libraries(self) -> None:
        """Starts to compile, in one background thread, the library kernels that most programs call."""


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
        values = [nested(shape, rest) for shape in self._module.entry.parameter_shapes]
        return [
            np.array(leaf, order="C") for leaf in flattened(evaluate(self._module, values))
        ]  # no views of arguments


class _Transposed:
    """An executable whose arrays have the dims from the slowest axis to the fastest, called with logical ones."""

    def __init__(self, compiled: Compiled, parameters: Sequence[Order], results: Sequence[Order]) -> None:
        self._compiled, self._parameters, self._results = compiled, parameters, results

    def execute(self, arguments: Sequence[np.ndarray]) -> list[np.ndarray]:
        lying = [a if o is None else a.transpose(o) for a, o in zip(arguments, self._parameters)]
        results = self._compiled.execute(lying)
        return [
            a if o is None else a.transpose(inverse_permutation(o)) for a, o in zip(results, self._results)
        ]


def row_major(module: Module, compiled: Compiled) -> Compiled:
    """The compiled result of `normalize_layouts`, called with arrays of the module's own dims.

    An array whose strides are those of the parameter's layout is not copied; results have the strides of theirs.
    """
    parameters, result = entry_shapes(module)
    orders = [o for shape in parameters for o in leaf_orders(shape)], list(leaf_orders(result))
    return compiled if not any((*orders[0], *orders[1])) else _Transposed(compiled, *orders)


_BUILTIN = {"cpu": "..cpu.platform:CpuPlatform", "interpreter": ".platforms:InterpreterPlatform"}
"""By name, the module (imported at the first use) and the class."""


@functools.cache
def platform(name: str) -> Platform:
    """The platform of that name.

    Raises: ShapeError  no platform has this name.
    """
    if name in _BUILTIN:
        module, class_name = _BUILTIN[name].split(":")
        builtin: Platform = getattr(importlib.import_module(module, __package__), class_name)()
        return builtin
    points = {point.name: point for point in importlib.metadata.entry_points(group=GROUP)}
    if name not in points:
        raise ShapeError(f"client: no platform {name!r}; known: {', '.join(sorted({*_BUILTIN, *points}))}")
    provided = points[name].load()
    instance: Platform = provided() if isinstance(provided, type) else provided
    return instance


def native() -> NativePlatform:
    """The platform `cpu`."""
    return cast("NativePlatform", platform("cpu"))
