"""Small stores made step by step, as a run would make them, and ways to damage them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from cksc_dist.maths.metrics import pairwise_metric
from cksc_dist.series import SeriesSet
from cksc_dist.spec import DistanceSpec
from cksc_dist.store.folder import Folder
from cksc_dist.store.grid import Tile
from cksc_dist.store.ledger import Blocks, Entry, Ledger, checksum
from cksc_dist.store.matrix_files import MatrixFiles, create_matrix
from cksc_dist.store.series_files import open_series, write_series


class Killed(BaseException):
    """Stands for kill -9: no handler of the package may catch it."""


def made(n: int = 10, seed: int = 0, dims: int = 2, first: int = 0, labels: Any = None) -> SeriesSet:
    """Ragged series; ids count from ``first``."""
    rng = np.random.default_rng(seed)
    series = [rng.standard_normal((int(length), dims)) for length in rng.integers(2, 9, n)]
    labels = [("walk", "rün")[i % 2] for i in range(n)] if labels is None else labels
    ids = [f"s{first + i}" for i in range(n)]
    return SeriesSet.from_list(series, labels, ids, name="made", dim_names=[f"d{q}" for q in range(dims)])


def distances_of(data: SeriesSet, spec: DistanceSpec) -> Any:
    """The whole matrix at once."""
    return pairwise_metric((data.values, data.offsets), None, spec)


def entry_of(blocks: Blocks, tile: Tile, values: Any, **others: Any) -> Entry:
    """What the ledger holds of a tile, for the series as they are now."""
    facts: dict[str, Any] = {
        "checksum": checksum(values),
        "rows": blocks.grid.size(tile[0]),
        "columns": blocks.grid.size(tile[1]),
        "row_digest": blocks.digest(tile[0]),
        "column_digest": blocks.digest(tile[1]),
        "seconds": 0.5,
        "worker": "here:1",
        "at": 1.7e9,
        "computed": blocks.grid.pairs(tile),
    }
    return Entry(**facts | others)


def fill(files: MatrixFiles, data: SeriesSet, *, leave: int = 0) -> None:
    """Write all tiles but the last few, with their marks."""
    whole = distances_of(data, files.spec)
    blocks = Blocks(files.grid, open_series(files.folder).digests)
    ledger = Ledger(files.folder, files.fingerprint)
    for number in range(files.grid.tiles - leave):
        tile = files.grid.tile(number)
        rows, columns = (slice(*files.grid.rows(block)) for block in tile)
        files.write_tile(tile, whole[rows, columns])
        ledger.mark(tile, entry_of(blocks, tile, whole[rows, columns]))


def finished(
    folder: Folder, data: SeriesSet | None = None, spec: DistanceSpec | None = None, edge: int = 4
) -> MatrixFiles:
    """A store of series and a whole matrix with several tiles."""
    data = made() if data is None else data
    write_series(folder, data)
    files = create_matrix(folder, (spec or DistanceSpec()).resolved(), open_series(folder), edge)
    fill(files, data)
    return files


def content(folder: Folder, key: str = "") -> dict[str, bytes]:
    """All files below a key, byte for byte."""
    names = (
        folder.files(key)
        if key
        else [f"{top}/{n}" for top in ("series", "distances", "ledger") for n in folder.files(top)]
    )
    found = {name: folder.read(f"{key}/{name}" if key else name) for name in names}
    return {name: value for name, value in found.items() if value is not None}


def flip(folder: Folder, key: str, bit: int) -> None:
    """Turn one bit of a file round; on a disk in its place, so that whoever has it open sees it."""
    damaged = bytearray(folder.read(key) or b"")
    bit %= 8 * len(damaged)
    damaged[bit // 8] ^= 1 << bit % 8
    if folder.local is None:
        folder.write(key, bytes(damaged))
    else:
        (folder.local / key).write_bytes(damaged)


@contextmanager
def killed_at(patch: pytest.MonkeyPatch, target: Any, name: str) -> Iterator[None]:
    """Let the process die as soon as it comes to call a function."""

    def die(*_: Any, **__: Any) -> None:
        raise Killed

    with patch.context() as inner:
        inner.setattr(target, name, die)
        with pytest.raises(Killed):
            yield
