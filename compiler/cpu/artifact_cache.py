"""Artifacts of modules for this machine: from the disk cache, or compiled now and stored there."""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import Callable

from ...runtime import statistics
from ...runtime.code import disk_cache
from ...runtime.code.artifact import Artifact
from ...runtime.llvm.target import Target
from ...runtime.threads import background, interrupts, python_settings
from .. import budget
from ..ir.module import Module
from ..ir.shape import assumptions_of
from ..options import DEFAULT_OPTIONS, Options
from . import background_worker
from .compile import compile_module, machine
from .objects.source_fingerprint import code_fingerprint
from .schedule.host_callbacks import calls_here, registered


def load_module(module: Module, options: Options = DEFAULT_OPTIONS, source: str = "") -> Artifact:
    """The artifact of a module. `source` as for `compile_module`."""
    key = f"{module.key()}{registered(module)}{assumptions_of(module.entry.parameter_shapes) or ''}"
    return load_artifact(key, lambda: module, options, source)


def load_artifact(
    key: str, build: Callable[[], Module], options: Options = DEFAULT_OPTIONS, source: str = ""
) -> Artifact:
    """The artifact of the module that `build` returns, which is called only when the cache has no artifact.

    `key` says all that the module is built from. A compilation that is dumped is never read from the cache.
    """
    target = machine(options)
    name = fingerprint(key, options, target)
    cache = disk_cache.at(options.cache_dir, options.max_cache_bytes)
    if not options.dump_dir and (artifact := cache.load(name)) is not None:
        statistics.count("disk_hits")
        return artifact
    start = time.perf_counter()
    artifact = None
    if background.is_here() and background_worker.is_available() and not options.dump_dir:
        module = build()
        artifact = None if calls_here(module) else background_worker.compile(module, options, target)
    if artifact is None:
        with (
            interrupts.deferred(),
            python_settings.compiling(),
            budget.limited(options.compile_seconds, options.compile_instructions, options.compile_megabytes),
        ):
            artifact = compile_module(build(), options, target, source=source)
    artifact = dataclasses.replace(artifact, fingerprint=name)
    statistics.add_compile_seconds(time.perf_counter() - start)
    statistics.count("compiles")
    cache.store(artifact)
    return artifact


def has_artifact(key: str, options: Options = DEFAULT_OPTIONS) -> bool:
    """Whether the disk cache has the artifact that `load_artifact` looks for."""
    cache = disk_cache.at(options.cache_dir, options.max_cache_bytes)
    return not options.dump_dir and cache.has(fingerprint(key, options, machine(options)))


def fingerprint(key: str, options: Options, target: Target) -> str:
    """A name for everything that the compiled object depends on."""
    parts = (key, options.fingerprint(), repr(target), code_fingerprint())
    text = "\0".join(parts).encode("utf-8", "surrogatepass")  # names may be any strings
    return hashlib.blake2b(text, digest_size=20).hexdigest()
