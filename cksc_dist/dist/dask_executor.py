"""Tasks on a Dask cluster: a bounded window of them in flight, retries, and backup copies of stragglers.

Results go to the store; what comes back is a few bytes a tile. A worker may vanish at any time: its task runs again
elsewhere. If the scheduler vanishes the run ends, and the next one goes on where it stopped.
"""

from __future__ import annotations

import queue
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from statistics import median
from typing import Any

from distributed import Client, Future, get_worker
from distributed.scheduler import KilledWorker

from cksc_dist.dist.cluster import slots_of
from cksc_dist.dist.executors import Done
from cksc_dist.dist.plan import Plan, Rate
from cksc_dist.dist.sample import average, sample_rate
from cksc_dist.dist.tile_work import TileTask, run_task
from cksc_dist.errors import CkscError, ClusterError
from cksc_dist.store.folder import Folder
from cksc_dist.store.series_files import open_series

__all__ = ["DaskExecutor"]

TASKS_AHEAD = 3
"""Tasks in flight for each that runs: enough that no worker waits for the client."""
RETRIES = 3
STRAGGLER = 3.0
"""A task that takes so many times the usual gets a backup copy, once nothing else is left to do ..."""
LEAST_STRAGGLER_SECONDS = 10.0
"""... and it has been running so long."""
COPIES = 3
"""Copies of a task at most: a backup may get stuck, too."""
LOOK_SECONDS = 1.0
SLOTS_SECONDS = 1.0
AWAY_SECONDS = 30.0


def _run_on_worker(task: TileTask) -> Done | CkscError:
    try:
        return run_task(task, str(get_worker().name))
    except CkscError as error:
        return error  # which no second try would mend


def _sample_on_worker(url: str, plan: Plan, seed: int) -> Rate:
    return sample_rate(open_series(Folder(url)), plan, seed)


@dataclass
class _Flight:
    """A task that was sent, its copies, and when."""

    number: int
    task: TileTask
    copies: list[Future] = field(default_factory=list)
    sent: float = field(default_factory=time.monotonic)


class DaskExecutor:
    """Run tasks on the workers of a client.

    Parameters
    ----------
    client
        Connected client; it stays open.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._run = uuid.uuid4().hex[:8]
        self._last_seen = self._last_worker = time.monotonic()
        self._asked, self._slots = -SLOTS_SECONDS, 1
        self.backups = 0

    @property
    def slots(self) -> int:
        """Tasks that run at a time; asked of the scheduler now and then, because workers come and go."""
        if time.monotonic() - self._asked > SLOTS_SECONDS:
            with self._words():
                found = slots_of(self._client)
            self._asked = time.monotonic()
            if found:
                self._slots, self._last_worker = found, self._asked
            elif self._asked - self._last_worker > AWAY_SECONDS:
                raise ClusterError(
                    f"the scheduler has had no workers for {AWAY_SECONDS:.0f} s; what is done is kept: start some, "
                    "then run the same command again"
                )
        return self._slots

    def sample(self, url: str, plan: Plan) -> Rate:
        """Take the timed sample on every worker at the same time; it also compiles there."""
        workers = list(self._client.nthreads())
        if not workers:
            raise ClusterError("the scheduler has no workers; start some with: dask worker ADDRESS")
        futures = [
            self._client.submit(
                _sample_on_worker,
                url,
                plan,
                seed,
                workers=[worker],
                allow_other_workers=True,
                pure=False,
                key=f"sample-{self._run}-{seed}",
            )
            for seed, worker in enumerate(workers)
        ]
        with self._words():
            rates: list[Rate] = self._client.gather(futures)
        return average(rates)

    def run(self, tasks: Sequence[TileTask]) -> Iterator[Done]:
        """Run tasks and give their results as they come."""
        left = iter(enumerate(tasks))
        finished: queue.SimpleQueue[Future] = queue.SimpleQueue()
        flights: dict[int, _Flight] = {}
        durations: list[float] = []
        try:
            while True:
                room = TASKS_AHEAD * self.slots - len(flights)
                # in batches, as many as there are slots: one by one each costs some milliseconds
                new = [_Flight(*item) for item in islice(left, room)] if room >= self.slots else []
                self._send(new, flights, finished)
                if not flights:
                    return
                try:
                    future = finished.get(timeout=LOOK_SECONDS)
                except queue.Empty:
                    self._check_scheduler()
                    if self.slots <= room and len(new) < room:  # nothing is left to send
                        self._back_up(flights, durations, finished)
                    yield []
                    continue
                flight = flights.get(_number(future))
                if flight is None:
                    continue  # the slower of two copies
                done = self._result(future, flight)
                if done is None:
                    continue
                del flights[flight.number]
                durations.append(sum(entry.seconds for _, entry in done))
                self._cancel([copy for copy in flight.copies if copy is not future])
                yield done
        finally:
            self._cancel([copy for flight in flights.values() for copy in flight.copies])

    def _cancel(self, futures: list[Future]) -> None:
        if futures and self._client.status == "running":
            self._client.cancel(futures, force=True)

    def _send(self, new: list[_Flight], flights: dict[int, _Flight], finished: Any, worker: str | None = None) -> None:
        """Submit tasks in one message, which costs much less than one by one; to a worker, if one is named."""
        if not new:
            return
        keys = [f"dtw-tile-{self._run}-{flight.number}-{len(flight.copies)}" for flight in new]
        place = {} if worker is None else {"workers": [worker], "allow_other_workers": True}
        futures = self._client.map(
            _run_on_worker, [flight.task for flight in new], key=keys, pure=False, retries=RETRIES, **place
        )
        for flight, future in zip(new, futures, strict=True):
            flight.copies.append(future)
            flight.sent = time.monotonic()
            flights[flight.number] = flight
            future.add_done_callback(finished.put)

    def _back_up(self, flights: dict[int, _Flight], durations: list[float], finished: Any) -> None:
        """Send copies of tasks that take far too long to workers that have nothing else to do."""
        if not durations:
            return
        usual = max(LEAST_STRAGGLER_SECONDS, STRAGGLER * median(durations))
        late = [
            flight
            for flight in flights.values()
            if len(flight.copies) < COPIES and time.monotonic() - flight.sent > usual
        ]
        if not late:
            return
        with self._words():
            idle = [worker for worker, keys in self._client.processing().items() if not keys]
        for flight, worker in zip(late, idle, strict=False):
            self.backups += 1
            self._send([flight], flights, finished, worker)

    def _result(self, future: Future, flight: _Flight) -> Done | None:
        """Return what a task gave; None where a copy of it still runs."""
        if future.status == "finished":
            with self._words():
                done: Done | CkscError = future.result()
            if isinstance(done, CkscError):
                raise done
            return done
        others = [copy for copy in flight.copies if copy is not future and copy.status == "pending"]
        if others and future.status != "cancelled":
            return None
        if future.status == "error":
            error = future.exception()
            if isinstance(error, KilledWorker):
                tiles = ", ".join(str(todo.tile) for todo in flight.task.todo[:3])
                raise ClusterError(
                    f"workers die again and again at the task of tiles {tiles} ({error}); look at their logs and "
                    "memory, then run the same command again"
                )
            raise error if error is not None else ClusterError("a task failed without saying why")
        raise self._gone()

    @contextmanager
    def _words(self) -> Iterator[None]:
        """Say in this package's words that the scheduler is gone, whichever way that shows."""
        try:
            yield
        except CkscError:
            raise
        except (OSError, TimeoutError, CancelledError) as error:
            raise self._gone() from error

    def _check_scheduler(self) -> None:
        if self._client.status == "running":
            self._last_seen = time.monotonic()
        elif self._client.status == "closed" or time.monotonic() - self._last_seen > AWAY_SECONDS:
            raise self._gone()

    def _gone(self) -> ClusterError:
        return ClusterError(
            "the scheduler went away or dropped the tasks; what is done is kept: start it again, then run the same "
            "command again"
        )


def _number(future: Future) -> int:
    return int(str(future.key).rsplit("-", 2)[1])
