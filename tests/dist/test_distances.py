from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from distributed import Client, LocalCluster

from cksc_dist import SeriesSet, open_matrix, pairwise_dtw
from cksc_dist.dist import distances as distances_module
from cksc_dist.dist import forecast as forecast_module
from cksc_dist.dist.distances import compute_distances
from cksc_dist.dist.executors import SerialExecutor
from cksc_dist.dist.forecast import forecast
from cksc_dist.dist.ingest import ingest
from cksc_dist.dist.plan import BASE_BYTES
from cksc_dist.dist.progress import Progress, Running
from cksc_dist.dist.tile_work import TileTask
from cksc_dist.errors import InputError, PlanError, StoreError
from cksc_dist.spec import DistanceSpec, RunSpec
from cksc_dist.store.folder import Folder
from cksc_dist.store.ledger import Ledger
from cksc_dist.store.matrix_files import MatrixFiles, find_matrices
from tests.small_stores import (
    changed,
    chunk_files,
    chunk_path,
    entries,
    files_below,
    flip_bit,
    made_series,
    matrix_of,
    small_tiles,
)

N = 70
DATA = made_series(N)
SERIAL = RunSpec(executor="serial")
TILES = 5 * 6 // 2


@pytest.fixture(autouse=True)
def tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    small_tiles(monkeypatch)


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with series, and one with all distances: each test has a copy of its own."""
    top = tmp_path_factory.mktemp("templates")
    with pytest.MonkeyPatch.context() as patch:
        small_tiles(patch)
        for name in ("series", "done"):
            ingest(DATA, top / name)
        compute_distances(top / "done", run=SERIAL)
    return top


@pytest.fixture
def store(templates: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(templates / "series", tmp_path / "store"))


@pytest.fixture
def done(templates: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(templates / "done", tmp_path / "done"))


def below_matrices(store: Path) -> dict[str, bytes]:
    return files_below(store / "distances")


class Listener(Progress):
    """Keeps what work tells."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.runs: list[Running] = []
        self.work: list[int] = []
        self.pairs = self.tiles = self.ends = 0

    def note(self, text: str) -> None:
        self.notes.append(text)

    def begin(self, running: Running) -> None:
        self.runs.append(running)
        self.work.append(0)

    def advance(self, work: int, pairs: int, tiles: int = 1) -> None:
        self.work[-1] += work
        self.pairs += pairs
        self.tiles += tiles

    def end(self) -> None:
        self.ends += 1


# the same bytes, whoever works


def test_the_matrix_is_that_of_pairwise_dtw(done: Path) -> None:
    D = open_matrix(done)
    assert D.tile_edge == 16
    np.testing.assert_array_equal(D[:, :], pairwise_dtw(DATA))
    assert set(chunk_files(done)) == {f"{i}/{j}" for i in range(5) for j in range(5)}


@pytest.mark.parametrize(
    "run",
    [
        RunSpec(),
        RunSpec(executor="threads"),
        RunSpec(executor="threads", workers=1),
        RunSpec(executor="threads", workers=5),
        RunSpec(executor="serial", memory=BASE_BYTES + 200_000),
    ],
    ids=str,
)
def test_any_executor_writes_the_bytes_of_the_serial_one(done: Path, tmp_path: Path, run: RunSpec) -> None:
    other = tmp_path / "other"
    ingest(DATA, other)
    report = compute_distances(other, run=run)
    assert below_matrices(other) == below_matrices(done)
    assert (report.tiles, report.computed, report.pairs) == (TILES, TILES, N * (N - 1) // 2)


@pytest.mark.parametrize(
    "setting",
    [
        {"engine": "dtaidistance"},
        {"mode": "independent", "dtype": "float32"},
        {"window": 0.3, "normalise": "z"},
        {"dims": (1,)},
    ],
    ids=str,
)
def test_settings_are_those_of_pairwise_dtw(store: Path, setting: dict[str, Any]) -> None:
    compute_distances(store, DistanceSpec(**setting), RunSpec(executor="threads", workers=2))
    plain = {name: value for name, value in setting.items() if name != "dims"}
    data = DATA.select_dims(setting["dims"]) if "dims" in setting else DATA
    np.testing.assert_array_equal(matrix_of(store), pairwise_dtw(data, **plain))


@pytest.mark.parametrize("metric", ["chi2", "euclidean"])
def test_metrics_beside_dtw(tmp_path: Path, metric: str) -> None:
    data = made_series(40, length=(6, 6), positive=True)
    ingest(data, tmp_path / "store")
    compute_distances(tmp_path / "store", DistanceSpec(metric=metric))  # type: ignore[arg-type]
    x = data.values.reshape(40, 1, -1)
    y = data.values.reshape(1, 40, -1)
    plain = ((x - y) ** 2 / (x + y)).sum(axis=2) if metric == "chi2" else np.sqrt(((x - y) ** 2).sum(axis=2))
    np.testing.assert_allclose(matrix_of(tmp_path / "store"), plain, rtol=1e-12)


def test_series_that_are_all_alike_are_at_distance_zero(tmp_path: Path) -> None:
    ingest(SeriesSet.from_list([np.ones((5, 2))] * 40), tmp_path / "store")
    assert compute_distances(tmp_path / "store").pairs == 780
    assert not matrix_of(tmp_path / "store").any()
    assert compute_distances(tmp_path / "store").computed == 0


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(
        n_workers=1, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0", host="127.0.0.1"
    ) as started:
        yield started


@pytest.mark.slow
def test_dask_writes_the_bytes_of_the_serial_executor_with_any_number_of_workers(
    done: Path, tmp_path: Path, cluster: LocalCluster
) -> None:
    for workers in (1, 2, 4):
        cluster.scale(workers)
        with Client(cluster, set_as_default=False) as client:
            client.wait_for_workers(workers, timeout=60)
        other = tmp_path / f"with {workers}"
        ingest(DATA, other)
        heard = Listener()
        report = compute_distances(other, run=RunSpec(scheduler=cluster.scheduler_address), progress=heard)
        assert below_matrices(other) == below_matrices(done)
        assert report.executor == f"dask (on {cluster.scheduler_address})"
        assert heard.runs[-1].workers == workers
        again = compute_distances(other, run=RunSpec(scheduler=cluster.scheduler_address))
        assert (again.computed, again.executor) == (0, "none needed")


def test_a_client_of_the_users_own_stays_open(store: Path) -> None:
    with (
        LocalCluster(n_workers=1, processes=False, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        report = compute_distances(store, client=client)
        assert client.submit(lambda: 3).result() == 3
    assert report.executor.startswith("dask")
    np.testing.assert_array_equal(matrix_of(store), pairwise_dtw(DATA))


# resuming


def test_a_second_run_computes_nothing_and_changes_no_byte(done: Path) -> None:
    before = files_below(done)
    heard = Listener()
    report = compute_distances(done, progress=heard)
    assert (report.computed, report.pairs, report.rewritten, report.repaired) == (0, 0, 0, {})
    assert report.need is None
    assert [run.text for run in heard.runs] == ["reading what is done"]
    assert heard.tiles == TILES
    assert files_below(done) == before


def test_trust_reads_nothing_again(done: Path) -> None:
    heard = Listener()
    assert compute_distances(done, run=RunSpec(trust=True), progress=heard).computed == 0
    assert heard.runs == []


class Stop(Exception):
    """Stands for a process that is killed."""


def stopped_after(monkeypatch: pytest.MonkeyPatch, store: Path, tiles: int, step: str = "mark") -> None:
    """Run until so many tiles are marked, then stop: before the next mark, or before the chunks of the next."""
    home: Any = Ledger if step == "mark" else MatrixFiles
    plain: Callable[..., None] = getattr(home, "mark" if step == "mark" else "write_tile")
    count = 0

    def counted(self: Any, *arguments: Any) -> None:
        nonlocal count
        count += 1
        if count > tiles:
            raise Stop
        plain(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(home, "mark" if step == "mark" else "write_tile", counted)
        with pytest.raises(Stop):
            compute_distances(store, run=SERIAL)


@pytest.mark.parametrize("step", ["mark", "chunk"])
def test_a_run_that_was_cut_off_goes_on_with_what_is_missing(
    done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    cut = tmp_path / "cut"
    ingest(DATA, cut)
    stopped_after(monkeypatch, cut, 4, step)
    first = entries(cut)
    assert len(first) == 4
    report = compute_distances(cut)
    assert report.computed == TILES - 4
    after = entries(cut)
    assert {tile: after[tile] for tile in first} == first  # with time and worker: not computed again
    assert report.pairs == N * (N - 1) // 2 - sum(entry.computed for entry in first.values())
    assert below_matrices(cut) == below_matrices(done)


def test_a_run_that_was_cut_off_while_the_matrix_was_made(
    done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before its axes, in the midst of them, and before its metadata is recorded."""
    for step in range(4):
        cut = tmp_path / f"cut {step}"
        ingest(DATA, cut)
        name = "write_array" if step < 3 else "record_metadata"
        with monkeypatch.context() as patch:
            from cksc_dist.store import matrix_files

            plain = getattr(matrix_files, name)
            calls = iter(range(10))

            def stop(*arguments: Any, plain: Any = plain, calls: Any = calls, step: int = step) -> None:
                if step == 3 or next(calls) == step:
                    raise Stop
                plain(*arguments)

            patch.setattr(matrix_files, name, stop)
            with pytest.raises(Stop):
                compute_distances(cut, run=SERIAL)
        assert compute_distances(cut, run=SERIAL).computed == TILES
        assert below_matrices(cut) == below_matrices(done)


def test_each_setting_has_a_matrix_of_its_own(done: Path) -> None:
    before = below_matrices(done)
    ledger = entries(done)
    specs = [
        DistanceSpec(window=0.5),
        DistanceSpec(dtype="float32"),
        DistanceSpec(engine="dtaidistance"),
        DistanceSpec(dims=(0,)),
    ]
    names = {open_matrix(done).fingerprint}
    for spec in specs:
        report = compute_distances(done, spec)
        assert report.computed == report.tiles > 0
        names.add(report.fingerprint)
    assert len(names) == len(specs) + 1
    assert {name: content for name, content in below_matrices(done).items() if name in before} == before
    first = min(names, key=lambda name: not any(key.startswith(name) for key in before))
    assert entries(done, first) == ledger


def test_auto_and_the_engine_it_stands_for_share_a_matrix(done: Path) -> None:
    assert compute_distances(done, DistanceSpec(engine="simd")).computed == 0


@pytest.mark.parametrize("row", [0, 20, 69])
def test_changed_data_computes_the_tiles_of_changed_series_alone(done: Path, row: int) -> None:
    before, block = entries(done), row // 16
    data = changed(DATA, row)
    assert ingest(data, done, replace=True)
    report = compute_distances(done)
    assert report.computed == 5
    after = entries(done)
    again = {tile for tile in after if after[tile] != before[tile]}
    assert again == {tile for tile in before if block in tile}
    np.testing.assert_array_equal(matrix_of(done), pairwise_dtw(data))


def test_replaced_series_hide_the_old_matrix_until_it_is_computed(done: Path) -> None:
    ingest(changed(DATA, 3), done, replace=True)
    with pytest.raises(StoreError, match="is not finished, 5 of 15 tiles are missing"):
        open_matrix(done)


@pytest.mark.parametrize("trust", [False, True])
def test_data_that_came_back_does_not_bring_back_tiles_of_others(
    done: Path, monkeypatch: pytest.MonkeyPatch, trust: bool
) -> None:
    """A run on other data was cut off between a chunk and its mark: the ledger still has the old entry."""
    ingest(changed(DATA, 3), done, replace=True)
    stopped_after(monkeypatch, done, 0)
    ingest(DATA, done, replace=True)
    compute_distances(done, run=RunSpec(executor="serial", trust=trust))
    np.testing.assert_array_equal(matrix_of(done), pairwise_dtw(DATA))


def test_an_open_matrix_never_shows_tiles_of_other_data(done: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ingest(changed(DATA, 3), done, replace=True)
    stopped_after(monkeypatch, done, 0)
    ingest(DATA, done, replace=True)
    try:
        found = matrix_of(done)
    except StoreError:  # not finished: that is the truth as well
        return
    np.testing.assert_array_equal(found, pairwise_dtw(DATA))


@pytest.mark.parametrize("n", [65, 40, 2])
def test_fewer_series_than_before(done: Path, n: int) -> None:
    data = DATA[:n]
    ingest(data, done, replace=True)
    compute_distances(done)
    np.testing.assert_array_equal(matrix_of(done), pairwise_dtw(data))
    ingest(DATA, done, replace=True)
    compute_distances(done)
    np.testing.assert_array_equal(matrix_of(done), pairwise_dtw(DATA))


def test_other_labels_reach_the_matrix_without_computing(done: Path) -> None:
    data = SeriesSet.from_list(DATA.series, ["run"] * N, [f"new {i}" for i in range(N)])
    ingest(data, done, replace=True)
    assert compute_distances(done).computed == 0
    axis = open_matrix(done).to_xarray()
    assert axis["label"].values.tolist() == ["run"] * N
    assert axis["col"].values[3] == "new 3"


# damage


def restored(store: Path, before: dict[str, bytes], tiles: set[tuple[int, int]], why: str) -> None:
    """Run again, and see that just these tiles are mended."""
    heard = Listener()
    old = entries(store)
    report = compute_distances(store, progress=heard)
    assert set(report.repaired) == tiles
    assert all(why in fault for fault in report.repaired.values())
    assert report.computed == len(tiles)
    assert below_matrices(store) == before
    assert {tile for tile, entry in entries(store).items() if entry != old.get(tile)} == tiles
    assert [note for note in heard.notes if "computed again" in note and why in note]


@pytest.mark.parametrize(
    ("chunk", "at"), [((0, 0), 0.5), ((1, 3), 0.0), ((3, 1), 0.5), ((2, 4), 1.0), ((4, 2), 0.5), ((4, 4), 0.5)]
)
def test_a_flipped_bit_is_found_and_mended(done: Path, chunk: tuple[int, int], at: float) -> None:
    before = below_matrices(done)
    flip_bit(chunk_path(done, *chunk), at)
    row, column = sorted(chunk)
    restored(done, before, {(row, column)}, f"chunk {chunk}")


@pytest.mark.parametrize(
    ("chunk", "size"), [((1, 3), 0), ((1, 3), 3), ((1, 3), 4), ((1, 3), 8), ((1, 3), 500), ((4, 4), 20)]
)
def test_a_truncated_chunk_is_found_and_mended(done: Path, chunk: tuple[int, int], size: int) -> None:
    before = below_matrices(done)
    path = chunk_path(done, *chunk)
    path.write_bytes(path.read_bytes()[:size])
    restored(done, before, {(chunk[0], chunk[1])}, f"chunk {chunk}")


def test_other_values_with_a_good_checksum_of_their_own_are_found(done: Path) -> None:
    before = below_matrices(done)
    files = find_matrices(Folder(done))
    next(iter(files.values())).array[3, 60] += 1e-9
    restored(done, before, {(0, 3)}, "holds other values than were written")


@pytest.mark.parametrize(("chunk", "trust"), [((0, 0), False), ((1, 3), True), ((3, 1), False), ((4, 4), True)])
def test_a_missing_chunk_is_computed_again(done: Path, chunk: tuple[int, int], trust: bool) -> None:
    before = below_matrices(done)
    chunk_path(done, *chunk).unlink()
    report = compute_distances(done, run=RunSpec(trust=trust))
    assert report.computed == 1
    assert below_matrices(done) == before


def test_several_damages_at_once(done: Path) -> None:
    before = below_matrices(done)
    flip_bit(chunk_path(done, 0, 1))
    flip_bit(chunk_path(done, 1, 0))
    chunk_path(done, 2, 2).write_bytes(b"")
    chunk_path(done, 4, 4).unlink()
    report = compute_distances(done)
    assert set(report.repaired) == {(0, 1), (2, 2)}
    assert report.computed == 3
    assert below_matrices(done) == before


def test_half_written_files_are_swept(done: Path) -> None:
    before = files_below(done)
    for name in (
        "distances/zarr.ab.partial",
        "ledger/1.json.ab.partial",
        "series/values/c/0/0.ab.partial",
        "y.partial",
    ):
        (done / name).write_bytes(b"half")
    chunk = chunk_path(done, 2, 3)
    chunk.with_name("3.abcdef.partial").write_bytes(b"half")
    heard = Listener()
    assert compute_distances(done, progress=heard).computed == 0
    assert heard.notes == ["removed 5 unfinished files of a run that was killed"]
    assert files_below(done) == before


@pytest.mark.parametrize("content", [b"", b"{", b'{"value": {}}', b"\xff\xfe"])
def test_a_damaged_mark_is_no_mark(store: Path, monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(Ledger, "collect", lambda self: None)  # a client that was killed leaves the marks
    compute_distances(store, run=SERIAL)
    monkeypatch.undo()
    before = below_matrices(store)
    (mark,) = (store / "ledger").rglob("1.2.json")
    mark.write_bytes(content)
    report = compute_distances(store)
    assert report.computed == 1
    assert set(entries(store)) == {(i, j) for i in range(5) for j in range(i, 5)}
    assert not list((store / "ledger").rglob("done/*"))
    assert below_matrices(store) == before


def test_a_damaged_ledger_is_named_and_can_be_removed(done: Path) -> None:
    before = below_matrices(done)
    (ledger,) = (done / "ledger").rglob("tiles.json")
    flip_bit(ledger)
    with pytest.raises(StoreError, match=r"tiles.json is damaged: .*remove it and run the command again"):
        compute_distances(done)
    ledger.unlink()
    assert compute_distances(done).computed == TILES
    assert below_matrices(done) == before


@pytest.mark.parametrize("name", ["row", "col", "label"])
@pytest.mark.parametrize("fault", ["flipped", "gone"])
def test_a_damaged_axis_is_written_again(done: Path, name: str, fault: str) -> None:
    """The axes are copies of what the series have: nobody needs to be told, and no tile is computed."""
    before = below_matrices(done)
    (axis,) = (done / "distances").glob(f"*/{name}")
    if fault == "gone":
        shutil.rmtree(axis)
    else:
        flip_bit(axis / "c" / "0")
    assert compute_distances(done).computed == 0
    assert below_matrices(done) == before


def test_suspects_are_computed_again(done: Path) -> None:
    before = entries(done)
    report = compute_distances(done, suspects=[(0, 4), (2, 2)])
    assert report.computed == 2
    after = entries(done)
    assert {tile for tile in after if after[tile] != before[tile]} == {(0, 4), (2, 2)}


# what cannot be done is refused before anything is written


def refused(store: Path, words: str, spec: DistanceSpec, kind: type[Exception] = InputError) -> None:
    before = files_below(store)
    with pytest.raises(kind, match=words):
        compute_distances(store, spec)
    assert files_below(store) == before
    with pytest.raises(kind, match=words):
        forecast(store, spec)
    assert files_below(store) == before


def test_a_constant_dimension_cannot_be_normalised(tmp_path: Path) -> None:
    series = DATA.series
    series[61] = series[61].copy()
    series[61][:, 1] = 4.0
    ingest(SeriesSet.from_list(series), tmp_path / "store")
    refused(
        tmp_path / "store",
        r"series\[61\], dim 1 has zero variance and cannot be z-normalised; remove that dimension",
        DistanceSpec(normalise="z"),
    )
    # the dimension that does change can be
    assert compute_distances(tmp_path / "store", DistanceSpec(normalise="z", dims=(0,))).computed


def test_unequal_lengths_are_no_vectors(store: Path) -> None:
    odd = int(np.flatnonzero(DATA.lengths != DATA.lengths[0])[0])
    words = f"needs series of one length, but series {odd} has {DATA.lengths[odd]} frames"
    refused(store, words, DistanceSpec(metric="euclidean"))


def test_chi_square_needs_bins(tmp_path: Path) -> None:
    series = made_series(20, length=(5, 5), positive=True).series
    series[11] = -series[11]
    ingest(SeriesSet.from_list(series), tmp_path / "store")
    refused(
        tmp_path / "store", r"series 11 has -\S+ in dimension 0; chi-square needs bins", DistanceSpec(metric="chi2")
    )


def test_a_dimension_that_is_not_there(store: Path) -> None:
    refused(store, "there is no dimension 2; the series have 2, from 0 on", DistanceSpec(dims=(0, 2)))


def test_values_beyond_float32(tmp_path: Path) -> None:
    series = DATA.series
    series[33] = series[33] * 1e40
    ingest(SeriesSet.from_list(series), tmp_path / "store")
    refused(tmp_path / "store", r"series\[33\] has a value beyond float32", DistanceSpec(dtype="float32"))


def test_one_series_has_no_distances(tmp_path: Path) -> None:
    ingest(DATA[:1], tmp_path / "store")
    refused(tmp_path / "store", "has one series; distances need two at least", DistanceSpec())


def test_what_an_engine_cannot_do(store: Path) -> None:
    refused(store, "has no cost='abs' for several dimensions", DistanceSpec(engine="dtaidistance", cost="abs"))


def test_an_external_matrix_cannot_be_computed(store: Path) -> None:
    refused(store, "cksc ingest --distances FILE", DistanceSpec(metric="external"))


def test_too_little_memory(store: Path) -> None:
    before = files_below(store)
    for run in (RunSpec(memory=2**20), RunSpec(memory=2**20, executor="dask")):
        with pytest.raises(PlanError, match=r"a worker needs \d+ MiB, but may use 1 MiB; start fewer workers"):
            compute_distances(store, run=run)
        with pytest.raises(PlanError, match="may use 1 MiB"):
            forecast(store, run=run)
    assert files_below(store) == before


def test_too_little_disk(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = files_below(store)
    monkeypatch.setattr(Folder, "free_bytes", lambda self: 20_000)
    words = r"the matrix needs 0.0 GB on disk, but .*store has 0.0 GB left; choose another place"
    for action in (compute_distances, forecast):
        with pytest.raises(PlanError, match=f"{words}; --dtype float32 halves it"):
            action(store)
        assert files_below(store) == before
    monkeypatch.setattr(Folder, "free_bytes", lambda self: 2_000)
    with pytest.raises(PlanError, match=words) as error:
        forecast(store, DistanceSpec(dtype="float32"))
    assert "float32" not in str(error.value)


def test_what_is_there_already_needs_no_room(done: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chunk_path(done, 0, 0).unlink()
    monkeypatch.setattr(Folder, "free_bytes", lambda self: 10_000)
    assert compute_distances(done).computed == 1


@pytest.mark.parametrize("action", [compute_distances, forecast])
def test_no_store(tmp_path: Path, action: Callable[[Path], object]) -> None:
    with pytest.raises(StoreError, match=r"nowhere is no store; make one with: cksc ingest SOURCE"):
        action(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()
    file = tmp_path / "file"
    file.write_text("hello")
    with pytest.raises(StoreError, match="is a file; a store is a folder: choose another place"):
        action(file)
    assert file.read_text() == "hello"
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "letter.txt").write_text("dear")
    with pytest.raises(StoreError, match="is something else than a store of this package"):
        action(folder)
    assert files_below(folder) == {"letter.txt": b"dear"}


@pytest.mark.parametrize("action", [compute_distances, forecast])
def test_a_store_of_another_version(store: Path, action: Callable[[Path], object]) -> None:
    zarr.open_group(store, mode="r+").attrs["version"] = 7
    before = files_below(store)
    with pytest.raises(StoreError, match="has layout version 7, but this release reads version 1; install the release"):
        action(store)
    assert files_below(store) == before


@pytest.mark.parametrize("action", [compute_distances, forecast])
def test_a_store_without_series(store: Path, action: Callable[[Path], object]) -> None:
    shutil.rmtree(store / "series")
    (store / "metadata.json").unlink()  # never written, rather than lost
    with pytest.raises(StoreError, match="has no series, or ingesting them was cut off; run cksc ingest again"):
        action(store)


# memory and executors


def pieces_of(store: Path, run: RunSpec, monkeypatch: pytest.MonkeyPatch) -> set[int | None]:
    """Return the pieces that the tasks of a run were told to take."""
    found: set[int | None] = set()
    plain = SerialExecutor.run

    def run_tasks(self: SerialExecutor, tasks: list[TileTask]) -> Any:
        found.update(task.piece for task in tasks)
        return plain(self, tasks)

    monkeypatch.setattr(SerialExecutor, "run", run_tasks)
    compute_distances(store, run=run)
    return found


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, int]:
    """A store whose tiles have 48 rows, and the memory that pieces of 16 need."""
    monkeypatch.undo()
    path = tmp_path / "large"
    ingest(made_series(48, dims=20, length=(50, 50)), path)
    found = forecast(path, run=SERIAL)
    assert found.plan.grid.edge == 48
    return path, found.plan._memory(16)


def test_tasks_take_pieces_where_memory_is_short(large: tuple[Path, int], monkeypatch: pytest.MonkeyPatch) -> None:
    path, memory = large
    assert pieces_of(path, RunSpec(executor="serial", memory=memory), monkeypatch) == {16}
    data = made_series(48, dims=20, length=(50, 50))
    np.testing.assert_array_equal(matrix_of(path), pairwise_dtw(data))


def test_tasks_take_pieces_where_the_machine_is_small(large: tuple[Path, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without --memory, a worker has its share of the machine's: what the forecast says, the tasks must keep."""
    path, memory = large
    monkeypatch.setattr(forecast_module, "memory", lambda: memory)
    assert forecast(path, run=SERIAL).need.memory <= memory
    assert pieces_of(path, SERIAL, monkeypatch) == {16}


def test_little_work_is_done_by_threads_and_says_why(store: Path) -> None:
    heard = Listener()
    report = compute_distances(store, run=RunSpec(workers=3), progress=heard)
    assert report.executor.startswith("threads (")
    assert report.executor.endswith("s are expected, less than a cluster is worth)")
    (running,) = heard.runs
    assert (running.executor, running.workers, running.dashboard) == (report.executor, 3, "")


def test_much_work_is_done_by_a_cluster_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    assert forecast_module.executor_kind(RunSpec(), 59.0) == (
        "threads",
        "59.0 s are expected, less than a cluster is worth",
    )
    assert forecast_module.executor_kind(RunSpec(), 4000.0) == (
        "dask",
        "4,000 s are expected; on a cluster started on this machine",
    )
    assert forecast_module.executor_kind(RunSpec(scheduler="tcp://head:1"), 0.1) == ("dask", "on tcp://head:1")
    assert forecast_module.executor_kind(RunSpec(executor="serial"), 4000.0) == ("serial", "as asked")


def test_progress_hears_all_the_work(store: Path) -> None:
    heard = Listener()
    report = compute_distances(store, run=SERIAL, progress=heard)
    (running,) = heard.runs
    assert (running.text, running.tiles, running.workers) == ("distances", TILES, 1)
    assert heard.work == [running.total]
    assert (heard.pairs, heard.tiles, heard.ends) == (report.pairs, TILES, 1)


def test_progress_ends_when_work_fails(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heard = Listener()
    monkeypatch.setattr(Ledger, "mark", lambda *_: (_ for _ in ()).throw(Stop()))
    with pytest.raises(Stop):
        compute_distances(store, run=SERIAL, progress=heard)
    assert heard.ends == 1
    assert not (store / "lock.json").exists()


def test_marks_are_collected_now_and_then(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distances_module, "COLLECT_SECONDS", -1.0)
    seen: list[int] = []
    plain = Ledger.collect

    def collect(self: Ledger) -> None:
        plain(self)
        seen.append(len(Ledger(Folder(store), self._top.split("/")[1]).load().entries))

    monkeypatch.setattr(Ledger, "collect", collect)
    compute_distances(store, run=SERIAL)
    assert seen[-1] == TILES
    assert seen == sorted(seen)


# the forecast


def test_the_forecast_tells_what_the_run_does(store: Path) -> None:
    before = files_below(store)
    found = forecast(store, run=RunSpec(workers=2))
    assert files_below(store) == before
    report = compute_distances(store, run=RunSpec(workers=2))
    assert report.need is not None
    assert (found.need.tiles, found.need.pairs) == (report.computed, report.pairs)
    assert found.need.cells == report.need.cells
    assert found.need.tasks >= 1
    assert found.workers == 2
    assert found.executor.startswith("threads (")


def test_the_forecast_of_disk_is_within_a_tenth(tmp_path: Path) -> None:
    data = made_series(300, length=(5, 9))
    ingest(data, tmp_path / "store")
    found = forecast(tmp_path / "store", run=SERIAL)
    compute_distances(tmp_path / "store", run=SERIAL)
    stored = sum(len(content) for content in chunk_files(tmp_path / "store").values())
    assert found.need.disk == pytest.approx(stored, rel=0.1)


def test_the_forecast_of_what_is_left(done: Path) -> None:
    nothing = forecast(done)
    assert (nothing.need.tiles, nothing.need.pairs, nothing.executor) == (0, 0, "none needed")
    assert nothing.need.disk == sum(len(content) for content in chunk_files(done).values())
    chunk_path(done, 1, 2).unlink()
    assert forecast(done).need.pairs == 16 * 16


def test_what_was_forecast_is_not_computed(store: Path) -> None:
    forecast(store)
    assert not (store / "distances").exists()


def test_a_report_tells_how_long_the_work_took(store: Path) -> None:
    begin = time.perf_counter()
    report = compute_distances(store)
    assert 0 < report.seconds < time.perf_counter() - begin
