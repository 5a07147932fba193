"""Where the time of a compiled function goes: a run of its code with counters, kernel by kernel."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from ...compiler.errors import UnsupportedError
from ...compiler.ir.shape import Shape
from ...runtime.code.artifact import Artifact
from ...runtime.code.executable import Executable
from ...runtime.profiler import Event
from ..cluster.cluster import Cluster
from ..cluster.cluster_compiler import compile_cluster
from ..tf_internals import symbols as tfp
from ..tf_internals.dtypes import element_type
from .jit import Jit


@dataclasses.dataclass(frozen=True)
class KernelProfile:
    """What the kernels of a function did in `runs` runs, loops counted as often as they ran.

    Units: per run; `flops` and `bytes` as of KernelRecord, `footprint_bytes` is all memory that the code works on.
    """

    artifact: Artifact
    events: tuple[Event, ...]
    runs: int

    @property
    def flops(self) -> float:
        return sum(e.kernel.flops * e.calls for e in self.events) / self.runs

    @property
    def bytes(self) -> float:
        return sum(e.kernel.bytes * e.calls for e in self.events) / self.runs

    @property
    def footprint_bytes(self) -> int:
        buffers = (*self.artifact.parameters, *self.artifact.results)
        return sum(b.bytes for b in buffers) + self.artifact.temp_bytes + len(self.artifact.constants)


def profile(function: Jit, *args: object, runs: int = 5) -> KernelProfile:
    """Runs the code of a function for these arguments with counters; variables keep their values.

    Raises: UnsupportedError  part of the function runs in TensorFlow.
    """
    concrete = function.get_concrete_function(*args)
    cluster = function.direct_cluster(concrete)
    if cluster is None:
        raise UnsupportedError("profile: part of the function runs in TensorFlow")
    arguments = [*tfp.flat_arguments(function.traced, concrete, args, {}), *concrete.captured_inputs]
    return profile_cluster(cluster, arguments, runs)


def profile_cluster(cluster: Cluster, arguments: Sequence[tf.Tensor], runs: int) -> KernelProfile:
    """As `profile`, of a cluster with the arguments of its function: tensors, and handles of variables."""
    arrays, shapes = [], []
    for k in cluster.launch_arguments:
        data_type = cluster.arguments[k].data_type
        value = arguments[k]
        if value.dtype == tf.resource:
            value = tfp.read_variable(value, tf.as_dtype(data_type))
        type_ = element_type(data_type)
        if type_ is None:
            raise UnsupportedError(f"profile: argument {k} is no array")
        arrays.append(np.asarray(value.numpy()))
        shapes.append(Shape(type_, arrays[-1].shape))
    compiled = compile_cluster(cluster, shapes, {at: arrays[at] for at in cluster.launch_constants})
    if compiled is None:
        raise UnsupportedError("profile: the function does not compile for these arguments")
    executable = Executable(compiled.artifact, profile=True, code=compiled)
    assert executable.profile is not None
    executable.execute(arrays)
    executable.profile.reset()
    for _ in range(runs):
        executable.execute(arrays)
    return KernelProfile(compiled.artifact, tuple(executable.profile.events()), runs)
