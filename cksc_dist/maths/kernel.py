"""Kernels from distances: bandwidth, Gaussian and chi-square kernels, checks, spectrum and repair.

Gaussian kernel of a distance matrix D (n x n, training) or of test rows (n_test x n)::

    K_ij = exp(-D_ij^2 / delta)
    delta = 2 mean(D)^2 | 2 median(D)^2 | mean(D) | a number

with mean and median over all n^2 ordered pairs of training samples, diagonal included.

Chi-square distance of two histograms a, b >= 0, and its kernel (0/0 = 0)::

    chi2(a, b) = sum_k (a_k - b_k)^2 / (a_k + b_k),    K_ij = exp(-chi2_ij / mean(chi2))

Spectral repair. A DTW kernel is indefinite: K = V S V', where V_-, S_- are the pairs below zero. The
negative part is ``K_- = V_- |S_-| V_-'`` and

    K_repaired = K + w K_- = K P,    P = I - w V_- V_-',    w = 1 (clip), 2 (flip)

which is ``P = V_+ V_+'`` for clip and ``P = V sign(S) V'`` for flip, but for directions in which K is
zero: those are left alone, so that a semi-definite K and its test rows come back untouched. A test row
k_z becomes ``k_z P``.

Repair raises the diagonal, so training rows are brought back to 1 with their own factors,
``K_ij / sqrt(K_ii K_jj)``. A new sample z needs a factor of its own as well. Row and diagonal of K_- are
carried over to z by Nystroem's formula::

    K_-(z, X) = -k_z V_- V_-'                      (which gives k_z P again)
    K_-(z, z) = k_z V_- |S_-|^-1 V_-' k_z'
    K_repaired(z, z) = K_zz + w min(K_-(z, z), max_i (K_-)_ii)

A training row sent through as a test row has ``k_i V_- = -(V_-)_i |S_-|``, hence ``K_-(i, i) = (K_-)_ii``: it
comes out as its row of the normalised training kernel. For other samples the division by eigenvalues
next to zero would magnify noise without bound; the largest value among training samples bounds it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from cksc_dist.errors import InputError
from cksc_dist.spec import KernelSpec

__all__ = [
    "KernelHealth",
    "SpectralRepair",
    "bandwidth",
    "check_distance_rows",
    "check_distances",
    "check_kernel",
    "chi_square",
    "chi_square_kernel",
    "gaussian_kernel",
    "kernel_health",
    "spectral_repair",
    "unit_diagonal",
    "unit_diagonal_rows",
]

Matrix = NDArray[np.floating[Any]]

# Relative to the largest entry. Wide enough for float32 distances computed once for each order of a pair.
SYMMETRY_TOLERANCE = 1e-5
# Entries of the strips in which whole-matrix checks run, so that they need no second n x n array.
STRIP_ENTRIES = 1 << 20
# Columns of one chi-square block: its accumulators stay in the first-level cache.
CHI_SQUARE_COLUMNS = 512


def as_matrix(values: Any, name: str) -> Matrix:
    """Return a non-empty 2-D array, float32 where it is so already and float64 otherwise."""
    matrix = np.asarray(values)
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise InputError(f"{name} has shape {matrix.shape}; it must be a non-empty 2-D array of numbers")
    if matrix.dtype in (np.float32, np.float64):
        return matrix
    if matrix.dtype.kind not in "fiubO":
        raise InputError(f"{name} is of type {matrix.dtype}; it must hold real numbers")
    try:
        return matrix.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} cannot be read as numbers: {error}") from error


def _strips(shape: tuple[int, ...]) -> Iterator[slice]:
    height = max(1, STRIP_ENTRIES // shape[1])
    return (slice(start, start + height) for start in range(0, shape[0], height))


def _check_finite(matrix: Matrix, name: str) -> None:
    for strip in _strips(matrix.shape):
        bad = ~np.isfinite(matrix[strip])
        if bad.any():
            i, j = np.argwhere(bad)[0]
            raise InputError(
                f"{name}[{strip.start + i}, {j}] is {matrix[strip][i, j]}; every entry must be finite: "
                "compute it again, or leave out that sample"
            )


def _check_non_negative(matrix: Matrix, name: str) -> None:
    i, j = np.unravel_index(int(matrix.argmin()), matrix.shape)
    if matrix[i, j] < 0:
        raise InputError(
            f"{name}[{i}, {j}] is {matrix[i, j]:g}; distances cannot be negative: if these are similarities, "
            "turn them into distances first"
        )


def _check_square(matrix: Matrix, name: str, what: str) -> None:
    if matrix.shape[0] != matrix.shape[1]:
        raise InputError(
            f"{name} has shape {matrix.shape}; {what} of training samples is square, with one row and one "
            "column for each sample"
        )


def _check_symmetric(matrix: Matrix, name: str, scale: float) -> None:
    worst, where = 0.0, (0, 0)
    for strip in _strips(matrix.shape):
        difference = np.abs(matrix[strip] - matrix[:, strip].T)
        i, j = np.unravel_index(int(difference.argmax()), difference.shape)
        if difference[i, j] > worst:
            worst, where = float(difference[i, j]), (strip.start + int(i), int(j))
    if worst > SYMMETRY_TOLERANCE * scale:
        here, there = matrix[where], matrix[where[::-1]]
        raise InputError(
            f"{name} is not symmetric; worst at the pair {where}: {here:g} there but {there:g} at its mirror "
            f"{where[::-1]}. Rows and columns must be the same samples in the same order; if the measure "
            f"itself depends on the order, pass ({name} + {name}.T) / 2"
        )


def _scale(matrix: Matrix) -> float:
    """Return the largest absolute entry."""
    return float(max(matrix.max(), -matrix.min()))


def check_distances(D: Any, *, name: str = "D") -> Matrix:
    """Return the square distances of training samples as an array, or say what is wrong with them.

    They must be finite, not negative, symmetric (to rounding) and zero on the diagonal.

    Examples
    --------
    >>> check_distances([[0, 2], [2, 0]]).dtype.name
    'float64'
    """
    matrix = as_matrix(D, name)
    _check_square(matrix, name, "a distance matrix")
    _check_finite(matrix, name)
    _check_non_negative(matrix, name)
    scale = _scale(matrix)
    diagonal = matrix.diagonal()
    i = int(diagonal.argmax())
    if diagonal[i] > SYMMETRY_TOLERANCE * scale:
        is_kernel = np.allclose(diagonal, diagonal[0]) and diagonal[0] >= scale
        hint = "; this looks like a kernel: pass the distances that it was made from" if is_kernel else ""
        raise InputError(
            f"{name}[{i}, {i}] is {diagonal[i]:g}; the distance of a sample to itself must be 0{hint}"
        )
    _check_symmetric(matrix, name, scale)
    return matrix


def check_distance_rows(D: Any, n_train: int, *, name: str = "D") -> Matrix:
    """Return the distances of new samples to ``n_train`` training samples, or say what is wrong with them."""
    matrix = as_matrix(D, name)
    if matrix.shape[1] != n_train:
        raise InputError(
            f"{name} has {matrix.shape[1]} columns, but there were {n_train} training samples; pass the "
            "distances of the new samples (rows) to all training samples (columns), in the order used at fit"
        )
    _check_finite(matrix, name)
    _check_non_negative(matrix, name)
    return matrix


def check_kernel(K: Any, *, name: str = "K") -> Matrix:
    """Return the square kernel of training samples as an array, or say what is wrong with it.

    It must be finite and symmetric (to rounding), and it must not be a distance matrix.

    Examples
    --------
    >>> check_kernel([[0.0, 2.0], [2.0, 0.0]])
    Traceback (most recent call last):
    ...
    cksc_dist.errors.InputError: K: this looks like a distance matrix: its diagonal is zero. Turn it into a \
kernel first, K = DistanceKernel().fit_transform(D)
    """
    matrix = as_matrix(K, name)
    _check_square(matrix, name, "a kernel")
    _check_finite(matrix, name)
    scale = _scale(matrix)
    if np.abs(matrix.diagonal()).max() <= SYMMETRY_TOLERANCE * scale:
        raise InputError(
            f"{name}: this looks like a distance matrix: its diagonal is zero. Turn it into a kernel first, "
            "K = DistanceKernel().fit_transform(D)"
        )
    _check_symmetric(matrix, name, scale)
    return matrix


def bandwidth(D: ArrayLike, rule: str | float = "mean") -> float:
    """Return delta of the Gaussian kernel.

    Parameters
    ----------
    D
        Square distances of the training samples.
    rule
        ``"mean"``: 2 mean(D)^2; ``"median"``: 2 median(D)^2; ``"paper"``: mean(D); a number: delta itself.
        Mean and median run over all ordered pairs, diagonal included.

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
    middle = float(np.median(distances) if rule == "median" else distances.mean(dtype=np.float64))
    delta = middle if rule == "paper" else 2.0 * middle * middle
    if middle == 0:
        cause = "at least half of the distances are 0" if distances.any() else "all samples are identical"
        raise InputError(
            f"bandwidth={rule!r} gives delta = 0, because {cause}; remove the copies, or give delta as a "
            "number"
        )
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
            f"{name}: histogram {i} has {matrix[i, k]:g} in bin {k}; chi-square needs finite bins that are "
            "not negative"
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
        raise InputError(
            f"A has {rows.shape[1]} bins but B has {columns.shape[1]}; histograms must share their bins"
        )
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


def _roots(own: ArrayLike, name: str) -> NDArray[np.float64]:
    values = np.atleast_1d(np.asarray(own, dtype=np.float64))
    bad = np.flatnonzero(~(values > 0))
    if len(bad):
        i = int(bad[0])
        raise InputError(
            f"{name} of sample {i} is {values[i]:g}; it must be positive: a sample without similarity to "
            "itself cannot be scaled to 1, so leave it out or mend the kernel"
        )
    return np.sqrt(values)


def _divided_by_outer(K: Matrix, row_roots: NDArray[np.float64], column_roots: NDArray[np.float64]) -> Matrix:
    # r_i r_j is the same product in either order, so a symmetric K stays symmetric to the bit
    out = np.multiply.outer(row_roots, column_roots).astype(K.dtype, copy=False)
    np.divide(K, out, out=out)
    return out


def unit_diagonal(K: ArrayLike) -> Matrix:
    """Return ``K_ij / sqrt(K_ii K_jj)``, with a diagonal of exactly 1.

    Examples
    --------
    >>> unit_diagonal([[4.0, 1.0], [1.0, 1.0]]).tolist()
    [[1.0, 0.5], [0.5, 1.0]]
    """
    matrix = as_matrix(K, "K")
    _check_square(matrix, "K", "a kernel")
    roots = _roots(matrix.diagonal(), "the diagonal entry")
    out = _divided_by_outer(matrix, roots, roots)
    np.fill_diagonal(out, 1.0)
    return out


def unit_diagonal_rows(K: ArrayLike, own: ArrayLike, own_train: ArrayLike) -> Matrix:
    """Return ``K_zi / sqrt(K_zz K_ii)`` for test rows.

    Parameters
    ----------
    K
        Kernel of new samples (rows) with training samples (columns).
    own
        K_zz of each new sample.
    own_train
        K_ii of each training sample, as it was before `unit_diagonal`.

    Examples
    --------
    >>> unit_diagonal_rows([[2.0, 1.0]], own=[4.0], own_train=[1.0, 4.0]).tolist()
    [[1.0, 0.25]]
    """
    matrix = as_matrix(K, "K")
    row_roots = _roots(own, "the self-similarity (own)")
    column_roots = _roots(own_train, "the self-similarity (own_train)")
    if matrix.shape != (len(row_roots), len(column_roots)):
        raise InputError(
            f"K has shape {matrix.shape}, but there are {len(row_roots)} entries in own and "
            f"{len(column_roots)} in own_train; give one for each row and one for each column"
        )
    return _divided_by_outer(matrix, row_roots, column_roots)


def _rounding(eigenvalues: NDArray[np.float64], K: Matrix) -> float:
    """Return the size below which an eigenvalue of K cannot be told from 0."""
    return float(len(K) * np.finfo(K.dtype).eps * np.abs(eigenvalues).max())


@dataclass(frozen=True)
class KernelHealth:
    """What the spectrum of a kernel says about it; ``print`` it for advice.

    Parameters
    ----------
    least_eigenvalue, largest_eigenvalue
        Ends of the spectrum.
    negative_mass
        Share of the negative eigenvalues in the sum of all absolute ones; rounding is not counted.
    effective_rank
        exp(entropy of the absolute eigenvalues, brought to sum 1): from 1 (all samples alike) to n (all
        strangers).
    n
        Number of samples.
    """

    least_eigenvalue: float
    largest_eigenvalue: float
    negative_mass: float
    effective_rank: float
    n: int

    def __str__(self) -> str:
        return (
            f"kernel of {self.n} samples: eigenvalues {self.least_eigenvalue:.3g} to "
            f"{self.largest_eigenvalue:.3g}, negative mass {100 * self.negative_mass:.2g} %, effective rank "
            f"{self.effective_rank:.1f} of {self.n}\n"
            f"- {self._definiteness()}\n- {self._spread()}"
        )

    def _definiteness(self) -> str:
        if self.negative_mass == 0:
            return "positive semi-definite: needs no repair"
        if self.negative_mass < 0.1:
            return (
                "mildly indefinite: CKSC can use it as it is (beta makes up for it); methods that need a "
                'semi-definite kernel take repair="clip"'
            )
        return (
            'strongly indefinite: compare repair="clip" and repair="flip", and check that the distances are '
            "those of the same samples in rows and columns"
        )

    def _spread(self) -> str:
        if self.n > 2 and self.effective_rank > 0.9 * self.n:
            return "nearly the identity: every sample resembles itself alone; raise factor (or the bandwidth)"
        if self.n > 2 and self.effective_rank < 1.5:
            return "nearly constant: all samples look alike; lower factor (or the bandwidth)"
        return "similarities are spread well; factor may still be worth tuning"


def kernel_health(K: ArrayLike) -> KernelHealth:
    """Return the health of a kernel; costs all its eigenvalues, O(n^3).

    Examples
    --------
    >>> health = kernel_health([[1.0, 0.5], [0.5, 1.0]])
    >>> health.least_eigenvalue, health.negative_mass, round(health.effective_rank, 2)
    (0.5, 0.0, 1.75)
    """
    matrix = check_kernel(K)
    eigenvalues = np.linalg.eigvalsh(matrix.astype(np.float64, copy=False))
    sizes = np.abs(eigenvalues)
    share = sizes[sizes > 0] / sizes.sum()
    negative = eigenvalues < -_rounding(eigenvalues, matrix)
    return KernelHealth(
        least_eigenvalue=float(eigenvalues[0]),
        largest_eigenvalue=float(eigenvalues[-1]),
        negative_mass=float(sizes[negative].sum() / sizes.sum()),
        effective_rank=float(np.exp(-(share * np.log(share)).sum())),
        n=len(matrix),
    )


@dataclass(frozen=True)
class SpectralRepair:
    """A repair learnt on training rows (`spectral_repair`), to be applied to test rows.

    Parameters
    ----------
    weight
        w: 1 for clip, 2 for flip.
    eigenvalues
        S_-: the r negative eigenvalues of the training kernel.
    vectors
        V_-: their eigenvectors, (n, r).
    own_train
        Diagonal of the repaired training kernel, (n,).
    """

    weight: float
    eigenvalues: NDArray[np.float64]
    vectors: NDArray[np.float64]
    own_train: NDArray[np.float64]

    @property
    def projector(self) -> NDArray[np.float64]:
        """``P = I - w V_- V_-'``, (n, n): the repaired kernel is K P."""
        P: NDArray[np.float64] = np.eye(len(self.vectors)) - self.weight * (self.vectors @ self.vectors.T)
        return P

    def rows(self, K: ArrayLike) -> Matrix:
        """Return ``K P`` for test rows K, (n_test, n)."""
        matrix = self._test_rows(K)
        repaired = matrix - self.weight * ((matrix @ self.vectors) @ self.vectors.T)  # k_z P
        return repaired.astype(matrix.dtype, copy=False)

    def self_similarity(self, K: ArrayLike, own: ArrayLike = 1.0) -> NDArray[np.float64]:
        """Return the repaired K_zz of new samples, given their rows and K_zz as it was (1 for a Gaussian)."""
        coordinates = self._test_rows(K).astype(np.float64, copy=False) @ self.vectors  # k_z V_-
        negative = (coordinates**2 / -self.eigenvalues).sum(axis=1)  # K_-(z, z)
        most = _negative_diagonal(self.eigenvalues, self.vectors).max()
        return np.asarray(own + self.weight * np.minimum(negative, most), dtype=np.float64)

    def _test_rows(self, K: ArrayLike) -> Matrix:
        matrix = as_matrix(K, "K")
        if matrix.shape[1] != len(self.vectors):
            raise InputError(
                f"K has {matrix.shape[1]} columns, but the repair was learnt on {len(self.vectors)} training "
                "samples; pass the kernel of new samples (rows) with all training samples (columns)"
            )
        return matrix


def _negative_diagonal(eigenvalues: NDArray[np.float64], vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the diagonal of ``K_- = V_- |S_-| V_-'``."""
    diagonal: NDArray[np.float64] = vectors**2 @ -eigenvalues
    return diagonal


def spectral_repair(K: ArrayLike, how: Literal["clip", "flip"]) -> tuple[Matrix, SpectralRepair]:
    """Return a training kernel without negative eigenvalues, and the repair for test rows.

    Parameters
    ----------
    K
        Square, symmetric kernel of the training samples.
    how
        ``"clip"``: negative eigenvalues become 0; ``"flip"``: they change sign.

    Returns
    -------
    K_repaired
        Symmetric to the bit. Its diagonal has grown: see `unit_diagonal`.
    repair
        `SpectralRepair`: ``repair.rows(K_test)`` for test rows, ``repair.projector`` for P.

    Examples
    --------
    >>> K_repaired, repair = spectral_repair([[1.0, 2.0], [2.0, 1.0]], "clip")   # eigenvalues -1 and 3
    >>> K_repaired.round(12).tolist(), repair.eigenvalues.round(12).tolist()
    ([[1.5, 1.5], [1.5, 1.5]], [-1.0])
    """
    if how not in ("clip", "flip"):
        raise InputError(f"how={how!r}: must be 'clip' or 'flip'")
    matrix = check_kernel(K)
    weight = 1.0 if how == "clip" else 2.0
    spectrum, V = np.linalg.eigh(matrix.astype(np.float64, copy=False))
    negative = spectrum < -_rounding(spectrum, matrix)
    eigenvalues, vectors = spectrum[negative], np.ascontiguousarray(V[:, negative])
    half = vectors * np.sqrt(-eigenvalues)
    repaired = matrix + weight * (half @ half.T)  # K + w K_-
    repaired = (repaired + repaired.T) / 2
    own_train = matrix.diagonal() + weight * _negative_diagonal(eigenvalues, vectors)
    return repaired.astype(matrix.dtype, copy=False), SpectralRepair(weight, eigenvalues, vectors, own_train)
