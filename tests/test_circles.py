"""No circles of imports, those inside functions and for types counted, but through the edges that are listed here."""

from __future__ import annotations

import ast
import functools
from collections.abc import Collection, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LAYERS = ("runtime", "compiler", "bridge", "models")
Edges = Mapping[str, Collection[str]]

# What is to be cut: without these edges there is no circle. The list only gets shorter.
TO_CUT = frozenset(
    {
        ("bridge.api.flags", "bridge.api.import_hook"),
        ("bridge.launch.kernel", "bridge.launch.prepacked_weights"),
        ("bridge.launch.kernel", "bridge.launch.resource_variables"),
        ("bridge.launch.kernel", "bridge.launch.weight_pages"),
        ("bridge.translate.node", "bridge.translate.translator"),
        ("compiler.client.global_data", "compiler.client.client"),
        ("compiler.client.replicas", "compiler.client.client"),
        ("compiler.cpu.loops.access_analysis", "compiler.cpu.loops.reduce_emitter"),
        ("compiler.cpu.loops.element_emitter", "compiler.cpu.loops.reduce_emitter"),
        ("compiler.cpu.loops.loop_fusion", "compiler.cpu.loops.bitcast_convert"),
        ("compiler.cpu.loops.loop_fusion", "compiler.cpu.loops.column_reduction"),
        ("compiler.cpu.loops.scan", "compiler.cpu.loops.loop_fusion"),
        ("compiler.cpu.loops.tiled_transpose", "compiler.cpu.loops.loop_fusion"),
        ("compiler.hlo_text.attributes", "compiler.hlo_text.scanner"),
        ("compiler.ir.module", "compiler.hlo_text.printer"),
        ("compiler.limits", "compiler.ir.module"),
        ("compiler.ops.op", "compiler.ir.module"),
    }
)


@functools.cache
def edges() -> dict[str, set[str]]:
    """The modules that every module imports, wherever the import stands."""
    files = {
        path.relative_to(ROOT).with_suffix("").as_posix().removesuffix("/__init__").replace("/", "."): path
        for layer in LAYERS
        for path in (ROOT / layer).rglob("*.py")
    }
    found: dict[str, set[str]] = {}
    for name, path in files.items():
        package = ("tfbridge", *path.relative_to(ROOT).parent.parts)
        imported = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                start = package[: len(package) - node.level + 1] if node.level else ()
                base = ".".join((*start, *([node.module] if node.module else []))).removeprefix("tfbridge.")
                names = [f"{base}.{alias.name}" for alias in node.names]
                imported |= {full if full in files else base for full in names}
        found[name] = (imported & files.keys()) - {name}
    return found


def circle(graph: Edges) -> list[str]:
    """The modules of one circle, in order; none if there is no circle."""
    done: set[str] = set()
    for root in graph:
        path: list[str] = []
        stack = [(root, False)]
        while stack:
            name, is_left = stack.pop()
            if is_left:
                done.add(path.pop())
            elif name in path:
                return [*path[path.index(name) :], name]
            elif name not in done:
                path.append(name)
                stack.append((name, True))
                stack += [(other, False) for other in sorted(graph.get(name, ()))]
    return []


def test_no_circle_but_for_the_edges_to_cut() -> None:
    assert (
        circle({name: {o for o in others if (name, o) not in TO_CUT} for name, others in edges().items()})
        == []
    )


def test_every_edge_to_cut_is_part_of_a_circle() -> None:
    for edge in TO_CUT:
        rest = {
            name: {o for o in others if (name, o) not in TO_CUT or (name, o) == edge}
            for name, others in edges().items()
        }
        assert edge[1] in rest.get(edge[0], ()) and circle(rest), f"{edge} makes no circle any more"


def test_circles_are_found() -> None:
    assert circle({"a": ["b"], "b": ["c"], "c": ["b"]}) == ["b", "c", "b"]
    assert circle({"a": ["b", "c"], "b": ["c"], "c": []}) == []
