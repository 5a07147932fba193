"""Every opcode of XLA is read, or refused with the reason, and has a text in the corpus."""

from __future__ import annotations

import importlib.util
import pathlib
import re

import corpus
import pytest
from tfbridge.compiler import UnsupportedError, parse_hlo
from tfbridge.compiler.hlo_text.async_ops import ended, started
from tfbridge.compiler.hlo_text.expansions import EXPANSIONS, REFUSED
from tfbridge.compiler.ops import OPS

HERE = pathlib.Path(__file__).parent
DOCUMENT = HERE.parents[2] / "docs" / "operations.md"
_NAMES = """
    abs acos acosh add add-dependency after-all all-gather all-gather-done all-gather-start all-reduce
    all-reduce-done all-reduce-start all-to-all and asin asinh async-done async-start async-update atan
    atan2 atanh batch-norm-grad batch-norm-inference batch-norm-training bitcast bitcast-convert
    broadcast call cbrt ceil cholesky clamp collective-broadcast collective-permute
    collective-permute-done collective-permute-start collective-reduce compare complex concatenate
    conditional constant convert convolution copy copy-done copy-start cosh cosine count-leading-zeros
    custom-call divide domain dot dynamic-reshape dynamic-slice dynamic-update-slice erf exponential
    exponential-minus-one fft floor fusion gather get-dimension-size get-tuple-element imag infeed iota
    is-finite log log-plus-one logistic map maximum minimum mulhi multiply negate not opt-barrier or
    outfeed pad parameter partition-id popcnt power ragged-all-to-all ragged-dot real recv recv-done
    reduce reduce-precision reduce-scatter reduce-window remainder replica-id reshape reverse rng
    rng-bit-generator rng-get-and-update-state round-nearest-afz round-nearest-even rsqrt scaled-dot
    scan scatter select select-and-scatter send send-done set-dimension-size shift-left
    shift-right-arithmetic shift-right-logical shuffle sign sine sinh slice sort sqrt stochastic-convert
    subtract tan tanh topk transpose triangular-solve tuple while xor
"""
OPCODES = frozenset(_NAMES.split())


def is_read(opcode: str) -> bool:
    """Whether an instruction with this opcode can be read."""
    return (
        opcode in OPS
        or opcode in EXPANSIONS
        or started(opcode, None) is not None
        or ended(opcode) is not None
    )


def test_every_opcode_is_read_or_refused() -> None:
    assert {o for o in OPCODES if not is_read(o)} == set(REFUSED)
    assert not {o for o in REFUSED if is_read(o)}


def test_every_opcode_has_a_text() -> None:
    texts = "\n".join(case.text for case in corpus.read(HERE / "corpus"))
    found = set(re.findall(r"(?<=[\s(])([a-z][a-z0-9\-]*)\(", texts))
    assert not OPCODES - found - set(REFUSED) - {"infeed", "outfeed"}  # queues of a device: test_client.py


def test_every_opcode_that_is_not_an_op_is_documented() -> None:
    document = DOCUMENT.read_text()
    assert [o for o in (*EXPANSIONS, *REFUSED) if f"`{o}`" not in document] == []


@pytest.mark.parametrize("opcode", sorted(REFUSED))
def test_refused_opcodes_say_why(opcode: str) -> None:
    text = f"HloModule m\nENTRY e {{\n  x = u32[4] parameter(0)\n  ROOT y = u32[4] {opcode}(x)\n}}\n"
    with pytest.raises(
        UnsupportedError, match=rf"line 4, column 19: opcode {opcode} is not compiled: .{{20}}"
    ):
        parse_hlo(text)


def test_opcodes_that_nobody_knows_are_refused() -> None:
    with pytest.raises(
        UnsupportedError, match="line 2, column 17: opcode swizzle is not compiled: no version"
    ):
        parse_hlo("e {\n  ROOT y = f32[4] swizzle()\n}\n".replace("f32[4] ", "s8[] "))


def test_the_table_is_that_of_the_installed_xla() -> None:
    spec = importlib.util.find_spec("tensorflow")
    assert spec is not None and spec.origin is not None
    header = pathlib.Path(spec.origin).parent / "include" / "xla" / "hlo" / "ir" / "hlo_opcode.h"
    if not header.exists():
        pytest.skip("this TensorFlow has no header of opcodes")
    installed = set(re.findall(r'V\(k\w+,\s*"([a-z0-9-]+)"', header.read_text()))
    assert len(installed) > 120 and not installed - OPCODES
