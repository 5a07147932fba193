"""The launch op: one TensorFlow op that runs a cluster's compiled code, picked by the shapes of its inputs.

`TfbridgeLaunch` has any number of inputs and outputs of plain types. Its attribute `cluster` names a cluster
given to `register_cluster`; `constants` lists the inputs whose values, not only shapes, pick the code.
A launch is a pure function of its inputs, but the op is registered as stateful: nothing else keeps TensorFlow
from running a launch of constants while it optimizes a graph. Sessions share the kernels of stateful ops by
node name, so the name of a launch must belong to its cluster: `node_def` sees to that.

What runs in graphs goes when TensorFlow deletes the kernels. The eager executor keeps a kernel for every set of
attributes that it met, so the launches of functions that are gone (`release`) are given to new ones of their types.
"""

from __future__ import annotations

import collections
import ctypes
import dataclasses
import hashlib
import itertools
import math
import os
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ...runtime import run_context
from ...runtime.code import support_library
from ...runtime.code.executable import Executable
from ...runtime.errors import ExecutionError
from ...runtime.threads import forking, interrupts
from ..tf_internals import symbols as private
from . import entry_table, kernel, prepacked_weights, resource_variables, weight_pages
from .entry_table import Counters, Held, Table

OP = "TfbridgeLaunch"
InputSpec = tuple[tf.DType, tuple[int, ...]]
Compile = Callable[[list[InputSpec], dict[int, np.ndarray]], "CompiledEntry | None"]
Fallback = Callable[[list[tf.Tensor | None]], list[tf.Tensor | None]]
Grow = Callable[[list[InputSpec], dict[int, np.ndarray]], "CompiledEntry | None"]  # code with larger bounds
Guard = Callable[
    ["CompiledEntry", list[tf.Tensor]], bool
]  # whether the code is to be used, for inputs that it gets

_NOT_PLAIN = (tf.string, tf.resource, tf.variant)
_KEYS_AT_ONCE = 256  # of a launch: further ones are compiled when they are met again
_MEETINGS, _MEETINGS_WHEN_FULL = 2, 8
_MOST_MET = 4096  # keys that are counted
_MOST_RESTING = 64  # clusters without a kernel that are kept, should TensorFlow make one after all


@dataclasses.dataclass(frozen=True)
class CompiledEntry:
    """Code for one key.

    `results` are the op's outputs, then the new values of variables.

    `code` is the address of an entry (its non-zero results 2 to 16 are TensorFlow's status codes, others mean
    INVALID_ARGUMENT); `constants` the address of its constant blob. An output in `alias` is that input,
    untouched: the entry must not write it. An output in `forward` may get that input's memory or its own.
    `keep` is held as long as the code may run. The cluster's guard is asked after `runs_before_trial` runs, and not at
    all when that is None. Code that `may_leave` may have the status ASSUMPTION_FAILED or OUTGROWN: TensorFlow then runs
    the nodes.
    The code has one more result, an s32 scalar, for each of the outputs in `sized`: their first dim is a bound, which
    that size replaces. Units: temp_bytes are bytes of the arena.
    """

    code: int
    results: tuple[InputSpec, ...]
    temp_bytes: int = 0
    constants: int = 0
    threads: int = 1
    alias: Mapping[int, int] = dataclasses.field(default_factory=dict)
    forward: Mapping[int, int] = dataclasses.field(default_factory=dict)
    profile: int = 0
    keep: Any = None
    runs_before_trial: int | None = 0
    may_leave: bool = False
    sized: tuple[int, ...] = ()

    @classmethod
    def of(
        cls, executable: Executable, results: Sequence[tf.DType] | None = None, **options: Any
    ) -> CompiledEntry:
        """The entry of an executable; `results` gives TensorFlow's types where they are not NumPy's."""
        artifact = executable.artifact
        types = results or [tf.as_dtype(result.dtype) for result in artifact.results]
        own = artifact.results[: len(artifact.results) - len(artifact.sizes)]
        specs = tuple((t, tuple(r.dims)) for t, r in zip(types, own, strict=True))
        return cls(
            executable.entry_address,
            specs,
            artifact.temp_bytes,
            executable.constants_address,
            executable.threads,
            keep=executable,
            may_leave=artifact.may_leave,
            sized=artifact.sizes,
            **options,
        )


@dataclasses.dataclass(frozen=True)
class Variables:
    """Which inputs of a launch are handles of variables (by position, with the type of the value), and which of those
    get new values, in the order of these."""

    contents: Mapping[int, tf.DType] = dataclasses.field(default_factory=dict)
    updates: tuple[int, ...] = ()

    def check(self, input_dtypes: Sequence[tf.DType]) -> None:
        """Raises: TypeError  handles are not where they are said to be, or hold what is not plain."""
        handles = [k for k, dtype in enumerate(input_dtypes) if dtype == tf.resource]
        if handles != sorted(self.contents) or not set(self.updates) <= self.contents.keys():
            raise TypeError(
                f"launch: inputs {handles} are handles, variables are {sorted(self.contents)}, "
                f"updated {list(self.updates)}"
            )
        _check_types(self.contents.values())


NO_VARIABLES = Variables()


@dataclasses.dataclass
class _Cluster:
    """`forget` is told what an entry that went had been compiled for, `gone` that no launch will ever come again.

    `is_prepared`: a function of `prepare` runs it; its launch has `slot` for a name, which it may have from another.
    """

    compile: Compile
    fallback: Fallback
    names: Sequence[str]
    guard: Guard | None = None
    grow: Grow | None = None
    forget: Compile | None = None
    gone: Callable[[], None] | None = None
    left: Callable[[str], None] | None = None
    launches: list[_Launch] = dataclasses.field(default_factory=list)
    past: Counters = dataclasses.field(default_factory=Counters)
    is_prepared: bool = False
    slot: str = ""


class _Launch:
    """A cluster with the types of its inputs and outputs: what a kernel's state points to."""

    def __init__(
        self,
        cluster: _Cluster,
        key: str,
        number: int,
        inputs: tuple[int, ...],
        outputs: tuple[int, ...],
        constants: tuple[int, ...],
        updates: tuple[int, ...] = (),
        variables: Collection[int] = (),
    ) -> None:
        self.cluster, self.key, self.number = cluster, key, number
        self.inputs, self.outputs, self.constants = inputs, outputs, constants
        self.updates = updates
        self.results = (*outputs, *(inputs[k] for k in updates))
        self.slot = key
        self.name = (key, inputs_declared(inputs, variables), outputs, constants)
        self.signature = (*self.name[1:], inputs, updates)
        self.compiling: dict[bytes, threading.Event] = {}
        self.trials: dict[bytes, tuple[Held, CompiledEntry]] = {}
        self.lock = forking.lock()
        self.spare = Held(b"", 0, None, [])  # of keys that wait to be met again
        self._met: collections.OrderedDict[bytes, int] = collections.OrderedDict()
        self._keyed = (ctypes.c_uint8 * max(len(inputs), 1))()
        for position in constants:
            self._keyed[position] = 1
        self.kinds = (ctypes.c_uint8 * max(len(inputs), 1))()
        for position in variables:
            self.kinds[position] = (
                resource_variables.UPDATED if position in updates else resource_variables.READ
            )
        self._types = (ctypes.c_int32 * max(len(inputs), 1))(*inputs)
        self._targets = (ctypes.c_int64 * max(len(updates), 1))(*updates)
        self.struct = kernel.Launch(
            number=number,
            inputs=len(inputs),
            outputs=len(outputs),
            keyed=ctypes.addressof(self._keyed),
            variables=len(variables),
            updates=len(updates),
            kinds=ctypes.addressof(self.kinds),
            types=ctypes.addressof(self._types),
            targets=ctypes.addressof(self._targets),
            gone=ctypes.addressof(_gone),
            spare=self.spare.address,
        )
        self.address = ctypes.addressof(self.struct)
        self.table = Table(self.struct, _native().kernel)

    def restart(self) -> None:
        """Forgets what it ran, so that another cluster can have it."""
        with self.lock:
            self.table.clear()
            self.table.past = Counters()
            self.trials.clear()
            self._met.clear()
            self.spare.entry.runs = 0

    def count_kernels(self, amount: int = 0) -> int:
        """Adds to the number of TensorFlow's kernels that have this state; returns it."""
        return _native().kernel.count(self.address + kernel.Launch.kernels.offset, amount)

    def waits(self, key: bytes) -> bool:
        """Whether TensorFlow is to run a new key, for it may not come again; counts how often it was met."""
        known = len(self.table.held)
        if known < _KEYS_AT_ONCE:
            return False
        met = self._met.pop(key, 0) + 1
        if met >= (_MEETINGS if known < entry_table.MOST_ENTRIES else _MEETINGS_WHEN_FULL):
            return False
        self._met[key] = met
        if len(self._met) > _MOST_MET:
            self._met.popitem(last=False)
        return True

    def forget(self, gone: Iterable[Held]) -> None:
        """Tells the cluster that entries went."""
        for held in gone:
            self.trials.pop(held.key, None)
            if self.cluster.forget is not None:
                self.cluster.forget(*self.parse(held.key))

    def publish(self, key: bytes, hash_: int, made: CompiledEntry | None) -> int:
        """Adds an entry for a key (None: run in TensorFlow); returns its address."""
        held = Held(key, hash_, made, [])
        entry = held.entry
        entry.seed = int.from_bytes(os.urandom(8), "little")
        if made is not None:
            outputs = (kernel.Output * max(len(made.results), 1))()
            for number, (dtype, dims) in enumerate(made.results):
                _fill_output(outputs[number], number, dtype, dims, made, held)
            known = support_library.addresses()
            parallel = made.threads > 1 and known["parallel_for"]
            is_tried = self.cluster.guard is not None and made.runs_before_trial is not None
            if is_tried:
                self.trials[key] = held, made
                entry.trial = made.runs_before_trial
            entry.code, entry.temp_bytes = 0 if is_tried and not entry.trial else made.code, made.temp_bytes
            entry.outputs, entry.sizes = ctypes.addressof(outputs), len(made.sized)
            held.buffers.append(outputs)
            packed = made.keep.artifact.packed if isinstance(made.keep, Executable) else ()
            if isinstance(made.keep, Executable):
                weight_pages.watch(entry, made.keep)
            if packed:
                may_hold = all(self.kinds[p.parameter] == resource_variables.READ for p in packed)
                prepacked_weights.Arguments(entry, made.keep, may_hold)
            entry.context = run_context.RunContext(
                parallel_for=known["parallel_for"] if parallel else None,
                pool=known["pool"] if parallel else None,
                num_replicas=1,
                threads=made.threads if parallel else 1,
                profile=made.profile or None,
                constants=made.constants or None,
            )
        with self.lock:
            gone = self.table.add(held)
        self.forget(gone)
        return held.address

    def _key(self, inputs: Sequence[tf.Tensor]) -> bytes:
        """The key that stands for these inputs."""
        words: list[bytes] = []
        for position, tensor in enumerate(inputs):
            words.append(np.array([tensor.shape.rank, *tensor.shape], np.int64).tobytes())
            if position in self.constants:
                value = tensor.numpy().tobytes()
                words += [np.int64(len(value)).tobytes(), value.ljust(-(-len(value) // 8) * 8, b"\0")]
        return b"".join(words)

    def grow(self, inputs: Sequence[tf.Tensor]) -> None:
        """Replaces the code for inputs like these, if a bound in it was too small for some, by code with larger ones.

        Where there is none, TensorFlow runs such inputs from now on.
        """
        key = self._key(inputs)
        with self.lock:
            old = self.table.held.get(key)
            if old is None or not old.entry.outgrown or self.cluster.grow is None:
                return
            old.entry.outgrown = 0
        made = self.cluster.grow(*self.parse(key))
        self.trials.pop(key, None)
        publish = _native().kernel.publish
        address = self.publish(key, old.entry.hash, made)
        publish(old.address + kernel.Entry.code.offset, 0)
        publish(self.address + kernel.Launch.last.offset, address)

    def decide(self, inputs: Sequence[tf.Tensor]) -> list[tf.Tensor] | None:
        """Has the guard decide on code that was made for inputs like these, if it has not yet: the code's results.

        None when TensorFlow is to run these inputs.
        """
        trial = self.trials.pop(self._key(inputs), None)
        if trial is None or self.cluster.guard is None or not self.cluster.guard(trial[1], list(inputs)):
            return None
        _native().kernel.publish(trial[0].address + kernel.Entry.code.offset, trial[1].code)
        try:
            made = trial[1].keep.execute([tensor.numpy() for tensor in inputs])
        except ExecutionError:  # TensorFlow tells what is wrong
            return None
        for number, size in zip(trial[1].sized, made[len(self.results) :]):
            made[number] = made[number][: int(size)]
        return [tf.constant(array, tf.as_dtype(enum)) for array, enum in zip(made, self.results)]

    def parse(self, key: bytes) -> tuple[list[InputSpec], dict[int, np.ndarray]]:
        """(dtype and dims of every input, values of the inputs keyed by value) that a key stands for."""
        words, at = np.frombuffer(key, np.int64), 0
        specs: list[InputSpec] = []
        values: dict[int, np.ndarray] = {}
        for number, enum in enumerate(self.inputs):
            dtype, rank = tf.as_dtype(enum), int(words[at])
            dims = tuple(words[at + 1 : at + 1 + rank].tolist())
            specs.append((dtype, dims))
            at += 1 + rank
            if number in self.constants:
                start, size = 8 * (at + 1), int(words[at])
                values[number] = np.frombuffer(key[start : start + size], dtype.as_numpy_dtype).reshape(dims)
                at += 1 + -(-size // 8)
        return specs, values

    def compile(self, key: bytes) -> CompiledEntry | None:
        """Code for a key, or None.

        Raises: ValueError  the code's outputs are not those of the op.
        """
        made = self.cluster.compile(*self.parse(key))
        if made is not None:
            given = tuple(dtype.as_datatype_enum for dtype, _ in made.results)
            if given != self.results:
                raise ValueError(
                    f"cluster {self.key}: compiled results have types {given}, the launch has {self.results}"
                )
        return made


def _fill_output(
    output: kernel.Output,
    number: int,
    dtype: tf.DType,
    dims: tuple[int, ...],
    made: CompiledEntry,
    held: Held,
) -> None:
    words = (ctypes.c_int64 * max(len(dims), 1))(*dims)
    held.buffers.append(words)
    output.dtype, output.rank, output.dims = dtype.as_datatype_enum, len(dims), ctypes.addressof(words)
    output.bytes = math.prod(dims) * dtype.size
    if number in made.alias:
        output.mode, output.source = kernel.ALIAS, made.alias[number]
    elif number in made.forward:
        output.mode, output.source = kernel.FORWARD, made.forward[number]
    elif number in made.sized:
        output.mode, output.source = kernel.SIZED, made.sized.index(number)
    elif made.may_leave:
        output.mode = kernel.LATER


def inputs_declared(values: Sequence[int], variables: Collection[int]) -> tuple[int, ...]:
    """DataTypes of a launch's inputs as its node has them, from those of their values."""
    return tuple(int(tf.resource.as_datatype_enum) if k in variables else t for k, t in enumerate(values))


@dataclasses.dataclass(frozen=True)
class _Native:
    kernel: kernel.Native
    keep: tuple[Any, ...]


_lock = forking.long_lock()
_clusters: dict[str, _Cluster] = {}
_launches: dict[int, _Launch] = {}
_numbers = itertools.count()
_launch_of: dict[tuple[Any, ...], _Launch] = {}
_free: dict[tuple[Any, ...], list[_Launch]] = {}  # launches of the eager executor that may be given away
_resting: collections.OrderedDict[str, _Cluster] = collections.OrderedDict()
_released: collections.deque[str] = collections.deque()  # keys of clusters that no function runs any more
_gone = ctypes.c_int64(0)  # launches whose last kernel was deleted
_loaded: _Native | None = None
for _kept in (_launches, _gone):  # TensorFlow deletes kernels when Python has ended
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_kept))
_on_refusal: list[Callable[[str, BaseException | None], None]] = []


def ensure_registered() -> None:
    """Registers the op and its kernel with TensorFlow, once per process.

    Raises: TensorFlowMismatch  this TensorFlow lacks what that needs.
    """
    _native()


def _native() -> _Native:
    global _loaded
    if _loaded is None:
        with _lock:
            if _loaded is None:
                private.check(private.OP)
                callbacks = tuple(
                    type_(interrupts.callback(function, gives=True))
                    for type_, function in (
                        (kernel.CREATE, _create),
                        (kernel.MISS, _miss),
                        (kernel.FALLBACK, _fall_back),
                    )
                )
                create, miss, fallback = (ctypes.cast(f, ctypes.c_void_p).value or 0 for f in callbacks)
                made = kernel.load(create, miss, fallback)
                private.register_op(
                    OP,
                    ["args: Targs"],
                    ["results: Tresults"],
                    [
                        "Targs: list(type) >= 0",
                        "Tresults: list(type) >= 0",
                        "cluster: string",
                        "constants: list(int) >= 0 = []",
                        "contents: list(type) >= 0 = []",
                        "updates: list(int) >= 0 = []",
                    ],
                )
                private.register_kernel(OP, "CPU", made.create, made.compute, made.delete)
                _loaded = _Native(made, callbacks)
    return _loaded


@forking.in_child
def _forget_calls() -> None:
    """In a forked child: the calls and compilations of the parent's other threads never end here."""
    for launch in _launches.values():
        launch.compiling.clear()
        launch.struct.active = (ctypes.c_int64 * 2)()


def register_cluster(
    key: str,
    compile: Compile,
    fallback: Fallback,
    names: Sequence[str] = (),
    guard: Guard | None = None,
    grow: Grow | None = None,
    forget: Callable[..., None] | None = None,
    gone: Callable[[], None] | None = None,
    left: Callable[[str], None] | None = None,
) -> None:
    """Makes a cluster known to launches that name `key`. The first registration of a key holds. `names` of the inputs.

    `compile` gets the dtype and dims of every input and the values of the constant ones; None or an exception
    means that TensorFlow runs these shapes. `fallback` runs the cluster's original nodes on eager tensors, variables by
    their value (one tensor for inputs that are one variable, None for one without a value); new values of variables,
    None where there is none still, follow its results. `guard` is asked once for every key, with the first inputs of
    that key; `grow` makes code in place of one of which a run had the status OUTGROWN, None when that goes no further.
    `forget` gets what `compile` got when that code is not used any more, and `gone` is called when the cluster is not:
    none of its launches is in any graph. `left` is told which assumption of compiled code failed, every time.
    """
    ensure_registered()
    with _lock:
        _sweep()
        _clusters.setdefault(key, _Cluster(compile, fallback, names, guard, grow, forget, gone, left))


def release(key: str) -> None:
    """Says that no function that `prepare` made for a cluster is called any more. Soon after, the cluster is gone."""
    _released.append(key)  # and no more: this may be called in the midst of anything


def drop_unused() -> None:
    """Drops what is not used any more; happens by itself whenever something new is made."""
    with _lock:
        _sweep()


def _sweep() -> None:
    """Drops what is not used any more. The lock is held."""
    while _released:
        _release(_released.popleft())
    if not _gone.value:
        return
    _native().kernel.count(ctypes.addressof(_gone), -_gone.value)
    for launch in [
        one for one in _launches.values() if not one.count_kernels() and not one.cluster.is_prepared
    ]:
        _drop_launch(launch)


def _drop_launch(launch: _Launch) -> None:
    """Drops a launch that no kernel has; its cluster, if this was the last one, rests and is then dropped, too."""
    cluster = launch.cluster
    del _launches[launch.number], _launch_of[launch.name]
    if launch in (free := _free.get(launch.signature, [])):
        free.remove(launch)
        return
    with launch.lock:
        entries = launch.table.clear()
    launch.forget(entries)
    launch.table.counters(cluster.past)
    cluster.launches.remove(launch)
    if not cluster.launches and launch.key in _clusters:
        _resting[launch.key] = cluster
        while len(_resting) > _MOST_RESTING:
            key, oldest = _resting.popitem(last=False)
            _drop_cluster(key, oldest)


def _drop_cluster(key: str, cluster: _Cluster) -> None:
    _clusters.pop(key, None)
    _clusters.pop(cluster.slot, None)
    if cluster.gone is not None:
        cluster.gone()


_NOBODY = _Cluster(lambda *_: None, lambda _: [], ())


def _release(key: str) -> None:
    cluster = _clusters.get(key)
    if cluster is None:
        return
    cluster.is_prepared = False
    for launch in tuple(cluster.launches):
        if not launch.count_kernels():
            _drop_launch(launch)
        elif private.runs_at_once() and launch.table.is_idle:
            launch.restart()
            cluster.launches.remove(launch)
            launch.cluster = _NOBODY
            _clusters.pop(launch.slot, None)
            _free.setdefault(launch.signature, []).append(launch)
    if not cluster.launches:
        _resting.pop(key, None)
        _drop_cluster(key, cluster)


def _slot(key: str, signature: tuple[Any, ...]) -> str:
    """The name that a cluster's launch gets in the eager executor: that of one whose cluster is gone, or its own."""
    with _lock:
        _sweep()
        cluster = _clusters.get(key)
        if cluster is None:
            return key
        cluster.is_prepared = True
        if not cluster.slot:
            free = _free.get(signature)
            if free and not cluster.launches:
                launch = free.pop()
                launch.cluster, launch.key, cluster.slot = cluster, key, launch.slot
                cluster.launches.append(launch)
                _clusters[launch.slot] = cluster
            cluster.slot = cluster.slot or key
        return cluster.slot


def is_registered(key: str) -> bool:
    """Whether a cluster of that key is known."""
    return key in _clusters


def on_refusal(report: Callable[[str, BaseException | None], None]) -> None:
    """Adds a function that is told of every key that does not compile: (cluster key, exception or None)."""
    _on_refusal.append(report)


def counters(key: str) -> Counters:
    """What happened to a cluster so far. Raises: KeyError  unknown cluster."""
    cluster = _clusters[key]
    total = dataclasses.replace(cluster.past)
    for launch in tuple(cluster.launches):
        launch.table.counters(total)
        total.fallback_runs += launch.spare.entry.runs
    return total


def drop(key: str) -> None:
    """From now on TensorFlow runs the keys of a cluster compiled so far. Raises: KeyError  unknown."""
    for launch in tuple(_clusters[key].launches):
        launch.trials.clear()
        for held in tuple(launch.table.held.values()):
            _native().kernel.publish(held.address + kernel.Entry.code.offset, 0)


def run_entry_address() -> int:
    """Address of `run_entry` of `kernel.load`."""
    return _native().kernel.run_entry


@dataclasses.dataclass(frozen=True)
class Found:
    """An entry of a launch, the types and dims of its outputs, and what holds it."""

    entry: kernel.Entry
    results: tuple[InputSpec, ...]
    aliases: frozenset[int]  # inputs that are outputs, too, untouched
    keep: Any


def find(
    key: str,
    input_dtypes: Sequence[tf.DType],
    output_dtypes: Sequence[tf.DType],
    dims: Sequence[Sequence[int]],
) -> Found | None:
    """The code of a launch without keyed values for inputs of these dims; None when it has not run with them, or when
    the dims of its outputs do not follow."""
    inputs, outputs = (tuple(d.as_datatype_enum for d in dtypes) for dtypes in (input_dtypes, output_dtypes))
    cluster = _clusters.get(key)
    launch = (
        next((one for one in cluster.launches if one.name[1:] == (inputs, outputs, ())), None)
        if cluster
        else None
    )
    words = np.array([w for d in dims for w in (len(d), *d)], np.int64).tobytes()
    held = launch.table.held.get(words) if launch else None
    if held is None or not held.entry.code or held.entry.sizes:
        return None
    table = (kernel.Output * len(outputs)).from_address(held.entry.outputs)
    results = tuple(
        (tf.as_dtype(o.dtype), tuple((ctypes.c_int64 * o.rank).from_address(o.dims))) for o in table
    )
    return Found(
        held.entry, results, frozenset(o.source for o in table if o.mode == kernel.ALIAS), (launch, held)
    )


def _check_types(dtypes: Iterable[tf.DType]) -> None:
    for dtype in dtypes:
        if dtype in _NOT_PLAIN:
            raise TypeError(f"launch: {dtype.name} tensors cannot go into or out of compiled code")


def prepare(
    key: str,
    input_dtypes: Sequence[tf.DType],
    output_dtypes: Sequence[tf.DType],
    constants: Sequence[int] = (),
    variables: Variables = NO_VARIABLES,
) -> Callable[[list[tf.Tensor]], list[tf.Tensor]]:
    """A function that runs a cluster on a list of eager tensors at once; nothing is recorded on tapes.

    Raises: TypeError  a type that is not plain; the function raises TensorFlow's errors.
    """
    ensure_registered()
    private.check(private.EAGER)
    variables.check(input_dtypes)
    _check_types((*(d for d in input_dtypes if d != tf.resource), *output_dtypes))
    inputs, outputs = ([d.as_datatype_enum for d in dtypes] for dtypes in (input_dtypes, output_dtypes))
    values = [variables.contents.get(k, d).as_datatype_enum for k, d in enumerate(input_dtypes)]
    slot = _slot(key, (tuple(inputs), tuple(outputs), tuple(constants), tuple(values), variables.updates))
    attributes: tuple[Any, ...] = ("Targs", inputs, "Tresults", outputs, "cluster", slot.encode())
    if constants:
        attributes += ("constants", list(constants))
    if variables.contents:
        attributes += (
            "contents",
            [d.as_datatype_enum for _, d in sorted(variables.contents.items())],
            "updates",
            list(variables.updates),
        )
    run, error = private.eager_execute, private.ExecuteError
    handle, count = private.eager_handle(), len(output_dtypes)

    def launch(inputs: list[tf.Tensor]) -> list[tf.Tensor]:
        try:
            return run(handle, None, OP, inputs, attributes, count)
        except error as raised:
            raise private.raised(raised) from None

    return launch


def node_def(
    name: str,
    key: str,
    inputs: Sequence[str],
    input_dtypes: Sequence[tf.DType],
    output_dtypes: Sequence[tf.DType],
    constants: Sequence[int] = (),
    device: str = "",
    variables: Variables = NO_VARIABLES,
) -> tf.compat.v1.NodeDef:
    """A launch as a node of a GraphDef; its name is `name` and a digest of the cluster's key.

    `inputs` may end with control inputs.
    Raises: TypeError  a type that is not plain.
    """
    variables.check(input_dtypes)
    _check_types((*(d for d in input_dtypes if d != tf.resource), *output_dtypes))
    name = f"{name}_{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    node = tf.compat.v1.NodeDef(name=name, op=OP, device=device, input=inputs)
    node.attr["Targs"].list.SetInParent()
    node.attr["Targs"].list.type.extend(d.as_datatype_enum for d in input_dtypes)
    node.attr["Tresults"].list.SetInParent()
    node.attr["Tresults"].list.type.extend(d.as_datatype_enum for d in output_dtypes)
    node.attr["cluster"].s = key.encode()
    node.attr["constants"].list.SetInParent()
    node.attr["constants"].list.i.extend(constants)
    node.attr["contents"].list.SetInParent()
    node.attr["contents"].list.type.extend(d.as_datatype_enum for _, d in sorted(variables.contents.items()))
    node.attr["updates"].list.SetInParent()
    node.attr["updates"].list.i.extend(variables.updates)
    return node


# -- called by the kernel; nothing may be raised out of these


def _create(construction: int) -> int:
    """State for a new kernel: the launch that the node's attributes name."""
    try:
        node = private.kernel_node(construction)
        key = node.attr["cluster"].s.decode()
        inputs, outputs = tuple(node.attr["Targs"].list.type), tuple(node.attr["Tresults"].list.type)
        contents = dict(
            zip(
                (k for k, t in enumerate(inputs) if t == tf.resource.as_datatype_enum),
                map(tf.as_dtype, node.attr["contents"].list.type),
            )
        )
        updates = tuple(node.attr["updates"].list.i)
        Variables(contents, updates).check([tf.as_dtype(t) for t in inputs])
        values = tuple(contents[k].as_datatype_enum if k in contents else t for k, t in enumerate(inputs))
        _check_types(map(tf.as_dtype, values + outputs))
        constants = tuple(node.attr["constants"].list.i)
        if any(not 0 <= c < len(inputs) for c in constants):
            raise private.error_of(
                tf.errors.INVALID_ARGUMENT, f"constants {constants} of {len(inputs)} inputs"
            )
        with _lock:
            _sweep()
            cluster = _clusters.get(key)
            if cluster is None:
                raise private.error_of(tf.errors.NOT_FOUND, f"no cluster {key!r} in this process")
            _resting.pop(key, None)
            found = _launch_of.get((key, inputs, outputs, constants))
            if found is None:
                found = _Launch(cluster, key, next(_numbers), values, outputs, constants, updates, contents)
                _launches[found.number] = _launch_of[found.name] = found
                cluster.launches.append(found)
            found.count_kernels(1)
            return found.address
    except Exception as error:
        private.fail_kernel(construction, error)
        return kernel.NO_LAUNCH


def _miss(number: int, key_at: int, key_bytes: int, hash_: int) -> int:
    """The entry for a key met for the first time; threads that meet it at the same time compile it once."""
    launch, key = _launches[number], ctypes.string_at(key_at, key_bytes)
    while True:
        with launch.lock:
            held = launch.table.held.get(key)
            if held is not None:
                return held.address
            other = launch.compiling.get(key)
            if other is None and launch.waits(key):
                return launch.spare.address
            if other is None:
                done = launch.compiling[key] = threading.Event()
                break
        interrupts.wait(other.wait)
    made, failure = None, None
    try:
        with private.plain_eager():
            made = launch.compile(key)
    except Exception as error:
        failure = error
    except BaseException as error:  # Ctrl-C: the next call compiles the key
        _end_compiling(launch, key, done)
        interrupts.raise_later(error)
        return launch.spare.address
    try:
        if made is None:
            for report in _on_refusal:
                report(launch.key, failure)
    finally:
        address = launch.publish(key, hash_, made)
        _end_compiling(launch, key, done)
    return address


def _end_compiling(launch: _Launch, key: bytes, done: threading.Event) -> None:
    with launch.lock:
        launch.compiling.pop(key, None)  # a child of a fork has none
    done.set()


def _fall_back(number: int, tensors: int, variables: int, new: int, reason: int, status: int) -> int:
    """Runs the cluster's original nodes in TensorFlow and hands their results to the kernel; 1 when that is done."""
    launch = _launches[number]
    try:
        text = ctypes.string_at(reason).decode(errors="replace") if reason else ""
        if text and launch.cluster.left is not None:
            with launch.lock:
                launch.cluster.left(text)
        slots, handles = _pointers(tensors, len(launch.inputs)), _pointers(variables, len(launch.inputs))
        with private.plain_eager():
            same: dict[int, tf.Tensor] = {}
            # Only for variables is there a handle: what stands in the other places was never written.
            inputs = [
                None
                if kind and not slot
                else same.setdefault(handle if kind and handle else -1 - k, private.tensor_of(slot or 0))
                for k, (slot, handle, kind) in enumerate(zip(slots, handles, launch.kinds))
            ]
            is_complete = all(tensor is not None for tensor in inputs)
            if launch.table.has_graves:
                with launch.lock:
                    launch.table.reclaim()
            if is_complete and any(held.entry.outgrown for held in tuple(launch.table.held.values())):
                launch.grow(inputs)
            outputs = launch.decide(inputs) if is_complete and launch.trials else None
            if outputs is None:
                outputs = launch.cluster.fallback(inputs)
            given = [None if tensor is None else tensor.dtype.as_datatype_enum for tensor in outputs]
            if any(type_ not in (None, wanted) for type_, wanted in zip(given, launch.results, strict=True)):
                raise ValueError(f"results have types {given}, the launch has {launch.results}")
            for target, tensor in zip(launch.updates, outputs[len(launch.outputs) :]):
                if tensor is not None and not handles[target]:
                    raise _without_value(launch, target)
            for position, tensor in enumerate(outputs):
                if tensor is not None:
                    ctypes.c_void_p.from_address(new + 8 * position).value = private.resolved(tensor)
        private.clear_status(status)
    except Exception as error:
        private.set_status(status, error, f"cluster {launch.key} in TensorFlow")
    return 1


def _pointers(address: int | None, count: int) -> Sequence[int | None]:
    """An array of pointers; nulls where there is none."""
    return list((ctypes.c_void_p * count).from_address(address)) if address and count else [None] * count


def _without_value(launch: _Launch, position: int) -> Exception:
    """The error for a variable that TensorFlow has not made, and that is to get a new value."""
    names = launch.cluster.names
    name = names[position] if position < len(names) else f"input {position} of {launch.key}"
    return private.error_of(
        tf.errors.FAILED_PRECONDITION,
        f"Could not find variable {name}. This could mean that the variable has been "
        "deleted. In TF1, it can also mean the variable is uninitialized.",
    )
