"""The benchmark's engines for inference alone: each converts a program ahead of time and is called on NumPy arrays.

They are optional (`pip install 'tfbridge[bench]'`), and imported when used.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from ...bridge.tf_internals.symbols import with_constant_variables
from ..program import Program

Function = Callable[..., list[np.ndarray]]
Start = Callable[[], Function]
ONNX_OPSET = 18


def _exported(program: Program) -> tuple[tf.Module, Any]:
    """A module and its function with inputs argument_0, argument_1, ... and outputs result_000, result_001, ..."""

    def call(*argument: tf.Tensor) -> dict[str, tf.Tensor]:
        results = tf.nest.flatten(program.function(*argument))
        return {f"result_{k:03}": tf.identity(value) for k, value in enumerate(results)}

    signature = [
        tf.TensorSpec(spec.shape, spec.dtype, f"argument_{k}") for k, spec in enumerate(program.specs)
    ]
    module = tf.Module()
    module.variables_of_program = program.captured
    module.call = tf.function(call, input_signature=signature)
    return module, module.call.get_concrete_function()


def _saved(program: Program, folder: Path) -> str:
    module, concrete = _exported(program)
    tf.saved_model.save(module, str(folder), signatures=concrete)
    return str(folder)


def _number(name: str) -> int:
    """The number in `argument_7` and `result_007`, whatever a converter has put around it."""
    for word in ("argument_", "result_"):
        if word in name:
            return int(name.partition(word)[2].partition(":")[0].partition("/")[0])
    raise ValueError(f"{name} is neither an argument nor a result")


def _in_order(names: list[str]) -> list[int]:
    """Where the names numbered 0, 1, ... stand."""
    return sorted(range(len(names)), key=lambda at: _number(names[at]))


def openvino(program: Program, threads: int) -> Start:
    """OpenVINO in f32, tuned for latency, sharing the caller's memory."""
    sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]  # nothing is reported to anybody
    import openvino as ov

    with tempfile.TemporaryDirectory() as folder:
        model = ov.convert_model(_saved(program, Path(folder)))
    settings = {
        "INFERENCE_PRECISION_HINT": "f32",
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": threads,
    }

    def start() -> Function:
        compiled = ov.Core().compile_model(model, "CPU", settings)
        requests = threading.local()  # one request serves one call at a time
        inputs = [_number(port.get_any_name()) for port in compiled.inputs]
        outputs = _in_order([port.get_any_name() for port in compiled.outputs])

        def call(*arrays: np.ndarray) -> list[np.ndarray]:
            if not hasattr(requests, "request"):
                requests.request = compiled.create_infer_request()
            results = requests.request.infer(
                [arrays[k] for k in inputs], share_inputs=True, share_outputs=True
            )
            return [results[at] for at in outputs]

        return call

    return start


def onnxruntime(program: Program, threads: int) -> Start:
    """ONNX Runtime on the model that tf2onnx makes."""
    import onnxruntime as ort
    import tf2onnx

    _, concrete = _exported(program)
    frozen = with_constant_variables(concrete)
    results = [tensor.name for tensor in frozen.outputs]
    model, _ = tf2onnx.convert.from_graph_def(
        frozen.graph.as_graph_def(),
        input_names=[tensor.name for tensor in frozen.inputs],
        output_names=results,
        opset=ONNX_OPSET,
        custom_op_handlers={"Erfc": (_erfc, [])},
    )
    data = model.SerializeToString()
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads

    def start() -> Function:
        session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        inputs = {_number(i.name): i.name for i in session.get_inputs()}

        def call(*arrays: np.ndarray) -> list[np.ndarray]:
            return session.run(results, {name: arrays[k] for k, name in inputs.items()})

        return call

    return start


def _erfc(context: Any, node: Any, name: str, args: object) -> None:
    """Writes erfc, which ONNX has not, as 1 - erf."""
    dtype = context.get_dtype(node.input[0])
    erf = context.make_node("Erf", [node.input[0]])
    one = context.make_const(f"{node.name}_one", np.array(1, np.float32))
    shape, outputs = context.get_shape(node.output[0]), node.output
    context.remove_node(node.name)
    context.make_node("Sub", [one.output[0], erf.output[0]], outputs=outputs, shapes=[shape], dtypes=[dtype])


def litert(program: Program, threads: int) -> Start:
    """LiteRT, TensorFlow Lite's successor, with its XNNPACK kernels."""
    from ai_edge_litert.interpreter import Interpreter

    module, concrete = _exported(program)
    content = tf.lite.TFLiteConverter.from_concrete_functions([concrete], module).convert()

    def start() -> Function:
        interpreter = Interpreter(model_content=content, num_threads=threads)
        interpreter.allocate_tensors()
        inputs = [(_number(detail["name"]), detail["index"]) for detail in interpreter.get_input_details()]
        runner = interpreter.get_signature_runner()
        outputs = [detail["index"] for _, detail in sorted(runner.get_output_details().items())]

        def call(*arrays: np.ndarray) -> list[np.ndarray]:
            for k, index in inputs:
                interpreter.set_tensor(index, arrays[k])
            interpreter.invoke()
            return [interpreter.get_tensor(index) for index in outputs]

        return call

    return start
