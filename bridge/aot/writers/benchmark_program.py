"""Writes a C program that times a compiled object."""

from __future__ import annotations

from string import Template

import numpy as np

from ....runtime.sizes import is_symbolic
from .model import Entry, Model

_PROGRAM = Template("""\
/* ${name}_benchmark.c: times $name.o; the argument is the seconds for each function, 1 without one. */
#ifndef _WIN32
#define _POSIX_C_SOURCE 199309L
#endif
#include "$name.h"
#include <stdio.h>
#include <time.h>

enum { MOST_RUNS = 1000000 };
static ${name}_model model;
$memory
static double microseconds[MOST_RUNS];
$constants
static double now(void) {
#ifdef _WIN32
    return (double)clock() * 1e6 / CLOCKS_PER_SEC;
#else
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e6 + (double)time.tv_nsec * 1e-3;
#endif
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Runs a function for some time; the first tenth of the runs, at least one, is not counted. */
static int measure(const char *function, int (*run)(${name}_model *), double seconds) {
    size_t runs = 0, skipped;
    double start = now(), before = start, after = start;
    do {
        if (run(&model) != 0) {
            printf("%s: %s\\n", function, ${name}_error_message(&model));
            return 1;
        }
        after = now();
        microseconds[runs++] = after - before;
        before = after;
    } while (runs < MOST_RUNS && (runs < 11 || after - start < seconds * 1e6));
    skipped = runs / 10;
    runs -= skipped;
    qsort(microseconds + skipped, runs, sizeof *microseconds, compare);
    printf("%s: %lu runs, us: least %.2f, median %.2f, 90 %% %.2f, 99 %% %.2f, most %.2f\\n", function,
           (unsigned long)runs, microseconds[skipped], microseconds[skipped + runs / 2],
           microseconds[skipped + runs * 9 / 10], microseconds[skipped + runs * 99 / 100],
           microseconds[skipped + runs - 1]);
    return 0;
}

int main(int count, char **arguments) {
    double seconds = count > 1 ? atof(arguments[1]) : 1.0;
    size_t i = 0;
    ${name}_init(&model, memory$pass_most);
$set_constants$filling
    (void)i;
    return $measuring;
}
""")
_FILL = Template("""\
    for (i = 0; i < $elements; i++) ${array}(&model)[i] = $value;""")
CONSTANTS = Template("""
/* The contents of $name.bin, at a multiple of 64. */
static char file[${NAME}_CONSTANTS_BYTES + 64];

static const void *constants(void) {
    char *at = file + (64 - (uintptr_t)file % 64) % 64;
    FILE *in = fopen("$name.bin", "rb");
    size_t bytes = in ? fread(at, 1, ${NAME}_CONSTANTS_BYTES, in) : 0;
    if (in) fclose(in);
    return bytes == ${NAME}_CONSTANTS_BYTES ? at : NULL;
}
""")
SET_CONSTANTS = Template("    ${name}_set_constants(&model, constants());\n")


_OPEN_MEMORY = Template("""\
/* The sizes of the program's runs are at most these. */
static const int64_t most[${NAME}_SIZES] = {$most};
static char memory[$bytes];""")


def memory_definition(model: Model) -> str:
    """The definition of a model's memory."""
    if model.sizes.are_bounded:
        return f"static char memory[{model.name.upper()}_MEMORY_BYTES];"
    most = ", ".join(str(model.example_most[size.name]) for size in model.sizes.listed)
    return _OPEN_MEMORY.substitute(NAME=model.name.upper(), most=most, bytes=model.example_bytes)


def write_benchmark(model: Model) -> str:
    """The program's text. Arguments are small numbers."""
    common = {"name": model.name, "NAME": model.name.upper()}
    return _PROGRAM.substitute(
        common,
        memory=memory_definition(model),
        pass_most="" if model.sizes.are_bounded else ", most",
        constants=CONSTANTS.substitute(common) if model.constants_file else "",
        set_constants=SET_CONSTANTS.substitute(common) if model.constants_file else "",
        filling="\n".join(line for entry in model.entries for line in _filling(model, entry)),
        measuring=" | ".join(
            f'measure("{model.call(entry)}", {model.call(entry)}_run, seconds)' for entry in model.entries
        ),
    )


def _filling(model: Model, entry: Entry) -> list[str]:
    lines = []
    for k, spec in enumerate(entry.arguments):
        array = f"{model.call(entry)}_arg{k}"
        is_changing = is_symbolic(entry.sizes("args", k))
        if not is_changing and not spec.bytes:
            continue
        if spec.dtype in ("float32", "float64"):
            value = "(float)(i % 7) * 0.25f - 0.75f"
        elif spec.dtype == "float16":
            value = "(uint16_t)(0x3800u + i % 7)"  # near 0.5
        elif np.dtype(spec.dtype).kind in "iub":
            value = "i % 2"
        else:
            continue  # zeros
        elements = f"{array}_elements(model.sizes)" if is_changing else f"{array.upper()}_ELEMENTS"
        lines.append(_FILL.substitute(elements=elements, array=array, value=value))
    return lines
