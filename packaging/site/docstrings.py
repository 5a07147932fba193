"""Docstrings of the public names as Markdown: signature, text, and what each parameter, error and unit is."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_WIDTH = 88
_LABELS = ("Shapes", "Units", "Raises", "Source")
_LABEL = re.compile(rf"^(?P<label>(?:{'|'.join(_LABELS)})(?: \([^)]*\))?): *(?P<text>.*)$")
_CONSTRAINT = re.compile(r"^(?P<label>\w+_c\d+): +(?P<text>.*)$")
_INNER_LABEL = re.compile(rf"(?P<end>\.) (?P<label>(?:{'|'.join(_LABELS)})(?: \([^)]*\))?: )")
_FIELD = re.compile(r"^(?P<names>\w+(?:, \w+)*): +(?P<text>.*)$")
_ERROR = re.compile(r"(?<![\w`])((?:[\w.]*[A-Z]\w+)(?:, [\w.]*[A-Z]\w+)*)  ")
_CODE = re.compile(r"`(?P<name>[\w.]+)(?P<call>\(\))?`")


def signature(name: str, function: Callable[..., Any]) -> str:
    """How a function is called, on several lines where one would be long; empty where it does not tell."""
    try:
        call = inspect.signature(function)
    except (TypeError, ValueError):
        return ""
    parameters = [_parameter(p) for p in call.parameters.values() if p.name not in ("self", "cls")]
    kinds = [p.kind for p in call.parameters.values() if p.name not in ("self", "cls")]
    first_keyword = next((k for k, kind in enumerate(kinds) if kind is inspect.Parameter.KEYWORD_ONLY), None)
    if first_keyword is not None and inspect.Parameter.VAR_POSITIONAL not in kinds:
        parameters.insert(first_keyword, "*")
    result = call.return_annotation
    end = "" if result is inspect.Signature.empty else f" -> {_annotation(result)}"
    line = f"{name}({', '.join(parameters)}){end}"
    if len(line) <= _WIDTH:
        return line
    return f"{name}(\n" + "".join(f"    {parameter},\n" for parameter in parameters) + f"){end}"


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    text = stars.get(parameter.kind, "") + parameter.name
    has_type = parameter.annotation is not inspect.Parameter.empty
    if has_type:
        text += f": {_annotation(parameter.annotation)}"
    if parameter.default is not inspect.Parameter.empty:
        value = repr(parameter.default)
        value = f"{type(parameter.default).__name__}()" if len(value) > 60 else value
        text += f" = {value}" if has_type else f"={value}"
    return text


def _annotation(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))


def markdown(text: str, links: Mapping[str, str], fields: frozenset[str] = frozenset()) -> str:
    """A docstring as Markdown. links: targets by the names that the text has in backticks. fields: names of which a
    line `name: what it is` is an item of a list."""
    lines = _INNER_LABEL.sub(r"\g<end>\n\g<label>", inspect.cleandoc(text))
    paragraphs = [_paragraph(block, fields) for block in _blocks(lines)]
    return _with_links("\n\n".join(paragraphs), links)


def _blocks(text: str) -> Iterator[list[str]]:
    """The paragraphs, each a list of lines; a label or a constraint and what belongs to it are a paragraph."""
    block: list[str] = []
    for line in text.splitlines():
        if not line.strip() or _LABEL.match(line) or _CONSTRAINT.match(line):
            if block:
                yield block
            block = []
        if line.strip():
            block.append(line)
    if block:
        yield block


def _paragraph(lines: list[str], fields: frozenset[str]) -> str:
    if lines[0].startswith(">>> "):
        return "\n".join(["```pycon", *lines, "```"])
    if label := _LABEL.match(lines[0]):
        text = " ".join([label["text"], *(line.strip() for line in lines[1:])])
        items = _errors(text) if label["label"].startswith("Raises") else [text]
        if len(items) == 1:
            return f"**{label['label']}:** {items[0]}"
        return f"**{label['label']}:**\n\n" + "\n".join(f"* {item}" for item in items)
    if constraint := _CONSTRAINT.match(lines[0]):
        return " ".join([f"* **{constraint['label']}**: {constraint['text']}", *map(str.strip, lines[1:])])
    return "\n".join(_with_items(lines, fields))


def _errors(text: str) -> list[str]:
    """`Error  when; Other  when` as items."""
    parts = _ERROR.split(text)
    items = [
        f"`{'`, `'.join(name.split(', '))}`: {what.strip().rstrip(';.,')}."
        for name, what in zip(parts[1::2], parts[2::2])
    ]
    head = parts[0].strip()
    return [head, *items] if head else items


def _with_items(lines: list[str], fields: frozenset[str]) -> Iterator[str]:
    is_list = False
    for line in lines:
        field = _FIELD.match(line)
        if field and set(field["names"].split(", ")) <= fields:
            if not is_list:
                yield ""
            is_list = True
            yield f"* `{'`, `'.join(field['names'].split(', '))}`: {field['text']}"
        elif is_list and not line.startswith(" "):
            is_list = False
            yield ""
            yield line
        else:
            yield line


def _with_links(text: str, links: Mapping[str, str]) -> str:
    def link(match: re.Match[str]) -> str:
        target = links.get(match["name"])
        return f"[{match.group()}]({target})" if target else match.group()

    return "".join(
        part if part.startswith("```") else _CODE.sub(link, part)
        for part in re.split(r"(^```.*?^```$)", text, flags=re.MULTILINE | re.DOTALL)
    )


def field_names(value: Any) -> frozenset[str]:
    """The names that a docstring may explain: parameters, and fields of a dataclass."""
    names = {field.name for field in dataclasses.fields(value)} if dataclasses.is_dataclass(value) else set()
    with contextlib.suppress(TypeError, ValueError):
        names |= inspect.signature(value).parameters.keys()
    return frozenset(names)
