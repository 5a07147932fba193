"""Scatter: updates combined into an array at offsets given by an array of indices."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from ..ir.module import Computation, Evaluate, Instruction, Value
from ..ir.shape import Shape
from .gather import index_slots, require_batching, require_index_vectors
from .op import Op, attribute, collated, require, require_axes, require_signature
from .reduce_window import scatter_in_rounds


@dataclasses.dataclass(frozen=True)
class Scatter(Op):
    """The arrays with every update combined into them: to_apply(current.., update..) at its position, in
    unspecified order.

    The updates' axes update_window_dims run over a window in the array: its axes except inserted_window_dims
    and input_batching_dims, where the window has size 1. The updates' other axes are those of the indices
    without index_vector_dim, and name an index vector, which lies along index_vector_dim of the indices (if
    that is their rank, each index is a vector of one number). Its k-th number is the window's start along the
    axis scatter_dims_to_operand_dims[k]; starts along other axes are 0. Along input_batching_dims[k] the
    start is the position along the indices' axis scatter_indices_batching_dims[k]. A window that is not wholly
    inside the array is skipped.
    Operands: N arrays, the indices, N updates. Several arrays give a tuple.

    scatter_c1: N arrays of the same dims, integer indices, N updates of the same dims with the arrays'
    element types.
    scatter_c2: index_vector_dim is in 0..rank of the indices.
    scatter_c3: update_window_dims are sorted, distinct axes of the updates, as many as the array's without
    inserted_window_dims and input_batching_dims.
    scatter_c4: inserted_window_dims and input_batching_dims, sorted each, are distinct axes of the array.
    scatter_c5: scatter_dims_to_operand_dims has as many entries as an index vector, distinct axes of the
    array.
    scatter_c6: input_batching_dims are not in scatter_dims_to_operand_dims, and match
    scatter_indices_batching_dims, distinct axes of the indices other than index_vector_dim, in number and
    sizes.
    scatter_c7: the updates' window dims are at most the array's; their other dims are the indices' without
    the vectors.
    scatter_c8: to_apply is (T0, .., T0, ..) -> T0 or (T0, ..), all scalars.
    Source: operation semantics, Scatter; XLA's evaluator for windows outside.
    """

    opcode: ClassVar[str] = "scatter"
    update_window_dims: tuple[int, ...] = attribute("dims", "update_window_dims")
    inserted_window_dims: tuple[int, ...] = attribute("dims", "inserted_window_dims")
    scatter_dims_to_operand_dims: tuple[int, ...] = attribute("dims", "scatter_dims_to_operand_dims")
    index_vector_dim: int = attribute("int", "index_vector_dim")
    to_apply: Computation = attribute("computation", "to_apply")
    input_batching_dims: tuple[int, ...] = attribute("dims", "input_batching_dims", default=())
    scatter_indices_batching_dims: tuple[int, ...] = attribute(
        "dims", "scatter_indices_batching_dims", default=()
    )
    indices_are_sorted: bool = attribute("bool", "indices_are_sorted", default=False)
    unique_indices: bool = attribute("bool", "unique_indices", default=False)

    def flops(self, instruction: Instruction) -> int:
        """One for each element of the (last) updates."""
        return instruction.operands[-1].shape.elements

    def in_place_operands(self, instruction: Instruction) -> Sequence[tuple[int, int]]:
        """The arrays that the updates go into."""
        return [(k, k) for k in range(len(instruction.operands) // 2)]

    def updated_bytes(self, instruction: Instruction) -> int:
        """Those that the updates are combined with."""
        return 2 * instruction.operands[-1].shape.bytes

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """The arrays' shapes."""
        count = len(operands) // 2
        fits = len(operands) % 2 == 1 and count > 0 and all(o.is_array for o in operands)
        arrays, updates = operands[:count], operands[count + 1 :]
        fits = (
            fits
            and operands[count].element_type.is_integer
            and all(
                a.dims == arrays[0].dims and u.without_layout() == Shape(a.element_type, updates[0].dims)
                for a, u in zip(arrays, updates)
            )
        )
        require(
            fits,
            f"scatter: operands are {', '.join(map(str, operands))}, arrays of the same dims, integer "
            f"indices and as many updates of the arrays' types are wanted",
            "scatter_c1",
        )
        array, indices, update = arrays[0], operands[count], updates[0]
        vector = require_index_vectors(
            "scatter", indices, self.index_vector_dim, ("scatter_c1", "scatter_c2")
        )
        inserted = (*self.inserted_window_dims, *self.input_batching_dims)
        require(
            list(inserted) == [*sorted(self.inserted_window_dims), *sorted(self.input_batching_dims)],
            f"scatter: inserted axes {inserted} are not sorted",
            "scatter_c4",
        )
        require_axes(
            "scatter", "inserted_window_dims and input_batching_dims", inserted, array.rank, "scatter_c4"
        )
        window = [d for axis, d in enumerate(array.dims) if axis not in inserted]
        require(
            len(self.update_window_dims) == len(window)
            and list(self.update_window_dims) == sorted(self.update_window_dims),
            f"scatter: update_window_dims is {self.update_window_dims}, {len(window)} sorted axes are wanted",
            "scatter_c3",
        )
        require_axes("scatter", "update_window_dims", self.update_window_dims, update.rank, "scatter_c3")
        index_map = self.scatter_dims_to_operand_dims
        require(
            len(index_map) == vector,
            f"scatter: scatter_dims_to_operand_dims has {len(index_map)} entries, index vectors of "
            f"{indices} have {vector}",
            "scatter_c5",
        )
        require_axes("scatter", "scatter_dims_to_operand_dims", index_map, array.rank, "scatter_c5")
        require_batching(
            "scatter",
            array,
            indices,
            self.index_vector_dim,
            index_map,
            self.input_batching_dims,
            self.scatter_indices_batching_dims,
            "scatter_c6",
        )
        batch = [d for axis, d in enumerate(indices.dims) if axis != self.index_vector_dim]
        scatter_dims = [d for axis, d in enumerate(update.dims) if axis not in self.update_window_dims]
        require(
            scatter_dims == batch
            and all(update.dims[a] <= d for a, d in zip(self.update_window_dims, window)),
            f"scatter: updates are {update}, windows of at most {window} at {batch} places are wanted",
            "scatter_c7",
        )
        scalars = [Shape(a.element_type) for a in arrays]
        require_signature(
            "scatter", "to_apply", self.to_apply, [*scalars, *scalars], collated(scalars), "scatter_c8"
        )
        return collated([a.without_layout() for a in arrays])

    def reference(self, *operands: np.ndarray, call: Evaluate) -> Value:
        """Every update's position in the flat array; then the updates, in order, in rounds of different
        positions."""
        count = len(operands) // 2
        arrays, indices, updates = operands[:count], operands[count], operands[count + 1 :]
        dims, rank, update_rank = arrays[0].shape, arrays[0].ndim, updates[0].ndim
        slots = index_slots(
            indices,
            self.index_vector_dim,
            self.scatter_dims_to_operand_dims,
            rank,
            self.input_batching_dims,
            self.scatter_indices_batching_dims,
        )
        batch_axes = [a for a in range(update_rank) if a not in self.update_window_dims]
        inserted = (*self.inserted_window_dims, *self.input_batching_dims)
        window_axes = iter(self.update_window_dims)
        position, valid = np.zeros(updates[0].shape, np.int64), np.ones(updates[0].shape, bool)
        for axis, start in enumerate(slots):
            broadcast_dims = [1] * update_rank
            for a, d in zip(batch_axes, start.shape):
                broadcast_dims[a] = d
            index = start.reshape(broadcast_dims)
            if axis in inserted:
                valid = valid & (index >= 0) & (index < dims[axis])
            else:
                a = next(window_axes)
                size = updates[0].shape[a]
                valid = valid & (index >= 0) & (index <= dims[axis] - size)
                index = index + np.arange(size).reshape([-1 if i == a else 1 for i in range(update_rank)])
            position = position * dims[axis] + np.clip(index, 0, max(dims[axis] - 1, 0))
        results = [a.flatten() for a in arrays]
        scatter_in_rounds(
            results,
            np.where(valid, position, -1).reshape(-1),
            [u.reshape(-1) for u in updates],
            self.to_apply,
            call,
        )
        shaped = tuple(r.reshape(dims) for r in results)
        return shaped[0] if count == 1 else shaped
