"""TensorFlow's types that appear in annotations: messages of graphs, and traced functions."""

from __future__ import annotations

from typing import TypeAlias

import tensorflow as tf
from tensorflow.core.framework.attr_value_pb2 import NameAttrList
from tensorflow.core.framework.function_pb2 import FunctionDef, FunctionDefLibrary
from tensorflow.core.framework.op_def_pb2 import OpDef
from tensorflow.core.framework.tensor_pb2 import TensorProto
from tensorflow.core.framework.tensor_shape_pb2 import TensorShapeProto

AttrValue: TypeAlias = tf.compat.v1.AttrValue
GraphDef: TypeAlias = tf.compat.v1.GraphDef
NodeDef: TypeAlias = tf.compat.v1.NodeDef
ConcreteFunction: TypeAlias = tf.types.experimental.ConcreteFunction

__all__ = [
    "AttrValue",
    "ConcreteFunction",
    "FunctionDef",
    "FunctionDefLibrary",
    "GraphDef",
    "NameAttrList",
    "NodeDef",
    "OpDef",
    "TensorProto",
    "TensorShapeProto",
]
