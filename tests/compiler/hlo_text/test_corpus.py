"""Every text of the corpus is read, printed and read again; its compiled code computes what the evaluator and, where it
is installed, XLA compute."""

from __future__ import annotations

import importlib.util
import pathlib

import corpus
import pytest
from run_python import run_python
from tfbridge.compiler import LocalClient, parse_hlo, verify
from tfbridge.compiler.errors import UnsupportedError

FOLDER = pathlib.Path(__file__).parent / "corpus"
CASES = corpus.read(FOLDER)
RUN = [c for c in CASES if "refused" not in c.marks]


def test_there_are_enough() -> None:
    assert len(CASES) >= 380 and len({(c.file, c.name) for c in CASES}) == len(CASES)


@pytest.mark.parametrize("case", RUN, ids=str)
def test_read_and_run(case: corpus.Case) -> None:
    notes: list[str] = []
    module = verify(parse_hlo(case.text, notes=notes))
    assert bool(notes) is ("notes" in case.marks), notes
    text = str(module)
    assert str(parse_hlo(text)) == text
    corpus.check(case, module)


@pytest.mark.parametrize("case", [c for c in RUN if c.name.endswith("_optimised")], ids=str)
def test_what_xla_optimised(case: corpus.Case) -> None:
    """It computes what the text did before XLA optimised it."""
    before = [c for c in RUN if f"{c.name}_optimised" == case.name and c.file == case.file]
    results = []
    for one in (*before, case):
        module = parse_hlo(one.text)
        results.append(LocalClient().compile(module).execute(corpus.arguments(module)))
    assert len(results) <= 2 and not corpus.differences(case, results[0], results[-1], 2**8)


@pytest.mark.parametrize("case", [c for c in CASES if "refused" in c.marks], ids=str)
def test_refused(case: corpus.Case) -> None:
    with pytest.raises(UnsupportedError) as raised:
        LocalClient().compile(parse_hlo(case.text))
    assert case.marks["refused"] in str(raised.value)


@pytest.mark.parametrize("case", RUN, ids=str)
def test_cut_short(case: corpus.Case) -> None:
    corpus.check_beginnings(case, parse_hlo)


SCRIPT = """
import jax, numpy as np, sys
from jaxlib import _hlo, _jax
from jax._src.lib import xla_client
sys.path[:0] = {paths!r}
jax.config.update("jax_enable_x64", True)
from corpus import arguments, differences
from test_corpus import RUN
from tfbridge.compiler import LocalClient, parse_hlo

def run(text, inputs):
    proto = _hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()
    devices = jax.devices()[:1]
    client = devices[0].client
    program = _jax.mlir.hlo_to_stablehlo(proto)
    loaded = client.compile_and_load(program, _jax.DeviceList(tuple(devices)), xla_client.CompileOptions())
    return [np.asarray(r) for r in loaded.execute([jax.device_put(a) for a in inputs])]

for case in RUN:
    if "not by XLA" in case.marks or "devices" in case.marks:
        continue
    print(case, end=" ", flush=True)
    module = parse_hlo(case.text)
    printed = str(module)
    inputs = arguments(module)
    try:
        wanted = run(case.text if "only here" not in case.marks else printed, inputs)
        _hlo.hlo_module_from_text(printed)
    except Exception as error:
        print("error: " + str(error).replace(chr(10), "; ")[:200], flush=True)
        continue
    found = LocalClient().compile(module).execute(inputs)
    problem = differences(case, found, wanted, 2**8)
    print("other: " + problem.replace(chr(10), "; ") if problem else "same", flush=True)
"""


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="jax is not installed")
def test_what_xla_computes() -> None:
    """XLA reads the text, and what is printed here, and its results are the same. A process of its own: XLA ends it
    where something is wrong."""
    here = pathlib.Path(__file__).parent
    paths = [str(here), str(here.parent), str(here.parents[1]), str(here.parents[1] / "runtime")]
    done = run_python(SCRIPT.format(paths=paths), timeout=1200, JAX_PLATFORMS="cpu")
    lines = done.stdout.splitlines()
    assert done.returncode == 0, "\n".join([*lines[-2:], done.stderr[-3000:]])
    assert not [line for line in lines if not line.endswith(" same")]
