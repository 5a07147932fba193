"""Ops that move data between a program and its surroundings, and the tokens that order them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np

from ...runtime.devices.device import current
from ..ir.element_types import ElementType
from ..ir.module import Value
from ..ir.shape import TOKEN, Shape
from .op import Op, attribute, require

_REQUEST = Shape(ElementType.U32)


def _require_operands(
    opcode: str, operands: Sequence[Shape], required: Sequence[Shape | None], label: str
) -> None:
    """The check of the operands' shapes; None stands for any array, tuple of arrays or tuple of tuples of them.

    Raises: ShapeError  otherwise.
    """
    fits = len(operands) == len(required) and all(
        all(leaf.is_array for leaf in operand.leaves()) if shape is None else operand.compatible(shape)
        for operand, shape in zip(operands, required)
    )
    shown = ", ".join("data" if shape is None else str(shape) for shape in required) or "none"
    require(fits, f"{opcode}: operands are {', '.join(map(str, operands)) or 'none'}, {shown} wanted", label)


@dataclasses.dataclass(frozen=True)
class AfterAll(Op):
    """A token that comes after all the operands, tokens or values.

    Source: operation semantics, AfterAll.
    """

    opcode: ClassVar[str] = "after-all"

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """A token."""
        return TOKEN

    def reference(self, *operands: Value) -> Value:
        """A token has no value."""
        return ()


@dataclasses.dataclass(frozen=True)
class AddDependency(Op):
    """The first operand, once the token is there.

    add_dependency_c1: an operand of any shape, and a token.
    """

    opcode: ClassVar[str] = "add-dependency"

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """The first operand's."""
        require(
            len(operands) == 2 and operands[1] == TOKEN,
            f"add-dependency: operands are {', '.join(map(str, operands))}, any and token[] wanted",
            "add_dependency_c1",
        )
        return operands[0]

    def reference(self, operand: Value, token: Value) -> Value:
        """The operand."""
        return operand


@dataclasses.dataclass(frozen=True)
class Infeed(Op):
    """The next item of the device's infeed queue, and a token. No data (an empty tuple): nothing is taken.

    infeed_c1: one operand, a token.
    infeed_c2: the result is (data, token[]); data is an array or a tuple of arrays, not nested.
    Source: operation semantics, Infeed.
    """

    opcode: ClassVar[str] = "infeed"
    has_side_effect: ClassVar[bool] = True
    shape: Shape = attribute("result_shape", "")
    infeed_config: str = attribute("raw", "infeed_config", default="")

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """The shape given."""
        _require_operands(self.opcode, operands, [TOKEN], "infeed_c1")
        parts = self.shape.tuple_shapes
        require(
            len(parts) == 2
            and parts[1] == TOKEN
            and (parts[0].is_array or parts[0].is_tuple and all(p.is_array for p in parts[0].tuple_shapes)),
            f"infeed: shape is {self.shape}, (data, token[]) is wanted, data an array or a tuple of arrays",
            "infeed_c2",
        )
        return self.shape.without_layout()

    def reference(self, token: Value) -> Value:
        """From this thread's device."""
        data = self.shape.tuple_shapes[0]
        leaves = list(data.leaves())
        if not leaves:
            return (), ()
        arrays = current().infeed(self.opcode, [(leaf.element_type.dtype, leaf.dims) for leaf in leaves])
        return tuple(arrays) if data.is_tuple else arrays[0], ()


@dataclasses.dataclass(frozen=True)
class Outfeed(Op):
    """Puts data into the device's outfeed queue; returns a token.

    outfeed_c1: data (an array or a tuple of arrays) and a token.
    outfeed_c2: outfeed_shape, if given, is the shape of the data.
    Source: StableHLO specification, outfeed.
    """

    opcode: ClassVar[str] = "outfeed"
    has_side_effect: ClassVar[bool] = True
    outfeed_shape: Shape | None = attribute("shape", "outfeed_shape", default=None)
    outfeed_config: str = attribute("raw", "outfeed_config", default="")

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """A token."""
        _require_operands(self.opcode, operands, [None, TOKEN], "outfeed_c1")
        require(
            self.outfeed_shape is None or self.outfeed_shape.compatible(operands[0]),
            f"outfeed: outfeed_shape is {self.outfeed_shape}, the data is {operands[0]}",
            "outfeed_c2",
        )
        return TOKEN

    def reference(self, data: Value, token: Value) -> Value:
        """To this thread's device."""
        current().outfeed(list(_arrays(data)))
        return ()


@dataclasses.dataclass(frozen=True)
class Send(Op):
    """Sends data on a channel, without waiting; returns (data, request, token) for send-done.

    send_c1: data (an array or a tuple of arrays) and a token.
    send_c2: channel_id is at least 1.
    Source: operation semantics, Send.
    """

    opcode: ClassVar[str] = "send"
    has_side_effect: ClassVar[bool] = True
    channel_id: int = attribute("int", "channel_id")
    is_host_transfer: bool = attribute("bool", "is_host_transfer", default=False)

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """The context."""
        _require_operands(self.opcode, operands, [None, TOKEN], "send_c1")
        _require_channel(self.opcode, self.channel_id, "send_c2")
        return Shape.tuple([operands[0], _REQUEST, TOKEN])

    def reference(self, data: Value, token: Value) -> Value:
        """To the channel."""
        arrays = list(_arrays(data))
        current().send(self.channel_id, b"".join(a.tobytes() for a in arrays), described(arrays))
        return data, np.asarray(0, np.uint32), ()


@dataclasses.dataclass(frozen=True)
class SendDone(Op):
    """The token of a send that is done.

    send_done_c1: the operand is the result of a send: (data, u32[], token[]).
    Source: operation semantics, SendDone.
    """

    opcode: ClassVar[str] = "send-done"
    has_side_effect: ClassVar[bool] = True
    channel_id: int = attribute("int", "channel_id", default=0)
    is_host_transfer: bool = attribute("bool", "is_host_transfer", default=False)

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """A token."""
        _require_context(self.opcode, operands, "send_done_c1")
        return TOKEN

    def reference(self, context: Value) -> Value:
        """Nothing is left to do."""
        return ()


@dataclasses.dataclass(frozen=True)
class Recv(Op):
    """Makes ready to receive data of a shape on a channel; returns (data, request, token), which recv-done alone reads.

    recv_c1: one operand, a token.
    recv_c2: the result is (data, u32[], token[]).
    recv_c3: channel_id is at least 1.
    Source: operation semantics, Recv.
    """

    opcode: ClassVar[str] = "recv"
    has_side_effect: ClassVar[bool] = True
    shape: Shape = attribute("result_shape", "")
    channel_id: int = attribute("int", "channel_id")
    is_host_transfer: bool = attribute("bool", "is_host_transfer", default=False)

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """The shape given."""
        _require_operands(self.opcode, operands, [TOKEN], "recv_c1")
        _require_context(self.opcode, [self.shape], "recv_c2")
        _require_channel(self.opcode, self.channel_id, "recv_c3")
        return self.shape.without_layout()

    def reference(self, token: Value) -> Value:
        """Zeros."""
        return _zeros(self.shape)


@dataclasses.dataclass(frozen=True)
class RecvDone(Op):
    """Waits for the data of a recv: (data, token).

    recv_done_c1: the operand is the result of a recv: (data, u32[], token[]).
    recv_done_c2: channel_id is at least 1.
    Source: operation semantics, RecvDone.
    """

    opcode: ClassVar[str] = "recv-done"
    has_side_effect: ClassVar[bool] = True
    channel_id: int = attribute("int", "channel_id")
    is_host_transfer: bool = attribute("bool", "is_host_transfer", default=False)

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """The data and a token."""
        _require_context(self.opcode, operands, "recv_done_c1")
        _require_channel(self.opcode, self.channel_id, "recv_done_c2")
        return Shape.tuple([operands[0].tuple_shapes[0], TOKEN])

    def reference(self, context: Value) -> Value:
        """From the channel."""
        arrays = list(_arrays(context[0]))
        data = current().receive(self.channel_id, described(arrays))
        parts, at = [], 0
        for array in arrays:
            parts.append(np.frombuffer(data[at : at + array.nbytes], array.dtype).reshape(array.shape))
            at += array.nbytes
        rest = iter(parts)
        return _like(context[0], rest), ()


@dataclasses.dataclass(frozen=True)
class Trace(Op):
    """Hands the operand's value with a tag to the logger `tfbridge.trace`; returns nothing.

    trace_c1: one operand, an array.
    Source: the framework's preview, ComputationBuilder::Trace.
    """

    opcode: ClassVar[str] = "trace"
    has_side_effect: ClassVar[bool] = True
    tag: str = attribute("string", "tag", default="")

    def infer(self, operands: Sequence[Shape]) -> Shape:
        """The empty tuple."""
        require(
            len(operands) == 1 and operands[0].is_array,
            f"trace: operands are {', '.join(map(str, operands))}, one array is wanted",
            "trace_c1",
        )
        return Shape.tuple([])

    def reference(self, operand: np.ndarray) -> Value:
        """To the logger."""
        current().trace(self.tag, operand)
        return ()


def _require_channel(opcode: str, channel: int, label: str) -> None:
    require(channel >= 1, f"{opcode}: channel_id is {channel}, at least 1 is wanted", label)


def _require_context(opcode: str, shapes: Sequence[Shape], label: str) -> None:
    parts = shapes[0].tuple_shapes if len(shapes) == 1 else ()
    require(
        len(parts) == 3 and parts[1:] == (_REQUEST, TOKEN) and all(p.is_array for p in parts[0].leaves()),
        f"{opcode}: {', '.join(map(str, shapes)) or 'nothing'} given, (data, u32[], token[]) is wanted",
        label,
    )


def described(arrays: Sequence[np.ndarray]) -> str:
    """Types and dims, for the two ends of a channel to compare."""
    return ", ".join(f"{a.dtype}[{','.join(map(str, a.shape))}]" for a in arrays)


def _arrays(value: Value) -> Iterator[np.ndarray]:
    if isinstance(value, tuple):
        for part in value:
            yield from _arrays(part)
    else:
        yield value


def _zeros(shape: Shape) -> Value:
    if shape.is_tuple:
        return tuple(map(_zeros, shape.tuple_shapes))
    return np.zeros(shape.dims, shape.element_type.dtype) if shape.is_array else ()


def _like(value: Value, rest: Iterator[np.ndarray]) -> Value:
    return tuple(_like(part, rest) for part in value) if isinstance(value, tuple) else next(rest)
