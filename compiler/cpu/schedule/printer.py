"""Instruction order, buffers and thunks of a program as text for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .buffer_assignment import BufferAssignment
from .thunks import (
    ChainThunk,
    CheckThunk,
    ConditionalThunk,
    CopyThunk,
    HostCallbackThunk,
    KernelThunk,
    ParallelThunk,
    PrepackThunk,
    Thunk,
    ThunkProgram,
    WhileThunk,
    sequences,
)


def print_program(program: ThunkProgram, assignment: BufferAssignment) -> str:
    """The instruction order of every computation, then where buffers lie, then the thunks."""
    return "\n".join(
        (print_order(program), print_buffers(program, assignment), "thunks\n" + print_thunks(program))
    )


def print_order(program: ThunkProgram) -> str:
    """For each computation that thunks run, its instructions in the order in which they run."""
    lines = []
    for sequence in sequences(program.entry):
        lines.append(f"order of {sequence.name}")
        lines += [f"  {k}: {instruction}" for k, instruction in enumerate(sequence.order)]
    return "\n".join(lines) + "\n"


def print_buffers(program: ThunkProgram, assignment: BufferAssignment) -> str:
    """Arguments, results and constants, then temporaries with offset and live range.

    Units: bytes; a live range is the first and the last position among the thunks.
    """
    lines = [f"argument {k}: {shape}, {shape.bytes:,} bytes" for k, shape in enumerate(program.arguments)]
    lines += [f"result {k}: {shape}, {shape.bytes:,} bytes" for k, shape in enumerate(program.results)]
    lines.append(f"constants: {len(program.constants):,} bytes")
    return "\n".join(lines) + f"\n{assignment}"


def print_thunks(program: ThunkProgram) -> str:
    """The thunks, a line or two each, indented within loops and branches."""
    return "\n".join(_lines([*program.prepacking, *program.entry.thunks], "")) + "\n"


def _lines(thunks: Iterable[Thunk], indent: str) -> Iterator[str]:
    inner = indent + "    "
    for thunk in thunks:
        match thunk:
            case KernelThunk():
                info = thunk.kernel
                rows = f"rows up to {' '.join(map(str, thunk.live.counts))} of " if thunk.live else ""
                yield (
                    f"{indent}kernel {info.symbol} of {thunk.instruction.name}: {rows}{info.tasks} tasks, "
                    f"grain {info.grain}, {'parallel' if info.parallel else 'serial'}, {info.flops:,} flops, "
                    f"{info.bytes:,} bytes"
                )
                yield f"{inner}{' '.join(map(str, thunk.buffers))}"
                for part in thunk.parts:
                    yield f"{inner}{part.kernel.symbol} of {part.instruction.name}: {part.kernel.tasks} tasks"
            case ChainThunk():
                yield f"{indent}if {thunk.are_run}"
                yield from _lines([thunk.chain], inner)
                yield f"{indent}else"
                yield from _lines(thunk.parts, inner)
            case PrepackThunk():
                yield f"{indent}before the entry, if {thunk.kernel.buffers[-1]} has memory"
                yield from _lines([thunk.kernel], inner)
            case HostCallbackThunk():
                yield f"{indent}host callback {thunk.number}: {thunk.callback.kind} {thunk.callback.name}"
                yield f"{inner}{' '.join(map(str, thunk.buffers))}"
            case CheckThunk():
                message = thunk.message.decode(errors="replace")
                yield f"{indent}end with status {thunk.status} if {thunk.failed}: {message}"
            case CopyThunk():
                yield f"{indent}copy {thunk.source} to {thunk.target}"
            case WhileThunk():
                yield from _lines(thunk.preheader, indent)
                yield f"{indent}while {thunk.test} of {thunk.condition.name}"
                yield from _lines(thunk.condition.thunks, inner)
                yield f"{indent}do {thunk.body.name}"
                yield from _lines(thunk.body.thunks, inner)
            case ConditionalThunk():
                for k, branch in enumerate(thunk.branches):
                    yield f"{indent}branch {k} by {thunk.selector}: {branch.name}"
                    yield from _lines(branch.thunks, inner)
            case ParallelThunk():
                for k, branch in enumerate(thunk.branches):
                    yield f"{indent}parallel branch {k}: {branch.name}"
                    yield from _lines(branch.thunks, inner)
