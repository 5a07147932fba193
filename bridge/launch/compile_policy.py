"""When a cluster is compiled for a new key: the ski-rental rule over measured seconds.

TensorFlow serves the calls of a key until the seconds that code would have saved in them reach the CPU seconds that the
code is expected to cost. So no key costs more than twice what the best decision would have, whatever calls follow.
The first code, of which nothing is measured, waits for FIRST_SECONDS of TensorFlow's. Nothing here compiles or waits;
the launch site asks.
"""

from __future__ import annotations

import collections
import dataclasses
import math

MAX_KEYS = 4096  # of a cluster, whose calls are counted
FIRST_SECONDS = 0.5
"""What TensorFlow serves of a function or a cluster before its first code is made: about what that costs, where code
saves half."""
_UNMEASURED_RATIO = 0.5
_MAX_RATIO = 0.95  # a key for which code was slow does not rule out all others for ever


@dataclasses.dataclass
class KeyCalls:
    """Calls of a key that TensorFlow served. seconds: the fastest of those that were measured; 0: none was."""

    calls: int = 0
    seconds: float = 0.0

    def add_run(self, seconds: float) -> None:
        """Adds the measurement of a call."""
        self.seconds = min(self.seconds or seconds, seconds)


@dataclasses.dataclass
class Served:
    """What TensorFlow has served of a function or a cluster. seconds: without the first call, which is slow. is_warm:
    whether there was one."""

    seconds: float = 0.0
    is_warm: bool = False

    def add(self, seconds: float, calls: int = 1) -> None:
        """Adds a call, which stands for so many."""
        if self.is_warm:
            self.seconds += seconds * calls
        self.is_warm = True

    def pay(self) -> None:
        """Adds what is lacking: the function that has the cluster was served for long enough."""
        self.seconds = max(self.seconds, FIRST_SECONDS)

    @property
    def priority(self) -> float:
        """How urgent code is of whose saving nothing is known, as that of a request in the background."""
        return math.inf if self.seconds >= FIRST_SECONDS else 0.0


@dataclasses.dataclass
class Costs:
    """What is known of a cluster's code so far.

    compilations, cpu_seconds: how many there were and what they took. compiled_seconds, tensorflow_seconds: of one call
    each of the keys for which both were measured.
    """

    compilations: int = 0
    cpu_seconds: float = 0.0
    compiled_seconds: float = 0.0
    tensorflow_seconds: float = 0.0

    def add_compilation(self, cpu_seconds: float) -> None:
        """Adds what a compilation took, whether there is code or not."""
        self.compilations += 1
        self.cpu_seconds += cpu_seconds

    def add_measurement(self, compiled_seconds: float, tensorflow_seconds: float) -> None:
        """Adds the seconds of a call of one key, in compiled code and in TensorFlow."""
        self.compiled_seconds += compiled_seconds
        self.tensorflow_seconds += tensorflow_seconds

    @property
    def is_measured(self) -> bool:
        """Whether some key was measured both ways."""
        return self.tensorflow_seconds > 0

    @property
    def ratio(self) -> float:
        """Seconds of compiled code for a second of TensorFlow."""
        if not self.is_measured:
            return _UNMEASURED_RATIO
        return min(self.compiled_seconds / self.tensorflow_seconds, _MAX_RATIO)

    @property
    def expected(self) -> float:
        """CPU seconds of the next compilation."""
        return self.cpu_seconds / self.compilations if self.compilations else 0.0


def priority(key: KeyCalls, costs: Costs, is_full: bool = False) -> float | None:
    """How urgent further code of a cluster is, for a key, as saving per cost; None: TensorFlow goes on to serve it.

    is_full: another key's code is dropped for this one's, and compiled again some day.
    """
    if not costs.compilations:  # the first code has not told yet what code costs
        return None
    cost = costs.expected * (2 if is_full else 1)
    saving = key.calls * key.seconds * (1 - costs.ratio)
    if saving <= 0 or saving < cost:
        return None
    return saving / cost if cost else math.inf


class CallCounts:
    """The calls of keys without code, most recent last."""

    def __init__(self) -> None:
        self._keys: collections.OrderedDict[bytes, KeyCalls] = collections.OrderedDict()

    def __len__(self) -> int:
        """How many keys are counted."""
        return len(self._keys)

    def count(self, key: bytes, weight: int = 1) -> KeyCalls:
        """Counts a call, which stands for so many."""
        counted = self._keys.setdefault(key, KeyCalls())
        counted.calls += weight
        self._keys.move_to_end(key)
        if len(self._keys) > MAX_KEYS:
            self._keys.popitem(last=False)
        return counted

    def of(self, key: bytes) -> KeyCalls | None:
        """The calls of a key that were counted; None: there was none, or too long ago."""
        return self._keys.get(key)

    def take(self, key: bytes) -> KeyCalls:
        """The calls of a key, which are not kept any longer."""
        return self._keys.pop(key, None) or KeyCalls()

    def clear(self) -> None:
        """Forgets all."""
        self._keys.clear()
