"""CustomCall: a function of the user's."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from ...runtime.devices import custom_calls
from ...runtime.errors import ExecutionError
from ...runtime.run_context import ASSUMPTION_FAILED, CAPACITY_OVERFLOW
from ..ir.element_types import ElementType
from ..ir.module import Computation, Evaluate, Value
from ..ir.shape import Shape
from .op import Op, attribute, require

API_VERSIONS = (
    "API_VERSION_ORIGINAL",
    "API_VERSION_STATUS_RETURNING",
    "API_VERSION_STATUS_RETURNING_UNIFIED",
    "API_VERSION_TYPED_FFI",
)
FAIL_IF = "tfbridge.fail_if"
"""The target of a check: compiled code has it in itself, with nothing to register."""
INVALID_ARGUMENT = 3
"""The status of a run that a check has ended."""
BAIL_OUT_IF = "tfbridge.bail_out_if"
"""The target of a check of an assumption of the compiler: where it fails, the run ends and other code does the work."""
OVERFLOW_IF = "tfbridge.overflow_if"
"""The target of a check of a bound that was chosen when compiling: where it ends the run, a larger one is wanted."""
CHECKS = {FAIL_IF: INVALID_ARGUMENT, BAIL_OUT_IF: ASSUMPTION_FAILED, OVERFLOW_IF: CAPACITY_OVERFLOW}
"""The targets that are checks, with the status of a run that they end."""
FORMER_TARGETS = {"tfbridge.leave_if": BAIL_OUT_IF, "tfbridge.grow_if": OVERFLOW_IF}
"""Checks in HLO text of older versions."""


@dataclasses.dataclass(frozen=True)
class CustomCall(Op):
    """The results of the function that is registered as custom_call_target.

    A Python function gets and returns NumPy arrays; a C function gets pointers, as api_version says (see
    `runtime.custom_calls`). Without custom_call_has_side_effect the function must depend on its operands alone: the
    call may then be removed or shared. The target `tfbridge.fail_if` takes a pred and ends the run with the message in
    backend_config where it holds; so do `tfbridge.bail_out_if`, with a status that asks for other code, and
    `tfbridge.overflow_if`, with one that asks for larger bounds.
    custom_call_c1: the operands are arrays or tokens.
    custom_call_c2: the result is an array, or a tuple of arrays and tokens, not nested.
    custom_call_c3: api_version is a known one.
    custom_call_c5: backend_config, where it is a string, has known escapes only.
    custom_call_c4: a check takes one pred[], gives the empty tuple, and has a side effect.
    Source: operation semantics, CustomCall.
    """

    opcode: ClassVar[str] = "custom-call"
    shape: Shape = attribute("result_shape", "")
    custom_call_target: str = attribute("string", "custom_call_target")
    custom_call_has_side_effect: bool = attribute("bool", "custom_call_has_side_effect", default=False)
    api_version: str = attribute("word", "api_version", default="API_VERSION_ORIGINAL")
    operand_layout_constraints: str = attribute("raw", "operand_layout_constraints", default="")
    output_to_operand_aliasing: str = attribute("raw", "output_to_operand_aliasing", default="")
    called_computations: tuple[Computation, ...] = attribute(
        "computations", "called_computations", default=()
    )
    backend_config: str = attribute("raw", "backend_config", default="")

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """The shape given."""
        require(
            not any(o.is_tuple for o in operands),
            f"custom-call: operands are {', '.join(map(str, operands))}, arrays or tokens are wanted",
            "custom_call_c1",
        )
        require(
            not any(part.is_tuple for part in self.shape.tuple_shapes),
            f"custom-call: shape is {self.shape}, an array or a tuple of arrays is wanted",
            "custom_call_c2",
        )
        require(
            self.api_version in API_VERSIONS,
            f"custom-call: api_version is {self.api_version}, one of {', '.join(API_VERSIONS)} is wanted",
            "custom_call_c3",
        )
        try:
            self.opaque  # noqa: B018
        except UnicodeDecodeError as error:
            require(
                False, f"custom-call: backend_config has a wrong escape: {error.reason}", "custom_call_c5"
            )
        if self.is_check:
            require(
                list(operands) == [Shape(ElementType.PRED)]
                and self.shape == Shape.tuple([])
                and self.custom_call_has_side_effect,
                f"custom-call: {self.custom_call_target} has operands {', '.join(map(str, operands))} and shape "
                f"{self.shape}, a pred[], (), and a side effect are wanted",
                "custom_call_c4",
            )
        return self.shape.without_layout()

    def reference(self, *operands: Value, call: Evaluate | None = None) -> Value:
        """The registered function, or the check."""
        if self.is_check:
            if operands[0]:
                raise ExecutionError(
                    f"error {CHECKS[self.custom_call_target]}: {self.opaque.decode(errors='replace')}"
                )
            return ()
        leaves = [leaf for leaf in self.shape.leaves() if leaf.is_array]
        arrays = [np.ascontiguousarray(o).reshape(o.shape) for o in operands if not isinstance(o, tuple)]
        results = iter(
            custom_calls.call(
                self.custom_call_target,
                self.api_version,
                self.opaque,
                arrays,
                [(leaf.element_type.dtype, leaf.dims) for leaf in leaves],
                self.shape.is_tuple,
            )
        )
        if not self.shape.is_tuple:
            return next(results)
        return tuple(next(results) if part.is_array else () for part in self.shape.tuple_shapes)

    @property
    def is_check(self) -> bool:
        """Whether it ends the run when its operand holds."""
        return self.custom_call_target in CHECKS

    @property
    def has_side_effect(self) -> bool:  # type: ignore[override]
        """As the attribute says."""
        return self.custom_call_has_side_effect

    @property
    def opaque(self) -> bytes:
        """The bytes that backend_config spells, without the quotes of a string."""
        text = self.backend_config
        if text[:1] == '"':
            return text[1:-1].encode().decode("unicode_escape").encode("latin-1", "replace")
        return text.encode()
