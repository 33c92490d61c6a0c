"""What work tells while it runs. The work knows no screen: whoever wants to see it gives a `Progress`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

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

    @contextmanager
    def on(self, client: Any) -> Iterator[None]:
        """Work goes to a Dask client meanwhile; None: it does not."""
        yield

    def tiles_done(self, matrix: str, blocks: int, done: Sequence[tuple[int, int]]) -> None:
        """Tiles of the upper triangle of a matrix are done: first those that were so before, then as they come."""

    def objective(self, fit: str, value: float) -> None:
        """An alternation of a training has ended with this J."""

    def result(self, method: str, split: int, accuracy: float, objectives: Sequence[float] = ()) -> None:
        """A final fit of an evaluation is done, with these J after its alternations."""
