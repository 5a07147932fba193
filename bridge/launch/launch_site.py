"""A launch of a cluster with certain types: its state for native code, its keys, and the compilation of new ones."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import math
import random
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence

import numpy as np
import tensorflow as tf

from ...runtime import run_context, statistics
from ...runtime.code import support_library
from ...runtime.code.executable import Executable, Frame
from ...runtime.errors import ExecutionError
from ...runtime.threads import background, cpu_clock, forking
from ..tf_internals import symbols as private
from . import coverage, entry_table, kernel, prepacked_weights, traces, weight_pages
from .compile_policy import CallCounts, Costs, KeyCalls, Served, priority
from .compiled_code import CompiledCode, InputSpec
from .entry_table import Counters, EntryOwner, EntryTable
from .structs import ALIAS, FORWARD, LATER, READ, SIZED, UPDATED, CacheEntry, LaunchState, Output

Compile = Callable[[list[InputSpec], dict[int, np.ndarray]], CompiledCode | None]
Fallback = Callable[[list[tf.Tensor | None]], list[tf.Tensor | None]]
Guard = Callable[[CompiledCode, list[tf.Tensor]], bool]  # whether to use the code, for inputs of its key

_LONG_SECONDS = 0.1  # a run that takes longer is measured once
_VARIANT = b"variant"  # the name of the request for code for symbolic sizes
_RUNS_BEFORE_REVIEW = 32  # of code for symbolic sizes, before it is known whether its key is hot
_SPECIALIZED_RATIO = (
    0.85  # seconds that specialised code is expected to take for one of code for symbolic sizes
)

orphans = ctypes.c_int64(
    0
)  # launches whose last kernel was deleted, since the registry dropped such launches


_seeds = random.Random()  # of entries' random numbers
forking.in_child(_seeds.seed)

_has_no_tensorflow = (
    False  # a forked child, in which TensorFlow's threads are gone: nothing else can serve calls
)


@forking.in_child
def _note_fork() -> None:
    global _has_no_tensorflow
    _has_no_tensorflow |= private.has_begun()


def has_no_tensorflow() -> bool:
    """Whether TensorFlow cannot serve calls in this process."""
    return _has_no_tensorflow


@dataclasses.dataclass(frozen=True)
class Background:
    """What a launch asks of a cluster whose code may be compiled while TensorFlow serves its calls.

    in_foreground: whether the calls of a key, the first of all or another, wait for their code. share: of one
        processor's time, that compiling in the background may take; 0: it does not.
    is_ready: whether the code for the arguments of `compile` is there, or is loaded faster than TensorFlow would run;
        the first argument says whether they are the first ones.
    served: what TensorFlow serves of the cluster.
    may_vary: whether other calls may have other shapes, and the same code.
    may_specialize: whether there may be code for them, because there is not yet code for too many values.
    wants_variant: whether code for symbolic sizes is to be made, because these are other shapes than came before.
    generalize: as `compile`, code for symbolic sizes. specialize: as `compile`, in the place of such code.
    note_request: is told what waits to be compiled, with the arguments of `compile`, and why.
    on_published: is called after each entry that was compiled in the background.
    """

    in_foreground: Callable[[bool], bool]
    share: float
    is_ready: Callable[[bool, list[InputSpec], dict[int, np.ndarray]], bool]
    served: Served
    may_vary: Callable[[], bool]
    may_specialize: Callable[[list[InputSpec], dict[int, np.ndarray]], bool]
    wants_variant: Callable[[list[InputSpec], dict[int, np.ndarray]], bool]
    generalize: Compile
    specialize: Compile
    note_request: Callable[[list[InputSpec], dict[int, np.ndarray], str], None]
    on_published: Callable[[], None]


@dataclasses.dataclass
class RegisteredCluster:
    """A cluster as the launch op knows it; `register_cluster` says what the functions do.

    is_prepared: a function of `prepare` runs it, as the eager op of name `eager_name`, which may have been another
        cluster's before.
    """

    compile: Compile
    fallback: Fallback
    names: Sequence[str]
    guard: Guard | None = None
    recompile: Compile | None = None
    on_evicted: Callable[..., None] | None = None
    on_unused: Callable[[], None] | None = None
    on_bailout: Callable[[str], None] | None = None
    background: Background | None = None
    sites: list[LaunchSite] = dataclasses.field(default_factory=list)
    removed: Counters = dataclasses.field(default_factory=Counters)  # of sites that were dropped
    is_prepared: bool = False
    eager_name: str = ""


class LaunchSite:
    """A cluster with the types of its inputs and outputs; the state of TensorFlow's kernels points to its `state`."""

    def __init__(
        self,
        cluster: RegisteredCluster,
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
        self.eager_name = key
        self.name = (key, declared_types(inputs, variables), outputs, constants)
        self.signature = (*self.name[1:], inputs, updates)
        self.compiling: dict[bytes, threading.Event] = {}
        self.benchmarks: dict[bytes, tuple[EntryOwner, CompiledCode]] = {}  # entries whose benchmark is due
        self.lock = forking.lock()
        self.cold = EntryOwner(b"", 0, None)
        self.calls, self.costs = CallCounts(), Costs()
        self._parsed: tuple[bytes, tuple[list[InputSpec], dict[int, np.ndarray]]] = (
            b"",
            ([], {}),
        )  # the last key
        self._generation = 0  # counts the clusters that had the launch
        self._keyed = (ctypes.c_uint8 * max(len(inputs), 1))()
        for position in constants:
            self._keyed[position] = 1
        self.kinds = (ctypes.c_uint8 * max(len(inputs), 1))()
        for position in variables:
            self.kinds[position] = UPDATED if position in updates else READ
        self._types = (ctypes.c_int32 * max(len(inputs), 1))(*inputs)
        self._targets = (ctypes.c_int64 * max(len(updates), 1))(*updates)
        self.state = LaunchState(
            number=number,
            inputs=len(inputs),
            outputs=len(outputs),
            keyed=ctypes.addressof(self._keyed),
            variables=len(variables),
            updates=len(updates),
            kinds=ctypes.addressof(self.kinds),
            types=ctypes.addressof(self._types),
            targets=ctypes.addressof(self._targets),
            orphans=ctypes.addressof(orphans),
            cold_entry=self.cold.address,
        )
        self.address = ctypes.addressof(self.state)
        self.table = EntryTable(self.state, kernel.native())

    def restart(self) -> None:
        """Forgets all entries and counters, so that another cluster can have the launch."""
        with self.lock:
            self.drop_requests()
            self.table.clear()
            self.table.removed = Counters()
            self.benchmarks.clear()
            self.calls, self.costs = CallCounts(), Costs()
            self.cold.entry.fallback_runs = 0

    def drop_requests(self) -> None:
        """Lets the code that is being compiled in the background come to nothing."""
        with self.lock:
            self._generation += 1
            background.process.cancel(self.number)

    def count_kernels(self, amount: int = 0) -> int:
        """Adds to the number of TensorFlow's kernels that have this state; returns it."""
        return kernel.native().count(self.address + LaunchState.kernels.offset, amount)

    # -- which keys are compiled, and where

    def waits_for_code(self, key: bytes) -> bool:
        """Whether the call of a new key is to compile it, or load it; else TensorFlow serves the call."""
        how = self.cluster.background
        is_first = not self.costs.compilations and not self.compiling
        if how is None or _has_no_tensorflow or how.in_foreground(is_first):
            return True
        if background.preparations.is_here():
            return False
        if self.calls.of(key) is not None:
            return False
        return how.is_ready(is_first, *self.parse_key(key))

    def count_call(self, key: bytes) -> bool:
        """Counts a call that TensorFlow serves. Returns whether the key is one that may get code."""
        how = self.cluster.background
        assert how is not None
        is_new = self.calls.of(key) is None
        if is_new and not how.may_specialize(*self.parse_key(key)):
            return False
        self.calls.count(key, coverage.process.weight)
        return True

    def note_tensorflow_run(self, key: bytes, hash_: int, seconds: float) -> None:
        """Adds a measurement of TensorFlow's run of a key that has no code, and has the key compiled in the background
        if that pays: not before, for the first call has enough to do."""
        statistics.count("served_by_tensorflow")
        how, calls = self.cluster.background, self.calls.of(key)
        if how is not None:
            how.served.add(seconds, coverage.process.weight)
        if calls is not None:
            calls.add_run(seconds)
            self.request_code(key, hash_)

    def request_code(self, key: bytes, hash_: int) -> None:
        """Has a key whose calls were counted compiled in the background, if that pays."""
        how, calls = self.cluster.background, self.calls.of(key)
        if how is None or calls is None:
            return
        is_first = not (
            self.costs.compilations or self.compiling or background.process.has_owner(self.number)
        )
        is_full = len(self.table.entries) >= entry_table.MAX_ENTRIES
        if is_first and how.may_vary():  # the second call tells what the first code is to be for
            if calls.calls == len(self.calls) == 1 or self._request_variant(how, key, hash_):
                return
        elif not is_first:
            self._request_variant(how, key, hash_)
        urgency = how.served.priority if is_first else priority(calls, self.costs, is_full)
        if urgency is None or not how.share:
            return
        # Where code for this key pays, so does code for symbolic sizes that waits: it serves the key, and comes first.
        background.process.raise_priority(self.number, _VARIANT, math.inf)
        if not background.process.is_waiting(self.number, key):
            how.note_request(*self.parse_key(key), self._reason(calls))
        self._request(key, functools.partial(self._compile_in_background, key, hash_), urgency)

    def _request_variant(self, how: Background, key: bytes, hash_: int) -> bool:
        """Has code for symbolic sizes compiled in the background, one at a time, where new shapes have none; whether it
        will be."""
        if not how.share:
            return False
        if background.process.is_waiting(self.number, _VARIANT):
            background.process.raise_priority(self.number, _VARIANT, how.served.priority)
            return True
        if not how.wants_variant(*self.parse_key(key)):
            return False
        how.note_request(*self.parse_key(key), "other shapes than before")
        work = functools.partial(self._publish_compiled, how.generalize, key, hash_)
        self._request(_VARIANT, work, how.served.priority)
        return True

    def _request(self, key: bytes, work: Callable[[int], None], urgency: float) -> None:
        how = self.cluster.background
        assert how is not None
        work_now = functools.partial(work, self._generation)
        background.process.request(background.Request(self.number, key, work_now, urgency, how.share))

    def _reason(self, calls: KeyCalls) -> str:
        """Why a key is compiled, in measured seconds."""
        if not self.costs.compilations:
            return "the first call of the cluster"
        costs = self.costs
        return (
            f"{calls.calls} calls, each {calls.seconds * 1e3:.3f} ms in TensorFlow, of which code is expected to save "
            f"{100 * (1 - costs.ratio):.0f} %, at a cost of {costs.expected * 1e3:.0f} ms"
        )

    def _compile_in_background(self, key: bytes, hash_: int, generation: int) -> None:
        """Compiles a key and publishes its entry, unless the launch is another cluster's by then."""
        cluster = self.cluster
        if generation != self._generation:
            return
        with private.plain_eager():
            code, failure = self.try_compile(key)
        calls = self.calls.of(key)
        is_measured = (
            code is not None and not self.costs.is_measured and calls is not None and calls.seconds > 0
        )
        if self.publish(key, hash_, code, is_measured, generation) and cluster.background is not None:
            coverage.process.publications += 1
            cluster.background.on_published()

    def try_compile(self, key: bytes) -> tuple[CompiledCode | None, Exception | None]:
        """Code for a key, or None and what was wrong, if there was an error; its cost is noted."""
        begin, code, failure = cpu_clock.seconds(), None, None
        try:
            code = self.compile(key)
        except Exception as error:
            failure = error
        if code is None or not code.is_symbolic or background.is_here():  # else it was there already
            self.costs.add_compilation(cpu_clock.seconds() - begin)
        return code, failure

    def report_evicted(self, owners: Iterable[EntryOwner]) -> None:
        """Tells the cluster about removed entries."""
        for owner in owners:
            self.benchmarks.pop(owner.key, None)
            if self.cluster.on_evicted is not None:
                self.cluster.on_evicted(*self.parse_key(owner.key))

    def publish(
        self,
        key: bytes,
        hash_: int,
        code: CompiledCode | None,
        is_measured: bool = False,
        generation: int | None = None,
    ) -> int:
        """Adds an entry for a key (None: run in TensorFlow); returns its address.

        is_measured: the first run is timed. generation: nothing is added, and 0 returned, if it is not the present one.
        """
        owner = EntryOwner(key, hash_, code)
        owner.entry.seed = _seeds.getrandbits(64)
        if code is not None:
            self._fill_entry(owner, code, is_measured)
        with self.lock:
            if generation not in (None, self._generation):
                return 0
            if owner.entry.benchmark_at_run or code is not None and not owner.entry.code:
                assert code is not None
                self.benchmarks[key] = owner, code
            else:
                self.calls.take(key)
            evicted = self.table.add(owner)
        self.report_evicted(evicted)
        return owner.address

    def _fill_entry(self, owner: EntryOwner, code: CompiledCode, is_measured: bool) -> None:
        """Writes the code, its outputs and its run context to an entry. Code whose benchmark is due is not written."""
        entry = owner.entry
        outputs = (Output * max(len(code.results), 1))()
        for number, (dtype, dims) in enumerate(code.results):
            _fill_output(outputs[number], number, dtype, dims, code, owner)
        trace_name = ctypes.create_string_buffer(
            traces.trace_name(self.key.rpartition("#")[0] or self.key, self.parse_key(owner.key)[0])
        )
        owner.buffers += [outputs, trace_name]
        entry.trace_name = ctypes.addressof(trace_name)
        entry.outputs, entry.sizes = ctypes.addressof(outputs), len(code.sized)
        is_benchmarked = self.cluster.guard is not None and code.runs_before_benchmark is not None
        if code.is_symbolic and not is_measured:
            entry.benchmark_at_run = _RUNS_BEFORE_REVIEW if self._may_specialize else 0
        elif is_benchmarked and not is_measured:
            entry.benchmark_at_run = code.runs_before_benchmark
        is_due = is_measured or is_benchmarked and not entry.benchmark_at_run
        entry.code = 0 if is_due else code.address
        entry.temp_bytes = code.temp_bytes
        if code.executable is not None:
            names = traces.kernel_names(code.executable)
            owner.buffers.append(names)
            entry.kernel_names = names.address
            weight_pages.watch(entry, code.executable)
            packed = code.executable.artifact.packed
            if packed:
                may_hold = all(self.kinds[p.parameter] == READ for p in packed)
                packing = prepacked_weights.packing_of(code.executable, may_hold)
                owner.buffers.append(packing)
                entry.packing = packing.address
        addresses = support_library.addresses()
        parallel = code.threads > 1 and addresses["parallel_for"]
        entry.context = run_context.RunContext(
            parallel_for=addresses["parallel_for"] if parallel else None,
            pool=addresses["pool"] if parallel else None,
            num_replicas=1,
            threads=code.threads if parallel else 1,
            constants=code.constants or None,
            sizes=code.sizes or None,
        )

    def recompile(self, inputs: Sequence[tf.Tensor]) -> None:
        """Replaces the code for inputs like these by code with larger capacities, if a capacity in it was too small.

        Where there is none, TensorFlow runs such inputs from now on.
        """
        key = self._key_of(inputs)
        with self.lock:
            old = self.table.entries.get(key)
            if old is None or not old.entry.overflowed or self.cluster.recompile is None:
                return
            old.entry.overflowed = 0
        how = self.cluster.background
        if how is None or _has_no_tensorflow or how.in_foreground(False):
            self._recompile(key, self._generation)
        elif how.share:
            how.note_request(*self.parse_key(key), "a list exceeded its capacity")
            self._request(key, functools.partial(self._recompile, key), math.inf)

    def _recompile(self, key: bytes, generation: int) -> None:
        cluster, old = self.cluster, self.table.entries.get(key)
        if old is None or generation != self._generation or cluster.recompile is None:
            return
        with private.plain_eager():
            code = cluster.recompile(*self.parse_key(key))
        self.benchmarks.pop(key, None)
        publish = kernel.native().publish
        address = self.publish(key, old.entry.hash, code, generation=generation)
        if address:
            publish(old.address + CacheEntry.code.offset, 0)
            publish(self.address + LaunchState.last_hit.offset, address)

    def benchmark(self, inputs: Sequence[tf.Tensor]) -> list[tf.Tensor] | None:
        """Has the guard compare code whose benchmark is due with TensorFlow, on inputs of its key, and times it.

        Returns the results of the code, or None when TensorFlow is to run these inputs.
        """
        key = self._key_of(inputs)
        owner, code = self.benchmarks.pop(key, (None, None))
        if owner is None or code is None:
            return None
        if code.is_symbolic and owner.entry.runs:
            return self._review(key, owner, code, inputs)
        calls, guard = self.calls.take(key), self.cluster.guard
        if guard is not None and code.runs_before_benchmark is not None and not guard(code, list(inputs)):
            self.costs.add_measurement(calls.seconds, calls.seconds)
            return None
        kernel.native().publish(owner.address + CacheEntry.code.offset, code.address)
        try:
            results, seconds = _timed_run(code, [tensor.numpy() for tensor in inputs], calls.seconds > 0)
        except ExecutionError:  # TensorFlow reports the error
            return None
        if calls.seconds:
            self.costs.add_measurement(seconds, calls.seconds)
            statistics.record_times(self.key, seconds, calls.seconds)
        return self._as_tensors(code, results)

    @property
    def _may_specialize(self) -> bool:
        """Whether hot keys that code for symbolic sizes serves get code of their own."""
        how = self.cluster.background
        return how is not None and bool(how.share) and not _has_no_tensorflow

    def _review(
        self, key: bytes, owner: EntryOwner, code: CompiledCode, inputs: Sequence[tf.Tensor]
    ) -> list[tf.Tensor] | None:
        """Times code for symbolic sizes on inputs of its key, and has the key specialised in the background once that
        would have paid for the calls so far.

        Returns the results of the code, or None when TensorFlow is to run these inputs.
        """
        entry, how = owner.entry, self.cluster.background
        kernel.native().publish(owner.address + CacheEntry.code.offset, code.address)
        try:
            results, seconds = _timed_run(code, [tensor.numpy() for tensor in inputs], True)
        except ExecutionError:  # TensorFlow reports the error
            return None
        calls = KeyCalls(entry.runs, seconds)
        costs = dataclasses.replace(self.costs, compiled_seconds=_SPECIALIZED_RATIO, tensorflow_seconds=1.0)
        urgency = priority(calls, costs, len(self.table.entries) >= entry_table.MAX_ENTRIES)
        if urgency is None or how is None:
            entry.benchmark_at_run = 2 * entry.runs
            self.benchmarks[key] = owner, code
        else:
            reason = f"{entry.runs} calls, each {seconds * 1e3:.3f} ms in code for symbolic sizes"
            how.note_request(*self.parse_key(key), reason)
            work = functools.partial(self._publish_compiled, how.specialize, key, entry.hash)
            self._request(key, work, urgency)
        return self._as_tensors(code, results)

    def _publish_compiled(self, compile: Compile, key: bytes, hash_: int, generation: int) -> None:
        """Compiles a key in another way than the calls do, and publishes its entry, in the place of one that it has."""
        how = self.cluster.background
        if generation != self._generation or how is None:
            return
        begin = cpu_clock.seconds()
        with private.plain_eager():
            code = compile(*self.parse_key(key))
        self.costs.add_compilation(cpu_clock.seconds() - begin)
        if code is not None and self.publish(key, hash_, code, generation=generation):
            if code.is_symbolic:  # it may serve other keys whose calls were counted
                self.calls.clear()
                how.served.seconds = 0.0
            kernel.native().publish(self.address + LaunchState.last_hit.offset, 0)
            coverage.process.publications += 1
            how.on_published()

    def _as_tensors(self, code: CompiledCode, results: list[np.ndarray]) -> list[tf.Tensor]:
        """The results of code, without the sizes at their end."""
        for number, size in zip(code.sized, results[len(self.results) :]):
            results[number] = results[number][: int(size)]
        return [tf.constant(array, tf.as_dtype(enum)) for array, enum in zip(results, self.results)]

    def compile(self, key: bytes) -> CompiledCode | None:
        """Code for a key, or None.

        Raises: ValueError  the code's outputs are not those of the op.
        """
        code = self.cluster.compile(*self.parse_key(key))
        if code is not None:
            types = tuple(dtype.as_datatype_enum for dtype, _ in code.results)
            if types != self.results:
                raise ValueError(
                    f"cluster {self.key}: compiled results have types {types}, the launch has {self.results}"
                )
        return code

    def _key_of(self, inputs: Sequence[tf.Tensor]) -> bytes:
        """The key of these inputs."""
        words: list[bytes] = []
        for position, tensor in enumerate(inputs):
            words.append(np.array([tensor.shape.rank, *tensor.shape], np.int64).tobytes())
            if position in self.constants:
                value = tensor.numpy().tobytes()
                words += [np.int64(len(value)).tobytes(), value.ljust(-(-len(value) // 8) * 8, b"\0")]
        return b"".join(words)

    def parse_key(self, key: bytes) -> tuple[list[InputSpec], dict[int, np.ndarray]]:
        """The dtype and dims of every input, and the values of the inputs keyed by value, that a key stands for."""
        last, parsed = self._parsed
        if last != key:
            parsed = self._parse(key)
            self._parsed = key, parsed
        return parsed

    def _parse(self, key: bytes) -> tuple[list[InputSpec], dict[int, np.ndarray]]:
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


def _timed_run(
    code: CompiledCode, arrays: list[np.ndarray], is_repeated: bool
) -> tuple[list[np.ndarray], float]:
    """The results of code, and the seconds of a run.

    is_repeated: of a second run, which finds memory and packed weights as later ones do, unless a run takes long or
        calls the host.
    """
    start = time.perf_counter()
    if not isinstance(code.owner, Executable) or not is_repeated:
        return code.owner.execute(arrays), time.perf_counter() - start
    frame, artifact = Frame(code.owner), code.owner.artifact
    results = code.owner.execute(arrays, frame)
    seconds = time.perf_counter() - start
    if seconds < _LONG_SECONDS and not artifact.host_callbacks:
        start = time.perf_counter()
        code.owner.execute(arrays, frame, bool(artifact.packed))
        seconds = time.perf_counter() - start
    return results, seconds


def _fill_output(
    output: Output,
    number: int,
    dtype: tf.DType,
    dims: tuple[int, ...],
    code: CompiledCode,
    owner: EntryOwner,
) -> None:
    words = (ctypes.c_int64 * max(len(dims), 1))(*dims)
    owner.buffers.append(words)
    output.dtype, output.rank, output.dims = dtype.as_datatype_enum, len(dims), ctypes.addressof(words)
    output.bytes = math.prod(dims) * dtype.size
    if number in code.alias:
        output.mode, output.source = ALIAS, code.alias[number]
    elif number in code.forward:
        output.mode, output.source = FORWARD, code.forward[number]
    elif number in code.sized:
        output.mode, output.source = SIZED, code.sized.index(number)
    elif code.may_bail_out:
        output.mode = LATER


def declared_types(values: Sequence[int], variables: Collection[int]) -> tuple[int, ...]:
    """DataTypes of a launch's inputs as its node declares them, from those of their values."""
    return tuple(int(tf.resource.as_datatype_enum) if k in variables else t for k, t in enumerate(values))
