"""`python -m tfbridge.flags`: prints the flags with the values in force; `--markdown` prints README's table."""

from __future__ import annotations

import sys

from ..bridge.flags import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
