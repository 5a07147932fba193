"""The passes over a module, in their order: this table is the page to read."""

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
from .cse import eliminate_common
from .dce import eliminate_dead
from .fold_constants import fold_constants
from .inline_calls import inline_calls
from .simplify import simplify

Pass = Callable[[Module, Options], Module]

PASSES: tuple[Pass, ...] = (
    inline_calls,
    simplify,
    fold_constants,
    eliminate_common,
    eliminate_dead,
    inline_calls,
    simplify,
    fold_constants,
    eliminate_common,
    inline_calls,
)
"""Passes that hold for every platform. A pass may stand more than once; it is left out by its function's
name."""

ORDER: tuple[tuple[str, str, str], ...] = (
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
    ("simplify", "eliminate_common", "equal values are often spelled in different ways before"),
    ("eliminate_dead", "simplify", "a loop without its dead values has values that no longer change"),
)
"""(first, second, why): some run of `first` comes before some run of `second`."""


@dataclasses.dataclass(frozen=True)
class Step:
    """What an observer is told after each pass: its number from 1, its name, what it made, how long it
    took."""

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
    """The module after all passes that the options do not leave out; the observer sees every step.

    A pass that stands a second time does nothing when nothing changed since its first run: passes are
    idempotent.
    """
    made: dict[str, Module] = {}
    for number, apply in enumerate(passes, 1):
        if apply.__name__ in options.disabled_passes:
            continue
        budget.check(f"pass {apply.__name__}")
        start = time.perf_counter_ns()
        if made.get(apply.__name__) is not module:
            module = made[apply.__name__] = apply(module, options)
        if observer is not None:
            observer(Step(number, apply.__name__, module, time.perf_counter_ns() - start))
    return module


def verify_step(step: Step) -> None:
    """An observer that verifies what each pass made.

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


def broken_order(passes: Sequence[Pass] = PASSES) -> list[str]:
    """Every constraint of ORDER that the passes break, as a sentence."""
    names = [p.__name__ for p in passes]
    return [
        f"{first} must come before {second}: {why}"
        for first, second, why in ORDER
        if not (
            first in names
            and second in names
            and names.index(first) < len(names) - 1 - names[::-1].index(second)
        )
    ]
