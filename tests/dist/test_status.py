from __future__ import annotations

import json
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cksc_dist.dist import status as status_module
from cksc_dist.dist.distances import compute_distances
from cksc_dist.dist.ingest import append, ingest, ingest_distances
from cksc_dist.dist.status import MatrixStatus, store_status
from cksc_dist.errors import StoreError
from cksc_dist.maths.dtw import pairwise_dtw
from cksc_dist.spec import DistanceSpec, RunSpec
from cksc_dist.store.folder import Folder
from cksc_dist.store.lease import Lease
from cksc_dist.store.ledger import Ledger
from cksc_dist.store.series_files import append_series
from tests import naive_plan
from tests.small_stores import (
    changed,
    chunk_files,
    chunk_path,
    entries,
    files_below,
    made_series,
    small_tiles,
)

N = 45
DATA = made_series(N)
SERIAL = RunSpec(executor="serial")


@pytest.fixture(autouse=True)
def tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    small_tiles(monkeypatch)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template") / "store"
    with pytest.MonkeyPatch.context() as patch:
        small_tiles(patch)
        ingest(DATA, path)
        compute_distances(path, run=SERIAL)
    return path


@pytest.fixture
def store(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template, tmp_path / "store"))


def only_matrix(store: Path) -> MatrixStatus:
    (matrix,) = store_status(store).matrices
    return matrix


def test_a_finished_matrix(store: Path) -> None:
    before = files_below(store)
    found = store_status(store)
    assert (found.series.n, found.series.dims, found.series.name, found.writer) == (N, 2, "made s", None)
    (matrix,) = found.matrices
    assert (matrix.tiles, matrix.done, matrix.share) == (6, 6, 1.0)
    assert matrix.spec == DistanceSpec().resolved()
    assert matrix.group == f"distances/{matrix.fingerprint}"
    assert matrix.disk == sum(len(content) for content in chunk_files(store).values())
    assert matrix.cpu_seconds == pytest.approx(sum(entry.seconds for entry in entries(store).values()))
    assert (matrix.pairs_per_second, matrix.eta, matrix.workers) == (None, None, ())  # nobody is at work
    assert files_below(store) == before


def test_a_store_without_a_matrix(tmp_path: Path) -> None:
    ingest(DATA, tmp_path / "store")
    found = store_status(tmp_path / "store")
    assert (found.series.n, found.matrices) == (N, [])


def test_several_matrices(store: Path) -> None:
    compute_distances(store, DistanceSpec(dtype="float32", dims=(0,)), SERIAL)
    found = store_status(store)
    assert sorted(matrix.spec.dtype for matrix in found.matrices) == ["float32", "float64"]


def test_a_ready_matrix(tmp_path: Path) -> None:
    ingest_distances(pairwise_dtw(DATA), tmp_path / "store", labels=DATA.labels, ids=DATA.ids)
    matrix = only_matrix(tmp_path / "store")
    assert (matrix.spec.metric, matrix.done, matrix.share) == ("external", matrix.tiles, 1.0)


def test_what_is_missing_counts_by_its_cost(store: Path) -> None:
    chunk_path(store, 0, 2).unlink()
    chunk_path(store, 1, 1).unlink()
    matrix = only_matrix(store)
    lengths = DATA.lengths.tolist()
    whole = sum(naive_plan.cells(lengths, 2, 16, (i, j), (0, 0)) for i in range(3) for j in range(i, 3))
    left = sum(naive_plan.cells(lengths, 2, 16, tile, (0, 0)) for tile in [(0, 2), (1, 1)])
    assert (matrix.done, matrix.tiles) == (4, 6)
    assert matrix.share == pytest.approx(1 - left / whole)


def test_changed_series_make_their_tiles_missing(store: Path) -> None:
    ingest(changed(DATA, 20), store, replace=True)
    assert only_matrix(store).done == 3


def test_series_that_were_added_but_not_computed(store: Path) -> None:
    """Killed between series and distances: it must not pass for finished."""
    append_series(Folder(store), made_series(20, seed=5, prefix="new"))
    matrix = only_matrix(store)
    assert matrix.done < matrix.tiles
    assert matrix.share < 1
    append(store, made_series(20, seed=5, prefix="new"), SERIAL)
    assert only_matrix(store).share == 1.0


def recent(store: Path, **changes: Any) -> None:
    """Make all entries of the ledger as if their tiles had just been done."""
    (name,) = (path.name for path in (store / "ledger").iterdir())
    ledger = Ledger(Folder(store), name).load()
    ledger.entries = {tile: replace(entry, at=time.time(), **changes) for tile, entry in ledger.entries.items()}
    ledger._write()


def test_while_somebody_works(store: Path) -> None:
    recent(store, seconds=2.0, worker="host:1")
    chunk_path(store, 0, 1).unlink()
    with Lease(Folder(store), "distances"):
        found = store_status(store)
    assert found.writer is not None
    assert found.writer["purpose"] == "distances"
    (matrix,) = found.matrices
    assert matrix.workers == ("host:1",)
    assert matrix.pairs_per_second is not None
    # all 990 pairs within the two seconds that the first tile took, and what has passed since
    assert 990 / 10 < matrix.pairs_per_second <= 990 / 2
    assert matrix.eta is not None
    lengths = DATA.lengths.tolist()
    whole = sum(naive_plan.cells(lengths, 2, 16, (i, j), (0, 0)) for i in range(3) for j in range(i, 3))
    left = naive_plan.cells(lengths, 2, 16, (0, 1), (0, 0))
    assert matrix.eta == pytest.approx(left / whole * 990 / matrix.pairs_per_second, rel=1e-6)


def test_the_rate_is_of_the_last_minute_alone(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recent(store)
    monkeypatch.setattr(status_module, "RECENT_SECONDS", -1.0)  # all of it is long ago
    with Lease(Folder(store), "distances"):
        matrix = only_matrix(store)
    assert (matrix.pairs_per_second, matrix.eta, matrix.workers) == (None, None, ())


def test_while_somebody_works_on_fewer_series_than_before(store: Path) -> None:
    """The ledger still has tiles of rows that are gone."""
    ingest(DATA[:20], store, replace=True)
    compute_distances(store, run=SERIAL)
    recent(store)
    with Lease(Folder(store), "distances"):
        matrix = only_matrix(store)
    assert (matrix.done, matrix.tiles) == (3, 3)


def test_while_the_matrix_waits_to_grow(store: Path) -> None:
    append_series(Folder(store), made_series(20, seed=5, prefix="new"))
    recent(store)
    with Lease(Folder(store), "append"):
        assert only_matrix(store).share < 1


def test_a_dead_writer_is_none(store: Path) -> None:
    with Lease(Folder(store), "distances"):
        record = json.loads((store / "lock.json").read_text())
    record["value"]["born"] = 0.0  # a process of this number, but of another birth
    (store / "lock.json").write_text(json.dumps(record))
    assert store_status(store).writer is None


def test_looking_changes_nothing_not_even_what_is_damaged(store: Path) -> None:
    """Whoever looks holds no lease: somebody else may be writing."""
    (ledger,) = (store / "ledger").iterdir()
    (ledger / "done").mkdir(exist_ok=True)
    (ledger / "done" / "0.1.json").write_bytes(b"{")
    (store / "left.partial").write_bytes(b"half")
    before = files_below(store)
    store_status(store)
    assert files_below(store) == before


def test_no_store(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is no store; make one with: cksc ingest"):
        store_status(tmp_path / "nowhere")
