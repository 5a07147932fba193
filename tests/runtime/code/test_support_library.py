"""The native functions: the text is valid for every machine it is written for."""

from __future__ import annotations

import llvmlite.binding as llvm
import pytest
from tfbridge.runtime.code import support_library
from tfbridge.runtime.threads import futex


@pytest.mark.parametrize("machine", ["x86_64", "aarch64", "riscv64"])
def test_pool_compiles_for_every_machine(machine: str) -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple(f"{machine}-linux-gnu")
    with llvm.parse_assembly(support_library.module_text(machine, True, machine)) as module:
        module.verify()
        assert target.create_target_machine().emit_object(module)[:4] == b"\x7fELF"


def test_without_linux() -> None:
    with llvm.parse_assembly(support_library.module_text("x86_64", False, None)) as module:
        module.verify()
        assert "madvise" not in str(module)


@pytest.mark.parametrize(("name", "machine"), [("arm64", "aarch64"), ("AMD64", "x86_64")])
def test_names_of_machines_on_other_systems(name: str, machine: str) -> None:
    texts = {n: support_library.module_text(n, False, None) for n in (name, machine, "riscv64")}
    assert texts[name] == texts[machine] != texts["riscv64"]


def test_no_pool_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    assert not futex.is_supported()


def test_addresses() -> None:
    known = support_library.addresses()
    memory = {f"{kind}_{verb}" for kind in ("arena", "block") for verb in ("take", "put", "trim")}
    assert set(known) == {"parallel_for", "pool", "run"} | memory
    assert all(known[name] for name in memory | {"run"})
    assert (known["parallel_for"] == 0) == (not futex.is_supported())
