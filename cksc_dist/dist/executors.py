"""Executors without a cluster: one task after the other, or on threads of this process.

An executor has ``slots`` (how many tasks run at a time) and ``run(tasks)``, which gives the results in the order in
which they come.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import Protocol

from cksc_dist.dist.tile_work import TileTask, run_task
from cksc_dist.store.grid import Tile
from cksc_dist.store.ledger import Entry

__all__ = ["Executor", "SerialExecutor", "ThreadExecutor"]

Done = list[tuple[Tile, Entry]]
"""What a task gives; an empty one tells that time passes while nothing is done."""

TICK_SECONDS = 1.0


class Executor(Protocol):
    """What the work asks of an executor."""

    @property
    def slots(self) -> int:
        """Tasks that run at a time."""

    def run(self, tasks: Sequence[TileTask]) -> Iterator[Done]:
        """Run tasks and give their results as they come."""


class SerialExecutor:
    """One task after the other: the oracle for all the others."""

    slots = 1

    def run(self, tasks: Sequence[TileTask]) -> Iterator[Done]:
        """Run tasks and give their results as they come."""
        return map(run_task, tasks)


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
        left = iter(tasks)
        with ThreadPoolExecutor(self.slots, thread_name_prefix="cksc-tile") as pool:
            running: set[Future[Done]] = {pool.submit(run_task, task) for task in islice(left, 2 * self.slots)}
            try:
                while running:
                    finished, running = wait(running, timeout=TICK_SECONDS, return_when=FIRST_COMPLETED)
                    if not finished:
                        yield []
                    running |= {pool.submit(run_task, task) for task in islice(left, len(finished))}
                    for future in finished:
                        yield future.result()
            finally:
                for future in running:
                    future.cancel()
