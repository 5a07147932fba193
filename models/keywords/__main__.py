"""A streaming keyword spotter from training to a microcontroller.

python -m tfbridge.models.keywords [--device cortex-m4|host] [--epochs N] [--words N] [--out DIR]

Trains a small network on synthetic words, quantises its streaming form to 8-bit integers with its state, exports it,
and runs it on a Cortex-M4 in an emulator, where that is installed, else on this machine.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf
import tfbridge
from rich.console import Console

from .device import DEVICES, program_folder, run
from .spotter import (
    StreamingSpotter,
    accuracy,
    calibration_stream,
    detections,
    scores_of_windows,
    trained,
)
from .words import BANDS, NAMES, stream

_SHOWN = 6  # words


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; 1 where integers lose more than half a percent of the words."""
    parser = argparse.ArgumentParser(
        prog="python -m tfbridge.models.keywords", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--device", choices=DEVICES, default="cortex-m4", help="default: %(default)s")
    parser.add_argument("--epochs", type=int, default=10, metavar="N", help="of training; default: 10")
    parser.add_argument("--examples", type=int, default=6000, metavar="N", help="of training; default: 6000")
    parser.add_argument("--words", type=int, default=100, metavar="N", help="in the test; default: 100")
    parser.add_argument("--out", type=Path, metavar="DIR", help="keep the program's files there")
    chosen = parser.parse_args(arguments)
    console, name = Console(), chosen.device
    if tool := DEVICES[name].missing():
        console.print(f"{tool} is not installed: the program runs on this machine instead")
        name = "host"
    with tempfile.TemporaryDirectory() as temporary:
        return _spot(console, chosen, name, chosen.out or Path(temporary))


def _spot(console: Console, chosen: argparse.Namespace, name: str, folder: Path) -> int:
    device = DEVICES[name]
    model = trained(chosen.epochs, chosen.examples)
    frames, ends = stream(chosen.words, np.random.default_rng(3))
    in_f32 = accuracy(detections(scores_of_windows(model)(frames)), ends)
    console.print(
        f"trained: {model.count_params():,} weights; finds {in_f32:.1%} of {chosen.words} words in f32"
    )
    spotter = StreamingSpotter(model)
    compiled = tfbridge.aot.compile(
        spotter.step,
        tf.TensorSpec((1, BANDS), name="frame"),
        name="keywords",
        out_dir=program_folder(folder, name),
        quantize="int8",
        calibration={"frame": calibration_stream()},
        target_triple=device.triple,
        target_cpu=device.cpu,
    )
    (report,) = compiled.quantization
    console.print(str(report), highlight=False)
    console.print(
        f"exported for {device.title}: object {compiled.object_bytes:,} bytes, temporary memory {compiled.temp_bytes:,}"
    )
    heard = run(device, compiled, frames)
    in_int8 = accuracy(heard.words, ends)
    for (frame, word), (end, said) in list(zip(heard.words, ends))[:_SHOWN]:
        console.print(f"  frame {frame:5}: {NAMES[word]:6} (said until frame {end}: {NAMES[said]})")
    cost = f"; {heard.instructions:,.0f} instructions a frame" if heard.instructions else ""
    console.print(f"on {device.title}: finds {in_int8:.1%} of the words in int8{cost}")
    return int(in_int8 < in_f32 - 0.005)


if __name__ == "__main__":
    sys.exit(main())
