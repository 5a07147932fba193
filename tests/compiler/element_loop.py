"""Runs code for single operations over arrays: what the tests of elementwise code and vector maths share."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from tfbridge.compiler.cpu.codegen import elementwise, memory_types
from tfbridge.compiler.cpu.objects.object_emitter import emit_object
from tfbridge.compiler.cpu.targets.named_target import target_for
from tfbridge.compiler.ir.element_types import ElementType, element_type_of
from tfbridge.runtime.code import linker
from tfbridge.runtime.llvm.ir_builder import Function, ModuleText, Ptr
from tfbridge.runtime.llvm.target import Target, host

# This machine, and the least that every machine of its kind has: no fused multiply-add, no rounding, no f16.
HOST = host()
PLAIN = target_for(HOST.triple, "x86-64") if HOST.architecture == "x86_64" else target_for(HOST.triple)


class Kernels:
    """Loops over arrays, one per operation, compiled together when the first is run."""

    def __init__(self, target: Target) -> None:
        self.target, self.module = target, ModuleText(target)
        self._engine: linker.Loaded | None = None

    def add(
        self,
        opcode: str,
        types: Sequence[ElementType],
        result: ElementType,
        lanes: int,
        attributes: Mapping[str, object] | None = None,
    ) -> str:
        """Writes the loop; returns its name."""
        name = f"k{len(self.module.functions)}"
        pointers = [("ptr", f"a{k}") for k in range(len(types))]
        f = Function(self.module, name, [*pointers, ("ptr", "r"), ("i64", "n")], linkage="")

        with f.loop(0, f.integer("n"), lanes) as loop:

            def address(parameter: str, t: ElementType) -> Ptr:
                index = loop.index * (2 if t.is_complex else 1)
                return f.pointer(parameter).at(index, memory_types.memory_type(t))

            values = [memory_types.load(f, t, address(f"a{k}", t), lanes) for k, t in enumerate(types)]
            value = elementwise.apply(f, opcode, attributes or {}, types, result, values)
            memory_types.store(f, result, value, address("r", result), lanes)
        f.ret()
        return self.module.add(name, f.text())

    def write(self, body: Callable[[Function], None]) -> str:
        """A function of a, r (pointers) and n (i64) whose code `body` writes; returns its name."""
        name = f"k{len(self.module.functions)}"
        f = Function(self.module, name, [("ptr", "a"), ("ptr", "r"), ("i64", "n")], linkage="")
        body(f)
        f.ret()
        return self.module.add(name, f.text())

    def call(self, name: str, a: np.ndarray, r: np.ndarray, n: int) -> None:
        """Calls a function that `write` wrote."""
        signature = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
        signature(self.address(name))(a.ctypes.data, r.ctypes.data, n)

    def address(self, name: str) -> int:
        """Where the compiled function is."""
        if self._engine is None:
            self._engine = linker.load(emit_object(self.module.text(), self.target), self.module.functions)
        return self._engine.addresses[name]

    def run(self, name: str, arrays: Sequence[np.ndarray], result: np.dtype) -> np.ndarray:
        """Runs a loop over arrays of one length, a multiple of 8."""
        arrays = [np.ascontiguousarray(a) for a in arrays]
        found = np.zeros(arrays[0].size, result)
        signature = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (len(arrays) + 1), ctypes.c_int64)
        signature(self.address(name))(*(a.ctypes.data for a in arrays), found.ctypes.data, found.size)
        return found


def run(
    target: Target,
    opcode: str,
    arrays: Sequence[np.ndarray],
    result: np.dtype | type | None = None,
    lanes: int = 8,
    attributes: Mapping[str, object] | None = None,
) -> np.ndarray:
    """One operation over arrays; by default the result has the first one's type."""
    result = np.dtype(arrays[0].dtype if result is None else result)
    kernels = Kernels(target)
    types = [element_type_of(a.dtype) for a in arrays]
    name = kernels.add(opcode, types, element_type_of(result), lanes, attributes)
    padding = -arrays[0].size % 8
    padded = [np.concatenate([a, np.repeat(a[:1], padding)]) for a in arrays]
    return kernels.run(name, padded, result)[: arrays[0].size]
