"""A module compiled and run against the evaluator, within bounds on its size and time."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
from agreement import difference, leaves, nested
from builders import argmax
from random_graphs import values
from tfbridge.compiler import LocalClient
from tfbridge.compiler.errors import CompilerError, InternalError
from tfbridge.compiler.evaluator.evaluate import evaluate
from tfbridge.compiler.ir.module import Computation, Instruction, Module
from tfbridge.compiler.ops import (
    Cholesky,
    Compare,
    Constant,
    CustomCall,
    Infeed,
    LuDecomposition,
    Nonzero,
    Op,
    Outfeed,
    Parameter,
    Recv,
    Reduce,
    ReduceWindow,
    Rng,
    Scatter,
    SelectAndScatter,
    SelfAdjointEig,
    Send,
    Sort,
    TriangularSolve,
)
from tfbridge.compiler.ops.reduce import reducer_kind
from tfbridge.compiler.options import DEFAULT_OPTIONS, Options

from .part import Difference

_UNSPECIFIED = (Cholesky, LuDecomposition, Nonzero, SelfAdjointEig, TriangularSolve)
"""Ops whose results on such arguments are not defined, or as far apart as the inverse of a matrix is large."""
_MOST_BYTES = 4 << 20
_EVALUATOR_SECONDS = 2.0
_NOT_RUN = (CustomCall, Infeed, Outfeed, Recv, Send, Rng)
"""Ops that wait for another device, call what is not there, or draw other numbers in each run."""


class TooLong(BaseException):
    """The evaluator takes longer than it may: the program, not a defect."""


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raises TooLong where what is inside takes longer."""

    def ring(*_: Any) -> None:
        raise TooLong

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def rejected(error: CompilerError) -> str:
    """The word for an error that the compiler raised on purpose. Raises: InternalError  it says that it is a bug."""
    if isinstance(error, InternalError):
        raise error
    return "rejected"


def compiled_and_compared(
    module: Module, options: Options = DEFAULT_OPTIONS, ulps: float = 1e-9, seed: int = 0
) -> str:
    """Compiles a module and runs it on small whole numbers; a word for what happened.

    `ulps`: how far results may be from the evaluator's, in units of the last place of the largest result.
    Raises: Difference.
    """
    try:
        executable = LocalClient("cpu").compile(module, options)
    except CompilerError as error:
        return rejected(error)
    instructions = [i for c in module.computations() for i in c.instructions]
    size = sum(leaf.bytes for i in instructions for leaf in i.shape.leaves())
    devices = executable.num_replicas * executable.num_partitions
    if size > _MOST_BYTES or devices > 1 or any(isinstance(i.op, _NOT_RUN) for i in instructions):
        return "compiled"
    rng = np.random.default_rng(seed)
    shapes = [leaf for p in module.entry.parameter_shapes for leaf in p.leaves() if leaf.is_array]
    arguments = [values(shape, rng) for shape in shapes]
    try:
        with limited(_EVALUATOR_SECONDS), np.errstate(all="ignore"):
            wanted = leaves(evaluate(module, nested(module.entry.parameter_shapes, arguments)))
    except TooLong:
        return "compiled"
    except CompilerError as error:
        return rejected(error)
    found = executable.execute(arguments)
    if len(found) != len(wanted):
        raise Difference(f"{len(found)} results, the evaluator has {len(wanted)}")
    if ulps >= 1 and not all(map(_is_defined, instructions)):
        return "ran"
    for number, (f, w) in enumerate(zip(found, wanted)):
        scale = _largest(w) if ulps >= 1 else 0.0
        if message := difference(f, w, ulps, scale):
            raise Difference(f"result {number} {message}")
    return "agreed"


def _is_defined(instruction: Instruction) -> bool:
    """Whether the result does not depend on an order that is not specified: of a reduction, a scatter or a sort."""
    op = instruction.op
    if isinstance(op, Sort):
        root = op.to_apply.root
        return (
            isinstance(root.op, Compare)
            and root.op.direction in ("LT", "GT")
            and len(set(root.operands)) == 2
            and all(isinstance(o.op, Parameter) and o.op.number < 2 for o in root.operands)
            and (root.operands[0].shape.element_type.is_integer or _is_moved(instruction.operands[0]))
        )
    combine = getattr(op, "scatter" if isinstance(op, SelectAndScatter) else "to_apply", None)
    if isinstance(op, (Reduce, ReduceWindow, Scatter, SelectAndScatter)):
        kinds = {t.value for i in combine.parameters if not (t := i.shape.element_type).is_complex}
        return reducer_kind(combine) is not None or _form(combine) in [_form(argmax(kind)) for kind in kinds]
    return not isinstance(op, _UNSPECIFIED)


def _form(computation: Computation) -> list[tuple[Op, list[int], str]]:
    """A computation without names."""
    position = {i: k for k, i in enumerate(computation.instructions)}
    return [(i.op, [position[o] for o in i.operands], str(i.shape)) for i in computation.instructions]


def _is_moved(key: Instruction) -> bool:
    """Whether elements are a parameter's, which are no NaN: a comparison with one orders nothing."""
    while key.op.is_index_map and key.operands:
        key = key.operands[0]
    return isinstance(key.op, Parameter | Constant)


def _largest(array: np.ndarray) -> float:
    if array.dtype.kind in "biu" or not array.size:
        return 0.0
    sizes = np.abs(array if array.dtype.kind == "c" else array.astype(np.float64))
    return float(np.max(sizes[np.isfinite(sizes)], initial=0.0))
