"""The entry that calls the code of the highest level that the processor has."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tfbridge.compiler.cpu.entry.level_entry import emit_level_entry
from tfbridge.compiler.cpu.objects.object_emitter import emit_object
from tfbridge.compiler.cpu.targets.levels import LEVELS, levels_for
from tfbridge.compiler.ir.code_version import Level
from tfbridge.runtime.code.artifact import Artifact, BufferSpec
from tfbridge.runtime.code.executable import Executable
from tfbridge.runtime.errors import ExecutionError
from tfbridge.runtime.llvm.ir_builder import ModuleText
from tfbridge.runtime.llvm.target import host

TRIPLE = host().triple
ARCHITECTURE = host().architecture
HAS = {name[1:] for name in host().features.split(",") if name.startswith("+")}
# A feature that each level is the first to have.
FIRST = {
    "x86_64": {"v1": "sse2", "v2": "sse4.2", "v3": "avx2", "v4": "avx512bw", "v4-vnni": "avx512vnni"},
    "aarch64": {"v8.0": "neon", "v8.2": "dotprod", "v8.6": "i8mm"},
}.get(ARCHITECTURE, {})
pytestmark = pytest.mark.skipif(
    not FIRST or "linux" not in TRIPLE, reason="programs cannot ask this processor, or it has no levels"
)

NUMBER = """define internal i32 @{name}(ptr %context, ptr %args, ptr %results, ptr %temp) {{
  %to = load ptr, ptr %results
  store i32 {number}, ptr %to
  ret i32 0
}}"""


def found(levels: Sequence[Level]) -> int:
    """The number of the level that an entry finds, twice."""
    text = ModuleText(host())
    for number, level in enumerate(levels):
        text.add(level.name, NUMBER.format(name=level.name, number=number))
    emit_level_entry(text, "entry", levels, [level.name for level in levels])
    result = BufferSpec("int32", (1,), 4)
    code = Executable(Artifact(emit_object(text.text(), host()), "entry", (), (result,), 0))
    (first,), (second,) = code.execute([]), code.execute([])
    assert first == second
    return int(first[0])


@pytest.mark.parametrize("count", range(1, len(FIRST) + 1))
def test_the_highest_level_is_taken(count: int) -> None:
    names = list(FIRST)[:count]
    highest = max(k for k, name in enumerate(names) if FIRST[name] in HAS)
    assert found(levels_for(TRIPLE, names)) == highest


def test_every_level_asks_for_more() -> None:
    levels = levels_for(TRIPLE, list(LEVELS[ARCHITECTURE]))
    for below, above in zip(levels, levels[1:]):
        assert all(above.needs[word] & bits == bits for word, bits in below.needs.items())
        assert below.needs != above.needs


def test_a_processor_with_less_is_told() -> None:
    (level,) = levels_for(TRIPLE, list(FIRST)[:1])
    word = "processor" if ARCHITECTURE == "aarch64" else "features"
    all_bits = Level("all", level.target, {word: -1})
    with pytest.raises(ExecutionError, match="less than the lowest level of the code, all"):
        found([all_bits])
