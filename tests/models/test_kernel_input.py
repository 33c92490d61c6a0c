"""Where the kernel comes from: raw series give what the steps by hand give, with fewer distances; vectors too."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score

from cksc_dist import CKSC, DistanceKernel, SeriesSet, pairwise_dtw
from cksc_dist.errors import InputError, SmallClassWarning
from cksc_dist.io import make_gestures
from cksc_dist.maths.dtw import pairwise_distances
from cksc_dist.models import kernel_input
from cksc_dist.models.kernel_input import PrecomputedInput


@pytest.fixture(scope="module")
def gestures() -> tuple[SeriesSet, SeriesSet]:
    """Training and test part."""
    data = make_gestures(16, 3, dims=2, length=(10, 25), random_state=3)
    return data.select(np.arange(0, 48, 2)), data.select(np.arange(1, 48, 2))


def dtw_model(train: Any, y: Any, **parameters: Any) -> CKSC:
    defaults: dict[str, Any] = {"sparsity": 3, "kernel": "dtw", "random_state": 0, "tol": 0.01}
    return CKSC(**defaults | parameters).fit(train, y)


SETTINGS: list[dict[str, Any]] = [
    {},
    {"repair": "clip", "factor": 8.0, "sparsity": 1},
    {"repair": "flip", "factor": 8.0, "sparsity": 1},
    {"mode": "independent", "window": 4},
    {"window": 0.2, "normalise": "z"},
    {"cost": "abs", "bandwidth": "median", "factor": 0.5},
    {"per_length": True, "bandwidth": 0.3},
    {"bandwidth": 40.0, "recall": "reconstruction"},
]


@pytest.mark.parametrize("parameters", SETTINGS, ids=str)
def test_raw_series_give_what_the_steps_by_hand_give(
    gestures: tuple[SeriesSet, SeriesSet], parameters: dict[str, Any]
) -> None:
    train, test = gestures
    model = dtw_model(train, train.labels, **parameters)
    names = ("mode", "window", "cost", "normalise", "per_length")
    metric = {name: v for name, v in parameters.items() if name in names}
    shape = {name: v for name, v in parameters.items() if name in ("bandwidth", "factor", "repair")}
    kernel = DistanceKernel(**shape)
    K_train = kernel.fit_transform(pairwise_dtw(train, **metric))
    K_test = kernel.transform(pairwise_dtw(test, train, **metric))
    learning = {name: v for name, v in parameters.items() if name in ("recall", "sparsity")}
    by_hand = CKSC(**{"sparsity": 3, "random_state": 0, "tol": 0.01} | learning)
    by_hand.fit(K_train, train.labels)
    assert np.array_equal(model.predict(test), by_hand.predict(K_test))
    np.testing.assert_allclose(model.class_shares(test), by_hand.class_shares(K_test), atol=1e-9)
    np.testing.assert_allclose(model.transform(test), by_hand.transform(K_test), atol=1e-9)
    assert np.array_equal(model.support_, by_hand.support_)
    assert model.score(test, test.labels) > 0.6
    if "repair" in parameters:
        repair = kernel.spectral_repair_
        assert repair is not None
        assert len(repair.eigenvalues)  # there was something to repair
        assert len(model.support_) < len(train)  # and columns to leave out after it


def test_settings_of_the_distance_have_an_effect(gestures: tuple[SeriesSet, SeriesSet]) -> None:
    train, test = gestures
    shares = [dtw_model(train, train.labels, **p).class_shares(test).tobytes() for p in SETTINGS]
    assert len(set(shares)) == len(SETTINGS)


def test_series_come_as_a_set_a_list_or_an_array(gestures: tuple[SeriesSet, SeriesSet]) -> None:
    train, test = gestures
    as_set = dtw_model(train, train.labels)
    as_list = dtw_model(train.series, train.labels.tolist())
    assert np.array_equal(as_set.class_shares(test), as_list.class_shares(test.series))
    assert as_set.n_features_in_ == 2
    stack = np.stack([series[:10] for series in train])
    from_array, from_list = dtw_model(stack, train.labels), dtw_model(list(stack), train.labels)
    new = np.stack([series[:10] for series in test])
    assert np.array_equal(from_array.class_shares(new), from_list.class_shares(list(new)))
    assert np.array_equal(from_array.class_shares(test), from_list.class_shares(test.series))


def test_series_of_one_dim_may_be_flat(gestures: tuple[SeriesSet, SeriesSet]) -> None:
    train, test = gestures
    flat = dtw_model([series[:, 0] for series in train], train.labels)
    column = dtw_model(train.select_dims([0]), train.labels)
    assert np.array_equal(
        flat.class_shares([series[:, 0] for series in test]), column.class_shares(test.select_dims([0]))
    )


class Spy:
    """Counts the distances that are asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.shapes: list[tuple[int, int]] = []
        self.compute = pairwise_distances
        monkeypatch.setattr(kernel_input, "pairwise_distances", self)

    def __call__(self, a: Any, b: Any, *others: Any, **named: Any) -> NDArray[Any]:
        self.shapes.append((len(a[1]) - 1, len(a[1] if b is None else b[1]) - 1))
        return self.compute(a, b, *others, **named)


@pytest.mark.parametrize("repair", [None, "clip"])
@pytest.mark.parametrize("method", ["predict", "class_shares", "decision_function", "transform"])
def test_only_series_that_carry_weight_are_compared_with(
    gestures: tuple[SeriesSet, SeriesSet], monkeypatch: pytest.MonkeyPatch, repair: str | None, method: str
) -> None:
    train, test = gestures
    spy = Spy(monkeypatch)
    model = dtw_model(train, train.labels, sparsity=2, repair=repair)
    assert spy.shapes == [(24, 24)]
    getattr(model, method)(test)
    assert len(model.support_) < 24
    needed = 24 if repair else len(model.support_)
    assert spy.shapes[1:] == [(24, needed)]
    assert model.saved_distances(len(test)) == (24 * needed, 24 * (24 - needed))


def test_saved_distances_stay_true_when_parameters_are_set_later(
    gestures: tuple[SeriesSet, SeriesSet],
) -> None:
    train, test = gestures
    model = dtw_model(train, train.labels, sparsity=2)
    before = model.saved_distances(5)
    shares = model.class_shares(test)
    model.set_params(repair="clip", kernel="precomputed", mode="independent")
    assert model.saved_distances(5) == before
    assert np.array_equal(model.class_shares(test), shares)


def test_a_model_keeps_only_the_series_it_needs(gestures: tuple[SeriesSet, SeriesSet]) -> None:
    train, _ = gestures
    lean, full = dtw_model(train, train.labels, sparsity=2), dtw_model(train, train.labels, repair="clip")
    kept = lean._source.arrays()
    assert np.diff(kept["series_offsets"]).tolist() == train.lengths[lean.support_].tolist()
    assert np.array_equal(kept["series_values"], train.select(lean.support_).values)
    assert len(full._source.arrays()["series_offsets"]) == 25


@pytest.mark.parametrize("form", ["list", "array", "set"])
def test_cross_validation_of_raw_series(gestures: tuple[SeriesSet, SeriesSet], form: str) -> None:
    train, _ = gestures
    stack = np.stack([series[:10] for series in train])
    data: Any = {"list": train.series, "array": stack, "set": train}[form]
    model = CKSC(sparsity=3, kernel="dtw", random_state=0, tol=0.01)
    folds = StratifiedKFold(3)
    by_hand = []
    for fold, held in folds.split(np.zeros(24), train.labels):
        chosen = dtw_model([data[i] for i in fold], train.labels[fold])
        by_hand.append(chosen.score([data[i] for i in held], train.labels[held]))
    assert cross_val_score(model, data, train.labels, cv=folds, error_score="raise").tolist() == by_hand


def test_grid_search_over_kernel_and_sparsity_of_raw_series(gestures: tuple[SeriesSet, SeriesSet]) -> None:
    train, test = gestures
    grid = {"factor": [1e-9, 0.5], "sparsity": [2, 3], "window": [None, 3]}
    model = CKSC(kernel="dtw", random_state=0, tol=0.01)
    search = GridSearchCV(model, grid, cv=2, error_score="raise").fit(train.series, train.labels)
    assert search.best_params_["factor"] == 0.5  # 1e-9 makes all series unlike
    assert search.score(test.series, test.labels) > 0.6


@pytest.mark.parametrize(
    ("series", "words"),
    [
        (
            [np.zeros((5, 3))],
            r"X has 3 dims, but the model was trained on series with 2; give series of the same",
        ),
        (
            np.zeros((5, 2)),
            r"X has 1 dims, but the model was trained on series with 2; .* a single one in a list",
        ),
        (
            [np.zeros((5, 2)), np.full((4, 2), np.nan)],
            r"X\[1\] has a NaN or infinite value \(frame 0, dim 0\)",
        ),
        ([np.zeros((5, 2)), np.zeros((0, 2))], r"X\[1\] is empty"),
        ([], r"X has no series; pass at least one"),
        (None, r"X is of type NoneType; pass a list"),
    ],
)
def test_series_that_cannot_be_classified(gestures: tuple[SeriesSet, SeriesSet], series: Any, words: str) -> None:
    train, _ = gestures
    with pytest.raises(InputError, match=words):
        dtw_model(train, train.labels).predict(series)


def test_series_that_cannot_be_learnt(gestures: tuple[SeriesSet, SeriesSet]) -> None:
    train, _ = gestures
    broken = [*train.series[:-1], np.full((3, 2), np.inf)]
    with pytest.raises(InputError, match=r"X\[23\] has a NaN or infinite value \(frame 0, dim 0\)"):
        dtw_model(broken, train.labels)
    with pytest.raises(InputError, match="24 samples but 23 labels; give one label for each sample"):
        dtw_model(train, train.labels[:-1])
    with pytest.raises(InputError, match="all samples are identical"):
        dtw_model([np.ones((3, 1))] * 4, [0, 0, 1, 1], sparsity=2)
    with pytest.raises(InputError, match="dim 0 has zero variance and cannot be z-normalised"):
        dtw_model([np.ones((3, 1))] * 4, [0, 0, 1, 1], sparsity=2, normalise="z")


@pytest.mark.parametrize("cost", ["squared", "abs"])
def test_series_too_large_for_a_kernel(gestures: tuple[SeriesSet, SeriesSet], cost: str) -> None:
    train, test = gestures
    huge = [*train.series[:5], 1e200 * train[5], *train.series[6:]]
    words = r"has values of up to \d.*e\+2\d\d, and its largest DTW distance is .*; rescale all series"
    with pytest.raises(InputError, match=r"X\[5\] " + words):
        dtw_model(huge, train.labels, cost=cost)
    with pytest.raises(InputError, match=r"X\[1\] " + words):
        dtw_model(train, train.labels, cost=cost).predict([test[0], 1e200 * test[1]])


def test_what_is_wrong_is_said_before_distances_are_computed(
    gestures: tuple[SeriesSet, SeriesSet], monkeypatch: pytest.MonkeyPatch
) -> None:
    train, _ = gestures
    spy = Spy(monkeypatch)
    with pytest.raises(ValueError, match="'now' cannot be used to seed"):
        dtw_model(train, train.labels, random_state="now")
    with pytest.raises(SmallClassWarning):  # made an error by whoever wants none
        dtw_model(train, train.labels, sparsity=9)
    assert spy.shapes == []


@pytest.mark.parametrize("repair", [None, "clip"])
def test_a_model_does_not_change_with_the_series_it_was_given(
    gestures: tuple[SeriesSet, SeriesSet], repair: str | None
) -> None:
    train, test = gestures[0].map(np.copy), gestures[1]
    model = dtw_model(train, train.labels, repair=repair)
    before = model.class_shares(test)
    train.values[:] = 0.0
    assert np.array_equal(model.class_shares(test), before)


# vectors


@pytest.fixture(scope="module")
def vectors() -> tuple[NDArray[np.float64], NDArray[Any]]:
    rng = np.random.default_rng(0)
    y = np.repeat(["a", "b", "c"], 16)
    return rng.standard_normal((48, 4)) + 2.0 * np.unique(y, return_inverse=True)[1][:, None], y


@pytest.mark.parametrize("gamma", [None, 0.2])
def test_vectors_give_what_their_kernel_gives(
    vectors: tuple[NDArray[np.float64], NDArray[Any]], gamma: float | None
) -> None:
    X, y = vectors
    train, test = X[::2], X[1::2]
    model = CKSC(sparsity=3, kernel="rbf", gamma=gamma, random_state=0, tol=0.01).fit(train, y[::2])
    value = gamma or 1 / (2 * cdist(train, train).mean() ** 2)
    by_hand = CKSC(sparsity=3, random_state=0, tol=0.01).fit(rbf_kernel(train, gamma=value), y[::2])
    K_test = rbf_kernel(test, train, gamma=value)
    np.testing.assert_allclose(model.class_shares(test), by_hand.class_shares(K_test), atol=1e-9)
    assert model.get_params()["gamma"] == gamma  # what was learnt is not written over what was asked for
    assert model.n_features_in_ == 4


def test_equal_vectors_have_no_scale_but_can_be_fitted() -> None:
    model = CKSC(sparsity=1, kernel="rbf").fit(np.ones((4, 2)), [0, 0, 0, 1])
    assert model.predict([[1.0, 1.0]]).tolist() in ([0], [1])


def test_the_result_does_not_depend_on_threads(
    vectors: tuple[NDArray[np.float64], NDArray[Any]], gestures: tuple[SeriesSet, SeriesSet]
) -> None:
    X, y = vectors
    train, test = gestures
    one, two = (CKSC(sparsity=3, kernel="rbf", random_state=0, tol=0.01, n_jobs=n).fit(X, y) for n in (1, 2))
    assert np.array_equal(one.class_shares(X), two.class_shares(X))
    one, two = (dtw_model(train, train.labels, n_jobs=n) for n in (1, 2))
    assert np.array_equal(one.class_shares(test), two.class_shares(test))


# given kernels


def test_a_kernel_that_is_symmetric_up_to_rounding_becomes_so_to_the_bit() -> None:
    K = np.exp(-cdist(np.arange(9.0)[:, None], np.arange(9.0)[:, None]) / 3)
    rounded = K * (1 + 1e-9 * np.triu(np.ones((9, 9)), 1))
    assert not np.array_equal(rounded, rounded.T)
    learnt = PrecomputedInput().learn(rounded, None)
    assert np.array_equal(learnt, learnt.T)
    np.testing.assert_allclose(learnt, K, rtol=1e-8)
    assert PrecomputedInput().learn(K, None) is K  # no copy of an n x n matrix without need


def test_a_symmetric_kernel_is_not_copied_in_either_order_of_memory() -> None:
    K = np.exp(-cdist(np.arange(9.0)[:, None], np.arange(9.0)[:, None]) / 3)
    column_wise = np.asfortranarray(K)
    learnt = PrecomputedInput().learn(column_wise, None)
    assert np.shares_memory(learnt, column_wise)
    assert learnt.flags.c_contiguous
    assert np.array_equal(learnt, K)
    view = np.kron(K, np.ones((2, 2)))[::2, ::2]  # in no order at all
    assert PrecomputedInput().learn(view, None).flags.c_contiguous
    assert np.array_equal(PrecomputedInput().learn(view, None), K)


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_kernel_is_made_symmetric_strip_by_strip(order: Any) -> None:
    n = 1500
    rng = np.random.default_rng(0)
    half = rng.random((n, n))
    K = np.asarray((half + half.T) / 2 + 1e-9 * rng.random((n, n)), order=order)
    expected = (K + K.T) / 2
    source = PrecomputedInput()
    tracemalloc.start()
    learnt = source.learn(K, None)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert np.array_equal(learnt, expected)
    assert peak < 1.9 * K.nbytes  # the result and a strip or two, but no second matrix
