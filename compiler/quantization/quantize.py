"""Quantisation of a module: finds its layers, observes their inputs on samples, rewrites it, and compares both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ..client.platforms import Platform
from ..errors import ShapeError
from ..ir.module import Instruction, Module
from ..options import DEFAULT_OPTIONS
from ..passes.pipeline import PASSES, run_pipeline
from .activations import find_activations
from .calibration import Observed, State, observe
from .layers import find_layers, stored_results
from .loops import sink_constants
from .options import WEIGHTS, QuantizationOptions
from .report import Comparison, QuantizationReport, describe
from .rewrite import IntegerLayers, Quantized, Rewriting, StoredWeights

Sample = Sequence[np.ndarray]


def quantize(
    module: Module,
    samples: Iterable[Sample],
    platform: Platform,
    options: QuantizationOptions,
    states: Sequence[State] = (),
    results: int | None = None,
) -> tuple[Module, QuantizationReport]:
    """(the quantised module, what that changes). Samples are lists of arguments, without those that are states; schemes
    that store weights need none. The first `results` of the module's results (None: all) are reported.

    Raises: ShapeError  samples that do not fit or are not finite; no layer that can be quantised.
    """
    module = sink_constants(run_pipeline(module, DEFAULT_OPTIONS, passes=PASSES))
    samples = list(samples)
    all_layers = find_layers(module.entry, options.scheme in WEIGHTS)
    names = [layer.name for layer in all_layers]
    layers = [layer for number, layer in enumerate(all_layers) if options.quantizes(names, number)]
    if not layers:
        raise ShapeError(
            f"quantisation: none of {len(all_layers)} layers with constant weights in f32 is chosen"
        )
    types: dict[Instruction, Quantized] = {}
    if options.scheme in WEIGHTS:
        rewriting: Rewriting = StoredWeights(
            module.entry, layers, WEIGHTS[options.scheme], options.block_size
        )
    else:
        activations = find_activations(module.entry, layers, options.tabulated_elements)
        stored = [*(layer.source for layer in layers), *stored_results(module.entry, layers)]
        stored += [value for a in activations for value in (a.argument, *a.results)]
        functions = {a.argument: a.functions for a in activations if a.is_alone}
        types = {
            source: Quantized.of(
                seen.range(options.calibration, functions.get(source, ())), options.activations
            )
            for source, seen in _observed(platform, module, stored, samples, states).items()
        }
        rewriting = IntegerLayers(
            module.entry,
            layers,
            types,
            options.largest_weight,
            options.kernels_by_output,
            functions.keys(),
        )
    quantized = module.with_entry(rewriting.run())
    before = [layer.result for layer in layers]
    comparison = Comparison([layer.name for layer in layers])
    pairs: Iterable[tuple[tuple[list[np.ndarray], list[np.ndarray]], ...]] = (
        ()
        if not samples
        else zip(
            observe(platform, module, before, samples, states),
            observe(platform, quantized, [rewriting.done[result] for result in before], samples, states),
            strict=True,
        )
    )
    for (outputs, values), (new_outputs, new_values) in pairs:
        comparison.add(outputs[:results], new_outputs[:results], values, new_values)
    floats = [layer.name for layer in all_layers if layer not in layers]
    stored_as = [rewriting.weights_type(layer) for layer in layers]
    return quantized, describe(layers, stored_as, types, comparison, floats, options.scheme)


def _observed(
    platform: Platform,
    module: Module,
    values: Sequence[Instruction],
    samples: Sequence[Sample],
    states: Sequence[State],
) -> dict[Instruction, Observed]:
    """What values are on the samples."""
    ranges = {value: Observed() for value in values}
    for number, (_, sample_values) in enumerate(observe(platform, module, list(ranges), samples, states)):
        for (source, seen), value in zip(ranges.items(), sample_values, strict=True):
            if not np.isfinite(value).all():
                raise ShapeError(
                    f"calibration: sample {number} gives NaN or infinity in {source.metadata.op_name or source.name}"
                )
            seen.add(value)
    return ranges
