"""JKSRC as an estimator over several kernels: stacks, groups of dimensions, explanations, files, what is refused."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score

from cksc_dist import JKSRC, DistanceKernel, SeriesSet, load_model, pairwise_dtw
from cksc_dist.errors import InputError
from cksc_dist.io import make_gestures
from tests import naive_jksrc

Float = NDArray[np.float64]

GROUPS: list[Any] = [None, [[0, 1], [2]], [[0, 2], [1], [0, 1, 2]], [[1]]]


class Gestures(NamedTuple):
    """Series of three dimensions in three classes: training and test part."""

    train: SeriesSet
    test: SeriesSet


@pytest.fixture(scope="module")
def gestures() -> Gestures:
    data = make_gestures(12, 3, dims=3, length=(8, 14), noise=0.3, random_state=1)
    return Gestures(data[::2], data[1::2])


def stacks(gestures: Gestures, groups: Any, repair: Any = "clip", **metric: Any) -> tuple[Float, Float]:
    """The kernels of groups of dimensions, step by step: (n, n, M) and (n_test, n, M)."""
    train, test = [], []
    for group in [[0], [1], [2]] if groups is None else groups:
        kernel = DistanceKernel(factor=0.5, repair=repair)
        old, new = (part.select_dims(group) for part in gestures)
        train.append(kernel.fit_transform(pairwise_dtw(old, **metric)))
        test.append(kernel.transform(pairwise_dtw(new, old, **metric)))
    return np.stack(train, axis=2), np.stack(test, axis=2)


class Stacks(NamedTuple):
    """Three kernels, (n, n, 3) and (n_test, n, 3), and the labels."""

    K_train: Float
    K_test: Float
    y_train: NDArray[Any]
    y_test: NDArray[Any]


@pytest.fixture(scope="module")
def problem(gestures: Gestures) -> Stacks:
    return Stacks(*stacks(gestures, None), gestures.train.labels, gestures.test.labels)


@pytest.fixture(scope="module")
def model(problem: Stacks) -> JKSRC:
    return JKSRC(sparsity=3).fit(problem.K_train, problem.y_train)


# several kernels


@pytest.mark.parametrize("parameters", [{"sparsity": 3}, {"form": "convex", "shrinkage": 0.1}], ids=str)
def test_decisions_are_those_of_the_twin(problem: Stacks, parameters: dict[str, Any]) -> None:
    model = JKSRC(**parameters).fit(problem.K_train, problem.y_train)
    K, rows = np.moveaxis(problem.K_train, 2, 0), np.moveaxis(problem.K_test, 2, 1)
    y = np.searchsorted(model.classes_, problem.y_train)
    codes = model.transform(problem.K_test)
    n = len(y)
    assert codes.shape == (len(rows), 3 * n)
    expected = []
    for k_z, code in zip(rows, codes, strict=True):
        X = code.reshape(3, n)
        if "form" in parameters:
            assert naive_jksrc.violation(K, k_z, X, 0.1 * naive_jksrc.largest_penalty(k_z)) < 1.001e-4
        else:
            np.testing.assert_allclose(X, naive_jksrc.greedy(K, k_z, 3)[1], atol=1e-9)
        expected.append([naive_jksrc.class_residual(K, k_z, X, y, q, own=3.0) for q in range(3)])
    assert np.array_equal(model.predict(problem.K_test), model.classes_[np.argmin(expected, axis=1)])
    inverse = 1.0 / np.array(expected)
    np.testing.assert_allclose(model.class_shares(problem.K_test), inverse / inverse.sum(axis=1)[:, None], rtol=1e-9)
    assert model.score(problem.K_test, problem.y_test) > 0.7


def test_kernels_together_tell_more_than_each_alone() -> None:
    """One sensor tells class 0 from the others, the other one class 2."""
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    sensors = 0.5 * rng.standard_normal((2, 60)) + 4.0 * np.array([y > 0, y > 1])
    K = np.stack([np.exp(-((x[:, None] - x) ** 2)) for x in sensors], axis=2)
    scores = [
        JKSRC(sparsity=1).fit(K[:30, :30, part], y[:30]).score(K[30:, :30, part], y[30:]) for part in ([0], [1], [0, 1])
    ]
    assert max(scores[:2]) < 0.8
    assert scores[2] == 1.0


def test_the_order_of_the_kernels_does_not_matter(problem: Stacks, model: JKSRC) -> None:
    turned = JKSRC(sparsity=3).fit(problem.K_train[:, :, ::-1], problem.y_train)
    shares = turned.class_shares(problem.K_test[:, :, ::-1])
    np.testing.assert_allclose(shares, model.class_shares(problem.K_test), atol=1e-12)


def test_one_kernel_goes_with_or_without_the_last_axis(problem: Stacks) -> None:
    K, rows = problem.K_train[:, :, :1], problem.K_test[:, :, :1]
    stacked, plain = JKSRC(sparsity=3).fit(K, problem.y_train), JKSRC(sparsity=3).fit(K[:, :, 0], problem.y_train)
    expected = plain.class_shares(rows[:, :, 0])
    for model in (stacked, plain):
        assert np.array_equal(model.class_shares(rows), expected)
        assert np.array_equal(model.class_shares(rows[:, :, 0]), expected)
        assert model.explain(rows[0, :, 0]).label == plain.predict(rows)[0]
    assert stacked.explain(rows[0]) == plain.explain(rows[0, :, 0])


def test_what_is_learnt(problem: Stacks, model: JKSRC) -> None:
    n = len(problem.y_train)
    assert model.dictionary_.shape == model.codes_.shape == (n, 3 * n)
    assert np.array_equal(model.dictionary_.toarray(), np.tile(np.eye(n), 3))
    assert model.interpretability_.tolist() == [1.0] * (3 * n)
    assert model.support_.tolist() == list(range(n))
    assert model.n_train_ == model.n_features_in_ == n
    assert (model.n_iter_, model.objective_history_.shape) == (0, (0,))


def test_kernels_are_repaired_one_by_one(gestures: Gestures, problem: Stacks, model: JKSRC) -> None:
    """As they come from DTW they are indefinite; `repair` does what `DistanceKernel(repair=...)` does with each."""
    K_train, K_test = stacks(gestures, None, repair=None)
    assert all(np.linalg.eigvalsh(K_train[:, :, m])[0] < -1e-3 for m in range(3))
    shares = JKSRC(sparsity=3).fit(K_train, problem.y_train).class_shares(K_test)
    np.testing.assert_allclose(shares, model.class_shares(problem.K_test), atol=1e-9)
    left = JKSRC(sparsity=3, repair=None).fit(K_train, problem.y_train).class_shares(K_test)
    assert not np.allclose(left, shares, atol=1e-3)


def test_kernels_in_float32_or_lists(problem: Stacks, model: JKSRC) -> None:
    expected = model.predict(problem.K_test)
    single = JKSRC(sparsity=3).fit(problem.K_train.astype(np.float32), problem.y_train)
    assert (single.predict(problem.K_test.astype(np.float32)) == expected).mean() > 0.9
    lists = JKSRC(sparsity=3).fit(problem.K_train.tolist(), problem.y_train.tolist())
    assert np.array_equal(lists.class_shares(problem.K_test.tolist()), model.class_shares(problem.K_test))


def test_neither_threads_nor_neighbours_change_a_bit(problem: Stacks, model: JKSRC) -> None:
    shares = model.class_shares(problem.K_test)
    threads = JKSRC(sparsity=3, n_jobs=2).fit(problem.K_train, problem.y_train)
    assert np.array_equal(threads.class_shares(problem.K_test), shares)
    assert np.array_equal(np.vstack([model.class_shares(row[None]) for row in problem.K_test]), shares)


# raw series


@pytest.mark.parametrize("groups", GROUPS, ids=str)
@pytest.mark.parametrize("metric", [{}, {"window": 3, "cost": "abs"}], ids=str)
def test_groups_of_dimensions_give_what_the_steps_by_hand_give(
    gestures: Gestures, groups: Any, metric: dict[str, Any]
) -> None:
    train, test = gestures
    raw = JKSRC(sparsity=3, kernel="dtw", groups=groups, factor=0.5, **metric).fit(train, train.labels)
    K_train, K_test = stacks(gestures, groups, **metric)
    by_hand = JKSRC(sparsity=3, repair=None).fit(K_train, train.labels)
    assert np.array_equal(raw.predict(test), by_hand.predict(K_test))
    np.testing.assert_allclose(raw.class_shares(test), by_hand.class_shares(K_test), atol=1e-12)
    np.testing.assert_allclose(raw.transform(test), by_hand.transform(K_test), atol=1e-12)
    assert raw.transform(test).shape[1] == len(train) * (3 if groups is None else len(groups))
    assert raw.n_features_in_ == 3


def test_series_come_as_a_set_or_a_list_and_may_change_later(gestures: Gestures) -> None:
    train, test = gestures
    as_set = JKSRC(sparsity=3, kernel="dtw").fit(train, train.labels)
    expected = as_set.class_shares(test)
    series = [values.copy() for values in train]
    as_list = JKSRC(sparsity=3, kernel="dtw").fit(series, train.labels.tolist())
    for values in series:
        values[:] = 0.0
    assert np.array_equal(as_list.class_shares(test.series), expected)


def test_groups_may_be_arrays(gestures: Gestures, tmp_path: Path) -> None:
    train, test = gestures
    expected = JKSRC(sparsity=2, kernel="dtw", groups=[[0, 1], [2]]).fit(train, train.labels).class_shares(test)
    for groups in ((np.arange(2), np.array([2])), ((0, 1), (2,)), [[np.int64(0), 1], range(2, 3)]):
        model = clone(JKSRC(sparsity=2, kernel="dtw", groups=groups)).fit(train, train.labels)
        assert np.array_equal(model.class_shares(test), expected)
    model.set_params(groups=[np.arange(2), np.array([2])]).fit(train, train.labels)
    model.save(tmp_path / "model")
    assert load_model(tmp_path / "model").groups == [[0, 1], [2]]


def test_grid_search_over_groups_and_forms(gestures: Gestures) -> None:
    train, test = gestures
    grid = {"groups": [None, [[0, 1, 2]]], "form": ["greedy", "convex"]}
    search = GridSearchCV(JKSRC(sparsity=3, kernel="dtw"), grid, cv=2, error_score="raise")
    search.fit(np.array(train.series, dtype=object), train.labels)
    assert len(set(search.cv_results_["mean_test_score"])) > 1
    assert search.score(np.array(test.series, dtype=object), test.labels) > 0.7


# scikit-learn cuts both first axes of a stack


def test_cross_validation_cuts_rows_and_columns_of_every_kernel(problem: Stacks) -> None:
    K, y, folds = problem.K_train, problem.y_train, StratifiedKFold(3)
    by_hand = [
        JKSRC(sparsity=3).fit(K[np.ix_(train, train)], y[train]).score(K[np.ix_(test, train)], y[test])
        for train, test in folds.split(np.zeros(len(y)), y)
    ]
    assert cross_val_score(JKSRC(sparsity=3), K, y, cv=folds, error_score="raise").tolist() == by_hand
    assert len(set(by_hand)) > 1


def test_grid_search_over_stacked_kernels(problem: Stacks) -> None:
    grid = [{"sparsity": [1, 3]}, {"form": ["convex"], "shrinkage": [0.1, 1.0]}]
    search = GridSearchCV(JKSRC(), grid, cv=3, error_score="raise").fit(problem.K_train, problem.y_train)
    assert search.best_params_ != {"form": "convex", "shrinkage": 1.0}  # which leaves nothing to decide by
    assert search.best_estimator_.n_train_ == len(problem.y_train)
    assert search.score(problem.K_test, problem.y_test) > 0.7


# explanation


def test_an_explanation_says_which_samples_and_which_kernels(problem: Stacks, model: JKSRC) -> None:
    K, n = np.moveaxis(problem.K_train, 2, 0), len(problem.y_train)
    shares, codes = model.class_shares(problem.K_test), model.transform(problem.K_test)
    explanations = model.explain_many(problem.K_test, top=4)
    for z, explanation in enumerate(explanations):
        X = codes[z].reshape(3, n)
        assert explanation.label == model.predict(problem.K_test)[z]
        assert list(explanation.shares.values()) == shares[z].tolist()
        assert explanation.confidence == shares[z].max()
        assert not explanation.far_away
        # a sample that rebuilds in three kernels is one sample
        assert explanation.n_samples == explanation.n_atoms == 3 == X.any(axis=0).sum()
        weight = X.sum(axis=0)
        for part in explanation.samples:
            assert part.label == problem.y_train[part.row]
            assert part.share == pytest.approx(weight[part.row] / np.abs(weight).sum())
        largest = np.sort(np.abs(codes[z]))[::-1]
        assert [abs(part.weight) for part in explanation.atoms] == largest[:4].tolist()
        for atom in explanation.atoms:
            assert atom.weight == codes[z, atom.atom]
            assert atom.label == problem.y_train[atom.atom % n]
            assert atom.interpretability == 1.0
        # the cosine in the space of all kernels together, each of which has a diagonal of 1
        norm = sum(x @ K_m @ x for x, K_m in zip(X, K, strict=True))
        cosine = (problem.K_test[z].T * X).sum() / np.sqrt(3.0 * norm)
        assert explanation.similarity == pytest.approx(cosine)
        assert 0 < cosine <= 1
    assert model.explain(problem.K_test[2], top=4) == explanations[2]


def test_a_training_sample_is_explained_by_itself(problem: Stacks, model: JKSRC) -> None:
    explanation = model.explain(problem.K_train[5])
    assert [part.row for part in explanation.samples] == [5]
    assert [part.atom for part in explanation.atoms] == [5, 5 + model.n_train_, 5 + 2 * model.n_train_]
    assert explanation.similarity == pytest.approx(1.0)
    assert (explanation.n_samples, explanation.n_atoms) == (1, 1)
    assert explanation.confidence > 0.99


def test_decisions_count_samples_not_kernels(problem: Stacks, model: JKSRC) -> None:
    label, confidence, used = model.decisions(problem.K_test)
    assert np.array_equal(label, model.predict(problem.K_test))
    assert np.array_equal(confidence, model.class_shares(problem.K_test).max(axis=1))
    assert set(used.tolist()) == {3}


def test_a_sample_far_away_in_every_kernel(problem: Stacks, model: JKSRC) -> None:
    rows = np.concatenate([problem.K_test[:1], np.zeros((1, len(problem.y_train), 3))])
    assert model.class_shares(rows)[1].tolist() == [1 / 3] * 3
    explanation = model.explain(rows[1])
    assert explanation.far_away
    assert explanation.similarity == 0
    # in one kernel it may be far from all
    rows[0, :, 1] = 0.0
    assert not model.explain(rows[0]).far_away


def test_explanations_of_series_and_vectors(gestures: Gestures) -> None:
    train, test = gestures
    series = JKSRC(sparsity=3, kernel="dtw").fit(train, train.labels)
    assert series.explain(test[1]) == series.explain_many(test)[1]
    X, y = np.random.default_rng(0).standard_normal((20, 2)), np.arange(20) % 2
    vectors = JKSRC(sparsity=3, kernel="rbf").fit(X + 3 * y[:, None], y)
    assert vectors.explain([3.0, 3.0]) == vectors.explain_many([[3.0, 3.0]])[0]
    assert vectors.explain([3.0, 3.0]).label == 1


# files


def fitted(gestures: Gestures, kind: str) -> tuple[JKSRC, Any]:
    """A model, and what it is to decide on."""
    train, test = gestures
    if kind == "rbf":
        X = np.array([np.concatenate([values.mean(axis=0), values.std(axis=0)]) for values in [*train, *test]])
        return JKSRC(sparsity=3, kernel="rbf").fit(X[: len(train)], train.labels), X[len(train) :]
    if kind == "dtw":
        model = JKSRC(sparsity=2, kernel="dtw", window=4, factor=0.5, groups=[[0, 2], [1]])
        return model.fit(train, train.labels), test
    if kind == "dtw, no repair":
        return JKSRC(form="convex", kernel="dtw", repair=None).fit(train, train.labels), test
    K_train, K_test = stacks(gestures, None, repair=None)  # indefinite: the repair has to be saved as well
    if kind == "one kernel":
        return JKSRC(sparsity=4).fit(K_train[:, :, 0], train.labels), K_test[:, :, 0]
    return JKSRC(form="convex", shrinkage=0.2).fit(K_train, train.labels), K_test


KINDS = ["precomputed", "one kernel", "dtw", "dtw, no repair", "rbf"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_comes_back_with_the_same_bits(gestures: Gestures, tmp_path: Path, kind: str) -> None:
    model, X = fitted(gestures, kind)
    model.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    # and once more, from what was loaded
    loaded.save(tmp_path / "again")
    for other in (loaded, load_model(tmp_path / "again"), pickle.loads(pickle.dumps(model))):
        assert type(other) is JKSRC
        assert other.get_params() == model.get_params()
        assert np.array_equal(other.class_shares(X), model.class_shares(X))
        assert np.array_equal(other.transform(X), model.transform(X))
        assert np.array_equal(other.predict(X), model.predict(X))
        assert other.explain(X[0]) == model.explain(X[0])
        assert (other.n_features_in_, other.n_train_) == (model.n_features_in_, model.n_train_)
        assert np.array_equal(other.interpretability_, model.interpretability_)
    assert len(np.unique(model.predict(X))) == 3


def test_many_kernels_come_back_in_their_order(tmp_path: Path) -> None:
    """More than ten: their names must not be taken for each other."""
    data = make_gestures(4, 2, dims=12, length=(5, 7), random_state=0)
    data = data.map(lambda values: values * np.arange(1, 13))  # each dimension has a bandwidth of its own
    model = JKSRC(sparsity=2, kernel="dtw").fit(data, data.labels)
    model.save(tmp_path / "model")
    assert np.array_equal(load_model(tmp_path / "model").transform(data), model.transform(data))


def test_predictions_that_fail_leave_a_model_that_can_be_saved(gestures: Gestures, tmp_path: Path) -> None:
    train, test = gestures
    model = JKSRC(sparsity=2, kernel="dtw").fit(train, train.labels)
    expected = model.class_shares(test)
    with pytest.raises(InputError):
        model.predict(test.select_dims([0, 1]))
    model.save(tmp_path / "model")
    assert np.array_equal(load_model(tmp_path / "model").class_shares(test), expected)


def test_series_are_kept_once_for_all_kernels(gestures: Gestures) -> None:
    train = gestures.train
    model = JKSRC(sparsity=2, kernel="dtw").fit(train, train.labels)
    assert len(pickle.dumps(model._source)) < 2 * train.values.nbytes + 3 * 8 * len(train) ** 2


# what is refused


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda K: K[:, :, :, None],
            r"K has shape \(18, 18, 3, 1\); give one kernel \(n, n\), or several as",
        ),
        (lambda K: K[:, :, :0], r"K has shape \(18, 18, 0\); give one kernel \(n, n\), or several"),
        (lambda K: np.moveaxis(K, 2, 0), r"3 samples but 18 labels"),
        (lambda K: K[:, 1:], r"kernel 0: K has shape \(18, 17\); a kernel of training samples is square"),
        (lambda K: K - [0, 0, 1] * np.eye(18)[:, :, None], r"kernel 2: K: this looks like a distance matrix"),
        (lambda K: K * np.where(np.arange(3) == 1, np.nan, 1.0), r"kernel 1: K\[0, 0\] is nan; every entry must be"),
        (lambda K: K + [0, 1, 0] * np.tri(18)[:, :, None], r"kernel 1: K is not symmetric"),
        (lambda K: K[:, :, 0] * np.nan, r"^K\[0, 0\] is nan"),
    ],
)
def test_what_is_no_stack_of_kernels(problem: Stacks, change: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        JKSRC().fit(change(problem.K_train), problem.y_train)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda K: K[:, :, :2],
            r"K of shape \(18, 18, 2\) holds 2 kernels, but the model was trained on 3; give a test kernel of shape "
            r"\(n_test, n_train, 3\)",
        ),
        (lambda K: K[:, :, 0], r"K of shape \(18, 18\) holds 1 kernel, but the model was trained on 3"),
        (lambda K: K[:, 1:], r"kernel 0: K has 17 columns, but the model was trained on 18 samples"),
        (lambda K: K * np.where(np.arange(3) == 1, np.inf, 1.0), r"kernel 1: K\[0, 0\] is inf; every entry must be"),
        (lambda K: K[0, :, 0], r"K has shape \(18,\); give one kernel"),
    ],
)
def test_what_is_no_stack_of_test_kernels(problem: Stacks, model: JKSRC, change: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        model.predict(change(problem.K_test))


def test_explain_takes_one_sample(gestures: Gestures, problem: Stacks, model: JKSRC) -> None:
    with pytest.raises(InputError, match=r"explain takes one sample, but z has shape \(18, 18, 3\); pass one of them"):
        model.explain(problem.K_test)
    plain = JKSRC(sparsity=3).fit(problem.K_train[:, :, 0], problem.y_train)
    with pytest.raises(InputError, match=r"explain takes one sample, but z has shape \(18, 18\)"):
        plain.explain(problem.K_test[:, :, 0])
    series = JKSRC(sparsity=3, kernel="dtw").fit(gestures.train, problem.y_train)
    with pytest.raises(InputError, match=r"explain takes one sample, but z is SeriesSet"):
        series.explain(gestures.test)


FORM = r"give the dimensions of each kernel, ascending, each once, such as \[\[0, 1\], \[2\]\]"


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ([], FORM),
        ([[]], FORM),
        ([[0], []], FORM),
        ([[1, 0]], FORM),
        ([[0, 0]], FORM),
        ([0, 1], FORM),
        (2, FORM),
        ("01", FORM),
        ([["a"]], FORM),
        ([[0.0]], FORM),
        ([[True]], FORM),
        ([[-1]], r"names dimension -1; dimensions count from 0"),
        ([[0, 3]], r"names dimension 3, but the series have dimensions 0 to 2"),
    ],
    ids=str,
)
def test_groups_that_are_none(gestures: Gestures, groups: Any, words: str) -> None:
    with pytest.raises(InputError, match=rf"^groups=.*{words}"):
        JKSRC(kernel="dtw", groups=groups).fit(gestures.train, gestures.train.labels)


@pytest.mark.parametrize("groups", [None, [[0, 1], [2]]], ids=str)
@pytest.mark.parametrize("dims", [1, 2, 4])
def test_series_of_other_dims_than_those_of_training(gestures: Gestures, groups: Any, dims: int) -> None:
    model = JKSRC(sparsity=2, kernel="dtw", groups=groups).fit(gestures.train, gestures.train.labels)
    other = [np.ones((5, dims))]
    with pytest.raises(InputError, match=f"^X has {dims} dims, but the model was trained on series with 3"):
        model.predict(other)


def test_a_dimension_that_never_changes_is_named(gestures: Gestures) -> None:
    still = gestures.train.map(lambda values: values * [1.0, 0.0, 1.0])
    with pytest.raises(InputError, match=r"kernel 1, of dims \(1,\): bandwidth='mean' gives delta = 0"):
        JKSRC(kernel="dtw").fit(still, still.labels)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"sparsity": 0}, r"sparsity=0: must be a whole number of at least 1"),
        ({"form": "lasso"}, r"form='lasso': must be one of 'greedy', 'convex'"),
        ({"shrinkage": 0.0}, r"shrinkage=0.0: must be a number in \(0, 1\]"),
        ({"shrinkage": 1.1}, r"shrinkage=1.1: must be a number in \(0, 1\]"),
        ({"repair": "mend"}, r"repair='mend': must be one of None, 'clip', 'flip'"),
        ({"n_jobs": 0}, r"n_jobs=0: must be None \(one thread\), a number of threads, or -1"),
    ],
)
def test_parameters_out_of_range(problem: Stacks, parameters: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        JKSRC(**parameters).fit(problem.K_train, problem.y_train)
