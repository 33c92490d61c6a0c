"""CKSC with the dictionary held fixed: codes of training samples, the objective, and recall.

    J = ||Phi(X) - Phi(X) U G||^2 + beta ||U G||^2 + alpha sum(M * (U G)')

splits into one problem for each sample, ``J = tr K + sum_i (1/2 g_i' H g_i + c_i' g_i)`` with

    code     H = 2 U'(K + beta I) U               c_i = U'(alpha m_i - 2 k_i)
    recall   H = 2 U'(K + alpha M + beta I) U     c_z = -2 U' k_z

m_i and k_i being columns i of M and K. M is never formed: ``(U'm_i)_j = 1'u_j - (L u_j)_{y_i}`` and
``U'M U = t t' - (L U)'(L U)`` with ``t = U'1``. K enters through K U alone, kept as rows ``KU[j] = K u_j``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cksc_dist.maths.nqp import nqp_codes
from cksc_dist.maths.sparse import SparseRows, inner_products, jit
from cksc_dist.maths.threads import run_blocks
from cksc_dist.spec import ModelSpec

__all__ = ["Dictionary", "Objective", "code_step", "dictionary_products", "objective", "recall", "recall_quadratic"]

Float = NDArray[np.float64]

REACH = 2
"""Recall searches with so many times T0 entries before it cuts back.

The first picks of a greedy search do not feel the class term yet, and may lie in a class that the whole solution
avoids: on Schunk's grasps, 76 % right without this, 93 % with it.
"""


class Dictionary(NamedTuple):
    """What the code problems see of a dictionary.

    Parameters
    ----------
    gram
        P = U'K U, (k, k).
    overlap
        U'U, (k, k).
    class_weight
        (L U)', (k, C): how much of each atom comes from each class.
    """

    gram: Float
    overlap: Float
    class_weight: Float


class Objective(NamedTuple):
    """J term by term, each summed over the samples, and the reconstruction error of each sample."""

    reconstruction: float
    ridge: float
    discrimination: float
    sample_error: Float

    @property
    def total(self) -> float:
        """J."""
        return self.reconstruction + self.ridge + self.discrimination


def dictionary_products(
    atoms: SparseRows, KU: Float, y: NDArray[np.int64], n_classes: int, n_jobs: int | None = None
) -> Dictionary:
    """Return the products of a dictionary with itself, given ``KU[j] = K u_j``."""
    gram = inner_products(atoms, KU, n_jobs)
    U = atoms.csr(KU.shape[1])
    overlap = (U @ U.T).toarray()
    classes = np.zeros((len(gram), n_classes))
    rows = np.repeat(np.arange(len(gram)), atoms.counts)
    np.add.at(classes, (rows, y[U.indices]), U.data)
    # equal up to rounding; NQP wants bit-symmetric
    return Dictionary((gram + gram.T) / 2, (overlap + overlap.T) / 2, classes)


@jit
def _code_linear(KU, other, y, alpha, first, last, out):
    """c_i = alpha U'm_i - 2 U'k_i, one sample a row; atoms in strips, so that columns of KU are read as rows."""
    for begin in range(0, KU.shape[0], 16):
        for i in range(first, last):
            for j in range(begin, min(begin + 16, KU.shape[0])):
                out[i, j] = alpha * other[y[i], j] - 2.0 * KU[j, i]


@jit
def _code_terms(indices, values, counts, diagonal, KU, gram, overlap, other, y, out):
    """Fill, for each sample: reconstruction error, |U g|^2 and m'U g."""
    for i in range(len(counts)):
        fit = norm = ridge = unlike = 0.0
        for a in range(counts[i]):
            j, g = indices[i, a], values[i, a]
            fit += g * KU[j, i]
            unlike += g * other[y[i], j]
            for b in range(counts[i]):
                weight = g * values[i, b]
                norm += weight * gram[j, indices[i, b]]
                ridge += weight * overlap[j, indices[i, b]]
        out[0, i] = diagonal[i] - 2.0 * fit + norm
        out[1, i] = ridge
        out[2, i] = unlike


def _other_class_weight(class_weight: Float) -> Float:
    """Return (C, k): the weight of each atom outside of each class, U'm for a sample of that class."""
    return np.ascontiguousarray((class_weight.sum(axis=1)[:, None] - class_weight).T)


def _sample_terms(codes: SparseRows, diagonal: Float, KU: Float, dictionary: Dictionary, y: NDArray[np.int64]) -> Float:
    out = np.empty((3, len(y)))
    other = _other_class_weight(dictionary.class_weight)
    _code_terms(*codes, diagonal, KU, dictionary.gram, dictionary.overlap, other, y, out)
    return out


def objective(
    codes: SparseRows,
    diagonal: Float,
    KU: Float,
    dictionary: Dictionary,
    y: NDArray[np.int64],
    alpha: float,
    beta: float,
) -> Objective:
    """Return J of codes on a dictionary, term by term.

    Parameters
    ----------
    codes
        One row for each sample.
    diagonal
        Diagonal of K.
    KU
        (k, n), ``KU[j] = K u_j``.
    """
    error, ridge, unlike = _sample_terms(codes, diagonal, KU, dictionary, y)
    return Objective(float(error.sum()), beta * float(ridge.sum()), alpha * float(unlike.sum()), error)


def code_step(
    codes: SparseRows,
    diagonal: Float,
    KU: Float,
    dictionary: Dictionary,
    y: NDArray[np.int64],
    beta: float,
    spec: ModelSpec,
    n_jobs: int | None = None,
) -> SparseRows:
    """Return better codes of all samples; a sample keeps its code where the new one is no better."""
    alpha = float(spec.alpha)
    quadratic = 2.0 * (dictionary.gram + beta * dictionary.overlap)
    linear = np.empty((len(y), len(quadratic)))
    other = _other_class_weight(dictionary.class_weight)
    run_blocks(lambda i, j: _code_linear(KU, other, y, alpha, i, j, linear), len(y), 64, n_jobs)
    new = nqp_codes(quadratic, linear, spec.sparsity, selection=spec.selection, prune=spec.prune, n_jobs=n_jobs)
    error, ridge, unlike = _sample_terms(codes, diagonal, KU, dictionary, y)
    old_objective = error - diagonal + beta * ridge + alpha * unlike
    better = new.objective < old_objective
    return SparseRows(
        np.where(better[:, None], new.indices, codes.indices),
        np.where(better[:, None], new.values, codes.values),
        np.where(better, new.counts, codes.counts),
    )


def recall_quadratic(dictionary: Dictionary, alpha: float, beta: float) -> Float:
    """Return H = 2 U'(K + alpha M + beta I) U of the recall problem."""
    total = dictionary.class_weight.sum(axis=1)
    # not by BLAS, whose rounding depends on its threads
    shared = np.einsum("jc,lc->jl", dictionary.class_weight, dictionary.class_weight, optimize=False)
    mixing = np.outer(total, total) - shared
    quadratic: Float = 2.0 * (dictionary.gram + alpha * mixing + beta * dictionary.overlap)
    return quadratic


def recall(
    rows: NDArray[Any],
    atoms: SparseRows,
    quadratic: Float,
    sparsity: int,
    selection: Any,
    prune: float,
    n_jobs: int | None = None,
) -> SparseRows:
    """Return codes of new samples from their kernel rows (samples, n).

    Parameters
    ----------
    rows
        Kernel of each new sample with the samples that ``atoms`` refers to.
    quadratic
        From `recall_quadratic`.
    """
    linear = -2.0 * inner_products(atoms, rows, n_jobs)
    most = min(sparsity, len(quadratic))  # memory is taken for as many, and a model from a file may ask for any number
    greedy, thorough = (
        nqp_codes(quadratic, linear, most, selection=selection, prune=prune, n_jobs=n_jobs, reach=reach)
        for reach in (None, REACH * most)
    )
    better = (thorough.objective < greedy.objective)[:, None]
    return SparseRows(
        np.where(better, thorough.indices, greedy.indices),
        np.where(better, thorough.values, greedy.values),
        np.where(better[:, 0], thorough.counts, greedy.counts),
    )
