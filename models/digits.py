"""scikit-learn's bundled handwritten digits: 1,797 grey images of 8 x 8 pixels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

SIDE = 8
CLASSES = 10


@dataclass(frozen=True)
class Digits:
    """Images as f32[n, 8, 8, 1] in 0..1 with their classes as s32[n], for training and held out."""

    images: np.ndarray
    labels: np.ndarray
    held_out_images: np.ndarray
    held_out_labels: np.ndarray


def load(held_out: float = 0.2) -> Digits:
    """The same split at every call, with all classes in both parts in equal shares."""
    data = load_digits()
    images = (data.images / 16.0).astype(np.float32)[..., None]
    labels = data.target.astype(np.int32)
    parts = train_test_split(images, labels, test_size=held_out, random_state=1, stratify=labels)
    return Digits(parts[0], parts[2], parts[1], parts[3])
