"""The comparison of methods: a nested cross-validation that a person could do by hand, and never does twice."""

from __future__ import annotations

import json
import shutil
import sys
import warnings
from collections.abc import Iterator
from fractions import Fraction
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from numpy.typing import NDArray
from scipy import stats
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedKFold, StratifiedShuffleSplit
from sklearn.svm import SVC

from cksc_dist import CKSC, JKSRC, DistanceKernel, SeriesSet, pairwise_dtw
from cksc_dist.dist.ingest import ingest, ingest_distances
from cksc_dist.dist.progress import Progress, Running
from cksc_dist.errors import InputError, SmallClassWarning, StoreError
from cksc_dist.evaluate import KernelChoices, Protocol, SplitRows, evaluate
from cksc_dist.evaluate.choice import best_point
from cksc_dist.evaluate.extras import sweep
from cksc_dist.evaluate.fit_work import MEASURES, FitFiles
from cksc_dist.evaluate.fits import LONGEST_NAME
from cksc_dist.evaluate.grids import grid_points
from cksc_dist.evaluate.methods import METHODS, REFERENCES
from cksc_dist.evaluate.protocol import _first_best
from cksc_dist.evaluate.results import find_evaluations
from cksc_dist.io import make_gestures
from cksc_dist.spec import DistanceSpec, RunSpec, fingerprint
from cksc_dist.store.folder import Folder
from cksc_dist.store.matrix_files import find_matrices
from cksc_dist.store.metadata import damaged_metadata
from tests.dist.processes import Starter, starter, wait_until
from tests.small_stores import files_below

SERIAL = RunSpec(executor="serial")
SECONDS = ("train_seconds", "predict_seconds", "tuning_seconds")

_MADE = make_gestures(n_per_class=10, n_classes=3, dims=3, length=(8, 14), noise=0.8)
DATA = SeriesSet.from_list(
    _MADE.series, _MADE.labels, _MADE.ids.tolist(), name="gestures", dim_names=("left_x", "left_y", "right_x")
)
LABELS = DATA.labels
GROUPS = ([0, 1], [2])
"""What the names of the dimensions tell: two sensors."""

WITH = ["1nn", "cksc", "svm", "jksrc"]
PROTOCOL = Protocol(n_splits=2, n_folds=2, random_state=5, quick=True)
LEAST = Protocol(n_splits=1, n_folds=2, quick=True)


class Heard(Progress):
    """Counts fits and pairs, and keeps what is told."""

    def __init__(self) -> None:
        self.fits = self.pairs = 0
        self.notes: list[str] = []
        self._text = ""

    def note(self, text: str) -> None:
        self.notes.append(text)

    def begin(self, running: Running) -> None:
        self._text = running.text

    def advance(self, work: int, pairs: int, tiles: int = 1) -> None:
        self.pairs += pairs
        if "fits" in self._text:
            self.fits += work


def evaluated(
    store: str | Path, methods: list[str], protocol: Protocol = PROTOCOL, **options: Any
) -> tuple[xr.Dataset, Heard]:
    """Return the table, and what was heard of the work."""
    heard = Heard()
    options = {"sparsity": 2, "run": SERIAL} | options
    return evaluate(store, methods, protocol, progress=heard, **options), heard


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, xr.Dataset, Heard]:
    """A store with an evaluation in it, its table, and what was heard."""
    store = tmp_path_factory.mktemp("ran") / "gestures.zarr"
    ingest(DATA, store)
    return store, *evaluated(store, WITH)


@pytest.fixture(scope="module")
def table(ran: tuple[Path, xr.Dataset, Heard]) -> xr.Dataset:
    return ran[1]


@pytest.fixture
def store(ran: tuple[Path, xr.Dataset, Heard], tmp_path: Path) -> Path:
    """The store again, to change."""
    return Path(shutil.copytree(ran[0], tmp_path / "gestures.zarr"))


@pytest.fixture
def fresh(tmp_path: Path) -> Path:
    """A store with series alone."""
    ingest(DATA, tmp_path / "fresh.zarr")
    return tmp_path / "fresh.zarr"


def same_but_for_seconds(one: xr.Dataset, other: xr.Dataset) -> None:
    xr.testing.assert_identical(one.drop_vars(SECONDS).drop_attrs(), other.drop_vars(SECONDS).drop_attrs())
    other_words = {"seconds": 0, "written": 0, "title": ""}
    assert one.attrs | other_words == other.attrs | other_words


def said_by(table: xr.Dataset, method: str, split: int | None = None) -> Any:
    """Return the settings of all points of a method, or of the one that was chosen."""
    points = [json.loads(text) for text in table.settings.sel({"method": method}).values if text]
    return points if split is None else points[int(table.chosen.sel({"method": method, "split": split}))]


# by hand: the settings are those that the table names, all else is written out


def distances_by_hand(said: dict[str, Any], dims: list[int]) -> NDArray[np.float64]:
    options = {name: said[name] for name in ("mode", "window") if name in said}
    return np.asarray(pairwise_dtw([values[:, dims] for values in DATA.series], **options))


def predicted_by_hand(
    method: str, said: dict[str, Any], train: NDArray[np.int64], test: NDArray[np.int64], seed: int
) -> list[str]:
    y = LABELS[train]
    if method == "1nn":
        D = distances_by_hand(said, [0, 1, 2])
        return [str(y[np.argmin([D[i, j] for j in train])]) for i in test]
    known, asked = [], []
    for dims in GROUPS if method == "jksrc" else [[0, 1, 2]]:
        D = distances_by_hand(said, list(dims))
        kernel = DistanceKernel(said["bandwidth"], said["factor"])
        known.append(kernel.fit_transform(D[np.ix_(train, train)]))
        asked.append(kernel.transform(D[np.ix_(test, train)]))
    own = {name: said[name] for name in said if name not in ("bandwidth", "factor", "kernels")}
    if method == "jksrc":
        model, K, rows = JKSRC(**own), np.stack(known, axis=-1), np.stack(asked, axis=-1)
    else:
        model = SVC(**own, kernel="precomputed") if method == "svm" else CKSC(**own, random_state=seed)
        K, rows = known[0], asked[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallClassWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        return [str(label) for label in model.fit(K, y).predict(rows)]


def right(predicted: list[str], test: NDArray[np.int64]) -> Fraction:
    return Fraction(sum(a == b for a, b in zip(predicted, LABELS[test], strict=True)), len(test))


def best_by_hand(seen: list[Fraction], points: list[dict[str, Any]]) -> int:
    """Return the most accurate point; of equals the one whose settings do best elsewhere as well; then the first."""
    names = sorted({name for said in points for name in said})

    def elsewhere(said: dict[str, Any]) -> Fraction:
        total = Fraction()
        for name in names:
            alike = [hits for hits, other in zip(seen, points, strict=True) if other.get(name) == said.get(name)]
            total += sum(alike, Fraction()) / len(alike)
        return total

    return max(range(len(points)), key=lambda at: (seen[at], elsewhere(points[at]), -at))


@pytest.mark.parametrize("method", WITH)
def test_it_is_a_nested_cross_validation_done_by_hand(table: xr.Dataset, method: str) -> None:
    points = said_by(table, method)
    counts = np.zeros((3, 3), dtype=int)
    places = {label: place for place, label in enumerate(table["class"].values.tolist())}
    for split in range(2):
        seed = 5 + split
        halves = next(StratifiedShuffleSplit(1, test_size=0.5, random_state=seed).split(LABELS, LABELS))
        train, test = (np.sort(half) for half in halves)
        seen = []
        for said in points:
            folds = StratifiedKFold(2, shuffle=True, random_state=seed).split(train, LABELS[train])
            hits = [
                right(predicted_by_hand(method, said, train[a], train[b], seed), train[b])
                for a, b in folds  # one fold after the other, nothing of the test part anywhere
            ]
            seen.append(sum(hits, Fraction()) / 2)
        row = table.sel({"method": method, "split": split})
        np.testing.assert_allclose(row.tuning_accuracy.values[: len(points)], [float(each) for each in seen])
        best = best_by_hand(seen, points)
        assert int(row.chosen) == best
        predicted = predicted_by_hand(method, points[best], train, test, seed)
        assert float(row.accuracy) == float(right(predicted, test))
        for true, label in zip(LABELS[test], predicted, strict=True):
            counts[places[str(true)], places[label]] += 1
    np.testing.assert_array_equal(table.confusion.sel({"method": method}).values, counts)


def test_tuning_had_something_to_choose(table: xr.Dataset) -> None:
    """Otherwise the test above would tell nothing."""
    assert len(np.unique(table.chosen.values)) > 1
    assert (table.tuning_accuracy.max("point") > table.tuning_accuracy.min("point")).any("split").all()
    assert 0.4 < float(table.accuracy.min()) < float(table.accuracy.max()) < 1.0


def test_all_that_is_measured_of_each_method(table: xr.Dataset) -> None:
    for measure in MEASURES:
        known = table[measure].notnull()
        if measure in ("accuracy", "macro_f1", "train_seconds", "predict_seconds"):
            assert known.all()
        elif measure != "objective":  # of a method that learns nothing in steps there is none
            assert known.sel({"method": ["cksc", "jksrc"]}).all()
            assert not known.sel({"method": list(REFERENCES)}).any()
    assert (table.interpretability.sel({"method": "jksrc"}) == 1.0).all()
    assert (table.tuning_seconds > 0).all()


def test_the_methods_are_tested_against_the_best(table: xr.Dataset) -> None:
    means = table.accuracy.mean("split")
    best = table.attrs["best"]
    assert float(means.sel({"method": best})) == float(means.max())
    assert best != WITH[0]  # or this would tell nothing
    for method in WITH:
        row = table.sel({"method": method})
        first, second = row.accuracy.values, table.accuracy.sel({"method": best}).values
        if method == best or (first == second).all():
            assert (row.p_value, row.p_corrected) == (1.0, 1.0)
        elif np.ptp(first - second) > 1e-12:
            assert float(row.p_value) == pytest.approx(stats.ttest_rel(first, second).pvalue)
            assert row.p_value <= row.p_corrected


def test_rounding_tells_nothing_apart() -> None:
    """The same accuracies in another order: their mean differs in the last bits."""
    splits = np.array(list(permutations([0.7, 0.8, 0.9, 0.6, 1.0])))
    means = xr.DataArray(splits, dims=("method", "split")).mean("split")
    assert int(means.argmax("method")) > 0
    assert int(_first_best(means, "method")) == 0
    assert best_point(means.values, [{}] * len(means)) == 0
    means[7] += 0.01
    assert int(_first_best(means, "method")) == best_point(means.values, [{}] * len(means)) == 7


def test_where_all_points_do_equally_well_the_plainest_is_taken(tmp_path: Path) -> None:
    """Also where a point has settings that others do not name: a band, or the shrinkage of one form of JKSRC."""
    rng = np.random.default_rng(0)
    series = [rng.normal(20.0 * (i % 2), 0.1, (8, 2)) for i in range(16)]
    ingest(SeriesSet.from_list(series, [i % 2 for i in range(16)]), tmp_path / "store")
    table, _ = evaluated(tmp_path / "store", ["1nn", "jksrc", "svm"], LEAST, sparsity=1)
    assert float(table.tuning_accuracy.min()) == 1.0
    assert table.chosen.values.ravel().tolist() == [0, 0, 0]


# what a reader finds in the store


def test_the_table_is_in_the_store_with_labelled_axes(ran: tuple[Path, xr.Dataset, Heard]) -> None:
    store, table, _ = ran
    with xr.open_zarr(store, group="results/evaluation", consolidated=False) as opened:
        found = opened.load()
    xr.testing.assert_identical(found, table)
    assert found["method"].values.tolist() == WITH
    assert found["split"].values.tolist() == [0, 1]
    assert found["class"].values.tolist() == found["predicted"].values.tolist() == sorted(set(LABELS))
    assert set(MEASURES) < set(found.data_vars)
    assert found.accuracy.dims == ("method", "split")
    assert found.tuning_accuracy.dims == ("method", "split", "point")
    assert found.confusion.dims == ("method", "class", "predicted")
    assert found.accuracy.attrs["long_name"] == "share of test rows with the right label"
    assert damaged_metadata(Folder(store)) == []


def test_the_table_says_how_it_came_about(ran: tuple[Path, xr.Dataset, Heard]) -> None:
    _, table, _ = ran
    about = table.attrs
    assert about["distances"] == fingerprint(DistanceSpec().resolved())
    assert {name: about[name] for name in ("n_splits", "test_size", "n_folds", "random_state", "sparsity")} == {
        "n_splits": 2,
        "test_size": 0.5,
        "n_folds": 2,
        "random_state": 5,
        "sparsity": 2,
    }
    assert (about["kind"], about["name"], about["title"]) == ("evaluation", "evaluation", "gestures")
    assert (about["quick"], about["tuned"], about["ready"], about["smallest_class"]) == (1, 1, 0, 5)
    assert "2 stratified splits (50% training, 50% test, seeds 5 to 6)" in about["protocol"]
    assert "at most 2 folds inside the training part, for every method alike" in about["protocol"]
    versions = json.loads(about["versions"])
    assert versions["numpy"] == np.__version__
    assert {"python", "cksc_dist", "scikit-learn", "numba", "zarr", "dask"} < set(versions)
    for method in WITH:
        assert said_by(table, method) == [
            point.text() for point in grid_points(method, KernelChoices(), GROUPS, sparsity=2, quick=True)
        ]
    assert said_by(table, "jksrc", 0)["kernels"] == 2


# nothing of the test part is looked at


def test_distances_of_test_rows_change_nothing_that_is_learnt(tmp_path: Path) -> None:
    """Neither the points that are chosen, nor the bandwidth, nor the model: only what is predicted."""
    D, names = pairwise_dtw(DATA), np.unique(LABELS, return_inverse=True)[1]
    _, test = SplitRows(0).draw(names)
    other = D.copy()
    shuffled = np.random.default_rng(0).permutation(test)
    other[test] = 3.0 * D[shuffled] + 1.0  # others' distances, and of another size
    other[:, test] = other[test].T
    other[np.ix_(test, test)] = 9.0
    np.fill_diagonal(other, 0.0)
    tables = []
    for name, matrix in (("first", D), ("second", other)):
        ingest_distances(matrix, tmp_path / name, labels=names, ids=DATA.ids)
        options: dict[str, Any] = {"choices": KernelChoices(None)}
        tables.append(evaluated(tmp_path / name, ["1nn", "cksc", "svm"], LEAST, **options)[0])
    first, second = tables
    learnt = ["chosen", "tuning_accuracy", "objective", "n_iter", "atoms", "interpretability", "settings"]
    xr.testing.assert_identical(first[learnt].drop_attrs(), second[learnt].drop_attrs())
    assert not first.accuracy.equals(second.accuracy)
    assert (first.attrs["ready"], first["class"].values.tolist()) == (1, ["0", "1", "2"])


# what is done is not done again


def test_every_fit_is_counted(ran: tuple[Path, xr.Dataset, Heard]) -> None:
    _, table, heard = ran
    points = sum(len(said_by(table, method)) for method in WITH)
    assert heard.fits == points * 2 * 2 + len(WITH) * 2
    assert f"tuning: {points * 4} fits" in heard.notes
    # one of all dimensions, with and without a band for the nearest neighbour, and one a sensor
    assert heard.pairs == 4 * (30 * 29 // 2)


def test_a_second_run_computes_nothing_and_says_the_same(store: Path, table: xr.Dataset) -> None:
    again, heard = evaluated(store, WITH)
    assert (heard.fits, heard.pairs) == (0, 0)
    assert again.attrs["seconds"] >= 0
    xr.testing.assert_identical(again.drop_attrs(), table.drop_attrs())  # the seconds of that time, too
    same_but_for_seconds(again, table)


def test_methods_that_are_added_or_left_out_leave_the_others_as_they_are(store: Path, table: xr.Dataset) -> None:
    others, heard = evaluated(store, ["lcnnksc", "svm", "cksc"])
    assert heard.fits == 4 * 4 + 2  # those of the new one
    assert others["method"].values.tolist() == ["lcnnksc", "svm", "cksc"]
    for method in ("svm", "cksc"):
        assert others.accuracy.sel({"method": method}).equals(table.accuracy.sel({"method": method}))
    _, heard = evaluated(store, ["1nn"])  # which the last table has not
    assert heard.fits == 0


def test_a_larger_grid_and_more_splits_reuse_what_they_share(fresh: Path) -> None:
    full = len(grid_points("svm", KernelChoices(), GROUPS, sparsity=2))

    def tuned() -> int:
        return len(FitFiles(str(fresh), "evaluation-tuning").load().found)

    evaluated(fresh, ["svm"], Protocol(1, n_folds=2, quick=True))
    assert tuned() == 4 * 2
    _, heard = evaluated(fresh, ["svm"], Protocol(2, n_folds=2))
    assert tuned() == full * 2 * 2  # the four are among them, the split is the first of two
    new = full * 2 * 2 - 4 * 2
    assert heard.fits in (new + 1, new + 2)  # the point that is chosen for the first split may be another now


SCRIPT = """
from cksc_dist.evaluate import Protocol, evaluate
from cksc_dist.spec import RunSpec

protocol = Protocol(n_splits=2, n_folds=2, random_state=5, quick=True)
evaluate({store!r}, {methods!r}, protocol, sparsity=2, run=RunSpec(executor="serial"))
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Starter]:
    with starter(tmp_path) as started:
        yield started


@pytest.mark.slow
def test_a_run_that_was_killed_goes_on(start: Starter, fresh: Path, table: xr.Dataset, tmp_path: Path) -> None:
    def done() -> dict[str, Any]:
        return FitFiles(str(fresh), "evaluation-tuning").load().found

    (tmp_path / "compare.py").write_text(SCRIPT.format(store=str(fresh), methods=WITH))
    run = start(sys.executable, str(tmp_path / "compare.py"))
    wait_until(lambda: not run.runs() or len(done()) >= 10, "results of fits")
    assert run.runs(), run.output
    run.kill()  # -9: nobody tidies up
    before = done()
    assert 10 <= len(before) < 14 * 4
    again, heard = evaluated(fresh, WITH)
    assert heard.fits == 14 * 4 + 4 * 2 - len(before)
    assert {key: done()[key] for key in before} == before
    same_but_for_seconds(again, table)


# the kernel is part of what is tuned


def hill(at: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return a series with one hill in a plain, of a height that tells nothing."""
    return np.asarray(rng.uniform(0.8, 1.2) * np.exp(-((np.arange(24) - at) ** 2) / 4.0))


def made_choice(kind: str) -> SeriesSet:
    """Return two classes that only one window, or only one mode, tells apart."""
    rng = np.random.default_rng(0)
    series, labels = [], []
    for i in range(32):
        late = i % 2
        if kind == "window":
            # when the hill comes; without a band it may be moved for nothing
            series.append(hill(16 if late else 8, rng)[:, None])
        else:
            # whether the second hill comes with the first; warped one by one, it always does
            at = int(rng.integers(6, 12))
            series.append(np.stack([hill(at, rng), hill(at + 6 * late, rng)], axis=1))
        labels.append(("early", "late")[late])
    return SeriesSet.from_list(series, labels)


@pytest.mark.parametrize(
    ("kind", "poor", "good"),
    [
        ("window", DistanceSpec(), DistanceSpec(window=2)),
        ("mode", DistanceSpec(mode="independent"), DistanceSpec()),
    ],
)
def test_tuning_chooses_the_distance_that_tells_classes_apart(
    tmp_path: Path, kind: str, poor: DistanceSpec, good: DistanceSpec
) -> None:
    ingest(made_choice(kind), tmp_path / "store")
    names = {fingerprint(each.resolved()) for each in (poor, good)}
    methods = ["cksc", "svm"]
    alone, heard = evaluated(tmp_path / "store", methods, LEAST, choices=KernelChoices((poor,)))
    assert set(find_matrices(Folder(tmp_path / "store"))) == {fingerprint(poor.resolved())}
    assert float(alone.accuracy.max()) < 0.8
    table, more = evaluated(tmp_path / "store", methods, LEAST, choices=KernelChoices((poor, good)))
    assert set(find_matrices(Folder(tmp_path / "store"))) == names
    assert heard.pairs == more.pairs == 32 * 31 // 2  # those that were missing, each time
    plain = DistanceSpec()
    for method in methods:
        said = said_by(table, method, 0)
        assert (said.get("mode", plain.mode), said.get("window", plain.window)) == (good.mode, good.window)
        assert float(table.accuracy.sel({"method": method})[0]) >= 0.9
    # the fits on the first were made already
    assert more.fits <= heard.fits


def test_tuning_chooses_the_bandwidth(tmp_path: Path) -> None:
    """The paper's rule depends on the unit: at a thousandth of it, all kernels are the identity."""
    large = SeriesSet.from_list([1000.0 * values for values in DATA.series], LABELS)
    ingest(large, tmp_path / "store")
    choices = KernelChoices(factors=(1.0,), bandwidths=("paper", "mean"))
    table, _ = evaluated(tmp_path / "store", ["svm"], Protocol(1, n_folds=3, quick=True), choices=choices)
    assert said_by(table, "svm", 0)["bandwidth"] == "mean"
    assert {said["bandwidth"] for said in said_by(table, "svm")} == {"paper", "mean"}


def test_a_ready_matrix_is_taken_as_it_is(store: Path, table: xr.Dataset) -> None:
    """Of several it must be said which."""
    before = files_below(store)
    with pytest.raises(StoreError, match="holds several finished matrices; choose one by the first letters"):
        evaluated(store, ["svm", "cksc"], choices=KernelChoices(None), name="ready")
    with pytest.raises(StoreError, match=r"distances zz.*has no such matrix"):
        evaluated(store, ["svm", "cksc"], choices=KernelChoices(None), distances="zz", name="ready")
    assert files_below(store) == before
    prefix = table.attrs["distances"][:5]
    ready, heard = evaluated(
        store, ["svm", "cksc", "1nn", "jksrc"], choices=KernelChoices(None), distances=prefix, name="ready"
    )
    assert heard.pairs == 0
    assert (ready.attrs["ready"], ready.attrs["distances"]) == (1, table.attrs["distances"])
    for method in ("svm", "cksc"):  # which are fitted on this one anyway
        assert ready.accuracy.sel({"method": method}).equals(table.accuracy.sel({"method": method}))
    assert len(said_by(ready, "1nn")) == 1
    assert "kernels" not in said_by(ready, "jksrc", 0)


def test_a_method_of_several_kernels_may_come_alone_and_with_groups_of_one_s_own(fresh: Path) -> None:
    table, heard = evaluated(fresh, ["jksrc"], LEAST, groups=[[2], [0, 1], [1, 2]])
    assert table["method"].values.tolist() == [table.attrs["best"]] == ["jksrc"]
    assert said_by(table, "jksrc", 0)["kernels"] == 3
    assert {files.spec.dims for files in find_matrices(Folder(fresh)).values()} == {None, (2,), (0, 1), (1, 2)}
    assert heard.pairs == 4 * (30 * 29 // 2)


# nothing tuned


def test_every_method_runs_untuned_as_a_user_gets_it(store: Path, table: xr.Dataset) -> None:
    protocol = Protocol(1, random_state=5, tune=False)
    plain, heard = evaluated(store, list(METHODS), protocol, name="plain", alpha=0.1)
    assert heard.fits == len(METHODS)
    assert plain["method"].values.tolist() == list(METHODS)
    assert bool((plain.accuracy > 0.4).all())
    assert plain.sizes["point"] == 1
    assert not plain.chosen.any()
    assert plain.tuning_accuracy.isnull().all()
    assert not plain.tuning_seconds.any()
    assert plain.p_value.isnull().all()  # one split tells nothing
    assert "nothing is tuned" in plain.attrs["protocol"]
    assert (plain.attrs["tuned"], plain.attrs["alpha"]) == (0, 0.1)
    said = said_by(plain, "cksc", 0)
    assert (said["alpha"], said["sparsity"], said["factor"]) == (0.1, 2, 1.0)
    train, test = SplitRows(5).draw(LABELS)
    for method in WITH:
        hits = right(predicted_by_hand(method, said_by(plain, method, 0), train, test, 5), test)
        assert float(plain.accuracy.sel({"method": method})[0]) == float(hits)
    known = plain.interpretability.isel(split=0)
    assert known.notnull().values.tolist() == [method not in REFERENCES for method in METHODS]
    assert float(known.min()) > 0.0
    assert float(known.max()) <= 1.0


# the protocol


def test_the_usual_protocol_is_the_paper_s() -> None:
    usual, short = Protocol(), Protocol.short(7)
    assert (usual.n_splits, usual.test_size, usual.n_folds, usual.quick, usual.tune) == (10, 0.5, 5, False, True)
    assert (short.n_splits, short.n_folds, short.random_state, short.quick) == (3, 3, 7, True)
    assert "seeds 0 to 9" in str(usual)
    assert "at most 5 folds" in str(usual)


def test_folds_are_as_many_as_the_smallest_class_allows() -> None:
    labels = np.array(["many"] * 40 + ["few"] * 6)
    for tune in (True, False):
        splits = Protocol(4, random_state=2, tune=tune).splits(labels)
        assert [len(folds) for folds in splits] == [3 if tune else 1] * 4
        assert [[each.fold for each in folds] for folds in splits] == [list(range(3 if tune else 1))] * 4
        assert [{each.seed for each in folds} for folds in splits] == [{2}, {3}, {4}, {5}]
    smaller = Protocol(1, n_folds=5, test_size=0.2).splits(labels)
    assert [len(folds) for folds in smaller] == [5]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_splits": 0}, "n_splits=0"),
        ({"n_folds": 1}, "n_folds=1: must be a whole number of at least 2"),
        ({"test_size": 0.0}, "test_size=0.0"),
        ({"test_size": 1.0}, "test_size=1.0"),
        ({"random_state": -1}, "random_state=-1"),
    ],
)
def test_a_protocol_that_cannot_be(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Protocol(**options)


@pytest.mark.parametrize("axis", ["alpha", "sparsity"])
def test_the_longest_name_that_may_be_given_will_do(fresh: Path, axis: str) -> None:
    table, _ = evaluated(fresh, ["cksc"], LEAST, name=LONGEST_NAME * "x")
    sweep(fresh, table, axis, [1], run=SERIAL)
    (found,) = find_evaluations(Folder(fresh))
    assert set(found.sweeps) == {axis}


# what is wrong is told before anything is computed


@pytest.mark.parametrize(
    ("methods", "options", "words"),
    [
        (["svm", "forest"], {}, "method='forest' is unknown; choose of cksc, kksvd"),
        (["svm", "cksc", "svm"], {}, r"methods=\['svm', 'cksc', 'svm'\]: give at least one, each once"),
        ([], {}, r"methods=\[\]: give at least one"),
        (
            ["svm"],
            {"distances": "29"},
            r"distances='29' names a ready matrix; give choices=KernelChoices\(None\) with it",
        ),
        (["svm"], {"sparsity": 0}, "sparsity=0: must be a whole number of at least 1"),
        (["cksc"], {"alpha": -1.0}, "alpha=-1.0: must be a number"),
        (["svm"], {"name": "a/b"}, "name='a/b': must be letters, digits"),
        (["svm"], {"name": ""}, "name='': must be letters, digits"),
        (["svm"], {"choices": KernelChoices(factors=(1.0, 0.0))}, "factor=0.0: must be a number"),
        (["svm"], {"choices": KernelChoices(bandwidths=("wide",))}, "bandwidth='wide': must be one of 'mean'"),
        (["svm"], {"choices": KernelChoices(factors=())}, "choices: factors is empty; give at least one value"),
        (["svm"], {"choices": KernelChoices(distances=())}, "choices: distances is empty; give at least one value"),
    ],
)
def test_what_is_wrong_is_told_before_anything_is_computed(
    fresh: Path, methods: list[str], options: dict[str, Any], words: str
) -> None:
    before = files_below(fresh)
    with pytest.raises(InputError, match=words):
        evaluated(fresh, methods, **options)
    assert files_below(fresh) == before


@pytest.mark.parametrize("tune", [True, False], ids=["tuned", "untuned"])
@pytest.mark.parametrize(
    ("counts", "test_size", "words"),
    [
        ([30], 0.5, "split=0: the training part has one class, 'class0'; it needs two at least"),
        ([29, 1], 0.5, "the 30 rows cannot be split with test_size=0.5: .*class"),
        ([20, 10], 0.01, "the 30 rows cannot be split with test_size=0.01"),
        ([14, 14, 2], 0.9, "split=0: class 'class2' is tested on but missing in the training part"),
        ([14, 14, 2], 0.5, "split 0: a class has one row in the training part, which cannot be cross-validated"),
    ],
)
def test_sets_that_cannot_be_split_are_told_before_anything_is_computed(
    tmp_path: Path, counts: list[int], test_size: float, words: str, tune: bool
) -> None:
    labels = [f"class{number}" for number, count in enumerate(counts) for _ in range(count)]
    store, protocol = tmp_path / "store", Protocol(2, test_size=test_size, tune=tune)
    if not tune and "cross-validated" in words:  # which then is no need
        assert len(protocol.splits(np.array(labels))) == 2
        return
    ingest(SeriesSet.from_list(DATA.series, labels), store)
    before = files_below(store)
    with pytest.raises(InputError, match=words):
        evaluated(store, ["svm"], protocol)
    assert files_below(store) == before


# the published data


@pytest.mark.realdata
def test_utkinect_in_short(real_data: Path, tmp_path: Path) -> None:
    ingest(SeriesSet.read(real_data / "UTKinect"), tmp_path / "utkinect.zarr")
    protocol = Protocol(2, n_folds=2, quick=True)
    table = evaluate(tmp_path / "utkinect.zarr", ["cksc", "svm", "1nn"], protocol, sparsity=7, alpha=0.1, run=SERIAL)
    assert float(table.accuracy.sel({"method": "cksc"}).mean()) > 0.9
    assert float(table.accuracy.min()) > 0.8
    assert int(table.confusion.sel({"method": "cksc"}).sum()) == 2 * 100
