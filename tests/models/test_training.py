"""Training from a store: the same bytes wherever the kernel is and whatever is killed, and no work twice."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dask.array import from_array
from distributed import Client, LocalCluster
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from benchmarks.accuracy import SETS
from cksc_dist import CKSC, DistanceKernel, SeriesSet, load_model, open_matrix
from cksc_dist.cli import main
from cksc_dist.dist.cluster_gram import ClusterGram
from cksc_dist.dist.distances import compute_distances
from cksc_dist.dist.ingest import append, ingest, ingest_distances
from cksc_dist.dist.progress import Progress
from cksc_dist.errors import InputError, ModelFileError, PlanError, StoreBusyError, StoreError
from cksc_dist.io import make_gestures
from cksc_dist.models import stored_kernel, training
from cksc_dist.models.training import Place, held_out_accuracy, train
from cksc_dist.spec import DistanceSpec, KernelSpec, ModelSpec, RunSpec
from cksc_dist.store.checkpoints import Checkpoints
from cksc_dist.store.folder import Folder
from cksc_dist.store.kernel_copy import find_copies
from cksc_dist.store.lease import Lease
from cksc_dist.store.model_files import model_digest
from tests.dist.processes import Started, Starter, free_port, starter, wait_until
from tests.small_stores import changed, files_below

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

DATA = make_gestures(n_per_class=40, length=(6, 12))
ROWS = np.setdiff1d(np.arange(len(DATA)), [0, 5, 44, 45, 159])
SPEC = ModelSpec(sparsity=4, max_iter=6, tol=0.0)
SETTLES = ModelSpec(sparsity=4, tol=0.02)
PLACES: list[Place] = ["memory", "disk", "cluster"]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("template") / "gestures.zarr"
    ingest(DATA, store)
    compute_distances(store, run=RunSpec(executor="serial"))
    return store


@pytest.fixture
def store(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template, tmp_path / "gestures.zarr"))


@contextmanager
def cluster_of(count: int) -> Iterator[Client]:
    with (
        LocalCluster(n_workers=count, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with cluster_of(2) as found:
        yield found


class Heard(Progress):
    """What is told."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    @property
    def alternations(self) -> list[int]:
        """Numbers of the alternations that were made."""
        return alternations_in("\n".join(self.notes))


def alternations_in(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"^alternation (\d+): J ", text, re.MULTILINE)]


def learnt(model: CKSC) -> list[Any]:
    """All that training decides, as arrays."""
    U, G = model.dictionary_, model.codes_
    history = np.column_stack(list(model.objective_terms_.values()))
    return [U.data, U.indices, U.indptr, G.data, G.indices, G.indptr, history, np.array([model.beta_, model.n_iter_])]


def check_same(one: CKSC, other: CKSC) -> None:
    for mine, theirs in zip(learnt(one), learnt(other), strict=True):
        assert mine.dtype == theirs.dtype
        assert mine.tobytes() == theirs.tobytes()


def left_of(model: Path) -> list[str]:
    """Return what is left of a training beside its model."""
    return [path.name for path in model.parent.iterdir() if path.name.startswith(f"{model.name}.")]


# the same bytes wherever the kernel is


def test_wherever_the_kernel_is_and_whoever_works_the_model_has_the_same_bytes(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = train(store, tmp_path / "model", rows=ROWS, spec=SPEC, place="memory", run=RunSpec(workers=1)).model
    digest = model_digest(tmp_path / "model")
    # without this, work as small as here is not sent to workers
    monkeypatch.setattr(ClusterGram.__init__, "__defaults__", (None, 0))
    ways: list[tuple[Place, RunSpec, int]] = [
        ("auto", RunSpec(), 0),
        ("memory", RunSpec(workers=2), 0),
        ("disk", RunSpec(workers=1), 0),
        ("disk", RunSpec(workers=2), 0),
        *(("cluster", RunSpec(), count) for count in (1, 2, 4)),
    ]
    for number, (place, run, workers) in enumerate(ways):
        path = tmp_path / f"model-{number}"
        if workers:
            with cluster_of(workers) as client:
                done = train(store, path, rows=ROWS, spec=SPEC, place=place, client=client, new_kernel=True)
        else:
            done = train(store, path, rows=ROWS, spec=SPEC, place=place, run=run, new_kernel=True)
        check_same(done.model, expected)
        check_same(load_model(path), expected)
        assert model_digest(path) == digest, place
    assert expected.n_iter_ == SPEC.max_iter
    assert len(expected.objective_history_) == 2 * SPEC.max_iter + 1


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_it_is_the_fit_of_the_estimator_on_the_same_kernel(store: Path, tmp_path: Path, dtype: str) -> None:
    compute_distances(store, DistanceSpec(dtype=dtype), RunSpec(executor="serial"))
    matrix = next(m for m in (open_matrix(store, f.name) for f in (store / "distances").glob("*/")) if m.dtype == dtype)
    kernel = KernelSpec(factor=0.5)
    view = matrix.kernel(ROWS, factor=0.5)
    test = np.setdiff1d(np.arange(len(DATA)), ROWS)
    for seed in (0, 11):
        expected = CKSC(sparsity=4, max_iter=6, tol=0.0, random_state=seed).fit(np.asarray(view), DATA.labels[ROWS])
        for place in ("memory", "disk"):
            done = train(
                store,
                tmp_path / f"{place}-{seed}",
                distances=matrix.fingerprint,
                rows=ROWS,
                spec=SPEC,
                kernel=kernel,
                seed=seed,
                place=place,
            ).model
            check_same(done, expected)
            new = [DATA[i] for i in test]
            assert done.predict(new).tolist() == expected.predict(view.against(test)).tolist()
            np.testing.assert_allclose(done.class_shares(new), expected.class_shares(view.against(test)), atol=1e-6)


def test_it_is_the_fit_of_the_estimator_on_the_series(store: Path, tmp_path: Path) -> None:
    ours = train(store, tmp_path / "model", rows=ROWS, spec=SETTLES, seed=3).model
    train_set, new = DATA.select(ROWS), make_gestures(n_per_class=5, length=(6, 12), random_state=9)
    theirs = CKSC(sparsity=4, tol=0.02, kernel="dtw", random_state=3).fit(train_set, train_set.labels)
    np.testing.assert_allclose(ours.objective_history_, theirs.objective_history_, rtol=1e-9)
    for model in (ours, load_model(tmp_path / "model")):
        assert model.predict(new.series).tolist() == theirs.predict(new.series).tolist()
        np.testing.assert_allclose(model.class_shares(new.series), theirs.class_shares(new.series), atol=1e-9)
    # the parameters of the model say how it was made
    again = clone(ours).fit(train_set, train_set.labels)
    np.testing.assert_allclose(ours.objective_history_, again.objective_history_, rtol=1e-9)


@pytest.mark.realdata
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::cksc_dist.errors.SmallClassWarning")
@pytest.mark.parametrize("name", [pytest.param("Words", marks=pytest.mark.campaign), "UTKinect"])
def test_it_is_the_fit_in_memory_on_published_sets(name: str, real_data: Path, tmp_path: Path) -> None:
    path, sparsity, alpha, _ = SETS[name]
    data = SeriesSet.read(real_data / path)
    ingest(data, tmp_path / "store")
    compute_distances(tmp_path / "store", run=RunSpec(executor="threads"))
    matrix = open_matrix(tmp_path / "store")
    rows, test = np.arange(0, len(data), 2), np.arange(1, len(data), 2)
    D = matrix[:, :]
    kernel = DistanceKernel()
    K, K_test = kernel.fit_transform(D[np.ix_(rows, rows)]), kernel.transform(D[np.ix_(test, rows)])
    expected = CKSC(sparsity=sparsity, alpha=alpha, random_state=0, n_jobs=-1).fit(K, data.labels[rows])
    spec = ModelSpec(sparsity=sparsity, alpha=alpha)
    models = []
    for place in ("memory", "disk"):
        done = train(tmp_path / "store", tmp_path / place, rows=rows, spec=spec, place=place)
        models.append(done.model)
        np.testing.assert_allclose(done.model.objective_history_, expected.objective_history_, rtol=1e-9)
        accuracy = held_out_accuracy(done.model, matrix, done.rows, test)
        assert accuracy == np.mean(expected.predict(K_test) == data.labels[test])
    check_same(*models)
    few = test[:: len(test) // 20]
    found = load_model(tmp_path / "disk").predict([data[i] for i in few])
    assert found.tolist() == expected.predict(K_test[:: len(test) // 20]).tolist()


def test_the_accuracy_on_rows_held_out_is_that_of_their_series(store: Path, tmp_path: Path) -> None:
    matrix, test = open_matrix(store), np.setdiff1d(np.arange(len(DATA)), np.arange(0, 160, 3))
    for repair in (None, "clip"):
        kernel = KernelSpec(repair=repair)
        done = train(store, tmp_path / f"{repair}", rows=np.arange(0, 160, 3), spec=SETTLES, kernel=kernel)
        expected = np.mean(done.model.predict([DATA[i] for i in test]) == DATA.labels[test])
        assert held_out_accuracy(done.model, matrix, done.rows, test) == expected > 0.5


def test_accuracy_is_measured_in_parts(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = train(store, tmp_path / "model", rows=np.arange(0, 160, 3), spec=SETTLES)
    test = np.setdiff1d(np.arange(len(DATA)), done.rows)
    whole = held_out_accuracy(done.model, open_matrix(store), done.rows, test)
    monkeypatch.setattr(training, "HELD_OUT_ROWS", 7)
    assert held_out_accuracy(done.model, open_matrix(store), done.rows, test) == whole


# which rows, and which kernel


def test_rows_are_positions_or_a_mask_in_any_order(store: Path, tmp_path: Path) -> None:
    mask = np.isin(np.arange(len(DATA)), ROWS)
    shuffled = np.random.default_rng(0).permutation(np.concatenate([ROWS, ROWS[:5]]))
    models = [
        train(store, tmp_path / f"model-{i}", rows=rows, spec=SETTLES) for i, rows in enumerate((ROWS, mask, shuffled))
    ]
    for done in models:
        assert done.rows.tolist() == ROWS.tolist()
        check_same(done.model, models[0].model)


def test_the_model_knows_where_it_comes_from_and_needs_nothing_else(store: Path, tmp_path: Path) -> None:
    done = train(store, tmp_path / "model", rows=ROWS, spec=SETTLES, place="disk")
    matrix = open_matrix(store)
    origin = load_model(tmp_path / "model").origin_
    assert origin is not None
    assert origin["store"] == str(store)
    assert origin["matrix"] == matrix.fingerprint
    carrying = ROWS[done.model.support_]
    assert origin["rows"] == carrying.tolist()
    assert origin["ids"] == DATA.ids[carrying].tolist()
    expected = done.model.predict(DATA.series[:9]).tolist()
    shutil.rmtree(store)
    assert load_model(tmp_path / "model").predict(DATA.series[:9]).tolist() == expected


def test_a_matrix_that_came_ready(tmp_path: Path) -> None:
    D = np.abs(np.subtract.outer(np.arange(40.0), np.arange(40.0))) ** 0.5
    labels = np.repeat(["low", "high"], 20)
    ingest_distances(D, tmp_path / "ready.zarr", labels=labels)
    rows, test = np.arange(0, 40, 2), np.arange(1, 40, 2)
    kernel = DistanceKernel()
    K = kernel.fit_transform(D[np.ix_(rows, rows)])
    expected = CKSC(sparsity=3, random_state=0).fit(K, labels[rows])
    for place in ("memory", "disk"):
        done = train(
            tmp_path / "ready.zarr",
            tmp_path / place,
            rows=rows,
            spec=ModelSpec(sparsity=3),
            place=place,
        )
        model = load_model(tmp_path / place)
        assert model.kernel == "precomputed"
        np.testing.assert_allclose(model.objective_history_, expected.objective_history_, rtol=1e-9)
        K_test = kernel.transform(D[np.ix_(test, rows)])
        assert model.predict(K_test).tolist() == expected.predict(K_test).tolist()
        accuracy = held_out_accuracy(done.model, open_matrix(tmp_path / "ready.zarr"), done.rows, test)
        assert accuracy == np.mean(expected.predict(K_test) == labels[test])


@pytest.mark.parametrize("metric", ["euclidean", "chi2"])
def test_other_metrics_predict_new_series(tmp_path: Path, metric: Any) -> None:
    rng = np.random.default_rng(0)
    series = [np.abs(rng.standard_normal((5, 2)) + 3 * (i % 2)) for i in range(40)]
    data = SeriesSet.from_list(series, labels=[("walk", "sit")[i % 2] for i in range(40)])
    ingest(data, tmp_path / "store")
    compute_distances(tmp_path / "store", DistanceSpec(metric=metric))
    train(tmp_path / "store", tmp_path / "model", rows=np.arange(30), spec=ModelSpec(sparsity=2))
    assert load_model(tmp_path / "model").score([series[i] for i in range(30, 40)], data.labels[30:]) == 1.0


@pytest.mark.parametrize("rule", ["median", "paper", 4.5])
def test_rules_of_bandwidth(store: Path, tmp_path: Path, rule: Any) -> None:
    matrix = open_matrix(store)
    view = np.asarray(matrix.kernel(ROWS, bandwidth=rule, factor=2.0))
    expected = CKSC(sparsity=4, tol=0.02, random_state=0).fit(view, DATA.labels[ROWS])
    for place in PLACES[:2]:
        kernel = KernelSpec(bandwidth=rule, factor=2.0)
        done = train(store, tmp_path / place, rows=ROWS, spec=SETTLES, kernel=kernel, place=place)
        check_same(done.model, expected)


def test_repair_is_for_memory(store: Path, tmp_path: Path, client: Client) -> None:
    kernel = KernelSpec(factor=0.5, repair="clip")
    done = train(store, tmp_path / "model", rows=ROWS, spec=SETTLES, kernel=kernel)
    theirs = CKSC(sparsity=4, tol=0.02, kernel="dtw", factor=0.5, repair="clip", random_state=0)
    theirs.fit(DATA.select(ROWS), DATA.labels[ROWS])
    np.testing.assert_allclose(done.model.objective_history_, theirs.objective_history_, rtol=1e-6)
    new = make_gestures(n_per_class=5, length=(6, 12), random_state=9)
    assert load_model(tmp_path / "model").predict(new.series).tolist() == theirs.predict(new.series).tolist()
    for place in PLACES[1:]:
        with pytest.raises(PlanError, match=r"repair='clip' needs all eigenvalues of .*, in memory \(.*train there"):
            train(store, tmp_path / "other", rows=ROWS, spec=SETTLES, kernel=kernel, place=place, client=client)
    assert not (tmp_path / "other").exists()
    assert find_copies(Folder(store)) == []


def test_a_matrix_that_came_ready_cannot_be_repaired(tmp_path: Path) -> None:
    D = np.abs(np.subtract.outer(np.arange(40.0), np.arange(40.0))) ** 0.5
    ingest_distances(D, tmp_path / "ready.zarr", labels=np.repeat(["low", "high"], 20))
    with pytest.raises(InputError, match=r"repair='clip' is not for a ready matrix"):
        train(tmp_path / "ready.zarr", tmp_path / "model", kernel=KernelSpec(repair="clip"), spec=SETTLES)


# where to run


def test_where_and_why_is_told(store: Path, tmp_path: Path, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def told(number: int, **options: Any) -> str:
        heard = Heard()
        done = train(store, tmp_path / f"model-{number}", spec=SETTLES, progress=heard, **options)
        (line,) = (note for note in heard.notes if note.startswith("training "))
        assert line == f"training {done.place.replace(' (', ': ', 1)[:-1]}"
        return line

    assert re.fullmatch(r"training in memory: the kernel takes 0\.2 MB, and .* free: nothing is faster", told(0))
    assert told(1, place="disk") == "training from disk: as asked for"
    assert told(2, place="cluster", client=client) == "training on the cluster: as asked for"
    little = RunSpec(memory=10_000)
    assert "one machine reads it fastest by threads of one process" in told(3, run=little)
    assert told(4, run=little, client=client).startswith("training on the cluster: the kernel takes 0.2 MB")
    assert told(5, run=little, place="memory") == "training in memory: as asked for"
    assert told(6, client=client).startswith("training in memory")  # it fits: workers would only cost time
    with pytest.raises(PlanError, match="bandwidth='median' needs all distances in memory"):
        train(store, tmp_path / "median", kernel=KernelSpec(bandwidth="median"), run=little)
    monkeypatch.setattr(stored_kernel, "MEMORY_SHARE", 1e-9)
    assert told(7).startswith("training from disk: the kernel takes")


# the kernel copy


def test_the_copy_is_kept_unless_it_is_to_be_dropped(store: Path, tmp_path: Path) -> None:
    train(store, tmp_path / "first", rows=ROWS, spec=SETTLES, place="disk")
    (key,) = find_copies(Folder(store))
    before = files_below(store / "kernels")
    assert not any(name.endswith((".npz", "lock.json", ".partial")) for name in before)
    train(store, tmp_path / "second", rows=ROWS, spec=SETTLES, place="disk", seed=1)
    assert files_below(store / "kernels") == before
    train(store, tmp_path / "third", rows=ROWS[:-1], spec=SETTLES, place="disk", drop_kernel=True)
    assert find_copies(Folder(store)) == [key]
    train(store, tmp_path / "fourth", rows=ROWS, spec=SETTLES, place="disk", seed=2, drop_kernel=True)
    assert find_copies(Folder(store)) == []


@pytest.mark.parametrize("place", ["disk", "memory"])
def test_a_copy_that_is_no_longer_wanted_is_dropped_even_where_nothing_is_to_do(
    store: Path, tmp_path: Path, place: Any
) -> None:
    train(store, tmp_path / "model", rows=ROWS, spec=SETTLES, place="disk")
    assert len(find_copies(Folder(store))) == 1
    done = train(store, tmp_path / "model", rows=ROWS, spec=SETTLES, place=place, drop_kernel=True)
    assert done.place == "not needed"
    assert find_copies(Folder(store)) == []


def test_training_in_memory_drops_a_copy_of_the_same_kernel_where_that_is_asked_for(
    store: Path, tmp_path: Path
) -> None:
    train(store, tmp_path / "first", rows=ROWS, spec=SETTLES, place="disk")
    train(store, tmp_path / "second", rows=ROWS, spec=SETTLES, place="memory", seed=1, drop_kernel=True)
    assert find_copies(Folder(store)) == []


def test_beta_is_kept_for_the_same_kernel_and_alpha(store: Path, tmp_path: Path) -> None:
    def told(number: int, **options: Any) -> str:
        heard = Heard()
        train(store, tmp_path / f"{number}", rows=ROWS, place="disk", progress=heard, **options)
        (note,) = (note for note in heard.notes if note.startswith("beta "))
        return note

    first = told(0, spec=SETTLES)
    assert re.match(r"beta \S+ after [1-6] passes over K, ", first)
    kept = told(1, spec=SETTLES, seed=5)
    assert kept == f"{' '.join(first.split()[:2])}, kept with the kernel copy"
    assert "passes over K" in told(2, spec=ModelSpec(sparsity=4, tol=0.02, alpha=0.3))
    assert "passes over K" in told(3, spec=SETTLES, kernel=KernelSpec(factor=0.5))
    assert "passes over K" in told(4, spec=SETTLES, seed=6, new_kernel=True)
    check_same(load_model(tmp_path / "1"), train(store, tmp_path / "memory", rows=ROWS, spec=SETTLES, seed=5).model)


def test_beta_is_of_the_labels_too(store: Path, tmp_path: Path) -> None:
    train(store, tmp_path / "first", spec=SETTLES, place="disk")
    others = SeriesSet.from_list(DATA.series, np.where(DATA.labels == "gesture0", "a", "b"), DATA.ids.tolist())
    ingest(others, store, replace=True)
    compute_distances(store, run=RunSpec(executor="serial"))
    second = train(store, tmp_path / "second", spec=SETTLES, place="disk").model
    expected = train(store, tmp_path / "memory", spec=SETTLES, place="memory").model
    check_same(second, expected)


def test_a_damaged_copy_is_told_and_written_again_on_request(store: Path, tmp_path: Path) -> None:
    expected = train(store, tmp_path / "first", rows=ROWS, spec=SETTLES, place="disk").model
    path = next((store / "kernels").glob("*/strips/kernel/c/1/0"))
    content = bytearray(path.read_bytes())
    content[5000] ^= 8
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"strip 1 of the kernel copy .* run the same command again with --new-kernel"):
        train(store, tmp_path / "second", rows=ROWS, spec=SETTLES, place="disk")
    mended = train(store, tmp_path / "second", rows=ROWS, spec=SETTLES, place="disk", new_kernel=True)
    check_same(mended.model, expected)


def test_a_changed_series_is_never_trained_on_with_the_old_kernel(store: Path, tmp_path: Path) -> None:
    train(store, tmp_path / "model", spec=SETTLES, place="disk")
    ingest(changed(DATA, 7), store, replace=True)
    compute_distances(store, run=RunSpec(executor="serial"))
    heard = Heard()
    found = train(store, tmp_path / "model", spec=SETTLES, place="disk", progress=heard).model
    assert heard.alternations
    assert len(find_copies(Folder(store))) == 2
    check_same(found, train(store, tmp_path / "memory", spec=SETTLES, place="memory").model)


def test_series_that_are_added_leave_model_and_copy_of_the_old_rows_as_they_are(store: Path, tmp_path: Path) -> None:
    rows = np.arange(len(DATA))
    train(store, tmp_path / "model", rows=rows, spec=SETTLES, place="disk")
    more = make_gestures(n_per_class=3, length=(6, 12), random_state=4)
    append(store, SeriesSet.from_list(more.series, more.labels, [f"new{i}" for i in range(len(more))]))
    again = train(store, tmp_path / "model", rows=rows, spec=SETTLES, place="disk")
    assert again.place == "not needed"
    whole = train(store, tmp_path / "model", spec=SETTLES, place="disk")
    assert len(whole.rows) == len(DATA) + len(more)
    assert len(find_copies(Folder(store))) == 2


# going on


class Died(BaseException):
    """Stands for the death of the process: no handler of the package may catch it."""


@contextmanager
def dies_after(monkeypatch: pytest.MonkeyPatch, alternation: int) -> Iterator[None]:
    """Let training die in the middle of the alternation after this one."""
    save = Checkpoints.save

    def die(checkpoints: Checkpoints, number: int, *others: Any) -> None:
        if number > alternation:
            raise Died
        save(checkpoints, number, *others)

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "save", die)
        with pytest.raises(Died):
            yield


@pytest.mark.parametrize("place", ["memory", "disk"])
@pytest.mark.parametrize("stop", [0, 1, 4])
def test_it_goes_on_after_the_last_alternation_that_was_finished(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: int, place: Any
) -> None:
    whole = train(store, tmp_path / "whole", rows=ROWS, spec=SPEC, place=place)
    assert whole.resumed == 0
    with dies_after(monkeypatch, stop):
        train(store, tmp_path / "model", rows=ROWS, spec=SPEC, place=place)
    assert not (tmp_path / "model").exists()
    heard = Heard()
    done = train(store, tmp_path / "model", rows=ROWS, spec=SPEC, place=place, progress=heard)
    assert heard.alternations == list(range(stop + 1, 7))
    assert (f"going on after alternation {stop}" in heard.notes) == (stop > 0)
    assert done.resumed == stop
    check_same(done.model, whole.model)
    assert model_digest(tmp_path / "model") == model_digest(tmp_path / "whole")


def test_it_goes_on_in_another_place(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, client: Client
) -> None:
    whole = train(store, tmp_path / "whole", rows=ROWS, spec=SPEC, place="memory").model
    for stop, place in enumerate(PLACES, 1):
        with dies_after(monkeypatch, stop):
            train(store, tmp_path / "model", rows=ROWS, spec=SPEC, place=place, client=client)
    heard = Heard()
    done = train(store, tmp_path / "model", rows=ROWS, spec=SPEC, place="memory", progress=heard)
    assert heard.alternations == [4, 5, 6]
    check_same(done.model, whole)


def test_a_death_between_the_last_alternation_and_the_model(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train(store, tmp_path / "whole", rows=ROWS, spec=SETTLES)

    def die(*_: Any) -> None:
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr(CKSC, "save", die)
        with pytest.raises(Died):
            train(store, tmp_path / "model", rows=ROWS, spec=SETTLES)
    heard = Heard()
    done = train(store, tmp_path / "model", rows=ROWS, spec=SETTLES, progress=heard)
    assert heard.alternations == []
    assert done.resumed == whole.model.n_iter_
    check_same(done.model, whole.model)
    assert left_of(tmp_path / "model") == []


def test_what_is_finished_is_not_trained_again(store: Path, tmp_path: Path) -> None:
    first = train(store, tmp_path / "model", rows=ROWS, spec=SETTLES)
    before = files_below(tmp_path / "model")
    assert left_of(tmp_path / "model") == []
    heard = Heard()
    again = train(store, tmp_path / "model", rows=ROWS, spec=SETTLES, progress=heard)
    assert heard.notes == [
        f"{tmp_path / 'model'} is trained already, with these settings on these series; nothing to do"
    ]
    assert again.place == "not needed"
    assert again.resumed == first.model.n_iter_
    check_same(again.model, first.model)
    assert files_below(tmp_path / "model") == before
    assert left_of(tmp_path / "model") == []


def test_from_scratch_begins_again(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = train(store, tmp_path / "model", rows=ROWS, spec=SETTLES)
    heard = Heard()
    again = train(store, tmp_path / "model", rows=ROWS, spec=SETTLES, from_scratch=True, progress=heard)
    assert heard.alternations == list(range(1, whole.model.n_iter_ + 1))
    check_same(again.model, whole.model)
    with dies_after(monkeypatch, 3):
        train(store, tmp_path / "other", rows=ROWS, spec=SPEC)
    heard = Heard()
    train(store, tmp_path / "other", rows=ROWS, spec=SPEC, from_scratch=True, progress=heard)
    assert heard.alternations == [1, 2, 3, 4, 5, 6]


def test_a_damaged_checkpoint_is_told_and_left_behind_from_scratch(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with dies_after(monkeypatch, 2):
        train(store, tmp_path / "model", rows=ROWS, spec=SPEC)
    for path in (tmp_path / "model.training").glob("*/checkpoint-*"):
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(StoreError, match=r"checkpoint 2 in .* is damaged or lost, .*; begin again with --from-scratch"):
        train(store, tmp_path / "model", rows=ROWS, spec=SPEC)
    done = train(store, tmp_path / "model", rows=ROWS, spec=SPEC, from_scratch=True)
    assert done.resumed == 0


def _beyond(arrays: dict[str, Any], settings: dict[str, Any]) -> None:
    arrays["codes_indices"][:] = 2**30


def _lost(arrays: dict[str, Any], settings: dict[str, Any]) -> None:
    del arrays["KU"]


def _unknown(arrays: dict[str, Any], settings: dict[str, Any]) -> None:
    settings["other"] = 1


def _narrow(arrays: dict[str, Any], settings: dict[str, Any]) -> None:
    arrays["KU"] = arrays["KU"][:, 1:]


def _too_many(arrays: dict[str, Any], settings: dict[str, Any]) -> None:
    arrays["atoms_counts"][0] = 99


def _endless(arrays: dict[str, Any], settings: dict[str, Any]) -> None:
    settings["beta"] = "inf"


@pytest.mark.parametrize("forge", [_beyond, _lost, _unknown, _narrow, _too_many, _endless])
def test_a_checkpoint_that_somebody_has_made_is_not_believed(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forge: Any
) -> None:
    """Its checksum is right; compiled code would read anywhere in memory."""
    with dies_after(monkeypatch, 2):
        train(store, tmp_path / "model", rows=ROWS, spec=SPEC)
    (place,) = (tmp_path / "model.training").iterdir()
    checkpoints = Checkpoints(Folder(place), place.name)
    latest = checkpoints.latest()
    assert latest is not None
    number, arrays, settings = latest
    forge(arrays, settings)
    checkpoints.save(number, arrays, settings)
    with pytest.raises(StoreError, match=r"checkpoint 2 in .* does not hold together .*; begin again with --from-scra"):
        train(store, tmp_path / "model", rows=ROWS, spec=SPEC)


@pytest.mark.parametrize("kept", [{"beta": 1.0}, {"beta": "x"}, [1], {"beta": -1.0, "least_joint": 0.0}])
def test_a_ridge_that_is_none_is_computed_again(store: Path, tmp_path: Path, kept: Any) -> None:
    first = train(store, tmp_path / "first", rows=ROWS, place="disk", spec=SETTLES).model
    (path,) = store.glob("kernels/*/ridge-*.json")
    Folder(path.parent).write_json(path.name, kept)
    check_same(first, train(store, tmp_path / "second", rows=ROWS, place="disk", spec=SETTLES).model)


def test_a_larger_max_iter_goes_on_where_a_smaller_one_ended(store: Path, tmp_path: Path) -> None:
    def spec_of(count: int) -> ModelSpec:
        return ModelSpec(sparsity=4, max_iter=count, tol=0.0)

    with pytest.warns(ConvergenceWarning, match=r"after 2 alternations; run again with a larger max_iter, and"):
        train(store, tmp_path / "model", rows=ROWS, spec=spec_of(2))
    heard = Heard()
    assert train(store, tmp_path / "model", rows=ROWS, spec=spec_of(2), progress=heard).place == "not needed"
    done = train(store, tmp_path / "model", rows=ROWS, spec=spec_of(6), progress=heard)
    assert heard.alternations == [3, 4, 5, 6]
    assert done.resumed == 2
    check_same(done.model, train(store, tmp_path / "whole", rows=ROWS, spec=SPEC).model)
    fewer = train(store, tmp_path / "model", rows=ROWS, spec=spec_of(3))
    assert fewer.model.n_iter_ == 3
    # which loses nothing of what was made before
    assert train(store, tmp_path / "model", rows=ROWS, spec=spec_of(7)).resumed == 6
    check_same(fewer.model, train(store, tmp_path / "three", rows=ROWS, spec=spec_of(3)).model)


@pytest.mark.parametrize(
    "other",
    [
        {"spec": ModelSpec(sparsity=3, max_iter=6, tol=0.0)},
        {"spec": ModelSpec(sparsity=4, max_iter=6, tol=0.0, alpha=0.3)},
        {"spec": ModelSpec(sparsity=4, max_iter=6, tol=1e-6)},
        {"seed": 1},
        {"kernel": KernelSpec(factor=0.5)},
        {"rows": ROWS[:-1]},
    ],
    ids=lambda other: next(iter(other)),
)
def test_changed_settings_do_not_go_on(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: dict[str, Any]
) -> None:
    with dies_after(monkeypatch, 2):
        train(store, tmp_path / "model", rows=ROWS, spec=SPEC)
    heard = Heard()
    options: dict[str, Any] = {"rows": ROWS, "spec": SPEC} | other
    done = train(store, tmp_path / "model", progress=heard, **options)
    assert heard.alternations[0] == 1
    assert done.resumed == 0
    check_same(done.model, train(store, tmp_path / "fresh", **options).model)
    # trying other settings for a moment loses nothing of the first ones
    assert train(store, tmp_path / "model", rows=ROWS, spec=SPEC).resumed == 2


def test_another_ready_matrix_is_never_trained_on_with_the_old_kernel(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat(["a", "b"], 20)
    models = []
    for scale in (1.0, 3.0):
        points = rng.standard_normal((40, 2)) + scale * (labels == "a")[:, None]
        D = np.sqrt(((points[:, None] - points[None]) ** 2).sum(axis=2))
        ids = [f"row{i}" for i in range(40)]
        ingest_distances((D + D.T) / 2, tmp_path / "store", labels=labels, ids=ids, replace=True)
        for place in ("memory", "disk"):
            done = train(
                tmp_path / "store", tmp_path / place, spec=ModelSpec(sparsity=3, max_iter=3, tol=0.0), place=place
            )
            assert done.place != "not needed"
            models.append(done.model)
    check_same(models[0], models[1])
    check_same(models[2], models[3])
    assert not np.array_equal(models[0].objective_history_, models[2].objective_history_)


def test_a_model_among_the_other_parts_of_its_store_is_refused(store: Path) -> None:
    for name in (".", "models", "series", "models/a/b"):
        with pytest.raises(InputError, match=r"lies inside the store; in there, a model is .*/models/NAME"):
            train(store, store / name, spec=SPEC)


def test_changed_labels_do_not_go_on(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with dies_after(monkeypatch, 2):
        train(store, tmp_path / "model", spec=SPEC)
    labels = DATA.labels.copy()
    labels[0] = "gesture3"
    ingest(SeriesSet.from_list(DATA.series, labels, DATA.ids.tolist(), name=DATA.name), store, replace=True)
    compute_distances(store, run=RunSpec(executor="serial"))
    assert train(store, tmp_path / "model", spec=SPEC).resumed == 0


# what cannot be done


def test_fit_takes_views_and_dask_arrays_with_a_client(store: Path, client: Any) -> None:
    kernel = open_matrix(store).kernel(ROWS)
    labels = open_matrix(store).labels[ROWS]
    plain = CKSC(sparsity=4, max_iter=3, tol=0.0, random_state=0).fit(np.asarray(kernel), labels)
    array = from_array(np.asarray(kernel), chunks=50)
    for X in (kernel, array):
        other = CKSC(sparsity=4, max_iter=3, tol=0.0, random_state=0).fit(X, labels, client=client)
        assert np.array_equal(plain.objective_history_, other.objective_history_)
        assert np.array_equal(plain.dictionary_.data, other.dictionary_.data)
    with pytest.raises(InputError, match="client is for a Dask array or a view of a stored matrix"):
        CKSC(sparsity=4).fit(np.asarray(kernel), labels, client=client)


def test_status_tells_of_a_training_that_was_killed(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with dies_after(monkeypatch, 2):
        train(store, store / "models" / "v1.2", rows=ROWS, spec=SPEC)
    assert main(["status", str(store)]) == 0
    said = capsys.readouterr().out
    assert "training of v1.2: 2 alternations are kept; nobody is at it: run cksc train again to go on" in said
    train(store, store / "models" / "v1.2", rows=ROWS, spec=SPEC)
    main(["status", str(store)])
    assert "models: v1.2\n" in capsys.readouterr().out


def test_two_trainings_of_one_model_at_once_the_second_is_told(store: Path, tmp_path: Path) -> None:
    words = rf"model\.training is being written by process {os.getpid()} on .*\(training\)"
    with Lease(Folder(tmp_path / "model.training"), "training"), pytest.raises(StoreBusyError, match=words):
        train(store, tmp_path / "model", spec=SETTLES)
    train(store, tmp_path / "model", spec=SETTLES)


def test_a_training_that_was_taken_over_ends(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lease, "held", property(lambda self: False))
    monkeypatch.setattr(Lease, "check", lambda self: (_ for _ in ()).throw(StoreBusyError("was taken over")))
    with pytest.raises(StoreBusyError, match="was taken over"):
        train(store, tmp_path / "model", spec=SETTLES)
    assert not list((tmp_path / "model.training").glob("*"))
    assert not (tmp_path / "model").exists()


def test_one_class_is_told_before_anything_is_written(store: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"all 40 samples have one class, 'gesture0'; training needs at least two"):
        train(store, tmp_path / "model", rows=np.arange(40), spec=SETTLES)
    with pytest.raises(InputError, match="all 0 samples have no class"):
        train(store, tmp_path / "model", rows=[], spec=SETTLES)
    with pytest.raises(InputError, match=r"there are 160 rows"):
        train(store, tmp_path / "model", rows=[160], spec=SETTLES)
    assert list(tmp_path.iterdir()) == [store]


def test_a_place_that_holds_something_else_is_left_alone(store: Path, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "today.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for name in ("notes", "file"):
        with pytest.raises(ModelFileError, match=f"{name} exists and is no saved model; choose another name"):
            train(store, tmp_path / name, spec=SETTLES, progress=(heard := Heard()))
        assert heard.notes == []  # before any work
        assert left_of(tmp_path / name) == []
    assert (tmp_path / "notes" / "today.txt").read_text() == (tmp_path / "file").read_text() == "mine"
    open_matrix(store)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"place": "moon"}, "place='moon': must be one of 'auto', 'memory', 'disk', 'cluster'"),
        ({"seed": -1}, "seed=-1: must be a whole number of at least 0"),
        ({"seed": 2**32}, "seed=4294967296: must be"),
        ({"distances": "zz"}, r"\(distances zz\.\.\.\) has no such matrix"),
    ],
    ids=lambda value: "" if isinstance(value, str) else str(value),
)
def test_options_that_cannot_be(store: Path, tmp_path: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises((InputError, StoreError), match=words):
        train(store, tmp_path / "model", spec=SETTLES, **options)
    assert list(tmp_path.iterdir()) == [store]


def test_a_matrix_that_is_not_finished_is_told(store: Path, tmp_path: Path) -> None:
    next((store / "distances").glob("*/distance/c/0/0")).unlink()
    with pytest.raises(StoreError, match=r"is not finished, 1 of 1 tiles are missing; compute them with: cksc"):
        train(store, tmp_path / "model", spec=SETTLES)


def test_a_damaged_model_is_written_again(store: Path, tmp_path: Path) -> None:
    first = train(store, tmp_path / "model", spec=SETTLES).model
    path = next((tmp_path / "model").glob("codes_values/c/0"))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 8
    path.write_bytes(content)
    again = train(store, tmp_path / "model", spec=SETTLES)
    assert again.resumed == 0
    check_same(load_model(tmp_path / "model"), first)


# processes that are killed

# the client stops in the middle of the third alternation, and waits to be killed; with a cluster in a pass
_STOPS = """
import sys, time
from pathlib import Path
from cksc_dist.cli import main
from cksc_dist.dist import cluster_gram
from cksc_dist.maths import cksc
count, atom_step, results = [0], cksc.atom_step, cluster_gram.results

def stop():
    count[0] += 1
    if count[0] == 3:
        Path(sys.argv[1]).touch()
        time.sleep(600)

def slow_step(*arguments, **options):
    stop()
    return atom_step(*arguments, **options)

def slow_results(executor, function, *others):
    if function is cluster_gram.pass_sums:
        stop()
    return results(executor, function, *others)

if "cluster" in sys.argv:
    cluster_gram.results = slow_results
else:
    cksc.atom_step = slow_step
if __name__ == "__main__":
    sys.exit(main(sys.argv[2:]))
"""

# a worker stops at its fourth task for atoms, which is in the second alternation or later, and goes on after a while
_SLOW_WORKER = """
import os, time
from pathlib import Path
from cksc_dist.dist import kernel_work
if not hasattr(kernel_work, "plain_sums"):  # this is loaded twice
    kernel_work.plain_sums, kernel_work.count = kernel_work.pass_sums, 0

def slow_sums(task):
    kernel_work.count += 1
    if kernel_work.count == 4:
        Path(os.environ["MARKS"], str(os.getpid())).touch()
        time.sleep(2)
    return kernel_work.plain_sums(task)

kernel_work.pass_sums = slow_sums
"""

OPTIONS = ("--sparsity", "4", "--max-iter", "6", "--tol", "0")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Starter]:
    (tmp_path / "logs").mkdir()
    with starter(tmp_path / "logs") as started:
        yield started


@pytest.fixture
def undisturbed(store: Path, tmp_path: Path) -> str:
    """Digest of the model that nobody disturbs."""
    train(store, tmp_path / "undisturbed", spec=SPEC, place="memory")
    return model_digest(tmp_path / "undisturbed")


def left_in_copies(store: Path) -> list[str]:
    """Return what is in the folders of copies beside what belongs there."""
    names = [path.name for path in store.glob("kernels/*/*")]
    own = ("about.json", "rows.npy", "strips", "sums", "zarr.json")
    return [name for name in names if name not in own and "ridge-" not in name]


@pytest.mark.slow
@pytest.mark.parametrize("place", ["memory", pytest.param("cluster", marks=pytest.mark.campaign)])
def test_a_killed_client(store: Path, tmp_path: Path, start: Starter, undisturbed: str, place: str) -> None:
    command = ("train", str(store), str(tmp_path / "model"), *OPTIONS, "--train-on", place, "--workers", "2")
    run = start(sys.executable, "-c", _STOPS, str(tmp_path / "stopped"), *command)
    wait_until(lambda: not run.runs() or (tmp_path / "stopped").exists(), "the third alternation")
    assert run.runs(), run.output
    assert alternations_in(run.output) == [1, 2]
    assert any("pass-" in name for name in left_in_copies(store)) == (place == "cluster")
    run.kill()
    wait_until(lambda: not run.group(), "workers that end")
    assert not (tmp_path / "model").exists()
    again = start.cksc(*command)
    assert again.wait() == 0, again.output
    assert "going on after alternation 2" in again.output
    assert alternations_in(again.output) == [3, 4, 5, 6]
    assert model_digest(tmp_path / "model") == undisturbed
    assert left_in_copies(store) == []


def marked(marks: Path, workers: list[Started]) -> Started | None:
    """Return a worker that is in the middle of its work."""
    return next((worker for worker in workers if (marks / str(worker.process.pid)).exists()), None)


@pytest.mark.campaign  # in every run: tests/dist/test_cluster_gram.py, and kills of distances
def test_a_killed_worker_and_then_a_killed_scheduler(
    store: Path, tmp_path: Path, start: Starter, undisturbed: str
) -> None:
    (tmp_path / "slow.py").write_text(_SLOW_WORKER)
    marks, port = tmp_path / "marks", free_port()
    marks.mkdir()
    slow = {"DASK_DISTRIBUTED__WORKER__PRELOAD": f"['{tmp_path / 'slow.py'}']", "MARKS": str(marks)}
    address = f"tcp://127.0.0.1:{port}"
    scheduler, workers = start.scheduler(port), start.workers(address, 2, slow)

    def command(name: str) -> tuple[str, ...]:
        there = ("--train-on", "cluster", "--scheduler", address)
        return ("train", str(store), str(tmp_path / name), *OPTIONS, *there)

    run = start.cksc(*command("first"))
    wait_until(lambda: not run.runs() or marked(marks, workers), "a worker in the middle of a pass")
    victim = marked(marks, workers)
    assert victim is not None, run.output
    victim.kill()
    assert run.wait() == 0, run.output
    assert alternations_in(run.output) == [1, 2, 3, 4, 5, 6]
    assert model_digest(tmp_path / "first") == undisturbed

    # the one that is left was marked already, or will be; a new one takes the place of the dead
    (replacement,) = start.workers(address, 1, slow)
    run = start.cksc(*command("second"))
    wait_until(lambda: not run.runs() or marked(marks, [replacement]), "a worker in the middle of a pass")
    assert run.runs(), run.output
    scheduler.process.send_signal(signal.SIGKILL)
    assert run.wait() == 2, run.output
    assert "the scheduler went away" in run.output
    assert "run the same command again" in run.output
    assert "Traceback" not in run.output
    done = alternations_in(run.output)
    assert done
    for worker in (*workers, replacement):
        worker.end()
    start.scheduler(port)
    start.workers(address, 2)
    again = start.cksc(*command("second"))
    assert again.wait() == 0, again.output
    assert f"going on after alternation {done[-1]}" in again.output
    assert alternations_in(again.output) == list(range(done[-1] + 1, 7))
    assert model_digest(tmp_path / "second") == undisturbed
    assert left_in_copies(store) == []


def test_j_falls_with_every_alternation(store: Path, tmp_path: Path) -> None:
    J: NDArray[np.float64] = train(store, tmp_path / "model", spec=SPEC, place="disk").model.objective_history_
    assert np.all(np.diff(J) <= 1e-9 * J[0])
    assert J[-1] < J[0]
