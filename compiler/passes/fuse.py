"""Puts instructions that can be computed in one loop nest into fusions.

    y = tanh(x + broadcast(b))      becomes      y = fusion(x, b), kind=kLoop

Everything that has a value element by element (elementwise ops, index maps, reductions) ends up inside a
fusion, alone if need be. A value is computed inside its consumers where that costs less than storing and
loading it: when it has one consumer that reads each element about once, or when it is cheap. `decide` says
which, `apply` builds the fusions.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence

from .. import budget
from ..analysis.fusion_size import FusionSize
from ..analysis.instruction_cost import cycles, is_expensive
from ..cpu.loops.epilogue import is_made_of
from ..cpu.loops.scan import cumulative_axis
from ..cpu.output_fusion import product_view
from ..errors import UnsupportedError
from ..ir.module import Computation, Instruction, Module, make
from ..ops import (
    Broadcast,
    Concatenate,
    Fusion,
    GetTupleElement,
    Parameter,
    Reduce,
    ReduceWindow,
    Transpose,
    Tuple,
)
from ..options import Options
from ..progress import ordered
from .multi_output_fusion import merge_outputs

INDEX_MAPS = frozenset(
    {
        "broadcast",
        "reshape",
        "transpose",
        "reverse",
        "slice",
        "pad",
        "concatenate",
        "iota",
        "dynamic-slice",
        "gather",
        "copy",
    }
)
REDUCTIONS = frozenset({"reduce", "reduce-window"})
CONTRACTIONS = frozenset({"dot", "convolution"})
_MOST_PARAMETERS = 64  # and values on the way to become some
_MEETING_STEPS = 16
_SMALL = 1 << 13  # elements of which a reduction may be repeated by every thread
_SHORT = 64  # elements reduced to one
_SCALAR_LOOP = 8  # elements that a loop over fewer in a row takes one by one, not as vectors
_ELEMENTS_A_CYCLE = (
    2  # that an inner loop stores; an expensive value by itself takes as long as a vector of them
)
_SHORT_ROW = 16  # elements in a row that fill no vector
_DEAR_CYCLES = 10  # of values in such a row, from which on storing what they are made of costs less
_WORTH_VECTORS = 1 << 10  # elements of an expensive value that is stored for them
_MOST_REPEATED = 8  # cheap instructions per fusion that may be evaluated more often than they have elements


@dataclasses.dataclass
class Plan:
    """Which instructions become fusions. `groups` maps each root to what is computed inside with it, roots in
    the computation's order, members operands first; an instruction may be in several groups."""

    groups: dict[Instruction, list[Instruction]]
    together: list[list[Instruction]] = dataclasses.field(
        default_factory=list
    )  # roots of one fusion, several outputs

    def __str__(self) -> str:
        lines = [
            f"{root.name or root.opcode}: {', '.join(m.name or m.opcode for m in members)}"
            for root, members in self.groups.items()
        ]
        lines += ["together: " + ", ".join(r.name or r.opcode for r in roots) for roots in self.together]
        return "\n".join(lines)


def fuse(module: Module, options: Options) -> Module:
    """Fusions for everything that loops over elements, in the entry and in bodies, conditions and
    branches."""
    called_for_elements = {
        c
        for computation in module.computations()
        for i in computation.instructions
        if i.op.calling and i.opcode not in ("while", "conditional", "concurrent", "call")
        for c in i.op.called()
    }

    def change(computation: Computation) -> Computation:
        return computation if computation.name in skipped else apply(computation, decide(computation))

    skipped = {c.name for c in called_for_elements}
    return module.map_computations(change)


def is_loop_like(instruction: Instruction) -> bool:
    """Has a value element by element."""
    if instruction.opcode == "bitcast-convert":
        return instruction.shape.rank == instruction.operands[0].shape.rank
    return (
        instruction.op.is_elementwise
        or instruction.opcode in INDEX_MAPS
        or instruction.opcode in REDUCTIONS
        or instruction.opcode == "map"
        or _is_part(instruction)
    )


def _is_part(instruction: Instruction) -> bool:
    """One result of a variadic reduction."""
    return isinstance(instruction.op, GetTupleElement) and instruction.operands[0].opcode in REDUCTIONS


def _is_scalar_constant(instruction: Instruction) -> bool:
    return instruction.opcode == "constant" and instruction.shape.is_array and instruction.shape.elements == 1


def _written_in(members: list[Instruction]) -> set[Instruction]:
    """Operands that are numbers in the code of a fusion of these members; a contraction reads its operands from
    memory."""
    read = {o for m in members if m.opcode in CONTRACTIONS for o in m.operands}
    return {o for m in members for o in m.operands if o not in read and _is_scalar_constant(o)}


def _is_free(instruction: Instruction) -> bool:
    """Takes no load: it is computed wherever it is used."""
    if isinstance(instruction.op, Broadcast):
        return _is_scalar_constant(instruction.operands[0])
    return instruction.opcode == "iota" or _is_scalar_constant(instruction)


# -- decide


@dataclasses.dataclass
class _Group:
    root: Instruction
    members: dict[Instruction, float] = dataclasses.field(default_factory=dict)  # evaluations of each
    parameters: set[Instruction] = dataclasses.field(default_factory=set)
    repeated: int = 0
    contraction: Instruction | None = None
    size: FusionSize = dataclasses.field(default_factory=FusionSize)
    dear: dict[int, int] = dataclasses.field(
        default_factory=dict
    )  # cycles of the dearest member, by its elements
    is_scalar_loop: bool = False  # its elements are computed one by one

    def add(self, instruction: Instruction, evaluations: float, users: list[Instruction]) -> None:
        """Takes an instruction in; consumers come first."""
        self.is_scalar_loop |= _walks_one_by_one(instruction)
        self.size.add(instruction, users)
        self.members[instruction] = evaluations
        self.parameters.discard(instruction)
        self.parameters.update(o for o in instruction.operands if o not in self.members and not _is_free(o))


def decide(computation: Computation) -> Plan:
    """The plan of one computation."""
    users = computation.users
    where: dict[Instruction, list[_Group]] = {}
    groups: list[_Group] = []
    chains = _epilogue_chains(computation)
    dear = _dear(computation)
    apart: set[Instruction] = set()
    for instruction in reversed(computation.instructions):
        budget.check("pass fuse")
        if instruction.opcode in CONTRACTIONS:
            _join_epilogue(instruction, computation, users[instruction], where, chains)
        if not is_loop_like(instruction):
            continue
        is_end = instruction in chains and not all(u in chains for u in users[instruction])
        homes = None if is_end else _homes(instruction, computation, users[instruction], where)
        if homes is not None and instruction in chains and len(homes) > 1:
            homes = None
        if homes is not None:
            consumers = [group for group, _ in homes.values()]
            if _is_apart(instruction, users[instruction], consumers, dear, chains):
                homes = None
                apart.add(instruction)
        if homes is None:
            if instruction.shape.is_tuple:
                _leave_parts_outside(users[instruction], where)
            group = _Group(instruction)
            groups.append(group)
            homes = {id(group): (group, float(_elements(instruction)))}
        where[instruction] = []
        for group, evaluations in homes.values():
            group.add(instruction, evaluations, users[instruction])
            if instruction in dear:
                elements = _elements(instruction)
                group.dear[elements] = max(dear[instruction], group.dear.get(elements, 0))
            if evaluations > 1.5 * _elements(instruction) and instruction is not group.root:
                group.repeated += 1
            where[instruction].append(group)
    order = {i: k for k, i in enumerate(computation.instructions)}
    plan = Plan(
        {g.root: sorted(g.members, key=order.__getitem__) for g in reversed(groups) if not _moves_nothing(g)}
    )
    sizes = {g.root: (len(g.members), g.size.code, g.size.nested) for g in groups}
    plan.together = merge_outputs(computation, plan.groups, apart, sizes)
    return plan


def _leave_parts_outside(parts: list[Instruction], where: dict[Instruction, list[_Group]]) -> None:
    """Takes the parts of a reduction that is stored out of the groups that read them: no fusion takes a tuple."""
    for part in filter(_is_part, parts):
        for group in where.get(part, ()):
            if group.root is not part:
                del group.members[part]
                group.parameters.add(part)
        where[part] = []


def _epilogue_chains(computation: Computation) -> set[Instruction]:
    """Elementwise instructions and reshapes that can follow a contraction before its result leaves the cache:
    the contraction stores its result in any case. A chain ends where a value goes several ways that do not
    meet again soon, and before reshapes that nothing follows."""
    chains: set[Instruction] = set()
    position = {i: k for k, i in enumerate(computation.instructions)}
    meets: dict[Instruction, bool] = {}
    for i in computation.instructions:
        if not (i.op.is_elementwise or _splits_or_joins(i)):
            continue
        for o in i.operands:
            if (o in chains or o.opcode in CONTRACTIONS) and o.shape.elements == i.shape.elements:
                if o not in meets:
                    meets[o] = _meets_again(o, computation, position)
                if meets[o]:
                    chains.add(i)
                    break
    users = computation.users
    for i in reversed(computation.instructions):
        if i.opcode == "reshape" and not any(u in chains for u in users[i]):
            chains.discard(i)
    return chains


def _splits_or_joins(instruction: Instruction) -> bool:
    """A reshape that splits axes into several, or joins several, and leaves the last one as it is."""
    if instruction.opcode != "reshape":
        return False
    before, after = instruction.operands[0].shape.dims, instruction.shape.dims
    return before[-1:] == after[-1:] != () and (is_made_of(before, after) or is_made_of(after, before))


def _meets_again(value: Instruction, computation: Computation, position: dict[Instruction, int]) -> bool:
    """Whether all that is made of a value goes through one elementwise instruction a few steps on."""
    frontier = set(computation.users[value])
    for _ in range(_MEETING_STEPS):
        if not all(u.op.is_elementwise or _splits_or_joins(u) for u in frontier):
            return False
        if len(frontier) <= 1:
            return bool(frontier)
        first = min(frontier, key=position.__getitem__)
        if first is computation.root or not computation.users[first]:
            return False
        frontier.discard(first)
        frontier.update(computation.users[first])
    return False


def _join_epilogue(
    contraction: Instruction,
    computation: Computation,
    users: list[Instruction],
    where: dict[Instruction, list[_Group]],
    chains: set[Instruction],
) -> None:
    """Puts a contraction into the group of its consumers, when they are one chain and it is the chain's
    first."""
    homes = {id(g): g for u in users for g in where.get(u, [])}
    if contraction is computation.root or len(homes) != 1 or not all(u in chains for u in users):
        return
    (group,) = homes.values()
    same = contraction.shape.dims == group.root.shape.dims
    if group.contraction is None and group.root in chains and (same or _has_view(contraction, group.root)):
        group.contraction = contraction
        group.add(contraction, float(_elements(contraction)), users)


def _has_view(contraction: Instruction, root: Instruction) -> bool:
    """Whether the batch, rows and columns of the contraction's kernel are whole axes of the root."""
    try:
        return is_made_of(product_view(contraction), root.shape.dims)
    except UnsupportedError:
        return False


def _moves_nothing(group: _Group) -> bool:
    """Reshapes, and parts of a tuple, by themselves: the scheduler passes buffers on."""
    return all(m.opcode == "reshape" or isinstance(m.op, GetTupleElement) for m in group.members)


def _elements(instruction: Instruction) -> int:
    return max(1, next(iter(instruction.shape.leaves())).elements)


def _homes(
    instruction: Instruction,
    computation: Computation,
    users: list[Instruction],
    where: dict[Instruction, list[_Group]],
) -> dict[int, tuple[_Group, float]] | None:
    """The groups of the consumers that it is computed in, with how often; None when it is to be stored."""
    if instruction is computation.root or not users or any(u not in where for u in users):
        return None
    homes: dict[int, tuple[_Group, float]] = {}
    for user in users:
        for group in where[user]:
            evaluations = group.members[user] * _reads(user, instruction)
            homes[id(group)] = (group, max(evaluations, homes.get(id(group), (group, 0.0))[1]))
    total = sum(e for _, e in homes.values())
    ratio = total / _elements(instruction)
    if _is_free(instruction):
        return homes
    for group, _ in homes.values():
        if len(group.parameters) >= _MOST_PARAMETERS or not group.size.has_room(instruction, users):
            return None
        if not _fits(instruction, group, users):
            return None
    if len(homes) > 1 and not _is_cheap_to_copy(instruction):
        return None
    if ratio > 1.5 * len(homes):
        if is_expensive(instruction) or instruction.opcode in REDUCTIONS:
            return None
        if any(g.repeated >= _MOST_REPEATED for g, _ in homes.values()):
            return None
    return homes


def _is_apart(
    instruction: Instruction,
    users: list[Instruction],
    groups: list[_Group],
    dear: dict[Instruction, int],
    chains: set[Instruction],
) -> bool:
    """Whether storing a value lets expensive ones be computed in vectors that its consumers' loops do not fill."""
    if instruction in dear:
        return (
            any(group.is_scalar_loop for group in groups)
            or any(_spread(user, instruction) < _ELEMENTS_A_CYCLE * dear[instruction] for user in users)
            or dear[instruction] >= _DEAR_CYCLES
            and any(_row(user) < _SHORT_ROW for user in users)
        )
    elements = _elements(instruction)
    found = [group.dear for group in groups if group.root not in chains and group.dear]
    if elements < _WORTH_VECTORS or not found:
        return False
    row = _row(instruction)
    is_short = min(row, _inner(instruction)) < _SHORT_ROW
    return (
        is_short
        and max(c for each in found for c in each.values()) >= _DEAR_CYCLES
        or any(row < _ELEMENTS_A_CYCLE * each.get(elements, 0) for each in found)
    )


def _dear(computation: Computation) -> dict[Instruction, int]:
    """Large values that an expensive operation made, also where cheap ones follow, element by element, with the
    cycles of those operations."""
    found: dict[Instruction, int] = {}
    for i in computation.instructions:
        if not i.shape.is_array or i.shape.elements < _WORTH_VECTORS:
            continue
        before = sum(found.get(o, 0) for o in i.operands if o.shape.elements == i.shape.elements)
        own = cycles(i) if i.op.is_elementwise and is_expensive(i) else 0
        if own or before and (i.op.is_elementwise or i.opcode == "reshape"):
            found[i] = own + before
    return found


def _walks_one_by_one(instruction: Instruction) -> bool:
    """Whether it interleaves arrays, or accumulates along its innermost axis: no vector of its elements is made at
    once."""
    dims = instruction.shape.dims if instruction.shape.is_array else ()
    if isinstance(instruction.op, Concatenate):
        axis = instruction.op.dimension
        longest = max(o.shape.dims[axis] for o in instruction.operands)
        return len(instruction.operands) > 1 and longest * math.prod(dims[axis + 1 :]) < _SCALAR_LOOP
    along = cumulative_axis(instruction)
    return along is not None and bool(dims) and math.prod(dims[along[0] + 1 :]) < _SCALAR_LOOP


def _is_cheap_to_copy(instruction: Instruction) -> bool:
    """Computing it twice reads no more memory than loading it twice would."""
    if instruction.opcode in REDUCTIONS or cycles(instruction) > 2:
        return False
    return sum(_bytes_behind(o) for o in instruction.operands) <= instruction.shape.bytes * 1.1


def _bytes_behind(operand: Instruction) -> int:
    """Bytes that are loaded for a value: those of what a broadcast spreads."""
    return operand.operands[0].shape.bytes if isinstance(operand.op, Broadcast) else operand.shape.bytes


def _reads(user: Instruction, operand: Instruction) -> float:
    """How many elements of the operand are evaluated for one element of the user."""
    if user.opcode == "reduce" and operand in user.operands[: len(user.operands) // 2]:
        return _elements(operand) / _elements(user)
    if user.opcode == "concatenate":
        return _elements(operand) / _elements(user)
    if isinstance(user.op, ReduceWindow) and cumulative_axis(user) is None:
        return float(math.prod(user.op.window.size))
    if isinstance(user.op, Broadcast) and _is_outer(user):
        return _elements(operand) / _elements(user)
    return 1.0


def _spread(user: Instruction, operand: Instruction) -> float:
    """For how many elements of an inner loop each of the operand's is computed by itself; infinite for none."""
    if isinstance(user.op, Broadcast) and _elements(user) > _elements(operand) and _is_outer(user):
        return _elements(user) / _elements(operand)
    return math.inf


def _inner(broadcast: Instruction) -> float:
    """How many elements the inner axes have that are all the operand's, or all not; infinite where all axes are."""
    if not isinstance(broadcast.op, Broadcast):
        return math.inf
    mapped = broadcast.op.dimensions
    axes = [(axis in mapped, d) for axis, d in reversed(list(enumerate(broadcast.shape.dims))) if d > 1]
    inner = list(itertools.takewhile(lambda axis: axis[0] == axes[0][0], axes))
    return math.prod(d for _, d in inner) if len(inner) < len(axes) else math.inf


def _row(reduction: Instruction) -> float:
    """How many elements each of many rows has that are reduced by themselves; infinite for none."""
    if not isinstance(reduction.op, Reduce) or _elements(reduction) < _WORTH_VECTORS:
        return math.inf
    dims = reduction.operands[0].shape.dims
    inner = [axis for axis, d in enumerate(dims) if d > 1][-1:]
    is_row = set(inner) <= set(reduction.op.dimensions)
    return math.prod(dims) / _elements(reduction) if is_row else math.inf


def _is_outer(broadcast: Instruction) -> bool:
    """The operand's axes are the outermost ones of the result: its elements are known before the inner
    loops."""
    assert isinstance(broadcast.op, Broadcast)
    dims = broadcast.shape.dims
    mapped = [axis for axis, d in zip(broadcast.op.dimensions, broadcast.operands[0].shape.dims) if d > 1]
    inner = [axis for axis, d in enumerate(dims) if d > 1 and axis not in mapped]
    return not mapped or not inner or max(mapped) < min(inner)


def _fits(instruction: Instruction, group: _Group, users: list[Instruction]) -> bool:
    """Whether the group's code stays good with the instruction in it."""
    if instruction.opcode in REDUCTIONS or _is_part(instruction):
        shape = next(iter(instruction.shape.leaves()))
        inside = [u for u in users if u in group.members]
        if group.root.opcode == "concatenate" and _is_operand(instruction, group):
            return (
                isinstance(instruction.op, Reduce) and instruction.shape.is_array and _is_short(instruction)
            )
        if not all(
            u.op.is_elementwise or u.opcode in ("broadcast", "reshape", "copy") or _is_part(u) for u in inside
        ):
            return False
        source = instruction if instruction.opcode in REDUCTIONS else instruction.operands[0]
        is_large = source.operands[0].shape.elements > _SMALL
        if is_large and any(_walks_across(m, source) for m in group.members):
            return False
        grown = _elements(group.root) > 2 * shape.elements
        if grown and shape.elements < 32 and source.operands[0].shape.elements > _SMALL:
            return False
        if grown and is_large and _moves_rows(instruction, group):
            return False
        if isinstance(source.op, Reduce) and grown:
            rank = source.operands[0].shape.rank
            return rank - 1 in source.op.dimensions or source.operands[0].shape.elements <= _SMALL
        return source.opcode == "reduce"
    if instruction.opcode == "concatenate":
        return len(instruction.operands) <= 4
    return True


def _moves_rows(reduction: Instruction, group: _Group) -> bool:
    """Whether a transpose on the way to the root puts an axis that the results do not have before others: they
    would be computed anew along it."""
    kept = next(iter(reduction.shape.leaves())).rank
    reached = {reduction}
    for member in reversed(list(group.members)):
        if not any(o in reached for o in member.operands):
            continue
        reached.add(member)
        if isinstance(member.op, Transpose):
            outer = member.op.dimensions[:kept]
            if any(axis >= kept and member.shape.dims[k] > 1 for k, axis in enumerate(outer)):
                return True
    return False


def _is_operand(instruction: Instruction, group: _Group) -> bool:
    """Whether the group's root alone reads a value, perhaps in another shape."""
    reached = {instruction}
    for member in reversed(list(group.members)):  # operands first
        if any(o in reached for o in member.operands) and member is not group.root:
            if member.opcode != "reshape":
                return False
            reached.add(member)
    return True


def _is_short(reduction: Instruction) -> bool:
    """Its results are worth no threads of their own."""
    return reduction.operands[0].shape.elements <= _SHORT * _elements(reduction)


def _walks_across(outer: Instruction, inner: Instruction) -> bool:
    """Whether a reduction runs over other axes of an array than one inside it, whose results would be
    computed anew for each of its own."""
    if not isinstance(outer.op, Reduce) or not isinstance(inner.op, Reduce):
        return False
    return outer.operands[0].shape.dims == inner.operands[0].shape.dims and not (
        set(inner.op.dimensions) <= set(outer.op.dimensions)
    )


# -- apply


def apply(computation: Computation, plan: Plan) -> Computation:
    """The computation with the plan's groups as fusions; what only its own fusion reads is no output of it."""
    roots_of = {root: [root] for root in plan.groups} | {r: roots for roots in plan.together for r in roots}
    order = {i: k for k, i in enumerate(computation.instructions)}
    done: dict[Instruction, Instruction] = {}

    def members_of(roots: list[Instruction]) -> list[Instruction]:
        return sorted({m for r in roots for m in plan.groups[r]}, key=order.__getitem__)

    known: dict[Instruction, list[Instruction]] = {}  # by the first of the roots

    def needs(i: Instruction) -> Sequence[Instruction]:
        if i not in roots_of:
            return i.operands
        first = roots_of[i][0]
        if first not in known:
            members = members_of(roots_of[i])
            left_out = _written_in(members).union(members)
            known[first] = list(dict.fromkeys(o for m in members for o in m.operands if o not in left_out))
        return known[first]

    absorbed = {m for members in plan.groups.values() for m in members if m not in roots_of}
    needed = {computation.root}  # of the roots, those that somebody outside their fusion reads
    for i in computation.instructions:
        if i not in absorbed and i is roots_of.get(i, [i])[0]:
            needed.update(needs(i))
    for i in ordered([*computation.parameters, *computation.effects(), computation.root], needs, "fuse"):
        if i not in roots_of:
            done[i] = i.with_operands(done[o] for o in i.operands)
        elif i not in done:
            roots = [r for r in roots_of[i] if r in needed]
            done.update(zip(roots, _fusion(roots, members_of(roots_of[i]), done)))
    kept = [done[i] for i in computation.effects()]
    return Computation(
        computation.name, done[computation.root], [done[p] for p in computation.parameters], kept
    )


def _fusion(
    roots: list[Instruction], members: list[Instruction], done: dict[Instruction, Instruction]
) -> list[Instruction]:
    within: dict[Instruction, Instruction] = {}
    operands: list[Instruction] = []
    parameters: list[Instruction] = []
    written_in = _written_in(members)
    for member in members:
        for operand in member.operands:
            if operand in within:
                continue
            if operand in written_in:
                within[operand] = operand
                continue
            number = len(parameters)
            parameter = Instruction(Parameter(number, operand.shape), (), operand.shape, f"p{number}")
            within[operand] = parameter
            parameters.append(parameter)
            operands.append(done[operand])
        within[member] = member.with_operands(within[o] for o in member.operands)
    root = roots[-1]
    name = root.name or root.opcode
    if len(roots) == 1:
        body = Computation(f"fused_{name}", within[root], parameters)
        return [Instruction(Fusion(kind_of(members), body), tuple(operands), root.shape, name, root.metadata)]
    body = Computation(f"fused_{name}", make(Tuple(), *(within[r] for r in roots)), parameters)
    fusion = Instruction(
        Fusion(kind_of(members), body), tuple(operands), body.root.shape, name, root.metadata
    )
    return [make(GetTupleElement(k), fusion, name=r.name, metadata=r.metadata) for k, r in enumerate(roots)]


def kind_of(members: list[Instruction]) -> str:
    """kOutput: starts with a contraction; kRow: values are read again after a reduction of them; kInput: ends
    in a reduction; else kLoop."""
    if any(m.opcode in CONTRACTIONS for m in members):
        return "kOutput"
    reductions = [m for m in members if m.opcode in REDUCTIONS]
    if not reductions:
        return "kLoop"
    largest = max(next(iter(r.operands[0].shape.leaves())).elements for r in reductions)
    return "kRow" if members[-1].shape.is_array and members[-1].shape.elements >= largest else "kInput"
