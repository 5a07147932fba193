"""Rows of the table of ops, and how a row is run: compiled in one cluster, and by TensorFlow's own kernel.

A row names an op, its inputs in order, its attributes and the element types that it is tried for. An input is drawn
(`Random`), given as data (`Given`), the content of a variable (`Content`), a list of these, or a plain value: that one
is a constant of the function.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tfbridge
from tensorflow.compiler.tf2xla.ops import gen_xla_ops
from tensorflow.python.framework import kernels, op_def_library, op_def_registry
from tfbridge.bridge.tf_internals.dtypes import element_type
from tfbridge.runtime.llvm.target import host

FLOATS = "float32 float64 float16 bfloat16"
WIDE_FLOATS = "float32 float64"
SIGNED = "int8 int16 int32 int64"
UNSIGNED = "uint8 uint16 uint32 uint64"
INTEGERS = f"{SIGNED} {UNSIGNED}"
COMPLEXES = "complex64 complex128"
REALS = f"{FLOATS} {INTEGERS}"
NUMBERS = f"{REALS} {COMPLEXES}"
# A result of one operation that is rounded once, twice.
_TOLERANCE = {
    "float16": 2e-3,
    "bfloat16": 1.6e-2,
    "float32": 1e-5,
    "float64": 1e-11,
    "complex64": 1e-5,
    "complex128": 1e-11,
}
TYPE = object()  # stands for the row's element type among the attributes


@dataclasses.dataclass(frozen=True)
class Random:
    """Data drawn anew for every type: floats in [low, high), integers in low..high. `type` None: the row's."""

    dims: tuple[int, ...]
    low: float = -2.5
    high: float = 2.5
    type: str | None = None

    def draw(self, type_: str, random: np.random.Generator) -> np.ndarray:
        """An array of a type; of a quantized one its integers."""
        dtype = tf.as_dtype((self.type or type_).removeprefix("q"))
        if dtype == tf.bool:
            return random.integers(0, 2, self.dims).astype(bool)
        if dtype.is_integer:
            low = max(self.low, 0) if dtype.is_unsigned else self.low
            return random.integers(int(low), max(int(self.high), int(low)) + 1, self.dims).astype(
                dtype.as_numpy_dtype
            )
        drawn = random.uniform(self.low, self.high, self.dims)
        if dtype.is_complex:
            drawn = drawn + 1j * random.uniform(self.low, self.high, self.dims)
        return drawn.astype(dtype.as_numpy_dtype)


@dataclasses.dataclass(frozen=True)
class Given:
    """Data with these values; `type` None: the row's."""

    values: Any
    type: str | None = None

    def draw(self, type_: str, random: np.random.Generator) -> np.ndarray:
        """The array in a type; of a quantized one its integers."""
        return np.array(self.values, tf.as_dtype((self.type or type_).removeprefix("q")).as_numpy_dtype)


@dataclasses.dataclass(frozen=True)
class Known:
    """A constant of a type; `type` None: the row's."""

    values: Any
    type: str | None = None


@dataclasses.dataclass(frozen=True)
class Content:
    """A variable with this content at the start."""

    start: Random | Given


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table. `tolerance` is relative and absolute, for f32; other types get it in proportion."""

    op: str
    inputs: tuple[Any, ...]
    types: tuple[str, ...]
    attrs: dict[str, Any]
    tolerance: float
    outputs: int | None = None  # how many outputs are compared; None: all
    reference: Callable[..., Any] | None = (
        None  # what to compare with where TensorFlow has no kernel for CPUs
    )


def xla() -> None:
    """As a row's reference: compare with XLA, the only one to have the op."""


TABLE: list[Row] = []


def row(
    ops: str,
    *inputs: Any,
    types: str = FLOATS,
    tolerance: float = 1e-5,
    outputs: int | None = None,
    reference: Callable[..., Any] | None = None,
    **attrs: Any,
) -> None:
    """Adds a row for each of the ops."""
    TABLE.extend(
        Row(op, inputs, tuple(types.split()), attrs, tolerance, outputs, reference) for op in ops.split()
    )


@dataclasses.dataclass
class Run:
    """A row for one type: what the function is given, and the op applied to it."""

    row: Row
    type: str
    data: list[np.ndarray]
    variables: list[np.ndarray]

    def apply(
        self, data: Sequence[tf.Tensor], variables: Sequence[tf.Variable], expected: bool = False
    ) -> list[tf.Tensor]:
        """The op's outputs (`expected`: the reference's), then the contents of its variables."""
        tensors, contents = iter(data), iter(variables)

        def value(spec: Any) -> Any:
            if isinstance(spec, list):
                return [value(s) for s in spec]
            if isinstance(spec, Random | Given):
                type_ = spec.type or self.type
                return (
                    tf.bitcast(next(tensors), tf.as_dtype(type_)) if type_.startswith("q") else next(tensors)
                )
            if isinstance(spec, Content):
                return next(contents).handle
            if isinstance(spec, Known):
                return tf.constant(spec.values, tf.as_dtype(spec.type or self.type))
            return tf.constant(spec) if isinstance(spec, np.ndarray) else spec

        function = op_function(self.row.op)
        given = {
            name: value(spec) for name, spec in zip(inspect.signature(function).parameters, self.row.inputs)
        }
        attrs = {k: tf.as_dtype(self.type) if v is TYPE else v for k, v in self.row.attrs.items()}
        if expected and self.row.reference is xla:
            result = tf.function(lambda: function(**given, **attrs), jit_compile=True)()
        elif expected and self.row.reference:
            result = self.row.reference(*given.values())
        else:
            result = function(**given, **attrs)
        flat = [] if result is None or isinstance(result, tf.Operation) else tf.nest.flatten(result)
        return [*flat[: self.row.outputs], *(v.read_value() for v in variables)]


def op_function(op: str) -> Callable[..., Any]:
    """The function that makes a node of the op. Those of the Xla ops have their own module and names; some ops have
    none."""
    if not hasattr(tf.raw_ops, op) and not op.startswith("Xla"):
        return _without_function(op)
    if op.startswith("Xla"):
        return getattr(gen_xla_ops, re.sub(r"(?<!^)([A-Z])", r"_\1", op).lower())
    return getattr(tf.raw_ops, op)


def _without_function(op: str) -> Callable[..., Any]:
    """Makes a node of an op in the graph of the function that is being traced, or of one for it alone."""

    def function(**given: Any) -> Any:
        if tf.executing_eagerly():
            return tf.function(lambda: function(**given))()
        return op_def_library._apply_op_helper(op, name=op.lstrip("_"), **{**defaults, **given})[2].outputs

    inputs, attrs = op_def_registry.get(op).input_arg, op_def_registry.get(op).attr
    counts = {a.number_attr for a in inputs}
    defaults = {}
    for a in attrs:
        if a.HasField("default_value") and "type" not in a.type and a.name not in counts:
            kind = a.default_value.WhichOneof("value")
            defaults[a.name] = [] if kind == "list" else getattr(a.default_value, kind)
    function.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(a.name, inspect.Parameter.KEYWORD_ONLY) for a in inputs]
    )
    return function


@functools.cache
def _kernels(op: str) -> Sequence[Any]:
    return kernels.get_registered_kernels_for_op(op).kernel


def has_kernel(op: str, type_: str) -> bool:
    """Whether TensorFlow has a kernel of the op for CPUs with this element type (its attribute T or dtype)."""
    wanted = tf.as_dtype(type_).as_datatype_enum
    attr = next((a for a in op_def_registry.get(op).attr if a.name in ("T", "dtype")), None)
    if attr is not None and attr.HasField("allowed_values") and wanted not in attr.allowed_values.list.type:
        return False
    for kernel in _kernels(op):
        if kernel.device_type == "CPU":
            bounds = [
                c.allowed_values.list.type
                for c in kernel.constraint
                if attr is not None and c.name == attr.name
            ]
            if all(wanted in b for b in bounds):
                return True
    return False


def types_without_a_row(op: str, allowed: Collection[Any] | None) -> list[str]:
    """Of the types that TensorFlow has a kernel for and the translation takes, those that no row of the op is for."""
    attr = next(
        (a for a in op_def_registry.get(op).attr if a.name in ("T", "dtype") and a.type == "type"), None
    )
    rows = {type_ for line in TABLE if line.op == op for type_ in line.types}
    return (
        []
        if attr is None
        else [
            type_
            for type_ in f"{NUMBERS} bool".split()
            if type_ not in rows
            and has_kernel(op, type_)
            and (allowed is None or element_type(tf.as_dtype(type_).as_datatype_enum) in allowed)
        ]
    )


def _leaves(inputs: Sequence[Any]) -> Iterator[Any]:
    """The inputs that are drawn, in order."""
    for spec in inputs:
        if isinstance(spec, list):
            yield from _leaves(spec)
        elif isinstance(spec, Random | Given | Content):
            yield spec


def _drawn(
    spec: Random | Given | Content, type_: str, random: np.random.Generator
) -> tuple[np.ndarray, bool]:
    """(array, whether it is a variable's content)."""
    if isinstance(spec, Content):
        return spec.start.draw(type_, random), True
    return spec.draw(type_, random), False


def runs(op: str, rows: Sequence[Row] | None = None) -> list[Run]:
    """All rows of an op (or these), for all their types, with their data drawn."""
    random = np.random.default_rng(zlib.crc32(op.encode()))
    made = []
    for line in [r for r in TABLE if r.op == op] if rows is None else rows:
        for type_ in (t for t in line.types if line.reference or has_kernel(op, t)):
            drawn = [_drawn(spec, type_, random) for spec in _leaves(line.inputs)]
            data = [array for array, is_variable in drawn if not is_variable]
            variables = [array for array, is_variable in drawn if is_variable]
            made.append(Run(line, type_, data, variables))
    return made


def _is_fused_for_onednn(op: str) -> bool:
    """Whether an op may lack a kernel: TensorFlow uses oneDNN's fused ones on processors with AVX-512 only."""
    return op.startswith(("_Fused", "_Mkl")) and "+avx512bw" not in host().features.split(",")


def check(op: str, wanted: Sequence[Run] | None = None) -> None:
    """Compares the compiled rows of an op with TensorFlow's kernel."""
    lines, expected = [], []
    for run in runs(op) if wanted is None else wanted:
        try:
            expected.append(
                run.apply(list(map(tf.constant, run.data)), list(map(tf.Variable, run.variables)), True)
            )
            lines.append(run)
        except tf.errors.OpError:
            if not _is_fused_for_onednn(op):
                raise
    if not lines:
        pytest.skip("TensorFlow has no kernel for it on this processor")
    variables = [[tf.Variable(v) for v in run.variables] for run in lines]
    compiled = tfbridge.jit(_together(lines, variables), strict=True)
    tfbridge.reset_stats()
    given = compiled(*[tf.constant(d) for run in lines for d in run.data])
    counters = tfbridge.stats()
    assert counters["fallbacks"] == 0, "\n".join(map(str, counters["ops_left_out"]))
    flat = iter(given)
    for run, outputs in zip(lines, expected, strict=True):
        for k, output in enumerate(outputs):
            _compare(
                f"{op}, {run.type}, {run.row.inputs}, output {k}", run, next(flat).numpy(), output.numpy()
            )


def _together(
    lines: Sequence[Run], variables: Sequence[Sequence[tf.Variable]]
) -> Callable[..., list[tf.Tensor]]:
    @tf.autograph.experimental.do_not_convert  # a row has no Python control flow, and there are many
    def function(*tensors: tf.Tensor) -> list[tf.Tensor]:
        rest = iter(tensors)
        results = []
        for run, contents in zip(lines, variables):
            results += run.apply([next(rest) for _ in run.data], contents)
        return results

    return function


def _compare(what: str, run: Run, given: np.ndarray, expected: np.ndarray) -> None:
    assert given.dtype == expected.dtype, what
    assert given.shape == expected.shape, what
    name = tf.as_dtype(given.dtype).name
    if name not in _TOLERANCE:
        np.testing.assert_array_equal(given, expected, what)
        return
    tolerance = max(run.row.tolerance * _TOLERANCE[name] / _TOLERANCE["float32"], _TOLERANCE.get(run.type, 0))
    wide = np.complex128 if name.startswith("complex") else np.float64
    np.testing.assert_allclose(given.astype(wide), expected.astype(wide), tolerance, tolerance, err_msg=what)
