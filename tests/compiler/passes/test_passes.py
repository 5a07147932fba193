"""The passes: what they make of each fixture's text, that it computes the same, and that their order is
kept."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable

import numpy as np
import pytest
from cases import BY_OPCODE, Case, arguments, build
from fixtures import Fixture, inputs, read
from tfbridge.compiler.evaluator.evaluate import evaluate
from tfbridge.compiler.hlo_text.parser import parse_hlo
from tfbridge.compiler.ir.module import Module
from tfbridge.compiler.ir.verifier import verify
from tfbridge.compiler.options import Options
from tfbridge.compiler.passes.block_scaled_dots import block_scaled_dots
from tfbridge.compiler.passes.canonicalize_dots import canonicalize_dots
from tfbridge.compiler.passes.collapse_pads import collapse_pads
from tfbridge.compiler.passes.combine_all_reduces import combine_all_reduces
from tfbridge.compiler.passes.cse import cse
from tfbridge.compiler.passes.dce import dce
from tfbridge.compiler.passes.expand_maps import expand_maps
from tfbridge.compiler.passes.expand_rng import expand_rng
from tfbridge.compiler.passes.expand_top_k import expand_top_k
from tfbridge.compiler.passes.fold_constants import fold_constants
from tfbridge.compiler.passes.inline_calls import inline_calls
from tfbridge.compiler.passes.narrow_to_slices import narrow_to_slices
from tfbridge.compiler.passes.normalize_layouts import normalize_layouts
from tfbridge.compiler.passes.pad_dynamic_dimensions import pad_dynamic_dimensions
from tfbridge.compiler.passes.pipeline import (
    CPU_PASSES,
    ORDER,
    PASSES,
    Step,
    broken_order,
    dump_step,
    run_pipeline,
    verify_step,
)
from tfbridge.compiler.passes.prune_sorts import prune_sorts
from tfbridge.compiler.passes.scale_weights import scale_weights
from tfbridge.compiler.passes.share_kernels import share_kernels
from tfbridge.compiler.passes.simplify import RULES, simplify
from tfbridge.compiler.passes.sink_reshapes import sink_reshapes
from tfbridge.compiler.passes.small_dots import small_dots
from tfbridge.compiler.passes.swap_dots import swap_dots
from tfbridge.compiler.passes.tabulate import tabulate
from tfbridge.compiler.passes.whole_quads import whole_quads

FAST = Options(numerics="fast")
BY_NAME = {rule.name: rule for rule in RULES}
# fast_math rules change values at -0.0, NaN and infinities, or round differently.
FINITE = {
    "add_positive_zero",
    "divide_by_constant",
    "power_of_half",
    "log_of_exponential",
    "divide_by_sqrt",
    "float_constants_together",
}


def rule_of(fixture: Fixture) -> str:
    return re.split(r"[ :]", fixture.name)[0]


def same(before: Module, after: Module, seed: int, positive: bool = False) -> None:
    """Both modules give the same on special values; NaN equals NaN, and x ** 2 may differ by one rounding."""
    given = inputs(before, seed)
    if positive:
        given = [np.abs(np.nan_to_num(a, nan=1, posinf=2, neginf=3)).clip(1e-3, 50) for a in given]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        old, new = evaluate(before, given), evaluate(after, given)
    equal(old, new, 1e-4 if positive else 0)


def equal(old: object, new: object, relative: float) -> None:
    if isinstance(old, tuple):
        for a, b in zip(old, new, strict=True):
            equal(a, b, relative)
        return
    assert old.dtype == new.dtype and old.shape == new.shape
    if relative:
        np.testing.assert_allclose(new, old, rtol=relative)
    elif old.dtype.kind in "biu":
        np.testing.assert_array_equal(new, old)
    else:
        wide = np.complex128 if old.dtype.kind == "c" else np.float64
        a, b = old.astype(wide), new.astype(wide)
        np.testing.assert_allclose(b, a, rtol=2e-7 if old.dtype != np.float64 else 1e-15, atol=1e-44)
        np.testing.assert_array_equal(np.signbit(b.real)[~np.isnan(b)], np.signbit(a.real)[~np.isnan(a)])


@pytest.mark.parametrize("fixture", read("simplify"), ids=lambda f: f.name)
def test_rule(fixture: Fixture) -> None:
    rule = BY_NAME[rule_of(fixture)]
    before = verify(fixture.module())
    after = verify(simplify(before, FAST, [rule]))
    fixture.check(after)
    assert (str(after) == str(before)) == ("stay" in fixture.name)
    assert after.entry.root.shape == before.entry.root.shape
    for seed in range(3):
        same(before, after, seed, positive=rule.fast_math)


def test_every_rule_has_a_fixture() -> None:
    assert {rule_of(f) for f in read("simplify")} == set(BY_NAME)
    assert len(BY_NAME) == len(RULES)
    assert {r.name for r in RULES if r.fast_math} == FINITE


def test_fast_math_needs_the_option() -> None:
    for fixture in read("simplify"):
        if BY_NAME[rule_of(fixture)].fast_math:
            module = fixture.module()
            assert str(simplify(module, Options(), [BY_NAME[rule_of(fixture)]])) == str(module)


def test_simplify_needs_one_pass() -> None:
    for fixture in read("simplify"):
        once = simplify(fixture.module(), FAST)
        assert str(simplify(once, FAST)) == str(once), fixture.name


OTHERS = {
    p.__name__: p
    for p in (
        fold_constants,
        cse,
        dce,
        inline_calls,
        expand_maps,
        expand_rng,
        expand_top_k,
        block_scaled_dots,
        canonicalize_dots,
        narrow_to_slices,
        combine_all_reduces,
        prune_sorts,
        scale_weights,
        sink_reshapes,
        tabulate,
        collapse_pads,
        whole_quads,
        share_kernels,
        swap_dots,
        small_dots,
    )
}


def fixtures_of(names: Iterable[str]) -> pytest.MarkDecorator:
    pairs = [(n, f) for n in names for f in read(n)]
    return pytest.mark.parametrize(("name", "fixture"), pairs, ids=lambda v: getattr(v, "name", v))


@fixtures_of(OTHERS)
def test_pass(name: str, fixture: Fixture) -> None:
    before = verify(fixture.module())
    after = verify(OTHERS[name](before, Options()))
    fixture.check(after)
    for seed in range(2):
        same(before, after, seed)


FIRST = {p.__name__: p for p in (normalize_layouts, pad_dynamic_dimensions)}
"""Passes that come before all others, which meet no layouts and no sizes known at run time only."""


@fixtures_of(FIRST)
def test_first_pass(name: str, fixture: Fixture) -> None:
    before = verify(fixture.module())
    after = verify(FIRST[name](before, Options()))
    fixture.check(after)
    assert FIRST[name](after, Options()) is after
    for seed in range(2):
        given = inputs(before, seed)
        given = [np.asarray(seed * 4 + 1, np.int32) if a.shape == () else a for a in given]
        with np.errstate(all="ignore"):
            equal(evaluate(before, given), evaluate(after, given), 0)


@pytest.mark.parametrize("opcode", BY_OPCODE)
def test_pipeline_keeps_what_ops_compute(opcode: str) -> None:
    for case in BY_OPCODE[opcode][::3]:
        check_pipeline(case)


def check_pipeline(case: Case) -> None:
    module, rng = build(case), np.random.default_rng(1)
    given = arguments(case, rng)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        after = run_pipeline(module, Options(), verify_step)
        equal(evaluate(module, given), evaluate(after, given), 0)


def test_order() -> None:
    assert broken_order() == []
    backwards = list(dict.fromkeys(reversed(PASSES)))
    assert any(
        reason.startswith("simplify must come before fold_constants") for reason in broken_order(backwards)
    )
    assert {name for first, second, _ in ORDER for name in (first, second)} <= {
        p.__name__ for p in CPU_PASSES
    }


def test_observer_switches_and_dump(tmp_path) -> None:
    module = read("inline_calls")[0].module()
    steps: list[Step] = []
    after = run_pipeline(module, Options(disabled_passes=frozenset({"inline_calls"})), steps.append)
    assert "call(" in str(after) and "inline_calls" not in {s.name for s in steps}
    assert len(steps) == sum(p is not inline_calls for p in PASSES)
    renamed: list[Step] = []
    run_pipeline(module, Options(disabled_passes=frozenset({"eliminate_dead"})), renamed.append)
    assert "dce" not in {s.name for s in renamed}
    run_pipeline(module, Options(), dump_step(str(tmp_path)))
    dumps = sorted(p.name for p in tmp_path.iterdir())
    assert dumps[0] == "01_inline_calls.hlo" and len(dumps) == len(PASSES)
    assert str(parse_hlo((tmp_path / dumps[-1]).read_text())) == (tmp_path / dumps[-1]).read_text()


def test_pipeline_passes_are_idempotent() -> None:
    for name in ("simplify", *OTHERS):
        for fixture in read(name):
            for apply in dict.fromkeys(PASSES):
                once = apply(fixture.module(), FAST)
                assert str(apply(once, FAST)) == str(once), (name, fixture.name, apply.__name__)
