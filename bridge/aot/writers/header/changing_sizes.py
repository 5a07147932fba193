"""The parts of a header that are there, or are others, where sizes change."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from .....runtime.sizes import is_symbolic, symbols_of
from ..model import ALIGN, ChangingSize, Entry, Model, aligned
from ..names import in_comment
from ..size_expressions import expressions
from . import size_templates as text

_WIDTH = 114


def parts(model: Model, buffers: Sequence[dict[str, str]]) -> dict[str, str]:
    """What the header's template says of sizes."""
    common = _common(model)
    is_open = not model.sizes.are_bounded
    of_most = f"{model.name}_memory_bytes(most)" if is_open else f"{model.name.upper()}_MEMORY_BYTES"
    temp_of_most = f"{model.name}_temp_bytes(most)" if is_open else f"{model.name.upper()}_TEMP_BYTES"
    return {
        "memory_of_most": of_most,
        "temp_of_most": temp_of_most,
        "most": "const int64_t *most" if is_open else "",
        "most_or_void": "const int64_t *most" if is_open else "void",
        "and_most": ", const int64_t *most" if is_open else "",
        "pass_most": ", most" if is_open else "",
        "explicit": "explicit " if is_open else "",
        "constexpr": "" if is_open else "constexpr ",
        "size_functions": "\n".join(_functions(model, buffers)) if model.sizes.listed else "",
        "size_fields": "".join(_fields(model)),
        "set_sizes": text.INIT_MOST if is_open else "".join(_initial_sizes(model)),
        "give_sizes": text.GIVE_SIZES if model.sizes.listed else "",
        "size_methods": text.SIZE_METHODS.template
        + "".join(text.SIZE_METHOD.substitute(common, size=s.name, place=k) for k, s in _numbered(model))
        if model.sizes.listed
        else "",
    }


def _common(model: Model) -> dict[str, str]:
    return {"name": model.name, "NAME": model.name.upper()}


def _numbered(model: Model) -> Iterator[tuple[int, ChangingSize]]:
    return enumerate(model.sizes.listed)


def _functions(model: Model, buffers: Sequence[dict[str, str]]) -> Iterator[str]:
    """What the sizes are, and the functions that compute dims and memory from them."""
    common = _common(model)
    refused = [f" *   {line}" for each in model.sizes.refused for line in textwrap.wrap(each, _WIDTH)]
    yield text.ARITHMETIC
    yield text.SIZES.substitute(
        common,
        count=len(model.sizes.listed),
        listed="\n".join([f" *   {_described(size)}" for size in model.sizes.listed] + refused),
        places="\n".join(
            text.PLACE.substitute(common, SIZE=size.name.upper(), place=k) for k, size in _numbered(model)
        ),
    )
    changing = [b for b in buffers if b["dims"]]
    for buffer in changing:
        dims = buffer["dims"].splitlines()
        cases = "\n".join(text.DIM_CASE.substitute(axis=k, dim=dim) for k, dim in enumerate(dims))
        yield text.ARRAY.substitute(buffer, dim_cases=cases, elements=" * ".join(dims))
    if not model.sizes.are_bounded:
        fixed = [
            spec.bytes
            for entry in model.entries
            for kind, specs in (("args", entry.arguments), ("results", entry.results))
            for k, spec in enumerate(specs)
            if not is_symbolic(entry.sizes(kind, k))
        ]
        state = [each.spec.bytes for each in model.states]
        temps = expressions(model, model.sizes.temp_bytes, "sizes")
        yield text.MEMORY.substitute(
            common,
            fixed_temp=model.temp_bytes,
            temps="\n".join(text.TEMP.substitute(bytes=each) for each in temps),
            fixed_bytes=ALIGN + sum(map(aligned, (*fixed, *state))),
            array_bytes="".join(text.ARRAY_BYTES.substitute(b) for b in changing),
        )


def _described(size: ChangingSize) -> str:
    bound = "any number" if size.most is None else f"at most {size.most}"
    return f"{size.name}: {bound}, {in_comment(size.place)}"


def _fields(model: Model) -> Iterator[str]:
    if model.sizes.listed:
        yield text.FIELDS.substitute(_common(model))
    if not model.sizes.are_bounded:
        yield text.MOST_FIELD.substitute(_common(model))


def _initial_sizes(model: Model) -> Iterator[str]:
    for place, size in _numbered(model):
        yield text.INIT_SIZE.substitute(place=place, most=size.most)


def checks(model: Model, entry: Entry) -> str:
    """The statements that check the sizes before a run of a function."""
    common, is_open = _common(model), not model.sizes.are_bounded
    arrays = {
        f"{model.call(entry)}_{kind[:-1]}{k}": entry.sizes(kind, k)
        for kind, specs in (("args", entry.arguments), ("results", entry.results))
        for k in range(len(specs))
    }
    used = {atom.key for atom in symbols_of(size for sizes in arrays.values() for size in sizes)}
    steps = [
        text.CHECK_SIZE.substitute(
            common,
            place=place,
            size=size.name,
            most=f"self->most[{place}]" if is_open else size.most,
            bound="what the model has memory for" if is_open else size.most,
        )
        for place, size in _numbered(model)
        if size.name in used
    ]
    if is_open and used:
        functions = {f"{array}_bytes": array for array, sizes in arrays.items() if is_symbolic(sizes)}
        functions[f"{model.name}_temp_bytes"] = "temporary memory"
        steps += [
            text.CHECK_MEMORY.substitute(common, function=function, what=what)
            for function, what in functions.items()
        ]
    return "".join(steps)
