"""Orthogonal matching pursuit: against scikit-learn, its slow twin on vectors, and what it does at the edges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.linear_model import orthogonal_mp_gram

from cksc_dist.errors import InputError
from cksc_dist.maths.omp import explained, omp_codes
from cksc_dist.maths.sparse import SparseRows
from tests import naive_ksvd

Float = NDArray[np.float64]


def make_problem(seed: int, d: int = 12, k: int = 9, m: int = 6, unit: bool = False) -> tuple[Float, Float]:
    """Atoms (d, k) and samples (m, d); atoms of very unequal norm unless `unit`."""
    rng = np.random.default_rng(seed)
    atoms, samples = rng.standard_normal((d, k)), rng.standard_normal((m, d))
    atoms /= np.linalg.norm(atoms, axis=0)
    return atoms if unit else atoms * 10.0 ** rng.uniform(-1.0, 1.0, k), samples


def dense(codes: SparseRows, k: int) -> Float:
    return np.asarray(codes.csr(k).toarray())


def same(one: SparseRows, two: SparseRows) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("T", [1, 3, 9])
@pytest.mark.parametrize("selection", ["scaled", "plain"])
def test_codes_on_unit_atoms_are_those_of_scikit_learn(seed: int, T: int, selection: Any) -> None:
    D, X = make_problem(seed, unit=True)
    codes = omp_codes(D.T @ D, X @ D, T, selection=selection)
    expected = orthogonal_mp_gram(D.T @ D, D.T @ X.T, n_nonzero_coefs=T).T
    np.testing.assert_allclose(dense(codes, 9), expected, atol=1e-10)
    assert (codes.counts == T).all()


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    d=st.integers(2, 12),  # on a line all atoms are equal
    k=st.integers(1, 15),
    T=st.integers(1, 5),
    selection=st.sampled_from(["scaled", "plain"]),
)
def test_codes_are_those_of_least_squares_on_vectors(seed: int, d: int, k: int, T: int, selection: Any) -> None:
    D, X = make_problem(seed, d, k)
    T = min(T, d)  # beyond, what is left over is rounding
    ours = dense(omp_codes(D.T @ D, X @ D, T, selection=selection), k)
    for x, code in zip(X, ours, strict=True):
        twin = naive_ksvd.omp(D, x, T, selection)
        assert np.array_equal(code != 0, twin != 0)
        np.testing.assert_allclose(D @ code, D @ twin, atol=1e-6)


def test_scaled_looks_at_the_angle_and_plain_at_the_product() -> None:
    D = np.array([[10.0, 0.9], [10.0, 0.1]])  # a long atom at 45 degrees, a short one nearly along x
    gram, linear = D.T @ D, (np.array([1.0, 0.0]) @ D)[None]
    assert omp_codes(gram, linear, 1).indices.tolist() == [[1]]
    assert omp_codes(gram, linear, 1, selection="plain").indices.tolist() == [[0]]


@pytest.mark.parametrize("seed", range(5))
def test_the_first_scaled_pick_explains_most_by_itself(seed: int) -> None:
    D, X = make_problem(seed)
    codes = omp_codes(D.T @ D, X @ D, 1)
    alone = [[((x - d * (d @ x) / (d @ d)) ** 2).sum() for d in D.T] for x in X]
    assert codes.indices[:, 0].tolist() == np.argmin(alone, axis=1).tolist()


@pytest.mark.parametrize("selection", ["scaled", "plain"])
@pytest.mark.parametrize("power", [-200, -1, 3, 200])
def test_scaling_samples_scales_codes(selection: Any, power: int) -> None:
    """A power of two changes no digit, and no tolerance is absolute."""
    D, X = make_problem(0)
    plain = omp_codes(D.T @ D, X @ D, 4, selection=selection)
    scaled = omp_codes(D.T @ D, 2.0**power * (X @ D), 4, selection=selection)
    assert same(scaled, plain._replace(values=2.0**power * plain.values))
    assert (plain.counts == 4).all()


@pytest.mark.parametrize("power", [-30, 30])
def test_the_length_of_an_atom_is_of_no_matter_to_scaled_selection(power: int) -> None:
    """Also of a single one, by a factor at which a product alone would decide."""
    D, X = make_problem(1)
    lengths = np.where(np.arange(9) == 4, 2.0 ** (power / 2), 1.0)
    plain, longer = omp_codes(D.T @ D, X @ D, 4), omp_codes((D * lengths).T @ (D * lengths), X @ (D * lengths), 4)
    assert np.array_equal(plain.indices, longer.indices)
    assert (plain.indices == 4).any()
    np.testing.assert_allclose(dense(longer, 9) * lengths, dense(plain, 9), rtol=1e-9)


@pytest.mark.parametrize("selection", ["scaled", "plain"])
def test_an_atom_that_depends_on_those_picked_is_banned_and_costs_no_place(selection: Any) -> None:
    """The products of two equal atoms differ, as in a kernel that is rounded: the second looks useful, and is not."""
    gram = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    codes = omp_codes(gram, [[1.0, 1.1, 0.05]], 2, selection=selection)
    assert dense(codes, 3).tolist() == [[0.0, 1.1, 0.05]]


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), rank=st.integers(1, 6), copies=st.integers(1, 3))
def test_no_more_atoms_are_used_than_there_are_dimensions(seed: int, rank: int, copies: int) -> None:
    D, X = make_problem(seed, rank, 8)
    D = np.tile(D, (1, copies))
    codes = omp_codes(D.T @ D, X @ D, T=20)
    assert codes.indices.shape[1] == min(20, 8 * copies)
    assert codes.counts.max() <= rank
    # with that many they are all rebuilt exactly
    np.testing.assert_allclose(dense(codes, 8 * copies) @ D.T, X, atol=1e-6)


@pytest.mark.parametrize("selection", ["scaled", "plain"])
@pytest.mark.parametrize("square", [0.0, 1e-16, -1e-16])
def test_an_atom_of_norm_zero_is_never_picked(selection: Any, square: float) -> None:
    """Though rounding may give it a product with the sample."""
    gram = np.diag([square, 1.0, 1.0])
    codes = omp_codes(gram, [[5.0, 2.0, 1.0], [5.0, 0.0, 0.0]], 3, selection=selection)
    assert dense(codes, 3).tolist() == [[0.0, 2.0, 1.0], [0.0, 0.0, 0.0]]
    assert codes.counts.tolist() == [2, 0]


def test_atoms_that_are_all_of_norm_zero_give_empty_codes() -> None:
    assert omp_codes(np.zeros((2, 2)), [[1.0, 1.0]], 2).counts.tolist() == [0]


def test_it_stops_where_nothing_is_left_to_correlate() -> None:
    gram, linear = np.diag([1.0, 1.0, 4.0, 1.0]), [[1.0, 0.6, 0.9, 0.3], [10.0, 6.0, 9.0, 3.0]]
    # 0.9 is 0.45 per length: between 0.6 and 0.3 where atoms are compared by angle
    assert omp_codes(gram, linear, 4, tol=0.5).counts.tolist() == [2, 2]
    assert omp_codes(gram, linear, 4, tol=0.5, selection="plain").counts.tolist() == [3, 3]
    assert omp_codes(gram, linear, 4, tol=0.4).counts.tolist() == [3, 3]
    assert omp_codes(gram, linear, 4, tol=0.0).counts.tolist() == [4, 4]


def test_of_equals_the_first_is_picked_and_codes_are_in_ascending_order() -> None:
    codes = omp_codes(np.eye(4), [[1.0, 2.0, -2.0, 1.0]], 3)
    assert codes.indices.tolist() == [[0, 1, 2]]
    assert codes.values.tolist() == [[1.0, 2.0, -2.0]]


def test_a_sample_without_products_has_an_empty_code_and_no_samples_have_none() -> None:
    codes = omp_codes(np.eye(3), [[0.0, 0.0, 0.0]], 2)
    assert codes.counts.tolist() == [0]
    assert codes.indices.tolist() == [[-1, -1]]
    assert omp_codes(np.eye(3), np.empty((0, 3)), 2).csr(3).shape == (0, 3)


@pytest.mark.parametrize("selection", ["scaled", "plain"])
def test_threads_and_neighbours_in_a_block_do_not_change_a_bit(selection: Any) -> None:
    D, X = make_problem(3, d=20, k=30, m=200)
    gram, linear = D.T @ D, X @ D
    one = omp_codes(gram, linear, 6, selection=selection)
    assert same(one, omp_codes(gram, linear, 6, selection=selection, n_jobs=2))
    assert same(one.take(slice(37, 53)), omp_codes(gram, linear[37:53], 6, selection=selection))


@pytest.mark.parametrize("seed", range(4))
def test_explained_is_what_the_residual_is_short_of(seed: int) -> None:
    """Of codes by pursuit and of any others."""
    D, X = make_problem(seed)
    gram, linear = D.T @ D, X @ D
    pursuit = omp_codes(gram, linear, 3)
    other = pursuit._replace(values=pursuit.values + np.random.default_rng(seed).standard_normal((6, 3)))
    for codes in (pursuit, other, SparseRows.empty(6, 3)):
        residuals = ((X - dense(codes, 9) @ D.T) ** 2).sum(axis=1)
        np.testing.assert_allclose(explained(gram, linear, codes), (X**2).sum(axis=1) - residuals, atol=1e-9)
    # at the end of a pursuit it is b'g
    np.testing.assert_allclose(explained(gram, linear, pursuit), (linear * dense(pursuit, 9)).sum(axis=1), atol=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_a_longer_code_is_a_better_one_and_the_longest_is_least_squares(seed: int) -> None:
    D, X = make_problem(seed, k=6)
    gram, linear = D.T @ D, X @ D
    gains = np.array([explained(gram, linear, omp_codes(gram, linear, T)) for T in range(1, 7)])
    assert (np.diff(gains, axis=0) > 0).all()
    np.testing.assert_allclose(gains[5], (X**2).sum(axis=1) - np.linalg.lstsq(D, X.T, rcond=None)[1], atol=1e-9)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"gram": np.ones((2, 3))}, r"gram has shape \(2, 3\); it must be square"),
        ({"gram": np.ones(3)}, r"gram has shape \(3,\)"),
        ({"gram": np.ones((0, 0))}, "at least one row"),
        ({"linear": np.ones((4, 3))}, r"linear has shape \(4, 3\); with 2 atoms it must be \(samples, 2\)"),
        ({"linear": np.ones(2)}, r"linear has shape \(2,\)"),
        ({"gram": np.diag([1.0, np.nan])}, "must be finite; look for NaN or inf"),
        ({"linear": np.array([[1.0, np.inf]])}, "must be finite; look for NaN or inf"),
        ({"T": 0}, "T=0: must be a whole number of at least 1"),
        ({"T": 1.5}, "T=1.5: must be a whole number"),
        ({"tol": -0.1}, r"tol=-0.1: must be a number in \[0, 1\]"),
        ({"tol": 2.0}, r"tol=2.0: must be a number in \[0, 1\]"),
        ({"selection": "best"}, "selection='best': must be one of 'scaled', 'plain'"),
        ({"n_jobs": 0}, "n_jobs=0: must be None"),
    ],
)
def test_what_cannot_be_coded_is_said(changes: dict[str, Any], words: str) -> None:
    good: dict[str, Any] = {"gram": np.eye(2), "linear": np.ones((1, 2)), "T": 1}
    assert omp_codes(**good).counts.tolist() == [1]
    with pytest.raises(InputError, match=words):
        omp_codes(**good | changes)
