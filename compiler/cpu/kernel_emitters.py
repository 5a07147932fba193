"""Which code generator writes the kernel of an instruction."""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Callable

from ...runtime.llvm.ir_builder import ModuleText
from ...runtime.llvm.target import Target
from ..ir.module import Computation, Instruction
from ..ops import Fusion, Parameter
from ..options import Options
from ..passes.cse import fingerprint
from .codegen.kernel_info import KernelPlan

Emitter = Callable[[ModuleText, Target, Instruction, Options], KernelPlan]


def updated_operands(instruction: Instruction) -> list[tuple[int, int]]:
    """(output leaf, operand number) pairs that the instruction's kernel updates in place (KernelPlan.initial)."""
    if instruction.opcode in ("cholesky", "dynamic-update-slice"):
        return [(0, 0)]
    if instruction.opcode == "triangular-solve":
        return [(0, 1)]
    if instruction.opcode == "scatter":
        return [(k, k) for k in range(len(instruction.operands) // 2)]
    if instruction.opcode == "sort":
        return [(k, k) for k in range(len(instruction.operands))]
    return []


def emit_kernel(
    text: ModuleText, target: Target, instruction: Instruction, options: Options, b_packed: bool = False
) -> KernelPlan:
    """Writes the kernel of an instruction; equal fusions, products and convolutions of a module have one. With
    `b_packed` the right operand of its product is packed (schedule/prepacking.py).

    Raises: UnsupportedError  there is no CPU code for the op, or not for these types.
    """
    if instruction.opcode not in ("fusion", "dot", "convolution"):
        return _emit(text, target, instruction, options)
    op = instruction.op
    computation = op.computation if isinstance(op, Fusion) else as_computation(instruction)
    key = fingerprint(computation), b_packed, target.threads
    plan = text.plans.get(key)
    if plan is None and b_packed:
        from .output_fusion import emit_output_fusion

        plan = text.plans[key] = emit_output_fusion(text, target, computation, options, True)
    elif plan is None:
        plan = text.plans[key] = _emit(text, target, instruction, options)
    return plan


def _emit(text: ModuleText, target: Target, instruction: Instruction, options: Options) -> KernelPlan:
    emitter = _emitter(instruction.opcode)
    if emitter is not None:
        return emitter(text, target, instruction, options)
    from .loops.loop_fusion import emit_fused

    return emit_fused(text, target, as_computation(instruction), options)


def as_computation(instruction: Instruction) -> Computation:
    """The computation that applies just this instruction to parameters."""
    parameters = tuple(
        Instruction(Parameter(k, o.shape), (), o.shape, f"p{k}") for k, o in enumerate(instruction.operands)
    )
    return Computation(
        instruction.name or instruction.opcode,
        dataclasses.replace(instruction, operands=parameters),
        parameters,
    )


def _fusion(text: ModuleText, target: Target, instruction: Instruction, options: Options) -> KernelPlan:
    from .loops.loop_fusion import emit_fused
    from .output_fusion import contraction_of, emit_output_fusion

    computation = instruction.op.computation  # type: ignore[attr-defined]
    if contraction_of(computation) is not None:
        return emit_output_fusion(text, target, computation, options)
    return emit_fused(text, target, computation, options)


def _contraction(text: ModuleText, target: Target, instruction: Instruction, options: Options) -> KernelPlan:
    from .output_fusion import emit_output_fusion

    return emit_output_fusion(text, target, as_computation(instruction), options)


# opcode: (module in this folder, function); loaded when first needed
_EMITTERS = {
    "cholesky": ("linalg.cholesky", "emit_cholesky"),
    "dynamic-update-slice": ("kernels.dynamic_update_slice", "emit_dynamic_update_slice"),
    "fft": ("fft.emit", "emit_fft"),
    "nonzero": ("kernels.nonzero", "emit_nonzero"),
    "partition-id": ("kernels.device_id", "emit_device_number"),
    "replica-id": ("kernels.device_id", "emit_device_number"),
    "rng": ("kernels.rng_seed", "emit_seed"),
    "rng-bit-generator": ("kernels.rng_bit_generator", "emit_rng_bit_generator"),
    "scatter": ("kernels.scatter", "emit_scatter"),
    "select-and-scatter": ("kernels.select_and_scatter", "emit_select_and_scatter"),
    "sort": ("kernels.sort", "emit_sort"),
    "topk": ("kernels.top_k", "emit_top_k"),
    "triangular-solve": ("linalg.triangular_solve", "emit_triangular_solve"),
}


_COMMON = (
    "loops.column_reduction",
    "convolution.emit",
    "convolution.small_output_channels",
    "convolution.implicit_gemm",
    "convolution.backward_weights",
    "convolution.naive",
    "convolution.depthwise",
    "loops.loop_fusion",
    "output_fusion",
    "schedule.prepacking",
    "loops.bitcast_convert",
    "kernels.scatter",
    "loops.tiled_transpose",
)


def load_common() -> None:
    """Loads what writes the kernels of most programs: else that happens when one is first needed."""
    for module in _COMMON:
        importlib.import_module(f".{module}", __package__)


@functools.cache
def _emitter(opcode: str) -> Emitter | None:
    """What writes the kernel of an opcode; None when it is written as a fusion."""
    if opcode == "fusion":
        return _fusion
    if opcode in ("dot", "convolution"):
        return _contraction
    if opcode not in _EMITTERS:
        return None
    module, name = _EMITTERS[opcode]
    return getattr(importlib.import_module(f".{module}", __package__), name)
