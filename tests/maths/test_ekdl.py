"""EKDL's mathematics: against its slow twin, its constraint, that each step is the best one, its descent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.linalg import orthogonal_procrustes
from sklearn.linear_model import orthogonal_mp_gram

from cksc_dist.maths.ekdl import equiangular_gram, equiangular_root, learn_ekdl, procrustes_atoms
from cksc_dist.maths.learnt import Learnt
from tests import naive_ekdl
from tests.maths.test_kgdl import make_kernel

Float = NDArray[np.float64]
Index = NDArray[np.int64]


def learn(K: Float, y: Index, seed: int = 0, **settings: Any) -> Learnt:
    defaults: dict[str, Any] = {
        "sparsity": 3,
        "coherence": 0.1,
        "label_weight": 0.1,
        "atoms_per_class": 3,
        "ridge": 0.1,
        "max_iter": 10,
        "tol": 1e-4,
    }
    return learn_ekdl(K, y, int(y.max()) + 1, np.random.default_rng(seed), **defaults | settings)


@settings(max_examples=30, deadline=None)
@given(k=st.integers(1, 30), coherence=st.floats(0.0, 0.95))
def test_the_root_is_the_root(k: int, coherence: float) -> None:
    root = equiangular_root(k, coherence)
    E = equiangular_gram(k, coherence)
    np.testing.assert_allclose(E, naive_ekdl.equiangular(k, coherence), atol=1e-15)
    np.testing.assert_allclose(root @ root, E, atol=1e-12)
    assert np.array_equal(root, root.T)
    assert np.linalg.eigvalsh(root)[0] > 0


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("coherence", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("label_weight", [0.0, 1.0])
def test_training_is_that_of_the_twin(seed: int, coherence: float, label_weight: float) -> None:
    K, y = make_kernel(seed)
    parameters = {"coherence": coherence, "label_weight": label_weight, "ridge": 0.3}
    learnt = learn(K, y, **parameters, atoms_per_class=2, max_iter=4, tol=0.0)
    rng = np.random.default_rng(0)
    start = [int(i) for c in range(3) for i in np.sort(rng.permutation(np.flatnonzero(y == c))[:2])]
    twin = naive_ekdl.train(K, np.eye(3)[:, y], start, 3, coherence, label_weight, 0.3, 4)
    np.testing.assert_allclose(learnt.history, twin.history, rtol=1e-6)
    np.testing.assert_allclose(K @ learnt.dictionary, K @ twin.U, atol=1e-5)
    np.testing.assert_allclose(learnt.codes.toarray().T, twin.G, atol=1e-5)
    np.testing.assert_allclose(learnt.model.weights, twin.W, atol=1e-4)


@pytest.mark.parametrize("coherence", [0.0, 0.05, 0.2, 0.9])
@pytest.mark.parametrize("atoms_per_class", [1, 4, 20])
def test_atoms_are_equiangular(coherence: float, atoms_per_class: int) -> None:
    K, y = make_kernel(7, n=60)
    K = 0.9 * K + 0.1 * np.eye(60)  # no eigenvalue next to zero, so that rounding stays small
    learnt = learn(K, y, coherence=coherence, atoms_per_class=atoms_per_class)
    U, k = learnt.dictionary, 3 * atoms_per_class
    assert U.shape == (60, k)
    np.testing.assert_allclose(U.T @ K @ U, naive_ekdl.equiangular(k, coherence), atol=1e-12)
    assert np.diff(learnt.codes.indptr).max() <= 3


@pytest.mark.parametrize("rank", [2, 5, 11])
def test_no_more_atoms_than_the_kernel_has_dimensions(rank: int) -> None:
    rng = np.random.default_rng(rank)
    X, y = rng.standard_normal((40, rank)), np.arange(40) % 4
    learnt = learn(X @ X.T, y, atoms_per_class=6)
    assert learnt.dictionary.shape == (40, rank)
    gram = learnt.dictionary.T @ X @ X.T @ learnt.dictionary
    np.testing.assert_allclose(gram, naive_ekdl.equiangular(rank, 0.1), atol=1e-9)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("coherence", [0.0, 0.3])
@pytest.mark.parametrize("idle", [0, 2])
def test_no_other_dictionary_that_meets_the_constraint_is_better(seed: int, coherence: float, idle: int) -> None:
    """Also where `idle` atoms have no users: they are still there, at the right angle."""
    rng = np.random.default_rng(seed)
    features, codes = rng.standard_normal((30, 8)), rng.standard_normal((30, 5))
    codes[:, :idle] = 0.0
    root = equiangular_root(5, coherence)
    D = procrustes_atoms(features, codes, root)
    np.testing.assert_allclose(D.T @ D, naive_ekdl.equiangular(5, coherence), atol=1e-12)
    best = ((features - codes @ D.T) ** 2).sum()
    for size in (1e-3, 0.1, 10.0):
        for _ in range(100):
            # near ones and any
            Z = np.linalg.qr(D @ np.linalg.inv(root) + size * rng.standard_normal((8, 5)))
            other = Z[0] * np.sign(np.diag(Z[1])) @ root
            np.testing.assert_allclose(other.T @ other, naive_ekdl.equiangular(5, coherence), atol=1e-9)
            assert ((features - codes @ other.T) ** 2).sum() >= best - 1e-9


def test_without_coherence_the_dictionary_is_orthogonal_procrustes() -> None:
    rng = np.random.default_rng(0)
    features, codes = rng.standard_normal((20, 6)), rng.standard_normal((20, 6))
    expected = orthogonal_procrustes(codes, features)[0].T  # codes R ~ features
    np.testing.assert_allclose(procrustes_atoms(features, codes, np.eye(6)), expected, atol=1e-12)


@pytest.mark.parametrize("coherence", [0.0, 0.2])
def test_codes_are_those_of_scikit_learn(coherence: float) -> None:
    K, y = make_kernel(4)
    learnt = learn(K, y, coherence=coherence)
    E = naive_ekdl.equiangular(9, coherence)
    expected = orthogonal_mp_gram(E, learnt.dictionary.T @ K, n_nonzero_coefs=3).T
    np.testing.assert_allclose(learnt.codes.toarray(), expected, atol=1e-6)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("coherence", [0.0, 0.2])
@pytest.mark.parametrize("label_weight", [0.0, 0.1, 5.0])
def test_the_objective_never_rises(seed: int, coherence: float, label_weight: float) -> None:
    K, y = make_kernel(seed, n=60)
    learnt = learn(K, y, coherence=coherence, label_weight=label_weight, atoms_per_class=6, tol=0.0)
    history = learnt.history
    assert history.shape == (2 * learnt.n_iter + 1,)
    assert learnt.n_iter == 10
    assert not learnt.converged
    assert (np.diff(history) <= 1e-9 * history[0]).all()
    assert history[-1] < 0.99 * history[0]


def test_the_labels_pull_at_the_codes() -> None:
    """With a large weight, codes in training rebuild labels better, and the dictionary is another one."""
    K, y = make_kernel(0, n=60)
    plain, pulled = (learn(K, y, label_weight=a, tol=0.0, max_iter=4) for a in (0.0, 5.0))
    assert not np.allclose(plain.dictionary, pulled.dictionary)

    def explained(learnt: Learnt) -> float:
        return float(((np.eye(3)[y] - learnt.codes.toarray() @ learnt.model.weights.T) ** 2).sum())

    assert explained(pulled) != pytest.approx(explained(plain), rel=1e-3)


def test_the_number_of_threads_does_not_matter() -> None:
    K, y = make_kernel(3, n=150)
    one, two = (learn(K, y, max_iter=3, n_jobs=n_jobs) for n_jobs in (1, 2))
    assert np.array_equal(one.dictionary, two.dictionary)
    assert np.array_equal(one.history, two.history)
