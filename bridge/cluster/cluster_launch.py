"""What the launch op asks of a cluster: code for a key, the run of the original nodes, a benchmark, notices."""

from __future__ import annotations

import functools
import logging
import weakref
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from ...compiler.errors import UnsupportedError
from ...compiler.ir.shape import Shape
from ...runtime import statistics
from ...runtime.code import disk_cache
from ...runtime.code.executable import Executable
from ...runtime.threads import background
from ..launch import cluster_registry
from ..launch import op as launch_op
from ..launch.compiled_code import CompiledCode, InputSpec
from ..launch.launch_site import Background
from ..tf_internals.dtypes import element_type
from . import cost_guard, original_nodes
from .cluster import Cluster
from .cluster_compiler import (
    bound_variant,
    compile_cluster,
    generalize_cluster,
    is_cached,
    recompile_with_larger_lists,
    specialize_cluster,
    too_many_constants,
    wants_variant,
)
from .code_cache import MAX_KEYS, bounded, listed
from .code_key import code_key

_fallbacks = logging.getLogger("tfbridge.fallbacks")
_MAX_BAILOUT_REASONS = 64
_Compile = Callable[[Cluster, Sequence[Shape], Mapping[int, np.ndarray]], Executable | None]


def register(cluster: Cluster) -> None:
    """Makes a cluster known to the launch op."""
    launch_op.register_cluster(
        cluster.key,
        functools.partial(_compile_for_launch, cluster, compile_cluster),
        functools.partial(original_nodes.run_in_tensorflow, cluster),
        [cluster.arguments[k].name for k in cluster.launch_arguments],
        guard=functools.partial(_is_faster, cluster) if cluster.options.cost_guard else None,
        recompile=functools.partial(_compile_for_launch, cluster, recompile_with_larger_lists),
        on_evicted=functools.partial(_forget, cluster),
        on_unused=functools.partial(_close, cluster),
        on_bailout=functools.partial(_note_bailout, cluster),
        background=Background(
            lambda is_first: cluster.is_strict or cluster.options.in_foreground(is_first),
            cluster.options.background_share / 100,
            functools.partial(_is_ready, cluster),
            cluster.served,
            lambda: cluster.options.symbolic_sizes and cluster.may_vary,
            functools.partial(_may_specialize, cluster),
            functools.partial(_wants_variant, cluster),
            functools.partial(_compile_for_launch, cluster, generalize_cluster),
            functools.partial(_compile_for_launch, cluster, specialize_cluster),
            functools.partial(_note_request, cluster),
            functools.partial(_note_published, cluster),
        ),
    )


def prepare(cluster: Cluster) -> Callable[[list[tf.Tensor]], list[tf.Tensor]]:
    """A function from the launch arguments to the results, then the new values of variables to assign.

    Raises: UnsupportedError  strings or variants go in or out, even where nothing is computed with them.
    """
    register(cluster)
    try:
        run = launch_op.prepare(
            cluster.key, *cluster.launch_types, cluster.launch_constants, cluster.launch_variables
        )
    except TypeError as error:
        raise UnsupportedError(str(error)) from error
    weakref.finalize(run, cluster_registry.release, cluster.key).atexit = False
    return run


def _compile_for_launch(
    cluster: Cluster,
    compile: _Compile,
    inputs: list[InputSpec],
    constants: dict[int, np.ndarray],
) -> CompiledCode | None:
    """The code for inputs of these types and dims; None: TensorFlow runs the nodes."""
    shapes = _shapes(inputs)
    if len(shapes) < len(inputs):
        return None
    executable = compile(cluster, shapes, constants)
    if executable is None:
        return None
    is_first = len(cluster.code.executables) == 1 and executable.artifact.symbolic is None
    if is_first and not background.is_here():
        _prepare_for_new_shapes(cluster)
    updates = cluster.launch_variables.updates
    first = len(cluster.result_types) - len(updates)
    results = executable.artifact.results
    same_dims = {
        first + k: at for k, at in enumerate(updates) if tuple(results[first + k].dims) == inputs[at][1]
    }
    return CompiledCode.of(
        executable,
        [tf.as_dtype(t) for t in cluster.result_types],
        forward=same_dims,
        runs_before_benchmark=_runs_before_benchmark(cluster, executable),
    )


def _prepare_for_new_shapes(cluster: Cluster) -> None:
    """Has the run in TensorFlow planned in the background, which serves calls of new shapes until they have code."""
    if cluster.expects_code and cluster.may_vary:
        work, share = (
            functools.partial(original_nodes.prepare, cluster),
            cluster.options.background_share / 100,
        )
        background.process.request(background.Request(cluster.key, b"", work, background.PAYS, share))


def _close(cluster: Cluster) -> None:
    background.process.cancel(cluster.key)
    cluster.close()


def _is_ready(
    cluster: Cluster, is_first: bool, inputs: list[InputSpec], constants: dict[int, np.ndarray]
) -> bool:
    """Whether it is known what becomes of these inputs; for the first ones, also whether the disk cache has code."""
    shapes = _shapes(inputs)
    key = code_key(shapes, constants)
    if len(shapes) < len(inputs) or key in cluster.code.executables or cluster.code.reason(key):
        return True
    if bound_variant(cluster, key) is not None:
        return True
    return is_first and is_cached(cluster, shapes, constants)


def _may_specialize(cluster: Cluster, inputs: list[InputSpec], constants: dict[int, np.ndarray]) -> bool:
    """Whether calls with these shapes had few values of constants so far, or code for symbolic sizes may serve more."""
    shapes = _shapes(inputs)
    key = code_key(shapes, constants)
    if not wants_variant(cluster, key) and too_many_constants(cluster, key, shapes, constants):
        return False
    cluster.code.note_call(key)
    return True


def _wants_variant(cluster: Cluster, inputs: list[InputSpec], constants: dict[int, np.ndarray]) -> bool:
    """Whether there is to be code for symbolic sizes, because these are other shapes than came before."""
    shapes = _shapes(inputs)
    return len(shapes) == len(inputs) and wants_variant(cluster, code_key(shapes, constants))


def _note_request(
    cluster: Cluster, inputs: list[InputSpec], constants: dict[int, np.ndarray], why: str
) -> None:
    bounded(cluster.code.waiting, MAX_KEYS)[code_key(_shapes(inputs), constants)] = why


def _note_published(cluster: Cluster) -> None:
    cluster.code.publications += 1


def _shapes(inputs: Sequence[InputSpec]) -> list[Shape]:
    """The shapes of the inputs that are arrays."""
    types = [(element_type(dtype.as_datatype_enum), dims) for dtype, dims in inputs]
    return [Shape(type_, dims) for type_, dims in types if type_ is not None]


def _cache(cluster: Cluster) -> disk_cache.DiskCache:
    return disk_cache.at(cluster.options.cache_dir, cluster.options.max_cache_bytes)


def _runs_before_benchmark(cluster: Cluster, executable: Executable) -> int | None:
    """How often code runs before it is measured: 0 if an earlier process measured that TensorFlow is faster; None if
    one measured that it is not."""
    if not cluster.options.cost_guard or executable.artifact.symbolic is not None:
        return None
    measurement = cost_guard.stored_measurement(executable, _cache(cluster))
    if measurement is None:
        return cost_guard.RUNS_BEFORE_BENCHMARK
    _record_times(cluster, measurement)
    return 0 if measurement.is_slower else None


def _is_faster(cluster: Cluster, code: CompiledCode, inputs: list[tf.Tensor]) -> bool:
    """Whether compiled code is not slower than TensorFlow for these inputs. If it is, that is counted and logged."""
    run = functools.partial(original_nodes.run_in_tensorflow, cluster)
    measurement = cost_guard.benchmark(code.owner, run, inputs, _cache(cluster))
    _record_times(cluster, measurement)
    if not measurement.is_slower:
        return True
    shapes = listed(_shapes([(t.dtype, tuple(t.shape)) for t in inputs]))
    cluster.slower[shapes] = str(measurement)
    statistics.count_unclustered(f"TensorFlow is faster: {measurement}", cluster.op_count)
    _fallbacks.info("cluster %s of %s runs in TensorFlow: %s", cluster.name, shapes, measurement)
    return False


def _record_times(cluster: Cluster, measurement: cost_guard.Measurement) -> None:
    statistics.record_times(cluster.key, measurement.compiled_seconds, measurement.tensorflow_seconds)


def _note_bailout(cluster: Cluster, reason: str) -> None:
    """Counts a run of compiled code in which an assumption did not hold; logs each assumption once."""
    if reason not in cluster.bailouts:
        bounded(cluster.bailouts, _MAX_BAILOUT_REASONS)[reason] = 0
        statistics.count_unclustered(f"bailed out at run time: {reason}", cluster.op_count)
        _fallbacks.info("a run of cluster %s bailed out to TensorFlow: %s", cluster.name, reason)
    cluster.bailouts[reason] += 1


def _forget(cluster: Cluster, inputs: list[InputSpec], constants: dict[int, np.ndarray]) -> None:
    """Frees what was compiled for these inputs, which the launch op has dropped."""
    cluster.code.forget(code_key(_shapes(inputs), constants))
