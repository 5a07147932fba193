"""The structs of structs.py as native code reads them: fields by name."""

from __future__ import annotations

import ctypes

from ....runtime.llvm.ir_builder import Index, Int, Ptr, VectorValue
from ....runtime.llvm.struct_layout import Struct
from ....runtime.run_context import Recorder, RunContext
from .. import structs

_TYPES = {ctypes.c_void_p: "ptr", ctypes.c_int64: "i64", ctypes.c_uint64: "i64", ctypes.c_int32: "i32"}


def layout_of(struct: type[ctypes.Structure]) -> Struct:
    """The fields of a ctypes structure. One that is an array or a structure itself has the type of its address."""
    fields = {field[0]: field[1] for field in struct._fields_}
    return Struct(
        {name: (getattr(struct, name).offset, _TYPES.get(type_, "ptr")) for name, type_ in fields.items()}
    )


OUTPUT = layout_of(structs.Output)
ENTRY = layout_of(structs.CacheEntry)
STATE = layout_of(structs.LaunchState)
PACKING = layout_of(structs.Packing)
PACKED_SET = layout_of(structs.PackedSet)
RUN_CONTEXT = layout_of(RunContext)
RECORDER = layout_of(Recorder)


def output_row(outputs: Ptr, number: Int) -> Ptr:
    """The address of an Output in the table of an entry."""
    return outputs + number * ctypes.sizeof(structs.Output)


def is_variable(state: Ptr, number: Index) -> VectorValue:
    """Whether an input of a launch is a variable."""
    return STATE.field(state, "kinds").load_ptr().at(number).load("i8").differs(0)
