"""Many fits over one matrix, as tasks: what is missing is run, and all of it returned as a table with labelled axes.

    run_fits(store, protocol_tasks(labels, grid={"sparsity": [4, 6, 8]}), name="first")

Run again after anything whatever: no fit that is done is repeated. Changed data or settings reuse nothing.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from cksc_dist.dist.dashboard import watched
from cksc_dist.dist.executors import Executor, SerialExecutor, ThreadExecutor
from cksc_dist.dist.forecast import executor_kind, memory_of, workers_of
from cksc_dist.dist.progress import Progress, Running
from cksc_dist.errors import InputError
from cksc_dist.evaluate.fit_tasks import ChosenRows, FitTask, SplitRows, key_of, rows_digest
from cksc_dist.evaluate.fit_work import (
    MEASURES,
    FitBatch,
    FitFiles,
    Measures,
    changed_data,
    check_data,
    data_digest,
    data_of,
    run_batch,
)
from cksc_dist.spec import RunSpec
from cksc_dist.store.folder import Folder
from cksc_dist.store.layout import check_store, compressors
from cksc_dist.store.lease import Lease
from cksc_dist.store.matrix import open_matrix
from cksc_dist.store.table_files import RESULTS, forget_table, record_table
from cksc_dist.store.trouble import named_trouble

__all__ = ["check_name", "fit_results", "run_fits", "write_table"]

TRIALS = 3
"""Fits for each slot that are run one by one, to see how long they take."""
BATCH_SECONDS = 0.5
"""A batch of quick fits takes about so long: its way through a scheduler is then not worth mention."""
BATCHES_PER_SLOT = 20
"""At least so many batches, where there are enough fits: slots then end at about the same time."""
START_SECONDS = 15.0
"""A cluster on this machine is started where it saves as much; threads would wait for each other, in Python's lock."""
COLLECT_SECONDS = 30.0
"""How often results are collected into one file."""
ROOM_SHARE = 4
"""One part in so many of a worker's memory may hold distances."""
ROOM = 2**30
"""The same in bytes, where nobody says what a worker has."""
LONGEST_NAME = 100
"""Letters of a name, of which files are called, with more behind it."""
LONGEST_PART = len("-sparsity")
"""Letters that an evaluation puts behind its own name to call its parts."""


def run_fits(
    store: str | Path | Folder,
    tasks: Sequence[FitTask],
    *,
    name: str,
    distances: str = "",
    data: str = "",
    run: RunSpec = RunSpec(),  # noqa: B008  frozen
    progress: Progress | None = None,
    client: Any = None,
) -> xr.Dataset:
    """Run what is missing of many fits, and return all their measures.

    Parameters
    ----------
    store
        A folder or URL with a finished matrix.
    tasks
        The fits; all with the same coordinates by name, no two with the same by value.
    name
        What they are called together: results are kept under it, and the table is in the group ``results/<name>``.
    distances
        First letters of the fingerprint, where the store holds several finished matrices.
    data
        What `data_digest` says of it, where the fits are a part of something that is under way; then ``distances`` is
        the whole fingerprint.
    run
        How to run; no value but the seconds depends on it.
    progress
        Hears what goes on.
    client
        A connected Dask client to work with, which stays open; None: as `run` says.

    Returns
    -------
    xarray.Dataset
        One axis for each coordinate; NaN where no fit was asked for. An axis ``method`` is chosen from by
        ``table.sel({"method": "cksc"})``, because ``sel`` has a parameter of that name.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from cksc_dist.dist.distances import compute_distances
    >>> from cksc_dist.evaluate import protocol_tasks
    >>> from cksc_dist.io import make_gestures
    >>> from cksc_dist.store.series_files import write_series
    >>> data = make_gestures(n_per_class=10)
    >>> with TemporaryDirectory() as folder:
    ...     write_series(Folder(folder), data)
    ...     _ = compute_distances(folder)
    ...     tasks = protocol_tasks(data.labels, n_splits=3, grid={"sparsity": [2, 3]})
    ...     table = run_fits(folder, tasks, name="sparsity", run=RunSpec(executor="serial"))
    >>> dict(table.sizes), table.accuracy.mean("split").dims
    ({'method': 1, 'split': 3, 'sparsity': 2}, ('method', 'sparsity'))
    """
    folder = Folder.of(store)
    progress = watched(progress)
    check_name(name, LONGEST_NAME + LONGEST_PART)
    axes = _axes(tasks)
    check_store(folder)
    digests, keys = _planned(folder, tasks, distances, data)
    files = FitFiles(folder.url, name)
    # only the results of this name: others may run fits of their own, or add to the matrix, meanwhile
    with Lease(files.folder, "fits") as lease, files.folder.swept() as swept:
        if swept:
            progress.note(f"removed {len(swept)} unfinished files of a run that was killed")
        files.load()
        for damaged in files.damaged:
            progress.note(f"{damaged} is damaged: what it held is computed again")
        missing = {key: task for key, task in zip(keys, tasks, strict=True) if key not in files.found}
        if len(missing) < len(set(keys)):
            progress.note(f"{len(set(keys)) - len(missing):,} of {len(set(keys)):,} fits are done already")
            for key, task in zip(keys, tasks, strict=True):
                if key not in missing:
                    _tell(progress, task, files.found[key])
        if missing:
            work = _Work(digests, name, files, lease, progress)
            _run_missing(work, missing, folder, run, client)
        else:
            files.collect()  # of a run that was killed when all was done but this
        table = _table(tasks, [files.found[key] for key in keys], axes)
        table.attrs = {"name": name, "distances": digests[0][0], "fits": len(tasks)}
        write_table(folder, name, table)
    return table


def fit_results(
    store: str | Path | Folder, tasks: Sequence[FitTask], *, name: str, distances: str = "", data: str = ""
) -> list[Measures]:
    """Return all that was kept of fits that `run_fits` has run, in the order of the tasks."""
    folder = Folder.of(store)
    _, keys = _planned(folder, tasks, distances, data)
    found = FitFiles(folder.url, name).load().found
    missing = [task for key, task in zip(keys, tasks, strict=True) if key not in found]
    if missing:
        raise InputError(f"{missing[0]} has not been run under the name {name!r}; call run_fits first")
    return [found[key] for key in keys]


def _planned(
    folder: Folder, tasks: Sequence[FitTask], distances: str, data: str
) -> tuple[tuple[tuple[str, str], ...], list[str]]:
    """Return the matrices of fits with their digests, and the key of each fit."""
    if data:
        check_data(folder, distances, data)  # before other matrices are found to be unfinished
    matrix = open_matrix(folder.url, distances)
    digests = _digests(folder, matrix.fingerprint, tasks)
    if data and digests[0][1] != data:
        raise changed_data(folder)
    return digests, _keys(tasks, matrix.labels, digests)


def _digests(folder: Folder, first: str, tasks: Sequence[FitTask]) -> tuple[tuple[str, str], ...]:
    """Return the matrices of fits, each with a digest of what is in it; the one of fits that name none comes first."""
    names = dict.fromkeys([first, *(name for task in tasks for name in task.matrices)])
    return tuple((name, data_digest(folder, open_matrix(folder.url, name).fingerprint)) for name in names)


def check_name(name: str, longest: int = LONGEST_NAME) -> None:
    """Raise an InputError unless fits can be kept under a name."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name) or len(name) > longest:
        raise InputError(
            f"name={name[: 2 * longest]!r}: must be letters, digits, '-', '_' and '.', at most {longest}, "
            "and begin with one of the first two"
        )


def _keys(tasks: Sequence[FitTask], labels: NDArray[Any], digests: Sequence[tuple[str, str]]) -> list[str]:
    """Return the key of each task; raise for the first that cannot be run."""
    drawn: dict[SplitRows | ChosenRows, str] = {}
    keys = []
    for task in tasks:
        settings = task.settings()
        if task.rows not in drawn:
            drawn[task.rows] = rows_digest(*task.draw(labels))
        keys.append(key_of(settings, drawn[task.rows], data_of(task, digests)))
    return keys


@dataclass(frozen=True)
class _Work:
    """What all batches of a run have in common."""

    digests: tuple[tuple[str, str], ...]
    name: str
    files: FitFiles
    lease: Lease
    progress: Progress

    def run(self, executor: Executor, fits: list[tuple[str, FitTask]], size: int, url: str, room: int) -> list[float]:
        """Run fits in batches of a size, and return the seconds of each."""
        whole = FitBatch(url, self.digests, self.name, room, ())
        batches = [replace(whole, fits=tuple(fits[at : at + size])) for at in range(0, len(fits), size)]
        seconds, collected, task_of = [], time.monotonic(), dict(fits)
        try:
            for came in executor.stream(run_batch, batches, "fit"):
                self.lease.check()
                if came is None:
                    self.progress.tick()
                    continue
                for key, measures in came[1]:
                    self.files.add(key, measures)
                    seconds.append(measures["train_seconds"] + measures["predict_seconds"])
                    self.progress.advance(1, 0)
                    _tell(self.progress, task_of[key], measures)
                if time.monotonic() - collected > COLLECT_SECONDS:
                    self.files.collect()
                    collected = time.monotonic()
        finally:
            if self.lease.held:  # otherwise the collected file is somebody else's; results are in the store
                self.files.collect()
        return seconds


def _tell(progress: Progress, task: FitTask, measures: Measures) -> None:
    """Tell of a final fit; those that tune say nothing about a method yet."""
    if set(task.coordinates) == {"method", "split"}:
        method, split = str(task.coordinates["method"]), int(task.coordinates["split"])
        # the objectives were not kept by earlier releases
        progress.result(method, split, measures["accuracy"], measures.get("objectives", ()))


def _run_missing(work: _Work, missing: dict[str, FitTask], folder: Folder, run: RunSpec, client: Any) -> None:
    """Run fits where it is best: the first few are timed, and run one by one."""
    left, progress = list(missing.items()), work.progress
    seconds = 0.0
    if client is None and run.scheduler is None and run.executor == "auto":
        progress.note("timing the first fits; a first run also compiles")
        trials, left = left[:TRIALS], left[TRIALS:]
        progress.begin(Running("first fits", len(trials), len(trials), unit="fits"))
        try:
            seconds = median(work.run(SerialExecutor(), trials, 1, folder.url, _room(memory_of(run))))
        finally:
            progress.end()
    if not left:
        return
    with _executor(run, client, seconds * len(left), progress) as (executor, who, dashboard, memory):
        room = _room(memory)
        progress.begin(Running("fits", len(left), len(left), who, executor.slots, dashboard, "fits"))
        try:
            if not seconds:
                count = TRIALS * executor.slots
                trials, left = left[:count], left[count:]
                seconds = median(work.run(executor, trials, 1, folder.url, room))
            size = min(ceil(BATCH_SECONDS / seconds), ceil(len(left) / (BATCHES_PER_SLOT * executor.slots)))
            work.run(executor, left, max(1, size), folder.url, room)
        finally:
            progress.end()


def _room(memory: int | None) -> int:
    return ROOM if memory is None else memory // ROOM_SHARE


def _kind(run: RunSpec, expected: float) -> tuple[str, str]:
    """Return which executor to use for so many seconds of one core's work, and why."""
    if run.executor != "auto" or run.scheduler is not None:
        return executor_kind(run, expected)
    if expected * (1 - 1 / workers_of(run)) < START_SECONDS:
        return "serial", f"{expected:.1f} s are expected, less than a cluster is worth"
    return "dask", f"{expected:,.0f} s of one core's work are expected; on a cluster started on this machine"


@contextmanager
def _executor(
    run: RunSpec, client: Any, expected: float, progress: Progress
) -> Iterator[tuple[Executor, str, str, int | None]]:
    """Give the executor, what to call it and why, the dashboard's address, and a worker's memory."""
    workers, memory = workers_of(run), memory_of(run)
    kind, why = ("dask", "with the client that was given") if client is not None else _kind(run, expected)
    if kind != "dask":
        yield SerialExecutor() if kind == "serial" else ThreadExecutor(workers), f"{kind} ({why})", "", memory
        return
    from cksc_dist.dist.cluster import working_client
    from cksc_dist.dist.dask_executor import DaskExecutor
    from cksc_dist.dist.workers import dashboard_of, memory_of_workers

    with working_client(run, workers, client, progress) as found:
        if client is not None or run.scheduler is not None:
            memory = run.memory or memory_of_workers(found)
        yield DaskExecutor(found, progress), f"{kind} ({why})", dashboard_of(found), memory


def _axes(tasks: Sequence[FitTask]) -> dict[str, list[Any]]:
    """Return the values on each axis, in the order in which they come first; raise where they make no table."""
    if not tasks:
        raise InputError("no fits are given; make some with protocol_tasks")
    names = list(tasks[0].coordinates)
    taken = [name for name in names if name in MEASURES]
    if taken or not names:
        raise InputError(f"coordinates {names}: give at least one, and none of the names of measures")
    places: dict[tuple[Any, ...], FitTask] = {}
    for task in tasks:
        if list(task.coordinates) != names:
            raise InputError(
                f"{task} has other coordinates than {tasks[0]}; all fits of one table have the same: run those of "
                "other axes under another name"
            )
        place = tuple(task.coordinates.values())
        if place in places:
            raise InputError(f"{task} is given twice; coordinates tell fits apart: add one that differs")
        places[place] = task
    return {name: list(dict.fromkeys(task.coordinates[name] for task in tasks)) for name in names}


def _axis(values: list[Any]) -> NDArray[Any]:
    """Return the labels of an axis as numbers where all are numbers, as text where not (None, "mean" and 0.5)."""
    numbers = all(isinstance(value, int | float | np.number) and not isinstance(value, bool) for value in values)
    return np.array(values) if numbers else np.array([str(value) for value in values])


def _table(tasks: Sequence[FitTask], found: list[Measures], axes: dict[str, list[Any]]) -> xr.Dataset:
    """Return measures on their axes."""
    places = {name: {value: at for at, value in enumerate(values)} for name, values in axes.items()}
    at = tuple(np.array([places[name][task.coordinates[name]] for task in tasks]) for name in axes)
    variables = {}
    for measure, text in MEASURES.items():
        values = np.full([len(values) for values in axes.values()], np.nan)
        values[at] = [measures[measure] for measures in found]
        variables[measure] = (tuple(axes), values, {"long_name": text})
    return xr.Dataset(variables, {name: _axis(values) for name, values in axes.items()})


def write_table(folder: Folder, name: str, table: xr.Dataset) -> None:
    """Write the table for others to open; should this be cut off, the next run makes it again from the fits."""
    # Zarr has no settled form for text of a fixed width
    text = {name: table[name].astype(object) for name in table.variables if table[name].dtype.kind == "U"}
    stored = table.assign_coords({name: text[name] for name in text if name in table.coords})
    encoding = {name: {"compressors": _codecs(stored[name].dtype)} for name in stored.variables}
    try:
        folder.sweep(held=False)
        forget_table(folder, name)
        stored.to_zarr(
            folder.zarr(durable=True),
            group=f"{RESULTS}/{name}",
            mode="w",
            consolidated=False,
            zarr_format=3,
            encoding=encoding,
        )
        record_table(folder, name)
    except OSError as error:
        if (trouble := named_trouble(error, folder.url)) is None:
            raise
        raise trouble from error


def _codecs(dtype: np.dtype[Any]) -> list[Any]:
    """Return codecs with a checksum, whatever the values are."""
    return compressors(dtype.itemsize) if dtype.kind in "biuf" else compressors(1)[1:]
