"""The commands that make, fill and look after a store: ingest, plan, distances, status, verify, append."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from cksc_dist.commands.amounts import in_bytes, in_time, in_units
from cksc_dist.commands.info import summary
from cksc_dist.commands.matrix_file import read_matrix
from cksc_dist.commands.screen import Screen
from cksc_dist.commands.work_screen import WorkScreen
from cksc_dist.dist import ingest as ingesting
from cksc_dist.dist.dashboard import watched
from cksc_dist.dist.distances import Report, compute_distances
from cksc_dist.dist.forecast import forecast
from cksc_dist.dist.status import MatrixStatus, store_status
from cksc_dist.dist.verify import Verdict
from cksc_dist.dist.verify import verify as verify_store
from cksc_dist.dist.verify_files import Files, verify_files
from cksc_dist.errors import StoreError, typed
from cksc_dist.io import read
from cksc_dist.maths.threads import resolve_n_jobs
from cksc_dist.spec import DistanceSpec, RunSpec
from cksc_dist.store.folder import Folder
from cksc_dist.store.lease import Lease, silence
from cksc_dist.store.ledger import Ledger
from cksc_dist.store.matrix import describe, going_on
from cksc_dist.store.matrix_files import find_matrices
from cksc_dist.store.metadata import ensure_recorded, restore_metadata
from cksc_dist.store.series_files import StoredSeries, open_series

__all__ = ["append", "count_dims", "distances", "ingest", "plan", "status", "verify"]

BAD_SHOWN = 20


def ingest(
    sources: Sequence[Path], store: str, reader_options: Mapping[str, Any], matrix: Path | None, replace_old: bool
) -> None:
    """Read series and write them into a store; with a ready matrix, that as well."""
    screen = Screen()
    begin = time.perf_counter()
    data = None
    if sources:
        with screen.busy("reading"):
            data = read(list(sources) if len(sources) > 1 else sources[0], **reader_options)
        screen.table(["", ""], summary(data))
    if matrix is not None:
        values, labels, ids = read_matrix(matrix)
        name = ingesting.ingest_distances(
            values, store, data=data, labels=labels, ids=ids, name=matrix.stem, replace=replace_old
        )
        screen.line(f'ready matrix of {len(values):,} rows; open it with: open_matrix("{store}", "{name[:6]}")')
        return
    if data is not None and not ingesting.ingest(data, store, replace=replace_old):
        screen.line(f"{store} holds just these series already; nothing to do")
        return
    screen.line(f"written to {store} in {in_time(time.perf_counter() - begin)}; next: cksc distances {typed(store)}")


def count_dims(store: str) -> int:
    """Return how many dimensions the series of a store have."""
    return open_series(Folder(store)).dims


def plan(store: str, specs: Sequence[DistanceSpec], run: RunSpec) -> None:
    """Print what the work will take."""
    screen = Screen()
    for spec in specs:
        with screen.busy("timing a sample of pairs"):
            found = forecast(store, spec, run)
        need, grid = found.need, found.plan.grid
        screen.heading(f"{describe(spec)}")
        free = "" if found.free is None else f"; {in_bytes(found.free)} are free"
        allowed = "" if found.memory is None else f" of {in_bytes(found.memory)} that it may use"
        rows = [
            ("series", f"{grid.n:,}"),
            ("tiles", f"{need.tiles:,} to compute of {grid.tiles:,}, of {grid.edge} x {grid.edge}"),
            ("pairs", f"{need.pairs:,}"),
            ("cell updates", f"{need.cells:,}"),
            ("tasks", f"{need.tasks:,}"),
            ("on disk", f"{in_bytes(need.disk)} for the whole matrix ({found.rate.ratio:.0%} of its values){free}"),
            ("memory of a worker", f"{in_bytes(need.memory)}{allowed}" if need.tiles else "none needed"),
            (
                "time",
                f"{in_time(need.seconds)} with {found.workers} workers, {in_time(need.writing)} of it to write",
            ),
            ("executor", found.executor),
        ]
        screen.table(["", ""], rows)


def distances(store: str, specs: Sequence[DistanceSpec], run: RunSpec) -> None:
    """Compute what is missing of matrices, and say what was done."""
    screen = Screen()
    work = watched(WorkScreen(screen))
    with ExitStack() as stack:
        client = None
        if len(specs) > 1 and (run.scheduler is not None or run.executor == "dask"):
            # several matrices share one cluster; Dask takes half a second to import, which the others need not wait for
            from cksc_dist.dist.cluster import connected

            client = stack.enter_context(connected(run, run.workers or resolve_n_jobs(-1)))
            stack.enter_context(work.on(client))
        for spec in specs:
            screen.heading(f"{describe(spec)}")
            report = compute_distances(store, spec, run, work, client=client)
            _print_report(screen, report)
            screen.line(f'open it with: open_matrix("{store}", "{report.fingerprint[:6]}")')


def _print_report(screen: Screen, report: Report) -> None:
    if report.need is None:
        screen.line(f"complete: all {report.tiles:,} tiles of {report.fingerprint} are done and hold good")
        return
    rate = in_units(report.pairs / max(report.seconds, 1e-9))
    screen.line(
        f"computed {report.pairs:,} pairs, {report.computed:,} of {report.tiles:,} tiles, in {in_time(report.seconds)} "
        f"({rate}pairs/s; {in_time(report.need.seconds)} were forecast)"
    )
    if report.rewritten:
        screen.line(f"{report.rewritten:,} chunks at the edge were rewritten, with their old values kept")


def status(store: str) -> None:
    """Print what a store holds and how far it is."""
    screen = Screen()
    found = store_status(store)
    series = found.series
    frames = f", {series.dims:,} dims, {series.frames:,} frames" if series.dims else ", without series"
    screen.heading(f"{store}: {series.name}, {series.n:,} rows{frames}")
    if found.writer:
        screen.line(
            f"being written by process {found.writer['process']} on {found.writer['host']} ({found.writer['purpose']}) "
            f"for {in_time(time.time() - found.writer['since'])}"
        )
        quiet = silence(found.writer)
        if quiet is not None:
            screen.line(f"no sign of life from it for {in_time(quiet)}: if it is dead, the next run takes over")
    if not found.matrices:
        screen.line(f"no matrix yet; compute one with: cksc distances {typed(store)}")
    for matrix in found.matrices:
        screen.line()
        screen.table(["", ""], _status_rows(matrix, store))
    for copy in found.copies:
        screen.line()
        screen.line(
            f"kernel copy {copy.key}: {copy.rows:,} rows, {copy.done:,} of {copy.strips:,} strips, "
            f"{in_bytes(copy.disk)}; training on the same rows uses it again: remove {store}/kernels/{copy.key} if not "
            "wanted"
        )
    if found.models:
        screen.line()
        screen.line(f"models: {', '.join(found.models)}")
    for training in found.trainings:
        who = "nobody is at it: run cksc train again to go on"
        if training.writer is not None:
            who = f"process {training.writer['process']} on {training.writer['host']} is at it"
        screen.line(f"training of {training.model}: {training.alternations} alternations are kept; {who}")


def _status_rows(matrix: MatrixStatus, store: str) -> list[tuple[str, str]]:
    rows = [
        ("matrix", f"{matrix.fingerprint}  {describe(matrix.spec)}"),
        ("tiles", f"{matrix.done:,} of {matrix.tiles:,} done, {matrix.share:.1%} of the work"),
        ("on disk", f"{in_bytes(matrix.disk)}; {in_time(matrix.cpu_seconds)} of one worker's time"),
    ]
    if matrix.pairs_per_second is not None:
        eta = f", ETA {in_time(matrix.eta)}" if matrix.eta is not None else ""
        rows.append(("now", f"{in_units(matrix.pairs_per_second)}pairs/s by {len(matrix.workers)} workers{eta}"))
    elif matrix.done < matrix.tiles:
        rows.append(("missing", f"{matrix.tiles - matrix.done:,} tiles; go on with: {going_on(matrix.spec, store)}"))
    rows.append(("open with", f'xr.open_zarr("{store}", group="{matrix.group}", consolidated=False)'))
    return rows


def verify(store: str, sample: int, seed: int | None, prefix: str, repair: bool, run: RunSpec) -> int:
    """Check a store, mend it if asked, and return the exit code: 0 where all is well."""
    screen = Screen()
    folder = Folder(store)
    if repair:
        _tidy_up(folder)
    faults, verdicts = verify_store(folder, sample, seed, WorkScreen(screen), prefix)
    if faults and repair:
        with Lease(folder, "repair"):
            for key in restore_metadata(folder):
                screen.line(f"restored {key}")
            for group in ("series", *(files.group for files in find_matrices(folder).values())):
                ensure_recorded(folder, group)
        faults, verdicts = verify_store(folder, sample, seed, WorkScreen(screen), prefix)
    for fault in faults:
        screen.line(f"damaged: {fault}")
    if any(fault.startswith("series ") for fault in faults):
        screen.line(f"mend the series with: cksc ingest SOURCE {typed(store)} --replace")
    code = 1 if faults else 0
    # what metadata is damaged says nothing about which files belong together
    others = Files([], []) if faults else verify_files(folder)
    for fault in others.damaged:
        screen.line(f"damaged: {fault}")
    for key in others.unknown:
        screen.line(f"unknown: {key} is no part of the store; remove it unless somebody is writing it")
    code = 1 if others.damaged else code
    for verdict in verdicts:
        _print_verdict(screen, verdict)
        # a repair that was killed has left damaged tiles as missing ones
        if not verdict.ok and repair and not faults:
            spec, bad = find_matrices(folder)[verdict.fingerprint].spec, list(verdict.bad)
            # all else has just been read
            trusting = replace(run, trust=True)
            _print_report(screen, compute_distances(folder, spec, trusting, WorkScreen(screen), suspects=bad))
            _, (verdict,) = verify_store(folder, sample, seed, WorkScreen(screen), verdict.fingerprint)
            _print_verdict(screen, verdict)
        if not verdict.ok:
            code = 1
    if (faults or any(not verdict.ok for verdict in verdicts)) and not repair:
        screen.line(f"mend it with: cksc verify {typed(store)} --repair")
    return code


def _tidy_up(folder: Folder) -> None:
    """Take away what a killed repair has left: its lock, what is half-written, and marks of tiles beside the ledger."""
    if folder.read("metadata.json") is None:
        return  # no store, as those say who check it
    with Lease(folder, "repair"):
        folder.sweep()
        with suppress(StoreError):  # what cannot be read is told by those who check it
            for name in find_matrices(folder):
                Ledger(folder, name).load().collect()


def _print_verdict(screen: Screen, verdict: Verdict) -> None:
    screen.heading(f"{verdict.fingerprint}: {'all is well' if verdict.ok else 'not well'}")
    screen.line(
        f"{verdict.tiles - verdict.missing:,} of {verdict.tiles:,} tiles read, {len(verdict.bad):,} bad; "
        f"{verdict.checked:,} entries computed again by {verdict.engine}, off by {verdict.worst:.1e} relatively at most"
    )
    for tile, fault in sorted(verdict.bad.items())[:BAD_SHOWN]:
        screen.line(f"  tile {tile}: {fault}")
    if len(verdict.bad) > BAD_SHOWN:
        screen.line(f"  and {len(verdict.bad) - BAD_SHOWN:,} more")
    if verdict.axes:
        screen.line(f"  damaged axes: {', '.join(verdict.axes)}")
    if verdict.missing:
        screen.line(f"  {verdict.missing:,} tiles are not computed yet")


def append(store: str, sources: Sequence[Path], reader_options: Mapping[str, Any], run: RunSpec) -> None:
    """Add series to a store and compute their distances."""
    screen = Screen()
    with screen.busy("reading"):
        data = read(list(sources) if len(sources) > 1 else sources[0], **reader_options)
    before: StoredSeries = open_series(Folder(store))
    matrices = len(find_matrices(Folder(store)))
    screen.line(f"{len(data):,} series to the {before.n:,} of {store}, in {matrices} matrices")
    appended = ingesting.append(store, data, run, WorkScreen(screen))
    for report in appended.reports:
        screen.heading(f"{report.fingerprint}")
        _print_report(screen, report)
    if not appended.reports:
        screen.line(f"no matrix yet; compute one with: cksc distances {typed(store)}")
