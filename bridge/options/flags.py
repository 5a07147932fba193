"""Every environment variable that tfbridge reads, in one table. `python -m tfbridge.flags` prints it.

The package's `__init__` applies the flags before any other module of it is imported, so that a flag holds for all
ways to use it. Nothing here imports TensorFlow.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...runtime import process_defaults

PREFIX = "TFBRIDGE_"
FOREGROUND, BACKGROUND = "foreground", "background"
CATEGORIES = ("clusters", "compiles", "recompiles", "fusion", "fallbacks")


class FlagError(ValueError):
    """A flag that does not exist, or a value that it does not take."""


@dataclasses.dataclass(frozen=True)
class Flag:
    """One environment variable: `name` without the prefix, its value as Python's when unset, how a text is read.

    `parse` raises ValueError for a text that is not `allowed`.
    """

    name: str
    type: str
    default: Any
    allowed: str
    description: str
    parse: Callable[[str], Any]

    @property
    def variable(self) -> str:
        """Name of the environment variable."""
        return PREFIX + self.name

    def shown(self, value: object) -> str:
        """A value as it is written in the environment."""
        if isinstance(value, bool):
            return str(int(value))
        return ",".join(sorted(value)) if isinstance(value, frozenset) else str(value)


def _number(text: str, minimum: int = 0) -> int:
    value = int(text)
    if value < minimum:
        raise ValueError(text)
    return value


def _percent(text: str) -> int:
    value = _number(text)
    if value > 100:
        raise ValueError(text)
    return value


def _switch(text: str) -> bool:
    return {"0": False, "1": True}[text]


def _one_of(*values: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in values:
            raise ValueError(text)
        return text

    return parse


def _names(text: str, among: tuple[str, ...] = ()) -> frozenset[str]:
    names = frozenset(filter(None, (part.strip() for part in text.split(","))))
    if among and not names <= set(among):
        raise ValueError(text)
    return names


_BYTES = {"K": 10, "M": 20, "G": 30, "T": 40}


def _bytes(text: str) -> int:
    shift = _BYTES.get(text[-1:].upper(), 0)
    return _number(text[:-1] if shift else text) << shift


FLAGS: tuple[Flag, ...] = (
    Flag(
        "AUTO_JIT",
        "number",
        0,
        "0, 1, 2",
        "1 compiles clusters in every graph of the program, which needs no change; 2 also takes the place of XLA "
        "where the program asks for `jit_compile=True`",
        {"0": 0, "1": 1, "2": 2}.__getitem__,
    ),
    Flag(
        "MIN_CLUSTER_SIZE",
        "number",
        4,
        "1 or more",
        "compute ops that a cluster has at least under auto-clustering",
        functools.partial(_number, minimum=1),
    ),
    Flag(
        "DENY_OPS",
        "names",
        frozenset(),
        "TensorFlow op types, with commas between",
        "ops that are not compiled",
        _names,
    ),
    Flag(
        "COST_GUARD",
        "switch",
        True,
        "0, 1",
        "1 measures every cluster at an early call and leaves it to TensorFlow where that is faster",
        _switch,
    ),
    Flag(
        "THREADS",
        "number",
        0,
        "0 or more",
        "highest number of threads of one launch; 0: those that TensorFlow may take for an op, no more than the "
        "processors that affinity mask and control groups leave to the process",
        _number,
    ),
    Flag(
        "NUMERICS",
        "choice",
        "tf",
        ", ".join(process_defaults.NUMERICS),
        "tf: IEEE arithmetic; fast: rules that change rounding too; reproducible: same bits for any number of threads",
        _one_of(*process_defaults.NUMERICS),
    ),
    Flag(
        "COMPILE",
        "choice",
        BACKGROUND,
        f"{BACKGROUND}, {FOREGROUND}",
        "background: TensorFlow runs calls whose code is not there, which is compiled meanwhile where that pays; "
        "foreground: such calls wait for their code",
        _one_of(BACKGROUND, FOREGROUND),
    ),
    Flag(
        "BACKGROUND_SHARE",
        "number",
        50,
        "0 to 100",
        "percent of one processor's time that compiling in the background may take on average, at low priority; "
        "0: nothing is compiled there",
        _percent,
    ),
    Flag(
        "SYMBOLIC_SIZES",
        "switch",
        True,
        "0, 1",
        "1 compiles code for sizes that change from call to call once for all sizes, in the background; sizes that "
        "come often get code of their own; 0 compiles for every shape by itself",
        _switch,
    ),
    Flag("DISK_CACHE", "switch", True, "0, 1", "0 keeps compiled code in memory only", _switch),
    Flag(
        "CACHE_DIR",
        "folder",
        "",
        "a path",
        "folder of the disk cache; where others can write to it, a private folder inside; unset: `tfbridge` in the "
        "user's cache folder",
        str,
    ),
    Flag(
        "MAX_CACHE_BYTES",
        "bytes",
        1 << 30,
        "a number, or one with K, M, G or T",
        "size of the disk cache; above it, the least recently used files are removed",
        _bytes,
    ),
    Flag(
        "COMPILE_WORKERS",
        "switch",
        False,
        "0, 1",
        "1 runs LLVM in processes of their own: a crash of it costs a cluster, which TensorFlow runs, not the program",
        _switch,
    ),
    Flag(
        "COMPILE_SECONDS",
        "number",
        process_defaults.process.compile_seconds,
        "0 or more",
        "time limit of one compilation, after which TensorFlow runs the cluster; 0: no limit",
        _number,
    ),
    Flag(
        "COMPILE_INSTRUCTIONS",
        "number",
        process_defaults.process.compile_instructions,
        "0 or more",
        "limit of the instructions of a module while it is compiled, above which TensorFlow runs the cluster; 0: no "
        "limit",
        _number,
    ),
    Flag(
        "COMPILE_MEGABYTES",
        "number",
        process_defaults.process.compile_megabytes,
        "0 or more",
        "memory that the process may grow by during one compilation, above which TensorFlow runs the cluster; 0: no "
        "limit, as where the system does not tell",
        _number,
    ),
    Flag(
        "DUMP",
        "folder",
        "",
        "a path",
        "writes every stage of every compilation there, in numbered folders",
        str,
    ),
    Flag(
        "REPORT",
        "folder",
        "",
        "a path",
        "writes a report of the run there, as a page and as JSON, at its end and meanwhile: what was compiled, where "
        "time went, what to change; clusters are compiled as with TFBRIDGE_AUTO_JIT=1 unless that is set too",
        str,
    ),
    Flag(
        "LOG",
        "names",
        frozenset(),
        ", ".join(CATEGORIES),
        "what is written to the log, with commas between",
        functools.partial(_names, among=CATEGORIES),
    ),
    Flag(
        "SYMBOLS",
        "names",
        frozenset(),
        ", ".join(process_defaults.SYMBOLS),
        "who is told where compiled code is, under the names of TensorFlow's ops, with commas between; perf: the file "
        "`/tmp/perf-PID.map`; jitdump: `jit-PID.dump` in the current folder, for `perf inject --jit`; gdb: GDB; "
        "vtune: Intel VTune, where it starts the program",
        functools.partial(_names, among=process_defaults.SYMBOLS),
    ),
)


def read(environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The value of every flag by name without the prefix; an empty variable counts as unset.

    Raises: FlagError  an unknown variable with the prefix, or a value that a flag does not take.
    """
    variables = os.environ if environment is None else environment
    names = [flag.name for flag in FLAGS]
    for variable in variables:
        name = variable.removeprefix(PREFIX)
        if variable.startswith(PREFIX) and name not in names:
            similar = difflib.get_close_matches(name, names, 1, 0.5)
            hint = (
                f"did you mean {PREFIX}{similar[0]}?"
                if similar
                else f"there are {', '.join(PREFIX + n for n in names)}"
            )
            raise FlagError(f"{variable}: there is no such flag; {hint}")
    values = {}
    for flag in FLAGS:
        text = variables.get(flag.variable, "").strip()
        try:
            values[flag.name] = flag.parse(text) if text else flag.default
        except (ValueError, KeyError):
            raise FlagError(f"{flag.variable}={text!r}: allowed are {flag.allowed}") from None
    if values["REPORT"] and not variables.get(f"{PREFIX}AUTO_JIT", "").strip():
        values["AUTO_JIT"] = 1
    return values


@functools.cache
def values() -> Mapping[str, Any]:
    """The flags of this process, read once. Raises: FlagError  as `read`."""
    return read()


def apply() -> None:
    """Makes the flags the defaults of this process. Raises: FlagError  as `read`."""
    flags, process = values(), process_defaults.process
    process.numerics, process.threads, process.dump_dir = flags["NUMERICS"], flags["THREADS"], flags["DUMP"]
    process.disk_cache, process.cache_dir = flags["DISK_CACHE"], flags["CACHE_DIR"]
    process.max_cache_bytes, process.compile_workers = flags["MAX_CACHE_BYTES"], flags["COMPILE_WORKERS"]
    process.compile_seconds, process.compile_instructions = (
        flags["COMPILE_SECONDS"],
        flags["COMPILE_INSTRUCTIONS"],
    )
    process.compile_megabytes, process.symbols = flags["COMPILE_MEGABYTES"], flags["SYMBOLS"]
    if flags["LOG"]:
        _log(flags["LOG"])


def _log(categories: frozenset[str]) -> None:
    """Writes the loggers `tfbridge.CATEGORY` to standard error."""
    logger = logging.getLogger("tfbridge")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
    logger.addHandler(handler)
    logger.propagate = False
    for category in categories:
        logger.getChild(category).setLevel(logging.INFO)


def markdown() -> str:
    """The flags as the table in README."""
    rows = [("Variable", "Default", "Allowed", "What it does"), ("---",) * 4]
    rows += [
        (
            f"`{flag.variable}`",
            f"`{flag.shown(flag.default)}`" if flag.shown(flag.default) else "",
            flag.allowed,
            flag.description,
        )
        for flag in FLAGS
    ]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


_HELP = """\
usage: tfbridge flags [-h] [--markdown]

Prints the environment variables with the values in force.

options:
  -h, --help  show this help message and exit
  --markdown  print the table in README instead"""


def main(arguments: Sequence[str] = ()) -> int:
    """Prints the flags with the values in force, or with `--markdown` the table in README; returns the exit code."""
    if {"--help", "-h"} & set(arguments):
        print(_HELP)
        return 0
    if "--markdown" in arguments:
        print(markdown())
        return 0
    current = values()
    width = max(len(flag.variable) for flag in FLAGS)
    for flag in FLAGS:
        default = flag.shown(flag.default)
        print(f"{flag.variable:{width}}  {flag.shown(current[flag.name]) or '(unset)'}")
        print(f"{'':{width}}    {flag.description}")
        print(f"{'':{width}}    allowed: {flag.allowed}" + (f"; default: {default}" if default else ""))
    return 0
