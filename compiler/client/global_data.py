"""Data that lives with a platform: handles, transfers, and running computations on them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import overload

import numpy as np

from ..errors import ShapeError
from ..ir.layout import Layout
from ..ir.literal import Literal
from ..ir.module import Computation, Module
from ..ir.shape import Shape
from .executable import Executable

MAX_EXECUTABLES = 256
"""Compiled computations that a client keeps; the oldest goes first."""


@dataclasses.dataclass(frozen=True)
class DeviceHandle:
    """One device of a platform."""

    platform: str
    number: int


class GlobalData:
    """A handle of a value that lives on a device, until it is released or nothing refers to it any more.

    It is the argument of any number of executions. In a `with` statement it is released at the end.
    """

    __slots__ = ("_leaves", "device", "shape")

    def __init__(self, shape: Shape, leaves: Sequence[np.ndarray], device: DeviceHandle) -> None:
        self.shape = shape
        self.device = device
        self._leaves: tuple[np.ndarray, ...] | None = tuple(leaves)

    @property
    def leaves(self) -> tuple[np.ndarray, ...]:
        """The arrays on the device. Raises: ShapeError  global_data_c1: the data was released."""
        if self._leaves is None:
            raise ShapeError(f"global data: {self.shape} on {self.device} was released (global_data_c1)")
        return self._leaves

    @property
    def is_released(self) -> bool:
        """Whether the data is gone."""
        return self._leaves is None

    def release(self) -> None:
        """Frees the memory; the handle cannot be used any more."""
        self._leaves = None

    def __enter__(self) -> GlobalData:
        return self

    def __exit__(self, *exception: object) -> None:
        self.release()

    def __repr__(self) -> str:
        return f"GlobalData({self.shape}, {self.device}{', released' if self.is_released else ''})"


class Transfers:
    """The part of a client that moves data and runs computations on handles."""

    _executables: dict[object, Executable]

    @property
    def platform_name(self) -> str:
        """The platform's name."""
        raise NotImplementedError

    @property
    def device_count(self) -> int:
        """Devices of the platform."""
        raise NotImplementedError

    def compile(self, program: Module | Computation) -> Executable:
        """Compiles a program."""
        raise NotImplementedError

    @property
    def devices(self) -> tuple[DeviceHandle, ...]:
        """The platform's devices."""
        return tuple(DeviceHandle(self.platform_name, k) for k in range(self.device_count))

    def _device(self, device: DeviceHandle | None) -> DeviceHandle:
        if device is not None and device not in self.devices:
            raise ShapeError(f"client: {device} is no device of {self.platform_name} (device_c1)")
        return device or self.devices[0]

    def transfer_to_server(
        self,
        value: object,
        device: DeviceHandle | None = None,
        *,
        shape: Shape | None = None,
        layout: Layout | None = None,
    ) -> GlobalData:
        """A copy of a literal, an array or a tuple of them on a device.

        With `shape` and `layout` the value is linear memory that holds an array of this shape in this layout.
        Raises: ShapeError  device_c1: the device is none of this platform's; as `Layout.unpack`.
        """
        if layout is not None:
            if shape is None:
                raise TypeError("transfer_to_server: linear memory needs the shape of the array in it")
            value = layout.unpack(np.asarray(value), shape)
        literal = _literal(value)
        return GlobalData(literal.shape, list(_leaves(literal)), self._device(device))

    def transfer_in_process(self, array: np.ndarray, device: DeviceHandle | None = None) -> GlobalData:
        """A handle of an array of this process, without a copy where the array is contiguous.

        Later executions see changes of the array.
        """
        whole = np.ascontiguousarray(array).reshape(np.shape(array))
        return GlobalData(
            Literal(np.empty((0,), whole.dtype)).shape.with_dims(whole.shape), [whole], self._device(device)
        )

    @overload
    def transfer(self, data: GlobalData, layout: None = None) -> Literal: ...

    @overload
    def transfer(self, data: GlobalData, layout: Layout) -> np.ndarray: ...

    def transfer(self, data: GlobalData, layout: Layout | None = None) -> Literal | np.ndarray:
        """The value of a handle as a literal; with `layout`, an array's linear memory in it.

        Raises: ShapeError  global_data_c1: the data was released. layout_c1: a tuple has no one layout.
        """
        rest = iter(data.leaves)
        literal = _nested(data.shape, rest)
        if layout is None:
            return literal
        if data.shape.is_tuple:
            raise ShapeError(f"transfer: {data.shape} has no one layout (layout_c1)")
        return layout.pack(literal.array)

    def execute(self, computation: Module | Computation, arguments: Sequence[GlobalData] = ()) -> GlobalData:
        """Runs a computation on data of one device; its value remains there.

        A computation is compiled when it is run for the first time.
        Raises: ShapeError  device_c2: arguments of different devices; execute_c1: arguments that do not fit the
            parameters; global_data_c1: one was released.
        """
        devices = {a.device for a in arguments}
        if len(devices) > 1:
            raise ShapeError(
                f"execute: arguments are on {sorted(d.number for d in devices)}, one device is wanted "
                "(device_c2)"
            )
        executable = self._executables.get(computation)
        if executable is None:
            executable = self.compile(computation)
            if len(self._executables) >= MAX_EXECUTABLES:
                del self._executables[next(iter(self._executables))]
            self._executables[computation] = executable
        required = executable.parameter_shapes
        if len(required) != len(arguments) or not all(
            _accepts(w, a.shape) for w, a in zip(required, arguments)
        ):
            raise ShapeError(
                f"execute: arguments are ({', '.join(str(a.shape) for a in arguments)}), "
                f"({', '.join(map(str, required))}) are wanted (execute_c1)"
            )
        results = executable.execute([leaf for a in arguments for leaf in a.leaves])
        rest = iter(results)
        shape = _real(executable.result_shape, rest)
        return GlobalData(shape, results, self._device(next(iter(devices), None)))

    def execute_and_transfer(
        self, computation: Module | Computation, arguments: Sequence[GlobalData] = ()
    ) -> Literal:
        """Runs a computation and returns its value.

        Raises: ShapeError  as `execute`.
        """
        with self.execute(computation, arguments) as data:
            return self.transfer(data)


def _accepts(parameter: Shape, argument: Shape) -> bool:
    if parameter.is_tuple:
        return (
            argument.is_tuple
            and len(parameter.tuple_shapes) == len(argument.tuple_shapes)
            and all(map(_accepts, parameter.tuple_shapes, argument.tuple_shapes))
        )
    return (
        parameter.element_type is argument.element_type
        and parameter.rank == argument.rank
        and all(
            n == d or (n < d and axis in parameter.dynamic)
            for axis, (n, d) in enumerate(zip(argument.dims, parameter.dims))
        )
    )


def _real(shape: Shape, arrays: Iterator[np.ndarray]) -> Shape:
    """The shape with the dims that the arrays have."""
    if shape.is_tuple:
        return Shape.tuple(_real(s, arrays) for s in shape.tuple_shapes)
    return shape.with_dims(next(arrays).shape) if shape.is_array else shape


def _literal(value: object) -> Literal:
    if isinstance(value, Literal):
        return value
    return Literal.tuple(map(_literal, value)) if isinstance(value, (tuple, list)) else Literal(value)


def _leaves(literal: Literal) -> Iterator[np.ndarray]:
    if literal.shape.is_tuple:
        for part in literal.parts:
            yield from _leaves(part)
    else:
        yield literal.array


def _nested(shape: Shape, leaves: Iterator[np.ndarray]) -> Literal:
    if shape.is_tuple:
        return Literal.tuple(_nested(s, leaves) for s in shape.tuple_shapes)
    return Literal(next(leaves))
