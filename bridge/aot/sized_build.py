"""What building a model does besides where sizes change."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from ...compiler.errors import ShapeError
from ...compiler.ir.module import Module
from ...compiler.ir.sized_module import SizedModule
from ...runtime.code.artifact import Artifact, BufferSpec
from ...runtime.llvm.target import Target
from ...runtime.size_bounds import Interval, bounds
from ...runtime.sizes import AnySize
from .changing_sizes import SizedFunction
from .freeze import Frozen, Function
from .writers.model import Entry, Sizes

_PRIMES = (3, 5, 7, 11, 13)


def compiled_modules(
    frozen: Frozen, symbols: Mapping[Function, str], target: Target
) -> dict[str, Module | SizedModule]:
    """The modules to compile, by the names of their entries.

    Raises: ShapeError, UnsupportedError  a function takes no changing sizes.
    """
    places = {size.name: number for number, size in enumerate(frozen.sizes)}
    if len({name.upper() for name in places}) < len(places):
        raise ShapeError(f"names of sizes differ in case alone: {', '.join(places)}")
    return {
        symbol: function.module.variants({s.name: places[s.name] for s in function.module.sizes}, target)
        if isinstance(function.module, SizedFunction)
        else function.module
        for function, symbol in symbols.items()
    }


def sizes_of(
    frozen: Frozen, modules: Sequence[Module | SizedModule], artifacts: Sequence[Artifact]
) -> tuple[int, Sizes]:
    """(the temporary memory of runs, as far as it is known now; the sizes that change)."""
    sized = [module for module in modules if isinstance(module, SizedModule)]
    known = [a.temp_bytes for a, module in zip(artifacts, modules, strict=True) if isinstance(module, Module)]
    most: dict[str, int] = {}
    for module in sized:
        most |= {name: min(number, most.get(name, number)) for name, number in module.most.items()}
    temps = [(variant.temp_bytes, _intervals(module)) for module in sized for variant in module.variants]
    sizes = Sizes(
        frozen.sizes,
        most,
        tuple(size for size, _ in temps),
        tuple(
            dict.fromkeys(
                f"Runs with {_listed(module.not_served)} are refused; surely not those where sizes are 2 or more"
                + "".join(f" and {each}" for each in module.variants[0].conditions(module.most))
                for module in sized
                if module.not_served
            )
        ),
        {
            function.name: _examples(frozen, module)
            for function, module in zip(frozen.functions, modules)
            if isinstance(module, SizedModule)
        },
    )
    if sizes.are_bounded:
        known += [bounds(size, intervals)[1] for size, intervals in temps]
    return max(known, default=0), sizes


def _listed(values: Mapping[str, int]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in values.items())


def _examples(frozen: Frozen, module: SizedModule) -> list[dict[str, int]]:
    """Sizes for a test: of 1, small ones, the bounds, and those that the code was planned for where it takes no
    others."""
    symbols = module.variants[0].symbolic.assumptions.symbols
    most = {s.name: s.most for s in frozen.sizes}
    names = list(module.places)
    candidates = [
        dict.fromkeys(names, 1),
        {name: _PRIMES[k % len(_PRIMES)] for k, name in enumerate(names)},
        {name: 8 if (bound := most[name]) is None else bound for name in names},
        {name: size.hint for name, size in symbols.items()},
    ]
    served: list[dict[str, int]] = []
    for values in candidates:
        fits = all((bound := most[name]) is None or value <= bound for name, value in values.items())
        is_new = values not in served and (len(served) < 2 or values != candidates[-1])
        if fits and is_new and any(variant.serves(values) for variant in module.variants):
            served.append(values)
    return served


def _intervals(module: SizedModule) -> dict[str, Interval]:
    return {name: (0, number) for name, number in module.most.items()}


def largest(entry: Entry, module: SizedModule) -> Entry:
    """The entry with the dims of its arrays, and the largest arrays that there are."""
    general = module.variants[0].symbolic
    arguments = general.parameters[: len(entry.arguments)]
    results = general.results[: len(entry.results)]
    intervals = _intervals(module)
    return dataclasses.replace(
        entry,
        arguments=[_largest(spec, dims, intervals) for spec, dims in zip(entry.arguments, arguments)],
        results=[_largest(spec, dims, intervals) for spec, dims in zip(entry.results, results)],
        argument_sizes=arguments,
        result_sizes=results,
    )


def _largest(spec: BufferSpec, dims: Sequence[AnySize], intervals: Mapping[str, Interval]) -> BufferSpec:
    most = tuple(max(0, bounds(dim, intervals)[1]) for dim in dims)
    return BufferSpec(spec.dtype, most, math.prod(most) * np.dtype(spec.dtype).itemsize)
