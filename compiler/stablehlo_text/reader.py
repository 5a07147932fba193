"""The operations of functions in MLIR text: generic form, `"stablehlo.add"(%0, %1) : ...`, and the form of most.

Regions are read without recursion: `stack` has the blocks that are open, and each knows what follows its brace.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable

from ..errors import CompilerError
from ..ir.shape import Shape
from ..limits import Limits
from .attributes import Attribute, AttributeReader, Symbol
from .operations import RETURNS, Function, Operation, Region

VALUE = re.compile(r"%([\w$.\-]+)(#\d+)?")
_RESULTS = re.compile(r"%([\w$.\-]+)(?::(\d{1,6}))?\s*")
NAME = re.compile(r"[A-Za-z_][\w$]*(?:\.[\w$]+)*")
GENERIC = re.compile(r'"([A-Za-z_][\w$.\-]*)"')
_WORD = re.compile(r"[A-Za-z_][\w$.]*")
LABEL = re.compile(r"\^[\w$.\-]+")
_LOCATION = re.compile(r"loc\s*(?=\()")
_REGION = re.compile(r"\(\s*(?=\{)")
DIALECTS = ("stablehlo.", "chlo.", "mhlo.", "func.", "sdy.")
_SAME = {
    "call": "func.call",
    "return": "func.return",
    "arith.constant": "stablehlo.constant",
    "sdy.constant": "stablehlo.constant",
}
"""Operations of other dialects, and short names, by the name that they are read as."""
_WITH_WORDS = frozenset({"stablehlo.compare"})
"""Operations of whose form words without a value are part."""
_WITHOUT_RESULTS = frozenset({"sdy.sharding_group", *RETURNS})
"""Operations whose one type, behind the colon, is that of operands."""


@dataclasses.dataclass
class Block:
    """A block that is open: its region, the operation that has it, the types and constants of its own values, and what
    is done behind its brace."""

    region: Region
    operation: Operation | None
    types: dict[str, Shape]
    constants: dict[str, Operation]
    close: Callable[[], object]


class OperationReader(AttributeReader):
    """Reads operations.

    Raises: ParseError, UnsupportedError, ShapeError, LimitError  with a position.
    """

    def __init__(self, text: str, limits: Limits) -> None:
        super().__init__(text, limits)
        self.function: Function | None = None  # the one that is read
        self.stack: list[Block] = []
        self.count = 0
        self.resources: dict[str, bytes] = {}
        self.meshes: dict[str, str] = {}
        self.aliases: dict[str, int] = {}

    # -- blocks
    def open_block(self, operation: Operation | None, region: Region, close: Callable[[], object]) -> None:
        """Begins a block behind its brace."""
        self.checked(
            lambda: self.limits.check(
                "nesting", len(self.stack), "regions in a region, one inside the other"
            ),
            self.at,
        )
        self.stack.append(Block(region, operation, dict(region.arguments), {}, close))

    def block_arguments(self, region: Region) -> None:
        """`^bb0(%arg0: type, ...):` of the block that was opened last, if it is there."""
        self.space()
        label = LABEL.match(self.text, self.at)
        if label is None:
            return
        self.at = label.end()
        if self.accept("("):
            region.arguments = self.arguments()
            self.stack[-1].types |= region.arguments
        self.take(":")

    def arguments(self) -> dict[str, Shape]:
        """`%a: type, %b: type)`."""
        arguments: dict[str, Shape] = {}
        while not self.accept(")"):
            if arguments:
                self.take(",")
            self.space()
            name = self.match(VALUE, "an argument like %arg0")[0]
            if name in arguments:
                self.fail(f"argument {name} is defined twice")
            self.take(":")
            arguments[name] = self.type()
            self.location()
        return arguments

    def block_by_block(self) -> None:
        """Reads operations until all blocks are closed."""
        while self.stack:
            if self.accept("}"):
                self.stack.pop().close()
                continue
            self.space()
            if self.text.startswith("^", self.at):
                self.unsupported("a region of several blocks is not compiled", self.at)
            self.operation()

    def operation(self) -> None:
        """One operation, or its beginning up to its first region."""
        operation = Operation("", self.at, self.results())
        self.space()
        self.count += 1
        self.checked(lambda: self.limits.check("instructions", self.count, "operations"), operation.at)
        if generic := GENERIC.match(self.text, self.at):
            self.at = generic.end()
            operation.name = _plain(_SAME.get(generic[1], generic[1]))
            self.generic(operation)
            return
        name = self.match(NAME, "an operation like stablehlo.add")[0]
        operation.name = _plain(_SAME.get(name, name))
        if not operation.name.startswith(DIALECTS):
            self.unsupported(f"operation {name} is not compiled", operation.at)
        form = self.form_of(operation.name)
        if form is None:
            self.components(operation)
        else:
            form(operation)

    def results(self) -> list[str]:
        """The names before `=`, if there are any."""
        self.space()
        names: list[str] = []
        if not self.text.startswith("%", self.at):
            return names
        while True:
            match = self.match(_RESULTS, "a result like %0")
            count = 1 if match[2] is None else int(match[2])
            self.checked(
                functools.partial(self.limits.check, "tuple_leaves", len(names) + count, "results"), self.at
            )
            names += [f"%{match[1]}"] if match[2] is None else [f"%{match[1]}#{k}" for k in range(count)]
            if self.accept("="):
                return names
            self.take(",")
            self.space()

    def form_of(self, name: str) -> Callable[[Operation], None] | None:
        """What reads the rest of an operation whose form is not that of most."""
        return None

    # -- forms
    def generic(self, operation: Operation) -> None:
        """The rest of an operation in generic form."""
        self.take("(")
        self.operands(operation, ")")
        if self.peek("["):
            self.unsupported(f"{operation.name}: successors are not compiled", operation.at)
        operation.attributes = self.properties()
        if self.accept("("):
            self.next_region(operation, lambda: self.generic_end(operation), "{")
        else:
            self.generic_end(operation)

    def next_region(self, operation: Operation, end: Callable[[], None], brace: str) -> None:
        """Begins a region of an operation in generic form; `end` follows the last one."""
        self.take(brace)

        def close() -> None:
            if self.accept(","):
                self.next_region(operation, end, "{")
            else:
                self.take(")")
                end()

        region = Region()
        operation.regions.append(region)
        self.open_block(operation, region, close)
        self.block_arguments(region)

    def generic_end(self, operation: Operation) -> None:
        """Attributes and types of an operation in generic form."""
        if self.peek("{"):
            operation.attributes |= self.dictionary()
        self.take(":")
        kind = self.function_type()
        operation.operand_types, operation.types = kind.operands, kind.results
        self.end(operation)

    def properties(self) -> dict[str, Attribute]:
        """`<{name = value}>`, if it is there."""
        if not self.accept("<"):
            return {}
        properties = self.dictionary()
        self.take(">")
        return properties

    def operands(self, operation: Operation, end: str) -> None:
        """Values up to a closing bracket, which is passed over."""
        while not self.accept(end):
            if operation.operands:
                self.take(",")
            self.space()
            operation.operands.append(self.value_name(self.match(VALUE, "a value like %0")))

    @staticmethod
    def value_name(match: re.Match[str]) -> str:
        """`%0` or `%0#1`."""
        return match[0]

    def components(self, operation: Operation) -> None:
        """The rest of an operation whose form is a list of values, words, and names with values: that of most."""
        if operation.name in RETURNS and not self.peek("%") and not self.peek("{"):
            self.end(operation)
            return
        while not self.accept(":"):
            if region := _REGION.match(self.text, self.at):
                self.at = region.end()
                self.next_region(operation, lambda: self.components(operation), "{")
                return
            self.component(operation)
            if operation.name == "stablehlo.optimization_barrier" and self.text.endswith("()", 0, self.at):
                self.end(operation)  # of nothing: no types follow
                return
        self.type_of(operation)
        self.end(operation)

    def component(self, operation: Operation) -> None:
        """One of the parts before the colon."""
        self.space()
        start = self.at
        character = self.text[start : start + 1]
        if character == "%":
            operation.operands.append(self.value_name(self.match(VALUE, "a value like %0")))
        elif character in (",", "(", ")") and character:
            self.at += 1
        elif character == "{":
            operation.attributes |= self.dictionary()
        elif character == "@":
            symbol = self.attribute()
            operation.attributes["callee" if isinstance(symbol, Symbol) else "symbol"] = symbol
        elif character == "[":
            operation.attributes["brackets"] = self.brackets()
        elif character == "<":
            self.skip_brackets(start)
        elif character == '"':
            operation.attributes["string"] = self.attribute()
        elif word := _WORD.match(self.text, start):
            self.at = word.end()
            if self.accept("="):
                operation.attributes[word[0]] = self.attribute()
            elif operation.name in _WITH_WORDS:
                operation.words.append(word[0])
            else:
                self.unsupported(f"{operation.name}: what the word {word[0]} says is not read", start)
        else:
            self.expected(f"what {operation.name} goes on with, or `:` and types")

    def type_of(self, operation: Operation) -> None:
        """The types behind the colon: of all results, or of one that has the type of the last."""
        kind = self.function_type()
        operation.operand_types, operation.types = kind.operands, kind.results
        if kind.operands is None:
            if operation.name in _WITHOUT_RESULTS:
                operation.operand_types, operation.types = kind.results, ()
            elif len(operation.results) != len(kind.results):
                operation.types = kind.results[-1:]

    def end(self, operation: Operation) -> None:
        """Adds an operation, which is complete, to the block that is open."""
        operation.location = self.location()
        at = operation.at
        if operation.results and len(operation.results) != len(operation.types):
            self.fail(
                f"{operation.name}: {len(operation.results)} results are named, it has {len(operation.types)}",
                at,
            )
        block = self.stack[-1]
        for name in operation.operands:
            self.use(name, at)
        if operation.operand_types is not None and len(operation.operand_types) != len(operation.operands):
            self.fail(
                f"{operation.name}: {len(operation.operands)} operands, {len(operation.operand_types)} types of "
                "operands",
                at,
            )
        for name, shape in zip(operation.results, operation.types):
            if name in block.types:
                self.fail(f"value {name} is defined twice", at)
            block.types[name] = shape
        if operation.name == "stablehlo.constant" and operation.results:
            block.constants[operation.results[0]] = operation
        block.region.operations.append(operation)
        assert self.function is not None
        if operation.regions:
            self.function.inner.append(operation)
        callee = operation.attributes.get(
            "decomposition" if operation.name.endswith("composite") else "callee"
        )
        if isinstance(callee, Symbol) and not operation.name.endswith("custom_call"):
            self.function.calls.append(callee.name)
        called = operation.attributes.get("called_computations")
        if isinstance(called, list):
            self.function.calls += [symbol.name for symbol in called if isinstance(symbol, Symbol)]

    def use(self, name: str, at: int) -> None:
        """Notes that the block that is open uses a value, which one around it may define."""
        for depth in range(len(self.stack) - 1, -1, -1):
            block = self.stack[depth]
            if name in block.types:
                for inner in self.stack[depth + 1 :]:
                    inner.region.captures[name] = block.types[name]
                    if name in block.constants:
                        inner.region.constants[name] = block.constants[name]
                return
        self.fail(f"value {name} is not defined before", at)

    # -- small things
    def peek(self, token: str) -> bool:
        """Whether a token follows."""
        self.space()
        return self.text.startswith(token, self.at)

    def location(self) -> str:
        """The text in `loc(...)`, if it is there."""
        at = self.at
        self.space()
        match = _LOCATION.match(self.text, self.at)
        if match is None:
            self.at = at
            return ""
        start = self.at = match.end()
        self.parenthesized(start)
        return self.text[start + 1 : self.at - 1]

    def placed_at(self, error: CompilerError, at: int) -> CompilerError:
        """The error with a position, and without the lines behind the first, which say where a builder was called."""
        if error.line:
            return error
        message = str(error).splitlines()[0] if str(error) else ""
        plain = type(error)(message) if not isinstance(error, CompilerError) else error
        plain.args = (message,)
        return self.placed(plain, at)


def _plain(name: str) -> str:
    """The name of an operation, in the dialect that took the older one's place."""
    return "stablehlo." + name.removeprefix("mhlo.") if name.startswith("mhlo.") else name
