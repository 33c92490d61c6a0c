"""Models of any metric, of some dimensions, with any options: new series are compared as the training series were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cksc_dist import CKSC, DistanceKernel, SeriesSet, pairwise_dtw
from cksc_dist.errors import InputError
from cksc_dist.io import make_gestures
from cksc_dist.models.kernel_input import DtwInput
from cksc_dist.models.prediction import explain_blocks
from cksc_dist.spec import DistanceSpec, KernelSpec, RunSpec
from tests.naive_metrics import matrix

SERIAL = RunSpec(executor="serial")


@pytest.fixture(scope="module")
def data() -> SeriesSet:
    """Series of one length, without negative values."""
    return make_gestures(n_per_class=20, n_classes=3, dims=3, length=(9, 9), random_state=2).map(np.abs)


@pytest.fixture(scope="module")
def halves(data: SeriesSet) -> tuple[SeriesSet, SeriesSet]:
    return data.select(np.arange(0, len(data), 2)), data.select(np.arange(1, len(data), 2))


def trained(train: SeriesSet, distance: DistanceSpec, monkeypatch: pytest.MonkeyPatch, **kernel: Any) -> CKSC:
    """Return a model of any distance, as one that is trained from a store has it."""
    plain = CKSC._specs
    with monkeypatch.context() as patch:
        patch.setattr(CKSC, "_specs", lambda self: (plain(self)[0], DtwInput(distance, KernelSpec(**kernel))))
        return CKSC(sparsity=2, kernel="dtw", random_state=0, tol=0.01).fit(train, train.labels)


def by_hand(train: SeriesSet, test: SeriesSet, D_train: Any, D_test: Any) -> Any:
    """Return the class shares of a model that is given the kernel."""
    kernel = DistanceKernel()
    model = CKSC(sparsity=2, random_state=0, tol=0.01).fit(kernel.fit_transform(D_train), train.labels)
    return model.class_shares(kernel.transform(D_test))


@pytest.mark.parametrize("metric", ["dtw", "euclidean", "chi2"])
@pytest.mark.parametrize("dims", [None, (1,), (0, 2)])
def test_shares_are_those_of_the_obvious_distances(
    metric: Any, dims: Any, halves: tuple[SeriesSet, SeriesSet], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train, test = halves
    model = trained(train, DistanceSpec(metric=metric, dims=dims), monkeypatch)
    expected = by_hand(train, test, matrix(metric, train, train, dims), matrix(metric, test, train, dims))
    np.testing.assert_allclose(model.class_shares(test), expected, atol=1e-9)
    assert model.n_features_in_ == 3
    assert len(model.support_) < len(train)
    model.save(tmp_path / "model")
    again = CKSC.load(tmp_path / "model")
    assert np.array_equal(again.class_shares(test), model.class_shares(test))
    assert again.n_features_in_ == 3
    (block,) = explain_blocks(tmp_path / "model", test, run=SERIAL)
    assert block == model.explain_many(test)


@pytest.mark.parametrize("repair", [None, "clip"])
def test_all_options_of_a_distance_go_with_the_model(
    repair: Any, halves: tuple[SeriesSet, SeriesSet], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train, test = halves
    options: dict[str, Any] = {
        "mode": "independent",
        "window": 0.4,
        "cost": "abs",
        "normalise": "z",
        "per_length": True,
    }
    spec = DistanceSpec(**options, dtype="float32", dims=(0, 2))
    trained(train, spec, monkeypatch, repair=repair).save(tmp_path / "model")
    model = CKSC.load(tmp_path / "model")
    source = model._source
    assert isinstance(source, DtwInput)
    assert source.distance == spec
    kept = train if repair else train.select(model.support_)
    D = pairwise_dtw(test.select_dims([0, 2]), kept.select_dims([0, 2]), dtype="float32", **options)
    rows = source.transform.transform(D)[:, source.columns]
    assert np.array_equal(source.rows(test, None), rows)


def test_dtw_of_raw_series_keeps_its_bits(halves: tuple[SeriesSet, SeriesSet]) -> None:
    train, test = halves
    model = CKSC(sparsity=2, kernel="dtw", random_state=0, tol=0.01).fit(train, train.labels)
    assert np.array_equal(
        model.class_shares(test), by_hand(train, test, pairwise_dtw(train), pairwise_dtw(test, train))
    )


@pytest.mark.parametrize(
    ("spec", "change", "words"),
    [
        (
            DistanceSpec(metric="euclidean"),
            lambda series: series[:5],
            r"X\[3\] has 5 frames, but the model was trained with metric='euclidean' on series of 9; give series of",
        ),
        (
            DistanceSpec(metric="chi2", dims=(2,)),
            lambda series: series - [0.0, 0.0, 99.0],
            r"series 3 has -\d+\.\d+ in dimension 2; chi-square needs bins >= 0",
        ),
        (
            DistanceSpec(normalise="z", dims=(1, 2)),
            lambda series: series * [1.0, 1.0, 0.0],
            r"X\[3\], dim 2 has zero variance and cannot be z-normalised",
        ),
        (
            DistanceSpec(dtype="float32"),
            lambda series: series * 1e60,
            r"X\[3\] has a value beyond float32",
        ),
    ],
    ids=["length", "negative", "constant", "large"],
)
def test_what_cannot_be_compared_is_told_before_work(
    spec: DistanceSpec,
    change: Any,
    words: str,
    halves: tuple[SeriesSet, SeriesSet],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    train, test = halves
    model = trained(train, spec, monkeypatch)
    model.save(tmp_path / "model")
    series = test.series
    series[3] = change(series[3])
    with pytest.raises(InputError, match=words):
        explain_blocks(tmp_path / "model", SeriesSet.from_list(series), run=SERIAL)  # nothing is asked of it yet
    with pytest.raises(InputError, match=words):
        model.predict(series)


def test_dimensions_that_are_not_compared_may_be_anything(
    halves: tuple[SeriesSet, SeriesSet], monkeypatch: pytest.MonkeyPatch
) -> None:
    train, test = halves
    model = trained(train, DistanceSpec(normalise="z", dims=(0, 2)), monkeypatch)
    other = test.map(lambda series: series * [1.0, 0.0, 1.0])
    assert np.array_equal(model.class_shares(other), model.class_shares(test))
    with pytest.raises(InputError, match="X has 2 dims, but the model was trained on series with 3"):
        model.predict(test.select_dims([0, 2]))


def test_training_series_that_a_metric_cannot_take(data: SeriesSet, monkeypatch: pytest.MonkeyPatch) -> None:
    unequal = SeriesSet.from_list([data[0][:4], *data.series[1:]], data.labels)
    with pytest.raises(InputError, match="metric='euclidean' needs series of one length, but series 1 has 9"):
        trained(unequal, DistanceSpec(metric="euclidean"), monkeypatch)
