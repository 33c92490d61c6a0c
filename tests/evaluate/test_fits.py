"""Many fits: the numbers of a plain loop, whoever runs them; no fit is repeated, and none is used that changed."""

from __future__ import annotations

import shutil
import sys
import time
import warnings
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from distributed import Client
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedKFold, StratifiedShuffleSplit
from sklearn.svm import SVC

from cksc_dist import CKSC, JKSRC, DistanceKernel, SeriesSet, open_matrix, pairwise_dtw
from cksc_dist.dist.cluster import connected
from cksc_dist.dist.distances import compute_distances
from cksc_dist.dist.ingest import append, ingest, ingest_distances
from cksc_dist.dist.progress import Progress, Running
from cksc_dist.errors import ClusterError, InputError, StoreBusyError, StoreError
from cksc_dist.evaluate import ChosenRows, FitTask, SplitRows, fit_tasks, fit_work, fits, protocol_tasks, run_fits
from cksc_dist.evaluate.fit_work import FitBatch, FitFiles, data_digest, run_batch
from cksc_dist.io import make_gestures
from cksc_dist.spec import DistanceSpec, RunSpec
from cksc_dist.store.folder import Folder
from cksc_dist.store.lease import Lease
from cksc_dist.store.ledger import Ledger
from cksc_dist.store.matrix_files import find_matrices
from cksc_dist.store.metadata import damaged_metadata
from tests.dist.processes import Starter, starter, wait_until
from tests.small_stores import changed, files_below, flip_bit

DATA = make_gestures(n_per_class=10)
LABELS = DATA.labels
SERIAL = RunSpec(executor="serial")
GRID: dict[str, Any] = {"sparsity": [2, 3], "factor": [0.5, 1.0], "alpha": 0.1, "max_iter": 4}
TASKS = protocol_tasks(LABELS, n_splits=3, grid=GRID)
MEASURED = ("accuracy", "n_iter", "objective", "atoms", "interpretability")
"""All but the seconds."""


class Heard(Progress):
    """Counts fits, and keeps what is told."""

    def __init__(self) -> None:
        self.fits = 0
        self.notes: list[str] = []
        self.begun: list[Running] = []
        self.open = 0

    def note(self, text: str) -> None:
        self.notes.append(text)

    def begin(self, running: Running) -> None:
        self.begun.append(running)
        self.open += 1

    def advance(self, work: int, pairs: int, tiles: int = 1) -> None:
        assert self.open == 1
        self.fits += work

    def end(self) -> None:
        self.open -= 1


def made_store(path: str | Path, data: SeriesSet = DATA) -> None:
    ingest(data, path)
    compute_distances(path, run=SERIAL)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template") / "store"
    made_store(path)
    return path


@pytest.fixture
def store(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template, tmp_path / "store"))


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with connected(RunSpec(), 2) as found:
        yield found


@pytest.fixture(scope="module")
def expected() -> xr.Dataset:
    """What a plain loop gives, on distances that no store has seen."""
    D = pairwise_dtw(DATA)
    shape = (1, 3, 2, 2)
    values = {name: np.empty(shape) for name in MEASURED}
    for split in range(3):
        halves = next(StratifiedShuffleSplit(1, test_size=0.5, random_state=split).split(D, LABELS))
        train, test = (np.sort(half) for half in halves)  # in the order of the store
        for i, sparsity in enumerate([2, 3]):
            for j, factor in enumerate([0.5, 1.0]):
                kernel = DistanceKernel(factor=factor)
                model = CKSC(sparsity=sparsity, alpha=0.1, max_iter=4, random_state=split)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", ConvergenceWarning)
                    model.fit(kernel.fit_transform(D[np.ix_(train, train)]), LABELS[train])
                at = (0, split, i, j)
                values["accuracy"][at] = model.score(kernel.transform(D[np.ix_(test, train)]), LABELS[test])
                values["n_iter"][at] = model.n_iter_
                values["objective"][at] = model.objective_history_[-1]
                values["atoms"][at] = model.dictionary_.shape[1]
                values["interpretability"][at] = model.interpretability_.mean()
    axes = ("method", "split", "sparsity", "factor")
    coordinates: dict[str, Any] = {
        "method": ["cksc"],
        "split": [0, 1, 2],
        "sparsity": [2, 3],
        "factor": [0.5, 1.0],
    }
    return xr.Dataset({name: (axes, value) for name, value in values.items()}, coordinates)


def measured(store: str | Path, tasks: list[FitTask] = TASKS, name: str = "first", **options: Any) -> tuple[Any, int]:
    """Return the table, and how many fits were run for it."""
    heard = Heard()
    table = run_fits(store, tasks, name=name, progress=heard, **({"run": SERIAL} | options))
    assert heard.open == 0
    return table, heard.fits


def marks(store: Path, name: str = "first") -> set[str]:
    return {path.stem for path in (store / "fits" / name / "done").glob("*.json")}


def done_in(store: Path) -> dict[str, dict[str, float]]:
    return FitFiles(str(store), "first").load().found


# the numbers


@pytest.mark.parametrize("executor", ["serial", "threads", "auto"])
def test_fits_are_those_of_a_plain_loop(store: Path, expected: xr.Dataset, executor: Any) -> None:
    table, count = measured(store, run=RunSpec(executor=executor, workers=2))
    assert count == len(TASKS) == 12
    xr.testing.assert_identical(table[list(MEASURED)].drop_attrs(), expected)
    assert (table.train_seconds > 0).all()
    assert (table.predict_seconds > 0).all()


def test_fits_on_a_cluster_are_those_of_a_plain_loop(store: Path, expected: xr.Dataset, client: Client) -> None:
    table, count = measured(store, client=client)
    assert count == 12
    xr.testing.assert_identical(table[list(MEASURED)].drop_attrs(), expected)
    assert client.status == "running"


def test_rows_read_for_each_fit_where_the_matrix_does_not_fit(
    store: Path, expected: xr.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fits, "ROOM_SHARE", 2**60)
    table, _ = measured(store)
    xr.testing.assert_identical(table[list(MEASURED)].drop_attrs(), expected)


def test_a_store_behind_a_url(expected: xr.Dataset) -> None:
    url = "memory://many-fits"
    made_store(url)
    table, count = measured(url)
    again, repeated = measured(url)
    assert (count, repeated) == (12, 0)
    xr.testing.assert_identical(table[list(MEASURED)].drop_attrs(), expected)
    xr.testing.assert_identical(again, table)


def test_quick_fits_go_in_batches(store: Path, expected: xr.Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []

    def watched(batch: FitBatch) -> Any:
        sizes.append(len(batch.fits))
        return run_batch(batch)

    monkeypatch.setattr(fits, "run_batch", watched)
    monkeypatch.setattr(fits, "BATCHES_PER_SLOT", 2)
    monkeypatch.setattr(fits, "BATCH_SECONDS", 1e9)
    table, _ = measured(store)
    assert sizes == [1, 1, 1, 5, 4]
    xr.testing.assert_identical(table[list(MEASURED)].drop_attrs(), expected)


def test_where_to_run_is_chosen_and_told(store: Path) -> None:
    heard = Heard()
    run_fits(store, TASKS, name="first", progress=heard)
    assert [running.text for running in heard.begun] == ["first fits", "fits"]
    assert heard.begun[1].executor.startswith("serial (")
    assert "less than a cluster is worth" in heard.begun[1].executor
    assert fits._kind(RunSpec(workers=2), 29.0)[0] == "serial"
    assert fits._kind(RunSpec(workers=2), 31.0) == (
        "dask",
        "31 s of one core's work are expected; on a cluster started on this machine",
    )
    assert fits._kind(RunSpec(workers=1), 1e6)[0] == "serial"
    assert fits._kind(RunSpec(scheduler="tcp://head:8786"), 0.0)[0] == "dask"
    assert fits._kind(RunSpec(executor="threads"), 1e6)[0] == "threads"


# several matrices, and what is kept


def naive_macro_f1(true: list[str], predicted: list[str]) -> float:
    """Return the mean over classes of 2 P R / (P + R), counted sample by sample."""
    pairs, scores = list(zip(true, predicted, strict=True)), []
    for name in sorted({*true, *predicted}):
        both = sum(a == name and b == name for a, b in pairs)
        said, there = predicted.count(name), true.count(name)
        scores.append(2 * both / (said + there))  # the same, without a division by 0
    return sum(scores) / len(scores)


def naive_calibration(confidence: list[float], right: list[bool]) -> float:
    """Return how far confidence and accuracy are apart, in tenths of confidence."""
    error = 0.0
    for tenth in range(10):
        inside = [i for i, sure in enumerate(confidence) if min(9, int(10 * sure)) == tenth]
        error += abs(sum(right[i] - confidence[i] for i in inside)) / len(confidence)
    return error


def test_what_is_kept_of_a_fit_is_what_the_model_says(store: Path) -> None:
    """Predictions, confidences, and all that is measured of them."""
    D = pairwise_dtw(DATA)
    tasks = [replace(TASKS[0], keep=True), replace(TASKS[7], keep=True)]
    table, _ = measured(store, tasks)
    found = fits.fit_results(store, tasks, name="first")
    classes = np.unique(LABELS)
    for task, kept in zip(tasks, found, strict=True):
        train, test = task.draw(LABELS)
        kernel = DistanceKernel(**task.kernel)
        model = CKSC(**task.parameters, random_state=task.random_state)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(kernel.fit_transform(D[np.ix_(train, train)]), LABELS[train])
        rows = kernel.transform(D[np.ix_(test, train)])
        predicted, shares = model.predict(rows), model.class_shares(rows).max(axis=1)
        assert classes[kept["predicted"]].tolist() == predicted.tolist()
        np.testing.assert_allclose(kept["confidence"], shares, atol=1e-6)
        assert kept["objectives"] == model.objective_history_[1::2][: model.n_iter_].tolist()
        right = (predicted == LABELS[test]).tolist()
        at = table.sel(task.coordinates)
        assert float(at.macro_f1) == pytest.approx(naive_macro_f1(LABELS[test].tolist(), predicted.tolist()))
        assert float(at.calibration) == pytest.approx(naive_calibration(shares.tolist(), right))
        assert float(at.atoms_used) == pytest.approx(np.count_nonzero(model.transform(rows), axis=1).mean())


def test_what_was_not_kept_is_another_fit_and_what_was_not_run_is_told(store: Path) -> None:
    measured(store, TASKS[:1])
    (plain,) = fits.fit_results(store, TASKS[:1], name="first")
    assert "predicted" not in plain
    with pytest.raises(InputError, match=r"split=0, sparsity=2, factor=1.0 has not been run under the name 'first'"):
        fits.fit_results(store, TASKS[:2], name="first")
    keeping = [replace(TASKS[0], keep=True)]
    with pytest.raises(InputError, match="has not been run"):
        fits.fit_results(store, keeping, name="first")
    assert measured(store, keeping)[1] == 1


@pytest.fixture
def matrices(store: Path) -> tuple[str, str]:
    """Matrices of the first dimension, and of the two others."""
    specs = [DistanceSpec(dims=dims) for dims in ((0,), (1, 2))]
    first, second = (compute_distances(store, spec, SERIAL).fingerprint for spec in specs)
    return first, second


@pytest.mark.parametrize("room", [2**60, 1], ids=["read", "kept"])
def test_a_method_of_several_kernels_is_fitted_on_all_of_them(
    store: Path, matrices: tuple[str, str], monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    monkeypatch.setattr(fits, "ROOM_SHARE", room)
    task = FitTask(SplitRows(4), {"run": 0}, "jksrc", {"sparsity": 3}, {"factor": 0.5}, 4, matrices, keep=True)
    base = open_matrix(store, matrices[0]).fingerprint
    table, count = measured(store, [task], distances=base)
    assert count == 1
    train, test = SplitRows(4).draw(LABELS)
    known, asked = [], []
    for dims in ([0], [1, 2]):
        D = pairwise_dtw([values[:, dims] for values in DATA])
        kernel = DistanceKernel(factor=0.5)  # each has a bandwidth of its own
        known.append(kernel.fit_transform(D[np.ix_(train, train)]))
        asked.append(kernel.transform(D[np.ix_(test, train)]))
    model = JKSRC(sparsity=3).fit(np.stack(known, axis=-1), LABELS[train])
    predicted = model.predict(np.stack(asked, axis=-1))
    (kept,) = fits.fit_results(store, [task], name="first", distances=base)
    assert np.unique(LABELS)[kept["predicted"]].tolist() == predicted.tolist()
    assert float(table.accuracy[0]) == (predicted == LABELS[test]).mean()


def test_the_matrices_of_a_fit_are_in_its_key(store: Path, matrices: tuple[str, str]) -> None:
    first, second = matrices
    options = {"distances": first}
    both = FitTask(SplitRows(0), {"run": 0}, "jksrc", {"sparsity": 2}, matrices=(first, second))
    others = [
        replace(both, coordinates={"run": 1}, matrices=(second, first)),
        replace(both, coordinates={"run": 2}, matrices=(second,)),
        replace(both, coordinates={"run": 3}, matrices=(first,)),
    ]
    assert measured(store, [both], **options)[1] == 1
    assert measured(store, [both, *others], **options)[1] == 3
    # none is named: the one that is told, which is the last of them
    assert measured(store, [replace(both, matrices=())], **options)[1] == 0
    assert measured(store, [replace(both, matrices=())], distances=second)[1] == 0


def test_a_changed_second_matrix_reuses_nothing(store: Path, matrices: tuple[str, str]) -> None:
    task = FitTask(SplitRows(0), {"run": 0}, "jksrc", {"sparsity": 2}, matrices=matrices)
    measured(store, [task], distances=matrices[0])
    (tile, entry), *_ = Ledger(Folder(store), matrices[1]).load().entries.items()
    ledger = Ledger(Folder(store), matrices[1]).load()
    ledger.add(tile, replace(entry, checksum=entry.checksum + 1))
    ledger.collect()
    assert measured(store, [task], distances=matrices[0])[1] == 1


def test_one_matrix_for_a_method_of_one_kernel(store: Path, matrices: tuple[str, str]) -> None:
    task = FitTask(SplitRows(0), {"run": 0}, "svm", matrices=matrices)
    with pytest.raises(InputError, match="the fit at run=0: method svm takes one matrix, but 2 are given"):
        measured(store, [task], distances=matrices[0])
    with pytest.raises(StoreError, match="has no such matrix"):
        measured(store, [replace(task, matrices=("0" * 16,))], distances=matrices[0])


def test_the_reference_lines_are_what_their_names_say(store: Path) -> None:
    D = pairwise_dtw(DATA)
    train, test = SplitRows(1).draw(LABELS)
    nearest = [LABELS[train[min(range(len(train)), key=lambda j: D[i, train[j]])]] for i in test]
    kernel = DistanceKernel(factor=0.5)
    machine = SVC(C=3.0, kernel="precomputed").fit(kernel.fit_transform(D[np.ix_(train, train)]), LABELS[train])
    tasks = [
        FitTask(SplitRows(1), {"method": "1nn"}, "1nn", keep=True),
        FitTask(SplitRows(1), {"method": "svm"}, "svm", {"C": 3}, {"factor": 0.5}, keep=True),
    ]
    table, _ = measured(store, tasks)
    first, second = (np.unique(LABELS)[found["predicted"]] for found in fits.fit_results(store, tasks, name="first"))
    assert first.tolist() == nearest
    assert second.tolist() == machine.predict(kernel.transform(D[np.ix_(test, train)])).tolist()
    assert table.accuracy.values.tolist() == [(first == LABELS[test]).mean(), (second == LABELS[test]).mean()]
    # neither has atoms, alternations or a confidence
    assert table[["calibration", "atoms", "interpretability", "n_iter"]].isnull().all().to_array().all()


# the table


def test_the_table_is_in_the_store_and_the_store_is_whole(store: Path) -> None:
    table, _ = measured(store)
    with xr.open_zarr(store, group="results/first", consolidated=False) as opened:
        xr.testing.assert_identical(opened.load(), table)
        assert opened.accuracy.mean("split").dims == ("method", "sparsity", "factor")
        assert opened.accuracy.sel({"method": "cksc", "split": 1, "sparsity": 3, "factor": 0.5}).shape == ()
    assert table.attrs == {"name": "first", "distances": open_matrix(store).fingerprint, "fits": 12}
    assert damaged_metadata(Folder(store)) == []
    assert list(store.rglob("lock.json*")) == []


def test_holes_are_nan_and_every_value_is_at_its_place(store: Path, expected: xr.Dataset) -> None:
    chosen = [TASKS[0], TASKS[3], TASKS[-1]]  # (0, 2, 0.5), (0, 3, 1.0), (2, 3, 1.0)
    table, count = measured(store, [chosen[2], chosen[0], chosen[1]])
    assert count == 3
    assert table["split"].values.tolist() == [2, 0]
    assert int(table.objective.notnull().sum()) == 3
    for task in chosen:
        assert float(table.objective.sel(task.coordinates)) == float(expected.objective.sel(task.coordinates))


def test_axes_of_numbers_and_of_text(store: Path) -> None:
    grid = {"sparsity": 2, "bandwidth": ["mean", 50.0], "atoms_per_class": [None, 2]}
    table, _ = measured(store, protocol_tasks(LABELS, n_splits=1, grid=grid))
    assert table["bandwidth"].values.tolist() == ["mean", "50.0"]
    assert table["atoms_per_class"].values.tolist() == ["None", "2"]
    assert table.atoms.sel(atoms_per_class="2").max() <= 8
    with xr.open_zarr(store, group="results/first", consolidated=False) as opened:
        xr.testing.assert_identical(opened.load(), table)


def test_a_second_table_replaces_the_first_of_its_name(store: Path) -> None:
    measured(store)
    measured(store, TASKS[:2])
    with xr.open_zarr(store, group="results/first", consolidated=False) as opened:
        assert dict(opened.sizes) == {"method": 1, "split": 1, "sparsity": 1, "factor": 2}


# what is done is not done again


def test_a_second_run_computes_nothing_and_gives_the_same(store: Path) -> None:
    table, _ = measured(store)
    assert marks(store) == set()  # they are in one file
    again, count = measured(store)
    assert count == 0
    xr.testing.assert_identical(again, table)  # the seconds, too


def test_changed_parameters_compute_what_is_new_alone(store: Path) -> None:
    table, _ = measured(store)
    more = protocol_tasks(LABELS, n_splits=4, grid=GRID | {"sparsity": [2, 3, 4]})
    larger, count = measured(store, more)
    assert count == 4 * 3 * 2 - 12
    xr.testing.assert_identical(larger.sel(split=[0, 1, 2], sparsity=[2, 3]).drop_attrs(), table.drop_attrs())
    _, others = measured(store, protocol_tasks(LABELS, n_splits=3, grid=GRID | {"alpha": 0.2}))
    assert others == 12
    assert measured(store)[1] == 0  # the first ones are there still


def test_whatever_decides_a_result_is_in_its_key(store: Path) -> None:
    first = replace(TASKS[0], coordinates={"changed": "nothing"})
    others = [
        replace(first, coordinates={"changed": "seed"}, random_state=7),
        replace(first, coordinates={"changed": "parameter"}, parameters=dict(first.parameters) | {"prune": 0.1}),
        replace(first, coordinates={"changed": "kernel"}, kernel={"factor": 0.5, "repair": "clip"}),
        replace(first, coordinates={"changed": "split"}, rows=SplitRows(0, 0.4)),
        replace(first, coordinates={"changed": "fold"}, rows=SplitRows(0, n_folds=2)),
    ]
    assert measured(store, [first])[1] == 1
    assert measured(store, [first, *others])[1] == len(others)
    assert measured(store, [*others, first])[1] == 0


def test_a_default_that_is_written_out_and_the_same_rows_are_the_same_fit(store: Path) -> None:
    train, test = SplitRows(0).draw(LABELS)
    parameters = dict(TASKS[0].parameters) | {"max_iter": np.int64(4), "tol": 1e-4}
    rows = ChosenRows(tuple(train), tuple(test))
    same = FitTask(rows, {"run": "other"}, parameters=parameters, kernel=TASKS[0].kernel)
    measured(store, TASKS[:1])
    table, count = measured(store, [same])
    assert count == 0
    assert table.sizes == {"run": 1}


def test_another_release_reuses_nothing(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured(store, TASKS[:2])
    monkeypatch.setattr(fit_tasks, "__version__", "99.0")
    assert measured(store, TASKS[:2])[1] == 2


def test_two_places_of_the_table_may_share_one_fit(store: Path) -> None:
    twice = [replace(TASKS[0], coordinates={"run": run}) for run in range(2)]
    table, count = measured(store, twice)
    assert count == 1
    assert table.objective[0] == table.objective[1]


def test_changed_series_reuse_nothing(store: Path) -> None:
    measured(store)
    ingest(changed(DATA, 3), store, replace=True)
    compute_distances(store, run=SERIAL)
    assert measured(store)[1] == 12


def test_changed_labels_reuse_nothing(store: Path) -> None:
    measured(store, TASKS[:2])
    labels = LABELS.copy()
    labels[[0, 15]] = labels[[15, 0]]
    ingest(SeriesSet.from_list(DATA.series, labels, DATA.ids.tolist(), name=DATA.name), store, replace=True)
    compute_distances(store, run=SERIAL)
    assert measured(store, TASKS[:2])[1] == 2


def test_series_that_were_added_reuse_nothing(store: Path) -> None:
    rows = ChosenRows(*(tuple(part) for part in SplitRows(0).draw(LABELS)))
    task = FitTask(rows, {"run": 0}, parameters={"sparsity": 2})
    before, _ = measured(store, [task])
    added = make_gestures(n_per_class=1, random_state=5)
    append(store, SeriesSet.from_list(added.series, added.labels, [f"new{i}" for i in range(4)]), SERIAL)
    compute_distances(store, run=SERIAL)
    after, count = measured(store, [task])
    assert count == 1
    assert after.objective == before.objective  # though the number is the same


def test_another_matrix_that_came_ready_reuses_nothing(tmp_path: Path) -> None:
    """Its rows have the same names, so that digests of rows tell nothing."""
    store, D = tmp_path / "store", pairwise_dtw(DATA)
    found = []
    for matrix in (D, D**2):
        ingest_distances(matrix, store, labels=LABELS, ids=DATA.ids, replace=True)
        found.append(measured(store, TASKS[:1]))
    (first, count), (second, again) = found
    assert (count, again) == (1, 1)
    assert float(first.objective.squeeze()) != float(second.objective.squeeze())


def test_several_matrices_each_have_their_fits(store: Path) -> None:
    compute_distances(store, DistanceSpec(window=0.1), SERIAL)
    with pytest.raises(StoreError, match="several finished matrices"):
        measured(store, TASKS[:1])
    tables = [measured(store, TASKS[:1], distances=name) for name in find_matrices(Folder(store))]
    assert [count for _, count in tables] == [1, 1]


# damage and kills


def test_a_damaged_result_is_computed_again(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FitFiles, "collect", lambda self: None)  # a client that was killed leaves the marks
    table, _ = measured(store)
    first, second, third, *_ = sorted((store / "fits/first/done").iterdir())
    flip_bit(first)
    second.write_bytes(b"")
    third.write_bytes(files_below(store / "fits")[f"first/done/{third.name}"][:40])
    (store / "fits/first/done" / f"{first.name}.0123.partial").write_bytes(b"half")
    heard = Heard()
    again = run_fits(store, TASKS, name="first", run=SERIAL, progress=heard)
    assert heard.fits == 3
    assert f"{first} is damaged: what it held is computed again" in heard.notes
    assert "removed 1 unfinished files of a run that was killed" in heard.notes
    xr.testing.assert_identical(again[list(MEASURED)], table[list(MEASURED)])


def test_a_client_that_was_killed_when_all_was_done_leaves_no_marks(store: Path) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(FitFiles, "collect", lambda self: None)
        table, _ = measured(store)
    assert len(marks(store)) == 12
    again, count = measured(store)
    assert (count, marks(store)) == (0, set())
    xr.testing.assert_identical(again[list(MEASURED)], table[list(MEASURED)])


def test_a_damaged_collection_is_computed_again(store: Path) -> None:
    table, _ = measured(store)
    flip_bit(store / "fits/first/fits.json")
    again, count = measured(store)
    assert count == 12
    xr.testing.assert_identical(again[list(MEASURED)], table[list(MEASURED)])


def test_a_fit_that_fails_keeps_those_before_it(store: Path) -> None:
    good = [FitTask(SplitRows(seed), {"run": seed}, parameters={"sparsity": 2}) for seed in range(2)]
    rows = ChosenRows((0, 1, 10, 11), (2, 12))
    failing = FitTask(rows, {"run": 2}, parameters={"sparsity": 2}, kernel={"bandwidth": "median"})
    same = SeriesSet.from_list([DATA[0]] * 12 + DATA.series[12:], LABELS, DATA.ids.tolist())
    ingest(same, store, replace=True)
    compute_distances(store, run=SERIAL)
    with pytest.raises(InputError, match="the fit at run=2: bandwidth='median' gives delta = 0"):
        measured(store, [*good, failing])
    assert measured(store, good)[1] == 0


def test_work_that_is_done_by_a_lost_worker_is_not_repeated(store: Path) -> None:
    measured(store, TASKS[:1])
    matrix, folder = open_matrix(store), Folder(store)
    data = data_digest(folder, matrix.fingerprint)
    ((key, found),) = FitFiles(str(store), "first").load().found.items()
    told = {name: -1.0 for name in found}
    FitFiles(str(store), "first").mark(key, told)
    assert run_batch(FitBatch(str(store), ((matrix.fingerprint, data),), "first", 0, ((key, TASKS[0]),))) == [
        (key, told)
    ]


def test_a_worker_that_sees_something_else_refuses(store: Path) -> None:
    matrix, folder = open_matrix(store), Folder(store)
    data = data_digest(folder, matrix.fingerprint)
    batch = FitBatch(str(store), ((matrix.fingerprint, data),), "first", 0, (("0" * 32, TASKS[0]),))
    with pytest.raises(ClusterError, match=r"split=0.*draws other rows.*scikit-learn"):
        run_batch(batch)
    with pytest.raises(StoreError, match="have changed since the work was planned"):
        run_batch(replace(batch, digests=((matrix.fingerprint, "0" * 64),)))
    assert marks(store) == set()


def test_fits_that_are_being_run_are_left_alone(store: Path) -> None:
    """Of the same name; those of another, and distances, do not mind."""
    with Lease(Folder(store / "fits/first"), "fits"):
        with pytest.raises(StoreBusyError, match="fits/first is being written"):
            measured(store, TASKS[:1])
        with Lease(Folder(store), "distances"):
            assert measured(store, TASKS[:1], name="other")[1] == 1


SCRIPT = """
from cksc_dist import open_matrix
from cksc_dist.evaluate import protocol_tasks, run_fits
from cksc_dist.spec import RunSpec

if __name__ == "__main__":
    tasks = protocol_tasks(open_matrix({store!r}).labels, n_splits={splits}, grid={grid})
    run_fits({store!r}, tasks, name="first", run=RunSpec(executor="dask", workers=2))
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Starter]:
    with starter(tmp_path) as started:
        yield started


@pytest.mark.campaign  # in every run `cksc evaluate` is killed: tests/evaluate/test_protocol.py
def test_a_killed_client_repeats_no_finished_fit(start: Starter, store: Path, tmp_path: Path) -> None:
    splits, grid = 12, GRID | {"tol": 0.0, "max_iter": 50}
    script = tmp_path / "many.py"
    script.write_text(SCRIPT.format(store=str(store), splits=splits, grid=grid))
    run = start(sys.executable, str(script))
    wait_until(lambda: not run.runs() or len(done_in(store)) >= 8, "results of fits")
    assert run.runs(), run.output
    run.kill()
    wait_until(lambda: not run.group(), "workers that end")
    done = done_in(store)
    whole = 4 * splits
    assert 8 <= len(done) < whole
    table, count = measured(store, protocol_tasks(LABELS, n_splits=splits, grid=grid))
    assert count == whole - len(done)
    now = done_in(store)
    assert {key: now[key] for key in done} == done  # the seconds of that time, too
    assert bool(table.accuracy.notnull().all())
    undisturbed, _ = measured(store, protocol_tasks(LABELS, n_splits=1, grid=grid), name="other")
    xr.testing.assert_identical(
        undisturbed[list(MEASURED)].drop_attrs(), table[list(MEASURED)].isel(split=slice(1)).drop_attrs()
    )


# a worker's cache


def test_threads_of_a_process_read_a_matrix_once(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(fit_work._Opened):
        count = 0

        def __init__(self, *arguments: Any) -> None:
            Slow.count += 1
            time.sleep(0.2)
            super().__init__(*arguments)

    monkeypatch.setattr(fit_work, "_Opened", Slow)
    monkeypatch.setattr(fit_work, "_kept", OrderedDict())
    matrix, folder = open_matrix(store), Folder(store)
    data = data_digest(folder, matrix.fingerprint)
    batch = FitBatch(str(store), ((matrix.fingerprint, data),), "first", 2**20, ())
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda one: fit_work._opened(one, matrix.fingerprint, data), [batch] * 8))
    assert Slow.count == 1
    assert len(set(map(id, found))) == 1


def test_what_is_kept_is_not_read_again(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = open_matrix(store)
    data = data_digest(Folder(store), matrix.fingerprint)
    batch = FitBatch(str(store), ((matrix.fingerprint, data),), "first", 0, ())
    train, test = np.array([5, 2, 30]), np.array([7, 1])
    kept, read = (
        fit_work._opened(replace(batch, room=40 * 40 * 8), matrix.fingerprint, data),
        fit_work._opened(replace(batch, room=40 * 40 * 8 - 1), matrix.fingerprint, data),
    )
    for opened in (kept, read):
        known, asked = opened.distances(train, test)
        np.testing.assert_array_equal(known, matrix[train, train])
        np.testing.assert_array_equal(asked, matrix[test, train])
    ingest(changed(DATA, 3), store, replace=True)
    compute_distances(store, run=SERIAL)
    np.testing.assert_array_equal(kept.distances(train, test)[0], known)
    with pytest.raises(StoreError, match="another command has changed series or distances meanwhile"):
        read.distances(train, test)


def test_warnings_of_single_fits_are_kept_away_in_threads_too(store: Path) -> None:
    grid = {"sparsity": 9, "max_iter": 1}  # warns of small classes and of no convergence
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        before = list(warnings.filters)
        measured(store, protocol_tasks(LABELS, n_splits=20, grid=grid), run=RunSpec(executor="threads", workers=4))
        assert warnings.filters == before
        assert [item for item in heard if issubclass(item.category, UserWarning)] == []
        warnings.warn("still heard", ConvergenceWarning, stacklevel=1)
        assert [str(item.message) for item in heard] == ["still heard"]


# the protocol


def test_the_protocol_is_that_of_scikit_learn() -> None:
    tasks = protocol_tasks(LABELS, n_splits=2, n_folds=5, test_size=0.4, random_state=3, grid={"alpha": [0.1, 0.2]})
    assert len(tasks) == 2 * 5 * 2
    for split in range(2):
        seed = 3 + split
        halves = next(StratifiedShuffleSplit(1, test_size=0.4, random_state=seed).split(LABELS, LABELS))
        outer, held_out = (np.sort(half) for half in halves)  # in the order of the store
        folds = StratifiedKFold(5, shuffle=True, random_state=seed).split(outer, LABELS[outer])
        for fold, (train, test) in enumerate(folds):
            (first, _) = [t for t in tasks if (t.coordinates["split"], t.coordinates["fold"]) == (split, fold)]
            drawn = first.draw(LABELS)
            assert drawn[0].tolist() == outer[train].tolist()
            assert drawn[1].tolist() == outer[test].tolist()
            assert not set(held_out) & {*drawn[0], *drawn[1]}
            assert first.random_state == seed


def test_folds_are_an_axis(store: Path) -> None:
    table, count = measured(store, protocol_tasks(LABELS, n_splits=2, n_folds=5, grid={"sparsity": 2}))
    assert count == 10
    assert dict(table.sizes) == {"method": 1, "split": 2, "fold": 5}
    # fits on folds test four rows each
    assert set((table.accuracy.values * 4).ravel().tolist()) <= {0.0, 1.0, 2.0, 3.0, 4.0}


# what is wrong is told before anything is run


@pytest.mark.parametrize(
    ("task", "words"),
    [
        (replace(TASKS[0], method="forest"), "method='forest' is unknown; choose one of cksc"),
        (
            replace(TASKS[0], parameters={"sparsty": 3}),
            "parameter 'sparsty' is unknown to method cksc; it has sparsity, alpha,",
        ),
        (replace(TASKS[0], parameters={"sparsity": 0}), "sparsity=0: must be a whole number of at least 1"),
        (
            replace(TASKS[0], kernel={"width": 3}),
            "parameter 'width' is unknown to the kernel; it has bandwidth, factor",
        ),
        (replace(TASKS[0], kernel={"factor": 0.0}), "factor=0.0: must be a number"),
        (replace(TASKS[0], random_state=-1), "random_state=-1: must be a whole number of at least 0"),
        (
            replace(TASKS[0], rows=ChosenRows((0, 40), (1,))),
            "train: row 40 is out of range; the store has rows 0 to 39",
        ),
        (replace(TASKS[0], rows=ChosenRows((0, 10), (-1,))), "test: row -1 is out of range"),
        (replace(TASKS[0], rows=ChosenRows((0, 10), ())), "test: no rows are given"),
        (replace(TASKS[0], rows=ChosenRows((0, 10, 0), (1,))), "train: a row is given twice"),
        (replace(TASKS[0], rows=ChosenRows((0, 10), (10,))), "row 10 is to be trained on and tested on"),
        (
            replace(TASKS[0], rows=ChosenRows((0, 10), (1, 20))),
            "split=0, sparsity=2, factor=0.5: class 'gesture2' is tested on but missing in the training part",
        ),
        (replace(TASKS[0], rows=ChosenRows((0, 1), (2,))), "the training part has one class, 'gesture0'"),
        (replace(TASKS[0], rows=SplitRows(0, 0.01)), "the 40 rows cannot be split with test_size=0.01"),
        (
            replace(TASKS[0], rows=SplitRows(0, n_folds=6)),
            "n_folds=6: class 'gesture0' has 5 rows in the training part; ask for fewer folds",
        ),
        (replace(TASKS[0], coordinates={"split": 9}), "has other coordinates than the fit at method=cksc, split=0"),
        (TASKS[1], "the fit at method=cksc, split=0, sparsity=2, factor=1.0 is given twice"),
    ],
)
def test_what_is_wrong_is_told_before_anything_is_run(store: Path, task: FitTask, words: str) -> None:
    before = files_below(store)
    with pytest.raises(InputError) as caught:
        run_fits(store, [TASKS[1], task], name="first", run=SERIAL)
    assert words in str(caught.value)
    assert files_below(store) == before


@pytest.mark.parametrize("name", ["", "a/b", "..", "../x", ".hidden", "a b"])
def test_names_that_are_no_names(store: Path, name: str) -> None:
    with pytest.raises(InputError, match="must be letters, digits"):
        run_fits(store, TASKS, name=name)


def test_tables_that_are_none(store: Path) -> None:
    with pytest.raises(InputError, match="no fits are given"):
        run_fits(store, [], name="first")
    for coordinates in ({}, {"accuracy": 1}):
        with pytest.raises(InputError, match="give at least one, and none of the names of measures"):
            run_fits(store, [replace(TASKS[0], coordinates=coordinates)], name="first")
    with pytest.raises(StoreError, match="is no store"):
        run_fits(store / "nowhere", TASKS, name="first")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_splits": 0}, "n_splits=0"),
        ({"n_folds": 1}, "n_folds=1: give 0 for no folds"),
        ({"test_size": 0.0}, "test_size=0.0"),
        ({"random_state": -1}, "random_state=-1"),
        ({"n_folds": 6}, "ask for fewer folds"),
        ({"grid": {"alpha": []}}, "grid: a parameter has an empty list"),
    ],
)
def test_a_protocol_that_cannot_be(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        protocol_tasks(LABELS, **options)
    with pytest.raises(InputError, match="fold=5: there are 5 folds"):
        SplitRows(0, n_folds=5, fold=5)


def test_a_finished_matrix_is_needed(tmp_path: Path) -> None:
    ingest(DATA, tmp_path / "store")
    with pytest.raises(StoreError, match="cksc distances"):
        run_fits(tmp_path / "store", TASKS, name="first")
