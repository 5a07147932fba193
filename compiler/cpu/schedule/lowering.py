"""Lowers a module to thunks.

For each computation: alias analysis, instruction order, preferred buffers; then each instruction, in that order, gets
buffers for its value and becomes a thunk or none. Which kernel runs and what it does in place is known when the kernel
is written: kernels are emitted in this walk, so that LLVM works on them in the background while others are written.
What the walk returns is pure data.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence

from ....runtime.llvm.ir_builder import ModuleText
from ....runtime.llvm.target import Target
from ....runtime.sizes import Size, are_equal
from ... import budget
from ...analysis.live_rows import NO_SIZES, LiveSizes, live_sizes
from ...errors import UnsupportedError
from ...ir.module import Computation, Instruction, Module
from ...ir.shape import Shape
from ...ops import (
    AddDependency,
    Concurrent,
    Conditional,
    Constant,
    CustomCall,
    Op,
    Parameter,
    While,
)
from ...ops.custom_call import CHECKS
from ...options import Options
from ..codegen.kernel_info import NO_SLICES, KernelInfo, KernelVariant
from .aliasing import LogicalBuffer, alias_analysis, input_output_aliases
from .buffer import Buffer, Constants
from .host_callbacks import CALLBACK_OPS, ORDERING_OPS, host_callback_of, operands_read
from .instruction_order import order_instructions
from .kernel_chains import ChainJoiner, ChainPlanner
from .parallel_copy import Move
from .prepacked_operands import is_known_before, is_only_read_packed, packed_operand
from .scope import Context, EnclosingLoop, Kernels, PackedArguments, Packings, Scope, copy_thunks
from .thunks import (
    CheckThunk,
    ConditionalThunk,
    HostCallbackThunk,
    KernelThunk,
    LiveRows,
    ParallelThunk,
    Thunk,
    ThunkProgram,
    ThunkSequence,
    WhileThunk,
)
from .value_buffers import (
    Results,
    ValueBuffers,
    after_checks,
    by_allocation,
    live_at_entry,
    preferred_buffers,
    replacements,
)

Lowering = Callable[[Scope, Instruction], list[Thunk]]


def _assume_elements(module: Module) -> None:
    """Makes guards that arrays of symbolic sizes have elements: kernels of those that have none are others.

    Raises: UnsupportedError  one has none where symbols have their typical values.
    """
    shapes = [leaf for c in module.computations() for i in c.instructions for leaf in i.shape.leaves()]
    for size in {d: None for shape in shapes for d in shape.dims if isinstance(d, Size)}:
        if are_equal(size, 0):
            raise UnsupportedError(f"a size, {size}, is 0 where symbols have their typical values")


def lower_module(
    module: Module,
    text: ModuleText,
    target: Target,
    options: Options,
    on_kernel: Callable[[str], None] = lambda symbol: None,
    constants: Constants | None = None,
) -> ThunkProgram:
    """The thunks of a module whose loop-like instructions are all in fusions; kernels are written to `text`.

    `on_kernel` gets the symbol of each kernel that is written. The module's constants are added to `constants`.
    Raises: UnsupportedError  an op without CPU code.
    """
    _assume_elements(module)
    entry = module.entry
    context = Context(
        Kernels(text, options, on_kernel),
        target,
        Constants() if constants is None else constants,
        [],
        Packings(),
        PackedArguments(),
    )
    parameters = [leaf for p in entry.parameters for leaf in p.shape.leaves()]
    roots = list(entry.root.shape.leaves())
    arguments = [
        Buffer("argument", shape.bytes, number) if shape.is_array else context.temporary(0)
        for shape, number in _numbered_arrays(parameters)
    ]
    if len(entry.parameters) == len(arguments):
        context.packed_arguments.invariant.update(
            arguments[k]
            for k in module.invariant_parameters
            if k < len(arguments) and arguments[k].space == "argument"
        )
    overwritten = input_output_aliases(module)
    results = [
        Buffer(
            "result", shape.bytes, number, may_alias=arguments[overwritten[k]] if k in overwritten else None
        )
        if shape.is_array
        else None
        for k, (shape, number) in enumerate(_numbered_arrays(roots))
    ]
    sequence = lower_computation(context, entry, arguments, results, live_sizes(module))
    return ThunkProgram(
        sequence,
        tuple(s for s in parameters if s.is_array),
        tuple(s for s in roots if s.is_array),
        context.constants,
        tuple(context.host_callbacks),
        tuple(context.packed_arguments.thunks),
        tuple(context.packed_arguments.packed),
    )


def lower_computation(
    context: Context,
    computation: Computation,
    arguments: Sequence[Buffer],
    results: Results,
    live: LiveSizes = NO_SIZES,
) -> ThunkSequence:
    """Thunks that compute the root's leaves into `results` from `arguments`."""
    aliasing = alias_analysis(computation)
    assigned = live_at_entry(aliasing, arguments)
    live_values = by_allocation(assigned)
    order = order_instructions(
        aliasing, replacements(aliasing, results, live_values), after_checks(aliasing, results), live
    )
    planner = ChainPlanner(
        aliasing, live, context.target, lambda value: is_known_before(context, value, assigned)
    )
    sequence, chains = planner.plan(order)
    order = order.changed(sequence, aliasing, live) if chains else order
    preferred = preferred_buffers(aliasing, order, results)
    values = ValueBuffers(aliasing, order, preferred, context.temporary, assigned, live_values)
    slices = {member: chain.slices(context.target) for chain in chains for member in chain.members}
    scope = Scope(context, values, computation.users, live, slices)
    thunks: list[Thunk] = []
    for position, instruction in enumerate(order.instructions):
        if not (instruction.op.forwards_operands or isinstance(instruction.op, _NO_THUNK)):
            budget.check(f"code of {instruction.opcode}")
            scope.position = position
            thunks += _LOWERINGS.get(type(instruction.op), _lower_kernel)(scope, instruction)
    if chains:
        joiner = ChainJoiner(context, values)
        for chain in chains:
            joiner.join(thunks, chain)
    written = [
        (assigned[value], result)
        for value, result in zip(aliasing.root, results, strict=True)
        if result is not None
    ]
    thunks += scope.copies([(source, target) for source, target in written if source is not target])
    return ThunkSequence(
        computation.name,
        order.instructions,
        tuple(thunks),
        tuple(arguments),
        tuple(target for _, target in written),
    )


def _lower_constant(scope: Scope, instruction: Instruction) -> list[Thunk]:
    assert isinstance(instruction.op, Constant)
    if not is_only_read_packed(scope, instruction):
        for k, literal in enumerate(instruction.op.literal.leaves()):
            value = LogicalBuffer(instruction, k)
            scope.values.assigned[value] = scope.context.constants.buffer(literal)
    return []


def _lower_kernel(scope: Scope, instruction: Instruction) -> list[Thunk]:
    """Copies of operands that are updated in place and still needed, then the kernel."""
    context, values = scope.context, scope.values
    packed = packed_operand(scope, instruction)
    depth = [buffer for size in scope.live.depths.get(instruction, ()) for buffer in values.leaves(size)]
    variant = KernelVariant(
        packed is not None,
        instruction in scope.live.rows,
        len(depth),
        scope.slices.get(instruction, NO_SLICES),
    )
    kernel = context.kernels.info(instruction, context.target, variant)
    operands = scope.operands(instruction)
    updated = dict(kernel.must_alias)
    thunks: list[Thunk] = []
    outputs: list[Buffer] = []
    for k, shape in enumerate(instruction.shape.leaves()):
        reusable = _reusable_operands(scope, kernel, operands, k, outputs)
        buffer = values.assign(LogicalBuffer(instruction, k), shape.bytes, scope.position, reusable)
        outputs.append(buffer)
        if k in updated and (source := values.assigned[operands[updated[k]]]) is not buffer:
            thunks += copy_thunks([(source, buffer)])
    inputs = [
        packed[1] if packed is not None and n == packed[0] else values.assigned[operand]
        for n, operand in enumerate(operands)
        if n not in updated.values()
    ]
    scratch, shared = (
        context.temporary(size) if size else None
        for size in (kernel.scratch_bytes * max(1, context.target.threads), kernel.shared_bytes)
    )
    buffers = (
        *inputs,
        *depth,
        *outputs,
        *(buffer for buffer in (scratch, shared) if buffer is not None),
        *map(context.constants.buffer, kernel.tables),
    )
    if kernel.tasks:
        live = _live_rows(scope, kernel, instruction)
        thunks.append(KernelThunk(kernel, buffers, instruction, live, scratch))
    return thunks


def _live_rows(scope: Scope, kernel: KernelInfo, instruction: Instruction) -> LiveRows | None:
    """The rows that are needed, where their number is known by now and tasks compute rows in order."""
    sizes = scope.live.rows.get(instruction)
    shapes = [s for s in instruction.shape.leaves() if s.is_array]
    if sizes is None or kernel.in_order is None or any(s.dims != shapes[0].dims for s in shapes):
        return None
    counts = [scope.values.assigned.get(scope.values.aliasing.buffers[size][0]) for size in sizes]
    known = tuple(buffer for buffer in counts if buffer is not None)
    return LiveRows(known, math.prod(shapes[0].dims[1:])) if len(known) == len(counts) else None


def _reusable_operands(
    scope: Scope,
    kernel: KernelInfo,
    operands: Sequence[LogicalBuffer],
    output: int,
    outputs: Sequence[Buffer],
) -> list[LogicalBuffer]:
    """The operands that a kernel may overwrite with its output of that number; `outputs` are the buffers before it."""
    updated = dict(kernel.must_alias)
    if output in updated:
        return [operands[updated[output]]] if operands.count(operands[updated[output]]) == 1 else []
    return [
        operands[n]
        for k, n in sorted(kernel.may_alias)
        if k == output
        and operands.count(operands[n]) == 1
        and scope.values.assigned[operands[n]] not in outputs
    ]


def _lower_host_callback(scope: Scope, instruction: Instruction) -> list[Thunk]:
    values = scope.values
    outputs = []
    for value, shape in zip(values.aliasing.buffers[instruction], instruction.shape.leaves(), strict=True):
        if value.instruction is instruction:
            outputs.append((shape, values.assign(value, shape.bytes, scope.position)))
    callback = host_callback_of(instruction)
    inputs = [
        (shape, buffer)
        for operand in operands_read(instruction)
        for shape, buffer in zip(operand.shape.leaves(), values.leaves(operand), strict=True)
    ]
    has_tokens = callback.attributes.get("is_c")
    buffers = tuple(buffer for shape, buffer in (*inputs, *outputs) if shape.is_array or has_tokens)
    number = len(scope.context.host_callbacks)
    scope.context.host_callbacks.append(callback)
    return [HostCallbackThunk(callback, number, buffers)]


def _lower_ordering(scope: Scope, instruction: Instruction) -> list[Thunk]:
    """A token takes no memory."""
    scope.values.assigned[LogicalBuffer(instruction, 0)] = scope.context.temporary(0)
    return []


def _lower_custom_call(scope: Scope, instruction: Instruction) -> list[Thunk]:
    op = instruction.op
    assert isinstance(op, CustomCall)
    if not op.is_check:
        return _lower_host_callback(scope, instruction)
    (failed,) = scope.values.leaves(instruction.operands[0])
    return [CheckThunk(failed, CHECKS[op.custom_call_target], op.opaque)]


def _lower_while(scope: Scope, instruction: Instruction) -> list[Thunk]:
    op, context, values = instruction.op, scope.context, scope.values
    assert isinstance(op, While)
    entering = values.aliasing.buffers[instruction.operands[0]]
    leaving = values.aliasing.buffers[instruction]
    counts = Counter(entering)
    state: list[Buffer] = []
    moves: list[Move] = []
    for k, (shape, initial) in enumerate(zip(instruction.shape.leaves(), entering, strict=True)):
        source = values.assigned[initial]
        if leaving[k] == initial:
            state.append(source)
            continue
        reusable = (
            [initial] if counts[initial] == 1 and not isinstance(initial.instruction.op, Constant) else []
        )
        state.append(values.assign(LogicalBuffer(instruction, k), shape.bytes, scope.position, reusable))
        if source is not state[k]:
            moves.append((source, state[k]))
    preheader = scope.copies(moves)
    loop = EnclosingLoop(frozenset(s for k, s in enumerate(state) if leaving[k] == entering[k]), preheader)
    inside = dataclasses.replace(context, loops=(*context.loops, loop))
    condition = lower_computation(inside, op.condition, state, [context.temporary(1)])
    body = lower_computation(inside, op.body, state, state)
    return [WhileThunk(tuple(preheader), condition, body)]


def _lower_conditional(scope: Scope, instruction: Instruction) -> list[Thunk]:
    op, values = instruction.op, scope.values
    assert isinstance(op, Conditional)
    operands = instruction.operands[1:]
    passed = (value for operand in operands for value in values.aliasing.buffers[operand])
    reusable = dict.fromkeys(value for value in passed if not isinstance(value.instruction.op, Constant))
    outputs = scope.outputs(instruction, list(reusable))
    selector = values.leaves(instruction.operands[0])[0]
    branches = tuple(
        lower_computation(scope.context, branch, values.leaves(operand), outputs)
        for branch, operand in zip(op.branches, operands, strict=True)
    )
    return [ConditionalThunk(selector, op.by_index, branches)]


def _lower_concurrent(scope: Scope, instruction: Instruction) -> list[Thunk]:
    """Branches share no temporary memory, and the kernels in them run in one thread."""
    op, values = instruction.op, scope.values
    assert isinstance(op, Concurrent)
    if instruction.has_side_effect:
        raise UnsupportedError("concurrent: ops with side effects do not run beside other code")
    remaining = iter(scope.outputs(instruction))
    inside = dataclasses.replace(scope.context, target=dataclasses.replace(scope.context.target, threads=1))
    branches = []
    for branch, operand in zip(op.branches, instruction.operands, strict=True):
        outputs = [next(remaining) for _ in branch.root.shape.leaves()]
        branches.append(lower_computation(inside, branch, values.leaves(operand), outputs))
    return [ParallelThunk(tuple(branches))]


_LOWERINGS: dict[type[Op], Lowering] = {
    Constant: _lower_constant,
    CustomCall: _lower_custom_call,
    While: _lower_while,
    Conditional: _lower_conditional,
    Concurrent: _lower_concurrent,
    **dict.fromkeys(ORDERING_OPS, _lower_ordering),
    **dict.fromkeys(CALLBACK_OPS, _lower_host_callback),
}
"""By op; all others are kernels."""


_NO_THUNK = (Parameter, AddDependency)


def _numbered_arrays(shapes: Sequence[Shape]) -> list[tuple[Shape, int]]:
    """Each shape with the number of arrays before it; tokens are not arrays."""
    counts = itertools.accumulate((int(shape.is_array) for shape in shapes), initial=0)
    return list(zip(shapes, counts))
