"""Docstrings of the public names: their examples run, and the reference of the site can show each."""

from __future__ import annotations

import doctest
import importlib
import inspect
from collections.abc import Iterator
from typing import Any

import pytest
import tfbridge
from tfbridge.bridge.api.jit import Jit
from tfbridge.compiler import ComputationBuilder

MODULES = ("tfbridge", "tfbridge.aot", "tfbridge.compiler")
WITH_EXAMPLES = (
    *("tfbridge." + name for name in tfbridge.__all__ if name not in ("aot", "compiler")),
    *("tfbridge.aot.compile", "tfbridge.aot.quantize"),
    *(
        "tfbridge.compiler." + name
        for name in ("ComputationBuilder", "LocalClient", "Literal", "Module", "Shape")
    ),
    *("tfbridge.compiler." + name for name in ("array", "evaluate", "parse_hlo", "run_pipeline")),
)
_NONE_NEEDED = {"tfbridge.disable_auto_clustering", "tfbridge.reset_stats"}


def _public() -> Iterator[tuple[str, Any]]:
    for module in MODULES:
        loaded = importlib.import_module(module)
        for name in loaded.__all__:
            value = getattr(loaded, name)
            if callable(value):
                yield f"{module}.{name}", value
    yield "tfbridge.bridge.api.jit.Jit.native", Jit.native


PUBLIC = dict(_public())


@pytest.mark.parametrize("name", [n for n, v in PUBLIC.items() if ">>> " in (inspect.getdoc(v) or "")])
def test_examples(name: str) -> None:
    test = doctest.DocTestParser().get_doctest(inspect.getdoc(PUBLIC[name]) or "", {}, name, None, None)
    output: list[str] = []
    result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=output.append)
    tfbridge.disable_auto_clustering()
    assert result.attempted and not result.failed, "".join(output)


@pytest.mark.parametrize("name", [name for name in WITH_EXAMPLES if name not in _NONE_NEEDED])
def test_has_an_example(name: str) -> None:
    assert ">>> " in (inspect.getdoc(PUBLIC[name]) or "")


@pytest.mark.parametrize("name", PUBLIC)
def test_has_a_docstring_of_its_own(name: str) -> None:
    assert PUBLIC[name].__doc__


def test_every_method_of_the_builder_has_a_docstring() -> None:
    methods = [name for name in dir(ComputationBuilder) if not name.startswith("_") and name[0].islower()]
    assert len(methods) > 190
    assert [name for name in methods if not inspect.getdoc(getattr(ComputationBuilder, name))] == []
