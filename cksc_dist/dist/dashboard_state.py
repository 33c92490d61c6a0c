"""What the dashboard's page shows: runs, put together from the events that they send. Needs neither Dask nor Bokeh.

Whatever is sent, what is kept stays small.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["ABOUT", "BEFORE", "MOST_BLOCKS", "RESULTS", "SPLIT", "TOPIC", "Run", "Runs", "TileMap"]

TOPIC = "cksc"
"""What the events are called."""
RUNS = 8
MATRICES = 8
"""Matrices of a run whose tiles are kept."""
MOST_BLOCKS = 1024
"""A matrix of more has no tile map."""
FITS = 40
VALUES = 200
"""Values of a fit: the latest."""
RESULTS = 2000
SPLIT = ", split "
"""Between the method and the number in the name of a fit of an evaluation."""
LETTERS = 300

BEFORE, NEW = 1, 2

ABOUT = {
    "runs": "by id, the latest last; a run that has ended goes when another begins",
    "stage": "what is being done; done and total count its units, share is measured in work",
    "rate": "rate_unit a second, since the stage began; null where not known yet",
    "eta_seconds": "until the end of the stage, at this rate; null where not known",
    "tiles": "by matrix; tiles of the upper triangle, in blocks x blocks; before: done by earlier runs",
    "objectives": "by fit, of the latest: first, the number of the first alternation kept, and values of J after each",
    "results": "by method: accuracy of each split that is done, and their mean",
    "ended": "whether the run is over, done or not",
}


@dataclass
class TileMap:
    """Which tiles of a matrix are done.

    Parameters
    ----------
    state
        0 missing, 1 done by an earlier run, 2 done by this one; the upper triangle is used.
    """

    state: NDArray[np.uint8]

    @classmethod
    def of(cls, blocks: int) -> TileMap:
        """Return a map with nothing done."""
        if not 1 <= blocks <= MOST_BLOCKS:
            raise ValueError(f"{blocks} blocks")
        return cls(np.zeros((blocks, blocks), np.uint8))

    @property
    def blocks(self) -> int:
        """Blocks of rows."""
        return len(self.state)

    @property
    def total(self) -> int:
        """Tiles of the upper triangle."""
        return self.blocks * (self.blocks + 1) // 2

    @property
    def done(self) -> int:
        """Tiles that are done."""
        return int(np.count_nonzero(self.state))

    def mark(self, numbers: NDArray[Any], value: int) -> None:
        """Mark tiles, each the number of its place in the square, row by row; told twice is told once."""
        flat = self.state.reshape(-1)
        numbers = numbers[numbers < len(flat)]
        flat[numbers[flat[numbers] == 0]] = value

    def image(self, most: int) -> NDArray[np.uint8]:
        """Return the square, its mirror filled in; coarser than it is where it has more rows than asked for.

        A place that stands for several tiles is done once all of them are.
        """
        whole = np.maximum(self.state, self.state.T)
        starts = np.arange(0, self.blocks, -(-self.blocks // most))
        coarse = np.minimum.reduceat(np.minimum.reduceat(whole, starts, axis=0), starts, axis=1)
        return np.asarray(coarse, np.uint8)


@dataclass
class Run:
    """One run of a command or a job.

    Parameters
    ----------
    key
        Its id.
    """

    key: str
    who: str = ""
    client: str = ""
    stage: str = ""
    unit: str = ""
    note: str = ""
    executor: str = ""
    workers: int = 0
    done: int = 0
    total: int = 0
    work: int = 0
    work_total: int = 0
    pairs: int = 0
    seconds: float = 0.0
    ended: bool = False
    tiles: dict[str, TileMap] = field(default_factory=dict)
    objectives: dict[str, tuple[int, deque[float]]] = field(default_factory=dict)
    """By fit: how many values there were in all, and the latest of them."""
    results: dict[tuple[str, int], float] = field(default_factory=dict)

    @property
    def share(self) -> float:
        """How much of the work of the stage is done, 0 to 1."""
        return min(1.0, self.work / self.work_total) if self.work_total > 0 else 0.0

    @property
    def rate(self) -> float | None:
        """Pairs, or where there are none units, a second."""
        amount = self.pairs or self.done
        return amount / self.seconds if amount and self.seconds > 0 else None

    @property
    def rate_unit(self) -> str:
        """What the rate counts."""
        return "pairs" if self.pairs else self.unit

    @property
    def eta(self) -> float | None:
        """Seconds that the stage will take still, at the pace so far."""
        if self.ended or not self.work:
            return None
        return self.seconds * max(0, self.work_total - self.work) / self.work

    def accuracies(self) -> dict[str, dict[int, float]]:
        """Return accuracies by method and split."""
        found: dict[str, dict[int, float]] = {}
        for (method, split), accuracy in self.results.items():
            found.setdefault(method, {})[split] = accuracy
        return found

    def hear(self, message: dict[str, Any]) -> None:
        """Take in what the run tells."""
        for name in ("who", "client", "stage", "unit", "note", "executor"):
            setattr(self, name, str(message.get(name, ""))[:LETTERS])
        for name in ("workers", "done", "total", "work", "work_total", "pairs"):
            setattr(self, name, max(0, int(message.get(name, 0))))
        self.seconds = _finite(message.get("seconds", 0.0)) or 0.0
        self.ended = bool(message.get("ended"))
        for matrix, (blocks, new) in message.get("tiles", {}).items():
            self._hear_tiles(str(matrix)[:LETTERS], int(blocks), np.frombuffer(new, "<u4"))
        for fit, values in message.get("objectives", {}).items():
            count, kept = self.objectives.get(name := str(fit)[:LETTERS], (0, deque(maxlen=VALUES)))
            finite = [value for value in map(_finite, values) if value is not None]
            kept.extend(finite)
            _put(self.objectives, name, (count + len(finite), kept), FITS)
        for method, split, accuracy in message.get("results", []):
            if (value := _finite(accuracy)) is not None:
                _put(self.results, (str(method)[:LETTERS], int(split)), value, RESULTS)

    def _hear_tiles(self, matrix: str, blocks: int, new: NDArray[Any]) -> None:
        known = self.tiles.get(matrix)
        if known is not None and known.blocks == blocks:
            known.mark(new, NEW)
        else:
            known = TileMap.of(blocks)
            known.mark(new, BEFORE)
        self.tiles.pop(matrix, None)  # what was heard of last is shown
        _put(self.tiles, matrix, known, MATRICES)

    def as_json(self) -> dict[str, Any]:
        """Return the run as JSON has it; `ABOUT` tells what it means."""
        simple = ("who", "stage", "done", "total", "unit", "share", "rate", "rate_unit", "workers", "executor", "note")
        tiles = {
            name: {
                "blocks": tiles.blocks,
                "done": tiles.done,
                "total": tiles.total,
                "before": int(np.count_nonzero(tiles.state == BEFORE)),
            }
            for name, tiles in self.tiles.items()
        }
        objectives = {
            fit: {"first": count - len(values) + 1, "values": list(values)}
            for fit, (count, values) in self.objectives.items()
        }
        results = {
            method: {"splits": {str(split): value for split, value in sorted(found.items())}, "mean": _mean(found)}
            for method, found in self.accuracies().items()
        }
        return {
            **{name: getattr(self, name) for name in simple},
            "eta_seconds": self.eta,
            "seconds": self.seconds,
            "tiles": tiles,
            "objectives": objectives,
            "results": results,
            "ended": self.ended,
        }


class Runs:
    """All runs that a scheduler has heard of, within bounds.

    Examples
    --------
    >>> runs = Runs()
    >>> runs.hear({"run": "a", "stage": "distances", "unit": "tiles", "total": 8, "done": 2})
    >>> runs.hear({"nonsense": 1})
    >>> runs.latest().done, list(runs.as_json())
    (2, ['a'])
    """

    def __init__(self) -> None:
        self.found: dict[str, Run] = {}
        self.changes = 0
        """Rises with everything that is heard."""

    def hear(self, message: Any) -> None:
        """Take in an event; what is none of this package's is passed over."""
        try:
            key = str(message["run"])[:LETTERS]
            if key not in self.found:
                self.found = {name: run for name, run in self.found.items() if not run.ended}
                _put(self.found, key, Run(key), RUNS)
            self.found[key].hear(message)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            pass
        self.changes += 1

    def gone(self, client: str) -> None:
        """A client has left: what it ran has ended, whether it could say so or not."""
        for run in self.found.values():
            if run.client == client:
                run.ended = True
        self.changes += 1

    def latest(self) -> Run | None:
        """Return the run to show: of those that go on, or else of all, the one that began last."""
        runs = list(self.found.values())
        return next(iter([run for run in reversed(runs) if not run.ended] or reversed(runs)), None)

    def as_json(self) -> dict[str, Any]:
        """Return all runs by id."""
        return {key: run.as_json() for key, run in self.found.items()}


def _finite(value: Any) -> float | None:
    number = float(value)
    return number if isfinite(number) else None


def _mean(found: dict[int, float]) -> float:
    return sum(found.values()) / len(found)


def _put(items: dict[Any, Any], key: Any, value: Any, most: int) -> None:
    """Put an item in its place, or last; the first go where there are too many."""
    items[key] = value
    while len(items) > most:
        del items[next(iter(items))]
