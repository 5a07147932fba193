"""Tells profilers and debuggers of code that is loaded, as `process_defaults.process.symbols` asks for."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Mapping, Sequence

from ..process_defaults import process
from ..threads import forking
from .elf import Placed, Symbol, symbols_of
from .gdb import SymbolFiles
from .perf import JitDump, PerfMap
from .vtune import JitProfiling

logger = logging.getLogger("tfbridge")
_lock = forking.lock()
_Consumer = PerfMap | JitDump | SymbolFiles | JitProfiling
_CONSUMERS: dict[str, Callable[[], _Consumer]] = {
    "perf": PerfMap,
    "jitdump": JitDump,
    "gdb": SymbolFiles,
    "vtune": JitProfiling,
}
_OF_ONE_PROCESS = frozenset({"perf", "jitdump"})
_consumers: dict[str, _Consumer | None] = {}
_loaded: dict[int, list[Placed]] = {}
_files: dict[int, int] = {}  # numbers of a debugger's files


def anchors(objects: Sequence[bytes]) -> list[str]:
    """Names by which each object's place in memory is found; none where nobody asks for it."""
    if not process.symbols:
        return []
    names = (next((s.name for s in symbols_of(o) if _is_exported(s)), None) for o in objects)
    return [name for name in names if name is not None]


def add(
    owner: object, objects: Sequence[bytes], addresses: Mapping[str, int], labels: Mapping[str, str]
) -> None:
    """Tells of the functions of objects, for as long as the owner lives. addresses: of exported functions. labels: what
    functions are called, by their names in the objects."""
    if not process.symbols:
        return
    functions: list[Placed] = []
    for symbols in map(symbols_of, objects):
        # The sections of an object lie apart; within one, functions keep their distances.
        starts = {s.section: addresses[s.name] - s.value for s in symbols if s.name in addresses}
        functions += (
            Placed(_printable(labels.get(s.name, s.name)), starts[s.section] + s.value, s.bytes)
            for s in symbols
            if s.is_function and s.section in starts and s.bytes
        )
    if functions:
        with _lock:
            _loaded[id(owner)] = functions
            _tell(id(owner), process.symbols)
        weakref.finalize(owner, _forget, id(owner)).atexit = False


def _is_exported(symbol: Symbol) -> bool:
    return symbol.is_function and symbol.is_global


def _printable(name: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in name)


def _tell(number: int, names: frozenset[str]) -> None:
    for name in sorted(names):
        try:
            if name not in _consumers:
                _consumers[name] = _CONSUMERS[name]()
            if (consumer := _consumers[name]) is None:
                continue
            file = consumer.add(_loaded[number])
            if file is not None:
                _files[number] = file
        except Exception as error:  # whatever it is, the code runs
            _consumers[name] = None
            logger.warning("%s is not told of compiled code: %s: %s", name, type(error).__name__, error)


def _forget(number: int) -> None:
    with _lock:
        _loaded.pop(number, None)
        consumer = _consumers.get("gdb")
        if isinstance(consumer, SymbolFiles) and number in _files:
            consumer.remove(_files.pop(number))


@forking.in_child
def _again() -> None:
    """The files of perf are those of one process."""
    for name in _OF_ONE_PROCESS:
        _consumers.pop(name, None)
    for number in list(_loaded):
        _tell(number, process.symbols & _OF_ONE_PROCESS)
