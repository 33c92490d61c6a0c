"""The kernel matrix with the workers of a cluster: the passes of training as tasks, gathered in a fixed order.

The mathematics is that of `cksc_dist.maths.gram`; here is only how it is cut, and what travels: U and G, which are
sparse and small, linear terms and images of atoms, but never K.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cksc_dist.dist.executors import Executor, results
from cksc_dist.dist.kernel_work import (
    AtomTask,
    CodeTask,
    PassTask,
    pass_product,
    pass_sums,
    solve_atoms,
    solve_codes,
    write_shared,
)
from cksc_dist.maths.codes import Dictionary
from cksc_dist.maths.gram import Gram, MemoryGram, StripGram, Weights, joined
from cksc_dist.maths.nqp import SparseSolutions
from cksc_dist.maths.sparse import SparseRows
from cksc_dist.processes import SIGNATURE, is_of_the_dead, signature
from cksc_dist.spec import ModelSpec
from cksc_dist.store.kernel_copy import KernelCopy

__all__ = ["ClusterGram", "cut"]

Float = NDArray[np.float64]
Index = NDArray[np.int64]

TASKS_A_SLOT = 4
"""Tasks of a pass for each that runs at a time: enough to even out workers of different speed."""

PASS_BYTES = 512 * 2**20
"""Bytes of K that one task goes through at most: some seconds of work."""

WORTH_SENDING = 3_000_000
"""Smaller work (some hundredths of a second) is done by the client: to send it and wait for it would take longer."""

CODE_BYTES = 4 * 2**20
"""Bytes of K U that one task of codes carries at most."""


PASS = re.compile(rf"pass-({SIGNATURE})-[0-9a-f]+-\d+\.npz")
"""What the tasks of a pass share, named after the process that wrote it: if it is killed, the next one tidies up."""


def cut(n: int, parts: int) -> list[tuple[int, int]]:
    """Return ``range(n)`` in at most so many ranges of about the same length.

    Examples
    --------
    >>> cut(7, 3)
    [(0, 3), (3, 5), (5, 7)]
    """
    size, larger = divmod(n, min(n, parts)) if n else (0, 0)
    bounds = np.cumsum([0, *(size + (i < larger) for i in range(min(n, parts)))]).tolist()
    return list(pairwise(bounds))


class ClusterGram:
    """K as a copy in a store that workers read.

    Parameters
    ----------
    copy
        The whole kernel copy.
    executor
        Who works.
    n_jobs
        Threads of this process, for what is done here.
    worth
        Work, in entries that are looked at, from which on it is worth to be sent.
    """

    def __init__(
        self, copy: KernelCopy, executor: Executor, n_jobs: int | None = None, worth: int = WORTH_SENDING
    ) -> None:
        self._copy, self._executor, self._worth = copy, executor, worth
        self._here: Gram = MemoryGram(copy.load(), n_jobs) if copy.is_small else StripGram(copy, n_jobs)
        self.diagonal = copy.diagonal
        self._run, self._passes = f"{signature()}-{uuid.uuid4().hex[:8]}", 0
        for name in copy.folder.names(""):
            if (left := PASS.fullmatch(name)) and is_of_the_dead(left[1], Path(copy.folder.url, name)):
                copy.folder.remove(name)

    @contextmanager
    def _shared(self, **arrays: NDArray[Any]) -> Iterator[str]:
        """Put arrays where all tasks of a pass find them; for the time of the pass."""
        name = f"pass-{self._run}-{self._passes}.npz"
        self._passes += 1
        write_shared(self._copy.folder, name, arrays)
        try:
            yield name
        finally:
            self._copy.folder.remove(name)

    def _go_through(self, function: Callable[[PassTask], Float], **arrays: NDArray[Any]) -> list[Float]:
        slots, size = self._executor.slots, self._copy.nbytes
        # a small kernel is over before a slow worker could be helped
        parts = max(TASKS_A_SLOT * slots if size > PASS_BYTES else slots, size // PASS_BYTES)
        with self._shared(**arrays) as shared:
            store, key, number = self._copy.store.url, self._copy.key, self._copy.id
            tasks = [PassTask(store, key, number, *part, shared) for part in cut(len(self._copy.edges), parts)]
            return results(self._executor, function, tasks, "kernel-strip")

    def product(self, V: Float) -> Float:
        """Return K V."""
        return np.concatenate(self._go_through(pass_product, V=np.ascontiguousarray(V)))

    def weighted_rows(self, weights: Any) -> Float:
        """Return ``weights @ K``."""
        edges, indices, values = Weights.of(weights)
        small = indices.astype(np.int32 if self._copy.n < 2**31 else np.int64)
        return np.concatenate(self._go_through(pass_sums, edges=edges, indices=small, values=values), axis=1)

    def combine(self, atoms: SparseRows) -> Float:
        """Return K u of each atom, one a row; few single rows, which are read here."""
        return self._here.combine(atoms)

    def solve_atoms(self, linear: Float, beta: float, spec: ModelSpec) -> tuple[SparseSolutions, Float]:
        """Return the atom of each linear term, and K u of it."""
        if linear.size * spec.sparsity < self._worth:
            return self._here.solve_atoms(linear, beta, spec)
        tasks = [
            AtomTask(self._copy.store.url, self._copy.key, self._copy.id, linear[slice(*part)], beta, spec)
            for part in cut(len(linear), self._executor.slots)
        ]
        return joined(results(self._executor, solve_atoms, tasks, "atom-solve"))

    def code_step(
        self, codes: SparseRows, KU: Float, dictionary: Dictionary, y: Index, beta: float, spec: ModelSpec
    ) -> SparseRows:
        """Return better codes of all samples."""
        if KU.size < self._worth:
            return self._here.code_step(codes, KU, dictionary, y, beta, spec)
        parts = max(TASKS_A_SLOT * self._executor.slots, KU.nbytes // CODE_BYTES)
        with self._shared(**dictionary._asdict()) as shared:
            tasks = _CodeTasks(
                self._copy.folder.url, shared, codes, self.diagonal, KU, y, beta, spec, cut(len(y), parts)
            )
            return SparseRows.join(results(self._executor, solve_codes, tasks, "code-block"))


class _CodeTasks(Sequence[CodeTask]):
    """Tasks of a pass over the codes, each made when it is sent: all at once would be a second K U."""

    def __init__(
        self,
        folder: str,
        shared: str,
        codes: SparseRows,
        diagonal: Float,
        KU: Float,
        y: Index,
        beta: float,
        spec: ModelSpec,
        parts: list[tuple[int, int]],
    ) -> None:
        self._place, self._arrays, self._settings = (folder, shared), (codes, diagonal, KU, y), (beta, spec)
        self._parts = parts

    def __len__(self) -> int:
        return len(self._parts)

    def __getitem__(self, number: Any) -> Any:
        part = slice(*self._parts[number])
        codes, diagonal, KU, y = self._arrays
        block = np.ascontiguousarray(KU[:, part])
        return CodeTask(*self._place, codes.take(part), diagonal[part], block, y[part], *self._settings)
