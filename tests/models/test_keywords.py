"""The streaming keyword spotter: windows and frames agree, and so do f32, integers and the exported programs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tfbridge
from tfbridge.models.keywords.__main__ import main
from tfbridge.models.keywords.device import DEVICES, run
from tfbridge.models.keywords.spotter import (
    WINDOW,
    StreamingSpotter,
    accuracy,
    calibration_stream,
    detections,
    scores_of_windows,
    trained,
)
from tfbridge.models.keywords.words import BANDS, NAMES, stream, windows


@pytest.fixture(scope="module")
def model():
    return trained(4, 2500)


def test_a_stream_has_the_scores_of_its_windows(model) -> None:
    frames = stream(3, np.random.default_rng(7))[0]
    spotter = StreamingSpotter(model)
    step = tfbridge.jit(spotter.step)
    scores = np.concatenate([step(tf.constant(frame[None])) for frame in frames])
    wanted = scores_of_windows(model)(frames)
    np.testing.assert_allclose(scores[WINDOW:], wanted[WINDOW:], rtol=1e-4, atol=1e-4)


def test_words_are_told_apart(model) -> None:
    images, labels = windows(400, WINDOW, np.random.default_rng(11))
    assert images.shape == (400, WINDOW, BANDS) and set(labels) == set(range(len(NAMES)))
    assert (model.predict(images, verbose=0).argmax(1) == labels).mean() > 0.85


@pytest.mark.parametrize("name", DEVICES)
def test_exported_programs_find_the_words(model, name: str, tmp_path: Path) -> None:
    device = DEVICES[name]
    if tool := device.missing():
        pytest.skip(f"{tool} is not installed")
    frames, ends = stream(25, np.random.default_rng(3))
    made = tfbridge.aot.compile(
        StreamingSpotter(model).step,
        tf.TensorSpec((1, BANDS), name="frame"),
        name="keywords",
        out_dir=tmp_path,
        quantize="int8",
        calibration={"frame": calibration_stream()},
        target_triple=device.triple,
        target_cpu=device.cpu,
    )
    assert len(made.quantization[0].layers) == 6 and len(made.quantization[0].results) == 1
    heard = run(device, made, frames)
    in_f32 = detections(scores_of_windows(model)(frames))
    assert abs(accuracy(heard.words, ends) - accuracy(in_f32, ends)) < 0.1
    assert (heard.instructions is None) == (name == "host")


def test_detections_need_a_word_that_leads_for_some_frames() -> None:
    best = [0, 2, 0, 2, 2, 2, 2, 0, 2, 2, 0, 0, 0, 2, 2, 2]
    found = detections(np.eye(3)[best])
    assert found == [(5, 2), (15, 2)]
    assert accuracy(found, [(4, 2), (16, 2)]) == 1.0
    assert accuracy(found, [(4, 1), (16, 2)]) == 0.5
    assert accuracy([*found, (40, 1)], [(4, 2), (16, 2)]) == 0.5


def test_command(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["--device", "host", "--epochs", "1", "--examples", "400", "--words", "4"])
    assert status in (0, 1) and "words in int8" in capsys.readouterr().out.replace("\n", " ")
