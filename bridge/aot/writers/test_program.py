"""Writes a C program that checks a compiled object against TensorFlow's results for one set of arguments, or one for
each of some sizes.

The program needs the header and the object alone; without an operating system it prints nothing.
"""

from __future__ import annotations

from string import Template

import numpy as np

from .benchmark_program import CONSTANTS, SET_CONSTANTS, memory_definition
from .export import SMALL_FLOATS, Export, Run
from .header.header import C_TYPES
from .model import Entry

_PER_LINE = 8
_MOST_STEPS = 3

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

/* The same of integers that stand for numbers: each layer before may have rounded one step further. */
#define IS_NEAR(found, wanted) ((found) - (wanted) <= $most_steps && (wanted) - (found) <= $most_steps)

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


def write_test(export: Export) -> str:
    """The program's text: an example of each function, or one for each of some sizes. Of a model with a state, the
    results of the last of several runs are compared."""
    model = export.model
    common = {"name": model.name, "NAME": model.name.upper()}
    data: list[str] = []
    steps: list[str] = []
    for entry, own in zip(model.entries, export.examples, strict=True):
        for number, run in enumerate(own):
            suffix = f"_{number}" if len(own) > 1 else ""
            steps.append(_step(export, entry, run, suffix, data))
    is_decoding = any(spec.dtype in SMALL_FLOATS for entry in model.entries for spec in entry.results)
    return _PROGRAM.substitute(
        common,
        most_steps=_MOST_STEPS,
        data="\n".join(data),
        memory=memory_definition(model),
        pass_most="" if model.sizes.are_bounded else ", most",
        decoding=_DECODING if is_decoding else "",
        constants=CONSTANTS.substitute(common) if model.constants_file else "",
        set_constants=SET_CONSTANTS.substitute(common) if model.constants_file else "",
        runs="\n".join(steps),
    )


def _step(export: Export, entry: Entry, run: Run, suffix: str, data: list[str]) -> str:
    """The statements of a run; its arrays' definitions are added to `data`."""
    model = export.model
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
            if entry.step("result", k) is not None:
                close = f"IS_NEAR({name}(&model)[i], wanted_{name}{suffix}.values[i])"
            else:
                close = _close(name, f"{name}{suffix}", spec.dtype, export.tolerance(spec.dtype))
            compared.append(_RESULT.substitute(title=title, elements=array.size, close=close))
    return _RUN.substitute(
        common,
        call=call,
        reset=_RESET.substitute(common) if model.states else "",
        sizes="".join(_SIZE.substitute(place=p, value=v) for p, v in run.sizes.items()),
        arguments="\n".join(filled),
        count=export.runs_of_example,
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


def _close(name: str, values: str, dtype: str, tolerance: float) -> str:
    """The C expression of whether element `i` of a result is the one expected."""
    found, wanted = f"{name}(&model)[i]", f"wanted_{values}.values[i]"
    if dtype in SMALL_FLOATS:
        exponent, fraction = SMALL_FLOATS[dtype]
        found, wanted = (f"decoded({value}, {exponent}, {fraction})" for value in (found, wanted))
    elif not tolerance:
        return f"{found} == {wanted}"
    if "complex" in dtype:
        return " && ".join(f"is_close({found}.{part}, {wanted}.{part}, {tolerance})" for part in ("re", "im"))
    return f"is_close({found}, {wanted}, {tolerance})"
