"""`python -m tfbridge.compiler FILE`: replays a dump, and says what is wrong with a bad one."""

from __future__ import annotations

import numpy as np
import pytest
from tfbridge.compiler.__main__ import main

TEXT = """HloModule m
ENTRY main {
  x = f32[2] parameter(0)
  n = f32[2] negate(x)
  ROOT r = f32[2] negate(n)
}
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "m.hlo"
    path.write_text(TEXT)
    return path


def test_print_after_chosen_passes(file, capsys) -> None:
    assert main([str(file), "--print"]) == 0
    assert "negate" not in capsys.readouterr().out
    assert main([str(file), "--print", "--passes", "none"]) == 0
    assert capsys.readouterr().out.count("negate") == 2


def test_runs_on_given_inputs(file, tmp_path, capsys) -> None:
    np.savez(tmp_path / "in.npz", arg0=np.array([1.5, -2], np.float32))
    assert main([str(file), "--platform", "interpreter", "--inputs", str(tmp_path / "in.npz")]) == 0
    assert "float32[2]\n[ 1.5 -2. ]" in capsys.readouterr().out
    assert main([str(file), "--platform", "interpreter", "--dump", str(tmp_path / "dump")]) == 0
    assert (tmp_path / "dump" / "02_simplify.hlo").exists()


def test_errors(file, tmp_path, capsys) -> None:
    file.write_text(TEXT.replace("negate(n)", "negate(k)"))
    assert main([str(file)]) == 1
    assert "line 5, column 26: operand k" in capsys.readouterr().err
    assert main([str(tmp_path / "none.hlo")]) == 1
    file.write_text(TEXT)
    assert main([str(file), "--passes", "simplfy"]) == 1
    assert "no pass is named 'simplfy'" in capsys.readouterr().err


STABLEHLO = """module @jit_f attributes {mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<2xf32>) -> tensor<2xf32> {
    %0 = stablehlo.negate %arg0 : tensor<2xf32>
    return %0 : tensor<2xf32>
  }
}
"""


def test_stablehlo_is_recognised(file, tmp_path, capsys) -> None:
    file.write_text(STABLEHLO)
    np.savez(tmp_path / "in.npz", arg0=np.array([1.5, -2], np.float32))
    assert main([str(file), "--inputs", str(tmp_path / "in.npz")]) == 0
    assert "float32[2]\n[-1.5  2. ]" in capsys.readouterr().out
    assert main([str(file), "--print"]) == 0
    assert "negate" in capsys.readouterr().out
    file.write_text(STABLEHLO.replace("%arg0 :", "%arg1 :"))
    assert main([str(file)]) == 1
    assert "line 3, column 5: value %arg1 is not defined before" in capsys.readouterr().err


ELIDED = """HloModule m
ENTRY main {
  x = f32[2]{0:T(128)} parameter(0)
  c = f32[2] constant({...})
  d = (s32[3], pred[]) constant((..., true))
  ROOT r = f32[2] add(x, c)
}
"""


def test_what_is_left_out_is_told(file, capsys) -> None:
    file.write_text(ELIDED)
    assert main([str(file)]) == 0
    told = capsys.readouterr().err
    assert "note: line 3: of the layout of f32[2]{0:T(128)} the order of the axes is read alone" in told
    assert "note: random values stand for 2 constants that the text leaves out: c" in told


def test_programs_for_several_devices_run(file, capsys) -> None:
    file.write_text("""HloModule m, replica_count=2
ENTRY main {
  ROOT x = u32[2] all-gather(u32[1] reshape(u32[] replica-id())), dimensions={0}
}
""")
    assert main([str(file)]) == 0
    assert "uint32[2]\n[0 1]" in capsys.readouterr().out


LOOP = """HloModule m
more {
  s = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(5)
  ROOT c = pred[] compare(i, n), direction=LT
}
step {
  s = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[8] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[8] tanh(x)
  ROOT r = (s32[], f32[8]) tuple(j, y)
}
ENTRY main {
  x = f32[8] parameter(0)
  z = s32[] constant(0)
  t = (s32[], f32[8]) tuple(z, x)
  l = (s32[], f32[8]) while(t), condition=more, body=step
  ROOT o = f32[8] get-tuple-element(l), index=1
}
"""


def test_print_thunks(tmp_path, capsys) -> None:
    path = tmp_path / "loop.hlo"
    path.write_text(LOOP)
    assert main(["--print", "thunks", str(path)]) == 0
    text = capsys.readouterr().out
    order, buffers, thunks = text.split("\n\n")
    assert [line for line in order.splitlines() if line.startswith("order")] == [
        "order of main",
        "order of more",
        "order of step",
    ]
    assert "  3: %l = (s32[], f32[8]) while(t)" in order
    assert "argument 0: f32[8], 32 bytes" in buffers and "temporary memory: 65 bytes" in buffers
    assert thunks.splitlines()[:4] == [
        "thunks",
        "copy constant[+0]:4 to temporary[0]:4",
        "copy argument[0]:32 to result[0]:32",
        "while temporary[1]:1 of more",
    ]
