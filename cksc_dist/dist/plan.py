"""The plan of a distance matrix: which tiles, how much work each is, how they are grouped into tasks. Pure arithmetic.

    cells of a pair = len a * len b * dims                                        (cell updates of DTW without a band)
    cells of a tile = (sum of lengths of block i) * (sum of lengths of block j) * dims
                      on the diagonal ((sum of lengths)^2 - sum of squared lengths) / 2 * dims

The size of a tile follows from the series and the settings alone, never from a stop-watch: two runs give the same
chunks. A measured rate decides only how many tiles one task takes, and the forecast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isqrt

import numpy as np
from numpy.typing import NDArray

from cksc_dist.errors import PlanError
from cksc_dist.spec import DistanceSpec
from cksc_dist.store.grid import Grid, Tile, places

__all__ = ["Need", "Plan", "Rate", "Todo", "tile_edge"]

LANES = 16
"""Tiles are whole multiples of the series that the quickest engine takes side by side."""
LARGEST_EDGE = 1024
TILE_CELLS = 10**10
"""Cells of a tile at most: about a second of work."""
LEAST_TILE_CELLS = 10**9
"""Below a tenth of a second, a tile is not worth its files ..."""
TILES_WANTED = 64
"""... but there should be so many for workers to share."""
MOST_BLOCKS = 1000
"""Of very many long series, tiles become larger instead of too many: there are half a million at most."""
SLOW_ENGINE = 16
"""Engines other than simd take so many times longer."""

TASK_SECONDS = (0.5, 5.0)
TASKS_A_SLOT = 20

BASE_BYTES = 256 * 2**20
"""A worker before it has read anything: the interpreter, libraries, compiled code."""


def tile_edge(lengths: NDArray[np.int64], dims: int, spec: DistanceSpec) -> int:
    """Return how many rows a tile has: a pure function of series and settings.

    Examples
    --------
    >>> tile_edge(np.full(180, 1197), 6, DistanceSpec()), tile_edge(np.full(30_000, 8), 2, DistanceSpec())
    (16, 1024)
    """
    n, frames = len(lengths), int(lengths.sum())
    if spec.metric == "dtw":
        pair = max(1, frames * frames * dims // (n * n))
        if spec.window is not None:
            mean = frames / n
            width = spec.window if isinstance(spec.window, float) else spec.window / mean
            pair = max(1, int(pair * min(1.0, 2 * width)))
        pair *= 1 if spec.resolved().engine == "simd" else SLOW_ENGINE
    else:
        pair = max(1, frames * dims // n)
    cells = min(TILE_CELLS, max(pair * n * n // (2 * TILES_WANTED), LEAST_TILE_CELLS))
    edge = min(isqrt(cells // pair), LARGEST_EDGE, -(-n // LANES) * LANES)
    return max(LANES, edge // LANES * LANES, -(-n // (MOST_BLOCKS * LANES)) * LANES)


@dataclass(frozen=True)
class Todo:
    """A tile to compute; ``kept`` rows and columns, from the first on, hold good from before."""

    tile: Tile
    kept: tuple[int, int] = (0, 0)
    kept_checksum: int = 0


@dataclass(frozen=True)
class Rate:
    """What a timed sample of pairs told.

    Parameters
    ----------
    cells
        Cell updates a second of one worker, while as many as there will be are at work.
    write_seconds
        Seconds to check, compress and write one byte of values.
    ratio
        Bytes on disk for one byte of values.
    """

    cells: float
    write_seconds: float
    ratio: float


@dataclass(frozen=True)
class Need:
    """What the work will take, before a second is spent.

    Parameters
    ----------
    tiles, pairs, cells
        To compute.
    disk
        Bytes of the whole matrix on disk.
    memory
        Bytes of one worker at its peak.
    seconds, writing
        Forecast with the workers there are, and how much of it is for writing.
    tasks
        How many tasks the tiles are grouped into.
    """

    tiles: int
    pairs: int
    cells: int
    disk: int
    memory: int
    seconds: float
    writing: float
    tasks: int


class Plan:
    """Tiles of a matrix that are to be computed, and what they cost.

    Parameters
    ----------
    grid
        The matrix.
    lengths, dims
        Frames of each series, and dimensions that are compared.
    spec
        Resolved settings.
    todo
        What to compute; None: everything.
    stored_dims
        Dimensions that are read, some of which may not be compared; None: as many.
    """

    def __init__(
        self,
        grid: Grid,
        lengths: NDArray[np.int64],
        dims: int,
        spec: DistanceSpec,
        todo: Sequence[Todo] | None = None,
        stored_dims: int | None = None,
    ) -> None:
        self.grid, self.dims, self.spec = grid, dims, spec
        self.stored_dims = stored_dims or dims
        self.lengths = lengths
        self.todo = [Todo(tile) for tile in grid.all_tiles()] if todo is None else list(todo)

    def __repr__(self) -> str:
        tiles = f"{len(self.todo):,} of {self.grid.tiles:,} tiles of {self.grid.edge}"
        return f"Plan({self.grid.n:,} series, {tiles} to compute)"

    @cached_property
    def _sums(self) -> tuple[list[int], list[int]]:
        """Running sums of lengths and of their squares; whole numbers of Python, which never overflow."""
        weights = self.lengths if self.spec.metric == "dtw" else np.ones_like(self.lengths)
        return (
            [0, *np.cumsum(weights, dtype=np.int64).tolist()],
            [0, *np.cumsum(weights.astype(np.int64) ** 2, dtype=np.int64).tolist()],
        )

    @cached_property
    def _longest(self) -> NDArray[np.int64]:
        """The lengths of the longest series, as many as two sides of a tile have, the longest first."""
        return np.sort(self.lengths)[: -2 * self.grid.edge - 1 : -1]

    @property
    def _per_cell(self) -> int:
        return self.dims if self.spec.metric == "dtw" else self.dims * int(self.lengths[0])

    def _cells(self, i: int, rows: int, j: int, columns: int) -> int:
        """Return the cells of the first rows of block i against the first columns of block j."""
        if i != j:
            return self._rectangle(i, rows, j, columns)
        total, squares = self._sums
        a, same = i * self.grid.edge, min(rows, columns)
        frames = total[a + same] - total[a]
        return (frames * frames - (squares[a + same] - squares[a])) // 2 * self._per_cell

    def _rectangle(self, i: int, rows: int, j: int, columns: int) -> int:
        """Return the cells of all these rows with all these columns."""
        total, _ = self._sums
        a, b = i * self.grid.edge, j * self.grid.edge
        return (total[a + rows] - total[a]) * (total[b + columns] - total[b]) * self._per_cell

    def cells(self, todo: Todo) -> int:
        """Return the cell updates of a tile, without those that are kept."""
        (i, j), size = todo.tile, self.grid.size
        return self._cells(i, size(i), j, size(j)) - self._cells(i, todo.kept[0], j, todo.kept[1])

    def cells_of_block(self, tile: Tile, rows: int, columns: int) -> int:
        """Return the cell updates of the first rows and columns of a tile, as a block of its own, without a mirror."""
        i, j = tile
        return self._cells(i, rows, i, rows) if i == j and rows == columns else self._rectangle(i, rows, j, columns)

    def pairs(self, todo: Todo) -> int:
        """Return the pairs of a tile that have to be computed."""
        return self.grid.pairs(todo.tile, todo.kept)

    def _written(self, tile: Tile) -> int:
        """Return the bytes of a tile's values and of its mirror's."""
        return self.tile_bytes(tile) * len(places(tile))

    def tile_bytes(self, tile: Tile) -> int:
        """Return the bytes of a tile's values; its mirror has as many."""
        return self.grid.size(tile[0]) * self.grid.size(tile[1]) * np.dtype(self.spec.dtype).itemsize

    def disk_bytes(self) -> int:
        """Return the bytes of all values to compute, mirrors included, before they are compressed."""
        return sum(self._written(todo.tile) for todo in self.todo)

    def seconds(self, todo: Todo, rate: Rate) -> tuple[float, float]:
        """Return how long a tile will take one worker to compute, and to write."""
        return self.cells(todo) / rate.cells, self._written(todo.tile) * rate.write_seconds

    def tasks(self, rate: Rate, slots: int) -> list[list[Todo]]:
        """Group neighbouring tiles into tasks of a good size, and return the largest first."""
        seconds = [sum(self.seconds(todo, rate)) for todo in self.todo]
        low, high = TASK_SECONDS
        size = min(high, max(low, sum(seconds) / (TASKS_A_SLOT * slots)))
        tasks: list[list[Todo]] = []
        totals: list[float] = []
        for todo, needed in zip(self.todo, seconds, strict=True):
            if tasks and totals[-1] + needed <= size:
                tasks[-1].append(todo)
                totals[-1] += needed
            else:
                tasks.append([todo])
                totals.append(needed)
        return [tasks[k] for k in np.argsort(-np.array(totals), kind="stable")]

    def piece(self, memory: int | None) -> int | None:
        """Return how many series a worker may take at a time; None: whole tiles. Raises a PlanError if none fit."""
        if memory is None or self._memory(self.grid.edge) <= memory:
            return None
        for piece in range(self.grid.edge - LANES, 0, -LANES):
            if self._memory(piece) <= memory:
                return piece
        least = self._memory(LANES)
        raise PlanError(
            f"a worker needs {least / 2**20:,.0f} MiB, but may use {memory / 2**20:,.0f} MiB; start fewer workers, "
            f"each with --memory {-(-least // 2**20)}MiB or more"
        )

    def _memory(self, piece: int) -> int:
        """Return the bytes that a worker needs which takes so many series at a time."""
        longest = self._longest
        frames = int(min(piece * longest[0], longest[: 2 * piece].sum()))
        # each side: as read, chosen or scaled, packed; and some in the cache
        series = 2 * frames * (self.stored_dims * 8 + self.dims * (2 * 8 + np.dtype(self.spec.dtype).itemsize))
        # values, their mirror, compressed, and what the engine returned
        tile = self.tile_bytes((0, 0)) * 4
        return BASE_BYTES + series + tile

    def need(self, rate: Rate, slots: int, memory: int | None) -> Need:
        """Return what the work will take with so many workers."""
        parts = np.array([self.seconds(todo, rate) for todo in self.todo] or [(0.0, 0.0)])
        piece = self.piece(memory) or self.grid.edge
        values = self.grid.n * self.grid.n * np.dtype(self.spec.dtype).itemsize
        slots_used = max(1, min(slots, len(self.todo)))
        return Need(
            tiles=len(self.todo),
            pairs=sum(map(self.pairs, self.todo)),
            cells=sum(map(self.cells, self.todo)),
            disk=int(values * rate.ratio),
            memory=self._memory(piece),
            seconds=float(max(parts.sum() / slots_used, parts.sum(axis=1).max())),
            writing=float(parts[:, 1].sum() / slots_used),
            tasks=len(self.tasks(rate, slots)),
        )
