from __future__ import annotations

import pickle
import re
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from sklearn.metrics.pairwise import additive_chi2_kernel, rbf_kernel

from cksc_dist.errors import InputError
from cksc_dist.maths import kernel, matrix_checks
from cksc_dist.maths.kernel import bandwidth, chi_square, chi_square_kernel, gaussian_kernel
from cksc_dist.maths.matrix_checks import check_distance_rows, check_distances, check_kernel
from cksc_dist.maths.spectrum import (
    KernelHealth,
    kernel_health,
    spectral_repair,
    unit_diagonal,
    unit_diagonal_rows,
)
from tests import naive_kernel

sizes = st.integers(2, 30)
seeds = st.integers(0, 2**32 - 1)
hows = st.sampled_from(["clip", "flip"])
quick = settings(max_examples=25, deadline=None)


def random_distances(n, seed):
    """Symmetric, zero on the diagonal, and no metric, so that the Gaussian kernel is indefinite."""
    D = np.random.default_rng(seed).random((n, n)) + 0.01
    D = np.triu(D, 1)
    return D + D.T


def random_kernel(n, seed):
    D = random_distances(n, seed)
    return gaussian_kernel(D, bandwidth(D))


def random_histograms(n, bins, seed):
    rng = np.random.default_rng(seed)
    return rng.random((n, bins)) * (rng.random((n, bins)) < 0.6)


@quick
@given(n=sizes, seed=seeds, rule=st.sampled_from(["mean", "median", "paper", "squares", 0.37]))
def test_bandwidth_equals_the_loop(n, seed, rule):
    D = random_distances(n, seed)
    assert bandwidth(D, rule) == pytest.approx(naive_kernel.bandwidth(D, rule), rel=1e-12)


def test_bandwidth_counts_the_diagonal():
    D = np.array([[0.0, 3.0], [3.0, 0.0]])
    assert bandwidth(D, "paper") == 1.5
    assert bandwidth(D, "mean") == 4.5
    assert bandwidth(D, "median") == 4.5


def test_bandwidth_of_float32_is_summed_in_float64():
    D = random_distances(900, 0).astype(np.float32) + np.float32(1000)
    assert bandwidth(D, "paper") == pytest.approx(D.astype(np.float64).mean(), rel=1e-12)


@pytest.mark.parametrize("rule", ["mean", "median", "paper"])
def test_identical_samples_have_no_bandwidth(rule):
    with pytest.raises(InputError, match="delta = 0, because all samples are identical; remove the copies"):
        bandwidth(np.zeros((4, 4)), rule)


def test_median_of_mostly_zero_distances_says_so():
    D = np.zeros((5, 5))
    D[0, 1] = D[1, 0] = 1.0
    with pytest.raises(InputError, match="at least half of the distances are 0"):
        bandwidth(D, "median")
    assert bandwidth(D, "mean") > 0


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_bandwidth_out_of_range_says_how_to_mend_it(size):
    with pytest.raises(InputError, match="divide them by their maximum first"):
        bandwidth(np.array([[0.0, size], [size, 0.0]]), "mean")


@pytest.mark.parametrize("rule", ["maen", 0.0, -1.0, float("nan"), True])
def test_unknown_bandwidth(rule):
    with pytest.raises(InputError, match="bandwidth="):
        bandwidth(np.ones((2, 2)), rule)


@quick
@given(n=sizes, seed=seeds, delta=st.floats(1e-3, 1e3))
def test_gaussian_equals_the_loop(n, seed, delta):
    D = random_distances(n, seed)
    K = gaussian_kernel(D, delta)
    np.testing.assert_allclose(K, naive_kernel.gaussian_kernel(D, delta), rtol=1e-11, atol=1e-300)


@pytest.mark.parametrize("gamma", [0.01, 0.3, 5.0])
def test_gaussian_equals_scikit_learn_on_euclidean_distances(gamma):
    X = np.random.default_rng(0).standard_normal((40, 5))
    np.testing.assert_allclose(gaussian_kernel(cdist(X, X), 1 / gamma), rbf_kernel(X, gamma=gamma), rtol=1e-10)


@quick
@given(n=st.integers(1, 80), seed=seeds, dtype=st.sampled_from([np.float32, np.float64]))
def test_gaussian_is_symmetric_to_the_bit_with_a_diagonal_of_one(n, seed, dtype):
    D = random_distances(n, seed).astype(dtype)
    K = gaussian_kernel(D, 0.7)
    assert K.dtype == dtype
    assert np.array_equal(K, K.T)
    assert (K.diagonal() == 1).all()


def test_gaussian_does_not_change_its_input_and_takes_one_new_array():
    D = random_distances(1000, 1)
    before = D.copy()
    tracemalloc.start()
    gaussian_kernel(D, 1.0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert np.array_equal(D, before)
    assert peak < 1.2 * D.nbytes


def test_gaussian_stays_right_where_squares_leave_the_range():
    np.testing.assert_allclose(gaussian_kernel([[0.0, 1e200]], 1e300), [[1.0, 0.0]])
    np.testing.assert_allclose(gaussian_kernel([[0.0, 1e-180]], 1e-300), [[1.0, 1.0]])
    tiny = gaussian_kernel(np.array([[0.0, 1.0]], dtype=np.float32), 1e-120)
    assert tiny.tolist() == [[1.0, 0.0]]


@pytest.mark.parametrize("delta", [0.0, -1.0, np.inf, np.nan])
def test_gaussian_needs_a_positive_delta(delta):
    with pytest.raises(InputError, match=r"delta=.*positive, finite"):
        gaussian_kernel(np.ones((1, 1)), delta)


@quick
@given(n=st.integers(1, 12), m=st.integers(1, 12), bins=st.integers(1, 9), seed=seeds)
def test_chi_square_equals_the_loop(n, m, bins, seed):
    A, B = random_histograms(n, bins, seed), random_histograms(m, bins, seed + 1)
    np.testing.assert_allclose(chi_square(A, B), naive_kernel.chi_square(A, B), rtol=1e-12)


def test_chi_square_equals_scikit_learn():
    A, B = random_histograms(31, 59, 0), random_histograms(17, 59, 1)
    np.testing.assert_allclose(chi_square(A, B), -additive_chi2_kernel(A, B), rtol=1e-12)


@pytest.mark.parametrize("n", [1, 7, 8, 9, 40])
def test_chi_square_of_a_set_is_that_of_the_set_with_itself(n, monkeypatch):
    monkeypatch.setattr(kernel, "CHI_SQUARE_COLUMNS", 8)  # several blocks, whole and partial
    A = random_histograms(n, 5, n)
    C = chi_square(A)
    assert np.array_equal(C, C.T)
    assert not C.diagonal().any()
    assert np.array_equal(C, chi_square(A, A))


def test_a_chi_square_value_depends_on_its_two_histograms_alone():
    A = random_histograms(600, 11, 3)  # more than one block of columns
    C = chi_square(A)
    for i, j in [(0, 599), (513, 2), (300, 511)]:
        assert chi_square(A[[i]], A[[j]])[0, 0] == C[i, j]


def test_chi_square_keeps_tiny_and_empty_bins():
    assert chi_square([[1e-200, 0.0]], [[0.0, 0.0]])[0, 0] == 1e-200
    assert chi_square([[0.0, 0.0]], [[0.0, 0.0]])[0, 0] == 0.0


def test_chi_square_memory_does_not_grow_with_the_bins():
    A = random_histograms(600, 200, 0)
    chi_square(A[:2])
    tracemalloc.start()
    C = chi_square(A)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < C.nbytes + 3 * A.nbytes


@pytest.mark.parametrize("bad", [-0.5, np.nan, np.inf])
def test_chi_square_names_the_bad_bin(bad):
    A = np.ones((4, 3))
    A[2, 1] = bad
    with pytest.raises(InputError, match=f"A: histogram 2 has {bad:g} in bin 1; .*not negative"):
        chi_square(A)
    with pytest.raises(InputError, match="B: histogram 2"):
        chi_square(np.ones((1, 3)), A)


def test_chi_square_needs_common_bins():
    with pytest.raises(InputError, match="A has 3 bins but B has 4"):
        chi_square(np.ones((2, 3)), np.ones((2, 4)))


def test_chi_square_kernel_learns_its_scale_on_training_histograms():
    train, test = random_histograms(12, 6, 0), random_histograms(5, 6, 1)
    K, scale = chi_square_kernel(train)
    K_test, same = chi_square_kernel(test, train, scale=scale)
    assert same == scale == pytest.approx(naive_kernel.chi_square(train, train).mean(), rel=1e-12)
    np.testing.assert_allclose(K, naive_kernel.chi_square_kernel(train, train, train), rtol=1e-12)
    np.testing.assert_allclose(K_test, naive_kernel.chi_square_kernel(test, train, train), rtol=1e-12)
    assert np.array_equal(K, K.T)
    assert (K.diagonal() == 1).all()


def test_chi_square_kernel_of_test_rows_needs_the_scale():
    with pytest.raises(InputError, match=r"scale is missing: learn it on training histograms"):
        chi_square_kernel(np.ones((1, 2)), np.ones((3, 2)))


def test_chi_square_kernel_of_identical_histograms():
    with pytest.raises(InputError, match=r"all histograms are identical.*give a scale"):
        chi_square_kernel(np.ones((3, 2)))
    assert (chi_square_kernel(np.ones((3, 2)), scale=1.0)[0] == 1).all()
    with pytest.raises(InputError, match=r"scale=0\.0: must be a positive"):
        chi_square_kernel(np.ones((3, 2)), scale=0.0)


def spoilt(matrix, i, j, value):
    matrix = matrix.copy()
    matrix[i, j] = value
    return matrix


@pytest.mark.parametrize(
    ("D", "words"),
    [
        (np.ones((2, 3)), r"D has shape \(2, 3\); a distance matrix of training samples is square"),
        (np.ones(4), r"D has shape \(4,\); it must be a non-empty 2-D array"),
        (np.empty((0, 0)), "non-empty"),
        (np.array([["a", "b"], ["c", "d"]]), "must hold real numbers"),
        (np.array([[0, 1j], [1j, 0]]), "must hold real numbers"),
        (np.array([[0, "x"], [1, 0]], dtype=object), "cannot be read as numbers"),
        (spoilt(random_distances(6, 0), 4, 2, np.nan), r"D\[4, 2\] is nan; every entry must be finite"),
        (spoilt(random_distances(6, 0), 1, 5, np.inf), r"D\[1, 5\] is inf; .*leave out that sample"),
        (spoilt(random_distances(6, 0), 3, 1, -2.0), r"D\[3, 1\] is -2; distances cannot be negative"),
        (spoilt(random_distances(6, 0), 3, 3, 0.5), r"D\[3, 3\] is 0.5; the distance of a sample to itself"),
        (
            spoilt(random_distances(6, 0), 1, 4, 9.0),
            r"D is not symmetric; worst at the pair \(1, 4\): 9 there",
        ),
        (random_kernel(6, 0), "this looks like a kernel: pass the distances"),
    ],
)
def test_what_is_no_distance_matrix(D, words):
    with pytest.raises(InputError, match=words):
        check_distances(D)


def test_positions_are_right_in_later_strips(monkeypatch):
    monkeypatch.setattr(matrix_checks, "STRIP_ENTRIES", 20)  # strips of two rows
    D = random_distances(10, 0)
    with pytest.raises(InputError, match=r"D\[7, 3\] is nan"):
        check_distances(spoilt(D, 7, 3, np.nan))
    with pytest.raises(InputError, match=r"worst at the pair \(3, 7\): .* but 5 at its mirror \(7, 3\)"):
        check_distances(spoilt(D, 7, 3, 5.0))


def test_good_distances_pass_with_their_type():
    for dtype in (np.float32, np.float64):
        D = random_distances(5, 0).astype(dtype)
        assert check_distances(D) is D
    assert check_distances([[0, 1], [1, 0]]).dtype == np.float64


def test_rounding_is_no_asymmetry():
    D = random_distances(5, 0)
    D[1, 2] *= 1 + 1e-7
    assert check_distances(D) is D
    K = random_kernel(5, 0)
    K[1, 2] *= 1 + 1e-7
    assert check_kernel(K) is K


def test_distance_rows():
    D = random_distances(6, 0)
    assert check_distance_rows(D[:2], 6).shape == (2, 6)
    with pytest.raises(InputError, match="D has 5 columns, but there were 6 training samples"):
        check_distance_rows(D[:, :5], 6)
    with pytest.raises(InputError, match=r"D\[1, 0\] is nan"):
        check_distance_rows(spoilt(D, 1, 0, np.nan), 6)
    with pytest.raises(InputError, match=r"D\[1, 0\] is -1; distances cannot be negative"):
        check_distance_rows(spoilt(D, 1, 0, -1.0), 6)


def test_distances_in_place_of_a_kernel():
    words = "this looks like a distance matrix: its diagonal is zero. Turn it into a kernel first, "
    words += "K = DistanceKernel().fit_transform(D)"
    with pytest.raises(InputError, match=re.escape(words)):
        check_kernel(random_distances(5, 0))


@pytest.mark.parametrize(
    ("K", "words"),
    [
        (np.ones((2, 3)), "a kernel of training samples is square"),
        (spoilt(random_kernel(6, 0), 4, 2, np.nan), r"K\[4, 2\] is nan"),
        (spoilt(random_kernel(6, 0), 4, 2, -3.0), r"K is not symmetric; worst at the pair \(2, 4\)"),
    ],
)
def test_what_is_no_kernel(K, words):
    with pytest.raises(InputError, match=words):
        check_kernel(K)


def test_kernels_may_be_negative():
    K = np.array([[1.0, -0.5], [-0.5, 1.0]])
    assert check_kernel(K) is K


@quick
@given(n=sizes, seed=seeds)
def test_unit_diagonal_equals_the_loop(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 4))
    K = X @ X.T
    own = K.diagonal()
    scaled = unit_diagonal(K)
    np.testing.assert_allclose(scaled, naive_kernel.unit_diagonal_rows(K, own, own), atol=1e-12)
    assert (scaled.diagonal() == 1).all()
    assert np.array_equal(scaled, scaled.T)


@quick
@given(n=sizes, seed=seeds)
def test_unit_diagonal_of_rows_is_the_cosine(n, seed):
    rng = np.random.default_rng(seed)
    X, Z = rng.standard_normal((n, 4)), rng.standard_normal((3, 4))
    own, own_train = (Z**2).sum(axis=1), (X**2).sum(axis=1)
    rows = unit_diagonal_rows(Z @ X.T, own, own_train)
    np.testing.assert_allclose(rows, naive_kernel.unit_diagonal_rows(Z @ X.T, own, own_train), atol=1e-12)
    assert (np.abs(rows) <= 1 + 1e-12).all()


@pytest.mark.parametrize("value", [0.0, -1.0])
def test_unit_diagonal_names_the_sample_that_cannot_be_scaled(value):
    K = np.eye(4)
    K[2, 2] = value
    with pytest.raises(InputError, match=f"the diagonal entry of sample 2 is {value:g}; it must be positive"):
        unit_diagonal(K)
    with pytest.raises(InputError, match=r"the self-similarity \(own\) of sample 1 is"):
        unit_diagonal_rows(np.ones((2, 4)), [1.0, value], np.ones(4))
    with pytest.raises(InputError, match=r"the self-similarity \(own_train\) of sample 0 is"):
        unit_diagonal_rows(np.ones((2, 4)), np.ones(2), [value, 1.0, 1.0, 1.0])


def test_unit_diagonal_of_rows_needs_one_factor_each():
    with pytest.raises(InputError, match=r"shape \(2, 4\), but there are 3 entries in own and 4 in own_train"):
        unit_diagonal_rows(np.ones((2, 4)), np.ones(3), np.ones(4))


@quick
@given(n=sizes, seed=seeds)
def test_health_equals_the_loop(n, seed):
    K = random_kernel(n, seed)
    health = kernel_health(K)
    assert health.negative_mass == pytest.approx(naive_kernel.negative_mass(K), abs=1e-9)
    assert health.effective_rank == pytest.approx(naive_kernel.effective_rank(K), rel=1e-9)
    assert health.n == n
    assert (health.least_eigenvalue, health.largest_eigenvalue) == pytest.approx(
        (np.linalg.eigvalsh(K)[0], np.linalg.norm(K, 2)), abs=1e-9
    )


def test_health_at_the_two_ends():
    alike, strangers = kernel_health(np.ones((8, 8))), kernel_health(np.eye(8))
    assert alike.effective_rank == pytest.approx(1)
    assert strangers.effective_rank == pytest.approx(8)
    assert alike.negative_mass == strangers.negative_mass == 0
    assert "nearly constant: all samples look alike; lower factor" in str(alike)
    assert "nearly the identity: every sample resembles itself alone; raise factor" in str(strangers)


@pytest.mark.parametrize(
    ("mass", "advice"),
    [(0.0, "semi-definite: needs no repair"), (0.02, "mildly indefinite"), (0.3, "strongly indefinite")],
)
def test_health_reads_as_advice(mass, advice):
    text = str(KernelHealth(-0.5, 40.0, mass, 12.3, 100))
    assert text.startswith("kernel of 100 samples: eigenvalues -0.5 to 40, negative mass")
    assert "effective rank 12.3 of 100" in text
    assert advice in text
    assert "spread well" in text


def test_rounding_of_float32_is_no_negative_mass():
    X = np.random.default_rng(0).standard_normal((60, 2))
    K = gaussian_kernel(cdist(X, X).astype(np.float32), 5.0)
    assert np.linalg.eigvalsh(K.astype(np.float64))[0] < 0
    assert kernel_health(K).negative_mass == 0


@quick
@given(n=sizes, seed=seeds, how=hows)
def test_repair_equals_the_loop(n, seed, how):
    K = random_kernel(n, seed)
    repaired, repair = spectral_repair(K, how)
    np.testing.assert_allclose(repaired, naive_kernel.repaired_kernel(K, how), atol=1e-11)
    np.testing.assert_allclose(repair.projector, naive_kernel.projector(K, how), atol=1e-9)
    np.testing.assert_allclose(K @ repair.projector, repaired, atol=1e-11)
    np.testing.assert_allclose(repair.own_train, repaired.diagonal(), atol=1e-11)


@quick
@given(n=sizes, seed=seeds, how=hows)
def test_repaired_kernel_is_symmetric_and_semi_definite(n, seed, how):
    repaired, _ = spectral_repair(random_kernel(n, seed), how)
    assert np.array_equal(repaired, repaired.T)
    assert np.linalg.eigvalsh(repaired)[0] > -1e-10 * n
    assert (repaired.diagonal() >= 1 - 1e-12).all()


def test_repair_evens_out_rounding_between_mirrored_entries():
    K = random_kernel(12, 0)
    K[3, 8] *= 1 + 1e-9
    repaired, _ = spectral_repair(K, "clip")
    assert np.array_equal(repaired, repaired.T)


@quick
@given(n=sizes, seed=seeds, how=hows)
def test_training_rows_as_test_rows_give_the_training_kernel(n, seed, how):
    K = random_kernel(n, seed)
    repaired, repair = spectral_repair(K, how)
    np.testing.assert_allclose(repair.rows(K), repaired, atol=1e-11)
    np.testing.assert_allclose(repair.self_similarity(K), repaired.diagonal(), atol=1e-9)
    rows = unit_diagonal_rows(repair.rows(K), repair.self_similarity(K), repair.own_train)
    np.testing.assert_allclose(rows, unit_diagonal(repaired), atol=1e-9)


@quick
@given(n=sizes, seed=seeds, how=hows)
def test_self_similarity_of_new_samples_equals_the_loop(n, seed, how):
    D = random_distances(n + 3, seed)
    K_all = gaussian_kernel(D, bandwidth(D))
    K, rows = K_all[:n, :n], K_all[n:, :n]
    _, repair = spectral_repair(K, how)
    own = repair.self_similarity(rows)
    expected = [naive_kernel.self_similarity(K, k_z, how) for k_z in rows]
    np.testing.assert_allclose(own, expected, rtol=1e-7)
    assert (own >= 1).all()
    assert (own <= repair.own_train.max() + 1e-9).all()


def test_self_similarity_starts_from_that_of_the_sample():
    K = random_kernel(20, 0)
    _, repair = spectral_repair(K, "clip")
    np.testing.assert_allclose(repair.self_similarity(K, np.full(20, 3.0)) - repair.self_similarity(K), 2.0)


@pytest.mark.parametrize("how", ["clip", "flip"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_semi_definite_kernel_and_its_test_rows_stay_as_they_are(how, dtype):
    X = np.random.default_rng(0).standard_normal((40, 2))
    X[7] = X[3]  # a copy: an eigenvalue of 0, which comes out as rounding of either sign
    K = gaussian_kernel(cdist(X, X).astype(dtype), 4.0)
    repaired, repair = spectral_repair(K, how)
    assert repaired.dtype == dtype
    assert np.array_equal(repaired, K)
    assert np.array_equal(repair.rows(K[:5]), K[:5])
    assert (repair.self_similarity(K[:5]) == 1).all()


def test_float32_rows_stay_float32():
    K = random_kernel(30, 0).astype(np.float32)
    repaired, repair = spectral_repair(K, "clip")
    assert repaired.dtype == repair.rows(K).dtype == np.float32
    assert len(repair.eigenvalues) > 0
    np.testing.assert_allclose(repair.rows(K), repaired, atol=1e-5)


def test_a_repair_that_was_used_is_sent_no_larger():
    K = np.random.default_rng(5).standard_normal((40, 40))
    _, repair = spectral_repair((K + K.T) / 2, "clip")
    before = pickle.dumps(repair)
    used = repair.rows(K), repair.self_similarity(K)
    assert pickle.dumps(repair) == before
    again = pickle.loads(before)
    assert all(map(np.array_equal, used, (again.rows(K), again.self_similarity(K))))


@pytest.mark.parametrize("how", ["clip", "flip"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_repaired_row_does_not_depend_on_the_rows_beside_it(how, dtype):
    rng = np.random.default_rng(5)
    K = rng.standard_normal((70, 70))
    _, repair = spectral_repair(((K + K.T) / 2).astype(dtype), how)
    rows = rng.standard_normal((45, 70)).astype(dtype)
    repaired, own = repair.rows(rows), repair.self_similarity(rows)
    for some in (slice(0, 1), slice(44, 45), slice(3, 5), slice(7, 40)):
        assert repair.rows(rows[some]).tobytes() == repaired[some].tobytes()
        assert repair.self_similarity(rows[some]).tobytes() == own[some].tobytes()


def test_repair_refuses_what_it_cannot_use():
    with pytest.raises(InputError, match="how='clop': must be 'clip' or 'flip'"):
        spectral_repair(np.eye(3), "clop")
    with pytest.raises(InputError, match="looks like a distance matrix"):
        spectral_repair(random_distances(4, 0), "clip")
    _, repair = spectral_repair(np.eye(3), "clip")
    for method in (repair.rows, repair.self_similarity):
        with pytest.raises(InputError, match="K has 4 columns, but the repair was learnt on 3 training samples"):
            method(np.ones((2, 4)))
