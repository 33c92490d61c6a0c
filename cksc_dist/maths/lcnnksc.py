"""LC-NNKSC: label-consistent non-negative kernel sparse coding.

    minimise over U, G >= 0    J = ||Phi(X) - Phi(X) U G||^2 + b ||L - L U G||^2 + gamma sum_j u_j' Delta u_j
    subject to                 at most T0 non-zeros in each code g_i and each atom u_j,  u_j'K u_j = 1

With ``K~ = K + b L'L`` the first two terms are ``tr((I - U G)' K~ (I - U G))``: plain non-negative kernel sparse coding
on K~. Delta holds half the squared distances in feature space, ``Delta_ij = (K_ii + K_jj) / 2 - K_ij``, so that an atom
is made of samples that are close to each other:

    u' Delta u = (1'u)(d'u) - u'K u,    d the diagonal of K;    0 for a single sample, never negative for u >= 0

Codes, by non-negative OMP (`cksc_dist.maths.nqp`):

    g_i    1/2 g'H g + c'g    with  H = 2 U'K~ U,  c = -2 U'k~_i

Atoms, one after the other, with s = |g^j|^2 and W = G G', divided by s:

    u_j    1/2 u'H u + c'u    with  H = 2 K~ + 2 (gamma' / s) Delta,  gamma' = min(gamma, s)
                                    c = (-2 (K~ G')_j + 2 sum_{l != j} W_jl K~ u_l) / s

over the samples of one class, that of the atom's weight: an atom starts as one sample, so it stays in its class. Delta
is indefinite; for a unit diagonal it is 11' - K, and ``gamma' <= s`` keeps H semi-definite. The new atom is normalised,
``r = sqrt(u'K u), u <- u / r, g^j <- r g^j``, and kept only if the whole J fell: J never rises at any half step.

Recall is on the plain K: H = 2 U'K U, c = -2 U'k_z. The class scores are ``h = L U g``.

B. Hosseini, F. Huelsmann, M. Botsch, B. Hammer, Non-negative kernel sparse coding for the analysis of motion data,
ICANN 2016.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cksc_dist.maths.cksc import start_atoms
from cksc_dist.maths.codes import Dictionary, code_step, dictionary_products, objective
from cksc_dist.maths.learnt import Learnt
from cksc_dist.maths.nqp import nqp_codes
from cksc_dist.maths.nqp_steps import compiled, new_pursuit, solve_block
from cksc_dist.maths.sparse import SparseRows, inner_products, weighted_rows
from cksc_dist.spec import ModelSpec

__all__ = ["LcnnkscModel", "class_scores", "recall", "train"]

Float = NDArray[np.float64]
Index = NDArray[np.int64]

CANCELLED = 1e-8
"""An atom whose squared norm is below this share of that of its parts is rounding."""

TOLERANCE = 1e-10
"""Of the pursuit, relative to the largest entry of its linear term."""


class LcnnkscModel(NamedTuple):
    """What recall needs.

    Parameters
    ----------
    gram
        U'K U, (k, k).
    class_weight
        (L U)', (k, C).
    """

    gram: Float
    class_weight: Float


class _State(NamedTuple):
    """A dictionary, and what its products with K~ are: ``KU[j] = K~ u_j``."""

    atoms: SparseRows
    KU: Float
    codes: SparseRows


def train(
    K: Float,
    y: Index,
    n_classes: int,
    *,
    sparsity: int,
    label_weight: float,
    locality: float,
    atoms_per_class: int | None,
    max_iter: int,
    tol: float,
    rng: np.random.Generator,
    n_jobs: int | None = None,
) -> Learnt:
    """Learn dictionary and codes.

    Parameters
    ----------
    K
        (n, n) Gram matrix: symmetric to the bit, positive diagonal, positive semi-definite.
    y
        Class index of each sample, 0 .. n_classes - 1, each class with a sample.
    sparsity
        T0.
    label_weight
        b.
    locality
        gamma.
    atoms_per_class
        Atoms that each class starts with; None: T0.
    max_iter, tol
        At most so many alternations; stop once J changes by less than ``tol``, relatively.
    rng
        Draws the samples that the atoms start from.
    n_jobs
        Threads of the coding. No bit of the result depends on it.

    Returns
    -------
    Learnt
        ``history`` has J after every half step: codes, atoms, codes, and so on.
    """
    coding = ModelSpec(sparsity=sparsity, alpha=0.0)
    labelled = K + label_weight * (y[:, None] == y)  # K~ = K + b L'L
    diagonal = labelled.diagonal().copy()
    per_class = sparsity if atoms_per_class is None else atoms_per_class
    atoms, home = start_atoms(K.diagonal(), y, n_classes, per_class, sparsity, rng)
    state = _State(atoms, weighted_rows(labelled, atoms.csr(len(K)), n_jobs), SparseRows.empty(len(K), sparsity))
    dictionary = dictionary_products(state.atoms, state.KU, y, n_classes, n_jobs)
    history: list[float] = []

    def better_codes() -> Float:
        """Renew the codes; return the error of each sample."""
        nonlocal state
        codes = code_step(state.codes, diagonal, state.KU, dictionary, y, 0.0, coding, n_jobs)
        state = state._replace(codes=codes)
        return record()

    def record() -> Float:
        terms = objective(state.codes, diagonal, state.KU, dictionary, y, 0.0, 0.0)
        history.append(terms.reconstruction + locality * float(_spreads(state.atoms, K).sum()))
        return terms.sample_error

    before = float(diagonal.sum())  # J of codes that are 0: the first atoms are single samples
    floor = 1e-9 * before  # below it J is rounding
    n_iter, settled, converged = 0, False, False
    while n_iter < max_iter and not converged:
        error = better_codes()
        state, replaced = _better_atoms(K, labelled, state, home, y, n_classes, error, locality)
        dictionary = dictionary_products(state.atoms, state.KU, y, n_classes, n_jobs)
        record()
        n_iter += 1
        # atoms that have just been put in lower J in the next pass over the codes only: one more alternation is due
        settled_before, settled = settled, abs(before - history[-1]) <= tol * max(before, floor)
        converged = settled and (replaced == 0 or settled_before)
        before = history[-1]
    better_codes()
    U = state.atoms.csr(len(K))
    model = _model(K, state.atoms, dictionary, n_jobs)
    return Learnt(U.toarray().T, state.codes.csr(len(home)), np.array(history), n_iter, converged, model)


def _model(K: Float, atoms: SparseRows, dictionary: Dictionary, n_jobs: int | None) -> LcnnkscModel:
    gram = inner_products(atoms, weighted_rows(K, atoms.csr(len(K)), n_jobs), n_jobs)
    return LcnnkscModel((gram + gram.T) / 2, dictionary.class_weight)  # equal up to rounding; NQP wants bit-symmetric


def _spreads(atoms: SparseRows, K: Float) -> Float:
    """Return u' Delta u of each atom."""
    out = np.empty(len(atoms.counts))
    _fill_spreads(*atoms, K, out)
    return out


@compiled
def _fill_spreads(indices: Index, values: Float, counts: Index, K: Float, out: Float) -> None:
    for j in range(len(counts)):
        out[j] = _spread(indices[j], values[j], counts[j], K)


@compiled
def _spread(indices: Index, values: Float, count: int, K: Float) -> float:
    """Return u' Delta u = 2 sum_{s < t} u_s u_t Delta_st of one atom: a sum of what is not negative."""
    total = 0.0
    for s in range(count):
        for t in range(s):
            i, j = indices[s], indices[t]
            total += values[s] * values[t] * (K[i, i] + K[j, j] - 2.0 * K[i, j])
    return total


def _better_atoms(
    K: Float, labelled: Float, state: _State, home: Index, y: Index, n_classes: int, error: Float, locality: float
) -> tuple[_State, int]:
    """Return better atoms for the given codes, and how many that no sample used were replaced; J does not rise."""
    atoms = SparseRows(state.atoms.indices.copy(), state.atoms.values.copy(), state.atoms.counts.copy())
    KU = state.KU.copy()
    users = state.codes.csr(len(home)).T.tocsr()  # G, its rows sorted by sample
    users.sort_indices()
    W = (users @ users.T).toarray()
    replaced = _replace_unused(K, labelled, atoms, KU, np.flatnonzero(W.diagonal() == 0.0), home, y, error)
    members = np.argsort(y, kind="stable")
    edges = np.searchsorted(y[members], np.arange(n_classes + 1))
    scale = np.ones(len(home))
    marks, vectors, squares, _ = new_pursuit(1, atoms.indices.shape[1])
    _improve_atoms(
        (K, labelled),
        (members, edges.astype(np.int64), home),
        (users.indptr.astype(np.int64), users.indices.astype(np.int64), users.data),
        W,
        (atoms.indices, atoms.values, atoms.counts),
        KU,
        scale,
        (marks, vectors, squares),
        float(locality),
    )
    codes = state.codes
    values = codes.values * np.where(codes.indices >= 0, scale[codes.indices], 0.0)
    return _State(atoms, KU, codes._replace(values=values)), replaced


def _replace_unused(
    K: Float, labelled: Float, atoms: SparseRows, KU: Float, unused: Index, home: Index, y: Index, error: Float
) -> int:
    """Put in the place of atoms that no sample uses the worst reconstructed sample of their class, in place.

    Different samples for different atoms, and none that is an atom by itself already. Returns how many there were.
    """
    replaced = 0
    alone = np.zeros(len(y), dtype=bool)
    alone[atoms.indices[atoms.counts == 1, 0]] = True
    for j in unused:
        candidates = np.flatnonzero((y == home[j]) & ~alone)
        if not len(candidates):
            continue
        worst = candidates[np.argmax(error[candidates])]
        alone[worst] = True
        weight = 1.0 / np.sqrt(K[worst, worst])
        atoms.indices[j], atoms.values[j] = -1, 0.0
        atoms.indices[j, 0], atoms.values[j, 0], atoms.counts[j] = worst, weight, 1
        KU[j] = weight * labelled[worst]
        replaced += 1
    return replaced


@compiled
def _improve_atoms(
    kernels: tuple[Float, Float],
    classes: tuple[Index, Index, Index],
    users: tuple[Index, Index, Float],
    W: Float,
    atoms: tuple[Index, Float, Index],
    KU: Float,
    scale: Float,
    pursuit: tuple[Index, Float, Float],
    locality: float,
) -> None:
    """Improve the atoms one after the other, in place; ``scale`` takes the factors of the rows of G.

    Parameters
    ----------
    kernels
        K and K~.
    classes
        Samples sorted by class, where each class begins, and the class of each atom.
    users
        G by atom, as a CSR matrix.
    pursuit
        Marks, vectors and squares of NQP.
    """
    K, labelled = kernels
    members, edges, home = classes
    indices, values, counts = atoms
    marks, vectors, squares = pursuit
    width = indices.shape[1]
    places, entries = np.empty((1, width), np.int64), np.empty((1, width))
    count, value = np.empty(1, np.int64), np.empty(1)
    samples, weights = np.empty(width, np.int64), np.empty(width)
    for j in range(len(counts)):
        s = W[j, j]
        if s == 0.0:
            continue
        mine = members[edges[home[j]] : edges[home[j] + 1]]
        linear = _atom_linear(j, mine, labelled, users, W, KU)
        quadratic = _atom_quadratic(mine, K, labelled, min(locality, s) / s)
        old = _atom_value(indices[j], values[j], counts[j], 1.0, kernels, linear, mine, locality / s)
        # the state of a pursuit is as wide as its problem
        solve_block(
            marks,
            vectors,
            squares,
            np.zeros((2, len(mine))),
            quadratic,
            1.0,
            0.0,
            np.ones(len(mine)),
            linear.reshape(1, -1),
            width,
            0.0,
            TOLERANCE,
            places,
            entries,
            count,
            value,
        )
        norm = parts = 0.0
        for a in range(count[0]):
            samples[a], weights[a] = mine[places[0, a]], entries[0, a]
            parts += weights[a] * weights[a] * K[samples[a], samples[a]]
            for b in range(count[0]):
                norm += weights[a] * entries[0, b] * K[samples[a], mine[places[0, b]]]
        if norm <= CANCELLED * parts:
            continue
        if _atom_value(samples, weights, count[0], norm, kernels, linear, mine, locality / s) >= old:
            continue
        # u <- u / r, g^j <- r g^j
        r = np.sqrt(norm)
        indices[j], values[j], counts[j] = -1, 0.0, count[0]
        KU[j] = 0.0
        for a in range(count[0]):
            indices[j, a], values[j, a] = samples[a], weights[a] / r
            KU[j] += values[j, a] * labelled[samples[a]]
        W[j] *= r
        W[:, j] *= r
        scale[j] = r


@compiled
def _atom_linear(j: int, mine: Index, labelled: Float, users: tuple[Index, Index, Float], W: Float, KU: Float) -> Float:
    """Return c of atom j on the samples ``mine``."""
    edges, samples, codes = users
    linear = np.zeros(len(mine))
    # - 2 (K~ G')_j
    for u in range(edges[j], edges[j + 1]):
        row, weight = labelled[samples[u]], -2.0 * codes[u]
        for a in range(len(mine)):
            linear[a] += weight * row[mine[a]]
    # + 2 sum_{l != j} W_jl K~ u_l
    for other in range(len(W)):
        weight = 2.0 * W[j, other]
        if other == j or weight == 0.0:
            continue
        for a in range(len(mine)):
            linear[a] += weight * KU[other, mine[a]]
    linear /= W[j, j]
    return linear


@compiled
def _atom_quadratic(mine: Index, K: Float, labelled: Float, ratio: float) -> Float:
    """Return H = 2 K~ + 2 (gamma' / s) Delta on the samples ``mine``."""
    quadratic = np.empty((len(mine), len(mine)))
    for a in range(len(mine)):
        for b in range(len(mine)):
            i, l = mine[a], mine[b]  # noqa: E741
            quadratic[a, b] = 2.0 * labelled[i, l] + ratio * (K[i, i] + K[l, l] - 2.0 * K[i, l])
    return quadratic


@compiled
def _atom_value(
    samples: Index,
    weights: Float,
    count: int,
    norm: float,
    kernels: tuple[Float, Float],
    linear: Float,
    mine: Index,
    locality: float,
) -> float:
    """Return the part of J / s that depends on an atom; its spread is that of the atom of unit norm."""
    K, labelled = kernels
    quadratic = line = 0.0
    for a in range(count):
        line += weights[a] * linear[np.searchsorted(mine, samples[a])]
        for b in range(count):
            quadratic += weights[a] * weights[b] * labelled[samples[a], samples[b]]
    return quadratic + line + locality * _spread(samples, weights, count, K) / norm


def recall(linear: Float, model: LcnnkscModel, sparsity: int, n_jobs: int | None = None) -> Any:
    """Return the codes (m, k), sparse, of samples given by their products with the atoms, k_z'U (m, k)."""
    solutions = nqp_codes(2.0 * model.gram, -2.0 * linear, sparsity, selection="plain", n_jobs=n_jobs)
    return SparseRows(*solutions[:3]).csr(len(model.gram))


def class_scores(codes: Any, model: LcnnkscModel) -> Float:
    """Return h = L U g of each sample, (m, C)."""
    scores: Float = codes @ model.class_weight
    return scores
