"""`python -m tfbridge.aot`: the command `tfbridge-aot`."""

from __future__ import annotations

import sys

from ..bridge.aot.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
