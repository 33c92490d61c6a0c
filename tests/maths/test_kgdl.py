"""KGDL's mathematics: against its slow twin, the descent of its objective, its constraint."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.linear_model import Lasso, orthogonal_mp_gram

from cksc_dist.maths.kgdl import Lines, atom_pass, learn_kgdl, line_codes, line_errors
from cksc_dist.maths.learnt import Learnt
from tests import naive_kgdl

Float = NDArray[np.float64]
Index = NDArray[np.int64]


def make_kernel(seed: int, n: int = 24, n_classes: int = 3) -> tuple[Float, Index]:
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    X = rng.standard_normal((n, 3)) + 1.5 * y[:, None]
    squares = ((X[:, None] - X) ** 2).sum(axis=2)
    return np.exp(-squares / 4.0), y


def learn(K: Float, y: Index, seed: int = 0, **settings: Any) -> Learnt:
    defaults: dict[str, Any] = {
        "sparsity": 3,
        "coding": "lasso",
        "shrinkage": 0.1,
        "atoms_per_class": 3,
        "ridge": 0.1,
        "max_iter": 10,
        "tol": 1e-4,
    }
    return learn_kgdl(K, y, int(y.max()) + 1, np.random.default_rng(seed), **defaults | settings)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("coding", ["lasso", "omp"])
def test_objective_is_that_of_projectors(seed: int, coding: Any) -> None:
    K, y = make_kernel(seed)
    learnt = learn(K, y, coding=coding)
    shrinkage = 0.1 if coding == "lasso" else 0.0
    expected = naive_kgdl.objective(K, learnt.dictionary, learnt.codes.toarray(), shrinkage)
    assert learnt.history[-1] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("coding", ["lasso", "omp"])
def test_atoms_move_to_the_top_eigenvectors(seed: int, coding: Any) -> None:
    """A whole pass, atom after atom, against eigenvectors of K^(1/2) T_r K^(1/2)."""
    K, _ = make_kernel(seed)
    samples = np.random.default_rng(seed).permutation(len(K))[:6]
    lines = Lines.of(K, np.eye(len(K))[samples])
    codes = line_codes(lines.gram**2, lines.images.T**2, coding, 3, 0.05)
    assert (codes < 0).any() or coding == "lasso"
    ours = atom_pass(K, codes, lines, steps=100).coefficients.T
    twin = naive_kgdl.move_atoms(K, lines.coefficients.T, codes)
    # the same lines: cosines of 1, whatever the sign
    np.testing.assert_allclose(np.abs(np.diag(ours.T @ K @ twin)), 1.0, atol=1e-7)
    assert naive_kgdl.objective(K, ours, codes, 0.0) == pytest.approx(naive_kgdl.objective(K, twin, codes, 0.0))


@pytest.mark.parametrize("seed", range(4))
def test_training_is_that_of_the_twin(seed: int) -> None:
    K, y = make_kernel(seed)
    learnt = learn(K, y, coding="omp", atoms_per_class=2, max_iter=3, tol=0.0, steps=100)
    rng = np.random.default_rng(0)
    start = np.concatenate([np.sort(rng.permutation(np.flatnonzero(y == c))[:2]) for c in range(3)])
    twin = naive_kgdl.train(K, np.eye(len(K))[:, start], 3, 3)
    np.testing.assert_allclose(learnt.history, twin.history, rtol=1e-6)
    np.testing.assert_allclose(learnt.codes.toarray(), twin.codes, atol=1e-4)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize(
    "settings",
    [{}, {"shrinkage": 0.01}, {"shrinkage": 0.3}, {"coding": "omp"}, {"coding": "omp", "sparsity": 1}],
)
def test_the_objective_never_rises(seed: int, steps: int, settings: dict[str, Any]) -> None:
    K, y = make_kernel(seed, n=60)
    learnt = learn(K, y, **settings, steps=steps, atoms_per_class=6, tol=0.0)
    history = learnt.history
    assert history.shape == (2 * learnt.n_iter + 1,)
    assert learnt.n_iter == 10
    assert not learnt.converged
    assert (np.diff(history) <= 1e-9 * history[0]).all()
    assert history[-1] < 0.99 * history[0]


@pytest.mark.parametrize("coding", ["lasso", "omp"])
def test_atoms_have_norm_1_and_codes_are_sparse(coding: Any) -> None:
    K, y = make_kernel(5, n=60)
    learnt = learn(K, y, coding=coding, atoms_per_class=7)
    U = learnt.dictionary
    assert U.shape == (60, 21)
    gram = U.T @ K @ U
    np.testing.assert_allclose(np.diag(gram), 1.0, rtol=1e-9)
    np.testing.assert_allclose(learnt.model.gram, gram**2, atol=1e-9)
    if coding == "omp":
        assert np.diff(learnt.codes.indptr).max() == 3


def test_codes_are_those_of_scikit_learn() -> None:
    """On projectors written out as long vectors, codes are ordinary OMP and lasso codes."""
    rng = np.random.default_rng(0)
    atoms, samples = rng.standard_normal((2, 8, 4))
    atoms /= np.linalg.norm(atoms, axis=1, keepdims=True)
    samples /= np.linalg.norm(samples, axis=1, keepdims=True)
    long_atoms, long_samples = (np.array([np.outer(x, x).ravel() for x in part]) for part in (atoms, samples))
    gram, linear = (atoms @ atoms.T) ** 2, (samples @ atoms.T) ** 2
    omp = orthogonal_mp_gram(long_atoms @ long_atoms.T, long_atoms @ long_samples.T, n_nonzero_coefs=3).T
    np.testing.assert_allclose(line_codes(gram, linear, "omp", 3, 0.1), omp, atol=1e-9)
    for code, sample in zip(line_codes(gram, linear, "lasso", 3, 0.2), long_samples, strict=True):
        lasso = Lasso(alpha=0.1 / 16, fit_intercept=False, tol=1e-12, max_iter=100_000).fit(long_atoms.T, sample)
        np.testing.assert_allclose(code, lasso.coef_, atol=1e-5)


def test_an_omp_code_that_is_no_better_is_not_taken() -> None:
    """Greed is misled: the first pick is the sum of the two that would do."""
    x = np.array([1.0, 1.0]) / np.sqrt(2)
    atoms = np.array([[1.0, 0.1], [0.0, 1.0], [1.0, 0.0]])
    atoms /= np.linalg.norm(atoms, axis=1, keepdims=True)
    gram, linear = (atoms @ atoms.T) ** 2, ((x @ atoms.T) ** 2)[None]
    greedy = line_codes(gram, linear, "omp", 2, 0.1)
    best = np.array([[0.0, 0.0, 0.0]])
    for pair in ([0, 1], [0, 2], [1, 2]):
        trial = np.zeros((1, 3))
        trial[0, pair] = np.linalg.solve(gram[np.ix_(pair, pair)], linear[0, pair])
        none = np.zeros(1)
        if line_errors(none, linear, gram, trial, 0.0) < line_errors(none, linear, gram, best, 0.0):
            best = trial
    kept = line_codes(gram, linear, "omp", 2, 0.1, start=best)
    np.testing.assert_allclose(kept, best, atol=1e-12)
    worse = 0.5 * greedy
    assert np.array_equal(line_codes(gram, linear, "omp", 2, 0.1, start=worse), greedy)


def test_scaling_samples_changes_no_line() -> None:
    K, y = make_kernel(1)
    scale = np.random.default_rng(0).uniform(0.5, 2.0, len(K))
    plain, scaled = learn(K, y, coding="omp"), learn(K * np.outer(scale, scale), y, coding="omp")
    np.testing.assert_allclose(scaled.history, plain.history, rtol=1e-6)
    gram = scaled.dictionary.T @ (K * np.outer(scale, scale)) @ scaled.dictionary
    np.testing.assert_allclose(np.diag(gram), 1.0, rtol=1e-9)


def test_an_atom_that_nobody_uses_becomes_a_sample_that_is_rebuilt_badly() -> None:
    """Three tight groups; all atoms start in pairs, so half of them are of no use to codes of one atom."""
    centres = np.repeat(10.0 * np.arange(8), 4)
    K = np.exp(-((centres[:, None] - centres) ** 2))  # all samples of a group are the same, and so are its atoms
    y = (centres > 35).astype(np.int64)
    learnt = learn(K, y, coding="omp", sparsity=1, atoms_per_class=4, max_iter=8, tol=0.0)
    assert learnt.history[0] > 4  # some groups had no atom
    assert learnt.history[-1] < 1e-3  # each has one now


def test_samples_that_repeat_each_other() -> None:
    K, y = make_kernel(2, n=12)
    twice = np.tile(K, (2, 2))
    for coding in ("lasso", "omp"):
        learnt = learn(twice, np.tile(y, 2), coding=coding, atoms_per_class=8)
        assert np.isfinite(learnt.dictionary).all()
        assert (np.diff(learnt.history) <= 1e-9 * learnt.history[0]).all()


def test_the_number_of_threads_does_not_matter() -> None:
    K, y = make_kernel(3, n=150)
    for coding in ("lasso", "omp"):
        one, two = (learn(K, y, coding=coding, max_iter=3, n_jobs=n_jobs) for n_jobs in (1, 2))
        assert np.array_equal(one.dictionary, two.dictionary)
        assert np.array_equal(one.history, two.history)
