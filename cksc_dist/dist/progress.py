"""What work tells while it runs. The work knows no screen: whoever wants to see it gives a `Progress`."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Progress", "Running"]


@dataclass(frozen=True)
class Running:
    """What runs, told once at the start.

    Parameters
    ----------
    text
        What it is.
    total
        Units of work in all: cell updates of tiles to compute, or tiles to read.
    tiles
        Tiles to go through.
    executor
        Who works, and why.
    workers
        How many at a time.
    dashboard
        Address of the Dask dashboard; empty where there is none.
    unit
        What ``tiles`` counts.
    """

    text: str
    total: int
    tiles: int
    executor: str = ""
    workers: int = 1
    dashboard: str = ""
    unit: str = "tiles"


class Progress:
    """Hears what goes on; this one keeps silent."""

    def note(self, text: str) -> None:
        """Something that a person may want to know."""

    def begin(self, running: Running) -> None:
        """Work begins."""

    def advance(self, work: int, pairs: int, tiles: int = 1) -> None:
        """So much work was done: units, pairs of series, tiles."""

    def tick(self) -> None:
        """A second has passed without anything new."""

    def end(self) -> None:
        """Work is over, done or not."""
