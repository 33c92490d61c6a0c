"""Tasks on a Dask cluster: a bounded window of them in flight, retries, and backup copies of stragglers.

Results go to the store; what comes back is a few bytes a tile. A worker may vanish at any time: its task runs again
elsewhere. If the scheduler vanishes the run ends, and the next one goes on where it stopped.
"""

from __future__ import annotations

import itertools
import queue
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from statistics import median
from typing import Any

import dask
from distributed import Client, Future, get_worker
from distributed.scheduler import KilledWorker

from cksc_dist.dist.executors import Done
from cksc_dist.dist.plan import Plan, Rate
from cksc_dist.dist.progress import Progress
from cksc_dist.dist.sample import average, sample_rate
from cksc_dist.dist.ship import REFUSED
from cksc_dist.dist.tile_work import TileTask, run_task
from cksc_dist.dist.workers import slots_of
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
RESULT_SECONDS = 60.0
"""A result that has not been fetched after so long was most likely lost meanwhile; it gets twice as long then ..."""
FETCHES = 4
"""... so many times in all."""
SILENT_SECONDS = 300.0
"""After so long without any result it is told who has which tasks, and again after as long."""


def _run_on_worker(task: TileTask) -> Done:
    return run_task(task, str(get_worker().name))


def _timed(function: Callable[[Any], Any], task: Any) -> tuple[Any, float]:
    """Return what a function gives for a task, or an error that no second try would mend, and the seconds it took."""
    begin = time.perf_counter()
    try:
        result = function(task)
    except CkscError as error:
        result = error
    return result, time.perf_counter() - begin


def _sample_on_worker(url: str, plan: Plan, seed: int) -> Rate:
    return sample_rate(open_series(Folder(url)), plan, seed)


@dataclass
class _Flight:
    """A task that was sent, its copies, and when."""

    number: int
    task: Any
    copies: list[Future] = field(default_factory=list)
    keys: int = 0
    """How many were used for it: none is used twice."""
    lightened: int = 0
    spared: bool = False
    fetches: int = 0
    sent: float = field(default_factory=time.monotonic)


@dataclass
class _Stream:
    """What all tasks of a stream have in common, and those that were sent."""

    prefix: str
    function: Callable[[Any], Any]
    finished: queue.SimpleQueue[Future] = field(default_factory=queue.SimpleQueue)
    flights: dict[int, _Flight] = field(default_factory=dict)
    lightened: int = 0
    """How often tasks were made lighter because workers died at one; never less than of any in flight."""


class DaskExecutor:
    """Run tasks on the workers of a client.

    Parameters
    ----------
    client
        Connected client; it stays open.
    progress
        Hears what a person may want to know.
    """

    def __init__(self, client: Client, progress: Progress | None = None) -> None:
        self._client = client
        self._progress = progress or Progress()
        self._run = uuid.uuid4().hex[:8]
        self._last_seen = self._last_worker = self._heard = self._told = time.monotonic()
        self._asked, self._slots = -SLOTS_SECONDS, 1
        self._streams = itertools.count()
        # Dask's own thread hears of them, which must not ask the scheduler anything: this one passes them on
        self._refused: queue.SimpleQueue[tuple[float, dict[str, str]]] = queue.SimpleQueue()
        client.subscribe_topic(REFUSED, self._refused.put)
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
                raise self._deserted()
        return self._slots

    def sample(self, url: str, plan: Plan) -> Rate:
        """Take the timed sample on every worker at the same time; it also compiles there."""
        for attempt in range(1 + RETRIES):
            workers = self._workers_in_time()
            futures = {
                worker: self._client.submit(
                    _sample_on_worker,
                    url,
                    plan,
                    seed,
                    workers=[worker],
                    allow_other_workers=True,
                    pure=False,
                    key=f"sample-{self._run}-{attempt}-{seed}",
                )
                for seed, worker in enumerate(workers)
            }
            rates: list[Rate] = self._results_of_the_living(futures)
            if rates:
                return average(rates)
        raise ClusterError(
            "workers die again and again while a sample of pairs is timed; look at their logs and memory, then run the "
            "same command again"
        )

    def _workers_in_time(self) -> list[str]:
        """Return the addresses of the workers; where all have died, others may take their place."""
        end = time.monotonic() + AWAY_SECONDS
        while True:
            with self._words():
                workers = list(self._client.nthreads())
            if workers:
                return workers
            if time.monotonic() > end:
                raise self._deserted()
            time.sleep(LOOK_SECONDS / 5)

    def _results_of_the_living(self, futures: dict[str, Future]) -> list[Any]:
        """Return the results of tasks that were sent to one worker each; of a worker that died, there may be none.

        A task that may run elsewhere, too, does not if its worker was the last one: Dask waits for that very worker.
        """
        finished: queue.SimpleQueue[Future] = queue.SimpleQueue()
        for future in futures.values():
            future.add_done_callback(finished.put)
        self._heard = begin = time.monotonic()
        with self._words():
            while True:
                there = self._client.nthreads()
                waiting = [one for worker, one in futures.items() if one.status == "pending" and worker in there]
                if not waiting:
                    break
                with suppress(queue.Empty):
                    finished.get(timeout=LOOK_SECONDS)
                self._check_scheduler()
                self._tell_silence({str(one.key): begin for one in waiting})
            self._cancel([one for one in futures.values() if one.status == "pending"])
            found = []
            for one in futures.values():
                if one.status in ("finished", "error"):
                    with suppress(TimeoutError, KilledWorker):  # its worker died before it could be asked
                        found.append(one.result(timeout=AWAY_SECONDS))
            return found

    def run(self, tasks: Sequence[TileTask]) -> Iterator[Done]:
        """Run tasks and give their results as they come."""
        for item in self.stream(_run_on_worker, tasks, "dtw-tile"):
            yield [] if item is None else item[1]

    def stream(
        self, function: Callable[[Any], Any], tasks: Sequence[Any], name: str
    ) -> Iterator[tuple[int, Any] | None]:
        """Call a function for each of many tasks, and give (number of the task, result) as they come.

        None tells that time passes while nothing comes. The function must be one that workers can import, and may be
        called several times for a task, in several places. ``name`` is what the dashboard calls it.
        """
        left = iter(enumerate(tasks))
        stream = _Stream(f"{name}-{self._run}-{next(self._streams)}", function)
        flights = stream.flights
        durations: list[float] = []
        self._heard = time.monotonic()
        try:
            while True:
                self._tell_refused()
                room = TASKS_AHEAD * self.slots - len(flights)
                # in batches, as many as there are slots: one by one each costs some milliseconds
                new = [_Flight(*item) for item in islice(left, room)] if room >= self.slots else []
                for flight in new:
                    _lighten(flight, stream.lightened)
                self._send(stream, new)
                if not flights:
                    return
                try:
                    future = stream.finished.get(timeout=LOOK_SECONDS)
                except queue.Empty:
                    self._check_scheduler()
                    self._look_again(stream)
                    if self.slots <= room and len(new) < room:  # nothing is left to send
                        self._back_up(stream, durations)
                    self._tell_silence({str(copy.key): one.sent for one in flights.values() for copy in one.copies})
                    yield None
                    continue
                found = flights.get(_number(future))
                if found is None or not any(copy is future for copy in found.copies):
                    continue  # the slower of two copies, or one that was too heavy
                done = self._result(future, found)
                if isinstance(done, KilledWorker):
                    self._send(stream, self._lightened(stream, found, done))
                    continue
                if done is None:
                    continue
                self._heard = time.monotonic()
                del flights[found.number]
                durations.append(done[1])
                self._cancel([copy for copy in found.copies if copy is not future])
                yield found.number, done[0]
        finally:
            self._cancel([copy for flight in flights.values() for copy in flight.copies])

    def _cancel(self, futures: list[Future]) -> None:
        if futures and self._client.status == "running":
            self._client.cancel(futures, force=True)

    def _send(self, stream: _Stream, new: list[_Flight], worker: str | None = None) -> None:
        """Submit tasks in one message, which costs much less than one by one; to a worker, if one is named."""
        if not new:
            return
        keys = [f"{stream.prefix}-{flight.number}-{flight.keys}" for flight in new]
        place = {} if worker is None else {"workers": [worker], "allow_other_workers": True}
        functions, arguments = [stream.function] * len(new), [flight.task for flight in new]
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1GB"}):  # it is meant to be sent
            futures = self._client.map(_timed, functions, arguments, key=keys, pure=False, retries=RETRIES, **place)
        for flight, future in zip(new, futures, strict=True):
            flight.copies.append(future)
            flight.keys += 1
            flight.sent = time.monotonic()
            stream.flights[flight.number] = flight
            future.add_done_callback(stream.finished.put)

    def _back_up(self, stream: _Stream, durations: list[float]) -> None:
        """Send copies of tasks that take far too long to workers that have nothing else to do."""
        if not durations:
            return
        usual = max(LEAST_STRAGGLER_SECONDS, STRAGGLER * median(durations))
        late = [
            flight
            for flight in stream.flights.values()
            if len(flight.copies) < COPIES and time.monotonic() - flight.sent > usual
        ]
        if not late:
            return
        with self._words():
            idle = [worker for worker, keys in self._client.processing().items() if not keys]
        for flight, worker in zip(late, idle, strict=False):
            self.backups += 1
            self._send(stream, [flight], worker)

    def _tell_refused(self) -> None:
        """Tell of workers that joined and were sent away."""
        while not self._refused.empty():
            self._progress.note(f"a worker joined in vain: {self._refused.get()[1]['reason']}")

    def _tell_silence(self, sent: Mapping[str, float]) -> None:
        """Tell who has tasks, by their keys and when they were sent, where nothing has come back for long.

        A first task that hangs gets no backup copy: nobody knows how long it should take.
        """
        now = time.monotonic()
        if now - max(self._heard, self._told) < SILENT_SECONDS:
            return
        self._told = now
        with self._words():
            held = self._client.processing()
        times = {worker: [now - sent[key] for key in map(str, keys) if key in sent] for worker, keys in held.items()}
        who = [f"{worker} has {len(each)}, for {max(each) / 60:.0f} min" for worker, each in times.items() if each]
        self._progress.note(
            f"nothing has come back for {(now - self._heard) / 60:.0f} min; of the tasks that were sent, "
            f"{'; '.join(who) or 'no worker has any (are they paused for want of memory?)'}. Tasks may take that long; "
            "a worker whose log or processor shows that it hangs may be ended: its tasks go to others"
        )

    def _result(self, future: Future, flight: _Flight) -> tuple[Any, float] | KilledWorker | None:
        """Return what a task gave, and its seconds; None where it, or a copy of it, still runs.

        An error is raised, but that workers died at the task again and again is returned.

        A result is kept by the worker that computed it, and is lost with it where it was not fetched yet: Dask then
        computes it once more, and `_look_again` finds it.
        """
        status = future.status
        if status in ("pending", "lost"):
            return None
        if status == "finished":
            return self._fetched(future, flight)
        if status == "error":
            if any(copy.status != "error" for copy in flight.copies):
                return None
            error = future.exception()
            if isinstance(error, KilledWorker):
                return error
            raise error if error is not None else ClusterError("a task failed without saying why")
        raise self._gone()  # cancelled, and not by this side

    def _lightened(self, stream: _Stream, fallen: _Flight, error: KilledWorker) -> list[_Flight]:
        """Make the task that workers died at lighter, and all that are in flight with it; return what is to be sent.

        They were most likely killed because it takes too much memory, which they cannot tell any more. The others
        change with it: they are as heavy, and Dask blames a death on all tasks that the worker had, so that one which
        is light enough would fall for its neighbour. What was cancelled may still run, and end one more worker: a task
        that cannot be made lighter is spared once.
        """
        again, before = [fallen], fallen.lightened
        _lighten(fallen, max(before + 1, stream.lightened))
        if fallen.lightened > stream.lightened:
            stream.lightened = fallen.lightened
            flights = stream.flights.values()
            again = [one for one in flights if all(copy.status != "finished" for copy in one.copies)]
        elif fallen.lightened == before:
            if fallen.spared or not stream.lightened:
                raise ClusterError(
                    f"workers die again and again at {fallen.task} ({error}); look at their logs and memory, then run "
                    "the same command again"
                )
            fallen.spared = True
        self._cancel([copy for flight in again for copy in flight.copies])
        for flight in again:
            _lighten(flight, stream.lightened)
            flight.copies = []
        return again

    def _fetched(self, future: Future, flight: _Flight) -> tuple[Any, float] | None:
        """Return the result of a task that has finished, and its seconds; None where it was lost meanwhile."""
        flight.fetches += 1
        with self._words():
            try:
                # a long one may come over a slow line
                done: tuple[Any, float] = future.result(timeout=RESULT_SECONDS * 2 ** (flight.fetches - 1))
            except Exception as error:
                if future.status != "finished":
                    flight.fetches = 0
                    return None  # computed once more, it may also fail
                if not isinstance(error, TimeoutError):
                    raise
                if flight.fetches >= FETCHES:
                    raise ClusterError(
                        f"the result of {flight.task} does not come from its worker; is the line between them broken, "
                        "or blocked by a firewall? What is done is kept: run the same command again"
                    ) from error
                return None
        if isinstance(done[0], CkscError):
            raise done[0]
        return done

    def _look_again(self, stream: _Stream) -> None:
        """Take up what was lost before it was fetched, and has ended once more: Dask calls back a first time only."""
        for flight in stream.flights.values():
            for copy in flight.copies:
                if copy.status not in ("pending", "lost"):
                    stream.finished.put(copy)

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

    def _deserted(self) -> ClusterError:
        return ClusterError(
            f"the scheduler has had no workers for {AWAY_SECONDS:.0f} s; what is done is kept: start some with: dask "
            "worker ADDRESS, then run the same command again"
        )

    def _gone(self) -> ClusterError:
        return ClusterError(
            "the scheduler went away or dropped the tasks; what is done is kept: start it again, then run the same "
            "command again"
        )


def _lighten(flight: _Flight, times: int) -> None:
    """Bring a task into a form that takes less memory, so many steps in all, or as many as there are."""
    while flight.lightened < times:
        lighter = flight.task.lighter() if hasattr(flight.task, "lighter") else None
        if lighter is None:
            return
        flight.task = lighter
        flight.lightened += 1


def _number(future: Future) -> int:
    return int(str(future.key).rsplit("-", 2)[1])
