from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cksc_dist import SeriesSet
from cksc_dist.dist import sample as sample_module
from cksc_dist.dist.distances import compute_distances
from cksc_dist.dist.ingest import ingest
from cksc_dist.dist.plan import Plan, Rate, Todo, tile_edge
from cksc_dist.dist.sample import average, sample_rate, sample_with_threads
from cksc_dist.dist.tile_work import compute_values
from cksc_dist.errors import StoreAwayError, StoreError
from cksc_dist.spec import DistanceSpec, RunSpec
from cksc_dist.store.folder import Folder
from cksc_dist.store.grid import Grid
from cksc_dist.store.series_files import StoredSeries, open_series
from tests.small_stores import chunk_files, files_below, made_series


def stored(path: Path, data: SeriesSet) -> StoredSeries:
    ingest(data, path)
    return open_series(Folder(path))


def plan_of(series: StoredSeries, edge: int = 16, **setting: Any) -> Plan:
    spec = DistanceSpec(**setting).resolved()
    return Plan(Grid(series.n, edge), series.lengths, series.dims, spec)


@pytest.mark.parametrize(
    "setting",
    [{}, {"engine": "dtaidistance"}, {"dtype": "float32"}, {"metric": "euclidean"}, {"metric": "chi2"}],
    ids=str,
)
def test_a_sample_leaves_the_store_as_it_was(tmp_path: Path, setting: dict[str, Any]) -> None:
    series = stored(tmp_path / "store", made_series(50, length=(6, 6), positive=True))
    before = files_below(tmp_path / "store")
    rate = sample_rate(series, plan_of(series, **setting))
    assert rate.cells > 1e3
    assert 0 < rate.write_seconds < 1
    assert 0 < rate.ratio < 1.5
    assert files_below(tmp_path / "store") == before


def test_a_sample_of_two_series(tmp_path: Path) -> None:
    series = stored(tmp_path / "store", made_series(2))
    assert sample_rate(series, plan_of(series)).cells > 0


def test_a_sample_of_series_that_are_all_alike(tmp_path: Path) -> None:
    """Zeros compress to next to nothing."""
    series = stored(tmp_path / "store", SeriesSet.from_list([np.ones((5, 1))] * 200))
    assert sample_rate(series, plan_of(series, 112)).ratio < 0.1


def test_the_ratio_is_that_of_the_chunks(tmp_path: Path) -> None:
    data = made_series(200)
    series = stored(tmp_path / "store", data)
    edge = tile_edge(data.lengths, 2, DistanceSpec())
    rate = sample_rate(series, plan_of(series, edge))
    compute_distances(tmp_path / "store", run=RunSpec(executor="serial"))
    stored_bytes = sum(len(content) for content in chunk_files(tmp_path / "store").values())
    assert rate.ratio == pytest.approx(stored_bytes / (200 * 200 * 8), rel=0.1)


def test_the_rate_is_of_the_cells_that_were_computed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Time stands still but for a second a look: cells a second are then cells over looks."""
    series = stored(tmp_path / "store", made_series(16))
    plan = plan_of(series)
    clock = iter(range(10**6))
    monkeypatch.setattr("time.perf_counter", lambda: float(next(clock)))
    monkeypatch.setattr(sample_module, "SAMPLE_SECONDS", 0.5)  # over after one tile
    rate = sample_rate(series, plan)
    cells = plan.cells(Todo((0, 0)))
    assert rate.cells in {cells / seconds for seconds in (1, 2, 3)}


def test_a_large_tile_is_timed_by_a_part_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_module, "SAMPLE_CELLS", 1)
    rows: list[tuple[int, int]] = []
    plain = compute_values

    def counted(read: Any, span: tuple[int, int], *rest: Any) -> Any:
        rows.append(span)
        return plain(read, span, *rest)

    monkeypatch.setattr(sample_module, "compute_values", counted)
    series = stored(tmp_path / "store", made_series(100))
    sample_rate(series, plan_of(series, 64))
    assert rows
    assert all(end - begin == 16 for begin, end in rows)


def test_the_seed_chooses_the_tiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    plain = compute_values

    def noted(read: Any, rows: Any, columns: Any, spec: Any) -> Any:
        seen.append((rows, columns))
        return plain(read, rows, columns, spec)

    monkeypatch.setattr(sample_module, "compute_values", noted)
    series = stored(tmp_path / "store", made_series(160))
    chosen = []
    for seed in (0, 0, 1):
        seen.clear()
        sample_rate(series, plan_of(series), seed)
        chosen.append(seen[0])
    assert chosen[0] == chosen[1] != chosen[2]


def test_threads_take_the_sample_at_the_same_time(tmp_path: Path) -> None:
    series = stored(tmp_path / "store", made_series(60))
    rate = sample_with_threads(series, plan_of(series), 3)
    assert rate.cells > 0
    assert 0 < rate.ratio < 1.5


def test_only_what_is_to_be_computed_is_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = set()
    plain = compute_values

    def noted(read: Any, rows: Any, columns: Any, spec: Any) -> Any:
        seen.add((rows, columns))
        return plain(read, rows, columns, spec)

    monkeypatch.setattr(sample_module, "compute_values", noted)
    series = stored(tmp_path / "store", made_series(64))
    plan = Plan(Grid(64, 16), series.lengths, 2, DistanceSpec().resolved(), [Todo((1, 3))])
    sample_rate(series, plan)
    assert seen == {((16, 32), (48, 64))}


def test_the_average_of_workers() -> None:
    assert average([Rate(1.0, 4.0, 0.5), Rate(3.0, 2.0, 1.5)]) == Rate(2.0, 3.0, 1.0)


@pytest.mark.parametrize("error", [PermissionError("read-only"), StoreError("read-only"), StoreAwayError("no keys")])
def test_a_store_that_refuses_to_be_written(error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    series = stored(tmp_path / "store", made_series(20))

    def refuse(*_: Any) -> None:
        raise error

    monkeypatch.setattr(Folder, "write", refuse)
    assert sample_rate(series, plan_of(series)).write_seconds > 0
