"""Host callbacks: ops for which compiled code calls the process that it runs in."""

from __future__ import annotations

from collections.abc import Sequence

from ....runtime.code.artifact import BufferSpec, HostCallback
from ....runtime.devices import custom_calls
from ....runtime.sizes import is_symbolic
from ...errors import UnsupportedError
from ...ir.module import Computation, Instruction, Module
from ...ir.shape import Shape
from ...ops import (
    AfterAll,
    AllGather,
    AllReduce,
    AllToAll,
    Collective,
    CollectiveBroadcast,
    CollectivePermute,
    CustomCall,
    Infeed,
    Op,
    Outfeed,
    Recv,
    RecvDone,
    ReduceScatter,
    Send,
    SendDone,
    Trace,
)

CALLBACK_OPS: tuple[type[Op], ...] = (
    AllGather,
    AllToAll,
    CollectivePermute,
    CollectiveBroadcast,
    Infeed,
    Outfeed,
    Send,
    Recv,
    RecvDone,
    Trace,
)
"""Ops for which compiled code calls the host, and custom calls that are no checks."""
ORDERING_OPS: tuple[type[Op], ...] = (AfterAll, SendDone)
"""Ops that order others and do nothing."""


def spec_of(shape: Shape) -> BufferSpec:
    """An array's; of a token an empty one. Raises: UnsupportedError  its sizes are known at run time only."""
    if not shape.is_array:
        return BufferSpec("uint8", (0,), 0)
    if is_symbolic(shape.dims):
        raise UnsupportedError(f"the host gives and gets arrays of known sizes, not {shape}")
    return BufferSpec(shape.element_type.dtype_name, shape.dims, shape.bytes)


def host_callback_of(instruction: Instruction) -> HostCallback:
    """What the runtime must know about a host callback. Only C functions have buffers for tokens.

    Raises: UnsupportedError  the collective is not one that only moves bytes; no such custom-call target; sizes are
        known at run time only.
    """
    op = instruction.op
    inputs = [leaf for operand in instruction.operands for leaf in operand.shape.leaves()]
    outputs = list(instruction.shape.leaves())
    attributes: dict[str, object] = {}
    if isinstance(op, CustomCall):
        attributes = _custom_call(op)
    elif isinstance(op, Collective):
        if (
            (isinstance(op, AllGather) and op.all_gather_dimension)
            or isinstance(op, AllReduce | ReduceScatter)
            or (isinstance(op, AllToAll) and op.split_dimension)
        ):
            raise UnsupportedError(f"{op.opcode}: the pass expand_collectives did not run")
        attributes = {"who": op.participants, "signature": op.signature(inputs)}
        if isinstance(op, CollectivePermute):
            attributes["pairs"] = op.source_target_pairs
    elif isinstance(op, Send):
        inputs, outputs = list(instruction.operands[0].shape.leaves()), outputs[-2:]
        attributes = {"channel_id": op.channel_id, "signature": _described(inputs)}
    elif isinstance(op, RecvDone):
        inputs = []
        attributes = {"channel_id": op.channel_id, "signature": _described(outputs)}
    elif isinstance(op, Trace):
        attributes = {"tag": op.tag}
    if not attributes.get("is_c"):
        inputs, outputs = ([s for s in side if s.is_array] for side in (inputs, outputs))
    return HostCallback(
        op.opcode,
        instruction.name or op.opcode,
        tuple(map(spec_of, inputs)),
        tuple(map(spec_of, outputs)),
        attributes,
    )


def _described(shapes: list[Shape]) -> str:
    return ", ".join(f"{s.element_type.dtype}[{','.join(map(str, s.dims))}]" for s in shapes if s.is_array)


def _custom_call(op: CustomCall) -> dict[str, object]:
    target = custom_calls.find(op.custom_call_target)
    if target is None:
        raise UnsupportedError(
            f"custom-call target {op.custom_call_target!r} is not registered; known: "
            f"{', '.join(custom_calls.registered_names()) or 'none'} (register_custom_call)"
        )
    if target.address and op.api_version not in custom_calls.C_VERSIONS:
        raise UnsupportedError(
            f"custom-call target {op.custom_call_target!r}: a C function with {op.api_version} is not called"
        )
    return {
        "target": op.custom_call_target,
        "api_version": op.api_version,
        "opaque": op.opaque.decode("latin-1"),
        "is_tuple": op.shape.is_tuple,
        "is_c": bool(target.address),
    }


def registered(module: Module) -> str:
    """What the code of a module depends on besides its text: which of its custom-call targets are C functions."""
    return ", ".join(
        f"{name}: {'C' if (t := custom_calls.find(name)) is not None and t.address else 'Python'}"
        for name in _targets(module)
    )


def calls_here(module: Module) -> bool:
    """Whether a module calls functions that are registered in this process."""
    return any(custom_calls.find(name) is not None for name in _targets(module))


def _targets(module: Module) -> list[str]:
    """The custom-call targets of a module."""

    def calls(computation: Computation) -> set[str]:
        return {i.op.custom_call_target for i in computation.instructions if isinstance(i.op, CustomCall)}

    return sorted(set().union(*map(calls, module.computations())))


def operands_read(instruction: Instruction) -> Sequence[Instruction]:
    """The operands whose values the host reads."""
    match instruction.op:
        case Send():
            return instruction.operands[:1]
        case RecvDone():
            return ()
    return instruction.operands
