"""Custom calls: functions of XLA's or JAX's libraries, or ones that somebody has registered."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from ....runtime.devices import custom_calls as registered
from ...errors import ShapeError, UnsupportedError
from ...hlo_text.xla_custom_calls import library_call
from ...ir.layout import Layout
from ...ir.module import Computation
from ...ir.shape import Shape
from ...ops import Call, CustomCall, Slice, Sort
from ..attributes import Attribute, Dense, Dialect, Symbol
from ..operations import integers
from ..translation import TRANSLATIONS, Context, Results, translates
from .collectives import groups_in

_API_VERSIONS = (
    "API_VERSION_UNSPECIFIED",
    "API_VERSION_ORIGINAL",
    "API_VERSION_STATUS_RETURNING",
    "API_VERSION_STATUS_RETURNING_UNIFIED",
    "API_VERSION_TYPED_FFI",
)


@translates("custom_call")
def custom_call(c: Context) -> Results:
    """The operations that a function of a library stands for, or a call."""
    name = c.op.symbol("callee") if c.op.has("callee") else c.op.string("call_target_name")
    if registered.find(name) is None:
        if name in _WRITTEN:
            return _WRITTEN[name](c)
        if name.startswith("mhlo."):
            return _of_mhlo(c, name)
    shapes = [c.b.get_shape(o) for o in c.operands]
    layouts = _layouts(c, "operand_layouts", shapes)
    results = _layouts(c, "result_layouts", c.op.types) or list(c.op.types)
    version = c.op.integer("api_version", 1)
    if not 0 < version < len(_API_VERSIONS):
        raise UnsupportedError(f"{c.op.name}: api_version {version} is not compiled")
    op = CustomCall(
        results[0] if len(results) == 1 else Shape.tuple(results),
        name,
        c.op.boolean("has_side_effect"),
        _API_VERSIONS[version],
        "{" + ", ".join(map(str, layouts)) + "}" if layouts else "",
        _aliases(c),
        backend_config=_backend_config(c),
    )
    library = library_call(op, shapes)
    if library is not None:
        return c.parts(c.b.apply(Call(library), *c.operands))
    called = c.op.attributes.get("called_computations")
    if isinstance(called, list) and called:
        raise UnsupportedError(f"{c.op.name} @{name}: functions that a custom call calls are not compiled")
    return c.parts(c.b.apply(op, *c.operands))


def _layouts(c: Context, name: str, shapes: Sequence[Shape]) -> list[Shape]:
    """The shapes with the layouts of `[dense<[0, 1]> : tensor<2xindex>, ...]`; empty where there are none."""
    value = c.op.attributes.get(name)
    if value is None:
        return []
    orders = value if isinstance(value, list) else []
    if len(orders) != len(shapes):
        raise ShapeError(f"{c.op.name}: {len(orders)} layouts in {name} for {len(shapes)} values")
    result = []
    for order, shape in zip(orders, shapes):
        entries = integers(order, name) if shape.is_array else ()
        layout = Layout(entries) if shape.rank == len(entries) else None  # checks that it is an order
        if layout is None:
            raise ShapeError(f"{c.op.name}: layout {list(entries)} of {shape} in {name}")
        result.append(
            Shape(shape.element_type, shape.dims, layout.minor_to_major) if shape.is_array else shape
        )
    return result


def _aliases(c: Context) -> str:
    """output_operand_aliases as HLO text."""
    value = c.op.attributes.get("output_operand_aliases")
    parts = []
    for alias in value if isinstance(value, list) else []:
        if not isinstance(alias, Dialect):
            raise UnsupportedError(f"{c.op.name}: expected aliases of results and operands")
        result, operand = (
            ", ".join(map(str, integers(alias.fields.get(n, []), n)))
            for n in ("output_tuple_indices", "operand_tuple_indices")
        )
        number = integers([alias.fields.get("operand_index", 0)], "operand_index")[0]
        parts.append(f"{{{result}}}: ({number}, {{{operand}}})")
    return "{" + ", ".join(parts) + "}" if parts else ""


def _backend_config(c: Context) -> str:
    """The configuration as HLO text has it: a string in quotes, or fields in braces."""
    value = c.op.attributes.get("mhlo.backend_config", c.op.attributes.get("backend_config"))
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {_field(entry)}" for name, entry in value.items()) + "}"
    if isinstance(value, str) and value:
        quoted = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'"{quoted}"'
    return ""


def _field(value: Attribute) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, Dense):
        return str(value.array().tolist())
    return f'"{value}"'


# -- written as operations
def _of_mhlo(c: Context, name: str) -> Results:
    """An operation that StableHLO has not: `@mhlo.topk(%0) {mhlo.attributes = {k = 2 : i64}}`."""
    plain = "stablehlo." + name.removeprefix("mhlo.")
    attributes = c.op.attributes.get("mhlo.attributes", {})
    if plain not in TRANSLATIONS or c.op.regions or not isinstance(attributes, dict):
        raise UnsupportedError(f"{c.op.name} @{name}: the operation is not compiled")
    op = dataclasses.replace(c.op, name=plain, attributes=attributes)
    return TRANSLATIONS[plain](dataclasses.replace(c, op=op))


def _configuration(c: Context) -> dict[str, Attribute]:
    """The fields of the configuration. Raises: UnsupportedError  it has none."""
    value = c.op.attributes.get("mhlo.backend_config", c.op.attributes.get("backend_config"))
    if not isinstance(value, dict):
        raise UnsupportedError(f"{c.op.name}: expected fields as backend_config")
    return value


def _called(c: Context) -> Computation:
    """The one function that the call is given. Raises: UnsupportedError  there is none."""
    called = c.op.attributes.get("called_computations")
    symbol = called[0] if isinstance(called, list) and len(called) == 1 else None
    if not isinstance(symbol, Symbol) or symbol.name not in c.functions:
        raise UnsupportedError(f"{c.op.name}: expected one function with a body as called_computations")
    return c.functions[symbol.name]


def _composite(c: Context) -> Results:
    """A composite, as it was written before there was an operation for it."""
    return c.parts(c.b.call(_called(c), c.operands))


def _approximate_top_k(c: Context) -> Results:
    """ApproxTopK: of values, and what belongs to them, those that come first in the order of the function. All are
    sorted, so that none is missed."""
    order = _called(c)
    axis = integers([_configuration(c).get("reduction_dim")], "reduction_dim")[0]
    count = len(c.operands) // 2
    if not count or len(c.op.types) != count or not 0 <= axis < c.shape().rank:
        raise ShapeError(
            f"{c.op.name} @ApproxTopK: {len(c.operands)} operands, {len(c.op.types)} results, axis {axis}"
        )
    limit = c.result().dims
    whole = c.parts(c.b.apply(Sort(axis, order, True), *c.operands[:count]))
    return [c.b.apply(Slice((0,) * len(limit), limit, (1,) * len(limit)), o) for o in whole]


def _ragged_all_to_all(c: Context) -> Results:
    """ragged_all_to_all: rows from each device of a group to each other one."""
    fields = _configuration(c)
    channel = integers([fields.get("channel_id", 0)], "channel_id")[0]
    operand, output, *sizes = c.all_operands(6)
    groups = groups_in(c, fields.get("replica_groups"))
    return c.b.ragged_all_to_all(operand, output, sizes[0], sizes[1], sizes[2], sizes[3], groups, channel)


_WRITTEN: dict[str, Callable[[Context], Results]] = {
    "ApproxTopK": _approximate_top_k,
    "ragged_all_to_all": _ragged_all_to_all,
    "stablehlo.composite": _composite,
}
"""By target, calls that are written as operations, unless somebody has registered a function of the name."""
