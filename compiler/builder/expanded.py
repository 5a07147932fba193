"""Builder operations of XLA's newer operation semantics that are written with others: scans, stochastic rounding,
shapes and exchanges whose sizes are data."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import ShapeError, UnsupportedError
from ..ir.element_types import ElementType
from ..ir.module import Computation
from ..ir.shape import Shape
from ..ops import AllToAll
from .communication import CommunicationOperations, ReplicaGroups, groups_of
from .core import Operand, TypeName, operation
from .lib.loops import repeated, slice_at, with_slice
from .ragged_products import RaggedProductOperations

_E = ElementType
_BITS = {16: _E.U16, 32: _E.U32, 64: _E.U64}


class ExpandedOperations(CommunicationOperations, RaggedProductOperations):
    """Scans, stochastic rounding, shapes and exchanges whose sizes are data."""

    @operation
    def scan(
        self,
        inputs: Sequence[Operand],
        inits: Sequence[Operand],
        computation: Computation | None,
        dimension: int = 0,
        is_reverse: bool = False,
    ) -> Operand:
        """A computation applied to one slice of the inputs after the other. It is given the slices, without their axis
        `dimension`, and the carries, at first `inits`; it gives outputs and carries, in a tuple where there are
        several. The result has the outputs, stacked along that axis, and the last carries, in a tuple likewise.

        Raises: ShapeError  scan_c1: the inputs are not arrays with the same number of slices. scan_c2: the computation
            does not take slices and carries. scan_c3: it does not give outputs that are arrays with that many axes, and
            carries of the shapes of the inits.
        """
        body = self.computation(computation)
        count, slices = self._slices(inputs, dimension)
        carried = [self.shape_of(o).without_layout() for o in inits]
        outputs = _outputs(body, slices, carried, dimension)
        first, last = len(slices), len(slices) + len(outputs)

        def step(b: ExpandedOperations, number: Operand, values: list[Operand]) -> list[Operand]:
            at = b.sub(b.constant(count - 1, _E.S32), number) if is_reverse else number
            parts = [slice_at(b, o, at, dimension) for o in values[:first]]
            results = b._parts(b.call(body, [*parts, *values[last:]]))
            stacked = [
                with_slice(b, whole, part, at, dimension)
                for whole, part in zip(values[first:last], results[: len(outputs)], strict=True)
            ]
            return [*values[:first], *stacked, *results[len(outputs) :]]

        zeros = [
            self.broadcast(
                self.constant(0, s.element_type), (*s.dims[:dimension], count, *s.dims[dimension:])
            )
            for s in outputs
        ]
        values = [*inputs, *zeros, *inits]
        results = (repeated(self, count, values, step) if count else values)[first:]
        return self.tuple(results) if body.root.shape.is_tuple else results[0]

    def _slices(self, inputs: Sequence[Operand], dimension: int) -> tuple[int, list[Shape]]:
        """How many slices there are, and their shapes."""
        shapes = [self.shape_of(o) for o in inputs]
        if not shapes or not all(s.is_array and 0 <= dimension < s.rank for s in shapes):
            raise ShapeError(
                f"scan: inputs are {', '.join(map(str, shapes)) or 'none'}, arrays with an axis {dimension} are wanted "
                "(scan_c1)"
            )
        counts = {s.dims[dimension] for s in shapes}
        if len(counts) > 1:
            raise ShapeError(f"scan: inputs have {sorted(counts)} slices along axis {dimension} (scan_c1)")
        return counts.pop(), [s.with_dims((*s.dims[:dimension], *s.dims[dimension + 1 :])) for s in shapes]

    # -- shapes and types
    @operation
    def stochastic_convert(self, operand: Operand, random: Operand, new_element_type: TypeName) -> Operand:
        """Floats as signed integers, rounded away from zero where `random`, as a part of all numbers of its type, is
        below the part that would be cut off. Beyond the type it is the nearest integer of it; NaN is 0.

        Raises: ShapeError  stochastic_convert_c1: the operand is no array of f16, bf16, f32 or f64;
            stochastic_convert_c2: random are not unsigned integers of its width and dims. UnsupportedError  another
            type than signed integers: how many bits of a float are random is not specified.
        """
        shape, bits, kind = self.shape_of(operand), self.shape_of(random), ElementType(new_element_type)
        if not shape.is_array or not shape.element_type.is_float or shape.element_type.bits not in _BITS:
            raise ShapeError(
                f"stochastic-convert: operand is {shape}, floats of 16 bits and more are wanted (stochastic_convert_c1)"
            )
        if bits.dims != shape.dims or bits.element_type is not _BITS[shape.element_type.bits]:
            raise ShapeError(
                f"stochastic-convert: random numbers are {bits} for {shape}, "
                f"{_BITS[shape.element_type.bits].value} of its dims are wanted (stochastic_convert_c2)"
            )
        if not (kind.is_integer and kind.is_signed):
            raise UnsupportedError(
                f"stochastic-convert from {shape.element_type.value} to {kind.value} is not compiled: to signed "
                "integers it is"
            )
        wide = _E.F64 if shape.element_type is _E.F64 else _E.F32
        value = self.convert_element_type(operand, wide)
        size = self.abs(value)
        whole = self.floor(size)
        scale = self.scalar_like(value, 2.0**shape.element_type.bits)
        cut = self.convert_element_type(self.mul(self.sub(size, whole), scale), bits.element_type)
        rounded = self.select(self.lt(random, cut), self.add(whole, self.scalar_like(value, 1)), whole)
        rounded = self.select(self.lt(value, self.scalar_like(value, 0)), self.neg(rounded), rounded)
        return self.convert_element_type(rounded, kind)

    @operation
    def dynamic_reshape(self, operand: Operand, sizes: Sequence[Operand], shape: Shape) -> Operand:
        """The elements in their order in another shape, whose axes have these sizes where they are dynamic.

        Raises: ShapeError  dynamic_reshape_c1: there is not one scalar of integers for each axis.
        """
        kinds = [self.shape_of(s) for s in sizes]
        if len(kinds) != shape.rank or not all(k.is_scalar and k.element_type.is_integer for k in kinds):
            raise ShapeError(
                f"dynamic-reshape: sizes are {', '.join(map(str, kinds)) or 'none'}, an integer for each axis of "
                f"{shape} is wanted (dynamic_reshape_c1)"
            )
        own = self.shape_of(operand)
        if not own.dynamic and not shape.dynamic:
            return self.reshape(operand, shape.dims)
        lengths = [
            self.convert_element_type(s, _E.S32)
            if a in shape.dynamic
            else self.constant(shape.dims[a], _E.S32)
            for a, s in enumerate(sizes)
        ]
        number = self.broadcast(self.constant(0, _E.S32), shape.dims)
        for axis, length in enumerate(lengths):
            number = self.add(self.mul(number, length), self.iota(Shape(_E.S32, shape.dims), axis))
        result = self._elements_at(operand, number)
        for axis in shape.dynamic:
            result = self.set_dimension_size(result, lengths[axis], axis)
        return result

    def _elements_at(self, operand: Operand, numbers: Operand) -> Operand:
        """The elements of an array by their numbers in its order, in which its sizes at run time count."""
        own, dims = self.shape_of(operand), self.shape_of(numbers).dims
        indices: list[Operand] = []
        for axis in reversed(range(own.rank)):
            size = (
                self.get_dimension_size(operand, axis)
                if axis in own.dynamic
                else self.constant(own.dims[axis], _E.S32)
            )
            size = self.max(size, self.constant(1, _E.S32))
            indices.append(self.rem(numbers, size))
            numbers = self.div(numbers, size)
        for axis in own.dynamic:
            operand = self.set_dimension_size(operand, self.constant(own.dims[axis], _E.S32), axis)
        last = len(dims)
        columns = [self.reshape(i, (*dims, 1)) for i in reversed(indices)]
        if not columns:
            return self.broadcast(operand, dims)
        starts = self.concat_in_dim(columns, last) if len(columns) > 1 else columns[0]
        axes = range(own.rank)
        return self.gather(operand, starts, (), axes, (1,) * own.rank, axes, last)

    # -- other devices
    @operation
    def collective_reduce(
        self,
        operand: Operand,
        computation: Computation | None,
        replica_groups: ReplicaGroups = (),
        channel_id: int | None = None,
        use_global_device_ids: bool = False,
    ) -> Operand:
        """As all_reduce; what devices other than a group's first have is not said: they have the same."""
        return self.all_reduce(operand, computation, replica_groups, channel_id, use_global_device_ids)

    @operation
    def ragged_all_to_all(
        self,
        operand: Operand,
        output: Operand,
        input_offsets: Operand,
        send_sizes: Operand,
        output_offsets: Operand,
        recv_sizes: Operand,
        replica_groups: ReplicaGroups = (),
        channel_id: int | None = None,
    ) -> Operand:
        """The output with rows of the operands of a group's devices: device k sends device j `send_sizes[j]` rows, of
        its operand from `input_offsets[j]` on, to `output_offsets[j]` of device j's output. Offsets and sizes have a
        number for each device, or as many rows of numbers, one for each update.

        Raises: ShapeError  ragged_all_to_all_c1: operand and output are not arrays that differ in their first axis
            alone. ragged_all_to_all_c2: offsets and sizes are not arrays of integers of the same dims, for each device
            one number or several. ragged_all_to_all_c3: groups are not of that many devices.
        """
        rows = [self.shape_of(o) for o in (operand, output)]
        numbers = [self.shape_of(o) for o in (input_offsets, send_sizes, output_offsets, recv_sizes)]
        if (
            not all(s.is_array and s.rank > 0 for s in rows)
            or rows[0].dims[1:] != rows[1].dims[1:]
            or rows[0].element_type is not rows[1].element_type
        ):
            raise ShapeError(
                f"ragged-all-to-all: operand {rows[0]} and output {rows[1]} may differ in the first axis alone "
                "(ragged_all_to_all_c1)"
            )
        if (
            not all(s.is_array and s.element_type.is_integer for s in numbers)
            or len({s.dims for s in numbers}) != 1
            or numbers[0].rank not in (1, 2)
        ):
            raise ShapeError(
                f"ragged-all-to-all: offsets and sizes are {', '.join(map(str, numbers))}, integers of the same dims "
                "are wanted (ragged_all_to_all_c2)"
            )
        count, groups = numbers[0].dims[0], groups_of(replica_groups)
        if any(len(group) != count for group in groups) or not count:
            raise ShapeError(
                f"ragged-all-to-all: offsets are {numbers[0]}, groups {groups} (ragged_all_to_all_c3)"
            )

        def exchanged(part: Operand) -> Operand:
            return self.apply(AllToAll(channel_id or 0, groups, 0), part)

        offsets = [
            self.reshape(exchanged(self.convert_element_type(o, _E.S32)), (numbers[0].elements,))
            for o in (input_offsets, send_sizes, output_offsets)
        ]
        to_all = self.reshape(self.broadcast(operand, (count,)), (count * rows[0].dims[0], *rows[0].dims[1:]))
        blocks = self.reshape(exchanged(to_all), (count, *rows[0].dims))
        if not (rows[0].elements and numbers[0].elements):
            return output
        return repeated(self, numbers[0].elements, [blocks, *offsets, output], _rows_taken)[-1]


def _outputs(body: Computation, slices: list[Shape], carried: list[Shape], dimension: int) -> list[Shape]:
    """The shapes of a scan's outputs for one slice. Raises: ShapeError  scan_c2, scan_c3."""
    parameters = Shape.tuple([*slices, *carried])
    if not Shape.tuple(body.parameter_shapes).compatible(parameters):
        raise ShapeError(
            f"scan: to_apply takes {Shape.tuple(body.parameter_shapes)}, {parameters} is wanted (scan_c2)"
        )
    root = body.root.shape
    parts = list(root.tuple_shapes) if root.is_tuple else [root]
    count = max(len(parts) - len(carried), 0)
    if not Shape.tuple(parts[count:]).compatible(Shape.tuple(carried)) or not all(
        s.is_array and s.rank >= dimension for s in parts[:count]
    ):
        raise ShapeError(
            f"scan: to_apply gives {root}, arrays of {dimension} axes or more and then {Shape.tuple(carried)} are "
            "wanted (scan_c3)"
        )
    return parts[:count]


def _rows_taken(b: ExpandedOperations, number: Operand, values: list[Operand]) -> list[Operand]:
    """One update of a ragged exchange: the rows that a device sends, in their places of the output."""
    blocks, *offsets, output = values
    operands, dims = b.shape_of(blocks).dims, b.shape_of(output).dims
    updates = b.scalar_like(number, b.shape_of(offsets[0]).dims[0] // operands[0])
    block = slice_at(b, blocks, b.div(number, updates), 0)
    start, size, place = (slice_at(b, o, number, 0) for o in offsets)
    behind = b.sub(b.iota(Shape(_E.S32, dims[:1]), 0), place)
    zero, last = b.constant(0, _E.S32), b.constant(operands[1] - 1, _E.S32)
    inside = b.and_(b.ge(behind, zero), b.lt(behind, size))
    at = b.reshape(b.clamp(zero, b.add(behind, start), last), (*dims[:1], 1))
    rows = b.gather(block, at, range(1, len(dims)), (0,), (1, *dims[1:]), (0,), 1)
    return [blocks, *offsets, b.select(b.broadcast_in_dim(inside, dims, (0,)), rows, output)]
