"""How a program of this package begins and ends: streams to print to, signals that it hears, exit codes, last words."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from cksc_dist.commands.screen import no_controls
from cksc_dist.errors import CkscError

__all__ = ["EXIT_ERROR", "EXIT_INTERRUPTED", "Terminated", "exit_code", "in_words", "prepared", "run_job"]

EXIT_ERROR = 2
EXIT_INTERRUPTED = 128 + signal.SIGINT  # as shells have it


class Terminated(KeyboardInterrupt):
    """Somebody asks the process to end, as batch systems do before they kill it; tidied up as after Ctrl-C."""


def exit_code(interrupt: KeyboardInterrupt) -> int:
    """Return the exit code of a process that was asked to end."""
    return 128 + signal.SIGTERM if isinstance(interrupt, Terminated) else EXIT_INTERRUPTED


@contextmanager
def prepared() -> Iterator[None]:
    """Have somewhere to print to, and hear SIGTERM."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started the process
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  as long as the process

    def terminate(*_: Any) -> None:
        raise Terminated

    mine = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, terminate) if mine else None
    try:
        yield
    finally:
        if mine:
            signal.signal(signal.SIGTERM, before)


def in_words(error: Exception) -> str:
    """Return what is wrong and, where the operating system says it, what to do."""
    if isinstance(error, MemoryError):
        return no_controls(
            f"memory ran out{f' ({error})' if str(error) else ''}; end other programs, give it a machine with more, or "
            "give it less to do: fewer workers, threads or series at a time, a smaller --memory; what is done in a "
            "store is kept"
        )
    from cksc_dist.store.trouble import advice  # seldom needed

    words = advice(error) if isinstance(error, OSError) else ""
    return no_controls(f"{error}: {words}" if words else str(error))


def run_job(name: str, work: Callable[[], None]) -> int:
    """Do the work of a job, say what goes wrong, and return the exit code."""
    with prepared():
        try:
            work()
        except (CkscError, OSError, MemoryError) as error:
            print(f"{name}: error: {in_words(error)}", file=sys.stderr)
            return EXIT_ERROR
        except KeyboardInterrupt as interrupt:
            print(f"{name}: interrupted; run it again to go on", file=sys.stderr)
            return exit_code(interrupt)
    return 0
