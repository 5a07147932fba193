"""Operators that move elements: of quantised ones the integers, where both sides have the same scale."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from ....compiler.errors import ShapeError
from ...tf_internals import symbols as tfp
from .list_updates import RowsBefore
from .operation import Operation, Result
from .registry import TRANSLATIONS, Translation

Move = Callable[[Operation, "Callable[[int], tf.Tensor]"], Result]


def _moves(*names: str) -> Callable[[Move], Move]:
    """Registers a move: it is given the operation, and what reads its operands, as integers or as numbers."""

    def register(move: Move) -> Move:
        def translate(op: Operation) -> Result:
            if op.moves_bits():
                return move(op, op.stored)
            results = move(op, op.number)
            listed = [results] if tf.is_tensor(results) else list(results)
            return [op.store(result, k) for k, result in enumerate(listed)]

        TRANSLATIONS.update(dict.fromkeys(names, Translation(translate, stores=True)))
        return move

    return register


@_moves("RESHAPE")
def reshape(op: Operation, read: Callable[[int], tf.Tensor]) -> Result:
    x = read(0)
    if op.has(1):
        return tf.reshape(x, op.number(1))
    return tf.reshape(x, [int(d) for d in op.option("newShape")])


@_moves("SQUEEZE")
def squeeze(op: Operation, read: Callable[[int], tf.Tensor]) -> Result:
    axes = op.option("squeezeDims", ())
    return tf.squeeze(read(0), [int(a) for a in (() if axes is None else axes)] or None)


@_moves("EXPAND_DIMS")
def expand_dims(op: Operation, read: Callable[[int], tf.Tensor]) -> Result:
    return tf.expand_dims(read(0), op.integers(1)[0])


@_moves("TRANSPOSE")
def transpose(op: Operation, read: Callable[[int], tf.Tensor]) -> Result:
    return tf.transpose(read(0), op.integers(1))


@_moves("CONCATENATION")
def concatenation(op: Operation, read: Callable[[int], tf.Tensor]) -> Result:
    parts = [read(k) for k in range(len(op.operands))]
    result = tf.concat(parts, op.option("axis"))
    return result if op.option("fusedActivationFunction", 0) == 0 else op.activated(result)


@_moves("SPLIT")
def split(op: Operation, read: Callable[[int], tf.Tensor]) -> Result:
    return tf.split(read(1), int(op.option("numSplits")), op.integers(0)[0])


@_moves("SPLIT_V")
def split_sizes(op: Operation, read: Callable[[int], tf.Tensor]) -> Result:
    return tf.split(read(0), op.integers(1), op.integers(2)[0])


@_moves("PACK")
def pack(op: Operation, read: Callable[[int], tf.Tensor]) -> Result:
    return tf.stack([read(k) for k in range(len(op.operands))], op.option("axis", 0))


@_moves("UNPACK")
def unpack(op: Operation, read: Callable[[int], tf.Tensor]) -> Result:
    return tf.unstack(read(0), int(op.option("num")), op.option("axis", 0))


@_moves("SLICE")
def slice_(op: Operation, read: Callable[[int], tf.Tensor]) -> Result:
    return tf.slice(read(0), op.number(1), op.number(2))


@_moves("STRIDED_SLICE")
def strided_slice(op: Operation, read: Callable[[int], tf.Tensor]) -> Result:
    begin, end = op.number(1), op.number(2)
    if op.option("offset", False):
        end = begin + end
    masks = {
        name: int(op.option(field, 0))
        for name, field in {
            "begin_mask": "beginMask",
            "end_mask": "endMask",
            "ellipsis_mask": "ellipsisMask",
            "new_axis_mask": "newAxisMask",
            "shrink_axis_mask": "shrinkAxisMask",
        }.items()
    }
    return tf.strided_slice(read(0), begin, end, op.number(3), **masks)


def zero_of(op: Operation, which: int, x: tf.Tensor) -> tf.Tensor:
    """What stands for 0 among the elements of an operand that were read."""
    tensor = op.value(which).tensor
    is_stored = op.value(which).quantization is not None and x.dtype != tf.float32
    zero = int(op.stored_quantization(tensor).zero_points[0]) if is_stored else 0
    return tf.constant(zero, x.dtype)


@_moves("PAD", "PADV2")
def pad(op: Operation, read: Callable[[int], tf.Tensor]) -> Result:
    x = read(0)
    value = tf.reshape(read(2), []) if op.has(2) else zero_of(op, 0, x)
    return tf.pad(x, op.constant(1).astype(np.int32), constant_values=value)


@_moves("MIRROR_PAD")
def mirror_pad(op: Operation, read: Callable[[int], tf.Tensor]) -> Result:
    mode = ("REFLECT", "SYMMETRIC")[int(op.option("mode"))]
    return tf.pad(read(0), op.constant(1).astype(np.int32), mode)


@_moves("GATHER")
def gather(op: Operation, read: Callable[[int], tf.Tensor]) -> Result:
    return tf.gather(read(0), op.number(1), axis=op.option("axis", 0), batch_dims=op.option("batchDims", 0))


@_moves("EMBEDDING_LOOKUP")
def embedding_lookup(op: Operation, read: Callable[[int], tf.Tensor]) -> Result:
    return tf.gather(read(1), op.number(0))


@_moves("GATHER_ND")
def gather_nd(op: Operation, read: Callable[[int], tf.Tensor]) -> Result:
    return tf.gather_nd(read(0), op.number(1))


@_moves("TILE")
def tile(op: Operation, read: Callable[[int], tf.Tensor]) -> Result:
    return tf.tile(read(0), op.integers(1))


@_moves("BROADCAST_TO")
def broadcast_to(op: Operation, read: Callable[[int], tf.Tensor]) -> Result:
    return tf.broadcast_to(read(0), op.number(1))


@_moves("FILL")
def fill(op: Operation, read: Callable[[int], tf.Tensor]) -> Result:
    return tf.fill(op.number(0), read(1))


@_moves("REVERSE_V2")
def reverse(op: Operation, read: Callable[[int], tf.Tensor]) -> Result:
    return tf.reverse(read(0), op.integers(1))


@_moves("SPACE_TO_DEPTH")
def space_to_depth(op: Operation, read: Callable[[int], tf.Tensor]) -> Result:
    return tf.nn.space_to_depth(read(0), int(op.option("blockSize")))


@_moves("DEPTH_TO_SPACE")
def depth_to_space(op: Operation, read: Callable[[int], tf.Tensor]) -> Result:
    return tf.nn.depth_to_space(read(0), int(op.option("blockSize")))


@_moves("SPACE_TO_BATCH_ND")
def space_to_batch(op: Operation, read: Callable[[int], tf.Tensor]) -> Result:
    """The padding comes first, with what stands for 0."""
    x, blocks, paddings = read(0), op.integers(1), op.constant(2).reshape(-1, 2)
    rest = (x.shape.rank or 0) - 1 - len(blocks)
    if rest < 0:
        raise ShapeError(f"{len(blocks)} blocks of {x.shape.rank} axes")
    padded = tf.pad(x, [[0, 0], *paddings.tolist(), *[[0, 0]] * rest], constant_values=zero_of(op, 0, x))
    return tf.space_to_batch(padded, blocks, [[0, 0]] * len(blocks))


@_moves("BATCH_TO_SPACE_ND")
def batch_to_space(op: Operation, read: Callable[[int], tf.Tensor]) -> Result:
    return tf.batch_to_space(read(0), op.integers(1), op.constant(2).reshape(-1, 2).tolist())


@_moves("DYNAMIC_UPDATE_SLICE")
def dynamic_update_slice(op: Operation, read: Callable[[int], tf.Tensor]) -> Result:
    x, update, begin = read(0), read(1), tf.cast(op.number(2), tf.int32)
    before = op.option("rows", 0) if isinstance(op.operator.options, RowsBefore) else 0
    if before:
        begin = begin - tf.constant([before] + [0] * (len(x.shape) - 1), tf.int32)
    return tfp.xla_dynamic_update_slice(x, update, begin)
