"""JKSRC: joint kernel sparse representation over several kernels; a reconstruction on Gram matrices.

M kernels of the same samples, one for each modality (dimension, sensor), K^m with k_z^m of a new sample z. The training
set is the dictionary. X (N x M) holds one code for each kernel, with non-zeros in few rows, the same for all kernels:

    f(X) = sum_m K^m_zz - 2 k_z^m' x^m + x^m' K^m x^m

Greedy, T0 times: add the row j of largest ``sum_m (k_z^m - K^m x^m)_j^2 / K^m_jj``, solve every kernel anew on the
common support. Where a sample depends on the support in one kernel, that kernel goes without it.

Convex: minimise ``f(X) + lambda sum_j |X_j|`` with |X_j| the Euclidean norm of a row; lambda is a share of lambda_max =
``2 max_j |(k_z)_j|``, from which on X = 0. Solved row by row (block coordinate descent) on the rows in use, with

    t_j = (k_z - K x)_j + D x_j,   D = max_m K^m_jj,    X_j <- max(0, 1 - lambda / (2 |t_j|)) t_j / D

then rows that violate their optimality condition are taken in, until no row violates it, whether in use or not:

    |X_j| = 0:  2 |(k_z - K x)_j| <= lambda,        |X_j| > 0:  2 (k_z - K x)_j = lambda X_j / |X_j|

The problem is that which a proximal gradient (FISTA) with row shrinkage solves; this comes to its minimum sooner.

The label is the class of least residual, summed over the kernels, with the coefficients of that class alone:

    r_q = sum_m K^m_zz - 2 k_z^m' x^m_q + x_q^m' K^m x_q^m

With one kernel this is kernel SRC: the greedy form is kernel OMP, the convex one the lasso.

H. Liu, D. Guo, F. Sun, Object recognition using tactile measurements: kernel sparse coding methods, IEEE TIM 2016.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from cksc_dist.maths.nqp_steps import compiled
from cksc_dist.maths.threads import run_blocks

__all__ = ["class_residuals", "convex_codes", "greedy_codes"]

Float = NDArray[np.float64]
Index = NDArray[np.int64]

DEPENDENT = 1e-10
"""A pivot below this share of the diagonal: the sample lies in the span of the support."""

NOTHING_LEFT = 1e-20
"""The greedy search stops where the best row is below this share of the first one; of squares."""

ACCURACY = 1e-4
"""The optimality conditions of the convex form hold up to this share of lambda, unless `SWEEPS` run out."""

LOOSE = 0.1
"""Rows in use settle to this share of the largest violation before others are taken in: these move them anyway."""

SWEEPS = 20_000
"""At most so many passes over the rows in use, for a sample."""

ENTRANTS = 8
"""At most so many rows are taken in at a time, those that violate their condition most."""

BLOCK = 16
"""Samples that a thread takes at a time."""


def greedy_codes(K: Float, rows: Float, sparsity: int, n_jobs: int | None = None) -> Any:
    """Return the greedy codes of new samples.

    Parameters
    ----------
    K
        (M, n, n), kernels of the training samples.
    rows
        (m, M, n), kernels of the new samples with them.
    sparsity
        T0: at most this many rows of X are non-zero.
    n_jobs
        Threads. No bit of the result depends on it.

    Returns
    -------
    csr_array
        (m, M n): the codes of a sample for all kernels, one kernel after the other.

    Examples
    --------
    >>> K = np.array([np.eye(3), np.eye(3)])
    >>> greedy_codes(K, np.array([[[0.9, 0.1, 0.0], [0.5, 0.6, 0.1]]]), 1).toarray().tolist()
    [[0.9, 0.0, 0.0, 0.5, 0.0, 0.0]]
    """
    width = min(sparsity, K.shape[1])

    def code(first: int, last: int) -> Any:
        support = np.full((last - first, width), -1)
        values = np.zeros((last - first, K.shape[0], width))
        _greedy_block(K, rows[first:last], support, values)
        return _placed(support, values, K.shape[1])

    return _stacked(run_blocks(code, len(rows), BLOCK, n_jobs))


def convex_codes(K: Float, rows: Float, shrinkage: float, n_jobs: int | None = None) -> Any:
    """Return the codes of new samples that minimise the convex form.

    Parameters
    ----------
    K, rows, n_jobs
        As for `greedy_codes`.
    shrinkage
        lambda / lambda_max, in (0, 1]; at 1 every code is 0.

    Returns
    -------
    csr_array
        As of `greedy_codes`.

    Examples
    --------
    >>> K = np.array([np.eye(3)])
    >>> convex_codes(K, np.array([[[0.8, 0.6, 0.1]]]), 0.5).toarray().round(3).tolist()
    [[0.4, 0.2, 0.0]]
    """

    def code(first: int, last: int) -> Any:
        values = np.zeros((last - first, *K.shape[:2]))
        _convex_block(K, rows[first:last], shrinkage, values)
        return sparse.csr_array(values.reshape(last - first, -1))

    return _stacked(run_blocks(code, len(rows), BLOCK, n_jobs))


def _placed(support: Index, values: Float, n: int) -> Any:
    """Return codes (m, M n), sparse, from the support (m, T) and the values on it (m, M, T)."""
    sample, kernel, place = np.nonzero(values)
    columns = kernel * n + support[sample, place]
    shape = (len(support), values.shape[1] * n)
    codes = sparse.csr_array((values[sample, kernel, place], (sample, columns)), shape=shape)
    codes.sort_indices()
    return codes


def _stacked(parts: list[Any]) -> Any:
    codes = sparse.csr_array(sparse.vstack(parts, format="csr"))
    codes.sort_indices()
    return codes


@compiled
def _greedy_block(K: Float, rows: Float, support: Index, values: Float) -> None:
    """Fill the support (m, T) and the codes on it (m, M, T)."""
    kernels, n = K.shape[0], K.shape[1]
    width = support.shape[1]
    lower = np.empty((kernels, width, width))  # factors K_SS = R R', one for each kernel
    places = np.empty((kernels, width), np.int64)  # which of the support each kernel goes with
    forward, solution = np.empty((kernels, width)), np.empty(width)
    sizes = np.empty(kernels, np.int64)
    residual, row = np.empty((kernels, n)), np.empty(width)
    open_rows = np.empty(n, np.bool_)
    for z in range(len(rows)):
        residual[:] = rows[z]
        sizes[:] = 0
        open_rows[:] = True
        size, first = 0, 0.0
        while size < width:
            j, best = _largest_row(K, residual, open_rows)
            if j < 0 or best <= NOTHING_LEFT * first:
                break
            first = max(first, best)
            open_rows[j] = False
            support[z, size] = j
            grew = False
            for m in range(kernels):
                if not _grow(K[m], lower[m], forward[m], places[m], sizes[m], support[z], j, rows[z, m, j], row):
                    continue
                places[m, sizes[m]] = size
                sizes[m] += 1
                grew = True
                _back_substitute(lower[m], forward[m], sizes[m], solution)
                # k_z - K x
                residual[m] = rows[z, m]
                for s in range(sizes[m]):
                    values[z, m, places[m, s]] = solution[s]
                    _subtract(residual[m], solution[s], K[m, support[z, places[m, s]]])
            if grew:
                size += 1


@compiled
def _subtract(total: Float, weight: float, row: Float) -> None:
    for i in range(len(total)):
        total[i] -= weight * row[i]


@compiled
def _largest_row(K: Float, residual: Float, open_rows: NDArray[np.bool_]) -> tuple[int, float]:
    """Return the row of largest sum_m residual^2 / K_jj and that sum; -1 where all are 0."""
    j, best = -1, 0.0
    for i in range(len(open_rows)):
        if not open_rows[i]:
            continue
        total = 0.0
        for m in range(len(K)):
            total += residual[m, i] * residual[m, i] / K[m, i, i]
        if total > best:
            j, best = i, total
    return j, best


@compiled
def _grow(
    K: Float,
    lower: Float,
    forward: Float,
    places: Index,
    size: int,
    support: Index,
    j: int,
    target: float,
    row: Float,
) -> bool:
    """Grow a factor of K_SS by sample j, and the forward solution with it; False where j depends on S."""
    pivot = K[j, j]
    for s in range(size):
        total = K[j, support[places[s]]]
        for t in range(s):
            total -= row[t] * lower[s, t]
        row[s] = total / lower[s, s]
        pivot -= row[s] * row[s]
    if pivot <= DEPENDENT * K[j, j]:
        return False
    for s in range(size):
        lower[size, s] = row[s]
        target -= row[s] * forward[s]
    lower[size, size] = np.sqrt(pivot)
    forward[size] = target / lower[size, size]
    return True


@compiled
def _back_substitute(lower: Float, forward: Float, size: int, solution: Float) -> None:
    for s in range(size - 1, -1, -1):
        total = forward[s]
        for t in range(s + 1, size):
            total -= lower[t, s] * solution[t]
        solution[s] = total / lower[s, s]


@compiled
def _convex_block(K: Float, rows: Float, shrinkage: float, values: Float) -> None:
    """Fill the codes (m, M, n), which are 0 at the start."""
    kernels, n = K.shape[0], K.shape[1]
    residual = np.empty((kernels, n))
    active = np.empty(n, np.int64)
    used = np.empty(n, np.bool_)
    step, norms = np.empty(kernels), np.empty(n)
    for z in range(len(rows)):
        X = values[z]
        residual[:] = rows[z]
        largest = 0.0
        for j in range(n):
            largest = max(largest, _row_norm(residual, j))
        half = shrinkage * largest  # lambda / 2
        used[:] = False
        count, sweeps = 0, 0
        while sweeps < SWEEPS:
            for j in range(n):
                norms[j] = 0.0 if used[j] else _row_norm(residual, j)
            worst = np.argsort(-norms, kind="mergesort")
            violation = max(norms[worst[0]] - half, _violation(X, residual, active[:count], half))
            if violation <= ACCURACY * half:
                break
            for j in worst[:ENTRANTS]:
                if norms[j] > half * (1.0 + ACCURACY):
                    used[j], active[count] = True, j
                    count += 1
            # a little less than is asked for, because the residual is made anew
            goal = max(0.9 * ACCURACY * half, LOOSE * violation)
            sweeps = _settle(K, X, residual, active[:count], half, goal, sweeps, step)
            # k_z - K x of all rows, anew: the sweeps renew it for those in use alone
            residual[:] = rows[z]
            for a in range(count):
                for m in range(kernels):
                    if X[m, active[a]] != 0.0:
                        _subtract(residual[m], X[m, active[a]], K[m, active[a]])


@compiled
def _settle(
    K: Float, X: Float, residual: Float, active: Index, half: float, goal: float, sweeps: int, step: Float
) -> int:
    """Sweep over the rows in use until none violates its condition by more than ``goal``; return the sweeps so far."""
    while sweeps < SWEEPS:
        for j in active:
            _renew_row(K, X, residual, active, j, half, step)
        sweeps += 1
        if _violation(X, residual, active, half) <= goal:
            break
    return sweeps


@compiled
def _violation(X: Float, residual: Float, rows: Index, half: float) -> float:
    """Return by how much the worst of some rows violates its optimality condition, divided by 2."""
    worst = 0.0
    for j in rows:
        norm, excess = _row_norm(X, j), 0.0
        if norm > 0.0:
            for m in range(len(X)):
                excess += (residual[m, j] - half * X[m, j] / norm) ** 2
            excess = np.sqrt(excess)
        else:
            excess = _row_norm(residual, j) - half
        worst = max(worst, excess)
    return worst


@compiled
def _renew_row(K: Float, X: Float, residual: Float, active: Index, j: int, half: float, step: Float) -> None:
    """Take the step that lowers the objective over row j; with diagonals that are the same it is to its minimum."""
    kernels = len(K)
    curvature = 0.0
    for m in range(kernels):
        curvature = max(curvature, K[m, j, j])
    norm = 0.0
    for m in range(kernels):
        step[m] = residual[m, j] + curvature * X[m, j]  # t_j
        norm += step[m] * step[m]
    norm = np.sqrt(norm)
    shrink = 1.0 - half / norm if norm > half else 0.0
    for m in range(kernels):
        new = shrink * step[m] / curvature
        change = new - X[m, j]
        if change == 0.0:
            continue
        X[m, j] = new
        for i in active:
            residual[m, i] -= change * K[m, j, i]


@compiled
def _row_norm(X: Float, j: int) -> float:
    total = 0.0
    for m in range(len(X)):
        total += X[m, j] * X[m, j]
    return float(np.sqrt(total))


def class_residuals(K: Float, rows: Float, codes: Any, y: Index, n_classes: int) -> Float:
    """Return the residual of each class, summed over the kernels, (m, C); none is below 0.

    K_zz of a new sample is taken for the mean of the diagonal (which is 1 for Gaussian kernels), or for the most that
    a class explains where that is more: it is the same for all classes.

    Examples
    --------
    >>> K, rows = np.array([np.eye(2)]), np.array([[[0.8, 0.6]]])
    >>> class_residuals(K, rows, greedy_codes(K, rows, 2), np.array([0, 1]), 2).round(2).tolist()
    [[0.36, 0.64]]
    """
    explained = np.zeros((len(rows), n_classes))
    _explained(K, rows, codes.indptr, codes.indices, codes.data, y, explained)
    own = float(np.einsum("mii->mi", K).mean(axis=1).sum())
    residuals: Float = np.maximum(own, explained.max(axis=1, keepdims=True)) - explained
    return residuals


@compiled
def _explained(K: Float, rows: Float, edges: Index, columns: Index, values: Float, y: Index, out: Float) -> None:
    """Fill 2 k_z'x_q - x_q'K x_q of each class, summed over the kernels."""
    n = K.shape[1]
    for z in range(len(rows)):
        for a in range(edges[z], edges[z + 1]):
            m, i = columns[a] // n, columns[a] % n
            total = 2.0 * rows[z, m, i]
            for b in range(edges[z], edges[z + 1]):
                j = columns[b] % n
                if columns[b] // n == m and y[j] == y[i]:
                    total -= values[b] * K[m, i, j]
            out[z, y[i]] += values[a] * total
