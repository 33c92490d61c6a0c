"""The work of one task: compute tiles, write their chunks, mark them done; in any process that sees the store.

A task carries the address of the store and numbers of tiles, never data. It may be run twice, or by two workers at the
same time: the bytes are the same.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cksc_dist.dist.plan import LANES, Todo
from cksc_dist.errors import InputError, PlanError, StoreError
from cksc_dist.maths.metrics import pairwise_metric
from cksc_dist.series import Ragged
from cksc_dist.spec import DistanceSpec
from cksc_dist.store.folder import Folder
from cksc_dist.store.grid import Tile
from cksc_dist.store.lease import holds
from cksc_dist.store.ledger import Blocks, Entry, Ledger, checksum
from cksc_dist.store.matrix_files import MatrixFiles, open_files
from cksc_dist.store.series_files import open_series

__all__ = ["BlockCache", "TileTask", "compute_values", "run_task"]

CACHE_BYTES = 64 * 2**20

Read = Callable[[int, int], Ragged]


@dataclass(frozen=True)
class TileTask:
    """Tiles for one worker to compute.

    Parameters
    ----------
    url, fingerprint
        Where the matrix is.
    edge, state
        Rows of a tile, and a digest of all series, as the planner saw them: a worker that knows others looks again.
    todo
        Tiles.
    piece
        Series to take at a time; None: whole tiles.
    token
        Of the lease that the run holds: a task that outlives its run writes nothing. Empty: not looked at.
    """

    url: str
    fingerprint: str
    edge: int
    state: str
    todo: tuple[Todo, ...]
    piece: int | None = None
    token: str = ""

    def __str__(self) -> str:
        return f"the task of tiles {', '.join(str(todo.tile) for todo in self.todo[:3])}"

    def lighter(self) -> TileTask | None:
        """Return the same work with half as many series at a time; None where there are no fewer."""
        piece = _half(self.piece or self.edge)
        return None if piece is None else replace(self, piece=piece)


class BlockCache:
    """Series of the blocks that were read last: neighbouring tiles share them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blocks: OrderedDict[Any, Ragged] = OrderedDict()

    def get(self, key: Any, read: Callable[[], Ragged]) -> Ragged:
        """Return a block, which is read where it is not there."""
        with self._lock:
            if key in self._blocks:
                self._blocks.move_to_end(key)
                return self._blocks[key]
        block = read()
        with self._lock:
            self._blocks[key] = block
            while len(self._blocks) > 1 and sum(values.nbytes for values, _ in self._blocks.values()) > CACHE_BYTES:
                self._blocks.popitem(last=False)
        return block

    def clear(self) -> None:
        """Give the memory back."""
        with self._lock:
            self._blocks.clear()


_CACHE = BlockCache()


class _Opened:
    """A matrix and its series, as a worker keeps them open between tasks."""

    def __init__(self, url: str, fingerprint: str, edge: int, state: str) -> None:
        folder = Folder(url)
        self.files: MatrixFiles = open_files(folder, fingerprint)
        self.series = open_series(folder)
        if self.series.state != state or self.files.grid.edge != edge:
            raise StoreError(f"{url}: the series have changed since the work was planned; run the command again")
        self.blocks = Blocks(self.files.grid, self.series.digests)
        self.ledger = Ledger(folder, fingerprint)
        self.state = state

    def read(self, begin: int, end: int) -> Ragged:
        key = (self.files.folder.url, self.state, begin, end)
        return _CACHE.get(key, lambda: self.series.read(begin, end))


_opened = lru_cache(maxsize=4)(_Opened)


def run_task(task: TileTask, worker: str | None = None) -> list[tuple[Tile, Entry]]:
    """Compute the tiles of a task, and return what is now in the ledger about them."""
    opened = _opened(task.url, task.fingerprint, task.edge, task.state)
    return [(todo.tile, _run_tile(opened, todo, task, worker)) for todo in task.todo]


def _run_tile(opened: _Opened, todo: Todo, task: TileTask, worker: str | None) -> Entry:
    begin = time.perf_counter()
    files, tile = opened.files, todo.tile
    mark = opened.ledger.read_mark(tile)
    if mark is not None and opened.blocks.is_done(tile, mark):
        return mark  # by a worker that was lost before it could finish the rest of its task
    grid = files.grid
    old = _kept_values(files, todo)
    kept = (0, 0) if old is None else todo.kept
    values = _values_in_pieces(opened, tile, task.piece, old)
    _check_values(values, grid.rows(tile[0])[0], grid.rows(tile[1])[0])
    _check_held(files, task)
    files.write_tile(tile, values)
    _check_held(files, task)  # a store that was away is waited for, and another run may have begun meanwhile
    entry = opened.blocks.entry(tile, values, begun=begin, worker=worker, computed=grid.pairs(tile, kept))
    opened.ledger.mark(tile, entry)
    return entry


def _check_held(files: MatrixFiles, task: TileTask) -> None:
    if task.token and not holds(files.folder, task.token):
        raise StoreError(f"{task.url} is not held by this run any more; what is done is kept")


def _values_in_pieces(opened: _Opened, tile: Tile, piece: int | None, old: NDArray[Any] | None) -> NDArray[Any]:
    """Return the values of a tile; where memory runs out, by half as many series at a time, and so on."""
    grid = opened.files.grid
    while True:
        try:
            return compute_values(opened.read, grid.rows(tile[0]), grid.rows(tile[1]), opened.files.spec, piece, old)
        except MemoryError:
            _CACHE.clear()
            last = piece or grid.edge
        piece = _half(last)
        if piece is None:
            raise PlanError(
                f"memory runs out even with {last} series at a time; start fewer workers, each with more memory"
            )


def _half(count: int) -> int | None:
    """Return half as many series, in whole registers; None where there are no fewer."""
    return None if count <= LANES else max(LANES, count // 2 // LANES * LANES)


def _kept_values(files: MatrixFiles, todo: Todo) -> NDArray[Any] | None:
    """Return what holds good of a tile that has grown; None where there is nothing, or it is damaged."""
    rows, columns = todo.kept
    if not rows or not columns:
        return None
    try:
        old = files.read_tile(todo.tile)[:rows, :columns]
    except ValueError:
        return None
    return old if checksum(old) == todo.kept_checksum else None


def _check_values(values: NDArray[Any], first_row: int, first_column: int) -> None:
    if not np.isfinite(values).all():
        i, j = np.argwhere(~np.isfinite(values))[0]
        raise InputError(
            f"the distance of series {first_row + i} and {first_column + j} is {values[i, j]}: their values are too "
            "large to be squared; scale the series, or use dtype='float64'"
        )


def compute_values(
    read: Read,
    rows: tuple[int, int],
    columns: tuple[int, int],
    spec: DistanceSpec,
    piece: int | None = None,
    old: NDArray[Any] | None = None,
) -> NDArray[Any]:
    """Return the distances of some rows to some columns of a set.

    Parameters
    ----------
    read
        Gives the series of a range of rows.
    rows, columns
        Ranges; equal ones make a tile on the diagonal, of which one half is computed.
    spec
        Settings.
    piece
        Series to take at a time. The values do not depend on it.
    old
        Values that hold good, of the first rows and columns.
    """
    values = np.empty((rows[1] - rows[0], columns[1] - columns[0]), spec.dtype)
    kept_rows, kept_columns = (0, 0) if old is None else old.shape
    if old is not None:
        values[:kept_rows, :kept_columns] = old
    diagonal = rows == columns
    below = _pieces(rows[0] + kept_rows, rows[1], piece)
    beside = _pieces(columns[0] + kept_columns, columns[1], piece)
    above = _pieces(rows[0], rows[0] + kept_rows, piece)
    before = _pieces(columns[0], columns[0] + kept_columns, piece)
    # a grown tile: what is new is below the old part, and beside it
    wanted = [(r, c) for r in below for c in (*before, *beside)] + [(r, c) for r in above for c in beside]
    for r, c in wanted:
        if diagonal and r[0] > c[0]:
            continue  # the mirror of a piece above the diagonal
        other = None if r == c else read(*c)
        block = pairwise_metric(read(*r), other, spec)
        values[r[0] - rows[0] : r[1] - rows[0], c[0] - columns[0] : c[1] - columns[0]] = block
        if diagonal and r != c:
            values[c[0] - rows[0] : c[1] - rows[0], r[0] - columns[0] : r[1] - columns[0]] = block.T
    return values


def _pieces(begin: int, end: int, piece: int | None) -> list[tuple[int, int]]:
    step = piece or max(1, end - begin)
    return [(at, min(at + step, end)) for at in range(begin, end, step)]
