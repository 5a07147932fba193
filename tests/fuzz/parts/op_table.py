"""Rows of the table of ops chained at random: results of exact ops feed parameters of the same shape of other rows."""

from __future__ import annotations

import dataclasses
import functools
import random
from collections.abc import Iterator

from cases import CASES, Case, build
from tfbridge.compiler import parse_hlo
from tfbridge.compiler.ir.module import Computation, Instruction, Module, make
from tfbridge.compiler.ir.shape import Shape
from tfbridge.compiler.ops import BitcastConvert, Compare, CustomCall, Parameter, Rng, Tuple
from tfbridge.compiler.ops.collectives import Collective
from tfbridge.compiler.ops.transfers import Infeed, Outfeed, Recv, RecvDone, Send, SendDone, Trace

from ..compare import compiled_and_compared
from ..part import Part

_LEFT_OUT = (Collective, CustomCall, Infeed, Outfeed, Recv, RecvDone, Rng, Send, SendDone, Trace)
_MOST_ELEMENTS = 3000


@functools.cache
def _rows() -> list[Case]:
    """Rows that run on one device, by themselves, in little time."""
    return [
        c
        for c in CASES
        if not isinstance(c.op, _LEFT_OUT)
        and sum(leaf.elements for i in c.operands for leaf in i.shape.leaves() if leaf.is_array)
        < _MOST_ELEMENTS
    ]


def _reads_signs_of_nans(case: Case) -> bool:
    """What arithmetic makes of them is not specified."""
    return (
        isinstance(case.op, BitcastConvert) or isinstance(case.op, Compare) and case.op.type == "TOTALORDER"
    )


def _arrays(value: Instruction) -> Iterator[Instruction]:
    """Results that are arrays by themselves."""
    if value.shape.is_array and not value.shape.is_dynamic:
        yield value


class OpTable(Part):
    """A case is HLO text."""

    suffix = ".hlo"
    quick = 25
    is_valid = True

    def make(self, seed: int) -> str:
        """Two to eight rows in one program; every result that nothing reads is one of the program's."""
        draw = random.Random(seed)
        parameters: list[Instruction] = []
        exact: dict[Shape, list[Instruction]] = {}
        results: list[Instruction] = []
        for _ in range(draw.randint(2, 8)):
            wanted = [c for c in _rows() if any(i.shape in exact for i in c.operands)]
            case = draw.choice(wanted if wanted and draw.random() < 0.7 else _rows())
            done: dict[Instruction, Instruction] = {}
            entry = build(case).entry
            for old in entry.instructions:
                if not isinstance(old.op, Parameter):
                    done[old] = dataclasses.replace(
                        old.with_operands([done[o] for o in old.operands]), name=""
                    )
                    continue
                known = exact.get(old.shape, [])
                if _reads_signs_of_nans(case):
                    known = [value for value in known if isinstance(value.op, Parameter)]
                if known and draw.random() < 0.8:
                    done[old] = draw.choice(known)
                    continue
                done[old] = make(Parameter(len(parameters), old.shape), name=f"p{len(parameters)}")
                parameters.append(done[old])
                exact.setdefault(old.shape, []).append(done[old])
            results.append(done[entry.root])
            if not case.ulps:
                for value in _arrays(done[entry.root]):
                    exact.setdefault(value.shape, []).append(value)
        return str(Module("rows", Computation("main", make(Tuple(), *results), parameters)))

    def check(self, text: str) -> str:
        """Accepted, and as the evaluator says: two ways to round may be some units of the last place apart."""
        return compiled_and_compared(parse_hlo(text), ulps=64)


PART = OpTable()
