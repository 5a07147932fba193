"""Opcodes of HLO text that are read as a call of other operations, and those that are refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from ..builder.computation_builder import ComputationBuilder, Operand
from ..builder.lib.functions import apply_function
from ..errors import ShapeError
from ..ir.element_types import ElementType
from ..ir.module import Computation
from ..ir.shape import Shape
from .attributes import KINDS, Scope, require_array
from .bitcast import bitcast
from .layouts import Tile
from .scanner import Malformed

Texts: TypeAlias = Mapping[str, str]
Tiles: TypeAlias = tuple[Sequence[Tile], Sequence[Tile]]
"""Those of the first operand's and of the result's layout."""


@dataclasses.dataclass
class Reading:
    """What an expansion is written from: a builder, the operands, the texts of the attributes, the shape that the
    result has in the text, tiles, and the names of the module.

    Raises: Malformed  an attribute is absent or of the wrong form.
    """

    opcode: str
    b: ComputationBuilder
    operands: list[Operand]
    texts: Texts
    shape: Shape | None
    tiles: Tiles
    scope: Scope

    def attribute(self, kind: str, name: str) -> Any:
        """The value of an attribute."""
        if name not in self.texts:
            raise Malformed(f"expected the attribute {name}=")
        return KINDS[kind].read(self.texts[name], self.scope)

    def dims(self, name: str) -> tuple[int, ...]:
        """Axes, none where the attribute is absent."""
        dims: tuple[int, ...] = self.attribute("dims", name) if name in self.texts else ()
        return dims

    def flag(self, name: str) -> bool:
        """Whether an attribute is true."""
        return name in self.texts and bool(self.attribute("bool", name))

    def result(self) -> Shape:
        """The shape in the text, of an array."""
        assert self.shape is not None  # needs_shape
        return require_array(self.shape)

    def element_type(self) -> ElementType | None:
        """The result's type; None where the text says no shape."""
        return None if self.shape is None else require_array(self.shape).element_type

    def group_arguments(self) -> tuple[tuple[tuple[int, ...], ...], int | None]:
        """Groups and channel of a collective."""
        groups = self.attribute("groups", "replica_groups") if "replica_groups" in self.texts else ()
        channel = self.attribute("int", "channel_id") if "channel_id" in self.texts else None
        return groups, channel


@dataclasses.dataclass(frozen=True)
class Expansion:
    """How an opcode is written: its attributes, the number of its operands (None: any), and whether the result's shape
    must stand in the text.

    Raises: Malformed  an attribute is absent or of the wrong form. ShapeError  the operands do not fit.
    """

    attributes: tuple[str, ...]
    operands: int | None
    write: Callable[[Reading], Operand]
    needs_shape: bool = False


def expanded(
    opcode: str, operands: Sequence[Shape], texts: Texts, shape: Shape | None, tiles: Tiles, scope: Scope
) -> Computation:
    """The computation that an opcode of EXPANSIONS is a call of.

    Raises: Malformed, ShapeError  as Expansion.
    """
    expansion = EXPANSIONS[opcode]
    if expansion.operands is not None and len(operands) != expansion.operands:
        raise ShapeError(f"{opcode}: {len(operands)} operands given, {expansion.operands} wanted")
    b = ComputationBuilder(opcode.replace("-", "_"))
    b.die_immediately_on_error = True
    parameters = [b.parameter(k, s) for k, s in enumerate(operands)]
    return b.build(expansion.write(Reading(opcode, b, parameters, texts, shape, tiles, scope)))


def _number(r: Reading, name: str) -> float:
    try:
        return float(r.texts[name])
    except (KeyError, ValueError):
        raise Malformed(f"expected the attribute {name}= with a number") from None


def _batch_norm(method: Callable[..., Operand]) -> Callable[[Reading], Operand]:
    return lambda r: method(r.b, *r.operands, _number(r, "epsilon"), r.attribute("int", "feature_index"))


def _function(r: Reading) -> Operand:
    return apply_function(r.b, r.opcode, r.operands[0])


def _scan(r: Reading) -> Operand:
    axes, carries = r.dims("dimensions"), r.attribute("int", "num_carries")
    if len(axes) != 1 or not 0 <= carries <= len(r.operands):
        raise Malformed("expected one axis as dimensions= and not more num_carries= than operands")
    split = len(r.operands) - carries
    body = r.attribute("computation", "to_apply")
    return r.b.scan(r.operands[:split], r.operands[split:], body, axes[0], r.flag("is_reverse"))


_DOT = ("lhs_contracting_dims", "rhs_contracting_dims", "lhs_batch_dims", "rhs_batch_dims")


def _scaled_dot(r: Reading) -> Operand:
    left, right, left_batch, right_batch = map(r.dims, _DOT)
    lhs, rhs, lhs_scale, rhs_scale = r.operands
    pairs = (left, right), (left_batch, right_batch)
    return r.b.scaled_dot(lhs, rhs, lhs_scale, rhs_scale, *pairs, r.element_type())


def _ragged_dot(r: Reading) -> Operand:
    left, right, left_batch, right_batch = map(r.dims, _DOT)
    ragged = r.dims("lhs_ragged_dims")
    if len(ragged) != 1:
        raise Malformed("expected one axis as lhs_ragged_dims=")
    lhs, rhs, sizes = r.operands
    pairs = (left, right), (left_batch, right_batch)
    return r.b.ragged_dot(lhs, rhs, sizes, *pairs, ragged[0], r.dims("rhs_group_dims"), r.element_type())


def _dynamic_reshape(r: Reading) -> Operand:
    if not r.operands:
        raise ShapeError("dynamic-reshape: 0 operands given, an array and its sizes are wanted")
    return r.b.dynamic_reshape(r.operands[0], r.operands[1:], r.result())


def _rng_state(r: Reading) -> Operand:
    """A state for rng-bit-generator. XLA counts in one that it keeps from run to run, whose beginning is not said; here
    it is drawn anew each time."""
    shape = r.result()
    if shape.element_type is not ElementType.U64 or shape.dims != (2,):
        raise Malformed(f"expected u64[2] as the result, got {shape}")
    zero = r.b.constant(0, ElementType.U64)
    return r.b.rng_uniform(zero, zero, shape.without_layout())


def _stochastic_convert(r: Reading) -> Operand:
    operand, random = r.operands
    return r.b.stochastic_convert(operand, random, r.result().element_type)


def _ragged_all_to_all(r: Reading) -> Operand:
    operand, output, input_offsets, send_sizes, output_offsets, recv_sizes = r.operands
    groups, channel = r.group_arguments()
    return r.b.ragged_all_to_all(
        operand, output, input_offsets, send_sizes, output_offsets, recv_sizes, groups, channel
    )


def _collective_reduce(r: Reading) -> Operand:
    data = r.operands[: len(r.operands) - r.flag("has_dynamic_root")]
    if not data:
        raise ShapeError("collective-reduce: 0 operands given, arrays are wanted")
    operand = data[0] if len(data) == 1 else r.b.tuple(data)
    groups, channel = r.group_arguments()
    by = r.attribute("computation", "to_apply")
    return r.b.collective_reduce(operand, by, groups, channel, r.flag("use_global_device_ids"))


_BATCH_NORM = ("epsilon", "feature_index")
_GROUPS = ("replica_groups", "channel_id")
_FUNCTION = Expansion((), 1, _function)

EXPANSIONS: dict[str, Expansion] = {
    "acos": _FUNCTION,
    "acosh": _FUNCTION,
    "asin": _FUNCTION,
    "asinh": _FUNCTION,
    "atan": _FUNCTION,
    "atanh": _FUNCTION,
    "batch-norm-grad": Expansion(_BATCH_NORM, 5, _batch_norm(ComputationBuilder.batch_norm_grad)),
    "batch-norm-inference": Expansion(_BATCH_NORM, 5, _batch_norm(ComputationBuilder.batch_norm_inference)),
    "batch-norm-training": Expansion(_BATCH_NORM, 3, _batch_norm(ComputationBuilder.batch_norm_training)),
    "bitcast": Expansion(
        (), 1, lambda r: bitcast(r.b, r.operands[0], r.result(), *r.tiles), needs_shape=True
    ),
    "collective-reduce": Expansion(
        (*_GROUPS, "use_global_device_ids", "has_dynamic_root", "to_apply"), None, _collective_reduce
    ),
    "cosh": _FUNCTION,
    "domain": Expansion(("domain",), 1, lambda r: r.b.copy(r.operands[0])),
    "dynamic-reshape": Expansion((), None, _dynamic_reshape, needs_shape=True),
    "ragged-all-to-all": Expansion(_GROUPS, 6, _ragged_all_to_all),
    "ragged-dot": Expansion((*_DOT, "lhs_ragged_dims", "rhs_group_dims"), 3, _ragged_dot),
    "rng-get-and-update-state": Expansion(("delta",), 0, _rng_state, needs_shape=True),
    "scaled-dot": Expansion(_DOT, 4, _scaled_dot),
    "scan": Expansion(("dimensions", "num_carries", "is_reverse", "is_associative", "to_apply"), None, _scan),
    "stochastic-convert": Expansion((), 2, _stochastic_convert, needs_shape=True),
}

REFUSED: Mapping[str, str] = {
    "shuffle": "what moves is said for the lanes of another machine's registers",
}
"""Opcodes of XLA that are not compiled, with the reason."""
