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
from cksc_dist.maths.codes import Objective, code_step, dictionary_products, objective
from cksc_dist.maths.ridge import kernel_product, ridge
from cksc_dist.maths.sparse import SparseRows, weighted_rows
from cksc_dist.spec import ModelSpec

__all__ = ["TERMS", "Fit", "alternate", "class_interpretability", "start_atoms"]

Index = NDArray[np.int64]

TERMS = ("reconstruction", "ridge", "discrimination")
"""Columns of the history: the terms of J."""


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
    """

    atoms: SparseRows
    codes: SparseRows
    home: Index
    beta: float
    history: NDArray[np.float64]
    n_iter: int
    converged: bool


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
    K: NDArray[Any],
    y: Index,
    n_classes: int,
    spec: ModelSpec,
    rng: np.random.Generator,
    n_jobs: int | None = None,
    beta: float | None = None,
    on_half_step: Callable[[str, Objective], None] | None = None,
) -> Fit:
    """Train a dictionary.

    Parameters
    ----------
    K
        (n, n) Gram matrix: bit-symmetric, positive diagonal, C-contiguous, float64 or float32.
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
    """
    diagonal = np.diagonal(K).astype(np.float64)
    if beta is None:
        product = kernel_product(K, n_jobs)
        beta = ridge(product, y, n_classes, float(spec.alpha), diagonal=float(diagonal.max())).beta
    per_class = spec.sparsity if spec.atoms_per_class is None else spec.atoms_per_class
    atoms, home = start_atoms(diagonal, y, n_classes, per_class, spec.sparsity, rng)
    KU = weighted_rows(K, atoms.csr(len(y)), n_jobs)
    codes = SparseRows.empty(len(y), spec.sparsity)
    history: list[Objective] = []

    def record(step: str) -> Objective:
        now = objective(codes, diagonal, KU, dictionary, y, float(spec.alpha), beta)
        history.append(now)
        if on_half_step is not None:
            on_half_step(step, now)
        return now

    dictionary = dictionary_products(atoms, KU, y, n_classes, n_jobs)
    before = float(diagonal.sum())  # J of codes that are 0
    floor = 1e-9 * before  # below it J is rounding
    converged = settled = False
    n_iter = 0
    while n_iter < spec.max_iter and not converged:
        codes = code_step(codes, diagonal, KU, dictionary, y, beta, spec, n_jobs)
        now = record("codes")
        step = atom_step(K, atoms, KU, codes, home, now.sample_error, y, n_classes, beta, spec, n_jobs)
        atoms, KU, codes = step.atoms, step.KU, step.codes
        dictionary = dictionary_products(atoms, KU, y, n_classes, n_jobs)
        now = record("atoms")
        n_iter += 1
        # atoms that have just been put in lower J in the next pass over the codes only: one more alternation is due
        settled_before, settled = settled, abs(before - now.total) <= spec.tol * max(abs(before), floor)
        converged = settled and (step.replaced == 0 or settled_before)
        before = now.total
    codes = code_step(codes, diagonal, KU, dictionary, y, beta, spec, n_jobs)
    record("codes")
    terms = np.array([[step.reconstruction, step.ridge, step.discrimination] for step in history])
    return Fit(atoms, codes, home, beta, terms, n_iter, converged)


def class_interpretability(class_weight: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return IP of each atom: the share of its weight that lies in its strongest class, in (0, 1].

    Parameters
    ----------
    class_weight
        (k, C) absolute weight of each atom in each class.
    """
    weight = np.abs(class_weight)
    return weight.max(axis=1) / weight.sum(axis=1)  # type: ignore[no-any-return]
