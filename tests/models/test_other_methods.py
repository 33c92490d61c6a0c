"""What the six methods beside CKSC have in common: scikit-learn's protocol, what predictions mean, files, refusals."""

from __future__ import annotations

import unittest
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks

from cksc_dist import (
    CKSC,
    EKDL,
    JKSRC,
    KGDL,
    KKSVD,
    LCNNKSC,
    LPKSVD,
    DistanceKernel,
    SeriesSet,
    load_model,
    pairwise_dtw,
)
from cksc_dist.errors import InputError, ModelFileError
from cksc_dist.io import make_gestures
from cksc_dist.models.kernel_classifier import KernelClassifier
from cksc_dist.spec import DistanceSpec, KernelSpec
from tests.models.test_cksc_estimator import Problem, make_problem

Float = NDArray[np.float64]

METHODS: list[type[KernelClassifier]] = [KKSVD, JKSRC, LCNNKSC, LPKSVD, KGDL, EKDL]

# a few alternations are enough for what is tested here
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

every_method = pytest.mark.parametrize("method", METHODS)

VARIANTS: dict[str, tuple[type[KernelClassifier], dict[str, Any]]] = {
    "KKSVD": (KKSVD, {}),
    "KKSVD collective": (KKSVD, {"classifier": "collective"}),
    "JKSRC": (JKSRC, {}),
    "JKSRC convex": (JKSRC, {"form": "convex"}),
    "LCNNKSC": (LCNNKSC, {}),
    "LCNNKSC argmax": (LCNNKSC, {"decision": "argmax"}),
    "LPKSVD": (LPKSVD, {}),
    "KGDL": (KGDL, {}),
    "KGDL omp": (KGDL, {"coding": "omp"}),
    "EKDL": (EKDL, {}),
}

every_variant = pytest.mark.parametrize("variant", VARIANTS)


def make(method: type[KernelClassifier], **parameters: Any) -> Any:
    """An estimator that is quick."""
    few: dict[str, Any] = {"sparsity": 3, "random_state": 0}
    if method is not JKSRC:
        few |= {"max_iter": 3, "atoms_per_class": 3}
    return method(**few | parameters)


@pytest.fixture(scope="module")
def problem() -> Problem:
    return make_problem((24, 20, 16))


@cache
def fitted(variant: str) -> Any:
    method, parameters = VARIANTS[variant]
    problem = make_problem((24, 20, 16))
    return make(method, **parameters).fit(problem.K_train, problem.y_train)


@pytest.fixture
def model(variant: str) -> Any:
    """A variant, fitted on `problem`; not to be changed."""
    return fitted(variant)


# scikit-learn's protocol


@parametrize_with_checks(  # type: ignore[untyped-decorator]  # scikit-learn has no types
    [
        JKSRC(sparsity=2, kernel="rbf"),
        LPKSVD(sparsity=2, max_iter=2, outer=1, kernel="rbf"),
        *(method(sparsity=2, max_iter=2, kernel="rbf") for method in (KKSVD, LCNNKSC, KGDL, EKDL)),
    ]
)
def test_scikit_learn_check(estimator: Any, check: Any) -> None:
    try:
        check(estimator)
    except unittest.SkipTest as skip:
        # one needs an environment variable that has to be set before SciPy is imported, one needs pandas
        if "SCIPY_ARRAY_API" not in str(skip) and "pandas is not installed" not in str(skip):
            pytest.fail(f"a check is skipped: {skip}")
        pytest.skip(str(skip))


@every_method
def test_defaults_are_those_of_the_specs(method: Any) -> None:
    parameters = method().get_params()
    for name, value in vars(method.spec_type()).items():
        assert parameters.pop(name) == value
    for spec in (DistanceSpec(), KernelSpec(repair="clip")):
        for name in parameters.keys() & vars(spec).keys():
            assert parameters.pop(name) == getattr(spec, name)
    if method is JKSRC:
        assert parameters.pop("groups") is None
    assert parameters == {"kernel": "precomputed", "random_state": None, "n_jobs": None, "gamma": None}


@every_method
def test_clone_and_set_params_carry_every_parameter(method: Any) -> None:
    """Whatever it is: they are looked at in `fit` alone."""
    parameters = {name: object() for name in method().get_params()}
    assert method(**parameters).get_params() == parameters
    assert method().set_params(**parameters).get_params() == parameters
    known = {name: str(i) for i, name in enumerate(parameters)}
    assert clone(method(**known)).get_params() == known


@every_variant
def test_a_clone_learns_the_same_and_is_not_fitted_itself(problem: Problem, model: Any) -> None:
    copy = clone(model)
    for name in ("predict", "class_shares", "predict_proba", "decision_function", "transform", "explain_many"):
        with pytest.raises(NotFittedError):
            getattr(copy, name)(problem.K_test)
    copy.fit(problem.K_train, problem.y_train)
    assert np.array_equal(copy.class_shares(problem.K_test), model.class_shares(problem.K_test))


@every_method
def test_only_a_precomputed_kernel_is_pairwise(method: Any) -> None:
    assert get_tags(method()).input_tags.pairwise
    assert not get_tags(method(kernel="dtw")).input_tags.pairwise
    assert not get_tags(method(kernel="rbf")).input_tags.pairwise


@every_method
def test_cross_validation_and_grid_search_cut_rows_and_columns(problem: Problem, method: Any) -> None:
    K, y, folds = problem.K_train, problem.y_train, StratifiedKFold(2)
    by_hand = [
        make(method).fit(K[np.ix_(train, train)], y[train]).score(K[np.ix_(test, train)], y[test])
        for train, test in folds.split(K, y)
    ]
    assert cross_val_score(make(method), K, y, cv=folds, error_score="raise").tolist() == by_hand
    search = GridSearchCV(make(method), {"sparsity": [1, 3]}, cv=folds, error_score="raise").fit(K, y)
    assert search.cv_results_["mean_test_score"][1] == np.mean(by_hand)
    assert search.best_estimator_.n_train_ == len(y)
    assert search.score(problem.K_test, problem.y_test) > 0.7


@every_method
def test_a_pipeline_on_distances(problem: Problem, method: Any) -> None:
    half = len(problem.y_train)
    D, rows = problem.D[:half, :half], problem.D[half:, :half]
    pipeline = Pipeline([("kernel", DistanceKernel()), ("method", make(method))])
    assert get_tags(pipeline).input_tags.pairwise
    grid = {"kernel__factor": [1e-6, 0.5]}
    search = GridSearchCV(pipeline, grid, cv=2, error_score="raise").fit(D, problem.y_train)
    assert search.best_params_["kernel__factor"] == 0.5  # 1e-6 leaves the identity: nothing to learn from
    expected = make(method).fit(problem.K_train, problem.y_train)
    assert np.array_equal(search.best_estimator_.predict_proba(rows), expected.class_shares(problem.K_test))


@every_method
def test_a_fit_that_fails_leaves_the_earlier_one_whole(problem: Problem, method: Any) -> None:
    model = make(method)
    with pytest.raises(InputError):
        model.fit(problem.K_train * np.nan, problem.y_train)
    with pytest.raises(NotFittedError):
        model.predict(problem.K_test)
    model.fit(problem.K_train, problem.y_train)
    shares, codes = model.class_shares(problem.K_test), model.transform(problem.K_test)
    learnt = {name: value for name, value in vars(model).items() if name not in model.get_params()}
    faults: list[tuple[dict[str, Any], Any, Any]] = [
        ({}, problem.K_train[:10, :10], ["x"] * 10),
        ({}, problem.D[:10, :10], [0, 1] * 5),
        ({"sparsity": 0}, problem.K_train, problem.y_train),
        ({"kernel": "rbf"}, problem.X[:30] * np.nan, problem.y_train),
        ({"kernel": "dtw"}, [np.zeros((3, 1))] * 4, [0, 1, 0, 1]),
    ]
    before = model.get_params()
    for parameters, X, y in faults:
        with pytest.raises(ValueError):  # noqa: PT011  # of many words
            model.set_params(**parameters).fit(X, y)
        model.set_params(**before)
        assert {name: value for name, value in vars(model).items() if name not in before}.keys() == learnt.keys()
        assert all(getattr(model, name) is value for name, value in learnt.items())
    assert np.array_equal(model.class_shares(problem.K_test), shares)
    assert np.array_equal(model.transform(problem.K_test), codes)


@every_variant
def test_parameters_set_after_fit_wait_for_the_next_fit(problem: Problem, variant: str) -> None:
    method, parameters = VARIANTS[variant]
    model = make(method, **parameters).fit(problem.K_train, problem.y_train)
    shares, codes = model.class_shares(problem.K_test), model.transform(problem.K_test)
    other: dict[str, Any] = {
        "classifier": "distributive" if parameters else "collective",
        "form": "greedy" if parameters else "convex",
        "decision": "one" if parameters else "argmax",
        "coding": "lasso" if parameters else "omp",
        "shrinkage": 0.5,
        "sparsity": 1,
        "label_weight": 7.0,
        "coherence": 0.5,
        "kernel": "rbf",
    }
    model.set_params(**{name: value for name, value in other.items() if name in model.get_params()})
    assert np.array_equal(model.class_shares(problem.K_test), shares)
    assert np.array_equal(model.transform(problem.K_test), codes)
    model.set_params(kernel="precomputed").fit(problem.K_train, problem.y_train)
    assert not np.array_equal(model.class_shares(problem.K_test), shares)
    assert not np.array_equal(model.transform(problem.K_test), codes)


# what a prediction means


@every_variant
def test_shares_labels_and_decisions(problem: Problem, model: Any) -> None:
    rows = problem.K_test
    shares = model.class_shares(rows)
    assert shares.shape == (len(rows), 3)
    assert (shares >= 0).all()
    assert (shares <= 1).all()
    np.testing.assert_allclose(shares.sum(axis=1), 1.0, rtol=1e-12)
    assert len(np.unique(shares.round(6), axis=0)) > 3  # not simply 0 and 1 for all
    labels = model.predict(rows)
    assert np.array_equal(labels, model.classes_[shares.argmax(axis=1)])
    assert np.array_equal(model.predict_proba(rows), shares)
    decision = model.decision_function(rows)
    assert decision.shape == shares.shape
    assert np.array_equal(model.classes_[decision.argmax(axis=1)], labels)
    named, confidence, used = model.decisions(rows)
    assert np.array_equal(named, labels)
    assert np.array_equal(confidence, shares.max(axis=1))
    assert np.array_equal(used, np.count_nonzero(model.transform(rows), axis=1))
    assert model.score(rows, problem.y_test) > 0.7


@every_method
@pytest.mark.parametrize("sizes", [(20, 30), (30, 20)])
def test_decision_function_of_two_classes(method: Any, sizes: tuple[int, int]) -> None:
    problem = make_problem(sizes)
    model = make(method).fit(problem.K_train, problem.y_train)
    rows = np.vstack([problem.K_test, np.zeros(len(problem.K_train))])  # the last one is far away
    decision = model.decision_function(rows)
    assert decision.shape == (len(rows),)
    assert np.array_equal(model.classes_[(decision > 0).astype(int)], model.predict(rows))
    shares = model.class_shares(rows)
    assert shares.shape == (len(rows), 2)
    np.testing.assert_allclose(decision, shares[:, 1] - shares[:, 0], atol=1e-8)
    assert set(model.predict(problem.K_test)) == {"ash", "birch"}


@every_variant
def test_what_is_learnt(problem: Problem, model: Any) -> None:
    U, G, n = model.dictionary_, model.codes_, len(problem.y_train)
    k = n if isinstance(model, JKSRC) else 9
    assert isinstance(U, sparse.csc_array)
    assert isinstance(G, sparse.csr_array)
    assert U.shape == G.shape == (n, k)
    assert model.transform(problem.K_test).shape == (len(problem.K_test), k)
    assert model.classes_.tolist() == ["ash", "birch", "cedar"]
    assert model.n_train_ == model.n_features_in_ == n
    weights = abs(U).T @ (problem.y_train[:, None] == model.classes_)
    np.testing.assert_allclose(model.interpretability_, weights.max(axis=1) / weights.sum(axis=1), rtol=1e-12)
    assert ((model.interpretability_ > 0) & (model.interpretability_ <= 1)).all()
    looked_at = np.arange(n) if isinstance(model, LPKSVD) else np.unique(U.tocoo().row)
    assert np.array_equal(model.support_, looked_at)
    sparsity = k if model.get_params().get("coding") == "lasso" or model.get_params().get("form") == "convex" else 3
    assert np.diff(G.indptr).max() <= sparsity
    assert (np.count_nonzero(model.transform(problem.K_test), axis=1) <= sparsity).all()


@every_variant
def test_j_falls(problem: Problem, model: Any) -> None:
    if isinstance(model, JKSRC):
        assert (model.n_iter_, len(model.objective_history_)) == (0, 0)  # nothing is learnt in steps
        return
    history = model.objective_history_
    # LP-KSVD looks up neighbours anew between passes, which changes J
    passes = np.split(history, model.passes_[1:]) if isinstance(model, LPKSVD) else [history]
    assert 1 <= model.n_iter_ <= 3 * len(passes)
    for part in passes:
        assert (np.diff(part) <= 1e-10 * abs(part[0])).all()
    assert history[-1] < history[0]


@every_variant
def test_columns_without_weight_are_not_looked_at(problem: Problem, model: Any) -> None:
    unused = np.setdiff1d(np.arange(model.n_train_), model.support_)
    assert len(unused) or not isinstance(model, LCNNKSC)  # whose atoms are sparse
    changed = problem.K_test.copy()
    changed[:, unused] = 7.0
    assert np.array_equal(model.class_shares(changed), model.class_shares(problem.K_test))
    changed[:, model.support_] *= 0.5
    assert not np.array_equal(model.transform(changed), model.transform(problem.K_test))


@every_variant
@pytest.mark.parametrize("sizes", [(12, 30, 18), (30, 18, 12)])
def test_a_sample_far_from_all_gets_the_largest_class(variant: str, sizes: tuple[int, ...]) -> None:
    method, parameters = VARIANTS[variant]
    problem = make_problem(sizes)
    largest = ["ash", "birch", "cedar"][int(np.argmax(sizes))]
    assert (problem.y_train == largest).sum() == max((problem.y_train == c).sum() for c in set(problem.y_train))
    model = make(method, **parameters).fit(problem.K_train, problem.y_train)
    rows = np.vstack([problem.K_test[:1], np.zeros(len(problem.K_train))])
    assert model.class_shares(rows)[1].tolist() == [1 / 3] * 3
    assert model.predict(rows)[1] == largest
    assert model.classes_[model.decision_function(rows)[1].argmax()] == largest
    assert not model.transform(rows)[1].any()
    near, far = model.explain_many(rows)
    assert (near.far_away, far.far_away) == (False, True)
    assert (far.label, far.confidence, far.similarity) == (largest, 1 / 3, 0.0)
    assert (far.samples, far.atoms, far.n_samples, far.n_atoms) == ((), (), 0, 0)
    assert "a guess, the largest class" in str(far)


@every_variant
def test_explanations_are_made_of_what_is_public(problem: Problem, model: Any) -> None:
    rows, codes = problem.K_test, model.transform(problem.K_test)
    shares = model.class_shares(rows)
    explanations = model.explain_many(rows, top=2)
    for i, explanation in enumerate(explanations):
        assert explanation.label == model.predict(rows)[i]
        assert list(explanation.shares.values()) == shares[i].tolist()
        assert explanation.confidence == shares[i].max()
        assert [abs(part.weight) for part in explanation.atoms] == np.sort(np.abs(codes[i]))[::-1][
            : len(explanation.atoms)
        ].tolist()
        assert len(explanation.atoms) == min(2, explanation.n_atoms)
        for atom in explanation.atoms:
            assert atom.weight == codes[i, atom.atom]
            assert atom.interpretability == model.interpretability_[atom.atom]
        for sample in explanation.samples:
            assert sample.label == problem.y_train[sample.row]
        # a reconstruction points where the sample does
        assert 0 < explanation.similarity <= 1 + 1e-9
    one = model.explain(rows[3], top=2)
    assert one.label == explanations[3].label
    assert one.similarity == pytest.approx(explanations[3].similarity, abs=1e-12)


@pytest.mark.parametrize("variant", ["KKSVD", "KKSVD collective", "LCNNKSC", "EKDL"])
def test_explanations_add_up_to_the_reconstruction(problem: Problem, model: Any) -> None:
    """Phi(X) U g: its weights on training samples, and its cosine with the sample."""
    rows, codes, U = problem.K_test, model.transform(problem.K_test), model.dictionary_.toarray()
    for k_z, code, explanation in zip(rows, codes, model.explain_many(rows, top=100), strict=True):
        weight = U @ code
        found = np.zeros(len(weight))
        for part in explanation.samples:
            found[part.row] = part.share
        np.testing.assert_allclose(found, weight / np.abs(weight).sum(), atol=1e-12)
        cosine = k_z @ weight / np.sqrt(weight @ problem.K_train @ weight)
        assert explanation.similarity == pytest.approx(cosine, abs=1e-9)


def test_lines_have_no_sign_in_explanations(problem: Problem) -> None:
    """An atom may point away from the samples that it rebuilds; its line does not."""
    away = 0
    for seed in range(4):
        model = make(KGDL, random_state=seed, max_iter=6).fit(problem.K_train, problem.y_train)
        rows, codes, U = problem.K_test, model.transform(problem.K_test), model.dictionary_.toarray()
        products = rows @ U
        away += int(((products < 0) & (codes > 0)).sum())
        lines = (U.T @ problem.K_train @ U) ** 2
        for i, explanation in enumerate(model.explain_many(rows, top=100)):
            cosine = codes[i] @ products[i] ** 2 / np.sqrt(codes[i] @ lines @ codes[i])
            assert explanation.similarity == pytest.approx(cosine, abs=1e-9)
            weight = U @ (codes[i] * np.where(products[i] < 0, -1.0, 1.0))
            found = np.zeros(len(weight))
            for part in explanation.samples:
                found[part.row] = part.share
            np.testing.assert_allclose(found, weight / np.abs(weight).sum(), atol=1e-12)
    assert away  # some did


# the same bits


def bits(model: Any, rows: Any) -> list[bytes]:
    U, G = model.dictionary_, model.codes_
    parts = [U.data, U.indices, G.data, G.indices, model.objective_history_, model.class_shares(rows)]
    return [np.asarray(part).tobytes() for part in [*parts, model.transform(rows), model.interpretability_]]


@every_variant
def test_same_bits_for_any_number_of_threads_and_every_time(variant: str) -> None:
    problem = make_problem((54, 46, 40), seed=2)  # several blocks
    method, parameters = VARIANTS[variant]
    first = bits(make(method, **parameters, n_jobs=1).fit(problem.K_train, problem.y_train), problem.K_test)
    for n_jobs in (1, 2):
        again = make(method, **parameters, n_jobs=n_jobs).fit(problem.K_train, problem.y_train)
        assert bits(again, problem.K_test) == first
    other = make(method, **parameters, random_state=1).fit(problem.K_train, problem.y_train)
    assert (bits(other, problem.K_test) == first) == (method is JKSRC)  # which draws nothing


@pytest.mark.parametrize("variant", [*VARIANTS, "CKSC", "CKSC clip", "CKSC flip"])
def test_a_decision_does_not_depend_on_what_else_is_decided(
    gestures: tuple[SeriesSet, SeriesSet], variant: str
) -> None:
    """With a BLAS, the bits of a row would follow the number of rows, and its place among them."""
    train, test = gestures
    method, parameters = VARIANTS.get(variant, (CKSC, {"repair": variant.partition(" ")[2] or None}))
    model = make(method, kernel="dtw", bandwidth=40.0, **parameters).fit(train, train.labels)
    shares, codes = model.class_shares(test), model.transform(test)
    explained = model.explain_many(test)
    for rows in ([0], [20], [4, 7], [*range(3, 20)], [*range(20, -1, -1)]):
        some = [test.series[i] for i in rows]
        assert model.class_shares(some).tobytes() == shares[rows].tobytes()
        assert model.transform(some).tobytes() == codes[rows].tobytes()
        assert model.explain_many(some) == [explained[i] for i in rows]


# files


@every_method
@pytest.mark.parametrize("kernel", ["precomputed", "rbf", "dtw"])
def test_a_model_comes_back_with_the_same_bits(
    problem: Problem, gestures: tuple[SeriesSet, SeriesSet], tmp_path: Path, method: Any, kernel: str
) -> None:
    train, test = gestures
    data: dict[str, tuple[Any, Any, Any]] = {
        # indefinite: the repair has to be saved as well
        "precomputed": (*indefinite(gestures), train.labels == "gesture0"),
        "rbf": (problem.X[:30], problem.X[30:], problem.y_train),
        "dtw": (train, test, train.labels),
    }
    X, new, y = data[kernel]
    model = make(method, kernel=kernel, n_jobs=np.int64(2)).fit(X, y)
    model.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert type(loaded) is method
    assert loaded.get_params() == model.get_params()
    assert bits(loaded, new) == bits(model, new)
    assert np.array_equal(loaded.predict(new), model.predict(new))
    assert loaded.explain_many(new) == model.explain_many(new)
    assert loaded.classes_.dtype == model.classes_.dtype
    for name in ("n_iter_", "n_train_", "n_features_in_"):
        assert getattr(loaded, name) == getattr(model, name)


@pytest.mark.parametrize("variant", ["KKSVD collective", "JKSRC convex", "LCNNKSC argmax", "KGDL omp"])
def test_the_settings_of_the_fit_come_back(problem: Problem, tmp_path: Path, model: Any) -> None:
    """Those that decide at recall; and a model is not taken for another."""
    model.save(tmp_path / "model")
    assert bits(type(model).load(tmp_path / "model"), problem.K_test) == bits(model, problem.K_test)
    with pytest.raises(ModelFileError, match=f"holds a model of class {type(model).__name__}, not CKSC"):
        CKSC.load(tmp_path / "model")


# where the kernel comes from


@pytest.fixture(scope="module")
def gestures() -> tuple[SeriesSet, SeriesSet]:
    """Training and test part."""
    data = make_gestures(14, 3, dims=1, length=(8, 14), random_state=3)
    return data[::2], data[1::2]


def indefinite(gestures: tuple[SeriesSet, SeriesSet]) -> tuple[Float, Float]:
    """The kernel of DTW distances as it is."""
    train, test = gestures
    kernel = DistanceKernel(factor=2.0)
    return kernel.fit_transform(pairwise_dtw(train)), kernel.transform(pairwise_dtw(test, train))


@every_variant
def test_raw_series_give_what_the_steps_by_hand_give(gestures: tuple[SeriesSet, SeriesSet], variant: str) -> None:
    method, parameters = VARIANTS[variant]
    train, test = gestures
    kernel = DistanceKernel(factor=2.0, repair="clip")
    K_train, K_test = kernel.fit_transform(pairwise_dtw(train)), kernel.transform(pairwise_dtw(test, train))
    by_hand = make(method, **parameters).fit(K_train, train.labels)
    raw = make(method, **parameters, kernel="dtw", factor=2.0).fit(train, train.labels)
    assert np.array_equal(raw.predict(test), by_hand.predict(K_test))
    np.testing.assert_allclose(raw.class_shares(test), by_hand.class_shares(K_test), atol=1e-9)
    np.testing.assert_allclose(raw.transform(test), by_hand.transform(K_test), atol=1e-9)
    assert len(set(raw.predict(test))) > 1
    # and so does the kernel that is not repaired yet
    K_train, K_test = indefinite(gestures)
    assert np.linalg.eigvalsh(K_train)[0] < -1e-3
    repaired = make(method, **parameters).fit(K_train, train.labels)
    np.testing.assert_allclose(repaired.class_shares(K_test), raw.class_shares(test), atol=1e-6)


@every_method
def test_vectors_give_what_the_kernel_gives(problem: Problem, method: Any) -> None:
    raw = make(method, kernel="rbf", gamma=0.3).fit(problem.X[:30], problem.y_train)
    K = np.exp(-0.3 * cdist(problem.X, problem.X[:30], "sqeuclidean"))
    by_hand = make(method).fit(K[:30], problem.y_train)
    np.testing.assert_allclose(raw.class_shares(problem.X[30:]), by_hand.class_shares(K[30:]), atol=1e-6)
    # without gamma: what `DistanceKernel` does
    raw = make(method, kernel="rbf").fit(problem.X[:30], problem.y_train)
    kernel = DistanceKernel()
    by_hand = make(method).fit(kernel.fit_transform(problem.D[:30, :30]), problem.y_train)
    expected = by_hand.class_shares(kernel.transform(problem.D[30:, :30]))
    np.testing.assert_allclose(raw.class_shares(problem.X[30:]), expected, atol=1e-6)


@every_method
def test_fit_leaves_its_input_alone(gestures: tuple[SeriesSet, SeriesSet], method: Any) -> None:
    K, _ = indefinite(gestures)
    y = gestures[0].labels.copy()
    K.flags.writeable = y.flags.writeable = False
    before = K.copy()
    make(method).fit(K, y).predict(K)
    assert np.array_equal(K, before)


# labels


@every_method
@pytest.mark.parametrize(
    "names",
    [
        np.array([0, 1, 2]),
        np.array([-3, 7, 40], dtype=np.int8),
        np.array(["x", "yy", "zzz"], dtype=object),
        np.array([False, True, True]),
    ],
    ids=["int", "int8", "object", "bool"],
)
def test_labels_come_back_as_they_are(problem: Problem, method: Any, names: NDArray[Any]) -> None:
    y = names[np.unique(problem.y_train, return_inverse=True)[1]]
    model = make(method).fit(problem.K_train, y)
    predicted = model.predict(problem.K_train)
    assert set(predicted.tolist()) == set(names.tolist())
    assert (predicted == y).mean() > 0.7
    if names.dtype != object:
        assert predicted.dtype == names.dtype
    assert model.explain(problem.K_train[0]).label == predicted[0]


@every_method
def test_two_samples_are_enough(method: Any) -> None:
    K = np.array([[1.0, 0.1], [0.1, 1.0]])
    assert make(method).fit(K, ["a", "b"]).predict(K).tolist() == ["a", "b"]


@every_method
def test_a_class_smaller_than_the_number_of_atoms_takes_all_it_has(problem: Problem, method: Any) -> None:
    y = np.where(np.arange(30) < 2, "few", "many")
    model = make(method, sparsity=4).fit(problem.K_train, y)
    assert np.isfinite(model.class_shares(problem.K_test)).all()
    if method is not JKSRC:
        assert model.dictionary_.shape[1] == 2 + 3


# what is warned of, what is refused


@every_method
def test_alternations_that_were_too_few(problem: Problem, method: Any) -> None:
    if method is JKSRC:
        assert "max_iter" not in method().get_params()  # nothing is learnt in steps
        return
    few = make(method, max_iter=1, tol=0.0)
    with pytest.warns(ConvergenceWarning, match=r"J still changed by more than tol=0.0 after max_iter=1") as caught:
        few.fit(problem.K_train, problem.y_train)
    assert caught[0].filename == __file__  # points at the caller of fit


@every_method
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda K: 1 - K, r"K: this looks like a distance matrix: its diagonal is zero. Turn it into a kernel"),
        (lambda K: K[:, :-1], r"K has shape \(30, 29\); a kernel of training samples is square"),
        (lambda K: np.where(K[3, 5] == K, np.nan, K), r"K\[\d+, \d+\] is nan; every entry must be finite"),
        (lambda K: np.triu(K), r"K is not symmetric; worst at the pair"),
        (lambda K: K - np.diag(np.eye(30)[7]), r"K\[7, 7\] is 0; every sample needs a positive self-similarity"),
        (lambda K: sparse.csr_array(K), r"X is a sparse matrix, and must be dense; pass X.toarray\(\)"),
        (lambda K: K[:20, :20], r"20 samples but 30 labels; give one label for each sample"),
    ],
)
def test_what_is_no_kernel(problem: Problem, method: Any, change: Any, words: str) -> None:
    with pytest.raises(InputError, match=f"^{words}"):
        make(method).fit(change(problem.K_train), problem.y_train)


@every_variant
def test_what_is_no_test_kernel(problem: Problem, model: Any) -> None:
    with pytest.raises(InputError, match=r"^K has 29 columns, but the model was trained on 30 samples; a test kernel"):
        model.predict(problem.K_test[:, :-1])
    with pytest.raises(InputError, match=r"^K\[2, 5\] is nan; every entry must be finite: compute it"):
        model.predict(np.where(problem.K_test[2, 5] == problem.K_test, np.nan, problem.K_test))
    with pytest.raises(InputError, match=r"^explain takes one sample, but z has shape \(30, 30\)"):
        model.explain(problem.K_test)


@every_method
@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (["a"] * 30, r"all 30 samples have one class, 'a'; training needs at least two classes"),
        ([7] * 30, r"all 30 samples have one class, 7; training"),
        (["a"] * 20 + [1] * 10, r"labels mix int and str; use str, int or bool, all of one kind"),
        (["a", "b"] * 10, r"30 samples but 20 labels; give one label for each sample"),
    ],
)
def test_labels_that_cannot_be_used(problem: Problem, method: Any, labels: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        make(method).fit(problem.K_train, labels)


@pytest.mark.parametrize(
    ("method", "parameters", "words"),
    [
        *((method, {"kernel": "linear"}, r"kernel='linear': must be one of 'precomputed'") for method in METHODS),
        *((method, {"sparsity": 0}, r"sparsity=0: must be a whole number of at least 1") for method in METHODS),
        *((method, {"repair": "mend"}, r"repair='mend': must be one of None, 'clip', 'flip'") for method in METHODS),
        *((method, {"n_jobs": 0}, r"n_jobs=0: must be None \(one thread\), a number of threads") for method in METHODS),
        *((method, {"kernel": "rbf", "gamma": 0.0}, r"gamma=0.0: must be a number in \(0") for method in METHODS),
        *((method, {"kernel": "dtw", "window": 0}, r"window=0: must be a whole number") for method in METHODS),
        *(
            (method, parameters, words)
            for method in METHODS
            if method is not JKSRC
            for parameters, words in (
                ({"max_iter": 0}, r"max_iter=0: must be a whole number of at least 1"),
                ({"atoms_per_class": 0}, r"atoms_per_class=0: must be a whole number of at least 1"),
                ({"tol": -1.0}, r"tol=-1.0: must be a number in \[0, 1\]"),
            )
        ),
        (KKSVD, {"classifier": "both"}, r"classifier='both': must be one of 'distributive', 'collective'"),
        (LCNNKSC, {"decision": "two"}, r"decision='two': must be one of 'one', 'argmax'"),
        (LCNNKSC, {"label_weight": -1}, r"label_weight=-1: must be a number in \[0"),
        (LCNNKSC, {"locality": -1}, r"locality=-1: must be a number in \[0"),
        (LPKSVD, {"neighbours": 0}, r"neighbours=0: must be a whole number of at least 1"),
        (LPKSVD, {"outer": 0}, r"outer=0: must be a whole number of at least 1"),
        (LPKSVD, {"locality": -1}, r"locality=-1: must be a number in \[0"),
        (KGDL, {"coding": "lars"}, r"coding='lars': must be one of 'lasso', 'omp'"),
        (KGDL, {"shrinkage": 0}, r"shrinkage=0: must be a number in \(0, 1\]"),
        (KGDL, {"ridge": 0}, r"ridge=0: must be a number in \(0"),
        (EKDL, {"coherence": 1.0}, r"coherence=1.0: must be a number in \[0, 0.95\]"),
        (EKDL, {"label_weight": -1}, r"label_weight=-1: must be a number in \[0"),
    ],
)
def test_parameters_out_of_range(problem: Problem, method: Any, parameters: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        make(method, **parameters).fit(problem.K_train, problem.y_train)
