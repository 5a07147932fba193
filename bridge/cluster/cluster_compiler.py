"""Compiles clusters for shapes and constants, once for each; where that fails, TensorFlow runs the nodes."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence

import numpy as np

from ...compiler.client.platforms import native
from ...compiler.errors import BudgetError, ShapeError, UnsupportedError
from ...compiler.ir.module import Module
from ...compiler.ir.shape import Shape
from ...runtime import statistics
from ...runtime.code.artifact import Artifact
from ...runtime.code.executable import Executable
from ...runtime.sizes import AnySize, tracing
from ...runtime.threads import background, cpu_clock
from . import compile_progress
from .cluster import Cluster
from .cluster_module import build_module, invariant_parameters, source_text
from .code_cache import MAX_KEYS, MAX_VARIANTS, Variant, bounded, listed
from .code_key import Key, Place, code_key
from .symbolic_sizes import assumptions_of, replaced, with_symbols

logger = logging.getLogger("tfbridge")
_compiles, _recompiles = logger.getChild("compiles"), logger.getChild("recompiles")
_fallbacks, _fusion = logger.getChild("fallbacks"), logger.getChild("fusion")

_MAX_FAILED = 4096
_MAX_FAILED_VARIANTS = 3  # for the same varying dims
_MAX_ATTEMPTS = (
    6  # modules that are built for one variant, each of which serves fewer sizes than the one before
)
# Errors by digest of clusters that never compiled. To run their nodes one by one costs more than TensorFlow's graph.
_never_compiled: dict[str, str] = {}


def compile_cluster(
    cluster: Cluster, shapes: Sequence[Shape], constants: Mapping[int, np.ndarray]
) -> Executable | None:
    """The executable for these shapes of the launch arguments; `constants` are values by launch position.

    None when there is none: the reason is kept in the cluster's code cache, and counted.
    """
    key, code = code_key(shapes, constants), cluster.code
    with code.lock:
        if key in code.executables:
            statistics.count("memory_hits")
            return code.executables[key]
        if key in code.failures or key in code.not_specialized:
            return None
        if (variant := bound_variant(cluster, key)) is not None:
            statistics.count("memory_hits")
            return variant
        if too_many_constants(cluster, key, shapes, constants):
            return None
        if not background.is_here():
            return _compile_and_note(cluster, key, shapes, constants)
    # In the background without the lock, which a call may need.
    return _compile_and_note(cluster, key, shapes, constants)


def specialize_cluster(
    cluster: Cluster, shapes: Sequence[Shape], constants: Mapping[int, np.ndarray]
) -> Executable | None:
    """As `compile_cluster`: code for these shapes alone, in the place of code for symbolic sizes."""
    executable = _compile_and_note(cluster, code_key(shapes, constants), shapes, constants)
    statistics.count("specializations", int(executable is not None))
    return executable


def bound_variant(cluster: Cluster, key: Key) -> Executable | None:
    """Code for symbolic sizes, bound to a key; None where none serves it."""
    last, executable = cluster.code.last_bound
    if last == key:
        return executable
    for variant in tuple(cluster.code.variants):
        if not isinstance(bound := variant.bound(key), str):
            cluster.code.last_bound = key, bound
            return bound
    return None


def wants_variant(cluster: Cluster, key: Key) -> bool:
    """Whether these are other sizes than came before, for which code for symbolic sizes may be made."""
    return bool(_new_symbols(cluster, key))


def _new_symbols(cluster: Cluster, key: Key) -> dict[Place, str]:
    """Names of symbols by place in the key, for a variant that is not there; none where there is to be none."""
    code = cluster.code
    if (
        not cluster.options.symbolic_sizes
        or code.over_budget
        or sum(variant.accepts(key) for variant in tuple(code.variants)) >= MAX_VARIANTS
    ):
        return {}
    names = code.sizes.symbols(key, cluster.unknown_dims)
    failures = code.without_variant.get(tuple(sorted(names)), ())
    return {} if len(failures) >= _MAX_FAILED_VARIANTS else names


def too_many_constants(
    cluster: Cluster, key: Key, shapes: Sequence[Shape], constants: Mapping[int, np.ndarray]
) -> bool:
    """Whether calls with these shapes had too many values of constants for one more to be compiled for: if so, that is
    kept as the reason, and counted."""
    code = cluster.code
    limit = code.constants_exceeded(key, bool(constants) and cluster.has_data_constants)
    if not limit:
        return False
    names = [cluster.arguments[cluster.launch_arguments[at]].name for at in sorted(constants)]
    code.is_varying = True
    bounded(code.not_specialized, MAX_KEYS)[key] = (
        f"compiled for {limit} values of {', '.join(names)}, which decide shapes or axes; further values run "
        "in TensorFlow"
    )
    _note_fallback(cluster, shapes, code.not_specialized[key])
    return True


def _compile_and_note(
    cluster: Cluster, key: Key, shapes: Sequence[Shape], constants: Mapping[int, np.ndarray]
) -> Executable | None:
    code, begin = cluster.code, cpu_clock.seconds()
    try:
        executable = _compile(cluster, key, *_by_argument(cluster, shapes, constants))
    except Exception as error:  # whatever it is, TensorFlow can still run the nodes
        if not cluster.is_closed and not background.is_interpreter_ending():
            with code.lock:
                code.waiting.pop(key, None)
                _note_failure(cluster, key, shapes, error)
        return None
    with code.lock:
        if background.is_here():
            _note_background(cluster, key, cpu_clock.seconds() - begin)
        code.waiting.pop(key, None)
        _note_compiled(cluster, key)
        code.add_executable(key, executable)
        _never_compiled.pop(cluster.digest, None) if _never_compiled else None
    return executable


def _note_background(cluster: Cluster, key: Key, cpu_seconds: float) -> None:
    names = [cluster.arguments[k].name for k in cluster.launch_arguments]
    cluster.code.note_background(key, names, cpu_seconds)
    statistics.count("background_compiles")
    statistics.add_background_seconds(cpu_seconds)


def recompile_with_larger_lists(
    cluster: Cluster, shapes: Sequence[Shape], constants: Mapping[int, np.ndarray]
) -> Executable | None:
    """As `compile_cluster`, in the place of an executable in which a list exceeded its capacity."""
    cluster.code.enlarge(code_key(shapes, constants))
    return compile_cluster(cluster, shapes, constants)


def earlier_failure(cluster: Cluster) -> str:
    """Why a cluster of the same nodes has never compiled so far; empty when none was tried, or one did."""
    if not _never_compiled:
        return ""
    return _never_compiled.get(cluster.digest, "") or _never_compiled.get(_digest_and_budget(cluster), "")


def _digest_and_budget(cluster: Cluster) -> str:
    options = cluster.options
    return f"{cluster.digest} {options.compile_seconds} {options.compile_instructions} {options.compile_megabytes}"


def generalize_cluster(
    cluster: Cluster, shapes: Sequence[Shape], constants: Mapping[int, np.ndarray]
) -> Executable | None:
    """New code for symbolic sizes, bound to these shapes; None where there is to be none."""
    key, code, begin = code_key(shapes, constants), cluster.code, cpu_clock.seconds()
    with code.lock:
        if (ready := bound_variant(cluster, key)) is not None:
            return ready
        names = _new_symbols(cluster, key)
    if not names:
        return None
    variant = _compile_variant(cluster, key, shapes, constants, names)
    bound = variant if isinstance(variant, str) else variant.bound(key)
    with code.lock:
        if isinstance(variant, str) or isinstance(bound, str):
            code.without_variant.setdefault(tuple(sorted(names)), []).append(str(bound))
            _compiles.info("cluster %s has no code for symbolic sizes: %s", cluster.name, bound)
            return None
        code.add_variant(variant)
        _note_background(cluster, key, cpu_clock.seconds() - begin)
        code.waiting.pop(key, None)
        statistics.count("symbolic_compiles")
        if not code.executables and len(code.variants) == 1:
            _note_compiled(cluster, key)
        code.last_bound = key, bound
    return bound


def _compile_variant(
    cluster: Cluster,
    key: Key,
    shapes: Sequence[Shape],
    constants: Mapping[int, np.ndarray],
    names: Mapping[Place, str],
) -> Variant | str:
    """Code with symbols in the places that are named, as many as the program leaves open; why there is none."""
    by_argument = {(cluster.launch_arguments[k], axis): name for (k, axis), name in names.items()}
    equal: dict[str, AnySize] = {}
    is_first = not cluster.code.variants
    for _ in range(_MAX_ATTEMPTS):
        all_shapes, values = with_symbols(*_by_argument(cluster, shapes, constants), by_argument, equal)
        try:
            executable = _compile(cluster, key, all_shapes, values, is_first)
        except _Equated as equated:
            equal = replaced(equal, equated.sizes)
            continue
        except Exception as error:  # whatever it is, there is code for known sizes
            if not isinstance(error, ShapeError | UnsupportedError):
                logger.warning(
                    "cluster %s does not compile for sizes known at run time only; this is a bug in tfbridge",
                    cluster.name,
                    exc_info=error,
                )
            return f"{type(error).__name__}: {error}"
        if executable.artifact.symbolic is None:
            return "the program fixes all sizes"
        if more := executable.artifact.symbolic.assumptions.equated():
            equal = replaced(equal, more)
            continue
        sizes = {at: values[cluster.launch_arguments[at]] for at in constants}
        variant = Variant(
            executable, {at: tuple(v.flat) if v.dtype == object else v.tobytes() for at, v in sizes.items()}
        )
        if not is_first or not isinstance(variant.bound(key), str):
            return variant
        is_first = False  # an earlier process made it for other sizes
    return "the program fixes ever more sizes"


class _Equated(Exception):
    """A program wants sizes to be equal, or numbers."""

    def __init__(self, sizes: Mapping[str, AnySize]) -> None:
        super().__init__()
        self.sizes = sizes


def _compile(
    cluster: Cluster,
    key: Key,
    all_shapes: Sequence[Shape | None],
    values: Mapping[int, np.ndarray],
    is_first: bool = True,
) -> Executable:
    """A new executable, for shapes and constants by argument, which may have symbols. Raises: any error.

    is_first: code for symbols may be what an earlier process made for other sizes; else it is for those of the key.
    """
    start = time.perf_counter()
    if cluster.code.over_budget and not cluster.code.has_any:  # other shapes would take as long
        raise BudgetError(cluster.code.over_budget)
    capacity_factor = cluster.code.capacity_factor(key)
    if not capacity_factor:
        raise UnsupportedError("a list grows further than any bound that compiled code has")
    assumptions = assumptions_of(all_shapes, values)
    dumps = bool(cluster.options.dump_dir)

    def build() -> Module:
        with tracing():
            module = build_module(cluster, all_shapes, values, capacity_factor, mark_lines=dumps)
        if equated := assumptions.equated():
            raise _Equated(equated)
        return module

    subject = _subject(cluster, all_shapes, values, capacity_factor)
    if assumptions.symbols and not is_first:
        subject += f" {key}"  # which has other guards
    source = source_text(cluster) if dumps else ""
    with compile_progress.shown(f"{cluster.name}, {cluster.op_count} ops"):
        artifact = native().load_artifact(subject, build, cluster.options, source)
    executable = Executable(artifact)
    shown = [shape for k in cluster.launch_arguments if (shape := all_shapes[k]) is not None]
    _record(cluster, shown, artifact, time.perf_counter() - start)
    return executable


def is_cached(cluster: Cluster, shapes: Sequence[Shape], constants: Mapping[int, np.ndarray]) -> bool:
    """Whether the code for these shapes is in the disk cache."""
    subject = _subject(cluster, *_by_argument(cluster, shapes, constants), 1)
    return native().has_artifact(subject, cluster.options)


def _by_argument(
    cluster: Cluster, shapes: Sequence[Shape], constants: Mapping[int, np.ndarray]
) -> tuple[list[Shape | None], dict[int, np.ndarray]]:
    """The shapes and the constants by the numbers of the cluster's arguments."""
    all_shapes: list[Shape | None] = [None] * len(cluster.arguments)
    for shape, k in zip(shapes, cluster.launch_arguments, strict=True):
        all_shapes[k] = shape
    return all_shapes, {cluster.launch_arguments[at]: value for at, value in constants.items()}


def _subject(
    cluster: Cluster,
    all_shapes: Sequence[Shape | None],
    values: Mapping[int, np.ndarray],
    capacity_factor: int,
) -> str:
    """All that the artifact is made from."""
    return repr(
        (
            cluster.digest,
            invariant_parameters(cluster, {k: n for n, k in enumerate(cluster.launch_arguments)}),
            all_shapes,
            capacity_factor,
            sorted((k, v.dtype.str, v.shape, _content(v)) for k, v in values.items()),
        )
    )


def _content(value: np.ndarray) -> bytes | list[str]:
    return value.tobytes() if value.dtype != object else [str(v) for v in value.flat]


def _record(cluster: Cluster, shapes: Sequence[Shape], artifact: Artifact, seconds: float) -> None:
    """Logs and records a compilation."""
    kernels = len(artifact.kernels)
    _compiles.info(
        "cluster %s of %s: %d ops, %d kernels, %.3f s",
        cluster.name,
        listed(shapes),
        cluster.op_count,
        kernels,
        seconds,
    )
    for kernel in artifact.kernels:
        _fusion.info("cluster %s, kernel %s: %s", cluster.name, kernel.name, ", ".join(kernel.ops))
    statistics.record(
        statistics.ClusterRecord(
            cluster.name,
            cluster.op_count,
            ", ".join(map(str, shapes)),
            kernels,
            seconds,
            artifact.temp_bytes,
            artifact.object_bytes,
            key=cluster.key,
        )
    )


def _note_compiled(cluster: Cluster, key: Key) -> None:
    """Counts a compilation, and logs why there was one before for other keys."""
    code = cluster.code
    is_larger = key in code.capacity_factors
    statistics.count("recompiles" if code.executables or is_larger else "clusters_compiled")
    if not code.executables and not is_larger:
        statistics.count("ops_compiled", cluster.op_count)
    if _recompiles.isEnabledFor(logging.INFO):
        names = [cluster.arguments[k].name for k in cluster.launch_arguments]
        if code.executables:
            _recompiles.info("cluster %s: %s", cluster.name, code.difference(key, names))
        elif is_larger:
            _recompiles.info("cluster %s: a list exceeded its capacity", cluster.name)


def _note_failure(cluster: Cluster, key: Key, shapes: Sequence[Shape], error: Exception) -> None:
    """Keeps, counts and logs why a compilation failed."""
    code = cluster.code
    bounded(code.failures, MAX_KEYS)[key] = f"{type(error).__name__}: {error}"
    if not code.has_any and not isinstance(error, ShapeError):  # which other shapes need not have
        is_over_budget = isinstance(error, BudgetError)
        code.over_budget = str(error) if is_over_budget else ""
        digest = _digest_and_budget(cluster) if is_over_budget else cluster.digest
        bounded(_never_compiled, _MAX_FAILED)[digest] = code.failures[key]
    _note_fallback(cluster, shapes, code.failures[key])
    if not isinstance(error, ShapeError | UnsupportedError):
        logger.warning(
            "cluster %s does not compile and runs in TensorFlow; this is a bug in tfbridge",
            cluster.name,
            exc_info=error,
        )


def _note_fallback(cluster: Cluster, shapes: Sequence[Shape], reason: str) -> None:
    statistics.count("fallbacks")
    statistics.count_unclustered(reason, cluster.op_count)
    _fallbacks.info("cluster %s of %s runs in TensorFlow: %s", cluster.name, listed(shapes), reason)
