"""``cksc fetch``: a data set of the UEA archive, from the network into a folder."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from cksc_dist.commands.amounts import in_bytes, in_time
from cksc_dist.commands.screen import Screen
from cksc_dist.errors import InputError
from cksc_dist.io.fetch import NAMES, fetch

if TYPE_CHECKING:
    from rich.progress import TaskID

__all__ = ["fetch_set", "list_sets"]

LOG_SECONDS = 10.0


def list_sets() -> None:
    """Print the names of the multivariate sets, one a line."""
    screen = Screen()
    for name in NAMES:
        screen.line(name)


def fetch_set(name: str | None, to: Path, base: str | None, replace: bool) -> None:
    """Fetch a set, and say what came."""
    if name is None:
        raise InputError("name a data set, as cksc fetch BasicMotions; cksc fetch --list shows names")
    screen = Screen()
    with _Meter(screen, f"fetching {name}") as meter:
        came = fetch(name, to, base=base, replace=replace, progress=meter)
    if came is None:
        screen.line(f"{to / name} is there already, so nothing is fetched; --replace puts a new copy in its place")
        return
    screen.line(f"{came.url}: {in_bytes(came.size)}, sha256 {came.sha256}")
    screen.line(f"{came.folder}: {came.data or 'whole'}")
    if came.note:
        screen.line(f"note: {came.note}")


class _Meter:
    """Hears how many bytes have come: a bar on a terminal, a line every ten seconds in a log."""

    def __init__(self, screen: Screen, text: str) -> None:
        self._screen = screen
        self._text = text
        self._bar = screen.bar()
        self._task: TaskID | None = None

    def __enter__(self) -> _Meter:
        self._begin = self._spoke = time.monotonic()
        if self._bar is not None:
            self._bar.start()
            self._task = self._bar.add_task(self._text, total=None, rate="")
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, size: int, total: int | None) -> None:
        now = time.monotonic()
        rate = size / max(now - self._begin, 1e-3)
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=size, total=total, rate=f"{in_bytes(rate)}/s")
        elif now - self._spoke >= LOG_SECONDS:
            self._spoke = now
            of = f" of {in_bytes(total)}" if total else ""
            left = f", ETA {in_time((total - size) / rate)}" if total else ""
            self._screen.line(f"{self._text}: {in_bytes(size)}{of}, {in_bytes(rate)}/s{left}")
