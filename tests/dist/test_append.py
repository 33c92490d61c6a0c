from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from cksc_dist import SeriesSet, open_matrix, pairwise_dtw
from cksc_dist.dist import ingest as ingest_module
from cksc_dist.dist.distances import compute_distances
from cksc_dist.dist.ingest import append, ingest, ingest_distances
from cksc_dist.dist.verify import verify
from cksc_dist.errors import InputError, StoreError
from cksc_dist.spec import DistanceSpec, RunSpec
from cksc_dist.store import matrix_files, series_files
from cksc_dist.store.folder import Folder
from cksc_dist.store.ledger import Ledger, checksum
from cksc_dist.store.series_files import open_series
from tests.small_stores import (
    changed,
    chunk_files,
    chunk_path,
    entries,
    files_below,
    flip_bit,
    joined,
    made_series,
    matrix_of,
    small_tiles,
)

OLD = 40
DATA = made_series(OLD)
SERIAL = RunSpec(executor="serial")


def more(n: int) -> SeriesSet:
    return made_series(n, seed=9, prefix="new ")


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


class Stop(Exception):
    """Stands for a process that is killed."""


def stop(*_: Any) -> None:
    raise Stop


@pytest.mark.parametrize("m", [1, 7, 8, 9, 24, 50])
def test_append_computes_the_pairs_with_new_series_and_nothing_else(store: Path, tmp_path: Path, m: int) -> None:
    old_chunks, old_entries = chunk_files(store), entries(store)
    new = more(m)
    appended = append(store, new, SERIAL)
    (report,) = appended.reports
    assert (appended.before, appended.added) == (OLD, m)
    assert report.pairs == m * OLD + m * (m - 1) // 2
    assert sum(entry.computed for entry in entries(store).values()) >= report.pairs
    # chunks of whole blocks (the first two) keep bytes and entries
    chunks = chunk_files(store)
    for name in ("0/0", "0/1", "1/0", "1/1"):
        assert chunks[name] == old_chunks[name]
    after = entries(store)
    assert [after[tile] for tile in [(0, 0), (0, 1), (1, 1)]] == [old_entries[t] for t in [(0, 0), (0, 1), (1, 1)]]
    assert report.rewritten == 5  # block 2 had 8 of 16 rows: (0, 2), (1, 2), their mirrors, and (2, 2)
    # as if all had been there from the start
    at_once = tmp_path / "at once"
    ingest(joined(DATA, new), at_once)
    compute_distances(at_once, run=SERIAL)
    assert open_matrix(at_once).tile_edge == 16
    assert chunks == chunk_files(at_once)
    np.testing.assert_array_equal(matrix_of(store), pairwise_dtw(joined(DATA, new)))


def test_a_full_last_block_is_not_rewritten(tmp_path: Path) -> None:
    path = tmp_path / "store"
    ingest(made_series(32), path)
    compute_distances(path, run=SERIAL)
    before = chunk_files(path)
    (report,) = append(path, more(3), SERIAL).reports
    assert report.rewritten == 0
    assert report.pairs == 3 * 32 + 3
    after = chunk_files(path)
    assert {name: after[name] for name in before} == before


def test_kept_values_are_not_computed_again(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old part of a chunk at the edge is read, not computed: values that only the ledger vouches for stay."""
    (files,) = matrix_files.find_matrices(Folder(store)).values()
    odd = files.read_tile((0, 2))
    odd[3, 4] = 1234.5
    files.write_tile((0, 2), odd)
    ledger = Ledger(Folder(store), files.fingerprint).load()
    entry = ledger.entries[0, 2]
    ledger.entries[0, 2] = type(entry)(**{**vars(entry), "checksum": checksum(odd)})
    ledger._write()
    append(store, more(5), SERIAL)
    assert matrix_of(store)[3, 36] == 1234.5


def test_a_damaged_edge_is_computed_whole(store: Path, tmp_path: Path) -> None:
    flip_bit(chunk_path(store, 1, 2))
    (report,) = append(store, more(5), SERIAL).reports
    assert report.pairs == 5 * OLD + 10 + 16 * 8
    assert list(report.repaired) == [(1, 2)]
    np.testing.assert_array_equal(matrix_of(store), pairwise_dtw(joined(DATA, more(5))))


def test_appending_piece_by_piece(store: Path) -> None:
    whole = DATA
    for i in range(4):
        part = made_series(5 + i, seed=50 + i, prefix=f"part {i}/")
        (report,) = append(store, part, SERIAL).reports
        assert report.pairs == len(part) * len(whole) + len(part) * (len(part) - 1) // 2
        whole = joined(whole, part)
    np.testing.assert_array_equal(matrix_of(store), pairwise_dtw(whole))
    found = open_series(Folder(store)).load()
    assert found.ids.tolist() == whole.ids.tolist()
    assert found.labels.tolist() == whole.labels.tolist()
    np.testing.assert_array_equal(found.values, whole.values)


def test_every_matrix_of_the_store_grows(store: Path) -> None:
    compute_distances(store, DistanceSpec(dtype="float32", dims=(1,)), SERIAL)
    appended = append(store, more(6), SERIAL)
    assert [report.pairs for report in appended.reports] == [6 * OLD + 15] * 2
    for report in appended.reports:
        assert open_matrix(store, report.fingerprint).shape == (46, 46)


def test_axes_and_labels_grow(store: Path) -> None:
    new = SeriesSet.from_list(more(2).series, ["jump", "walk"], ["x", "y"])
    append(store, new, SERIAL)
    D = open_matrix(store)
    array = D.to_xarray()
    assert array["row"].values[-2:].tolist() == array["col"].values[-2:].tolist() == ["x", "y"]
    assert array["label"].values[-2:].tolist() == ["jump", "walk"]
    assert float(array.sel(row="x", col="s0")) == D[40, 0]
    assert verify(store, sample=20)[0] == []


def test_without_a_matrix_only_series_are_added(tmp_path: Path) -> None:
    ingest(DATA, tmp_path / "store")
    appended = append(tmp_path / "store", more(3))
    assert (appended.before, appended.added, appended.reports) == (OLD, 3, [])
    assert open_series(Folder(tmp_path / "store")).n == OLD + 3


def test_an_unfinished_matrix_is_finished_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "store"
    ingest(DATA, path)
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "mark", stop)
        with pytest.raises(Stop):
            compute_distances(path, run=SERIAL)
    append(path, more(4), SERIAL)
    np.testing.assert_array_equal(matrix_of(path), pairwise_dtw(joined(DATA, more(4))))


# killed


KILLS: dict[str, tuple[Any, str]] = {
    "before anything": (ingest_module, "append_series"),
    "before the commit of the series": (zarr.Group, "attrs"),
    "before the metadata of the series is recorded": (series_files, "record_metadata"),
    "before the distances": (ingest_module, "compute_distances"),
    "before the axes are written": (matrix_files, "_write_axes"),
    "before an axis is written": (matrix_files, "write_array"),
    "before the metadata of the matrix is recorded": (matrix_files, "record_metadata"),
    "before the first mark": (Ledger, "mark"),
}


@pytest.mark.parametrize("moment", KILLS)
def test_the_same_call_goes_on_after_a_kill(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    home, name = KILLS[moment]
    with monkeypatch.context() as patch:
        patch.setattr(home, name, property(stop) if name == "attrs" else stop)
        with pytest.raises(Stop):
            append(store, more(9), SERIAL)
    (report,) = append(store, more(9), SERIAL).reports
    assert report.pairs <= 9 * OLD + 36
    np.testing.assert_array_equal(matrix_of(store), pairwise_dtw(joined(DATA, more(9))))
    at_once = tmp_path / "at once"
    ingest(joined(DATA, more(9)), at_once)
    compute_distances(at_once, run=SERIAL)
    assert chunk_files(store) == chunk_files(at_once)
    # what was left is no damage
    faults, verdicts = verify(store, sample=10)
    assert faults == []
    assert [verdict.bad for verdict in verdicts] == [{}]


@pytest.mark.parametrize("moment", KILLS)
def test_distances_go_on_after_an_append_was_killed(store: Path, monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    """`cksc distances` serves as well: the matrix is that of the series that are committed."""
    home, name = KILLS[moment]
    with monkeypatch.context() as patch:
        patch.setattr(home, name, property(stop) if name == "attrs" else stop)
        with pytest.raises(Stop):
            append(store, more(9), SERIAL)
    compute_distances(store, run=SERIAL)
    n = open_series(Folder(store)).n
    assert n in (OLD, OLD + 9)
    np.testing.assert_array_equal(matrix_of(store), pairwise_dtw(joined(DATA, more(9)))[:n, :n])


def test_an_axis_that_a_kill_left_out(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An array is replaced by removing it first: a kill in between leaves none."""
    with monkeypatch.context() as patch:
        patch.setattr(matrix_files, "_write_axes", stop)
        with pytest.raises(Stop):
            append(store, more(9), SERIAL)
    (axis,) = (store / "distances").glob("*/row")
    shutil.rmtree(axis)
    append(store, more(9), SERIAL)
    np.testing.assert_array_equal(matrix_of(store), pairwise_dtw(joined(DATA, more(9))))


def test_the_same_call_again_does_nothing(store: Path) -> None:
    append(store, more(9), SERIAL)
    before = files_below(store)
    appended = append(store, more(9), SERIAL)
    assert (appended.before, appended.added) == (OLD, 9)
    assert [report.pairs for report in appended.reports] == [0]
    assert files_below(store) == before


# what does not fit


def refused(store: Path, data: SeriesSet, words: str, kind: type[Exception] = InputError) -> None:
    before = files_below(store)
    with pytest.raises(kind, match=words):
        append(store, data, SERIAL)
    assert files_below(store) == before


def test_other_dims(store: Path) -> None:
    refused(store, made_series(3, dims=5, prefix="n"), r"made n has 5 dims, but the series of .*store have 2")


def test_ids_that_are_taken(store: Path) -> None:
    words = r"id 's\d+' is in .*store already \(3 of 5 are\); ids must differ: rename the file, or leave out"
    series = made_series(5, seed=3).series
    refused(store, SeriesSet.from_list(series, ["walk"] * 5, ["s38", "a", "s39", "b", "s2"], name="five"), words)


def test_ids_of_the_last_ones_with_other_values(store: Path) -> None:
    other = changed(DATA[30:], 2)
    refused(store, other, "these ids are in .*store already, with other values")


def test_ids_of_the_last_ones_with_other_labels(store: Path) -> None:
    """Otherwise the new labels would be lost without a word."""
    last = DATA[36:]
    refused(store, SeriesSet.from_list(last.series, ["run"] * 4, last.ids.tolist()), "label")


def test_labels_of_another_kind(store: Path) -> None:
    words = r"labels of five are of type int64, those of .*store of <U\d+; write them in one kind"
    refused(store, SeriesSet.from_list(more(5).series, [1, 2, 1, 2, 1], [*"abcde"], name="five"), words)


def test_a_ready_matrix_cannot_grow(tmp_path: Path) -> None:
    path = tmp_path / "ready"
    ingest_distances(pairwise_dtw(DATA), path, data=DATA)
    refused(path, more(2), "holds a matrix that was brought ready .*ingest the larger matrix", StoreError)


def test_a_store_of_a_ready_matrix_without_series(tmp_path: Path) -> None:
    path = tmp_path / "ready"
    ingest_distances(pairwise_dtw(DATA), path)
    refused(path, more(2), "brought ready", StoreError)


def even(n: int, prefix: str, length: int = 6) -> SeriesSet:
    return made_series(n, seed=n, length=(length, length), prefix=prefix, positive=True)


def negative(data: SeriesSet, row: int) -> SeriesSet:
    return SeriesSet.from_list(
        [-values if i == row else values for i, values in enumerate(data)], data.labels, data.ids.tolist()
    )


CANNOT: dict[str, tuple[DistanceSpec, Callable[[], SeriesSet], str]] = {
    "another length": (DistanceSpec(metric="euclidean"), lambda: even(3, "n", 7), "series 40 has 7 frames"),
    "a negative bin": (DistanceSpec(metric="chi2"), lambda: negative(even(3, "n"), 1), "series 41 has -"),
    "no variance": (
        DistanceSpec(normalise="z"),
        lambda: SeriesSet.from_list([np.ones((6, 2))], ["walk"], ["flat"]),
        r"series\[40\], dim 0 has zero variance",
    ),
    "beyond float32": (
        DistanceSpec(dtype="float32"),
        lambda: SeriesSet.from_list([np.full((6, 2), 1e39)], ["walk"], ["large"]),
        r"series\[40\] has a value beyond float32",
    ),
}


@pytest.mark.parametrize("what", CANNOT)
def test_series_that_a_matrix_of_the_store_cannot_compare(tmp_path: Path, what: str) -> None:
    """They are refused before they are in the store, where they would keep the matrix from ever being finished."""
    spec, new, words = CANNOT[what]
    path = tmp_path / "store"
    ingest(even(OLD, "s"), path)
    compute_distances(path, spec, SERIAL)
    refused(path, new(), words)


def test_no_store_to_append_to(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="nowhere is no store; make one with: cksc ingest"):
        append(tmp_path / "nowhere", more(2))
    assert not (tmp_path / "nowhere").exists()
