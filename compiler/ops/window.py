"""Windows: the sliding box of convolution, reduce-window and select-and-scatter."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from ...runtime.sizes import estimate
from .op import require
from .pad import MAX_POSITIONS, padded


@dataclasses.dataclass(frozen=True)
class Window:
    """A sliding window, one entry per axis in each field.

    The base has base_dilation - 1 holes between its elements, then pad_low and pad_high positions around it
    (negative: cut off). The window's elements lie window_dilation apart, and it moves by stride. With
    reversal, its elements are taken from the far end (this matters for convolution alone).
    """

    size: tuple[int, ...]
    stride: tuple[int, ...]
    pad_low: tuple[int, ...]
    pad_high: tuple[int, ...]
    base_dilation: tuple[int, ...]
    window_dilation: tuple[int, ...]
    reversal: tuple[bool, ...]

    @staticmethod
    def of(
        size: Sequence[int],
        stride: Sequence[int] = (),
        pad_low: Sequence[int] = (),
        pad_high: Sequence[int] = (),
        base_dilation: Sequence[int] = (),
        window_dilation: Sequence[int] = (),
        reversal: Sequence[bool] = (),
    ) -> Window:
        """A window with strides and dilations 1, paddings 0 and no reversal where not given."""
        rank = len(size)
        return Window(
            tuple(size),
            tuple(stride) or (1,) * rank,
            tuple(pad_low) or (0,) * rank,
            tuple(pad_high) or (0,) * rank,
            tuple(base_dilation) or (1,) * rank,
            tuple(window_dilation) or (1,) * rank,
            tuple(reversal) or (False,) * rank,
        )

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.size)

    @property
    def dilated_size(self) -> tuple[int, ...]:
        """Extent of the window with its dilation."""
        return tuple(dilated(s, d) for s, d in zip(self.size, self.window_dilation))

    def padded(self, dims: Sequence[int]) -> tuple[int, ...]:
        """Dims of the base with its dilation and padding."""
        return tuple(
            low + dilated(d, step) + high
            for d, step, low, high in zip(dims, self.base_dilation, self.pad_low, self.pad_high)
        )

    def output(self, dims: Sequence[int]) -> tuple[int, ...]:
        """Number of positions of the window along each axis of a base with these dims."""
        return tuple(
            (p - w) // t + 1 if p >= w else 0
            for p, w, t in zip(self.padded(dims), self.dilated_size, self.stride)
        )

    def check(self, opcode: str, dims: Sequence[int], label: str) -> None:
        """The check that every field has one entry per axis of the base, and that they make sense.

        Raises: ShapeError  otherwise.
        """
        for field in dataclasses.fields(self):
            values = getattr(self, field.name)
            require(
                len(values) == len(dims),
                f"{opcode}: window {field.name} has {len(values)} entries, {len(dims)} are wanted",
                label,
            )
        for what in ("size", "stride", "base_dilation", "window_dilation"):
            values = getattr(self, what)
            require(
                all(n >= 1 for n in values),
                f"{opcode}: window {what} is {values}, 1 or more is wanted",
                label,
            )
        reach = (
            *self.pad_low,
            *self.pad_high,
            *self.dilated_size,
            *map(dilated, dims, self.base_dilation),
            *self.stride,
        )
        require(
            max((abs(estimate(r)) for r in reach), default=0) <= MAX_POSITIONS,
            f"{opcode}: a window on {list(dims)} reaches over more than {MAX_POSITIONS} places",
            label,
        )
        require(
            all(p >= 0 for p in self.padded(dims)),
            f"{opcode}: window pads {list(dims)} to {list(self.padded(dims))}",
            label,
        )

    def pad(self, array: np.ndarray, value: np.ndarray) -> np.ndarray:
        """The base with `value` in its holes and around it."""
        return padded(array, value, self.pad_low, self.pad_high, [d - 1 for d in self.base_dilation])

    def views(self, padded_base: np.ndarray, output: Sequence[int]) -> Iterator[np.ndarray]:
        """For each element of the window, row-major: the elements of the padded base under it at all positions, an
        array of dims `output`."""
        for offset in itertools.product(*map(range, self.size)):
            starts = [o * d for o, d in zip(offset, self.window_dilation)]
            yield padded_base[
                tuple(
                    slice(start, start + (n - 1) * step + 1 if n else start, step)
                    for start, n, step in zip(starts, output, self.stride)
                )
            ]


def dilated(size: int, dilation: int) -> int:
    """Extent of `size` elements that lie `dilation` apart."""
    if dilation == 1:
        return size
    return (size - 1) * dilation + 1 if size > 0 else 0
