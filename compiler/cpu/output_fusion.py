"""Output fusions: the kernel of a dot or a convolution, and the instructions after it as its epilogue.

The raw result is stored to an output of the kernel where one has its type and size, else to scratch; the epilogue is
evaluated block by block while the block is in cache.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ...runtime.llvm.ir_builder import DRIVER_ATTRIBUTES, Function, ModuleText, Ptr
from ...runtime.llvm.target import Target
from ..analysis.convolution_problem import as_gemm, convolution_problem
from ..analysis.gemm_problem import GemmProblem, gemm_problem
from ..analysis.output_view import output_view, raw_type, transposed_strides
from ..errors import UnsupportedError
from ..ir.module import Computation, Instruction, make
from ..ir.shape import Shape
from ..ops import Convert, Dot, Parameter, Reshape, Tuple
from ..options import Options
from .codegen.kernel_info import PLAIN, KernelInfo, KernelVariant
from .codegen.parallel_for import KERNEL_PARAMETERS
from .convolution.emit import emit_convolution
from .gemm.emit import emit_gemm, ends_in_tiles
from .gemm.tile_end import TileEnd, tile_end
from .loops.epilogue import emit_epilogue

_FIRST_EPILOGUE_BUFFER = 4  # A, B, C, scratch come first


def contraction_of(computation: Computation) -> Instruction | None:
    """The contraction of a fused computation; None when it has none."""
    return next((i for i in computation.instructions if i.op.is_contraction), None)


def emit_output_fusion(
    module: ModuleText,
    target: Target,
    computation: Computation,
    options: Options,
    variant: KernelVariant = PLAIN,
) -> KernelInfo:
    """Writes the kernel of a computation that holds one contraction of its parameters.

    Raises: UnsupportedError  element types without a kernel, or axes that do not collapse to rows and columns.
    """
    contraction = contraction_of(computation)
    assert contraction is not None
    if not all(isinstance(o.op, Parameter) for o in contraction.operands):
        raise UnsupportedError(f"{contraction.opcode}: its operands must be computed before it")
    if not any(s.elements for s in computation.root.shape.leaves()):
        empty = Function(module, "SELF", KERNEL_PARAMETERS)
        empty.ret()
        return KernelInfo(module.define(contraction.opcode, empty), 0)
    raw = contraction.shape.with_type(raw_type(contraction))
    strides = transposed_strides(contraction, computation.root)
    epilogue, parameters = (None, []) if strides else _epilogue(computation, contraction, raw)
    numbers = {p: k for k, p in enumerate(computation.parameters)}
    buffers = _Buffers(
        [numbers[o] for o in contraction.operands],
        [numbers[p] for p in parameters],
        len(computation.parameters),
        variant.depth_sizes,
        list(computation.root.shape.leaves()),
        raw,
    )
    symbol, keeps_result = None, buffers.raw_output is not None
    end = _tile_end(target, contraction, raw, epilogue, variant)
    if epilogue is not None and end is None:
        symbol = emit_epilogue(module, target, epilogue, output_view(contraction), *buffers.of_epilogue())
    if isinstance(contraction.op, Dot):
        problem = gemm_problem(contraction, raw.element_type, strides)
        inner = emit_gemm(
            module,
            target,
            problem,
            symbol,
            variant.b_packed,
            keeps_result=keeps_result,
            is_partial=variant.is_partial,
            depth_sizes=buffers.of_depth(),
            end=end,
            slices=variant.slices,
        )
    else:
        inner = emit_convolution(
            module,
            target,
            contraction,
            raw,
            symbol,
            variant.b_packed,
            keeps_result,
            end,
            variant.slices,
        )
    if not _keeps_order(computation, contraction):
        inner = dataclasses.replace(inner, in_order=None)
    return _wrapper(module, target, contraction.opcode, inner, buffers)


def _tile_end(
    target: Target,
    contraction: Instruction,
    raw: Shape,
    epilogue: Computation | None,
    variant: KernelVariant,
) -> TileEnd | None:
    """The epilogue as the end of a product's tiles; None where it is not that simple, or the kernel has no tiles."""
    if epilogue is None or not raw.elements or epilogue.root.shape != raw.with_dims(epilogue.root.shape.dims):
        return None
    if isinstance(contraction.op, Dot):
        problem: GemmProblem | None = gemm_problem(contraction, raw.element_type)
    else:
        problem = as_gemm(convolution_problem(contraction, raw.element_type))
    if problem is None:
        return None
    end = tile_end(epilogue, problem.n, _FIRST_EPILOGUE_BUFFER)
    has_depth = variant.depth_sizes > 0
    if end is None or not ends_in_tiles(  # which plans the product
        target, problem, variant.b_packed, has_depth, variant.slices
    ):
        return None
    return end


def _keeps_order(computation: Computation, contraction: Instruction) -> bool:
    """Whether all that follows the contraction is computed element by element, in the order of its elements."""
    changed: set[Instruction] = {contraction}
    for instruction in computation.instructions:
        if not changed.isdisjoint(instruction.operands):
            if not (instruction.op.is_elementwise or isinstance(instruction.op, Reshape | Tuple)):
                return False
            changed.add(instruction)
    return True


def _epilogue(
    computation: Computation, contraction: Instruction, raw: Shape
) -> tuple[Computation | None, list[Instruction]]:
    """The instructions after the contraction, as a computation of the parameters that they read and, last, of the raw
    result; and those parameters."""
    if computation.root is contraction and raw == contraction.shape:
        return None, []
    read = {o for i in computation.instructions if i is not contraction for o in i.operands}
    parameters = [p for p in computation.parameters if p in read]
    new: dict[Instruction, Instruction] = {
        p: Instruction(Parameter(k, p.shape), (), p.shape, f"p{k}") for k, p in enumerate(parameters)
    }
    last = Instruction(Parameter(len(parameters), raw), (), raw, "raw")
    inputs = [*new.values(), last]
    kind = contraction.shape.element_type
    new[contraction] = last if raw == contraction.shape else make(Convert(kind), last, name="rounded")
    for instruction in computation.instructions:
        if instruction not in new and not isinstance(instruction.op, Parameter):
            new[instruction] = instruction.with_operands(new[o] for o in instruction.operands)
    return Computation(f"{computation.name}.epilogue", new[computation.root], inputs), parameters


@dataclasses.dataclass(frozen=True)
class _Buffers:
    """The buffers of an output fusion: `operands` are the numbers of A and B among its parameters, `read` those of the
    parameters that the epilogue reads; behind the parameters are `depth_sizes` sizes (`KernelVariant`). The raw result
    is stored to an output of its type and size, else to scratch."""

    operands: Sequence[int]
    read: Sequence[int]
    parameter_count: int
    depth_sizes: int
    outputs: Sequence[Shape]
    raw: Shape

    @property
    def raw_output(self) -> int | None:
        """The number of the output to which the raw result is stored."""
        return next(
            (
                k
                for k, shape in enumerate(self.outputs)
                if shape.element_type is self.raw.element_type and shape.elements == self.raw.elements
            ),
            None,
        )

    def of_epilogue(self) -> tuple[list[int], list[int]]:
        """Numbers of the buffers of the epilogue's parameters and of its outputs, in the inner kernel."""
        first_output = _FIRST_EPILOGUE_BUFFER + len(self.read)
        outputs = [2 if k == self.raw_output else first_output + k for k in range(len(self.outputs))]
        return [*range(_FIRST_EPILOGUE_BUFFER, first_output), 2], outputs

    def of_depth(self) -> range:
        """Numbers of the buffers of sizes, in the inner kernel: the last ones."""
        first = _FIRST_EPILOGUE_BUFFER + len(self.read) + len(self.outputs)
        return range(first, first + self.depth_sizes)


def _wrapper(
    module: ModuleText, target: Target, name: str, inner: KernelInfo, buffers: _Buffers
) -> KernelInfo:
    """A kernel with buffers in the order of thunks (operands, outputs, scratch) around one whose buffers are A, B, C,
    scratch, the epilogue's parameters, the outputs, the sizes."""
    threads, raw_output = max(1, target.threads), buffers.raw_output
    inner_scratch = -(-inner.scratch_bytes // 64) * 64
    in_scratch = raw_output is None and not inner.has_window
    raw_scratch = -(-buffers.raw.bytes // (64 * threads)) * 64 if in_scratch else 0
    f = Function(module, "SELF", KERNEL_PARAMETERS, attributes=DRIVER_ATTRIBUTES)

    def buffer(number: int) -> Ptr:
        return (f.pointer("buffers") + 8 * number).load_ptr()

    sizes = range(buffers.parameter_count, buffers.parameter_count + buffers.depth_sizes)
    outputs = range(sizes.stop, sizes.stop + len(buffers.outputs))
    scratch = buffer(outputs.stop) if inner_scratch + raw_scratch else f.null
    raw = scratch + threads * inner_scratch if raw_output is None else buffer(outputs[raw_output])
    # Of a kernel with a window this is no address: it puts its own there.
    a, b = buffers.operands
    others = (*buffers.read, *outputs, *sizes)
    addresses = [buffer(a), buffer(b), raw, scratch, *map(buffer, others)]
    table = f.stack_slot(f"[{len(addresses)} x i64]")
    for k, address in enumerate(addresses):
        (table + 8 * k).store(address)
    tasks_and_thread = f.integers("low", "high", "thread")
    f.call(f.symbol(inner.symbol), "void", [f.pointer("context"), table, *tasks_and_thread])
    f.ret()
    return KernelInfo(
        module.define(name, f),
        inner.tasks,
        inner.grain,
        inner.parallel,
        inner_scratch + raw_scratch,
        inner.flops,
        buffers.raw.bytes + sum(s.bytes for s in buffers.outputs),
        in_order=inner.in_order,
        row_tasks=inner.row_tasks,
    )
