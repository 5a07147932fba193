"""StableHLO text with mutations: a clear error, or a program whose native code and evaluator agree."""

from __future__ import annotations

import functools
import random
import re

import corpus
from tfbridge.compiler import parse_hlo, parse_stablehlo
from tfbridge.compiler.errors import CompilerError

from ..compare import compiled_and_compared, rejected
from ..part import Difference, Part
from ..text_mutations import NUMBERS, lines, mutated, number, one_token, replaced
from ..worker import TESTS

_TYPE = re.compile(r"tensor<[^<>]*(?:<\w+>)?>")
_TYPES = (
    "tensor<f32>",
    "tensor<2xi1>",
    "tensor<2x3xi4>",
    "tensor<0xbf16>",
    "tensor<3xcomplex<f32>>",
    "tensor<?xf32>",
    "tensor<?xf32, #stablehlo.bounds<5>>",
    "tensor<2xf8E4M3FN>",
    "tensor<99999999999x9999999999xf64>",
    "tuple<>",
    "tuple<tensor<2xf32>, !stablehlo.token>",
    "!stablehlo.token",
    "!quant.uniform<i8:f32, 0.5>",
)
_ATTRIBUTE = re.compile(r"[\w.]+ = (?:array<[^<>]*>|dense<[^<>]*> : tensor<[^<>]*>|\[[^\[\]]*\]|\w+)")
_OPERATION = re.compile(r"\b(?:stablehlo|chlo)\.\w+")
_VALUE = re.compile(r"%[\w#]+")


@functools.cache
def _seeds() -> list[str]:
    return [case.text for case in corpus.read(TESTS / "compiler" / "stablehlo_text" / "corpus")]


def _of_other(text: str, draw: random.Random, pattern: re.Pattern[str]) -> str:
    """What a pattern matches, as somewhere in this text or in another one."""
    matches = pattern.findall(text if draw.random() < 0.5 else draw.choice(_seeds())) or [""]
    return replaced(text, pattern, draw, lambda _: draw.choice(matches))


def _type(text: str, draw: random.Random) -> str:
    """A type replaced by another, or with another size or element type."""
    return replaced(
        text,
        _TYPE,
        draw,
        lambda old: (
            draw.choice(_TYPES)
            if draw.random() < 0.4
            else re.sub(r"\d+(?=x)", draw.choice(NUMBERS[:9]), old, count=1)
        ),
    )


def _everywhere(text: str, draw: random.Random) -> str:
    """One size, or one element type, replaced wherever it stands in a type: such a program is often valid."""
    types = _TYPE.findall(text) or ["tensor<2xf32>"]
    pattern = r"\d+(?=x)" if draw.random() < 0.6 else r"(?<=[x<])(?:f|i|ui|bf)\d+(?=>)"
    old = draw.choice(re.findall(pattern, draw.choice(types)) or ["2"])
    new = draw.choice(
        ("0", "1", "5", "17") if old.isdigit() else ("f32", "f64", "i32", "i1", "ui8", "bf16", "i4")
    )
    return _TYPE.sub(lambda m: re.sub(rf"(?<=[x<]){old}(?=[x>])", new, m[0]), text)


_MUTATIONS = (
    one_token,
    number,
    _type,
    _type,
    _everywhere,
    _everywhere,
    lambda text, draw: lines(text, draw, _seeds()),
    lambda text, draw: _of_other(text, draw, _ATTRIBUTE),
    lambda text, draw: _of_other(text, draw, _OPERATION),
    lambda text, draw: _of_other(text, draw, _VALUE),
)


class StablehloText(Part):
    """A case is StableHLO text."""

    suffix = ".mlir"
    memory_mib = 3072
    quick = 60

    def make(self, seed: int) -> str:
        """A text of the corpus with one to four mutations."""
        draw = random.Random(seed)
        text = draw.choice(_seeds())
        return mutated(text, draw, _MUTATIONS)

    def check(self, text: str) -> str:
        """Text that is refused names line and column; what is accepted is the same as HLO text, and runs as the
        evaluator."""
        try:
            module = parse_stablehlo(text)
        except CompilerError as error:
            if not error.line:
                raise Difference(f"an error without a place: {error}") from error
            return rejected(error)
        if str(parse_hlo(str(module))) != str(module):
            raise Difference("what is printed as HLO text is read as something else")
        return compiled_and_compared(module, ulps=2**12)


PART = StablehloText()
