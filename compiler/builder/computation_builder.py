"""ComputationBuilder: writes a computation of the IR, one method call an instruction.

    b = ComputationBuilder("axpy")
    a = b.parameter(0, array("f32"), "a")
    x = b.parameter(1, array("f32", 8), "x")
    y = b.parameter(2, array("f32", 8), "y")
    computation = b.build(b.add(b.mul(a, x), y))

Methods have the names (in snake_case) and argument orders of XLA's operation semantics; they live by family
in building/. Nothing is promoted or broadcast silently but scalars; an error is kept and raised by `build`.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

from ..errors import ShapeError
from ..evaluator.evaluate import evaluate
from ..ir.layout import Layout
from ..ir.literal import Literal
from ..ir.module import Computation, topological
from ..ir.shape import Shape
from ..ops import Broadcast, Parameter, PartitionId, ReplicaId
from .contractions import create_conv_dimension_numbers, create_default_conv_dimension_numbers
from .core import Operand, TypeName, operation
from .expanded import ExpandedOperations
from .xla_aliases import with_document_names

__all__ = ["ComputationBuilder", "Operand"]


@with_document_names
class ComputationBuilder(ExpandedOperations):
    """Builds one computation. `client` is a reference for users of the builder; building does not need it.

    Every method has its name in the documents too: `b.ConvertElementType` is `b.convert_element_type`.

    A call of a method adds an instruction and returns a handle of its value, an `Operand`.

    >>> import numpy as np
    >>> from tfbridge.compiler import ComputationBuilder, LocalClient, array
    >>> b = ComputationBuilder("axpy")
    >>> a, x = b.parameter(0, array("f32"), "a"), b.parameter(1, array("f32", 3), "x")
    >>> computation = b.build(b.add(b.mul(a, x), b.constant(np.float32(1))))
    >>> LocalClient().compile(computation).execute([np.float32(2), np.float32([1, 2, 3])])
    [array([3., 5., 7.], dtype=float32)]

    Shapes: operands of an elementwise operation have the same dims, or one is a scalar, or `broadcast_dimensions` says
        which axes of the larger one the smaller one has; nothing else is broadcast, and no type is converted.
    Raises (from `build`): the first error of any call, with that call's file and line: ShapeError  an op's numbered
        constraint is broken, `pad_c2`; UnsupportedError  an element type that ml_dtypes does not have.
    """

    def __init__(self, name: str, client: object | None = None) -> None:
        super().__init__(name)
        self.client = client

    create_default_conv_dimension_numbers = staticmethod(create_default_conv_dimension_numbers)
    create_conv_dimension_numbers = staticmethod(create_conv_dimension_numbers)

    def constant_r0(self, value: object, element_type: TypeName | None = None) -> Operand:
        """A scalar constant. Raises: ShapeError (from build)  constant_c1: the value's rank is not 0."""
        return self._constant_of_rank(0, value, element_type)

    @operation
    def constant_r1(
        self, value: object, element_type: TypeName | None = None, *, length: int | None = None
    ) -> Operand:
        """A vector constant; with `length`, that many times one value.

        Shapes: [n].
        """
        if length is not None:
            return self.apply(Broadcast((length,), ()), self.constant(value, element_type))
        return self._constant_of_rank(1, value, element_type)

    def constant_r2(self, value: object, element_type: TypeName | None = None) -> Operand:
        """A constant of rank 2. Raises: ShapeError (from build)  constant_c1: another rank."""
        return self._constant_of_rank(2, value, element_type)

    def constant_r3(self, value: object, element_type: TypeName | None = None) -> Operand:
        """A constant of rank 3. Raises: ShapeError (from build)  constant_c1: another rank."""
        return self._constant_of_rank(3, value, element_type)

    def constant_r4(self, value: object, element_type: TypeName | None = None) -> Operand:
        """A constant of rank 4. Raises: ShapeError (from build)  constant_c1: another rank."""
        return self._constant_of_rank(4, value, element_type)

    constant_r2_from_array2d, constant_r3_from_array3d = constant_r2, constant_r3
    constant_r4_from_array4d = constant_r4

    @operation
    def _constant_of_rank(self, rank: int, value: object, element_type: TypeName | None) -> Operand:
        constant = self.constant(value, element_type)
        if self.shape_of(constant).rank != rank:
            raise ShapeError(
                f"constant_r{rank}: the value has rank {self.shape_of(constant).rank} (constant_c1)"
            )
        return constant

    @operation
    def zeros(self, shape: Shape) -> Operand:
        """An array of zeros."""
        scalar = self.constant(0, shape.element_type)
        return self.apply(Broadcast(shape.dims, ()), scalar) if shape.dims else scalar

    @operation
    def check_shape(self, operand: Operand, expected_shape: Shape) -> Operand:
        """The operand, if it has this shape.

        Raises: ShapeError  check_shape_c1: another shape.
        """
        if not self.shape_of(operand).compatible(expected_shape):
            raise ShapeError(
                f"check_shape: {self.shape_of(operand)} is not {expected_shape} (check_shape_c1)"
            )
        return operand

    @operation
    def check_same_shape(self, lhs: Operand, rhs: Operand) -> Operand:
        """The first operand, if both have the same shape. Raises: ShapeError  check_shape_c2: they have
        not."""
        if not self.shape_of(lhs).compatible(self.shape_of(rhs)):
            raise ShapeError(
                f"check_same_shape: {self.shape_of(lhs)} is not {self.shape_of(rhs)} (check_shape_c2)"
            )
        return lhs

    def is_constant(self, operand: Operand) -> bool:
        """Whether the value depends on no parameter and no side effect."""
        return all(
            not isinstance(i.op, (Parameter, PartitionId, ReplicaId)) and not i.has_side_effect
            for i in topological([self.take(operand)])
        )

    def compute_constant(self, operand: Operand, output_layout: Layout | None = None) -> Any:
        """The value of an operand that depends on constants alone, a literal; with `output_layout`, the linear memory
        of an array in it.

        Raises: ShapeError  constant_c2: it depends on a parameter or a side effect.
        """
        self.raise_error()
        if not self.is_constant(operand):
            raise ShapeError(f"compute_constant: {operand!r} is not a compile-time constant (constant_c2)")
        value = _literal(evaluate(Computation(self.name, self.take(operand), ()), ()))
        return value if output_layout is None else output_layout.pack(value.array)

    def create_sub_builder(self, name: str) -> ComputationBuilder:
        """A builder for a computation that this one's calls; `build_and_note_error` reports here."""
        builder = super().create_sub_builder(name)
        builder.client = self.client
        return builder

    def set_die_immediately_on_error(self, enabled: bool) -> None:
        """Errors are raised at once, instead of by `build`."""
        self.die_immediately_on_error = enabled

    @contextlib.contextmanager
    def metadata(self, **fields: Any) -> Iterator[None]:
        """Instructions made inside carry these fields of Metadata (op_type, op_name, source_file,
        source_line)."""
        before = self.mark(dataclasses.replace(self._metadata, **fields))
        try:
            yield
        finally:
            self.mark(before)


def _literal(value: object) -> Literal:
    return Literal.tuple(map(_literal, value)) if isinstance(value, (tuple, list)) else Literal(value)
