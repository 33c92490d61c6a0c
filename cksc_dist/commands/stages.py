"""Shows work of several stages: what a stage tells carries its number, and a line says what came of it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from cksc_dist.commands.amounts import in_time
from cksc_dist.commands.screen import Screen
from cksc_dist.commands.work_screen import WorkScreen
from cksc_dist.dist.progress import Running

__all__ = ["Stages"]


class Stages(WorkScreen):
    """Prints what the work of one stage after the other tells.

    Parameters
    ----------
    screen
        Where.
    names
        The stages, in order.

    Examples
    --------
    >>> stages = Stages(Screen(), ["read", "count"])
    >>> with stages.next() as said:  # doctest: +ELLIPSIS
    ...     said.append("3 files")
    1/2 read: 3 files, in ... s
    """

    def __init__(self, screen: Screen, names: Sequence[str]) -> None:
        super().__init__(screen)
        self._names, self._at = list(names), 0
        self._quiet = False
        self.seconds: dict[str, float] = {}

    @contextmanager
    def next(self, *, quiet: bool = False) -> Iterator[list[str]]:
        """Go through the next stage; what is put into the list is said in the end, in a quiet one nothing else."""
        name, begin, said = self._names[self._at], time.perf_counter(), list[str]()
        self._at += 1
        self._quiet = quiet
        yield said
        self.seconds[name] = time.perf_counter() - begin
        self._screen.line(f"{self.mark}: {', '.join([*said, f'in {in_time(self.seconds[name])}'])}")

    @property
    def mark(self) -> str:
        """Number and name of the stage."""
        return f"{self._at}/{len(self._names)} {self._names[self._at - 1]}"

    def note(self, text: str) -> None:
        """Print a line, but not in a quiet stage."""
        if not self._quiet:
            super().note(text)

    def begin(self, running: Running) -> None:
        """Say what begins, and in which stage."""
        marked = running if not self._at else replace(running, text=f"{self.mark}: {running.text}")
        super().begin(marked)
