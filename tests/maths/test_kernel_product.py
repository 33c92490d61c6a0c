"""K V in vector registers: against NumPy, and to the bit against sums that run in ascending order, term by term."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from cksc_dist.errors import InputError
from cksc_dist.maths.kernel_product import Columns, kernel_product, multiply

DTYPES = ["float32", "float64"]
WIDTHS = [1, 2, 7, 8, 9, 16, 31, 32, 40]


def made(rows: int, n: int, width: int, dtype: str, seed: int = 0) -> tuple[NDArray[Any], NDArray[np.float64]]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((rows, n)).astype(dtype), rng.standard_normal((n, width))


def slow_product(K: NDArray[Any], V: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sums in ascending order; each product and each sum is rounded once, together or one after the other."""
    out = np.zeros((len(K), V.shape[1]))
    for j in range(K.shape[1]):
        out += K[:, j].astype(np.float64)[:, None] * V[j]
    return out


def of_few_bits(K: NDArray[Any], V: NDArray[np.float64]) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Round factors to 24 and 29 bits: their products are exact, and only the order of the sums is left to see."""
    fractions, exponents = np.frexp(V)
    return K.astype(np.float32).astype(K.dtype), np.ldexp(np.round(fractions * 2.0**29) / 2.0**29, exponents)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(("rows", "n"), [(1, 1), (3, 5), (4, 256), (5, 257), (66, 300), (130, 513), (67, 255)])
def test_it_is_the_product(rows: int, n: int, width: int, dtype: str) -> None:
    K, V = made(rows, n, width, dtype)
    out = multiply(K, Columns.of(V))
    assert out.shape == (rows, width)
    assert out.dtype == np.float64
    np.testing.assert_allclose(out, K.astype(np.float64) @ V, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [1, 8, 13, 40])
@pytest.mark.parametrize(("rows", "n"), [(7, 3), (64, 256), (70, 1030), (129, 511)])
def test_sums_run_in_ascending_order(rows: int, n: int, width: int, dtype: str) -> None:
    K, V = of_few_bits(*made(rows, n, width, dtype, seed=1))
    expected = slow_product(K, V)
    assert np.array_equal(multiply(K, Columns.of(V)), expected)
    # or else the test would say nothing
    backwards = slow_product(K[:, ::-1], V[::-1])
    assert n < 10 or not np.array_equal(backwards, expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n_jobs", [1, 2, 3, -1])
def test_threads_change_no_bit(dtype: str, n_jobs: int) -> None:
    K, V = made(333, 333, 11, dtype)
    assert np.array_equal(kernel_product(K, n_jobs)(V), kernel_product(K)(V))


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 600),
    width=st.integers(1, 40),
    dtype=st.sampled_from(DTYPES),
    cuts=st.lists(st.integers(0, 150), max_size=6),
    seed=st.integers(0, 10**6),
)
def test_how_rows_are_cut_changes_no_bit(n: int, width: int, dtype: str, cuts: list[int], seed: int) -> None:
    K, V = made(150, n, width, dtype, seed)
    columns = Columns.of(V)
    edges = sorted({0, 150, *cuts})
    parts = [multiply(np.ascontiguousarray(K[a:b]), columns) for a, b in pairwise(edges)]
    assert np.array_equal(np.concatenate(parts), multiply(K, columns))


@settings(max_examples=40, deadline=None)
@given(width=st.integers(1, 40), other=st.integers(1, 40), seed=st.integers(0, 10**6))
def test_a_column_does_not_know_its_neighbours(width: int, other: int, seed: int) -> None:
    K, V = made(9, 301, width, "float32", seed)
    more = np.hstack([V, np.random.default_rng(seed + 1).standard_normal((301, other))])
    assert np.array_equal(multiply(K, Columns.of(more))[:, :width], multiply(K, Columns.of(V)))


def test_v_need_not_lie_row_by_row() -> None:
    K, V = made(20, 50, 6, "float64")
    assert np.array_equal(multiply(K, Columns.of(np.asfortranarray(V))), multiply(K, Columns.of(V)))
    assert np.array_equal(multiply(K, Columns.of(V[:, ::2])), multiply(K, Columns.of(V))[:, ::2])


def test_float32_is_widened_before_it_is_multiplied() -> None:
    K = np.full((5, 1000), 0.1, np.float32)
    V = np.full((1000, 3), 1e-7)
    np.testing.assert_allclose(multiply(K, Columns.of(V)), np.full((5, 3), float(np.float32(0.1)) * 1e-4), rtol=1e-13)


@pytest.mark.parametrize("rows", [0, 49, 51])
def test_a_v_of_other_rows_is_told(rows: int) -> None:
    K, V = made(20, 50, 6, "float64")
    with pytest.raises(InputError, match=f"V has {rows} rows, but K 50 columns"):
        multiply(K, Columns.of(np.resize(V, (rows, 6))))
