"""Data that lives with a platform, layouts of transfers, and the examples of the documentation."""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import pathlib
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from cases import CASES, arguments, build
from tfbridge.compiler import (
    ComputationBuilder,
    Layout,
    Literal,
    LocalClient,
    PaddingValue,
    Shape,
    array,
    evaluate,
    parse_hlo,
    register_custom_call,
    unregister_custom_call,
)
from tfbridge.compiler.client import platforms
from tfbridge.compiler.client.global_data import DeviceHandle
from tfbridge.compiler.errors import ShapeError, UnsupportedError
from tfbridge.compiler.ir.element_types import ARRAYS, ElementType
from tfbridge.compiler.ir.module import Computation
from tfbridge.runtime.code import float_mode

EXAMPLES = pathlib.Path(__file__).parents[3] / "docs" / "examples"
PLATFORMS = pytest.mark.parametrize("platform", ["cpu", "interpreter"])


def example(name: str) -> ModuleType:
    """A file of docs/examples as a module."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def doubled(*dims: int, name: str = "doubled") -> Computation:
    b = ComputationBuilder(name)
    x = b.parameter(0, array("f32", *dims))
    return b.build(b.add(x, x))


@PLATFORMS
def test_axpy(platform: str) -> None:
    axpy = example("axpy")
    x, y = np.arange(10, dtype=np.float32), np.linspace(0, 1, 10, dtype=np.float32)
    wanted = np.float32(3) * x + y
    one = axpy.compute_axpy_parameters(Literal(np.float32(3)), Literal(x), Literal(y), platform)
    other = axpy.compute_axpy_constants(3.0, x.tolist(), y.tolist(), platform)
    for found in (one, other):
        np.testing.assert_allclose(found.array, wanted, rtol=1e-6)


def test_axpy_prints(capsys: pytest.CaptureFixture[str]) -> None:
    example("axpy").main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == lines[1] and lines[0].startswith("[ 0.5  2.5")


@PLATFORMS
def test_values_stay_with_the_platform(platform: str) -> None:
    client = LocalClient(platform)
    computation = doubled(3)
    data = client.transfer_to_server(np.array([1, 2, 3], np.float32))
    assert data.device == client.devices[0] == DeviceHandle(platform, 0)
    for power in range(1, 5):
        data = client.execute(computation, [data])
        assert client.transfer(data).array.tolist() == [2.0**power * n for n in (1, 2, 3)]
    assert len(client._executables) == 1


@PLATFORMS
def test_tuples(platform: str) -> None:
    client = LocalClient(platform)
    shape = Shape.tuple([array("s32"), Shape.tuple([array("bf16", 2)])])
    b = ComputationBuilder("swap")
    p = b.parameter(0, shape)
    swapped = b.build(b.tuple([b.get_tuple_element(p, 1), b.get_tuple_element(p, 0)]))
    given = Literal.tuple([Literal(np.int32(4)), Literal.tuple([Literal(np.ones(2, ml_dtypes.bfloat16))])])
    data = client.transfer_to_server(given)
    assert data.shape == shape
    found = client.execute_and_transfer(swapped, [data])
    assert found == Literal.tuple([given.parts[1], given.parts[0]])
    assert client.transfer(data) == given


def test_lifetime() -> None:
    client = LocalClient()
    with client.transfer_to_server(np.float32(1)) as data:
        assert not data.is_released
    assert data.is_released and "released" in repr(data)
    for use in (lambda: client.transfer(data), lambda: client.execute(doubled(), [data])):
        with pytest.raises(ShapeError, match=r"f32\[\] on .* was released \(global_data_c1\)"):
            use()


def test_in_process_shares_memory() -> None:
    client = LocalClient()
    mine = np.ones(4, np.float32)
    shared, copied = client.transfer_in_process(mine), client.transfer_to_server(mine)
    mine[0] = 9
    computation = doubled(4)
    assert client.execute_and_transfer(computation, [shared]).array.tolist() == [18, 2, 2, 2]
    assert client.execute_and_transfer(computation, [copied]).array.tolist() == [2, 2, 2, 2]


def test_wrong_arguments() -> None:
    client = LocalClient()
    data = client.transfer_to_server(np.ones(4, np.float32))
    with pytest.raises(
        ShapeError, match=r"arguments are \(f32\[4\]\), \(f32\[3\]\) are wanted \(execute_c1\)"
    ):
        client.execute(doubled(3), [data])
    with pytest.raises(ShapeError, match="execute_c1"):
        client.execute(doubled(3), [])
    with pytest.raises(ShapeError, match=r"is no device of cpu \(device_c1\)"):
        client.transfer_to_server(np.ones(1), DeviceHandle("cpu", 99))
    with pytest.raises(ShapeError, match=r"has no one layout \(layout_c1\)"):
        client.transfer(client.transfer_to_server((np.ones(1), np.ones(2))), Layout((0,)))
    with pytest.raises(TypeError, match="needs the shape"):
        client.transfer_to_server(np.ones(6), layout=Layout((0, 1)))
    b = ComputationBuilder("sum")
    total = b.build(b.add(b.parameter(0, array("f32")), b.parameter(1, array("f32"))))
    one, other = client.transfer_to_server(np.float32(1)), client.transfer_to_server(np.float32(1))
    other.device = DeviceHandle("cpu", 1)
    with pytest.raises(ShapeError, match=r"on \[0, 1\], one device is wanted \(device_c2\)"):
        client.execute(total, [one, other])


LETTERS = np.array([list(b"abc"), list(b"def")], np.uint8)


def test_layouts_of_the_preview_document() -> None:
    """The [2 x 3] array of its Layout and Padding sections."""
    assert bytes(Layout((0, 1)).pack(LETTERS)) == b"adbecf"
    assert bytes(Layout((1, 0)).pack(LETTERS)) == b"abcdef"
    padded = Layout((0, 1), (3, 5))
    assert bytes(padded.pack(LETTERS)) == b"ad\0be\0cf\0\0\0\0\0\0\0"
    assert bytes(Layout((1, 0), (3, 5)).pack(LETTERS)) == b"abc\0\0def\0\0\0\0\0\0\0"
    np.testing.assert_array_equal(padded.unpack(padded.pack(LETTERS), array("u8", 2, 3)), LETTERS)
    assert Layout.of(Shape(ElementType.U8, (2, 3), (0, 1))) == Layout((0, 1))


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0), (2, 1, 0)])
@pytest.mark.parametrize("padded", [None, (2, 5, 3)])
def test_any_layout_there_and_back(order: tuple[int, ...], padded: tuple[int, ...] | None) -> None:
    client = LocalClient()
    value = np.arange(24, dtype=np.float32).reshape(2, 4, 3)
    layout = Layout(order, padded, PaddingValue.LOWEST)
    memory = layout.pack(value)
    data = client.transfer_to_server(memory, shape=array("f32", 2, 4, 3), layout=layout)
    np.testing.assert_array_equal(client.transfer(data).array, value)
    np.testing.assert_array_equal(client.transfer(data, layout), memory)
    tripled = client.execute(doubled(2, 4, 3), [data])
    np.testing.assert_array_equal(client.transfer(tripled, layout), layout.pack(2 * value))


@pytest.mark.parametrize("kind", sorted(ARRAYS, key=lambda t: t.value), ids=lambda t: t.value)
def test_padding_values_of_every_type(kind: ElementType) -> None:
    zero, one = (v.of(kind) for v in (PaddingValue.ZERO, PaddingValue.ONE))
    assert zero.dtype == one.dtype == kind.dtype and one == np.ones((), kind.dtype)
    assert np.isnan(zero) if kind is ElementType.F8E8M0FNU else not zero  # the one type without a zero
    if kind.is_complex:
        with pytest.raises(ShapeError, match="layout_c4"):
            PaddingValue.LOWEST.of(kind)
        return
    low, high = (v.of(kind) for v in (PaddingValue.LOWEST, PaddingValue.HIGHEST))
    assert low.dtype == high.dtype == kind.dtype and float(low) < float(high)
    assert np.isfinite(float(low)) and np.isfinite(float(high))


@pytest.mark.parametrize(
    ("make", "label"),
    [
        (lambda: Layout((0, 0)), "layout_c1"),
        (lambda: Layout((0, 1), (3,)), "layout_c2"),
        (lambda: Layout((0, 1), (1, 3)).pack(LETTERS), "layout_c3"),
        (lambda: Layout((0,)).pack(LETTERS), "layout_c1"),
        (lambda: Layout((0, 1)).unpack(np.zeros(5, np.uint8), array("u8", 2, 3)), "layout_c5"),
        (lambda: Layout((0, 1)).unpack(np.zeros(6, np.int8), array("u8", 2, 3)), "layout_c5"),
    ],
)
def test_bad_layouts(make: Any, label: str) -> None:
    with pytest.raises(ShapeError, match=label):
        make()


LAID_OUT = """HloModule m{attribute}
ENTRY e {{
  x = f32[2,3,4]{{0,2,1}} parameter(0)
  p = (f32[3,2]{{0,1}}, s32[]) parameter(1)
  y = f32[3,2]{{0,1}} get-tuple-element(p), index=0
  n = s32[] get-tuple-element(p), index=1
  t = f32[3,4,2]{{0,1,2}} transpose(x), dimensions={{1,2,0}}
  b = f32[3,4,2]{{1,0,2}} broadcast(y), dimensions={{0,2}}
  s = f32[3,4,2]{{1,2,0}} add(t, b)
  ROOT r = (f32[3,4,2]{{1,2,0}}, s32[]) tuple(s, n)
}}"""


@PLATFORMS
@pytest.mark.parametrize(
    "attribute",
    [
        "",
        ", entry_computation_layout={(f32[2,3,4]{2,1,0}, (f32[3,2]{1,0}, s32[]))->(f32[3,4,2]{0,1,2}, s32[])}",
    ],
)
def test_layouts_of_the_entry(platform: str, attribute: str) -> None:
    module = parse_hlo(LAID_OUT.format(attribute=attribute))
    assert str(parse_hlo(str(module))) == str(module)
    executable = LocalClient(platform).compile(module)
    x, y = np.random.default_rng(0).standard_normal((2, 3, 4), np.float32), np.ones((3, 2), np.float32)
    for given in (x, np.asfortranarray(x), np.ascontiguousarray(x.transpose(1, 2, 0)).transpose(2, 0, 1)):
        found, number = executable.execute([given, y, np.int32(5)])
        np.testing.assert_array_equal(found, x.transpose(1, 2, 0) + y[:, None, :])
        assert number == 5
    if platform == "cpu":  # the result lies as its layout says
        fastest = int(np.argmin(found.strides))
        assert fastest == (0 if attribute else 1)


def test_layout_of_the_entry_of_other_shapes() -> None:
    text = LAID_OUT.format(attribute=", entry_computation_layout={(f32[2,3,4]{2,1,0})->f32[1]{0}}")
    with pytest.raises(ShapeError, match="entry_layout_c1"):
        LocalClient().compile(parse_hlo(text))


class Point:
    """What importlib.metadata has for an entry point."""

    name = "python"

    def load(self) -> Any:
        return example("python_platform").PythonPlatform


@pytest.fixture
def python_client(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(
        importlib.metadata, "entry_points", lambda group: [Point()] if group == "tfbridge.platforms" else []
    )
    platforms.platform.cache_clear()
    yield LocalClient("python")
    platforms.platform.cache_clear()


def test_a_platform_of_somebody_else_is_short() -> None:
    assert len((EXAMPLES / "python_platform.py").read_text().splitlines()) < 150


def test_a_platform_of_somebody_else(python_client: LocalClient) -> None:
    """It gives the evaluator's results for the table of ops, and for a program with a size known at run time only."""
    assert python_client.platform_name == "python"
    rng, count = np.random.default_rng(0), 0
    for case in CASES[::7]:
        module, given = build(case), arguments(case, rng)
        try:
            executable = python_client.compile(module)
        except UnsupportedError:
            continue
        if any(i.has_side_effect for i in module.entry.instructions):
            continue
        wanted, count = evaluate(module, given), count + 1
        with float_mode.of_runs():  # the platform computes in the mode of its caller
            found = executable.execute(given)
        for one, other in zip(found, platforms.flattened(wanted), strict=True):
            np.testing.assert_allclose(
                one.astype(np.complex128), np.asarray(other).astype(np.complex128), rtol=1e-2, atol=1e-6
            )
    assert count > 50
    b = ComputationBuilder("sized")
    x = b.set_dimension_size(b.parameter(0, array("f32", 4)), b.constant(3), 0)
    found = python_client.compile(b.build(b.neg(x))).execute([np.arange(4, dtype=np.float32)])
    assert found[0].tolist() == [0, -1, -2]


def test_a_platform_of_somebody_else_refuses(python_client: LocalClient) -> None:
    text = """HloModule m
c { p = s32[] parameter(0)  n = s32[] constant(5)  ROOT l = pred[] compare(p, n), direction=LT }
b { p = s32[] parameter(0)  ROOT s = s32[] add(p, p) }
ENTRY e { p = s32[] parameter(0)  ROOT w = s32[] while(p), condition=c, body=b }"""
    with pytest.raises(UnsupportedError, match="python: while w is not supported"):
        python_client.compile(parse_hlo(text))


CALLED = """HloModule m
ENTRY e {{
  x = f32[2,3] parameter(0)
  ROOT c = f32[2,3]{result} custom-call(x), custom_call_target="bytes_as_they_are",
    operand_layout_constraints={{f32[2,3]{operand}}}
}}"""


@PLATFORMS
@pytest.mark.parametrize(
    ("operand", "result"), [("{0,1}", "{0,1}"), ("{1,0}", "{0,1}"), ("{0,1}", "{1,0}"), ("", "")]
)
def test_layouts_of_a_custom_call(platform: str, operand: str, result: str) -> None:
    """A C function sees bytes in the order that the call says; a Python function sees axes."""
    x = np.arange(6, dtype=np.float32).reshape(2, 3)

    def copy(out: int, given: int) -> None:
        ctypes.memmove(out, ctypes.c_void_p.from_address(given).value or 0, 24)

    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(copy)
    memory = x.T.reshape(-1) if operand == "{0,1}" else x.reshape(-1)
    wanted = memory.reshape(3, 2).T if result == "{0,1}" else memory.reshape(2, 3)
    module = parse_hlo(CALLED.format(operand=operand, result=result))
    for target, expected in ((function, wanted), (lambda value: value, x)):
        register_custom_call("bytes_as_they_are", target)
        try:
            found = LocalClient(platform).compile(module).execute([x])[0]
        finally:
            unregister_custom_call("bytes_as_they_are")
        np.testing.assert_array_equal(found, expected)


def test_layouts_of_other_operands() -> None:
    register_custom_call("bytes_as_they_are", 1 << 40)
    try:
        with pytest.raises(ShapeError, match="verify_c5"):
            LocalClient().compile(
                parse_hlo(
                    CALLED.format(operand="{0,1}", result="").replace(
                        "constraints={f32[2,3]", "constraints={f32[3,2]"
                    )
                )
            )
    finally:
        unregister_custom_call("bytes_as_they_are")
