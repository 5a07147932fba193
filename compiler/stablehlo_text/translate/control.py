"""Calls, loops, branches, tuples, tokens, random numbers, and transfers."""

from __future__ import annotations

from ...builder.computation_builder import Operand
from ...errors import ShapeError, UnsupportedError
from ...ir.shape import TOKEN, Shape
from ...ops import AddDependency, RngBitGenerator
from ..attributes import Dialect
from ..operations import integers
from ..translation import Context, Results, refuses, translates

_ALGORITHMS = {"DEFAULT": "rng_default", "PHILOX": "rng_philox", "THREE_FRY": "rng_three_fry"}


@translates("func.call")
def call(c: Context) -> Results:
    return _called(c, c.op.symbol("callee"))


def _called(c: Context, name: str) -> list[Operand]:
    computation = c.functions.get(name)
    if computation is None:
        raise UnsupportedError(f"{c.op.name}: function @{name} has no body in the text")
    return c.parts(c.b.call(computation, c.operands))


@translates("fusion")
def fusion(c: Context) -> Results:
    """Operations that XLA has decided to compile together."""
    return c.parts(c.b.call(c.computation(), c.operands))


@translates("async_start")
def async_start(c: Context) -> Results:
    """What it computes: it is there at once."""
    result = c.b.call(c.computation(), c.operands)
    return result if len(c.result().tuple_shapes) > 1 else c.b.tuple([result])


@translates("async_done")
def async_done(c: Context) -> Results:
    return c.parts(c.operand())


@translates("composite")
def composite(c: Context) -> Results:
    """The function that it is decomposed into."""
    name = c.op.symbol("decomposition")
    computation = c.functions.get(name)
    if computation is None:
        raise UnsupportedError(f"{c.op.name}: function @{name} has no body in the text")
    label = c.op.string("name") or c.op.string("string")
    return c.parts(c.b.composite_call(computation, c.operands, label, "", c.op.integer("version", 0)))


@translates("while")
def loop(c: Context) -> Results:
    """The state is a tuple of the operands and of the values of outside that the regions use."""
    state = [*c.operands, *c.captured]
    init = state[0] if len(state) == 1 else c.b.tuple(state)
    result = c.b.while_(c.computation(0), c.computation(1), init)
    return [result] if len(state) == 1 else c.parts(result, len(c.operands))


@translates("if", "case")
def branch(c: Context) -> Results:
    """The branches take the values of outside that one of them uses as a tuple."""
    if not c.computations:
        raise ShapeError(f"{c.op.name}: no branches, one is wanted")
    selector = c.operand()
    argument = c.b.tuple(c.captured)
    if c.op.name.endswith(".if"):
        if len(c.computations) != 2:
            raise ShapeError(f"{c.op.name}: {len(c.computations)} branches, 2 are wanted")
        on_true, on_false = c.computations
        result = c.b.conditional(selector, argument, on_true, argument, on_false)
    elif len(c.computations) == 1:
        result = c.b.call(c.computations[0], [argument])
    else:
        result = c.b.conditional(selector, c.computations, [argument] * len(c.computations))
    return c.parts(result)


@translates("optimization_barrier")
def optimization_barrier(c: Context) -> Results:
    if not c.operands:
        return []
    if len(c.operands) == 1:
        return c.b.optimization_barrier(c.operand())
    return c.parts(c.b.optimization_barrier(c.b.tuple(c.operands)))


@translates("tuple")
def tuple_(c: Context) -> Results:
    return c.b.tuple(c.operands)


@translates("get_tuple_element")
def get_tuple_element(c: Context) -> Results:
    text = c.op.string("brackets")
    if text and not (text.isascii() and text.isdigit() and len(text) < 9):
        raise UnsupportedError(f"{c.op.name}: expected a number in brackets, got {text[:60]!r}")
    return c.b.get_tuple_element(c.operand(), int(text) if text else c.op.integer("index"))


@translates("after_all")
def after_all(c: Context) -> Results:
    return c.b.after_all(c.operands)


@translates("add_dependency")
def add_dependency(c: Context) -> Results:
    return c.b.apply(AddDependency(), *c.operands)


@translates("create_token")
def create_token(c: Context) -> Results:
    return c.b.create_token()


@translates("rng")
def rng(c: Context) -> Results:
    kind = c.op.word("distribution") if c.op.has("distribution") else c.op.word("rng_distribution")
    draw = {"UNIFORM": c.b.rng_uniform, "NORMAL": c.b.rng_normal}.get(kind)
    if draw is None:
        raise UnsupportedError(f"{c.op.name}: distribution {kind} is not compiled")
    return draw(c.operand(0), c.operand(1), c.result())


@translates("rng_bit_generator")
def rng_bit_generator(c: Context) -> Results:
    kind = c.op.word("algorithm") if c.op.has("algorithm") else c.op.word("rng_algorithm")
    if kind not in _ALGORITHMS:
        raise UnsupportedError(f"{c.op.name}: algorithm {kind} is not compiled")
    return c.parts(c.b.apply(RngBitGenerator(_ALGORITHMS[kind], c.result(1)), c.operand()))


# -- transfers
@translates("infeed")
def infeed(c: Context) -> Results:
    shapes, last = c.op.types[:-1], c.op.types[-1:]
    if last != (TOKEN,):
        raise ShapeError(f"{c.op.name}: results are {Shape.tuple(c.op.types)}, the last is to be a token")
    item = shapes[0] if len(shapes) == 1 else Shape.tuple(shapes)
    pair = c.b.infeed_with_token(c.operand(), item, c.op.string("infeed_config"))
    data, token = c.parts(pair)
    return [*([data] if len(shapes) == 1 else c.parts(data)), token]


@translates("outfeed")
def outfeed(c: Context) -> Results:
    values, token = c.with_token()
    item = values[0] if len(values) == 1 else c.b.tuple(values)
    return c.b.outfeed_with_token(item, token, None, c.op.string("outfeed_config"))


@translates("send")
def send(c: Context) -> Results:
    values, token = c.with_token()
    if len(values) != 1:
        raise UnsupportedError(f"{c.op.name} of {len(values)} values is not compiled")
    return c.b.send_with_token(values[0], token, channel(c))


@translates("recv")
def recv(c: Context) -> Results:
    if len(c.op.types) != 2:
        raise UnsupportedError(f"{c.op.name} of {len(c.op.types) - 1} values is not compiled")
    return c.parts(c.b.recv_with_token(c.operand(), c.result(), channel(c)))


def channel(c: Context) -> int:
    """The number of the channel; 0 where there is none."""
    value = c.op.attributes.get("channel_handle")
    if value is None:
        return c.op.integer("channel_id", 0)
    if not isinstance(value, Dialect):
        raise UnsupportedError(f"{c.op.name}: expected #stablehlo.channel_handle")
    return integers([value.fields.get("handle", 0)], "handle")[0]


@translates("sdy.sharding_constraint", "sdy.reshard", "sdy.propagation_barrier")
def placed(c: Context) -> Results:
    """How an array is to be divided among devices, of which there is one."""
    return c.b.copy(c.operand())


@translates("sdy.sharding_group")
def grouped(c: Context) -> Results:
    return []


refuses("it is of an older StableHLO", "trace", "create_tuple")
