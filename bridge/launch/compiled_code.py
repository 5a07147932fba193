"""What a cluster's compilation gives to the launch op: the code for one key, and how its outputs get their memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from ...runtime.code.executable import Executable

InputSpec = tuple[tf.DType, tuple[int, ...]]


@dataclasses.dataclass(frozen=True)
class CompiledCode:
    """Code for one key.

    address: of an entry point. Its results 2 to 16 are TensorFlow's status codes, others except 0 mean
        INVALID_ARGUMENT.
    results: the op's outputs, then the new values of variables.
    constants: address of the constant blob.
    alias: outputs that are an input, by its number; the code must not write them.
    forward: outputs that may get the memory of an input, by its number, or memory of their own.
    owner: an object that lives as long as the code may run.
    runs_before_benchmark: runs before the cluster's guard compares the code with TensorFlow; None: never.
    may_bail_out: the code may return ASSUMPTION_FAILED or CAPACITY_OVERFLOW; TensorFlow then runs the nodes.
    sizes: address of the values of symbolic sizes.
    sized: outputs whose first dim is a bound. The code has one more result for each, an s32 scalar with the size.
    Units: temp_bytes are bytes of the arena.
    """

    address: int
    results: tuple[InputSpec, ...]
    temp_bytes: int = 0
    constants: int = 0
    threads: int = 1
    alias: Mapping[int, int] = dataclasses.field(default_factory=dict)
    forward: Mapping[int, int] = dataclasses.field(default_factory=dict)
    owner: Any = None
    runs_before_benchmark: int | None = 0
    may_bail_out: bool = False
    sized: tuple[int, ...] = ()
    sizes: int = 0

    @classmethod
    def of(
        cls, executable: Executable, results: Sequence[tf.DType] | None = None, **options: Any
    ) -> CompiledCode:
        """The code of an executable; `results` gives TensorFlow's types where they are not NumPy's."""
        artifact = executable.artifact
        types = results or [tf.as_dtype(result.dtype) for result in artifact.results]
        outputs = artifact.results[: len(artifact.results) - len(artifact.sized_results)]
        specs = tuple((t, tuple(r.dims)) for t, r in zip(types, outputs, strict=True))
        return cls(
            executable.entry_address,
            specs,
            artifact.temp_bytes,
            executable.constants_address,
            executable.threads,
            owner=executable,
            may_bail_out=artifact.may_bail_out,
            sized=artifact.sized_results,
            sizes=executable.sizes_address,
            **options,
        )

    @property
    def executable(self) -> Executable | None:
        """The executable that the code belongs to, if any."""
        return self.owner if isinstance(self.owner, Executable) else None

    @property
    def is_symbolic(self) -> bool:
        """Whether it is code for symbolic sizes."""
        return self.executable is not None and self.executable.artifact.symbolic is not None

    @property
    def own_bytes(self) -> int:
        """Bytes of the code and of its constants; 0 for code for symbolic sizes, which many keys have."""
        if self.executable is None or self.is_symbolic:
            return 0
        return self.executable.artifact.object_bytes + len(self.executable.artifact.constants)
