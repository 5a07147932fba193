"""What a computation reads when its values are evaluated at an index; and the loops that follow from it.

The walk is that of `Elements`, without writing code. From the addresses follows which axes can be walked as
one loop, where an axis has to be split for a reshape, and which loop variable runs along memory.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ....runtime.sizes import estimate, is_multiple, surely_less
from ...analysis.instruction_cost import cycles
from ...ir.module import Instruction, topological
from ...ops import (
    Compare,
    Concatenate,
    Constant,
    Convert,
    Copy,
    DynamicSlice,
    Gather,
    GetTupleElement,
    Map,
    Parameter,
)
from .affine import ZERO, Affine, AffineIndexer, Division, Symbol, linear_address, surely_ordered, true_range
from .indexing import Index, element_rule, is_bitcast, operand_index, reduced_dims

_MAX_SPLITS = 128
_MAX_AXIS_SPLITS = 16  # each asks for another walk
_Visit = tuple[Instruction, Index, int]  # an element that another is made of, and how often it is evaluated


class Load(NamedTuple):
    """A read of a parameter (or constant) at an address in elements."""

    source: Instruction
    address: Affine


class AccessAnalysis:
    """Walks values at indices and notes loads, conditions (affine < 0), indices used as numbers, reductions,
    boundaries of concatenations (affine < 0 before one), cycles.

    `cost` counts cycles per evaluation of each visited element, a reduction's times the elements it reduces;
    `reads` counts loads of each array in the same way.
    """

    def __init__(self) -> None:
        self.loads: list[Load] = []
        self.conditions: list[Affine] = []
        self.numbers: list[Affine] = []
        self.quotients: list[tuple[Affine, int]] = []
        self.reductions: list[tuple[Instruction, Index]] = []
        self.reduced: set[Symbol] = set()  # the variables that reductions run over
        self.boundaries: list[Affine] = []
        self.cost = 0
        self.reads: dict[Instruction, int] = {}
        self.repeat = 1
        self.division = Division(lambda a, d: self.quotients.append((a, d)))
        self._seen: set[tuple[Instruction, Index]] = set()
        self._data: dict[tuple[Instruction, Index], Affine] = {}

    def visit(self, instruction: Instruction, index: Index) -> None:
        """Walks the element of a value at an index, and all that it is made of; iterative: fusions may be deep."""
        repeat = self.repeat
        stack = [(instruction, index, repeat)]
        while stack:
            instruction, index, self.repeat = stack.pop()
            known = len(self._seen)
            self._seen.add((instruction, index))
            if len(self._seen) > known:
                stack.extend(reversed(self.operands(instruction, index)))
        self.repeat = repeat

    def operands(self, instruction: Instruction, index: Index) -> list[_Visit]:
        """Notes what one element takes; the elements that it is made of, and how often each is evaluated."""
        op, repeat = instruction.op, self.repeat
        if isinstance(op, Parameter | Constant):
            if not isinstance(op, Constant) or instruction.shape.elements > 1:
                self.loads.append(Load(instruction, linear_address(index, instruction.shape.strides)))
                self.reads[instruction] = self.reads.get(instruction, 0) + repeat
            return []
        if isinstance(op, GetTupleElement):
            return [(instruction.operands[0], index, repeat)]
        self.cost += cycles(instruction) * repeat
        if op.is_elementwise or is_bitcast(instruction) or isinstance(op, Copy | Map):
            return [(o, () if o.shape.is_scalar else index, repeat) for o in instruction.operands]
        if op.is_reduction:
            return self._reduction(instruction, index)
        shapes = [o.shape for o in instruction.operands]
        if isinstance(op, Concatenate):
            ends = itertools.accumulate(o.dims[op.dimension] for o in shapes)
            self.boundaries.extend(index[op.dimension] - Affine.number(end) for end in ends)
        rule = _Rule(self, instruction)
        element_rule(instruction)(rule, index, shapes, instruction.shape)
        return rule.operands

    def _reduction(self, instruction: Instruction, index: Index) -> list[_Visit]:
        self.reductions.append((instruction, index))
        dims = reduced_dims(instruction)
        inner = tuple(Affine.of(Symbol("r", 0, max(d - 1, 0))) for d in dims)
        self.reduced.update(symbol for x in inner for symbol, _ in x.terms)
        count = len(instruction.operands) // 2
        repeat = self.repeat * max(1, estimate(math.prod(dims)))
        at, bounds = operand_index(instruction, index, inner, self.division)
        self.conditions.extend(bounds)
        self.cost += repeat
        return [
            *((array, at, repeat) for array in instruction.operands[:count]),
            *((init, (), self.repeat) for init in instruction.operands[count:]),
        ]

    def counts(self) -> dict[Instruction, int]:
        """At how many different indices each instruction was visited."""
        counts = Counter(instruction for instruction, _ in self._seen)
        return {i: counts[i] for i in topological(counts) if i in counts}

    def is_even(self, symbol: Symbol, bits: int) -> bool:
        """Whether values along a loop variable are plain vectors of elements of that many bits, however many:
        loads are contiguous or the same for all, no condition depends on it, masks only select."""
        for instruction, _ in self._seen:
            t = next(iter(instruction.shape.leaves())).element_type
            if isinstance(instruction.op, Gather | DynamicSlice | Convert | Map) or t.is_complex:
                return False
            if instruction.shape.rank and t.bits != bits and not isinstance(instruction.op, Compare):
                return False
        return (
            not self.quotients_of(symbol)
            and all(x.address.coefficient(symbol) in (0, 1) for x in self.loads)
            and not any(symbol in c.symbols() for c in self.conditions)
        )

    @property
    def reads_indices(self) -> bool:
        """Whether an index is data."""
        return bool(self._data)

    def jumps(self, address: Affine, symbol: Symbol) -> bool:
        """Whether an address is anywhere for each value of a loop variable: it has indices that are data which are read
        along the variable."""
        data = {own: index for (_, index), a in self._data.items() for own, _ in a.terms}
        return any(symbol in x.symbols() for own, _ in address.terms for x in data.get(own, ()))

    def quotients_of(self, symbol: Symbol) -> bool:
        """Whether an index is a quotient of something with this variable in it."""
        return any(symbol in a.symbols() for a, _ in self.quotients)

    def affines(self) -> list[Affine]:
        """Everything computed from loop variables."""
        return [
            *(x.address for x in self.loads),
            *self.conditions,
            *self.numbers,
            *(a for a, _ in self.quotients),
        ]


def is_in_range(instruction: Instruction, index: Index) -> bool:
    """Whether an element exists for all values of the index's symbols: it may be evaluated whether it is wanted or
    not."""
    dims = next(iter(instruction.shape.leaves())).dims
    return all(
        surely_ordered(x, ZERO) is False and surely_ordered(x, Affine.number(dim)) is True
        for x, dim in zip(index, dims)
    )


class _Rule(AffineIndexer):
    """The Indexer of a walk: elements are nothing; `operands` are those that the op asks for."""

    def __init__(self, accesses: AccessAnalysis, instruction: Instruction) -> None:
        super().__init__(accesses.division)
        self.accesses, self.instruction = accesses, instruction
        self.operands: list[_Visit] = []

    def less(self, a: Affine, b: Affine) -> bool | None:
        is_less = surely_ordered(a, b)
        if is_less is None:
            self.accesses.conditions.append(a - b)
        return is_less

    def both(self, a: bool | None, b: bool | None) -> bool | None:
        return False if a is False or b is False else (True if a and b else None)

    def choose(self, condition: bool | None, then: None, otherwise: None) -> None:
        pass

    def operand(self, number: int, index: Sequence[Affine], condition: bool | None = None) -> None:
        if condition is not False:
            self.operands.append((self.instruction.operands[number], tuple(index), self.accesses.repeat))

    def index_operand(self, number: int, index: Sequence[Affine], limit: int) -> Affine:
        operand = self.instruction.operands[number]
        self.operands.append((operand, tuple(index), self.accesses.repeat))
        if surely_less(limit, 1):
            return Affine.number(0)
        key = (operand, tuple(index))
        if key not in self.accesses._data:
            self.accesses._data[key] = Affine.of(Symbol("data", 0, limit))
        return self.accesses._data[key]

    def number(self, index: Affine) -> None:
        self.accesses.numbers.append(index)

    def constant(self, value: object) -> None:
        pass


@dataclasses.dataclass(frozen=True)
class Loops:
    """The loops that walk some axes, outermost first. `delinearized[k]` says of axis k which loops make its index
    up, as (loop, divisor, trip_count, factor): sum over them of (variable // divisor % trip_count) * factor. With
    `joined_rows` these are loops of which the last one's runs, so many of them, have become one."""

    trip_counts: tuple[int, ...]
    delinearized: tuple[tuple[tuple[int, int, int, int], ...], ...]
    joined_rows: int = 1

    def index(self, variables: Sequence[Affine], division: Division) -> Index:
        """The axes' indices, from the loops' variables."""
        index, counts = [], self.trip_counts
        if self.joined_rows > 1:
            *outer, around, inner = variables
            row = counts[-1] // self.joined_rows
            around = around * self.joined_rows + division.divide(inner, row)
            variables = (*outer, around, division.remainder(inner, row))
            counts = (*counts[:-2], counts[-2] * self.joined_rows, row)
        for axis in self.delinearized:
            total = Affine.number(0)
            for loop, divisor, trip_count, factor in axis:
                coordinate = division.divide(variables[loop], divisor)
                if divisor * trip_count != counts[loop]:
                    coordinate = division.remainder(coordinate, trip_count)
                total = total + coordinate * factor
            index.append(total)
        return tuple(index)

    def number(self, variables: Sequence[Affine]) -> Affine:
        """How many steps of the innermost loop come before the variables' one."""
        total = Affine.number(0)
        for variable, count in zip(variables, self.trip_counts, strict=True):
            total = total * count + variable
        return total

    def with_rows_joined(self, rows: int) -> Loops:
        """The loops, of which the last one takes that many of its runs, which divide the one around it, as one."""
        *outer, around, row = self.trip_counts
        return Loops((*outer, around // rows, row * rows), self.delinearized, rows)

    def symbols(self) -> list[Symbol]:
        """New variables."""
        return [Symbol(f"i{k}", 0, trip_count - 1) for k, trip_count in enumerate(self.trip_counts)]


def choose_loops(
    dims: Sequence[int], walk: Callable[[AccessAnalysis, Index], None], slices: int = 0
) -> Loops:
    """The fewest loops over axes of these dims (none of them 0) in which what `walk` reads is affine where
    possible.

    Axes are split where a reshape below divides their index evenly, and neighbours are then joined where
    every address advances as if they were one, but for those of a slice, if there are `slices`, and those around it.
    """
    factors = [[d] for d in dims]
    for split in range(_MAX_AXIS_SPLITS + 1):
        symbols = [
            [Symbol(f"a{axis}.{k}", 0, e - 1) for k, e in enumerate(parts)]
            for axis, parts in enumerate(factors)
        ]
        index = []
        for parts, variables in zip(factors, symbols):
            total, step = Affine.number(0), 1
            for trip_count, symbol in zip(reversed(parts), reversed(variables)):
                total = total + Affine.of(symbol) * step
                step *= trip_count
            index.append(total)
        accesses = AccessAnalysis()
        walk(accesses, tuple(index))
        if split == _MAX_AXIS_SPLITS or not _split(factors, symbols, accesses):
            break
    flat = [
        (axis, k, symbol, factors[axis][k])
        for axis, parts in enumerate(symbols)
        for k, symbol in enumerate(parts)
        if factors[axis][k] != 1
    ]
    groups: list[list[tuple[int, int, Symbol, int]]] = []
    affines = accesses.affines()
    positions, begins = 1, False
    for entry in flat:
        if groups and not begins and _joined(groups[-1][-1], entry, affines):
            groups[-1].append(entry)
        else:
            groups.append([entry])
        before, positions = positions, positions * entry[-1]
        begins = slices > 0 and not _are_slices(before, slices) and _are_slices(positions, slices)
    delinearized: list[list[tuple[int, int, int, int]]] = [[] for _ in dims]
    for loop, group in enumerate(groups):
        divisor = 1
        for axis, k, _, trip_count in reversed(group):
            delinearized[axis].append((loop, divisor, trip_count, math.prod(factors[axis][k + 1 :])))
            divisor *= trip_count
    return Loops(tuple(math.prod(e for *_, e in g) for g in groups), tuple(map(tuple, delinearized)))


def _split(factors: list[list[int]], symbols: list[list[Symbol]], accesses: AccessAnalysis) -> bool:
    """Splits loops as the quotients of a walk ask for it; whether it did."""
    where = {symbol: (axis, k) for axis, parts in enumerate(symbols) for k, symbol in enumerate(parts)}
    for numerator, divisor in accesses.quotients:
        for symbol, c in numerator.terms:
            if symbol not in where or c <= 0 or divisor % c:
                continue
            axis, k = where[symbol]
            trip_count, inner = factors[axis][k], divisor // c
            if 1 < estimate(inner) < estimate(trip_count) and trip_count % inner == 0:
                factors[axis][k : k + 1] = [trip_count // inner, inner]
                return True
    return False


def _are_slices(positions: int, slices: int) -> bool:
    """Whether so many positions are so many slices, or equal parts of them."""
    return is_multiple(positions, slices)


def _joined(
    outer: tuple[int, int, Symbol, int], inner: tuple[int, int, Symbol, int], affines: list[Affine]
) -> bool:
    a, b, trip_count = outer[2], inner[2], inner[3]
    return all(x.coefficient(a) == x.coefficient(b) * trip_count for x in affines)


def split_points(accesses: AccessAnalysis, symbol: Symbol, limit: int = 3) -> list[int]:
    """Values of a loop variable at which conditions become certain: the loop is cut there, at boundaries and at most
    `limit` other values."""
    points = _certain(accesses.conditions, symbol)
    return sorted(points) if len(points) <= limit else boundaries(accesses, symbol)


def boundaries(accesses: AccessAnalysis, symbol: Symbol) -> list[int]:
    """Values of a loop variable at which another operand of a concatenation begins: the loop is cut there, as
    each element else were chosen among all operands."""
    points = _certain(accesses.boundaries, symbol)
    return sorted(points) if len(points) < _MAX_SPLITS else []


def _certain(conditions: Sequence[Affine], symbol: Symbol) -> set[int]:
    ranges = (true_range(condition, symbol) or () for condition in conditions)
    return {end for ends in ranges for end in ends if symbol.low < end <= symbol.high}
