"""The machine that runs this: features that LLVM does not know of it, and what follows from them."""

from __future__ import annotations

import pytest
from tfbridge.runtime.llvm.target import _byte_products, _with_capabilities, host

DOTPROD, I8MM = 1 << 20, 1 << 13  # HWCAP_ASIMDDP, HWCAP2_I8MM


@pytest.mark.parametrize(
    "auxiliary_vector, best",
    [({16: 0, 26: 0}, ""), ({16: DOTPROD, 26: 0}, "dotprod"), ({16: DOTPROD | 1 << 12, 26: I8MM}, "i8mm")],
)
def test_products_of_bytes_that_linux_tells_of(auxiliary_vector: dict[int, int], best: str) -> None:
    features = _with_capabilities({"neon": True, "sve": False}, auxiliary_vector)
    assert features["neon"] and not features["sve"]
    assert _byte_products("aarch64", frozenset(name for name, on in features.items() if on)) == best


def test_what_llvm_says_counts_first() -> None:
    assert not _with_capabilities({"dotprod": False}, {16: DOTPROD, 26: 0})["dotprod"]


def test_host_has_the_byte_products_of_its_features() -> None:
    names = frozenset(name[1:] for name in host().features.split(",") if name.startswith("+"))
    assert _byte_products(host().architecture, names) == host().byte_products
