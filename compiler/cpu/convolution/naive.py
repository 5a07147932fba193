"""The plain convolution, in scalars: every element type and order of axes, for complex numbers and rare results."""

from __future__ import annotations

from collections.abc import Sequence

from ....runtime.llvm.ir_builder import Function, ModuleText, Value, i64
from ....runtime.llvm.target import Target
from ...errors import UnsupportedError
from ...ir.element_types import ElementType
from ..codegen.memory_types import memory_type
from ..gemm.compute_types import load_as, multiply_add, zero
from .problem import ConvolutionProblem

KERNEL_PARAMETERS = (("ptr", "ctx"), ("ptr", "buffers"), ("i64", "lo"), ("i64", "hi"), ("i64", "tid"))


def write_simple_convolution(
    module: ModuleText,
    target: Target,
    problem: ConvolutionProblem,
    dims: Sequence[tuple[int, int | str]],
    view: tuple[int, int, int],
    epilogue: str | None,
) -> str:
    """Writes the kernel; a task is one row of the view. `dims`: size and meaning of the output's axes, the number of
    a spatial one, `batch` or `feature`.

    Raises: UnsupportedError  a result that sums cannot be held in.
    """
    result, complex_ = problem.result_type, problem.input_type.is_complex
    if (
        complex_ != result.is_complex
        or problem.input_type.is_float != result.is_float
        or (result.is_float and result.item_bytes < 4)
    ):
        raise UnsupportedError(f"no convolution of {problem.input_type!r} with a result of {result!r}")
    type_, parts = memory_type(result.real), 2 if complex_ else 1
    f = Function(module, "SELF", KERNEL_PARAMETERS)
    source, kernel, made = (f.load("ptr", f.offset(f["buffers"], j, "ptr"), 8) for j in range(3))

    def load(base: Value, index: Value | int, kind: ElementType) -> list[Value]:
        part = kind.real
        at = f.offset(base, f.mul(index, part.item_bytes * parts))
        return [load_as(f, part, type_, f.offset(at, j * part.item_bytes), 1) for j in range(parts)]

    def multiply(a: list[Value], b: list[Value], c: list[Value]) -> list[Value]:
        if not complex_:
            return [multiply_add(f, a[0], b[0], c[0], target)]
        negative = f.op(type_, f"fneg {a[1]}")
        return [
            multiply_add(f, negative, b[1], multiply_add(f, a[0], b[0], c[0], target), target),
            multiply_add(f, a[1], b[0], multiply_add(f, a[0], b[1], c[1], target), target),
        ]

    def element(index: Value | int) -> None:
        """Computes the output element with this row-major index."""
        left: Value | int = index
        place: dict[int | str, Value | int] = {}
        for number in range(len(dims) - 1, -1, -1):
            place[dims[number][1]] = f.remainder(left, dims[number][0]) if number else left
            left = f.divide(left, dims[number][0])
        group = f.divide(place["feature"], problem.outputs)
        at = f.add(f.mul(place["batch"], problem.input_batch), f.mul(group, problem.input_group))
        weight = f.add(problem.kernel_offset, f.mul(place["feature"], problem.kernel_output))
        acc = window(0, at, weight, place, [zero(type_)] * parts)
        for j in range(parts):
            f.store(acc[j], f.offset(made, f.add(f.mul(index, parts), j), type_), result.real.item_bytes)

    def window(
        number: int,
        at: Value | int,
        weight: Value | int,
        place: dict[int | str, Value | int],
        acc: list[Value],
    ) -> list[Value]:
        if number == len(problem.axes):

            def features(c: Value, carried: list[Value]) -> list[Value]:
                a = load(source, f.add(at, f.mul(c, problem.input_feature)), problem.input_type)
                b = load(kernel, f.add(weight, f.mul(c, problem.kernel_input)), problem.kernel_type)
                return multiply(a, b, carried)

            return f.loop(0, problem.inputs, 1, features, acc)
        axis = problem.axes[number]

        def tap(k: Value, carried: list[Value]) -> list[Value]:
            seen = f.sub(f.add(f.mul(place[number], axis.stride), f.mul(k, axis.window_dilation)), axis.pad)
            inside = f.compare("icmp sge", i64(seen), i64(0))
            position = i64(seen)
            if axis.base_dilation > 1:
                position = f.binary("sdiv", i64(seen), i64(axis.base_dilation))
                whole = f.compare("icmp eq", i64(f.mul(position, axis.base_dilation)), i64(seen))
                inside = f.binary("and", inside, whole)
            inside = f.binary("and", inside, f.compare("icmp slt", position, i64(axis.input)))
            return f.branch(
                inside,
                lambda: window(
                    number + 1,
                    f.add(at, f.mul(position, axis.input_stride)),
                    f.add(weight, f.mul(k, axis.kernel_stride)),
                    place,
                    carried,
                ),
                lambda: carried,
            )

        return f.loop(0, axis.window, 1, tap, acc)

    def task(t: Value, _: list[Value]) -> None:
        f.loop(0, view[2], 1, lambda c, _: element(f.add(f.mul(t, view[2]), c)))
        if epilogue:
            row = f.remainder(t, view[1])
            f.call(
                epilogue,
                "void",
                [
                    f["ctx"],
                    f["buffers"],
                    i64(f.divide(t, view[1])),
                    i64(row),
                    i64(f.add(row, 1)),
                    i64(0),
                    i64(view[2]),
                ],
            )

    f.loop(f["lo"], f["hi"], 1, task)
    f.ret()
    return module.define("convolution", f)
