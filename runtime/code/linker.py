"""Loads object files into the process: one linker, a library per object, kernel libraries shared by name."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import itertools
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

import llvmlite
import llvmlite.binding as llvm

from ..errors import LoadError
from ..symbols import registry
from ..threads import compile_threads, forking
from . import disk_cache
from .artifact import Artifact
from .source_digest import runtime_digest

_lock = forking.long_lock()
_serial = itertools.count()
_libraries: dict[str, Loaded] = {}
_provider: Callable[[str], tuple[bytes, Iterable[str], Iterable[str]]] | None = None
_prepared: dict[str, compile_threads.Job[bytes]] = {}
# What linkers and debuggers read, by the beginnings of names.
_NO_CONTENTS = (".sym", ".str", ".shstr", ".rel", ".note", ".comment", ".llvm", ".group", "reloc", "linking")


class Loaded:
    """An object in memory. `addresses` maps the exported names; they hold while this lives."""

    def __init__(self, name: str, tracker: llvm.orcjit.ResourceTracker, exports: tuple[str, ...]) -> None:
        self.name = name
        self.addresses: dict[str, int] = {symbol: tracker[symbol] for symbol in exports}
        self._tracker = tracker

    def keep(self) -> Loaded:
        """Stays loaded until the process ends: other threads may run its code while the interpreter exits."""
        self._tracker._owned = True
        return self


@functools.cache
def _jit() -> llvm.orcjit.LLJIT:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    if sys.platform.startswith("linux"):
        # The linker looks names up in the global scope only; an interpreter need not be linked with libm.
        ctypes.CDLL("libm.so.6", mode=ctypes.RTLD_GLOBAL)
    # The other linker lays sections out anywhere and aborts the process when a 32-bit offset does not reach.
    jit = llvm.create_lljit_compiler(use_jit_link=True, suppress_errors=True)
    jit._owned = True  # never disposed: code may still run in other threads when the interpreter ends
    return jit


def section_bytes(object_bytes: bytes) -> list[tuple[str, int]]:
    """The sections of an object with code or data, the largest first, and their bytes."""
    sections: dict[str, int] = {}
    for section in llvm.ObjectFileRef.from_data(object_bytes).sections():
        name = (section.name() or b"").decode(errors="replace")
        if section.size() and name and not name.lower().startswith(_NO_CONTENTS):
            sections[name] = sections.get(name, 0) + section.size()
    return sorted(sections.items(), key=lambda item: -item[1])


def load(
    object_bytes: bytes,
    exports: Iterable[str],
    libraries: Iterable[str] = (),
    imports: Mapping[str, int] | None = None,
    parts: Iterable[bytes] = (),
    labels: Mapping[str, str] | None = None,
) -> Loaded:
    """Loads an object; returns the addresses of `exports`. Unloaded when the result dies.

    What it calls is looked up in its `parts`, `imports`, the kernel `libraries` and the process. labels: what profilers
    and debuggers call its functions, by their names.
    Raises: LoadError  damaged object, missing symbol, unknown library.
    """
    objects = (object_bytes, *parts)
    return _link(f"artifact.{next(_serial)}", objects, exports, libraries, imports or {}, labels=labels or {})


def load_text(text: str, exports: Iterable[str], imports: Mapping[str, int] | None = None) -> Loaded:
    """Compiles LLVM IR text for this machine and loads it, as `load` does. The disk cache stores the object."""
    job = _prepared.get(text)
    is_usable = job is not None and not (job.done() and job.exception() is not None)
    object_bytes = job.result() if job is not None and is_usable else _object_of(text)
    return _link(f"text.{next(_serial)}", (object_bytes,), exports, (), imports or {})


def prepare_text(text: str) -> None:
    """Starts to compile a text in the background, for a later `load_text`."""
    with _lock:
        if text not in _prepared:
            _prepared[text] = compile_threads.submit(_object_of, text)


def _object_of(text: str) -> bytes:
    _jit()
    cpu, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    parts = ("text", runtime_digest(), llvmlite.__version__, llvm.get_default_triple(), cpu, features, text)
    fingerprint = hashlib.blake2b("\0".join(parts).encode(), digest_size=20).hexdigest()
    cache = disk_cache.default()
    cached = cache.load(fingerprint)
    if cached is None:
        machine = llvm.Target.from_default_triple().create_target_machine(
            cpu=cpu, features=features, opt=2, reloc="pic", codemodel="small"
        )
        # Not by create_context: LLVM 15 has pointers without a type only where they are asked for.
        context = llvm.context.ContextRef(llvm.ffi.lib.LLVMPY_ContextCreate(True))
        try:
            with llvm.parse_assembly(text, context) as module:  # closed before its context
                cached = Artifact(machine.emit_object(module), "", (), (), fingerprint=fingerprint)
        finally:
            context.close()
        cache.store(cached)
    return cached.object


def load_library(name: str, object_bytes: bytes, exports: Iterable[str]) -> Loaded:
    """Loads a kernel library once, for good; artifacts that name it in `libraries` may call its functions."""
    with _lock:
        library = _libraries.get(name)
        if library is None:
            library = _libraries[name] = _link(f"library.{name}", (object_bytes,), exports, (), {}).keep()
        return library


def provide_libraries(provider: Callable[[str], tuple[bytes, Iterable[str], Iterable[str]]]) -> None:
    """Sets the function that makes a kernel library that is not loaded yet: (object, exports, names of the
    libraries that it calls).

    The provider raises KeyError for a name it does not know.
    """
    global _provider
    _provider = provider


def _libraries_of(names: Iterable[str]) -> set[str]:
    """The linker's names of the kernel libraries of these names; those that are not loaded yet are loaded together.

    Raises: LoadError  neither loaded nor made by the provider.
    """
    with _lock:
        requested, missing, called = list(names), {}, set()
        waiting = list(requested)
        while waiting:
            name = waiting.pop()
            if name in _libraries:
                called.add(_libraries[name].name)
            elif name not in missing:
                missing[name] = _provided(name)
                waiting += missing[name][2]
        if missing:
            objects = [object_bytes for object_bytes, _, _ in missing.values()]
            symbols = [symbol for _, exports, _ in missing.values() for symbol in exports]
            loaded = _link(f"libraries.{next(_serial)}", objects, symbols, (), {}, called).keep()
            _libraries.update(dict.fromkeys(missing, loaded))
        return {_libraries[name].name for name in requested}


def _provided(name: str) -> tuple[bytes, Iterable[str], Iterable[str]]:
    try:
        if _provider is None:
            raise KeyError(name)
        return _provider(name)
    except KeyError as error:
        raise LoadError(f"kernel library {name!r} is unknown; loaded: {sorted(_libraries)}") from error


def _link(
    name: str,
    objects: Sequence[bytes],
    exports: Iterable[str],
    libraries: Iterable[str],
    imports: Mapping[str, int],
    linked: Iterable[str] = (),
    labels: Mapping[str, str] = MappingProxyType({}),
) -> Loaded:
    """`linked` are the linker's names of further libraries."""
    builder = llvm.JITLibraryBuilder()
    for object_bytes in objects:
        builder.add_object_img(object_bytes)
    symbols = tuple(dict.fromkeys((*exports, *registry.anchors(objects))))
    for symbol in symbols:
        builder.export_symbol(symbol)
    for used in sorted({*linked, *_libraries_of(libraries)}):
        builder.add_jit_library(used)
    for symbol, address in imports.items():
        builder.import_symbol(symbol, address)
    builder.add_current_process()
    try:
        loaded = Loaded(name, builder.link(_jit(), name), symbols)
    except RuntimeError as error:
        raise LoadError(f"loading {name}: {error}") from error
    registry.add(loaded, objects, loaded.addresses, labels)
    return loaded


forking.adopt(llvm.ffi.lib._lock._lock)  # which every function of llvmlite holds
forking.in_child(_prepared.clear)  # what the parent's threads compile does not arrive here
