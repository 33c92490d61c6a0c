"""JKSRC's mathematics: against scikit-learn, its slow twin, and its optimality conditions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.linear_model import Lasso, orthogonal_mp_gram

from cksc_dist.maths.jksrc import class_residuals, convex_codes, greedy_codes
from tests import naive_jksrc

Float = NDArray[np.float64]


def make_kernels(
    seed: int,
    n: int = 20,
    kernels: int = 3,
    new: int = 6,
    *,
    dims: int = 4,
    width: float = 2.0,
    ridge: float = 0.0,
) -> tuple[Float, Float]:
    """Gaussian kernels of different vectors of the same samples: (M, n, n), and rows of new ones (new, M, n)."""
    rng = np.random.default_rng(seed)
    K, rows = np.empty((kernels, n, n)), np.empty((new, kernels, n))
    for m in range(kernels):
        X = rng.standard_normal((n + new, dims))
        whole = np.exp(-((X[:, None] - X) ** 2).sum(axis=2) / width) + ridge * np.eye(n + new)
        K[m], rows[:, m] = (whole[:n, :n] + whole[:n, :n].T) / 2, whole[n:, :n]
    return K, rows


def scaled(K: Float, rows: Float, seed: int) -> tuple[Float, Float, Float]:
    """The same samples, each of another length in every kernel; and these lengths, (M, n)."""
    lengths = np.random.default_rng(seed).uniform(0.3, 3.0, K.shape[:2])
    return K * lengths[:, :, None] * lengths[:, None, :], rows * lengths, lengths


# the greedy form


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("sparsity", [1, 4, 20])
def test_one_kernel_makes_it_omp(seed: int, sparsity: int) -> None:
    K, rows = make_kernels(seed, kernels=1)
    expected = orthogonal_mp_gram(K[0], rows[:, 0].T, n_nonzero_coefs=sparsity).T
    codes = greedy_codes(K, rows, sparsity).toarray()
    np.testing.assert_allclose(codes, expected, atol=1e-8)
    assert (np.count_nonzero(codes, axis=1) == sparsity).all()


def test_the_length_of_a_sample_does_not_decide_whether_it_is_picked() -> None:
    """k_j^2 / K_jj: a sample twice as long gets half the weight, and nothing else changes."""
    K, rows = make_kernels(5, kernels=1)
    longer, longer_rows, lengths = scaled(K, rows, 0)
    codes = greedy_codes(longer, longer_rows, 4).toarray()
    np.testing.assert_allclose(codes * lengths, greedy_codes(K, rows, 4).toarray(), atol=1e-9)


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    kernels=st.integers(1, 4),
    sparsity=st.integers(1, 8),
    uneven=st.booleans(),
)
def test_greedy_codes_are_those_of_the_twin(seed: int, kernels: int, sparsity: int, uneven: bool) -> None:
    K, rows = make_kernels(seed, n=8, kernels=kernels, new=3)
    if uneven:
        K, rows, _ = scaled(K, rows, seed)
    codes = greedy_codes(K, rows, sparsity).toarray().reshape(3, kernels, 8)
    for k_z, X in zip(rows, codes, strict=True):
        support, expected = naive_jksrc.greedy(K, k_z, sparsity)
        np.testing.assert_allclose(X, expected, atol=1e-7 * np.abs(expected).max())
        # the same rows in every kernel
        assert sorted(support) == np.flatnonzero(X.any(axis=0)).tolist()
        assert ((X != 0) == X.any(axis=0)).all()


def test_a_row_is_picked_for_what_all_kernels_gain_by_it() -> None:
    """Each kernel alone would begin with another row."""
    K = np.array([np.eye(3), np.eye(3)])
    rows = np.array([[[0.8, 0.0, 0.7], [0.0, 0.8, 0.7]]])
    assert greedy_codes(K, rows, 1).toarray().reshape(2, 3).tolist() == [[0.0, 0.0, 0.7], [0.0, 0.0, 0.7]]
    assert np.flatnonzero(greedy_codes(K[:1], rows[:, :1], 1).toarray()).tolist() == [0]
    assert np.flatnonzero(greedy_codes(K[1:], rows[:, 1:], 1).toarray()).tolist() == [1]


def test_a_kernel_goes_without_a_sample_that_is_the_copy_of_another() -> None:
    """Samples 0 and 1 are the same in kernel 0, and differ in kernel 1."""
    K, rows = make_kernels(1, n=6, kernels=2, new=8)
    for whole in (K[0], rows[:, 0]):
        whole[..., 1] = whole[..., 0]
    K[0, 1] = K[0, 0]
    codes = greedy_codes(K, rows, 6).toarray().reshape(8, 2, 6)
    assert np.isfinite(codes).all()
    assert codes[:, 1].all()  # kernel 1 takes all of them
    assert (np.count_nonzero(codes[:, 0, :2], axis=1) == 1).all()  # kernel 0 one of the two
    for k_z, X in zip(rows, codes, strict=True):
        fit = naive_jksrc.residual(K, k_z, naive_jksrc.greedy(K, k_z, 6)[1])
        np.testing.assert_allclose(naive_jksrc.residual(K, k_z, X), fit, atol=1e-9)


def test_a_copy_in_every_kernel_does_not_use_up_the_support() -> None:
    K, rows = make_kernels(2, n=5, kernels=2, new=4)
    twice = np.tile(K, (1, 2, 2))
    codes = greedy_codes(twice, np.tile(rows, 2), 5).toarray().reshape(4, 2, 10)
    assert (np.count_nonzero(codes, axis=2) == 5).all()
    together = codes[:, :, :5] + codes[:, :, 5:]
    np.testing.assert_allclose(together, greedy_codes(K, rows, 5).toarray().reshape(4, 2, 5), atol=1e-8)


def test_a_sample_that_is_next_to_a_copy_does_not_use_up_the_support() -> None:
    """It is picked, because what is left of z points to it a little, but it cannot be told from the first one."""
    samples = np.array([[1.0, 0.0, 0.0], [1.0, 1e-6, 0.0], [0.0, 0.0, 1.0]])
    z = np.array([1.0, -1.0, 1e-8])
    codes = greedy_codes(np.array([samples @ samples.T]), np.array([[samples @ z]]), 2)
    np.testing.assert_allclose(codes.toarray(), [[1.0, 0.0, 1e-8]], rtol=1e-9)


def test_the_search_ends_where_nothing_is_left() -> None:
    K, _ = make_kernels(3, n=6, kernels=2)
    rows = np.array([2.0 * K[:, 4], np.zeros((2, 6))])
    codes = greedy_codes(K, rows, 6).toarray().reshape(2, 2, 6)
    np.testing.assert_allclose(codes[0], 2.0 * np.eye(6)[[4, 4]], atol=1e-12)
    assert not codes[1].any()
    assert np.count_nonzero(codes[0]) == 2


# the convex form


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("shrinkage", [0.01, 0.1, 0.5])
def test_one_kernel_makes_it_the_lasso(seed: int, shrinkage: float) -> None:
    rng = np.random.default_rng(seed)
    samples, new = rng.standard_normal((30, 12)), rng.standard_normal((30, 5))
    K, rows = samples.T @ samples, (new.T @ samples)[:, None]
    codes = convex_codes(K[None], rows, shrinkage).toarray()
    for z, code in enumerate(codes):
        penalty = shrinkage * naive_jksrc.largest_penalty(rows[z])
        # scikit-learn has 1 / (2 x 30) before the square
        lasso = Lasso(alpha=penalty / 60, fit_intercept=False, tol=1e-12, max_iter=100_000).fit(samples, new[:, z])
        assert_close_to_minimum(K[None], rows[z], code[None], lasso.coef_[None], penalty)
    assert 0 < np.count_nonzero(codes) < codes.size or shrinkage == 0.01


def assert_close_to_minimum(K: Float, rows: Float, X: Float, best: Float, penalty: float) -> None:
    """Conditions that hold to 1e-4 of lambda leave so much room in a strongly convex problem, and no more."""
    error = 1e-4 * np.sqrt(K.shape[1]) * penalty / 2
    least = min(np.linalg.eigvalsh(K_m)[0] for K_m in K)
    assert np.linalg.norm(X - best) <= error / least
    least_value, value = (naive_jksrc.convex_objective(K, rows, part, penalty) for part in (best, X))
    assert least_value - 1e-9 <= value <= least_value + error**2 / least


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("shrinkage", [0.05, 0.3])
@pytest.mark.parametrize("uneven", [False, True])
def test_convex_codes_are_those_of_fista(seed: int, shrinkage: float, uneven: bool) -> None:
    K, rows = make_kernels(seed, n=12, new=2, ridge=0.3)
    if uneven:
        K, rows, _ = scaled(K, rows, seed)
    codes = convex_codes(K, rows, shrinkage).toarray().reshape(2, 3, 12)
    for k_z, X in zip(rows, codes, strict=True):
        penalty = shrinkage * naive_jksrc.largest_penalty(k_z)
        best = naive_jksrc.fista(K, k_z, penalty)
        assert naive_jksrc.violation(K, k_z, best, penalty) < 1e-9
        assert_close_to_minimum(K, k_z, X, best, penalty)
        assert X.any(axis=0).sum() < (8 if shrinkage == 0.3 else 13)
        assert X[:, X.any(axis=0)].all()  # the same rows in every kernel


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    kernels=st.integers(1, 4),
    shrinkage=st.floats(0.02, 1.0),
    width=st.sampled_from([0.5, 2.0, 8.0]),
    uneven=st.booleans(),
)
def test_optimality_conditions(seed: int, kernels: int, shrinkage: float, width: float, uneven: bool) -> None:
    K, rows = make_kernels(seed, n=25, kernels=kernels, new=2, width=width)
    if uneven:
        K, rows, _ = scaled(K, rows, seed)
    codes = convex_codes(K, rows, shrinkage).toarray().reshape(2, kernels, 25)
    for k_z, X in zip(rows, codes, strict=True):
        penalty = shrinkage * naive_jksrc.largest_penalty(k_z)
        assert naive_jksrc.violation(K, k_z, X, penalty) <= 1.001e-4


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_optimality_conditions_where_the_kernel_is_next_to_singular(dims: int) -> None:
    """There rows go on moving by little for long: a sweep that changes little is not the end."""
    K, rows = make_kernels(1, n=30, kernels=2, new=3, dims=dims, width=8.0)
    assert np.linalg.cond(K[0]) > 1e6
    codes = convex_codes(K, rows, 0.01).toarray().reshape(3, 2, 30)
    for k_z, X in zip(rows, codes, strict=True):
        assert naive_jksrc.violation(K, k_z, X, 0.01 * naive_jksrc.largest_penalty(k_z)) <= 1.001e-4


def test_the_largest_penalty_leaves_nothing() -> None:
    K, rows = make_kernels(4)
    assert convex_codes(K, rows, 1.0).nnz == 0
    below = convex_codes(K, rows, 0.99).toarray().reshape(6, 3, 20)
    for k_z, X in zip(rows, below, strict=True):
        assert np.flatnonzero(X.any(axis=0)).tolist() == [naive_jksrc.row_norms(k_z).argmax()]
    assert convex_codes(K, np.zeros((2, 3, 20)), 0.5).nnz == 0


# decisions


@pytest.mark.parametrize("form", ["greedy", "convex"])
@pytest.mark.parametrize("uneven", [False, True])
def test_class_residuals_are_the_sums_written_out(form: str, uneven: bool) -> None:
    K, rows = make_kernels(6)
    if uneven:
        K, rows, _ = scaled(K, rows, 6)
    y = np.arange(20) % 4
    codes = greedy_codes(K, rows, 6) if form == "greedy" else convex_codes(K, rows, 0.05)
    own = sum(float(np.diag(K_m).mean()) for K_m in K)
    samples = zip(rows, codes.toarray().reshape(6, 3, 20), strict=True)
    expected = np.array([[naive_jksrc.class_residual(K, k_z, X, y, q, own) for q in range(4)] for k_z, X in samples])
    found = class_residuals(K, rows, codes, y, 4)
    assert (expected > 0).all()
    np.testing.assert_allclose(found, expected, rtol=1e-10)
    assert len(np.unique(expected.argmin(axis=1))) > 1


def test_no_residual_is_negative_where_a_sample_is_longer_than_those_of_training() -> None:
    """K_zz is not known; as much as the best class explains it has to be."""
    K, rows = make_kernels(7)
    y = np.arange(20) % 4
    codes = greedy_codes(K, 5.0 * rows, 3)
    found = class_residuals(K, 5.0 * rows, codes, y, 4)
    assert (found.min(axis=1) == 0).all()
    dense = codes.toarray().reshape(6, 3, 20)
    for z in range(6):
        expected = np.array([naive_jksrc.class_residual(K, 5.0 * rows[z], dense[z], y, q, 0.0) for q in range(4)])
        np.testing.assert_allclose(found[z], expected - expected.min(), atol=1e-9)


@pytest.mark.parametrize("form", ["greedy", "convex"])
def test_neither_threads_nor_neighbours_change_a_bit(form: str) -> None:
    K, rows = make_kernels(8, n=40, new=50)  # several blocks

    def bits(rows: Float, n_jobs: int) -> bytes:
        codes = greedy_codes(K, rows, 5, n_jobs) if form == "greedy" else convex_codes(K, rows, 0.1, n_jobs)
        residuals = class_residuals(K, rows, codes, np.arange(40) % 3, 3)
        return codes.toarray().tobytes() + residuals.tobytes()

    assert bits(rows, 1) == bits(rows, 2)
    assert bits(rows[33:34], 1) == bits(rows[30:34], 1)[3 * 120 * 8 : 4 * 120 * 8] + bits(rows[30:34], 1)[-24:]
