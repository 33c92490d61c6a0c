"""A survey of a matrix: which tiles hold good, which are to be computed, and which are damaged."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from cksc_dist.dist.plan import Todo
from cksc_dist.errors import want_of_threads
from cksc_dist.store.grid import Tile, places
from cksc_dist.store.ledger import Blocks, Entry, Ledger, checksum
from cksc_dist.store.matrix_files import MatrixFiles
from cksc_dist.store.series_files import StoredSeries

__all__ = ["find_damage", "find_todo", "tile_fault"]


def tile_fault(files: MatrixFiles, tile: Tile, entry: Entry) -> str | None:
    """Read a tile and its mirror, and say what is wrong with them; None: nothing."""
    for place in places(tile):
        try:
            values = files.read_tile(place)
        except ValueError as error:  # Zarr's checksum, or a chunk that cannot be decoded
            return f"chunk {place} is damaged: {error}"
        except RuntimeError as error:
            want_of_threads(error)
            return f"chunk {place} cannot be decoded: {error}"
        upright = values if place == tile else values.T
        found = checksum(upright[: entry.rows, : entry.columns])
        if found != entry.checksum:
            what = "is missing or unfinished" if np.isnan(values).any() else "holds other values than were written"
            return f"chunk {place} {what}"
    if tile[0] == tile[1]:
        square = values[: entry.rows, : entry.columns]
        if np.diagonal(square).any():
            return f"chunk {tile} has entries other than zero on the diagonal"
        if not np.array_equal(square, square.T):
            return f"chunk {tile} is not symmetric"
    return None


def find_damage(
    files: MatrixFiles,
    entries: dict[Tile, Entry],
    threads: int,
    each: Callable[[], None] = lambda: None,
) -> dict[Tile, str]:
    """Read all tiles of the ledger and return what is wrong, by tile; ``each`` is called after every tile."""
    bad: dict[Tile, str] = {}
    tiles = sorted(entries)
    with ThreadPoolExecutor(threads) as pool:
        for tile, fault in zip(tiles, pool.map(lambda t: tile_fault(files, t, entries[t]), tiles), strict=True):
            each()
            if fault is not None:
                bad[tile] = fault
    return bad


def find_todo(files: MatrixFiles, series: StoredSeries, ledger: Ledger, bad: Iterable[Tile] = ()) -> list[Todo]:
    """Return tiles that the ledger does not vouch for, or whose chunks are missing, and what of them can be kept."""
    blocks = Blocks(files.grid, series.digests)
    sound = files.whole_tiles() - set(bad)
    todo = []
    for tile in files.grid.all_tiles():
        entry = ledger.entries.get(tile)
        kept = blocks.kept(tile, entry) if tile in sound else (0, 0)
        if kept != (files.grid.size(tile[0]), files.grid.size(tile[1])):
            todo.append(Todo(tile, kept, entry.checksum if entry is not None and any(kept) else 0))
    return todo
