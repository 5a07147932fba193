"""LLVM IR text to a relocatable object, for any target."""

from __future__ import annotations

import functools
from typing import Any

import llvmlite.binding as llvm

from ..errors import InternalError
from .target import Target

# Loop strength reduction costs a third of code generation's time and gains nothing on loops that are already written
# with running pointers.
_LLVM_OPTIONS = ("-disable-lsr",)


@functools.cache
def _initialize() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    for option in _LLVM_OPTIONS:
        llvm.set_option("tfbridge", option)


def emit_object(text: str, target: Target, optimization: int = 2) -> bytes:
    """The object file of a module's text. Position-independent; `optimization` is that of code generation, 0 to 3.

    Raises: InternalError  LLVM refuses the text.
    """
    return _generate(text, target, optimization, "emit_object")


def emit_assembly(text: str, target: Target, optimization: int = 2) -> str:
    """The assembly of a module's text, for people.

    Raises: InternalError  LLVM refuses the text.
    """
    return _generate(text, target, optimization, "emit_assembly")


def _generate(text: str, target: Target, optimization: int, method: str) -> Any:
    _initialize()
    # Position-independent WebAssembly is for dynamic linking alone.
    relocation = "static" if target.architecture.startswith("wasm") else "pic"
    machine = llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=target.features, opt=optimization, reloc=relocation, codemodel="small")
    context = llvm.create_context()
    try:
        module = llvm.parse_assembly(text, context)
    except RuntimeError as error:
        raise InternalError(f"LLVM refuses the generated text: {error}") from error
    try:
        return getattr(machine, method)(module)
    finally:
        module.close()  # before its context: the collector may choose the other order and crash
        context.close()
