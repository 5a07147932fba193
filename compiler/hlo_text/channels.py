"""How collectives and transfers say, in HLO text, who takes part: modes, roots, and channels that are left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..errors import ShapeError, UnsupportedError
from ..ir.module import Instruction
from ..ops import CollectiveBroadcast, CollectivePermute, Recv, RecvDone, Send, SendDone
from ..ops.collectives import Collective
from ..ops.op import Op
from .scanner import Malformed

_MODES: Mapping[str, tuple[bool, bool | None]] = {
    "cross_replica": (False, False),
    "cross_partition": (True, None),
    "cross_replica_and_partition": (True, False),
    "flattened_id": (True, True),
}
"""Whether the mode is that of a channel, and of ids of devices; None: of ops that have no ids of devices."""


def extra_attributes(cls: type[Op]) -> frozenset[str]:
    """Attributes that `complete` reads, and the op has not."""
    names: set[str] = set()
    if issubclass(cls, Collective):
        names.add("mode")
    if issubclass(cls, CollectiveBroadcast):
        names.add("has_dynamic_root")
    if issubclass(cls, CollectivePermute):
        names.add("slice_sizes")
    return frozenset(names)


def complete(cls: type[Op], opcode: str, texts: dict[str, str], operands: Sequence[Instruction]) -> None:
    """Replaces such attributes by the op's own.

    Raises: Malformed, ShapeError, UnsupportedError.
    """
    if issubclass(cls, Collective):
        _complete_collective(cls, opcode, texts)
    if "channel_id" in texts or not issubclass(cls, Send | SendDone | Recv | RecvDone):
        return
    if issubclass(cls, RecvDone) and len(operands) == 1 and isinstance(operands[0].op, Recv):
        texts["channel_id"] = str(operands[0].op.channel_id)
    elif not issubclass(cls, SendDone):
        raise UnsupportedError(
            f"{opcode} without a channel_id is not compiled: it does not say with which other one it goes"
        )


def _complete_collective(cls: type[Collective], opcode: str, texts: dict[str, str]) -> None:
    if texts.pop("slice_sizes", "{}") not in ("{}", ""):
        raise UnsupportedError(f"{opcode} of slices, with slice_sizes, is not compiled")
    if texts.pop("has_dynamic_root", "false") != "false":
        raise UnsupportedError(f"{opcode} from a root that is an operand is not compiled")
    mode = texts.pop("mode", None)
    if mode is None:
        return
    if mode not in _MODES:
        raise Malformed(f"expected one of {', '.join(_MODES)} as mode=, got {mode:.60}")
    has_channel, by_devices = _MODES[mode]
    if (
        by_devices is None
        and not cls.of_partitions
        or cls.of_partitions
        and has_channel
        and by_devices is not None
    ):
        raise UnsupportedError(f"{opcode} with mode={mode} is not compiled: this op has no such groups")
    in_text = "channel_id" in texts, texts.get("use_global_device_ids") == "true"
    if in_text not in ((False, False), (has_channel, bool(by_devices))):
        raise ShapeError(f"{opcode}: mode={mode} is not what channel_id and use_global_device_ids say")
    if has_channel:
        texts.setdefault("channel_id", "1")
    if by_devices:
        texts["use_global_device_ids"] = "true"
