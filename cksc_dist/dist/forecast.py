"""What a matrix will take, told before a second is spent, and refused where it cannot fit.

forecast(store)      what ``cksc plan STORE`` tells
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cksc_dist.dist.plan import Need, Plan, Rate, Todo, tile_edge
from cksc_dist.dist.sample import few_tiles, sample_with_threads
from cksc_dist.dist.survey import find_todo
from cksc_dist.errors import InputError, PlanError
from cksc_dist.machine import memory
from cksc_dist.maths.metrics import check_metric, check_not_overflowing, check_not_vanishing, pick_dims
from cksc_dist.maths.threads import resolve_n_jobs
from cksc_dist.spec import DistanceSpec, RunSpec, fingerprint
from cksc_dist.store.folder import Folder
from cksc_dist.store.grid import Grid
from cksc_dist.store.ledger import Ledger
from cksc_dist.store.matrix_files import MatrixFiles, find_matrices
from cksc_dist.store.series_files import StoredSeries, open_series

__all__ = [
    "Forecast",
    "check_room",
    "check_series",
    "executor_kind",
    "forecast",
    "make_plan",
    "memory_of",
    "new_edge",
    "workers_of",
]

THREADS_BELOW_SECONDS = 60.0
"""Up to this forecast a cluster is not worth its start."""
DISK_MARGIN = 1.02
CHECK_ROWS = 4096


@dataclass(frozen=True)
class Forecast:
    """A plan, what it needs, and how it would be run."""

    plan: Plan
    need: Need
    rate: Rate
    workers: int
    executor: str
    memory: int | None
    free: int | None


def forecast(
    store: str | Path | Folder,
    spec: DistanceSpec = DistanceSpec(),  # noqa: B008  frozen
    run: RunSpec = RunSpec(),  # noqa: B008  frozen
) -> Forecast:
    """Plan what is missing of a matrix, time a sample of it on this machine, and return what it will take."""
    folder = Folder.of(store)
    spec = spec.resolved()
    series = open_series(folder)
    check_series(series, spec)
    files = find_matrices(folder).get(fingerprint(spec))
    edge = new_edge(series, spec) if files is None else files.grid.edge
    files = MatrixFiles(folder, spec, Grid(series.n, edge))
    todo = find_todo(files, series, Ledger(folder, files.fingerprint).load())
    plan = make_plan(series, files, todo)
    memory = memory_of(run)
    plan.piece(memory)
    if not todo:
        empty = Need(0, 0, 0, sum(files.present().values()), 0, 0.0, 0.0, 0)
        return Forecast(plan, empty, Rate(1.0, 0.0, 1.0), workers_of(run), "none needed", memory, folder.free_bytes())
    workers = workers_of(run)
    with ExitStack() as stack:
        if run.scheduler is not None:
            from cksc_dist.dist.cluster import connected
            from cksc_dist.dist.dask_executor import DaskExecutor
            from cksc_dist.dist.same_code import check_code
            from cksc_dist.dist.workers import memory_of_workers

            client = stack.enter_context(connected(run, workers))
            check_code(client)
            executor = DaskExecutor(client)
            memory = run.memory or memory_of_workers(client)
            plan.piece(memory)
            rate, workers = executor.sample(folder.url, few_tiles(plan)), run.workers or executor.slots
        else:
            rate = sample_with_threads(series, plan, min(workers, resolve_n_jobs(-1)))
    need = plan.need(rate, workers, memory)
    check_room(folder, plan, rate)
    kind, why = executor_kind(run, need.seconds)
    return Forecast(plan, need, rate, workers, f"{kind} ({why})", memory, folder.free_bytes())


def check_series(series: StoredSeries, spec: DistanceSpec) -> None:
    """Raise an InputError for the first series that the settings cannot compare."""
    series.check_values()
    if series.n < 2:
        raise InputError(f"{series.folder.url} has one series; distances need two at least")
    largest = 0.0
    for begin in range(0, series.n, CHECK_ROWS):
        part = series.read(begin, min(begin + CHECK_ROWS, series.n))
        check_metric(part, spec, begin, int(series.lengths[0]))
        check_not_overflowing(part, spec, begin)
        largest = max(largest, float(np.abs(pick_dims(part, spec)[0]).max()))
    check_not_vanishing(largest, spec)


def _dims(series: StoredSeries, spec: DistanceSpec) -> int:
    return max(1, series.dims) if spec.dims is None else len(spec.dims)


def new_edge(series: StoredSeries, spec: DistanceSpec) -> int:
    """Return how many rows the tiles of a new matrix have."""
    return tile_edge(series.lengths, _dims(series, spec), spec)


def make_plan(series: StoredSeries, files: MatrixFiles, todo: Sequence[Todo] | None = None) -> Plan:
    """Return the plan of a matrix; ``todo`` None: of all its tiles."""
    lengths = series.lengths if series.dims else np.ones(series.n, np.int64)
    return Plan(files.grid, lengths, _dims(series, files.spec), files.spec, todo, max(1, series.dims))


def check_room(folder: Folder, plan: Plan, rate: Rate) -> None:
    """Raise a PlanError if what is to be written does not fit on the disk."""
    free = folder.free_bytes()
    wanted = int(plan.disk_bytes() * rate.ratio * DISK_MARGIN)
    if free is not None and wanted > free:
        half = "" if plan.spec.dtype == "float32" else "; --dtype float32 halves it"
        raise PlanError(
            f"the matrix needs {wanted / 1e9:,.1f} GB on disk, but {folder.url} has {free / 1e9:,.1f} GB left; choose "
            f"another place{half}"
        )


def workers_of(run: RunSpec) -> int:
    """Return how many threads or processes work on this machine."""
    return 1 if run.executor == "serial" else run.workers or resolve_n_jobs(-1)


def memory_of(run: RunSpec) -> int | None:
    """Return what one worker may use on this machine; None where the workers are elsewhere."""
    if run.memory is not None:
        return run.memory
    if run.scheduler is not None:
        return None
    return memory() // workers_of(run)


def executor_kind(run: RunSpec, seconds: float) -> tuple[str, str]:
    """Return which executor to use, and why."""
    if run.executor != "auto":
        return run.executor, "as asked"
    if run.scheduler is not None:
        return "dask", f"on {run.scheduler}"
    if seconds < THREADS_BELOW_SECONDS:
        return "threads", f"{seconds:.1f} s are expected, less than a cluster is worth"
    return "dask", f"{seconds:,.0f} s are expected; on a cluster started on this machine"
