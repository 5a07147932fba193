"""Elements of a fused computation's values, at any index: evaluated on demand, each once, placed by the loop
nest.

To evaluate a value at an index, its op's `element` rule evaluates its operands at theirs, down to the parameters, which
are loaded. A value that does not depend on the vectorised loop variable stays scalar until it is combined with one that
does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ....runtime.llvm.ir_builder import Function, Int, Ptr, VectorValue, split_vector
from ....runtime.sizes import is_multiple, is_symbolic, surely_less
from ...ir.element_types import ElementType
from ...ir.module import Computation, Instruction
from ...ops import (
    Broadcast,
    Constant,
    Copy,
    GetTupleElement,
    Map,
    Parameter,
    Reduce,
    Reshape,
    Tuple,
    reducer_kind,
)
from ..codegen import outlined_functions
from ..codegen.elementwise import apply
from ..codegen.memory_types import (
    Element,
    constant_element,
    convert,
    gather,
    load,
    load_strided,
    map_parts,
    memory_type,
    select_element,
    single,
    splat,
    store,
)
from ..codegen.scalar_computation import apply_scalars
from .affine import ZERO, Affine, AffineIndexer, Symbol, lane_offsets, linear_address, surely_ordered
from .indexing import Index, element_rule, is_bitcast
from .loop_nest import LoopNest, Memo


class Item(NamedTuple):
    """An element and the depth of the loop from which on it is known."""

    element: Element
    depth: int


class Condition(NamedTuple):
    """An i1 per lane, or one for all, and the depth from which on it is known."""

    value: VectorValue
    depth: int


_Key = tuple[Instruction, Index, "Condition | bool"]
ReductionEmitter = Callable[
    ["Elements", Sequence[Instruction], Sequence[Index], "Condition | bool"], list[list[list[Item]]]
]
"""From reductions and indices of their results to results [instruction][index][result]."""


def lanes_of(element: Element) -> int:
    """Lanes of an element."""
    part = element[0] if isinstance(element, tuple) else element
    return split_vector(part.type)[1]


def _read_once(computation: Computation) -> frozenset[Instruction]:
    """Values with one user, which reads each of their elements once, at its own index: nothing finds them memoized."""
    return frozenset(
        [
            i
            for i, users in computation.users.items()
            if len(users) == 1
            and users[0].op.is_elementwise
            and not i.shape.is_scalar
            and users[0].operands.count(i) == 1
        ]
    )


def _stages(instruction: Instruction) -> int:
    """In how many stages its operands are listed: where indices are data, first those, then the elements at them."""
    return 1 if instruction.op.is_elementwise else 2


SHORT_ROW = 8  # elements: rows that are loaded whole where a vector has one of each
_MAX_ZEROS = 4096  # bytes that a vector load under a condition may be spread over; else lanes are masked
_MAX_LEVELS = 16  # of elements that are evaluated by recursion


@dataclasses.dataclass
class CachedRow:
    """Memory for one row of a value: element i of it at sum(i * strides). The first loop over the row that
    computes it fills it, later ones load from it."""

    strides: tuple[int, ...]
    offset: int
    pointer: Ptr = Ptr("ptr", "null")


class Elements:
    """Evaluates a computation's values at indices. `pointers` are the addresses of its parameters, by number;
    `emit_reductions` evaluates reductions over the same axes in one pass (`reduce_emitter.reduce_together`);
    `cached_rows` are the values whose current row is cached in memory.

    `row_index` is the index of a reduction's operand while a loop over a whole row of it is written;
    `row_stored` collects the values stored there. `tile` is set while a block of rows is evaluated that a
    transposed operand can be loaded for as a whole: (variable of the block's first row, rows per tile, number
    of the current row).
    """

    def __init__(
        self,
        nest: LoopNest,
        computation: Computation,
        pointers: Sequence[Ptr],
        emit_reductions: ReductionEmitter,
        cached_rows: Mapping[Instruction, CachedRow] | None = None,
    ) -> None:
        self.nest = nest
        self.items: Memo[Item] = {}
        self.reduced: Memo[list[Item]] = {}
        self.filled: Memo[int] = {}
        self.splats: Memo[Item] = {}
        self.tiles: Memo[list[Item]] = {}
        self.rows: Memo[Item] = {}
        self.conditions: Memo[Condition] = {}
        self.indices: Memo[Affine] = {}
        self.computation = computation
        self.pointers = list(pointers)
        self.emit_reductions = emit_reductions
        self.cached_rows = dict(cached_rows or {})
        self.siblings = sibling_reductions(computation)
        self.read_once = _read_once(computation)
        self.outlined = outlined_functions.outlined_kinds(computation.instructions)
        self.row_index: Index | None = None
        self.row_stored: set[tuple[Instruction, Index]] = set()
        self.tile: tuple[Symbol, int, int] | None = None
        self._level = 0  # of the recursion

    # -- values
    def value(self, instruction: Instruction, index: Index, condition: Condition | bool = True) -> Item:
        """The element of a value at an index; where the condition does not hold it is not specified.

        Operands are evaluated by recursion, which is fast, but no deeper than some levels: a fusion may be deeper than
        Python recurses.
        """
        is_new = instruction in self.read_once and condition is not False
        item = None if is_new else self._lookup(instruction, index, condition)
        if item is not None:
            return item
        key = (instruction, index, condition)
        if self._level >= _MAX_LEVELS:
            return self._value_from_stack(key)
        self._level += 1
        try:
            depth, item = self._evaluate_or_load(*key)
        finally:
            self._level -= 1
        return item if is_new else self.nest.memoize(self.items, key, depth, item)

    def _value_from_stack(self, wanted: _Key) -> Item:
        """The element of a key; its operands are evaluated before it."""
        # With each key, how often its operands were listed.
        stack: list[tuple[_Key, int]] = [(wanted, 0)]
        while stack:
            key, stage = stack.pop()
            item = self._lookup(*key)
            if item is None:
                missing = self._missing(*key) if stage < _stages(key[0]) else []
                if missing:
                    stack.append((key, stage + 1))
                    stack.extend([(operand, 0) for operand in reversed(missing)])
                else:
                    item = self.nest.memoize(self.items, key, *self._evaluate_or_load(*key))
        assert item is not None
        return item

    def _lookup(self, instruction: Instruction, index: Index, condition: Condition | bool) -> Item | None:
        """The element, if it was evaluated before."""
        if condition is False:
            return Item(constant_element(instruction.shape.element_type, 0, 1), 0)
        return self.nest.lookup(self.items, (instruction, index, condition))

    def _evaluate_or_load(
        self, instruction: Instruction, index: Index, condition: Condition | bool
    ) -> tuple[int, Item]:
        row = self.cached_rows.get(instruction)
        if row is not None and condition is True:
            item = self._cached_element(row, instruction, index)
        else:
            item = self._evaluate(instruction, index, condition)
        return item.depth, item

    def _missing(self, instruction: Instruction, index: Index, condition: Condition | bool) -> list[_Key]:
        """The operands of an element that are not evaluated yet. Where indices are data, first those indices.

        The elements that a reduction runs over are evaluated in its loops.
        """
        op, operands = instruction.op, instruction.operands
        row = self.cached_rows.get(instruction)
        if row is not None and condition is True and self._filled(row, instruction, index) is not None:
            return []
        if op.is_elementwise or is_bitcast(instruction):
            keys = [(o, () if o.shape.is_scalar else index, condition) for o in operands]
        elif isinstance(op, Map | Copy):
            keys = [(o, index, condition) for o in operands]
        elif isinstance(op, Parameter | Constant | GetTupleElement) or op.is_reduction:
            return []
        else:
            rule = _Needs(self, instruction, condition)
            element_rule(instruction)(rule, index, [o.shape for o in operands], instruction.shape)
            keys = rule.indices or rule.operands
        return [key for key in keys if self._lookup(*key) is None]

    def _filled(self, row: CachedRow, instruction: Instruction, index: Index) -> int | None:
        """The depth from which on it is available, of a cached row that an earlier loop filled; None for others."""
        outer = tuple(i for i, stride in zip(index, row.strides) if not stride)
        return self.nest.lookup(self.filled, (instruction, outer))

    def _cached_element(self, row: CachedRow, instruction: Instruction, index: Index) -> Item:
        """An element of a cached row: loaded where the row was filled before, else computed, and stored if the current
        loop runs over the whole row."""
        t, nest = instruction.shape.element_type, self.nest
        outer = tuple(i for i, stride in zip(index, row.strides) if not stride)
        inner = linear_address(index, row.strides)
        if (filled := self._filled(row, instruction, index)) is not None:
            return self.load_at(row.pointer, t, inner, min_depth=filled)
        item = self._evaluate(instruction, index, True)
        vector = nest.vector
        if self.row_index == index and (vector is None or inner.coefficient(vector[0]) == 1):
            lanes = vector[1] if vector else 1
            widened = self.widen(item, lanes)
            scale = 2 if t.is_complex else 1
            pointer, _ = nest.pointer(row.pointer, memory_type(t), inner * scale)
            with nest.at(nest.depth) as f:
                store(f, t, widened.element, pointer, lanes)
            self.row_stored.add((instruction, outer))
        return item

    def _evaluate(self, instruction: Instruction, index: Index, condition: Condition | bool) -> Item:
        op = instruction.op
        if isinstance(op, Parameter):
            return self._load(self.pointers[op.number], instruction, index, condition)
        if isinstance(op, Constant):
            return self._constant(instruction, index, condition)
        if op.is_elementwise or is_bitcast(instruction):
            operands = []
            for o in instruction.operands:
                operands.append(self.value(o, () if o.shape.is_scalar else index, condition))
            return self.apply(instruction, operands)
        if isinstance(op, Map):
            return self.call(op.to_apply, [self.value(o, index, condition) for o in instruction.operands])[0]
        if isinstance(op, Copy):
            return self.value(instruction.operands[0], index, condition)
        if isinstance(op, GetTupleElement):
            return self.results(instruction.operands[0], index, condition)[op.index]
        if op.is_reduction:
            return self.results(instruction, index, condition)[0]
        rule = _Rule(self, instruction, condition)
        return element_rule(instruction)(
            rule, index, [o.shape for o in instruction.operands], instruction.shape
        )

    def results(self, instruction: Instruction, index: Index, condition: Condition | bool) -> list[Item]:
        """The elements of all results of a reduction at an index."""
        key = (instruction, index, condition)
        cached = self.nest.lookup(self.reduced, key)
        if cached is None:
            together = self.siblings.get(instruction, [instruction]) if condition is True else [instruction]
            self.reduce(together, [index], condition)
            cached = self.nest.lookup(self.reduced, key)
            assert cached is not None
        return cached

    def reduce(
        self,
        instructions: Sequence[Instruction],
        indices: Sequence[Index],
        condition: Condition | bool = True,
    ) -> None:
        """Evaluates reductions over the same axes in one pass, and memoizes their results."""
        results = self.emit_reductions(self, instructions, indices, condition)
        for instruction, per_index in zip(instructions, results):
            for index, items in zip(indices, per_index):
                key = (instruction, index, condition)
                self.nest.memoize(self.reduced, key, max(i.depth for i in items), items)

    def apply(self, instruction: Instruction, operands: Sequence[Item]) -> Item:
        """An elementwise instruction on elements."""
        lanes_of_each = [lanes_of(o.element) for o in operands]
        lanes = max(lanes_of_each)
        depth = max([o.depth for o in operands])
        elements = [
            o.element if own == lanes else self.widen(o, lanes).element
            for o, own in zip(operands, lanes_of_each)
        ]
        is_call = (
            bool(self.outlined)
            and outlined_functions.kind_of(instruction) in self.outlined
            and outlined_functions.can_call(elements)
        )
        with self.nest.at(depth) as f:
            element = (outlined_functions.call if is_call else apply)(
                f,
                instruction.opcode,
                vars(instruction.op),
                [o.shape.element_type for o in instruction.operands],
                instruction.shape.element_type,
                elements,
            )
        return Item(element, depth)

    def call(self, computation: Computation, arguments: Sequence[Item]) -> list[Item]:
        """A computation of scalars applied to elements; its root's leaves."""
        values: dict[Instruction, Item] = dict(zip(computation.parameters, arguments, strict=True))
        for instruction in computation.instructions:
            if instruction in values or isinstance(instruction.op, Tuple):
                continue
            if isinstance(instruction.op, Constant):
                values[instruction] = Item(
                    constant_element(instruction.shape.element_type, instruction.op.literal.array[()], 1), 0
                )
            elif instruction.op.is_elementwise or is_bitcast(instruction):
                values[instruction] = self.apply(instruction, [values[o] for o in instruction.operands])
            elif isinstance(instruction.op, GetTupleElement):
                values[instruction] = values[instruction.operands[0].operands[instruction.op.index]]
            elif isinstance(instruction.op, Broadcast | Reshape | Copy):
                values[instruction] = values[instruction.operands[0]]
            else:
                return self._call_at_once(computation, arguments)
        root = computation.root
        return [values[o] for o in root.operands] if isinstance(root.op, Tuple) else [values[root]]

    def _call_at_once(self, computation: Computation, arguments: Sequence[Item]) -> list[Item]:
        """A computation of scalars that has branches or calls: all of it where the last argument is known."""
        lanes = max((lanes_of(a.element) for a in arguments), default=1)
        vectors = [self.widen(a, lanes) for a in arguments]
        depth = max((a.depth for a in vectors), default=0)
        with self.nest.at(depth) as f:
            results = apply_scalars(f, computation, [a.element for a in vectors], lanes)
        return [Item(r, depth) for r in results]

    def widen(self, item: Item, lanes: int) -> Item:
        """An element with that many lanes: broadcast, where it has one."""
        if lanes == 1 or lanes_of(item.element) == lanes:
            return item
        key = (item.element, lanes)
        cached = self.nest.lookup(self.splats, key)
        if cached is None:
            with self.nest.at(item.depth) as f:
                widened = splat(f, item.element, lanes)
            cached = self.nest.memoize(self.splats, key, item.depth, Item(widened, item.depth))
        return cached

    # -- memory
    def _constant(self, instruction: Instruction, index: Index, condition: Condition | bool) -> Item:
        assert isinstance(instruction.op, Constant)
        literal = instruction.op.literal
        array = literal.array
        if array.size == 1 or (array == array.flat[0]).all():
            return Item(constant_element(instruction.shape.element_type, array.flat[0], 1), 0)
        data = "".join(f"\\{byte:02X}" for byte in array.tobytes())
        module = self.nest.f.module
        name = f"literal.{literal.digest().hex()}"
        module.add_global(name, f'internal unnamed_addr constant [{array.nbytes} x i8] c"{data}", align 64')
        return self._load(self.nest.f.symbol(name), instruction, index, condition)

    def _load(self, base: Ptr, instruction: Instruction, index: Index, condition: Condition | bool) -> Item:
        t, shape = instruction.shape.element_type, instruction.shape
        if shape.elements == 0:
            return Item(constant_element(t, 0, 1), 0)
        address = linear_address(index, shape.strides)
        return self.load_at(base, t, address, condition, shape.elements)

    def load_at(
        self,
        base: Ptr,
        t: ElementType,
        address: Affine,
        condition: Condition | bool = True,
        elements: int = 0,
        min_depth: int = 0,
    ) -> Item:
        """The element of type `t` number `address` after `base`, where at least `elements` elements lie.

        `min_depth` is the depth from which on it is there.
        """
        nest = self.nest
        memory, scale = memory_type(t), 2 if t.is_complex else 1
        if not nest.varies(address):
            pointer, depth = nest.pointer(base, memory, address * scale)
            mask, depth = None, max(depth, min_depth)
            if isinstance(condition, Condition):
                condition = self._any_lane(condition)
                mask, depth = condition.value, max(depth, condition.depth)
            with nest.at(depth) as f:
                return Item(load(f, t, pointer, 1, mask=mask), depth)
        vector = nest.vector
        assert vector is not None
        symbol, lanes = vector
        stride, others, rest = nest.vector_parts(address)
        mask, depth = None, min_depth
        if isinstance(condition, Condition):
            is_uniform = LoopNest.lanes_of(condition.value) == 1 and not others
            if is_uniform and not is_symbolic([stride]) and 0 < stride * lanes * t.item_bytes <= _MAX_ZEROS:
                return self._load_or_zeros(base, t, rest, stride, lanes, condition)
            mask, depth = self._lanes_condition(condition, lanes)
        if others and mask is None and (near := self._load_near(base, t, address, symbol, min_depth)):
            return near
        if others:
            at, at_depth = nest.vectored(address)
            depth = max(depth, at_depth)
            with nest.at(depth) as f:
                return Item(gather(f, t, base, at, lanes, mask), depth)
        if (
            self.tile is not None
            and mask is None
            and stride not in (0, 1)
            and address.coefficient(self.tile[0]) == 1
        ):
            return self._tile(base, t, rest, stride, self.tile)
        if mask is None and self._are_in_whole_rows(rest, stride, elements):
            return self._load_of_rows(base, t, rest, stride, lanes, depth)
        pointer, at_depth = nest.pointer(base, memory, rest * scale)
        depth = max(depth, at_depth)
        with nest.at(depth) as f:
            return Item(load_strided(f, t, pointer, stride, lanes, mask), depth)

    @staticmethod
    def _are_in_whole_rows(first: Affine, stride: int, elements: int) -> bool:
        """Whether elements so far apart from the first on lie at one place of as many short rows, which are all inside
        an array of so many elements."""
        if is_symbolic([stride]) or not 2 <= stride <= SHORT_ROW or not surely_less(0, elements):
            return False
        return is_multiple(elements, stride) and all(is_multiple(c, stride) for _, c in first.terms)

    def _load_of_rows(
        self, base: Ptr, t: ElementType, first: Affine, row: int, lanes: int, min_depth: int
    ) -> Item:
        """One element of each of `lanes` rows: the rows are loaded, once for all places in them, and shuffled."""
        nest, place = self.nest, first.constant % row
        start = first - Affine.number(place)
        key = (base.text, start, row, lanes, t)
        rows = nest.lookup(self.rows, key)
        if rows is None:
            pointer, depth = nest.pointer(base, memory_type(t), start * (2 if t.is_complex else 1))
            depth = max(depth, min_depth)
            with nest.at(depth) as f:
                rows = nest.memoize(self.rows, key, depth, Item(load(f, t, pointer, lanes * row), depth))
        order = range(place, lanes * row, row)
        with nest.at(rows.depth) as f:
            element = map_parts(lambda part: VectorValue.of(f, part).shuffle(order), rows.element)
        return Item(element, rows.depth)

    def _load_near(
        self, base: Ptr, t: ElementType, address: Affine, symbol: Symbol, min_depth: int
    ) -> Item | None:
        """Lanes that are quotients of the vectorised variable, where its loop is one step: what lies between the first
        and the last of them is loaded, and shuffled. None where their places are not known, or too far apart."""
        nest, lanes = self.nest, symbol.high - symbol.low + 1
        known = lane_offsets(address, symbol) if nest.vector and lanes == nest.vector[1] else None
        if known is None or nest.varies(known[0]) or is_symbolic(known[1]):
            return None
        if max(known[1]) - min(known[1]) >= 2 * lanes:
            return None
        rest, offsets = known
        first, last = min(offsets), max(offsets)
        memory, scale = memory_type(t), 2 if t.is_complex else 1
        pointer, depth = nest.pointer(base, memory, (rest + Affine.number(first)) * scale)
        depth = max(depth, min_depth)
        order = [offset - first for offset in offsets]
        with nest.at(depth) as f:
            if first == last:
                return Item(splat(f, load(f, t, pointer, 1), lanes), depth)
            between = load(f, t, pointer, last - first + 1)
            return Item(map_parts(lambda part: VectorValue.of(f, part).shuffle(order), between), depth)

    def _load_or_zeros(
        self, base: Ptr, t: ElementType, at: Affine, stride: int, lanes: int, condition: Condition
    ) -> Item:
        """A vector load under a condition for all lanes: where it fails, zeros are loaded. What lies at the array's
        start may be no memory: in a chain the base is that of a slice, as if all others were there."""
        pointer, depth = self.nest.pointer(base, memory_type(t), at * (2 if t.is_complex else 1))
        depth = max(depth, condition.depth)
        with self.nest.at(depth) as f:
            size = stride * lanes * t.item_bytes
            zeros = f"internal unnamed_addr constant [{size} x i8] zeroinitializer, align 64"
            safe = condition.value.choose(pointer, f.symbol(f.module.add_global(f"zeros.{size}", zeros)))
        depth = self.nest.depth
        with self.nest.at(depth) as f:
            return Item(load_strided(f, t, safe, stride, lanes), depth)

    def _tile(
        self, base: Ptr, t: ElementType, rest: Affine, stride: int, tile: tuple[Symbol, int, int]
    ) -> Item:
        """One row of a tile of a transposed operand: its columns are loaded and turned in registers, once for
        all."""
        nest, (_, lanes, row) = self.nest, tile
        first = rest - Affine.number(row % lanes)
        key = (base.text, first, stride)
        cached = nest.lookup(self.tiles, key)
        if cached is None:
            columns, depth = [], nest.depth
            for k in range(lanes):
                pointer, _ = nest.pointer(
                    base, memory_type(t), (first + Affine.number(k * stride)) * (2 if t.is_complex else 1)
                )
                with nest.at(depth) as f:
                    columns.append(load(f, t, pointer, lanes))
            with nest.at(depth) as f:
                cached = nest.memoize(
                    self.tiles, key, depth, [Item(e, depth) for e in transpose_square(f, columns)]
                )
        return cached[row % lanes]

    # -- conditions
    def _lanes_condition(self, condition: Condition, lanes: int) -> tuple[VectorValue, int]:
        widened = self.widen(Item(condition.value, condition.depth), lanes)
        return VectorValue.of(self.nest.f, single(widened.element)), widened.depth

    def _any_lane(self, condition: Condition) -> Condition:
        if LoopNest.lanes_of(condition.value) == 1:
            return condition
        with self.nest.at(condition.depth) as f:
            value = condition.value
            any_lane = f.intrinsic("vector.reduce.or", "i1", [value], (value.type,))
            return Condition(VectorValue.of(f, any_lane), condition.depth)

    def less(self, a: Affine, b: Affine) -> Condition | bool:
        """a < b, known at once where the bounds say so."""
        is_less = surely_ordered(a, b)
        if is_less is not None:
            return is_less
        d = a - b
        terms = d + Affine.number(-d.constant)
        limit = -d.constant
        key = ("less", terms, limit)
        cached = self.nest.lookup(self.conditions, key)
        if cached is not None:
            return cached
        if self.nest.varies(terms):
            fits_i32 = all(-1 << 30 < x < 1 << 30 for x in (limit, terms.low, terms.high))
            value: VectorValue | Int
            value, depth = self.nest.vectored(terms, "i32" if fits_i32 else "i64")
        else:
            value, depth = self.nest.scalar(terms)
        with self.nest.at(depth):
            cached = Condition(value < limit, depth)
        return self.nest.memoize(self.conditions, key, depth, cached)

    def both(self, a: Condition | bool, b: Condition | bool | None) -> Condition | bool:
        """a and b."""
        if b is None or b is True or a is False:
            return a
        if a is True or b is False:
            return b
        key = ("both", a, b)
        cached = self.nest.lookup(self.conditions, key)
        if cached is None:
            lanes = max(LoopNest.lanes_of(a.value), LoopNest.lanes_of(b.value))
            (x, dx), (y, dy) = self._lanes_condition(a, lanes), self._lanes_condition(b, lanes)
            depth = max(dx, dy)
            with self.nest.at(depth):
                cached = self.nest.memoize(self.conditions, key, depth, Condition(x & y, depth))
        return cached

    def choose(self, condition: Condition | bool, then: Item, otherwise: Item) -> Item:
        """`then` where the condition holds, else `otherwise`."""
        if isinstance(condition, bool):
            return then if condition else otherwise
        lanes = max(LoopNest.lanes_of(condition.value), lanes_of(then.element), lanes_of(otherwise.element))
        value, depth = self._lanes_condition(condition, lanes)
        a, b = self.widen(then, lanes), self.widen(otherwise, lanes)
        depth = max(depth, a.depth, b.depth)
        with self.nest.at(depth) as f:
            return Item(select_element(f, value, a.element, b.element), depth)

    # -- indices as elements, elements as indices
    def number(self, index: Affine, t: ElementType) -> Item:
        """An index as an element of type `t`."""
        fits_s32 = index.low > -1 << 30 and index.high < 1 << 30
        source = ElementType.S32 if fits_s32 else ElementType.S64
        if self.nest.varies(index):
            value, depth = self.nest.vectored(index, "i32" if fits_s32 else "i64")
            with self.nest.at(depth) as f:
                return Item(convert(f, value, source, t), depth)
        scalar, depth = self.nest.scalar(index)
        with self.nest.at(depth) as f:
            return Item(convert(f, VectorValue.of(f, scalar), ElementType.S64, t), depth)

    def as_index(self, item: Item, t: ElementType, limit: int) -> Affine:
        """An integer element as an index, clamped to 0..limit."""
        if not is_symbolic([limit]) and limit <= 0:
            return Affine.number(0)
        key = (item.element, limit)
        cached = self.nest.lookup(self.indices, key)
        if cached is not None:
            return cached
        lanes = lanes_of(item.element)
        with self.nest.at(item.depth) as f:
            value = VectorValue.of(f, single(convert(f, item.element, t, ElementType.S64)))
            value = value.call("umin" if t is ElementType.U64 else "smin", limit)
            if not t.is_unsigned:
                value = value.call("smax", 0)
        symbol = Symbol(f"data{item.depth}", 0, limit)
        self.nest.bind(symbol, value if lanes > 1 else Int.of(f, value), item.depth)
        return self.nest.memoize(self.indices, key, item.depth, Affine.of(symbol))


class _Conditional(AffineIndexer):
    """The indices and conditions of an Indexer for an instruction's `element` rule, where a condition holds."""

    def __init__(self, elements: Elements, instruction: Instruction, condition: Condition | bool) -> None:
        super().__init__(elements.nest.division)
        self.elements, self.instruction, self.condition = elements, instruction, condition

    def less(self, a: Affine, b: Affine) -> Condition | bool:
        return self.elements.less(a, b)

    def both(self, a: Condition | bool, b: Condition | bool) -> Condition | bool:
        return self.elements.both(a, b)


class _Rule(_Conditional):
    """The Indexer that an instruction's `element` rule is given."""

    def choose(self, condition: Condition | bool, then: Item, otherwise: Item) -> Item:
        return self.elements.choose(condition, then, otherwise)

    def operand(
        self, number: int, index: Sequence[Affine], condition: Condition | bool | None = None
    ) -> Item:
        combined = self.elements.both(self.condition, condition)
        return self.elements.value(self.instruction.operands[number], tuple(index), combined)

    def index_operand(self, number: int, index: Sequence[Affine], limit: int) -> Affine:
        operand = self.instruction.operands[number]
        item = self.elements.value(operand, tuple(index), self.condition)
        return self.elements.as_index(item, operand.shape.element_type, limit)

    def number(self, index: Affine) -> Item:
        return self.elements.number(index, self.instruction.shape.element_type)

    def constant(self, value: object) -> Item:
        return Item(constant_element(self.instruction.shape.element_type, value, 1), 0)


class _Needs(_Conditional):
    """The Indexer that lists what an instruction's `element` rule asks for and that is not known: the indices that are
    data, and the operands at known indices. Elements are nothing."""

    def __init__(self, elements: Elements, instruction: Instruction, condition: Condition | bool) -> None:
        super().__init__(elements, instruction, condition)
        self.indices: list[_Key] = []
        self.operands: list[_Key] = []

    def less(self, a: Affine, b: Affine) -> Condition | bool:
        return True if self.indices else super().less(a, b)

    def choose(self, condition: Condition | bool, then: None, otherwise: None) -> None:
        pass

    def operand(
        self, number: int, index: Sequence[Affine], condition: Condition | bool | None = None
    ) -> None:
        combined = self.elements.both(self.condition, condition)
        self.operands.append((self.instruction.operands[number], tuple(index), combined))

    def index_operand(self, number: int, index: Sequence[Affine], limit: int) -> Affine:
        operand = self.instruction.operands[number]
        key = (operand, tuple(index), self.condition)
        item = self.elements._lookup(*key)
        if item is not None:
            return self.elements.as_index(item, operand.shape.element_type, limit)
        self.indices.append(key)
        return ZERO

    def number(self, index: Affine) -> None:
        pass

    def constant(self, value: object) -> None:
        pass


def sibling_reductions(computation: Computation) -> dict[Instruction, list[Instruction]]:
    """For each reduction of a known kind, all that run over the same axes of equal dims and do not need one
    another."""
    level: dict[Instruction, int] = {}
    groups: dict[tuple[object, ...], list[Instruction]] = {}
    for i in computation.instructions:
        level[i] = max((level[o] for o in i.operands), default=0) + isinstance(i.op, Reduce)
        if isinstance(i.op, Reduce) and len(i.operands) == 2 and reducer_kind(i.op.to_apply):
            groups.setdefault((level[i], i.operands[0].shape.dims, i.op.dimensions), []).append(i)
    return {i: group for group in groups.values() for i in group}


def transpose_square(f: Function, rows: Sequence[Element]) -> list[Element]:
    """The columns of as many vectors as they have lanes (a power of two): log2 rounds of two-vector
    shuffles."""
    count = len(rows)
    current = list(rows)
    width = count // 2
    while width:
        listed = [list(range(k, k + width)) for k in range(0, count, 2 * width)]
        low = [x for k in listed for x in (*k, *(count + y for y in k))]
        high = [x + width for x in low]
        following = list(current)
        for k in range(count):
            if k & width:
                continue
            a, b = current[k], current[k + width]
            following[k] = map_parts(lambda x, y, order=low: VectorValue.of(f, x).shuffle(order, y), a, b)
            following[k + width] = map_parts(
                lambda x, y, order=high: VectorValue.of(f, x).shuffle(order, y), a, b
            )
        current = following
        width //= 2
    return current
