"""Put series, or a ready matrix, into a store; add series to one."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cksc_dist.dist.distances import Report, compute_distances
from cksc_dist.dist.plan import tile_edge
from cksc_dist.dist.progress import Progress
from cksc_dist.dist.survey import find_damage
from cksc_dist.errors import InputError, NoSeriesError, StoreError
from cksc_dist.maths.matrix_checks import check_distances
from cksc_dist.maths.metrics import check_metric, check_not_overflowing
from cksc_dist.maths.threads import resolve_n_jobs
from cksc_dist.series import UNKNOWN, SeriesSet, check_width, is_text, label_array
from cksc_dist.spec import DistanceSpec, RunSpec, fingerprint
from cksc_dist.store.folder import Folder
from cksc_dist.store.grid import Tile
from cksc_dist.store.layout import check_place, check_store, is_store
from cksc_dist.store.lease import Lease
from cksc_dist.store.ledger import Blocks, Ledger, checksum
from cksc_dist.store.matrix_files import MatrixFiles, create_matrix, find_matrices, grow_matrix, remove_matrix
from cksc_dist.store.metadata import ensure_recorded
from cksc_dist.store.series_files import (
    GROUP,
    StoredSeries,
    append_series,
    open_series,
    series_digests,
    write_rows,
    write_series,
)

__all__ = ["Appended", "append", "ingest", "ingest_distances"]


def ingest(data: SeriesSet, store: str | Path | Folder, *, replace: bool = False) -> bool:
    """Write series into a new store; return False where just these are there already.

    Parameters
    ----------
    data
        Series.
    store
        Folder or URL.
    replace
        Put them in the place of others. Matrices of the store stay; of these, tiles of unchanged series hold good.
    """
    folder = Folder.of(store)
    check_place(folder)
    with Lease(folder, "ingest") as lease:
        folder.sweep()
        return _ingest(folder, data, replace, lease)


def _ingest(folder: Folder, data: SeriesSet, replace: bool, lease: Lease) -> bool:
    if is_store(folder) and _keeps(folder, data, replace):
        ensure_recorded(folder, GROUP)
        return False
    write_series(folder, data, lease.check)
    return True


def _keeps(folder: Folder, data: SeriesSet, replace: bool) -> bool:
    """Tell whether a store holds just these series; False where they are to be written, an error where they may not.

    Series that cannot be read may be damaged, or behind a line that is down: only who says so writes over them.
    """
    try:
        old = open_series(folder)
        if _holds(old, data):
            return not (replace and old.changed())
    except NoSeriesError:
        return False
    except StoreError:
        if not replace:
            raise
        return False
    if not replace:
        raise StoreError(
            f"{folder.url} holds other series; add these with cksc append, put them in their place with --replace, or "
            "choose another store"
        )
    return False


def _holds(old: StoredSeries, data: SeriesSet) -> bool:
    return (
        (old.n, old.dims) == (len(data), data.dims)
        and np.array_equal(old.digests, series_digests(data))
        and old.ids.tolist() == data.ids.tolist()
        and _same_labels(old.labels, data.labels)
    )


def _same_labels(old: NDArray[Any], new: NDArray[Any]) -> bool:
    """Tell whether labels are the same; whole numbers may be of any width, but 0 is not False."""
    return (old.dtype.kind == "b") == (new.dtype.kind == "b") and old.tolist() == new.tolist()


def ingest_distances(
    distances: NDArray[Any],
    store: str | Path | Folder,
    *,
    data: SeriesSet | None = None,
    labels: NDArray[Any] | None = None,
    ids: NDArray[np.str_] | None = None,
    name: str = "matrix",
    replace: bool = False,
) -> str:
    """Put a ready distance matrix into a store, and return its fingerprint.

    Parameters
    ----------
    distances
        Square, symmetric, zero on the diagonal, finite, not negative.
    store
        Folder or URL.
    data
        The series of the rows, where they are at hand; otherwise ``labels`` and ``ids`` name the rows.
    labels, ids, name
        One label and one name for each row, and what to call the set.
    replace
        Put it in the place of another ready matrix, or other series.
    """
    folder = Folder.of(store)
    check_place(folder)
    matrix = check_distances(distances, name="distances")
    n = len(matrix)
    if n < 2:
        raise InputError("distances have one row; they need two at least")
    if data is not None and len(data) != n:
        raise InputError(f"distances have {n} rows, but there are {len(data)} series")
    if data is not None:
        _check_names(data, labels, ids)
    rows = np.array([str(i) for i in range(n)]) if ids is None else np.asarray(ids, np.str_)
    if not is_text(rows) or (labels is not None and not is_text(np.asarray(labels))):
        raise InputError("labels or ids hold letters that are no text in Unicode; rename them")
    check_width(rows, "ids")
    row_labels = np.full(n, UNKNOWN) if labels is None else label_array(labels)
    if data is None and not len(rows) == len(row_labels) == n:
        raise InputError(f"distances have {n} rows, but there are {len(row_labels)} labels and {len(rows)} ids")
    if len(np.unique(rows)) != len(rows):
        raise InputError("ids: a name is used twice; the names of rows must differ")
    if row_labels.dtype.kind not in "Uiub":
        raise InputError(f"labels are of type {row_labels.dtype}; use str, int or bool, all of one kind")
    with Lease(folder, "ingest") as lease:
        folder.sweep()
        if is_store(folder) and not replace:
            if data is not None:
                _keeps(folder, data, False)
            else:
                _check_rows(folder, row_labels, rows)
            _check_ready(folder, matrix)
        if data is not None:
            _ingest(folder, data, replace, lease)
        elif not _holds_rows(folder, row_labels, rows):
            write_rows(folder, row_labels, rows, name, lease.check)
        return _write_matrix(folder, matrix, lease)


def _holds_rows(folder: Folder, labels: NDArray[Any], ids: NDArray[np.str_]) -> bool:
    """Tell whether a store has just these names, and no series."""
    try:
        found = open_series(folder) if is_store(folder) else None
        same = found is not None and not found.dims and _same_labels(found.labels, labels)
        if found is None or not same or found.ids.tolist() != ids.tolist():
            return False
    except StoreError:
        return False  # damaged, and to be replaced: otherwise it was told before
    ensure_recorded(folder, GROUP)
    return True


def _check_names(data: SeriesSet, labels: NDArray[Any] | None, ids: NDArray[np.str_] | None) -> None:
    """Raise an InputError where a matrix names its rows otherwise than its series do."""
    for what, given, own in (("labels", labels, data.labels), ("ids", ids, data.ids)):
        if given is not None and np.asarray(given).tolist() != own.tolist():
            raise InputError(f"the {what} beside the distances are not those of the series; bring both in one order")


def _check_rows(folder: Folder, labels: NDArray[Any], ids: NDArray[np.str_]) -> None:
    """Raise a StoreError where a store has series, or rows of other names; what a call was cut off in has neither."""
    with suppress(NoSeriesError):
        open_series(folder)
        if not _holds_rows(folder, labels, ids):
            raise StoreError(f"{folder.url} is in use; choose another store, or --replace")


def _check_ready(folder: Folder, matrix: NDArray[Any]) -> None:
    """Raise a StoreError where a store holds another ready matrix; one that is not whole was cut off, and is none."""
    for name, files in find_matrices(folder).items():
        entries = Ledger(folder, name).load().entries if files.spec.metric == "external" else {}
        if entries and set(entries) == set(files.grid.all_tiles()):
            if files.spec.dtype == str(matrix.dtype) and len(matrix) == files.grid.n:
                tiles = ((entry, _upper(matrix, files, tile)) for tile, entry in entries.items())
                if all(entry.checksum == checksum(values) for entry, values in tiles):
                    continue
            raise StoreError(f"{folder.url} holds a ready matrix already; choose another store, or --replace")


def _upper(matrix: NDArray[Any], files: MatrixFiles, tile: Tile) -> NDArray[Any]:
    """Return the values of a tile: equal up to rounding below the diagonal, the upper half of a matrix counts."""
    (top, bottom), (left, right) = (files.grid.rows(block) for block in tile)
    values = np.ascontiguousarray(matrix[top:bottom, left:right])
    if tile[0] == tile[1]:
        upper = np.triu(values, 1)
        values = upper + upper.T
    return values


def _write_matrix(folder: Folder, matrix: NDArray[Any], lease: Lease) -> str:
    series = open_series(folder)
    spec = DistanceSpec(metric="external", dtype=str(matrix.dtype))
    for other in find_matrices(folder).values():
        # of rows without series, nobody could ever compute another one
        if other.spec != spec and (other.spec.metric == "external" or not series.dims):
            remove_matrix(other)
    ready = find_matrices(folder).get(fingerprint(spec))
    if ready is not None and ready.state == series.state:
        files = grow_matrix(ready, series)  # whose axes may be damaged
    else:
        plain = DistanceSpec(metric="euclidean")
        files = create_matrix(folder, spec, series, tile_edge(np.ones(series.n, np.int64), 1, plain))
    ledger, blocks = Ledger(folder, files.fingerprint).load(), Blocks(files.grid, series.digests)
    sums = {tile: checksum(_upper(matrix, files, tile)) for tile in files.grid.all_tiles()}
    # what an earlier call was cut off in stays; what would vouch for other values goes before they are written
    ledger.drop([tile for tile, entry in ledger.entries.items() if entry.checksum != sums.get(tile)])
    # a chunk that is there may have been damaged since, or emptied by a power cut
    ledger.drop(set(ledger.entries) - files.whole_tiles())
    ledger.drop(find_damage(files, ledger.entries, resolve_n_jobs(-1)))
    for tile in sorted(set(sums) - set(ledger.entries)):
        begin = time.perf_counter()
        values = _upper(matrix, files, tile)
        lease.check()
        files.write_tile(tile, values)
        entry = blocks.entry(tile, values, begun=begin, worker=None, computed=0)
        ledger.mark(tile, entry)
        ledger.add(tile, entry)
    files.folder.sync(f"{files.group}/distance")  # nobody could compute these again: before anything vouches for them
    ledger.collect()
    return files.fingerprint


@dataclass(frozen=True)
class Appended:
    """What an append did: rows before, rows added, and a report for each matrix that was brought up to date."""

    before: int
    added: int
    reports: list[Report]


def append(
    store: str | Path | Folder,
    data: SeriesSet,
    run: RunSpec = RunSpec(),  # noqa: B008  frozen
    progress: Progress | None = None,
) -> Appended:
    """Add series to a store, and compute their distances in every matrix that it holds.

    Of an append that was cut off, the series may be there already: the same call then goes on with the distances.
    """
    folder = Folder.of(store)
    check_store(folder)
    with Lease(folder, "append") as lease:
        folder.sweep()
        series = open_series(folder)
        external = [name for name, files in find_matrices(folder).items() if files.spec.metric == "external"]
        if external:
            raise StoreError(
                f"{folder.url} holds a matrix that was brought ready ({external[0]}), to which nobody can add rows; "
                "ingest the larger matrix with --replace"
            )
        before = series.n
        tail = series.n - len(data)
        if tail >= 0 and series.ids[tail:].tolist() == data.ids.tolist():
            if not np.array_equal(series.digests[tail:], series_digests(data)):
                raise InputError(f"{data.name}: these ids are in {folder.url} already, with other values")
            if not _same_labels(series.labels[tail:], data.labels):
                raise InputError(f"{data.name}: these ids are in {folder.url} already, with other labels")
            before = tail
            ensure_recorded(folder, GROUP)
        else:
            for files in find_matrices(folder).values():
                # what a matrix of the store cannot take is refused before anything is written
                check_metric((data.values, data.offsets), files.spec, series.n, int(series.lengths[0]))
                check_not_overflowing((data.values, data.offsets), files.spec, series.n)
            append_series(folder, data, lease.check)
    reports = [compute_distances(folder, files.spec, run, progress) for files in find_matrices(folder).values()]
    return Appended(before, len(data), reports)
