"""NQP against scipy, brute force and its naive twin; scale, degenerate problems, bits in blocks; threads."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import nnls

from cksc_dist.errors import InputError
from cksc_dist.maths.nqp import SparseSolutions, nqp, nqp_atoms, nqp_codes, nqp_rows
from cksc_dist.maths.threads import resolve_n_jobs, run_blocks
from tests import naive_nqp

Float = NDArray[np.float64]
SELECTIONS = ("scaled", "plain")


def problem(rng: np.random.Generator, rows: int, n: int, spread: float = 0.0) -> tuple[Float, Float, Float, Float]:
    """Least squares as NQP; `spread` is how many powers of ten the columns differ by."""
    A = rng.normal(size=(rows, n)) * 10.0 ** rng.uniform(-spread / 2, spread / 2, size=n)
    b = rng.normal(size=rows)
    return A, b, A.T @ A, -A.T @ b


def gram_with_linear(seed: int, n: int, problems: int) -> tuple[Float, Float]:
    """A Gaussian kernel of clustered points, and linear terms of both signs."""
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(6, 5))[rng.integers(6, size=n)] + 0.4 * rng.normal(size=(n, 5))
    distances = ((points[:, None, :] - points[None, :, :]) ** 2).sum(axis=2)
    return np.exp(-distances / 8.0), rng.normal(size=(problems, n)) - 0.5


def same_bits(a: SparseSolutions, b: SparseSolutions) -> bool:
    return all(x.tobytes() == y.tobytes() and x.shape == y.shape for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("selection", SELECTIONS)
@pytest.mark.parametrize("spread", [0.0, 3.0])
def test_full_support_is_nnls(selection: Any, spread: float) -> None:
    rng = np.random.default_rng(1)
    for _ in range(40):
        n = int(rng.integers(1, 30))
        A, b, H, c = problem(rng, n + 10, n, spread)
        expected = nnls(A, b)[0]
        x = nqp(H, c, n, selection=selection)
        column = np.linalg.norm(A, axis=0)
        np.testing.assert_allclose(x * column, expected * column, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("selection", "share"), [("scaled", 0.88), ("plain", 0.83)])
def test_share_of_problems_near_the_best_support(selection: Any, share: float) -> None:
    rng = np.random.default_rng(0)
    near = 0
    for _ in range(1000):
        A, b = rng.normal(size=(24, 12)), rng.normal(size=24)
        H, c = A.T @ A, -A.T @ b
        _, best = naive_nqp.best_of_all_supports(H, c, 4)
        found = naive_nqp.objective(H, c, nqp(H, c, 4, selection=selection))
        assert found >= best * (1 + 1e-12)
        near += found <= best * 0.99
    assert near >= share * 1000


@pytest.mark.parametrize("selection", SELECTIONS)
@pytest.mark.parametrize("prune", [0.0, 0.3])
def test_agrees_with_the_naive_twin(selection: Any, prune: float) -> None:
    rng = np.random.default_rng(2)
    pruned = 0
    for _ in range(150):
        n = int(rng.integers(2, 25))
        T = int(rng.integers(1, n + 1))
        _, _, H, c = problem(rng, int(rng.integers(n, 2 * n + 2)), n, spread=1.0)
        expected = naive_nqp.nqp(H, c, T, selection=selection, prune=prune)
        x = nqp(H, c, T, selection=selection, prune=prune)
        np.testing.assert_array_equal(np.flatnonzero(x), np.flatnonzero(expected))
        np.testing.assert_allclose(x, expected, rtol=1e-7, atol=1e-12)
        pruned += int(np.count_nonzero(x) < np.count_nonzero(nqp(H, c, T, selection=selection)))
    assert (pruned > 20) == (prune > 0)


def test_entries_are_dropped_on_the_way() -> None:
    # fewer rows than columns: a support for T + 1 often lacks an entry of that for T
    rng = np.random.default_rng(3)
    lost = 0
    for _ in range(100):
        _, _, H, c = problem(rng, 10, 20)
        supports = [set(np.flatnonzero(nqp(H, c, T))) for T in range(1, 11)]
        lost += any(not smaller <= larger for smaller, larger in pairwise(supports))
    assert lost > 30


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 20),
    rank=st.integers(0, 20),
    T=st.integers(1, 22),
    selection=st.sampled_from(SELECTIONS),
    prune=st.sampled_from([0.0, 0.05, 0.5]),
)
def test_optimal_on_its_support_whatever_the_rank(
    seed: int, n: int, rank: int, T: int, selection: Any, prune: float
) -> None:
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(rank, n))
    b = rng.normal(size=rank)
    H, c = A.T @ A, -A.T @ b
    x = nqp(H, c, T, selection=selection, prune=prune)
    support = np.flatnonzero(x)
    assert np.isfinite(x).all()
    assert (x >= 0).all()
    assert len(support) <= min(T, n)
    gradient = H @ x + c
    assert np.abs(gradient[support]).max(initial=0.0) <= 1e-6 * np.abs(c).max(initial=0.0)
    assert naive_nqp.objective(H, c, x) <= 0.0
    if n <= T and prune == 0.0 and rank >= n:
        assert gradient.min() >= -1e-6 * np.abs(c).max()


@pytest.mark.parametrize("selection", SELECTIONS)
@pytest.mark.parametrize("exponent", [-27, -8, -1, 1, 3, 26])
def test_powers_of_two_scale_every_bit(selection: Any, exponent: int) -> None:
    rng = np.random.default_rng(4)
    s = 2.0**exponent
    for _ in range(20):
        _, _, H, c = problem(rng, 14, 16, spread=2.0)
        x = nqp(H, c, 6, selection=selection)
        assert np.array_equal(nqp(s * H, s * c, 6, selection=selection), x)
        assert np.array_equal(nqp(H, s * c, 6, selection=selection), s * x)
        assert np.array_equal(nqp(s * H, c, 6, selection=selection), x / s)


@pytest.mark.parametrize("selection", SELECTIONS)
@pytest.mark.parametrize("s", [1e-8, 1e-3, 3.0, 1e8])
def test_scale_does_not_change_the_answer(selection: Any, s: float) -> None:
    rng = np.random.default_rng(5)
    for _ in range(20):
        _, _, H, c = problem(rng, 30, 16, spread=1.0)
        x = nqp(H, c, 6, selection=selection)
        np.testing.assert_allclose(nqp(s * H, s * c, 6, selection=selection), x, rtol=1e-9)
        np.testing.assert_allclose(nqp(H, s * c, 6, selection=selection), s * x, rtol=1e-9)


def test_columns_of_differing_scale_are_what_scaled_selection_is_for() -> None:
    rng = np.random.default_rng(6)
    near = {selection: 0 for selection in SELECTIONS}
    for _ in range(100):
        _, _, H, c = problem(rng, 24, 10, spread=2.0)
        _, best = naive_nqp.best_of_all_supports(H, c, 3)
        for selection in SELECTIONS:
            near[selection] += naive_nqp.objective(H, c, nqp(H, c, 3, selection=selection)) <= 0.99 * best  # type: ignore[arg-type]
    assert near["scaled"] >= 85
    assert near["plain"] <= near["scaled"] - 20


def test_a_small_column_picked_first_does_not_end_the_search() -> None:
    # scaled selection prefers column 0, whose gradient is below the tolerance; column 1 must still be found
    H = np.diag([1e-26, 1.0])
    x = nqp(H, np.array([-1e-12, -1.0]), 2)
    assert x.tolist() == [0.0, 1.0]


@pytest.mark.parametrize("selection", SELECTIONS)
def test_nonnegative_linear_term_gives_zero(selection: Any) -> None:
    rng = np.random.default_rng(7)
    _, _, H, _ = problem(rng, 10, 8)
    for c in (np.zeros(8), rng.uniform(0, 1, 8)):
        solution = nqp_codes(H, c[None], 5, selection=selection)
        assert solution.counts.tolist() == [0]
        assert solution.indices.tolist() == [[-1] * 5]
        assert solution.values.tolist() == [[0.0] * 5]
        assert solution.objective.tolist() == [0.0]


@pytest.mark.parametrize("selection", SELECTIONS)
def test_zero_matrix_and_zero_rows(selection: Any) -> None:
    assert nqp(np.zeros((4, 4)), -np.ones(4), 3, selection=selection).tolist() == [0.0] * 4
    H = np.diag([0.0, 2.0, 0.0, 4.0])
    assert nqp(H, np.array([-9.0, -2.0, -9.0, -2.0]), 4, selection=selection).tolist() == [0.0, 1.0, 0.0, 0.5]
    H[0, 0] = -1.0
    assert nqp(H, np.array([-9.0, -2.0, -9.0, -2.0]), 4, selection=selection).tolist() == [0.0, 1.0, 0.0, 0.5]


@pytest.mark.parametrize("selection", SELECTIONS)
@pytest.mark.parametrize("noise", [0.0, 1e-12, 1e-9, 1e-7])
def test_repeated_columns(selection: Any, noise: float) -> None:
    rng = np.random.default_rng(8)
    A = rng.normal(size=(30, 6))
    b = rng.normal(size=30) + A @ np.abs(rng.normal(size=6))
    twice = np.hstack([A, A + noise * rng.normal(size=A.shape)])
    H, c = twice.T @ twice, -twice.T @ b
    x = nqp(H, c, 12, selection=selection)
    assert np.isfinite(x).all()
    residual = np.linalg.norm(twice @ x - b)
    assert residual == pytest.approx(nnls(A, b)[1], rel=1e-6)


def test_extreme_diagonals_stay_finite() -> None:
    assert nqp(np.diag([1e-310, 1.0]), [-1.0, -1.0], 2).tolist() == [0.0, 1.0]
    x = nqp(np.diag([1e-100, 1.0, 1e100]), [-1e-50, -1.0, -1e50], 3, tol=0.0)
    np.testing.assert_allclose(x, [1e50, 1.0, 1e-50])


def test_more_entries_allowed_than_there_are_candidates() -> None:
    assert nqp(np.eye(2), [-1.0, -2.0], 10**12).tolist() == [1.0, 2.0]


def test_of_equals_the_lowest_index_is_picked() -> None:
    n = 150  # several times the width of the scan
    H = np.eye(n)
    c = np.zeros(n)
    c[[37, 69, 70, 133]] = -1.0
    assert nqp_codes(H, c[None], 3).indices.tolist() == [[37, 69, 70]]


def test_a_dependent_candidate_is_banned_and_the_search_goes_on() -> None:
    # columns 0 and 1 are the same in H but not in c, as two equal series of different classes are
    H = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    x = nqp(H, np.array([-3.0, -2.0, -1.0]), 3)
    assert x.tolist() == [3.0, 0.0, 1.0]
    H = np.array([[2.0, 0.0, 1.0, 0.0], [0.0, 2.0, 1.0, 0.0], [1.0, 1.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
    x = nqp(H, np.array([-4.0, -4.0, -2.1, -0.01]), 4, selection="plain")
    # column 2 is half the sum of 0 and 1; its gradient, 1.9, is not negative: only 3 joins them
    np.testing.assert_allclose(x, [2.0, 2.0, 0.0, 0.01])
    x = nqp(H, np.array([-4.0, -4.0, -4.1, -0.01]), 4, selection="plain")
    assert np.isfinite(x).all()
    assert x[3] == pytest.approx(0.01)


def test_prune_drops_and_refits() -> None:
    rng = np.random.default_rng(9)
    A, b, H, c = problem(rng, 40, 20)
    full = nqp(H, c, 10)
    pruned = nqp(H, c, 10, prune=0.4)
    kept = np.flatnonzero(full >= 0.4 * full.max())
    assert 0 < len(kept) < np.count_nonzero(full)
    refit = np.zeros(20)
    refit[kept] = nnls(A[:, kept], b)[0]
    np.testing.assert_allclose(pruned, refit, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("selection", SELECTIONS)
@pytest.mark.parametrize("prune", [0.0, 0.2])
def test_blocks_have_the_bits_of_single_calls(selection: Any, prune: float) -> None:
    K, C = gram_with_linear(10, 70, 23)
    H = 2.0 * (K + 0.01 * np.eye(70))
    expected = nqp_codes(H, C, 9, selection=selection, prune=prune)
    assert np.array_equal(expected.dense(70), [nqp(H, c, 9, selection=selection, prune=prune) for c in C])
    for n_jobs, block in [(1, 1), (2, 1), (2, 5), (1, 7), (2, 64), (-1, 3)]:
        other = nqp_codes(H, C, 9, selection=selection, prune=prune, n_jobs=n_jobs, block=block)
        assert same_bits(other, expected)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_atoms_have_the_bits_of_the_dense_problem(n_jobs: int) -> None:
    K, C = gram_with_linear(11, 90, 12)
    before = K.copy()
    solutions = nqp_atoms(K, 0.25, C, 8, n_jobs=n_jobs)
    assert same_bits(solutions, nqp_codes(2.0 * (K + 0.25 * np.eye(90)), C, 8))
    assert np.array_equal(K, before)


def test_float32_gram_is_summed_in_float64() -> None:
    K, C = gram_with_linear(12, 90, 12)
    short = K.astype(np.float32)
    assert same_bits(nqp_atoms(short, 0.1, C, 8), nqp_atoms(short.astype(np.float64), 0.1, C, 8))


@pytest.mark.parametrize("selection", SELECTIONS)
@pytest.mark.parametrize("prune", [0.0, 0.2])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_fetched_rows_give_the_bits_of_the_whole_gram(selection: Any, prune: float, dtype: Any) -> None:
    K, C = gram_with_linear(13, 60, 40)
    K = K.astype(dtype)
    fetched: list[int] = []

    def fetch_row(j: int) -> NDArray[Any]:
        fetched.append(j)
        return np.asarray(K[j])

    for c in C:
        fetched.clear()
        one = nqp_rows(fetch_row, np.diagonal(K), 0.02, c, 12, selection=selection, prune=prune)
        assert same_bits(one, nqp_atoms(K, 0.02, c[None], 12, selection=selection, prune=prune))
        assert set(one.indices[0, : one.counts[0]]) <= set(fetched)
        assert len(fetched) < 30


def test_layout_of_the_result() -> None:
    K, C = gram_with_linear(14, 30, 9)
    H = 2.0 * (K + 0.01 * np.eye(30))
    C[4] = 1.0
    solutions = nqp_codes(H, C, 40)
    assert solutions.indices.shape == solutions.values.shape == (9, 40)
    assert solutions.indices.dtype == solutions.counts.dtype == np.int64
    assert solutions.counts[4] == 0
    for i, x in enumerate(solutions.dense(30)):
        count = solutions.counts[i]
        assert np.array_equal(solutions.indices[i, :count], np.flatnonzero(x))
        assert (solutions.indices[i, count:] == -1).all()
        assert (solutions.values[i, :count] > 0).all()
        assert (solutions.values[i, count:] == 0).all()
        assert solutions.objective[i] == pytest.approx(naive_nqp.objective(H, C[i], x), rel=1e-12, abs=1e-15)


def test_no_problems_no_solutions() -> None:
    solutions = nqp_codes(np.eye(3), np.zeros((0, 3)), 2, n_jobs=2)
    assert solutions.indices.shape == (0, 2)
    assert solutions.objective.shape == (0,)


def test_read_only_and_strided_input() -> None:
    K, C = gram_with_linear(15, 20, 6)
    expected = nqp_atoms(K, 0.0, C, 4)
    C.setflags(write=False)
    K.setflags(write=False)
    assert same_bits(nqp_atoms(K, 0.0, C, 4), expected)
    assert same_bits(nqp_atoms(K, 0.0, np.asfortranarray(C), 4), expected)


EYE, LINE = np.eye(3), -np.ones(3)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: nqp(np.ones((2, 3)), LINE, 1), r"H has shape \(2, 3\); it must be square"),
        (lambda: nqp(np.zeros((0, 0)), np.zeros(0), 1), r"H has shape \(0, 0\).*at least one row"),
        (lambda: nqp(EYE, np.ones(2), 1), r"shape \(1, 2\); with 3 candidates they must be \(problems, 3\)"),
        (lambda: nqp(EYE, np.ones((2, 3)), 1), r"c has shape \(2, 3\); one problem takes a vector"),
        (lambda: nqp_codes(EYE, LINE, 1), r"linear terms have shape \(3,\).*one problem a row"),
        (lambda: nqp(EYE, [0, np.nan, 0], 1), "linear term of problem 0 has nan at 1"),
        (lambda: nqp(np.diag([1, np.inf, 1]), LINE, 1), r"H\[1, 1\] is inf; H must be finite"),
        (
            lambda: nqp(np.triu(np.ones((3, 3))), LINE, 1),
            r"not symmetric: H\[0, 1\] = 1, H\[1, 0\] = 0.*H\.T",
        ),
        (lambda: nqp(EYE, LINE, 0), "T=0: must be a whole number of at least 1"),
        (lambda: nqp(EYE, LINE, 1.5), "T=1.5: must be a whole number"),  # type: ignore[arg-type]
        (lambda: nqp(EYE, LINE, 1, selection="best"), "selection='best'.*'scaled', 'plain'"),  # type: ignore[arg-type]
        (lambda: nqp(EYE, LINE, 1, prune=1.5), r"prune=1.5: must be a number in \[0, 1\]"),
        (lambda: nqp(EYE, LINE, 1, tol=-1.0), r"tol=-1.0: must be a number in \[0, 1\]"),
        (lambda: nqp_atoms(EYE, -1.0, LINE[None], 1), r"beta=-1.0: must be a number in \[0, inf\]"),
        (lambda: nqp_atoms(EYE, np.inf, LINE[None], 1), "entry 0 of the diagonal is inf"),
        (lambda: nqp_atoms(EYE.astype(int), 0.0, LINE[None], 1), "K must be a C-contiguous.*got int64"),
        (lambda: nqp_atoms(np.eye(6)[::2, ::2], 0.0, LINE[None], 1), "K must be a C-contiguous.*strides"),
        (lambda: nqp_atoms([[1.0]], 0.0, [[1.0]], 1), "K must be a C-contiguous.*got list"),  # type: ignore[arg-type]
        (lambda: nqp_codes(EYE, LINE[None], 1, n_jobs=0), "n_jobs=0: must be None"),
        (lambda: nqp_codes(EYE, LINE[None], 1, block=0), "block=0: must be a whole number"),
        (lambda: nqp_rows(lambda j: EYE[j], EYE, 0.0, LINE, 1), r"diagonal has shape \(3, 3\)"),
        (
            lambda: nqp_rows(lambda j: EYE[j, :2], np.ones(3), 0.0, LINE, 1),
            r"fetch_row\(0\).*3 finite.*\(2,\)",
        ),
        (lambda: nqp_rows(lambda j: EYE[j], np.ones(3), 0.0, np.ones(2), 1), "with 3 candidates"),
    ],
)
def test_bad_input_is_named(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        call()


@pytest.mark.parametrize("n_jobs", [None, 1, 2, 5, -1])
@pytest.mark.parametrize(("n", "block"), [(0, 3), (1, 3), (9, 3), (10, 3), (10, 100)])
def test_blocks_cover_every_item_once_and_in_order(n: int, block: int, n_jobs: int | None) -> None:
    parts = run_blocks(lambda start, stop: list(range(start, stop)), n, block, n_jobs)
    assert [i for part in parts for i in part] == list(range(n))
    assert all(len(part) == block for part in parts[:-1])


def test_blocks_run_side_by_side() -> None:
    meeting = threading.Barrier(2, timeout=10)
    run_blocks(lambda start, stop: meeting.wait(), 2, 1, 2)


def test_one_job_stays_in_the_calling_thread() -> None:
    assert run_blocks(lambda start, stop: threading.get_ident(), 4, 1) == [threading.get_ident()] * 4


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_an_error_reaches_the_caller_and_ends_the_rest(n_jobs: int) -> None:
    begun: list[int] = []

    def work(start: int, stop: int) -> None:
        begun.append(start)
        if start == 1:
            raise KeyError("block 1")
        threading.Event().wait(0.002)

    with pytest.raises(KeyError, match="block 1"):
        run_blocks(work, 500, 1, n_jobs)
    assert len(begun) < 400


def test_number_of_threads_for_blocks() -> None:
    assert resolve_n_jobs(None) == 1
    assert resolve_n_jobs(3) == 3
    assert 1 <= resolve_n_jobs(-1) <= (os.cpu_count() or 1)


@pytest.mark.parametrize("n_jobs", [0, -2, 1.5, True, "2"])
def test_bad_number_of_threads_is_named(n_jobs: Any) -> None:
    with pytest.raises(InputError, match=r"n_jobs=.*: must be None \(one thread\).*-1 \(all cores\)"):
        resolve_n_jobs(n_jobs)


@pytest.mark.parametrize("selection", SELECTIONS)
def test_reach_grows_further_and_cuts_back(selection: Any) -> None:
    rng = np.random.default_rng(11)
    for _ in range(60):
        n = int(rng.integers(4, 25))
        T = int(rng.integers(1, n))
        reach = int(rng.integers(T, n + 1))
        _, _, H, c = problem(rng, n + 5, n)
        found = nqp_codes(H, c[None], T, selection=selection, reach=reach)
        expected = naive_nqp.cut_back(H, c, naive_nqp.nqp(H, c, reach, selection=selection), T)
        np.testing.assert_allclose(found.dense(n)[0], expected, rtol=1e-7, atol=1e-9)
        assert found.counts[0] <= T
        np.testing.assert_allclose(found.objective[0], naive_nqp.objective(H, c, expected), rtol=1e-9, atol=1e-12)


def test_reach_is_nearer_to_the_best_support() -> None:
    rng = np.random.default_rng(0)
    near = dict.fromkeys((4, 8), 0)
    for _ in range(300):
        _, _, H, c = problem(rng, 24, 12)
        _, best = naive_nqp.best_of_all_supports(H, c, 4)
        for reach in near:
            near[reach] += nqp_codes(H, c[None], 4, reach=reach).objective[0] <= 0.99 * best
    assert near[8] > near[4]
    assert near[8] >= 0.95 * 300


def test_reach_below_T_is_refused() -> None:
    with pytest.raises(InputError, match="reach=2: must be a whole number of at least 3"):
        nqp_codes(np.eye(4), -np.ones((1, 4)), 3, reach=2)
