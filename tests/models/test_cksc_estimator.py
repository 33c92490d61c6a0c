"""CKSC as an estimator: scikit-learn's protocol, what predictions mean, what is learnt, what is refused."""

from __future__ import annotations

import unittest
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import nnls
from scipy.spatial.distance import cdist
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks

from cksc_dist import CKSC, DistanceKernel
from cksc_dist.errors import InputError, SmallClassWarning
from cksc_dist.spec import DistanceSpec, KernelSpec, ModelSpec

Float = NDArray[np.float64]


class Problem(NamedTuple):
    """Vectors of three overlapping classes, cut into training and test part, with distances and kernels."""

    X: Float
    D: Float
    y: NDArray[Any]
    K_train: NDArray[Any]
    K_test: NDArray[Any]
    y_train: NDArray[Any]
    y_test: NDArray[Any]


def make_problem(sizes: tuple[int, ...] = (34, 30, 26), seed: int = 0) -> Problem:
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    X = rng.standard_normal((len(y), 2)) + 2.5 * np.column_stack([y, y % 2])
    D = cdist(X, X)
    names = np.array(["ash", "birch", "cedar", "fir"])[y]
    half = len(y) // 2
    kernel = DistanceKernel(factor=0.5)
    K_train = kernel.fit_transform(D[:half, :half])
    K_test = kernel.transform(D[half:, :half])
    return Problem(X, D, names, K_train, K_test, names[:half], names[half:])


@pytest.fixture(scope="module")
def problem() -> Problem:
    return make_problem()


def fitted(problem: Problem, **parameters: Any) -> CKSC:
    return CKSC(**({"sparsity": 4, "random_state": 0} | parameters)).fit(problem.K_train, problem.y_train)


@pytest.fixture(scope="module")
def model(problem: Problem) -> CKSC:
    return fitted(problem)


# scikit-learn's protocol


# scikit-learn tries classes with very few samples, and few iterations
@pytest.mark.filterwarnings("ignore::cksc_dist.errors.SmallClassWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks([CKSC(kernel="rbf")])  # type: ignore[untyped-decorator]  # scikit-learn has no types
def test_scikit_learn_check(estimator: CKSC, check: Any) -> None:
    try:
        check(estimator)
    except unittest.SkipTest as skip:
        # one needs an environment variable that has to be set before SciPy is imported, one needs pandas
        if "SCIPY_ARRAY_API" not in str(skip) and "pandas is not installed" not in str(skip):
            pytest.fail(f"a check is skipped: {skip}")
        pytest.skip(str(skip))


def test_defaults_are_those_of_the_specs() -> None:
    parameters = CKSC().get_params()
    for spec in (DistanceSpec(), KernelSpec(), ModelSpec()):
        for name, value in vars(spec).items():
            if name in parameters:
                assert parameters.pop(name) == value
    assert parameters == {"kernel": "precomputed", "random_state": None, "n_jobs": None, "gamma": None}


def test_clone_and_set_params_carry_every_parameter() -> None:
    parameters: dict[str, Any] = {
        "sparsity": 3,
        "alpha": 0.7,
        "kernel": "dtw",
        "atoms_per_class": 2,
        "recall": "reconstruction",
        "schedule": "sequential",
        "prune": 0.1,
        "max_iter": 3,
        "tol": 0.01,
        "random_state": 5,
        "n_jobs": 2,
        "selection": "plain",
        "mode": "independent",
        "window": 4,
        "cost": "abs",
        "normalise": "z",
        "per_length": True,
        "bandwidth": "median",
        "factor": 2.0,
        "repair": "clip",
        "gamma": 0.3,
    }
    assert parameters.keys() == CKSC().get_params().keys()
    assert clone(CKSC(**parameters)).get_params() == parameters
    assert CKSC().set_params(**parameters).get_params() == parameters


def test_a_clone_learns_the_same_and_is_not_fitted_itself(problem: Problem, model: CKSC) -> None:
    copy = clone(model)
    with pytest.raises(NotFittedError):
        copy.predict(problem.K_test)
    copy.fit(problem.K_train, problem.y_train)
    assert np.array_equal(copy.class_shares(problem.K_test), model.class_shares(problem.K_test))


def test_only_a_precomputed_kernel_is_pairwise() -> None:
    assert get_tags(CKSC()).input_tags.pairwise
    assert not get_tags(CKSC(kernel="dtw")).input_tags.pairwise
    assert not get_tags(CKSC(kernel="rbf")).input_tags.pairwise


def test_cross_validation_cuts_rows_and_columns_of_a_precomputed_kernel(problem: Problem) -> None:
    K, y = problem.K_train, problem.y_train
    model = CKSC(sparsity=3, random_state=0)
    folds = StratifiedKFold(3)
    by_hand = [
        clone(model).fit(K[np.ix_(train, train)], y[train]).score(K[np.ix_(test, train)], y[test])
        for train, test in folds.split(K, y)
    ]
    assert cross_val_score(model, K, y, cv=folds, error_score="raise").tolist() == by_hand
    assert np.mean(by_hand) > 0.8


def test_grid_search_over_alpha_and_sparsity(problem: Problem) -> None:
    grid = {"alpha": [0.05, 0.5], "sparsity": [1, 4]}
    search = GridSearchCV(CKSC(random_state=0, tol=0.01), grid, cv=3, error_score="raise")
    search.fit(problem.K_train, problem.y_train)
    assert len(search.cv_results_["mean_test_score"]) == 4
    assert len(set(search.cv_results_["mean_test_score"])) > 1  # the parameters matter
    assert search.best_estimator_.n_train_ == len(problem.y_train)
    assert search.score(problem.K_test, problem.y_test) > 0.8


def test_grid_search_through_a_pipeline_on_distances(problem: Problem) -> None:
    half = len(problem.y_train)
    D = problem.D[:half, :half]
    pipeline = Pipeline([("kernel", DistanceKernel()), ("cksc", CKSC(sparsity=4, random_state=0))])
    assert get_tags(pipeline).input_tags.pairwise
    grid = {"kernel__factor": [1e-6, 0.5], "cksc__alpha": [0.1, 0.2]}
    search = GridSearchCV(pipeline, grid, cv=3, error_score="raise").fit(D, problem.y_train)
    assert search.best_params_["kernel__factor"] == 0.5  # 1e-6 leaves the identity: nothing to learn from
    best = search.best_params_["cksc__alpha"]
    shares = search.best_estimator_.predict_proba(problem.D[half:, :half])
    assert np.array_equal(shares, fitted(problem, alpha=best).class_shares(problem.K_test))


@pytest.mark.parametrize("method", ["predict", "class_shares", "predict_proba", "decision_function", "transform"])
def test_nothing_is_predicted_before_fit(problem: Problem, method: str) -> None:
    with pytest.raises(NotFittedError):
        getattr(CKSC(), method)(problem.K_test)


def test_a_fit_that_fails_is_no_fit(problem: Problem) -> None:
    for model, X in ((CKSC(), problem.K_train * np.nan), (CKSC(kernel="rbf", gamma=-1.0), problem.X[:45])):
        with pytest.raises(InputError):
            model.fit(X, problem.y_train)
        with pytest.raises(NotFittedError):
            model.predict(problem.K_test)


def test_a_fit_that_fails_leaves_the_earlier_one_whole(problem: Problem) -> None:
    model = fitted(problem)
    before = model.class_shares(problem.K_test)
    with pytest.raises(InputError):
        model.fit(problem.D, np.repeat([0, 1], 45))
    assert np.array_equal(model.class_shares(problem.K_test), before)
    assert model.predict(problem.K_test)[0] in problem.y


def test_a_fit_that_fails_leaves_the_checks_of_vectors_whole(problem: Problem) -> None:
    pandas = pytest.importorskip("pandas")
    X = pandas.DataFrame(problem.X[:45], columns=["height", "width"])
    model = CKSC(sparsity=3, kernel="rbf", random_state=0).fit(X, problem.y_train)
    before = model.class_shares(X)
    wider = pandas.DataFrame(np.ones((45, 3)), columns=["a", "b", "c"])
    with pytest.raises(InputError, match="one class"):
        model.fit(wider, ["ash"] * 45)
    assert model.n_features_in_ == 2
    assert model.feature_names_in_.tolist() == ["height", "width"]
    assert np.array_equal(model.class_shares(X), before)
    fresh = CKSC(kernel="rbf")
    with pytest.raises(InputError, match="one class"):
        fresh.fit(wider, ["ash"] * 45)
    assert not hasattr(fresh, "n_features_in_")
    # a fit that succeeds forgets the names of the one before
    model.set_params(kernel="precomputed").fit(problem.K_train, problem.y_train)
    assert not hasattr(model, "feature_names_in_")


def test_parameters_set_after_fit_wait_for_the_next_fit(problem: Problem) -> None:
    model = fitted(problem)
    before = model.class_shares(problem.K_test)
    model.set_params(alpha=0.9, recall="reconstruction", sparsity=1, prune=0.4, selection="plain", kernel="rbf")
    assert np.array_equal(model.class_shares(problem.K_test), before)


# what a prediction means


def test_shares_are_shares(problem: Problem, model: CKSC) -> None:
    shares = model.class_shares(problem.K_test)
    assert shares.shape == (len(problem.K_test), 3)
    assert (shares >= 0).all()
    np.testing.assert_allclose(shares.sum(axis=1), 1.0, rtol=1e-14)
    assert len(np.unique(shares.round(6), axis=0)) > 3  # not simply 0 and 1 for all
    assert model.score(problem.K_test, problem.y_test) > 0.85


def test_shares_are_the_class_sums_of_the_reconstruction(problem: Problem, model: CKSC) -> None:
    """h = L U g, from what is public: dictionary, codes and labels."""
    weight = model.transform(problem.K_test) @ model.dictionary_.toarray().T
    one_hot = problem.y_train[:, None] == model.classes_
    h = weight @ one_hot
    np.testing.assert_allclose(model.class_shares(problem.K_test), h / h.sum(axis=1, keepdims=True), atol=1e-14)


def test_the_label_is_the_class_with_the_largest_share(problem: Problem, model: CKSC) -> None:
    shares = model.class_shares(problem.K_test)
    assert np.array_equal(model.predict(problem.K_test), model.classes_[shares.argmax(axis=1)])
    assert np.array_equal(model.predict_proba(problem.K_test), shares)


def test_decision_function_of_several_classes(problem: Problem, model: CKSC) -> None:
    decision = model.decision_function(problem.K_test)
    assert decision.shape == (len(problem.K_test), 3)
    assert np.array_equal(model.classes_[decision.argmax(axis=1)], model.predict(problem.K_test))


@pytest.mark.parametrize("sizes", [(30, 50), (50, 30)])
def test_decision_function_of_two_classes(sizes: tuple[int, int]) -> None:
    problem = make_problem(sizes)
    model = fitted(problem)
    rows = np.vstack([problem.K_test, np.zeros(len(problem.K_train))])  # the last one is far away
    decision = model.decision_function(rows)
    assert decision.shape == (len(rows),)
    assert np.array_equal(model.classes_[(decision > 0).astype(int)], model.predict(rows))
    shares = model.class_shares(rows)
    np.testing.assert_allclose(decision, shares[:, 1] - shares[:, 0], atol=1e-8)
    assert set(model.predict(problem.K_test)) == {"ash", "birch"}


@pytest.mark.parametrize("sizes", [(12, 30, 18), (30, 18, 12)])
def test_a_sample_far_from_all_gets_the_largest_class(sizes: tuple[int, ...]) -> None:
    problem = make_problem(sizes)
    largest = ["ash", "birch", "cedar"][int(np.argmax(sizes))]
    assert (problem.y_train == largest).sum() == max((problem.y_train == c).sum() for c in set(problem.y_train))
    model = fitted(problem)
    rows = np.vstack([problem.K_test[:1], np.zeros(len(problem.K_train))])
    np.testing.assert_array_equal(model.class_shares(rows)[1], np.full(3, 1 / 3))
    assert model.predict(rows)[1] == largest
    assert model.classes_[model.decision_function(rows)[1].argmax()] == largest
    assert not model.transform(rows)[1].any()
    assert np.array_equal(model.class_shares(rows)[0], model.class_shares(problem.K_test)[0])  # the other is not
    assert model.class_shares(rows)[0].max() > 0.5


def test_vectors_far_from_all_underflow_to_the_same(problem: Problem) -> None:
    model = CKSC(sparsity=3, kernel="rbf", random_state=0).fit(problem.X, problem.y)
    assert model.predict([[1e6, 1e6]]).tolist() == ["ash"]
    assert model.class_shares([[1e6, 1e6]])[0].tolist() == [1 / 3] * 3


@pytest.mark.parametrize("recall", ["confident", "reconstruction"])
def test_recall_solves_its_problem(problem: Problem, recall: str) -> None:
    """With as many non-zeros allowed as there are atoms, recall is a non-negative least squares problem."""
    model = fitted(problem, sparsity=3, atoms_per_class=1, alpha=0.5, recall=recall)
    K, U = problem.K_train, model.dictionary_.toarray()
    assert U.shape[1] == 3
    if recall == "confident":
        M = (problem.y_train[:, None] != problem.y_train).astype(float)
        K = K + 0.5 * M + model.beta_ * np.eye(len(K))
    # ||R g - R'^-1 U'k_z||^2 = g'U'K U g - 2 k_z'U g + const,  R'R = U'K U
    R = cholesky(U.T @ K @ U)
    expected = [nnls(R, solve_triangular(R, U.T @ k_z, trans="T"))[0] for k_z in problem.K_test]
    np.testing.assert_allclose(model.transform(problem.K_test), expected, atol=1e-8)


def test_the_two_recalls_differ_and_the_confident_one_mixes_less(problem: Problem) -> None:
    confident = fitted(problem, alpha=0.3, recall="confident")
    plain = fitted(problem, alpha=0.3, recall="reconstruction")
    assert np.array_equal(confident.dictionary_.toarray(), plain.dictionary_.toarray())  # training is the same
    sure = confident.class_shares(problem.K_test).max(axis=1)
    unsure = plain.class_shares(problem.K_test).max(axis=1)
    assert sure.mean() > unsure.mean()
    assert not np.array_equal(sure, unsure)


def test_rows_are_predicted_one_by_one(problem: Problem, model: CKSC) -> None:
    together = model.class_shares(problem.K_test)
    assert np.array_equal(np.vstack([model.class_shares(row[None]) for row in problem.K_test]), together)


def test_columns_without_weight_are_not_looked_at(problem: Problem) -> None:
    model = fitted(problem, sparsity=2)
    unused = np.setdiff1d(np.arange(model.n_train_), model.support_)
    assert len(unused)
    changed = problem.K_test.copy()
    changed[:, unused] = 7.0
    assert np.array_equal(model.class_shares(changed), model.class_shares(problem.K_test))
    changed[:, model.support_] *= 0.5
    assert not np.array_equal(model.transform(changed), model.transform(problem.K_test))


# what is learnt


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"sparsity": 2, "atoms_per_class": 6},
        {"alpha": 0.0, "tol": 0.01},
        {"schedule": "sequential"},
        {"prune": 0.1},
    ],
)
def test_attributes(problem: Problem, parameters: dict[str, Any]) -> None:
    model = fitted(problem, **parameters)
    n = len(problem.y_train)
    T0 = model.sparsity
    k = 3 * (model.atoms_per_class or T0)
    U, G = model.dictionary_, model.codes_
    assert isinstance(U, sparse.csc_array)
    assert isinstance(G, sparse.csr_array)
    assert U.shape == G.shape == (n, k)
    assert 1 <= np.diff(U.indptr).min() <= np.diff(U.indptr).max() <= T0
    assert np.diff(G.indptr).max() <= T0
    assert (U.data > 0).all()
    assert (G.data > 0).all()
    np.testing.assert_allclose(np.diag((U.T @ problem.K_train) @ U.toarray()), 1.0, rtol=1e-9)  # u'K u = 1
    assert model.classes_.tolist() == ["ash", "birch", "cedar"]
    assert model.n_train_ == model.n_features_in_ == n
    assert np.array_equal(model.support_, np.unique(U.tocoo().row))
    assert isinstance(model.beta_, float)
    assert 1 <= model.n_iter_ <= model.max_iter
    assert model.transform(problem.K_test).shape == (len(problem.K_test), k)
    assert (np.count_nonzero(model.transform(problem.K_test), axis=1) <= T0).all()
    weights = U.T @ (problem.y_train[:, None] == model.classes_)
    np.testing.assert_allclose(model.interpretability_, weights.max(axis=1) / weights.sum(axis=1), rtol=1e-12)
    assert ((model.interpretability_ > 0) & (model.interpretability_ <= 1)).all()


@pytest.mark.parametrize("schedule", ["interleaved", "sequential"])
def test_objective_history(problem: Problem, schedule: str) -> None:
    model = fitted(problem, schedule=schedule, alpha=0.15)
    history, terms = model.objective_history_, model.objective_terms_
    assert history.shape == (2 * model.n_iter_ + 1,)
    assert set(terms) == {"reconstruction", "ridge", "discrimination"}
    np.testing.assert_allclose(sum(terms.values()), history, rtol=1e-13)
    assert (np.diff(history) <= 1e-12 * abs(history[0])).all()
    assert history[-1] < history[0]
    # J as it is written down, of the dictionary and codes that are given out
    UG = model.dictionary_.toarray() @ model.codes_.toarray().T
    K = problem.K_train
    M = problem.y_train[:, None] != problem.y_train
    reconstruction = np.trace(K) - 2 * np.trace(K @ UG) + np.trace(UG.T @ K @ UG)
    assert terms["reconstruction"][-1] == pytest.approx(reconstruction, rel=1e-9)
    assert terms["ridge"][-1] == pytest.approx(model.beta_ * (UG**2).sum(), rel=1e-9)
    assert terms["discrimination"][-1] == pytest.approx(0.15 * (M * UG.T).sum(), rel=1e-9, abs=1e-12)


def test_beta_makes_recall_convex(problem: Problem) -> None:
    for alpha in (0.0, 0.3):
        model = fitted(problem, alpha=alpha, tol=0.01)
        M = (problem.y_train[:, None] != problem.y_train).astype(float)
        least = np.linalg.eigvalsh(problem.K_train + alpha * M)[0]
        assert model.beta_ >= max(0.0, -least) - 1e-9
        assert model.beta_ <= max(0.0, -least) + 1e-2 + 1e-3 * abs(least)


def bits(model: CKSC, K_test: NDArray[Any]) -> list[bytes]:
    U, G = model.dictionary_, model.codes_
    parts = [U.data, U.indices, U.indptr, G.data, G.indices, G.indptr, model.objective_history_]
    return [np.asarray(part).tobytes() for part in [*parts, model.class_shares(K_test), np.array(model.beta_)]]


@pytest.mark.parametrize("schedule", ["interleaved", "sequential"])
def test_same_bits_for_any_number_of_threads_and_every_time(schedule: str) -> None:
    problem = make_problem((130, 120, 110), seed=2)  # several blocks of every kind
    parameters = {"schedule": schedule, "sparsity": 6, "max_iter": 5, "tol": 0.05}
    first = bits(fitted(problem, n_jobs=1, **parameters), problem.K_test)
    assert bits(fitted(problem, n_jobs=2, **parameters), problem.K_test) == first
    assert bits(fitted(problem, n_jobs=1, **parameters), problem.K_test) == first
    assert bits(fitted(problem, n_jobs=1, **parameters | {"random_state": 1}), problem.K_test) != first


def test_random_state_may_be_a_generator_that_moves_on(problem: Problem) -> None:
    generator = np.random.RandomState(0)
    one, other = fitted(problem, random_state=generator), fitted(problem, random_state=generator)
    assert not np.array_equal(one.objective_history_[0], other.objective_history_[0])


@pytest.mark.parametrize(
    "labels",
    [
        np.array([0, 1, 2]),
        np.array([-3, 7, 40], dtype=np.int8),
        np.array(["x", "yy", "zzz"]),
        np.array(["x", "yy", "zzz"], dtype=object),
        np.array([False, True, True]),
    ],
    ids=["int", "int8", "str", "object", "bool"],
)
def test_labels_come_back_as_they_are(problem: Problem, labels: NDArray[Any]) -> None:
    index = np.unique(problem.y_train, return_inverse=True)[1]
    model = CKSC(sparsity=3, random_state=0).fit(problem.K_train, labels[index])
    predicted = model.predict(problem.K_train)
    assert set(predicted.tolist()) == set(labels.tolist())
    assert (predicted == labels[index]).mean() > 0.9
    if labels.dtype != object:
        assert predicted.dtype == labels.dtype
    assert model.explain(problem.K_train[0]).label == predicted[0]


def test_labels_may_be_a_list(problem: Problem, model: CKSC) -> None:
    other = CKSC(sparsity=4, random_state=0).fit(problem.K_train.tolist(), problem.y_train.tolist())
    assert np.array_equal(other.class_shares(problem.K_test), model.class_shares(problem.K_test))


def test_order_and_names_of_classes_do_not_matter(problem: Problem, model: CKSC) -> None:
    names = {"ash": "3", "birch": "4", "cedar": "5"}
    renamed = CKSC(sparsity=4, random_state=0).fit(problem.K_train, [names[label] for label in problem.y_train])
    assert np.array_equal(renamed.class_shares(problem.K_test), model.class_shares(problem.K_test))


def test_a_kernel_in_float32_or_in_another_order_of_memory(problem: Problem, model: CKSC) -> None:
    expected = model.predict(problem.K_test)
    single = CKSC(sparsity=4, random_state=0).fit(problem.K_train.astype(np.float32), problem.y_train)
    assert (single.predict(problem.K_test.astype(np.float32)) == expected).mean() > 0.95
    column_wise = CKSC(sparsity=4, random_state=0).fit(np.asfortranarray(problem.K_train), problem.y_train)
    assert np.array_equal(column_wise.class_shares(problem.K_test), model.class_shares(problem.K_test))


def test_fit_leaves_its_input_alone(problem: Problem) -> None:
    K, y = problem.K_train.copy(), problem.y_train.copy()
    K.flags.writeable = y.flags.writeable = False
    CKSC(sparsity=3, random_state=0).fit(K, y).predict(K)


def test_two_samples_are_enough() -> None:
    K = np.array([[1.0, 0.1], [0.1, 1.0]])
    model = CKSC(sparsity=1).fit(K, ["a", "b"])
    assert model.predict(K).tolist() == ["a", "b"]


# what is warned of


def test_a_class_smaller_than_sparsity_starts_with_all_it_has() -> None:
    problem = make_problem((60, 60, 4), seed=1)
    size = int((problem.y_train == "cedar").sum())
    assert 0 < size < 5
    words = f"^class 'cedar' has {size} samples, fewer than the 5 atoms a class starts with \\(1 such classes\\)"
    with pytest.warns(SmallClassWarning, match=words) as caught:
        model = fitted(problem, sparsity=5)
    assert caught[0].filename == __file__  # points at the caller of fit
    assert model.dictionary_.shape[1] == 5 + 5 + size
    assert model.predict(problem.K_train[problem.y_train == "cedar"]).tolist() == ["cedar"] * size
    assert fitted(problem, sparsity=5, atoms_per_class=size).dictionary_.shape[1] == 3 * size  # and no warning


def test_alternations_that_were_too_few(problem: Problem) -> None:
    with pytest.warns(ConvergenceWarning, match=r"J still changed by more than tol=0.0 after max_iter=2") as caught:
        model = fitted(problem, max_iter=2, tol=0.0)
    assert caught[0].filename == __file__
    assert model.n_iter_ == 2


# what is refused


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda K: np.where(K[3, 5] == K, np.nan, K), r"K\[\d+, \d+\] is nan; every entry must be finite"),
        (lambda K: np.where(K[3, 5] == K, np.inf, K), r"K\[\d+, \d+\] is inf; every entry must be finite"),
        (lambda K: np.triu(K), r"K is not symmetric; worst at the pair"),
        (lambda K: K[:, :-1], r"K has shape \(45, 44\); a kernel of training samples is square"),
        (
            lambda K: 1 - K,
            r"K: this looks like a distance matrix: its diagonal is zero. Turn it into a kernel",
        ),
        (
            lambda K: K - np.diag(np.eye(45)[7]),
            r"K\[7, 7\] is 0; every sample needs a positive self-similarity",
        ),
        (lambda K: K - 3 * np.diag(np.eye(45)[7]), r"K\[7, 7\] is -2; every sample needs a positive"),
        (lambda K: sparse.csr_array(K), r"X is a sparse matrix, and must be dense; pass X.toarray\(\)"),
        (lambda K: K[0], r"K has shape \(45,\); it must be a non-empty 2-D array"),
        (lambda K: K.astype(complex), r"K is of type complex128; it must hold real numbers"),
    ],
)
def test_what_is_no_kernel(problem: Problem, change: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        CKSC(sparsity=3).fit(change(problem.K_train), problem.y_train)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda K: K[:, :-1],
            r"K has 44 columns, but the model was trained on 45 samples; a test kernel must have",
        ),
        (lambda K: K[0], r"K has shape \(45,\); it must be a non-empty 2-D array"),
        (
            lambda K: np.where(K[2, 5] == K, np.nan, K),
            r"K\[2, 5\] is nan; every entry must be finite: compute it",
        ),
        (lambda K: np.where(K[2, 5] == K, -np.inf, K), r"K\[2, 5\] is -inf; every entry must be finite"),
        (lambda K: K[:0], r"K has shape \(0, 45\); it must be a non-empty 2-D array"),
    ],
)
def test_what_is_no_test_kernel(problem: Problem, model: CKSC, change: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        model.predict(change(problem.K_test))


@pytest.mark.parametrize("kernel", ["precomputed", "rbf"])
@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (["a"] * 45, r"all 45 samples have one class, 'a'; training needs at least two classes"),
        ([7] * 45, r"all 45 samples have one class, 7; training"),
        (["a"] * 20 + [1] * 25, r"labels mix int and str; use str, int or bool, all of one kind"),
        ([True] * 20 + [2] * 25, r"labels mix bool and int"),
        (np.array(["a"] * 20 + [1] * 25, dtype=object), r"labels mix int and str"),
        (np.arange(45) / 7, r"Unknown label type: continuous"),
        (np.where(np.arange(45) < 20, 1.0, np.nan), r"contains NaN"),
    ],
)
def test_labels_that_cannot_be_used(problem: Problem, kernel: str, labels: Any, words: str) -> None:
    X = problem.K_train if kernel == "precomputed" else problem.X[:45]
    with np.errstate(invalid="ignore"), pytest.raises(ValueError, match=words):
        CKSC(sparsity=2, kernel=kernel).fit(X, labels)


@pytest.mark.parametrize("kernel", ["precomputed", "dtw", "rbf"])
def test_what_cannot_be_counted(problem: Problem, kernel: str) -> None:
    for X, kind in ((5, "int"), (None, "NoneType"), (np.array(5.0), "ndarray")):
        with pytest.raises(InputError, match=f"X is of type {kind}; pass a matrix with a row, or a list with an item"):
            CKSC(sparsity=2, kernel=kernel).fit(X, problem.y_train)


@pytest.mark.parametrize("kernel", ["precomputed", "dtw", "rbf"])
def test_samples_may_come_from_a_generator(problem: Problem, kernel: str) -> None:
    X = problem.K_train if kernel == "precomputed" else problem.X[:45]
    model = CKSC(sparsity=2, kernel=kernel, random_state=0, tol=0.01)
    expected = clone(model).fit(X, problem.y_train).class_shares(X)
    assert np.array_equal(model.fit((row for row in X), problem.y_train).class_shares(X), expected)


@pytest.mark.parametrize("count", [44, 46, 0])
def test_a_wrong_number_of_labels(problem: Problem, count: int) -> None:
    with pytest.raises(InputError, match=f"45 samples but {count} labels; give one label for each sample"):
        CKSC().fit(problem.K_train, ["a", "b"] * (count // 2) + ["a"] * (count % 2))


def test_one_sample_or_none() -> None:
    with pytest.raises(InputError, match="all 1 samples have one class, 'a'; training needs at least two"):
        CKSC().fit([[1.0]], ["a"])
    with pytest.raises(InputError, match="all 0 samples have no class; training needs at least two"):
        CKSC().fit(np.zeros((0, 0)), [])


def test_labels_are_needed(problem: Problem) -> None:
    with pytest.raises(ValueError, match="y should be a 1d array"):
        CKSC().fit(problem.K_train, None)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"kernel": "linear"}, r"kernel='linear': must be one of 'precomputed', 'dtw', 'rbf'"),
        ({"sparsity": 0}, r"sparsity=0: must be a whole number of at least 1"),
        ({"alpha": -0.1}, r"alpha=-0.1: must be a number in \[0"),
        ({"atoms_per_class": 0}, r"atoms_per_class=0: must be a whole number of at least 1"),
        ({"recall": "sure"}, r"recall='sure': must be one of 'confident', 'reconstruction'"),
        ({"schedule": "both"}, r"schedule='both': must be one of 'interleaved', 'sequential'"),
        ({"selection": "best"}, r"selection='best': must be one of 'scaled', 'plain'"),
        ({"prune": 1.0}, r"prune=1.0: must be a number in \[0, 0.5\]"),
        ({"max_iter": 0}, r"max_iter=0: must be a whole number of at least 1"),
        ({"tol": -1e-9}, r"tol=-1e-09: must be a number in \[0, 1\]"),
        ({"random_state": "now"}, r"'now' cannot be used to seed"),
        ({"n_jobs": 0}, r"n_jobs=0: must be None \(one thread\), a number of threads, or -1"),
        ({"kernel": "rbf", "gamma": 0.0}, r"gamma=0.0: must be a number in \(0"),
        ({"kernel": "rbf", "gamma": "mean"}, r"gamma='mean': must be a number in \(0"),
        ({"kernel": "dtw", "mode": "any"}, r"mode='any': must be one of 'dependent', 'independent'"),
        ({"kernel": "dtw", "window": 0}, r"window=0: must be a whole number of at least 1"),
        ({"kernel": "dtw", "cost": "cubed"}, r"cost='cubed': must be one of 'squared', 'abs'"),
        ({"kernel": "dtw", "normalise": True}, r"normalise=True: must be one of None, 'z'"),
        ({"kernel": "dtw", "bandwidth": "sd"}, r"bandwidth='sd': must be one of 'mean', 'median', 'paper', 'squares'"),
        ({"kernel": "dtw", "factor": 0}, r"factor=0: must be a number in \(0"),
        ({"kernel": "dtw", "repair": "mend"}, r"repair='mend': must be one of None, 'clip', 'flip'"),
    ],
)
def test_parameters_out_of_range(problem: Problem, parameters: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        CKSC(**{"sparsity": 2, "random_state": 0} | parameters).fit(problem.K_train, problem.y_train)
