"""Post-training quantisation of TensorFlow functions: calibration sets, and functions that run in integers."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ...compiler.analysis.quads import SMALL
from ...compiler.client.platforms import Compiled, native
from ...compiler.errors import ShapeError, UnsupportedError
from ...compiler.ir.element_types import ElementType
from ...compiler.ir.module import Module
from ...compiler.ir.shape import Shape
from ...compiler.options import DEFAULT_OPTIONS
from ...compiler.quantization.calibration import State
from ...compiler.quantization.options import (
    BLOCK_SIZE,
    FEW_TABULATED_ELEMENTS,
    METHODS,
    TABULATED_ELEMENTS,
    WEIGHTS,
    QuantizationOptions,
)
from ...compiler.quantization.quantize import quantize
from ...compiler.quantization.report import QuantizationReport
from ...runtime.llvm.target import Target
from ...runtime.threads import python_settings
from .changing_sizes import SizedFunction
from .freeze import Feeds, Frozen, Function, freeze
from .tflite.operation import ByteForm

FEWEST_SAMPLES = 4
_TOLERANCE = 0.05  # where rounding differs between machines, an integer differs by one
Calibration = str | os.PathLike[str] | Mapping[str, object] | Iterable[object]


@python_settings.compiling()
def quantize_function(
    function: object,
    *args: object,
    calibration: Calibration | None = None,
    quantize: str = "int8",
    calibration_method: str = "mse",
    keep_float: Sequence[str] = (),
    block_size: int = BLOCK_SIZE,
    signature: str | Sequence[str] = "serving_default",
    feeds: Feeds | None = None,
) -> QuantizedFunction:
    """A function whose layers are quantised, to be called here.

    Arguments as `compile` takes them. The function is frozen: it reads the variables as they are now. Its `report` says
    what quantisation changed on the calibration set.

    >>> import numpy as np
    >>> import tensorflow as tf
    >>> import tfbridge
    >>> weights = tf.constant(np.random.default_rng(0).normal(size=(16, 4)).astype(np.float32))
    >>> samples = np.random.default_rng(1).normal(size=(100, 16)).astype(np.float32)
    >>> spec = tf.TensorSpec((1, 16), tf.float32, "x")
    >>> small = tfbridge.aot.quantize(lambda x: x @ weights, spec, calibration={"x": samples})
    >>> small(samples[:1]).shape
    TensorShape([1, 4])
    >>> print(str(small.report).splitlines()[0])
    1 layers in int8, 0 in f32; 100 samples

    Raises: as `compile`; ShapeError  a function that writes variables, or several functions.
    """
    targets = [native().target(DEFAULT_OPTIONS)]
    frozen = freeze(function, args, signature, feeds or {}, byte_form(targets))
    if len(frozen.functions) != 1 or frozen.states:
        raise ShapeError(
            f"{frozen.name}: one function without state is wanted here; `compile` exports others"
        )
    options = options_for(targets, quantize, calibration_method, keep_float, block_size)
    quantized, (report,) = quantize_frozen(frozen, calibration, options)
    return QuantizedFunction(quantized.functions[0], report)


class QuantizedFunction:
    """A function in integers. `report` says what that changes on the calibration set."""

    def __init__(self, function: Function, report: QuantizationReport) -> None:
        self.report = report
        self._results = function.results
        self._shapes = _module(function).entry.parameter_shapes
        self._result_shapes = list(_module(function).entry.root.shape.leaves())
        self._compiled: Compiled = native().compile(_module(function), DEFAULT_OPTIONS)

    def __call__(self, *arguments: object) -> Any:
        """Tensors of results, by name where they have names, for tensors or arrays; inside a tf.function too."""
        tensors = [
            tf.ensure_shape(tf.convert_to_tensor(a, s.element_type.dtype), s.dims)
            for a, s in zip(tf.nest.flatten(arguments), self._shapes, strict=True)
        ]
        types = [shape.element_type.dtype for shape in self._result_shapes]
        results = tf.nest.flatten(tf.numpy_function(self._run, tensors, types, stateful=False))
        for tensor, shape in zip(results, self._result_shapes, strict=True):
            tensor.set_shape(shape.dims)
        if all(self._results):
            return dict(zip(self._results, results, strict=True))
        return results[0] if len(results) == 1 else tuple(results)

    def _run(self, *arrays: np.ndarray) -> list[np.ndarray]:
        return [np.array(result) for result in self._compiled.execute(arrays)]


def quantize_frozen(
    frozen: Frozen, calibration: Calibration | None, options: QuantizationOptions
) -> tuple[Frozen, list[QuantizationReport]]:
    """The quantised functions of a model, and of each what that changes.

    Raises: ValueError  no calibration set, and the scheme needs one; UnsupportedError  sizes that change.
    """
    functions, reports = [], []
    if calibration is None and options.scheme not in WEIGHTS:
        raise ValueError(f"quantize: {options.scheme!r} needs a calibration set")
    no_samples: list[list[list[np.ndarray]]] = [[] for _ in frozen.functions]
    sets = no_samples if calibration is None else _calibration_sets(frozen, calibration)
    for function, samples in zip(frozen.functions, sets, strict=True):
        states: list[State] = [
            (parameter, result, frozen.states[number].value)
            for parameter, number in function.state_arguments
            for result, written in function.state_results
            if written == number
        ]
        unwritten = {p for p, _ in function.state_arguments} - {p for p, _, _ in states}
        states += [
            (p, None, frozen.states[number].value) for p, number in function.state_arguments if p in unwritten
        ]
        module, report = quantize(
            _module(function), samples, native(), options, states, len(function.results)
        )
        reports.append(report)
        runs = _Runs(native().compile(module, DEFAULT_OPTIONS), len(function.results), states)
        functions.append(dataclasses.replace(function, module=module, expected=runs))
    return dataclasses.replace(frozen, functions=tuple(functions), tolerance=_TOLERANCE), reports


def byte_form(targets: Sequence[Target]) -> ByteForm:
    """The form of bytes of a model for some targets of one architecture."""
    options = options_for(targets, "int8", METHODS[0], (), BLOCK_SIZE)
    return ByteForm(tf.as_dtype(options.activations.dtype), options.kernels_by_output)


def options_for(
    targets: Sequence[Target], scheme: str, method: str, keep_float: Sequence[str], block_size: int
) -> QuantizationOptions:
    """The options of a model for some targets of one architecture.

    Raises: ValueError  a scheme or a method that there is not, or blocks of no rows.
    """
    activations = ElementType.U8 if targets[0].is_x86 else ElementType.S8
    # Sums of two products of 8 bits are made in 16 where an instruction does only that.
    largest_weight = SMALL if any(target.byte_products == "pairs" for target in targets) else 127
    by_output = all(target.byte_products == "mve" for target in targets)
    has_vectors = all(target.vector_bytes > 4 for target in targets)
    return QuantizationOptions(
        scheme,
        method,
        tuple(keep_float),
        block_size,
        activations,
        largest_weight,
        by_output,
        TABULATED_ELEMENTS if has_vectors else FEW_TABULATED_ELEMENTS,
    )


class _Runs:
    """Results of a quantised function, of the last of several runs that begin with the first state."""

    def __init__(self, compiled: Compiled, results: int, states: Sequence[State]) -> None:
        self.compiled, self.results, self.states = compiled, results, states

    def __call__(self, arrays: Sequence[np.ndarray], runs: int) -> list[np.ndarray]:
        now = {parameter: value for parameter, _, value in self.states}
        for _ in range(runs):
            rest = iter(arrays)
            count = len(arrays) + len(now)
            arguments = [now[k] if k in now else next(rest) for k in range(count)]
            results = [np.array(result) for result in self.compiled.execute(arguments)]
            now.update(
                {parameter: results[result] for parameter, result, _ in self.states if result is not None}
            )
        return results[: self.results]


def _module(function: Function) -> Module:
    """Raises: UnsupportedError  a function of sizes that change."""
    if isinstance(function.module, SizedFunction):
        raise UnsupportedError(
            f"quantize: {function.name or 'the function'} has sizes that change; give whole shapes"
        )
    return function.module


# -- calibration sets


def _calibration_sets(frozen: Frozen, calibration: Calibration) -> list[list[list[np.ndarray]]]:
    """Samples for each function: lists of arguments."""
    if isinstance(calibration, str | os.PathLike):
        with np.load(calibration, allow_pickle=False) as file:
            calibration = {name: file[name] for name in file.files}
    if not isinstance(calibration, Mapping):
        if len(frozen.functions) != 1:
            raise ShapeError(
                "calibration: of several functions arrays are given by name, such as decode/tokens"
            )
        (function,) = frozen.functions
        return [_checked(function, [_sample(function, one) for one in calibration])]
    if len(frozen.functions) == 1:
        return [_checked(frozen.functions[0], _rows(frozen.functions[0], calibration))]
    sets = []
    for function in frozen.functions:
        prefix = f"{function.name}/"
        own = {n.removeprefix(prefix): a for n, a in calibration.items() if n.startswith(prefix)}
        sets.append(_checked(function, _rows(function, own)))
    return sets


def _shapes(function: Function) -> list[Shape]:
    states = {parameter for parameter, _ in function.state_arguments}
    shapes = _module(function).entry.parameter_shapes
    return [shape for k, shape in enumerate(shapes) if k not in states]


def _sample(function: Function, sample: object) -> list[np.ndarray]:
    """The arguments of one sample: a mapping by name, or arrays in order."""
    if isinstance(sample, Mapping):
        _check_names(function, sample)
        sample = [sample[name] for name in function.arguments]
    return [np.asarray(array) for array in tf.nest.flatten(sample)]


def _rows(function: Function, arrays: Mapping[str, object]) -> list[list[np.ndarray]]:
    """Samples from one array for each argument: a sample to a row, or as many rows as the argument's first dim."""
    _check_names(function, arrays)
    columns = []
    for name, shape in zip(function.arguments, _shapes(function), strict=True):
        array, dims = np.asarray(arrays[name]), shape.dims
        if array.shape[1:] == dims:
            columns.append(list(array))
        elif dims and array.ndim == len(dims) and array.shape[1:] == dims[1:] and dims[0]:
            count = len(array) // dims[0]
            columns.append(list(array[: count * dims[0]].reshape(count, *dims)))
        else:
            raise ShapeError(
                f"calibration: {name} is {list(array.shape)}; samples of {list(dims)} one after the other are wanted, "
                f"such as {[100, *dims]}"
            )
    counts = {len(column) for column in columns}
    if len(counts) > 1:
        listed = ", ".join(f"{len(c)} of {n}" for n, c in zip(function.arguments, columns))
        raise ShapeError(f"calibration: the numbers of samples differ: {listed}")
    return [list(row) for row in zip(*columns)]


def _check_names(function: Function, arrays: Mapping[str, object]) -> None:
    if set(arrays) != set(function.arguments):
        expected, actual = (", ".join(map(repr, sorted(names))) for names in (function.arguments, arrays))
        raise ShapeError(f"calibration: arrays are named {actual or 'nothing'}; {expected} are wanted")


def _checked(function: Function, samples: list[list[np.ndarray]]) -> list[list[np.ndarray]]:
    if len(samples) < FEWEST_SAMPLES:
        raise ShapeError(
            f"calibration: {len(samples)} samples; ranges need {FEWEST_SAMPLES} or more, better a hundred"
        )
    for number, sample in enumerate(samples):
        for name, array in zip(function.arguments, sample):
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                raise ShapeError(f"calibration: {name} of sample {number} has NaN or infinity")
    return samples
