"""Bandwidth and kernel copy of some rows of a stored matrix, as parallel tasks; what is done is not done again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import numpy as np
from numpy.typing import NDArray

from cksc_dist.dist.cluster_gram import cut
from cksc_dist.dist.executors import Executor, ThreadExecutor, results
from cksc_dist.dist.kernel_work import BandTask, SumTask, sum_blocks, write_band
from cksc_dist.dist.progress import Progress, Running
from cksc_dist.errors import PlanError, StoreBusyError
from cksc_dist.spec import KernelSpec
from cksc_dist.store.bandwidth import delta_of_mean, row_blocks
from cksc_dist.store.folder import Folder
from cksc_dist.store.kernel_copy import STRIP, KernelCopy, copy_folder
from cksc_dist.store.lease import KEY as LOCK
from cksc_dist.store.lease import Lease
from cksc_dist.store.matrix import DistanceMatrix

__all__ = ["learn_delta", "make_copy"]

Index = NDArray[np.int64]

BAND_BYTES = 256 * 2**20
"""Bytes of kernel that a task holds at a time, where nobody says how much memory there is."""

WAIT_SECONDS = 2.0

BAND_SHARE = 5
"""A band takes at most one part in so many of a worker's memory."""


def learn_delta(matrix: DistanceMatrix, rows: Index, kernel: KernelSpec, executor: Executor) -> float:
    """Return the bandwidth of ascending rows; the same bits as of a view of these rows."""
    if not isinstance(kernel.bandwidth, str):
        return float(kernel.bandwidth)
    if kernel.bandwidth == "median":
        return matrix.kernel(rows, bandwidth="median").delta
    blocks = len(row_blocks(rows, matrix.tile_edge))
    # the first blocks have the most tiles: dealt out like cards
    hands = min(blocks, 4 * executor.slots)
    about = (matrix.folder.url, matrix.fingerprint, matrix.state)
    tasks = [SumTask(*about, rows, tuple(range(hand, blocks, hands)), kernel.bandwidth) for hand in range(hands)]
    parts = results(executor, sum_blocks, tasks, "bandwidth")
    return delta_of_mean((value for part in parts for value in part), len(rows), kernel)


def make_copy(
    matrix: DistanceMatrix,
    rows: Index,
    kernel: KernelSpec,
    executor: Executor,
    progress: Progress,
    memory: int | None = None,
    *,
    delta: float | None = None,
    anew: bool = False,
) -> KernelCopy:
    """Return the whole kernel copy of rows; strips that are missing are written.

    Parameters
    ----------
    rows
        Ascending, unless ``delta`` is given.
    memory
        Bytes that a worker may use; None: not known.
    delta
        The bandwidth, where it is known already.
    anew
        Write it all again, whatever is there.
    """
    store = matrix.folder
    key = matrix.kernel_key(rows, kernel)
    folder = copy_folder(store, key)
    with _turn(folder, progress), folder.swept():
        if anew:
            folder.remove("about.json")
            folder.remove_many([name for name in folder.files("") if name != LOCK])
        if folder.read("about.json") is None:
            if delta is None:
                progress.note("bandwidth: reading one half of the matrix")
                delta = learn_delta(matrix, rows, kernel, executor)
            _check_room(matrix, len(rows))
            KernelCopy.create(store, key, matrix.fingerprint, rows, delta, kernel.factor, matrix.dtype)
        copy = KernelCopy(store, key)
        missing = copy.missing()
        if missing:
            _write(copy, matrix, missing, executor, progress, memory)
    return copy


@contextmanager
def _turn(folder: Folder, progress: Progress) -> Iterator[None]:
    """Hold a copy for writing; where another training writes it, wait until it is done."""
    said = False
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(Lease(folder, "kernel copy"))
                break
            except StoreBusyError as error:
                if not said:
                    progress.note(f"waiting for another training that writes the same kernel ({error})")
                said = True
                time.sleep(WAIT_SECONDS)
        yield


def _write(
    copy: KernelCopy,
    matrix: DistanceMatrix,
    missing: list[int],
    executor: Executor,
    progress: Progress,
    memory: int | None,
) -> None:
    strip_bytes = STRIP * copy.n * copy.dtype.itemsize
    # threads share the memory of one process, workers have their own
    share = executor.slots if isinstance(executor, ThreadExecutor) else 1
    at_most = max(1, (memory // BAND_SHARE if memory else BAND_BYTES) // share // strip_bytes)
    # a band of as many strips as a row of tiles has reads no tile twice, where all rows are taken; where only some are,
    # its ends lie anywhere in a row of tiles, and longer bands have fewer ends
    blocks = len(row_blocks(copy.rows, matrix.tile_edge))
    rows_of_tiles = 1 if copy.n == len(matrix) else 4
    height = min(at_most, max(1, rows_of_tiles * -(-len(copy.edges) // blocks)))
    tasks = [
        BandTask(matrix.folder.url, matrix.state, copy.key, copy.id, missing[part[0]], missing[part[1] - 1] + 1)
        for run in _runs(missing)
        for part in _bands(run, height)
    ]
    progress.begin(Running("kernel copy", len(missing), len(tasks), workers=executor.slots))
    try:
        for came in executor.stream(write_band, tasks, "kernel-strip"):
            if came is None:
                progress.tick()
            else:
                progress.advance(came[1], 0)
    finally:
        progress.end()


def _runs(missing: list[int]) -> list[tuple[int, int]]:
    """Return ranges of positions whose strips follow each other."""
    steps = [i for i in range(1, len(missing)) if missing[i] != missing[i - 1] + 1]
    edges = [0, *steps, len(missing)]
    return [(edges[i], edges[i + 1]) for i in range(len(edges) - 1)]


def _bands(run: tuple[int, int], height: int) -> list[tuple[int, int]]:
    begin, end = run
    return [(begin + a, begin + b) for a, b in cut(end - begin, -(-(end - begin) // height))]


def _check_room(matrix: DistanceMatrix, n: int) -> None:
    wanted, free = n * n * matrix.dtype.itemsize, matrix.folder.free_bytes()
    if free is not None and wanted > free:
        raise PlanError(
            f"the kernel of {n:,} rows takes {wanted / 1e9:,.1f} GB on disk, but {matrix.folder.url} has "
            f"{free / 1e9:,.1f} GB left; make room, or train on fewer rows"
        )
