"""The client: compiles modules for a platform and runs them on arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .errors import ShapeError
from .ir import Computation, Module
from .options import DEFAULT_OPTIONS, Options
from .platforms import Compiled, platform
from .shape import Shape


class Executable:
    """A compiled module."""

    def __init__(self, module: Module, compiled: Compiled) -> None:
        self.module = module
        self._compiled = compiled
        self._leaves = [leaf for p in module.entry.parameter_shapes for leaf in p.leaves()]

    @property
    def parameter_shapes(self) -> tuple[Shape, ...]:
        """Shapes of the parameters, in order."""
        return self.module.entry.parameter_shapes

    @property
    def result_shape(self) -> Shape:
        """Shape of the result."""
        return self.module.entry.root.shape

    def execute(self, arguments: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Runs on arrays (tuple parameters flattened); returns the result's arrays (a tuple's flattened).

        Raises: ShapeError  number, dtype or dims of the arguments differ from the parameters'.
        """
        if len(arguments) != len(self._leaves):
            raise ShapeError(f"execute: {len(arguments)} arguments, {self.module.name} has {len(self._leaves)} "
                             "parameters")
        arrays = []
        for k, (argument, shape) in enumerate(zip(arguments, self._leaves)):
            array = np.asarray(argument)
            if array.dtype != shape.element_type.dtype or array.shape != shape.dims:
                raise ShapeError(f"execute: argument {k} is {array.dtype}{list(array.shape)}, parameter {k} is {shape}")
            arrays.append(array)
        return self._compiled.execute(arrays)


class LocalClient:
    """Compiles and runs in this process, on the platform of that name."""

    def __init__(self, platform: str = "cpu") -> None:
        self._platform = _platform(platform)

    @property
    def platform_name(self) -> str:
        """The platform's name."""
        return self._platform.name

    @property
    def device_count(self) -> int:
        """Devices of the platform."""
        return self._platform.device_count

    def compile(self, program: Module | Computation, options: Options = DEFAULT_OPTIONS) -> Executable:
        """Compiles a module or a computation.

        Raises: ShapeError  ill-formed; UnsupportedError  the platform cannot compile it.
        """
        module = program if isinstance(program, Module) else Module(program.name, program)
        return Executable(module, self._platform.compile(module, options))


_platform = platform
