"""Which activations become tables, and the ranges of what they read."""

from __future__ import annotations

import numpy as np
import pytest
from tfbridge.compiler.client.platforms import native
from tfbridge.compiler.cpu.compile import compile_module
from tfbridge.compiler.evaluator.evaluate import evaluate
from tfbridge.compiler.hlo_text.parser import parse_hlo
from tfbridge.compiler.ir.module import Module
from tfbridge.compiler.options import Options
from tfbridge.compiler.passes.pipeline import CPU_PASSES, run_pipeline
from tfbridge.compiler.quantization.activations import Activation, find_activations
from tfbridge.compiler.quantization.calibration import Observed
from tfbridge.compiler.quantization.layers import find_layers
from tfbridge.compiler.quantization.options import QuantizationOptions
from tfbridge.compiler.quantization.quantize import quantize
from tfbridge.runtime.code.executable import Executable


def network(end: str) -> Module:
    """A layer `y` of 64x32 with weights of 16x32; the next layer has weights `w2`."""
    random = np.random.default_rng(2)

    def constant(name: str, *dims: int) -> str:
        numbers = random.normal(size=dims).astype(np.float32)
        rows = ", ".join("{ " + ", ".join(f"{n}" for n in row) + " }" for row in numbers)
        return f"  {name} = f32[{dims[0]},{dims[1]}] constant({{ {rows} }})"

    return parse_hlo(f"""HloModule m
ENTRY e {{
  x = f32[64,16] parameter(0)
{constant("w", 16, 32)}
{constant("w2", 32, 3)}
  y = f32[64,32] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  l = f32[64,32] logistic(y)
  s = f32[64,32] multiply(y, l)
{end}
}}""")


LAYER = "ROOT d = f32[64,3] dot(s, w2), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
ROWS = "ROOT d = f32[64,3] dot(r, w2), lhs_contracting_dims={1}, rhs_contracting_dims={0}"


def activations_of(end: str, least_elements: int = 1024) -> list[Activation]:
    entry = network(end).entry
    return find_activations(entry, find_layers(entry, False), least_elements)


def test_functions_of_a_layer() -> None:
    (found,) = activations_of(LAYER)
    assert (found.argument.name, [r.name for r in found.results], found.is_alone) == ("y", ["s"], True)
    numbers = np.linspace(-3, 3, 50, dtype=np.float32)
    np.testing.assert_allclose(found.functions[0](numbers), numbers / (1 + np.exp(-numbers)), rtol=1e-6)
    assert not activations_of(LAYER, 64 * 32 + 1)
    both = "t = f32[64,32] tanh(y)\n  c = f32[32,64] transpose(y), dimensions={1,0}\n  g = f32[64,64] dot(t, c), "
    (found,) = activations_of(
        both + "lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
        "  d = f32[64,3] dot(s, w2), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
        "  ROOT o = (f32[64,64], f32[64,3]) tuple(g, d)"
    )
    assert {r.name for r in found.results} == {"s", "t"} and not found.is_alone


@pytest.mark.parametrize(
    "end",
    [
        "ROOT t = f32[64,32] tanh(s)",
        "ROOT o = (f32[64,32]) tuple(s)",
        "ROOT r = f32[2048] reshape(s)",
        "r = f32[32,64] transpose(s), dimensions={1,0}\n  ROOT o = (f32[32,64]) tuple(r)",
        "t = f32[64,32] tanh(s)\n  r = f32[64,32] reverse(t), dimensions={0}\n"
        "  ROOT o = (f32[64,32], f32[64,32]) tuple(s, r)",
    ],
)
def test_results_are_not_rounded(end: str) -> None:
    assert not activations_of(end)


def test_cheap_functions_stay() -> None:
    assert not activations_of(
        "z = f32[] constant(0)\n  zs = f32[64,32] broadcast(z), dimensions={}\n  r = f32[64,32] maximum(y, zs)\n  "
        + ROWS
    )


def test_the_module_has_a_table() -> None:
    random, platform = np.random.default_rng(4), native()
    module = network(LAYER)
    samples = [[random.normal(size=(64, 16)).astype(np.float32)] for _ in range(6)]
    quantized, _ = quantize(module, samples, platform, QuantizationOptions())
    text = str(run_pipeline(quantized, Options(), passes=CPU_PASSES))
    assert "table-lookup" in text and "logistic" not in text
    exact, rounded = np.asarray(evaluate(module, samples[0])), np.asarray(evaluate(quantized, samples[0]))
    assert ((exact - rounded) ** 2).mean() < (exact**2).mean() * 10**-3.5
    (result,) = Executable(compile_module(quantized)).execute(samples[0])
    np.testing.assert_allclose(np.asarray(result), rounded, rtol=1e-4, atol=1e-4)


def test_ranges_follow_the_functions() -> None:
    values = np.random.default_rng(0).normal(0, 10, 100_000).astype(np.float32)
    seen = Observed()
    seen.add(values)

    def logistic(x: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-x))

    def error(low: float, high: float) -> float:
        step = (high - low) / 255
        levels = np.round((np.clip(values, low, high) - low) / step) * step + low
        return float(((logistic(levels) - logistic(values)) ** 2).mean())

    plain, fitted = seen.range("mse"), seen.range("mse", [logistic])
    assert fitted[0] > plain[0] and fitted[1] < plain[1]  # logistic is flat in its tails
    assert error(*fitted) < error(*plain) / 2
    rectified = seen.range("mse", [lambda x: np.maximum(x, 0)])
    assert rectified[0] > plain[0] / 4 and rectified[1] > 30
    for method in ("min-max", "percentile"):
        assert seen.range(method, [logistic]) == seen.range(method)
