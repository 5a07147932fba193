"""StableHLO text read into a module: functions in an order in which callees come first, each with a builder."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..builder.computation_builder import ComputationBuilder, Operand
from ..errors import CompilerError, ShapeError, UnsupportedError
from ..hlo_text.computation_order import callees_first
from ..ir.expanded_size import ExpandedSize
from ..ir.module import NO_METADATA, Computation, InputOutputAlias, Metadata, Module
from ..ir.shape import Shape
from ..ir.verifier import verify
from ..limits import DEFAULT_LIMITS, Limits
from . import translate  # noqa: F401  fills TRANSLATIONS
from .functions import FunctionReader
from .operations import RETURNS, Function, Operation, Region
from .translate.arrays import constant
from .translation import TRANSLATIONS, Context

_SOURCE = re.compile(r'"((?:[^"\\]|\\.)*)":(\d{1,9}):\d+')
_NAME = re.compile(r'"((?:[^"\\]|\\.)*)"(?!\s*:\s*\d)')
_ALIAS = re.compile(r"#[\w$]+")
_LOOPS = frozenset({"stablehlo.while"})
_BRANCHES = frozenset({"stablehlo.if", "stablehlo.case"})


def parse_stablehlo(text: str, limits: Limits = DEFAULT_LIMITS) -> Module:
    """The module that StableHLO text spells, verified: what `jax.jit(f).lower(x).as_text()` prints.

    The entry is the function @main, or the one public function. Several results are a tuple.
    Every error has a position in the text: `line` and `column`.
    Raises: ParseError  malformed text. UnsupportedError  an operation, type or attribute that is not compiled, sizes
        that are not known. ShapeError  an operation breaks its constraints, or its type is not the inferred one.
        LimitError  more than the limits allow.
    """
    reader = FunctionReader(text, limits)
    try:
        reader.read()
        return _Translator(reader, limits).module()
    except CompilerError as error:
        raise reader.placed_at(error, reader.at) from None


def is_stablehlo(text: str) -> bool:
    """Whether a text looks like MLIR, and not like HLO text."""
    return (
        re.match(
            r'(?:\s|//[^\n]*|[#!][\w$]+ *= [^\n]*)*(?:(?:builtin\.)?module\b|func\b|"(?:builtin|func)\.|sdy\.)',
            text,
        )
        is not None
    )


class _Translator:
    def __init__(self, reader: FunctionReader, limits: Limits) -> None:
        self.reader = reader
        self.limits = limits
        self.functions: dict[str, Computation] = {}
        self.expanded_size = ExpandedSize(limits)
        self.of_regions: dict[Region, Computation] = {}
        self.captures: dict[Operation, list[str]] = {}

    def module(self) -> Module:
        """The module of all functions that the entry calls."""
        entry = self.entry()
        for function in self.needed(entry):
            if function.has_body:
                self.functions[function.name] = self.function(function)
        module = Module(self.reader.module_name, self.functions[entry.name], self.module_attributes())
        module.input_output_aliases = tuple(self.aliases(entry))
        return verify(module, self.limits)

    def entry(self) -> Function:
        """The function that is run. Raises: ParseError  there is none, or it is not clear which."""
        functions = self.reader.functions
        if "main" in functions:
            entries = [functions["main"]]
        else:
            entries = [f for f in functions.values() if f.is_public and f.has_body]
        if len(entries) != 1 or not entries[0].has_body:
            self.reader.fail(f"expected a function @main, or one public function, got {len(entries)}")
        return entries[0]

    def needed(self, entry: Function) -> list[Function]:
        """The entry and the functions that it calls, callees first. Raises: ParseError  one is not there, or calls
        itself."""
        functions = self.reader.functions
        try:
            order = list(callees_first([entry.name], {n: f.calls for n, f in functions.items()}))
        except RecursionError as error:
            self.reader.fail(f"function @{error} calls itself", functions[str(error)].at)
        for function in map(functions.__getitem__, order):
            if absent := [n for n in function.calls if n not in functions]:
                self.reader.fail(f"function @{absent[0]} is not defined", function.at)
        return [functions[name] for name in order]

    def module_attributes(self) -> dict[str, str]:
        """The number of replicas and partitions, where they are more than one."""
        names = {"mhlo.num_replicas": "replica_count", "mhlo.num_partitions": "num_partitions"}
        return {
            names[key]: str(value)
            for key, value in self.reader.module_attributes.items()
            if key in names and type(value) is int and value != 1
        }

    def aliases(self, entry: Function) -> list[InputOutputAlias]:
        """The arguments whose memory a result may take."""
        result: list[InputOutputAlias] = []
        count = len(entry.types)
        for number, attributes in enumerate(entry.argument_attributes):
            output = attributes.get("tf.aliasing_output")
            if type(output) is int and 0 <= output < count:
                result.append(InputOutputAlias((output,) if count != 1 else (), number))
        return result

    # -- computations
    def function(self, function: Function) -> Computation:
        """The computation of a function, and before it those of the regions in it."""
        for operation in function.inner:
            self.regions(operation)
        b = self.builder(function.name)
        try:
            values = {
                name: b.parameter(number, shape)
                for number, (name, shape) in enumerate(function.region.arguments.items())
            }
            results = self.block(b, function.region, values, function.at)
            self.check_types(function, [b.get_shape(r) for r in results], function.types, function.at)
            return self.built(b, results, function.at)
        except CompilerError as error:
            raise self.reader.placed_at(error, function.at) from None

    def check_types(
        self, what: Function | Operation, own: Sequence[Shape], declared: Sequence[Shape], at: int
    ) -> None:
        """Raises: ShapeError  values have other types than those that are declared."""
        if len(own) != len(declared) or not all(a.compatible(b) for a, b in zip(own, declared)):
            name = what.name if isinstance(what, Operation) else f"function @{what.name}"
            raise self.reader.placed_at(
                ShapeError(
                    f"{name} gives {Shape.tuple(own)}, it is declared with the types {Shape.tuple(declared)}"
                ),
                at,
            )

    @staticmethod
    def builder(name: str) -> ComputationBuilder:
        """A builder that raises at once."""
        b = ComputationBuilder(name)
        b.die_immediately_on_error = True
        return b

    def built(
        self, b: ComputationBuilder, results: Sequence[Operand], at: int, is_tuple: bool = False
    ) -> Computation:
        """The computation of one result, or of a tuple of them."""
        root = results[0] if len(results) == 1 and not is_tuple else b.tuple(results)
        computation = b.build(root)
        self.reader.checked(lambda: self.expanded_size.add(computation), at)
        return computation

    def regions(self, operation: Operation) -> None:
        """The computations of an operation's regions: of a loop and of branches with the values that they use of
        outside as a tuple, of others with scalars."""
        if operation.name in _LOOPS or operation.name in _BRANCHES:
            names = dict.fromkeys(n for r in operation.regions for n in r.captures if n not in r.constants)
            self.captures[operation] = list(names)
            shapes = {n: r.captures[n] for r in operation.regions for n in r.captures}
        else:
            self.captures[operation] = []
            shapes = {}
            for region in operation.regions:
                if outside := [n for n in region.captures if n not in region.constants]:
                    self.reader.unsupported(
                        f"{operation.name}: its region uses {outside[0]}, a value of outside that is no constant",
                        operation.at,
                    )
        for number, region in enumerate(operation.regions):
            name = f"{operation.name.partition('.')[2]}.{number}"
            b = self.builder(name)
            try:
                self.of_regions[region] = self.region(b, operation, region, shapes, number)
            except CompilerError as error:
                raise self.reader.placed_at(error, operation.at) from None

    def region(
        self,
        b: ComputationBuilder,
        operation: Operation,
        region: Region,
        shapes: dict[str, Shape],
        number: int,
    ) -> Computation:
        """The computation of one region."""
        arguments = dict(region.arguments)
        outside = self.captures[operation]
        state = {**arguments, **{n: shapes[n] for n in outside}}
        is_loop, is_branch = operation.name in _LOOPS, operation.name in _BRANCHES
        if is_branch or (is_loop and len(state) != 1):
            whole = b.parameter(0, Shape.tuple(list(state.values())))
            values = {n: b.get_tuple_element(whole, k) for k, n in enumerate(state)}
        else:
            values = {n: b.parameter(k, shape) for k, (n, shape) in enumerate(state.items())}
        carried = [values[n] for n in outside]
        for name, op in region.constants.items():
            values[name] = constant(b, op)
        results = self.block(b, region, values, operation.at)
        if is_loop and number == 1:
            self.check_types(
                operation, [b.get_shape(r) for r in results], list(arguments.values()), operation.at
            )
            return self.built(b, [*results, *carried], operation.at, len(state) != 1)
        return self.built(b, results, operation.at)

    def block(
        self, b: ComputationBuilder, region: Region, values: dict[str, Operand], at: int
    ) -> list[Operand]:
        """Writes a block's operations; returns what it returns."""
        last = region.operations[-1] if region.operations else None
        if last is None or last.name not in RETURNS:
            self.reader.fail("expected an operation at the end of the block that returns its values", at)
        for operation in region.operations[:-1]:
            if operation.name in RETURNS:
                self.reader.fail("a block returns its values in the middle", at)
            try:
                self.operation(b, operation, values)
            except CompilerError as error:
                raise self.reader.placed_at(error, operation.at) from None
        return [values[n] for n in last.operands]

    def operation(self, b: ComputationBuilder, operation: Operation, values: dict[str, Operand]) -> None:
        """Writes one operation."""
        translation = TRANSLATIONS.get(operation.name)
        if translation is None:
            raise UnsupportedError(f"operation {operation.name} is not compiled")
        operands = [values[n] for n in operation.operands]
        if operation.operand_types is not None:
            for name, operand, shape in zip(operation.operands, operands, operation.operand_types):
                if not b.get_shape(operand).compatible(shape):
                    raise ShapeError(
                        f"{operation.name}: operand {name} is {b.get_shape(operand)}, not {shape}"
                    )
        b.mark(self.metadata(operation.location) if operation.location else NO_METADATA)
        captured = [values[n] for n in self.captures.get(operation, ())]
        computations = [self.of_regions[r] for r in operation.regions]
        results = translation(Context(b, operation, operands, computations, captured, self.functions))
        listed = [results] if isinstance(results, Operand) else list(results)
        if operation.types or listed:
            self.check_types(operation, [b.get_shape(r) for r in listed], operation.types, operation.at)
        values.update(zip(operation.results, listed))

    def metadata(self, location: str) -> Metadata:
        """The name and the source line in a location, which may be an alias of another one."""
        name, source = "", None
        for _ in range(8):
            source = source or _SOURCE.search(location)
            label = _NAME.search(location)
            name = name or (label[1] if label else "")
            alias = _ALIAS.search(location)
            position = self.reader.aliases.get(alias[0]) if alias else None
            if source is not None or position is None:
                break
            end = self.reader.text.find("\n", position)
            location = self.reader.text[position : end if end >= 0 else None]
        return Metadata(
            op_name=name, source_file=source[1] if source else "", source_line=int(source[2]) if source else 0
        )
