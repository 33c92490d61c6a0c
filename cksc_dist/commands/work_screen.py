"""Shows work that goes on: a bar on a terminal, a line every ten seconds in a log."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from cksc_dist.commands.amounts import in_time, in_units
from cksc_dist.commands.screen import Screen, no_controls
from cksc_dist.dist.progress import Progress, Running

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

__all__ = ["WorkScreen"]

LOG_SECONDS = 10.0


class WorkScreen(Progress):
    """Prints what work tells.

    Parameters
    ----------
    screen
        Where.
    """

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._bar: Bar | None = None
        self._said: set[str] = set()

    def note(self, text: str) -> None:
        """Print a line, once: work of many parts tells the same of each."""
        if text not in self._said:
            self._said.add(text)
            self._screen.line(text)

    def begin(self, running: Running) -> None:
        """Say what begins, who works, and where to look."""
        self._running = running
        self._work = self._pairs = self._tiles = 0
        self._begin = self._spoke = time.monotonic()
        if running.executor:
            self.note(f"executor: {running.executor}; workers: {running.workers}")
        if running.dashboard:
            self.note(f"dashboard: {running.dashboard}")
        self._bar = self._screen.bar()
        if self._bar is not None:
            self._bar.start()
            self._task: TaskID = self._bar.add_task(no_controls(running.text), total=max(1, running.total), rate="")

    def advance(self, work: int, pairs: int, tiles: int = 1) -> None:
        """Move the bar; in a log, speak now and then."""
        self._work += work
        self._pairs += pairs
        self._tiles += tiles
        if self._bar is not None:
            self._bar.update(self._task, completed=self._work, rate=self._rate())
        elif time.monotonic() - self._spoke >= LOG_SECONDS:
            self._spoke = time.monotonic()
            self._screen.line(self._state())

    def tick(self) -> None:
        """Show that time passes."""
        self.advance(0, 0, 0)

    def _rate(self) -> str:
        seconds = time.monotonic() - self._begin
        return f"{in_units(self._pairs / seconds)}pairs/s" if self._pairs and seconds else ""

    def _state(self) -> str:
        running, seconds = self._running, time.monotonic() - self._begin
        left = seconds * (running.total - self._work) / self._work if self._work else None
        parts = [
            f"{running.text}: {self._work / max(1, running.total):.1%}",
            f"{self._tiles:,} of {running.tiles:,} {running.unit}",
            self._rate(),
            f"{running.workers} workers" if running.executor else "",
            f"ETA {in_time(left)}" if left is not None else "",
        ]
        return ", ".join(part for part in parts if part)

    def end(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
