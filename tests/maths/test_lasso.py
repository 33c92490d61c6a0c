"""Lasso on a Gram matrix: against scikit-learn, its optimality conditions, its descent."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.linear_model import Lasso, Ridge

from cksc_dist.maths.label_regression import label_regression, one_hot
from cksc_dist.maths.lasso import lasso_codes

Float = NDArray[np.float64]


def value(H: Float, b: Float, shrinkage: float, x: Float) -> float:
    return float(x @ H @ x / 2 - b @ x + shrinkage * np.abs(x).sum())


@pytest.mark.parametrize("seed", range(4))
def test_lasso_is_that_of_scikit_learn(seed: int) -> None:
    rng = np.random.default_rng(seed)
    atoms, samples = rng.standard_normal((12, 9)), rng.standard_normal((5, 12))
    codes = lasso_codes(atoms.T @ atoms, samples @ atoms, 0.8, tol=1e-12)
    for sample, code in zip(samples, codes, strict=True):
        expected = Lasso(alpha=0.8 / 12, fit_intercept=False, tol=1e-12, max_iter=100_000).fit(atoms, sample).coef_
        np.testing.assert_allclose(code, expected, atol=1e-8)
    assert 0 < np.count_nonzero(codes) < codes.size


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    k=st.integers(1, 15),
    rank=st.integers(1, 20),
    shrinkage=st.floats(1e-3, 3.0),
)
def test_optimality_conditions(seed: int, k: int, rank: int, shrinkage: float) -> None:
    """|gradient| <= s everywhere, and gradient = -s sign(x) where x is not zero; H may be singular."""
    rng = np.random.default_rng(seed)
    atoms, sample = rng.standard_normal((rank, k)), rng.standard_normal(rank)
    H, b = atoms.T @ atoms, atoms.T @ sample
    x = lasso_codes(H, b[None], shrinkage, tol=1e-10, max_sweeps=100_000)[0]
    gradient = H @ x - b
    slack = 1e-5 * max(np.abs(b).max(), 1.0)
    assert (np.abs(gradient) <= shrinkage + slack).all()
    used = x != 0
    np.testing.assert_allclose(gradient[used], -shrinkage * np.sign(x[used]), atol=slack)


@pytest.mark.parametrize("sweeps", [1, 2, 5])
def test_a_start_is_never_made_worse(sweeps: int) -> None:
    rng = np.random.default_rng(sweeps)
    atoms = rng.standard_normal((6, 10))
    H, linear, start = atoms.T @ atoms, rng.standard_normal((8, 6)) @ atoms, rng.standard_normal((8, 10))
    codes = lasso_codes(H, linear, 0.5, start, max_sweeps=sweeps)
    for b, old, new in zip(linear, start, codes, strict=True):
        assert value(H, b, 0.5, new) < value(H, b, 0.5, old)
    assert not np.array_equal(codes, lasso_codes(H, linear, 0.5, start, max_sweeps=50))


def test_threads_do_not_change_a_bit() -> None:
    rng = np.random.default_rng(0)
    atoms = rng.standard_normal((20, 30))
    H, linear = atoms.T @ atoms, rng.standard_normal((200, 20)) @ atoms
    assert np.array_equal(lasso_codes(H, linear, 0.5, n_jobs=2), lasso_codes(H, linear, 0.5))


def test_no_sample_no_code_and_an_empty_atom_is_left_out() -> None:
    H = np.diag([1.0, 0.0])
    assert lasso_codes(H, np.array([[0.0, 0.0], [2.0, 1.0]]), 0.5).tolist() == [[0.0, 0.0], [1.5, 0.0]]


@pytest.mark.parametrize("ridge", [0.01, 0.1, 10.0])
def test_label_regression_is_that_of_scikit_learn(ridge: float) -> None:
    rng = np.random.default_rng(1)
    codes, y = rng.standard_normal((20, 30)), rng.integers(0, 3, 20)
    expected = Ridge(alpha=ridge, fit_intercept=False).fit(codes, np.eye(3)[y]).coef_
    np.testing.assert_allclose(label_regression(codes, one_hot(y, 3), ridge), expected, atol=1e-9)
