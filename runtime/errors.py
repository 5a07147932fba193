"""The errors that running compiled code raises."""

from __future__ import annotations

import sys


class RuntimeLayerError(Exception):
    """Base of every error that the runtime raises on purpose."""


class ExecutionError(RuntimeLayerError, RuntimeError):
    """A call of compiled code went wrong: arguments that do not fit, or an error that the code reported."""


class ArtifactError(RuntimeLayerError, ValueError):
    """Bytes that are no artifact of this version, or a damaged one."""


class LoadError(RuntimeLayerError, RuntimeError):
    """An object could not be loaded into the process: a damaged object, or a symbol that nothing defines."""


class CompileCrash(RuntimeLayerError, RuntimeError):
    """The process that compiled ended before it answered."""


class CommunicationError(ExecutionError):
    """Devices of a run did not come together: one failed or ended, they did different things, or waited too long."""


def add_note(error: BaseException, note: str) -> None:
    """`BaseException.add_note`, which Python 3.10 lacks: there the note is kept, and not printed."""
    if sys.version_info >= (3, 11):
        error.add_note(note)
    else:
        error.__notes__ = [*getattr(error, "__notes__", ()), note]
