"""What a part of the fuzzer provides."""

from __future__ import annotations

LINES = r"[^\n]*\n?"
TOKENS = r"\s*(?:\w+|[^\w\s])"


class Difference(Exception):
    """Two ways to run a case that must agree do not; the message says how."""


class Part:
    """A kind of case. A module in `parts/` holds one as PART; it is imported in worker processes only.

    A case is a text, all that is needed to run it again. `units` are the expressions that cut a text into pieces, for
    the shrinker: it leaves out as many as it can, with each expression in turn. `memory_mib` limits the address space
    of the worker process, `seconds` the processor time of a case. `quick` is the number of cases in `make test`, some
    ten seconds of them at most. Where `is_valid`, every case that is made is a valid one: to reject it is a defect.
    """

    suffix = ".txt"
    units: tuple[str, ...] = (LINES, TOKENS)
    memory_mib = 4096
    seconds = 10.0
    quick = 50
    is_valid = False

    def make(self, seed: int) -> str:
        """The case of a seed, always the same."""
        raise NotImplementedError

    def check(self, text: str) -> str:
        """Runs a case. Returns a word for what happened, which is counted: `agreed`, `rejected`, ...

        Raises: Difference. Any other exception counts as an internal error.
        """
        raise NotImplementedError
