"""What pages insert, made without MkDocs: the reference is complete, links hold, docstrings become lists and code."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import tfbridge

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "packaging" / "site"))

import docstrings  # noqa: E402
import inserts  # noqa: E402
import repository_links  # noqa: E402

LINES = [
    (page.relative_to(ROOT / "docs"), match.split())
    for page in sorted((ROOT / "docs").rglob("*.md"))
    for match in re.findall(r"^<!-- insert: (.*) -->$", page.read_text(encoding="utf-8"), re.MULTILINE)
]


@pytest.mark.parametrize(("page", "line"), LINES, ids=[" ".join(line) for _, line in LINES])
def test_every_insert_makes_text(page: Path, line: list[str]) -> None:
    name, *arguments = line
    text = inserts.INSERTS[name](page, *arguments)
    assert len(text) > 200
    assert "None" not in re.findall(r"^#+ (.*)$", text, re.MULTILINE)


@pytest.mark.parametrize("module", inserts.MODULES)
def test_public_names_have_sections(module: str) -> None:
    text = inserts.api(Path(inserts.MODULES[module]), module)
    assert [n for n in inserts.public_names(module) if f"{{#{module}.{n}}}" not in text] == []


def test_counters_are_those_of_stats() -> None:
    rows = re.findall(r"^\| `(\w+)`", inserts.counters(Path("x.md")), re.MULTILINE)
    assert set(rows) == tfbridge.stats().keys()


def test_commands_say_how_they_are_used() -> None:
    text = inserts.commands(Path("x.md"))
    assert text.count("\nusage: ") == text.count("## ") == 7


def test_builder_has_constraints_of_its_ops() -> None:
    text = inserts.builder(Path("reference/builder.md"))
    assert "**pad_c2**" in text and "### conv_general_dilated" in text
    assert text.index("### parameter") < text.index("### abs") < text.index("### all_reduce")


def test_links_of_the_repository() -> None:
    page, file = Path("howto/x.md"), ROOT / "docs" / "howto" / "x.md"
    text = "[a](../aot.md#names) [b](../../models/demo.py) [c](https://x.y/z) [d](#e) [f](../notebooks/flag.ipynb)"
    assert repository_links.rewrite(text, file, page) == (
        "[a](../aot.md#names) [b](../source/models/demo.py.md) [c](https://x.y/z) [d](#e) [f](../notebooks/flag.md)"
    )
    fenced = "```\n[a](../../SECURITY.md)\n```\n[a](../../SECURITY.md) [b](nowhere.md)"
    assert repository_links.rewrite(fenced, file, page) == (
        "```\n[a](../../SECURITY.md)\n```\n[a](../explanation/security.md) [b](nowhere.md)"
    )
    assert repository_links.rewrite("[a](docs/aot.md)", ROOT / "README.md", Path("index.md")) == "[a](aot.md)"


DOCSTRING = """One sentence on `tfbridge.jit`. Raises: no label here?

threads: how many.
numerics, threads: both,
    on two lines.

>>> 1 + 1
2

Units: seconds.
Raises: ShapeError  a_c1: this; ValueError, TypeError  that.
"""
MARKDOWN = """\
One sentence on [`tfbridge.jit`](t.md#jit).

**Raises:** no label here?


* `threads`: how many.
* `numerics`, `threads`: both,
    on two lines.

```pycon
>>> 1 + 1
2
```

**Units:** seconds.

**Raises:**

* `ShapeError`: a_c1: this.
* `ValueError`, `TypeError`: that."""


def test_docstring_as_markdown() -> None:
    links = {"tfbridge.jit": "t.md#jit"}
    assert docstrings.markdown(DOCSTRING, links, frozenset({"threads", "numerics"})) == MARKDOWN


def test_signatures() -> None:
    def short(a: int, *, b: str = "x") -> None: ...
    def long(
        first_argument: list[int], second_argument: str = "y", *rest: int, **others: str
    ) -> dict[str, int]: ...

    assert docstrings.signature("f", short) == "f(a: int, *, b: str = 'x') -> None"
    assert docstrings.signature("f", long).splitlines()[1:3] == [
        "    first_argument: list[int],",
        "    second_argument: str = 'y',",
    ]
