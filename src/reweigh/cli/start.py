"""The start of the ``reweigh`` command: signals are handled before anything heavy is imported.

A signal ends a command with one message and 128 plus its number. While a module is being imported, the process ends at once:
an exception there could be swallowed or come out as another one, and there is nothing to finish. Otherwise it is raised, so
that the command can end its work; the same command resumes it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

NAMES = ("SIGINT", "SIGTERM", "SIGHUP")
IMPORTING = "<frozen importlib"
"""Begins the file name of the frames that import a module."""

_stopped: list[int] = []
"""The signal that stopped this process, if any."""

_told: list[bool] = []


class Stopped(KeyboardInterrupt):
    """A signal that ends the command as Ctrl-C does."""


def main() -> None:
    """Run the command line."""
    with signals():
        from reweigh.cli.app import main as run

        run()


@contextmanager
def signals() -> Iterator[None]:
    """Let signals stop a command so that it can resume; handlers are put back at the end."""
    before: dict[int, Any] = {}
    hook = sys.unraisablehook
    if threading.current_thread() is threading.main_thread():
        for name in NAMES:
            number = getattr(signal, name, None)
            # nohup ignores SIGHUP on purpose
            if number is not None and signal.getsignal(number) in (
                signal.SIG_DFL,
                signal.default_int_handler,
            ):
                before[number] = signal.signal(number, _stop)
        sys.unraisablehook = _end_where_raising_is_ignored
    try:
        yield
    finally:
        _stopped.clear()
        _told.clear()
        sys.unraisablehook = hook
        for number, handler in before.items():
            signal.signal(number, handler)


def exit_code() -> int:
    """Return the exit code of a command that was stopped."""
    return 128 + (_stopped[0] if _stopped else signal.SIGINT)


def was_stopped() -> bool:
    """Return whether a signal came."""
    return bool(_stopped)


def tell() -> None:
    """Print once that the command was stopped."""
    if _told:
        return
    _told.append(True)
    with suppress(OSError, ValueError):  # the terminal itself may be gone
        sys.stderr.write("stopped; run the same command again to resume\n")
        sys.stderr.flush()


def _stop(number: int, frame: Any) -> None:
    again = bool(_stopped)
    _stopped.append(number)
    if again or _is_importing(frame):
        _end()
    raise Stopped


def _is_importing(frame: Any) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith(IMPORTING):
            return True
        frame = frame.f_back
    return False


def _end() -> NoReturn:
    """End at once; what was written is whole, and locks end with the process."""
    tell()
    os._exit(exit_code())


def _end_where_raising_is_ignored(raised: Any) -> None:
    """End the process, because Python ignores what is raised in a destructor and the signal would be lost."""
    if issubclass(raised.exc_type, Stopped):
        _end()
    sys.__unraisablehook__(raised)
