"""The part of the builder that all operations stand on: handles, deferred errors, constants, applying an
op."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Sequence
from typing import Concatenate, ParamSpec, TypeAlias, TypeVar

import numpy as np

from ...runtime.sizes import Size, is_symbolic
from ..analysis.dynamic_dimension_inference import infer_shape
from ..errors import CompilerError, ShapeError
from ..ir.element_types import ElementType
from ..ir.literal import Literal
from ..ir.module import NO_METADATA, Computation, Instruction, Metadata
from ..ir.shape import Shape, check_size
from ..ops import Constant, Convert, Elementwise, Parameter, Reshape, SizeConstant
from ..ops.concatenate import Concatenate as ConcatenateOp
from ..ops.op import Op

Dims: TypeAlias = Sequence[int]
TypeName: TypeAlias = ElementType | str

_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_OURS = tuple(os.path.join(_PACKAGE, layer) + os.sep for layer in ("compiler", "bridge", "runtime"))

P = ParamSpec("P")
B = TypeVar("B", bound="BuilderCore")


class InvalidOperand(Exception):
    """An operand is the result of a call whose error was noted already."""


def _binary(opcode: str) -> Callable[[Operand, Operand], Operand]:
    """An operator of handles."""

    def apply(self: Operand, other: Operand) -> Operand:
        return self.builder.binary(opcode, self, other)

    return apply


class Operand:
    """The result of a builder method: the value of one instruction, for use as an argument of the same
    builder's methods.

    `instruction` is None when the call that made it failed; `build` raises that error.
    """

    __slots__ = ("builder", "instruction")

    def __init__(self, builder: BuilderCore, instruction: Instruction | None) -> None:
        self.builder = builder
        self.instruction = instruction

    @property
    def shape(self) -> Shape:
        """The value's shape. Raises: the builder's first error, when this handle is invalid."""
        return self.builder.get_shape(self)

    __add__, __sub__, __mul__ = _binary("add"), _binary("subtract"), _binary("multiply")
    __truediv__, __mod__, __pow__ = _binary("divide"), _binary("remainder"), _binary("power")
    __and__, __or__, __xor__ = _binary("and"), _binary("or"), _binary("xor")

    def __neg__(self) -> Operand:
        return self.builder.apply(Elementwise("negate"), self)

    def __repr__(self) -> str:
        return f"Operand({self.instruction!r})"


def operation(method: Callable[Concatenate[B, P], Operand]) -> Callable[Concatenate[B, P], Operand]:
    """A builder method whose compile errors are noted for `build` and whose result is then an invalid
    handle."""

    @functools.wraps(method)
    def noted(self: B, /, *arguments: P.args, **keywords: P.kwargs) -> Operand:
        try:
            return method(self, *arguments, **keywords)
        except InvalidOperand:
            return Operand(self, None)
        except CompilerError as error:
            self.note_error(error)
            return Operand(self, None)

    return noted


def caller() -> str:
    """`file:line, in function` of the nearest frame outside the compiler and its callers in the bridge."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OURS):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}, in {frame.f_code.co_name}"


class BuilderCore:
    """Instructions of one computation in the making."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.die_immediately_on_error = False
        self.parent: BuilderCore | None = None
        self._count = 0
        self._last: Instruction | None = None
        self._result: Operand | None = None
        self._parameters: dict[int, Instruction] = {}
        self._effects: list[Instruction] = []
        self._metadata: Metadata = NO_METADATA
        self._error: CompilerError | None = None
        self._error_at = ""

    def mark(self, metadata: Metadata) -> Metadata:
        """Sets the metadata of the following instructions. Returns the previous one."""
        before, self._metadata = self._metadata, metadata
        return before

    def note_error(self, error: CompilerError) -> None:
        """Stores the first error, with the source location of the builder call, for `build`.

        Raises: the error  when `die_immediately_on_error` is set.
        """
        if self._error is None:
            self._error, self._error_at = error, caller()
        if self.die_immediately_on_error:
            self.raise_error()

    def raise_error(self) -> None:
        """Raises the first error, if there is one."""
        if self._error is not None:
            raise type(self._error)(f"{self._error}\n  at {self._error_at}") from self._error

    def take(self, operand: Operand) -> Instruction:
        """The instruction of one of this builder's handles.

        Raises: ShapeError  the handle belongs to another builder. TypeError  it is no handle.
        """
        if not isinstance(operand, Operand):
            raise TypeError(f"expected an operand of builder {self.name!r}, got {type(operand).__name__}")
        if operand.builder is not self:
            raise ShapeError(
                f"{operand.instruction!r} belongs to builder {operand.builder.name!r}, "
                f"not to {self.name!r} (builder_c1)"
            )
        if operand.instruction is None:
            raise InvalidOperand
        return operand.instruction

    def shape_of(self, operand: Operand) -> Shape:
        """The shape of a valid handle, for use inside operations."""
        return self.take(operand).shape

    def computation(self, computation: Computation | None) -> Computation:
        """A computation given as an argument; None stands for one whose builder noted its error here."""
        if computation is None:
            if self._error is None:
                raise TypeError(f"expected a computation, got None, in builder {self.name!r}")
            raise InvalidOperand
        return computation

    def apply(self, op: Op, *operands: Operand) -> Operand:
        """Applies any op to handles: for ops without a method of their own.

        Raises: ShapeError  the op's own constraints (noted, not raised, inside an operation).
        """
        instructions = tuple(map(self.take, operands))
        shape = infer_shape(op, [i.shape for i in instructions])
        check_size(shape)
        return self._append(
            Instruction(
                op,
                instructions,
                shape,
                f"{op.opcode}.{self._count}",
                self._metadata,
            )
        )

    def _append(self, instruction: Instruction) -> Operand:
        self._count += 1
        self._last = instruction
        if instruction.has_side_effect:
            self._effects.append(instruction)
        return Operand(self, instruction)

    @operation
    def parameter(self, number: int, shape: Shape, name: str = "") -> Operand:
        """Argument `number` of the computation.

        Raises: ShapeError  parameter_c1: the number is negative or taken.
        """
        if number < 0 or number in self._parameters:
            raise ShapeError(
                f"parameter: number {number} is {'negative' if number < 0 else 'taken'} in computation "
                f"{self.name!r} (parameter_c1)"
            )
        check_size(shape)
        instruction = Instruction(
            Parameter(number, shape), (), shape, name or f"parameter.{number}", self._metadata
        )
        self._parameters[number] = instruction
        return self._append(instruction)

    @operation
    def constant_literal(self, literal: Literal) -> Operand:
        """A constant from a literal (an array or a tuple)."""
        return self.apply(Constant(literal))

    @operation
    def constant(self, value: object, element_type: TypeName | None = None) -> Operand:
        """A constant array.

        Without `element_type`, NumPy values keep theirs; Python's float is f32, int s32 (s64 when it does
        not fit), bool pred, complex c64.
        """
        sizes = np.asarray(value)
        if sizes.dtype == object and is_symbolic(sizes.flat):
            return self._sizes(sizes, ElementType(element_type or ElementType.S32))
        return self.apply(Constant(literal_of(value, element_type)))

    def _sizes(self, sizes: np.ndarray, element_type: ElementType) -> Operand:
        """An array of numbers; some are known at run time only."""
        scalars = [
            self._size(size, element_type)
            if isinstance(size, Size)
            else self.apply(Constant(Literal(size, element_type)))
            for size in sizes.flat
        ]
        if not sizes.shape:
            return scalars[0]
        vector = self.apply(ConcatenateOp(0), *(self.apply(Reshape((1,)), scalar) for scalar in scalars))
        return vector if sizes.ndim == 1 else self.apply(Reshape(sizes.shape), vector)

    def _size(self, size: Size, element_type: ElementType) -> Operand:
        """A number known at run time only."""
        if element_type.is_integer:
            return self.apply(SizeConstant(size, element_type))
        return self.apply(Convert(element_type), self.apply(SizeConstant(size, ElementType.S64)))

    def scalar_like(self, operand: Operand, value: float) -> Operand:
        """A scalar constant of the operand's element type."""
        return self.constant(value, self.shape_of(operand).element_type)

    def get_shape(self, operand: Operand) -> Shape:
        """The handle's shape.

        Raises: the builder's first error, when the handle is invalid.
        """
        try:
            return self.take(operand).shape
        except InvalidOperand:
            self.raise_error()
            raise

    def create_sub_builder(self: B, name: str) -> B:
        """A builder for a computation that this one's calls; `build_and_note_error` reports here."""
        builder = type(self)(name)
        builder.parent, builder.die_immediately_on_error = self, self.die_immediately_on_error
        return builder

    def set_return_value(self, operand: Operand) -> None:
        """Makes this operand the computation's value; the last instruction is, otherwise."""
        self._result = operand

    def build(self, root: Operand | None = None) -> Computation:
        """The finished computation, returning `root`, the set return value, or else the last instruction.

        Raises: ShapeError, UnsupportedError  the first error of any call, with its source location; build_c1: the
            parameters are not numbered 0, 1, ...; build_c2: there are no instructions.
        """
        self.raise_error()
        result = root or self._result
        instruction = self.take(result) if result is not None else self._last
        if instruction is None:
            raise ShapeError(f"build: computation {self.name!r} has no instructions (build_c2)")
        numbers = sorted(self._parameters)
        if numbers != list(range(len(numbers))):
            raise ShapeError(
                f"build: computation {self.name!r} has parameters {numbers}, which are not 0, 1, ... "
                "(build_c1)"
            )
        return Computation(self.name, instruction, [self._parameters[n] for n in numbers], self._effects)

    def build_and_note_error(self) -> Computation | None:
        """As `build`; but an error is noted in the builder that created this one, and None returned.

        The parent's methods take that None as an argument: their results are then invalid too.
        """
        if self.parent is None:
            raise TypeError(f"build_and_note_error: builder {self.name!r} was not made by create_sub_builder")
        if self._error is not None:
            if self.parent._error is None:
                self.parent._error, self.parent._error_at = self._error, self._error_at
            return None
        try:
            return self.build()
        except ShapeError as error:
            self.parent.note_error(error)
            return None

    def binary(
        self, opcode: str, lhs: Operand, rhs: Operand, broadcast_dimensions: Dims | None = None
    ) -> Operand:
        """An elementwise op of two operands, with the broadcasting that the operations' own methods do."""
        raise NotImplementedError


_PYTHON_TYPES = {np.dtype(np.float64): ElementType.F32, np.dtype(np.complex128): ElementType.C64}


def literal_of(value: object, element_type: TypeName | None) -> Literal:
    """The literal of a Python or NumPy value."""
    if element_type is not None:
        return Literal(value, ElementType(element_type))
    if isinstance(value, (np.ndarray, np.generic)):
        return Literal(value)
    array = np.asarray(value)
    if array.dtype == np.int64:
        narrow = array.astype(np.int32)
        return Literal(narrow if (narrow == array).all() else array)
    return Literal(array, _PYTHON_TYPES.get(array.dtype))
