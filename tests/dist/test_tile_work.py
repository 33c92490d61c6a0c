from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from cksc_dist import SeriesSet, pairwise_dtw
from cksc_dist.dist import tile_work
from cksc_dist.dist.plan import Todo
from cksc_dist.dist.tile_work import TileTask, compute_values, run_task
from cksc_dist.errors import InputError, StoreError
from cksc_dist.series import Ragged
from cksc_dist.spec import DistanceSpec
from cksc_dist.store.folder import Folder
from cksc_dist.store.ledger import Blocks, checksum
from cksc_dist.store.matrix_files import MatrixFiles, create_matrix
from cksc_dist.store.series_files import StoredSeries, open_series, write_series
from tests.small_stores import chunk_files, chunk_path, entries, files_below, flip_bit, made_series

N = 45
DATA = made_series(N, seed=1, dims=3, length=(1, 14))
EVEN = made_series(N, seed=2, dims=2, length=(6, 6), positive=True)

DTW_SETTINGS: list[dict[str, Any]] = [
    {},
    {"engine": "dtaidistance"},
    {"mode": "independent"},
    {"mode": "independent", "engine": "dtaidistance"},
    {"dtype": "float32"},
    {"dtype": "float32", "engine": "dtaidistance"},
    {"window": 0.2},
    {"window": 3, "engine": "dtaidistance"},
    {"cost": "abs", "per_length": True},
    {"engine": "naive"},
]


def reader(data: SeriesSet) -> tile_work.Read:
    def read(begin: int, end: int) -> Ragged:
        part = data[begin:end]
        return part.values, part.offsets

    return read


@pytest.fixture(scope="module")
def whole() -> dict[str, NDArray[Any]]:
    """All distances at once, by settings."""
    return {str(setting): pairwise_dtw(DATA, **setting) for setting in DTW_SETTINGS}


@st.composite
def blocks(draw: st.DrawFn) -> tuple[tuple[int, int], tuple[int, int], int | None, tuple[int, int]]:
    """Draw rows, columns (the same, or after them), a piece, and how much is kept."""
    begin = draw(st.integers(0, N - 2))
    end = draw(st.integers(begin + 1, N - 1))
    rows = (begin, end)
    columns = rows
    if draw(st.booleans()):
        first = draw(st.integers(end, N - 1))
        columns = (first, draw(st.integers(first + 1, N)))
    piece = draw(st.one_of(st.none(), st.integers(1, 20)))
    kept = draw(st.integers(0, end - begin))
    other = kept if rows == columns else draw(st.integers(0, columns[1] - columns[0]))
    return rows, columns, piece, (kept, other)


@pytest.mark.parametrize("setting", DTW_SETTINGS, ids=str)
def test_values_are_those_of_all_series_at_once(setting: dict[str, Any], whole: dict[str, NDArray[Any]]) -> None:
    """Whatever the block, the piece or the part that is kept: the same bits."""
    expected = whole[str(setting)]
    spec = DistanceSpec(**setting)

    @given(blocks())
    @settings(max_examples=25, deadline=None)
    def check(case: tuple[tuple[int, int], tuple[int, int], int | None, tuple[int, int]]) -> None:
        rows, columns, piece, kept = case
        block = expected[slice(*rows), slice(*columns)]
        old = block[: kept[0], : kept[1]].copy() if all(kept) else None
        values = compute_values(reader(DATA), rows, columns, spec, piece, old)
        assert values.dtype == spec.dtype
        np.testing.assert_array_equal(values, block)

    check()


@pytest.mark.parametrize("metric", ["chi2", "euclidean"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_values_of_vectors_do_not_depend_on_the_block(metric: str, dtype: str) -> None:
    spec = DistanceSpec(metric=metric, dtype=dtype)  # type: ignore[arg-type]
    expected = compute_values(reader(EVEN), (0, N), (0, N), spec)
    x = EVEN.values.reshape(N, 1, -1)
    y = x.reshape(1, N, -1)
    plain = ((x - y) ** 2 / (x + y)).sum(axis=2) if metric == "chi2" else np.sqrt(((x - y) ** 2).sum(axis=2))
    np.testing.assert_allclose(expected, plain, rtol=1e-6 if dtype == "float32" else 1e-12)

    @given(blocks())
    @settings(max_examples=25, deadline=None)
    def check(case: tuple[tuple[int, int], tuple[int, int], int | None, tuple[int, int]]) -> None:
        rows, columns, piece, kept = case
        block = expected[slice(*rows), slice(*columns)]
        old = block[: kept[0], : kept[1]].copy() if all(kept) else None
        np.testing.assert_array_equal(compute_values(reader(EVEN), rows, columns, spec, piece, old), block)

    check()


@pytest.mark.parametrize("setting", [{}, {"mode": "independent"}, {"metric": "euclidean"}], ids=str)
def test_only_the_chosen_dimensions_count(setting: dict[str, Any]) -> None:
    data = EVEN if "metric" in setting else DATA
    chosen = (1,) if "metric" in setting else (0, 2)
    alone = compute_values(reader(data.select_dims(chosen)), (0, 9), (9, N), DistanceSpec(**setting))
    found = compute_values(reader(data), (0, 9), (9, N), DistanceSpec(**setting, dims=chosen))
    np.testing.assert_array_equal(found, alone)


def test_what_is_kept_is_not_computed_and_only_needed_series_are_read() -> None:
    """Old values are taken as they are, even where they are wrong; of an old block no pair is computed."""
    old = np.full((10, 7), 99.0)
    values = compute_values(reader(DATA), (0, 16), (16, 32), DistanceSpec(), None, old)
    assert (values[:10, :7] == 99).all()
    np.testing.assert_array_equal(values[10:], pairwise_dtw(DATA)[10:16, 16:32])
    asked: list[tuple[int, int]] = []

    def read(begin: int, end: int) -> Ragged:
        asked.append((begin, end))
        return reader(DATA)(begin, end)

    compute_values(read, (0, 16), (16, 32), DistanceSpec(), 4)
    assert all(end - begin <= 4 for begin, end in asked)
    assert {row for span in asked for row in range(*span)} == set(range(32))


# tasks in a store


class Made:
    """A store with an empty matrix, and tasks for it."""

    def __init__(self, path: Path, data: SeriesSet = DATA, spec: DistanceSpec | None = None, edge: int = 16) -> None:
        self.path = path
        folder = Folder(path)
        write_series(folder, data)
        self.series: StoredSeries = open_series(folder)
        self.files: MatrixFiles = create_matrix(folder, (spec or DistanceSpec()).resolved(), self.series, edge)

    def task(self, *todo: Todo, piece: int | None = None) -> TileTask:
        return TileTask(str(self.path), self.files.fingerprint, self.files.grid.edge, self.series.state, todo, piece)


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return Made(tmp_path / "store")


def test_a_task_writes_chunk_mirror_and_mark(made: Made) -> None:
    tile = (0, 2)
    ((done, entry),) = run_task(made.task(Todo(tile)), worker="somebody")
    expected = pairwise_dtw(DATA)[:16, 32:]
    assert done == tile
    assert set(chunk_files(made.path)) == {"0/2", "2/0"}
    np.testing.assert_array_equal(made.files.read_tile((0, 2)), expected)
    np.testing.assert_array_equal(made.files.read_tile((2, 0)), expected.T)
    assert entries(made.path) == {tile: entry}
    now = Blocks(made.files.grid, made.series.digests)
    assert now.is_done(tile, entry)
    assert (entry.rows, entry.columns, entry.computed, entry.worker) == (16, 13, 16 * 13, "somebody")
    assert entry.checksum == checksum(expected)
    assert entry.seconds > 0


def test_a_tile_on_the_diagonal_is_one_chunk_of_half_the_pairs(made: Made) -> None:
    ((_, entry),) = run_task(made.task(Todo((2, 2))))
    assert set(chunk_files(made.path)) == {"2/2"}
    assert entry.computed == 13 * 12 // 2
    np.testing.assert_array_equal(made.files.read_tile((2, 2)), pairwise_dtw(DATA)[32:, 32:])


@pytest.mark.parametrize("piece", [None, 1, 5, 16])
def test_a_task_that_runs_again_writes_the_same_bytes(tmp_path: Path, piece: int | None) -> None:
    made = Made(tmp_path / "store")
    todo = [Todo(tile) for tile in made.files.grid.all_tiles()]
    run_task(made.task(*todo))
    before = files_below(made.path / "distances")
    shutil.rmtree(made.path / "ledger")  # otherwise its marks would tell that all is done
    run_task(made.task(*todo, piece=piece))
    assert files_below(made.path / "distances") == before


def test_kept_values_that_are_damaged_are_computed_again(tmp_path: Path) -> None:
    made = Made(tmp_path / "store")
    whole = pairwise_dtw(DATA)
    run_task(made.task(Todo((1, 2))))
    before = files_below(made.path / "distances")
    kept = checksum(whole[16:32, 32:40])
    for fault in ("none", "checksum", "bits"):
        if fault == "bits":
            flip_bit(chunk_path(made.path, 1, 2))
        shutil.rmtree(made.path / "ledger")  # otherwise its mark would tell that the tile is done
        todo = Todo((1, 2), (16, 8), kept if fault != "checksum" else kept + 1)
        ((_, entry),) = run_task(made.task(todo))
        assert entry.computed == (16 * 5 if fault == "none" else 16 * 13)
        assert files_below(made.path / "distances") == before


def test_series_that_changed_since_the_plan_are_noticed(made: Made) -> None:
    with pytest.raises(StoreError, match="the series have changed since the work was planned; run the command again"):
        run_task(replace(made.task(Todo((0, 0))), state="0" * 16))
    assert not list((made.path / "ledger").rglob("*.json"))


def test_a_distance_that_overflows_names_the_two_series(tmp_path: Path) -> None:
    series = made_series(20).series
    series[17] = np.full((5, 2), 1e200)
    made = Made(tmp_path / "store", SeriesSet.from_list(series), edge=16)
    with pytest.raises(InputError, match=r"distance of series 0 and 17 is inf: their values are too large") as error:
        run_task(made.task(Todo((0, 1))))
    assert "scale the series" in str(error.value)
    assert not (made.path / "ledger").exists()
    assert "0/1" not in chunk_files(made.path)


def test_a_task_of_a_matrix_that_is_not_there(made: Made) -> None:
    with pytest.raises(StoreError, match=r"has no matrix beef; see: cksc status"):
        run_task(replace(made.task(Todo((0, 0))), fingerprint="beef"))


def test_blocks_of_series_are_read_once_for_neighbouring_tiles(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[tuple[int, int]] = []
    plain = StoredSeries.read

    def counted(self: StoredSeries, begin: int, end: int) -> Ragged:
        reads.append((begin, end))
        return plain(self, begin, end)

    monkeypatch.setattr(StoredSeries, "read", counted)
    run_task(made.task(*(Todo(tile) for tile in made.files.grid.all_tiles())))
    assert sorted(reads) == [(0, 16), (16, 32), (32, 45)]


def test_the_cache_of_series_is_bounded(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tile_work.BlockCache()
    monkeypatch.setattr(tile_work, "_CACHE", cache)
    monkeypatch.setattr(tile_work, "CACHE_BYTES", 1)  # a block at a time
    run_task(made.task(*(Todo(tile) for tile in made.files.grid.all_tiles())))
    assert len(cache._blocks) == 1


def test_a_store_that_was_made_anew_with_other_tiles_gets_its_own(tmp_path: Path) -> None:
    """The same series at the same address may have other tiles: made by append before, at once now."""
    path = tmp_path / "store"
    for edge in (16, 32):
        made = Made(path, edge=edge)
        run_task(made.task(*(Todo(tile) for tile in made.files.grid.all_tiles())))
        found = np.block([[made.files.read_tile((i, j)) for j in range(-(-N // edge))] for i in range(-(-N // edge))])
        np.testing.assert_array_equal(found, pairwise_dtw(DATA))
        shutil.rmtree(path)
