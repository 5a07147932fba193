"""Mutations of a text that know words, numbers and lines alone."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

_TOKEN = re.compile(r"\s+|[\w.\-]+|.", re.DOTALL)
_NUMBER = re.compile(r"(?<![\w.])-?\d+")
NUMBERS = (
    "0",
    "1",
    "2",
    "3",
    "4",
    "7",
    "8",
    "16",
    "-1",
    "-2",
    "64",
    "1000",
    "65536",
    "2147483647",
    "4294967296",
    "-9223372036854775808",
    "9223372036854775807",
    "99999999999999999999",
    "9" * 5000,
    "1.5",
    "nan",
    "²",
)
_PIECES = (
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    ",",
    "=",
    "->",
    "%",
    '"',
    "/*",
    "*/",
    "//",
    "ROOT ",
    "ENTRY ",
    "\n",
    "\0",
    "é",
    "\U0001f600",
    ":",
    "<=",
    "?",
    "x",
    "_",
    "...",
    "nan",
    "inf",
    "{{0,1},{2,3}}",
    "(" * 100,
    "{" * 100,
    "\ud800",
)


def replaced(text: str, pattern: re.Pattern[str], draw: random.Random, new: Callable[[str], str]) -> str:
    """One match of a pattern replaced."""
    matches = list(pattern.finditer(text))
    if not matches:
        return text
    one = draw.choice(matches)
    return text[: one.start()] + new(one[0]) + text[one.end() :]


def one_token(text: str, draw: random.Random) -> str:
    """A word or a sign left out, doubled, moved, or put in."""
    tokens = _TOKEN.findall(text)
    at = draw.randrange(len(tokens)) if tokens else 0
    kind = draw.randrange(4)
    if kind == 0:
        del tokens[at : at + draw.choice((1, 1, 1, 2, 5))]
    elif kind == 1:
        tokens.insert(at, draw.choice(tokens))
    elif kind == 2:
        tokens.insert(at, draw.choice(_PIECES))
    else:
        other = draw.randrange(len(tokens))
        tokens[at], tokens[other] = tokens[other], tokens[at]
    return "".join(tokens)


def number(text: str, draw: random.Random) -> str:
    """A number replaced by one that is odd, or near to it."""
    return replaced(
        text,
        _NUMBER,
        draw,
        lambda old: (
            draw.choice(NUMBERS) if draw.random() < 0.6 else str(int(old[:20]) + draw.choice((-1, 1, 2)))
        ),
    )


def lines(text: str, draw: random.Random, texts: Sequence[str]) -> str:
    """A line left out, doubled, moved, or taken from another text."""
    parts = text.splitlines(keepends=True)
    at, other = draw.randrange(len(parts)), draw.randrange(len(parts))
    kind = draw.randrange(4)
    if kind == 0:
        del parts[at]
    elif kind == 1:
        parts.insert(other, parts[at])
    elif kind == 2:
        parts[at], parts[other] = parts[other], parts[at]
    else:
        parts.insert(at, draw.choice(draw.choice(texts).splitlines(keepends=True)))
    return "".join(parts)


def mutated(text: str, draw: random.Random, mutations: Sequence[Callable[[str, random.Random], str]]) -> str:
    """The text with one to four mutations."""
    for _ in range(draw.choice((1, 1, 1, 2, 2, 3, 4))):
        if text:
            text = draw.choice(mutations)(text, draw)
    return text
