"""A line on the terminal while a call waits long for its code."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator

from ...runtime.threads import background

SECONDS = 2.0  # before there is a line
_line_in_use = threading.Lock()


@contextlib.contextmanager
def shown(what: str) -> Iterator[None]:
    """Within, after two seconds, a line on standard error tells what is compiled and for how long, if that is a
    terminal. It goes when the code is there. What is compiled in the background has none, for nobody waits."""
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    if not is_terminal or background.is_here() or not _line_in_use.acquire(blocking=False):
        yield
        return
    with contextlib.ExitStack() as line:
        line.callback(_line_in_use.release)
        timer = threading.Timer(SECONDS, _start, (line, what))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()


def _start(line: contextlib.ExitStack, what: str) -> None:
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
    progress = Progress(*columns, console=Console(stderr=True), transient=True)
    progress.add_task(f"tfbridge compiles {what}", total=None)
    (task,) = progress.tasks
    if task.start_time is not None:
        task.start_time -= SECONDS
    line.enter_context(progress)
