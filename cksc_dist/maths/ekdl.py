"""EKDL: equiangular kernel dictionary learning.

After Y. Quan, C. Bao and H. Ji, Equiangular Kernel Dictionary Learning with Applications to Dynamic Texture Analysis,
CVPR 2016. A reconstruction on a Gram matrix: the paper does not settle how its dictionary is kept there.

    minimise  J = ||Phi(X) - Phi(X) U G||^2 + a ( ||Lab - W G||^2 + ridge ||W||^2 )
    subject to  U' K U = E = (1 - mu) I + mu 11',    at most T0 non-zeros in each code g_i

so any two atoms have cosine mu and every atom has norm 1. Lab (C x N) has a 1 where sample i is of class q.

Dictionary, closed form. In the eigenbasis of K = V S V' (eigenvalues above 1e-10 of the largest; k at most their
number) samples are the columns of F = S^(1/2) V', and every dictionary that meets the constraint is Z E^(1/2) with
Z'Z = I:

    F G' E^(1/2) = P R Q' (SVD),    Z = P Q',    U = V S^(-1/2) Z E^(1/2)
    E^(1/2) = sqrt(1 - mu) I + (sqrt(1 - mu + k mu) - sqrt(1 - mu)) / k 11'

P has k orthonormal columns also where G' has fewer independent ones (atoms that nobody uses): the SVD completes them
inside the basis.

Codes: OMP on E + a W'W and U'K + a W'Lab; a code that is no better than the one before is not taken. W: ridge
regression (`cksc_dist.maths.label_regression`). Each of the three steps lowers J or leaves it.

Recall: OMP on E and U'k_z; label argmax W g. New samples have no labels to be coded with, so when training is over, the
training samples are coded as new ones are, and the W of recall is fitted to these codes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import svd

from cksc_dist.maths.cksc import start_atoms
from cksc_dist.maths.label_regression import label_regression, one_hot
from cksc_dist.maths.learnt import Learnt
from cksc_dist.maths.omp import omp_codes
from cksc_dist.maths.threads import one_blas_thread

__all__ = ["EkdlModel", "equiangular_gram", "equiangular_root", "learn_ekdl", "procrustes_atoms"]

Float = NDArray[np.float64]
Index = NDArray[np.int64]

LEAST = 1e-10
"""Eigenvalues below this share of the largest are not used."""


class EkdlModel(NamedTuple):
    """What recall needs.

    Parameters
    ----------
    gram
        E, (k, k).
    weights
        W, (C, k).
    """

    gram: Float
    weights: Float


def equiangular_gram(n_atoms: int, coherence: float) -> Float:
    """Return E = (1 - mu) I + mu 11'.

    Examples
    --------
    >>> equiangular_gram(2, 0.25).tolist()
    [[1.0, 0.25], [0.25, 1.0]]
    """
    return (1.0 - coherence) * np.eye(n_atoms) + coherence


def equiangular_root(n_atoms: int, coherence: float) -> Float:
    """Return the symmetric root of E.

    Examples
    --------
    >>> root = equiangular_root(3, 0.2)
    >>> bool(np.allclose(root @ root, equiangular_gram(3, 0.2)))
    True
    """
    low, high = np.sqrt(1.0 - coherence), np.sqrt(1.0 - coherence + n_atoms * coherence)
    return np.asarray(low * np.eye(n_atoms) + (high - low) / n_atoms)


def procrustes_atoms(features: Float, codes: Float, root: Float) -> Float:
    """Return the dictionary D = Z E^(1/2), (p, k), that rebuilds the samples best from given codes.

    Parameters
    ----------
    features
        F', (n, p): samples as rows.
    codes
        G', (n, k); k at most p.
    root
        E^(1/2), (k, k).

    Examples
    --------
    >>> procrustes_atoms(np.eye(2), np.array([[0.0, 3.0], [2.0, 0.0]]), np.eye(2)).round(6).tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    P, _, Qt = svd(features.T @ (codes @ root), full_matrices=False)
    return np.asarray(P @ Qt @ root)  # Z = P Q'


def _quadratic(linear: Float, gram: Float, codes: Float) -> Float:
    """Return g'A g - 2 b'g of each sample."""
    return np.asarray(np.einsum("ij,ij->i", codes, codes @ gram - 2.0 * linear))


def _better_codes(gram: Float, linear: Float, sparsity: int, old: Float | None, n_jobs: int | None) -> Float:
    """Return codes by OMP; the old one where it is at least as good."""
    codes = np.asarray(omp_codes(gram, linear, sparsity, n_jobs=n_jobs).csr(len(gram)).toarray())
    if old is not None:
        worse = _quadratic(linear, gram, codes) >= _quadratic(linear, gram, old)
        codes[worse] = old[worse]
    return codes


def learn_ekdl(
    K: Float,
    y: Index,
    n_classes: int,
    rng: np.random.Generator,
    *,
    sparsity: int,
    coherence: float,
    label_weight: float,
    atoms_per_class: int,
    ridge: float,
    max_iter: int,
    tol: float,
    n_jobs: int | None = None,
) -> Learnt:
    """Learn an equiangular dictionary and a classifier on a semi-definite kernel.

    Parameters
    ----------
    K
        (n, n).
    y
        Number of each sample's class.
    n_classes
        C.
    rng
        Draws the samples that the atoms start from.
    sparsity
        T0.
    coherence
        mu, in [0, 1).
    label_weight
        a.
    atoms_per_class
        Different samples of every class that the atoms start near; the atoms are at most as many as K has eigenvalues
        that are used.
    ridge
        Of the classifier.
    max_iter, tol
        At most so many alternations; stop once J changes by less than ``tol``, relatively.
    n_jobs
        Threads of the coding.
    """
    with one_blas_thread():
        values, V = np.linalg.eigh(K)
        used = values > LEAST * values[-1]
        S, V = values[used], V[:, used]
        features = V * np.sqrt(S)  # F'
        samples = start_atoms(np.ones(len(y)), y, n_classes, atoms_per_class, 1, rng)[0].indices[:, 0]
        samples = _spread(samples, len(S))
        k, labels, a = len(samples), one_hot(y, n_classes), label_weight
        gram, root = equiangular_gram(k, coherence), equiangular_root(k, coherence)
        trace = float(K.trace())

        def objective(D: Float, codes: Float, W: Float) -> float:
            value = trace + float(_quadratic(features @ D, gram, codes).sum())
            return value + a * float(((labels - codes @ W.T) ** 2).sum() + ridge * (W**2).sum())

        # the atoms that are nearest to the samples, which each code one of them
        D = procrustes_atoms(features[samples], np.eye(k), root)
        codes = _better_codes(gram, features @ D, sparsity, None, n_jobs)
        W = label_regression(codes, labels, ridge)
        history, n_iter, converged = [objective(D, codes, W)], 0, False
        while n_iter < max_iter and not converged:
            n_iter += 1
            D = procrustes_atoms(features, codes, root)
            W = label_regression(codes, labels, ridge)
            history.append(objective(D, codes, W))
            codes = _better_codes(gram + a * (W.T @ W), features @ D + a * (labels @ W), sparsity, codes, n_jobs)
            history.append(objective(D, codes, W))
            converged = history[-3] - history[-1] <= tol * abs(history[-3])
        recalled = _better_codes(gram, features @ D, sparsity, None, n_jobs)
        W = label_regression(recalled, labels, ridge)
        dictionary = (V / np.sqrt(S)) @ D  # U = V S^(-1/2) D
    return Learnt(dictionary, sparse.csr_array(recalled), np.array(history), n_iter, converged, EkdlModel(gram, W))


def _spread(samples: Index, most: int) -> Index:
    """Return at most so many of the samples, evenly over the classes, which they are sorted by."""
    if len(samples) <= most:
        return samples
    return samples[np.arange(most) * len(samples) // most]
