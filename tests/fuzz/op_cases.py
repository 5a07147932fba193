"""Cases of operands that ops do not allow, made from the table of ops, and what running one gives.

A case is the text of a program that defines `arguments` and `function`. `python -m fuzz.op_cases` is the process that
answers with TensorFlow's outcomes of the cases that it is given.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import os
import pickle
import random
import re
import sys
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tfbridge

from .operand_mutations import mutations

_ROWS = Path(__file__).parents[1] / "bridge" / "translate"
sys.path.append(str(_ROWS))

from op_row import TABLE, TYPE, Content, Given, Known, Random, Row, has_kernel, op_function  # noqa: E402

# Ops of which TensorFlow's kernels end the process, never end, or use memory that is not theirs, for some operands.
_UNSAFE = frozenset(
    {
        "BlockLSTM",
        "BlockLSTMV2",
        "BlockLSTMGrad",
        "BlockLSTMGradV2",
        "LSTMBlockCell",
        "LSTMBlockCellGrad",
        "MaxPoolGradWithArgmax",
        "CropAndResizeGradBoxes",
        "FusedPadConv2D",
        "FusedResizeAndPadConv2D",
        "RandomIndexShuffle",
    }
)
# Ops whose name begins so: of empty operands TensorFlow's results have other shapes, or values that nobody wrote.
_WITHOUT_EMPTY_OPERANDS = ("Conv", "DepthwiseConv", "RFFT", "IRFFT")
_THREE_FRY = (
    "first=2"  # the number of an algorithm of random ops: it is compiled, TensorFlow leaves it to XLA
)
_MODES = ("arguments", "known", "constants")  # what is an argument: all, what the row draws, nothing
_MOST_ELEMENTS = 1000
_TOLERANCE = 2e-2  # the table's tests are about accuracy

Outcome = list[np.ndarray] | str
"""Results, or the type of the error with its message."""


@functools.cache
def _rows() -> dict[str, list[Row]]:
    """The rows by op, of ops that can be called and have a kernel."""
    for file in sorted(_ROWS.glob("rows_*.py")):
        importlib.import_module(file.stem)
    found: dict[str, list[Row]] = {}
    for line in TABLE:
        attrs_are_plain = all(
            isinstance(v, bool | int | float | str | bytes | list | tuple | tf.DType) or v is TYPE
            for v in line.attrs.values()
        )
        if (
            line.reference is None
            and hasattr(tf.raw_ops, line.op)
            and line.op not in _UNSAFE
            and attrs_are_plain
            and line.inputs
            and any(has_kernel(line.op, t) for t in line.types)
        ):
            found.setdefault(line.op, []).append(line)
    return found


@dataclasses.dataclass(frozen=True)
class _Leaf:
    """An array among the inputs. kind: "data" of the row, "known" when compiling, a variable's "content"."""

    array: np.ndarray
    kind: str
    type: str


def case_of(seed: int) -> str:
    """The case of a seed; successive ones go through the ops."""
    ops = sorted(_rows())
    random.Random(0).shuffle(ops)
    draw = random.Random(seed)
    op = ops[seed % len(ops)]
    lines = [line for line in _rows()[op] if any(has_kernel(op, t) for t in line.types)]
    for line in draw.sample(lines, len(lines)):
        type_ = next(t for t in line.types if has_kernel(op, t))
        leaves, attrs, mode = _leaves(line, type_), dict(line.attrs), draw.choice(_MODES)
        if sum(leaf.array.size for leaf in leaves) > _MOST_ELEMENTS and line is not lines[0]:
            continue
        changes = [(k, what, array) for k, leaf in enumerate(leaves) for what, array in mutations(leaf.array)]
        if op.startswith(_WITHOUT_EMPTY_OPERANDS):
            changes = [change for change in changes if change[2].size]
        names = list(inspect.signature(op_function(op)).parameters)
        if op == "AdjustHue":  # TensorFlow's kernel takes the sector of a hue that is NaN, as an int of C++
            changes = [change for change in changes if np.isfinite(change[2]).all()]
        if "alg" in names:  # its operands are no lists: each has one leaf
            algorithm = names.index("alg")
            changes = [change for change in changes if change[:2] != (algorithm, _THREE_FRY)]
        changes += [(-1, name, other) for name, value in attrs.items() for other in _attributes(value)]
        if not changes:
            continue
        number, what, other = draw.choice(changes)
        if number < 0:
            attrs[what] = other
            what = f"{what} is {other!r}"
        else:
            leaves[number] = dataclasses.replace(leaves[number], array=other)
            what = f"input {number}: {what}"
        return f"# {op}, {what}, {mode}\n{_source(line, type_, leaves, attrs, mode)}"
    return _source(
        lines[0], lines[0].types[0], _leaves(lines[0], lines[0].types[0]), dict(lines[0].attrs), "known"
    )


def _attributes(value: Any) -> Sequence[Any]:
    """Other values of an attribute."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [-1, 0, value + 1, value - 1, -7, 77]
    if isinstance(value, list | tuple) and value and all(type(v) is int for v in value):
        return [
            value[:-1],
            [*value, value[-1]],
            [-1, *value[1:]],
            [*value[:-1], 0],
            [*value[:-1], 77],
            [v + 1 for v in value],
            [],
        ]
    return [-1.0, 0.0] if isinstance(value, float) else []


def _leaves(line: Row, type_: str) -> list[_Leaf]:
    """The arrays of a row, in order."""
    generator = np.random.default_rng(zlib.crc32(line.op.encode()))
    leaves: list[_Leaf] = []

    def visit(spec: Any) -> None:
        if isinstance(spec, list):
            for s in spec:
                visit(s)
        elif isinstance(spec, Random | Given):
            leaves.append(_Leaf(spec.draw(type_, generator), "data", spec.type or type_))
        elif isinstance(spec, Content):
            leaves.append(_Leaf(spec.start.draw(type_, generator), "content", spec.start.type or type_))
        else:
            known = isinstance(spec, Known)
            given = tf.as_dtype((spec.type or type_) if known else np.asarray(spec).dtype)
            array = np.asarray(spec.values if known else spec, given.as_numpy_dtype)
            leaves.append(_Leaf(array, "known", given.name))

    for spec in line.inputs:
        visit(spec)
    return leaves


def _source(line: Row, type_: str, leaves: Sequence[_Leaf], attrs: dict[str, Any], mode: str) -> str:
    """The text of a program."""
    arguments: list[str] = []
    variables: list[str] = []
    rest = iter(leaves)

    def text(spec: Any) -> str:
        if isinstance(spec, list):
            return f"[{', '.join(map(text, spec))}]"
        leaf = next(rest)
        value = word = _constant(leaf)
        if leaf.kind == "content":
            variables.append(value)
            return f"v{len(variables) - 1}.handle"
        if mode == "arguments" or mode == "known" and leaf.kind == "data":
            word = f"a{len(arguments)}"
            arguments.append(value)
        return f"tf.bitcast({word}, tf.{leaf.type})" if leaf.type.startswith("q") else word

    given = [
        f"{name}={text(spec)}"
        for name, spec in zip(inspect.signature(op_function(line.op)).parameters, line.inputs)
    ]
    values = {name: tf.as_dtype(type_) if v is TYPE else v for name, v in attrs.items()}
    given += [
        f"{name}=tf.{v.name}" if isinstance(v, tf.DType) else f"{name}={v!r}" for name, v in values.items()
    ]
    names = ", ".join(f"a{k}" for k in range(len(arguments)))
    made = "".join(f"v{k} = tf.Variable({v}, shape=tf.TensorShape(None))\n" for k, v in enumerate(variables))
    listed = "".join(f"    {a},\n" for a in arguments)
    compared = "" if line.outputs is None else f"[:{line.outputs}]"
    results = "".join(f", v{k}.read_value()" for k in range(len(variables)))
    return (
        f"from numpy import inf, nan\nimport tensorflow as tf\n{made}arguments = [\n{listed}]\n\n\n"
        f"def function({names}):\n    result = tf.raw_ops.{line.op}({', '.join(given)})\n"
        f"    return result{compared}{results}\n"
    )


def _constant(leaf: _Leaf) -> str:
    type_ = leaf.type.removeprefix("q")
    values = leaf.array.ravel()
    if tf.as_dtype(type_).is_floating:
        values = values.astype(np.float64)
    return f"tf.constant({values.tolist()!r}, tf.{type_}, {list(leaf.array.shape)!r})"


# -- outcomes


def outcome(source: str, engine: str) -> Outcome:
    """What a case does: "eager", as a "function", by the decorator ("jit"), as a function under the "flag"."""
    names: dict[str, Any] = {}
    try:
        exec(compile(source, "<case>", "exec"), names)
        function, arguments = names["function"], names["arguments"]
        if engine != "eager":
            specs = [tf.TensorSpec(None, a.dtype) for a in arguments]
            function = tf.function(function, input_signature=specs, autograph=False)
        if engine == "jit":
            function = tfbridge.jit(function)
        return [_array(t) for t in tf.nest.flatten(function(*arguments)) if isinstance(t, tf.Tensor)]
    except Exception as error:
        lines = [line for line in str(error).split("\n\t")[0].splitlines() if line.strip()]
        return f"{type(error).__name__}: {(lines or [''])[-1][-200:]}"


def _array(tensor: tf.Tensor) -> np.ndarray:
    name = tensor.dtype.name
    return tf.bitcast(tensor, tf.as_dtype(name[1:])).numpy() if name.startswith("q") else tensor.numpy()


def words(found: Outcome) -> str:
    """An outcome, for people."""
    return (
        found
        if isinstance(found, str)
        else ", ".join(f"{a.dtype}{list(a.shape)} {a.ravel()[:6]}" for a in found)
    )


def is_same(one: Outcome, other: Outcome) -> bool:
    """Whether two outcomes are errors of one type, or results that are nearly equal."""
    if isinstance(one, str) or isinstance(other, str):
        return isinstance(one, str) and isinstance(other, str) and one.split(":")[0] == other.split(":")[0]
    return len(one) == len(other) and all(map(_is_like, one, other))


def _is_like(a: np.ndarray, b: np.ndarray) -> bool:
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype.kind in "iubSO":
        return bool(np.array_equal(a, b))
    if a.dtype.kind == "c":
        return _is_like(a.real, b.real) and _is_like(a.imag, b.imag)
    return bool(
        np.allclose(a.astype(np.float64), b.astype(np.float64), _TOLERANCE, _TOLERANCE, equal_nan=True)
    )


def broken(reasons: Iterable[str]) -> str:
    """The first of the reasons for ops that are not compiled that is another error than a translation may raise."""
    wrong = re.compile(r"(?!ShapeError|UnsupportedError)\w*(?:Error|Exception): ")
    return next((reason for reason in reasons if wrong.match(reason)), "")


def _answer() -> None:
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    while True:
        try:
            source = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        answers.write(pickle.dumps([outcome(source, engine) for engine in ("eager", "function")]))


if __name__ == "__main__":
    _answer()
