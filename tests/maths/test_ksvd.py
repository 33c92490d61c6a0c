"""K-SVD on a Gram matrix: against its slow twin on vectors, the descent of J, atoms that nobody uses."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from cksc_dist.maths.ksvd import Dictionary, ksvd, start_samples
from cksc_dist.maths.sparse import SparseRows
from tests import naive_ksvd
from tests.maths.test_kgdl import make_kernel

Float = NDArray[np.float64]


def make_samples(seed: int, d: int = 8, n: int = 30) -> Float:
    """Samples (d, n) around a few directions, so that there is something to learn."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((d, 5)) @ rng.standard_normal((5, n)) + 0.3 * rng.standard_normal((d, n))


def some_atoms(seed: int, n: int, k: int) -> Float:
    """Different samples to start from."""
    return np.eye(n)[:, np.sort(np.random.default_rng(seed).permutation(n)[:k])]


def codes_of(learnt: Dictionary) -> Float:
    """G (k, n)."""
    return np.asarray(learnt.codes.csr(learnt.U.shape[1]).toarray().T)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("k", "T"), [(3, 1), (6, 2), (10, 3), (20, 5)])
def test_on_a_linear_kernel_it_is_k_svd_with_the_svd_of_residuals(seed: int, k: int, T: int) -> None:
    X = make_samples(seed, d=8)
    start = some_atoms(seed, 30, k)
    learnt = ksvd(X.T @ X, start, T, max_iter=4, tol=0.0)
    twin = naive_ksvd.ksvd(X, start, T, 4)
    np.testing.assert_allclose(learnt.history, twin.history, rtol=1e-7, atol=1e-9 * (X**2).sum())
    D = X @ learnt.U
    signs = np.sign((D * twin.D).sum(axis=0))
    np.testing.assert_allclose(D * signs, twin.D, atol=1e-5)
    np.testing.assert_allclose(codes_of(learnt) * signs[:, None], twin.G, atol=1e-4)
    # the coefficients too: atoms that nobody uses are samples, all others what is left over of their users
    np.testing.assert_allclose(learnt.U * signs, twin.U, atol=1e-4)


@pytest.mark.parametrize("T", [2, 4])
def test_j_is_the_trace_at_every_stop(T: int) -> None:
    """One that is stopped earlier has the same history up to there, so J is checked along the way."""
    K, _ = make_kernel(0, n=40)
    start = some_atoms(0, 40, 12)
    whole = ksvd(K, start, T, max_iter=6, tol=0.0)
    assert whole.history.shape == (13,)
    assert whole.n_iter == 6
    for alternations in range(1, 7):
        learnt = ksvd(K, start, T, max_iter=alternations, tol=0.0)
        assert np.array_equal(learnt.history, whole.history[: 2 * alternations + 1])
        expected = naive_ksvd.objective(K, learnt.U, codes_of(learnt))
        assert learnt.history[-1] == pytest.approx(expected, rel=1e-9)
        np.testing.assert_allclose(np.diag(learnt.U.T @ K @ learnt.U), 1.0, rtol=1e-9)
        assert learnt.codes.counts.max() <= T


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    n=st.integers(4, 40),
    share=st.floats(0.1, 1.0),
    T=st.integers(1, 6),
    width=st.floats(0.0, 3.0),
    repeat=st.booleans(),
)
def test_j_never_rises(seed: int, n: int, share: float, T: int, width: float, repeat: bool) -> None:
    """At any half step; also on wide kernels, where all samples are nearly one, and where samples repeat."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3))
    if repeat:
        X[n // 2 :] = X[: n - n // 2]
    K = np.exp(-((X[:, None] - X) ** 2).sum(axis=2) / 10.0**width)
    learnt = ksvd(K, some_atoms(seed, n, max(1, int(share * n))), T, max_iter=6, tol=0.0)
    assert (np.diff(learnt.history) <= 1e-9 * n).all()
    assert learnt.history[0] <= n
    assert naive_ksvd.objective(K, learnt.U, codes_of(learnt)) == pytest.approx(learnt.history[-1], abs=1e-7 * n)


def test_there_is_something_to_learn() -> None:
    K, _ = make_kernel(1, n=60)
    learnt = ksvd(K, some_atoms(1, 60, 12), 2, max_iter=20, tol=1e-3)
    assert learnt.converged
    assert 2 < learnt.n_iter < 20
    assert learnt.history[-1] < 0.7 * learnt.history[0]
    before, after = learnt.history[-4], learnt.history[-2]
    assert abs(before - after) <= 1e-3 * before
    # with fewer alternations it says that it has not settled
    assert not ksvd(K, some_atoms(1, 60, 12), 2, max_iter=2, tol=1e-3).converged


def test_an_exact_dictionary_has_converged() -> None:
    """J is rounding, and does not have to settle relatively to that."""
    learnt = ksvd(np.eye(5), np.eye(5), 1, max_iter=10, tol=1e-4)
    assert learnt.history[-1] == 0.0
    assert learnt.converged
    X = make_samples(0, d=3)
    assert ksvd(X.T @ X, some_atoms(0, 30, 6), 3, max_iter=10, tol=1e-4).converged


def test_with_one_atom_it_is_the_first_principal_component() -> None:
    X = make_samples(2)
    learnt = ksvd(X.T @ X, some_atoms(2, 30, 1), 1, max_iter=1, tol=0.0)
    left, sizes, _ = np.linalg.svd(X)
    assert learnt.history[-1] == pytest.approx((sizes[1:] ** 2).sum())
    assert abs(left[:, 0] @ X @ learnt.U[:, 0]) == pytest.approx(1.0)


# greed is misled by the first sample, which is nearest to the last but no part of the pair that makes it up
MISLEADING = np.array([[0.7, 1.0, 0.0, 1.0], [0.7, 0.0, 1.0, 1.0], [0.14, 0.0, 0.0, 0.0]])


def exact_codes() -> SparseRows:
    """Codes of the four samples on the first three: each is one of them, and the last the sum of two."""
    return SparseRows(
        np.array([[0, -1], [1, -1], [2, -1], [1, 2]]),
        np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [1.0, 1.0]]),
        np.array([1, 1, 1, 2]),
    )


@pytest.mark.parametrize("length", [1.0, 3.0])
def test_a_code_that_pursuit_makes_worse_is_kept(length: float) -> None:
    """Also if atoms come with another length: codes to start from are codes on the atoms as they are given."""
    K = MISLEADING.T @ MISLEADING
    start = length * np.eye(4)[:, :3]
    codes = exact_codes()._replace(values=exact_codes().values / length)
    greedy, kept = ksvd(K, start, 2, 1, 0.0), ksvd(K, start, 2, 1, 0.0, codes)
    assert greedy.history[0] > 0.005
    np.testing.assert_allclose(kept.history, 0.0, atol=1e-12)
    np.testing.assert_allclose(MISLEADING @ kept.U @ codes_of(kept), MISLEADING, atol=1e-7)


def test_codes_that_pursuit_makes_better_are_not_kept() -> None:
    K = MISLEADING.T @ MISLEADING
    halved = exact_codes()._replace(values=0.5 * exact_codes().values)
    assert ksvd(K, np.eye(4)[:, :3], 2, 1, 0.0, halved).history[0] < 0.1


def test_what_it_starts_from_is_left_alone() -> None:
    K = MISLEADING.T @ MISLEADING
    start, codes = 2.0 * np.eye(4)[:, :3], exact_codes()
    ksvd(K, start, 2, 3, 0.0, codes)
    assert np.array_equal(start, 2.0 * np.eye(4)[:, :3])
    assert all(np.array_equal(a, b) for a, b in zip(codes, exact_codes(), strict=True))
    assert np.array_equal(K, MISLEADING.T @ MISLEADING)


def test_the_length_of_atoms_to_start_from_is_of_no_matter() -> None:
    K, _ = make_kernel(2)
    start = some_atoms(2, 24, 6)
    plain = ksvd(K, start, 2, 4, 0.0)
    scaled = ksvd(K, start * np.array([0.01, 0.5, 1.0, 2.0, 3.0, 100.0]), 2, 4, 0.0)
    np.testing.assert_allclose(scaled.history, plain.history, rtol=1e-9)
    np.testing.assert_allclose(scaled.U, plain.U, atol=1e-6)


def test_atoms_that_nobody_uses_become_different_samples() -> None:
    """All start as one sample, so that three of four are of no use."""
    learnt = ksvd(np.eye(4), np.eye(4)[:, [0, 0, 0, 0]], 1, max_iter=3, tol=0.0)
    assert learnt.history[:3].tolist() == [3.0, 3.0, 0.0]
    assert np.array_equal(abs(learnt.U), np.eye(4))


def test_an_atom_that_nobody_uses_becomes_the_worst_represented_sample() -> None:
    """Samples of norm 1, 2, 5, 3, at right angles; the two spare atoms take the longest of the others."""
    learnt = ksvd(np.diag([1.0, 4.0, 25.0, 9.0]), np.eye(4)[:, [0, 0, 0]], 1, max_iter=2, tol=0.0)
    assert learnt.history.tolist() == [38.0, 38.0, 4.0, 4.0, 4.0]
    np.testing.assert_allclose(abs(learnt.U), np.eye(4)[:, [0, 2, 3]] / [1.0, 5.0, 3.0])


@pytest.mark.parametrize("entry", [0.0, 1e-17])
def test_an_atom_that_its_users_can_do_without_becomes_another_sample(entry: float) -> None:
    """The second atom is a copy of the first. Its one entry is zero, or is so once what is left over was fitted.

    Pursuit finds nothing better than this code, so it is kept: but a zero in a code is no use of an atom.
    """
    codes = SparseRows.empty(3, 2)
    codes.indices[0], codes.values[0], codes.counts[0] = [0, 1], [1.0, entry], 2
    learnt = ksvd(np.eye(3), np.eye(3)[:, [0, 0]], 2, max_iter=6, tol=0.0, codes=codes)
    assert learnt.history[0] == 2.0
    assert learnt.history[-1] == 1.0
    assert np.array_equal(abs(learnt.U), np.eye(3)[:, :2])


def test_a_new_atom_is_given_time_to_be_found() -> None:
    """J fell by a third, which this tolerance calls settled, but one atom has just become another sample."""
    learnt = ksvd(np.eye(3), np.eye(3)[:, [0, 0]], 1, max_iter=10, tol=0.5)
    assert learnt.converged
    assert learnt.n_iter == 2
    assert learnt.history.tolist() == [2.0, 2.0, 1.0, 1.0, 1.0]


def test_samples_that_repeat_each_other() -> None:
    K, _ = make_kernel(2, n=12)
    learnt = ksvd(np.tile(K, (2, 2)), np.eye(24)[:, ::2], 3, max_iter=10, tol=0.0)
    once = ksvd(K, np.eye(12), 3, max_iter=10, tol=0.0)
    assert once.history[-1] < 1e-9
    # of the twelve atoms six repeat others at the start, and are not left to
    assert learnt.history[0] > 0.1
    assert learnt.history[-1] < 1e-9


def test_threads_do_not_change_a_bit() -> None:
    K, _ = make_kernel(3, n=150)
    one, two = (ksvd(K, some_atoms(3, 150, 20), 4, 4, 0.0, n_jobs=n_jobs) for n_jobs in (1, 2))
    assert np.array_equal(one.U, two.U)
    assert np.array_equal(one.history, two.history)
    assert all(np.array_equal(a, b) for a, b in zip(one.codes, two.codes, strict=True))


def test_atoms_start_from_different_samples_of_every_class() -> None:
    y = np.array([0] * 10 + [1] * 2 + [2] * 10)[np.random.default_rng(0).permutation(22)]
    starts = start_samples(y, 3, 4, np.random.default_rng(1))
    assert y[starts].tolist() == [0] * 4 + [1] * 2 + [2] * 4
    assert len(set(starts.tolist())) == 10
    for q in range(3):
        assert (np.diff(starts[y[starts] == q]) > 0).all()
    assert np.array_equal(starts, start_samples(y, 3, 4, np.random.default_rng(1)))
    drawn = {tuple(start_samples(y, 3, 4, np.random.default_rng(seed)).tolist()) for seed in range(10)}
    assert len(drawn) > 5
    # over many draws every sample has its turn: it is not always the first ones
    assert set(np.ravel(list(drawn)).tolist()) >= set(np.flatnonzero(y == 0).tolist())
