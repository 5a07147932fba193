"""The files that are written beside an object where a user asks for them: one row for each name that `--with` and
`extras` take. A new writer is a file in this folder and a row here."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from .benchmark_program import write_benchmark
from .bindings import android_module, swift_package, wasm_package
from .bindings.android_module import write_android
from .bindings.python_module import write_python
from .bindings.rust_crate import write_rust
from .bindings.swift_package import write_swift
from .bindings.wasm_package import write_wasm
from .build_files import write_cmake_package, write_pkg_config
from .export import Export, Files
from .test_program import write_test


def _for_any(triple: str) -> str:
    return ""


@dataclasses.dataclass(frozen=True)
class Extra:
    """What a name stands for.

    meaning: what the files are, for the command's help. write: their contents, by name. library: the format of the
    library that the files run, empty where they go with all. takes_source: whether they go with weights in C source.
    refusal: why there are none for a triple, empty where
    there are.
    """

    meaning: str
    write: Callable[[Export], Files]
    library: str = ""
    takes_source: bool = False
    refusal: Callable[[str], str] = _for_any


EXTRAS: dict[str, Extra] = {
    "test": Extra(
        "a C program that checks the object",
        lambda e: {f"{e.model.name}_test.c": write_test(e)},
        takes_source=True,
    ),
    "benchmark": Extra(
        "a C program that times it",
        lambda e: {f"{e.model.name}_benchmark.c": write_benchmark(e.model)},
        takes_source=True,
    ),
    "cmake": Extra(
        "a CMake package, and a file for pkg-config",
        lambda e: {
            f"{e.model.name}-config.cmake": write_cmake_package(e.model),
            f"{e.model.name}.pc": write_pkg_config(e.model),
        },
        takes_source=True,
    ),
    "python": Extra(
        "a module that runs the shared library",
        lambda e: {f"{e.model.name}.py": write_python(e.model)},
        library="shared",
    ),
    "android": Extra(
        "a Gradle module: JNI and a Kotlin class", write_android, refusal=android_module.refusal
    ),
    "rust": Extra("a crate without std", write_rust),
    "swift": Extra(
        "a Swift package: an XCFramework with a module map, and a class",
        write_swift,
        refusal=swift_package.refusal,
    ),
    "wasm": Extra("an npm package: an ES module with types", write_wasm, refusal=wasm_package.refusal),
}
