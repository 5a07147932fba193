"""The command `python -m tfbridge`: `aot`, `doctor`, `flags`, `report` or `run`, with the arguments of each.

It is also installed as `tfbridge`.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from . import __version__

# name: (module with a function `main` of the arguments, what it does)
COMMANDS = {
    "aot": ("bridge.aot.__main__", "compiles a SavedModel into an object file and a header"),
    "doctor": ("bridge.public.doctor", "says whether this installation works on this machine"),
    "flags": ("bridge.options.flags", "prints the environment variables with the values in force"),
    "report": ("bridge.api.report", "runs a Python program and prints what of it was compiled"),
    "run": ("compiler.__main__", "runs HLO text"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="tfbridge",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="\n".join(f"  {name:6} {what}" for name, (_, what) in COMMANDS.items()),
    )
    parser.add_argument("--version", action="version", version=f"tfbridge {__version__}")
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="those of the command; try --help")
    chosen = parser.parse_args(arguments)
    module = importlib.import_module(f"tfbridge.{COMMANDS[chosen.command][0]}")
    return module.main(chosen.arguments)


if __name__ == "__main__":
    sys.exit(main())
