"""Random numbers without a state of their own: ranges, moments, and that every draw is another."""

from __future__ import annotations

import numpy as np
import pytest
from tfbridge.compiler.builder.computation_builder import ComputationBuilder, Operand
from tfbridge.compiler.client.client import LocalClient
from tfbridge.compiler.ir.element_types import ElementType
from tfbridge.compiler.ir.shape import Shape, array

PLATFORMS = ["cpu", "interpreter"]


def scalars(b: ComputationBuilder, kind: str, *values: float) -> list[Operand]:
    return [b.constant(v, kind) for v in values]


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("kind", ["f8e5m2", "bf16", "f16", "f32", "f64"])
def test_uniform(platform: str, kind: str) -> None:
    b = ComputationBuilder("uniform")
    b.rng_uniform(*scalars(b, kind, -1, 3), array(kind, 4000))
    found = LocalClient(platform).compile(b.build()).execute([])[0].astype(np.float64)
    assert found.min() >= -1 and found.max() < 3
    assert found.min() < -0.9 and found.max() > 2.4
    assert abs(found.mean() - 1) < 0.2 and abs(found.std() - 4 / 12**0.5) < 0.2


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("kind", ["s4", "u8", "s16", "u32", "s32", "s64", "u64"])
def test_uniform_integers(platform: str, kind: str) -> None:
    b = ComputationBuilder("uniform")
    low = 0 if kind.startswith("u") else -3
    some = b.rng_uniform(*scalars(b, kind, low, 5), array(kind, 4000))
    b.tuple([some, b.rng_uniform(*scalars(b, kind, 1, 1), array(kind, 4000))])
    found, whole = (x.astype(object) for x in LocalClient(platform).compile(b.build()).execute([]))
    values, counts = np.unique(found, return_counts=True)
    assert list(values) == list(range(low, 5)) and counts.min() > 300
    bits = ElementType(kind).bits
    assert whole.max() - whole.min() > 0.9 * 2**bits


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("kind", ["f16", "f32", "f64"])
def test_normal(platform: str, kind: str) -> None:
    b = ComputationBuilder("normal")
    b.rng_normal(*scalars(b, kind, 3, 2), array(kind, 100, 100))
    found = (LocalClient(platform).compile(b.build()).execute([])[0].astype(np.float64) - 3) / 2
    assert np.isfinite(found).all()
    for power, moment, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):  # of x ** power
        assert abs((found**power).mean() - moment) < 8 * (variance / found.size) ** 0.5
    assert abs(np.corrcoef(found[:-1].ravel(), found[1:].ravel())[0, 1]) < 0.05


@pytest.mark.parametrize("platform", PLATFORMS)
def test_bernoulli(platform: str) -> None:
    b = ComputationBuilder("bernoulli")
    b.rng_bernoulli(b.constant(0.25), Shape(ElementType.U32, (5000,)))
    found = LocalClient(platform).compile(b.build()).execute([])[0]
    assert set(found) == {0, 1} and abs(found.mean() - 0.25) < 0.05


@pytest.mark.parametrize("platform", PLATFORMS)
def test_every_draw_is_another(platform: str) -> None:
    """Equal instructions, and calls one after another, give different numbers."""
    b = ComputationBuilder("twice")
    bounds = scalars(b, "f64", 0, 1)  # of 200 numbers of f32 two may well be equal
    b.tuple([b.rng_uniform(*bounds, array("f64", 50)) for _ in range(2)])
    executable = LocalClient(platform).compile(b.build())
    found = np.stack([*executable.execute([]), *executable.execute([])])
    assert len(np.unique(found)) == found.size
