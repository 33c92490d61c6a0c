"""KGDL: kernel dictionary learning on lines, the one-dimensional case of Grassmann dictionaries.

Method of M. Harandi, C. Sanderson, C. Shen and B. Lovell, Dictionary Learning and Sparse Coding on Grassmann Manifolds:
An Extrinsic Solution, ICCV 2013; here with lines in feature space, given by a Gram matrix.

A sample is the line through phi(x_i), that is the projector phi(x_i) phi(x_i)', and two lines are as similar as the
square of their cosine: K~^2, entry by entry, with K~ = K brought to unit diagonal. Atom r is the line of
d_r = Phi(X) v_r with v_r' K~ v_r = 1. Sample i is rebuilt as sum_r a_ri d_r d_r':

    J = sum_i || phi(x_i) phi(x_i)' - sum_r a_ri d_r d_r' ||^2 + s sum |a_ri|
      = sum_i ( K~_ii^2 - 2 b_i'a_i + a_i' Gd a_i + s |a_i|_1 )
    Gd_rs = (v_r' K~ v_s)^2,    b_ir = (k~_i' v_r)^2

Codes. "lasso": J is convex in each code. "omp": s = 0 and at most T0 non-zeros; a code that is no better than the one
before is not taken.

Atoms, one after the other. With all others fixed, J falls as v_r' K~ T_r K~ v_r rises, where

    T_r = diag(a^r) - sum_{j != r} (a^r . a^j) v_j v_j'

so d_r belongs at the top eigenvector of M_r = sum_i a_ri phi_i phi_i' - sum_{j != r} (a^r . a^j) d_j d_j' (v_r at that
of the pencil (K~ T_r K~, K~)). Every vector that M_r gives is a combination of the samples that use atom r and of the
atoms that they use besides; so neither M_r nor a root of K~ is ever formed. A few steps of Lanczos from the present
d_r, in coefficients c on those p vectors with their Gram matrix Gp (M_r is c -> w * (Gp c) there, w the factors
above), give a Ritz vector that is at least as good as d_r itself: J never rises. An atom that nobody uses becomes the
worst rebuilt sample.

Classifier: ridge regression of labels on codes (`cksc_dist.maths.label_regression`).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from cksc_dist.maths.cksc import start_atoms
from cksc_dist.maths.label_regression import label_regression, one_hot
from cksc_dist.maths.lasso import lasso_codes
from cksc_dist.maths.learnt import Learnt
from cksc_dist.maths.nqp_steps import compiled
from cksc_dist.maths.omp import omp_codes
from cksc_dist.maths.threads import one_blas_thread

__all__ = ["KgdlModel", "Lines", "atom_pass", "learn_kgdl", "line_codes", "line_errors"]

Float = NDArray[np.float64]
Index = NDArray[np.int64]
Coding = Literal["lasso", "omp"]

RANGE = 1e-10
"""Eigenvalues of a Gram matrix below this share of the largest are rounding."""

STEPS = 4
"""Steps of Lanczos for an atom; the next alternation goes on where these end."""


class KgdlModel(NamedTuple):
    """What recall needs.

    Parameters
    ----------
    gram
        Gd, (k, k).
    weights
        W, (C, k).
    """

    gram: Float
    weights: Float


class Lines(NamedTuple):
    """Atoms, one a row, with their products; `atom_pass` changes them in place.

    Parameters
    ----------
    coefficients
        V', (k, n).
    images
        (K~ V)', (k, n).
    gram
        V' K~ V, (k, k), before it is squared.
    """

    coefficients: Float
    images: Float
    gram: Float

    @classmethod
    def of(cls, K: Float, coefficients: Float) -> Lines:
        """Return atoms with their products, freshly computed, and of norm 1."""
        images = coefficients @ K
        norms = np.sqrt(np.einsum("ji,ji->j", images, coefficients))[:, None]
        V, KV = coefficients / norms, images / norms
        gram = V @ KV.T
        return cls(V, KV, (gram + gram.T) / 2)


def line_errors(own: Float, linear: Float, gram: Float, codes: Float, shrinkage: float) -> Float:
    """Return the part of each sample in J, (n,).

    Parameters
    ----------
    own
        K~_ii^2, (n,).
    linear
        b, (n, k).
    gram
        Gd, (k, k).
    codes
        (n, k).
    shrinkage
        s; 0 for OMP.
    """
    fit = np.einsum("ij,ij->i", codes, codes @ gram - 2.0 * linear)  # a'Gd a - 2 b'a
    return np.asarray(own + fit + shrinkage * np.abs(codes).sum(axis=1))


def line_codes(
    gram: Float,
    linear: Float,
    coding: Coding,
    sparsity: int,
    shrinkage: float,
    start: Float | None = None,
    n_jobs: int | None = None,
) -> Float:
    """Return the codes (m, k) of samples given by b (m, k), on atoms given by Gd.

    Examples
    --------
    >>> line_codes(np.eye(3), np.array([[0.9, 0.1, 0.4]]), "omp", 2, 0.1).tolist()
    [[0.9, 0.0, 0.4]]
    >>> line_codes(np.eye(3), np.array([[0.9, 0.1, 0.4]]), "lasso", 2, 0.4).round(6).tolist()
    [[0.7, 0.0, 0.2]]
    """
    if coding == "lasso":
        return lasso_codes(gram, linear, shrinkage / 2.0, start, n_jobs=n_jobs)
    codes = omp_codes(gram, linear, sparsity, n_jobs=n_jobs).csr(len(gram)).toarray()
    if start is not None:
        none = np.zeros(len(codes))
        worse = line_errors(none, linear, gram, codes, 0.0) >= line_errors(none, linear, gram, start, 0.0)
        codes[worse] = start[worse]
    return np.asarray(codes)


@compiled
def _neighbourhood(K: Float, images: Float, gram: Float, users: Index, atoms: Index) -> Float:
    """Return Gp: the Gram matrix of some samples followed by some atoms."""
    n_users, p = len(users), len(users) + len(atoms)
    Gp = np.empty((p, p))
    for a in range(n_users):
        for b in range(n_users):
            Gp[a, b] = K[users[a], users[b]]
    for a in range(len(atoms)):
        for b in range(n_users):
            Gp[n_users + a, b] = Gp[b, n_users + a] = images[atoms[a], users[b]]
        for b in range(len(atoms)):
            Gp[n_users + a, n_users + b] = gram[atoms[a], atoms[b]]
    return Gp


@compiled
def _top_eigenvector(Gp: Float, w: Float) -> Float:
    """Return c, of norm 1 under Gp, at the top eigenvector of c -> w * (Gp c), in the range of Gp."""
    squares, vectors = np.linalg.eigh(Gp)
    used = squares > RANGE * squares[-1]
    roots, basis = np.sqrt(squares[used]), np.ascontiguousarray(vectors[:, used])
    half = basis * roots
    top = np.linalg.eigh(half.T @ (half * w.reshape(-1, 1)))[1][:, -1].copy()
    c: Float = basis @ (top / roots)
    return c


@compiled
def _ritz(Gp: Float, w: Float, steps: int) -> Float:
    """Return c, of norm 1 under Gp, at the top Ritz vector of c -> w * (Gp c), started from the last entry.

    With as many steps as there are entries, at the top eigenvector itself.
    """
    if steps >= len(w):
        return _top_eigenvector(Gp, w)
    start = np.zeros(len(w))
    start[-1] = 1.0
    p = len(w)
    width = min(steps + 1, p)
    Q, GQ = np.zeros((width, p)), np.zeros((width, p))
    Q[0] = start / np.sqrt(start @ (Gp @ start))
    GQ[0] = Gp @ Q[0]
    size = 1
    while size < width:
        new = w * GQ[size - 1]
        scale = np.sqrt(max(new @ (Gp @ new), 0.0))
        for _ in range(2):  # twice is enough to be orthogonal to rounding
            for s in range(size):
                new -= (new @ GQ[s]) * Q[s]
        image = Gp @ new
        norm = np.sqrt(max(new @ image, 0.0))
        if norm <= 1e-9 * scale or norm == 0.0:
            break
        Q[size], GQ[size] = new / norm, image / norm
        size += 1
    H = np.empty((size, size))
    for s in range(size):
        for t in range(size):
            H[s, t] = np.sum(GQ[s] * w * GQ[t])
    vectors = np.linalg.eigh(H)[1]
    c = np.zeros(p)
    for s in range(size):
        c += vectors[s, size - 1] * Q[s]
    c /= np.sqrt(c @ (Gp @ c))
    return c


@compiled
def _atom_pass(K: Float, codes: Float, overlap: Float, V: Float, images: Float, gram: Float, steps: int) -> None:
    for r in range(len(V)):
        users = np.flatnonzero(codes[:, r])
        if len(users) == 0:
            continue
        others = np.flatnonzero(overlap[r])
        others = others[others != r]
        atoms = np.append(others, r)
        Gp = _neighbourhood(K, images, gram, users, atoms)
        w = np.zeros(len(Gp))
        for a in range(len(users)):
            w[a] = codes[users[a], r]
        for a in range(len(others)):
            w[len(users) + a] = -overlap[r, others[a]]
        c = _ritz(Gp, w, steps)
        image, old = Gp @ c, Gp[len(Gp) - 1]
        # d'M d, new against old
        if not np.sum(w * image * image) > np.sum(w * old * old) / old[len(old) - 1]:
            continue
        v, kv, products = np.zeros(V.shape[1]), np.zeros(V.shape[1]), np.zeros(len(V))
        for a in range(len(atoms)):
            weight = c[len(users) + a]
            v += weight * V[atoms[a]]
            kv += weight * images[atoms[a]]
            products += weight * gram[atoms[a]]
        for a in range(len(users)):
            v[users[a]] += c[a]
            kv += c[a] * K[users[a]]
            products += c[a] * images[:, users[a]]
        V[r], images[r] = v, kv
        gram[r] = products
        gram[:, r] = products
        gram[r, r] = 1.0


def atom_pass(K: Float, codes: Float, lines: Lines, steps: int = STEPS) -> Lines:
    """Return the atoms after each was moved, one after the other, to where J is less.

    Parameters
    ----------
    K
        K~, (n, n).
    codes
        (n, k).
    lines
        The atoms as they are.
    steps
        Of Lanczos; with as many as there are samples and atoms the eigenvector is exact.
    """
    V, images, gram = (np.array(part) for part in lines)
    _atom_pass(K, codes, codes.T @ codes, V, images, gram, steps)
    return Lines.of(K, V)  # sums of sums gather rounding: computed afresh


def _replace_unused(K: Float, codes: Float, errors: Float, lines: Lines) -> Lines:
    """Return atoms of which those without users are now the worst rebuilt samples, different ones."""
    unused = np.flatnonzero(~codes.any(axis=0))
    if not len(unused):
        return lines
    # a sample that is an atom already would make a twin
    left = np.where((lines.images**2).max(axis=0) > 1.0 - 1e-9, 0.0, errors)
    V = lines.coefficients.copy()
    for r in unused:
        i = int(left.argmax())
        if left[i] <= 0.0:
            break
        V[r] = 0.0
        V[r, i] = 1.0
        # what this line rebuilds of the others: they need no atom of their own for it
        left = np.maximum(left * (1.0 - K[i] ** 4), 0.0)
        left[i] = 0.0
    return Lines.of(K, V)


def learn_kgdl(
    K: Float,
    y: Index,
    n_classes: int,
    rng: np.random.Generator,
    *,
    sparsity: int,
    coding: Coding,
    shrinkage: float,
    atoms_per_class: int,
    ridge: float,
    max_iter: int,
    tol: float,
    steps: int = STEPS,
    n_jobs: int | None = None,
) -> Learnt:
    """Learn lines and a classifier on a semi-definite kernel.

    Parameters
    ----------
    K
        (n, n) with a positive diagonal.
    y
        Number of each sample's class.
    n_classes
        C.
    rng
        Draws the samples that the atoms start from.
    sparsity, coding, shrinkage
        How samples are coded: `line_codes`.
    atoms_per_class
        Different samples of every class that the atoms start from.
    ridge
        Of the classifier.
    max_iter, tol
        At most so many alternations; stop once J changes by less than ``tol``, relatively.
    steps
        Of Lanczos: `atom_pass`.
    n_jobs
        Threads of the coding.
    """
    roots = np.sqrt(K.diagonal())
    unit = K / np.multiply.outer(roots, roots)
    own = unit.diagonal() ** 2
    samples = start_atoms(np.ones(len(y)), y, n_classes, atoms_per_class, 1, rng)[0].indices[:, 0]
    penalty = shrinkage if coding == "lasso" else 0.0
    with one_blas_thread():
        lines = Lines.of(unit, np.eye(len(K))[samples])
        codes, history, n_iter, converged = None, [], 0, False
        while True:
            gram, linear = lines.gram**2, lines.images.T**2
            codes = line_codes(gram, linear, coding, sparsity, shrinkage, codes, n_jobs)
            errors = line_errors(own, linear, gram, codes, penalty)
            history.append(float(errors.sum()))
            # the two values before a full alternation and after it
            converged = n_iter > 0 and history[-3] - history[-1] <= tol * abs(history[-3])
            if converged or n_iter == max_iter:
                break
            n_iter += 1
            lines = atom_pass(unit, codes, _replace_unused(unit, codes, errors, lines), steps)
            errors = line_errors(own, lines.images.T**2, lines.gram**2, codes, penalty)
            history.append(float(errors.sum()))
        weights = label_regression(codes, one_hot(y, n_classes), ridge)
    model = KgdlModel(gram, weights)
    dictionary = lines.coefficients.T / roots[:, None]
    return Learnt(dictionary, sparse.csr_array(codes), np.array(history), n_iter, converged, model)
