"""The launch op: one TensorFlow op that runs a cluster's compiled code, picked by the shapes of its inputs.

`TfbridgeLaunch` has any number of inputs and outputs of plain types. Its attribute `cluster` is the key of a cluster
that was given to `register_cluster`; `constants` lists the inputs whose values, not only shapes, pick the code. A
launch is a pure function of its inputs, but the op is registered as stateful: nothing else keeps TensorFlow from
running a launch of constants while it optimizes a graph. Sessions share the kernels of stateful ops by node name, so
the name of a launch must belong to its cluster: `node_def` does that.
"""

from __future__ import annotations

import ctypes
import dataclasses
import hashlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import tensorflow as tf

from ...runtime.threads import background as background_work
from ...runtime.threads import interrupts
from ..tf_internals import symbols as private
from . import cluster_registry, coverage, kernel
from .launch_site import Background, Compile, Fallback, Guard, LaunchSite, RegisteredCluster
from .structs import CREATE, FALLBACK, INVALID_STATE, MISS

OP = "TfbridgeLaunch"
_NOT_PLAIN = (tf.string, tf.resource, tf.variant)


@dataclasses.dataclass(frozen=True)
class Variables:
    """The inputs of a launch that are handles of variables, by position, with the type of the value.

    updates: those of them that get new values, in the order of the new values.
    """

    contents: Mapping[int, tf.DType] = dataclasses.field(default_factory=dict)
    updates: tuple[int, ...] = ()

    def check(self, input_dtypes: Sequence[tf.DType]) -> None:
        """Raises: TypeError  other inputs are handles, or a value is of a type that is not plain."""
        handles = [k for k, dtype in enumerate(input_dtypes) if dtype == tf.resource]
        if handles != sorted(self.contents) or not set(self.updates) <= self.contents.keys():
            raise TypeError(
                f"launch: inputs {handles} are handles, variables are {sorted(self.contents)}, "
                f"updated {list(self.updates)}"
            )
        _check_types(self.contents.values())


NO_VARIABLES = Variables()


_callbacks: list[object] = []  # the C functions of create, miss and fallback


def ensure_registered() -> None:
    """Registers the op and its kernel with TensorFlow, once per process.

    Raises: TensorFlowMismatch  this TensorFlow lacks what that needs.
    """
    if _callbacks:
        return
    with cluster_registry.lock:
        if _callbacks:
            return
        private.check(private.OP)
        callbacks = [
            type_(interrupts.callback(function, gives=True))
            for type_, function in ((CREATE, _create), (MISS, _miss), (FALLBACK, _fall_back))
        ]
        native = kernel.load(*(ctypes.cast(c, ctypes.c_void_p).value or 0 for c in callbacks))
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
        private.register_kernel(OP, "CPU", native.create, native.compute, native.delete)
        _callbacks.extend(callbacks)


def run_entry_address() -> int:
    """Address of `run_entry` of `kernel.load`."""
    ensure_registered()
    return kernel.native().run_entry


def register_cluster(
    key: str,
    compile: Compile,
    fallback: Fallback,
    names: Sequence[str] = (),
    guard: Guard | None = None,
    recompile: Compile | None = None,
    on_evicted: Callable[..., None] | None = None,
    on_unused: Callable[[], None] | None = None,
    on_bailout: Callable[[str], None] | None = None,
    background: Background | None = None,
) -> None:
    """Makes a cluster known to launches that name `key`. The first registration of a key holds. `names` of the
    inputs.

    compile: gets the dtype and dims of every input and the values of the constant ones. None or an exception means
        that TensorFlow runs these shapes.
    fallback: runs the cluster's original nodes on eager tensors. Variables are passed by their value: one tensor for
        inputs that are one variable, None for one without a value. New values of variables follow its results, None
        for a variable that still has no value.
    guard: is called once for every key, with inputs of that key; false: TensorFlow runs the key.
    recompile: as compile, with larger capacities, after a run with the status CAPACITY_OVERFLOW; None when there is
        no such code.
    on_evicted: gets the arguments of `compile` when their code is not used any more.
    on_unused: is called when no graph has a launch of the cluster any more.
    on_bailout: gets the assumption of compiled code that failed, at every such run.
    background: how code is compiled while TensorFlow serves calls; None: all calls wait for their code.
    """
    ensure_registered()
    cluster_registry.add(
        key,
        RegisteredCluster(
            compile, fallback, names, guard, recompile, on_evicted, on_unused, on_bailout, background
        ),
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
    name = cluster_registry.eager_name(
        key, (tuple(inputs), tuple(outputs), tuple(constants), tuple(values), variables.updates)
    )
    attributes: tuple[object, ...] = ("Targs", inputs, "Tresults", outputs, "cluster", name.encode())
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
    """The address of the state for a new kernel: of the launch site that the node's attributes name."""
    try:
        node = private.kernel_node(construction)
        key = node.attr["cluster"].s.decode()
        inputs, outputs = tuple(node.attr["Targs"].list.type), tuple(node.attr["Tresults"].list.type)
        handles = (k for k, t in enumerate(inputs) if t == tf.resource.as_datatype_enum)
        contents = dict(zip(handles, map(tf.as_dtype, node.attr["contents"].list.type)))
        updates = tuple(node.attr["updates"].list.i)
        Variables(contents, updates).check([tf.as_dtype(t) for t in inputs])
        values = tuple(contents[k].as_datatype_enum if k in contents else t for k, t in enumerate(inputs))
        _check_types(map(tf.as_dtype, values + outputs))
        constants = tuple(node.attr["constants"].list.i)
        if any(not 0 <= c < len(inputs) for c in constants):
            raise private.error_of(
                tf.errors.INVALID_ARGUMENT, f"constants {constants} of {len(inputs)} inputs"
            )
        launch = cluster_registry.new_kernel(key, inputs, values, outputs, constants, updates, contents)
        return launch.address
    except Exception as error:
        private.fail_kernel(construction, error)
        return INVALID_STATE


# The launch and the key for which a thread's call found no code, until TensorFlow has served it. A thread of
# TensorFlow's is a new one for Python in every call, so that it has no `threading.local`.
_uncompiled: dict[int, tuple[LaunchSite, bytes, int]] = {}


def _miss(number: int, key_at: int, key_bytes: int, hash_: int) -> int:
    """The entry for a new key. Threads that wait for the same key at the same time compile it once."""
    launch, key = cluster_registry.site(number), ctypes.string_at(key_at, key_bytes)
    waits: bool | None = None
    while True:
        with launch.lock:
            owner = launch.table.entries.get(key)
            if owner is not None:
                return owner.address
            other = launch.compiling.get(key)
            if other is None and waits is False:
                if not launch.count_call(key):
                    return launch.publish(key, hash_, None)
                _uncompiled[threading.get_ident()] = launch, key, hash_
                return launch.cold.address
            if other is None and waits:
                done = launch.compiling[key] = threading.Event()
                break
        if other is not None:
            interrupts.wait(other.wait)
        else:
            waits = launch.waits_for_code(key)
    try:
        with private.plain_eager():
            code, failure = launch.try_compile(key)
    except BaseException as error:  # Ctrl-C: the next call compiles the key
        _end_compiling(launch, key, done)
        interrupts.raise_later(error)
        return launch.cold.address
    try:
        if code is None:
            cluster_registry.report_failure(launch.key, failure)
    finally:
        address = launch.publish(key, hash_, code)
        _end_compiling(launch, key, done)
    return address


def _end_compiling(launch: LaunchSite, key: bytes, done: threading.Event) -> None:
    with launch.lock:
        launch.compiling.pop(key, None)  # a child of a fork has none
    done.set()


def _fall_back(number: int, tensors: int, variables: int, new: int, reason: int, status: int) -> int:
    """Runs the cluster's original nodes in TensorFlow and hands their results to the kernel; returns 1."""
    launch = cluster_registry.site(number)
    uncompiled = _uncompiled.pop(threading.get_ident(), None)
    try:
        if background_work.preparations.is_here():  # the call was made to ask for its code alone
            if uncompiled is not None:
                with launch.lock:
                    launch.request_code(*uncompiled[1:])
            raise private.error_of(tf.errors.CANCELLED, "the call was made to ask for code")
        _report_bailout(launch, reason)
        handles = _pointers(variables, len(launch.inputs))
        with private.plain_eager():
            inputs = _input_tensors(launch, _pointers(tensors, len(launch.inputs)), handles)
            if launch.table.has_retired:
                with launch.lock:
                    launch.table.reclaim()
            start = time.perf_counter()
            outputs = _run_original(launch, inputs)
            if uncompiled is not None and uncompiled[0] is launch:
                with launch.lock:
                    launch.note_tensorflow_run(*uncompiled[1:], time.perf_counter() - start)
            for target, tensor in zip(launch.updates, outputs[len(launch.outputs) :]):
                if tensor is not None and not handles[target]:
                    raise _no_variable(launch, target)
            for position, tensor in enumerate(outputs):
                if tensor is not None:
                    ctypes.c_void_p.from_address(new + 8 * position).value = private.resolved(tensor)
        private.clear_status(status)
    except Exception as error:
        private.set_status(status, error, f"cluster {launch.key} in TensorFlow")
    return 1


def _report_bailout(launch: LaunchSite, reason: int) -> None:
    """Tells the cluster which assumption of compiled code failed, if one did; `reason` is the address of a text."""
    text = ctypes.string_at(reason).decode(errors="replace") if reason else ""
    if text and launch.cluster.on_bailout is not None:
        with launch.lock:
            launch.cluster.on_bailout(text)


def _input_tensors(
    launch: LaunchSite, tensors: Sequence[int | None], handles: Sequence[int | None]
) -> list[tf.Tensor | None]:
    """The inputs as eager tensors: one tensor for inputs that are one variable, None for a variable without a value."""
    # By position, or by variable; nothing was written to the handle of an input that is none.
    names = [
        (k, None) if not kind or not handles[k] else (None, handles[k]) for k, kind in enumerate(launch.kinds)
    ]
    unique = {name: tensor for name, tensor in zip(names, tensors) if tensor}
    tensor_of = dict(zip(unique, private.tensors_of(unique.values())))
    return [tensor_of[name] if tensor else None for name, tensor in zip(names, tensors)]


def _run_original(launch: LaunchSite, inputs: list[tf.Tensor | None]) -> list[tf.Tensor | None]:
    """The results of the cluster's nodes, after its code was compiled with larger capacities or benchmarked, if due.

    Raises: ValueError  the nodes' results are not those of the op.
    """
    outputs: list[tf.Tensor | None] | None = None
    present = [tensor for tensor in inputs if tensor is not None]
    if len(present) == len(inputs):
        if any(owner.entry.overflowed for owner in tuple(launch.table.entries.values())):
            launch.recompile(present)
        if launch.benchmarks:
            outputs = launch.benchmark(present)
    if outputs is None:
        coverage.process.fallbacks += 1
        outputs = launch.cluster.fallback(inputs)
    types = [None if tensor is None else tensor.dtype.as_datatype_enum for tensor in outputs]
    if any(type_ not in (None, expected) for type_, expected in zip(types, launch.results, strict=True)):
        raise ValueError(f"results have types {types}, the launch has {launch.results}")
    return outputs


def _pointers(address: int | None, count: int) -> Sequence[int | None]:
    """An array of pointers; nulls where there is none."""
    return list((ctypes.c_void_p * count).from_address(address)) if address and count else [None] * count


def _no_variable(launch: LaunchSite, position: int) -> Exception:
    """The error for a variable that does not exist in TensorFlow and is to get a new value."""
    names = launch.cluster.names
    name = names[position] if position < len(names) else f"input {position} of {launch.key}"
    return private.error_of(
        tf.errors.FAILED_PRECONDITION,
        f"Could not find variable {name}. This could mean that the variable has been "
        "deleted. In TF1, it can also mean the variable is uninitialized.",
    )
