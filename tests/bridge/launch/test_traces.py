"""Runs of compiled code in the traces of TensorFlow's profiler."""

from __future__ import annotations

import collections
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tfbridge
from in_threads import in_threads
from tfbridge.bridge.launch import kernel, traces

xplane_pb2 = pytest.importorskip("tensorflow.tsl.profiler.protobuf.xplane_pb2")


def events_of(folder: Path) -> collections.Counter[tuple[str, str]]:
    """How often each event of a cluster is in the traces of a folder: its name and its shapes."""
    events: collections.Counter[tuple[str, str]] = collections.Counter()
    for path in folder.rglob("*.xplane.pb"):
        space = xplane_pb2.XSpace()
        space.ParseFromString(path.read_bytes())
        for plane in space.planes:
            for event in (event for line in plane.lines for event in line.events):
                name = plane.event_metadata[event.metadata_id].name
                stats = {plane.stat_metadata[stat.metadata_id].name: stat for stat in event.stats}
                if name.endswith(":TfbridgeCluster"):
                    assert event.duration_ps > 0
                    shapes = stats["shapes"]
                    text = shapes.str_value or plane.stat_metadata[shapes.ref_value].name
                    events[name.removesuffix(":TfbridgeCluster"), text] += 1
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
    events = events_of(tmp_path)
    assert {shapes for _, shapes in events} == {"(float32[3,4])"}
    by_function = collections.Counter(
        "direct" if "direct" in name else "graph" for name, _ in events.elements()
    )
    assert by_function == {"direct": 40, "graph": 20}


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
