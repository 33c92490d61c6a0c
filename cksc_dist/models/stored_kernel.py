"""The kernel of stored distances, wherever it is best kept for training: in memory, on disk, or with a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cksc_dist.dist.executors import Executor, ThreadExecutor
from cksc_dist.dist.kernel_copies import learn_delta, make_copy
from cksc_dist.dist.progress import Progress
from cksc_dist.errors import PlanError
from cksc_dist.machine import free_memory
from cksc_dist.maths.gram import Gram, MemoryGram, StripGram
from cksc_dist.maths.threads import resolve_n_jobs
from cksc_dist.models.distance_kernel import DistanceKernel
from cksc_dist.spec import KernelSpec, RunSpec
from cksc_dist.store.kernel_copy import KernelCopy
from cksc_dist.store.kernel_view import KernelView
from cksc_dist.store.matrix import DistanceMatrix

__all__ = ["PLACES", "Place", "StoredKernel", "stored_kernel"]

Index = NDArray[np.int64]
Place = Literal["auto", "memory", "disk", "cluster"]

PLACES = ("auto", "memory", "disk", "cluster")

MEMORY_SHARE = 0.4
"""A kernel that takes more than this share of the free memory is left on disk."""


@dataclass(frozen=True)
class StoredKernel:
    """A kernel, ready to train on.

    Parameters
    ----------
    gram
        The kernel itself.
    transform
        What makes the kernel of new samples.
    n_jobs
        Threads for what is computed in this process.
    why
        Where it is, and why.
    copy
        The copy on disk, where there is one.
    """

    gram: Gram
    transform: DistanceKernel
    n_jobs: int
    why: str
    copy: KernelCopy | None = None


@contextmanager
def stored_kernel(
    matrix: DistanceMatrix,
    rows: Index,
    kernel: KernelSpec,
    place: Place,
    run: RunSpec,
    progress: Progress,
    client: Any = None,
    *,
    delta: float | None = None,
    new_kernel: bool = False,
    send_all: bool = False,
) -> Iterator[StoredKernel]:
    """Give the kernel of rows of a matrix, wherever it is best kept, and say where that is.

    Parameters
    ----------
    rows
        Training rows; ascending, unless ``delta`` is given.
    delta
        The bandwidth, where it is known already.
    new_kernel
        Write the copy on disk again.
    send_all
        Send work to the cluster however small it is.
    """
    where, why = _place(matrix, len(rows), kernel, place, run, client)
    progress.note(f"training {where}: {why}")
    n_jobs = run.workers or resolve_n_jobs(-1)
    text = f"{where} ({why})"
    if where == "in memory":
        if kernel.repair is not None:
            transform = DistanceKernel(kernel.bandwidth, kernel.factor, kernel.repair)
            K = transform.fit_transform(matrix[rows, rows])
        else:
            known = learn_delta(matrix, rows, kernel, ThreadExecutor(n_jobs)) if delta is None else delta
            transform = _transform(kernel, known)
            view = KernelView(matrix, rows, bandwidth=kernel.bandwidth, factor=kernel.factor, delta=known)
            K = view.load(n_jobs)
        yield StoredKernel(MemoryGram(K, n_jobs), transform, n_jobs, text)
        return
    with _workers(where, n_jobs, run, client, progress) as (workers, memory):
        copy = make_copy(matrix, rows, kernel, workers, progress, memory, delta=delta, anew=new_kernel)
        transform = _transform(kernel, copy.delta)
        if where == "from disk":
            yield StoredKernel(StripGram(copy, n_jobs), transform, n_jobs, text, copy)
            return
        from cksc_dist.dist.cluster_gram import WORTH_SENDING, ClusterGram

        n_jobs = resolve_n_jobs(-1)
        gram = ClusterGram(copy, workers, n_jobs, 0 if send_all else WORTH_SENDING)
        yield StoredKernel(gram, transform, n_jobs, text, copy)


def _transform(kernel: KernelSpec, delta: float) -> DistanceKernel:
    """Return what makes the kernel of new samples, with the bandwidth that was learnt."""
    transform = DistanceKernel(kernel.bandwidth, kernel.factor, kernel.repair)
    transform.bandwidth_, transform.delta_, transform.spectral_repair_ = delta, kernel.factor * delta, None
    return transform


@contextmanager
def _workers(
    where: str, n_jobs: int, run: RunSpec, client: Any, progress: Progress
) -> Iterator[tuple[Executor, int | None]]:
    """Give who works, and how much memory one of them has."""
    if where == "from disk":
        yield ThreadExecutor(n_jobs), run.memory
        return
    from cksc_dist.dist.cluster import working_client
    from cksc_dist.dist.dask_executor import DaskExecutor
    from cksc_dist.dist.workers import dashboard_of, memory_of_workers

    with working_client(run, n_jobs, client, progress) as found:
        if dashboard := dashboard_of(found):
            progress.note(f"dashboard: {dashboard}")
        yield DaskExecutor(found, progress), run.memory or memory_of_workers(found)


def _place(
    matrix: DistanceMatrix, n: int, kernel: KernelSpec, place: Place, run: RunSpec, client: Any
) -> tuple[str, str]:
    """Return where the kernel goes, and why."""
    size = n * n * matrix.dtype.itemsize
    free = free_memory()
    room = min(free, run.memory) if run.memory else free
    fits = size <= MEMORY_SHARE * room
    amount = f"the kernel takes {size / 1e6:,.1f} MB, and {room / 1e6:,.0f} MB of memory are free"
    if kernel.repair is not None and (place not in ("auto", "memory") or not fits):
        raise PlanError(
            f"repair={kernel.repair!r} needs all eigenvalues of the kernel, in memory ({amount}); train there "
            "(--train-on memory), on fewer rows, or without repair: beta makes up for negative eigenvalues"
        )
    if kernel.bandwidth == "median" and not fits:
        raise PlanError(f"bandwidth='median' needs all distances in memory: {amount}; take 'mean', or a number")
    if place != "auto":
        return {"memory": "in memory", "disk": "from disk", "cluster": "on the cluster"}[place], "as asked for"
    if fits:
        return "in memory", f"{amount}: nothing is faster"
    if client is not None or run.scheduler is not None:
        return "on the cluster", amount
    return "from disk", f"{amount}; one machine reads it fastest by threads of one process"
