"""The generated tables of docs/numerics.md: errors of functions, rules of fast maths.

`python -m tfbridge.compiler.cpu.codegen.accuracy_table` prints them.
"""

from __future__ import annotations

from ...passes.simplify import RULES
from .vector_math import ULP


def errors() -> str:
    """Markdown: the largest error of each function, in units in the last place of the exact result."""
    lines = ["| function | f32 | f64 |", "|---|---|---|"]
    for opcode in sorted({opcode for opcode, _ in ULP}):
        lines.append(f"| `{opcode}` | {ULP[opcode, 'f32']:g} | {ULP[opcode, 'f64']:g} |")
    return "\n".join(lines) + "\n"


def fast_rules() -> str:
    """Markdown: the rules that run with numerics="fast" only, with what each does."""
    lines = ["| rule | what it does |", "|---|---|"]
    for rule in RULES:
        if rule.fast_math:
            lines.append(f"| `{rule.name}` | {(rule.apply.__doc__ or '').strip().splitlines()[0]} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(errors(), fast_rules(), sep="\n", end="")
