"""Synthetic speech: words are tracks of two formants through frames of band energies, in noise."""

from __future__ import annotations

import numpy as np

BANDS = 20
WORDS = ("up", "down", "left", "right")
NAMES = ("nothing", *WORDS)
# Where the two formants are, in bands, at the start, in the middle and at the end of a word.
_TRACKS = {
    "up": ((3, 5, 9), (12, 14, 17)),
    "down": ((9, 6, 3), (17, 13, 11)),
    "left": ((4, 9, 4), (16, 16, 12)),
    "right": ((8, 3, 8), (11, 17, 17)),
}
LONGEST = 30  # frames of a word


def spoken(word: str, random: np.random.Generator) -> np.ndarray:
    """A word, said once: faster or slower, higher or lower, louder or softer. Shapes: [frames, BANDS]."""
    frames = int(random.integers(18, LONGEST + 1))
    time, bands = np.linspace(0, 2, frames), np.arange(BANDS)
    shift, loudness = random.normal(0, 0.5), random.uniform(0.8, 1.4)
    energy = np.zeros((frames, BANDS))
    for track in _TRACKS[word]:
        center = np.interp(time, [0, 1, 2], track) + shift
        energy += np.exp(-((bands - center[:, None]) ** 2) / 2)
    envelope = np.minimum(1, 6 * np.sin(np.pi * np.linspace(0.02, 0.98, frames)))
    return loudness * energy * envelope[:, None]


def noise(frames: int, random: np.random.Generator) -> np.ndarray:
    """Frames without a word: noise, and now and then a sound that is no word. Shapes: [frames, BANDS]."""
    energy = np.abs(random.normal(0, 0.15, (frames, BANDS)))
    for _ in range(frames // 60):
        start, length = random.integers(0, frames), random.integers(3, 12)
        energy[start : start + length, random.integers(0, BANDS)] += random.uniform(0.5, 1.2)
    return energy


def windows(count: int, frames: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Windows that end a moment after a word has ended, or without a word, and the numbers of their names.

    Shapes: [count, frames, BANDS] f32, [count].
    """
    labels = random.integers(0, len(NAMES), count)
    energies = np.empty((count, frames, BANDS), np.float32)
    for energy, label in zip(energies, labels):
        sound = noise(frames, random)
        if label:
            word = spoken(NAMES[label], random)
            end = frames - int(random.integers(0, 4))
            sound[end - len(word) : end] += word
        elif random.random() < 0.7:  # a part of a word alone is none
            word = spoken(WORDS[random.integers(len(WORDS))], random)
            part = int(len(word) * random.uniform(0.1, 0.75))
            if random.random() < 0.7:
                sound[frames - part :] += word[:part]
            else:
                sound[:part] += word[-part:]
        energy[:] = sound
    return energies, labels


def stream(count: int, random: np.random.Generator) -> tuple[np.ndarray, list[tuple[int, int]]]:
    """Words one after another with pauses, and for each (the frame after its last, its number).

    Shapes: [frames, BANDS] f32.
    """
    parts, ends, length = [noise(40, random)], [], 40
    for _ in range(count):
        number = int(random.integers(1, len(NAMES)))
        word, pause = spoken(NAMES[number], random), int(random.integers(40, 70))
        sound = noise(len(word) + pause, random)
        sound[: len(word)] += word
        parts.append(sound)
        ends.append((length + len(word), number))
        length += len(sound)
    return np.concatenate(parts).astype(np.float32), ends
