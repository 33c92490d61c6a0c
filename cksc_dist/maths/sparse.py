"""Sparse rows of fixed width, and the few products of training, summed in a fixed order.

Rows of codes (one for each sample) and of atoms (one for each atom) hold at most T0 non-zeros, so they are kept
as arrays (rows, T0) of positions and values.

    weighted_rows    out[j, :] = sum_s w_js K[s, :]          (K U)' from atoms, (K G')' from the users of each atom
    inner_products   out[j, l] = sum_s w_js R[l, s]          U'K U from atoms and (K U)'

Every sum runs over the non-zeros in ascending order of position, without re-association: the bits depend
neither on the number of threads nor on how the work is cut (a BLAS would make them depend on both).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from cksc_dist.maths.threads import run_blocks

__all__ = ["SparseRows", "inner_products", "jit", "sparse_dot", "sum_rows", "weighted_rows"]

jit = numba.njit(nogil=True, cache=True, error_model="numpy")

STRIP = 512
"""Columns that are summed at a time: a strip of the result stays in the first cache."""


class SparseRows(NamedTuple):
    """Rows with few non-zeros: ascending ``indices`` (-1: unused), their ``values`` and ``counts``."""

    indices: NDArray[np.int64]
    values: NDArray[np.float64]
    counts: NDArray[np.int64]

    @classmethod
    def empty(cls, rows: int, width: int) -> SparseRows:
        """Return rows without non-zeros."""
        return cls(np.full((rows, width), -1), np.zeros((rows, width)), np.zeros(rows, dtype=np.int64))

    @classmethod
    def from_csr(cls, matrix: Any, width: int) -> SparseRows:
        """Return the rows of a CSR matrix that has at most ``width`` non-zeros in each."""
        matrix = matrix.sorted_indices()
        out = cls.empty(matrix.shape[0], width)
        counts = np.diff(matrix.indptr)
        place = np.arange(matrix.nnz) - np.repeat(matrix.indptr[:-1], counts)
        row = np.repeat(np.arange(matrix.shape[0]), counts)
        out.indices[row, place] = matrix.indices
        out.values[row, place] = matrix.data
        out.counts[:] = counts
        return out

    def take(self, rows: Any) -> SparseRows:
        """Return some of the rows, given as a slice or positions."""
        return SparseRows(self.indices[rows], self.values[rows], self.counts[rows])

    @classmethod
    def join(cls, parts: Sequence[SparseRows]) -> SparseRows:
        """Return the rows of several as one."""
        indices, values, counts = zip(*parts, strict=True)
        return cls(np.concatenate(indices), np.concatenate(values), np.concatenate(counts))

    def csr(self, columns: int) -> Any:
        """Return the rows as a CSR matrix (rows, columns) with sorted indices."""
        used = self.indices >= 0
        edges = np.concatenate([[0], np.cumsum(self.counts)])
        return sparse.csr_array((self.values[used], self.indices[used], edges), shape=(len(self.counts), columns))


@jit
def sum_rows(K, edges, indices, weights, first, last, out):
    """Fill ``out[j] = sum_s w_js K[s]`` for the rows first .. last of a CSR matrix of weights."""
    n = K.shape[1]
    for begin in range(0, n, STRIP):
        end = min(n, begin + STRIP)
        for j in range(first, last):
            total = out[j, begin:end]
            total[:] = 0.0
            s, stop = edges[j], edges[j + 1]
            # four rows at a time, added one after the other: one pass over `total` for four
            while s + 4 <= stop:
                w0, w1, w2, w3 = weights[s], weights[s + 1], weights[s + 2], weights[s + 3]
                r0, r1 = K[indices[s], begin:end], K[indices[s + 1], begin:end]
                r2, r3 = K[indices[s + 2], begin:end], K[indices[s + 3], begin:end]
                for i in range(end - begin):
                    total[i] = (((total[i] + w0 * r0[i]) + w1 * r1[i]) + w2 * r2[i]) + w3 * r3[i]
                s += 4
            while s < stop:
                weight, row = weights[s], K[indices[s], begin:end]
                for i in range(end - begin):
                    total[i] += weight * row[i]
                s += 1


def weighted_rows(K: NDArray[Any], weights: Any, n_jobs: int | None = None) -> NDArray[np.float64]:
    """Return ``weights @ K`` for a CSR matrix of weights (rows, n) and a C-contiguous K (n, columns)."""
    out = np.empty((weights.shape[0], K.shape[1]))
    edges, indices = weights.indptr.astype(np.int64), weights.indices.astype(np.int64)

    def block(first: int, last: int) -> None:
        sum_rows(K, edges, indices, weights.data, first, last, out)

    run_blocks(block, len(out), 16, n_jobs)
    return out


@jit
def sparse_dot(indices, values, count, vector):
    """Return the inner product of one sparse row with a vector."""
    total = 0.0
    for s in range(count):
        total += values[s] * vector[indices[s]]
    return total


@jit
def _inner_products(indices, values, counts, dense, first, last, out):
    for row in range(first, last):
        for j in range(len(counts)):
            out[row, j] = sparse_dot(indices[j], values[j], counts[j], dense[row])


def inner_products(rows: SparseRows, dense: NDArray[Any], n_jobs: int | None = None) -> NDArray[np.float64]:
    """Return ``dense @ rows'``, (rows of dense, sparse rows)."""
    out = np.empty((len(dense), len(rows.counts)))
    run_blocks(lambda i, j: _inner_products(*rows, dense, i, j, out), len(out), 64, n_jobs)
    return out
