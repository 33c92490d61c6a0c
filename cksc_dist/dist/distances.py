"""Compute a distance matrix into its store: plan, execute, resume.

    compute_distances(store)      what ``cksc distances STORE`` does
    forecast(store)               what ``cksc plan STORE`` tells

Run again after anything whatever: only what is missing is computed, and the bytes are the same.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from cksc_dist.dist.executors import Executor, SerialExecutor, ThreadExecutor
from cksc_dist.dist.plan import Need, Plan, Rate, Todo, tile_edge
from cksc_dist.dist.progress import Progress, Running
from cksc_dist.dist.sample import sample_with_threads
from cksc_dist.dist.survey import find_damage, find_todo
from cksc_dist.dist.tile_work import TileTask
from cksc_dist.errors import InputError, PlanError, StoreError
from cksc_dist.maths.metrics import check_metric
from cksc_dist.maths.threads import resolve_n_jobs
from cksc_dist.spec import DistanceSpec, RunSpec, fingerprint
from cksc_dist.store.folder import Folder
from cksc_dist.store.grid import Grid, Tile
from cksc_dist.store.lease import Lease
from cksc_dist.store.ledger import Blocks, Ledger
from cksc_dist.store.matrix_files import MatrixFiles, create_matrix, find_matrices, grow_matrix
from cksc_dist.store.series_files import StoredSeries, open_series

__all__ = ["Forecast", "Report", "compute_distances", "forecast"]

THREADS_BELOW_SECONDS = 60.0
"""Up to this forecast a cluster is not worth its start."""
COLLECT_SECONDS = 30.0
"""How often marks of tiles are collected into one file."""
DISK_MARGIN = 1.02
CHECK_ROWS = 4096


@dataclass(frozen=True)
class Report:
    """What a run did.

    Parameters
    ----------
    fingerprint
        Name of the matrix.
    n, tiles
        Its rows, and tiles in all.
    computed, pairs
        Tiles and pairs that this run computed.
    rewritten
        Chunks at the edge that were there and were written again, with their old values kept.
    repaired
        Tiles that were found damaged, and why.
    seconds
        How long the work took, without starting a cluster.
    executor
        Who worked.
    need
        The forecast; None where there was nothing to do.
    """

    fingerprint: str
    n: int
    tiles: int
    computed: int
    pairs: int
    rewritten: int
    repaired: dict[Tile, str]
    seconds: float
    executor: str
    need: Need | None


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


def compute_distances(
    store: str | Path | Folder,
    spec: DistanceSpec = DistanceSpec(),  # noqa: B008  frozen
    run: RunSpec = RunSpec(),  # noqa: B008  frozen
    progress: Progress | None = None,
    *,
    client: Any = None,
    suspects: Sequence[Tile] = (),
) -> Report:
    """Compute what is missing of the distance matrix of a store.

    Parameters
    ----------
    store
        A folder or URL that `ingest` wrote.
    spec
        What the distance is.
    run
        How to run; no value depends on it.
    progress
        Hears what goes on.
    client
        A connected Dask client to work with, which stays open; None: as `run` says.
    suspects
        Tiles to compute again whatever the ledger says.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from cksc_dist.io import make_gestures
    >>> from cksc_dist.store.series_files import write_series
    >>> with TemporaryDirectory() as folder:
    ...     write_series(Folder(folder), make_gestures(n_per_class=10))
    ...     first, again = compute_distances(folder), compute_distances(folder)
    >>> first.pairs, again.pairs
    (780, 0)
    """
    folder = store if isinstance(store, Folder) else Folder(store)
    progress = progress or Progress()
    spec = spec.resolved()
    series = open_series(folder)
    with Lease(folder, "distances") as lease, ExitStack() as stack:
        files = _ready_matrix(series, spec, run)
        swept = folder.sweep()
        if swept:
            progress.note(f"removed {len(swept)} unfinished files of a run that was killed")
        ledger = Ledger(folder, files.fingerprint).load()
        bad = {} if run.trust else _reread(files, series, ledger, run, progress)
        for tile, fault in bad.items():
            progress.note(f"tile {tile} is computed again: {fault}")
        if bad or suspects:
            ledger.drop([*bad, *suspects])
        if spec.metric == "external":
            _check_external(files, series, ledger)
        todo = find_todo(files, series, ledger, [*bad, *suspects])
        ledger.collect()
        plan = _plan(series, files, todo)
        if not todo:
            return Report(files.fingerprint, series.n, files.grid.tiles, 0, 0, 0, bad, 0.0, "none needed", None)
        executor, name, rate, dashboard = stack.enter_context(_chosen(folder, series, plan, run, progress, client))
        need = plan.need(rate, executor.slots, run.memory)
        _check_room(folder, plan, rate)
        tasks = [
            TileTask(folder.url, files.fingerprint, series.state, tuple(group), plan.piece(run.memory))
            for group in plan.tasks(rate, executor.slots)
        ]
        progress.begin(Running("distances", need.cells, need.tiles, name, executor.slots, dashboard))
        begin = time.perf_counter()
        try:
            pairs = _execute(executor, tasks, plan, ledger, lease, progress)
        finally:
            progress.end()
        seconds = time.perf_counter() - begin
    rewritten = sum(1 if item.tile[0] == item.tile[1] else 2 for item in todo if any(item.kept))
    return Report(files.fingerprint, series.n, files.grid.tiles, len(todo), pairs, rewritten, bad, seconds, name, need)


def _execute(
    executor: Executor, tasks: list[TileTask], plan: Plan, ledger: Ledger, lease: Lease, progress: Progress
) -> int:
    """Run all tasks, keep the ledger, and return how many pairs were computed."""
    cost = {todo.tile: plan.cells(todo) for todo in plan.todo}
    pairs, collected = 0, time.monotonic()
    try:
        for done in executor.run(tasks):
            for tile, entry in done:
                ledger.add(tile, entry)
                pairs += entry.computed
                progress.advance(cost[tile], entry.computed)
            lease.check()
            if time.monotonic() - collected > COLLECT_SECONDS:
                ledger.collect()
                collected = time.monotonic()
    finally:
        ledger.collect()
    return pairs


def _reread(
    files: MatrixFiles, series: StoredSeries, ledger: Ledger, run: RunSpec, progress: Progress
) -> dict[Tile, str]:
    """Read the tiles that are done, and return those that are not what the ledger says."""
    blocks, there = Blocks(files.grid, series.digests), files.present()
    entries = {
        tile: entry
        for tile, entry in ledger.entries.items()
        if any(blocks.kept(tile, entry)) and tile in there and (tile[1], tile[0]) in there
    }
    if not entries:
        return {}
    progress.begin(Running("reading what is done", len(entries), len(entries)))
    try:
        return find_damage(files, entries, resolve_n_jobs(run.workers or -1), lambda: progress.advance(1, 0))
    finally:
        progress.end()


def _check_series(series: StoredSeries, spec: DistanceSpec) -> None:
    """Raise an InputError for the first series that the settings cannot compare."""
    series.check_values()
    if series.n < 2:
        raise InputError(f"{series.folder.url} has one series; distances need two at least")
    for begin in range(0, series.n, CHECK_ROWS):
        check_metric(series.read(begin, min(begin + CHECK_ROWS, series.n)), spec, begin, int(series.lengths[0]))


def _check_external(files: MatrixFiles, series: StoredSeries, ledger: Ledger) -> None:
    if find_todo(files, series, ledger):
        raise StoreError(
            f"{files.folder.url}: the matrix that was brought ready is not whole; ingest it again with --replace"
        )


def _dims(series: StoredSeries, spec: DistanceSpec) -> int:
    return max(1, series.dims) if spec.dims is None else len(spec.dims)


def _edge(series: StoredSeries, spec: DistanceSpec) -> int:
    return tile_edge(series.lengths, _dims(series, spec), spec)


def _plan(series: StoredSeries, files: MatrixFiles, todo: Sequence[Todo] | None = None) -> Plan:
    lengths = series.lengths if series.dims else np.ones(series.n, np.int64)
    return Plan(files.grid, lengths, _dims(series, files.spec), files.spec, todo)


def _ready_matrix(series: StoredSeries, spec: DistanceSpec, run: RunSpec) -> MatrixFiles:
    """Return the matrix of the settings, made or grown where need be; raise before anything is written."""
    folder = series.folder
    files = find_matrices(folder).get(fingerprint(spec))
    if files is None or (files.state != series.state and spec.metric != "external"):
        _check_series(series, spec)
    if files is not None:
        return grow_matrix(files, series)
    edge = _edge(series, spec)
    plan = _plan(series, MatrixFiles(folder, spec, Grid(series.n, edge)))
    plan.piece(_memory(run))
    free = folder.free_bytes()
    if free is not None and plan.disk_bytes() > free:
        _check_room(folder, plan, sample_with_threads(series, plan, 1))  # it may still fit, compressed
    return create_matrix(folder, spec, series, edge)


def _check_room(folder: Folder, plan: Plan, rate: Rate) -> None:
    """Raise a PlanError if what is to be written does not fit on the disk."""
    free = folder.free_bytes()
    wanted = int(plan.disk_bytes() * rate.ratio * DISK_MARGIN)
    if free is not None and wanted > free:
        half = "" if plan.spec.dtype == "float32" else "; --dtype float32 halves it"
        raise PlanError(
            f"the matrix needs {wanted / 1e9:,.1f} GB on disk, but {folder.url} has {free / 1e9:,.1f} GB left; choose "
            f"another place{half}"
        )


def forecast(
    store: str | Path | Folder,
    spec: DistanceSpec = DistanceSpec(),  # noqa: B008  frozen
    run: RunSpec = RunSpec(),  # noqa: B008  frozen
) -> Forecast:
    """Plan what is missing of a matrix, time a sample of it on this machine, and return what it will take."""
    folder = store if isinstance(store, Folder) else Folder(store)
    spec = spec.resolved()
    series = open_series(folder)
    _check_series(series, spec)
    files = find_matrices(folder).get(fingerprint(spec))
    edge = _edge(series, spec) if files is None else files.grid.edge
    files = MatrixFiles(folder, spec, Grid(series.n, edge))
    todo = find_todo(files, series, Ledger(folder, files.fingerprint).load())
    plan = _plan(series, files, todo)
    memory = _memory(run)
    plan.piece(memory)
    if not todo:
        empty = Need(0, 0, 0, sum(files.present().values()), 0, 0.0, 0.0, 0)
        return Forecast(plan, empty, Rate(1.0, 0.0, 1.0), _workers(run), "none needed", memory, folder.free_bytes())
    workers = _workers(run)
    with ExitStack() as stack:
        if run.scheduler is not None:
            from cksc_dist.dist.cluster import connected
            from cksc_dist.dist.dask_executor import DaskExecutor

            executor = DaskExecutor(stack.enter_context(connected(run, workers)))
            rate, workers = executor.sample(folder.url, plan), run.workers or executor.slots
        else:
            rate = sample_with_threads(series, plan, min(workers, resolve_n_jobs(-1)))
    need = plan.need(rate, workers, memory)
    _check_room(folder, plan, rate)
    kind, why = _kind(run, need.seconds)
    return Forecast(plan, need, rate, workers, f"{kind} ({why})", memory, folder.free_bytes())


def _workers(run: RunSpec) -> int:
    return 1 if run.executor == "serial" else run.workers or resolve_n_jobs(-1)


def _memory(run: RunSpec) -> int | None:
    """Return what one worker may use on this machine; None where the workers are elsewhere."""
    if run.memory is not None:
        return run.memory
    if run.scheduler is not None:
        return None
    return _machine_memory() // _workers(run)


def _machine_memory() -> int:
    """Return the memory of this machine, or of the container that this process is in."""
    total = int(psutil.virtual_memory().total)
    with suppress(OSError, ValueError):
        return min(total, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return total


def _kind(run: RunSpec, seconds: float) -> tuple[str, str]:
    """Return which executor to use, and why."""
    if run.executor != "auto":
        return run.executor, "as asked"
    if run.scheduler is not None:
        return "dask", f"on {run.scheduler}"
    if seconds < THREADS_BELOW_SECONDS:
        return "threads", f"{seconds:.1f} s are expected, less than a cluster is worth"
    return "dask", f"{seconds:,.0f} s are expected; on a cluster started on this machine"


@contextmanager
def _chosen(
    folder: Folder, series: StoredSeries, plan: Plan, run: RunSpec, progress: Progress, client: Any
) -> Iterator[tuple[Executor, str, Rate, str]]:
    """Give the executor, what to call it, its measured rate, and the dashboard's address."""
    workers = _workers(run)
    plan.piece(_memory(run))
    rate = None
    if client is None and run.executor == "auto" and run.scheduler is None:
        rate = sample_with_threads(series, plan, min(workers, resolve_n_jobs(-1)))
    expected = plan.need(rate, workers, None).seconds if rate else 0.0
    kind, why = ("dask", "with the client that was given") if client is not None else _kind(run, expected)
    if kind != "dask":
        rate = rate or sample_with_threads(series, plan, workers)
        executor: Executor = SerialExecutor() if kind == "serial" else ThreadExecutor(workers)
        yield executor, f"{kind} ({why})", rate, ""
        return
    from cksc_dist.dist.cluster import check_code, connected
    from cksc_dist.dist.dask_executor import DaskExecutor

    with nullcontext(client) if client is not None else connected(run, workers) as found:
        if client is not None or run.scheduler is not None:
            for warning in check_code(found):
                progress.note(f"warning: {warning}")
        dask_executor = DaskExecutor(found)
        yield dask_executor, f"{kind} ({why})", dask_executor.sample(folder.url, plan), found.dashboard_link
