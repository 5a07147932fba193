"""The passes over a module: the tables of passes and their order."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Sequence

from .. import budget
from ..errors import InternalError
from ..ir.module import Module
from ..ir.verifier import verify
from ..options import DEFAULT_OPTIONS, Options
from .block_scaled_dots import block_scaled_dots
from .canonicalize_dots import canonicalize_dots
from .collapse_pads import collapse_pads
from .combine_all_reduces import combine_all_reduces
from .cse import cse
from .dce import dce
from .expand_collectives import expand_collectives
from .expand_maps import expand_maps
from .expand_rng import expand_rng
from .expand_top_k import expand_top_k
from .fold_constants import fold_constants
from .fuse import fuse
from .inline_calls import inline_calls
from .loop_invariant_code_motion import loop_invariant_code_motion
from .narrow_to_slices import narrow_to_slices
from .normalize_layouts import normalize_layouts
from .pad_dynamic_dimensions import pad_dynamic_dimensions
from .parallelize_loops import parallelize_loops
from .prune_sorts import prune_sorts
from .scale_weights import scale_weights
from .share_kernels import share_kernels
from .simplify import simplify
from .sink_reshapes import sink_reshapes
from .small_dots import small_dots
from .split_reductions import split_reductions
from .swap_dots import swap_dots
from .tabulate import tabulate
from .whole_quads import whole_quads

Pass = Callable[[Module, Options], Module]

PASSES: tuple[Pass, ...] = (
    inline_calls,
    simplify,
    sink_reshapes,
    fold_constants,
    cse,
    dce,
    scale_weights,
    prune_sorts,
    inline_calls,
    simplify,
    fold_constants,
    cse,
    inline_calls,
)
"""Passes that hold for every platform. A pass may occur more than once; `Options.disabled_passes` names functions."""

CPU_PASSES: tuple[Pass, ...] = (
    normalize_layouts,
    pad_dynamic_dimensions,
    combine_all_reduces,
    expand_collectives,
    expand_maps,
    expand_rng,
    expand_top_k,
    *PASSES,
    narrow_to_slices,
    loop_invariant_code_motion,
    dce,
    swap_dots,
    simplify,
    inline_calls,
    parallelize_loops,
    block_scaled_dots,
    whole_quads,
    canonicalize_dots,
    small_dots,
    split_reductions,
    tabulate,
    collapse_pads,
    fuse,
    dce,
    share_kernels,
)
"""The passes before code generation for CPUs."""

ORDER: tuple[tuple[str, str, str], ...] = (
    ("normalize_layouts", "simplify", "rules assume row-major arrays"),
    ("pad_dynamic_dimensions", "simplify", "rules assume that every size is known"),
    ("combine_all_reduces", "expand_collectives", "it combines all-reduces, which expansion replaces"),
    ("expand_maps", "simplify", "the elementwise ops of an expanded map have rules"),
    ("inline_calls", "simplify", "rules do not see through calls"),
    (
        "simplify",
        "fold_constants",
        "folding needs operands that are constants, not copies or reshapes of them",
    ),
    (
        "simplify",
        "inline_calls",
        "a conditional on a constant becomes a call: no platform has code for those",
    ),
    ("fold_constants", "simplify", "a folded predicate decides selects, conditionals and loops"),
    ("simplify", "cse", "equal values often have different forms before"),
    ("dce", "simplify", "a loop without its dead values has values that no longer change"),
    ("cse", "loop_invariant_code_motion", "a value that is computed twice would be moved twice"),
    ("cse", "narrow_to_slices", "equal values with different slices are one value, of which both are read"),
    ("dce", "narrow_to_slices", "what reads a value for nothing reads all of it"),
    ("simplify", "sink_reshapes", "reshapes of reshapes are one"),
    ("sink_reshapes", "fold_constants", "rows that it reshapes may be constants"),
    ("sink_reshapes", "scale_weights", "factors follow the product itself then"),
    ("sink_reshapes", "fuse", "what reads a product's own axes is computed with it"),
    ("fold_constants", "scale_weights", "factors are computed of constants"),
    ("dce", "scale_weights", "a dead value would be another user of a product"),
    ("scale_weights", "fuse", "the weights are constants of their own"),
    ("dce", "prune_sorts", "an unused value of a loop may be the only user of a result"),
    ("prune_sorts", "narrow_to_slices", "what is carried along is read for nothing"),
    ("narrow_to_slices", "simplify", "slices that it adds meet broadcasts, pads and other slices"),
    ("loop_invariant_code_motion", "dce", "what it moved leaves unused values in the loop"),
    ("loop_invariant_code_motion", "parallelize_loops", "what it moved need not be computed by every part"),
    ("dce", "swap_dots", "an unused reader of a dot may be the only one that does not transpose it"),
    ("swap_dots", "simplify", "the transposes that it adds meet those of the readers"),
    ("parallelize_loops", "fuse", "it follows axes through single ops, not through fusions"),
    (
        "block_scaled_dots",
        "canonicalize_dots",
        "it looks for conversions of weights, which the dots then read",
    ),
    ("fold_constants", "whole_quads", "weights are constants then"),
    ("whole_quads", "canonicalize_dots", "bytes in quads are not converted"),
    ("canonicalize_dots", "small_dots", "operands have one type then, that of the result"),
    ("small_dots", "fuse", "what it makes of a dot becomes part of fusions"),
    ("canonicalize_dots", "fuse", "the transposes that it adds become part of fusions"),
    ("split_reductions", "fuse", "each of the two reductions gets a fusion of its own"),
    ("tabulate", "fuse", "it follows single ops; the lookups become part of fusions"),
    ("tabulate", "collapse_pads", "pads of results of tables have their operands in memory"),
    ("collapse_pads", "fuse", "the pads become part of fusions"),
    ("fuse", "share_kernels", "it compares what fusions compute"),
    ("fuse", "dce", "a fusion computes values inside itself whose own instructions are unused then"),
)
"""(first, second, reason): some run of `first` comes before some run of `second`."""

FORMER_NAMES = {
    "eliminate_common": "cse",
    "eliminate_dead": "dce",
    "lift_from_loops": "loop_invariant_code_motion",
    "resolve_dynamic_sizes": "pad_dynamic_dimensions",
    "shard_loops": "parallelize_loops",
}
"""Names of passes in older versions, which options and the command line still take."""


@dataclasses.dataclass(frozen=True)
class Step:
    """What an observer gets after each pass: its number from 1, its name, the module, and the time that it took."""

    number: int
    name: str
    module: Module
    duration_ns: int


Observer = Callable[[Step], None]


def run_pipeline(
    module: Module,
    options: Options = DEFAULT_OPTIONS,
    observer: Observer | None = None,
    passes: Sequence[Pass] = PASSES,
) -> Module:
    """The module after all passes but the disabled ones; the observer gets every step.

    >>> from tfbridge.compiler import parse_hlo, run_pipeline
    >>> text = "HloModule m\\nENTRY e { x = f32[2] parameter(0)  y = f32[2] negate(x)  ROOT z = f32[2] negate(y) }"
    >>> run_pipeline(parse_hlo(text)).entry.root.name
    'x'

    A pass that stands a second time does nothing when nothing changed since its first run: passes are
    idempotent.
    """
    results: dict[str, Module] = {}
    disabled = {FORMER_NAMES.get(name, name) for name in options.disabled_passes}
    for number, apply in enumerate(passes, 1):
        if apply.__name__ in disabled:
            continue
        budget.check(f"pass {apply.__name__}")
        start = time.perf_counter_ns()
        if results.get(apply.__name__) is not module:
            module = results[apply.__name__] = apply(module, options)
        if observer is not None:
            observer(Step(number, apply.__name__, module, time.perf_counter_ns() - start))
    return module


def verify_step(step: Step) -> None:
    """An observer that verifies the module after each pass.

    Raises: InternalError  a pass made an ill-formed module.
    """
    try:
        verify(step.module)
    except ValueError as error:
        raise InternalError(f"after pass {step.number} {step.name}: {error}") from error


def dump_step(directory: str) -> Observer:
    """An observer that writes each step as `NN_pass.hlo` into the directory."""

    def write(step: Step) -> None:
        os.makedirs(directory, exist_ok=True)
        with open(
            os.path.join(directory, f"{step.number:02}_{step.name}.hlo"), "w", encoding="utf-8"
        ) as file:
            file.write(str(step.module))

    return write


def broken_order(passes: Sequence[Pass] = CPU_PASSES) -> list[str]:
    """Every constraint of ORDER that the passes break, as a sentence."""
    names = [p.__name__ for p in passes]
    return [
        f"{first} must come before {second}: {reason}"
        for first, second, reason in ORDER
        if not (
            first in names
            and second in names
            and names.index(first) < len(names) - 1 - names[::-1].index(second)
        )
    ]
