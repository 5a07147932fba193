"""Operations that make, move and cut arrays."""

from __future__ import annotations

from collections.abc import Sequence

from ...builder.computation_builder import ComputationBuilder, Operand
from ...errors import ShapeError, UnsupportedError
from ...ir.element_types import ElementType
from ...ir.shape import Shape
from ...ops import (
    Broadcast,
    Convert,
    DynamicSlice,
    DynamicUpdateSlice,
    Iota,
    Reshape,
    Scatter,
    Slice,
    Transpose,
)
from ..attributes import Attribute, Dense, Dialect
from ..operations import Operation, integers, shown
from ..translation import Context, Results, translates


def constant(b: ComputationBuilder, op: Operation) -> Operand:
    """The value of a constant: one that repeats an element is broadcast."""
    value = op.attributes.get("value")
    if not isinstance(value, Dense):
        raise UnsupportedError(f"{op.name}: expected dense<...> as value")
    scalar_or_array = b.constant_literal(value.literal)
    return (
        b.broadcast(scalar_or_array, value.shape.dims)
        if value.is_splat and value.shape.dims
        else scalar_or_array
    )


@translates("constant")
def constant_value(c: Context) -> Results:
    return constant(c.b, c.op)


@translates("iota")
def iota(c: Context) -> Results:
    return c.b.apply(Iota(c.result(), c.op.integer("dim" if c.op.has("dim") else "iota_dimension")))


@translates("broadcast_in_dim")
def broadcast_in_dim(c: Context) -> Results:
    """An axis of 1 may become larger, as in HLO it may not."""
    axes = c.op.integers("dims" if c.op.has("dims") else "broadcast_dimensions")
    return broadcast_to(c, c.operand(), c.result().dims, axes)


def broadcast_to(c: Context, operand: Operand, dims: tuple[int, ...], axes: tuple[int, ...]) -> Operand:
    """The operand's axes as those of a larger shape; those of size 1 are repeated."""
    own = c.b.get_shape(operand).dims
    repeated = [
        k for k, a in enumerate(axes) if k < len(own) and 0 <= a < len(dims) and own[k] == 1 and dims[a] != 1
    ]
    if repeated and len(axes) == len(own):
        others = [k for k in range(len(own)) if k not in repeated]
        operand = c.b.apply(Reshape(tuple(own[k] for k in others)), operand)
        axes = tuple(axes[k] for k in others)
    return c.b.apply(Broadcast(dims, tuple(axes)), operand)


@translates("broadcast")
def broadcast(c: Context) -> Results:
    sizes = c.op.integers("sizes" if c.op.has("sizes") else "broadcast_sizes")
    return c.b.broadcast(c.operand(), sizes)


@translates("reshape")
def reshape(c: Context) -> Results:
    return c.b.apply(Reshape(c.result().dims), c.operand())


@translates("transpose")
def transpose(c: Context) -> Results:
    return c.b.apply(Transpose(c.op.integers("dims" if c.op.has("dims") else "permutation")), c.operand())


@translates("reverse")
def reverse(c: Context) -> Results:
    return c.b.rev(c.operand(), c.op.integers("dims" if c.op.has("dims") else "dimensions"))


@translates("concatenate")
def concatenate(c: Context) -> Results:
    return c.b.concat_in_dim(c.operands, c.op.integer("dim" if c.op.has("dim") else "dimension"))


@translates("pad")
def pad(c: Context) -> Results:
    long = c.op.has("edge_padding_low")
    low, high, interior = (
        c.op.integers(name)
        for name in (
            ("edge_padding_low", "edge_padding_high", "interior_padding")
            if long
            else ("low", "high", "interior")
        )
    )
    if not len(low) == len(high) == len(interior):
        raise UnsupportedError(f"{c.op.name}: low, high and interior have different lengths")
    return c.b.pad(c.operand(0), c.operand(1), list(zip(low, high, interior)))


@translates("slice")
def slice_(c: Context) -> Results:
    if "brackets" in c.op.attributes:
        parts = [part.split(":") for part in c.op.string("brackets").split(",") if part.strip()]
        try:
            rows = [tuple(map(int, [*part, "1"][:3])) for part in parts]
        except ValueError:
            raise UnsupportedError(f"{c.op.name}: expected [start:limit:stride, ...]") from None
        if any(len(part) not in (2, 3) for part in parts):
            raise UnsupportedError(f"{c.op.name}: expected [start:limit:stride, ...]")
        start, limit, stride = (tuple(row[k] for row in rows) for k in range(3))
    else:
        start, limit, stride = (c.op.integers(n) for n in ("start_indices", "limit_indices", "strides"))
    return c.b.apply(Slice(start, limit, stride), c.operand())


@translates("dynamic_slice")
def dynamic_slice(c: Context) -> Results:
    sizes = c.op.integers("sizes" if c.op.has("sizes") else "slice_sizes")
    return c.b.apply(DynamicSlice(sizes), *c.operands)


@translates("dynamic_update_slice")
def dynamic_update_slice(c: Context) -> Results:
    return c.b.apply(DynamicUpdateSlice(), *c.operands)


def numbers(c: Context, name: str) -> Dialect:
    """An attribute of dimension numbers. Raises: UnsupportedError  it is none."""
    value = c.op.attributes.get(name)
    if not isinstance(value, Dialect) or (value.words and not value.fields):
        raise UnsupportedError(f"{c.op.name}: expected names with values as {name}, got {shown(value)}")
    return value


def axes(dialect: Dialect, name: str) -> tuple[int, ...]:
    """A list of axes among dimension numbers, which may be absent."""
    value: Attribute = dialect.fields.get(name, [])
    return integers(value, name)


def axis(dialect: Dialect, name: str) -> int:
    """One axis among dimension numbers, 0 where it is absent."""
    value = dialect.fields.get(name, 0)
    return integers([value], name)[0]


@translates("gather")
def gather(c: Context) -> Results:
    return gather_slices(c, c.op.integers("slice_sizes"))


def gather_slices(c: Context, slice_sizes: Sequence[int]) -> Results:
    """A gather of slices of these sizes."""
    n = numbers(c, "dimension_numbers")
    return c.b.gather(
        c.operand(0),
        c.operand(1),
        axes(n, "offset_dims"),
        axes(n, "collapsed_slice_dims"),
        slice_sizes,
        axes(n, "start_index_map"),
        axis(n, "index_vector_dim"),
        c.op.boolean("indices_are_sorted"),
        axes(n, "operand_batching_dims"),
        axes(n, "start_indices_batching_dims"),
    )


@translates("torch_index_select")
def torch_index_select(c: Context) -> Results:
    """The slices of the operand along an axis that the indices name, for each index of the first axes of both."""
    x, indices = c.all_operands(2)
    operand, rank = c.shape(), c.shape(1).rank
    axis, batch = c.op.integer("dim"), c.op.integer("batch_dims")
    if not 0 <= batch <= axis < operand.rank or batch > rank:
        raise ShapeError(f"{c.op.name}: dim is {axis}, batch_dims {batch}, of {operand} and {c.shape(1)}")
    first, last = range(batch), range(axis + rank - batch, operand.rank + rank - batch - 1)
    sizes = [1 if a < batch or a == axis else size for a, size in enumerate(operand.dims)]
    kept = [*range(batch, axis), *last]
    return c.b.gather(x, indices, kept, [axis], sizes, [axis], rank, False, first, first)


@translates("copy", "domain")
def copy(c: Context) -> Results:
    return c.b.copy(c.operand())


@translates("bitcast")
def bitcast(c: Context) -> Results:
    """The elements in the order in which the layouts say that they lie: from the last axis of a layout to its first."""
    if c.element_type() is not c.shape().element_type:
        raise UnsupportedError(
            f"{c.op.name} of {c.shape()} to {c.result()} is not compiled: of one type it is"
        )
    source, target = (
        _major_to_minor(c, *p) for p in (("source_layout", c.shape()), ("result_layout", c.result()))
    )
    lying = c.b.apply(Transpose(source), c.operand())
    result = c.b.apply(Reshape(tuple(c.result().dims[a] for a in target)), lying)
    return c.b.apply(Transpose(tuple(map(target.index, range(len(target))))), result)


def _major_to_minor(c: Context, name: str, shape: Shape) -> tuple[int, ...]:
    """The axes of a layout among the attributes, those of the largest steps first."""
    order = c.op.integers(name, tuple(reversed(range(shape.rank))))[::-1]
    if sorted(order) != list(range(shape.rank)):
        raise ShapeError(f"{c.op.name}: {name} is {list(order[::-1])}, of {shape}")
    return order


@translates("scatter")
def scatter(c: Context) -> Results:
    n = numbers(c, "scatter_dimension_numbers")
    op = Scatter(
        axes(n, "update_window_dims"),
        axes(n, "inserted_window_dims"),
        axes(n, "scatter_dims_to_operand_dims"),
        axis(n, "index_vector_dim"),
        c.computation(),
        axes(n, "input_batching_dims"),
        axes(n, "scatter_indices_batching_dims"),
        c.op.boolean("indices_are_sorted"),
        c.op.boolean("unique_indices"),
    )
    count = len(c.operands) // 2
    values = c.operands[:count], c.operands[count + 1 :]
    updated, updates = (
        promoted(c, v, c.computation().parameter_shapes[k * count :]) for k, v in enumerate(values)
    )
    return c.parts(c.b.apply(op, *updated, *c.operands[count : count + 1], *updates))


def _is_narrower(kind: ElementType, other: ElementType) -> bool:
    same = (kind.is_float, kind.is_complex, kind.is_integer and kind.is_signed) == (
        other.is_float,
        other.is_complex,
        other.is_integer and other.is_signed,
    )
    return same and kind.bits < other.bits and ElementType.PRED not in (kind, other)


def promoted(c: Context, operands: Sequence[Operand], wanted: Sequence[Shape]) -> list[Operand]:
    """Operands in the types that a computation takes them in, where those are wider types of the same kind."""
    results = []
    for operand, shape in zip(operands, wanted):
        own = c.b.get_shape(operand)
        is_wider = shape.is_array and own.is_array and _is_narrower(own.element_type, shape.element_type)
        results.append(c.b.apply(Convert(shape.element_type), operand) if is_wider else operand)
    return [*results, *operands[len(results) :]]
