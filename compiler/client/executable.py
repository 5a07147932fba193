"""A compiled module, which runs on arrays."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from ...runtime.devices.device import Feeds
from ...runtime.sizes import is_symbolic
from ..errors import ShapeError
from ..ir.module import Module
from ..ir.shape import Shape
from ..options import DEFAULT_OPTIONS, Options
from ..passes.lower_dynamic_boundary import LoweredBoundary, fits
from .communication_checks import check_communication
from .platforms import Compiled
from .replicas import ReplicaRuns


class Executable(ReplicaRuns):
    """A compiled module. Programs for several devices run with `execute_replicas`."""

    def __init__(
        self,
        module: Module,
        compiled: Compiled,
        lowered: LoweredBoundary | None = None,
        options: Options = DEFAULT_OPTIONS,
        feeds: defaultdict[int, Feeds] | None = None,
    ) -> None:
        self.module = module
        self.num_replicas, self.num_partitions = options.num_replicas, options.num_partitions
        self._feeds = feeds if feeds is not None else defaultdict(Feeds)
        self._is_device = check_communication(module, options)
        self._compiled = compiled
        self._lowered = lowered
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

        Nothing is converted: an argument has its parameter's dtype. Results are new arrays.
        Shapes: the dims of the arguments are the values of the symbols in sizes.
        Units: timeout is in seconds.
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
                array.shape != shape.dims and not is_symbolic(shape.dims) and not fits(array, shape)
            ):
                raise ShapeError(
                    f"execute: argument {k} is {array.dtype}{list(array.shape)}, parameter {k} is {shape}"
                )
            arrays.append(array)
        return arrays

    def _call(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        if self._lowered is not None:
            return self._lowered.results(
                self._compiled.execute(self._lowered.arguments(arrays, self._leaves))
            )
        return self._compiled.execute(arrays)
