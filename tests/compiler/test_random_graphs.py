"""Random modules: native code gives the evaluator's values, with every pass and without each, twice on new inputs.

HYPOTHESIS_PROFILE=thorough looks at many more of them.
"""

from __future__ import annotations

import numpy as np
import pytest
from agreement import difference, leaves, nested
from guarded import run_guarded
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from random_graphs import SIZES, random_module, values
from tfbridge.compiler.cpu.compile import CPU_PASSES, load_module
from tfbridge.compiler.evaluator import evaluate
from tfbridge.compiler.ir import Module
from tfbridge.compiler.options import DEFAULT_OPTIONS, Options
from tfbridge.compiler.passes.pipeline import run_pipeline, verify_step
from tfbridge.compiler.verifier import verify
from tfbridge.runtime.executable import Executable

EXAMPLES = settings().max_examples
NEEDED = {"inline_calls": "no kernel calls computations of arrays",
          "expand_maps": "loops are not written for lanes",
          "canonicalize_dots": "products are written for rows and columns"}
LEFT_OUT = sorted({p.__name__ for p in CPU_PASSES} - set(NEEDED))


def check(module: Module, options: Options = DEFAULT_OPTIONS, rounds: int = 2) -> None:
    """Compiles once, runs on several inputs."""
    verify(module)
    note(str(module))
    executable = Executable(load_module(module, options))
    shapes = [leaf for p in module.entry.parameter_shapes for leaf in p.leaves()]
    for seed in range(rounds):
        rng = np.random.default_rng(seed)
        arguments = [values(shape, rng) for shape in shapes]
        before = [a.copy() for a in arguments]
        wanted = leaves(evaluate(module, nested(module.entry.parameter_shapes, arguments)))
        found = executable.execute(arguments)
        guarded = run_guarded(executable, arguments, at_end=seed == 0)
        for number, (f, w) in enumerate([*zip(found, wanted, strict=True), *zip(guarded, wanted, strict=True)]):
            # Sums of zeros may have either sign; else the numbers are exact.
            message = difference(f, w, ulps=1e-9)
            assert not message, f"result {number} {message}"
        assert all(np.array_equal(a, b) for a, b in zip(arguments, before)), "an argument was written to"


def module_of(data: st.DataObject, **limits: object) -> Module:
    return random_module(lambda n: data.draw(st.integers(0, n - 1)), **limits)  # type: ignore[arg-type]


few = settings(suppress_health_check=list(HealthCheck), max_examples=max(EXAMPLES // 3, 1))
many = settings(suppress_health_check=list(HealthCheck), max_examples=EXAMPLES * 3)


@many
@given(st.data())
def test_small(data: st.DataObject) -> None:
    check(module_of(data))


@many
@given(st.integers(0, 2**32 - 1))
def test_large(seed: int) -> None:
    """Long graphs over arrays that are large enough for several threads."""
    rng = np.random.default_rng(seed)
    check(random_module(lambda n: int(rng.integers(n)), 120_000, (*SIZES, 64, 257, 33, 1000)), rounds=1)


@pytest.mark.parametrize("left_out", LEFT_OUT)
@few
@given(st.integers(0, 2**32 - 1))
def test_without_a_pass(left_out: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    check(random_module(lambda n: int(rng.integers(n))), Options(disabled_passes=frozenset({left_out})), rounds=1)


@few
@given(st.integers(0, 2**32 - 1))
def test_passes_make_legal_modules(seed: int) -> None:
    rng = np.random.default_rng(seed)
    module = random_module(lambda n: int(rng.integers(n)))
    run_pipeline(module, observer=verify_step, passes=CPU_PASSES)
