"""What is known while a module is lowered: of the module, of the loops around, of one computation."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

from ....runtime.code.artifact import HostCallback, Packed
from ....runtime.llvm.ir_builder import ModuleText
from ....runtime.llvm.target import Target
from ...analysis.live_rows import LiveSizes
from ...ir.module import Instruction
from ...ops import Fusion
from ...options import Options
from ..codegen.kernel_info import PLAIN, KernelInfo, KernelVariant, Slices
from ..kernel_emitters import emit_kernel, kernel_key
from ..output_fusion import contraction_of
from .aliasing import LogicalBuffer
from .buffer import Buffer, Constants
from .parallel_copy import Move, sequentialize
from .prepacking import Packing, packing_of
from .thunks import CopyThunk, PrepackThunk, Thunk
from .value_buffers import ValueBuffers


@dataclasses.dataclass
class Packings:
    """How the right operands of contractions are packed; each instruction is analyzed once."""

    packings: dict[tuple[Instruction, int], Packing | None] = dataclasses.field(default_factory=dict)

    def of(self, instruction: Instruction, target: Target) -> Packing | None:
        """The packing of an instruction's operand; None where it has no contraction, or nothing is gained."""
        key = instruction, target.threads
        if key not in self.packings:
            self.packings[key] = (
                packing_of(instruction, target) if contraction_in(instruction) is not None else None
            )
        return self.packings[key]


def contraction_in(instruction: Instruction) -> Instruction | None:
    """The contraction that an instruction is, or that is in it, a fusion; None where there is none."""
    op = instruction.op
    if isinstance(op, Fusion):
        return contraction_of(op.computation)
    return instruction if op.is_contraction else None


@dataclasses.dataclass
class PackedArguments:
    """The `invariant` arguments, and those of them that are packed before the entry is called."""

    invariant: set[Buffer] = dataclasses.field(default_factory=set)
    buffers: dict[Hashable, Buffer] = dataclasses.field(default_factory=dict)
    thunks: list[PrepackThunk] = dataclasses.field(default_factory=list)
    packed: list[Packed] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class EnclosingLoop:
    """A loop whose computations are lowered: the buffers that it does not change, the thunks before it, and the
    buffers that those pack."""

    invariant: frozenset[Buffer]
    preheader: list[Thunk]
    packed: dict[Hashable, Buffer] = dataclasses.field(default_factory=dict)


class Kernels:
    """The kernels of a module. Each is written to `text` when it is first needed, and `on_kernel` gets its symbol."""

    def __init__(self, text: ModuleText, options: Options, on_kernel: Callable[[str], None]) -> None:
        self.text, self.options, self._on_kernel = text, options, on_kernel
        self._by_computation: dict[Hashable, KernelInfo] = {}
        self._infos: dict[tuple[Instruction, KernelVariant, int], KernelInfo] = {}

    def info(self, instruction: Instruction, target: Target, variant: KernelVariant = PLAIN) -> KernelInfo:
        """The kernel of an instruction."""
        key = instruction, variant, target.threads
        if key not in self._infos:
            self._infos[key] = self.written(self._info(instruction, target, variant))
        return self._infos[key]

    def _info(self, instruction: Instruction, target: Target, variant: KernelVariant) -> KernelInfo:
        """One kernel for all instructions that compute the same."""
        computation = kernel_key(instruction)
        key = computation, variant, target.threads
        info = None if computation is None else self._by_computation.get(key)
        if info is None:
            info = self._by_computation[key] = emit_kernel(
                self.text, target, instruction, self.options, variant
            )
        return info

    def written(self, info: KernelInfo) -> KernelInfo:
        """Reports a kernel that was written to `text`."""
        self._on_kernel(info.symbol)
        return info


@dataclasses.dataclass(frozen=True)
class Context:
    """What the computations of a module share while they are lowered."""

    kernels: Kernels
    target: Target
    constants: Constants
    host_callbacks: list[HostCallback]
    packings: Packings
    packed_arguments: PackedArguments
    loops: tuple[EnclosingLoop, ...] = ()
    temporaries: Iterator[int] = dataclasses.field(default_factory=itertools.count)

    def temporary(self, size: int) -> Buffer:
        """New temporary memory of that many bytes."""
        return Buffer("temporary", size, next(self.temporaries))


@dataclasses.dataclass
class Scope:
    """A computation while it is lowered: the buffers of its values so far, and the position in its order."""

    context: Context
    values: ValueBuffers
    users: Mapping[Instruction, Sequence[Instruction]]
    live: LiveSizes
    slices: Mapping[Instruction, Slices] = dataclasses.field(default_factory=dict)
    """Those of members of chains (kernel_chains.py)."""
    position: int = 0

    def outputs(self, instruction: Instruction, reusable: Sequence[LogicalBuffer] = ()) -> list[Buffer]:
        """Buffers for all leaves of an instruction's value."""
        return [
            self.values.assign(LogicalBuffer(instruction, k), shape.bytes, self.position, reusable)
            for k, shape in enumerate(instruction.shape.leaves())
        ]

    def operands(self, instruction: Instruction) -> list[LogicalBuffer]:
        """The logical buffers of all leaves of the operands."""
        return [v for operand in instruction.operands for v in self.values.aliasing.buffers[operand]]

    def copies(self, moves: Sequence[Move]) -> list[Thunk]:
        """Copies with the effect of all moves at once."""
        return copy_thunks(sequentialize(moves, self.context.temporary))


def copy_thunks(moves: Sequence[Move]) -> list[Thunk]:
    """Copies one after another; those of no bytes are left out."""
    return [CopyThunk(source, target) for source, target in moves if source.bytes]
