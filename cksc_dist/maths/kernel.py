"""Kernels from distances: bandwidth, Gaussian and chi-square kernels.

Gaussian kernel of a distance matrix D (n x n, training) or of test rows (n_test x n)::

    K_ij = exp(-D_ij^2 / delta)
    delta = 2 mean(D)^2 | 2 median(D)^2 | mean(D) | a number

with mean and median over all n^2 ordered pairs of training samples, diagonal included.

Chi-square distance of two histograms a, b >= 0, and its kernel (0/0 = 0)::

    chi2(a, b) = sum_k (a_k - b_k)^2 / (a_k + b_k),    K_ij = exp(-chi2_ij / mean(chi2))
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from cksc_dist.errors import InputError
from cksc_dist.maths.matrix_checks import Matrix, as_matrix
from cksc_dist.spec import KernelSpec

__all__ = ["bandwidth", "chi_square", "chi_square_kernel", "gaussian_kernel"]

# Columns of one chi-square block: its accumulators stay in the first-level cache.
CHI_SQUARE_COLUMNS = 512


def bandwidth(D: ArrayLike, rule: str | float = "mean") -> float:
    """Return delta of the Gaussian kernel.

    Parameters
    ----------
    D
        Square distances of the training samples.
    rule
        ``"mean"``: 2 mean(D)^2; ``"median"``: 2 median(D)^2; ``"paper"``: mean(D); ``"squares"``: mean(D^2); a number:
        delta itself. Mean and median run over all ordered pairs, diagonal included.

    Examples
    --------
    >>> bandwidth([[0.0, 2.0], [2.0, 0.0]]), bandwidth([[0.0, 2.0], [2.0, 0.0]], "paper")
    (2.0, 1.0)
    """
    KernelSpec(bandwidth=rule)
    if not isinstance(rule, str):
        return float(rule)
    distances = as_matrix(D, "D")
    # float32 sums of n^2 terms would lose digits
    if rule == "squares":
        middle = float(np.square(distances, dtype=np.float64).mean())
    else:
        middle = float(np.median(distances) if rule == "median" else distances.mean(dtype=np.float64))
    delta = middle if rule in ("paper", "squares") else 2.0 * middle * middle
    if middle == 0:
        cause = "at least half of the distances are 0" if distances.any() else "all samples are identical"
        raise InputError(f"bandwidth={rule!r} gives delta = 0, because {cause}; remove the copies, or give a number")
    if not 0 < delta < np.inf:
        raise InputError(
            f"bandwidth={rule!r} gives delta = {delta:g}, because distances are of size {middle:g}; divide "
            "them by their maximum first"
        )
    return delta


def gaussian_kernel(D: ArrayLike, delta: float) -> Matrix:
    """Return ``exp(-D^2 / delta)``, float32 for float32 distances and float64 otherwise.

    One new array is made. A distance of 0 gives exactly 1, and a symmetric D a kernel symmetric to the bit.

    Examples
    --------
    >>> gaussian_kernel([[0.0, 1.0], [1.0, 0.0]], delta=1.0).round(3).tolist()
    [[1.0, 0.368], [0.368, 1.0]]
    """
    distances = as_matrix(D, "D")
    if not 0 < delta < np.inf:
        raise InputError(f"delta={delta!r}: must be a positive, finite number")
    K: Matrix = np.empty(distances.shape, dtype=distances.dtype)
    # Root first: D^2 may overflow where D^2 / delta does not. Where that does, exp(-inf) = 0 is right. The
    # float64 scalar makes a float32 quotient round once, and keeps 0 / root(delta) from being 0 / 0.
    with np.errstate(over="ignore"):
        np.divide(distances, np.sqrt(np.float64(delta)), out=K, casting="same_kind")
        np.square(K, out=K)
    np.negative(K, out=K)
    np.exp(K, out=K)
    return K


@njit(nogil=True, cache=True, error_model="numpy")
def _chi_square_block(
    A: NDArray[np.float64], B_columns: NDArray[np.float64], start: int, out: NDArray[np.float64]
) -> None:
    # The innermost loop runs over pairs, so it fills vector registers while each pair still sums its bins in
    # order: a value depends on its two histograms alone.
    sums = np.empty(B_columns.shape[1])
    for i in range(A.shape[0]):
        sums[:] = 0.0
        for k in range(A.shape[1]):
            a = A[i, k]
            for j in range(B_columns.shape[1]):
                difference = a - B_columns[k, j]
                total = a + B_columns[k, j]
                # quotient first: it is at most 1, so tiny bins do not underflow; 0/0 = 0
                sums[j] += difference * (difference / (total if total > 0.0 else 1.0))
        out[i, start : start + len(sums)] = sums


def _histograms(values: ArrayLike, name: str) -> NDArray[np.float64]:
    matrix = np.ascontiguousarray(as_matrix(values, name), dtype=np.float64)
    bad = ~(np.isfinite(matrix) & (matrix >= 0))
    if bad.any():
        i, k = np.argwhere(bad)[0]
        raise InputError(
            f"{name}: histogram {i} has {matrix[i, k]:g} in bin {k}; chi-square needs finite bins that are not negative"
        )
    return matrix


def chi_square(A: ArrayLike, B: ArrayLike | None = None) -> NDArray[np.float64]:
    """Return the chi-square distances ``sum (a - b)^2 / (a + b)`` between non-negative histograms.

    Parameters
    ----------
    A, B
        Histograms as rows, (n, bins) and (m, bins). Without B: A with itself, symmetric to the bit and
        exactly 0 on the diagonal.

    Returns
    -------
    ndarray of shape (n, m)

    Examples
    --------
    >>> chi_square([[1, 3], [3, 1]]).tolist()
    [[0.0, 2.0], [2.0, 0.0]]
    """
    rows = _histograms(A, "A")
    columns = rows if B is None else _histograms(B, "B")
    if rows.shape[1] != columns.shape[1]:
        raise InputError(f"A has {rows.shape[1]} bins but B has {columns.shape[1]}; histograms must share their bins")
    out = np.empty((len(rows), len(columns)))
    for start in range(0, len(columns), CHI_SQUARE_COLUMNS):
        stop = min(start + CHI_SQUARE_COLUMNS, len(columns))
        last = stop if B is None else len(rows)  # what lies below the diagonal is mirrored
        block = np.ascontiguousarray(columns[start:stop].T)
        _chi_square_block(rows[:last], block, start, out)
        if B is None:
            out[start:stop, :start] = out[:start, start:stop].T
    return out


def chi_square_kernel(
    A: ArrayLike, B: ArrayLike | None = None, *, scale: float | None = None
) -> tuple[NDArray[np.float64], float]:
    """Return ``exp(-chi2 / scale)`` and the scale.

    Parameters
    ----------
    A
        Histograms as rows: of the training samples, or of new samples where B is given.
    B
        Histograms of the training samples.
    scale
        None: the mean of all chi-square distances between training samples, diagonal included. For new
        samples pass what training returned: their own distances must not change the kernel.

    Examples
    --------
    >>> train = [[1, 3], [3, 1]]
    >>> K, scale = chi_square_kernel(train)
    >>> K_test, _ = chi_square_kernel([[2, 2]], train, scale=scale)
    >>> scale, K_test.shape
    (1.0, (1, 2))
    """
    if B is not None and scale is None:
        raise InputError(
            "scale is missing: learn it on training histograms, K, scale = chi_square_kernel(A_train), and "
            "pass it on, chi_square_kernel(A_test, A_train, scale=scale)"
        )
    K = chi_square(A, B)
    learnt = float(K.mean()) if scale is None else float(scale)
    if learnt == 0 and scale is None:
        raise InputError("all histograms are identical, so the mean chi-square distance is 0; give a scale")
    if not 0 < learnt < np.inf:
        raise InputError(f"scale={learnt!r}: must be a positive, finite number")
    np.divide(K, -learnt, out=K)
    np.exp(K, out=K)
    return K, learnt
