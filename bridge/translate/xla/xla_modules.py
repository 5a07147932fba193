"""XlaCallModule: a StableHLO module, which JAX exports, as TensorFlow lowers it to HLO; and XlaCustomCall."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ....compiler.builder.computation_builder import Operand
from ....compiler.errors import UnsupportedError
from ....compiler.hlo_text.parser import parse_hlo
from ....compiler.hlo_text.xla_custom_calls import is_of_library
from ....compiler.ir.literal import Literal
from ....compiler.ir.module import Module
from ....compiler.ir.shape import Shape
from ....compiler.ops import CustomCall
from ...graph.graph import GraphNode, output_types
from ...tf_internals import symbols as tfp
from ...tf_internals.types import NodeDef
from ..node import Node
from ..registry import translates


def _calls_back(node: GraphNode) -> str | None:
    attrs = node.attrs
    if attrs["function_list"].list.func:
        return "its module calls functions of TensorFlow"
    if attrs["has_token_input_output"].b:
        return "its module takes and gives tokens"
    return None


def _of_no_target(node: GraphNode) -> str | None:
    name = node.attrs["target_name" if node.op == "XlaCustomCall" else "call_target_name"].s.decode()
    return None if is_of_library(name) else f"its target {name} is no function of a library that is known"


@translates("XlaCallModule", unsupported=_calls_back)
@translates("XlaCustomCall", "XlaCustomCallV2", unsupported=_of_no_target)
def call(node: Node) -> Sequence[Operand]:
    """The node as TensorFlow lowers it for these shapes: versions of the format, platforms and dims are its to read."""
    types = output_types(node.graph_node)
    called = lowered(node.definition, [node.array_shape(k) for k in range(len(node.inputs))], types).entry
    result = node.b.call(called, [node[k] for k in range(len(node.inputs))])
    return (
        [node.b.get_tuple_element(result, k) for k in range(len(types))]
        if called.root.shape.is_tuple
        else [result]
    )


def lowered(definition: NodeDef, shapes: Sequence[Shape], outputs: Sequence[int]) -> Module:
    """The module of a node with inputs of these shapes, by TensorFlow's way to HLO.

    Raises: UnsupportedError  TensorFlow refuses it, or a custom call in it is of no library that is known here.
    """
    specs = [tf.TensorSpec(s.dims, s.element_type.dtype) for s in shapes]
    try:
        text, serialized = tfp.xla_lowering(definition, specs, outputs)
        module = parse_hlo(text, _constants(serialized))
    except (tf.errors.OpError, ValueError) as error:
        raise UnsupportedError(f"{definition.op}: its module cannot be lowered: {error}") from error
    for computation in module.computations():
        for instruction in computation.instructions:
            op = instruction.op
            if isinstance(op, CustomCall) and not op.is_check:
                raise UnsupportedError(
                    f"{definition.op}: its module calls {op.custom_call_target}, which is not known"
                )
    return module


def _constants(serialized: Callable[[], bytes]) -> Callable[[str, Shape], Literal]:
    """What gives a constant by name and shape; the serialized form is made where one is wanted."""
    constants: dict[str, Any] = {}

    def constant(name: str, shape: Shape) -> Literal:
        if not constants:
            constants.update(tfp.hlo_literals(serialized()))
        return Literal(_array(constants[name], shape), shape.element_type)

    return constant


def _array(literal: Any, shape: Shape) -> np.ndarray:
    """A LiteralProto's array: a field for each element type, of numbers or of bytes, in the order of its layout."""
    type_ = shape.element_type
    if 1 < type_.bits < 8 or not hasattr(literal, f"{type_.value}s"):
        raise UnsupportedError(f"a constant of {type_.value} in a module is not read")
    field = getattr(literal, f"{type_.value}s")
    if isinstance(field, bytes):
        flat = np.frombuffer(field, type_.dtype)
    else:
        real_type = type_.real.dtype if type_.is_complex else type_.dtype
        flat = np.array(field, real_type)
        flat = flat.view(type_.dtype) if type_.is_complex else flat
    order = list(reversed(literal.shape.layout.minor_to_major)) or list(range(shape.rank))
    return flat.reshape([shape.dims[a] for a in order]).transpose(np.argsort(order))
