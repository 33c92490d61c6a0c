"""Choose who does the work: one after the other, threads of this process, or a Dask cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cksc_dist.dist.executors import Executor, SerialExecutor, ThreadExecutor
from cksc_dist.dist.forecast import executor_kind, memory_of, workers_of
from cksc_dist.dist.plan import Plan, Rate
from cksc_dist.dist.progress import Progress
from cksc_dist.dist.sample import few_tiles, sample_with_threads
from cksc_dist.maths.threads import resolve_n_jobs
from cksc_dist.spec import RunSpec
from cksc_dist.store.series_files import StoredSeries

__all__ = ["chosen_executor"]


@contextmanager
def chosen_executor(
    series: StoredSeries, plan: Plan, run: RunSpec, progress: Progress, client: Any
) -> Iterator[tuple[Executor, str, Rate, str, int | None]]:
    """Give the executor, what to call it, its measured rate, the dashboard's address, and a worker's memory."""
    workers, memory = workers_of(run), memory_of(run)
    plan.piece(memory)
    rate = None
    progress.note("timing a sample of pairs; a first run also compiles")
    if client is None and run.executor == "auto" and run.scheduler is None:
        rate = sample_with_threads(series, plan, min(workers, resolve_n_jobs(-1)))
    expected = plan.need(rate, workers, None).seconds if rate else 0.0
    kind, why = ("dask", "with the client that was given") if client is not None else executor_kind(run, expected)
    if kind != "dask":
        rate = rate or sample_with_threads(series, plan, workers)
        executor: Executor = SerialExecutor() if kind == "serial" else ThreadExecutor(workers)
        yield executor, f"{kind} ({why})", rate, "", memory
        return
    from cksc_dist.dist.cluster import working_client
    from cksc_dist.dist.dask_executor import DaskExecutor
    from cksc_dist.dist.workers import dashboard_of, memory_of_workers

    with working_client(run, workers, client, progress) as found:
        if client is not None or run.scheduler is not None:
            memory = run.memory or memory_of_workers(found)
            plan.piece(memory)
        dask_executor = DaskExecutor(found, progress)
        yield (
            dask_executor,
            f"{kind} ({why})",
            dask_executor.sample(series.folder.url, few_tiles(plan)),
            dashboard_of(found),
            memory,
        )
