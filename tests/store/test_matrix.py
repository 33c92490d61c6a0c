"""open_matrix: finished distances by rows, strips and tiles, for xarray and Dask; unfinished ones are told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cksc_dist import open_matrix
from cksc_dist.errors import StoreError
from cksc_dist.series import SeriesSet
from cksc_dist.spec import DistanceSpec, fingerprint
from cksc_dist.store.folder import Folder
from cksc_dist.store.ledger import Ledger
from cksc_dist.store.matrix import DistanceMatrix, describe
from cksc_dist.store.matrix_files import create_matrix, grow_matrix, open_files
from cksc_dist.store.series_files import append_series, open_series, write_series
from tests.store.stored import distances_of, fill, finished, flip, made

SPEC = DistanceSpec().resolved()
WHOLE: Any = distances_of(made(), SPEC)


@pytest.fixture
def matrix(folder: Folder) -> DistanceMatrix:
    finished(folder)
    return open_matrix(folder.url)


def test_what_a_finished_matrix_tells_of_itself(folder: Folder, matrix: DistanceMatrix) -> None:
    assert (matrix.shape, len(matrix), matrix.dtype.name, matrix.tile_edge) == ((10, 10), 10, "float64", 4)
    assert (matrix.spec, matrix.fingerprint) == (SPEC, fingerprint(SPEC))
    assert matrix.group == f"distances/{fingerprint(SPEC)}"
    assert matrix.labels.tolist() == made().labels.tolist()
    assert matrix.ids.tolist() == made().ids.tolist()
    assert repr(matrix) == f"DistanceMatrix('{folder.url}': 10 x 10 float64, dtw engine=simd)"


def test_the_whole_matrix(matrix: DistanceMatrix) -> None:
    np.testing.assert_array_equal(matrix[:], WHOLE)
    np.testing.assert_array_equal(matrix[:, :], WHOLE)
    np.testing.assert_array_equal(np.asarray(matrix), WHOLE)
    assert np.asarray(matrix, dtype=np.float32).dtype == np.float32


@pytest.mark.parametrize(
    ("key", "rows", "columns"),
    [
        (3, 3, slice(None)),
        (-1, -1, slice(None)),
        ((3, 7), 3, 7),
        ((np.int64(3), -2), 3, -2),
        (slice(2, 9), slice(2, 9), slice(None)),
        ((slice(1, 3), slice(5, None)), slice(1, 3), slice(5, None)),
        (slice(None, None, 3), slice(None, None, 3), slice(None)),
        (slice(None, None, -1), slice(None, None, -1), slice(None)),
        ((slice(-3, None), 2), slice(-3, None), 2),
        (slice(8, 100), slice(8, 100), slice(None)),
        (slice(6, 2), slice(6, 2), slice(None)),
        ((4, [1, 8]), 4, [1, 8]),
    ],
)
def test_rows_columns_and_entries_as_numpy_gives_them(
    matrix: DistanceMatrix, key: Any, rows: Any, columns: Any
) -> None:
    np.testing.assert_array_equal(matrix[key], WHOLE[rows, columns])


@pytest.fixture(scope="module")
def shared() -> DistanceMatrix:
    folder = Folder("memory://open-matrix-shared")
    finished(folder)
    return open_matrix(folder.url)


POSITIONS = st.lists(st.integers(-10, 9), min_size=1, max_size=12)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=POSITIONS, columns=POSITIONS, as_array=st.booleans())
def test_two_lists_give_the_matrix_of_both_in_any_order(
    rows: list[int], columns: list[int], as_array: bool, shared: DistanceMatrix
) -> None:
    key = (np.array(rows), np.array(columns)) if as_array else (rows, columns)
    np.testing.assert_array_equal(shared[key], WHOLE[np.ix_(rows, columns)])
    np.testing.assert_array_equal(shared[rows], WHOLE[rows])


def test_masks(shared: DistanceMatrix) -> None:
    train = np.arange(10) % 3 > 0
    np.testing.assert_array_equal(shared[train, ~train], WHOLE[np.ix_(train, ~train)])
    np.testing.assert_array_equal(shared[train.tolist()], WHOLE[train])


@pytest.mark.parametrize("none", [[], np.array([], np.int64), np.zeros(10, bool), slice(0, 0)], ids=str)
def test_no_rows_at_all(shared: DistanceMatrix, none: Any) -> None:
    assert shared[none].shape == (0, 10)
    assert shared[2:4, none].shape == (2, 0)


@pytest.mark.parametrize("key", [10, -11, (0, 10), [3, 10], (0, [-11])])
def test_rows_that_are_not_there(shared: DistanceMatrix, key: Any) -> None:
    with pytest.raises(IndexError):
        shared[key]


def test_a_mask_of_another_length_is_no_choice_of_rows(shared: DistanceMatrix) -> None:
    with pytest.raises(IndexError):
        shared[np.ones(9, bool)]


def test_tiles_and_strips(matrix: DistanceMatrix) -> None:
    np.testing.assert_array_equal(matrix.tile((0, 2)), WHOLE[:4, 8:])
    np.testing.assert_array_equal(matrix.tile((2, 1)), WHOLE[8:, 4:8])
    assert matrix.strips() == [(0, 4), (4, 8), (8, 10)]
    assert matrix.strips(7) == [(0, 7), (7, 10)]
    assert matrix.strips(100) == [(0, 10)]
    np.testing.assert_array_equal(np.concatenate([matrix[begin:end] for begin, end in matrix.strips(3)]), WHOLE)


def test_a_read_touches_only_the_chunks_it_needs(folder: Folder, matrix: DistanceMatrix) -> None:
    flip(folder, f"{matrix.group}/distance/c/2/2", 99)
    np.testing.assert_array_equal(matrix[:8, :8], WHOLE[:8, :8])
    np.testing.assert_array_equal(matrix[[1, 5]], WHOLE[[1, 5]])


def test_xarray_shows_labelled_axes(matrix: DistanceMatrix) -> None:
    found = matrix.to_xarray()
    assert found.dims == ("row", "col")
    assert found.coords["label"].dims == ("row",)
    assert found.coords["row"].values.tolist() == found.coords["col"].values.tolist() == made().ids.tolist()
    assert found.coords["label"].values.tolist() == made().labels.tolist()
    assert found.dtype == np.float64
    assert float(found.sel(row="s3", col="s8")) == WHOLE[3, 8]
    np.testing.assert_array_equal(found.values, WHOLE)
    walks = found.isel(row=np.flatnonzero(found.label.values == "walk"))
    np.testing.assert_array_equal(walks.values, WHOLE[::2])


def test_xarray_is_lazy(folder: Folder, matrix: DistanceMatrix) -> None:
    found = matrix.to_xarray()
    flip(folder, f"{matrix.group}/distance/c/2/2", 99)
    np.testing.assert_array_equal(found.isel(row=slice(0, 4)).values, WHOLE[:4])
    with pytest.raises(ValueError, match=r"checksum|crc"):
        found.isel(row=9).load()


def test_xarray_alone_opens_the_store(tmp_path: Path) -> None:
    files = finished(Folder(tmp_path / "store"), spec=DistanceSpec(dtype="float32"))
    data = xr.open_zarr(str(tmp_path / "store"), group=files.group, consolidated=False)
    assert set(data.data_vars) == {"distance"}
    assert set(data.coords) == {"row", "col", "label"}
    assert data["distance"].dtype == np.float32
    np.testing.assert_array_equal(data["distance"].values, distances_of(made(), files.spec))


def test_xarray_opens_a_url(folder: Folder, matrix: DistanceMatrix) -> None:
    data = xr.open_zarr(folder.url, group=matrix.group, consolidated=False)
    np.testing.assert_array_equal(data["distance"].values, WHOLE)


def test_dask_has_one_chunk_for_each_tile(matrix: DistanceMatrix) -> None:
    found = matrix.to_dask()
    assert found.chunks == ((4, 4, 2), (4, 4, 2))
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found.compute(scheduler="synchronous"), WHOLE)
    assert float(found.mean().compute(scheduler="synchronous")) == pytest.approx(WHOLE.mean())


@pytest.mark.parametrize("labels", [[3, 1] * 5, [True, False] * 5])
def test_labels_of_any_kind(folder: Folder, labels: list[Any]) -> None:
    finished(folder, made(labels=labels))
    found = open_matrix(folder.url)
    assert found.labels.tolist() == labels
    assert found.to_xarray().label.values.tolist() == labels


def test_no_store_and_no_matrix_are_told(folder: Folder) -> None:
    with pytest.raises(StoreError, match=r"is no store; make one with: cksc ingest SOURCE"):
        open_matrix(folder.url)
    write_series(folder, made())
    with pytest.raises(
        StoreError, match=rf"{folder.url} has no such matrix; compute one with: cksc distances {folder.url}"
    ):
        open_matrix(folder.url)


@pytest.mark.parametrize("leave", [1, 4, 6])
def test_an_unfinished_matrix_says_what_is_missing(folder: Folder, leave: int) -> None:
    write_series(folder, made())
    files = create_matrix(folder, SPEC, open_series(folder), 4)
    fill(files, made(), leave=leave)
    words = (
        rf"{folder.url}: matrix {files.fingerprint} is not finished, {leave} of 6 tiles are missing; compute them "
        rf"with: cksc distances {folder.url}"
    )
    with pytest.raises(StoreError, match=words):
        open_matrix(folder.url)


def test_series_that_changed_make_a_matrix_unfinished(folder: Folder) -> None:
    finished(folder)
    changed = made()
    changed.values[0] += 1
    write_series(folder, changed)
    with pytest.raises(StoreError, match=r"is not finished, 3 of 6 tiles are missing"):
        open_matrix(folder.url)


def test_series_that_were_added_make_a_matrix_unfinished(folder: Folder) -> None:
    files = finished(folder)
    append_series(folder, made(n=3, seed=1, first=10))
    with pytest.raises(StoreError, match=r"is not finished"):
        open_matrix(folder.url)
    grow_matrix(files, open_series(folder))
    # of blocks of 4, 4 and 2 rows the last is full now, and one of a single row has come
    with pytest.raises(StoreError, match=r"is not finished, 7 of 10 tiles are missing"):
        open_matrix(folder.url)


def test_a_ledger_that_is_gone_makes_a_matrix_unfinished(folder: Folder) -> None:
    files = finished(folder)
    Ledger(folder, files.fingerprint).load().drop(files.grid.all_tiles())
    with pytest.raises(StoreError, match=r"is not finished, 6 of 6 tiles are missing"):
        open_matrix(folder.url)


@pytest.mark.parametrize("chunk", ["0/0", "0/1", "1/0"])
def test_a_lost_chunk_is_told_and_never_read_as_nan(folder: Folder, chunk: str) -> None:
    files = finished(folder)
    folder.remove(f"{files.group}/distance/c/{chunk}")
    with pytest.raises(StoreError, match=rf"is not finished, 1 of 6|{files.group}"):
        assert np.isfinite(open_matrix(folder.url)[:]).all()


def test_chunks_lost_by_shrinking_are_told_and_never_read_as_nan(folder: Folder) -> None:
    files, data = finished(folder), made()
    write_series(folder, data.select(range(6)))
    files = grow_matrix(files, open_series(folder))
    write_series(folder, data)
    grow_matrix(files, open_series(folder))  # and the run is killed before it computes anything
    with pytest.raises(StoreError, match=r"is not finished"):
        assert np.isfinite(open_matrix(folder.url)[:]).all()


@pytest.mark.parametrize("size", [None, 0, 3, 50])
def test_a_damaged_chunk_is_told_with_what_to_do(folder: Folder, size: int | None) -> None:
    files = finished(folder)
    key = f"{files.group}/distance/c/1/2"
    if size is None:
        flip(folder, key, 321)
    else:
        folder.write(key, (folder.read(key) or b"")[:size])
    found = open_matrix(folder.url)
    words = rf"a chunk of {folder.url}/{files.group} is damaged \(.*\); mend it with: cksc verify {folder.url} --repair"
    for key_of_rows in (slice(None), [5, 7]):
        with pytest.raises(StoreError, match=words):
            found[key_of_rows]
    np.testing.assert_array_equal(found[0], WHOLE[0])


def test_a_damaged_tile_is_told_with_what_to_do(folder: Folder, matrix: DistanceMatrix) -> None:
    flip(folder, f"{matrix.group}/distance/c/1/2", 321)
    with pytest.raises(StoreError, match=rf"a chunk of {folder.url}/{matrix.group} is damaged .* --repair"):
        matrix.tile((1, 2))


def two(folder: Folder) -> tuple[str, str]:
    """A store of two finished matrices and one that is not."""
    data = made()
    specs = [SPEC, DistanceSpec(window=0.1, dtype="float32").resolved(), DistanceSpec(metric="euclidean")]
    write_series(folder, data)
    for spec in specs[:2]:
        fill(create_matrix(folder, spec, open_series(folder), 4), data)
    create_matrix(folder, specs[2], open_series(folder), 4)
    return fingerprint(specs[0]), fingerprint(specs[1])


def test_of_several_matrices_one_is_chosen_by_its_first_letters(folder: Folder) -> None:
    first, second = two(folder)
    words = (
        rf"{folder.url} holds several finished matrices; choose one by the first letters:\n"
        rf"(.*\n)?  {second}  dtw window=0\.1 engine=simd dtype=float32"
    )
    with pytest.raises(StoreError, match=words) as caught:
        open_matrix(folder.url)
    assert f"  {first}  dtw engine=simd" in str(caught.value)
    assert fingerprint(DistanceSpec(metric="euclidean")) not in str(caught.value)
    assert first[0] != second[0]
    assert open_matrix(folder.url, first[:1]).fingerprint == first
    assert open_matrix(folder.url, second).dtype == np.float32
    with pytest.raises(StoreError, match=rf"{folder.url} \(distances zz\.\.\.\) has no such matrix"):
        open_matrix(folder.url, "zz")
    unfinished = fingerprint(DistanceSpec(metric="euclidean"))
    with pytest.raises(StoreError, match=rf"matrix {unfinished} is not finished, 6 of 6 tiles are missing"):
        open_matrix(folder.url, unfinished[:8])


def test_an_unfinished_matrix_beside_a_finished_one_is_not_in_the_way(folder: Folder) -> None:
    finished(folder)
    create_matrix(folder, DistanceSpec(window=2).resolved(), open_series(folder), 4)
    assert open_matrix(folder.url).spec == SPEC


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (DistanceSpec(), "dtw engine=simd"),
        (DistanceSpec(metric="chi2"), "chi2"),
        (
            DistanceSpec(mode="independent", cost="abs", per_length=True),
            "dtw mode=independent cost=abs per_length=True engine=simd",
        ),
        (DistanceSpec(metric="euclidean", dims=(0, 2), dtype="float32"), "euclidean dtype=float32 dims=(0, 2)"),
    ],
)
def test_settings_in_a_few_words(spec: DistanceSpec, words: str) -> None:
    assert describe(spec) == words


def test_a_matrix_may_be_opened_by_a_path(tmp_path: Path) -> None:
    finished(Folder(tmp_path / "store"))
    np.testing.assert_array_equal(open_matrix(tmp_path / "store")[2], WHOLE[2])
    np.testing.assert_array_equal(open_matrix(f"file://{tmp_path}/store")[2], WHOLE[2])


def test_reading_changes_nothing(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "store")
    finished(folder)
    before = {name: folder.read(name) for name in folder.files("")}
    found = open_matrix(folder.url)
    found[:]
    found.to_dask().compute(scheduler="synchronous")
    found.kernel()[:]
    assert {name: folder.read(name) for name in folder.files("")} == before


def test_a_store_on_a_disk_that_cannot_be_written_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Folder(tmp_path / "store")
    finished(folder)

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(30, "Read-only file system")

    for name in ("write_bytes", "replace", "unlink"):
        monkeypatch.setattr(Path, name, refuse)
    found = open_matrix(folder.url)
    np.testing.assert_array_equal(found[:], WHOLE)
    np.testing.assert_array_equal(found.to_xarray().values, WHOLE)


def test_a_matrix_of_one_tile_and_ids_in_other_scripts(folder: Folder) -> None:
    series = [np.full((2, 1), float(k)) for k in range(3)]
    data = SeriesSet.from_list(series, ["ü", "日", "ü"], ["α", "β γ", "д"], name="three")
    files = finished(folder, data, edge=16)
    assert files.grid.tiles == 1
    found = open_matrix(folder.url)
    assert found.ids.tolist() == ["α", "β γ", "д"]
    assert float(found.to_xarray().sel(row="β γ", col="д")) == found[1, 2]
    assert open_files(folder, files.fingerprint).grid == files.grid
