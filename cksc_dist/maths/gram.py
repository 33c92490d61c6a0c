"""The kernel matrix K as training sees it, wherever it lives: in memory, on disk, or with the workers of a cluster.

Training asks five things of K, and nothing else:

    product          K V             for the ridge; one pass over K
    weighted_rows    W K             for K G', W with few non-zeros in each column; one pass over K
    combine          K u             of sparse atoms; single rows of K
    solve_atoms      argmin_u u'(K + beta I) u + c'u,  and K u; about T0 rows of K for each atom
    code_step        better codes    no K at all, but it is work to share

One pass goes over strips of rows K[a:b, :]. K is bit-symmetric, so a strip holds the columns a .. b as well, and gives
them of the result whole: ``(W K)[:, a:b] = W K[a:b, :]'``. Every sum runs over ascending positions, so the bits are
those of the same sum in memory, whatever the strips are and whoever computes them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from cksc_dist.maths.codes import Dictionary, code_step
from cksc_dist.maths.kernel_product import Columns, multiply
from cksc_dist.maths.memory import Scratch
from cksc_dist.maths.nqp import SparseSolutions, nqp_atoms, nqp_images
from cksc_dist.maths.sparse import SparseRows, jit, sum_rows, weighted_rows
from cksc_dist.maths.threads import resolve_n_jobs, run_blocks
from cksc_dist.spec import ModelSpec

__all__ = ["Gram", "MemoryGram", "StripGram", "Weights", "atoms_by_rows", "strip_sums"]

Float = NDArray[np.float64]
Index = NDArray[np.int64]
Rows = NDArray[Any]

LANES = 64
"""Rows of a strip that are turned into columns at a time: what they take stays in the last cache."""

CODES_AT_A_TIME = 8192
"""Samples whose linear terms are held at a time."""

WORTH_THREADS = 50_000
"""From so many samples on, atoms are solved on threads where rows are fetched one by one."""

_COLUMNS = Scratch()


class Gram(Protocol):
    """What training asks of K."""

    @property
    def diagonal(self) -> Float:
        """Diagonal of K."""

    def product(self, V: Float) -> Float:
        """Return K V."""

    def weighted_rows(self, weights: Any) -> Float:
        """Return ``weights @ K`` for a CSR matrix (k, n)."""

    def combine(self, atoms: SparseRows) -> Float:
        """Return K u of each atom, one a row."""

    def solve_atoms(self, linear: Float, beta: float, spec: ModelSpec) -> tuple[SparseSolutions, Float]:
        """Return the atom of each linear term, and K u of it."""

    def code_step(
        self, codes: SparseRows, KU: Float, dictionary: Dictionary, y: Index, beta: float, spec: ModelSpec
    ) -> SparseRows:
        """Return better codes of all samples."""


class Weights(NamedTuple):
    """A CSR matrix as plain arrays: edges of its rows, columns and values of its entries."""

    edges: Index
    indices: Index
    values: Float

    @classmethod
    def of(cls, matrix: Any) -> Weights:
        """Return the arrays of a CSR matrix with sorted indices."""
        return cls(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), matrix.data)


@jit
def _turn(strip, first, last, out):
    """Write rows of a strip as columns."""
    for i in range(strip.shape[1]):
        for r in range(first, last):
            out[i, r - first] = strip[r, i]


def strip_sums(strip: Rows, weights: Weights) -> Float:
    """Return ``W K[a:b, :]'``, (rows of W, rows of the strip)."""
    height, n = strip.shape
    out = np.empty((len(weights.edges) - 1, height))
    for begin in range(0, height, LANES):
        end = min(begin + LANES, height)
        columns = _COLUMNS.array((n, end - begin), strip.dtype)
        _turn(strip, begin, end, columns)
        part = np.empty((len(out), end - begin))
        sum_rows(columns, *weights, 0, len(out), part)
        out[:, begin:end] = part
    return out


def atoms_by_rows(
    row: Callable[[int], Rows], diagonal: Float, linear: Float, beta: float, spec: ModelSpec
) -> tuple[SparseSolutions, Float]:
    """Return the atom of each linear term and K u of it, from single rows of K."""
    return nqp_images(row, diagonal, beta, linear, spec.sparsity, selection=spec.selection, prune=spec.prune)


def _combined(row: Callable[[int], Rows], indices: Index, values: Float, count: int, n: int) -> Float:
    """Return the sum of few rows of K, ascending."""
    rows = [row(int(j)) for j in indices[:count]]
    stacked = np.stack(rows) if rows else np.empty((0, n))
    out: Float = np.empty((1, n))
    sum_rows(stacked, np.array([0, count]), np.arange(count), values[:count], 0, 1, out)
    image: Float = out[0]
    return image


def _code_blocks(
    codes: SparseRows,
    diagonal: Float,
    KU: Float,
    dictionary: Dictionary,
    y: Index,
    beta: float,
    spec: ModelSpec,
    n_jobs: int | None,
) -> SparseRows:
    parts = []
    for begin in range(0, len(y), CODES_AT_A_TIME):
        part = slice(begin, begin + CODES_AT_A_TIME)
        parts.append(code_step(codes.take(part), diagonal[part], KU[:, part], dictionary, y[part], beta, spec, n_jobs))
    return SparseRows.join(parts)


class MemoryGram:
    """K as an array.

    Parameters
    ----------
    K
        (n, n), bit-symmetric, C-contiguous, float64 or float32.
    n_jobs
        Threads.
    """

    def __init__(self, K: Rows, n_jobs: int | None = None) -> None:
        self._K, self._n_jobs = K, n_jobs
        self.diagonal = np.diagonal(K).astype(np.float64)

    def product(self, V: Float) -> Float:
        """Return K V."""
        return multiply(self._K, Columns.of(V), self._n_jobs)

    def weighted_rows(self, weights: Any) -> Float:
        """Return ``weights @ K``."""
        return weighted_rows(self._K, weights, self._n_jobs)

    def combine(self, atoms: SparseRows) -> Float:
        """Return K u of each atom, one a row."""
        return weighted_rows(self._K, atoms.csr(len(self._K)), self._n_jobs)

    def solve_atoms(self, linear: Float, beta: float, spec: ModelSpec) -> tuple[SparseSolutions, Float]:
        """Return the atom of each linear term, and K u of it."""
        settings: dict[str, Any] = {"selection": spec.selection, "prune": spec.prune, "n_jobs": self._n_jobs}
        new = nqp_atoms(self._K, beta, linear, spec.sparsity, **settings)
        return new, self.combine(SparseRows(*new[:3]))

    def code_step(
        self, codes: SparseRows, KU: Float, dictionary: Dictionary, y: Index, beta: float, spec: ModelSpec
    ) -> SparseRows:
        """Return better codes of all samples."""
        return _code_blocks(codes, self.diagonal, KU, dictionary, y, beta, spec, self._n_jobs)


class Strips(Protocol):
    """Rows of K that are read as they are needed."""

    @property
    def diagonal(self) -> Float:
        """Diagonal of K."""

    @property
    def edges(self) -> list[tuple[int, int]]:
        """First and last row of each strip."""

    def strip(self, begin: int, end: int) -> Rows:
        """Return K[begin:end, :]; the next strip that a thread reads may take its place."""

    def row(self, i: int) -> Rows:
        """Return K[i, :]."""


class StripGram:
    """K on disk, gone through in strips by threads of this process.

    Parameters
    ----------
    strips
        Reads K.
    n_jobs
        Threads, each of which holds one strip.
    """

    def __init__(self, strips: Strips, n_jobs: int | None = None) -> None:
        self._strips, self._n_jobs = strips, n_jobs
        self.diagonal = strips.diagonal

    def _each_strip(self, work: Callable[[int, int, Rows], None]) -> None:
        edges = self._strips.edges
        run_blocks(lambda i, _: work(*edges[i], self._strips.strip(*edges[i])), len(edges), 1, self._n_jobs)

    def product(self, V: Float) -> Float:
        """Return K V."""
        columns, out = Columns.of(V), np.empty(V.shape)

        def work(begin: int, end: int, strip: Rows) -> None:
            out[begin:end] = multiply(strip, columns)

        self._each_strip(work)
        return out

    def weighted_rows(self, weights: Any) -> Float:
        """Return ``weights @ K``."""
        plain, out = Weights.of(weights), np.empty(weights.shape)

        def work(begin: int, end: int, strip: Rows) -> None:
            out[:, begin:end] = strip_sums(strip, plain)

        self._each_strip(work)
        return out

    def combine(self, atoms: SparseRows) -> Float:
        """Return K u of each atom, one a row."""
        out = np.empty((len(atoms.counts), len(self.diagonal)))
        for j, (indices, values, count) in enumerate(zip(*atoms, strict=True)):
            out[j] = _combined(self._strips.row, indices, values, int(count), len(self.diagonal))
        return out

    def solve_atoms(self, linear: Float, beta: float, spec: ModelSpec) -> tuple[SparseSolutions, Float]:
        """Return the atom of each linear term, and K u of it."""

        def solve(first: int, last: int) -> tuple[SparseSolutions, Float]:
            return atoms_by_rows(self._strips.row, self.diagonal, linear[first:last], beta, spec)

        # a row at a time, threads that have little to do stand in each other's way
        threads = resolve_n_jobs(self._n_jobs) if len(self.diagonal) >= WORTH_THREADS else 1
        return joined(run_blocks(solve, len(linear), -(-len(linear) // threads), threads))

    def code_step(
        self, codes: SparseRows, KU: Float, dictionary: Dictionary, y: Index, beta: float, spec: ModelSpec
    ) -> SparseRows:
        """Return better codes of all samples."""
        return _code_blocks(codes, self.diagonal, KU, dictionary, y, beta, spec, self._n_jobs)


def joined(parts: list[tuple[SparseSolutions, Float]]) -> tuple[SparseSolutions, Float]:
    """Return the solutions of several groups of problems as one."""
    solutions = SparseSolutions(*(np.concatenate(each) for each in zip(*(found for found, _ in parts), strict=True)))
    return solutions, np.concatenate([images for _, images in parts])
