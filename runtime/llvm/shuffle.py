"""Lanes in another order."""

from __future__ import annotations

from collections.abc import Sequence

from .ir_builder import Function, Value, split_vector, vector_type


def shuffled(f: Function, a: Value, b: Value | None, order: Sequence[int]) -> Value:
    """Lanes of a and b, numbered through, in this order."""
    index = ", ".join(f"i32 {k}" for k in order)
    return f.op(
        vector_type(split_vector(a.type)[0], len(order)),
        f"shufflevector {a}, {a.type} {b.text if b else 'poison'}, <{len(order)} x i32> <{index}>",
    )


def transposed(f: Function, rows: list[Value]) -> list[Value]:
    """A square: as many vectors as each has lanes, a power of two; lane j of result i is lane i of row j."""
    size = len(rows)
    low = [k // 2 + size * (k % 2) for k in range(size)]
    high = [x + size // 2 for x in low]
    done = 1
    while done < size:
        rows = [
            shuffled(f, rows[k], rows[k + size // 2], order)
            for k in range(size // 2)
            for order in (low, high)
        ]
        done *= 2
    return rows
