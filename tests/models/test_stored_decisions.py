"""Decisions on rows of a store: those that the model makes on the series themselves, and only on its own matrix."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cksc_dist import CKSC, SeriesSet, open_matrix, pairwise_dtw
from cksc_dist.dist.distances import compute_distances
from cksc_dist.dist.ingest import append, ingest, ingest_distances
from cksc_dist.errors import InputError
from cksc_dist.io import make_gestures
from cksc_dist.maths.kernel import gaussian_kernel
from cksc_dist.models.stored_decisions import decide_rows
from cksc_dist.models.training import Training, train
from cksc_dist.spec import DistanceSpec, KernelSpec, ModelSpec, RunSpec, fingerprint

SERIAL = RunSpec(executor="serial")
DATA = make_gestures(n_per_class=6, n_classes=3, length=(12, 12), noise=0.1)
TRAINING = np.array([row for row in range(18) if row % 3])
ROWS = np.array([16, 0, 9, 3, 1])  # in no order, and one that was trained on
SETTINGS = {
    "plain": DistanceSpec(),
    "one dimension in a band": DistanceSpec(dims=(1,), window=0.2),
    "scaled": DistanceSpec(normalise="z", cost="abs", dims=(0, 2)),
    "euclidean": DistanceSpec(metric="euclidean"),
}
SPEC = ModelSpec(sparsity=3, tol=0.01)


def trained(store: Path, name: str, **options: Any) -> Training:
    return train(store, store / "models" / name, rows=TRAINING, spec=SPEC, run=SERIAL, **options)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stored") / "store"
    ingest(DATA, path)
    for spec in SETTINGS.values():
        compute_distances(path, spec, SERIAL)
    return path


def opened(store: Path, setting: str) -> Any:
    return open_matrix(store, fingerprint(SETTINGS[setting].resolved()))


@pytest.fixture(scope="module")
def plain(store: Path) -> CKSC:
    return trained(store, "plain", distances=opened(store, "plain").fingerprint).model


@pytest.mark.parametrize("repair", [None, "clip"])
@pytest.mark.parametrize("setting", SETTINGS)
def test_rows_are_decided_as_their_series_are(store: Path, setting: str, repair: Any) -> None:
    matrix = opened(store, setting)
    kernel = KernelSpec(factor=0.5 if repair is None else 4.0, repair=repair)
    name = f"{setting.replace(' ', '-')}-{repair}"
    model = trained(store, name, distances=matrix.fingerprint, kernel=kernel).model
    if repair is not None and SETTINGS[setting].metric == "dtw":
        # otherwise a kernel that is not repaired would do as well
        assert len(model._source.transform.spectral_repair_.eigenvalues)
    series = [DATA[int(row)] for row in ROWS]
    decided = decide_rows(model, matrix, ROWS, top=4)
    assert decided.rows.tolist() == ROWS.tolist()
    assert decided.explanations == model.explain_many(series, top=4)
    assert [why.label for why in decided.explanations] == model.predict(series).tolist()
    assert (decided.codes.toarray() == model.transform(series)).all()


def test_what_a_row_is_rebuilt_from_are_rows_of_the_store(store: Path, plain: CKSC) -> None:
    decided = decide_rows(plain, opened(store, "plain"), ROWS, top=100)
    for why in decided.explanations:
        assert len(why.samples) == why.n_samples
        for part in why.samples:
            assert part.row in TRAINING
            assert (part.name, part.label) == (DATA.ids[part.row], DATA.labels[part.row])


def test_as_many_are_named_as_asked_for(store: Path, plain: CKSC) -> None:
    found = {top: decide_rows(plain, opened(store, "plain"), ROWS, top) for top in (1, 2, 100)}
    assert {len(why.samples) for why in found[1].explanations} == {1}
    for few, everything in zip(found[2].explanations, found[100].explanations, strict=True):
        assert few.samples == everything.samples[:2]
        assert len(everything.samples) > 2


def test_rows_of_a_matrix_that_came_ready(tmp_path: Path) -> None:
    D = pairwise_dtw(DATA)
    ingest_distances(D, tmp_path / "store", labels=DATA.labels, ids=DATA.ids)
    model = trained(tmp_path / "store", "ready").model
    delta = model.origin_["delta"]
    assert delta == pytest.approx(2 * D[np.ix_(TRAINING, TRAINING)].mean() ** 2)
    kernel = gaussian_kernel(D[np.ix_(ROWS, TRAINING)], delta)
    decided = decide_rows(model, open_matrix(tmp_path / "store"), ROWS)
    assert decided.explanations == model.explain_many(kernel)


def test_series_that_were_added_change_nothing(tmp_path: Path) -> None:
    ingest(DATA, tmp_path)
    compute_distances(tmp_path, run=SERIAL)
    model = trained(tmp_path, "before").model
    expected = decide_rows(model, open_matrix(tmp_path), ROWS).explanations
    added = make_gestures(n_per_class=1, n_classes=3, length=(12, 12), random_state=5)
    append(tmp_path, SeriesSet.from_list(added.series, added.labels, [f"new{i}" for i in range(3)]), SERIAL)
    compute_distances(tmp_path, run=SERIAL)
    matrix = open_matrix(tmp_path)
    assert len(matrix) == 21
    assert decide_rows(model, matrix, ROWS).explanations == expected


# what is not its own matrix


def refuses(model: Any, matrix: Any) -> None:
    with pytest.raises(InputError, match=r"the model was not trained on .*DistanceMatrix.*; open the matrix"):
        decide_rows(model, matrix, ROWS)


def test_another_matrix_of_the_store_is_refused(store: Path, plain: CKSC) -> None:
    for setting in set(SETTINGS) - {"plain"}:
        refuses(plain, opened(store, setting))


def test_a_model_that_was_trained_without_a_store_is_refused(store: Path) -> None:
    refuses(CKSC(sparsity=3, kernel="dtw", tol=0.01, random_state=0).fit(DATA, DATA.labels), opened(store, "plain"))


def other_data(how: str) -> SeriesSet:
    if how == "other names":
        return replace(DATA, ids=np.array([f"x{name}" for name in DATA.ids]))
    if how == "other labels":
        return replace(DATA, labels=np.roll(DATA.labels, 6))
    return DATA[:9]


@pytest.mark.parametrize("how", ["other names", "other labels", "fewer series"])
def test_the_matrix_of_another_store_is_refused(tmp_path: Path, plain: CKSC, how: str) -> None:
    """Of the same settings: the fingerprint alone is the same in every store."""
    ingest(other_data(how), tmp_path)
    compute_distances(tmp_path, run=SERIAL)
    matrix = open_matrix(tmp_path)
    assert plain.origin_ is not None
    assert matrix.fingerprint == plain.origin_["matrix"]
    refuses(plain, matrix)
