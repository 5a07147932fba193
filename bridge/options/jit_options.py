"""Options of clustering and compilation: by flag for the process, by `options` for a block, by `jit` for a function."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import difflib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ...compiler import options as compiler_options
from . import flags
from .intra_op_threads import intra_op_threads


@dataclasses.dataclass(frozen=True)
class JitOptions(compiler_options.Options):
    """The compiler's options, and those that decide what is compiled.

    min_cluster_size: compute ops that a cluster has at least. deny_ops: op types that are not compiled.
    cost_guard: TensorFlow runs a cluster that is slower than its own run of the nodes; functions that
        `jit` was given are left alone unless they ask for it themselves.
    compile: "background": TensorFlow runs calls whose code is not there, which is compiled meanwhile where that pays;
        "foreground": such calls wait for it. first_compile: the same for the first code of a cluster; functions that
        `jit` was given wait unless they ask for something else.
    background_share: percent of one processor's time that background compilation may take on average; 0: none.
    symbolic_sizes: where shapes change, one compilation serves all sizes until hot ones have code of their own.
    Raises: ValueError  as Options; min_cluster_size is not positive; a value that is not among these.
    """

    min_cluster_size: int = 4
    deny_ops: frozenset[str] = frozenset()
    cost_guard: bool = True
    compile: str = flags.BACKGROUND
    first_compile: str = flags.BACKGROUND
    background_share: int = 50
    symbolic_sizes: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.min_cluster_size < 1:
            raise ValueError(f"min_cluster_size: {self.min_cluster_size} is not positive")
        if not 0 <= self.background_share <= 100:
            raise ValueError(f"background_share: {self.background_share} is no percentage")
        for name in ("compile", "first_compile"):
            if getattr(self, name) not in (flags.BACKGROUND, flags.FOREGROUND):
                raise ValueError(f"{name}: {getattr(self, name)!r} is neither 'background' nor 'foreground'")

    def in_foreground(self, is_first: bool) -> bool:
        """Whether calls wait for code that is compiled: the first of a cluster, or further."""
        return flags.FOREGROUND in (self.compile, self.first_compile if is_first else "")


def _process_options() -> JitOptions:
    process = flags.values()
    return JitOptions(
        **dataclasses.asdict(compiler_options.DEFAULT_OPTIONS),
        min_cluster_size=process["MIN_CLUSTER_SIZE"],
        deny_ops=process["DENY_OPS"],
        cost_guard=process["COST_GUARD"],
        compile=process["COMPILE"],
        background_share=process["BACKGROUND_SHARE"],
        symbolic_sizes=process["SYMBOLIC_SIZES"],
    )


DEFAULT_OPTIONS = _process_options()
NAMES = (
    "threads",
    "min_cluster_size",
    "deny_ops",
    "cost_guard",
    "compile",
    "first_compile",
    "background_share",
    "symbolic_sizes",
    "numerics",
    "cache_dir",
    "max_cache_bytes",
    "compile_seconds",
    "compile_instructions",
    "compile_megabytes",
)
_TEXTS = ("compile", "first_compile", "numerics")
_chosen: contextvars.ContextVar[Mapping[str, Any]] = contextvars.ContextVar("tfbridge_options", default={})  # noqa: B039


def checked(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Options by name as `JitOptions` takes them.

    Raises: TypeError  no such option, or a value of another type; ValueError  a value that it does not take.
    """
    result = {}
    for name, value in chosen.items():
        if name not in NAMES:
            similar = difflib.get_close_matches(name, NAMES, 1, 0.5)
            raise TypeError(
                f"there is no option {name!r}; "
                + (f"did you mean {similar[0]!r}?" if similar else f"there are {', '.join(NAMES)}")
            )
        if name == "deny_ops":
            if isinstance(value, str) or not isinstance(value, Iterable):
                raise TypeError(f"deny_ops: {value!r} is no list of op types, such as ['MatMul']")
            value = frozenset(value)
        elif name == "cache_dir":
            value = os.fspath(value)
        elif name in ("cost_guard", "symbolic_sizes"):
            if not isinstance(value, bool):
                raise TypeError(f"{name}: {value!r} is neither True nor False")
        elif not isinstance(value, str if name in _TEXTS else int) or isinstance(value, bool):
            raise TypeError(f"{name}: {value!r} is no {'text' if name in _TEXTS else 'whole number'}")
        result[name] = value
    JitOptions(**result)
    return result


@contextlib.contextmanager
def options(**chosen: object) -> Iterator[None]:
    """Within, what is compiled for the first time is compiled with these options; inner blocks rule over outer ones.

    threads: highest number of threads of one launch; 0: those that TensorFlow may take for an op, no more than
        the process may use.
    min_cluster_size: compute ops that a cluster has at least.
    deny_ops: op types that are not compiled.
    cost_guard: False keeps clusters that are slower than TensorFlow.
    compile: "background": TensorFlow runs calls whose code is not there, which is compiled meanwhile where that pays;
        "foreground": such calls wait for it.
    first_compile: the same for the first code of a cluster, for which functions given to `jit` wait by default.
    background_share: percent of one processor's time that compiling in the background may take; 0: none.
    symbolic_sizes: False has every shape compiled by itself.
    numerics: "tf", "fast" or "reproducible".
    cache_dir, max_cache_bytes: folder and size of the disk cache.
    compile_seconds, compile_instructions, compile_megabytes: what one compilation may take, beyond which TensorFlow
        runs the cluster; 0: no limit.

    `jit` takes the same names, which rule over those of blocks.

    >>> import tensorflow as tf
    >>> import tfbridge
    >>> with tfbridge.options(numerics="reproducible", threads=2):
    ...     float(tfbridge.jit(tf.reduce_sum)(tf.ones(100)))
    100.0

    Raises: TypeError, ValueError  an unknown name (the nearest one is suggested) or value.
    """
    token = _chosen.set({**_chosen.get(), **checked(chosen)})
    try:
        yield
    finally:
        _chosen.reset(token)


def current(chosen: Mapping[str, Any] | None = None, process: Mapping[str, Any] | None = None) -> JitOptions:
    """The options in force here: `chosen`, else those of the blocks around, else `process`, else the flags."""
    result = dataclasses.replace(DEFAULT_OPTIONS, **{**(process or {}), **_chosen.get(), **(chosen or {})})
    return result if result.threads else dataclasses.replace(result, threads=intra_op_threads())


_STRICTER: dict[str, Callable[[Any, Any], Any]] = {
    "deny_ops": frozenset.union,
    "numerics": lambda a, b: max(a, b, key=("fast", "tf", "reproducible").index),
    "cache_dir": lambda a, b: a,
    **dict.fromkeys(("compile", "first_compile"), max),  # "foreground" is greater
    **dict.fromkeys(
        ("compile_seconds", "compile_instructions", "compile_megabytes"), lambda a, b: min(a or b, b or a)
    ),  # 0: no limit
}


def merged(several: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """One choice of options for a graph made of functions that have their own: of each option the strictest."""
    result: dict[str, Any] = {}
    for chosen in several:
        for name, value in chosen.items():
            result[name] = _STRICTER.get(name, min)(result[name], value) if name in result else value
    return result


def to_text(chosen: Mapping[str, Any]) -> str:
    """Options as text that can stand in a graph; empty for none."""
    return json.dumps(dict(chosen), default=sorted, sort_keys=True) if chosen else ""


def from_text(text: str) -> dict[str, Any]:
    """The options that `to_text` wrote; what this version does not know is left out."""
    return checked({k: v for k, v in json.loads(text).items() if k in NAMES}) if text else {}
