"""The page of a report: what it draws, that it is well-formed, and that a browser shows it."""

from __future__ import annotations

import html.parser
import random
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tfbridge
from tfbridge.bridge.report_page.charts import BOX, PLOT, draw_graph, draw_memory, draw_roofline
from tfbridge.bridge.report_page.groups import nodes_of_graph_def, op_groups
from tfbridge.bridge.report_page.page import amount, kernel_section, remedy, render
from tfbridge.compiler.client.platforms import native
from tfbridge.runtime.code.artifact import KernelRecord, Temporary
from tfbridge.runtime.code.peak_rates import PeakRates, rates_per_cycle
from tfbridge.runtime.llvm.target import host

BROWSER = next((b for b in ("chromium", "chromium-browser", "google-chrome") if shutil.which(b)), "")
RATES = PeakRates(1e11, 4e10, 1e10, 1 << 20)
KERNELS = [
    KernelRecord("dot.0", 10_000_000, 40_000, 4, ("layer/MatMul", "layer/Relu")),
    KernelRecord("fusion.1", 64, 256, 1, ("bn/Rsqrt",)),
    KernelRecord("fusion.2", 64, 256, 1, ("bn_1/Rsqrt_1",)),
    KernelRecord("copy.3", 0, 8_000_000, 1),
]
_VOID = {"meta", "br", "!doctype"}


class WellFormed(html.parser.HTMLParser):
    """Tags that are open, and the text outside styles and scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attributes: Sequence[tuple[str, str | None]]) -> None:
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "script"):
            self.text += f"{data.strip()} "


def read(page: str) -> str:
    """The text of a page. Raises: AssertionError  a tag is not closed."""
    parsed = WellFormed(page)
    assert not parsed.open
    assert "http" not in page.split("</style>")[1], "a reference to another file"
    return parsed.text


def screenshot(page: Path) -> np.ndarray:
    """What a browser shows of a page."""
    picture = page.with_suffix(".png")
    command = [BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1200,1600"]
    profile = f"--user-data-dir={page.parent / 'browser'}"
    subprocess.run(
        [*command, profile, f"--screenshot={picture}", page.as_uri()],
        check=True,
        capture_output=True,
        timeout=120,
    )
    return tf.io.decode_png(picture.read_bytes(), channels=3).numpy().astype(int)


def share_of(picture: np.ndarray, colour: tuple[int, int, int]) -> float:
    return float((abs(picture - np.array(colour)).max(-1) <= 8).mean())


@pytest.mark.parametrize("seed", range(20))
def test_groups_cover_the_graph(seed: int) -> None:
    rng = random.Random(seed)
    nodes: dict[str, tuple[str, list[str]]] = {}
    cluster_of = {}
    for k in range(rng.choice((1, 5, 60, 900))):
        scope = "/".join(f"part{rng.randrange(4)}" for _ in range(rng.randrange(4)))
        op = rng.choice(("Add", "Mul", "Identity", "Const"))
        name = f"{scope}/{op}_{k}".lstrip("/")
        nodes[name] = op, rng.sample(sorted(nodes), min(len(nodes), rng.randrange(3)))
        if rng.random() < 0.7:
            cluster_of[name] = f"cluster{k // 300}"
    groups = op_groups(nodes, cluster_of)
    assert sum(group.ops for group in groups) == sum(op in ("Add", "Mul") for op, _ in nodes.values())
    assert all(source < k for k, group in enumerate(groups) for source in group.inputs)
    drawing = draw_graph(groups) if groups else None
    if drawing is not None:
        places = {(box.x, box.y) for box in drawing.boxes}
        assert len(places) == len(groups)
        assert all(x + BOX[0] <= drawing.width and y + BOX[1] <= drawing.height for x, y in places)


def test_inputs_pass_through_nodes_that_are_not_drawn() -> None:
    nodes = {
        "x": ("_Arg", []),
        "a": ("Exp", ["x"]),
        "i": ("Identity", ["a"]),
        "j": ("Identity", ["i"]),
        "b": ("Tanh", ["j"]),
    }
    first, second = op_groups(nodes, {"b": "c"})
    assert (first.cluster, first.inputs, second.cluster, second.inputs) == ("", (), "c", (0,))


def test_nodes_of_a_graph_in_order() -> None:
    @tf.function
    def f(x: tf.Tensor) -> tf.Tensor:
        return tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, tf.sin(y) + y), (0, tf.exp(x)))[1]

    definition = f.get_concrete_function(tf.TensorSpec(())).graph.as_graph_def()
    shuffled = random.Random(3).sample(list(definition.node), len(definition.node))
    nodes = nodes_of_graph_def(shuffled)
    assert nodes.keys() == {node.name for node in definition.node}
    seen: set[str] = set()
    for name, (_, inputs) in nodes.items():
        assert seen.issuperset(inputs)
        seen.add(name)


def test_roofline_lies_in_the_plot() -> None:
    times = [RATES.least(kernel) * 1.3 for kernel in KERNELS]
    drawn = draw_roofline(KERNELS, times, RATES)
    assert [point.number for point in drawn.points] == [0, 1, 2]  # a copy has no operations
    assert all(0 <= p.x <= PLOT[0] and 0 <= p.y <= PLOT[1] for p in drawn.points)
    assert drawn.points[0].radius > drawn.points[1].radius
    assert draw_roofline([], [], RATES).points == ()


def test_memory_blocks_are_parts_of_the_plot() -> None:
    temporaries = [Temporary(0, 64, 0, 1), Temporary(64, 192, 1, 3), Temporary(0, 64, 2, 2)]
    blocks = draw_memory(temporaries, KERNELS, 256)
    assert [(b.x, b.y, b.width, b.height) for b in blocks] == [
        (0, 0.75, 0.5, 0.25),
        (0.25, 0, 0.75, 0.75),
        (0.5, 0.75, 0.25, 0.25),
    ]
    assert draw_memory([], KERNELS, 0) == ()


def test_kernels_that_do_the_same_are_one_row() -> None:
    section = kernel_section("c", KERNELS, (), 0, RATES, sources={"layer/MatMul": "model.py:7"})
    assert [(f.title, f.kind, len(f.kernels)) for f in section.families] == [
        ("copy.3", "copy", 1),
        ("layer/MatMul", "dot", 1),
        ("Rsqrt", "fusion", 2),
    ]
    assert sum(f.share for f in section.families) == pytest.approx(1)
    assert section.families[1].kernels[0].source == "model.py:7"
    text = read(render("f", [("ops", "4")], sections=[section]))
    assert "at the least that the machine allows" in text and "model.py:7" in text


@pytest.mark.parametrize(
    "value, text",
    [(0, "0"), (7, "7"), (999, "999"), (1234, "1.23 k"), (56_789_012, "56.8 M"), (2.5e-5, "25.0 µ")],
)
def test_amounts(value: float, text: str) -> None:
    assert amount(value) == text


def test_rates() -> None:
    here = rates_per_cycle(host())
    assert here.flops >= 1 and here.unit == "cycle"
    measured = native().peak_rates()
    assert measured is native().peak_rates()
    assert measured.flops > 1e8 and measured.cached_bytes >= measured.bytes > 1e8


def test_page_of_a_function_in_parts() -> None:
    @tfbridge.jit
    def f(x: tf.Tensor) -> tf.Tensor:
        y = tf.nn.relu(x @ x)
        length = tf.strings.length(tf.strings.as_string(tf.reduce_sum(y)))
        return tf.exp(y) * tf.cast(length, tf.float32) + tf.sin(y)

    report = tfbridge.explain(f, tf.ones((8, 8)))
    text = read(report.html())
    assert "Move it before or after the numeric part" in text
    assert "StringLength" in text and Path(__file__).name in text
    assert {group.cluster for group in report.graph} == {"", *(c.name for c in report.clusters)}
    assert report.measurement is None
    assert read(report.html(measure=True)) == read(report.html())


def test_page_with_measured_times() -> None:
    total = tf.Variable(tf.zeros((64, 64)))

    @tfbridge.jit
    def f(x: tf.Tensor) -> tf.Tensor:
        total.assign_add(tf.nn.softmax(x @ x))
        return tf.reduce_sum(total, 0)

    report = tfbridge.explain(f, tf.ones((64, 64)))
    text = read(report.html(measure=True))
    assert "at the least" not in text and "Time of a call, kernel by kernel" in text
    assert not total.numpy().any(), "a variable changed"
    assert "at the least" in read(report.html())
    assert tfbridge.explain(f, tf.TensorSpec((64, 64))).measurement is None


def test_remedies() -> None:
    assert "TFBRIDGE_MIN_CLUSTER_SIZE" in remedy("its cluster has 2 compute ops, the minimum is 4")
    assert remedy("nobody knows") == ""


def test_show_opens_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    path = tfbridge.explain(tfbridge.jit(lambda x: tf.exp(x) + 1), tf.ones(3)).show()
    assert opened == [Path(path).as_uri()]
    assert "&lt;lambda&gt;" in Path(path).read_text(encoding="utf-8")


@pytest.mark.skipif(not BROWSER, reason="no browser")
def test_a_browser_shows_the_page(tmp_path: Path) -> None:
    @tfbridge.jit
    def f(x: tf.Tensor) -> tf.Tensor:
        y = tf.nn.relu(x @ x)
        length = tf.strings.length(tf.strings.as_string(tf.reduce_sum(y)))
        return tf.exp(y) * tf.cast(length, tf.float32) + tf.sin(y)

    page = tmp_path / "page.html"
    page.write_text(tfbridge.explain(f, tf.ones((64, 64))).html(), encoding="utf-8")
    picture = screenshot(page)
    assert picture.shape[:2] == (1600, 1200)
    assert share_of(picture, (0x4C, 0x78, 0xA8)) > 0.005  # the bar of the kind with the most time
    assert share_of(picture, (0xF5, 0x85, 0x18)) > 0.0005  # the second
    assert share_of(picture, (255, 255, 255)) + share_of(picture, (0xF6, 0xF7, 0xF9)) > 0.6
    exported = tfbridge.aot.compile(
        lambda x: tf.tanh(x @ x), tf.TensorSpec((64, 64)), name="m", out_dir=tmp_path
    )
    assert share_of(screenshot(exported.page), (0x4C, 0x78, 0xA8)) > 0.005
