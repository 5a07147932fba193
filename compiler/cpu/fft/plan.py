"""How a Fourier transform is computed: its radices, and the tables of roots of unity that its code reads.

One line of n elements, of which `lanes` lie side by side and are transformed together, goes through stages
(Stockham's algorithm: no reordering at the end). Before the stage of radix r there are `stride` finished
sequences of r * m elements; after it there are stride * r of m elements. A length with a prime factor that no
stage has is transformed through a cyclic convolution of a length that has none (Bluestein's algorithm).
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

PRIMES = (3, 5, 7, 11, 13)
"""The odd radices."""


def radices_of(n: int) -> tuple[int, ...] | None:
    """The radices of the stages, first to last; None when n has a prime factor that is no radix."""
    rest, odd = n, []
    for prime in PRIMES:
        while rest % prime == 0:
            rest //= prime
            odd.append(prime)
    twos = rest.bit_length() - 1
    if rest != 1 << twos:
        return None
    fours = {0: 0, 1: 2, 2: 1}[twos % 3] if twos > 4 else twos % 3 // 2
    even = [8] * ((twos - 2 * fours) // 3) + [4] * fours + [2] * ((twos - 2 * fours) % 3)
    return (*even, *sorted(odd, reverse=True))


def smooth_length(length: int) -> int:
    """The smallest of 1, 3, 5, 9, 15 times a power of two that is at least `length`."""
    return min(odd << max(0, -(-length // odd) - 1).bit_length() for odd in (1, 3, 5, 9, 15))


def halves(n: int) -> tuple[int, int]:
    """Two factors of n = a * b as near to each other as they can be, a <= b."""
    a = next(a for a in range(int(n**0.5 + 1e-9), 0, -1) if n % a == 0)
    return a, n // a


def roots(numerators: np.ndarray, n: int) -> np.ndarray:
    """exp(-2 pi i j / n) for each integer j, exact to the last place of a double where the machine can."""
    turn = 2 * np.arccos(np.longdouble(-1))
    angle = (np.asarray(numerators) % n).astype(np.longdouble) * -turn / n
    values: np.ndarray = (np.cos(angle) + 1j * np.sin(angle)).astype(np.complex128)
    return values


@dataclasses.dataclass(frozen=True)
class Stage:
    """One pass over a line. `by_rows`: vectors lie along the m elements, not along the stride, which is 1.

    Units: vector counts lanes; table is the number of the stage's table (none when m is 1).
    """

    radix: int
    m: int
    stride: int
    vector: int
    by_rows: bool
    table: int


class Tables:
    """The tables of one kernel, one after another: float arrays. Equal ones are held once."""

    def __init__(self, dtype: np.dtype) -> None:
        self.dtype = dtype
        self.parts: list[np.ndarray] = []
        self.offsets: dict[bytes, int] = {}
        self.size = 0

    def add(self, values: np.ndarray) -> int:
        """Adds an array of floats; returns where it starts. Units: elements."""
        values = np.ascontiguousarray(values, self.dtype).reshape(-1)
        key = values.tobytes()
        if key not in self.offsets:
            self.offsets[key] = self.size
            padded = np.zeros(-(-len(values) // 16) * 16, self.dtype)
            padded[: len(values)] = values
            self.parts.append(padded)
            self.size += len(padded)
        return self.offsets[key]

    def pairs(self, values: np.ndarray) -> int:
        """Adds complex numbers as (real, imaginary) pairs."""
        return self.add(np.stack([values.real, values.imag], -1))

    def array(self) -> np.ndarray:
        """All tables."""
        return np.concatenate([*self.parts, np.zeros(1, self.dtype)])


def stages_of(radices: tuple[int, ...], lanes: int, vector: int, tables: Tables) -> list[Stage]:
    """The stages of a line of prod(radices) elements with `lanes` side by side; adds their tables."""
    stages, stride = [], lanes
    m = int(np.prod(radices, dtype=np.int64))
    for radix in radices:
        n, m = m, m // radix
        by_rows = stride == 1 and m > 1
        wide = min(vector, _power_below(m if by_rows else stride))
        table = -1
        if m > 1:
            factors = roots(np.outer(np.arange(m), np.arange(1, radix)), n)
            if by_rows:
                table = tables.add(np.stack([factors.real.T, factors.imag.T], 1))
            else:
                table = tables.pairs(factors)
        stages.append(Stage(radix, m, stride, wide, by_rows, table))
        stride *= radix
    return stages


def _power_below(n: int) -> int:
    return 1 << (n.bit_length() - 1)


@functools.lru_cache(16)
def chirp(n: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    """exp(-pi i j^2 / n) for j < n; and the transform of its conjugate, made cyclic with period `length`,
    over `length`."""
    squares = np.arange(n, dtype=np.int64) ** 2 % (2 * n)
    factors = roots(squares, 2 * n)
    kernel = np.zeros(length, np.complex128)
    kernel[:n] = factors.conj()
    kernel[length - n + 1 :] = factors[1:][::-1].conj()
    return factors, np.fft.fft(kernel) / length
