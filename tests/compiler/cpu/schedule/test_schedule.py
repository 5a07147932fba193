"""Decisions about buffers: what is updated in place, what is copied, and that nothing that is still needed is
overwritten."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from agreement import leaves, nested
from cases import computation, constant, reducer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_graphs import random_module, values
from tfbridge.compiler.client.client import LocalClient
from tfbridge.compiler.cpu.compile import CPU_PASSES
from tfbridge.compiler.cpu.schedule.thunks import (
    Branch,
    Buffer,
    Copy,
    Launch,
    Loop,
    Schedule,
    Step,
    _Lowering,
    _origins,
    launches,
    plan_memory,
    schedule_module,
)
from tfbridge.compiler.evaluator.evaluator import evaluate
from tfbridge.compiler.ir.literal import Literal
from tfbridge.compiler.ir.module import Computation, Instruction, Module, make
from tfbridge.compiler.ir.shape import Shape, array
from tfbridge.compiler.ops import (
    Broadcast,
    Compare,
    Constant,
    Dot,
    DynamicSlice,
    DynamicUpdateSlice,
    Elementwise,
    GetTupleElement,
    Parameter,
    Reduce,
    Tuple,
    While,
)
from tfbridge.compiler.options import DEFAULT_OPTIONS
from tfbridge.compiler.passes.pipeline import run_pipeline
from tfbridge.runtime.llvm.ir_builder import ModuleText
from tfbridge.runtime.llvm.target import host


def scheduled(module: Module) -> Schedule:
    """The module's schedule, its memory planned."""
    target = host()
    optimized = run_pipeline(module, passes=CPU_PASSES)
    schedule = schedule_module(optimized, ModuleText(target), target, DEFAULT_OPTIONS)
    plan_memory(schedule)
    return schedule


def module_of(root: Instruction, *parameters: Instruction) -> Module:
    return Module("test", Computation("main", root, parameters))


def parameter(number: int, kind: str, *dims: int) -> Instruction:
    return make(Parameter(number, array(kind, *dims)), name=f"p{number}")


def ew(name: str, *operands: Instruction) -> Instruction:
    return make(Elementwise(name), *operands)


def loop(rounds: int, body, *start: Instruction) -> list[Instruction]:  # noqa: ANN001
    """while i < rounds: values = body(i, values); the values after it."""
    init = make(Tuple(), constant(0, "s32"), *start)
    shape = init.shape

    def parts(state: Instruction) -> list[Instruction]:
        return [make(GetTupleElement(k), state) for k in range(len(shape.tuple_shapes))]

    def step(state: Instruction) -> Instruction:
        i, *old = parts(state)
        return make(Tuple(), ew("add", i, constant(1, "s32")), *body(i, *old))

    condition = computation(
        "more", [shape], lambda s: make(Compare("LT"), parts(s)[0], constant(rounds, "s32"))
    )
    return parts(make(While(condition, computation("body", [shape], step)), init))[1:]


def the_loop(schedule: Schedule) -> Loop:
    (found,) = [s for s in schedule.steps if isinstance(s, Loop)]
    return found


def copies(steps: list[Step]) -> list[Copy]:
    return [s for s in steps if isinstance(s, Copy)]


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
        return [make(DynamicUpdateSlice(), rows, ew("add", row, row), i, constant(0, "s32"))]

    module = module_of(loop(5, body, x)[0], x)
    schedule = scheduled(module)
    assert not copies(the_loop(schedule).body)
    large = [c for c in copies(schedule.steps) if c.source.bytes > 4]
    assert [c.source.space + c.target.space for c in large] == ["argumentresult"]
    assert schedule.temp_bytes < 64 * 8 * 4
    agrees(module)


def test_reader_of_the_old_value_comes_before_the_update() -> None:
    x = parameter(0, "f32", 64, 8)

    def body(i: Instruction, rows: Instruction, total: Instruction) -> list[Instruction]:
        new = make(DynamicUpdateSlice(), rows, make(Broadcast((1, 8), ()), total), i, constant(0, "s32"))
        first = make(DynamicSlice((1, 8)), rows, constant(0, "s32"), constant(0, "s32"))
        return [new, make(Reduce((0, 1), reducer("maximum", "f32")), first, total)]

    module = module_of(make(Tuple(), *loop(3, body, x, constant(1, "f32"))), x)
    assert not [c for c in copies(the_loop(scheduled(module)).body) if c.source.bytes > 4]
    agrees(module)


def test_update_of_a_value_that_is_read_later_copies_it() -> None:
    x = parameter(0, "f32", 64)
    y = ew("negate", x)
    new = make(DynamicUpdateSlice(), y, constant([7], "f32"), constant(3, "s32"))
    module = module_of(make(Tuple(), new, make(Dot((0,), (0,)), y, y)), x)
    agrees(module)
    module = module_of(make(Tuple(), new, y), x)
    assert len(copies(scheduled(module).steps)) == 1
    agrees(module)


def test_update_of_a_value_that_is_read_no_more_copies_nothing() -> None:
    x = parameter(0, "f32", 64)
    new = make(DynamicUpdateSlice(), ew("negate", x), constant([7], "f32"), constant(3, "s32"))
    module = module_of(new, x)
    assert not copies(scheduled(module).steps)
    agrees(module)


def test_swap_goes_through_a_temporary() -> None:
    x, y = parameter(0, "f32", 9), parameter(1, "f32", 9)
    module = module_of(make(Tuple(), *loop(3, lambda _, a, b: [b, a], x, y)), x, y)
    moves = copies(the_loop(scheduled(module)).body)
    assert len(moves) == 3 and moves[0].target.space == "temporary"
    agrees(module)


def test_rotation_of_three_takes_four_copies() -> None:
    given_ = [parameter(k, "s32", 5) for k in range(3)]
    module = module_of(make(Tuple(), *loop(4, lambda _, a, b, c: [b, c, a], *given_)), *given_)
    assert len(copies(the_loop(scheduled(module)).body)) == 4
    agrees(module)


def test_what_a_loop_does_not_change_is_read_where_it_lies() -> None:
    x, weights = parameter(0, "f32", 16), parameter(1, "f32", 16, 16)

    def body(_: Instruction, v: Instruction, w: Instruction) -> list[Instruction]:
        return [make(Dot((0,), (0,)), v, w), w]

    module = module_of(make(Tuple(), *loop(3, body, x, weights)), x, weights)
    schedule = scheduled(module)
    step = the_loop(schedule)
    assert all(c.source.bytes < 1024 for c in copies(step.body))
    assert any(
        b.space == "argument" and b.index == 1 for launch in launches(step.body) for b in launch.buffers
    )
    assert [c.target.space for c in copies(schedule.steps) if c.source.bytes == 1024] == ["result"]
    agrees(module)


def test_same_value_twice_in_a_loops_state() -> None:
    x = parameter(0, "f32", 9)
    y = ew("negate", x)

    def body(_: Instruction, a: Instruction, b: Instruction, c: Instruction) -> list[Instruction]:
        return [ew("add", a, b), b, ew("subtract", c, a)]

    agrees(module_of(make(Tuple(), *loop(3, body, y, y, y), y), x))


# -- results


def test_results_that_are_arguments_constants_and_one_another() -> None:
    x = parameter(0, "f32", 7)
    pair = make(Constant(Literal.tuple([Literal(np.int32(3)), Literal(np.ones(2, np.float32))])))
    y = ew("negate", x)
    module = module_of(make(Tuple(), x, y, y, pair, make(GetTupleElement(1), pair), x), x)
    schedule = scheduled(module)
    assert not schedule.temporaries
    agrees(module)


# -- the arena


def test_chain_of_products_needs_two_buffers() -> None:
    x = parameter(0, "f32", 64, 64)
    value = x
    for _ in range(9):
        value = make(Dot((1,), (0,)), value, x)
    schedule = scheduled(module_of(value, x))
    scratch = max(launch.plan.scratch_bytes for launch in launches(schedule.steps)) * host().threads
    assert schedule.temp_bytes <= 2 * 64 * 64 * 4 + scratch + 128
    agrees(module_of(make(Elementwise("sign"), value), x))


@settings(max_examples=200)
@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 30), st.integers(0, 30)), max_size=30))
def test_plan_of_any_buffers(rows: list[tuple[int, int, int]]) -> None:
    """Buffers that live together are apart, and the arena is no larger than all of them, no smaller than those that
    live together at some time."""
    buffers = [Buffer("temporary", size, first=min(a, b), last=max(a, b)) for size, a, b in rows]
    schedule = Schedule([], [], [], buffers, b"")
    plan_memory(schedule)
    for k, a in enumerate(buffers):
        assert a.offset % 64 == 0 and a.offset + a.bytes <= schedule.temp_bytes
        for b in buffers[:k]:
            together = a.first <= b.last and b.first <= a.last and a.bytes and b.bytes
            assert not together or a.offset + a.bytes <= b.offset or b.offset + b.bytes <= a.offset
    assert schedule.temp_bytes <= sum(-(-b.bytes // 64) * 64 for b in buffers)
    at_once = [sum(b.bytes for b in buffers if b.first <= t <= b.last) for t in range(31)]
    assert schedule.temp_bytes >= max(at_once)


class Memory:
    """Which buffer's value lies where, while a schedule is followed step by step."""

    def __init__(self, schedule: Schedule) -> None:
        self.arena: list[Buffer | None] = [None] * (-(-schedule.temp_bytes // 64))
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

    @staticmethod
    def slots(buffer: Buffer) -> range:
        return range(buffer.offset // 64, -(-(buffer.offset + buffer.bytes) // 64))

    def follow(self, steps: list[Step]) -> None:
        for step in steps:
            match step:
                case Launch():
                    self.launch(step)
                case Copy():
                    self.read(step.source)
                    self.write(step.target)
                case Loop():
                    self.follow(step.condition)
                    for _ in range(2):
                        self.read(step.test)
                        self.follow(step.body)
                        self.follow(step.condition)
                case Branch():
                    self.read(step.selector)
                    self.branch(step)

    def launch(self, step: Launch) -> None:
        read = sum(len(list(o.shape.leaves())) for o in step.instruction.operands) - len(step.plan.initial)
        made = len(list(step.instruction.shape.leaves()))
        inputs, outputs = step.buffers[:read], step.buffers[read : read + made]
        others = [b for b in step.buffers[read + made :] if b.space != "constant"]  # memory to work in
        updated = {output for output, _ in step.plan.initial}
        shared = {output for output, _ in step.plan.in_place} | updated
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

    def branch(self, step: Branch) -> None:
        arena, results = self.arena, self.results
        ends = []
        for steps in step.branches:
            self.arena, self.results = list(arena), set(results)
            self.follow(steps)
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
    schedule = scheduled(random_module(lambda n: int(rng.integers(n))))
    memory = Memory(schedule)
    memory.follow(schedule.steps)
    assert memory.results >= {k for k, shape in enumerate(schedule.results) if shape.bytes}


@pytest.mark.parametrize("seed", range(40))
def test_moves_happen_at_once(seed: int) -> None:
    """Chains, cycles and values that go to several places, some in memory that two buffers share."""
    rng = np.random.default_rng(seed)
    arguments = [Buffer("argument", 8, k) for k in range(4)]
    buffers = [
        *arguments[2:],
        *(Buffer("temporary", 8) for _ in range(5)),
        *(Buffer("result", 8, k, may_be=arguments[k]) for k in range(2)),
    ]
    targets = rng.permutation(len(buffers))[: rng.integers(1, len(buffers) + 1)]
    moves = [(buffers[rng.integers(len(buffers))], buffers[k]) for k in targets]
    memory = {buffer.home: k for k, buffer in enumerate(buffers)}
    wanted = memory | {target.home: memory[source.home] for source, target in moves}
    steps: list[Step] = []
    _Lowering(ModuleText(host()), host(), DEFAULT_OPTIONS, lambda symbol: None)._move(moves, steps)
    for step in steps:
        assert isinstance(step, Copy)
        memory[step.target.home] = memory[step.source.home]
    assert {home: memory[home] for home in wanted} == wanted
    assert len(steps) <= len(moves) + len(moves) // 2


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
    assert _origins(computation)[computation.root] == [(state, k) for k in range(500)]
    assert asked < 5000
