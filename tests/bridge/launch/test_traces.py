"""Runs of compiled code, and their kernels, in the traces of TensorFlow's profiler."""

from __future__ import annotations

import collections
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf
import tfbridge
from in_threads import in_threads
from tfbridge.bridge.launch import kernel, traces

xplane_pb2 = pytest.importorskip("tensorflow.tsl.profiler.protobuf.xplane_pb2")


class Event(NamedTuple):
    """What the trace has of a run or a kernel: the name, the one piece of metadata, and when, in picoseconds."""

    name: str
    about: str
    start: int
    end: int


def events_of(folder: Path, kind: str) -> list[Event]:
    """The events of a kind in the traces of a folder."""
    events = []
    for path in folder.rglob("*.xplane.pb"):
        space = xplane_pb2.XSpace()
        space.ParseFromString(path.read_bytes())
        for plane in space.planes:
            for event in (event for line in plane.lines for event in line.events):
                name = plane.event_metadata[event.metadata_id].name
                if name.endswith(f":{kind}"):
                    (stat,) = event.stats
                    about = stat.str_value or plane.stat_metadata[stat.ref_value].name
                    start, end = event.offset_ps, event.offset_ps + event.duration_ps
                    assert start < end
                    events.append(Event(name.removesuffix(f":{kind}"), about, start, end))
    return events


def test_runs_are_in_the_trace(tmp_path: Path) -> None:
    @tfbridge.jit
    def direct(x: tf.Tensor) -> tf.Tensor:
        return tf.tanh(x) * 2.0 + tf.exp(x)

    @tf.function
    def in_a_graph(x: tf.Tensor) -> tf.Tensor:
        return tf.strings.as_string(tf.tanh(x) * 2.0 + tf.exp(x))

    x = np.ones((3, 4), np.float32)

    def call() -> None:
        direct(tf.constant(x))
        direct.native(x)
        in_a_graph(tf.constant(x))

    tfbridge.enable_auto_clustering(min_cluster_size=1)
    try:
        call()  # makes the code; its runs are in no trace
        tf.profiler.experimental.start(str(tmp_path))
        in_threads(4, lambda _: [call() for _ in range(5)])
        tf.profiler.experimental.stop()
        call()
    finally:
        tfbridge.disable_auto_clustering()
    events = events_of(tmp_path, "TfbridgeCluster")
    assert {event.about for event in events} == {"(float32[3,4])"}
    by_function = collections.Counter("direct" if "direct" in event.name else "graph" for event in events)
    assert by_function == {"direct": 40, "graph": 20}
    assert len(events_of(tmp_path, "TfbridgeKernel")) == 60


def test_kernels_are_in_the_trace(tmp_path: Path) -> None:
    @tfbridge.jit
    def step(x: tf.Tensor) -> tf.Tensor:
        with tf.name_scope("encoder"):
            x = tf.matmul(x, x, name="product")
        for _ in tf.range(3):
            x = tf.matmul(tf.tanh(x), x, name="turn")
        return x

    x = tf.ones((16, 16))
    step(x)
    tf.profiler.experimental.start(str(tmp_path))
    step(x)
    tf.profiler.experimental.stop()
    (run,) = events_of(tmp_path, "TfbridgeCluster")
    kernels = events_of(tmp_path, "TfbridgeKernel")
    names = collections.Counter(event.name for event in kernels)
    assert names["encoder/product"] == 1 and names["while/turn"] == 3, names
    ends = [run.start, *(event.end for event in kernels)]
    assert all(last <= event.start for last, event in zip(ends, kernels)) and ends[-1] <= run.end
    assert {event.about for event in kernels if event.name == "while/turn"} <= {
        kernel.name for kernel in tfbridge.explain(step, x).clusters[0].kernels
    }


def test_names_of_runs() -> None:
    f32 = tf.float32
    assert traces.trace_name("__inference_f_7", []) == b"inference_f_7:TfbridgeCluster#shapes=()#"
    many = traces.trace_name("a/b", [(f32, (2, 3)), (tf.bool, ())] + 20 * [(f32, (1,))]).decode()
    assert many.startswith("a/b:TfbridgeCluster#shapes=(float32[2,3] bool[] float32[1] ")
    assert many.count("float32[1]") == 14 and many.endswith(" ...)#")


def test_kernel_without_a_recorder() -> None:
    assert traces.available()
    (with_traces, _), (without, _) = kernel._module(True, True), kernel._module(True, False)
    assert "trace_level" in with_traces and "trace_level" not in without and "_string" not in without
