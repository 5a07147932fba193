"""Kernels around a matrix product or a convolution: the product's own kernel, and what is fused behind it as epilogue.

The product is stored to an output of the kernel where one has its type and size, else to scratch; the epilogue is
evaluated block by block while the block is in cache.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...runtime.llvm.ir_builder import GLUE, Function, ModuleText, Value
from ...runtime.llvm.target import Target
from ..errors import UnsupportedError
from ..ir.element_types import ElementType
from ..ir.module import Computation, Instruction, make
from ..ir.shape import Shape
from ..ops import Convert, Dot, Parameter
from ..options import Options
from .codegen.kernel_info import KernelPlan
from .gemm.emit import GemmProblem, emit_gemm
from .loops.epilogue import emit_epilogue

_E = ElementType
_PARAMETERS = (("ptr", "context"), ("ptr", "buffers"), ("i64", "low"), ("i64", "high"), ("i64", "thread"))
_FIRST_EPILOGUE_BUFFER = 4  # A, B, C, scratch come first


def contraction_of(computation: Computation) -> Instruction | None:
    """The matrix product or convolution of a fused computation; None when it has none."""
    return next((i for i in computation.instructions if i.opcode in ("dot", "convolution")), None)


def emit_output_fusion(
    module: ModuleText, target: Target, computation: Computation, options: Options, b_packed: bool = False
) -> KernelPlan:
    """Writes the kernel of a computation that holds one matrix product or convolution of its parameters. With
    `b_packed` the product's right operand is packed (schedule/prepacking.py).

    Raises: UnsupportedError  element types without a kernel, or axes that do not collapse to rows and columns.
    """
    product = contraction_of(computation)
    assert product is not None
    if any(o.opcode != "parameter" for o in product.operands):
        raise UnsupportedError(f"{product.opcode}: its operands must be computed before it")
    if not any(s.elements for s in computation.root.shape.leaves()):
        empty = Function(module, "SELF", _PARAMETERS)
        empty.ret()
        return KernelPlan(module.define("product", empty), 0)
    raw = product.shape.with_type(raw_type(product.shape.element_type))
    epilogue, parameters = _epilogue(computation, product, raw)
    outputs = list(computation.root.shape.leaves())
    home = next(
        (
            k
            for k, s in enumerate(outputs)
            if s.element_type is raw.element_type and s.elements == raw.elements
        ),
        None,
    )
    numbers = {p: k for k, p in enumerate(computation.parameters)}
    read = [numbers[p] for p in parameters]  # parameters of the epilogue, the raw product aside
    symbol = None
    if epilogue is not None:
        first_output = _FIRST_EPILOGUE_BUFFER + len(read)
        symbol = emit_epilogue(
            module,
            target,
            epilogue,
            product_view(product),
            [*range(_FIRST_EPILOGUE_BUFFER, first_output), 2],
            [2 if k == home else first_output + k for k in range(len(outputs))],
        )
    if isinstance(product.op, Dot):
        inner = emit_gemm(module, target, gemm_problem(product, raw.element_type), symbol, b_packed)
    else:
        from .convolution.emit import emit_convolution

        inner = emit_convolution(module, target, product, raw, symbol, b_packed)
    operands = [numbers[o] for o in product.operands]
    return _rearranged(module, target, inner, operands, read, len(computation.parameters), outputs, home, raw)


def raw_type(type_: ElementType) -> ElementType:
    """The type that a product is summed and stored in before it is rounded."""
    if type_.is_float and type_.bits < 32:
        return _E.F32
    return _E.S32 if type_.is_integer and type_.bits < 32 else type_


def _epilogue(
    computation: Computation, product: Instruction, raw: Shape
) -> tuple[Computation | None, list[Instruction]]:
    """What follows the product, as a computation of the parameters that it reads and, last, of the raw product."""
    if computation.root is product and raw == product.shape:
        return None, []
    followers: set[Instruction] = {product}
    for instruction in computation.instructions:
        if any(o in followers for o in instruction.operands):
            followers.add(instruction)
    needed = {
        o for i in computation.instructions if i is not product for o in i.operands if o.opcode == "parameter"
    }
    parameters = [p for p in computation.parameters if p in needed]
    done: dict[Instruction, Instruction] = {
        p: Instruction(Parameter(k, p.shape), (), p.shape, f"p{k}") for k, p in enumerate(parameters)
    }
    last = Instruction(Parameter(len(parameters), raw), (), raw, "raw")
    done[product] = (
        last if raw == product.shape else make(Convert(product.shape.element_type), last, name="rounded")
    )
    for instruction in computation.instructions:
        if instruction not in done and instruction.opcode != "parameter":
            done[instruction] = instruction.with_operands(done[o] for o in instruction.operands)
    inputs = [*(done[p] for p in parameters), last]
    return Computation(f"{computation.name}.epilogue", done[computation.root], inputs), parameters


def product_view(product: Instruction) -> tuple[int, int, int]:
    """The result of a product or convolution as [batch, rows, columns].

    Raises: UnsupportedError  axes that do not collapse to rows and columns.
    """
    if not isinstance(product.op, Dot):
        from .convolution.emit import convolution_view

        return convolution_view(product)
    problem = gemm_problem(product, product.shape.element_type)
    return math.prod(problem.batch), problem.m, problem.n


def _rearranged(
    module: ModuleText,
    target: Target,
    inner: KernelPlan,
    operands: Sequence[int],
    read: Sequence[int],
    parameters: int,
    outputs: Sequence[Shape],
    home: int | None,
    raw: Shape,
) -> KernelPlan:
    """A kernel with this house's order of buffers (operands, outputs, scratch) around one that wants A, B, C,
    scratch."""
    threads = max(1, target.threads)
    own_scratch = -(-inner.scratch_bytes // 64) * 64
    spilled = -(-raw.bytes // (64 * threads)) * 64 if home is None else 0
    f = Function(module, "SELF", _PARAMETERS, attributes=GLUE)

    def buffer(number: int) -> Value:
        return f.load("ptr", f.offset(f["buffers"], 8 * number), 8)

    scratch = buffer(parameters + len(outputs)) if own_scratch + spilled else Value("ptr", "null")
    result = f.offset(scratch, threads * own_scratch) if home is None else buffer(parameters + home)
    wanted = [
        buffer(operands[0]),
        buffer(operands[1]),
        result,
        scratch,
        *map(buffer, read),
        *(buffer(parameters + k) for k in range(len(outputs))),
    ]
    table = f.stack_slot(f"[{len(wanted)} x i64]")
    for k, address in enumerate(wanted):
        f.store(address, f.offset(table, 8 * k), 8)
    f.do(f"call void @{inner.symbol}(ptr %context, {table}, i64 %low, i64 %high, i64 %thread)")
    f.ret()
    moved = raw.bytes + sum(s.bytes for s in outputs)
    return KernelPlan(
        module.define("product", f),
        inner.tasks,
        inner.grain,
        inner.parallel,
        own_scratch + spilled,
        inner.flops,
        moved,
    )


# -- products as GEMM problems


def gemm_problem(product: Instruction, result_type: ElementType) -> GemmProblem:
    """A dot as a problem of rows and columns.

    Free axes of the left operand that are not one run in memory become batch axes, which the right operand does
    not have.
    Raises: UnsupportedError  contracting axes, or free axes of the right operand, that are no single run.
    """
    op, (lhs, rhs) = product.op, (o.shape for o in product.operands)
    assert isinstance(op, Dot)
    left, right, out = lhs.strides, rhs.strides, Shape(_E.F32, product.shape.dims).strides
    k = contracting_run(op, lhs, rhs)
    columns = _run([(rhs.dims[a], right[a]) for a in op.rhs_free(rhs.rank)])
    if k is None or columns is None:
        raise UnsupportedError(
            f"dot: axes of {lhs} and {rhs} do not collapse; canonicalize_dots must come first"
        )
    batch = [
        (lhs.dims[x], left[x], right[y], out[i]) for i, (x, y) in enumerate(zip(op.lhs_batch, op.rhs_batch))
    ]
    free = op.lhs_free(lhs.rank)
    rows = [(lhs.dims[a], left[a], out[len(batch) + i]) for i, a in enumerate(free)]
    spread = list(rows)
    while (run := _run([(n, s) for n, s, _ in spread])) is None:
        n, s, o = spread.pop(0)
        batch.append((n, s, 0, o))
    out_rows = _run([(n, o) for n, _, o in spread])
    assert out_rows is not None
    return GemmProblem(
        lhs.element_type,
        result_type,
        tuple(b[0] for b in batch),
        run[0],
        columns[0],
        k[0],
        (*(b[1] for b in batch), run[1], k[1]),
        (*(b[2] for b in batch), k[2], columns[1]),
        (*(b[3] for b in batch), out_rows[1], 1),
    )


def contracting_run(op: Dot, lhs: Shape, rhs: Shape) -> tuple[int, int, int] | None:
    """(size, left stride, right stride) of all contracting axes as one; None when they are no single run in both."""
    axes = [
        (lhs.dims[x], lhs.strides[x], rhs.strides[y]) for x, y in zip(op.lhs_contracting, op.rhs_contracting)
    ]
    for by in (1, 2):
        ordered = sorted(axes, key=lambda a: -a[by])
        left, right = _run([(n, s) for n, s, _ in ordered]), _run([(n, s) for n, _, s in ordered])
        if left is not None and right is not None:
            return left[0], left[1], right[1]
    return None


def columns_run(op: Dot, rhs: Shape) -> tuple[int, int] | None:
    """(size, stride) of the right operand's free axes as one; None when they are no single run."""
    return _run([(rhs.dims[a], rhs.strides[a]) for a in op.rhs_free(rhs.rank)])


def _run(axes: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
    """(size, stride) of axes taken as one, slowest first; None when they do not lie so."""
    if any(n == 0 for n, _ in axes):
        return 0, 1
    size, stride = 1, 1
    for n, step in reversed([a for a in axes if a[0] != 1]):
        if size == 1:
            size, stride = n, step
        elif step == stride * size:
            size *= n
        else:
            return None
    return size, stride


__all__ = [
    "columns_run",
    "contracting_run",
    "contraction_of",
    "emit_output_fusion",
    "gemm_problem",
    "product_view",
    "raw_type",
]
