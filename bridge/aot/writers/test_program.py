"""Writes a C program that checks a compiled object against TensorFlow's results for one set of arguments, or one for
each of some sizes.

The program needs the header and the object alone; without an operating system it prints nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from string import Template

import numpy as np

from ....runtime.sizes import Valuation
from .benchmark_program import CONSTANTS, SET_CONSTANTS, memory_definition
from .header.header import C_TYPES
from .model import Entry, Model, Reference, Results

_SEED = 20
_RUNS_OF_STATE = 3
_PER_LINE = 8
# Floats that C has no type for: (bits of the exponent, bits of the fraction).
_SMALL_FLOATS = {"float16": (5, 10), "bfloat16": (8, 7), "float8_e4m3fn": (4, 3), "float8_e5m2": (5, 2)}
# Differences that other orders of arithmetic make, as parts of a number of 1 or more.
_TOLERANCES = {
    "float64": 1e-9,
    "complex128": 1e-9,
    "float16": 1e-2,
    "bfloat16": 5e-2,
    "float8_e4m3fn": 0.25,
    "float8_e5m2": 0.5,
}
_F32_TOLERANCE = 1e-4

_PROGRAM = Template("""\
/* ${name}_test.c: checks $name.o on sets of arguments against the results expected. Exit status: how many results
   differ; 100: the run failed. */
#include "$name.h"
#if __STDC_HOSTED__
#include <stdio.h>
#endif

$data
$decoding
static ${name}_model model;
$memory
$constants
/* Whether a number is the one expected, but for rounding: the arithmetic has another order. */
static inline int is_close(double found, double wanted, double tolerance) {
    double distance = found > wanted ? found - wanted : wanted - found;
    double size = wanted < 0 ? -wanted : wanted;
    if (found != found || wanted != wanted) return found != found && wanted != wanted;
    if (size - size != 0) return found == wanted;  /* infinite */
    return found == wanted || distance <= tolerance * (size < 1 ? 1 : size);
}

static inline int report(const char *result, size_t elements, size_t differ) {
#if __STDC_HOSTED__
    printf("$name: %s: %lu elements, %lu differ\\n", result, (unsigned long)elements, (unsigned long)differ);
#else
    (void)result;
    (void)elements;
#endif
    return differ > 0;
}

int main(void) {
    size_t i = 0, differ = 0;
    int failures = 0;
    ${name}_init(&model, memory$pass_most);
$set_constants$runs
    (void)differ;
    return failures;
}
""")
_DECODING = """
/* The value of a small float's bits. */
static inline double decoded(unsigned bits, int exponent_bits, int fraction_bits) {
    int bias = (1 << (exponent_bits - 1)) - 1, exponent = (int)(bits >> fraction_bits) & (2 * bias + 1);
    double value = (double)(bits & ((1u << fraction_bits) - 1)), infinity = 1e300;
    if (exponent == 2 * bias + 1 && exponent_bits != 4) {
        infinity *= infinity;
        value = value > 0 ? infinity - infinity : infinity;
    } else if (exponent_bits == 4 && (bits & 127) == 127) {
        infinity *= infinity;
        value = infinity - infinity;
    } else {
        value += exponent ? (double)(1 << fraction_bits) : 0.0;
        for (exponent = (exponent ? exponent : 1) - bias - fraction_bits; exponent > 0; exponent--) value *= 2;
        for (; exponent < 0; exponent++) value /= 2;
    }
    return bits >> (exponent_bits + fraction_bits) ? -value : value;
}
"""
_ARRAY = Template("static const union { $bits bits[$count]; $type values[$elements]; } $name = {{\n$rows}};")
_RUN = Template("""\
$reset$sizes$arguments
    for (i = 0; i < $count; i++)
        if (${call}_run(&model) != 0) {
            report(${name}_error_message(&model), 0, 1);
            return 100;
        }
$results""")
_RESET = Template("    if (${name}_reset(&model) != 0) return 100;\n")
_SIZE = Template("    model.sizes[$place] = $value;\n")
_ARGUMENT = Template("    memcpy(${array}(&model), in_$values.values, sizeof in_$values);")
_RESULT = Template("""\
    for (i = 0, differ = 0; i < $elements; i++)
        differ += !($close);
    failures += report("$title", $elements, differ);""")


@dataclasses.dataclass(frozen=True)
class Run:
    """Arguments of a function and the results expected. `sizes`: those that change, by their places."""

    arguments: Sequence[np.ndarray]
    results: Sequence[np.ndarray]
    sizes: Mapping[int, int] = dataclasses.field(default_factory=dict)


def write_test(model: Model, reference: Reference) -> str:
    """The program's text: an example of each function, or one for each of some sizes. Of a model with a state, the
    results of the last of several runs are compared."""
    times = _RUNS_OF_STATE if model.states else 1
    runs = _example_runs(model, reference.functions, times)
    common = {"name": model.name, "NAME": model.name.upper()}
    data: list[str] = []
    steps: list[str] = []
    for entry, own in zip(model.entries, runs, strict=True):
        for number, run in enumerate(own):
            suffix = f"_{number}" if len(own) > 1 else ""
            steps.append(_step(model, entry, run, suffix, times, reference.tolerance, data))
    is_decoding = any(spec.dtype in _SMALL_FLOATS for entry in model.entries for spec in entry.results)
    return _PROGRAM.substitute(
        common,
        data="\n".join(data),
        memory=memory_definition(model),
        pass_most="" if model.sizes.are_bounded else ", most",
        decoding=_DECODING if is_decoding else "",
        constants=CONSTANTS.substitute(common) if model.constants_bytes else "",
        set_constants=SET_CONSTANTS.substitute(common) if model.constants_bytes else "",
        runs="\n".join(steps),
    )


def _example_runs(model: Model, functions: Sequence[Results], times: int) -> list[list[Run]]:
    """Runs of each function, with the results expected: one, or one for each example of its sizes. The results are
    those of the last of so many `times`."""
    places = {size.name: place for place, size in enumerate(model.sizes.listed)}
    runs: list[list[Run]] = []
    for entry, function in zip(model.entries, functions, strict=True):
        runs.append([])
        for values in model.sizes.examples.get(entry.name, [{}]):
            arguments = _example_arguments(entry, values)
            sizes = {places[name]: value for name, value in values.items()}
            results = function(arguments, times)
            rows = [np.array(len(results[k]), np.int32) for k in entry.sized_results]
            runs[-1].append(Run(arguments, [*results, *rows], sizes))
    return runs


def _example_arguments(entry: Entry, sizes: Mapping[str, int]) -> list[np.ndarray]:
    """Random values: normal floats, integers of 0 and 1."""
    random = np.random.default_rng(_SEED)
    arrays = []
    for k, spec in enumerate(entry.arguments):
        dims = tuple(map(Valuation(sizes), entry.sizes("args", k)))
        is_float = np.dtype(spec.dtype).kind in "fcV"
        values = random.standard_normal(dims) if is_float else random.integers(0, 2, dims)
        arrays.append(values.astype(spec.dtype))
    return arrays


def _step(
    model: Model,
    entry: Entry,
    run: Run,
    suffix: str,
    times: int,
    tolerance: float | None,
    data: list[str],
) -> str:
    """The statements of a run; its arrays' definitions are added to `data`."""
    common = {"name": model.name, "NAME": model.name.upper()}
    call, filled, compared = model.call(entry), [], []
    for k, (spec, array) in enumerate(zip(entry.arguments, run.arguments, strict=True)):
        if array.size:
            values = f"{call}_arg{k}{suffix}"
            data.append(array_definition(C_TYPES[spec.dtype], f"in_{values}", array))
            filled.append(_ARGUMENT.substitute(array=f"{call}_arg{k}", values=values))
    for k, (spec, array) in enumerate(zip(entry.results, run.results, strict=True)):
        if array.size:
            name, title = f"{call}_result{k}", f"{entry.name}_result{k}".lstrip("_")
            data.append(array_definition(C_TYPES[spec.dtype], f"wanted_{name}{suffix}", array))
            close = _close(name, f"{name}{suffix}", spec.dtype, tolerance)
            compared.append(_RESULT.substitute(title=title, elements=array.size, close=close))
    return _RUN.substitute(
        common,
        call=call,
        reset=_RESET.substitute(common) if model.states else "",
        sizes="".join(_SIZE.substitute(place=p, value=v) for p, v in run.sizes.items()),
        arguments="\n".join(filled),
        count=times,
        results="\n".join(compared),
    )


def array_definition(type_: str, name: str, values: np.ndarray) -> str:
    """The definition of an array, by its bits."""
    part = 8 * values.itemsize // (2 if values.dtype.kind == "c" else 1)
    bits = np.ascontiguousarray(values).reshape(-1).view(f"u{part // 8}")
    numbers = [f"{int(b):#x}{'ull' if part == 64 else 'u'}" for b in bits]
    rows = (", ".join(numbers[k : k + _PER_LINE]) for k in range(0, len(numbers), _PER_LINE))
    return _ARRAY.substitute(
        bits=f"uint{part}_t",
        count=len(numbers),
        type=type_,
        elements=values.size,
        name=name,
        rows=",\n".join(f"    {row}" for row in rows),
    )


def _close(name: str, values: str, dtype: str, tolerance: float | None) -> str:
    """The C expression of whether element `i` of a result is the one expected."""
    found, wanted = f"{name}(&model)[i]", f"wanted_{values}.values[i]"
    if dtype in _SMALL_FLOATS:
        exponent, fraction = _SMALL_FLOATS[dtype]
        found, wanted = (f"decoded({value}, {exponent}, {fraction})" for value in (found, wanted))
    elif "float" not in dtype and "complex" not in dtype:
        return f"{found} == {wanted}"
    tolerance = max(tolerance or 0.0, _TOLERANCES.get(dtype, _F32_TOLERANCE))
    if "complex" in dtype:
        return " && ".join(f"is_close({found}.{part}, {wanted}.{part}, {tolerance})" for part in ("re", "im"))
    return f"is_close({found}, {wanted}, {tolerance})"
