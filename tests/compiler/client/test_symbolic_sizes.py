"""Programs whose sizes are known at run time only: evaluated, specialised, compiled and called."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from tfbridge.compiler import LocalClient, Module, Options, evaluate, parse_hlo, verify
from tfbridge.compiler.__main__ import main
from tfbridge.compiler.cpu import symbolic_code
from tfbridge.compiler.errors import ShapeError
from tfbridge.compiler.ir.element_types import ElementType
from tfbridge.compiler.ir.specialization import specialized, symbol_values

TEXT = """HloModule m, sizes={n=12, b>=1=4}

add {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT z = f32[] add(x, y)
}

ENTRY main {
  p = f32[b,n] parameter(0)
  q = f32[n,2*n] parameter(1)
  zero = f32[] constant(0)
  twice = f32[b,2*n] concatenate(p, p), dimensions={1}
  s = f32[n] reduce(q, zero), dimensions={1}, to_apply=add
  rows = f32[b,n] broadcast(s), dimensions={1}
  sum = f32[b,n] add(p, rows)
  cut = f32[b,n-1] slice(sum), slice={[0:b], [1:n]}
  count = s32[] size(), value=b*n
  ROOT r = (f32[b,n-1], f32[b,2*n], s32[]) tuple(cut, twice, count)
}
"""


def arguments(b: int, n: int) -> list[np.ndarray]:
    rng = np.random.default_rng(b * 100 + n)
    return [rng.standard_normal(dims).astype(np.float32) for dims in ((b, n), (n, 2 * n))]


def expected(p: np.ndarray, q: np.ndarray) -> list[np.ndarray]:
    return [(p + q.sum(1))[:, 1:], np.concatenate([p, p], 1), np.asarray(p.size, np.int32)]


def check(results: list[np.ndarray], b: int, n: int) -> None:
    for result, want in zip(results, expected(*arguments(b, n)), strict=True):
        assert result.shape == want.shape and result.dtype == want.dtype
        np.testing.assert_allclose(result, want, 1e-4, 1e-4)


SIZES = [(4, 12), (1, 2), (2, 3), (3, 17), (1, 64), (130, 70)]
WRONG = [
    ([(4, 12), (11, 24)], "axis 0 of argument 1 is 11, n is 12 for n = 12"),
    ([(4, 12), (12, 25)], "axis 1 of argument 1 is 25, 2*n is 24 for n = 12"),
    ([(4, 1), (1, 2)], "axis 1 of argument 0 is 1, n is at least 2"),
    ([(0, 2), (2, 4)], "axis 0 of argument 0 is 0, b is at least 1"),
    ([(4,), (4, 8)], "argument 0 has 1 axes, not 2"),
    ([(4, 12)], "1 arguments"),
]


@pytest.mark.parametrize("sizes", SIZES)
def test_evaluator(sizes: tuple[int, int]) -> None:
    check(list(evaluate(parse_hlo(TEXT), arguments(*sizes))), *sizes)


@pytest.mark.parametrize("platform", ["cpu", "interpreter"])
def test_client(platform: str) -> None:
    executable = LocalClient(platform).compile(parse_hlo(TEXT))
    for sizes in [*SIZES, *SIZES]:
        check(executable.execute(arguments(*sizes)), *sizes)


@pytest.mark.parametrize("dims,message", WRONG)
def test_sizes_that_do_not_fit(dims: list[tuple[int, ...]], message: str) -> None:
    module, arrays = parse_hlo(TEXT), [np.zeros(d, np.float32) for d in dims]
    with pytest.raises(ShapeError, match=message.replace("*", r"\*")):
        evaluate(module, arrays)
    for platform in ("cpu", "interpreter"):
        executable = LocalClient(platform).compile(module)
        with pytest.raises(ShapeError, match=message.replace("*", r"\*")):
            executable.execute(arrays)
    with pytest.raises(ShapeError):
        LocalClient().compile(module).execute([np.zeros(d, np.float64) for d in [(4, 12), (12, 24)]])


def test_a_specialised_module() -> None:
    module = parse_hlo(
        TEXT.replace(
            "b>=1=4}",
            "b>=1=4}, entry_computation_layout={(f32[b,n], f32[n,2*n])->(f32[b,n-1], f32[b,2*n], s32[])}",
        )
    )
    concrete = verify(specialized(module, {"n": 5, "b": 3}))
    assert "n" not in str(concrete.entry.parameter_shapes) and "sizes=" not in str(concrete)
    assert "{(f32[3,5], f32[5,10])->(f32[3,4], f32[3,10], s32[])}" in str(concrete)
    assert str(parse_hlo(str(concrete))) == str(concrete)
    assert specialized(concrete, {}) is concrete
    assert symbol_values(module, [(3, 5), (5, 10)]) == {"b": 3, "n": 5}
    assert symbol_values(concrete, [(3, 5), (5, 10)]) == {}


def test_sizes_that_code_does_not_serve_get_their_own() -> None:
    """The check that the slice is inside is a guard."""
    text = (
        "HloModule m\nENTRY e {\n  p = f32[n] parameter(0)\n  ROOT r = f32[8] slice(p), slice={[2:10]}\n}\n"
    )
    module = parse_hlo(text)
    executable = LocalClient().compile(module)
    for n in (37, 10, 64):
        array = np.arange(n, dtype=np.float32)
        assert executable.execute([array])[0].tolist() == array[2:10].tolist()
    for n in (9, 2):
        with pytest.raises(ShapeError, match="slice_c"):
            executable.execute([np.zeros(n, np.float32)])
        with pytest.raises(ShapeError, match="slice_c"):
            evaluate(module, [np.zeros(n, np.float32)])


def test_results_without_elements() -> None:
    text = (
        "HloModule m, sizes={n=3}\nENTRY e {\n  p = f32[n] parameter(0)\n  q = bf16[n,0] parameter(1)\n"
        "  s = f32[n-2] slice(p), slice={[2:n]}\n  ROOT r = (f32[n-2], bf16[n,0]) tuple(s, q)\n}\n"
    )
    executable = LocalClient().compile(parse_hlo(text))
    for n in (2, 3, 40):
        p, q = np.arange(n, dtype=np.float32), np.zeros((n, 0), ElementType.BF16.dtype)
        s, r = executable.execute([p, q])
        assert s.tolist() == p[2:].tolist() and r.shape == (n, 0)


def test_sizes_that_may_be_zero() -> None:
    """Code for arrays with elements does not serve those without, and where typical sizes are 0, all have their own."""
    body = (
        "ENTRY main {\n  p = s32[1,m,29] parameter(0)\n  c = s32[] constant(3)\n"
        "  ROOT r = s32[3,m-2,31] pad(p, c), padding=0_2_2x-1_-1x1_1\n}\n"
    )
    for hint in (2, 3, 9):
        module = parse_hlo(f"HloModule m, sizes={{m={hint}}}\n{body}")
        executable = LocalClient().compile(module)
        for m in (2, 3, 9):
            p = np.arange(29 * m, dtype=np.int32).reshape(1, m, 29)
            np.testing.assert_array_equal(executable.execute([p])[0], evaluate(module, [p]))


def test_bound_code_is_bounded_and_shared_by_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(symbolic_code, "_MAX_BOUND", 3)
    executable = LocalClient().compile(parse_hlo(TEXT), Options(threads=1))
    errors: list[BaseException] = []

    def calls() -> None:
        try:
            for n in range(2, 30):
                check(executable.execute(arguments(2, n)), 2, n)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=calls) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert len(executable._compiled._bound) == 3


@pytest.mark.parametrize("flags", [[], ["--print"], ["--print", "thunks"], ["--platform", "interpreter"]])
def test_command(flags: list[str], tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.hlo"
    path.write_text(TEXT)
    assert main([str(path), *flags]) == 0
    printed = capsys.readouterr().out
    assert ("f32[b,n-1]" if "--print" in flags else "float32[4, 11]") in printed


def test_command_with_inputs_of_other_sizes(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.hlo"
    path.write_text(TEXT)
    p, q = arguments(3, 7)
    np.savez(tmp_path / "in.npz", arg0=p, arg1=q)
    assert main([str(path), "--inputs", str(tmp_path / "in.npz")]) == 0
    assert "float32[3, 6]" in capsys.readouterr().out
    np.savez(tmp_path / "in.npz", arg0=p, arg1=q[:, 1:])
    assert main([str(path), "--inputs", str(tmp_path / "in.npz")]) == 1
    assert "axis 1 of argument 1 is 13, 2*n is 14" in capsys.readouterr().err


def test_the_key_of_stored_code_has_the_guards(tmp_path) -> None:
    """Two programs of equal text whose makers asked other questions."""
    options = Options(cache_dir=str(tmp_path))

    def module(asks: bool) -> Module:
        read = parse_hlo(
            "HloModule m\nENTRY e {\n  p = f32[n] parameter(0)\n  ROOT r = f32[n] negate(p)\n}\n"
        )
        (n,) = read.entry.parameters[0].shape.dims
        assert not asks or n < 100
        return read

    from tfbridge.compiler.cpu import artifact_cache

    assert artifact_cache.load_module(module(False), options).symbolic is not None
    guarded = artifact_cache.load_module(module(True), options)
    assert guarded.bound([(100,)]) == "n < 100"
