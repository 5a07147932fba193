"""The demo: a small network learns handwritten digits, compiled while it trains, then becomes a C program.

python -m tfbridge.models.demo
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
import tfbridge
from rich.console import Console
from rich.panel import Panel
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from . import digits, digits_c_program
from .zoo import cnn

BATCH = 32
PLAIN_EPOCHS = 4
EPOCHS = 16
WANTED_ACCURACY = 0.97
EXPLAINED_LINES = 25


class EpochProgress(keras.callbacks.Callback):
    """Moves a progress bar after each epoch, and keeps the epochs' seconds."""

    def __init__(self, progress: Progress, description: str, epochs: int) -> None:
        super().__init__()
        self.seconds: list[float] = []
        self._progress = progress
        self._task = progress.add_task(description, total=epochs, note="")

    def on_epoch_begin(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        self._start = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        self.seconds.append(time.perf_counter() - self._start)
        note = f"accuracy in training {logs['accuracy']:.1%}" if logs else ""
        self._progress.update(self._task, advance=1, note=note)


def train(
    console: Console, description: str, data: digits.Digits, epochs: int
) -> tuple[keras.Model, list[float]]:
    """A freshly initialised network after `epochs` epochs, with the seconds of each."""
    model = cnn.build(digits.SIDE)
    model.compile(
        keras.optimizers.Adam(2e-3),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    columns = (
        TextColumn("  {task.description}"),
        BarColumn(bar_width=20),
        TextColumn("{task.completed}/{task.total} epochs"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=console) as progress:
        epoch_progress = EpochProgress(progress, description, epochs)
        model.fit(
            data.images, data.labels, batch_size=BATCH, epochs=epochs, verbose=0, callbacks=[epoch_progress]
        )
    return model, epoch_progress.seconds


def classes(logits: tf.Tensor) -> np.ndarray:
    """The class with the largest score in each row."""
    return np.argmax(np.asarray(logits), axis=-1)


def show_compiled(console: Console, model: keras.Model, images: np.ndarray) -> None:
    """What the training compiled, and how the network's inference compiles."""
    tfbridge.wait_for_compilation()
    stats = tfbridge.stats()
    left_out = sum(stats["ops_left_out"].values())
    table = Table(title="What was compiled while training", title_justify="left", show_header=False)
    table.add_row("parts of graphs that became native code (clusters)", str(stats["clusters_compiled"]))
    table.add_row("TensorFlow ops in them", str(stats["ops_compiled"]))
    table.add_row("ops that stayed in TensorFlow", str(left_out))
    for reason, count in stats["ops_left_out"].items():
        table.add_row(f"   {reason}", str(count))
    table.add_row("times that a cluster had to go back to TensorFlow (fallbacks)", str(stats["fallbacks"]))
    table.add_row("seconds spent compiling", f"{stats['compile_seconds']:.2f}")
    console.print(table)
    console.print("\nThe same for the network's inference, as [bold]tfbridge.explain[/bold] tells it:\n")
    lines = str(tfbridge.explain(lambda x: model(x, training=False), tf.constant(images))).splitlines()
    for line in lines[:EXPLAINED_LINES]:
        console.print(f"  {line}", markup=False, highlight=False)
    if len(lines) > EXPLAINED_LINES:
        console.print(f"  ... and {len(lines) - EXPLAINED_LINES} lines more")


def show_gain(console: Console, plain: list[float], compiled: list[float]) -> None:
    """Seconds per epoch with and without tfbridge; the first epoch also traces and compiles."""
    table = Table(title="What it gained", title_justify="left")
    for heading in ("", "first epoch, with compiling", "each later epoch"):
        table.add_column(heading, justify="right" if heading else "left")
    for name, seconds in (("TensorFlow alone", plain), ("with tfbridge", compiled)):
        table.add_row(name, f"{seconds[0]:.2f} s", f"{statistics.median(seconds[1:]):.3f} s")
    ratio = statistics.median(plain[1:]) / statistics.median(compiled[1:])
    table.add_row("times faster", "", f"{ratio:.2f}", style="bold")
    console.print(table)


def run_as_c_program(console: Console, model: keras.Model, data: digits.Digits) -> bool:
    """Exports the network, classifies the held-out digits in C, and says whether Keras agrees on each."""
    compiler = digits_c_program.find_c_compiler()
    if compiler is None:
        console.print("This machine has no C compiler (cc, gcc or clang), so this part is skipped.")
        return True
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        image = tf.TensorSpec((1, digits.SIDE, digits.SIDE, 1), tf.float32)
        model.export(folder / "saved_model", input_signature=[image], verbose=False)
        program = digits_c_program.build(folder / "saved_model", compiler, folder)
        table = Table(
            title="The network without TensorFlow and without Python", title_justify="left", show_header=False
        )
        for name, file in (
            ("object file", program.object_file),
            ("header", program.header),
            ("program, linked and stripped", program.executable),
        ):
            table.add_row(name, f"{file.stat().st_size / 1024:.0f} KiB")
        console.print(table)
        answers = program.classify(data.held_out_images)
    of_keras = classes(model(data.held_out_images, training=False))
    right = np.mean(answers == data.held_out_labels)
    agreeing = int(np.sum(answers == of_keras))
    console.print(
        f"The C program classified {len(answers)} held-out digits, {right:.1%} of them right. "
        f"On {agreeing} of {len(answers)} it gives the same answer as Keras."
    )
    return agreeing == len(answers)


def main() -> int:
    """Runs the demo; 1 if the network learned too little or the C program disagrees with Keras."""
    console = Console()
    console.print(
        Panel(
            "[bold]tfbridge[/bold] turns parts of a TensorFlow program into native code for this "
            "machine's CPU. Watch a small convolutional network learn to read digits with it."
        )
    )
    data = digits.load()
    console.print(
        f"Data: {len(data.images)} images of handwritten digits to learn from, "
        f"{len(data.held_out_images)} held out to test with.\n"
    )

    console.rule("1. Train", align="left")
    console.print(
        "First a few epochs of Keras [bold]fit[/bold] in TensorFlow alone, to compare with; then "
        "the whole training after [bold]tfbridge.enable_auto_clustering()[/bold]. Nothing else "
        "differs.\n"
    )
    _, plain = train(console, "TensorFlow alone", data, PLAIN_EPOCHS)
    tfbridge.enable_auto_clustering()
    tfbridge.reset_stats()
    model, compiled = train(console, "with tfbridge   ", data, EPOCHS)
    _, accuracy = model.evaluate(data.held_out_images, data.held_out_labels, verbose=0)
    console.print(
        f"\nIt reads [bold]{accuracy:.1%}[/bold] of the held-out digits right "
        f"(wanted: {WANTED_ACCURACY:.0%}).\n"
    )

    console.rule("2. What happened", align="left")
    show_compiled(console, model, data.held_out_images[:BATCH])
    show_gain(console, plain, compiled)

    console.rule("3. Export", align="left")
    console.print(
        "The trained network becomes an object file and a C header. A C program of thirty lines "
        "uses them; the C library is all it needs.\n"
    )
    tfbridge.disable_auto_clustering()
    agrees = run_as_c_program(console, model, data)
    succeeded = agrees and accuracy > WANTED_ACCURACY
    console.print("\n[bold green]Done.[/]" if succeeded else "\n[bold red]Not as it should be.[/]")
    return 0 if succeeded else 1


if __name__ == "__main__":
    sys.exit(main())
