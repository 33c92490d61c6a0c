"""Compute a distance matrix into its store: plan, execute, resume.

    compute_distances(store)      what ``cksc distances STORE`` does

Run again after anything whatever: only what is missing is computed, and the bytes are the same.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cksc_dist.dist.choose import chosen_executor
from cksc_dist.dist.dashboard import watched
from cksc_dist.dist.executors import Executor
from cksc_dist.dist.forecast import check_room, check_series, make_plan, memory_of, new_edge
from cksc_dist.dist.plan import Need, Plan, Todo
from cksc_dist.dist.progress import Progress, Running
from cksc_dist.dist.sample import sample_with_threads
from cksc_dist.dist.survey import find_damage, find_todo
from cksc_dist.dist.tile_work import TileTask
from cksc_dist.errors import StoreError
from cksc_dist.maths.threads import resolve_n_jobs
from cksc_dist.spec import DistanceSpec, RunSpec, fingerprint
from cksc_dist.store.folder import Folder
from cksc_dist.store.grid import Grid, Tile, places
from cksc_dist.store.layout import check_store
from cksc_dist.store.lease import Lease
from cksc_dist.store.ledger import Blocks, Ledger
from cksc_dist.store.matrix_files import MatrixFiles, create_matrix, find_matrices, grow_matrix
from cksc_dist.store.series_files import StoredSeries, open_series

__all__ = ["Report", "compute_distances"]

COLLECT_SECONDS = 30.0
"""How often marks of tiles are collected into one file ..."""
COLLECT_SHARE = 20
"""... at most: between two times there are as many times as long as one takes."""


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
    folder = Folder.of(store)
    progress = watched(progress)
    spec = spec.resolved()
    check_store(folder)
    with Lease(folder, "distances") as lease, ExitStack() as stack:
        series = open_series(folder)
        files = _ready_matrix(series, spec, run)
        swept = stack.enter_context(folder.swept())
        if swept:
            progress.note(f"removed {len(swept)} unfinished files of a run that was killed")
        ledger = Ledger(folder, files.fingerprint).load()
        bad = {} if run.trust else _reread(files, series, ledger, run, progress)
        for tile, fault in bad.items():
            progress.note(f"tile {tile} is computed again: {fault}")
        if bad or suspects:
            ledger.drop([*bad, *suspects])
        todo = find_todo(files, series, ledger, [*bad, *suspects])
        if todo and spec.metric == "external":
            raise StoreError(
                f"{folder.url}: the matrix that was brought ready is not whole; ingest it again with --replace"
            )
        ledger.drop(_stale(ledger, files.grid, todo))
        ledger.collect()
        plan = make_plan(series, files, todo)
        missing = {item.tile for item in todo}
        before = [tile for tile in files.grid.all_tiles() if tile not in missing]
        if not todo:
            progress.tiles_done(files.fingerprint, files.grid.blocks, before)
            return Report(files.fingerprint, series.n, files.grid.tiles, 0, 0, 0, bad, 0.0, "none needed", None)
        executor, name, rate, dashboard, memory = stack.enter_context(
            chosen_executor(series, plan, run, progress, client)
        )
        need = plan.need(rate, executor.slots, memory)
        check_room(folder, plan, rate)
        tasks = [
            TileTask(
                folder.url,
                files.fingerprint,
                files.grid.edge,
                series.state,
                tuple(group),
                plan.piece(memory),
                lease.token,
            )
            for group in plan.tasks(rate, executor.slots)
        ]
        progress.begin(Running("distances", need.cells, need.tiles, name, executor.slots, dashboard))
        progress.tiles_done(files.fingerprint, files.grid.blocks, before)
        begin = time.perf_counter()
        try:
            pairs = _execute(executor, tasks, plan, files, ledger, lease, progress)
        finally:
            progress.end()
        seconds = time.perf_counter() - begin
    rewritten = sum(len(places(item.tile)) for item in todo if any(item.kept))
    return Report(files.fingerprint, series.n, files.grid.tiles, len(todo), pairs, rewritten, bad, seconds, name, need)


def _stale(ledger: Ledger, grid: Grid, todo: list[Todo]) -> list[Tile]:
    """Return tiles whose entries must go before their chunks are written over.

    Otherwise, should the run be killed and the series come back that an entry tells of, it would vouch for a new chunk.
    """
    other = {item.tile for item in todo if not any(item.kept)}
    return [tile for tile in ledger.entries if tile in other or tile[1] >= grid.blocks]


def _execute(
    executor: Executor,
    tasks: list[TileTask],
    plan: Plan,
    files: MatrixFiles,
    ledger: Ledger,
    lease: Lease,
    progress: Progress,
) -> int:
    """Run all tasks, keep the ledger, and return how many pairs were computed."""
    cost = {todo.tile: plan.cells(todo) for todo in plan.todo}
    pairs, next_collection = 0, time.monotonic() + COLLECT_SECONDS
    try:
        for done in executor.run(tasks):
            for tile, entry in done:
                ledger.add(tile, entry)
                pairs += entry.computed
                progress.advance(cost[tile], entry.computed)
            progress.tiles_done(files.fingerprint, files.grid.blocks, [tile for tile, _ in done])
            if not done:
                progress.tick()
            lease.check()
            if (now := time.monotonic()) > next_collection:
                ledger.collect()
                # the whole ledger is written, which takes seconds where there are a hundred thousand tiles
                next_collection = time.monotonic() + max(COLLECT_SECONDS, COLLECT_SHARE * (time.monotonic() - now))
    finally:
        if lease.held:  # otherwise the ledger is somebody else's; the marks are in the store
            ledger.collect()
    return pairs


def _reread(
    files: MatrixFiles, series: StoredSeries, ledger: Ledger, run: RunSpec, progress: Progress
) -> dict[Tile, str]:
    """Read the tiles that are done, and return those that are not what the ledger says."""
    blocks, there = Blocks(files.grid, series.digests), files.whole_tiles()
    entries = {tile: entry for tile, entry in ledger.entries.items() if tile in there and any(blocks.kept(tile, entry))}
    if not entries:
        return {}
    progress.begin(Running("reading what is done", len(entries), len(entries)))
    try:
        return find_damage(files, entries, resolve_n_jobs(run.workers or -1), lambda: progress.advance(1, 0))
    finally:
        progress.end()


def _ready_matrix(series: StoredSeries, spec: DistanceSpec, run: RunSpec) -> MatrixFiles:
    """Return the matrix of the settings, made or grown where need be; raise before anything is written."""
    folder = series.folder
    files = find_matrices(folder).get(fingerprint(spec))
    if files is None or (files.state != series.state and spec.metric != "external"):
        check_series(series, spec)
    if files is not None:
        return grow_matrix(files, series)
    edge = new_edge(series, spec)
    plan = make_plan(series, MatrixFiles(folder, spec, Grid(series.n, edge)))
    plan.piece(memory_of(run))
    free = folder.free_bytes()
    if free is not None and plan.disk_bytes() > free:
        check_room(folder, plan, sample_with_threads(series, plan, 1))  # it may still fit, compressed
    return create_matrix(folder, spec, series, edge)
