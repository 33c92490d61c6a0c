"""Sparse rows: round trips, products against dense ones, and bits that do not depend on threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import sparse

from cksc_dist.maths.sparse import STRIP, SparseRows, inner_products, weighted_rows

Float = NDArray[np.float64]


def some_rows(rows: int, columns: int, width: int, seed: int) -> tuple[SparseRows, Float]:
    """Rows with 0 to `width` non-zeros of any sign, and the same as a dense array."""
    rng = np.random.default_rng(seed)
    dense = np.zeros((rows, columns))
    out = SparseRows.empty(rows, width)
    for row in range(rows):
        count = int(rng.integers(0, min(width, columns) + 1))
        at = np.sort(rng.choice(columns, size=count, replace=False))
        dense[row, at] = rng.normal(size=count)
        out.indices[row, :count] = at
        out.values[row, :count] = dense[row, at]
        out.counts[row] = count
    return out, dense


@settings(max_examples=40, deadline=None, derandomize=True)
@given(rows=st.integers(1, 12), columns=st.integers(1, 12), width=st.integers(1, 9), seed=st.integers(0, 2**16))
def test_round_trip(rows: int, columns: int, width: int, seed: int) -> None:
    there, dense = some_rows(rows, columns, width, seed)
    matrix = there.csr(columns)
    assert matrix.shape == (rows, columns)
    assert matrix.has_sorted_indices
    np.testing.assert_array_equal(matrix.toarray(), dense)
    back = SparseRows.from_csr(matrix, width)
    for part, expected in zip(back, there, strict=True):
        assert part.dtype == expected.dtype
        np.testing.assert_array_equal(part, expected)


def test_rows_without_entries() -> None:
    rows = SparseRows.empty(3, 2)
    assert rows.csr(5).nnz == 0
    assert rows.csr(5).shape == (3, 5)
    np.testing.assert_array_equal(inner_products(rows, np.ones((4, 5))), np.zeros((4, 3)))
    np.testing.assert_array_equal(weighted_rows(np.ones((5, 6)), rows.csr(5)), np.zeros((3, 6)))


def test_rows_of_an_unsorted_matrix_come_out_ascending() -> None:
    unsorted = sparse.csr_array((np.array([1.0, 2.0, 3.0]), np.array([4, 0, 2]), np.array([0, 2, 3])), shape=(2, 5))
    rows = SparseRows.from_csr(unsorted, 3)
    np.testing.assert_array_equal(rows.indices, [[0, 4, -1], [2, -1, -1]])
    np.testing.assert_array_equal(rows.values, [[2.0, 1.0, 0.0], [3.0, 0.0, 0.0]])
    np.testing.assert_array_equal(unsorted.indices, [4, 0, 2])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
# widths around the strips and around the four rows that are added at a time
@pytest.mark.parametrize("columns", [1, STRIP - 1, STRIP, 2 * STRIP + 3])
@pytest.mark.parametrize("width", [1, 3, 4, 5, 9])
def test_weighted_rows_are_the_dense_product(columns: int, width: int, dtype: Any) -> None:
    rows, dense = some_rows(20, 40, width, seed=width)
    K = np.random.default_rng(columns).normal(size=(40, columns)).astype(dtype)
    product = weighted_rows(K, rows.csr(40))
    assert product.dtype == np.float64
    np.testing.assert_allclose(product, dense @ K.astype(np.float64), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_inner_products_are_the_dense_product(dtype: Any) -> None:
    rows, dense = some_rows(30, 50, 6, seed=0)
    other = np.random.default_rng(1).normal(size=(70, 50)).astype(dtype)
    product = inner_products(rows, other)
    assert product.dtype == np.float64
    np.testing.assert_allclose(product, other.astype(np.float64) @ dense.T, rtol=1e-12, atol=1e-12)


def test_bits_do_not_depend_on_threads() -> None:
    # more rows than one block holds, so that there is something to share out
    rows, _ = some_rows(150, 200, 8, seed=0)
    K = np.random.default_rng(1).normal(size=(200, 700))
    weighted = [weighted_rows(K, rows.csr(200), n_jobs).tobytes() for n_jobs in (None, 1, 2, 3)]
    inner = [inner_products(rows, K[:, :200].copy(), n_jobs).tobytes() for n_jobs in (None, 1, 2, 3)]
    assert len(set(weighted)) == 1
    assert len(set(inner)) == 1


def test_bits_do_not_depend_on_what_else_is_computed() -> None:
    rows, _ = some_rows(60, 200, 8, seed=2)
    K = np.random.default_rng(3).normal(size=(200, 1300))
    together = weighted_rows(K, rows.csr(200))
    for j in (0, 17, 59):
        alone = SparseRows(rows.indices[[j]], rows.values[[j]], rows.counts[[j]])
        assert weighted_rows(K, alone.csr(200))[0].tobytes() == together[j].tobytes()
        part = np.ascontiguousarray(K[:, 100:900])
        assert weighted_rows(part, alone.csr(200))[0].tobytes() == together[j, 100:900].tobytes()


def test_sums_run_over_the_entries_in_ascending_order() -> None:
    # 1e16 + 1 + 1 + ... loses every 1 when it comes first, and none when they are summed before it
    K = np.ones((9, 3))
    K[0] = 1e16
    ascending = sparse.csr_array(np.ones((1, 9)))
    total = 1e16
    for _ in range(8):
        total += 1.0
    np.testing.assert_array_equal(weighted_rows(K, ascending), np.full((1, 3), total))
    assert total != 1e16 + 8.0
