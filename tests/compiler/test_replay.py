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
