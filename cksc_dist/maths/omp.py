"""Orthogonal matching pursuit for many samples on one dictionary, from inner products alone (Batch-OMP).

With atoms D, their Gram matrix A = D'D and the products b = D'x of a sample x:

    minimise  ||x - D g||^2 = x'x - 2 b'g + g'A g   subject to  at most T entries of g non-zero

1. S = {}, g = 0, residual correlations r = b.
2. Of the atoms outside S pick the one of largest ``|r_j| / sqrt(A_jj)`` (selection "scaled": the one that explains
   most by itself) or of largest ``|r_j|`` ("plain"); of equals the lowest index. Stop if |S| = T, or if that r_j is
   below ``tol`` of the largest |b_j| (both divided by the root, where scaled).
3. Grow the Cholesky factor A_SS = L L' by one row. A pivot below ``1e-10 A_jj`` means that atom j depends on S: ban
   it, back to 2.
4. Solve L L'g_S = b_S, r = b - A_.S g_S, back to 2.

For atoms of norm 1 the two selections are the same, and the codes those of `sklearn.linear_model.orthogonal_mp_gram`.
At the end ``||x - D g||^2 = x'x - b_S'g_S``. All tolerances are relative: scaling x scales g.

Y. Pati, R. Rezaiifar, P. Krishnaprasad, Orthogonal matching pursuit, Asilomar 1993; R. Rubinstein, M. Zibulevsky,
M. Elad, Efficient implementation of the K-SVD algorithm using batch orthogonal matching pursuit, 2008.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cksc_dist.errors import InputError
from cksc_dist.maths.nqp_steps import compiled
from cksc_dist.maths.sparse import SparseRows
from cksc_dist.maths.threads import run_blocks
from cksc_dist.spec import check_choice, check_count, check_number

__all__ = ["explained", "omp_codes"]

Float = NDArray[np.float64]
Int = NDArray[np.int64]

DEPENDENT = 1e-10
"""A pivot below this share of the diagonal: the atom lies in the span of those already picked."""

BLOCK = 32
"""Samples that a thread takes at a time."""


@compiled
def _pick(r: Float, weights: Float, free: NDArray[np.bool_]) -> tuple[int, float]:
    """Return the free atom of largest weighted correlation, and that; -1 if there is none."""
    best, largest = -1, 0.0
    for j in range(len(r)):
        value = abs(r[j]) * weights[j]
        if free[j] and value > largest:
            best, largest = j, value
    return best, largest


@compiled
def _grow(gram: Float, lower: Float, support: Int, size: int, j: int) -> bool:
    """Add the row of atom j to the Cholesky factor; False if j depends on the atoms in the support."""
    pivot = gram[j, j]
    for s in range(size):
        total = gram[j, support[s]]
        for t in range(s):
            total -= lower[size, t] * lower[s, t]
        lower[size, s] = total / lower[s, s]
        pivot -= lower[size, s] ** 2
    if not pivot > DEPENDENT * gram[j, j]:
        return False
    lower[size, size] = np.sqrt(pivot)
    return True


@compiled
def _solve(lower: Float, support: Int, size: int, b: Float, g: Float) -> None:
    """Fill g with the solution of L L'g = b_S."""
    for s in range(size):
        total = b[support[s]]
        for t in range(s):
            total -= lower[s, t] * g[t]
        g[s] = total / lower[s, s]
    for s in range(size - 1, -1, -1):
        total = g[s]
        for t in range(s + 1, size):
            total -= lower[t, s] * g[t]
        g[s] = total / lower[s, s]


@compiled
def _code_block(
    gram: Float, linear: Float, weights: Float, tol: float, indices: Int, values: Float, counts: Int
) -> None:
    """Fill the codes of some samples."""
    k, T = len(gram), indices.shape[1]
    lower, support, g = np.zeros((T, T)), np.zeros(T, dtype=np.int64), np.zeros(T)
    r, free = np.empty(k), np.empty(k, dtype=np.bool_)
    for row in range(len(linear)):
        b = linear[row]
        r[:] = b
        free[:] = True
        size, floor = 0, -1.0
        while size < T:
            j, largest = _pick(r, weights, free)
            if floor < 0.0:
                floor = tol * largest
            if j < 0 or largest <= floor:
                break
            free[j] = False
            if not _grow(gram, lower, support, size, j):
                continue
            support[size] = j
            size += 1
            _solve(lower, support, size, b, g)
            # r = b - A_.S g_S
            r[:] = b
            for s in range(size):
                column = gram[support[s]]
                for i in range(k):
                    r[i] -= g[s] * column[i]
        order = np.argsort(support[:size])
        for s in range(size):
            indices[row, s], values[row, s] = support[order[s]], g[order[s]]
        counts[row] = size


def omp_codes(
    gram: ArrayLike,
    linear: ArrayLike,
    T: int,
    *,
    tol: float = 1e-10,
    selection: Literal["scaled", "plain"] = "scaled",
    n_jobs: int | None = None,
) -> SparseRows:
    """Return signed codes of many samples on one dictionary by orthogonal matching pursuit.

    Parameters
    ----------
    gram
        (k, k) inner products of the atoms, symmetric, positive semi-definite. An atom of norm 0 is never picked.
    linear
        (m, k) inner products of each sample with the atoms.
    T
        At most this many non-zeros in a code.
    tol
        Stop once no correlation is above this share of the largest one at the start.
    selection
        How the next atom is picked: ``"scaled"`` by its correlation over its norm, ``"plain"`` by its correlation.
    n_jobs
        Threads: None is 1, -1 all cores. The result does not depend on it.

    Returns
    -------
    SparseRows
        One code a row, at most min(T, k) wide.

    Examples
    --------
    >>> codes = omp_codes([[1.0, 0.5], [0.5, 1.0]], [[1.0, 0.2], [0.0, 0.0]], T=2)
    >>> codes.csr(2).toarray().round(3).tolist()
    [[1.2, -0.4], [0.0, 0.0]]
    """
    A, B = np.ascontiguousarray(gram, dtype=np.float64), np.asarray(linear, dtype=np.float64)
    if A.ndim != 2 or A.shape[0] != A.shape[1] or not len(A):
        raise InputError(f"gram has shape {A.shape}; it must be square with at least one row")
    if B.ndim != 2 or B.shape[1] != len(A):
        raise InputError(f"linear has shape {B.shape}; with {len(A)} atoms it must be (samples, {len(A)})")
    if not (np.isfinite(A).all() and np.isfinite(B).all()):
        raise InputError("gram and linear must be finite; look for NaN or inf in the kernel that they come from")
    check_count("T", T)
    check_number("tol", tol, 0.0, 1.0)
    check_choice("selection", selection, ("scaled", "plain"))
    # a read-only array is another type to the compiled steps, which would be compiled once more for it
    A, B = np.require(A, requirements=["C", "W"]), np.require(B, requirements=["C", "W"])
    diagonal = np.diagonal(A)
    usable = diagonal > 1e-14 * max(diagonal.max(), 0.0)
    weights = np.zeros(len(A))
    weights[usable] = 1.0 if selection == "plain" else 1.0 / np.sqrt(diagonal[usable])
    codes = SparseRows.empty(len(B), min(int(T), len(A)))

    def block(first: int, last: int) -> None:
        part = slice(first, last)
        _code_block(A, B[part], weights, float(tol), codes.indices[part], codes.values[part], codes.counts[part])

    run_blocks(block, len(B), BLOCK, n_jobs)
    return codes


@compiled
def _explained(gram: Float, linear: Float, indices: Int, values: Float, counts: Int, out: Float) -> None:
    for row in range(len(linear)):
        total = 0.0
        for s in range(counts[row]):
            along = 2.0 * linear[row, indices[row, s]]
            for t in range(counts[row]):
                along -= gram[indices[row, s], indices[row, t]] * values[row, t]
            total += values[row, s] * along
        out[row] = total


def explained(gram: Float, linear: Float, codes: SparseRows) -> Float:
    """Return ``2 b'g - g'A g`` of each sample, by which its code lowers ``||x - D g||^2`` below x'x.

    Examples
    --------
    >>> gram, linear = np.array([[1.0, 0.5], [0.5, 1.0]]), np.array([[1.0, 0.2]])
    >>> explained(gram, linear, omp_codes(gram, linear, T=1)).tolist()
    [1.0]
    """
    out = np.empty(len(linear))
    _explained(gram, linear, *codes, out)
    return out
