"""Rows of the Xla ops, compared with XLA."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from op_row import Given, Random, row, xla
from tensorflow.compiler.xla import xla_data_pb2

R = Random


def numbers(message: str, **fields: Any) -> bytes:
    """Dimension numbers."""
    return getattr(xla_data_pb2, message)(**fields).SerializeToString()


def scalars(function: Callable[..., Any], *types: tf.DType) -> Any:
    """A function of scalars."""
    return tf.function(function).get_concrete_function(*(tf.TensorSpec((), t) for t in types))


def ints(*values: Any) -> np.ndarray:
    """A constant of int32."""
    return np.array(values, np.int32)


F = tf.float32
ADD = scalars(lambda x, y: x + y, F, F)
DOT = numbers("DotDimensionNumbers", lhs_contracting_dimensions=[2], rhs_contracting_dimensions=[1],
              lhs_batch_dimensions=[0], rhs_batch_dimensions=[0])
row("XlaDot", R((2, 5, 3)), R((2, 3, 7)), types="float32", dimension_numbers=DOT, precision_config="", reference=xla,
    tolerance=3e-5)
row("XlaDotV2", R((2, 5, 3), -9, 9), R((2, 3, 7), -9, 9), types="int8", dimension_numbers=DOT, precision_config="",
    preferred_element_type="int32", reference=xla)
CONV = numbers("ConvolutionDimensionNumbers", input_batch_dimension=0, input_feature_dimension=3,
               input_spatial_dimensions=[1, 2], kernel_input_feature_dimension=2, kernel_output_feature_dimension=3,
               kernel_spatial_dimensions=[0, 1], output_batch_dimension=0, output_feature_dimension=3,
               output_spatial_dimensions=[1, 2])
WINDOW = (ints(2, 1), ints((1, 0), (2, 1)), ints(1, 2), ints(2, 1), np.array(1, np.int32))
row("XlaConv", R((2, 7, 6, 3)), R((3, 2, 3, 4)), *WINDOW, types="float32", dimension_numbers=CONV, precision_config="",
    reference=xla, tolerance=3e-5)
row("XlaConvV2", R((2, 7, 6, 3)), R((3, 2, 3, 4)), *WINDOW, types="float32", dimension_numbers=CONV,
    precision_config="", preferred_element_type="float32", reference=xla, tolerance=3e-5)
row("XlaPad", R((5, 3)), R(()), ints(1, -1), ints(0, 2), ints(2, 0), types="float32 int32", reference=xla)
row("XlaGather", R((5, 7)), Given([[4], [0], [9]], "int32"), ints(2, 7), types="float32", indices_are_sorted=False,
    dimension_numbers=numbers("GatherDimensionNumbers", offset_dims=[1, 2], start_index_map=[0], index_vector_dim=1),
    reference=xla)
row("XlaScatter", R((5, 7)), Given([[4], [0], [4]], "int32"), R((3, 7)), types="float32", indices_are_sorted=False,
    update_computation=ADD, reference=xla,
    dimension_numbers=numbers("ScatterDimensionNumbers", update_window_dims=[1], inserted_window_dims=[0],
                              scatter_dims_to_operand_dims=[0], index_vector_dim=1))
row("XlaDynamicSlice", R((5, 7)), Given([3, 9], "int32"), ints(2, 3), types="float32 int32", reference=xla)
row("XlaDynamicUpdateSlice", R((5, 7)), R((2, 3)), Given([4, 1], "int32"), types="float32", reference=xla)
row("XlaEinsum", R((5, 3)), R((3, 7)), types="float32", equation="ij,jk->ki", reference=xla, tolerance=3e-5)
row("XlaReduce", R((5, 7)), R(()), types="float32", dimensions_to_reduce=[1], reducer=ADD, reference=xla)
row("XlaVariadicReduceV2", [R((5, 7)), R((5, 7))], [Given(-np.inf), Given(0.0)], types="float32",
    dimensions_to_reduce=[0], reducer=scalars(lambda a, b, c, d: (tf.maximum(a, c), b + d), F, F, F, F), reference=xla)
row("XlaVariadicReduce", [R((5, 7)), R((5, 7))], [Given(-np.inf), Given(0.0)], types="float32",
    dimensions_to_reduce=[0], reducer=scalars(lambda a, b, c, d: (tf.maximum(a, c), b + d), F, F, F, F), reference=xla)
row("XlaReduceWindow", R((5, 7)), Given(0.0), ints(2, 3), ints(1, 2), ints(1, 1), ints(1, 1), ints((0, 1), (1, 0)),
    types="float32", computation=ADD, reference=xla)
row("XlaSelectAndScatter", R((4, 6)), ints(2, 3), ints(2, 3), ints((0, 0), (0, 0)), R((2, 2)), Given(0.0),
    types="float32", select=scalars(lambda x, y: x >= y, F, F), scatter=ADD, reference=xla)
row("XlaSort", R((5, 7)), types="float32 int32", reference=xla)
row("XlaKeyValueSort", R((5, 7)), R((5, 7)), types="float32", reference=xla)
row("XlaVariadicSort", [R((5, 7)), R((5, 7))], np.array(0, np.int32), types="float32", is_stable=True,
    comparator=scalars(lambda a, b, c, d: a > b, F, F, F, F), reference=xla)
row("XlaBroadcastHelper", R((5, 7)), R((5,)), ints(0), types="float32", reference=xla)
row("XlaOptimizationBarrier", [R((5, 7)), R(())], types="float32", reference=xla)
row("XlaSharding", R((5, 7)), types="float32", reference=xla)
row("XlaSetDynamicDimensionSize", R((7, 3)), np.int32(0), Given(4, "int32"), types="float32 int8 bool",
    reference=lambda x, axis, size: x[:size])
row("XlaReducePrecision", R((5, 7)), types="float32", exponent_bits=5, mantissa_bits=3, reference=xla)
for number, state in ((1, [3, 5, 0]), (2, [3, 5])):
    row("XlaRngBitGenerator", np.array(number, np.int32), Given(state, "uint64"), ints(5, 3), types="float32",
        dtype="uint32", reference=xla)
row("XlaReplicaId", types="float32", reference=lambda: tf.constant(0))  # XLA needs a run on replicas
