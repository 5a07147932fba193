"""What pages of docs/ insert: the reference, made from docstrings, tables and commands, and files of the repository."""

from __future__ import annotations

import base64
import contextlib
import functools
import html
import importlib
import inspect
import io
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import docstrings
import repository_links
from tfbridge.__main__ import COMMANDS
from tfbridge.bridge.options import flags, jit_options
from tfbridge.compiler import ComputationBuilder
from tfbridge.compiler.ops import OPS, ROWS, docs_table
from tfbridge.runtime import statistics

ROOT = Path(__file__).resolve().parents[2]
MODULES = {
    "tfbridge": "reference/tfbridge.md",
    "tfbridge.aot": "reference/aot.md",
    "tfbridge.compiler": "reference/compiler.md",
}
"""Modules whose public names have a page."""
_BUILDER_PAGE = "reference/builder.md"
_PYTHON = re.compile(r'^```python(?: title="(?P<title>[^"]+)")?\n(?P<code>.*?)^```', re.MULTILINE | re.DOTALL)


def public_names(module: str) -> list[str]:
    """The names that a module offers, but for modules."""
    loaded = importlib.import_module(module)
    return [name for name in loaded.__all__ if not inspect.ismodule(getattr(loaded, name))]


@functools.cache
def _targets() -> dict[str, str]:
    """The page and the anchor of every public name, as text may spell it."""
    targets = {}
    for module, page in MODULES.items():
        for name in public_names(module):
            anchor = f"{page}#{module}.{name}"
            targets[f"{module}.{name}"] = anchor
            targets[f"{module.removeprefix('tfbridge.')}.{name}"] = anchor
            if name[0].isupper():
                targets[name] = anchor
    targets["ComputationBuilder"] = f"{_BUILDER_PAGE}#tfbridge.compiler.ComputationBuilder"
    return targets


def _links(page: Path) -> dict[str, str]:
    return {name: os.path.relpath(target, page.parent) for name, target in _targets().items()}


def api(page: Path, module: str, *names: str) -> str:
    """Sections of the names of a module: of all those that the page does not name elsewhere, where none are given."""
    sections = [_section(page, module, name, "##") for name in names or public_names(module)]
    return "\n\n".join(sections)


def _section(page: Path, module: str, name: str, level: str) -> str:
    value, full_name = getattr(importlib.import_module(module), name), f"{module}.{name}"
    head = f"{level} {name} {{#{full_name}}}"
    if name == "ComputationBuilder":
        return f"{head}\n\nHas a [page of its own]({_links(page)[name]})."
    if not (inspect.isclass(value) or inspect.isfunction(value) or inspect.ismethod(value)):
        return f"{head}\n\n```python\n{full_name} = {value!r}\n```"
    parts = [head, _source(page, value), _code(docstrings.signature(full_name, value)), _text(page, value)]
    if inspect.isclass(value):
        parts += [_member(page, full_name, *member, f"{level}#") for member in _members(value)]
    return "\n\n".join(part for part in parts if part)


def _text(page: Path, value: Any) -> str:
    fields = docstrings.field_names(value) | set(jit_options.NAMES)
    return docstrings.markdown(inspect.getdoc(value) or "", _links(page), fields)


def _code(text: str) -> str:
    return f"```python\n{text}\n```" if text else ""


def _source(page: Path, value: Any) -> str:
    """A line that says where the code is."""
    try:
        file = Path(inspect.getsourcefile(inspect.unwrap(value)) or "").resolve()
        line = inspect.getsourcelines(inspect.unwrap(value))[1]
    except (TypeError, OSError):
        return ""
    return f"<small class=source>{file.relative_to(ROOT).as_posix()}, line {line}</small>"


def _members(value: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties of a class that have a docstring; those of its bases of tfbridge come last."""
    seen = set()
    for base in value.__mro__:
        if not base.__module__.startswith("tfbridge."):
            continue
        for name, attribute in vars(base).items():
            if name.startswith("_") or name[0].isupper() or name in seen:
                continue
            seen.add(name)
            function = getattr(attribute, "__func__", getattr(attribute, "fget", attribute))
            if isinstance(function, functools.cached_property):
                function = function.func
            if callable(function) and inspect.getdoc(function):
                yield name, attribute


def _member(page: Path, owner: str, name: str, attribute: Any, level: str) -> str:
    is_value = isinstance(attribute, property | functools.cached_property)
    function = getattr(attribute, "__func__", attribute)
    head = f"{level} {name} {{#{owner}.{name}}}"
    code = "" if is_value else _code(docstrings.signature(name, function))
    described = attribute.fget if isinstance(attribute, property) else function
    text = attribute.__doc__ if is_value else inspect.getdoc(function)
    fields = docstrings.field_names(described)
    return "\n\n".join(
        part for part in (head, code, docstrings.markdown(text or "", _links(page), fields)) if part
    )


def builder(page: Path) -> str:
    """The methods of the builder by family, each with the specification of the op that it makes."""
    opcode_of = {method: opcode for opcode in OPS for method in reversed(docs_table.methods(opcode))}
    own, *bases = (c for c in ComputationBuilder.__mro__ if c is not object)
    parts = [
        "## ComputationBuilder {#tfbridge.compiler.ComputationBuilder}",
        _code(docstrings.signature("ComputationBuilder", ComputationBuilder)),
        _text(page, ComputationBuilder),
    ]
    for family in (own, *reversed(bases)):
        title = (inspect.getdoc(family) or family.__name__).partition("\n")[0].rstrip(".")
        parts.append(f"## {'Parameters, constants, build' if family is own else title}")
        for name, attribute in _members(family):
            if name in vars(family):
                parts.append(_member(page, "ComputationBuilder", name, attribute, "###"))
                parts += [_specification(page, opcode_of[name])] if name in opcode_of else []
    return "\n\n".join(parts)


def _specification(page: Path, opcode: str) -> str:
    types = f"element types: {docs_table.spelled(docs_table.types(opcode))}"
    if opcode in ROWS:
        return f"Op `{opcode}`; {types}."
    text = docstrings.markdown(
        inspect.getdoc(OPS[opcode]) or "", _links(page), docstrings.field_names(OPS[opcode])
    )
    body = "\n".join(f"    {line}" if line else "" for line in text.splitlines())
    return f'??? note "Op `{opcode}`; {types}"\n\n{body}'


def flag_table(page: Path) -> str:
    """The environment variables, and the options of the same meaning."""
    rows = ["| flag, option | values | what it does |", "|---|---|---|"]
    for flag in flags.FLAGS:
        option = flag.name.lower()
        name = f"`{flag.variable}`" + (f"<br>`{option}`" if option in jit_options.NAMES else "")
        default = flag.shown(flag.default)
        values = flag.allowed + (f"<br>default: `{default}`" if default else "")
        rows.append(f"| {name} | {values} | {flag.description} |")
    return "\n".join(rows)


def commands(page: Path) -> str:
    """What each command prints for `--help`."""
    parts = []
    modules = {"": "__main__", **{name: module for name, (module, _) in COMMANDS.items()}}
    modules["bench"] = "models.bench.__main__"
    for name, module in modules.items():
        called = "python -m tfbridge.models.bench" if name == "bench" else f"tfbridge {name}".strip()
        main = importlib.import_module(f"tfbridge.{module}").main
        parts.append(f"## {called}\n\n```text\n{_help(main)}\n```")
    return "\n\n".join(parts)


def _help(main: Callable[[list[str]], int]) -> str:
    printed = io.StringIO()
    before, os.environ["COLUMNS"] = os.environ.get("COLUMNS"), "96"
    try:
        with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
            main(["--help"])
    finally:
        os.environ.pop("COLUMNS") if before is None else os.environ.update(COLUMNS=before)
    return printed.getvalue().strip()


def counters(page: Path) -> str:
    """What `tfbridge.stats()` counts."""
    rows = {**statistics.COUNTERS, **statistics.TOTALS}
    return "\n".join(
        ["| key | what it is |", "|---|---|", *(f"| `{k}` | {text} |" for k, text in rows.items())]
    )


def header(page: Path, kind: str) -> str:
    """The header (`h`) or the description (`json`) of an exported function."""
    text = exported()[kind]
    return f"```{'c' if kind == 'h' else 'json'}\n{text.strip()}\n```"


@functools.cache
def exported() -> dict[str, str]:
    """The text files that the code of the page about headers writes, by what follows the dot in their names."""
    with _example("reference/header.md"):
        described = json.loads(Path("classify.json").read_text(encoding="utf-8"))
        return {
            "h": Path("classify.h").read_text(encoding="utf-8"),
            "json": json.dumps(described, indent=2),
        }


def example_report() -> str:
    """The report of the function on the page that explains reports."""
    with _example("howto/report.md") as names:
        images = names["tf"].random.stateless_normal((8, 32, 32, 3), (1, 2))
        return names["tfbridge"].explain(names["classify"], images).html(measure=True)


@contextlib.contextmanager
def _example(page: str) -> Iterator[dict[str, Any]]:
    """Runs the first block of Python on a page, in a folder of its own; its names."""
    block = _PYTHON.search((ROOT / "docs" / page).read_text(encoding="utf-8"))
    assert block is not None
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            path = Path(block["title"] or "example.py").resolve()  # tracing reads the source
            path.write_text(block["code"])
            names: dict[str, Any] = {}
            exec(compile(block["code"], str(path), "exec"), names)
            yield names
        finally:
            os.chdir(before)


def file(page: Path, name: str) -> str:
    """A file beside docs/, with links that hold on the page."""
    path = ROOT / name
    return repository_links.rewrite(path.read_text(encoding="utf-8"), path, page)


def section(page: Path, name: str, *title: str) -> str:
    """The text under a heading `## TITLE` of a file beside docs/."""
    heading = f"## {' '.join(title)}\n"
    return file(page, name).partition(heading)[2].partition("\n## ")[0].strip()


def notebook(page: Path, name: str) -> str:
    """The cells of a notebook with what they printed."""
    cells = json.loads((ROOT / "docs" / page.parent / name).read_text(encoding="utf-8"))["cells"]
    parts = []
    for cell in cells:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(repository_links.rewrite(text, ROOT / "docs" / page.parent / name, page))
            continue
        parts.append(f"```python\n{text}\n```")
        parts += [_output(output) for output in cell["outputs"]]
    parts.append(f"[Download the notebook]({name}){{.md-button}}")
    return "\n\n".join(parts)


def _output(output: dict[str, Any]) -> str:
    if output["output_type"] == "stream":
        return f"```text\n{''.join(output['text']).rstrip()}\n```"
    data = output.get("data", {})
    if "text/html" in data:
        page = base64.b64encode("".join(data["text/html"]).encode()).decode()
        return f'<iframe class=output src="data:text/html;base64,{page}"></iframe>'
    return f"```text\n{html.unescape(''.join(data.get('text/plain', ''))).rstrip()}\n```"


INSERTS: dict[str, Callable[..., str]] = {
    "api": api,
    "builder": builder,
    "flags": flag_table,
    "commands": commands,
    "counters": counters,
    "header": header,
    "file": file,
    "section": section,
    "notebook": notebook,
}
"""What a line `<!-- insert: NAME ARGUMENTS -->` of a page stands for."""
FILES: dict[str, tuple[str, Callable[[], str]]] = {
    "howto/report.md": ("howto/example_report.html", example_report)
}
"""Files that are made for a page."""
