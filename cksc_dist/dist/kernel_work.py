"""Tasks on the kernel copy: sums for the bandwidth, strips to write, passes over them, atoms and codes to solve.

A task carries the address of the store and numbers, and where a pass needs a matrix that all its tasks share, the
address of a file with it. What a task gives depends on its numbers alone: it may run twice, anywhere.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cksc_dist.arrays import unpack_npz
from cksc_dist.errors import StoreError
from cksc_dist.maths.codes import Dictionary, code_step
from cksc_dist.maths.gram import Weights, atoms_by_rows, strip_sums
from cksc_dist.maths.kernel import gaussian_kernel
from cksc_dist.maths.kernel_product import Columns, multiply
from cksc_dist.maths.nqp import SparseSolutions
from cksc_dist.maths.sparse import SparseRows
from cksc_dist.spec import ModelSpec
from cksc_dist.store.bandwidth import as_slice, block_sums, reading_blocks
from cksc_dist.store.folder import Folder
from cksc_dist.store.kernel_copy import STRIP, KernelCopy
from cksc_dist.store.matrix import DistanceMatrix
from cksc_dist.store.matrix_files import open_files
from cksc_dist.store.series_files import open_series

__all__ = [
    "AtomTask",
    "BandTask",
    "CodeTask",
    "PassTask",
    "SumTask",
    "pass_product",
    "pass_sums",
    "shared_arrays",
    "solve_atoms",
    "solve_codes",
    "sum_blocks",
    "write_band",
]

Float = NDArray[np.float64]
Index = NDArray[np.int64]


@lru_cache(maxsize=4)
def _matrix(url: str, fingerprint: str, state: str) -> DistanceMatrix:
    """Return a matrix as a worker keeps it open; ``state`` tells when it is another."""
    folder = Folder(url)
    matrix = DistanceMatrix(open_files(folder, fingerprint), open_series(folder))
    if matrix.state != state:
        raise StoreError(f"{url}: series or distances have changed since the training began; run the command again")
    return matrix


@lru_cache(maxsize=2)  # small ones are kept in memory
def _copy(url: str, key: str, number: str) -> KernelCopy:
    """Return a copy as a worker keeps it open; ``number`` tells when it was dropped and made anew."""
    copy = KernelCopy(Folder(url), key)
    if copy.id != number:
        raise StoreError(f"{copy.folder.url} was made anew since the training began; run the command again")
    return copy


@lru_cache(maxsize=4)
def _rows(url: str, key: str, number: str) -> Index:
    return _copy(url, key, number).rows


@dataclass(frozen=True)
class SumTask:
    """Blocks of rows whose distances are to be added up as a rule asks; ``rows`` of the matrix, ascending."""

    url: str
    fingerprint: str
    state: str
    rows: Index
    blocks: tuple[int, ...]
    rule: str

    def __str__(self) -> str:
        return f"the sums of blocks {self.blocks[0]} to {self.blocks[-1]}"


def sum_blocks(task: SumTask) -> list[float]:
    """Return the sums of all tiles of some blocks of rows."""
    matrix = _matrix(task.url, task.fingerprint, task.state)
    return [part for number in task.blocks for part in block_sums(matrix, task.rows, number, task.rule)]


@dataclass(frozen=True)
class BandTask:
    """Strips of a kernel copy to write: those from ``first`` up to ``last``."""

    url: str
    state: str
    key: str
    number: str
    first: int
    last: int

    def __str__(self) -> str:
        return f"strips {self.first} to {self.last - 1} of the kernel copy"


def write_band(task: BandTask) -> int:
    """Write strips of a kernel copy, and return how many."""
    copy = _copy(task.url, task.key, task.number)
    matrix = _matrix(task.url, copy.fingerprint, task.state)
    rows = _rows(task.url, task.key, task.number)
    begin, end = task.first * STRIP, min(task.last * STRIP, copy.n)
    band = np.empty((end - begin, copy.n), copy.dtype)
    mine = as_slice(rows[begin:end])
    # one column of tiles at a time: the band and one tile are all that is held
    for block in reading_blocks(rows, matrix.tile_edge):
        columns = slice(*block)
        band[:, columns] = gaussian_kernel(matrix[mine, as_slice(rows[columns])], copy.factor * copy.delta)
    for number in range(task.first, task.last):
        copy.write_strip(number, band[number * STRIP - begin : (number + 1) * STRIP - begin])
    return task.last - task.first


def write_shared(folder: Folder, name: str, arrays: dict[str, NDArray[Any]]) -> None:
    """Write arrays for all tasks of a pass."""
    content = io.BytesIO()
    np.savez(content, **arrays)  # type: ignore[arg-type]
    folder.write(name, content.getbuffer())


@lru_cache(maxsize=2)
def shared_arrays(url: str, name: str) -> dict[str, NDArray[Any]]:
    """Return arrays that all tasks of a pass need; names are never used twice."""
    content = Folder(url).read(name)
    if content is None:
        raise StoreError(f"{url}/{name} is gone: the run that it belongs to has ended")
    try:
        return unpack_npz(content)
    except ValueError as error:
        raise StoreError(f"{url}/{name} holds no arrays ({error}); run the same command again") from error


@dataclass(frozen=True)
class PassTask:
    """Strips to go through, and the name of what all of them are multiplied with."""

    url: str
    key: str
    number: str
    first: int
    last: int
    shared: str

    def __str__(self) -> str:
        return f"a pass over strips {self.first} to {self.last - 1}"


def _strips(task: PassTask) -> Any:
    copy = _copy(task.url, task.key, task.number)
    return (copy.strip(*edge) for edge in copy.edges[task.first : task.last])


def pass_product(task: PassTask) -> Float:
    """Return K V for the rows of the strips."""
    columns = Columns.of(shared_arrays(_copy(task.url, task.key, task.number).folder.url, task.shared)["V"])
    return np.concatenate([multiply(strip, columns) for strip in _strips(task)])


def pass_sums(task: PassTask) -> Float:
    """Return W K for the columns of the strips."""
    arrays = shared_arrays(_copy(task.url, task.key, task.number).folder.url, task.shared)
    weights = Weights(arrays["edges"], arrays["indices"].astype(np.int64), arrays["values"])
    return np.concatenate([strip_sums(strip, weights) for strip in _strips(task)], axis=1)


@dataclass(frozen=True)
class AtomTask:
    """Linear terms of atoms to solve."""

    url: str
    key: str
    number: str
    linear: Float
    beta: float
    spec: ModelSpec

    def __str__(self) -> str:
        return f"{len(self.linear)} atoms"


def solve_atoms(task: AtomTask) -> tuple[SparseSolutions, Float]:
    """Return the atoms, and K u of each."""
    copy = _copy(task.url, task.key, task.number)
    return atoms_by_rows(copy.row, copy.diagonal, task.linear, task.beta, task.spec)


@dataclass(frozen=True)
class CodeTask:
    """Samples whose codes are to be improved; the products of the dictionary are where all tasks find them."""

    folder: str
    shared: str
    codes: SparseRows
    diagonal: Float
    KU: Float
    y: Index
    beta: float
    spec: ModelSpec

    def __str__(self) -> str:
        return f"the codes of {len(self.y)} samples"


def solve_codes(task: CodeTask) -> SparseRows:
    """Return better codes."""
    dictionary = Dictionary(**shared_arrays(task.folder, task.shared))
    return code_step(task.codes, task.diagonal, task.KU, dictionary, task.y, task.beta, task.spec)
