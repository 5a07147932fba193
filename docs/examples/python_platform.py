"""A back end of one's own: modules become the source text of a Python function, which is compiled by Python.

A package makes it known to every client with an entry point in its pyproject.toml,

    [project.entry-points."tfbridge.platforms"]
    python = "my_package.python_platform:PythonPlatform"

and `LocalClient("python")` uses it from then on. A platform has a name, a number of devices, and `compile`, which gives
an object with `execute`. This one writes elementwise arithmetic as NumPy expressions, calls the meaning that every op
brings along (`reference`) for most others, and refuses loops. Before a platform sees a module the client has resolved
sizes known at run time only; the passes that any back end can use are one call away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from tfbridge.compiler import Computation, Instruction, Module, Options, Shape, UnsupportedError, run_pipeline
from tfbridge.compiler.evaluator.evaluator import apply_computation
from tfbridge.compiler.ops import Constant, GetTupleElement, Parameter, Tuple

EXPRESSIONS = {
    "add": "{} + {}",
    "subtract": "{} - {}",
    "multiply": "{} * {}",
    "negate": "-{}",
    "abs": "np.abs({})",
    "maximum": "np.maximum({}, {})",
    "minimum": "np.minimum({}, {})",
    "select": "np.where({}, {}, {})",
    "exponential": "np.exp({})",
    "tanh": "np.tanh({})",
    "sqrt": "np.sqrt({})",
}
"""Opcodes with an expression of their own, of float operands."""
REFUSED = frozenset({"while", "conditional", "infeed", "outfeed", "send", "recv", "custom-call"})


class PythonPlatform:
    """Runs modules as Python functions, on one device."""

    name = "python"
    device_count = 1

    def compile(self, module: Module, options: Options) -> CompiledSource:
        """The module as Python source.

        Raises: UnsupportedError  it has a loop, a conditional, or talks to the world outside.
        """
        return CompiledSource(run_pipeline(module, options))


class CompiledSource:
    """A function made of source text; `source` shows it."""

    def __init__(self, module: Module) -> None:
        self.shapes = module.entry.parameter_shapes
        writer = _Writer()
        self.source = writer.function("entry", module.entry)
        names: dict[str, Any] = {"np": np, **writer.values}
        exec(compile(self.source, f"<{module.name}>", "exec"), names)
        self._entry: Callable[..., Any] = names["entry"]

    def execute(self, arguments: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Runs on flattened arguments; returns flattened results."""
        rest = iter(arguments)
        with np.errstate(all="ignore"):
            value = self._entry(*(_nested(shape, rest) for shape in self.shapes))
        return [np.array(leaf, order="C") for leaf in _flat(value)]


class _Writer:
    """Writes functions; what they use that has no text is in `values`."""

    def __init__(self) -> None:
        self.values: dict[str, object] = {}

    def function(self, name: str, computation: Computation) -> str:
        """The text of a computation."""
        names = {i: f"v{number}" for number, i in enumerate(computation.instructions)}
        parameters = ", ".join(names[p] for p in computation.parameters)
        lines = [f"def {name}({parameters}):"]
        for instruction in computation.instructions:
            if not isinstance(instruction.op, Parameter):
                operands = [names[o] for o in instruction.operands]
                value = self.expression(instruction, operands)
                lines.append(f"    {names[instruction]} = {value}  # {instruction.opcode}")
        return "\n".join([*lines, f"    return {names[computation.root]}", ""])

    def expression(self, instruction: Instruction, operands: list[str]) -> str:
        """The text of one instruction's value."""
        op = instruction.op
        if op.opcode in REFUSED:
            raise UnsupportedError(f"python: {op.opcode} {instruction.name} is not supported")
        if op.opcode in EXPRESSIONS and instruction.shape.element_type.value in ("f32", "f64"):
            return EXPRESSIONS[op.opcode].format(*operands)
        match op:
            case Tuple():
                return f"({''.join(o + ', ' for o in operands)})"
            case GetTupleElement():
                return f"{operands[0]}[{op.index}]"
            case Constant():
                return self.value(op.reference())
        call = ", call=_call" if next(op.called(), None) is not None else ""
        self.values["_call"] = _call
        return f"{self.value(op)}.reference({', '.join(operands)}{call})"

    def value(self, value: object) -> str:
        """A name for something that is no text."""
        name = f"c{len(self.values)}"
        self.values[name] = value
        return name


def _call(computation: Computation, *arguments: Any) -> Any:
    """What reductions and sorts do with their computations: the evaluator runs those."""
    return apply_computation(computation, *arguments)


def _nested(shape: Shape, leaves: Iterator[np.ndarray]) -> Any:
    return tuple(_nested(s, leaves) for s in shape.tuple_shapes) if shape.is_tuple else next(leaves)


def _flat(value: object) -> Iterator[np.ndarray]:
    if isinstance(value, tuple):
        for part in value:
            yield from _flat(part)
    else:
        yield value
