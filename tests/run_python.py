"""Python programs run in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


def run_python(
    program: str,
    *,
    launcher: Sequence[str] = (),
    timeout: float = 300,
    cwd: Path | None = None,
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    """The status and the output of a program.

    Its environment is that of the tests without flags of tfbridge, and with the variables given. With flags among them,
    code is compiled in the foreground unless they say otherwise.
    Launcher: the command that starts the interpreter, and its arguments.
    Units: timeout in seconds.
    Raises: subprocess.TimeoutExpired  the program is still running; it is killed.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TFBRIDGE_")}
    if any(name.startswith("TFBRIDGE_") for name in environment):
        inherited["TFBRIDGE_COMPILE"] = "foreground"
    return subprocess.run(
        [*launcher, sys.executable, "-c", program],
        env=inherited | environment,
        cwd=cwd,
        timeout=timeout,
        capture_output=True,
        text=True,
        check=False,
    )
