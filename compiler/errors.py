"""The three kinds of error that the compiler raises."""

from __future__ import annotations


class CompilerError(Exception):
    """Base of every error that tfbridge's compiler raises on purpose."""


class ShapeError(CompilerError, ValueError):
    """The program is ill-formed: a shape, type or attribute breaks a numbered constraint. The user can cause it."""


class UnsupportedError(CompilerError, NotImplementedError):
    """A well-formed program that this platform does not compile; callers fall back and say why."""


class ParseError(CompilerError, ValueError):
    """Malformed HLO text.

    `line` and `column` count from 1.
    """

    def __init__(self, message: str, line: int, column: int) -> None:
        super().__init__(f"line {line}, column {column}: {message}")
        self.line, self.column = line, column


class InternalError(CompilerError, RuntimeError):
    """A bug in tfbridge itself."""

    def __init__(self, message: str) -> None:
        super().__init__(f"{message}\nThis is a bug in tfbridge. Please report it with the dump that "
                         "TFBRIDGE_DUMP=dir writes.")
