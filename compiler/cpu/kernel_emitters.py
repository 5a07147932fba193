"""Which emitter writes the kernel of an instruction: one table, by op."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Hashable
from typing import cast

from ...runtime.llvm.ir_builder import ModuleText
from ...runtime.llvm.target import Target
from ..ir.module import Computation, Instruction, Op
from ..ops import (
    BlockScaledDot,
    Cholesky,
    DynamicUpdateSlice,
    Fft,
    Fusion,
    IsotonicRegression,
    LuDecomposition,
    Nonzero,
    PartitionId,
    ReplicaId,
    Rng,
    RngBitGenerator,
    Scatter,
    SelectAndScatter,
    SelfAdjointEig,
    Sort,
    TopK,
    TriangularSolve,
)
from ..ops.fusion import as_computation
from ..options import Options
from ..passes.cse import fingerprint
from .codegen.kernel_info import PLAIN, KernelInfo, KernelVariant

Emitter = Callable[[ModuleText, Target, Instruction, Options], KernelInfo]

# "module in this folder:function", imported at the first use.
_EMITTERS: dict[type[Op], str] = {
    BlockScaledDot: "kernels.block_scaled_dot:emit_block_scaled_dot",
    Cholesky: "linalg.cholesky:emit_cholesky",
    DynamicUpdateSlice: "kernels.dynamic_update_slice:emit_dynamic_update_slice",
    Fft: "fft.emit:emit_fft",
    IsotonicRegression: "kernels.isotonic_regression:emit_isotonic_regression",
    LuDecomposition: "linalg.lu_decomposition:emit_lu_decomposition",
    Nonzero: "kernels.nonzero:emit_nonzero",
    PartitionId: "kernels.device_id:emit_device_number",
    ReplicaId: "kernels.device_id:emit_device_number",
    Rng: "kernels.rng_seed:emit_seed",
    RngBitGenerator: "kernels.rng_bit_generator:emit_rng_bit_generator",
    Scatter: "kernels.scatter:emit_scatter",
    SelectAndScatter: "kernels.select_and_scatter:emit_select_and_scatter",
    SelfAdjointEig: "linalg.self_adjoint_eig:emit_self_adjoint_eig",
    Sort: "kernels.sort:emit_sort",
    TopK: "kernels.top_k:emit_top_k",
    TriangularSolve: "linalg.triangular_solve:emit_triangular_solve",
}
"""Emitters of ops with kernels of their own. All other ops are computations: of scalars at an index (`_ELEMENTS`), with
a contraction among them (`_CONTRACTION`)."""
_ELEMENTS = "loops.emit:emit_fused"
_CONTRACTION = "output_fusion:emit_output_fusion"
_COMMON = ("loops.emit", "output_fusion", "convolution.emit", "kernels.scatter")


def emit_kernel(
    text: ModuleText,
    target: Target,
    instruction: Instruction,
    options: Options,
    variant: KernelVariant = PLAIN,
) -> KernelInfo:
    """Writes the kernel of an instruction.

    Raises: UnsupportedError  there is no CPU code for the op, or not for these types.
    """
    if (own := _EMITTERS.get(type(instruction.op))) is not None:
        emitter = cast("Emitter", _loaded(own))
        return emitter(text, target, instruction, options)
    computation = computation_of(instruction)
    if any(i.op.is_contraction for i in computation.instructions):
        info: KernelInfo = _loaded(_CONTRACTION)(text, target, computation, options, variant)
    else:
        info = _loaded(_ELEMENTS)(text, target, computation, options, variant)
    return info


def kernel_key(instruction: Instruction) -> Hashable:
    """Equal for instructions whose kernels are equal; None where each has its own."""
    op = instruction.op
    return fingerprint(computation_of(instruction)) if isinstance(op, Fusion) or op.is_contraction else None


def computation_of(instruction: Instruction) -> Computation:
    """What a kernel computes: the fused computation, or the instruction alone."""
    op = instruction.op
    return op.computation if isinstance(op, Fusion) else as_computation(instruction)


def load_emitters() -> None:
    """Imports the emitters that most programs need, which otherwise happens at their first use."""
    for module in _COMMON:
        importlib.import_module(f".{module}", __package__)


@functools.cache
def _loaded(emitter: str) -> Callable[..., KernelInfo]:
    module, name = emitter.split(":")
    function: Callable[..., KernelInfo] = getattr(importlib.import_module(f".{module}", __package__), name)
    return function
