"""Writes the entry of a program for sizes that the caller tells: it checks them, picks the variant that serves them,
computes the table of sizes that the variant's code reads, and calls it.

The run context's `sizes` are those of the caller when the entry is called, and again when it returns. The table lies at
the head of the temporary memory.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from ....runtime.llvm.ir_builder import DRIVER_ATTRIBUTES, Function, Int, ModuleText, Ptr, VectorValue
from ....runtime.run_context import OFFSETS, SIZES_REFUSED
from ....runtime.sizes import AnySize, Atom, Size
from ...ir.sized_module import SizedModule, SizeVariant
from .entry_emitter import ENTRY_PARAMETERS, return_with_message


def emit_sizes_entry(
    text: ModuleText, name: str, module: SizedModule, entries: Sequence[str], linkage: str = ""
) -> None:
    """Writes the function `name`, an entry like any other. `entries`: those of the variants; empty where nothing is to
    be done."""
    f = Function(text, name, ENTRY_PARAMETERS, "i32", DRIVER_ATTRIBUTES, linkage=linkage)
    address = f.pointer("context") + OFFSETS["sizes"]
    table = address.load_ptr()
    values = {size: (table + 8 * place).load_int() for size, place in module.places.items()}
    for size, value in values.items():
        with f.if_((value < 0) | (value > module.most[size])):
            return_with_message(f, f"{size} is not between 0 and {module.most[size]}".encode(), SIZES_REFUSED)
    for variant, entry in zip(module.variants, entries, strict=True):
        with f.if_(_is_served(f, variant, values, module.most)):
            _call(f, variant, entry, values, address, table)
    return_with_message(f, refusal(module).encode(), SIZES_REFUSED)
    text.add(name, f.text())


def refusal(module: SizedModule) -> str:
    """The message of a run with sizes that no variant serves."""
    lowest = [f"{name} >= 2" for name in module.places]
    conditions = (*lowest, *module.variants[0].conditions(module.most))
    return f"the program takes no such sizes; it takes {' and '.join(conditions)}"


def _is_served(
    f: Function, variant: SizeVariant, values: Mapping[str, Int], most: Mapping[str, int]
) -> VectorValue:
    """Whether a variant serves the sizes."""
    value_of = _Values(f, values)
    conditions = [values[name].equals(number) for name, number in variant.numbers.items()]
    for symbol in variant.symbolic.assumptions.symbols.values():
        (atom,) = symbol.atoms()
        conditions.append(values[atom.key] >= (atom.low or 0))
    for relation, size, outcome in variant.guards(most):
        value = value_of(size)
        if relation == "<":
            conditions.append(value < 0 if outcome else value >= 0)
        else:
            conditions.append(value.equals(0) if outcome else value.differs(0))
    return functools.reduce(lambda a, b: a & b, conditions)


def _call(
    f: Function, variant: SizeVariant, entry: str, values: Mapping[str, Int], address: Ptr, table: Ptr
) -> None:
    """Calls a variant with the sizes that its code reads, and returns its status."""
    if not entry:
        f.ret(f.constant("i32", 0))
        return
    temp, value_of = f.pointer("temp"), _Values(f, values)
    for number, size in enumerate(variant.symbolic.table):
        (temp + 8 * number).store(value_of(size))
    address.store(temp)
    arguments = [f.pointer("context"), f.pointer("args"), f.pointer("results"), temp + variant.table_bytes]
    status = f.call(entry, "i32", arguments)
    address.store(table)
    f.ret(status)


class _Values:
    """The values of sizes in a function: each operation is computed once."""

    def __init__(self, f: Function, symbols: Mapping[str, Int]) -> None:
        self._f, self._symbols = f, symbols
        self._atoms: dict[Atom, Int] = {}

    def __call__(self, size: AnySize) -> Int:
        total = self._f.i64(0)
        if not isinstance(size, Size):
            return self._f.i64(size)
        for monomial, coefficient in size.terms:
            total = total + functools.reduce(
                lambda product, atom: product * self._atom(atom), monomial, self._f.i64(coefficient)
            )
        return total

    def _atom(self, atom: Atom) -> Int:
        if not atom.operator:
            return self._symbols[atom.key]
        if atom not in self._atoms:
            a, b = map(self, atom.operands)
            self._atoms[atom] = a.maximum(b) if atom.operator == "max" else _rounded_down(a, b)
        return self._atoms[atom]


def _rounded_down(a: Int, b: Int) -> Int:
    """a // b; any number where b is 0, for which a guard says that the code does not serve such sizes."""
    divisor = b if b.number else b + Int.zero_extended(b.equals(0))
    quotient = a.signed_quotient(divisor)
    rest = a - quotient * divisor
    wrong = rest.differs(0) & ((rest ^ divisor) < 0)
    return quotient - Int.zero_extended(wrong)
