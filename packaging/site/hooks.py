"""What MkDocs calls while it builds the site (`make docs`).

A page of docs/ may have a line `<!-- insert: NAME ARGUMENTS -->`: what a row of `INSERTS` makes takes its place, so the
reference comes from the code. Links to files of the repository outside docs/ lead to pages that show them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import inserts
import repository_links
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
_INSERT = re.compile(r"^<!-- insert: (?P<name>[\w]+)(?P<arguments>[^>]*) -->$", re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages of source files that pages link to, and the files that are made for pages."""
    pages = [Path(config.docs_dir, file.src_uri) for file in files.documentation_pages()]
    for source in repository_links.sources([*pages, *repository_links.ROOT_PAGES]):
        files.append(
            File.generated(
                config, repository_links.source_page(source), content=repository_links.source_text(source)
            )
        )
    for page, (name, make) in inserts.FILES.items():
        if files.get_file_from_path(page):
            files.append(File.generated(config, name, content=make()))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """A page with what its inserts make, and with links that hold in the site."""
    own = Path(page.file.src_uri)
    if own.parts[0] == repository_links.SOURCES:
        return markdown
    text = repository_links.rewrite(markdown, ROOT / "docs" / own, own)
    return _INSERT.sub(lambda match: _insert(match, own), text)


def _insert(match: re.Match[str], own: Path) -> str:
    return inserts.INSERTS[match["name"]](own, *match["arguments"].split())
