"""Dumps: every stage of a compilation as a numbered file in a folder of its own."""

from __future__ import annotations

import os
import re


class Dump:
    """A new folder `NNNN-NAME` in a directory; the files written are numbered in order."""

    def __init__(self, directory: str, name: str) -> None:
        os.makedirs(directory, exist_ok=True)
        number = sum(entry.is_dir() for entry in os.scandir(directory))
        name = re.sub(r"[^\w.-]+", "_", name)[:80]
        while True:  # another thread or process may take the number first
            self.folder = os.path.join(directory, f"{number:04}-{name}")
            try:
                os.mkdir(self.folder)
                break
            except FileExistsError:
                number += 1
        self._files = 0

    def write(self, name: str, text: str) -> None:
        """Writes `NN-NAME`."""
        with open(os.path.join(self.folder, f"{self._files:02}-{name}"), "w", encoding="utf-8") as file:
            file.write(text)
        self._files += 1
