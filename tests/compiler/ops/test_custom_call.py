"""Functions of the user in programs: Python's and C's, what goes wrong in them, composite calls."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from builders import computation, unary
from in_threads import in_threads
from tfbridge.compiler import (
    ComputationBuilder,
    LocalClient,
    Shape,
    ShapeError,
    UnsupportedError,
    array,
    parse_hlo,
    register_custom_call,
    unregister_custom_call,
)
from tfbridge.compiler.builder.derived import binary_computation
from tfbridge.compiler.cpu.compile import compile_module, compile_self_contained
from tfbridge.compiler.ir import module as ir
from tfbridge.compiler.ir.code_version import CodeVersion
from tfbridge.compiler.ir.element_types import ElementType
from tfbridge.compiler.ops import Elementwise
from tfbridge.compiler.options import Options
from tfbridge.compiler.passes.pipeline import run_pipeline
from tfbridge.runtime.code.executable import Executable
from tfbridge.runtime.devices import custom_calls
from tfbridge.runtime.errors import ExecutionError
from tfbridge.runtime.llvm.target import host
from tfbridge.runtime.run_context import ASSUMPTION_FAILED, RunContext

platforms = pytest.mark.parametrize("platform", ["interpreter", "cpu"])
STATUS, UNIFIED = "API_VERSION_STATUS_RETURNING", "API_VERSION_STATUS_RETURNING_UNIFIED"
X = np.array([1, 2], np.float32)
Y = np.array([[10, 20, 30], [40, 50, 60]], np.float32)


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    """Targets of a test are gone after it."""
    before = set(custom_calls.registered_names())
    yield
    for name in set(custom_calls.registered_names()) - before:
        unregister_custom_call(name)


def program(shape: Shape, target: str = "f", operands: int = 1, **keywords: Any) -> ir.Computation:
    b = ComputationBuilder("main")
    shapes = [array("f32", 2), array("f32", 2, 3)]
    given = [b.parameter(k, s, f"p{k}") for k, s in enumerate(shapes[:operands])]
    return b.build(b.custom_call(target, given, shape, **keywords))


def run(platform: str, computation: Any, *arguments: np.ndarray) -> list[np.ndarray]:
    return LocalClient(platform).compile(computation).execute(arguments)


def floats(address: int, count: int) -> Any:
    return (ctypes.c_float * count).from_address(address)


C_ORIGINAL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))
C_STATUS = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p)
C_UNIFIED = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p), ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p
)


def fail_with(status: int, message: bytes) -> None:
    ctypes.c_int32.from_address(status).value = 1
    ctypes.memmove(status + 4, message + b"\0", len(message) + 1)


@platforms
def test_example_of_the_document(platform: str) -> None:
    """myfunc with x f32[2] and y f32[2,3] into f32[3,3], as a C function."""
    seen = []

    @C_ORIGINAL
    def myfunc(out: int, given: Any) -> None:
        x, y, z = floats(given[0], 2), floats(given[1], 6), floats(out, 9)
        seen.append((list(x), list(y)))
        z[:] = [x[1] + y[3]] + [0.0] * 8

    register_custom_call("myfunc", myfunc)
    (found,) = run(platform, program(array("f32", 3, 3), "myfunc", 2), X, Y)
    assert seen == [([1, 2], [10, 20, 30, 40, 50, 60])]
    assert found.shape == (3, 3) and found[0, 0] == 42 and found.sum() == 42


@platforms
def test_python_function(platform: str) -> None:
    register_custom_call("f", lambda x, y: x @ y)
    assert run(platform, program(array("f32", 3), operands=2), X, Y)[0].tolist() == [90, 120, 150]


@platforms
def test_python_function_of_a_tuple(platform: str) -> None:
    register_custom_call("f", lambda x: (x.astype(np.int32), x.sum(), np.zeros((0, 3), ml_dtypes.bfloat16)))
    shape = Shape.tuple([array("s32", 2), array("f32"), array("bf16", 0, 3)])
    whole, total, none = run(platform, program(shape), X)
    assert (
        whole.tolist() == [1, 2] and total == 3 and none.shape == (0, 3) and none.dtype == ml_dtypes.bfloat16
    )


@platforms
def test_c_function_of_a_tuple(platform: str) -> None:
    @C_ORIGINAL
    def split(out: int, given: Any) -> None:
        parts = (ctypes.c_void_p * 2).from_address(out)
        for part, value in zip(parts, floats(given[0], 2)):
            floats(part, 1)[0] = 10 * value

    register_custom_call("f", split)
    found = run(platform, program(Shape.tuple([array("f32"), array("f32", 1)])), X)
    assert [f.tolist() for f in found] == [10, [20]]


@platforms
def test_by_address(platform: str) -> None:
    @C_ORIGINAL
    def negate(out: int, given: Any) -> None:
        floats(out, 2)[:] = [-v for v in floats(given[0], 2)]

    register_custom_call("f", ctypes.cast(negate, ctypes.c_void_p).value)
    assert run(platform, program(array("f32", 2)), X)[0].tolist() == [-1, -2]


@platforms
def test_function_of_a_library(platform: str) -> None:
    """libc's memcpy has no such signature, but a target without operands may be any function that ignores them."""

    @C_ORIGINAL
    def seven(out: int, given: Any) -> None:
        floats(out, 1)[0] = 7

    register_custom_call("f", seven)
    assert run(platform, program(array("f32"), operands=0))[0] == 7


@platforms
@pytest.mark.parametrize("version", [STATUS, UNIFIED])
def test_status(platform: str, version: str) -> None:
    """Success, then failure with a message, then success again."""
    opaque = []

    def body(out: int, given: Any, status: int) -> None:
        x = floats(given[0], 2)
        if x[0] < 0:
            fail_with(status, b"x is negative")
        else:
            floats(out, 2)[:] = [v**0.5 for v in x]

    @C_STATUS
    def with_status(out: int, given: Any, status: int) -> None:
        body(out, given, status)

    @C_UNIFIED
    def unified(out: int, given: Any, text: bytes, size: int, status: int) -> None:
        opaque.append((text, size))
        body(out, given, status)

    register_custom_call("f", with_status if version == STATUS else unified)
    executable = LocalClient(platform).compile(
        program(array("f32", 2), opaque='say "hi"', api_version=version)
    )
    for _ in range(2):
        assert executable.execute([np.array([4, 9], np.float32)])[0].tolist() == [2, 3]
        with pytest.raises(ExecutionError, match="custom-call target 'f' failed: x is negative"):
            executable.execute([-X])
    assert set(opaque) == (set() if version == STATUS else {(b'say "hi"', 8)})


@platforms
def test_exception_reaches_the_caller(platform: str) -> None:
    class Mine(Exception):
        pass

    def f(x: np.ndarray) -> np.ndarray:
        if x[0] > 5:
            raise Mine("too large")
        return x

    register_custom_call("f", f)
    executable = LocalClient(platform).compile(program(array("f32", 2)))
    for _ in range(3):
        assert executable.execute([X])[0].tolist() == [1, 2]
        with pytest.raises(Mine, match="too large"):
            executable.execute([X * 10])


@platforms
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, MemoryError])
def test_exceptions_that_are_no_errors(platform: str, error: type[BaseException]) -> None:
    def f(x: np.ndarray) -> np.ndarray:
        raise error

    register_custom_call("f", f)
    with pytest.raises(error):
        run(platform, program(array("f32", 2)), X)


@platforms
@pytest.mark.parametrize("returned", [None, X[:1], X.astype(np.float64), (X, X), "text", [1.0, 2.0]])
def test_wrong_result(platform: str, returned: Any) -> None:
    register_custom_call("f", lambda x: returned)
    with pytest.raises(
        ExecutionError, match=r"custom-call target 'f' returned .*, \(float32\[2\]\) is expected"
    ):
        run(platform, program(array("f32", 2)), X)


@platforms
def test_function_keeps_and_changes_its_arguments(platform: str) -> None:
    kept = []

    def f(x: np.ndarray) -> np.ndarray:
        kept.append(x)
        x += 1
        return x

    register_custom_call("f", f)
    given = X.copy()
    b = ComputationBuilder("main")
    x = b.parameter(0, array("f32", 2), "x")
    called = b.custom_call("f", [x], array("f32", 2), has_side_effect=True)
    found = run(platform, b.build(b.tuple([called, x, b.add(x, x)])), given)
    assert [f.tolist() for f in found] == [[2, 3], [1, 2], [2, 4]] and given.tolist() == [1, 2]
    assert kept[0].tolist() == [2, 3]


@platforms
def test_layout_and_odd_types(platform: str) -> None:
    for kind in ("pred", "s4", "u8", "f8e5m2", "bf16", "c128"):
        register_custom_call("f", lambda x: x.T)
        b = ComputationBuilder("main")
        x = b.parameter(0, array(kind, 2, 3), "x")
        value = np.arange(6).reshape(2, 3).astype(b.get_shape(x).element_type.dtype)
        (found,) = run(platform, b.build(b.custom_call("f", [x], array(kind, 3, 2))), value)
        assert found.tobytes() == np.ascontiguousarray(value.T).tobytes() and found.dtype == value.dtype


@platforms
def test_unknown_target(platform: str) -> None:
    register_custom_call("somebody", lambda x: x)
    with pytest.raises(UnsupportedError, match="target 'nobody' is not registered; known: .*somebody"):
        LocalClient(platform).compile(program(array("f32", 2), "nobody"))


def test_forgotten_target() -> None:
    register_custom_call("f", lambda x: x)
    executable = LocalClient().compile(program(array("f32", 2)))
    unregister_custom_call("f")
    with pytest.raises(ExecutionError, match="'f' is not registered"):
        executable.execute([X])


def test_python_after_c() -> None:
    """The same text is compiled anew when the target becomes a function of the other kind."""

    @C_ORIGINAL
    def negate(out: int, given: Any) -> None:
        floats(out, 2)[:] = [-v for v in floats(given[0], 2)]

    for function, wanted in ((negate, [-1, -2]), (lambda x: 2 * x, [2, 4]), (negate, [-1, -2])):
        register_custom_call("f", function)
        assert run("cpu", program(array("f32", 2)), X)[0].tolist() == wanted


def test_c_function_of_another_version() -> None:
    register_custom_call("f", C_ORIGINAL(lambda out, given: None))
    with pytest.raises(UnsupportedError, match="a C function with API_VERSION_TYPED_FFI"):
        LocalClient().compile(program(array("f32", 2), api_version="API_VERSION_TYPED_FFI"))


@pytest.mark.parametrize(("function", "error"), [(3.5, TypeError), (None, TypeError), (0, ValueError)])
def test_registration(function: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="custom-call target 'f'"):
        register_custom_call("f", function)


# -- side effects


def counting(count: list[float]) -> Callable[[np.ndarray], np.ndarray]:
    def f(x: np.ndarray) -> np.ndarray:
        count.append(float(x.sum()))
        return x

    return f


@platforms
def test_calls_with_side_effects_all_happen_in_order(platform: str) -> None:
    count: list[float] = []
    register_custom_call("f", counting(count))
    b = ComputationBuilder("main")
    x = b.parameter(0, array("f32", 2), "x")
    for _ in range(2):
        b.custom_call("f", [x], array("f32", 2), has_side_effect=True)
    b.custom_call("f", [b.neg(x)], array("f32", 2), has_side_effect=True)
    b.custom_call("f", [b.constant(X)], array("f32", 2), has_side_effect=True)
    run(platform, b.build(b.add(x, x)), 2 * X)
    assert count == [6, 6, -6, 3]


def test_calls_without_side_effects_are_shared() -> None:
    b = ComputationBuilder("main")
    x = b.parameter(0, array("f32", 2), "x")
    b.custom_call("f", [x], array("f32", 2))
    once, again = (b.custom_call("f", [x], array("f32", 2)) for _ in range(2))
    module = run_pipeline(ir.Module("m", b.build(b.add(once, again))))
    assert sum(i.opcode == "custom-call" for i in module.entry.instructions) == 1


@platforms
def test_in_a_loop_and_a_branch(platform: str) -> None:
    count: list[float] = []
    register_custom_call("f", counting(count))
    text = """HloModule m
more {
  v = f32[1] parameter(0)
  w = f32[1] custom-call(v), custom_call_target="f"
  s = f32[] reshape(w)
  n = f32[] constant(3)
  ROOT c = pred[] compare(s, n), direction=LT
}
next {
  v = f32[1] parameter(0)
  one = f32[1] constant({1})
  w = f32[1] add(v, one)
  u = f32[1] multiply(w, w)
  x = f32[1] custom-call(u), custom_call_target="f", custom_call_has_side_effect=true
  ROOT r = f32[1] copy(w)
}
ENTRY main {
  v = f32[1] parameter(0)
  ROOT w = f32[1] while(v), condition=more, body=next
}"""
    assert run(platform, parse_hlo(text), np.zeros(1, np.float32))[0].tolist() == [3]
    assert count == [0, 1, 1, 4, 2, 9, 3]


@platforms
def test_text(platform: str) -> None:
    """What XLA prints round such calls is kept."""
    register_custom_call("f", lambda x, y: (x + y, x))
    text = """HloModule m
helper {
  a = f32[] parameter(0)
  ROOT b = f32[] negate(a)
}
ENTRY main {
  x = f32[2] parameter(0)
  ROOT r = (f32[2]{0}, f32[2]{0}) custom-call(f32[2]{0} x, f32[2]{0} x), custom_call_target="f", \
operand_layout_constraints={f32[2]{0}, f32[2]{0}}, output_to_operand_aliasing={{1}: (0, {})}, \
called_computations={helper}, api_version=API_VERSION_TYPED_FFI, backend_config={"a": {"b": "c}"}}, \
metadata={op_name="jit(f)/call"}
}"""
    module = parse_hlo(text)
    again = str(parse_hlo(str(module)))
    assert again == str(module)
    for part in (
        'custom_call_target="f"',
        "output_to_operand_aliasing={{1}: (0, {})}",
        "called_computations={helper}",
        'backend_config={"a": {"b": "c}"}}',
        "api_version=API_VERSION_TYPED_FFI",
    ):
        assert part in again
    assert [f.tolist() for f in run(platform, module, X)] == [[2, 4], [1, 2]]


@platforms
def test_by_eight_threads(platform: str) -> None:
    def f(x: np.ndarray) -> np.ndarray:
        if x[0] % 5 == 4:
            raise ValueError(float(x[0]))
        return x + 1

    register_custom_call("f", f)
    executable = LocalClient(platform).compile(program(array("f32", 2)))

    def work(number: int) -> None:
        for turn in range(50):
            value = number * 50 + turn
            try:
                result = executable.execute([np.full(2, value, np.float32)])[0][0]
            except ValueError as error:
                result = -error.args[0]
            assert result == (-value if value % 5 == 4 else value + 1)

    in_threads(8, work)


@platforms
def test_failure_in_one_of_several_replicas(platform: str) -> None:
    def f(x: np.ndarray) -> np.ndarray:
        if x[0] == 2:
            raise ArithmeticError("two")
        return x

    register_custom_call("f", f)
    b = ComputationBuilder("main")
    x = b.custom_call("f", [b.parameter(0, array("f32", 1), "x")], array("f32", 1))
    executable = LocalClient(platform).compile(b.build(b.cross_replica_sum(x)), num_replicas=3)
    with pytest.raises(ArithmeticError, match="two") as raised:
        executable.execute_replicas([[np.full(1, k, np.float32)] for k in range(3)])
    assert raised.value.__notes__[0].startswith("raised in replica 2")
    assert executable.execute_replicas([[np.full(1, k, np.float32)] for k in range(3, 6)])[0][0] == 12


# -- composite calls


def test_composite_call() -> None:
    b = ComputationBuilder("main")
    x = b.parameter(0, array("f32", 2), "x")
    decomposition = unary("negate", 2)
    called = b.composite_call(decomposition, [x], "foo.bar", "{n = 1 : i32}", 1)
    module = ir.Module("m", b.build(b.add(called, x)))
    text = str(module)
    assert (
        "is_composite=true" in text and 'composite.name="foo.bar"' in text and 'composite.version="1"' in text
    )
    assert "composite.attributes={n = 1 : i32}" in text
    assert str(parse_hlo(text)) == text
    inner = run_pipeline(module)
    assert "composite" not in str(inner)
    for platform in ("interpreter", "cpu"):
        assert run(platform, parse_hlo(text), X)[0].tolist() == [0, 0]


def test_composite_call_of_other_operands() -> None:
    b = ComputationBuilder("main")
    b.composite_call(
        computation("add", [array("f32")] * 2, lambda x, y: ir.make(Elementwise("add"), x, y)),
        [b.constant(1.0)],
        "foo.bar",
    )
    with pytest.raises(ShapeError, match="call_c1"):
        b.build()


def test_object_that_stands_alone() -> None:
    register_custom_call("f", lambda x: x)
    with pytest.raises(UnsupportedError, match="custom-call .*stands alone"):
        compile_self_contained(
            [CodeVersion({"m": ir.Module("m", program(array("f32", 2)))}, host())], Options(), True
        )


def test_messages_of_several_functions_of_one_object() -> None:
    modules = {}
    for name in ("first", "second"):
        b = ComputationBuilder(name)
        b.fail_if(b.gt(b.parameter(0, array("f32")), b.constant(9.0)), f"the {name} message")
        b.constant(1.0)
        modules[name] = ir.Module(name, b.build())
    made = compile_self_contained([CodeVersion(modules, host())], Options(), True).artifacts[0].object
    assert b"the first message" in made and b"the second message" in made


def checked(in_loop: bool) -> ir.Module:
    """Adds one to x three times, unless an element is above the limit on the way; the result may lie in x's memory."""
    state = Shape.tuple([array("s32"), array("f32", 70)])
    b = ComputationBuilder("main")
    x, zero = b.parameter(0, array("f32", 70)), b.constant(0.0)

    def step(c: ComputationBuilder, value: Any) -> Any:
        raised = c.add(value, c.constant(1.0))
        largest = c.reduce(
            raised, c.constant(-np.inf, "f32"), binary_computation("maximum", ElementType.F32), (0,)
        )
        c.fail_if(c.gt(largest, c.constant(9.0)), 'above the "limit"\nof 9')
        return raised

    if in_loop:
        body = b.create_sub_builder("body")
        given = body.parameter(0, state)
        count = body.add(body.get_tuple_element(given, 0), body.constant(1))
        step_of = body.build(body.tuple([count, step(body, body.get_tuple_element(given, 1))]))
        test = b.create_sub_builder("test")
        test.lt(test.get_tuple_element(test.parameter(0, state), 0), test.constant(3))
        root = b.get_tuple_element(b.while_(test.build(), step_of, b.tuple([b.constant(0), x])), 1)
    else:
        root = step(b, step(b, step(b, x)))
    module = ir.Module("main", b.build(b.tuple([b.add(root, zero)])))
    module.input_output_aliases = (ir.InputOutputAlias((0,), 0),)
    return module


@platforms
@pytest.mark.parametrize("in_loop", [False, True])
def test_check(platform: str, in_loop: bool) -> None:
    """A check that fails ends the run with its message; one that holds changes nothing. Its text reads back."""
    module = parse_hlo(str(checked(in_loop)))
    assert str(module) == str(checked(in_loop))
    executable = LocalClient(platform).compile(module)
    values = np.arange(70, dtype=np.float32) / 8 - 3
    np.testing.assert_array_equal(executable.execute([values])[0], values + 3)
    with pytest.raises(ExecutionError, match='error 3: above the "limit"\nof 9'):
        executable.execute([values + 2])
    np.testing.assert_array_equal(executable.execute([values])[0], values + 3)


def run_entry(module: ir.Module, results: int, arguments: list[np.ndarray]) -> int:
    """The status of a run in which the first results lie in the memory of the first arguments."""
    made = Executable(compile_module(module))
    addresses = (ctypes.c_void_p * len(arguments))(*[a.ctypes.data for a in arguments])
    into = (ctypes.c_void_p * results)(*[a.ctypes.data for a in arguments[:results]])
    context = RunContext(threads=1, num_replicas=1, constants=made.constants_address)
    temp = np.zeros(made.artifact.temp_bytes + 64, np.uint8)
    entry = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 4)(made.entry_address)
    return entry(ctypes.addressof(context), addresses, into, -(-temp.ctypes.data // 64) * 64)


@pytest.mark.parametrize("in_loop", [False, True])
def test_check_leaves_arguments_as_they_were(in_loop: bool) -> None:
    """Where the result lies in the argument's memory, that is written after the check."""
    for start, status in ((0.0, 0), (7.5, 3)):
        memory = np.full(70, start, np.float32)
        given = run_entry(checked(in_loop), 1, [memory])
        assert (given, memory.tolist()) == (status, [start if status else start + 3] * 70)


@pytest.mark.parametrize("updates", [1, 2])
def test_check_of_what_is_made_in_place_leaves_arguments(updates: int) -> None:
    """The check needs a sort that would take the memory of the indices once they are read; what is scattered by them
    is written after it all the same."""
    b = ComputationBuilder("main")
    table, indices = b.parameter(0, array("f32", 7)), b.parameter(1, array("s32", 4))
    new = table
    for k in range(updates):
        values = b.broadcast(b.constant(float(k + 1)), (4,))
        new = b.scatter(
            new,
            b.reshape(indices, (4, 1)),
            values,
            binary_computation("add", ElementType.F32),
            index_vector_dim=1,
            update_window_dims=[],
            inserted_window_dims=[0],
            scatter_dims_to_operand_dims=[0],
        )
    ordered = b.sort([indices])
    twice = b.eq(b.slice_in_dim(ordered, 0, 3, 1, 0), b.slice_in_dim(ordered, 1, 4, 1, 0))
    any_twice = b.reduce(twice, b.constant(False), binary_computation("or", ElementType.PRED), (0,))
    b.bail_out_if(any_twice, "an index comes twice")
    module = ir.Module("main", b.build(b.tuple([new])))
    module.input_output_aliases = (ir.InputOutputAlias((0,), 0),)
    for numbers, status in (([3, 0, 6, 5], 0), ([3, 0, 3, 5], ASSUMPTION_FAILED)):
        memory, given = np.zeros(7, np.float32), np.array(numbers, np.int32)
        assert run_entry(module, 1, [memory, given]) == status
        wanted = np.zeros(7) if status else np.bincount(numbers, minlength=7) * sum(range(1, updates + 1))
        np.testing.assert_array_equal(memory, wanted)
        assert given.tolist() == numbers


def test_former_names_of_checks() -> None:
    b = ComputationBuilder("main")
    x = b.parameter(0, array("pred"))
    b.bail_out_if(x, "other code")
    b.overflow_if(x, "larger bounds")
    text = str(ir.Module("main", b.build(b.not_(x))))
    older = text.replace("bail_out_if", "leave_if").replace("overflow_if", "grow_if")
    assert older != text and str(parse_hlo(older)) == text


@platforms
def test_check_of_an_assumption(platform: str) -> None:
    """Where an assumption does not hold, the run ends with the status that asks for other code."""
    b = ComputationBuilder("main")
    x = b.parameter(0, array("f32"))
    b.bail_out_if(b.lt(x, b.constant(0.0)), "below zero")
    with b.metadata(op_type="Sqrt", op_name="root"):
        b.bail_out_if(b.gt(x, b.constant(9.0)), "above nine")
    executable = LocalClient(platform).compile(b.build(b.tuple([b.add(x, x)])))
    assert executable.execute([np.float32(2)])[0] == 4
    with pytest.raises(ExecutionError, match=f"error {ASSUMPTION_FAILED}: Sqrt root: above nine"):
        executable.execute([np.float32(10)])
    with pytest.raises(ExecutionError, match=f"error {ASSUMPTION_FAILED}: below zero"):
        executable.execute([np.float32(-2)])
