"""The native functions: the text is valid for every machine it is written for."""

from __future__ import annotations

import llvmlite.binding as llvm
import pytest
from tfbridge.runtime.code import float_mode, support_library
from tfbridge.runtime.memory import temp_arena
from tfbridge.runtime.threads import thread_pool


@pytest.mark.parametrize("machine", ["x86_64", "aarch64", "riscv64"])
def test_pool_compiles_for_every_machine(machine: str) -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple(f"{machine}-linux-gnu")
    with llvm.parse_assembly(
        temp_arena.text(linux=True, machine=machine) + thread_pool._text(machine)
    ) as module:
        module.verify()
        assert target.create_target_machine().emit_object(module)[:4] == b"\x7fELF"


def test_without_linux() -> None:
    with llvm.parse_assembly(temp_arena.text(linux=False)) as module:
        module.verify()
        assert "madvise" not in str(module)


@pytest.mark.parametrize(("name", "machine"), [("arm64", "aarch64"), ("AMD64", "x86_64")])
def test_names_of_machines_on_other_systems(name: str, machine: str) -> None:
    assert float_mode.text(name) == float_mode.text(machine) != float_mode.text("riscv64")
    assert float_mode.read(name, "%at") == float_mode.read(machine, "%at") != ""
    assert float_mode.write(name, "%at") == float_mode.write(machine, "%at") != ""


def test_no_pool_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    assert thread_pool.text() == ""


def test_addresses() -> None:
    known = support_library.addresses()
    memory = {f"{kind}_{verb}" for kind in ("arena", "block") for verb in ("take", "put", "trim")}
    assert set(known) == {"parallel_for", "pool", "run"} | memory
    assert all(known[name] for name in memory | {"run"})
    assert (known["parallel_for"] == 0) == (thread_pool.text() == "")
