"""LP-KSVD: locality-preserving K-SVD on the columns of a kernel.

With the kernel's columns as data, Y = K (n, n), and L the one-hot labels (C, n):

    minimise  J = ||Y - D G||^2 + a ||Q - T G||^2 + b ||L - W G||^2   subject to  ||g_i||_0 <= T0

Q (k, n) asks that a sample uses atoms near it: Q_ji = 1 iff atom j is among the p nearest of sample i. This is one
K-SVD (`cksc_dist.maths.ksvd`) on the stacked data (Y; sqrt(a) Q; sqrt(b) L), for which their Gram matrix is enough:

    Y'Y + a Q'Q + b L'L = K^2 + a Q'Q + b L'L,      D = K U,  T = Q U,  W = L U

with atoms kept as coefficients U on the samples. Q needs atoms and atoms need Q: Q is renewed in an outer loop, which
ends when it stays as it is. J never rises while Q is the same.

Near: atoms are compared at norm 1, and d_j stands for its line, for -d_j does what d_j does; so the p nearest of sample
i are those of largest |k_i'd_j| / ||d_j||.

After training d_j, T_j and w_j are divided by ||d_j||. A new sample is coded by orthogonal matching pursuit on
(D'D, D'k_z), and its label is argmax_q (W g)_q.

W. Liu, Z. Yu, M. Yang, L. Lu, Y. Zou, Joint kernel dictionary and classifier learning for sparse coding via locality
preserving K-SVD, IEEE ICME 2015. (Code of the authors marks the farthest atoms in Q; here it is the nearest.)
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cksc_dist.maths.ksvd import ksvd, start_samples
from cksc_dist.maths.learnt import Learnt
from cksc_dist.maths.omp import omp_codes
from cksc_dist.maths.sparse import SparseRows
from cksc_dist.maths.threads import one_blas_thread

__all__ = ["LPKSVDModel", "nearest_atoms", "recall", "stacked_gram", "train"]

Float = NDArray[np.float64]
Int = NDArray[np.int64]


class LPKSVDModel(NamedTuple):
    """What recall needs.

    Parameters
    ----------
    images
        (n, k), D = K U: the atoms, of norm 1.
    gram
        (k, k), D'D.
    weights
        (k, C), W': the share of each class in each atom.
    passes
        Where in the history each pass of the outer loop begins.
    """

    images: Float
    gram: Float
    weights: Float
    passes: Int


def nearest_atoms(K: Float, D: Float, p: int) -> Float:
    """Return Q' (n, k): 1 for the ``p`` nearest atoms of each sample, of equals the first.

    Examples
    --------
    >>> nearest_atoms(np.eye(3), np.array([[2.0, 0.5], [0.0, 0.5], [0.0, 0.7]]), p=1).tolist()
    [[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]
    """
    closeness = np.abs(K @ D) / np.linalg.norm(D, axis=0)
    near = np.argsort(-closeness, axis=1, kind="stable")[:, :p]
    Q = np.zeros(closeness.shape)
    np.put_along_axis(Q, near, 1.0, axis=1)
    return Q


def stacked_gram(squared: Float, Q: Float, y: Int, locality: float, label_weight: float) -> Float:
    """Return K^2 + a Q'Q + b L'L from K^2, Q' (n, k) and the classes, symmetric to the bit."""
    gram = squared + locality * (Q @ Q.T) + label_weight * (y[:, None] == y)
    return np.ascontiguousarray((gram + gram.T) / 2.0)


@one_blas_thread()
def train(
    K: Float,
    y: Int,
    n_classes: int,
    *,
    sparsity: int,
    neighbours: int,
    locality: float,
    label_weight: float,
    per_class: int,
    max_iter: int,
    outer: int,
    tol: float,
    rng: np.random.Generator,
    n_jobs: int | None = None,
) -> Learnt:
    """Learn dictionary and classifier together.

    Parameters
    ----------
    K
        (n, n) kernel, symmetric.
    y
        (n,) number of each sample's class.
    n_classes
        C.
    sparsity
        T0: at most this many non-zeros in each code.
    neighbours
        p: atoms that each sample is asked to use; with fewer atoms, all of them.
    locality, label_weight
        a and b.
    per_class
        Atoms that each class starts with; a smaller class takes all it has.
    max_iter, tol
        At most so many alternations in a pass; stop it once J changes by less than ``tol``, relatively.
    outer
        At most so many passes.
    rng
        Draws the samples that the atoms start from.
    n_jobs
        Threads. The result does not depend on it.
    """
    U = np.eye(len(K))[:, start_samples(y, n_classes, per_class, rng)]
    squared = K @ K
    Q = nearest_atoms(K, K @ U, neighbours)
    codes: SparseRows | None = None
    histories: list[Float] = []
    n_iter, converged, settled = 0, False, False
    while len(histories) < outer and not settled:
        learnt = ksvd(stacked_gram(squared, Q, y, locality, label_weight), U, sparsity, max_iter, tol, codes, n_jobs)
        U, codes, converged = learnt.U, learnt.codes, learnt.converged
        histories.append(learnt.history)
        n_iter += learnt.n_iter
        renewed = nearest_atoms(K, K @ U, neighbours)
        settled, Q = bool(np.array_equal(renewed, Q)), renewed
    assert codes is not None
    D = K @ U
    lengths = np.linalg.norm(D, axis=0)  # d_j / ||d_j||, w_j / ||d_j||; the codes grow by as much
    U, D = U / lengths, D / lengths
    final = codes.csr(U.shape[1])
    final.data *= lengths[final.indices]
    final.eliminate_zeros()
    W = np.array([U[y == q].sum(axis=0) for q in range(n_classes)])  # L U
    passes = np.cumsum([0, *(len(history) for history in histories[:-1])])
    model = LPKSVDModel(D, D.T @ D, np.ascontiguousarray(W.T), passes)
    return Learnt(U, final, np.concatenate(histories), n_iter, converged, model)


def recall(model: LPKSVDModel, linear: Float, sparsity: int, n_jobs: int | None = None) -> Any:
    """Return the codes (m, k), sparse, from the products with the atoms, k_z'D (m, k)."""
    return omp_codes(model.gram, linear, sparsity, n_jobs=n_jobs).csr(len(model.gram))
