"""LLVM IR text to a relocatable object, for any target, by as many threads at once as ask for it.

llvmlite holds one lock for the process while LLVM works. The same C functions are called here through a handle of our
own, without that lock: a context and a target machine for each call are all that LLVM asks for.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import struct
import tempfile
import types
from collections.abc import Iterator

import llvmlite.binding as llvm

from ....runtime.llvm.ir_builder import is_driver_code
from ....runtime.llvm.target import Target
from ....runtime.threads import forking
from ...errors import InternalError

# Loop strength reduction costs a third of code generation's time and gains nothing on loops that are already written
# with running pointers.
_LLVM_OPTIONS = ("-disable-lsr",)
_POINTER, _MESSAGE = ctypes.c_void_p, ctypes.POINTER(ctypes.c_char_p)
_SIGNATURES = {
    "LLVMPY_ContextCreate": (_POINTER, (ctypes.c_bool,)),  # LLVM 15 asks whether pointers have no type
    "LLVMPY_ContextDispose": (None, (_POINTER,)),
    "LLVMPY_ParseAssembly": (_POINTER, (_POINTER, ctypes.c_char_p, _MESSAGE)),
    "LLVMPY_DisposeModule": (None, (_POINTER,)),
    "LLVMPY_TargetMachineEmitToMemory": (_POINTER, (_POINTER, _POINTER, ctypes.c_int, _MESSAGE)),
    "LLVMPY_GetBufferSize": (ctypes.c_size_t, (_POINTER,)),
    "LLVMPY_GetBufferStart": (_POINTER, (_POINTER,)),
    "LLVMPY_DisposeMemoryBuffer": (None, (_POINTER,)),
    "LLVMPY_DisposeString": (None, (ctypes.c_char_p,)),
}
# The others take less time than it takes to get the interpreter's lock again.
_LONG = frozenset({"LLVMPY_ParseAssembly", "LLVMPY_TargetMachineEmitToMemory"})
_LENGTH = struct.Struct("<Q")
_lock = forking.lock()
_free: dict[tuple[str, str, str, str, int], list[llvm.TargetMachine]] = {}
_ready = False


def emit_object(text: str, target: Target) -> bytes:
    """The object file of a module's text. Position-independent; LLVM does not optimize a module of driver code alone.

    Raises: InternalError  LLVM refuses the text.
    """
    return _generate(text, target, 0 if is_driver_code(text) else 2, True)


def emit_measured_object(text: str, target: Target) -> bytes:
    """As `emit_object`, and what LLVM says meanwhile: bytes that `parts_of_measured` reads. For processes without other
    threads that write to stderr.

    Raises: InternalError  LLVM refuses the text.
    """
    stderr = os.dup(2)
    with tempfile.TemporaryFile() as messages_file:
        os.dup2(messages_file.fileno(), 2)
        try:
            object_code = emit_object(text, target)
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
        messages_file.seek(0)
        messages = messages_file.read()
    return _LENGTH.pack(len(messages)) + messages + object_code


def parts_of_measured(data: bytes) -> tuple[str, bytes]:
    """(what LLVM said, the object)."""
    end = _LENGTH.size + _LENGTH.unpack_from(data)[0]
    return data[_LENGTH.size : end].decode(errors="replace"), data[end:]


def emit_assembly(text: str, target: Target) -> str:
    """The assembly of a module's text, for people.

    Raises: InternalError  LLVM refuses the text.
    """
    return _generate(text, target, 2, False).decode()


def prepare() -> None:
    """Loads LLVM and its targets."""
    _initialize()


def _initialize() -> None:
    global _ready
    with _lock:
        if not _ready:
            llvm.initialize_all_targets()
            llvm.initialize_all_asmprinters()
            for option in _LLVM_OPTIONS:
                llvm.set_option("tfbridge", option)
            _ready = True


@functools.cache
def _library() -> types.SimpleNamespace:
    """LLVM as llvmlite brings it. Handles of its own, so that these signatures are ours."""
    handles = ctypes.PyDLL(llvm.ffi.lib._name), ctypes.CDLL(llvm.ffi.lib._name)
    library = types.SimpleNamespace()
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(handles[name in _LONG], name)
        function.restype, function.argtypes = result, arguments
        setattr(library, name, function)
    return library


@contextlib.contextmanager
def _machine(target: Target, optimization: int) -> Iterator[int]:
    """A target machine that no other thread uses: making one costs as much as compiling a small kernel."""
    free = _free.setdefault((target.triple, target.cpu, target.features, target.abi, optimization), [])
    try:
        machine = free.pop()
    except IndexError:
        machine = llvm.Target.from_triple(target.triple).create_target_machine(
            cpu=target.cpu,
            features=target.features,
            opt=optimization,
            reloc="static" if target.is_static else "pic",
            # Without an operating system, RISC-V's memory begins past what its small model reaches.
            codemodel="medium" if target.is_static and target.architecture == "riscv64" else "small",
            abiname=target.abi,
        )
    try:
        yield ctypes.cast(machine._ptr, ctypes.c_void_p).value or 0
    finally:
        free.append(machine)


@contextlib.contextmanager
def _message(library: types.SimpleNamespace) -> Iterator[ctypes.c_char_p]:
    """A place for LLVM's error text."""
    message = ctypes.c_char_p()
    try:
        yield message
    finally:
        if message:
            library.LLVMPY_DisposeString(message)


def _generate(text: str, target: Target, optimization: int, as_object: bool) -> bytes:
    _initialize()
    with forking.uninterrupted():
        return _generate_in(_library(), text, target, optimization, as_object)


def _generate_in(
    library: types.SimpleNamespace, text: str, target: Target, optimization: int, as_object: bool
) -> bytes:
    context = library.LLVMPY_ContextCreate(True)
    module = buffer = None
    try:
        with _message(library) as message:
            module = library.LLVMPY_ParseAssembly(context, text.encode(), ctypes.byref(message))
            if not module:
                raise InternalError(f"LLVM refuses the generated text: {(message.value or b'').decode()}")
        with _message(library) as message, _machine(target, optimization) as machine:
            buffer = library.LLVMPY_TargetMachineEmitToMemory(
                machine, module, as_object, ctypes.byref(message)
            )
            if not buffer:
                raise InternalError(f"LLVM makes no object of the text: {(message.value or b'').decode()}")
        return ctypes.string_at(library.LLVMPY_GetBufferStart(buffer), library.LLVMPY_GetBufferSize(buffer))
    finally:
        if buffer:
            library.LLVMPY_DisposeMemoryBuffer(buffer)
        if module:
            library.LLVMPY_DisposeModule(module)  # before its context
        library.LLVMPY_ContextDispose(context)
