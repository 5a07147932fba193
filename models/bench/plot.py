"""The benchmark's ratios as a picture."""

from __future__ import annotations

from pathlib import Path

from .report import FASTEST_OF, Results, mean_ratios, ratios


def plot(results: Results, suite: str, file: Path) -> None:
    """Draws, for each workload and their mean, how many times faster tfbridge is than each engine, as PNG.

    Raises: ImportError  matplotlib is not installed.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = {name: ratios(row) for name, row in results.items()}
    rows["geometric mean"] = mean_ratios(results, suite)["all"]
    engines = [name for name in rows["geometric mean"] if name not in FASTEST_OF.values()]
    height = 0.8 / max(1, len(engines))
    figure, axes = pyplot.subplots(figsize=(9, 1.5 + len(rows) * (0.15 + 0.13 * len(engines))))
    for at, engine in enumerate(engines):
        points = [
            (line + (at - (len(engines) - 1) / 2) * height, row[engine])
            for line, row in enumerate(rows.values())
            if engine in row
        ]
        places, values = [place for place, _ in points], [value for _, value in points]
        bars = axes.barh(places, [value - 1 for value in values], height, left=1, label=f"than {engine}")
        axes.bar_label(bars, [f"{value:.1f}" for value in values], fontsize=6, padding=2)
    axes.set_xscale("log")
    axes.axvline(1, color="black", linewidth=1)
    axes.set_yticks(range(len(rows)), list(rows))
    axes.invert_yaxis()
    axes.set_xlabel("times faster")
    axes.legend()
    figure.tight_layout()
    figure.savefig(file, dpi=150, format="png")
    pyplot.close(figure)
