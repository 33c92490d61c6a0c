"""What a store holds of evaluations, and what they are drawn with: CKSC over a parameter, and a model to look into."""

from __future__ import annotations

import json
import os
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from sklearn.exceptions import ConvergenceWarning

from cksc_dist import CKSC, DistanceKernel, load_model, pairwise_dtw
from cksc_dist.dist.ingest import ingest
from cksc_dist.errors import SmallClassWarning, StoreError
from cksc_dist.evaluate import KernelChoices, Protocol, SplitRows, evaluate, protocol_tasks, run_fits
from cksc_dist.evaluate.extras import ALPHAS, SPARSITIES, example_model, sweep
from cksc_dist.evaluate.fits import write_table
from cksc_dist.evaluate.report import write_report
from cksc_dist.evaluate.results import find_evaluations, told_by_table
from cksc_dist.io import make_gestures
from cksc_dist.spec import DistanceSpec, RunSpec
from cksc_dist.store.folder import Folder
from cksc_dist.store.manifest import digests_of
from tests.small_stores import files_below, flip_bit

SERIAL = RunSpec(executor="serial")
DATA = make_gestures(n_per_class=10, n_classes=3, dims=2, length=(8, 14), noise=0.8)
LABELS = DATA.labels
VALUES = (0.05, 0.4)
CHOICES = KernelChoices((DistanceSpec(window=0.3),), factors=(0.5, 0.7), bandwidths=("median",))
"""Nothing of it is a default, so that a model that was trained with defaults is another."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, xr.Dataset]:
    """A store with an evaluation, a sweep and a model."""
    store = tmp_path_factory.mktemp("made") / "gestures.zarr"
    ingest(DATA, store)
    protocol = Protocol(1, n_folds=2, random_state=3, quick=True)
    table = evaluate(store, ["cksc"], protocol, choices=CHOICES, sparsity=2, alpha=0.3, run=SERIAL)
    sweep(store, table, "alpha", VALUES, run=SERIAL)
    example_model(store, table, run=RunSpec(workers=1))
    return store, table


@pytest.fixture
def store(made: tuple[Path, xr.Dataset], tmp_path: Path) -> Path:
    return Path(shutil.copytree(made[0], tmp_path / "gestures.zarr"))


def fitted_by_hand(seed: int, **settings: Any) -> tuple[CKSC, float]:
    """Return CKSC as trained for the first split, and its accuracy on the test part."""
    D = np.asarray(pairwise_dtw(DATA, window=0.3))
    train, test = SplitRows(seed).draw(LABELS)
    kernel = DistanceKernel(settings.pop("bandwidth", "mean"), settings.pop("factor", 1.0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallClassWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = CKSC(**settings, random_state=seed).fit(kernel.fit_transform(D[np.ix_(train, train)]), LABELS[train])
    return model, float(model.score(kernel.transform(D[np.ix_(test, train)]), LABELS[test]))


def test_the_model_is_that_of_the_first_split(made: tuple[Path, xr.Dataset]) -> None:
    store, table = made
    row = table.sel({"method": "cksc", "split": 0})
    said = json.loads(str(row.settings.values[int(row.chosen)]))
    assert said.pop("window") == 0.3
    model = load_model(store / "models" / "evaluation")
    by_hand, accuracy = fitted_by_hand(3, **said)
    train, test = SplitRows(3).draw(LABELS)
    np.testing.assert_allclose(model.dictionary_.toarray(), by_hand.dictionary_.toarray(), atol=1e-12)
    assert (model.sparsity, model.alpha, model.recall, model.factor) == (
        2,
        said["alpha"],
        said["recall"],
        said["factor"],
    )
    assert model.origin_["rows"] == train[model.support_].tolist()
    # it takes series, and decides as the fit of the evaluation did
    right = model.predict([DATA[row] for row in test]) == LABELS[test]
    assert float(right.mean()) == accuracy == float(row.accuracy)


def test_a_sweep_is_cksc_over_one_parameter_with_nothing_tuned(made: tuple[Path, xr.Dataset]) -> None:
    store, table = made
    with xr.open_zarr(store, group="results/evaluation-alpha", consolidated=False) as opened:
        swept = opened.load()
    assert swept.accuracy.dims == ("method", "split", "alpha")
    assert swept["alpha"].values.tolist() == list(VALUES)
    for alpha in VALUES:
        model, accuracy = fitted_by_hand(3, sparsity=2, alpha=alpha)
        found = swept.sel({"method": "cksc", "split": 0, "alpha": alpha})
        assert (float(found.accuracy), float(found.n_iter)) == (accuracy, model.n_iter_)
    over = sweep(store, table, "sparsity", [1, 3], run=SERIAL)
    model, accuracy = fitted_by_hand(3, sparsity=3, alpha=0.3)  # the alpha of the evaluation
    assert float(over.accuracy.sel({"method": "cksc", "split": 0, "sparsity": 3})) == accuracy
    assert float(over.objective.sel(sparsity=3).squeeze()) == pytest.approx(model.objective_history_[-1])


def test_sweeps_are_those_of_the_paper() -> None:
    assert list(SPARSITIES) == list(range(1, 21))
    assert 0.0 < min(ALPHAS) < max(ALPHAS) == 1.0
    assert sorted(ALPHAS) == list(ALPHAS)


def test_a_store_tells_of_its_evaluations(store: Path, made: tuple[Path, xr.Dataset]) -> None:
    (found,) = find_evaluations(Folder(store))
    assert (found.name, found.damage) == ("evaluation", "")
    assert set(found.sweeps) <= {"alpha", "sparsity"}
    assert found.sweeps["alpha"]["alpha"].values.tolist() == list(VALUES)
    assert found.model.sparsity == 2
    xr.testing.assert_identical(found.table, made[1])


def test_the_newest_comes_first_unless_one_is_named(store: Path, made: tuple[Path, xr.Dataset]) -> None:
    for place, name in enumerate(("older", "newer")):
        write_table(Folder(store), name, made[1].assign_attrs(name=name, written=1e9 + place))
        os.utime(store / "results" / name / "zarr.json", (0, 2e9 - place))  # as a copy may have it
    assert [each.name for each in find_evaluations(Folder(store))] == ["evaluation", "newer", "older"]
    first, *others = find_evaluations(Folder(store), "older")
    assert (first.name, [each.name for each in others]) == ("older", ["evaluation", "newer"])
    assert (first.sweeps, first.model) == ({}, None)  # those of another
    with pytest.raises(StoreError, match=r"has no evaluation 'oldest'; it has evaluation, newer, older"):
        find_evaluations(Folder(store), "oldest")


def test_a_sweep_over_something_else_is_none(store: Path) -> None:
    """Fits that a user runs may be called as they please."""
    tasks = protocol_tasks(LABELS, n_splits=1, grid={"sparsity": 2, "factor": [0.5, 1.0]})
    run_fits(store, tasks, name="evaluation-alpha", run=SERIAL)
    assert "alpha" not in find_evaluations(Folder(store))[0].sweeps


def test_a_fill_value_that_is_none_is_damage(store: Path) -> None:
    """Found by fuzzing: xarray unpacks it by itself, and the digests may be right."""
    metadata = store / "results" / "evaluation" / "accuracy" / "zarr.json"
    about = json.loads(metadata.read_text())
    about["attributes"]["_FillValue"] = "AAAA"
    metadata.write_text(json.dumps(about))
    folder, listed = Folder(store), "results/evaluation.files.json"
    folder.write_json(listed, digests_of(folder, folder.read_json(listed)))
    with pytest.raises(StoreError, match=r"results/evaluation is damaged \(unpack requires a buffer of 8 bytes\)"):
        find_evaluations(folder)


def test_a_store_without_evaluations(tmp_path: Path) -> None:
    ingest(DATA, tmp_path / "store")
    with pytest.raises(StoreError, match=r"holds no evaluation to report; make one with: cksc evaluate .*store"):
        find_evaluations(Folder(tmp_path / "store"))


def test_tables_of_fits_are_no_evaluations(store: Path) -> None:
    shutil.rmtree(store / "results" / "evaluation")
    assert {path.name for path in (store / "results").iterdir()} >= {"evaluation-tuning", "evaluation-final"}
    with pytest.raises(StoreError, match="holds no evaluation"):
        find_evaluations(Folder(store))


def test_a_damaged_table_says_what_to_do_and_a_damaged_model_does_not_stop_a_report(store: Path) -> None:
    (weights,) = [path for path in (store / "models/evaluation").rglob("c/0") if "dictionary" in str(path)][:1]
    flip_bit(weights)
    (found,) = find_evaluations(Folder(store))
    assert found.model is None
    assert "models/evaluation" in found.damage
    table = store / "results/evaluation/accuracy/c/0/0"
    flip_bit(table)
    before = files_below(store)
    with pytest.raises(StoreError, match=r"results/evaluation is damaged \(.*\); remove it, and run the evaluation ag"):
        find_evaluations(Folder(store))
    assert files_below(store) == before


def test_memory_that_runs_out_is_no_damage_of_a_table(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def open_zarr(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(xr, "open_zarr", open_zarr)
    with pytest.raises(MemoryError):
        find_evaluations(Folder(store))


@pytest.mark.parametrize("lacks", ["written", "random_state", "title"])
def test_a_table_that_does_not_hold_together_is_named(
    lacks: str, store: Path, made: tuple[Path, xr.Dataset], tmp_path: Path
) -> None:
    write_table(Folder(store), "mine", made[1].assign_attrs({"written": 1.0, lacks: "?"} | {"name": "mine"}))
    if lacks == "title":
        crafted = made[1].copy()
        del crafted.attrs["title"]
        write_table(Folder(store), "mine", crafted.assign_attrs(name="mine"))
    with pytest.raises(StoreError, match=r"results/mine does not hold together \(\w+: .*\); remove it, and run"):
        write_report(store, tmp_path / "r.html", name="mine")


def test_a_library_that_is_missing_is_no_fault_of_a_table(tmp_path: Path) -> None:
    with pytest.raises(ImportError), told_by_table(Folder(tmp_path), "mine"):
        raise ImportError("No module named 'matplotlib'")
