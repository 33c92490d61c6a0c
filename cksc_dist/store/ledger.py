"""The ledger of a matrix: for every tile that is done, what it was computed from and what came out.

    ledger/<fingerprint>/done/<i>.<j>.json     written by whoever computed tile (i, j), after its chunks
    ledger/<fingerprint>/tiles.json            all of them together, collected now and then by the one who runs the work

A tile is done once its mark is there: nothing is lost when any process is killed. An entry holds how many rows both
blocks had and a digest of these series. Where both still match, the tile is valid; where a block has grown since, the
old part of it is.
"""

from __future__ import annotations

import hashlib
import os
import re
import socket
import time
import zlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cksc_dist.errors import StoreError, brief
from cksc_dist.store.folder import Folder
from cksc_dist.store.grid import Grid, Tile

_TILE = re.compile(r"(\d{1,9})\.(\d{1,9})", re.ASCII)

__all__ = ["Blocks", "Entry", "Ledger", "checksum"]

MOST_SECONDS = 1e12
"""Of a time that can be one."""


def checksum(values: NDArray[Any]) -> int:
    """Return the crc32 of values, row by row."""
    return zlib.crc32(np.ascontiguousarray(values).data)


@dataclass(frozen=True)
class Entry:
    """What is known of a tile that is done.

    Parameters
    ----------
    checksum
        crc32 of its values, row by row.
    rows, columns
        Rows of its two blocks at that time.
    row_digest, column_digest
        Digests of the series in them.
    seconds, worker, at
        How long it took, where, and when it was done (seconds since 1970).
    computed
        Pairs that were computed; the others were kept from an earlier, smaller tile.
    """

    checksum: int
    rows: int
    columns: int
    row_digest: str
    column_digest: str
    seconds: float
    worker: str
    at: float
    computed: int


class Blocks:
    """Digests of blocks of series, as they are now.

    Parameters
    ----------
    grid
        How rows are cut into blocks.
    digests
        One digest for each series, as rows of bytes.
    """

    def __init__(self, grid: Grid, digests: NDArray[np.uint8]) -> None:
        self.grid = grid
        self._digests = digests
        self._known: dict[tuple[int, int], str] = {}

    def digest(self, block: int, count: int | None = None) -> str:
        """Return the digest of the first ``count`` series of a block; None: of all."""
        begin, end = self.grid.rows(block)
        count = end - begin if count is None else count
        key = (block, count)
        if key not in self._known:
            self._known[key] = hashlib.sha256(self._digests[begin : begin + count].tobytes()).hexdigest()[:32]
        return self._known[key]

    def entry(self, tile: Tile, values: NDArray[Any], *, begun: float, worker: str | None, computed: int) -> Entry:
        """Return the entry of a tile whose values have just been written.

        Parameters
        ----------
        tile, values
            Which tile, and what is stored of it.
        begun
            When its work began, by `time.perf_counter`.
        worker
            Who did it; None: this process, by host and number.
        computed
            Pairs that were computed for it.
        """
        return Entry(
            checksum=checksum(values),
            rows=values.shape[0],
            columns=values.shape[1],
            row_digest=self.digest(tile[0]),
            column_digest=self.digest(tile[1]),
            seconds=round(time.perf_counter() - begun, 6),
            worker=worker or f"{socket.gethostname()}:{os.getpid()}",
            at=round(time.time(), 3),
            computed=computed,
        )

    def kept(self, tile: Tile, entry: Entry | None) -> tuple[int, int]:
        """Return how many rows and columns of a tile are valid, from the first on; (0, 0) where nothing is."""
        if entry is None:
            return 0, 0
        sides = ((tile[0], entry.rows, entry.row_digest), (tile[1], entry.columns, entry.column_digest))
        for block, count, digest in sides:
            if block >= self.grid.blocks or count > self.grid.size(block) or self.digest(block, count) != digest:
                return 0, 0
        return entry.rows, entry.columns

    def is_done(self, tile: Tile, entry: Entry | None) -> bool:
        """Tell whether the whole tile is valid."""
        return self.kept(tile, entry) == (self.grid.size(tile[0]), self.grid.size(tile[1]))


class Ledger:
    """Entries of a matrix by tile.

    Parameters
    ----------
    folder
        The store.
    fingerprint
        Which matrix.
    """

    def __init__(self, folder: Folder, fingerprint: str) -> None:
        self._folder = folder
        self._top = f"ledger/{fingerprint}"
        self.entries: dict[Tile, Entry] = {}
        self._marks: set[str] = set()
        """Marks whose entries are here but not yet in the collected file."""

    def stamp(self) -> str | None:
        """Return what is another where a tile may be: whoever changes one takes it out of the collected file first."""
        return self._folder.stamp(f"{self._top}/tiles.json")

    def load(self) -> Ledger:
        """Read what is there."""
        # marks first: one that is collected meanwhile is in the file that is read after them
        names = [name for name in self._folder.files(f"{self._top}/done") if name.endswith(".json")]
        marks = {name: entry for name in names if (entry := self._read_mark(name)) is not None}
        collected = self._folder.read_json(f"{self._top}/tiles.json") or {}
        try:
            self.entries = {_tile(name): _entry(entry) for name, entry in collected.items()}
        except (ValueError, TypeError, AttributeError) as error:
            raise StoreError(
                f"{self._folder.url}/{self._top}/tiles.json holds something else than entries of tiles "
                f"({brief(error)}); remove it and run the command again: its tiles are computed again"
            ) from error
        self.entries |= {_tile(name.removesuffix(".json")): entry for name, entry in marks.items()}
        self._marks = set(marks)
        return self

    def read_mark(self, tile: Tile) -> Entry | None:
        """Return the mark of a tile that has not been collected yet; None where there is none."""
        return self._read_mark(f"{_name(tile)}.json")

    def _read_mark(self, name: str) -> Entry | None:
        """Return the entry of a mark; one that cannot be read is none, and its tile is computed again."""
        try:
            entry = self._folder.read_json(f"{self._top}/done/{name}")
            _tile(name.removesuffix(".json"))
            return None if entry is None else _entry(entry)
        except (StoreError, TypeError, ValueError):
            return None

    def mark(self, tile: Tile, entry: Entry) -> None:
        """Write the mark of a tile; done by whoever computed it, after its chunks are written."""
        self._folder.write_json(f"{self._top}/done/{_name(tile)}.json", asdict(entry))

    def add(self, tile: Tile, entry: Entry) -> None:
        """Take up an entry whose mark was written elsewhere."""
        self.entries[tile] = entry
        self._marks.add(f"{_name(tile)}.json")

    def drop(self, tiles: Iterable[Tile]) -> None:
        """Forget tiles, for good."""
        tiles = list(tiles)
        names = {f"{_name(tile)}.json" for tile in tiles} & self._marks
        self._folder.remove_many([f"{self._top}/done/{name}" for name in sorted(names)])
        self._marks -= names
        for tile in tiles:
            self.entries.pop(tile, None)
        if tiles:
            self._write()

    def clear(self) -> None:
        """Forget everything: the matrix is made anew."""
        self._folder.remove_many([f"{self._top}/{name}" for name in self._folder.files(self._top)])
        self.entries, self._marks = {}, set()

    def collect(self) -> None:
        """Put all entries into one file, then remove the marks that are in it."""
        if not self._marks:
            return
        self._write()
        self._folder.remove_many([f"{self._top}/done/{name}" for name in sorted(self._marks)])
        self._marks.clear()

    def _write(self) -> None:
        entries = {_name(tile): vars(entry) for tile, entry in sorted(self.entries.items())}
        # on the disk before the marks go
        self._folder.write_json(f"{self._top}/tiles.json", entries, durable=True)


def _entry(found: Any) -> Entry:
    """Return an entry, or raise a TypeError or ValueError where it is none."""
    entry = Entry(**found)
    whole = (entry.checksum, entry.rows, entry.columns, entry.computed)
    seconds = (entry.seconds, entry.at)
    if not all(type(value) is int and value >= 0 for value in whole):
        raise ValueError("a count that is none")
    if not all(isinstance(value, int | float) and abs(value) < MOST_SECONDS for value in seconds):
        raise ValueError("a time that is none")
    if not all(isinstance(text, str) for text in (entry.row_digest, entry.column_digest, entry.worker)):
        raise TypeError("a digest or name that is no text")
    return entry


def _name(tile: Tile) -> str:
    return f"{tile[0]}.{tile[1]}"


def _tile(name: str) -> Tile:
    match = _TILE.fullmatch(name)
    if match is None:
        raise ValueError(f"{name[:50]!r} is no tile")
    return int(match[1]), int(match[2])
