"""The functions of a .tflite file, rebuilt as TensorFlow's."""

from __future__ import annotations

import dataclasses
import functools
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from ....compiler.errors import ShapeError, UnsupportedError
from ...tf_internals import symbols as tfp
from ...tf_internals.types import ConcreteFunction
from . import control, elementwise, moves, products, recurrent, reductions, scatters, windows
from .list_updates import with_updates
from .model_file import FileGraph, FileTensor, ModelFile, Operator, Signature, read_model
from .operation import ByteForm, Operation, Value, between_forms, to_form
from .registry import TRANSLATIONS

FAMILIES = (control, elementwise, moves, products, recurrent, reductions, scatters, windows)
"""The modules of the translations, which register them when they are loaded."""
_DEFAULT = "serving_default"
_PRODUCTS = ("CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV", "FULLY_CONNECTED", "BATCH_MATMUL")
_REFUSALS = (ValueError, TypeError, AttributeError, IndexError, KeyError, tf.errors.OpError)
"""What TensorFlow raises of operands that do not fit."""
Steps = tuple[tuple[int, tuple[float, int]], ...]
"""(number, (scale, zero point)) of arguments or results whose integers q stand for (q - zero point) scale."""
Runner = Callable[[Sequence[np.ndarray], int], list[np.ndarray]]


@dataclasses.dataclass(frozen=True)
class FileFunction:
    """A function of a file.

    key: its signature; empty where the file has none. arguments, results: their names; dims: those of arguments, as the
    file has them. argument_steps, result_steps: of those that are quantised. run: LiteRT's results, of the last of a
    number of runs. keep: what must live. is_quantised: whether it computes in integers of 8 or 16 bits.
    """

    key: str
    concrete: ConcreteFunction
    arguments: tuple[str, ...]
    results: tuple[str, ...]
    dims: tuple[tuple[int, ...], ...]
    argument_steps: Steps
    result_steps: Steps
    run: Runner
    keep: object
    is_quantised: bool


def functions_of(path: str, keys: Sequence[str], form: ByteForm) -> list[FileFunction]:
    """The functions of a file for some of its signatures: `*` is for all, `serving_default` also for the only one, or
    for a file that has none.

    Raises: OSError  it cannot be read; ShapeError  it is no .tflite file, damaged, or has no such signature;
    UnsupportedError  operators that cannot be compiled, all of them listed.
    """
    model = read_model(path)
    model = dataclasses.replace(model, graphs=tuple(with_updates(graph) for graph in model.graphs))
    return [_function(path, model, signature, form) for signature in _chosen(path, model, keys)]


def _chosen(path: str, model: ModelFile, keys: Sequence[str]) -> list[Signature]:
    by_key = {signature.key: signature for signature in model.signatures}
    if list(keys) == ["*"]:
        keys = list(by_key) or [_DEFAULT]
    if list(keys) == [_DEFAULT] and _DEFAULT not in by_key:
        if len(by_key) == 1:
            return list(by_key.values())
        if not by_key:
            graph = model.graphs[0]
            inputs, outputs = (
                tuple((graph.tensors[k].name, k) for k in numbers)
                for numbers in (graph.inputs, graph.outputs)
            )
            return [Signature("", 0, inputs, outputs)]
    for key in keys:
        if key not in by_key:
            listed = ", ".join(map(repr, by_key)) or "none"
            raise ShapeError(f"{path} has no signature {key!r}; it has {listed}")
    return [by_key[key] for key in keys]


def _function(path: str, model: ModelFile, signature: Signature, form: ByteForm) -> FileFunction:
    title = Path(path).name
    graph = model.graphs[signature.graph]
    arguments, results = (
        [graph.tensors[k] for _, k in pairs] for pairs in (signature.inputs, signature.outputs)
    )
    for tensor in arguments:
        if tensor.dtype is None:
            raise UnsupportedError(
                f"{title}: argument {tensor.name} is of {tensor.type_name}, no array of numbers"
            )
    translation = _Translation(title, model, form)
    translation.check(signature.graph)

    def run(*tensors: tf.Tensor) -> list[tf.Tensor]:
        return translation.function(signature.graph, arguments, results, tensors)

    specs = [
        tf.TensorSpec(t.open_dims, t.dtype, _scope(name)) for t, (name, _) in zip(arguments, signature.inputs)
    ]
    traced = tfp.new_function(run, autograph=False)
    concrete = traced.get_concrete_function(*specs)
    is_quantised = any(
        t.quantization is not None and t.value is None for g in model.graphs for t in g.tensors
    )
    return FileFunction(
        signature.key,
        concrete,
        tuple(name for name, _ in signature.inputs),
        tuple(name for name, _ in signature.outputs),
        tuple(tensor.dims for tensor in arguments),
        _steps(arguments),
        _steps(results),
        _LiteRT(model, signature, is_quantised),
        (traced, translation),
        is_quantised,
    )


def _steps(tensors: Sequence[FileTensor]) -> Steps:
    return tuple((k, step) for k, tensor in enumerate(tensors) if (step := _step(tensor)))


def _step(tensor: FileTensor) -> tuple[float, int] | None:
    kind = tensor.quantization
    if kind is None or not kind.is_whole or tensor.dtype is None or tensor.dtype.kind not in "iu":
        return None
    return float(kind.scales[0]), int(kind.zero_points[0])


class _LiteRT:
    """The interpreter's results of a signature; of integers, those of its reference kernels."""

    def __init__(self, model: ModelFile, signature: Signature, is_quantised: bool) -> None:
        self._content, self._signature = model.content, signature
        kinds = tf.lite.experimental.OpResolverType
        self._kernels = kinds.BUILTIN_REF if is_quantised else kinds.AUTO

    def __call__(self, arrays: Sequence[np.ndarray], runs: int) -> list[np.ndarray]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of its other home, a package that may be missing
            interpreter = tf.lite.Interpreter(
                model_content=self._content, num_threads=1, experimental_op_resolver_type=self._kernels
            )
        signature = self._signature
        if signature.graph:
            runner = interpreter.get_signature_runner(signature.key)
            named = {name: array for (name, _), array in zip(signature.inputs, arrays)}
            for _ in range(runs):
                results = runner(**named)
            return [results[name] for name, _ in signature.outputs]
        for (_, number), array in zip(signature.inputs, arrays):
            interpreter.resize_tensor_input(number, array.shape)
        interpreter.allocate_tensors()
        for _ in range(runs):
            for (_, number), array in zip(signature.inputs, arrays):
                interpreter.set_tensor(number, array)
            interpreter.invoke()
        return [interpreter.get_tensor(number) for _, number in signature.outputs]


class _Translation:
    """The translation of a file's graphs. `variables`: tensors that outlive a run, by graph and number."""

    def __init__(self, title: str, model: ModelFile, form: ByteForm) -> None:
        self.title, self.model, self.form = title, model, form
        self.variables: dict[tuple[int, int], tf.Variable] = {}

    def check(self, number: int) -> None:
        """Raises: UnsupportedError  operators that have no translation, all of them listed."""
        unknown = []
        for reached in sorted(self._reached(number)):
            graph = self.model.graphs[reached]
            unknown += [
                f"{operator.name} ({_title(graph, operator.outputs)})"
                for operator in graph.operators
                if operator.name not in TRANSLATIONS
            ]
        self._refuse(unknown)

    def _refuse(self, failures: Sequence[str]) -> None:
        if failures:
            raise UnsupportedError(
                "\n".join([f"{self.title}: these ops cannot be compiled:", *(f"  {f}" for f in failures)])
            )

    def _reached(self, number: int, inside: tuple[int, ...] = ()) -> set[int]:
        """The graph and those that it calls. Raises: ShapeError  one of them is missing, or calls itself."""
        if number in inside:
            raise ShapeError(f"{self.title} is damaged: graph {number} calls itself")
        reached = {number}
        for operator in self.model.graphs[number].operators:
            for called in control.called_graphs(operator):
                if not 0 <= called < len(self.model.graphs):
                    raise ShapeError(f"{self.title} is damaged: {operator.name} calls graph {called}")
                reached |= self._reached(called, (*inside, number))
        return reached

    def function(
        self,
        number: int,
        arguments: Sequence[FileTensor],
        results: Sequence[FileTensor],
        tensors: Sequence[tf.Tensor],
    ) -> list[tf.Tensor]:
        """Results of a graph for arguments, both of the file's types."""
        values: dict[int, tf.Tensor | None] = {}
        for tensor, argument in zip(arguments, tensors, strict=True):
            values[tensor.number] = between_forms(argument, self.form.dtype) if tensor.is_bytes else argument
        self._run(number, values)
        stored = [self._stored(tensor, values) for tensor in results]
        return [
            tf.identity(between_forms(x, tf.as_dtype(tensor.dtype)) if tensor.is_bytes else x)
            for x, tensor in zip(stored, results)
        ]

    def _stored(self, tensor: FileTensor, values: Mapping[int, tf.Tensor | None]) -> tf.Tensor:
        """A result of a graph as it is stored: what an operator computed, an argument or a constant."""
        stored = values.get(tensor.number)
        if stored is not None:
            return stored
        if tensor.value is None:
            raise ShapeError(f"{self.title} is damaged: nothing computes {tensor.name}")
        return tf.constant(to_form(tensor.value, self.form) if tensor.is_bytes else tensor.value)

    def call(self, number: int, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Results of a graph for arguments, both as they are stored."""
        graph = self.model.graphs[number]
        if len(graph.inputs) != len(tensors):
            raise ShapeError(f"{self.title} is damaged: graph {number} has {len(graph.inputs)} arguments")
        values: dict[int, tf.Tensor | None] = dict(zip(graph.inputs, tensors))
        self._run(number, values)
        return [self._stored(graph.tensors[k], values) for k in graph.outputs]

    def variable(self, graph: int, tensor: FileTensor) -> tf.Variable:
        """The variable of a tensor that outlives a run, which begins as zero."""
        key = (graph, tensor.number)
        if key not in self.variables:
            if tensor.dtype is None:
                raise UnsupportedError(f"{tensor.name} is a variable of {tensor.type_name}")
            with tf.init_scope():
                zero = np.zeros(tensor.dims, tensor.dtype)
                self.variables[key] = tf.Variable(zero, name=_scope(tensor.name))
        return self.variables[key]

    def _run(self, number: int, values: dict[int, tf.Tensor | None]) -> None:
        """Adds the results of all operators to the values; None: of those that cannot be computed.

        Raises: UnsupportedError  operators that cannot be compiled as they are, all of them listed.
        """
        graph, failures = self.model.graphs[number], []
        constants: dict[int, np.ndarray] = {}
        unstored: dict[int, tf.Tensor] = {}
        near = _read_in_same_kernel(graph)
        for operator in graph.operators:
            if self._folds(graph, operator, constants):
                continue
            if any(k in values and values[k] is None for k in operator.inputs):
                values.update(dict.fromkeys(operator.outputs))
                continue
            operands = [
                self._operand(graph, operator, k, constants, values, unstored) for k in operator.inputs
            ]
            results = [graph.tensors[k] for k in operator.outputs]
            operation = Operation(
                operator, operands, results, self.form, self.call, functools.partial(self.variable, number)
            )
            title = f"{operator.name} ({_title(graph, operator.outputs)})"
            try:
                with tf.name_scope(_scope(results[0].name if results else operator.name)):
                    computed = self._results(operation)
            except UnsupportedError as error:
                if self.title in str(error):  # of a graph that is called
                    raise
                failures.append(f"{title}: {error}")
                values.update(dict.fromkeys(operator.outputs))
                continue
            except _REFUSALS as error:
                first = str(error).strip().partition("\n")[0] or type(error).__name__
                raise ShapeError(f"{self.title}: {title}: {first}") from error
            for k, result in zip(operator.outputs, computed, strict=True):
                values[k] = result
                if k in near and result.ref() in operation.unstored:
                    unstored[k] = operation.unstored[result.ref()]
        self._refuse(failures)

    def _operand(
        self,
        graph: FileGraph,
        operator: Operator,
        number: int,
        constants: Mapping[int, np.ndarray],
        values: Mapping[int, tf.Tensor | None],
        unstored: Mapping[int, tf.Tensor],
    ) -> Value | None:
        """A tensor as an operand; None: it is left out."""
        if number < 0:
            return None
        tensor = graph.tensors[number]
        if number in constants:
            tensor = dataclasses.replace(tensor, value=constants[number])
        if number not in values and tensor.value is None and not tensor.is_variable:
            raise ShapeError(
                f"{self.title} is damaged: nothing computes {tensor.name} before {operator.name}"
            )
        return Value(tensor, values.get(number), unstored.get(number))

    @staticmethod
    def _folds(graph: FileGraph, operator: Operator, constants: dict[int, np.ndarray]) -> bool:
        """Whether an operator makes numbers of a constant, which are added to the constants."""
        if operator.name != "DEQUANTIZE" or len(operator.inputs) != 1 or len(operator.outputs) != 1:
            return False
        tensor = graph.tensors[operator.inputs[0]]
        result = graph.tensors[operator.outputs[0]]
        if tensor.value is None or result.dtype != np.float32 or operator.outputs[0] in graph.outputs:
            return False
        kind = tensor.quantization
        constants[result.number] = (
            tensor.value.astype(np.float32) if kind is None else kind.numbers(tensor.value)
        )
        return True

    def _results(self, operation: Operation) -> list[tf.Tensor]:
        """Results of an operator as they are stored."""
        for tensor in (*(v.tensor for v in operation.operands if v is not None), *operation.results):
            if tensor.dtype is None:
                raise UnsupportedError(f"{tensor.name} is of {tensor.type_name}")
        translation = TRANSLATIONS[operation.name]
        results = translation.function(operation)
        listed = [results] if tf.is_tensor(results) else list(results)
        if len(listed) != len(operation.results):
            raise ShapeError(
                f"there are {len(operation.results)} results in the file, {len(listed)} are computed"
            )
        if translation.stores:
            return listed
        return [operation.store(result, k) for k, result in enumerate(listed)]


def _read_in_same_kernel(graph: FileGraph) -> set[int]:
    """The tensors that elementwise operators alone read, with no product between their maker and these."""
    made: dict[int, int] = {}
    near: set[int] = set()
    products_before = 0
    for operator in graph.operators:
        is_elementwise = operator.name in TRANSLATIONS and TRANSLATIONS[operator.name].is_elementwise
        products_before += operator.name in _PRODUCTS
        for k in operator.inputs:
            if not is_elementwise or made.get(k) != products_before:
                near.discard(k)
        made.update(dict.fromkeys(operator.outputs, products_before))
        near.update(operator.outputs)
    return near - set(graph.outputs)


def _title(graph: FileGraph, outputs: Sequence[int]) -> str:
    return ", ".join(graph.tensors[k].name for k in outputs) or "no result"


def _scope(name: str) -> str:
    """A tensor's name as TensorFlow allows names: of several fused ones the first."""
    text = re.sub(r"[^A-Za-z0-9_./-]", "_", name.partition(";")[0]).strip("/") or "tensor"
    return text if re.match(r"[A-Za-z0-9.]", text) else f"tensor{text}"
