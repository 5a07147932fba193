"""HLO text with mutations: a clear error, or a program whose native code and evaluator agree."""

from __future__ import annotations

import functools
import random
import re

import corpus
import numpy as np
from cases import CASES, build
from random_graphs import random_module
from tfbridge.compiler import parse_hlo
from tfbridge.compiler.errors import CompilerError, ParseError

from ..compare import compiled_and_compared, rejected
from ..part import Difference, Part
from ..text_mutations import NUMBERS, lines, mutated, number, one_token, replaced
from ..worker import TESTS

_SHAPE = re.compile(r"\b[a-z]\w*\[[^\]\n]*\](?:\{[\d,]*\})?")
_TEXT = re.compile(r'"""(HloModule.*?)"""', re.DOTALL)
_ATTRIBUTE = re.compile(r", ([\w\-]+)=(\{[^{}]*\}|\"[^\"]*\"|[^\s,{}]+)")
_NAME = re.compile(r"\(([\w.\-]+)[,)]|, ([\w.\-]+)[,)]")
_TYPES = (
    "f32",
    "f64",
    "f16",
    "bf16",
    "s8",
    "s32",
    "s64",
    "u8",
    "u64",
    "pred",
    "c64",
    "c128",
    "s4",
    "u4",
    "f8e4m3fn",
    "token",
    "tuple",
    "f99",
)


@functools.cache
def _seeds() -> list[str]:
    """Texts of the tests and of their corpus, and a module for each row of the table of ops."""
    texts = [str(build(case)) for case in CASES]
    texts += [case.text for case in corpus.read(TESTS / "compiler" / "hlo_text" / "corpus")]
    for file in sorted((TESTS / "compiler").rglob("test_*.py")):
        texts += _TEXT.findall(file.read_text())
    return [text for text in texts if len(text) < 20_000]


def _shape(text: str, draw: random.Random) -> str:
    """A declared shape that is another one of the text, or has another type, one more axis, or a dynamic size."""

    def new(old: str) -> str:
        kind = draw.randrange(5)
        if kind == 0:
            return draw.choice(_SHAPE.findall(text))
        if kind == 1:
            return re.sub(r"^\w+", draw.choice(_TYPES), old)
        if kind == 2:
            return old.replace("[", draw.choice(("[1,", "[0,", "[2,", "[<=4,", "[?,")), 1)
        if kind == 3:
            return f"({old}, {draw.choice(_SHAPE.findall(text))})"
        return re.sub(r"\d+(?=[,\]])", lambda m: draw.choice(NUMBERS[:18]), old, count=1)

    return replaced(text, _SHAPE, draw, new)


def _attribute(text: str, draw: random.Random) -> str:
    """An attribute left out, given twice, or with the value of another."""
    kind = draw.randrange(3)
    if kind == 0:
        return replaced(text, _ATTRIBUTE, draw, lambda _: "")
    if kind == 1:
        return replaced(text, _ATTRIBUTE, draw, lambda old: old + old)
    values = _ATTRIBUTE.findall(text) + [
        m for seed in draw.sample(_seeds(), 5) for m in _ATTRIBUTE.findall(seed)
    ]
    return replaced(
        text,
        _ATTRIBUTE,
        draw,
        lambda old: (
            old.partition("=")[0] + "=" + draw.choice(values)[1]
            if draw.random() < 0.7
            else ", " + "=".join(draw.choice(values))
        ),
    )


def _operand(text: str, draw: random.Random) -> str:
    """An operand replaced by another value, left out, or doubled."""
    names = re.findall(r"([\w.\-]+) =", text) or ["x"]
    return replaced(
        text,
        _NAME,
        draw,
        lambda old: draw.choice(
            (
                re.sub(r"[\w.\-]+", draw.choice(names), old),
                re.sub(r"[\w.\-]+,?", "", old, count=1),
                re.sub(r"([\w.\-]+)", r"\1, \1", old),
            )
        ),
    )


def _opcode(text: str, draw: random.Random) -> str:
    return replaced(
        text,
        re.compile(r"[\w\-]+\((?=[\w)])"),
        draw,
        lambda _: (re.findall(r"[\w\-]+\((?=[\w)])", draw.choice(_seeds())) or ["add("])[0],
    )


def _everywhere(text: str, draw: random.Random) -> str:
    """One size, or one element type, replaced wherever it stands in a shape: such a program is often valid."""
    shapes = _SHAPE.findall(text)
    if not shapes:
        return text
    if draw.random() < 0.4:
        old, new = re.match(r"\w+", draw.choice(shapes))[0], draw.choice(_TYPES)  # type: ignore[index]
        return re.sub(rf"\b{old}\[", f"{new}[", text)
    sizes = re.findall(r"\d+(?=[,\]])", "".join(s[s.index("[") :] for s in shapes))
    if not sizes:
        return text
    old, new = (
        draw.choice(sizes),
        draw.choice(("0", "1", "2", "3", "5", "9", "17", "33", "100", "1025", "1000000007")),
    )
    return _SHAPE.sub(lambda m: re.sub(rf"(?<=[\[,]){old}(?=[,\]])", new, m[0]), text)


def _called(text: str, draw: random.Random) -> str:
    """The entry as a computation that a new one calls, twice, in a tuple."""
    found = re.search(r"ENTRY ([\w.\-]+) \{\n(.*?)\n\}", text, re.DOTALL)
    if not found:
        return text
    parameters = re.findall(r"([\w.\-]+) = ([^=]*?) parameter\((\d+)\)", found[2])
    root = re.search(r"ROOT [\w.\-]+ = (.*?) [\w\-]+\(", found[2])
    if not root:
        return text
    names = ", ".join(name for name, *_ in sorted(parameters, key=lambda p: int(p[2][:9])))
    body = [f"{name} = {shape} parameter({number})" for name, shape, number in parameters]
    body += [f"call.{k} = {root[1]} call({names}), to_apply={found[1]}" for k in range(2)]
    body.append(f"ROOT both = ({root[1]}, {root[1]}) tuple(call.0, call.1)")
    return text.replace("ENTRY ", "") + "\nENTRY all {\n" + "\n".join(body) + "\n}\n"


_MUTATIONS = (
    _everywhere,
    _everywhere,
    _called,
    one_token,
    number,
    number,
    _shape,
    _shape,
    _attribute,
    _attribute,
    _operand,
    lambda text, draw: lines(text, draw, _seeds()),
    _opcode,
)


class HloText(Part):
    """A case is HLO text."""

    suffix = ".hlo"
    memory_mib = 3072
    quick = 120

    def make(self, seed: int) -> str:
        """A text of the tests, or of a random program, with one to four mutations."""
        draw = random.Random(seed)
        if draw.random() < 0.15:
            rng = np.random.default_rng(seed)
            text = str(random_module(lambda n: int(rng.integers(n)), 200))
        else:
            text = draw.choice(_seeds())
        return mutated(text, draw, _MUTATIONS)

    def check(self, text: str) -> str:
        """Text that is refused names line and column; what is accepted prints, compiles, and runs as the evaluator."""
        try:
            module = parse_hlo(text)
        except ParseError as error:
            return rejected(error)
        except CompilerError as error:
            if "line " not in str(error):
                raise Difference(f"an error without a place: {error}") from error
            return rejected(error)
        printed = str(module)
        again = str(parse_hlo(printed))
        if again != printed:
            raise Difference("what is printed is read as something else")
        return compiled_and_compared(module, ulps=2**12)


PART = HloText()
