"""The code of a model: the modules of its functions as one object, and what writers are told of it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from ... import __version__
from ...compiler.builder.computation_builder import ComputationBuilder
from ...compiler.client.platforms import native
from ...compiler.ir.code_version import CodeVersion, Level
from ...compiler.ir.module import Module
from ...compiler.ir.sized_module import SizedModule
from ...compiler.object_options import DEFAULT_OBJECT_OPTIONS, ObjectOptions
from ...compiler.options import DEFAULT_OPTIONS, Options
from ...runtime.code.artifact import Artifact, BufferSpec
from ...runtime.llvm.target import Target
from ...runtime.run_context import ABI_VERSION
from .freeze import Frozen, Function
from .sized_build import compiled_modules, largest, sizes_of
from .writers.model import Entry, Model, StateArray

_NO_DIGEST = "tfbridgetfbridge"  # in names of functions, until their digest is known
_ALIGN = 64


def build_model(
    frozen: Frozen,
    name: str,
    cpp_class: str,
    targets: Sequence[tuple[Target, Level | None]],
    threads: int,
    place_of_constants: str,
    options: Options = DEFAULT_OPTIONS,
    object_options: ObjectOptions = DEFAULT_OBJECT_OPTIONS,
) -> tuple[Model, bytes, bytes]:
    """(what writers are told, the object, the constants that are not in it). `targets`: several for levels of
    processors. place_of_constants: `object`, `file` or `source`."""
    symbols = {
        function: f"{_symbol(name, function.name)}_entry_{_NO_DIGEST}" for function in frozen.functions
    }
    reset_symbol = f"{name}_initial_state_{_NO_DIGEST}" if frozen.states else ""
    reset = {reset_symbol: _reset_module(frozen)} if frozen.states else {}
    versions = [
        CodeVersion(compiled_modules(frozen, symbols, target) | reset, target, level)
        for target, level in targets
    ]
    code = native().compile_self_contained(versions, options, place_of_constants == "object", object_options)
    artifacts = code.artifacts
    digest = _digest_of(artifacts)
    temp_bytes, sizes = sizes_of(frozen, [m for v in versions for m in v.modules.values()], artifacts)
    modules, target = versions[0].modules, versions[0].target
    constants = _with_digest(artifacts[0].constants, digest)
    levels = [level.name for _, level in targets if level is not None]
    entries = [
        _entry(function, symbol.replace(_NO_DIGEST, digest), artifact, modules[symbol])
        for (function, symbol), artifact in zip(symbols.items(), artifacts)
    ]
    model = Model(
        name=name,
        cpp_class=cpp_class,
        target=_target_text(target, levels),
        version=__version__,
        entries=entries,
        temp_bytes=temp_bytes,
        constants_bytes=len(constants),
        threads=threads,
        pointer_bytes=target.pointer_bytes,
        digest=digest,
        states=[StateArray(state.name, _spec(state.value)) for state in frozen.states],
        reset_symbol=reset_symbol.replace(_NO_DIGEST, digest),
        sizes=sizes,
        levels=levels,
        constants_in_source=bool(constants) and place_of_constants == "source",
        stack_bytes=max(code.stack_bytes.values(), default=0),
        layers=[layer.replace(_NO_DIGEST, digest) for layer in code.layers] if object_options.debug else (),
    )
    return model, artifacts[0].object.replace(_NO_DIGEST.encode(), digest.encode()), constants


def _target_text(target: Target, levels: Sequence[str]) -> str:
    return f"{target.triple} levels {' '.join(levels)}" if levels else f"{target.triple} {target.cpu}".strip()


def _symbol(model: str, function: str) -> str:
    return f"{model}_{function}" if function else model


def _entry(function: Function, symbol: str, artifact: Artifact, module: Module | SizedModule) -> Entry:
    general = module.variants[0].module if isinstance(module, SizedModule) else module
    sized_results = general.sized_results if general else ()
    names = (*function.results, *(f"{function.results[k] or f'result{k}'}_rows" for k in sized_results))
    entry = Entry(
        function.name,
        symbol,
        artifact.parameters[: len(function.arguments)],
        function.arguments,
        artifact.results[: len(names)],
        names,
        function.state_arguments,
        function.state_results,
        sized_results=sized_results,
        kernels=artifact.kernels,
        temporaries=artifact.temporaries,
        argument_steps=dict(function.argument_steps),
        result_steps=dict(function.result_steps),
    )
    return largest(entry, module) if isinstance(module, SizedModule) else entry


def _spec(value: np.ndarray) -> BufferSpec:
    return BufferSpec(value.dtype.name, value.shape, value.nbytes)


def _digest_of(artifacts: Sequence[Artifact]) -> str:
    """Of all that was compiled."""
    described = repr([ABI_VERSION] + [(a.parameters, a.results, a.temp_bytes, a.threads) for a in artifacts])
    hash_ = hashlib.blake2b(artifacts[0].object, digest_size=len(_NO_DIGEST) // 2)
    for part in (artifacts[0].constants, described.encode()):
        hash_.update(part)
    return hash_.hexdigest()


def _with_digest(constants: bytes, digest: str) -> bytes:
    """Constants for a file: the digest at their end."""
    if not constants:
        return b""
    return constants + bytes(-len(constants) % _ALIGN) + digest.encode().ljust(_ALIGN, b"\0")


def _reset_module(frozen: Frozen) -> Module:
    """Returns the first values of the state."""
    b = ComputationBuilder("reset")
    return Module("reset", b.build(b.tuple([b.constant(state.value) for state in frozen.states])))
