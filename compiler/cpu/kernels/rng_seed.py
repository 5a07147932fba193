"""The kernel of an rng that draws a seed: two u64 from the run context's state, whose second word counts the draws."""

from __future__ import annotations

from ....runtime.llvm.ir_builder import Function, ModuleText
from ....runtime.llvm.target import Target
from ....runtime.llvm.vector_value import Lanes
from ....runtime.run_context import OFFSETS
from ...errors import UnsupportedError
from ...ir.module import Instruction
from ...options import Options
from ...passes.expand_rng import is_seed
from ..codegen.kernel_info import KernelPlan
from ..codegen.parallel_for import KERNEL_PARAMETERS

_STEP = 0x9E3779B97F4A7C15 - (1 << 64)
_FACTORS = ((30, 0xBF58476D1CE4E5B9 - (1 << 64)), (27, 0x94D049BB133111EB - (1 << 64)))


def emit_seed(module: ModuleText, target: Target, instruction: Instruction, options: Options) -> KernelPlan:
    """Writes the kernel.

    Raises: UnsupportedError  other random numbers: the pass expand_rng did not run.
    """
    if not is_seed(instruction):
        raise UnsupportedError(f"rng of {instruction.shape}: only seeds have code of their own")
    f = Function(module, "SELF", KERNEL_PARAMETERS)
    result = f.load("ptr", f.offset(f["buffers"], 16), 8)
    state = f.load("ptr", f.offset(f["context"], OFFSETS["rng_state"]), 8)
    count_at = f.offset(state, 8)
    key, count = Lanes(f, f.load("i64", state, 8)), Lanes(f, f.load("i64", count_at, 8))
    f.store((count + 1).value, count_at, 8)
    base = key + _mixed(count + _STEP)
    for word in range(2):
        f.store(_mixed(base + (word + 1) * 2).value, f.offset(result, 8 * word), 8)
    f.ret()
    return KernelPlan(module.define("seed", f), 1, bytes=16)


def _mixed(x: Lanes) -> Lanes:
    """SplitMix64's last steps: every bit of the result depends on all bits.

    Source: Steele, Lea and Flood, Fast splittable pseudorandom number generators (OOPSLA 2014).
    """
    for shift, factor in _FACTORS:
        x = (x ^ x.shift_right(shift)) * factor
    return x ^ x.shift_right(31)
