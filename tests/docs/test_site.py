"""The site: a broken link or insert ends the build, and a browser shows its pages. MkDocs is there in `make docs`."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

ROOT = Path(__file__).resolve().parents[2]
BROWSER = next((b for b in ("chromium", "chromium-browser", "google-chrome") if shutil.which(b)), "")
HEAD = (0x26, 0x52, 0x7A)
"""The colour of a page's head."""

pytestmark = pytest.mark.skipif(not importlib.util.find_spec("material"), reason="MkDocs is not installed")


def build(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built site."""
    folder = tmp_path_factory.mktemp("site")
    process = build("--site-dir", folder)
    assert process.returncode == 0, process.stderr
    return folder


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        (
            "A [link](nowhere.md), [another](#nowhere).",
            ["a link 'nowhere.md'", "no such anchor", "2 warnings"],
        ),
        ("<!-- insert: api tfbridge no_such_name -->", ["no_such_name"]),
    ],
    ids=["links", "insert"],
)
def test_build_fails_on_what_is_broken(tmp_path: Path, text: str, messages: list[str]) -> None:
    """A site of one page, with the settings of the real one."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(f"# A page\n\n{text}\n")
    configuration = f"""\
INHERIT: {ROOT / "mkdocs.yml"}
nav: [index.md]
extra: {{polyfills: []}}
extra_css: []
docs_dir: {tmp_path / "docs"}
site_dir: {tmp_path / "site"}
hooks: [{ROOT / "packaging/site/hooks.py"}]
theme: {{favicon: ""}}
"""
    (tmp_path / "mkdocs.yml").write_text(configuration)
    process = build("--config-file", tmp_path / "mkdocs.yml")
    assert process.returncode != 0
    assert [m for m in messages if m not in process.stdout + process.stderr] == []


def screenshot(page: Path, folder: Path) -> np.ndarray:
    """What a browser shows of a page, s64[height, width, 3]."""
    picture = folder / "page.png"
    command = [BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1400,1200"]
    command += [f"--user-data-dir={folder / 'browser'}", f"--screenshot={picture}", page.as_uri()]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return tf.io.decode_png(picture.read_bytes(), channels=3).numpy().astype(int)


def share_of(picture: np.ndarray, colour: tuple[int, int, int]) -> float:
    return float((abs(picture - np.array(colour)).max(-1) <= 8).mean())


@pytest.mark.skipif(not BROWSER, reason="no browser")
@pytest.mark.parametrize(
    ("page", "colour"),
    [("index.html", HEAD), ("howto/example_report.html", (0x4C, 0x78, 0xA8))],  # a bar and a point of kernels
)
def test_a_browser_shows_the_page(
    page: str, colour: tuple[int, int, int], site: Path, tmp_path: Path
) -> None:
    picture = screenshot(site / page, tmp_path)
    assert picture.shape[:2] == (1200, 1400)
    assert share_of(picture, colour) > 0.002
    assert share_of(picture, (255, 255, 255)) + share_of(picture, (0xF6, 0xF7, 0xF9)) > 0.5


def test_pages_need_no_other_site(site: Path) -> None:
    pages = [path for path in site.rglob("*.html") if "source" not in path.parts]
    assert len(pages) > 40
    markers = ('src="http', "src='http", 'rel="stylesheet" href="http', "@import url(http")
    assert [page for page in pages if any(marker in page.read_text("utf-8") for marker in markers)] == []
