"""The spectrum of a kernel: its health, its repair where it is indefinite, and its diagonal.

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

What is learnt on training rows runs on one BLAS thread, whose rounding does not depend on how many there might be. What
becomes of a test row does not depend on the rows beside it: with a BLAS, its bits would.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cksc_dist.errors import InputError
from cksc_dist.maths.kernel_product import Columns, multiply
from cksc_dist.maths.matrix_checks import Matrix, as_matrix, check_kernel, check_square
from cksc_dist.maths.threads import one_blas_thread

__all__ = [
    "KernelHealth",
    "SpectralRepair",
    "kernel_health",
    "spectral_repair",
    "unit_diagonal",
    "unit_diagonal_rows",
]


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
    check_square(matrix, "K", "a kernel")
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


@one_blas_thread()
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
    @one_blas_thread()
    def projector(self) -> NDArray[np.float64]:
        """``P = I - w V_- V_-'``, (n, n): the repaired kernel is K P."""
        P: NDArray[np.float64] = np.eye(len(self.vectors)) - self.weight * (self.vectors @ self.vectors.T)
        return P

    def rows(self, K: ArrayLike) -> Matrix:
        """Return ``K P`` for test rows K, (n_test, n)."""
        matrix = self._test_rows(K)
        repaired = matrix - self.weight * multiply(self._coordinates(matrix), self._factors[1])  # k_z P
        return repaired.astype(matrix.dtype, copy=False)

    def self_similarity(self, K: ArrayLike, own: ArrayLike = 1.0) -> NDArray[np.float64]:
        """Return the repaired K_zz of new samples, given their rows and K_zz as it was (1 for a Gaussian)."""
        negative = (self._coordinates(self._test_rows(K)) ** 2 / -self.eigenvalues).sum(axis=1)  # K_-(z, z)
        return np.asarray(own + self.weight * np.minimum(negative, self._most), dtype=np.float64)

    def _coordinates(self, matrix: Matrix) -> NDArray[np.float64]:
        """Return ``k_z V_-``, whose bits do not depend on the other rows."""
        return multiply(np.ascontiguousarray(matrix), self._factors[0])

    @cached_property
    def _factors(self) -> tuple[Columns, Columns]:
        """V_- and V_-', ready to be multiplied with: for a few rows, to make them ready takes longest."""
        return Columns.of(self.vectors), Columns.of(self.vectors.T)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what can be made anew."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    @one_blas_thread()
    def _most(self) -> float:
        return float(_negative_diagonal(self.eigenvalues, self.vectors).max())

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


@one_blas_thread()
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
