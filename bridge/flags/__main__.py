"""Prints the flags with the values in force: `python -m tfbridge.bridge.flags [--markdown]`."""

from __future__ import annotations

import sys

from . import FLAGS, markdown, values


def main() -> int:
    """Prints the table."""
    if "--markdown" in sys.argv[1:]:
        print(markdown())
        return 0
    given = values()
    width = max(len(flag.variable) for flag in FLAGS)
    for flag in FLAGS:
        default = flag.shown(flag.default)
        print(f"{flag.variable:{width}}  {flag.shown(given[flag.name]) or '(none)'}")
        print(f"{'':{width}}    {flag.description}")
        print(f"{'':{width}}    allowed: {flag.allowed}" + (f"; default: {default}" if default else ""))
    return 0


if __name__ == "__main__":
    sys.exit(main())
