"""Calls of compiled code need no memory beyond that of the first ones."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf
import tfbridge

LIBC = ctypes.CDLL(None)
CALLS = 50


class _Allocated(ctypes.Structure):
    """glibc's `struct mallinfo2`: bytes in mapped blocks and in blocks of the heaps among others."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    ]


def allocated_bytes() -> int:
    """What the process has allocated and not freed."""
    gc.collect()
    LIBC.mallinfo2.restype = _Allocated
    found = LIBC.mallinfo2()
    return found.uordblks + found.hblkhd


def network() -> tuple[Callable[..., object], list[np.ndarray]]:
    """A convolution, a product and a softmax over results large enough for recycled memory."""
    random = np.random.default_rng(0)
    kernel = tf.constant(random.standard_normal((3, 3, 4, 64), np.float32))
    weights = tf.constant(random.standard_normal((64, 32), np.float32))

    def run(x: tf.Tensor) -> tf.Tensor:
        y = tf.nn.relu(tf.nn.conv2d(x, kernel, 1, "SAME"))
        return tf.nn.softmax(tf.reshape(tf.linalg.matmul(tf.reshape(y, [-1, 64]), weights), [-1, 32]))

    return run, [random.standard_normal((2, 96, 97, 4), np.float32)]


def training() -> tuple[Callable[..., object], list[np.ndarray]]:
    """A step that updates variables."""
    random = np.random.default_rng(0)
    weights = tf.Variable(random.standard_normal((300, 200), np.float32))

    def step(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.tanh(tf.linalg.matmul(x, weights))))
        weights.assign_sub(0.1 * tape.gradient(loss, weights))
        return loss

    return step, [random.standard_normal((64, 300), np.float32)]


@pytest.mark.skipif(
    not hasattr(LIBC, "mallinfo2") or sys.platform != "linux", reason="glibc tells what is allocated"
)
@pytest.mark.parametrize("program", (network, training))
@pytest.mark.parametrize("arrays", (False, True), ids=("tensors", "arrays"))
def test_calls_allocate_nothing_new(program: Callable[..., object], arrays: bool) -> None:
    function, inputs = program()
    compiled = tfbridge.jit(function)
    call = compiled.native if arrays else compiled
    values = inputs if arrays else [tf.constant(value) for value in inputs]

    def growth() -> int:
        before = allocated_bytes()
        for _ in range(CALLS):
            call(*values)
        return allocated_bytes() - before

    growth()
    rounds: list[int] = []
    while not rounds or rounds[-1] > 0:
        assert len(rounds) < 4, rounds  # other threads may allocate something meanwhile: not in every round
        rounds.append(growth())
