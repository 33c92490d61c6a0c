"""K-KSVD: class residuals and dictionaries against vectors written out, and both classifiers on gestures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from cksc_dist.errors import InputError
from cksc_dist.io import make_gestures
from cksc_dist.maths.kksvd import KKSVDModel, class_residuals, recall, train
from cksc_dist.maths.ksvd import start_samples
from cksc_dist.maths.learnt import Learnt
from cksc_dist.models.kksvd import KKSVD
from tests import naive_ksvd
from tests.maths.test_kgdl import make_kernel

Float = NDArray[np.float64]
Index = NDArray[np.int64]

BOTH = pytest.mark.parametrize("classifier", ["distributive", "collective"])


def make_vectors(seed: int, n: int = 36, unit: bool = True) -> tuple[Float, Index]:
    """Samples (8, n) of three classes, each around a plane of its own; of norm 1, so that K_zz is known."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    planes = np.random.default_rng(0).standard_normal((3, 8, 2))
    X = np.einsum("idp,ip->di", planes[y], rng.standard_normal((n, 2))) + 0.5 * rng.standard_normal((8, n))
    return X / np.linalg.norm(X, axis=0) if unit else X, y


def learn(K: Float, y: Index, classifier: str, seed: int = 0, **settings: Any) -> Learnt:
    defaults: dict[str, Any] = {"sparsity": 2, "per_class": 4, "max_iter": 4, "tol": 0.0}
    rng = np.random.default_rng(seed)
    return train(K, y, int(y.max()) + 1, classifier=classifier, rng=rng, **defaults | settings)


def homes(U: Float, y: Index) -> Index:
    """The class that has the largest share of each atom's weights."""
    return np.array([np.argmax([abs(u[y == q]).sum() for q in range(3)]) for u in U.T])


def residuals_of_vectors(X: Float, Z: Float, y: Index, U: Float, classifier: str, T: int = 2) -> Float:
    """||z - D_q g_q||^2 of new samples Z (d, m) with each class, and the same from kernel rows."""
    home, K = homes(U, y), X.T @ X
    out = np.zeros((Z.shape[1], 3))
    for i, z in enumerate(Z.T):
        for q in range(3):
            own = np.flatnonzero(home == q)
            if classifier == "distributive":
                g = naive_ksvd.omp(X @ U[:, own], z, T)
            else:
                g = naive_ksvd.omp(X @ U, z, T)[own]
            out[i, q] = ((z - X @ U[:, own] @ g) ** 2).sum()
            assert naive_ksvd.residual(z @ z, X.T @ z, K, U[:, own], g) == pytest.approx(
                out[i, q], abs=1e-9 * max(1.0, z @ z)
            )
    return out


@BOTH
@pytest.mark.parametrize("seed", range(3))
def test_residuals_are_those_of_vectors(classifier: str, seed: int) -> None:
    X, y = make_vectors(seed)
    Z, _ = make_vectors(100 + seed)
    learnt = learn(X.T @ X, y, classifier)
    ours = class_residuals(learnt.model, Z.T @ X @ learnt.dictionary, 3, 2, classifier)
    expected = residuals_of_vectors(X, Z, y, learnt.dictionary, classifier)
    np.testing.assert_allclose(ours, expected, atol=1e-9)
    if classifier == "collective":
        assert ours.max() > 1.0  # the atoms of one class alone may do harm


@BOTH
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_the_best_class_does_not_depend_on_self_similarity(classifier: str, scale: float) -> None:
    """It is not in a kernel row. Differences of residuals are right, and none is below zero."""
    X, y = make_vectors(5, unit=False)
    Z = scale * make_vectors(105, unit=False)[0]
    learnt = learn(X.T @ X, y, classifier)
    assert learnt.model.self_similarity.tolist() == [np.diag(X.T @ X).mean()]
    ours = class_residuals(learnt.model, Z.T @ X @ learnt.dictionary, 3, 2, classifier)
    expected = residuals_of_vectors(X, Z, y, learnt.dictionary, classifier)
    np.testing.assert_allclose(ours - ours[:, :1], expected - expected[:, :1], atol=1e-9 * max(scale**2, 1.0))
    assert np.array_equal(ours.argmin(axis=1), expected.argmin(axis=1))
    assert (ours >= 0.0).all()
    whole = learnt.model.self_similarity[0]
    assert (ours.min(axis=1) <= whole).all()
    if scale > 1.0:
        assert (ours.min(axis=1) == 0.0).any()  # more is explained than samples of training have


@pytest.mark.parametrize("seed", range(3))
def test_each_class_has_the_dictionary_of_its_own_samples(seed: int) -> None:
    X, y = make_vectors(seed)
    learnt = learn(X.T @ X, y, "distributive", seed)
    starts = start_samples(y, 3, 4, np.random.default_rng(seed))
    total = np.zeros(9)
    for q in range(3):
        rows, atoms = np.flatnonzero(y == q), np.flatnonzero(learnt.model.home == q)
        twin = naive_ksvd.ksvd(X[:, rows], np.eye(36)[np.ix_(rows, starts[y[starts] == q])], 2, 4)
        D = X @ learnt.dictionary[:, atoms]
        signs = np.sign((D * twin.D).sum(axis=0))
        np.testing.assert_allclose(D * signs, twin.D, atol=1e-6)
        codes = learnt.codes.toarray()[np.ix_(rows, atoms)]
        np.testing.assert_allclose(codes * signs, twin.G.T, atol=1e-6)
        total += twin.history
    np.testing.assert_allclose(learnt.history, total, rtol=1e-9)
    assert not learnt.dictionary[y[:, None] != learnt.model.home].any()
    assert not learnt.codes.toarray()[y[:, None] != learnt.model.home].any()


@pytest.mark.parametrize("seed", range(3))
def test_one_dictionary_is_that_of_all_samples(seed: int) -> None:
    X, y = make_vectors(seed)
    learnt = learn(X.T @ X, y, "collective", seed)
    start = np.eye(36)[:, start_samples(y, 3, 4, np.random.default_rng(seed))]
    twin = naive_ksvd.ksvd(X, start, 2, 4)
    D = X @ learnt.dictionary
    signs = np.sign((D * twin.D).sum(axis=0))
    np.testing.assert_allclose(D * signs, twin.D, atol=1e-6)
    np.testing.assert_allclose(learnt.codes.toarray() * signs, twin.G.T, atol=1e-6)
    np.testing.assert_allclose(learnt.history, twin.history, rtol=1e-9)
    assert np.array_equal(learnt.model.home, homes(learnt.dictionary, y))


@BOTH
def test_j_is_the_trace_never_rises_and_atoms_have_norm_1(classifier: str) -> None:
    """Dictionaries that settle early stand still in the sum, until the last one has."""
    K, y = make_kernel(4, n=60)
    learnt = learn(K, y, classifier, max_iter=30, tol=1e-3)
    assert learnt.converged
    assert len(learnt.history) == 2 * learnt.n_iter + 1
    assert (np.diff(learnt.history) <= 1e-9 * 60).all()
    assert learnt.history[-1] < 0.9 * learnt.history[0]
    expected = naive_ksvd.objective(K, learnt.dictionary, learnt.codes.toarray().T)
    assert learnt.history[-1] == pytest.approx(expected, rel=1e-9)
    gram = learnt.dictionary.T @ K @ learnt.dictionary
    np.testing.assert_allclose(np.diag(gram), 1.0, rtol=1e-9)
    np.testing.assert_allclose(learnt.model.gram, gram, atol=1e-9)
    assert np.diff(learnt.codes.indptr).max() == 2
    assert not learn(K, y, classifier, max_iter=2, tol=1e-6).converged


def test_it_has_converged_only_if_every_dictionary_has() -> None:
    """One class is rebuilt exactly at once; the other takes its time, and stops by itself."""
    K = np.zeros((33, 33))
    K[:3, :3] = np.eye(3)
    K[3:, 3:] = make_kernel(4, n=30)[0]
    y = np.repeat([0, 1], [3, 30])
    assert not learn(K, y, "distributive", max_iter=3, tol=1e-6, per_class=6).converged
    learnt = learn(K, y, "distributive", max_iter=30, tol=1e-2, per_class=6)
    assert learnt.converged
    assert 2 < learnt.n_iter < 30


@BOTH
def test_a_class_with_fewer_samples_than_atoms_takes_all_it_has(classifier: str) -> None:
    K, _ = make_kernel(0, n=20)
    y = np.array([0] * 9 + [1] + [2] * 10)
    learnt = learn(K, y, classifier, per_class=3)
    assert learnt.dictionary.shape == (20, 7)
    if classifier == "distributive":
        assert learnt.model.home.tolist() == [0, 0, 0, 1, 2, 2, 2]
        assert np.flatnonzero(learnt.dictionary[:, 3]).tolist() == [9]


@BOTH
def test_codes_of_recall_are_what_the_residual_was_computed_with(classifier: str) -> None:
    X, y = make_vectors(1)
    Z, _ = make_vectors(101)
    learnt = learn(X.T @ X, y, classifier)
    linear = Z.T @ X @ learnt.dictionary
    codes = recall(learnt.model, linear, 3, 2, classifier).toarray()
    residuals = class_residuals(learnt.model, linear, 3, 2, classifier)
    best = residuals.argmin(axis=1)
    assert len(set(best.tolist())) == 3
    for z, code, q, least in zip(Z.T, codes, best, residuals.min(axis=1), strict=True):
        if classifier == "distributive":
            # on the best class alone
            assert not code[learnt.model.home != q].any()
            assert ((z - X @ learnt.dictionary @ code) ** 2).sum() == pytest.approx(least, abs=1e-9)
        else:
            np.testing.assert_allclose(code, naive_ksvd.omp(X @ learnt.dictionary, z, 2), atol=1e-9)


def test_a_class_without_atoms_explains_nothing() -> None:
    model = KKSVDModel(np.eye(2), np.array([0, 2]), np.array([1.0]))
    residuals = class_residuals(model, np.array([[0.6, 0.0], [0.0, -0.8]]), 3, 1, "collective")
    np.testing.assert_allclose(residuals, [[0.64, 1.0, 1.0], [1.0, 1.0, 0.36]])


@BOTH
def test_threads_do_not_change_a_bit(classifier: str) -> None:
    K, y = make_kernel(3, n=150)
    one, two = (learn(K, y, classifier, per_class=8, n_jobs=n_jobs) for n_jobs in (1, 2))
    assert np.array_equal(one.dictionary, two.dictionary)
    assert np.array_equal(one.history, two.history)
    assert np.array_equal(one.codes.toarray(), two.codes.toarray())
    linear = K @ one.dictionary
    first, second = (class_residuals(one.model, linear, 3, 2, classifier, n_jobs) for n_jobs in (1, 2))
    assert np.array_equal(first, second)


@BOTH
def test_the_estimator_trains_with_its_parameters(classifier: Any) -> None:
    K, y = make_kernel(0, n=40)
    K = 0.8 * K + 0.2 * np.eye(40)  # no eigenvalue next to zero, so that nothing is clipped
    model = KKSVD(3, classifier, 5, max_iter=9, tol=0.05, random_state=5).fit(K, y)
    seed = check_random_state(5).randint(2**31 - 1)
    learnt = learn(K, y, classifier, seed, sparsity=3, per_class=5, max_iter=9, tol=0.05)
    assert np.array_equal(model.dictionary_.toarray(), learnt.dictionary)
    assert np.array_equal(model.codes_.toarray(), learnt.codes.toarray())
    assert np.array_equal(model.objective_history_, learnt.history)
    assert model.n_iter_ == learnt.n_iter


@BOTH
def test_the_label_is_the_class_of_least_residual(classifier: Any) -> None:
    X, y = make_vectors(2)
    Z, truth = make_vectors(102)
    names = np.array(["up", "down", "aside"])[y]
    model = KKSVD(2, classifier, 4, tol=0.01, random_state=0).fit(X.T @ X, names)
    numbers = np.searchsorted(model.classes_, names)
    expected = residuals_of_vectors(X, Z, numbers, model.dictionary_.toarray(), classifier)
    predicted = model.predict(Z.T @ X)
    assert predicted.tolist() == model.classes_[expected.argmin(axis=1)].tolist()
    assert (predicted == np.array(["up", "down", "aside"])[truth]).mean() > 0.6
    # shares are in proportion to inverse residuals
    shares = model.predict_proba(Z.T @ X)
    np.testing.assert_allclose(shares * expected * (1.0 / expected).sum(axis=1, keepdims=True), 1.0, rtol=1e-6)


@BOTH
def test_gestures_are_recognised(classifier: Any) -> None:
    data = make_gestures(n_per_class=12, random_state=1)
    labels = np.asarray(data.labels)
    model = KKSVD(3, classifier, kernel="dtw", tol=0.01, random_state=0).fit(data.series[::2], labels[::2])
    assert model.score(data.series[1::2], labels[1::2]) >= 0.85
    assert model.objective_history_[-1] < model.objective_history_[0]


def test_each_class_has_as_many_atoms_as_a_code_has_entries_unless_told() -> None:
    K, y = make_kernel(0, n=30)
    assert KKSVD(3, tol=0.1, random_state=0).fit(K, y).dictionary_.shape == (30, 9)
    assert KKSVD(3, tol=0.1, atoms_per_class=5, random_state=0).fit(K, y).dictionary_.shape == (30, 15)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"classifier": "both"}, "classifier='both': must be one of 'distributive', 'collective'"),
        ({"sparsity": 0}, "sparsity=0: must be a whole number of at least 1"),
        ({"atoms_per_class": 1.5}, "atoms_per_class=1.5: must be a whole number"),
        ({"max_iter": 0}, "max_iter=0"),
        ({"tol": -1.0}, "tol=-1.0"),
    ],
)
def test_wrong_parameters_are_named(changes: dict[str, Any], words: str) -> None:
    K, y = make_kernel(0)
    with pytest.raises(InputError, match=words):
        KKSVD(**changes).fit(K, y)
