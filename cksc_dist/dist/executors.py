"""Executors without a cluster: one task after the other, or on threads of this process.

An executor has ``slots`` (how many tasks run at a time) and ``stream(function, tasks, name)``, which calls a function
for each task and gives the results in the order in which they come; ``run`` does so for tiles, `results` waits for all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import Any, Protocol

from cksc_dist.dist.tile_work import TileTask, run_task
from cksc_dist.store.grid import Tile
from cksc_dist.store.ledger import Entry

__all__ = ["Executor", "SerialExecutor", "ThreadExecutor", "results"]

Done = list[tuple[Tile, Entry]]
"""What a task of tiles gives; an empty one tells that time passes while nothing is done."""

Came = tuple[int, Any] | None
"""Number of a task and its result; None tells that time passes while nothing comes."""

TICK_SECONDS = 1.0


class Executor(Protocol):
    """What the work asks of an executor."""

    @property
    def slots(self) -> int:
        """Tasks that run at a time."""

    def run(self, tasks: Sequence[TileTask]) -> Iterator[Done]:
        """Run tasks and give their results as they come."""

    def stream(self, function: Callable[[Any], Any], tasks: Sequence[Any], name: str) -> Iterator[Came]:
        """Call a function for each task and give (number of the task, result) as they come."""


def results(executor: Executor, function: Callable[[Any], Any], tasks: Sequence[Any], name: str) -> list[Any]:
    """Return the results of all tasks, in the order of the tasks.

    Examples
    --------
    >>> results(SerialExecutor(), abs, [-1, 2, -3], "absolute")
    [1, 2, 3]
    """
    out: list[Any] = [None] * len(tasks)
    for came in executor.stream(function, tasks, name):
        if came is not None:
            out[came[0]] = came[1]
    return out


class SerialExecutor:
    """One task after the other: the oracle for all the others."""

    slots = 1

    def run(self, tasks: Sequence[TileTask]) -> Iterator[Done]:
        """Run tasks and give their results as they come."""
        return map(run_task, tasks)

    def stream(self, function: Callable[[Any], Any], tasks: Sequence[Any], name: str) -> Iterator[Came]:
        """Call a function for each task and give (number of the task, result) as they come."""
        return ((number, function(task)) for number, task in enumerate(tasks))


class ThreadExecutor:
    """Threads of this process; compiled code releases Python's lock.

    Parameters
    ----------
    slots
        Number of threads.
    """

    def __init__(self, slots: int) -> None:
        self.slots = slots

    def run(self, tasks: Sequence[TileTask]) -> Iterator[Done]:
        """Run tasks and give their results as they come."""
        for came in self.stream(run_task, tasks, "dtw-tile"):
            yield [] if came is None else came[1]

    def stream(self, function: Callable[[Any], Any], tasks: Sequence[Any], name: str) -> Iterator[Came]:
        """Call a function for each task and give (number of the task, result) as they come."""
        left = iter(enumerate(tasks))
        with ThreadPoolExecutor(self.slots, thread_name_prefix=f"cksc-{name}") as pool:

            def begin(number: int, task: Any) -> tuple[int, Any]:
                return number, function(task)

            running: set[Future[tuple[int, Any]]] = {pool.submit(begin, *item) for item in islice(left, 2 * self.slots)}
            try:
                while running:
                    finished, running = wait(running, timeout=TICK_SECONDS, return_when=FIRST_COMPLETED)
                    if not finished:
                        yield None
                    running |= {pool.submit(begin, *item) for item in islice(left, len(finished))}
                    for future in finished:
                        yield future.result()
            finally:
                for future in running:
                    future.cancel()
