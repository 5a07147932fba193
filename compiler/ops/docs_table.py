"""The table of operations in docs/operations.md: generated from the registry of ops and the builder, `python -m
tfbridge.compiler.ops.docs_table` prints it.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..builder.computation_builder import ComputationBuilder
from ..builder.xla_aliases import document_name
from ..ir.element_types import ARRAYS, COMPLEXES, FLOATS, INTEGERS, NUMBERS, UNSIGNED, ElementType
from . import OPS, ROWS, Parameter
from .op import Op
from .table_lookup import BYTES

_E = ElementType
_WIDE = frozenset({_E.F32, _E.F64}) | COMPLEXES
_REAL = INTEGERS | FLOATS
_ORDERED = _REAL | {_E.PRED}
_S32, _U32 = frozenset({_E.S32}), frozenset({_E.U32})

METHODS: dict[str, str] = {
    "and": "and_ logical_and",
    "bitcast-convert": "bitcast_convert_type is_neg_zero",
    "broadcast": "broadcast broadcast_in_dim",
    "call": "call composite_call",
    "compare": "compare eq ne ge gt le lt eq_total_order ne_total_order ge_total_order "
    "gt_total_order le_total_order lt_total_order is_nan is_inf is_pos_inf is_neg_inf",
    "complex": "complex conj",
    "concatenate": "concat_in_dim concatenate",
    "constant": "constant constant_literal constant_r0 constant_r1 constant_r2 constant_r3 constant_r4 zeros",
    "convert": "convert_element_type",
    "convolution": "conv conv_with_general_padding conv_with_general_dimensions conv_general conv_general_dilated",
    "cosine": "cos",
    "count-leading-zeros": "clz",
    "custom-call": "custom_call custom_call_op",
    "divide": "div reciprocal reciprocal_f32",
    "dot": "dot dot_general",
    "exponential": "exp cosh",
    "exponential-minus-one": "expm1",
    "log-plus-one": "log1p atanh",
    "log": "log acosh asinh",
    "maximum": "max",
    "minimum": "min",
    "multiply": "mul square square_f32",
    "negate": "neg",
    "not": "not_ logical_not",
    "opt-barrier": "optimization_barrier",
    "or": "or_ logical_or",
    "pad": "pad pad_in_dim",
    "popcnt": "population_count",
    "power": "pow",
    "reduce": "reduce reduce_all batch_norm_training batch_norm_inference batch_norm_grad",
    "reduce-window": "reduce_window reduce_window_with_general_padding",
    "remainder": "rem",
    "reshape": "reshape collapse",
    "reverse": "rev",
    "rng": "rng_uniform rng_normal rng_bernoulli",
    "round-nearest-afz": "round",
    "select-and-scatter": "select_and_scatter select_and_scatter_with_general_padding",
    "sine": "sin",
    "slice": "slice slice_in_dim",
    "sqrt": "sqrt sqrt_f32",
    "subtract": "sub",
    "topk": "top_k",
    "transpose": "transpose trans",
    "while": "while_",
    "atan2": "atan2 atan asin acos",
    "all-reduce": "all_reduce cross_replica_sum",
    "all-to-all": "all_to_all all_to_all_tuple",
    "infeed": "infeed infeed_with_token",
    "outfeed": "outfeed outfeed_with_token",
    "send": "send send_with_token",
    "recv": "recv recv_with_token",
    "send-done": "send",
    "recv-done": "recv",
    "after-all": "after_all create_token",
    "fusion": "",
    "table-lookup": "",
    "add-dependency": "",
    "concurrent": "",
}
"""By opcode, the builder's methods that make the op; where absent, the method of the opcode's own name."""
TYPES: dict[str, frozenset[ElementType]] = {
    "cholesky": _WIDE,
    "convolution": NUMBERS,
    "dot": NUMBERS,
    "lu-decomposition": _WIDE,
    "fft": _WIDE,
    "get-dimension-size": ARRAYS,
    "iota": NUMBERS,
    "size": INTEGERS,
    "table-lookup": frozenset(BYTES),
    "block-scaled-dot": frozenset({_E.F32}),
    "isotonic-regression": frozenset({_E.F16, _E.BF16, _E.F32, _E.F64}),
    "nonzero": frozenset({_E.PRED}),
    "partition-id": _U32,
    "reduce-precision": frozenset({_E.F16, _E.BF16, _E.F32, _E.F64}),
    "replica-id": _U32,
    "rng": _REAL,
    "rng-bit-generator": INTEGERS,
    "select-and-scatter": _REAL,
    "self-adjoint-eig": _WIDE,
    "topk": _REAL,
    "triangular-solve": _WIDE,
    "send-done": frozenset(),
    "recv-done": frozenset(),
    "after-all": frozenset(),
    "recv": frozenset(ARRAYS),
}
"""By opcode, the element types; where absent, those of the elementwise row, or all."""
_GROUPS: tuple[tuple[frozenset[ElementType], str], ...] = (
    (ARRAYS, "all"),
    (NUMBERS, "numbers"),
    (_REAL, "integers, floats"),
    (_ORDERED, "pred, integers, floats"),
    (INTEGERS | {_E.PRED}, "pred, integers"),
    (FLOATS | COMPLEXES, "floats, complex"),
    (FLOATS, "floats"),
    (INTEGERS, "integers"),
    (UNSIGNED, "unsigned integers"),
    (frozenset(), "tokens"),
)


def methods(opcode: str) -> list[str]:
    """The builder's methods that make an op."""
    return METHODS.get(opcode, opcode.replace("-", "_")).split()


def types(opcode: str) -> frozenset[ElementType]:
    """The element types of an op's (first) array."""
    if opcode in TYPES:
        return TYPES[opcode]
    return frozenset(ROWS[opcode].types) if opcode in ROWS else frozenset(ARRAYS)


def has_reference(op: type[Op]) -> bool:
    """Whether the evaluator can run the op; it fills in parameters itself."""
    return op is Parameter or op.reference is not Op.reference


def spelled(types_: Iterable[ElementType]) -> str:
    types = frozenset(types_)
    for group, name in _GROUPS:
        if types == group:
            return name
    return " ".join(sorted(t.value for t in types))


def table() -> str:
    """The table in Markdown: operation, builder, text, evaluator, cpu, element types."""
    lines = ["| text | builder | evaluator | cpu | element types |", "|---|---|---|---|---|"]
    for opcode in sorted(OPS):
        names = ", ".join(f"`{name}`" for name in methods(opcode)) or "(made by passes)"
        if len(methods(opcode)) == 1:
            names += f" `{document_name(methods(opcode)[0])}`"
        lines.append(
            f"| `{opcode}` | {names} | {'yes' if has_reference(OPS[opcode]) else 'no'} | yes | "
            f"{spelled(types(opcode))} |"
        )
    return "\n".join(lines) + "\n"


def unknown_methods() -> list[str]:
    """Methods of the table that the builder does not have."""
    return [name for opcode in OPS for name in methods(opcode) if not hasattr(ComputationBuilder, name)]


if __name__ == "__main__":
    print(table(), end="")
