"""Links from pages to files of the repository: in the site they lead to pages."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
SOURCES = "source"
"""The folder of the site with the pages of source files."""
ROOT_PAGES = {
    ROOT / "README.md": "index.md",
    ROOT / "SECURITY.md": "explanation/security.md",
    ROOT / "CONTRIBUTING.md": "project/contributing.md",
    ROOT / "CHANGELOG.md": "project/changelog.md",
}
"""Files beside docs/ that are pages of the site."""
_LANGUAGES = {".py": "python", ".md": "markdown", ".toml": "toml", ".c": "c", ".h": "c", "": "text"}
_LINK = re.compile(r"\]\((?P<target>[^)\s]+)\)")
_FENCE = re.compile(r"^(?P<fence>`{3,}|~{3,}).*?^(?P=fence)[ \t]*$", re.MULTILINE | re.DOTALL)


def rewrite(markdown: str, file: Path, page: Path) -> str:
    """The text of a file with links as they hold on a page of the site; a link that leads nowhere stays, and MkDocs
    warns of it."""
    parts, at = [], 0
    for fence in _FENCE.finditer(markdown):
        parts += [_rewrite(markdown[at : fence.start()], file, page), fence.group()]
        at = fence.end()
    return "".join([*parts, _rewrite(markdown[at:], file, page)])


def _rewrite(markdown: str, file: Path, page: Path) -> str:
    def link_of(match: re.Match[str]) -> str:
        target = _target(match["target"], file)
        if target is None:
            return match.group()
        path, fragment = target
        if path.is_relative_to(DOCS):
            place = path.relative_to(DOCS)
            place = place.with_suffix(".md") if place.suffix == ".ipynb" else place
        else:
            place = Path(ROOT_PAGES.get(path, source_page(path)))
        return f"]({os.path.relpath(place, page.parent)}{fragment})"

    return _LINK.sub(link_of, markdown)


def _target(link: str, file: Path) -> tuple[Path, str] | None:
    """The file that a link leads to, and its fragment; None for other links."""
    name, mark, fragment = link.partition("#")
    if not name or "://" in name or name.startswith("mailto:"):
        return None
    path = (file.parent / name).resolve()
    return (path, mark + fragment) if path.is_file() and path.is_relative_to(ROOT) else None


def sources(files: Iterable[Path]) -> Iterator[Path]:
    """The files that these ones link to and that are no pages, each once."""
    seen = set()
    for file in files:
        if not file.is_file():
            continue
        text = _FENCE.sub("", file.read_text(encoding="utf-8"))
        for match in _LINK.finditer(text):
            target = _target(match["target"], file)
            if target is None or target[0].is_relative_to(DOCS) or target[0] in ROOT_PAGES:
                continue
            if target[0] not in seen:
                seen.add(target[0])
                yield target[0]


def source_page(path: Path) -> str:
    """The page of a source file."""
    return f"{SOURCES}/{path.relative_to(ROOT).as_posix()}.md"


def source_text(path: Path) -> str:
    """What is on the page of a source file."""
    language = _LANGUAGES.get(path.suffix, "text")
    text = path.read_text(encoding="utf-8")
    return f"# {path.relative_to(ROOT).as_posix()}\n\n````` {language}\n{text}\n`````\n"
