"""A schedule and its memory plan as text for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .thunks import Branch, CallOut, Check, Concurrent, Copy, Launch, Loop, Prepare, Schedule, Step


def schedule_text(schedule: Schedule) -> str:
    """The steps, a line each, indented within loops and branches."""
    return "\n".join(_lines([*schedule.preparation, *schedule.steps], "")) + "\n"


def memory_text(schedule: Schedule) -> str:
    """Where every value lies: arguments, results, constants, and temporaries with offset and lifetime.

    Units: bytes; a lifetime is the first and the last position in the schedule.
    """
    lines = [f"argument {k}: {shape}, {shape.bytes:,} bytes" for k, shape in enumerate(schedule.arguments)]
    lines += [f"result {k}: {shape}, {shape.bytes:,} bytes" for k, shape in enumerate(schedule.results)]
    lines.append(f"constants: {len(schedule.constants):,} bytes")
    lines.append(f"temporary memory: {schedule.temp_bytes:,} bytes")
    lines += [
        f"  [{b.offset:>10}, {b.offset + b.bytes:>10})  {b.bytes:>12,} bytes  steps {b.first} to {b.last}"
        for b in sorted(schedule.temporaries, key=lambda b: (b.offset, b.first))
    ]
    return "\n".join(lines) + "\n"


def _lines(steps: Sequence[Step], indent: str) -> Iterator[str]:
    for step in steps:
        if isinstance(step, Launch):
            plan = step.plan
            yield (
                f"{indent}launch {plan.symbol} for {step.instruction.name}: {plan.tasks} tasks, grain {plan.grain}, "
                f"{'parallel' if plan.parallel else 'serial'}, {plan.flops:,} flops, {plan.bytes:,} bytes"
            )
            yield f"{indent}    {' '.join(map(str, step.buffers))}"
        elif isinstance(step, Prepare):
            yield f"{indent}before, where {step.launch.buffers[-1]} is wanted"
            yield from _lines([step.launch], indent + "    ")
        elif isinstance(step, CallOut):
            yield f"{indent}call site {step.number}: {step.site.kind} {step.site.name}"
            yield f"{indent}    {' '.join(map(str, step.buffers))}"
        elif isinstance(step, Check):
            yield f"{indent}end with status {step.status} if {step.failed}: {step.message.decode(errors='replace')}"
        elif isinstance(step, Copy):
            yield f"{indent}copy {step.source} to {step.target}"
        elif isinstance(step, Loop):
            yield f"{indent}while {step.test} of"
            yield from _lines(step.condition, indent + "    ")
            yield f"{indent}do"
            yield from _lines(step.body, indent + "    ")
        elif isinstance(step, Concurrent):
            for k, branch in enumerate(step.branches):
                yield f"{indent}{'at the same time' if k else 'concurrent'}"
                yield from _lines(branch, indent + "    ")
        elif isinstance(step, Branch):
            for k, branch in enumerate(step.branches):
                yield f"{indent}branch {k} by {step.selector}"
                yield from _lines(branch, indent + "    ")
