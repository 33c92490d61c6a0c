"""A store whose series or distances another command replaces while they are read: never a number of a mixture."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cksc_dist import open_matrix, pairwise_dtw
from cksc_dist.dist import verify as verify_module
from cksc_dist.dist.distances import compute_distances
from cksc_dist.dist.ingest import append, ingest, ingest_distances
from cksc_dist.dist.verify import verify
from cksc_dist.errors import StoreError
from cksc_dist.evaluate import fits as fits_module
from cksc_dist.evaluate import protocol as protocol_module
from cksc_dist.evaluate.extras import example_model, sweep
from cksc_dist.evaluate.protocol import Protocol, evaluate
from cksc_dist.evaluate.report import write_joint_report, write_report
from cksc_dist.evaluate.results import find_evaluations
from cksc_dist.models.training import held_out_accuracy, train
from cksc_dist.series import SeriesSet
from cksc_dist.spec import ModelSpec, RunSpec
from cksc_dist.store.folder import Folder
from cksc_dist.store.matrix import DistanceMatrix
from cksc_dist.store.series_files import StoredSeries, open_series
from tests.small_stores import files_below, flip_bit, made_series, small_tiles

SERIAL = RunSpec(executor="serial")
N = 40
DATA = made_series(N)
OTHER = SeriesSet(-3.0 * DATA.values[::-1], DATA.offsets, DATA.labels, DATA.ids, DATA.name)
"""The same names, labels and lengths."""
RELABELLED = SeriesSet(DATA.values, DATA.offsets, DATA.labels[::-1], DATA.ids, DATA.name)
UNTOLD = ("a damaged ledger", "no ledger")
CHANGED = "another command has changed series or distances meanwhile|have changed since the training began"


def put(store: Path, data: SeriesSet, ready: bool) -> None:
    """Put series and their distances into a store, in the place of others."""
    if ready:
        distances = np.asarray(pairwise_dtw(data))
        ingest_distances(distances, store, labels=data.labels, ids=data.ids, replace=True)
    else:
        ingest(data, store, replace=True)
        compute_distances(store, run=SERIAL)


@pytest.fixture(autouse=True)
def many_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    small_tiles(monkeypatch)


@pytest.fixture(params=[False, True], ids=["computed", "ready"])
def ready(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def store(tmp_path: Path, ready: bool) -> Path:
    put(tmp_path / "s.zarr", DATA, ready)
    return tmp_path / "s.zarr"


READINGS: dict[str, Callable[[DistanceMatrix], object]] = {
    "an entry": lambda matrix: matrix[0, 1],
    "rows": lambda matrix: matrix[[3, 5]],
    "all": np.asarray,
    "a tile": lambda matrix: matrix.tile((0, 0)),
    "xarray": lambda matrix: matrix.to_xarray(),
    "a kernel": lambda matrix: matrix.kernel(range(10)),
}


@pytest.mark.parametrize("reading", READINGS)
def test_an_open_matrix_is_never_that_of_others(reading: str, store: Path, ready: bool) -> None:
    matrix = open_matrix(store)
    READINGS[reading](matrix)
    put(store, OTHER, ready)
    with pytest.raises(StoreError, match=CHANGED):
        READINGS[reading](matrix)
    READINGS[reading](open_matrix(store))
    put(store, DATA, ready)
    READINGS[reading](matrix)


def test_series_that_come_back_without_their_distances_have_none(tmp_path: Path) -> None:
    store = tmp_path / "s.zarr"
    put(store, DATA, False)
    matrix, read = open_matrix(store), open_matrix(store)
    right = read[:, :]
    put(store, OTHER, False)
    ingest(DATA, store, replace=True)  # and the tiles are still those of the others
    for each in (matrix, read):
        with pytest.raises(StoreError, match=CHANGED):
            each[0, 1]
    compute_distances(store, run=SERIAL)
    for each in (matrix, read):
        np.testing.assert_array_equal(each[:, :], right)


def test_what_was_read_while_others_had_the_place_is_read_again(
    store: Path, ready: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    matrix = open_matrix(store)
    right, real, times = matrix[:, :], DistanceMatrix._checked, []

    def others_for_a_moment(self: DistanceMatrix, read: Callable[[], Any]) -> Any:
        def meanwhile() -> Any:
            times.append(1)
            if len(times) > 1:
                return read()
            put(store, OTHER, ready)
            values = read()
            put(store, DATA, ready)
            return values

        return real(self, meanwhile)

    monkeypatch.setattr(DistanceMatrix, "_checked", others_for_a_moment)
    np.testing.assert_array_equal(matrix[:, :], right)
    assert len(times) == 2


def test_a_matrix_that_is_written_all_the_time_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = tmp_path / "s.zarr"
    put(store, DATA, False)
    matrix, real = open_matrix(store), DistanceMatrix._checked

    def busy(self: DistanceMatrix, read: Callable[[], Any]) -> Any:
        def meanwhile() -> Any:
            shutil.rmtree(store / "ledger")
            compute_distances(store, run=SERIAL)
            return read()

        return real(self, meanwhile)

    monkeypatch.setattr(DistanceMatrix, "_checked", busy)
    with pytest.raises(StoreError, match=CHANGED):
        matrix[0:1, 0:1]


def test_threads_of_one_matrix_do_not_vouch_for_each_other(
    store: Path, ready: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One reads distances of others; they go, and another thread asks first, and finds that all is well."""
    matrix = open_matrix(store)
    right, real, times = matrix[:, :], DistanceMatrix._checked, []

    def asked_by_another(self: DistanceMatrix, read: Callable[[], Any]) -> Any:
        def meanwhile() -> Any:
            times.append(1)
            if len(times) > 1:
                return read()
            put(store, OTHER, ready)
            values = read()
            put(store, DATA, ready)
            np.testing.assert_array_equal(real(matrix, lambda: matrix._files.array[:16, :16]), right[:16, :16])
            return values

        return real(self, meanwhile)

    monkeypatch.setattr(DistanceMatrix, "_checked", asked_by_another)
    np.testing.assert_array_equal(matrix[:, :], right)
    assert len(times) == 2


FEW = SeriesSet.from_list(DATA.series[:32], DATA.labels[:32], DATA.ids[:32].tolist())
"""The series of whole tiles."""


def test_what_was_open_while_fewer_had_the_place_is_opened_anew(store: Path, ready: bool) -> None:
    matrix, fresh, right = open_matrix(store), open_matrix(store), open_matrix(store)[:, :]
    for each in (matrix, fresh):
        put(store, FEW, ready)
        with pytest.raises(StoreError, match=CHANGED):
            each[:, :]
        put(store, DATA, ready)
        np.testing.assert_array_equal(each[:, :], right)
        np.testing.assert_array_equal(each.tile((0, 2)), right[:16, 32:])
        np.testing.assert_array_equal(each[[30, 35]], right[[30, 35]])


def test_series_that_were_away_are_not_called_damaged(tmp_path: Path) -> None:
    store = tmp_path / "s.zarr"
    ingest(DATA, store)
    series = open_series(Folder(store))
    ingest(FEW, store, replace=True)
    with pytest.raises(StoreError, match="another command has changed the series meanwhile"):
        series.read(35, 36)
    ingest(DATA, store, replace=True)
    np.testing.assert_array_equal(series.read(35, 36)[0], DATA.series[35])


def test_tiles_of_series_that_stay_are_kept_where_most_go(tmp_path: Path) -> None:
    store = tmp_path / "s.zarr"
    put(store, DATA, False)
    ingest(FEW, store, replace=True)
    report = compute_distances(store, run=SERIAL)
    assert report.pairs == 0
    np.testing.assert_array_equal(open_matrix(store)[:, :], pairwise_dtw(FEW))
    assert {file.parent.name for file in store.glob("distances/*/distance/c/*/*")} == {"0", "1"}
    put(store, DATA, False)
    np.testing.assert_array_equal(open_matrix(store)[:, :], pairwise_dtw(DATA))


def test_a_matrix_of_fewer_series_or_none_is_told_in_words(tmp_path: Path) -> None:
    store = tmp_path / "s.zarr"
    put(store, DATA, False)
    matrix, other = open_matrix(store), open_matrix(store)
    put(store, FEW, False)
    with pytest.raises(StoreError, match=CHANGED):
        matrix[[30, 35]]
    put(store, DATA, False)
    shutil.rmtree(next(store.glob("distances/*/distance")))
    with pytest.raises(StoreError, match="is damaged"):
        other[[3, 5]]


def test_verify_takes_nobody_else_s_series_for_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = tmp_path / "s.zarr"
    put(store, DATA, False)
    real = StoredSeries.changed

    def replaced_meanwhile(self: StoredSeries) -> list[int]:
        put(store, OTHER, False)
        return real(self)

    monkeypatch.setattr(StoredSeries, "changed", replaced_meanwhile)
    with pytest.raises(StoreError, match="another command has changed the series meanwhile; run this one again"):
        verify(store)


def test_verify_takes_nobody_else_s_distances_for_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = tmp_path / "s.zarr"
    put(store, DATA, True)
    real = verify_module.find_damage

    def replaced_meanwhile(*arguments: Any) -> Any:
        put(store, OTHER, True)
        return real(*arguments)

    monkeypatch.setattr(verify_module, "find_damage", replaced_meanwhile)
    with pytest.raises(StoreError, match="another command has changed distances meanwhile; run this one again"):
        verify(store)
    monkeypatch.undo()
    assert all(verdict.ok for verdict in verify(store)[1])


def test_series_without_distances_yet_are_others_as_well(tmp_path: Path) -> None:
    store = tmp_path / "s.zarr"
    put(store, DATA, False)
    matrix, series = open_matrix(store), open_series(Folder(store))
    ingest(OTHER, store, replace=True)
    with pytest.raises(StoreError, match=CHANGED):
        matrix[0, 1]
    with pytest.raises(StoreError, match=r"another command has changed the series meanwhile; run this one again"):
        series.load()


def test_other_labels_change_no_distance(tmp_path: Path) -> None:
    store = tmp_path / "s.zarr"
    put(store, DATA, False)
    matrix = open_matrix(store)
    before = matrix[:, :]
    put(store, RELABELLED, False)
    np.testing.assert_array_equal(matrix[:, :], before)
    with pytest.raises(StoreError, match="another command has changed the series meanwhile"):
        _ = matrix.labels  # those that are read now are others than those of its time
    assert open_matrix(store).labels.tolist() == DATA.labels[::-1].tolist()


def test_series_that_are_added_change_nothing(tmp_path: Path) -> None:
    store = tmp_path / "s.zarr"
    put(store, DATA, False)
    matrix = open_matrix(store)
    before = matrix[:, :]
    more = made_series(N + 5)
    append(store, SeriesSet.from_list(more.series[N:], more.labels[N:], more.ids[N:].tolist()), SERIAL)
    np.testing.assert_array_equal(matrix[:, :], before)
    lazy = matrix.to_xarray()
    np.testing.assert_array_equal(lazy.values, before)
    assert lazy["row"].values.tolist() == DATA.ids.tolist()
    assert matrix.to_dask().shape == (N, N)
    assert len(open_matrix(store)) == N + 5


@pytest.mark.filterwarnings("ignore:J still changed")
@pytest.mark.parametrize("place", ["memory", "disk"])
@pytest.mark.parametrize("at", [0, 6])
def test_training_keeps_nothing_of_a_store_that_was_replaced_meanwhile(
    place: Any, at: int, store: Path, ready: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = ModelSpec(sparsity=2, max_iter=3)
    real, readings = DistanceMatrix._checked, []

    def replaced_at_one(self: DistanceMatrix, read: Callable[[], Any]) -> Any:
        def meanwhile() -> Any:
            readings.append(1)
            if len(readings) == at + 1:
                put(store, OTHER, ready)
            return read()

        return real(self, meanwhile)

    with monkeypatch.context() as patched:
        patched.setattr(DistanceMatrix, "_checked", replaced_at_one)
        with pytest.raises(StoreError, match=CHANGED):
            train(store, tmp_path / "m", spec=spec, place=place, run=RunSpec(executor="serial", workers=1))
    check_that_nothing_was_kept(store, tmp_path / "m", spec, place, ready)


@pytest.mark.filterwarnings("ignore:J still changed")
@pytest.mark.parametrize("place", ["memory", "disk"])
def test_training_keeps_nothing_of_others_who_had_the_place_for_a_while(
    place: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, store = ModelSpec(sparsity=2, max_iter=3), tmp_path / "s.zarr"
    put(store, DATA, False)
    real, readings = DistanceMatrix._checked, []

    def replaced_at_one(self: DistanceMatrix, read: Callable[[], Any]) -> Any:
        readings.append(1)
        if len(readings) == 3:
            put(store, OTHER, False)
            ingest(DATA, store, replace=True)
        return real(self, read)

    with monkeypatch.context() as patched:
        patched.setattr(DistanceMatrix, "_checked", replaced_at_one)
        with pytest.raises(StoreError, match=CHANGED):
            train(store, tmp_path / "m", spec=spec, place=place, run=RunSpec(executor="serial", workers=1))
    check_that_nothing_was_kept(store, tmp_path / "m", spec, place, ready=False)


@pytest.mark.parametrize("change", ["others", "labels", "others, and back again"])
def test_an_evaluation_is_of_one_state_of_its_store(
    change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "s.zarr"
    put(store, DATA, False)
    real, tuned = protocol_module._tune, []
    relabelled = SeriesSet(DATA.values, DATA.offsets, np.roll(DATA.labels, 3), DATA.ids, DATA.name)

    def replaced_after(*arguments: Any) -> Any:
        if change == "others, and back again":
            put(store, OTHER, False)
        try:
            tuned.append(real(*arguments))
        finally:
            put(store, {"others": OTHER, "labels": relabelled}.get(change, DATA), False)
        return tuned[-1]

    monkeypatch.setattr(protocol_module, "_tune", replaced_after)
    how = Protocol(n_splits=2, n_folds=2, quick=True)
    with pytest.raises(StoreError, match=r"have changed since the work was planned; run it again"):
        evaluate(store, ["1nn"], how, run=SERIAL)
    assert len(tuned) == (change != "others, and back again")
    assert not (store / "results" / "evaluation").exists()


def test_what_belongs_to_an_evaluation_is_of_the_same_data(tmp_path: Path) -> None:
    store = tmp_path / "s.zarr"
    put(store, DATA, False)
    table = evaluate(store, ["cksc"], Protocol(n_splits=2, tune=False), sparsity=2, run=SERIAL)
    sweep(store, table, "sparsity", [1, 2], run=SERIAL)
    example_model(store, table)
    found = find_evaluations(Folder(store))[0]
    assert (set(found.sweeps), found.model is None, found.damage) == ({"sparsity"}, False, "")
    put(store, OTHER, False)
    for more in (lambda: sweep(store, table, "alpha", [0.1], run=SERIAL), lambda: example_model(store, table)):
        with pytest.raises(StoreError, match="have changed since the work was planned"):
            more()
    evaluate(store, ["cksc"], Protocol(n_splits=2, tune=False), sparsity=2, run=SERIAL)
    found = find_evaluations(Folder(store))[0]
    assert not found.sweeps  # which is one of the series before
    assert found.model is None
    assert "on other series" in found.damage


@pytest.mark.parametrize("change", ["others", "added", "labels", "others, whose distances are not there", *UNTOLD])
def test_a_report_says_where_its_store_has_changed_since(tmp_path: Path, change: str) -> None:
    store, page = tmp_path / "s.zarr", tmp_path / "report.html"

    def shown() -> str:
        return write_report(store, page).read_text()

    put(store, DATA, False)
    evaluate(store, ["1nn"], Protocol(n_splits=2, tune=False), run=SERIAL)
    assert 'class="warning"' not in shown()
    if change == "added":
        append(store, made_series(8, prefix="more"), SERIAL)
    elif change == "labels":
        put(store, RELABELLED, False)
    elif change == "a damaged ledger":
        (ledger,) = (store / "ledger").glob("*/tiles.json")
        flip_bit(ledger)
    elif change == "no ledger":  # nothing has changed; these tiles are to be computed again
        shutil.rmtree(store / "ledger")
    elif change == "others":
        put(store, OTHER, False)
    else:
        ingest(OTHER, store, replace=True)
    (told,) = re.findall(r'<p class="warning">(.*?)</p>', shown())
    if change in UNTOLD or "not there" in change:
        assert "cannot be told whether the store still holds what this table is of" in told
        assert change == "a damaged ledger" or "cksc distances" in told
    else:
        assert "have changed since: these figures are of before" in told
    assert "(best)" in shown()
    if change == "no ledger":
        compute_distances(store, run=SERIAL)
        assert 'class="warning"' not in shown()


def test_a_joint_report_is_drawn_again_once_a_store_has_changed(tmp_path: Path) -> None:
    store, page = tmp_path / "s.zarr", tmp_path / "report.html"
    put(store, DATA, False)
    for name in ("first", "second"):
        evaluate(store, ["1nn"], Protocol(n_splits=2, tune=False), name=name, run=SERIAL)
    write_joint_report([store], page, title="one")
    assert 'class="warning"' not in page.read_text()
    put(store, RELABELLED, False)
    write_joint_report([store], page, title="one")
    assert page.read_text().count('class="warning"') == 1
    assert write_report(store, page).read_text().count('class="warning"') == 2  # of another evaluation, too


def test_a_sweep_begun_on_other_series_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = tmp_path / "s.zarr"
    put(store, DATA, False)
    table = evaluate(store, ["cksc"], Protocol(n_splits=2, tune=False), sparsity=2, run=SERIAL)
    real = fits_module.open_matrix

    def replaced_after(*arguments: Any) -> Any:
        matrix = real(*arguments)
        monkeypatch.undo()
        small_tiles(monkeypatch)
        put(store, OTHER, False)
        return matrix

    monkeypatch.setattr(fits_module, "open_matrix", replaced_after)
    with pytest.raises(StoreError, match="have changed since the work was planned"):
        sweep(store, table, "alpha", [0.1], run=SERIAL)
    assert not (store / "results" / "evaluation-alpha").exists()


def test_a_table_that_does_not_say_of_which_data_it_is_can_be_gone_on_with(tmp_path: Path) -> None:
    store = tmp_path / "s.zarr"
    put(store, DATA, False)
    table = evaluate(store, ["cksc"], Protocol(n_splits=2, tune=False), sparsity=2, run=SERIAL)
    del table.attrs["data"]
    assert sweep(store, table, "alpha", [0.1], run=SERIAL).sizes["alpha"] == 1
    assert Path(example_model(store, table)).exists()


def check_that_nothing_was_kept(store: Path, model: Path, spec: ModelSpec, place: Any, ready: bool) -> None:
    """Train with the right series in their place again, and as if nothing had happened: the same model."""
    assert not model.exists()
    put(store, DATA, ready)
    train(store, model, spec=spec, place=place, run=SERIAL)
    fresh = store.parent / "fresh"
    put(fresh / "s.zarr", DATA, ready)
    train(fresh / "s.zarr", fresh / "m", spec=spec, place="memory", run=SERIAL)
    assert arrays(model) == arrays(fresh / "m")


def arrays(model: Path) -> dict[str, bytes]:
    return {name: content for name, content in files_below(model).items() if re.search("/c/|/c$", name)}


def test_accuracy_on_rows_that_were_replaced_is_not_told(store: Path, ready: bool, tmp_path: Path) -> None:
    matrix, rows = open_matrix(store), np.arange(N // 2)
    found = train(store, tmp_path / "m", spec=ModelSpec(sparsity=2), rows=rows, run=SERIAL)
    assert 0 <= held_out_accuracy(found.model, matrix, rows, rows + N // 2) <= 1
    put(store, OTHER, ready)
    with pytest.raises(StoreError, match=CHANGED):
        held_out_accuracy(found.model, matrix, rows, rows + N // 2)
