"""A trained digits classifier as a program in C: object and header from tfbridge, main() from here."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tfbridge

NAME = "digits"

# The program is written against the C API of the header that tfbridge.aot writes; nothing else here knows it.
MAIN = r"""
#include <stdio.h>
#include <string.h>
#include "digits.h"

/* Reads images of 8 x 8 floats from a file and prints the class of each on a line. */
int main(int argc, char **argv) {
    float image[DIGITS_ARG0_ELEMENTS];
    FILE *file = argc == 2 ? fopen(argv[1], "rb") : NULL;
    digits_model *classifier = digits_new();
    if (!file || !classifier) {
        fprintf(stderr, "usage: digits IMAGES\n");
        return 2;
    }
    while (fread(image, sizeof image, 1, file) == 1) {
        const float *scores;
        int best = 0;
        memcpy(digits_arg0(classifier), image, sizeof image);
        if (digits_run(classifier) != 0) {
            fprintf(stderr, "%s\n", digits_error_message(classifier));
            return 1;
        }
        scores = digits_result0(classifier);
        for (int digit = 1; digit < 10; digit++)
            if (scores[digit] > scores[best]) best = digit;
        printf("%d\n", best);
    }
    digits_free(classifier);
    fclose(file);
    return 0;
}
"""


@dataclass(frozen=True)
class DigitsProgram:
    """The files of the program. `size_bytes` is that of the stripped executable."""

    object_file: Path
    header: Path
    executable: Path

    @property
    def size_bytes(self) -> int:
        return self.executable.stat().st_size

    def classify(self, images: np.ndarray, emulator: tuple[str, ...] = ()) -> np.ndarray:
        """Runs the program on f32[n, 8, 8, 1] and returns its s32[n] classes.

        `emulator` is the command that runs programs of another architecture.
        """
        file = self.executable.with_suffix(".images")
        file.write_bytes(np.ascontiguousarray(images, np.float32).tobytes())
        finished = subprocess.run(
            [*emulator, self.executable, file], capture_output=True, text=True, check=True
        )
        return np.array(finished.stdout.split(), np.int32)


def find_c_compiler() -> str | None:
    """The system's C compiler, if it has one."""
    return next((path for name in ("cc", "gcc", "clang") if (path := shutil.which(name))), None)


def build(saved_model: Path, compiler: str, folder: Path, target_triple: str | None = None) -> DigitsProgram:
    """Compiles a SavedModel, whose serving signature maps f32[1, 8, 8, 1] to f32[1, 10], into a program.

    `compiler` is a C compiler for the target (default: this machine).
    """
    compiled = tfbridge.aot.compile(saved_model, name=NAME, out_dir=folder, target_triple=target_triple)
    source = folder / "main.c"
    source.write_text(MAIN)
    program = DigitsProgram(compiled.object_file, compiled.header, folder / NAME)
    subprocess.run(
        [
            compiler,
            "-std=c99",
            "-O2",
            "-s",
            str(source),
            str(program.object_file),
            "-lm",
            "-o",
            str(program.executable),
        ],
        check=True,
    )
    return program
