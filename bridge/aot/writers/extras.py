"""The files that are written beside an object where a user asks for them: one row for each name that `--with` and
`extras` take. A new writer is a file in this folder and a row here."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from .benchmark_program import write_benchmark
from .build_files import write_cmake_package, write_pkg_config
from .model import Model, Reference
from .python_module import write_python
from .test_program import write_test

Writer = Callable[[Model, Reference], str]


@dataclasses.dataclass(frozen=True)
class Extra:
    """What a name stands for.

    meaning: what the files are, for the command's help. files: their names, with `{}` for
    the model's, and what writes the text of each. library: the format of the library that the files run, empty where
    they go with all.
    """

    meaning: str
    files: Mapping[str, Writer]
    library: str = ""


def _of_model(write: Callable[[Model], str]) -> Writer:
    """A writer that needs no results of TensorFlow."""
    return lambda model, _: write(model)


EXTRAS: dict[str, Extra] = {
    "test": Extra("a C program that checks the object", {"{}_test.c": write_test}),
    "benchmark": Extra("a C program that times it", {"{}_benchmark.c": _of_model(write_benchmark)}),
    "cmake": Extra(
        "a CMake package, and a file for pkg-config",
        {"{}-config.cmake": _of_model(write_cmake_package), "{}.pc": _of_model(write_pkg_config)},
    ),
    "python": Extra(
        "a module that runs the shared library", {"{}.py": _of_model(write_python)}, library="shared"
    ),
}
