"""Writes NAME.html: what an exported model is made of, for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ....compiler.quantization.report import QuantizationReport
from ....runtime.code.linker import section_bytes
from ....runtime.code.peak_rates import rates_per_cycle
from ....runtime.llvm.target import Target
from ...report_page.page import KernelSection, amount, kernel_section, render
from .export import Export
from .model import Entry, Model


def write_page(export: Export, reports: Sequence[QuantizationReport]) -> str:
    """The page. Times are the least that a usual core of the target takes, for sizes that change of typical ones."""
    model, object_bytes, target = export.model, export.object_bytes, export.target
    sections = section_bytes(object_bytes)
    functions = f"{len(model.entries)} functions" if len(model.entries) > 1 else "1 function"
    memory = amount(model.memory_bytes, "B") if model.sizes.are_bounded else "as runs need"
    facts = [
        ("target", model.target),
        ("object", amount(len(object_bytes), "B")),
        ("memory of a model", memory),
        ("of it temporary", amount(model.temp_bytes, "B")),
        ("of it state", amount(model.state_offsets[-1], "B")),
        ("stack of a run at most", amount(model.stack_bytes, "B")),
        ("threads at most", f"{model.threads}"),
    ]
    if model.constants_bytes:
        facts.insert(2, ("constants outside of it", amount(model.constants_bytes, "B")))
    return render(
        model.name,
        facts,
        lines=[f"{functions}, compiled by tfbridge {model.version}; {model.file} and {model.name}.h belong together."],
        sections=[_section(model, entry, target) for entry in model.entries],
        tables=[
            ("Sections of the object", ("section", "bytes"), [(n, f"{size:,}") for n, size in sections]),
            *_quantization(reports),
        ],
    )  # fmt: skip


def _section(model: Model, entry: Entry, target: Target) -> KernelSection:
    facts = [
        ("kernels", f"{len(entry.kernels):,}"),
        ("operations of a run", amount(sum(k.flops for k in entry.kernels), "flop")),
        ("memory traffic", amount(sum(k.bytes for k in entry.kernels), "B")),
    ]
    arrays = [
        f"{title} {name or f'{title}{k}'}: {spec.dtype}[{', '.join(map(str, entry.sizes(kind, k)))}]"
        for kind, title, names, specs in (
            ("args", "argument", entry.argument_names, entry.arguments),
            ("results", "result", entry.result_names, entry.results),
        )
        for k, (name, spec) in enumerate(zip(names, specs))
    ]
    most = max((t.offset + t.bytes for t in entry.temporaries), default=0)
    return kernel_section(
        f"Function {model.call(entry)}",
        entry.kernels,
        entry.temporaries,
        most,
        rates_per_cycle(target),
        facts=facts,
        arguments=arrays,
    )


def _quantization(
    reports: Sequence[QuantizationReport],
) -> Iterator[tuple[str, tuple[str, ...], Sequence[tuple[str, ...]]]]:
    for report in reports:
        rows = [
            (
                layer.name,
                layer.kind,
                f"{'×'.join(map(str, layer.weights))} {layer.weights_type}",
                "" if layer.low is None else f"{layer.low:.4g} to {layer.high:.4g}",
                "" if layer.signal_to_noise is None else f"{layer.signal_to_noise:.1f}",
            )
            for layer in report.worst
        ]
        rows += [(name, "stays in f32", "", "", "") for name in report.kept]
        head = "layer", "kind", "weights", "range of its input", "signal to noise, dB"
        yield f"Quantised: {report.scheme}, {report.samples} samples", head, rows
