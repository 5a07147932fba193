"""Operations whose short form is their own: constants, loops and reductions, which have regions in it."""

from __future__ import annotations

import re
from collections.abc import Callable

from ..ir.shape import Shape
from .attributes import Dense, Dialect
from .operations import Operation, Region
from .reader import VALUE, OperationReader

_NAME = re.compile(r"[a-z_]+\.[a-z_0-9]+")


class ShortFormReader(OperationReader):
    """Reads operations in all forms."""

    def form_of(self, name: str) -> Callable[[Operation], None] | None:
        """The method that reads the rest of an operation of this name."""
        return {
            "stablehlo.constant": self.constant,
            "stablehlo.while": self.loop,
            "stablehlo.reduce": self.reduction,
            "chlo.scan": self.scan,
            "sdy.manual_computation": self.of_several_devices,
            "sdy.named_computation": self.of_several_devices,
        }.get(name)

    def of_several_devices(self, operation: Operation) -> None:
        """Raises: UnsupportedError."""
        self.unsupported(
            f"{operation.name} is not compiled: it is a program that is not yet divided among devices",
            operation.at,
        )

    def constant(self, operation: Operation) -> None:
        """`dense<...> : type`, behind attributes."""
        if self.peek("{"):
            operation.attributes = self.dictionary()
        self.space()
        start = self.at
        value = self.attribute()
        if isinstance(value, Dialect | float | int):
            self.unsupported(f"{operation.name}: a constant is read as dense<...> : tensor<...>", start)
        if not isinstance(value, Dense):
            self.fail("expected a constant like dense<1> : tensor<2xi32>", start)
        operation.attributes["value"] = value
        operation.types = (value.shape,)
        self.end(operation)

    def loop(self, operation: Operation) -> None:
        """`(%a = %0, %b = %1) : types cond { ... } do { ... }`."""
        names: list[str] = []
        self.take("(")
        while not self.accept(")"):
            if names:
                self.take(",")
            self.space()
            names.append(self.match(VALUE, "an argument like %iterArg")[0])
            self.take("=")
            self.space()
            operation.operands.append(self.match(VALUE, "a value like %0")[0])
        self.take(":")
        types = self.function_type()
        operation.types = types.results
        operation.operand_types = types.results if types.operands is None else types.operands
        if len(operation.operand_types) != len(names) or len(set(names)) != len(names):
            self.fail(f"{len(names)} values, {len(operation.operand_types)} types in a while", operation.at)
        if self.accept("attributes"):
            operation.attributes = self.dictionary()
        arguments = dict(zip(names, operation.operand_types))
        self.region_behind("cond", operation, arguments, lambda: self.loop_body(operation, arguments))

    def loop_body(self, operation: Operation, arguments: dict[str, Shape]) -> None:
        """`do { ... }`."""
        self.region_behind("do", operation, arguments, lambda: self.end(operation))

    def region_behind(
        self, word: str, operation: Operation, arguments: dict[str, Shape], close: Callable[[], None]
    ) -> None:
        """Begins a region that stands behind a word."""
        if word:
            self.take(word)
        self.take("{")
        region = Region(dict(arguments))
        operation.regions.append(region)
        self.open_block(operation, region, close)

    def reduction(self, operation: Operation) -> None:
        """`(%0 init: %1), (%2 init: %3) applies stablehlo.add across dimensions = [1] : types`, or without `applies`
        and with `reducer(%a: type, %b: type) (...) { ... }` behind the types."""
        initial: list[str] = []
        while self.accept("("):
            self.space()
            operation.operands.append(self.match(VALUE, "a value like %0")[0])
            self.take("init:")
            self.space()
            initial.append(self.match(VALUE, "a value like %0")[0])
            self.take(")")
            self.accept(",")
        operation.operands += initial
        if self.accept("applies"):
            self.space()
            operation.attributes["applies"] = self.match(_NAME, "an operation like stablehlo.add")[0]
        self.take("across")
        self.take("dimensions")
        self.take("=")
        operation.attributes["dimensions"] = self.attribute()
        if self.peek("{"):
            operation.attributes |= self.dictionary()
        self.take(":")
        types = self.function_type()
        operation.operand_types, operation.types = types.operands, types.results
        if operation.has("applies"):
            self.end(operation)
            return
        self.take("reducer")
        pairs: list[tuple[tuple[str, Shape], ...]] = []
        while self.accept("("):
            pairs.append(tuple(self.arguments().items()))
        if any(len(pair) != 2 for pair in pairs):
            self.fail("expected two arguments of a reducer in each pair of parentheses", operation.at)
        arguments = dict([*(pair[0] for pair in pairs), *(pair[1] for pair in pairs)])
        if len(arguments) != 2 * len(pairs):
            self.fail("an argument of a reducer is defined twice", operation.at)
        self.region_behind("", operation, arguments, lambda: self.end(operation))

    def scan(self, operation: Operation) -> None:
        """`(%0, %1) inits (%2) dimension = 0 attributes {...} {` and a region, then types."""
        self.take("(")
        self.operands(operation, ")")
        count = len(operation.operands)
        self.take("inits")
        self.take("(")
        initial = Operation(operation.name, operation.at)
        self.operands(initial, ")")
        operation.operands += initial.operands
        self.take("dimension")
        self.take("=")
        operation.attributes["dimension"] = self.attribute()
        if self.accept("attributes"):
            operation.attributes |= self.dictionary()
        operation.attributes["operandSegmentSizes"] = [count, len(initial.operands)]

        def close() -> None:
            self.take(":")
            self.type_of(operation)
            self.end(operation)

        self.region_behind("", operation, {}, close)
        self.block_arguments(operation.regions[-1])
