"""What a store holds and how far it is, from any other process at any time: nothing is locked, nothing is written."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cksc_dist.dist.forecast import make_plan
from cksc_dist.dist.plan import Plan
from cksc_dist.dist.survey import find_todo
from cksc_dist.errors import StoreError
from cksc_dist.spec import DistanceSpec
from cksc_dist.store.checkpoints import read_records
from cksc_dist.store.folder import Folder
from cksc_dist.store.grid import Grid
from cksc_dist.store.kernel_copy import KernelCopy, find_copies
from cksc_dist.store.lease import holder
from cksc_dist.store.ledger import Entry, Ledger
from cksc_dist.store.matrix_files import MatrixFiles, find_matrices
from cksc_dist.store.series_files import StoredSeries, open_series

__all__ = ["CopyStatus", "MatrixStatus", "StoreStatus", "TrainingStatus", "store_status"]

RECENT_SECONDS = 60.0


@dataclass(frozen=True)
class MatrixStatus:
    """How far a matrix is.

    Parameters
    ----------
    fingerprint, spec, group
        Which matrix, its settings, and its group for xarray.
    tiles, done
        Tiles in all, and done.
    share
        Of the work, done.
    disk
        Bytes on disk.
    cpu_seconds
        Spent by all workers on the tiles that are done.
    pairs_per_second, eta
        Of the last minute of work, and the seconds that are left at that rate; None where nobody is at work.
    workers
        Who worked in that minute.
    """

    fingerprint: str
    spec: DistanceSpec
    group: str
    tiles: int
    done: int
    share: float
    disk: int
    cpu_seconds: float
    pairs_per_second: float | None
    eta: float | None
    workers: tuple[str, ...]


@dataclass(frozen=True)
class CopyStatus:
    """A kernel that training has left in a store: its name, rows, strips in all and there, and bytes on disk."""

    key: str
    rows: int
    strips: int
    done: int
    disk: int


@dataclass(frozen=True)
class TrainingStatus:
    """A training that has not ended: the model, alternations that are kept, and who is at it (None: nobody)."""

    model: str
    alternations: int
    writer: dict[str, Any] | None


@dataclass(frozen=True)
class StoreStatus:
    """What a store holds: its series, its matrices, copies of kernels, models, and who is writing it."""

    series: StoredSeries
    matrices: list[MatrixStatus]
    copies: list[CopyStatus]
    models: list[str]
    trainings: list[TrainingStatus]
    writer: dict[str, Any] | None


def store_status(store: str | Path | Folder) -> StoreStatus:
    """Return what a store holds and how far it is."""
    folder = Folder.of(store)
    series = open_series(folder)
    writer = holder(folder)
    matrices = [_matrix_status(files, series, writer is not None) for files in find_matrices(folder).values()]
    copies = [_copy_status(folder, key) for key in find_copies(folder)]
    names = folder.names("models", folders_only=True)
    models = [name for name in names if not name.endswith((".training", ".partial", ".replaced"))]
    trainings = [_training_status(folder, name) for name in names if name.endswith(".training")]
    return StoreStatus(series, matrices, [copy for copy in copies if copy is not None], models, trainings, writer)


def _training_status(folder: Folder, name: str) -> TrainingStatus:
    own = Folder(f"{folder.url}/models/{name}")
    done = [0]
    for key in own.names("", folders_only=True):
        done += [int(record["number"]) for record in read_records(Folder(f"{own.url}/{key}"))]
    return TrainingStatus(name.removesuffix(".training"), max(done), holder(own))


def _copy_status(folder: Folder, key: str) -> CopyStatus | None:
    try:
        copy = KernelCopy(folder, key)
    except StoreError:
        return None  # just being made, or removed
    strips, missing = len(copy.edges), len(copy.missing())
    return CopyStatus(key, copy.n, strips, strips - missing, copy.nbytes * (strips - missing) // strips)


def _matrix_status(files: MatrixFiles, series: StoredSeries, at_work: bool) -> MatrixStatus:
    ledger = Ledger(files.folder, files.fingerprint).load()
    # series may have been added since
    files = MatrixFiles(files.folder, files.spec, Grid(series.n, files.grid.edge))
    todo = find_todo(files, series, ledger)
    everything = make_plan(series, files)
    total, left = (sum(map(everything.cells, tiles)) for tiles in (everything.todo, todo))
    rate, pairs, workers = _recent(everything, ledger.entries, at_work)
    return MatrixStatus(
        fingerprint=files.fingerprint,
        spec=files.spec,
        group=files.group,
        tiles=files.grid.tiles,
        done=files.grid.tiles - len(todo),
        share=1.0 if not total else 1 - left / total,
        disk=sum(files.present().values()),
        cpu_seconds=sum(entry.seconds for entry in ledger.entries.values()),
        pairs_per_second=pairs,
        eta=left / rate if rate and todo else None,
        workers=workers,
    )


def _recent(
    plan: Plan, entries: dict[tuple[int, int], Entry], at_work: bool
) -> tuple[float | None, float | None, tuple[str, ...]]:
    """Return cells and pairs a second, and the workers, of the last minute."""
    now = time.time()
    blocks = plan.grid.blocks
    recent = {tile: entry for tile, entry in entries.items() if now - entry.at < RECENT_SECONDS and tile[1] < blocks}
    if not at_work or not recent:
        return None, None, ()
    began = min(entry.at - entry.seconds for entry in recent.values())
    span = max(1e-3, now - max(began, now - RECENT_SECONDS))
    cost = {todo.tile: plan.cells(todo) for todo in plan.todo if todo.tile in recent}
    cells = sum(cost[tile] for tile in recent)
    pairs = sum(entry.computed for entry in recent.values())
    return cells / span, pairs / span, tuple(sorted({entry.worker for entry in recent.values()}))
