"""CKSC with the codes held fixed: better atoms, in rounds.

With s = |g^j|^2 and W = G G', the part of J that depends on atom j is ``s (u'(K + beta I) u + c_j'u)`` where

    c_j = (alpha M g^j' - 2 (K G')_j + 2 sum_{l != j} W_jl (K u_l + beta u_l)) / s

so all atoms share H = 2 (K + beta I), and no N x N error matrix is ever formed: K G' and K U suffice.

A round solves some atoms side by side from the same state. Their changes d = new - old act on J as

    sum_j (-gain_j) + 2 sum_{i < j} W_ij d_i'(K + beta I) d_j

They are accepted one after the other, best single gain first, each only if it lowers J given those already
accepted. Then ``r = sqrt(u'K u), u <- u / r, g^j <- r g^j``, which leaves the product u g^j as it is.
`sequential` is rounds of one atom; `interleaved` rounds of one atom of each class.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cksc_dist.maths.gram import Gram
from cksc_dist.maths.nqp import SparseSolutions
from cksc_dist.maths.sparse import SparseRows, jit, sparse_dot
from cksc_dist.maths.threads import run_blocks
from cksc_dist.spec import ModelSpec

__all__ = ["AtomStep", "atom_step", "replace_unused", "rounds"]

Float = NDArray[np.float64]
Index = NDArray[np.int64]

CANCELLED = 1e-8
"""An atom shorter than this share of its parts is rounding."""


class AtomStep(NamedTuple):
    """New atoms, their ``KU``, the rescaled codes, and how many atoms changed, stayed, and were replaced."""

    atoms: SparseRows
    KU: Float
    codes: SparseRows
    accepted: int
    rejected: int
    replaced: int


def rounds(home: Index, schedule: str) -> list[Index]:
    """Return the atoms of each round: single ones, or the first of each class, the second of each, and so on.

    Parameters
    ----------
    home
        Class that each atom started from.

    Examples
    --------
    >>> import numpy as np
    >>> [r.tolist() for r in rounds(np.array([0, 0, 1, 1, 1]), "interleaved")]
    [[0, 2], [1, 3], [4]]
    """
    if schedule == "sequential":
        return [np.array([j]) for j in range(len(home))]
    rank = np.empty(len(home), dtype=np.int64)
    for c in np.unique(home):
        members = np.flatnonzero(home == c)
        rank[members] = np.arange(len(members))
    return [np.flatnonzero(rank == r) for r in range(int(rank.max()) + 1)]


def replace_unused(
    atoms: SparseRows, KU: Float, gram: Gram, unused: Index, home: Index, sample_error: Float, y: Index
) -> int:
    """Put in the place of atoms that no sample uses the worst reconstructed sample of their class, in place.

    Different samples for different atoms, and none that is an atom by itself already. J stays as it is.
    Returns how many atoms were replaced.
    """
    replaced = []
    alone = np.zeros(len(y), dtype=bool)
    alone[atoms.indices[atoms.counts == 1, 0]] = True
    for j in unused:
        candidates = np.flatnonzero((y == home[j]) & ~alone)
        if not len(candidates):
            continue
        worst = candidates[np.argmax(sample_error[candidates])]
        alone[worst] = True
        atoms.indices[j], atoms.values[j] = -1, 0.0
        atoms.indices[j, 0], atoms.values[j, 0], atoms.counts[j] = worst, 1.0 / np.sqrt(gram.diagonal[worst]), 1
        replaced.append(j)
    if replaced:
        KU[replaced] = gram.combine(atoms.take(replaced))
    return len(replaced)


@jit
def _atom_linear(which, first, last, KG, KU, W, indices, values, counts, class_sums, y, alpha, beta, out):
    """Fill c_j for the atoms ``which[first:last]``, one a row."""
    for a in range(first, last):
        j = which[a]
        total = out[a]
        everyone = class_sums[j].sum()
        for i in range(len(y)):
            # alpha M g^j' - 2 (K G')_j
            total[i] = alpha * (everyone - class_sums[j, y[i]]) - 2.0 * KG[j, i]
        for other in range(len(counts)):
            weight = 2.0 * W[j, other]
            if other == j or weight == 0.0:
                continue
            row = KU[other]
            for i in range(len(total)):
                total[i] += weight * row[i]
            for s in range(counts[other]):
                total[indices[other, s]] += weight * beta * values[other, s]
        scale = 1.0 / W[j, j]
        for i in range(len(total)):
            total[i] *= scale


@jit
def _old_value(j, a, KU, indices, values, counts, linear, beta):
    """Return u'(K + beta I) u + c'u of the atom as it is."""
    quadratic = 0.0
    for s in range(counts[j]):
        u, i = values[j, s], indices[j, s]
        quadratic += u * (KU[j, i] + beta * u)
    return quadratic + sparse_dot(indices[j], values[j], counts[j], linear[a])


@jit
def _interaction(x_indices, x_values, x_count, y_indices, y_values, y_count, Ky, beta):
    """Return x'(K + beta I) y of two sparse vectors, given K y."""
    total = sparse_dot(x_indices, x_values, x_count, Ky)
    for s in range(x_count):
        for t in range(y_count):
            if x_indices[s] == y_indices[t]:
                total += beta * x_values[s] * y_values[t]
    return total


@jit
def _accept(which, gains, W, old, KU, new, KU_new, beta, accepted):
    """Mark the proposals to accept: best gain first, each only if J falls given those before it.

    ``old`` and ``new`` are (indices, values, counts) of all atoms, and of the proposals.
    """
    for a in np.argsort(-gains, kind="mergesort"):
        if gains[a] <= 0.0:
            break
        j = which[a]
        change = -gains[a]
        for b in range(len(which)):
            i = which[b]
            if not accepted[b] or W[i, j] == 0.0:
                continue
            # d_i'(K + beta I) d_j with d = new - old, written out
            d = (
                _interaction(new[0][a], new[1][a], new[2][a], new[0][b], new[1][b], new[2][b], KU_new[b], beta)
                - _interaction(new[0][a], new[1][a], new[2][a], old[0][i], old[1][i], old[2][i], KU[i], beta)
                - _interaction(old[0][j], old[1][j], old[2][j], new[0][b], new[1][b], new[2][b], KU_new[b], beta)
                + _interaction(old[0][j], old[1][j], old[2][j], old[0][i], old[1][i], old[2][i], KU[i], beta)
            )
            change += 2.0 * W[i, j] * d
        accepted[a] = change < 0.0


class _Codes:
    """What the atom problems see of the codes; rescaled when an atom is normalised."""

    def __init__(self, codes: SparseRows, n_atoms: int, y: Index, n_classes: int) -> None:
        self.by_sample = codes
        self.users = codes.csr(n_atoms).T.tocsr()  # G, its rows sorted by sample
        self.users.sort_indices()
        self.W = (self.users @ self.users.T).toarray()
        self.W = (self.W + self.W.T) / 2
        self.class_sums = np.zeros((n_atoms, n_classes))
        rows = np.repeat(np.arange(n_atoms), np.diff(self.users.indptr))
        np.add.at(self.class_sums, (rows, y[self.users.indices]), self.users.data)
        self.scale = np.ones(n_atoms)

    def rescale(self, j: int, r: float) -> None:
        """g^j <- r g^j. What only the problem of atom j sees stays as it is: that is behind us."""
        self.W[j] *= r
        self.W[:, j] *= r
        self.scale[j] *= r

    def rescaled(self) -> SparseRows:
        """Return the codes with all factors applied."""
        codes = self.by_sample
        return codes._replace(values=codes.values * np.where(codes.indices >= 0, self.scale[codes.indices], 0.0))


def atom_step(
    gram: Gram,
    atoms: SparseRows,
    KU: Float,
    codes: SparseRows,
    home: Index,
    sample_error: Float,
    y: Index,
    n_classes: int,
    beta: float,
    spec: ModelSpec,
    n_jobs: int | None = None,
) -> AtomStep:
    """Return better atoms for the given codes; J does not rise.

    Parameters
    ----------
    gram
        K, which is gone through once, and of which each new atom fetches a few rows.
    atoms, KU
        The dictionary, and ``KU[j] = K u_j``.
    codes
        One row for each sample.
    home
        Class that each atom started from.
    sample_error
        Reconstruction error of each sample; decides what replaces an unused atom.
    """
    atoms, KU = SparseRows(atoms.indices.copy(), atoms.values.copy(), atoms.counts.copy()), KU.copy()
    state = _Codes(codes, len(home), y, n_classes)
    unused = np.flatnonzero(np.diag(state.W) == 0.0)
    replaced = replace_unused(atoms, KU, gram, unused, home, sample_error, y)
    KG = gram.weighted_rows(state.users)
    accepted = rejected = 0
    for members in rounds(home, spec.schedule):
        members = members[state.W[members, members] > 0.0]
        if len(members):
            taken = _round(gram, members, atoms, KU, KG, state, y, beta, spec, n_jobs)
            accepted += taken
            rejected += len(members) - taken
    return AtomStep(atoms, KU, state.rescaled(), accepted, rejected, replaced)


def _round(
    gram: Gram,
    members: Index,
    atoms: SparseRows,
    KU: Float,
    KG: Float,
    state: _Codes,
    y: Index,
    beta: float,
    spec: ModelSpec,
    n_jobs: int | None,
) -> int:
    """Improve the atoms ``members`` side by side, in place; return how many changed."""
    linear = np.empty((len(members), len(y)))
    arguments = (KG, KU, state.W, *atoms, state.class_sums, y, float(spec.alpha), beta, linear)
    run_blocks(lambda i, j: _atom_linear(members, i, j, *arguments), len(members), 4, n_jobs)
    new, KU_new = gram.solve_atoms(linear, beta, spec)
    gains = np.array(
        [state.W[j, j] * (_old_value(j, a, KU, *atoms, linear, beta) - new.objective[a]) for a, j in enumerate(members)]
    )
    norms, parts = _squared_norms(new, gram.diagonal, KU_new)
    # where K has negative entries, the parts of an atom may cancel: what is left has no direction
    gains[norms <= CANCELLED * parts] = 0.0
    accepted = np.zeros(len(members), dtype=bool)
    _accept(members, gains, state.W, tuple(atoms), KU, tuple(new[:3]), KU_new, beta, accepted)
    for a in np.flatnonzero(accepted):
        j, r = int(members[a]), float(np.sqrt(norms[a]))
        # u <- u / r, g^j <- r g^j
        atoms.indices[j], atoms.values[j], atoms.counts[j] = new.indices[a], new.values[a] / r, new.counts[a]
        KU[j] = KU_new[a] / r
        state.rescale(j, r)
    return int(accepted.sum())


def _squared_norms(new: SparseSolutions, diagonal: Float, KU_new: Float) -> tuple[Float, Float]:
    """Return u'K u of each proposal, and what it would be if its samples were orthogonal."""
    norms = [sparse_dot(*row, Ku) for *row, Ku in zip(*new[:3], KU_new, strict=True)]
    used = new.indices >= 0
    parts = np.where(used, new.values**2 * diagonal[new.indices], 0.0).sum(axis=1)
    return np.array(norms), parts
