"""Passes over programs whose sizes are known at run time only: no pin, no needless guard, no wrong rewrite."""

from __future__ import annotations

import itertools

import pytest
from fixtures import Fixture, read
from symbolic_programs import dims_of, symbolic
from test_passes import BY_NAME, FAST, OTHERS, rule_of, same
from tfbridge.compiler.ir.module import Module
from tfbridge.compiler.ir.shape import assumptions_of
from tfbridge.compiler.ir.specialization import specialized
from tfbridge.compiler.ir.verifier import verify
from tfbridge.compiler.options import Options
from tfbridge.compiler.passes.simplify import simplify
from tfbridge.runtime.sizes import Assumptions

VALUES = [2, 3, 5, 8, 13]


def programs(module: Module) -> list[Module]:
    """With each size alone as a symbol, and with the first two."""
    sizes = dims_of(module)
    chosen = [{d: "n"} for d in sizes] + [{a: "n", b: "m"} for a, b in itertools.combinations(sizes[:3], 2)]
    return [made for names in chosen if (made := symbolic(module, names)) is not None]


def check(before: Module, after: Module, positive: bool = False) -> Assumptions:
    """The two compute the same for all values for which the pass's guards hold."""
    assumptions = assumptions_of(before.entry.parameter_shapes)
    assert assumptions is not None
    verify(after)
    for n, m in itertools.product(VALUES, VALUES if len(assumptions.symbols) > 1 else [0]):
        values = {"n": n, "m": m}
        if assumptions.hold(values):
            same(specialized(before, values), specialized(after, values), n, positive)
    return assumptions


@pytest.mark.parametrize("fixture", read("simplify"), ids=lambda f: f.name)
def test_rule(fixture: Fixture) -> None:
    rule = BY_NAME[rule_of(fixture)]
    for before in programs(fixture.module()):
        after = simplify(before, FAST, [rule])
        assumptions = check(before, after, positive=rule.fast_math)
        assert not assumptions.guards, f"{assumptions}\n{before}"


PAIRS = [(name, fixture) for name in OTHERS for fixture in read(name)]


@pytest.mark.parametrize(("name", "fixture"), PAIRS, ids=lambda v: getattr(v, "name", v))
def test_pass(name: str, fixture: Fixture) -> None:
    for before in programs(fixture.module()):
        assumptions = check(before, OTHERS[name](before, Options()))
        assert not assumptions.guards, f"{assumptions}\n{before}"


def test_most_fixtures_have_such_programs() -> None:
    modules = [f.module() for f in read("simplify")]
    assert sum(bool(programs(m)) for m in modules if dims_of(m)) > len(modules) * 0.6
