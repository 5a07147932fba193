"""The client: compiles modules for a platform and runs them on arrays."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...runtime.devices.device import Feeds
from .. import budget
from ..errors import ShapeError
from ..ir.module import Computation, Module
from ..ir.shape import Shape
from ..ir.verifier import verify
from ..options import DEFAULT_OPTIONS, Options
from ..passes.lower_dynamic_boundary import Exposed, expose_sizes, fits
from ..passes.pad_dynamic_dimensions import resolve_dynamic_sizes
from .communication_checks import check_communication
from .global_data import Transfers
from .platforms import Compiled, platform
from .replicas import DeviceQueues, ReplicaRuns, counted


class Executable(ReplicaRuns):
    """A compiled module. Programs for several devices run with `execute_replicas`."""

    def __init__(
        self,
        module: Module,
        compiled: Compiled,
        exposed: Exposed | None = None,
        options: Options = DEFAULT_OPTIONS,
        feeds: defaultdict[int, Feeds] | None = None,
    ) -> None:
        self.module = module
        self.num_replicas, self.num_partitions = options.num_replicas, options.num_partitions
        self._feeds = feeds if feeds is not None else defaultdict(Feeds)
        self._is_device = check_communication(module, options)
        self._compiled = compiled
        self._exposed = exposed
        self._leaves = [leaf for p in module.entry.parameter_shapes for leaf in p.leaves() if leaf.is_array]

    @property
    def parameter_shapes(self) -> tuple[Shape, ...]:
        """Shapes of the parameters, in order."""
        return self.module.entry.parameter_shapes

    @property
    def result_shape(self) -> Shape:
        """Shape of the result."""
        return self.module.entry.root.shape

    def execute(self, arguments: Sequence[np.ndarray], *, timeout: float | None = None) -> list[np.ndarray]:
        """Runs on arrays (tuple parameters flattened); returns the result's arrays (a tuple's flattened).

        Raises: ShapeError  number, dtype or dims of the arguments differ from the parameters'; the program is for
            several devices. CommunicationError  it waits for another one, or longer than `timeout` seconds.
        """
        if self._is_device:
            return self.execute_replicas([arguments], timeout=timeout)[0]
        return self._call(self._checked(arguments))

    def _checked(self, arguments: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The arguments as arrays of the parameters' types and dims."""
        if len(arguments) != len(self._leaves):
            raise ShapeError(
                f"execute: {len(arguments)} arguments, {self.module.name} has {len(self._leaves)} parameters"
            )
        arrays = []
        for k, (argument, shape) in enumerate(zip(arguments, self._leaves)):
            array = np.asarray(argument)
            if array.dtype != shape.element_type.dtype or (
                array.shape != shape.dims and not fits(array, shape)
            ):
                raise ShapeError(
                    f"execute: argument {k} is {array.dtype}{list(array.shape)}, parameter {k} is {shape}"
                )
            arrays.append(array)
        return arrays

    def _call(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        if self._exposed is not None:
            return self._exposed.results(
                self._compiled.execute(self._exposed.arguments(arrays, self._leaves))
            )
        return self._compiled.execute(arrays)


class LocalClient(Transfers, DeviceQueues):
    """Compiles and runs in this process, on the platform of that name."""

    def __init__(self, platform: str = "cpu") -> None:
        self._platform = _platform(platform)
        self._feeds = defaultdict(Feeds)
        self._executables: dict[Any, Executable] = {}

    @property
    def platform_name(self) -> str:
        """The platform's name."""
        return self._platform.name

    @property
    def device_count(self) -> int:
        """Devices of the platform."""
        return self._platform.device_count

    def compile(
        self,
        program: Module | Computation,
        options: Options = DEFAULT_OPTIONS,
        *,
        num_replicas: int | None = None,
        num_partitions: int | None = None,
    ) -> Executable:
        """Compiles a module or a computation, for as many replicas and partitions as its header says unless given.

        Raises: ShapeError  ill-formed; UnsupportedError  the platform cannot compile it; LimitError  more than the
            options' limits allow; BudgetError  it takes more than `compile_seconds`, `compile_instructions` or
                `compile_megabytes`.
        """
        module = verify(
            program if isinstance(program, Module) else Module(program.name, program), options.limits
        )
        options = counted(module, options, num_replicas, num_partitions)
        check_communication(module, options)
        with budget.limited(options.compile_seconds, options.compile_instructions, options.compile_megabytes):
            exposed = expose_sizes(module)
            bounded = module if exposed is None else resolve_dynamic_sizes(exposed.module, options)
            return Executable(module, self._platform.compile(bounded, options), exposed, options, self._feeds)


_platform = platform
