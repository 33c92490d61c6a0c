"""K-KSVD: kernel K-SVD, and the class that rebuilds a sample best.

    minimise  ||Phi(X) - Phi(X) U G||^2   subject to  ||g_i||_0 <= T0,  u_j'K u_j = 1          (`cksc_dist.maths.ksvd`)

with signed codes and a dense, signed U. The label of a new sample z is the class of least residual:

- distributive: one dictionary U_q for each class, trained on its samples alone; z is coded on each of them, and
  ``r_q = K_zz - 2 k_zq'U_q g_q + g_q'U_q'K_qq U_q g_q``.
- collective: one dictionary, trained on all samples; z is coded once, and r_q is the residual with the coefficients of
  the atoms of class q only. An atom belongs to the class with the largest share of |u_j|: it starts as a sample of a
  class, but any sample may come to use it.

A kernel row does not tell K_zz. It is the same in every r_q, so the label does not depend on it; for the shares of the
classes it is taken to be the mean of K_ii over the training samples (1 for a kernel with unit diagonal), or as much as
the best class explains, if that is more.

H. Van Nguyen, V. Patel, N. Nasrabadi, R. Chellappa, Design of non-linear kernel dictionaries for object recognition,
IEEE TIP 2013.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from cksc_dist.maths.ksvd import Dictionary, ksvd, start_samples
from cksc_dist.maths.learnt import Learnt
from cksc_dist.maths.omp import explained, omp_codes
from cksc_dist.maths.sparse import SparseRows
from cksc_dist.maths.threads import one_blas_thread, run_blocks

__all__ = ["CLASSIFIERS", "KKSVDModel", "class_residuals", "recall", "train"]

Float = NDArray[np.float64]
Int = NDArray[np.int64]

CLASSIFIERS = ("distributive", "collective")


class KKSVDModel(NamedTuple):
    """What recall needs.

    Parameters
    ----------
    gram
        (k, k), U'K U.
    home
        (k,) class of each atom.
    self_similarity
        (1,) mean of K_ii over the training samples.
    """

    gram: Float
    home: Int
    self_similarity: Float


@one_blas_thread()
def train(
    K: Float,
    y: Int,
    n_classes: int,
    *,
    sparsity: int,
    classifier: str,
    per_class: int,
    max_iter: int,
    tol: float,
    rng: np.random.Generator,
    n_jobs: int | None = None,
) -> Learnt:
    """Learn one dictionary for each class, or one for all.

    Parameters
    ----------
    K
        (n, n) kernel, symmetric, positive semi-definite.
    y
        (n,) number of each sample's class.
    n_classes
        C.
    sparsity
        T0: at most this many non-zeros in each code.
    classifier
        ``"distributive"`` or ``"collective"``.
    per_class
        Atoms that each class starts with; a smaller class takes all it has.
    max_iter, tol
        At most so many alternations; stop once J changes by less than ``tol``, relatively.
    rng
        Draws the samples that the atoms start from.
    n_jobs
        Threads. The result does not depend on it.
    """
    starts = start_samples(y, n_classes, per_class, rng)
    if classifier == "collective":
        whole = ksvd(K, np.eye(len(K))[:, starts], sparsity, max_iter, tol, n_jobs=n_jobs)
        class_weight = np.array([np.abs(whole.U[y == q]).sum(axis=0) for q in range(n_classes)])
        return _learnt(K, whole.U, whole.codes.csr(len(starts)), [whole], class_weight.argmax(axis=0))

    def one_class(q: int, _: int) -> tuple[Int, Dictionary]:
        rows = np.flatnonzero(y == q)
        own = np.ascontiguousarray(K[np.ix_(rows, rows)])
        places = np.searchsorted(rows, starts[y[starts] == q])
        return rows, ksvd(own, np.eye(len(rows))[:, places], sparsity, max_iter, tol)

    parts = run_blocks(one_class, n_classes, 1, n_jobs)
    U, home = np.zeros((len(K), len(starts))), y[starts]
    entries = []
    for q, (rows, part) in enumerate(parts):
        atoms = np.flatnonzero(home == q)
        U[np.ix_(rows, atoms)] = part.U
        code = part.codes.csr(len(atoms)).tocoo()
        entries.append((code.data, rows[code.row], atoms[code.col]))
    values, samples, atoms = (np.concatenate(column) for column in zip(*entries, strict=True))
    codes = sparse.csr_array((values, (samples, atoms)), shape=U.shape)
    return _learnt(K, U, codes, [part for _, part in parts], home)


def _learnt(K: Float, U: Float, codes: Any, parts: list[Dictionary], home: Int) -> Learnt:
    """Return dictionaries as one; J of all is the sum, each standing still once it has settled."""
    length = max(len(part.history) for part in parts)
    history = sum(np.pad(part.history, (0, length - len(part.history)), mode="edge") for part in parts)
    codes.eliminate_zeros()
    model = KKSVDModel(U.T @ (K @ U), home, np.array([np.diagonal(K).mean()]))
    n_iter = max(part.n_iter for part in parts)
    return Learnt(U, codes, np.asarray(history), n_iter, all(part.converged for part in parts), model)


def class_residuals(
    model: KKSVDModel, linear: Float, n_classes: int, sparsity: int, classifier: str, n_jobs: int | None = None
) -> Float:
    """Return the squared residual of each sample with each class, (m, C), from k_z'U (m, k)."""
    gains = np.zeros((len(linear), n_classes))
    if classifier == "collective":
        together = recall(model, linear, n_classes, sparsity, classifier, n_jobs)
    for q in range(n_classes):
        atoms = np.flatnonzero(model.home == q)
        if not len(atoms):
            continue  # in a dictionary of all classes one may end up without atoms: it explains nothing
        gram, own = np.ascontiguousarray(model.gram[np.ix_(atoms, atoms)]), np.ascontiguousarray(linear[:, atoms])
        if classifier == "distributive":
            codes = omp_codes(gram, own, sparsity, n_jobs=n_jobs)
        else:
            codes = SparseRows.from_csr(together[:, atoms], min(sparsity, len(atoms)))
        gains[:, q] = explained(gram, own, codes)
    whole = np.maximum(model.self_similarity[0], gains.max(axis=1, keepdims=True))
    residuals: Float = whole - gains
    return residuals


def recall(
    model: KKSVDModel, linear: Float, n_classes: int, sparsity: int, classifier: str, n_jobs: int | None = None
) -> Any:
    """Return the codes (m, k), sparse, from k_z'U (m, k); distributive: on the dictionary of the best class."""
    if classifier == "collective":
        return omp_codes(model.gram, linear, sparsity, n_jobs=n_jobs).csr(len(model.home))
    best = class_residuals(model, linear, n_classes, sparsity, classifier, n_jobs).argmin(axis=1)
    # products with the atoms of other classes count as none, and so do these atoms
    own = np.where(model.home == best[:, None], linear, 0.0)
    blocks = np.where(model.home == model.home[:, None], model.gram, 0.0)
    return omp_codes(blocks, own, sparsity, n_jobs=n_jobs).csr(len(model.home))
