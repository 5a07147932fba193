"""Random TensorFlow programs, compiled and plain: with loops, branches, lists and variables; by the decorator, under
the flag, with gradients, in sessions that are fed."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import tensorflow as tf
import tfbridge

from ..part import LINES, Difference, Part
from ..tf_programs import Case, Program, array, draw_case, evaluate, parsed_case

v1 = tf.compat.v1
# The decorator, with gradients; the flag, with gradients; sessions, with a feed in the middle.
MODES = ("jit", "jit_gradient", "flag", "flag_gradient", "session", "session_fed")
_TOLERANCES = {"DT_HALF": 2e-2, "DT_BFLOAT16": 1e-1, "DT_FLOAT": 2e-4, "DT_DOUBLE": 1e-7}
_PERTURBATION = 1e-6


Runner = Callable[[Case, Program, Sequence[np.ndarray]], list[np.ndarray]]


def _called(wrap: Callable[[Callable[..., Any]], Callable[..., Any]], has_gradient: bool) -> Runner:
    """The results of two calls, the gradients of the second, and the variables after them."""

    def run(case: Case, program: Program, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        variables = [tf.Variable(array(*v)) for v in case.variables]
        arguments = [tf.constant(a) for a in arrays]
        function = wrap(lambda *given: tuple(evaluate(program, given, variables)))
        results = list(function(*arguments))
        sources = [s for s in (*arguments, *variables) if s.dtype.is_floating] if has_gradient else []
        with tf.GradientTape() as tape:
            tape.watch(sources)
            again = function(*arguments)
            loss = tf.add_n(
                [
                    tf.constant(0.0),
                    *(tf.reduce_sum(tf.tanh(tf.cast(r, tf.float32))) for r in again if r.dtype.is_floating),
                ]
            )
        gradients = tape.gradient(loss, sources) if sources else []
        return [
            tf.convert_to_tensor(r).numpy()
            for r in (*results, *again, *gradients, *variables)
            if r is not None
        ]

    return run


def _in_session(is_fed: bool) -> Runner:
    """The results of two runs of one session, the second with one more tensor fed, and the variables after them."""

    def run(case: Case, program: Program, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        with tf.Graph().as_default(), v1.Session() as session:
            variables = [
                v1.get_variable(f"v{k}", initializer=array(*v), use_resource=True)
                for k, v in enumerate(case.variables)
            ]
            holders = [v1.placeholder(a.dtype, a.shape) for a in arrays]
            values: dict[int, Any] = {}
            results = evaluate(program, holders, variables, values)
            session.run(v1.global_variables_initializer())
            feeds: dict[Any, Any] = dict(zip(holders, arrays))
            found = session.run(results, feeds)
            if is_fed:
                number = random.Random(str(program)).choice([k for k in values if k >= len(holders)] or [0])
                value = session.run(values[number], feeds)
                feeds[values[number]] = (value // 2 if value.dtype.kind in "iu" else value * 0.5).astype(
                    value.dtype
                )
            found += session.run(results, feeds)
            return [np.asarray(v) for v in (*found, *session.run(variables))]

    return run


def _flagged(runner: Runner) -> Runner:
    def run(case: Case, program: Program, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        tfbridge.enable_auto_clustering(min_cluster_size=1)
        try:
            return runner(case, program, arrays)
        finally:
            tfbridge.disable_auto_clustering()

    return run


def _runners(mode: str) -> tuple[Runner, Runner]:
    """(plain TensorFlow's, the compiled one) for a mode."""
    if mode.startswith("session"):
        plain = _in_session(mode == "session_fed")
        return plain, _flagged(plain)
    has_gradient = mode.endswith("_gradient")
    plain = _called(tf.function, has_gradient)
    return plain, _called(tfbridge.jit, has_gradient) if mode.startswith("jit") else _flagged(plain)


class _Graphs(Part):
    suffix = ".txt"
    units = (LINES,)
    memory_mib = 32768
    seconds = 60.0
    quick = 6

    def make(self, seed: int) -> str:
        return str(draw_case(seed, MODES[seed % len(MODES)]))

    def check(self, text: str) -> str:
        try:
            case = parsed_case(text)
        except (ValueError, KeyError, IndexError):
            return "rejected"
        plain, compiled = _runners(case.mode)
        arrays = [array(*a) for a in case.arguments]
        try:
            wanted = plain(case, case.program, arrays)
        except Exception:  # whatever TensorFlow says of a program that it does not run
            return "rejected"
        got = compiled(case, case.program, arrays)
        if [g.dtype for g in got] != [w.dtype for w in wanted] and not case.mode.startswith("session"):
            # TensorFlow's optimizers lose values of some loops: an empty float32 is in their place.
            with _eagerly():
                wanted = plain(case, case.program, arrays)
        tolerance = _tolerance(case, arrays)
        if not _difference(got, wanted, [np.zeros(())] * len(wanted), tolerance):
            return "agreed"
        if message := _difference(got, wanted, _spread(plain, case, arrays, wanted), tolerance):
            raise Difference(message)
        return "agreed within rounding errors"


PART = _Graphs()


@contextlib.contextmanager
def _eagerly() -> Iterator[None]:
    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(False)


def _tolerance(case: Case, arrays: Sequence[np.ndarray]) -> float:
    """That of the coarsest type of the program's values, those within loops and branches, too."""
    variables = [tf.Variable(array(*v)) for v in case.variables]
    traced = tf.function(lambda *given: tuple(evaluate(case.program, given, variables)))
    graph = str(traced.get_concrete_function(*map(tf.constant, arrays)).graph.as_graph_def())
    return max((t for name, t in _TOLERANCES.items() if f"type: {name}" in graph), default=0.0)


def _spread(
    runner: Runner, case: Case, arrays: Sequence[np.ndarray], wanted: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """How far rounding errors of the arguments move TensorFlow's results; infinity where they change a shape."""
    spread = [np.zeros(w.shape) for w in wanted]
    for seed in range(4):
        moved = runner(case, case.program, [_perturbed(a, seed) for a in arrays])
        with np.errstate(all="ignore"):
            spread = [
                np.fmax(s, np.abs(_real(m) - _real(w))) if m.shape == w.shape else np.full(w.shape, np.inf)
                for s, m, w in zip(spread, moved, wanted)
            ]
    return spread


def _perturbed(values: np.ndarray, seed: int) -> np.ndarray:
    if values.dtype.kind in "biu":
        return values
    size = max(_PERTURBATION, float(ml_dtypes.finfo(values.dtype).eps))
    noise = np.random.default_rng(seed).uniform(-1, 1, values.shape) * size
    return (_real(values) * (1 + noise)).astype(values.dtype)


def _real(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float64)


def _difference(
    got: Sequence[np.ndarray],
    wanted: Sequence[np.ndarray],
    spread: Sequence[np.ndarray],
    tolerance: float,
) -> str:
    """How results differ; empty if they agree within rounding errors and what the program makes of them."""
    if len(got) != len(wanted):
        return f"{len(got)} results, TensorFlow has {len(wanted)}"
    for k, (g, w, s) in enumerate(zip(got, wanted, spread)):
        if g.dtype != w.dtype or g.shape != w.shape:
            return f"result {k} is {g.dtype}{g.shape}, TensorFlow's {w.dtype}{w.shape}"
        a, b = _real(g), _real(w)
        with np.errstate(all="ignore"):
            allowed = (tolerance if w.dtype.kind not in "biu" else 0.0) * (np.abs(b) + 1.0) + 100 * s
            bad = ~((a == b) | (np.abs(a - b) <= allowed) | (np.isnan(a) & np.isnan(b)))
        if bad.any():
            at = tuple(int(i) for i in np.argwhere(bad)[0])
            return f"result {k} {w.dtype}{w.shape} at {at}: {g[at]}, TensorFlow's {w[at]}; {int(bad.sum())} differ"
    return ""
