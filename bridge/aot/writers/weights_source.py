"""Writes the weights of an exported model as C source, for systems without files."""

from __future__ import annotations

from string import Template

import numpy as np

from .export import Export

_PER_LINE = 5
_SOURCE = Template("""\
/* ${name}_weights.c: the weights of $name.o. Defined, ${NAME}_WEIGHTS_SECTION is the section that they go to. */
#include <stdint.h>

#if defined _MSC_VER
#define ALIGNED __declspec(align(64))
#else
#define ALIGNED __attribute__((aligned(64)))
#endif
#ifdef ${NAME}_WEIGHTS_SECTION
#define PLACED __attribute__((section(${NAME}_WEIGHTS_SECTION)))
#else
#define PLACED
#endif

#ifdef __cplusplus
extern "C"
#endif
const uint64_t $symbol[$words];
ALIGNED PLACED const uint64_t $symbol[$words] = {
$rows
};
""")


def write_weights(export: Export) -> str:
    """The text of NAME_weights.c."""
    model = export.model
    words = [f"0x{word:x}u" for word in np.frombuffer(export.constants, np.uint64).tolist()]
    rows = (", ".join(words[k : k + _PER_LINE]) for k in range(0, len(words), _PER_LINE))
    return _SOURCE.substitute(
        name=model.name,
        NAME=model.name.upper(),
        symbol=model.source_symbol,
        words=len(words),
        rows=",\n".join(f"    {row}" for row in rows),
    )
