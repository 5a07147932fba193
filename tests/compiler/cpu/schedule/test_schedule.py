"""Decisions about buffers: what is updated in place, what is copied, and that nothing that is still needed is
overwritten."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Iterable, Iterator

import numpy as np
import pytest
from agreement import leaves, nested
from builders import constant, op, parameter, reducer, while_loop
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lowering import lowered
from random_graphs import random_module, values
from tfbridge.compiler.client.client import LocalClient
from tfbridge.compiler.cpu.compile import compile_module
from tfbridge.compiler.cpu.schedule.aliasing import alias_analysis
from tfbridge.compiler.cpu.schedule.buffer import Buffer
from tfbridge.compiler.cpu.schedule.buffer_assignment import (
    BufferAssignment,
    LiveRange,
    assign_buffers,
    assign_offsets,
)
from tfbridge.compiler.cpu.schedule.parallel_copy import sequentialize
from tfbridge.compiler.cpu.schedule.thunks import (
    ConditionalThunk,
    CopyThunk,
    KernelThunk,
    Thunk,
    ThunkProgram,
    WhileThunk,
    kernel_thunks,
)
from tfbridge.compiler.evaluator.evaluate import evaluate
from tfbridge.compiler.ir.literal import Literal
from tfbridge.compiler.ir.module import Computation, Instruction, Module, make
from tfbridge.compiler.ir.shape import Shape, array
from tfbridge.compiler.ops import (
    Broadcast,
    Constant,
    Dot,
    DynamicSlice,
    DynamicUpdateSlice,
    Elementwise,
    GetTupleElement,
    Parameter,
    Reduce,
    Tuple,
)
from tfbridge.runtime.llvm.target import host


def temporaries(program: ThunkProgram) -> list[Buffer]:
    return list(assign_buffers(program.entry).offsets)


def module_of(root: Instruction, *parameters: Instruction) -> Module:
    return Module("test", Computation("main", root, parameters))


def the_loop(program: ThunkProgram) -> WhileThunk:
    (loop,) = [t for t in program.entry.thunks if isinstance(t, WhileThunk)]
    return loop


def copies(thunks: Iterable[Thunk]) -> list[CopyThunk]:
    return [t for t in thunks if isinstance(t, CopyThunk)]


def copies_outside(program: ThunkProgram) -> list[CopyThunk]:
    """The copies that run once."""
    loops = [t for t in program.entry.thunks if isinstance(t, WhileThunk)]
    return copies([*program.entry.thunks, *(t for loop in loops for t in loop.preheader)])


def agrees(module: Module) -> None:
    """Compiled code gives the evaluator's values."""
    shapes = module.entry.parameter_shapes
    arguments = [values(leaf, np.random.default_rng(k)) for k, p in enumerate(shapes) for leaf in p.leaves()]
    wanted = leaves(evaluate(module, nested(shapes, arguments)))
    for found, want in zip(LocalClient("cpu").compile(module).execute(arguments), wanted, strict=True):
        np.testing.assert_array_equal(found, want)


# -- loops


def test_update_of_a_loops_state_is_in_place() -> None:
    x = parameter(0, "f32", 64, 8)

    def body(i: Instruction, rows: Instruction) -> list[Instruction]:
        row = make(DynamicSlice((1, 8)), rows, i, constant(0, "s32"))
        return [make(DynamicUpdateSlice(), rows, op("add", row, row), i, constant(0, "s32"))]

    module = module_of(while_loop(5, body, x)[0], x)
    program = lowered(module)
    assert not copies(the_loop(program).body.thunks)
    large = [c for c in copies_outside(program) if c.source.bytes > 4]
    assert [c.source.space + c.target.space for c in large] == ["argumentresult"]
    assert assign_buffers(program.entry).temp_bytes < 64 * 8 * 4
    agrees(module)


def test_reader_of_the_old_value_comes_before_the_update() -> None:
    x = parameter(0, "f32", 64, 8)

    def body(i: Instruction, rows: Instruction, total: Instruction) -> list[Instruction]:
        new = make(DynamicUpdateSlice(), rows, make(Broadcast((1, 8), ()), total), i, constant(0, "s32"))
        first = make(DynamicSlice((1, 8)), rows, constant(0, "s32"), constant(0, "s32"))
        return [new, make(Reduce((0, 1), reducer("maximum", "f32")), first, total)]

    module = module_of(make(Tuple(), *while_loop(3, body, x, constant(1, "f32"))), x)
    assert not [c for c in copies(the_loop(lowered(module)).body.thunks) if c.source.bytes > 4]
    agrees(module)


def test_update_of_a_value_that_is_read_later_copies_it() -> None:
    x = parameter(0, "f32", 64)
    y = op("negate", x)
    new = make(DynamicUpdateSlice(), y, constant([7], "f32"), constant(3, "s32"))
    module = module_of(make(Tuple(), new, make(Dot((0,), (0,)), y, y)), x)
    agrees(module)
    module = module_of(make(Tuple(), new, y), x)
    assert len(copies_outside(lowered(module))) == 1
    agrees(module)


def test_update_of_a_value_that_is_read_no_more_copies_nothing() -> None:
    x = parameter(0, "f32", 64)
    new = make(DynamicUpdateSlice(), op("negate", x), constant([7], "f32"), constant(3, "s32"))
    module = module_of(new, x)
    assert not copies_outside(lowered(module))
    agrees(module)


def test_swap_goes_through_a_temporary() -> None:
    x, y = parameter(0, "f32", 9), parameter(1, "f32", 9)
    module = module_of(make(Tuple(), *while_loop(3, lambda _, a, b: [b, a], x, y)), x, y)
    moves = copies(the_loop(lowered(module)).body.thunks)
    assert len(moves) == 3 and moves[0].target.space == "temporary"
    agrees(module)


def test_rotation_of_three_takes_four_copies() -> None:
    given_ = [parameter(k, "s32", 5) for k in range(3)]
    module = module_of(make(Tuple(), *while_loop(4, lambda _, a, b, c: [b, c, a], *given_)), *given_)
    assert len(copies(the_loop(lowered(module)).body.thunks)) == 4
    agrees(module)


def test_what_a_loop_does_not_change_is_read_where_it_lies() -> None:
    x, weights = parameter(0, "f32", 16), parameter(1, "f32", 16, 16)

    def body(_: Instruction, v: Instruction, w: Instruction) -> list[Instruction]:
        return [make(Dot((0,), (0,)), v, w), w]

    module = module_of(make(Tuple(), *while_loop(3, body, x, weights)), x, weights)
    program = lowered(module)
    body = the_loop(program).body.thunks
    assert all(c.source.bytes < 1024 for c in copies(body))
    assert any(b.space == "argument" and b.index == 1 for t in kernel_thunks(body) for b in t.buffers)
    assert [c.target.space for c in copies_outside(program) if c.source.bytes == 1024] == ["result"]
    agrees(module)


def test_same_value_twice_in_a_loops_state() -> None:
    x = parameter(0, "f32", 9)
    y = op("negate", x)

    def body(_: Instruction, a: Instruction, b: Instruction, c: Instruction) -> list[Instruction]:
        return [op("add", a, b), b, op("subtract", c, a)]

    agrees(module_of(make(Tuple(), *while_loop(3, body, y, y, y), y), x))


# -- results


def test_results_that_are_arguments_constants_and_one_another() -> None:
    x = parameter(0, "f32", 7)
    pair = make(Constant(Literal.tuple([Literal(np.int32(3)), Literal(np.ones(2, np.float32))])))
    y = op("negate", x)
    module = module_of(make(Tuple(), x, y, y, pair, make(GetTupleElement(1), pair), x), x)
    assert not temporaries(lowered(module))
    agrees(module)


# -- the arena


def test_chain_of_products_needs_two_buffers() -> None:
    x = parameter(0, "f32", 64, 64)
    value = x
    for _ in range(9):
        value = make(Dot((1,), (0,)), value, x)
    program = lowered(module_of(value, x))
    scratch = max(t.kernel.scratch_bytes for t in kernel_thunks(program.entry.thunks)) * host().threads
    assert assign_buffers(program.entry).temp_bytes <= 2 * 64 * 64 * 4 + scratch + 128
    agrees(module_of(make(Elementwise("sign"), value), x))


@settings(max_examples=200)
@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 30), st.integers(0, 30)), max_size=30))
def test_offsets_of_any_buffers(rows: list[tuple[int, int, int]]) -> None:
    """Buffers that live together do not overlap, and the arena is no larger than all of them, no smaller than those
    that live together at some time."""
    ranges = {
        Buffer("temporary", size, k): LiveRange(min(a, b), max(a, b)) for k, (size, a, b) in enumerate(rows)
    }
    assignment = assign_offsets(ranges)
    offsets, buffers = assignment.offsets, list(ranges)
    for k, a in enumerate(buffers):
        assert offsets[a] % 64 == 0 and offsets[a] + a.bytes <= assignment.temp_bytes
        for b in buffers[:k]:
            together = ranges[a].interferes(ranges[b]) and a.bytes and b.bytes
            assert not together or offsets[a] + a.bytes <= offsets[b] or offsets[b] + b.bytes <= offsets[a]
    assert assignment.temp_bytes <= sum(-(-b.bytes // 64) * 64 for b in buffers)
    at_once = [sum(b.bytes for b in buffers if ranges[b].first <= t <= ranges[b].last) for t in range(31)]
    assert assignment.temp_bytes >= max(at_once)


class Memory:
    """Which buffer's value lies where, while thunks are followed one by one."""

    def __init__(self, assignment: BufferAssignment) -> None:
        self.assignment = assignment
        self.arena: list[Buffer | None] = [None] * (-(-assignment.temp_bytes // 64))
        self.results: set[int] = set()

    def read(self, buffer: Buffer) -> None:
        if buffer.space == "temporary":
            assert all(self.arena[k] is buffer for k in self.slots(buffer)), (
                f"{buffer} was overwritten, or never made"
            )
        elif buffer.space == "result" and buffer.bytes:
            assert buffer.index in self.results, f"{buffer} is read before it is written"

    def write(self, buffer: Buffer) -> None:
        assert buffer.space in ("temporary", "result"), f"{buffer} is written"
        if buffer.space == "result":
            self.results.add(buffer.index)
            return
        for k in self.slots(buffer):
            self.arena[k] = buffer

    def slots(self, buffer: Buffer) -> range:
        offset = self.assignment.offsets[buffer]
        return range(offset // 64, -(-(offset + buffer.bytes) // 64))

    def follow(self, thunks: Iterable[Thunk]) -> None:
        for thunk in thunks:
            match thunk:
                case KernelThunk():
                    self.kernel(thunk)
                case CopyThunk():
                    self.read(thunk.source)
                    self.write(thunk.target)
                case WhileThunk():
                    self.follow(thunk.preheader)
                    self.follow(thunk.condition.thunks)
                    for _ in range(2):
                        self.read(thunk.test)
                        self.follow(thunk.body.thunks)
                        self.follow(thunk.condition.thunks)
                case ConditionalThunk():
                    self.read(thunk.selector)
                    self.branch(thunk)

    def kernel(self, thunk: KernelThunk) -> None:
        first = 0
        for part in thunk.parts:
            buffers = thunk.buffers[first : first + len(part.buffers)]
            self.kernel(dataclasses.replace(part, buffers=buffers))
            first += len(buffers)
        if thunk.parts:
            return
        kernel = thunk.kernel
        read = sum(len(list(o.shape.leaves())) for o in thunk.instruction.operands) - len(kernel.must_alias)
        made = len(list(thunk.instruction.shape.leaves()))
        inputs, outputs = thunk.buffers[:read], thunk.buffers[read : read + made]
        others = [b for b in thunk.buffers[read + made :] if b.space != "constant"]  # memory to work in
        updated = {output for output, _ in kernel.must_alias}
        shared = {output for output, _ in kernel.may_alias} | updated
        assert len(set(map(id, [*outputs, *others]))) == len(outputs) + len(others)
        for buffer in [*inputs, *(outputs[k] for k in updated)]:
            self.read(buffer)
        for k, buffer in enumerate(outputs):
            assert k in shared or all(buffer is not b for b in inputs)
        for buffer in [*outputs, *others]:
            self.write(buffer)
        for buffer in [
            *inputs,
            *outputs,
        ]:  # nothing lies over them, but where an output shares an input's buffer
            self.read(buffer)

    def branch(self, thunk: ConditionalThunk) -> None:
        arena, results = self.arena, self.results
        ends = []
        for branch in thunk.branches:
            self.arena, self.results = list(arena), set(results)
            self.follow(branch.thunks)
            ends.append((self.arena, self.results))
        self.arena = [
            slots[0] if all(s is slots[0] for s in slots) else None for slots in zip(*(a for a, _ in ends))
        ]
        self.results = set.intersection(*(r for _, r in ends))


@settings(suppress_health_check=list(HealthCheck), max_examples=settings().max_examples * 2)
@given(st.integers(0, 2**32 - 1))
def test_nothing_needed_is_overwritten(seed: int) -> None:
    """Random modules: every read finds what was written for it, arguments and constants are never written to, and every
    result is."""
    rng = np.random.default_rng(seed)
    program = lowered(random_module(lambda n: int(rng.integers(n))))
    memory = Memory(assign_buffers(program.entry))
    memory.follow(program.entry.thunks)
    assert memory.results >= {k for k, shape in enumerate(program.results) if shape.bytes}


@pytest.mark.parametrize("seed", range(40))
def test_moves_happen_at_once(seed: int) -> None:
    """Chains, cycles and values that go to several places, some in memory that two buffers share."""
    rng = np.random.default_rng(seed)
    arguments = [Buffer("argument", 8, k) for k in range(4)]
    buffers = [
        *arguments[2:],
        *(Buffer("temporary", 8) for _ in range(5)),
        *(Buffer("result", 8, k, may_alias=arguments[k]) for k in range(2)),
    ]
    targets = rng.permutation(len(buffers))[: rng.integers(1, len(buffers) + 1)]
    moves = [(buffers[rng.integers(len(buffers))], buffers[k]) for k in targets]
    memory = {buffer.allocation: k for k, buffer in enumerate(buffers)}
    expected = memory | {target.allocation: memory[source.allocation] for source, target in moves}
    sequence = sequentialize(moves, lambda size: Buffer("temporary", size))
    for source, target in sequence:
        memory[target.allocation] = memory[source.allocation]
    assert {allocation: memory[allocation] for allocation in expected} == expected
    assert len(sequence) <= len(moves) + len(moves) // 2


def test_parts_of_a_wide_tuple_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0
    plain = Shape.leaves

    def leaves_of(shape: Shape) -> Iterator[Shape]:
        nonlocal asked
        asked += 1
        return plain(shape)

    state = make(Parameter(0, Shape.tuple([array("f32")] * 500)), name="state")
    parts = [make(GetTupleElement(k), state) for k in range(500)]
    computation = Computation("main", make(Tuple(), *parts), [state])
    monkeypatch.setattr(Shape, "leaves", leaves_of)
    assert alias_analysis(computation).root == [(state, k) for k in range(500)]
    assert asked < 5000


@pytest.mark.parametrize("seed", range(8))
def test_temporaries_that_live_at_one_kernel_lie_apart(seed: int) -> None:
    module = random_module(random.Random(seed).randrange)
    artifact = compile_module(module)
    live = [t for t in artifact.temporaries if t.bytes]
    assert all(0 <= t.first <= t.last < len(artifact.kernels) for t in live)
    assert all(t.offset + t.bytes <= artifact.temp_bytes for t in live)
    for a, b in itertools.combinations(live, 2):
        if a.first <= b.last and b.first <= a.last:
            assert a.offset + a.bytes <= b.offset or b.offset + b.bytes <= a.offset
