"""The code of pages and notebooks: which blocks there are, and what is to be done with each.

A block of Python runs in the page's namespace, one of `sh` in bash, in the page's folder. A block with a title is a
file, which is written there: the blocks behind it may run it. A block of `text` right behind is what a block prints;
`...` in it stands for anything. A comment before a block tells of exceptions:

    <!-- not run: REASON -->     the block is not run
    <!-- run first: CODE -->     Python that the block needs and readers do not, on lines of its own
    <!-- needs: NAME -->         the block is run where this command or Python module is there
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RUN = ("python", "sh")
_FENCE = re.compile(
    r"^(?P<fence>`{3,})[ ]?(?P<language>[\w.]*)(?P<information>[^\n]*)\n(?P<text>.*?)^(?P=fence)[ ]*$",
    re.MULTILINE | re.DOTALL,
)
_TITLE = re.compile(r'title="([^"]+)"')
_COMMENT = re.compile(
    r"^<!-- (?P<kind>not run|run first|needs): ?(?P<text>.*?)\s*-->$", re.DOTALL | re.MULTILINE
)


@dataclasses.dataclass(frozen=True)
class Block:
    """A block of code. `reason`: why it is not run. `before`: Python that runs first. `needs`: a command or a module.
    `output`: what it prints, if the page says so."""

    line: int
    language: str
    title: str
    text: str
    reason: str = ""
    before: str = ""
    needs: str = ""
    output: str | None = None

    @property
    def is_run(self) -> bool:
        """Whether it runs where all that it needs is there."""
        return self.language in RUN and not self.title and not self.reason

    @property
    def can_run(self) -> bool:
        """Whether it runs here."""
        is_there = not self.needs or shutil.which(self.needs) or importlib.util.find_spec(self.needs)
        return self.is_run and bool(is_there)


def pages() -> list[str]:
    """README, SECURITY and the pages and notebooks of docs/, by path in the repository."""
    files = [ROOT / "README.md", ROOT / "SECURITY.md", ROOT / "CONTRIBUTING.md"]
    files += sorted([*(ROOT / "docs").rglob("*.md"), *(ROOT / "docs").rglob("*.ipynb")])
    return [file.relative_to(ROOT).as_posix() for file in files]


def blocks_of(page: str) -> list[Block]:
    """The blocks of a page or notebook, in order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return list(_cells(text) if page.endswith(".ipynb") else _fences(text))


def _fences(text: str) -> Iterator[Block]:
    previous: Block | None = None
    end = 0
    for match in _FENCE.finditer(text):
        between = text[end : match.start()]
        language, title = match["language"], _TITLE.search(match["information"])
        if previous is not None:
            is_output = language == "text" and not title and not between.strip() and not previous.title
            yield dataclasses.replace(previous, output=match["text"] if is_output else None)
        marks = {mark["kind"]: mark["text"].strip("\n") for mark in _COMMENT.finditer(_last_lines(between))}
        previous = Block(
            text.count("\n", 0, match.start()) + 1,
            language,
            title[1] if title else "",
            match["text"],
            reason=marks.get("not run", ""),
            before=marks.get("run first", ""),
            needs=marks.get("needs", ""),
        )
        end = match.end()
    if previous is not None:
        yield previous


def _last_lines(text: str) -> str:
    """The comments at the end of a text, which belong to the block behind it."""
    match = re.search(r"(?:<!--(?:(?!-->).)*-->\s*)*\Z", text, re.DOTALL)
    return match.group() if match else ""


def _cells(text: str) -> Iterator[Block]:
    """The code of a notebook. Of IPython's own commands `%%writefile FILE` and lines of `!COMMAND` are known. Output of
    a cell with the tag `varies` is not compared."""
    for number, cell in enumerate(json.loads(text)["cells"]):
        if cell["cell_type"] != "code":
            continue
        source = "".join(cell["source"])
        streams = ["".join(o["text"]) for o in cell["outputs"] if o["output_type"] == "stream"]
        is_text = len(streams) == len(cell["outputs"]) and "varies" not in cell["metadata"].get("tags", ())
        output = "".join(streams) if is_text else None
        first, _, rest = source.partition("\n")
        if first.startswith("%%writefile "):
            yield Block(number, "python", first.split()[1], rest)
        elif source.startswith("!"):
            yield Block(number, "sh", "", source.replace("\n!", "\n")[1:], output=output)
        else:
            yield Block(number, "python", "", source, output=output)
