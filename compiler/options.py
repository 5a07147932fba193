"""Options of a compilation."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Options:
    """What may be chosen per compilation; part of the fingerprint, the dump directory aside.

    numerics: "tf" (default), "fast" (rules of class fast_math too), "reproducible" (fixed reduction trees).
    threads: highest number of threads of one launch; 0 means those of the target.
    disabled_passes: names of passes that are left out. profile: launches count their calls and cycles.
    dump_dir: directory for numbered dumps of every stage; empty means none.
    """

    numerics: str = "tf"
    threads: int = 0
    disabled_passes: frozenset[str] = frozenset()
    profile: bool = False
    dump_dir: str = dataclasses.field(default="", compare=False)


DEFAULT_OPTIONS = Options()
