"""The fusion pass: what it puts together, and that fused modules compute what they did before, compiled."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from builders import broadcast, op, parameter, reduce, scalar, softmax
from fusion_cases import Kernel, computations, sample
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tfbridge.compiler.client.client import LocalClient
from tfbridge.compiler.evaluator.evaluate import evaluate
from tfbridge.compiler.ir.module import Computation, Instruction, Module, make
from tfbridge.compiler.ops import Concatenate, Dot, Fusion, GetTupleElement, Reshape, Transpose, Tuple
from tfbridge.compiler.options import DEFAULT_OPTIONS
from tfbridge.compiler.passes.canonicalize_dots import canonicalize_dots
from tfbridge.compiler.passes.fuse import fuse
from tfbridge.compiler.passes.fusion_plan import is_loop_like
from tfbridge.compiler.passes.split_reductions import split_reductions


def fused(root: Instruction, parameters: Sequence[Instruction]) -> Module:
    return fuse(Module("m", Computation("main", root, parameters)), DEFAULT_OPTIONS)


def fusions(module: Module) -> list[Fusion]:
    return [i.op for i in module.entry.instructions if isinstance(i.op, Fusion)]


def run(module: Module, arguments: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Runs the entry, its fusions compiled."""
    values: dict[Instruction, list[np.ndarray]] = {}
    for i in module.entry.instructions:
        operands = [values[o] for o in i.operands]
        if i.opcode == "parameter":
            values[i] = [arguments[i.op.number]]
        elif isinstance(i.op, Fusion):
            values[i] = Kernel(i.op.computation)(*(o[0] for o in operands))
        elif i.opcode == "tuple":
            values[i] = [x for o in operands for x in o]
        elif isinstance(i.op, GetTupleElement):
            values[i] = [operands[0][i.op.index]]
        else:
            values[i] = [np.asarray(i.op.reference(*(o[0] for o in operands)))]
    return values[module.entry.root]


def check(
    module: Module, before: Computation, arguments: Sequence[np.ndarray], tolerance: float = 1e-5
) -> None:
    wanted = evaluate(before, arguments)
    for got, want in zip(
        run(module, arguments), wanted if isinstance(wanted, tuple) else [wanted], strict=True
    ):
        np.testing.assert_allclose(
            got.astype(np.float64), np.asarray(want).astype(np.float64), rtol=tolerance, atol=tolerance
        )


def check_compiled(module: Module, before: Computation, tolerance: float) -> None:
    """The whole module, compiled, gives what the computation does; tolerance: absolute."""
    arrays = [sample(p.shape, 1) for p in before.parameters]
    (found,) = LocalClient().compile(module).execute(arrays)
    np.testing.assert_allclose(found, evaluate(before, arrays), rtol=1e-5, atol=tolerance)


def test_softmax_is_one_row_fusion():
    x = parameter(0, "f32", 64, 100)
    (only,) = fusions(fused(softmax(x), [x]))
    assert only.kind == "kRow"


def test_bias_and_activation_follow_the_product():
    x, w, b = parameter(0, "f32", 64, 32), parameter(1, "f32", 32, 16), parameter(2, "f32", 16)
    y = op("add", make(Dot((1,), (0,)), x, w), broadcast(b, (64, 16), (1,)))
    swish = op("multiply", y, op("logistic", y))
    (only,) = fusions(fused(swish, [x, w, b]))
    assert only.kind == "kOutput"
    parts = fusions(fused(make(Tuple(), swish, reduce(swish, (0,))), [x, w, b]))
    assert [f.kind for f in parts] == ["kOutput", "kInput"]


def test_a_batch_normalisation_after_a_product_is_computed_once_for_all_rows():
    """The factor and what is added, each a row, are one kernel."""
    x, w = parameter(0, "f32", 64, 32), parameter(1, "f32", 32, 16)
    gamma, beta, mean, variance = (parameter(2 + k, "f32", 16) for k in range(4))
    factor = op("multiply", gamma, op("rsqrt", op("multiply", variance, variance)))
    shift = op("subtract", beta, op("multiply", mean, factor))
    rows = [broadcast(row, (64, 16), (1,)) for row in (factor, shift)]
    root = op("add", op("multiply", make(Dot((1,), (0,)), x, w), rows[0]), rows[1])
    before = Computation("main", root, [x, w, gamma, beta, mean, variance])
    module = fuse(Module("m", before), DEFAULT_OPTIONS)
    small, product = fusions(module)
    assert (small.kind, product.kind) == ("kLoop", "kOutput")
    assert [i.opcode for i in product.computation.instructions].count("multiply") == 1
    check_compiled(module, before, 1e-4)


def test_reshapes_do_not_end_what_follows_the_product():
    x, w, b = parameter(0, "f32", 24, 32), parameter(1, "f32", 32, 16), parameter(2, "f32", 16)
    added = op("add", make(Reshape((4, 6, 16)), make(Dot((1,), (0,)), x, w)), broadcast(b, (4, 6, 16), (2,)))
    before = Computation(
        "main", make(Reshape((24, 16)), op("multiply", added, op("logistic", added))), [x, w, b]
    )
    module = Module("m", before)
    (only,) = fusions(fuse(module, DEFAULT_OPTIONS))
    assert only.kind == "kOutput"
    check_compiled(module, before, 1e-5)


@pytest.mark.parametrize(
    "batch, heads, rows, depth, columns", [(2, 3, 7, 5, 4), (1, 4, 70, 65, 32), (3, 1, 1, 9, 17)]
)
def test_products_are_stored_transposed(batch, heads, rows, depth, columns):
    """As the results of attention are: the kernel of the product stores heads side by side."""
    x = parameter(0, "f32", batch, heads, rows, depth)
    y = parameter(1, "f32", batch, heads, depth, columns)
    product = make(Dot((3,), (2,), (0, 1), (0, 1)), x, y)
    for order in ((0, 2, 1, 3), (2, 1, 0, 3), (2, 0, 1, 3)):
        root = make(Transpose(order), product)
        root = make(Reshape((root.shape.dims[0], root.shape.elements // root.shape.dims[0])), root)
        before = Computation("main", root, [x, y])
        module = Module("m", before)
        (only,) = fusions(fuse(module, DEFAULT_OPTIONS))
        assert only.kind == "kOutput"
        check_compiled(module, before, 1e-4)


@pytest.mark.parametrize("type_, order", [("f32", (0, 2, 1)), ("f32", (1, 0, 2)), ("f16", (1, 0, 2))])
def test_products_whose_columns_or_rows_would_be_torn_apart_are_transposed_afterwards(type_, order):
    """So are those that are rounded when they are stored."""
    x, y = parameter(0, type_, 4, 6, 8), parameter(1, type_, 8, 16)
    if type_ == "f16":
        x, y = parameter(0, type_, 4, 6, 8), parameter(1, type_, 4, 8, 16)
    dot = Dot((2,), (0,)) if type_ == "f32" else Dot((2,), (1,), (0,), (0,))
    module = fused(make(Transpose(order), make(dot, x, y)), [x, y])
    assert [f.kind for f in fusions(module)] == ["kLoop"]


def test_what_only_its_own_fusion_reads_is_no_output():
    x, y = parameter(0, "f32", 50, 60), parameter(1, "f32", 50, 60)
    a = op("exponential", op("add", x, y))
    root = make(Tuple(), op("multiply", a, x), op("tanh", a))
    module = fused(root, [x, y])
    (only,) = fusions(module)
    assert len(only.computation.root.operands) == 2
    check(module, Computation("main", root, [x, y]), [sample(x.shape, 1), sample(y.shape, 2)])


def test_row_sums_are_not_repeated_for_sums_of_columns():
    x = parameter(0, "f32", 200, 100)
    root = reduce(op("multiply", x, broadcast(reduce(x, (1,)), x.shape.dims, (0,))), (0,))
    module = fused(root, [x])
    assert len(fusions(module)) == 2
    check(module, Computation("main", root, [x]), [sample(x.shape)], 1e-3)


def test_batches_are_summed_within_the_product():
    x, y = parameter(0, "f32", 3, 8, 5), parameter(1, "f32", 3, 8, 7)
    root = reduce(make(Dot((1,), (1,), (0,), (0,)), x, y), (0,))
    before = Computation("main", root, [x, y])
    after = canonicalize_dots(Module("m", before), DEFAULT_OPTIONS).entry
    assert [i.opcode for i in after.instructions] == ["parameter", "parameter", "dot"]
    arrays = [sample(x.shape, 1), sample(y.shape, 2)]
    np.testing.assert_allclose(evaluate(after, arrays), evaluate(before, arrays), rtol=1e-5, atol=1e-5)


def test_dear_values_are_not_computed_twice():
    x, y = parameter(0, "f32", 40, 40), parameter(1, "f32", 40)
    e = op("exponential", x)
    both = make(Tuple(), reduce(e, (0,)), reduce(op("multiply", e, e), (1,)))
    module = fused(both, [x])
    assert sum(i.opcode == "exponential" for f in fusions(module) for i in f.computation.instructions) == 1
    rows = op("multiply", x, broadcast(op("tanh", y), (40, 40), (1,)))
    assert len(fusions(fused(rows, [x, y]))) == 2


def test_results_of_equal_dims_share_a_fusion():
    x, y = parameter(0, "f32", 50, 60), parameter(1, "f32", 50, 60)
    a = op("exponential", op("add", x, y))
    module = fused(make(Tuple(), a, op("multiply", a, x), op("tanh", a)), [x, y])
    assert len(fusions(module)) == 1
    moments = make(Tuple(), reduce(x, (0,)), reduce(op("multiply", x, x), (0,)))
    assert len(fusions(fused(moments, [x]))) == 1


def test_no_fusion_needs_its_own_result():
    """a and c read x and have equal dims, but c needs a through a product."""
    x = parameter(0, "f32", 32, 32)
    a = op("exponential", x)
    product = make(Dot((1,), (0,)), a, x)
    c = op("tanh", op("add", x, reduce(broadcast(product, (32, 32, 2), (0, 1)), (2,))))
    root = make(Tuple(), a, c)
    module = fused(root, [x])
    check(module, Computation("main", root, [x]), [sample(x.shape)], 1e-3)


def test_split_reductions_keep_the_value():
    x = parameter(0, "f32", 600, 1000)
    root = make(Tuple(), reduce(x, (0, 1), "add", 2.0), reduce(x, (0, 1), "maximum", -9.0))
    before = Computation("main", root, [x])
    module = fuse(split_reductions(Module("m", before), DEFAULT_OPTIONS), DEFAULT_OPTIONS)
    assert len(fusions(module)) == 3
    check(module, before, [sample(x.shape)], 1e-3)
    z = parameter(0, "f32", 4096, 3, 30)
    before = Computation("main", reduce(op("negate", z), (0, 2)), [z])
    module = split_reductions(Module("m", before), DEFAULT_OPTIONS)
    assert sum(i.opcode == "reduce" for i in module.entry.instructions) == 2
    check(fuse(module, DEFAULT_OPTIONS), before, [sample(z.shape)], 1e-3)


def test_reductions_along_rows_of_memory_are_not_split():
    """Where each of so many results is the sum of a row, or of rows, whatever axes they are of the operand."""
    x = parameter(0, "f32", 16, 512, 32)
    turned = make(Transpose((1, 2, 0)), x)
    product = op("multiply", turned, scalar(0.5, turned))
    for axes, count in (((0, 1), 1), ((1, 2), 1), ((0, 2), 2), ((0,), 2)):
        before = Computation("main", reduce(product, axes), [x])
        module = split_reductions(Module("m", before), DEFAULT_OPTIONS)
        assert sum(i.opcode == "reduce" for i in module.entry.instructions) == count
        check(fuse(module, DEFAULT_OPTIONS), before, [sample(x.shape)], 1e-3)


def test_batch_normalisation_of_a_training_step():
    dims = (4, 6, 6, 24)
    x, gamma = parameter(0, "f32", *dims), parameter(1, "f32", 24)

    def mean(y: Instruction) -> Instruction:
        total = reduce(y, (0, 1, 2))
        return op("multiply", total, scalar(1 / 144, total))

    m = mean(x)
    variance = op("subtract", mean(op("multiply", x, x)), op("multiply", m, m))
    factor = op("multiply", op("rsqrt", op("add", variance, scalar(1e-3, variance))), gamma)
    y = op("multiply", op("subtract", x, broadcast(m, dims, (3,))), broadcast(factor, dims, (3,)))
    root = make(Tuple(), op("maximum", y, scalar(0, y)), m, variance)
    module = fused(root, [x, gamma])
    assert len(fusions(module)) <= 3
    check(module, Computation("main", root, [x, gamma]), [sample(x.shape), sample(gamma.shape, 1)], 1e-4)


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(computations(most=14), st.data())
def test_random_modules(computation: Computation, data: st.DataObject):
    values = [
        i for i in computation.instructions if i.shape.is_array and i.opcode not in ("constant", "parameter")
    ]
    outputs = (
        [data.draw(st.sampled_from(values)) for _ in range(data.draw(st.integers(1, 4)))] if values else []
    )
    before = Computation("main", make(Tuple(), *outputs, computation.parameters[0]), computation.parameters)
    module = fuse(Module("m", before), DEFAULT_OPTIONS)
    left = [i for i in module.entry.instructions if is_loop_like(i)]
    assert all(i.opcode in ("reshape", "get-tuple-element") for i in left)
    arguments = [
        np.rint(sample(p.shape, k).astype(np.float64)).astype(p.shape.element_type.dtype)
        for k, p in enumerate(before.parameters)
    ]
    check(module, before, arguments, 1e-2)


def test_expensive_values_stay_out_of_loops_over_single_elements():
    """What is interleaved, or accumulated along the innermost axis, is computed before, eight at a time."""
    x = parameter(0, "f32", 4096)
    sides = [make(Reshape((4096, 1)), op(name, op("multiply", x, x))) for name in ("sine", "cosine")]
    interleaved = make(Concatenate(1), *sides)
    module = fused(interleaved, [x])
    inner = next(
        f for f in fusions(module) if any(i.opcode == "concatenate" for i in f.computation.instructions)
    )
    assert not {"sine", "cosine"} & {i.opcode for i in inner.computation.instructions}
    argument = np.random.default_rng(0).normal(size=4096).astype("f4")
    check(module, Computation("main", interleaved, [x]), [argument])


def test_cheap_values_are_computed_in_loops_over_single_elements():
    x = parameter(0, "f32", 4096)
    sides = [make(Reshape((4096, 1)), op("add", x, op("multiply", x, x))), make(Reshape((4096, 1)), x)]
    module = fused(make(Concatenate(1), *sides), [x])
    assert len(fusions(module)) == 1


def opcodes(module: Module) -> list[set[str]]:
    return [{i.opcode for i in f.computation.instructions} for f in fusions(module)]


@pytest.mark.parametrize("keeps_differences", [False, True])
@pytest.mark.parametrize("rows", [2000, 2001])
def test_expensive_values_fill_vectors_apart_from_short_rows(rows, keeps_differences):
    """Softmax of rows of three: reductions walk the rows, exponentials all elements; broadcasts are beside them where
    some rows are whole vectors together."""
    x = parameter(0, "f32", rows, 3)
    differences = op("subtract", x, broadcast(reduce(x, (1,), "maximum", -np.inf), x.shape.dims, (0,)))
    exponentials = op("exponential", differences)
    sums = broadcast(reduce(exponentials, (1,)), x.shape.dims, (0,))
    root = op("divide", differences if keeps_differences else exponentials, sums)
    module = fused(root, [x])
    (inside,) = [found for found in opcodes(module) if "exponential" in found]
    assert "reduce" not in inside
    assert ("broadcast" in inside) == (rows == 2000 and not keeps_differences)
    check(module, Computation("main", root, [x]), [sample(x.shape)])


def test_expensive_values_of_rows_are_computed_apart_from_their_reduction():
    """Also where both have other values in common, of which fusions with several outputs are made."""
    x = parameter(0, "f32", 2000, 20)
    total = reduce(op("multiply", x, x), (1,))
    root = op("add", op("log", total), total)
    module = fused(root, [x])
    assert not any({"reduce", "log"} <= found for found in opcodes(module))
    check(module, Computation("main", root, [x]), [sample(x.shape)])


def test_expensive_values_are_not_computed_one_by_one_for_few_elements_each():
    x, y = parameter(0, "f32", 2000), parameter(1, "f32", 2000, 5)
    root = op("multiply", y, broadcast(op("sine", x), y.shape.dims, (0,)))
    module = fused(root, [x, y])
    assert not any({"sine", "broadcast"} <= found for found in opcodes(module))
    check(module, Computation("main", root, [x, y]), [sample(x.shape), sample(y.shape, 1)])


@pytest.mark.parametrize("rows", [2000, 2001])
def test_a_vector_added_to_short_rows_is_spread_before_expensive_values(rows):
    """But not where some rows together are whole vectors."""
    x, bias = parameter(0, "f32", rows, 3), parameter(1, "f32", 3)
    root = op("tanh", op("add", x, broadcast(bias, x.shape.dims, (1,))))
    module = fused(root, [x, bias])
    assert any({"tanh", "broadcast"} <= found for found in opcodes(module)) == (rows == 2000)
    check(module, Computation("main", root, [x, bias]), [sample(x.shape), sample(bias.shape, 1)])


def test_sums_are_not_computed_in_each_pass_over_them():
    """Softmax of logarithms of sums: its maximum, its sum and its quotients each walk those, which are stored."""
    x = parameter(0, "f32", 8, 42, 42)
    largest = reduce(x, (2,), "maximum", -np.inf)
    parts = op("exponential", op("subtract", x, broadcast(largest, x.shape.dims, (0, 1))))
    root = softmax(op("add", op("log", reduce(parts, (2,))), largest))
    module = fused(root, [x])
    for fusion in fusions(module):
        reductions = [i for i in fusion.computation.instructions if i.opcode == "reduce"]
        assert len({i.operands[0].shape.dims for i in reductions}) <= 1
    check(module, Computation("main", root, [x]), [sample(x.shape)])


def test_long_rows_and_cheap_values_are_one_fusion():
    for dims in ((2000, 40), (20, 3)):
        x = parameter(0, "f32", *dims)
        assert len(fusions(fused(softmax(x), [x]))) == 1
    x, bias = parameter(0, "f32", 2000, 3), parameter(1, "f32", 3)
    assert len(fusions(fused(op("add", x, broadcast(bias, x.shape.dims, (1,))), [x, bias]))) == 1
