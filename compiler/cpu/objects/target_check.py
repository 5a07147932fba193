"""Asks LLVM whether it knows a target. In a process of its own: what LLVM makes of a bad one is a message on stderr or
the end of the process.
"""

from __future__ import annotations

import re
import subprocess
import sys

from ....runtime.llvm.target import Target
from ...errors import UnsupportedError

_PROGRAM = """
import sys
import llvmlite.binding as llvm
llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()
triple, cpu, features = sys.argv[1:]
machine = llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, features=features)
print(machine.target_data)
machine.emit_object(llvm.parse_assembly("define i64 @f(i64 %x) { ret i64 %x }"))
"""


def check_target(target: Target) -> None:
    """Verifies that LLVM generates code for the target.

    Raises: UnsupportedError  it does not know the triple, the CPU or a feature (the message is LLVM's), or the target
    keeps the high byte first.
    """
    finished = subprocess.run(
        [sys.executable, "-P", "-c", _PROGRAM, target.triple, target.cpu, target.features],
        capture_output=True,
        text=True,
        check=False,
    )
    if finished.returncode or finished.stderr:
        lines = dict.fromkeys(
            line for line in finished.stderr.splitlines() if re.match(r"'|RuntimeError|LLVM ERROR", line)
        )
        raise UnsupportedError(
            f"target {target.triple}, CPU {target.cpu or 'generic'}, features "
            f"{target.features or 'none'}: {'; '.join(lines) or finished.stderr.strip()}"
        )
    if finished.stdout.startswith("E"):
        raise UnsupportedError(
            f"target {target.triple} keeps the high byte of a number first; constants are written "
            "low byte first"
        )
