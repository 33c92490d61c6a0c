"""Work that is done on a Dask cluster is shown on the cluster's own dashboard, on the page ``/cksc``.

What is worth showing goes to the scheduler as events, a few bytes at a time; a plugin there (`dashboard_page`) draws
it. Nothing that goes wrong here may stop the work: then there is no page, and all else is as before.
"""

from __future__ import annotations

import getpass
import os
import platform
import time
import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from cksc_dist.dist.dashboard_state import MOST_BLOCKS, RESULTS, SPLIT, TOPIC
from cksc_dist.dist.progress import Progress, Running

__all__ = ["DashboardProgress", "show_page", "watched"]

SEND_SECONDS = 0.5
"""What happens within this time goes in one message."""

# evaluated by the scheduler, where this package may be missing
_IS_THERE = '__import__("importlib.util", fromlist=["util"]).find_spec("cksc_dist") is not None'


def watched(progress: Progress | None) -> DashboardProgress:
    """Return a listener that also shows on the dashboard what it hears; one that does so already as it is."""
    return progress if isinstance(progress, DashboardProgress) else DashboardProgress(progress)


def show_page(client: Any) -> str:
    """Put the page on the scheduler of a client, once, and return its address.

    Where Dask's insides differ from those that are known this may be the address of the JSON alone; empty where there
    is nothing to see.
    """
    try:
        if not client.run_on_scheduler(eval, _IS_THERE):
            return ""
        from cksc_dist.dist.dashboard_page import CkscPage, offered
        from cksc_dist.dist.workers import dashboard_of

        client.register_plugin(CkscPage())
        base, known, _ = dashboard_of(client).rpartition("/status")
        path = client.run_on_scheduler(offered)
        return f"{base}{path}" if known and path else ""
    except Exception:  # whatever it is, the work needs no page
        return ""


class DashboardProgress(Progress):
    """Passes on what it hears, and while work goes to a Dask client tells the scheduler as well.

    Parameters
    ----------
    inner
        Hears everything.

    Examples
    --------
    One listener for several pieces of work shows them together, on one page::

        progress = DashboardProgress()
        compute_distances(store, progress=progress, client=client)
        train(store, model, progress=progress, client=client)
    """

    def __init__(self, inner: Progress | None = None) -> None:
        self._inner = inner or Progress()
        self._client: Any = None
        self._depth, self._page = 0, ""
        self._run = uuid.uuid4().hex[:8]
        self._sent = self._begin = time.monotonic()
        self._end: float | None = None
        self._state: dict[str, Any] = {"run": self._run, "who": _who(), "ended": False}
        self._count = {"work": 0, "pairs": 0, "done": 0}
        # what is new since the last message; results may come before there is anybody to tell
        self._tiles: dict[str, tuple[int, list[int]]] = {}
        self._known: set[str] = set()
        self._objectives: dict[str, list[float]] = {}
        self._results: deque[tuple[str, int, float, list[float]]] = deque(maxlen=RESULTS)
        self.prefix = ""
        """Stands before what is being done: which part it is of something larger."""
        self.suffix = ""
        """Stands after the names of methods from now on: several evaluations of one run are told apart by it."""

    @contextmanager
    def on(self, client: Any) -> Iterator[None]:
        """Show on the dashboard of a client what happens meanwhile."""
        if client is None:
            yield
            return
        if not self._page:  # a first try may have come before the code was there
            self._page = show_page(client)
            if self._page:
                self._inner.note(f"page: {self._page}")
        outer, self._client = self._client, client
        self._depth += 1
        self._send(ended=False)
        try:
            with self._inner.on(client):
                yield
        finally:
            self._depth -= 1
            self._send(ended=self._depth == 0)
            self._client = outer
            if self._depth == 0:
                self._page = ""  # the next client may be that of another scheduler

    def note(self, text: str) -> None:
        """Something that a person may want to know."""
        self._inner.note(text)
        self._state["note"] = text
        self._send_soon()

    def begin(self, running: Running) -> None:
        """Work begins."""
        self._inner.begin(running)
        self._begin, self._end = time.monotonic(), None
        self._count = dict.fromkeys(self._count, 0)
        self._state |= {"stage": f"{self.prefix}{running.text}", "unit": running.unit, "total": running.tiles}
        self._state |= {"work_total": running.total, "workers": running.workers, "executor": running.executor}
        self._send()

    def advance(self, work: int, pairs: int, tiles: int = 1) -> None:
        """So much work was done."""
        self._inner.advance(work, pairs, tiles)
        for name, amount in (("work", work), ("pairs", pairs), ("done", tiles)):
            self._count[name] += amount
        self._send_soon()

    def tick(self) -> None:
        """A second has passed."""
        self._inner.tick()
        self._send_soon()

    def end(self) -> None:
        """Work is over."""
        self._inner.end()
        self._end = time.monotonic()  # the pace of a stage is not that of the pause after it
        self._send()

    def tiles_done(self, matrix: str, blocks: int, done: Sequence[tuple[int, int]]) -> None:
        """Tiles are done."""
        self._inner.tiles_done(matrix, blocks, done)
        if self._client is None or blocks > MOST_BLOCKS:
            return
        first = matrix not in self._known
        self._tiles.setdefault(matrix, (blocks, []))[1].extend(i * blocks + j for i, j in done)
        if first:  # alone in its message: these were done before
            self._known.add(matrix)
            self._send()
        else:
            self._send_soon()

    def objective(self, fit: str, value: float) -> None:
        """An alternation has ended."""
        self._inner.objective(fit, value)
        if self._client is not None:
            self._objectives.setdefault(fit, []).append(float(value))
            self._send_soon()

    def result(self, method: str, split: int, accuracy: float, objectives: Sequence[float] = ()) -> None:
        """A fit is done."""
        self._inner.result(method, split, accuracy, objectives)
        self._results.append((f"{method}{self.suffix}", split, float(accuracy), list(objectives)))
        self._send_soon()

    def _send_soon(self) -> None:
        if time.monotonic() - self._sent >= SEND_SECONDS:
            self._send()

    def _send(self, *, ended: bool = False) -> None:
        """Send what is new. A client that fails is not tried again: the next try might take its time as well."""
        self._sent = now = time.monotonic()
        if self._client is None:
            return
        message = self._state | self._count | {"ended": ended, "seconds": (self._end or now) - self._begin}
        message["tiles"] = {
            matrix: [blocks, np.array(new, "<u4").tobytes()] for matrix, (blocks, new) in self._tiles.items()
        }
        curves = {f"{name}{SPLIT}{split}": values for name, split, _, values in self._results if values}
        message |= {"objectives": self._objectives | curves, "results": [list(each[:3]) for each in self._results]}
        try:
            message["client"] = self._client.id
            if self._client.status != "running":
                return  # what is new is kept for the next message
            self._client.log_event(TOPIC, message)
        except Exception:  # it is for the work itself to tell that the scheduler is gone
            self._client = None
        self._tiles, self._objectives = {}, {}
        self._results.clear()


def _who() -> str:
    """Return who runs this, where."""
    user = ""
    with suppress(Exception):  # a process may have no name of a user, which shows in several ways
        user = f"{getpass.getuser()} on "
    return f"{user}{platform.node()}, process {os.getpid()}"
