"""Confident Kernel Sparse Coding: the training loop.

    minimise over U, G >= 0    J = ||Phi(X) - Phi(X) U G||^2 + beta ||U G||^2 + alpha sum(M * (U G)')
    subject to                 at most T0 non-zeros in each code g_i and each atom u_j,  u_j'K u_j = 1

by turns over the codes (`cksc_dist.maths.codes`) and the atoms (`cksc_dist.maths.atoms`). J never rises at any half
step. Stops once J changes by less than ``tol`` in an alternation, and ends with one more pass over the codes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cksc_dist.maths.atoms import atom_step
from cksc_dist.maths.codes import Objective, dictionary_products, objective
from cksc_dist.maths.gram import Gram, MemoryGram
from cksc_dist.maths.ridge import ridge
from cksc_dist.maths.sparse import SparseRows
from cksc_dist.spec import ModelSpec

__all__ = ["TERMS", "Fit", "State", "alternate", "class_interpretability", "start_atoms"]

Index = NDArray[np.int64]

TERMS = ("reconstruction", "ridge", "discrimination")
"""Columns of the history: the terms of J."""


class State(NamedTuple):
    """All that an alternation leaves to the next one: training goes on from here with the same bits.

    Parameters
    ----------
    atoms, KU, codes
        U, ``KU[j] = K u_j``, and G. KU is not made anew from U, because that would round otherwise.
    home
        Class that each atom started from.
    beta
        Ridge.
    history
        (half steps, 3): the `TERMS` of J so far.
    n_iter
        Alternations so far.
    settled, converged
        Whether J has changed by less than ``tol`` in the last one, and whether that was the end.
    """

    atoms: SparseRows
    KU: NDArray[np.float64]
    codes: SparseRows
    home: Index
    beta: float
    history: NDArray[np.float64]
    n_iter: int
    settled: bool
    converged: bool


class Fit(NamedTuple):
    """A trained dictionary.

    Parameters
    ----------
    atoms, codes
        U and G as sparse rows: one for each atom, one for each sample.
    home
        Class that each atom started from.
    beta
        Ridge.
    history
        (half steps, 3): the `TERMS` of J after every half step.
    n_iter
        Alternations.
    converged
        Whether J had settled before ``max_iter``.
    KU
        ``KU[j] = K u_j``.
    """

    atoms: SparseRows
    codes: SparseRows
    home: Index
    beta: float
    history: NDArray[np.float64]
    n_iter: int
    converged: bool
    KU: NDArray[np.float64]


def start_atoms(
    diagonal: NDArray[Any], y: Index, n_classes: int, per_class: int, width: int, rng: np.random.Generator
) -> tuple[SparseRows, Index]:
    """Return atoms that are single, different samples of every class, and the class of each.

    A class with fewer than ``per_class`` samples takes all it has.
    """
    samples = [np.sort(rng.permutation(np.flatnonzero(y == c))[:per_class]) for c in range(n_classes)]
    chosen = np.concatenate(samples)
    atoms = SparseRows.empty(len(chosen), width)
    atoms.indices[:, 0] = chosen
    atoms.values[:, 0] = 1.0 / np.sqrt(np.asarray(diagonal, dtype=np.float64)[chosen])
    atoms.counts[:] = 1
    return atoms, y[chosen]


def alternate(
    K: NDArray[Any] | Gram,
    y: Index,
    n_classes: int,
    spec: ModelSpec,
    rng: np.random.Generator,
    n_jobs: int | None = None,
    beta: float | None = None,
    on_half_step: Callable[[str, Objective], None] | None = None,
    *,
    state: State | None = None,
    on_alternation: Callable[[State], None] | None = None,
) -> Fit:
    """Train a dictionary.

    Parameters
    ----------
    K
        (n, n) Gram matrix: bit-symmetric, positive diagonal, C-contiguous, float64 or float32; or where it lives.
    y
        Class index of each sample, 0 .. n_classes - 1, each class with a sample.
    spec
        Parameters.
    rng
        Draws the samples that the atoms start from.
    n_jobs
        Threads. No bit of the result depends on it.
    beta
        Ridge; None: the least that makes recall convex.
    on_half_step
        Called with ``"codes"`` or ``"atoms"`` and J after each half step.
    state
        Where an earlier call was left: its alternations are not made again.
    on_alternation
        Called with the state after every alternation.
    """
    gram: Gram = MemoryGram(K, n_jobs) if isinstance(K, np.ndarray) else K
    diagonal = gram.diagonal
    start = float(diagonal.sum())  # J of codes that are 0
    floor = 1e-9 * start  # below it J is rounding
    state = state or _start(gram, y, n_classes, spec, rng, beta)
    atoms, KU, codes, home, beta, history, n_iter, settled, converged = state
    del state  # whose KU would otherwise be kept to the end
    before = float(history[-1].sum()) if len(history) else start
    dictionary = dictionary_products(atoms, KU, y, n_classes, n_jobs)

    def record(step: str) -> Objective:
        nonlocal history
        now = objective(codes, diagonal, KU, dictionary, y, float(spec.alpha), beta)
        history = np.vstack([history, [[now.reconstruction, now.ridge, now.discrimination]]])
        if on_half_step is not None:
            on_half_step(step, now)
        return now

    while n_iter < spec.max_iter and not converged:
        codes = gram.code_step(codes, KU, dictionary, y, beta, spec)
        now = record("codes")
        step = atom_step(gram, atoms, KU, codes, home, now.sample_error, y, n_classes, beta, spec, n_jobs)
        atoms, KU, codes = step.atoms, step.KU, step.codes
        dictionary = dictionary_products(atoms, KU, y, n_classes, n_jobs)
        now = record("atoms")
        n_iter += 1
        # atoms that have just been put in lower J in the next pass over the codes only: one more alternation is due
        settled_before, settled = settled, abs(before - now.total) <= spec.tol * max(abs(before), floor)
        converged = settled and (step.replaced == 0 or settled_before)
        before = now.total
        if on_alternation is not None:
            on_alternation(State(atoms, KU, codes, home, beta, history, n_iter, settled, converged))
    codes = gram.code_step(codes, KU, dictionary, y, beta, spec)
    record("codes")
    return Fit(atoms, codes, home, beta, history, n_iter, converged, KU)


def _start(
    gram: Gram, y: Index, n_classes: int, spec: ModelSpec, rng: np.random.Generator, beta: float | None
) -> State:
    """Return the state before the first alternation: single samples as atoms, no codes."""
    if beta is None:
        largest = float(gram.diagonal.max())
        beta = ridge(gram.product, y, n_classes, float(spec.alpha), diagonal=largest).beta
    per_class = spec.sparsity if spec.atoms_per_class is None else spec.atoms_per_class
    atoms, home = start_atoms(gram.diagonal, y, n_classes, per_class, spec.sparsity, rng)
    codes = SparseRows.empty(len(y), spec.sparsity)
    return State(atoms, gram.combine(atoms), codes, home, beta, np.empty((0, len(TERMS))), 0, False, False)


def class_interpretability(class_weight: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return IP of each atom: the share of its weight that lies in its strongest class, in (0, 1].

    Parameters
    ----------
    class_weight
        (k, C) absolute weight of each atom in each class.
    """
    weight = np.abs(class_weight)
    return weight.max(axis=1) / weight.sum(axis=1)  # type: ignore[no-any-return]
