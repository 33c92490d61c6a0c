"""Small stores for tests: made series, and what is in the files of a store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from cksc_dist import SeriesSet, open_matrix
from cksc_dist.dist import plan
from cksc_dist.store.folder import Folder
from cksc_dist.store.ledger import Entry, Ledger


def made_series(
    n: int,
    *,
    seed: int = 0,
    dims: int = 2,
    length: tuple[int, int] = (4, 11),
    prefix: str = "s",
    positive: bool = False,
) -> SeriesSet:
    """Return series of two classes that differ in length and value."""
    rng = np.random.default_rng(seed)
    series = [rng.standard_normal((int(rng.integers(*length, endpoint=True)), dims)) for _ in range(n)]
    return SeriesSet.from_list(
        [np.abs(values) for values in series] if positive else series,
        labels=[("walk", "sit")[i % 2] for i in range(n)],
        ids=[f"{prefix}{i}" for i in range(n)],
        name=f"made {prefix}",
    )


def joined(first: SeriesSet, second: SeriesSet) -> SeriesSet:
    """Return both sets as one."""
    return SeriesSet.from_list(
        [*first, *second],
        [*first.labels.tolist(), *second.labels.tolist()],
        [*first.ids.tolist(), *second.ids.tolist()],
        name=first.name,
    )


def changed(data: SeriesSet, row: int) -> SeriesSet:
    """Return the set with other values in one series."""
    series = data.series
    series[row] = series[row] + 1.0
    return SeriesSet.from_list(series, data.labels, data.ids.tolist(), name=data.name)


def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a few dozen series have many tiles, of the least size (16): otherwise they would be a single one."""
    monkeypatch.setattr(plan, "LEAST_TILE_CELLS", 1)


def files_below(path: Path) -> dict[str, bytes]:
    """Return all files of a folder with their content."""
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


def chunk_files(store: Path) -> dict[str, bytes]:
    """Return all chunks of the only matrix of a store, by block row and block column."""
    (matrix,) = (store / "distances").glob("*/distance")
    return files_below(matrix / "c")


def chunk_path(store: Path, row: int, column: int) -> Path:
    """Return the file of a chunk of the only matrix of a store."""
    (matrix,) = (store / "distances").glob("*/distance")
    return matrix / "c" / str(row) / str(column)


def flip_bit(path: Path, at: float = 0.5) -> None:
    """Flip a bit of a file, so far into it."""
    content = bytearray(path.read_bytes())
    content[int(at * (len(content) - 1))] ^= 4
    path.write_bytes(content)


def entries(store: Path, fingerprint: str | None = None) -> dict[tuple[int, int], Entry]:
    """Return the ledger of a matrix; None: of the only one."""
    name = fingerprint or next((store / "ledger").iterdir()).name
    return Ledger(Folder(store), name).load().entries


def matrix_of(store: Path, fingerprint: str = "") -> NDArray[Any]:
    """Return all distances of a store."""
    return open_matrix(store, fingerprint)[:, :]
