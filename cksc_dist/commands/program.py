"""How a program of this package begins and ends: streams to print to, signals that it hears, exit codes, last words."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from cksc_dist.commands.screen import end_bars, no_controls
from cksc_dist.errors import CkscError, PlanError, want_of_threads

__all__ = [
    "EXIT_ERROR",
    "EXIT_INTERRUPTED",
    "Terminated",
    "exit_code",
    "in_words",
    "on_this_machine",
    "prepared",
    "run_job",
]

EXIT_ERROR = 2
EXIT_INTERRUPTED = 128 + signal.SIGINT  # as shells have it


LEAST_ADDRESSES = 768 * 2**20
"""Bytes that a process must be able to address: with less, OpenBLAS may wait for memory without end while it is loaded,
and hears no signal. Found on two cores; with very many it wants more, and ends the process where it does not get it."""

ENDING = [signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]  # which Windows lacks


class Terminated(KeyboardInterrupt):
    """Somebody asks the process to end, as batch systems do before they kill it; tidied up as after Ctrl-C."""

    def __init__(self, number: int = signal.SIGTERM) -> None:
        self.signal = number


def exit_code(interrupt: KeyboardInterrupt) -> int:
    """Return the exit code of a process that was asked to end."""
    return 128 + interrupt.signal if isinstance(interrupt, Terminated) else EXIT_INTERRUPTED


@contextmanager
def prepared() -> Iterator[Callable[[str], None]]:
    """Have somewhere to print to, in whatever letters it takes, and hear signals that end a process.

    Gives what says last words.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started the process
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  as long as the process
        elif isinstance(stream := getattr(sys, name), io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # labels and ids may have letters that it lacks

    stream = sys.stderr  # a bar that could not be ended, on a terminal that was closed, may have its place

    def last_words(text: str) -> None:
        end_bars()
        print(text, file=stream)

    terminals = [number for number in (1, 2) if os.isatty(number)]  # standard output and standard error

    def terminate(number: int, _: Any) -> None:
        if number != signal.SIGTERM:  # a terminal that was closed takes no words, which would look like a broken disk
            for terminal in terminals:
                if not os.isatty(terminal):  # any more: anybody may send this signal
                    null = os.open(os.devnull, os.O_WRONLY)
                    os.dup2(null, terminal)
                    os.close(null)
        raise Terminated(number)

    before = {}
    if threading.current_thread() is threading.main_thread():
        # a batch system asks to end before it kills, and a terminal that is closed hangs up
        for number in ENDING:
            if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup has it
                before[number] = signal.signal(number, terminate)
    try:
        yield last_words
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def on_this_machine() -> Iterator[None]:
    """Refuse a machine that has not enough for the libraries; call a want of threads by its name."""
    if sys.platform != "win32":
        import resource

        most = resource.getrlimit(resource.RLIMIT_AS)[0]
        if most != resource.RLIM_INFINITY and most < LEAST_ADDRESSES:
            raise PlanError(
                f"this process may address {most / 2**20:,.0f} MiB, but needs {LEAST_ADDRESSES / 2**20:,.0f} MiB for "
                "its libraries alone, of which only a part is memory; raise ulimit -v, or lift it (unlimited), and "
                "set --memory instead"
            )
    try:
        yield
    except RuntimeError as error:
        want_of_threads(error)
        raise


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
    with prepared() as last_words:
        try:
            with on_this_machine():
                work()
        except (CkscError, OSError, MemoryError) as error:
            last_words(f"{name}: error: {in_words(error)}")
            return EXIT_ERROR
        except KeyboardInterrupt as interrupt:
            last_words(f"{name}: interrupted; run it again to go on")
            return exit_code(interrupt)
    return 0
