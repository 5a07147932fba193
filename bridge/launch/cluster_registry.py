"""The clusters that launches name, and the launch sites of each: added, reused and dropped.

Launches in graphs go when TensorFlow deletes the kernels. The eager executor keeps a kernel for every set of attributes
that it has seen, so the sites of functions that are gone (`release`) are given to new clusters of the same signature.
"""

from __future__ import annotations

import collections
import ctypes
import dataclasses
import itertools
from collections.abc import Callable, Collection, Sequence

import numpy as np
import tensorflow as tf

from ...runtime import statistics
from ...runtime.threads import forking
from ..tf_internals import symbols as private
from . import kernel
from .compiled_code import InputSpec
from .entry_table import Counters, EntryOwner
from .launch_site import LaunchSite, RegisteredCluster, orphans
from .structs import ALIAS, CacheEntry, Output

_MAX_RETIRED = 64  # clusters without a kernel that are kept, should TensorFlow create one after all
_MAX_PAST = 4096  # clusters that were dropped, whose counters are kept

lock = forking.long_lock()
_clusters: dict[str, RegisteredCluster] = {}
_sites: dict[int, LaunchSite] = {}  # by number
_numbers = itertools.count()
_site_of: dict[tuple[object, ...], LaunchSite] = {}  # by LaunchSite.name
_free: dict[tuple[object, ...], list[LaunchSite]] = {}  # sites of the eager executor that may be given away
_retired: collections.OrderedDict[str, RegisteredCluster] = collections.OrderedDict()
_past: collections.OrderedDict[str, Counters] = (
    collections.OrderedDict()
)  # of clusters that were dropped, by key
_released: collections.deque[str] = collections.deque()  # keys of clusters that no function runs any more
for _immortal in (_sites, orphans):  # TensorFlow deletes kernels when Python has ended
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_immortal))
_dropped_runs = [0]  # of compiled code, in launches that were dropped
_failure_reports: list[Callable[[str, BaseException | None], None]] = []


@forking.in_child
def _forget_calls() -> None:
    """In a forked child: the calls and compilations of the parent's other threads never end here."""
    for site in _sites.values():
        site.compiling.clear()
        site.state.active_calls = (ctypes.c_int64 * 2)()


def add(key: str, cluster: RegisteredCluster) -> None:
    """Adds a cluster, unless there is one of that key."""
    with lock:
        _drop_unused()
        _clusters.setdefault(key, cluster)


def site(number: int) -> LaunchSite:
    """The launch site of that number."""
    return _sites[number]


def new_kernel(
    key: str,
    inputs: tuple[int, ...],
    values: tuple[int, ...],
    outputs: tuple[int, ...],
    constants: tuple[int, ...],
    updates: tuple[int, ...],
    variables: Collection[int],
) -> LaunchSite:
    """The site of a launch, which gets one kernel more. `inputs` are the declared types, `values` those of values.

    Raises: NotFoundError  there is no such cluster.
    """
    with lock:
        _drop_unused()
        cluster = _clusters.get(key)
        if cluster is None:
            raise private.error_of(tf.errors.NOT_FOUND, f"no cluster {key!r} in this process")
        _retired.pop(key, None)
        launch = _site_of.get((key, inputs, outputs, constants))
        if launch is None:
            launch = LaunchSite(cluster, key, next(_numbers), values, outputs, constants, updates, variables)
            _sites[launch.number] = _site_of[launch.name] = launch
            cluster.sites.append(launch)
        launch.count_kernels(1)
        return launch


def release(key: str) -> None:
    """Tells that no function that `prepare` made for a cluster is called any more. Soon after, the cluster is
    dropped."""
    _released.append(key)  # and no more: garbage collection may call this at any point


def drop_unused() -> None:
    """Drops sites and clusters that are not used any more; every addition does that as well."""
    with lock:
        _drop_unused()


def _drop_unused() -> None:
    while _released:
        _release(_released.popleft())
    if not orphans.value:
        return
    kernel.native().count(ctypes.addressof(orphans), -orphans.value)
    unused = [one for one in _sites.values() if not one.count_kernels() and not one.cluster.is_prepared]
    for launch in unused:
        _drop_site(launch)


def _drop_site(launch: LaunchSite) -> None:
    """Drops a site without kernels. Its cluster, if this was its last site, is retired, and dropped later."""
    cluster = launch.cluster
    del _sites[launch.number], _site_of[launch.name]
    if launch in (free := _free.get(launch.signature, [])):
        free.remove(launch)
        return
    with launch.lock:
        launch.drop_requests()
        owners = launch.table.clear()
    launch.report_evicted(owners)
    _add_counters(launch, cluster.removed)
    _dropped_runs[0] += launch.table.removed.runs
    cluster.sites.remove(launch)
    if not cluster.sites and launch.key in _clusters:
        _retired[launch.key] = cluster
        while len(_retired) > _MAX_RETIRED:
            key, oldest = _retired.popitem(last=False)
            _drop_cluster(key, oldest)


def _drop_cluster(key: str, cluster: RegisteredCluster) -> None:
    _clusters.pop(key, None)
    _clusters.pop(cluster.eager_name, None)
    _past[key] = cluster.removed
    if len(_past) > _MAX_PAST:
        _past.popitem(last=False)
    if cluster.on_unused is not None:
        cluster.on_unused()


_NO_CLUSTER = RegisteredCluster(lambda *_: None, lambda _: [], ())


def _release(key: str) -> None:
    cluster = _clusters.get(key)
    if cluster is None:
        return
    cluster.is_prepared = False
    for launch in tuple(cluster.sites):
        if not launch.count_kernels():
            _drop_site(launch)
        elif private.runs_at_once() and launch.table.is_idle:
            launch.table.add_counters(total := Counters())
            _dropped_runs[0] += total.runs
            _add_counters(launch, cluster.removed)
            launch.restart()
            cluster.sites.remove(launch)
            launch.cluster = _NO_CLUSTER
            _clusters.pop(launch.eager_name, None)
            _free.setdefault(launch.signature, []).append(launch)
    if not cluster.sites:
        _retired.pop(key, None)
        _drop_cluster(key, cluster)


def eager_name(key: str, signature: tuple[object, ...]) -> str:
    """The cluster's name in the eager executor: that of a free site with this LaunchSite.signature, or its own key."""
    with lock:
        _drop_unused()
        cluster = _clusters.get(key)
        if cluster is None:
            return key
        cluster.is_prepared = True
        if not cluster.eager_name:
            free = _free.get(signature)
            if free and not cluster.sites:
                launch = free.pop()
                launch.cluster, launch.key, cluster.eager_name = cluster, key, launch.eager_name
                cluster.sites.append(launch)
                _clusters[launch.eager_name] = cluster
            cluster.eager_name = cluster.eager_name or key
        return cluster.eager_name


def is_registered(key: str) -> bool:
    """Whether there is a cluster of that key."""
    return key in _clusters


def on_compile_failure(report: Callable[[str, BaseException | None], None]) -> None:
    """Adds a function that is called for every key that does not compile: (cluster key, exception or None)."""
    _failure_reports.append(report)


def report_failure(key: str, failure: BaseException | None) -> None:
    """Calls the functions of `on_compile_failure`."""
    for report in _failure_reports:
        report(key, failure)


def counters(key: str) -> Counters:
    """What happened to a cluster so far, or until it was dropped. Raises: KeyError  unknown cluster."""
    with lock:
        cluster = _clusters.get(key)
        if cluster is None:
            return _past[key]
        total = dataclasses.replace(cluster.removed)
        for launch in cluster.sites:
            _add_counters(launch, total)
    return total


def _add_counters(launch: LaunchSite, total: Counters) -> None:
    launch.table.add_counters(total)
    total.fallback_runs += launch.cold.entry.fallback_runs


def _compiled_runs() -> int:
    """Calls that compiled code has served so far in this process."""
    with lock:  # no site is between these two
        total = Counters(runs=_dropped_runs[0])
        for launch in _sites.values():
            launch.table.add_counters(total)
    return total.runs


statistics.add_total("specialized_calls", _compiled_runs)


def drop_code(key: str) -> None:
    """Has TensorFlow run the keys of a cluster that were compiled so far. Raises: KeyError  unknown."""
    for launch in tuple(_clusters[key].sites):
        launch.benchmarks.clear()
        for owner in tuple(launch.table.entries.values()):
            kernel.native().publish(owner.address + CacheEntry.code.offset, 0)


@dataclasses.dataclass(frozen=True)
class DirectEntry:
    """An entry of a launch that may be called without the launch op.

    results: types and dims of its outputs. aliases: inputs that are outputs, unchanged. owner: keeps the entry alive.
    """

    entry: CacheEntry
    results: tuple[InputSpec, ...]
    aliases: frozenset[int]
    owner: tuple[LaunchSite, EntryOwner]


def direct_entry(
    key: str,
    input_dtypes: Sequence[tf.DType],
    output_dtypes: Sequence[tf.DType],
    dims: Sequence[Sequence[int]],
) -> DirectEntry | None:
    """The entry of a launch without keyed values for inputs of these dims.

    None when it has not run with them, has no code, or has outputs whose sizes depend on data.
    """
    inputs, outputs = (tuple(d.as_datatype_enum for d in dtypes) for dtypes in (input_dtypes, output_dtypes))
    cluster = _clusters.get(key)
    sites = cluster.sites if cluster else ()
    launch = next((one for one in sites if one.name[1:] == (inputs, outputs, ())), None)
    words = np.array([w for d in dims for w in (len(d), *d)], np.int64).tobytes()
    owner = launch.table.entries.get(words) if launch else None
    if launch is None or owner is None or not owner.entry.code or owner.entry.sizes:
        return None
    table = (Output * len(outputs)).from_address(owner.entry.outputs)
    results = tuple(
        (tf.as_dtype(o.dtype), tuple((ctypes.c_int64 * o.rank).from_address(o.dims))) for o in table
    )
    aliases = frozenset(o.source for o in table if o.mode == ALIAS)
    return DirectEntry(owner.entry, results, aliases, (launch, owner))
