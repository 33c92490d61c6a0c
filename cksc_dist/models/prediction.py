"""Explanations of many new series: in this process, or in blocks on a cluster, always in their order.

A block is a task. It carries the values of its series and the address of the model; whoever works on it loads the
model once and keeps it. How series are cut into blocks follows from them and the model alone, so that all executors
give the same bytes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, overload

import numpy as np
from numpy.typing import NDArray

from cksc_dist.dist.executors import Executor, SerialExecutor, ThreadExecutor, results
from cksc_dist.dist.forecast import executor_kind, workers_of
from cksc_dist.dist.progress import Progress, Running
from cksc_dist.errors import CkscError, ClusterError, InputError, ModelFileError
from cksc_dist.maths.threads import one_blas_thread, resolve_n_jobs
from cksc_dist.models.cksc import CKSC
from cksc_dist.models.explanation import Explanation
from cksc_dist.models.kernel_input import DtwInput
from cksc_dist.series import Ragged, SeriesSet
from cksc_dist.spec import RunSpec, check_count
from cksc_dist.store.folder import Folder
from cksc_dist.store.model_files import model_digest

__all__ = ["BlockTask", "HeldSeries", "NewSeries", "SavedModel", "explain_block", "explain_blocks"]

# A block has no more of each than this.
ROWS = 256
BYTES = 2**21  # of values: Dask warns of tasks that are much larger
ENTRIES = 2**22  # of its matrix of distances
CELLS = 4e9  # cell updates of DTW, about half a second on one core

TASKS_A_SLOT = 20
"""Blocks sent at a time for each that is worked on; results wait for the slowest of them, and no others pile up."""
CHECK_ROWS = 4096
MODELS_HELD = 2


Explanations = Generator[list[Explanation], None, None]


class NewSeries(Protocol):
    """Series to classify: in memory (`HeldSeries`) or in a store (`cksc_dist.store.series_files.StoredSeries`)."""

    @property
    def n(self) -> int:
        """Number of series."""

    @property
    def dims(self) -> int:
        """Number of dimensions."""

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Frames of each series."""

    @property
    def labels(self) -> NDArray[Any]:
        """One label for each series."""

    @property
    def ids(self) -> NDArray[np.str_]:
        """One name for each series."""

    def read(self, begin: int, end: int) -> Ragged:
        """Return the series of some rows."""


class HeldSeries:
    """A set of series in memory, read as one in a store is.

    Parameters
    ----------
    data
        The set.
    """

    def __init__(self, data: SeriesSet) -> None:
        self._data = data
        self.n, self.dims, self.lengths, self.labels, self.ids = (
            len(data),
            data.dims,
            data.lengths,
            data.labels,
            data.ids,
        )

    def read(self, begin: int, end: int) -> Ragged:
        """Return the series of some rows."""
        values, offsets = self._data.values, self._data.offsets
        return values[offsets[begin] : offsets[end]], offsets[begin : end + 1] - offsets[begin]


@dataclass(frozen=True)
class SavedModel:
    """A saved model by its address and what tells it from others that may be put there later.

    Parameters
    ----------
    address
        Absolute path, or URL.
    digest
        From `cksc_dist.store.model_files.model_digest`.
    """

    address: str
    digest: str

    @classmethod
    def at(cls, path: str | Path) -> SavedModel:
        """Return the model that is saved under a path or URL now."""
        address = Folder(path).url
        return cls(address, model_digest(address))

    def load(self) -> CKSC:
        """Return the model; it is read once and then kept, for all threads of this process."""
        with _loading:
            return _load(self)

    def source(self) -> DtwInput:
        """Return what new series are compared with, or say that the model takes none."""
        model = self.load()
        if not isinstance(model._source, DtwInput):
            raise InputError(
                f"{self.address} was trained with kernel={model.kernel!r} and cannot take series; train with "
                "kernel='dtw', or use load_model in Python and pass it what it was trained on"
            )
        return model._source


_loading = threading.Lock()


@lru_cache(maxsize=MODELS_HELD)
def _load(saved: SavedModel) -> CKSC:
    before = model_digest(saved.address)
    model = CKSC.load(saved.address)
    if not before == saved.digest == model_digest(saved.address):
        raise ModelFileError(
            f"{saved.address} is no longer the model that this work began with; leave it as it is while it is used, "
            "and run the same command again"
        )
    model.set_params(n_jobs=1)  # blocks are worked on side by side
    return model


@dataclass(frozen=True, eq=False)
class BlockTask:
    """A block of series to explain.

    Parameters
    ----------
    model
        Where the model is.
    top
        How many training samples and atoms to name.
    begin
        Number of the first series.
    values, offsets
        The series, end to end.
    """

    model: SavedModel
    top: int
    begin: int
    values: NDArray[np.float64] = field(repr=False)
    offsets: NDArray[np.int64] = field(repr=False)


def explain_block(task: BlockTask) -> list[Explanation]:
    """Return the explanations of a block; runs anywhere."""
    try:
        model = task.model.load()
    except CkscError as error:
        raise _out_of_sight(task.model, error) from error
    series = [task.values[i:j] for i, j in zip(task.offsets[:-1], task.offsets[1:], strict=True)]
    try:
        with one_blas_thread():
            return model.explain_many(series, task.top)
    except InputError as error:
        last = task.begin + len(series) - 1
        raise InputError(f"among series {task.begin} to {last}, of which X[0] is the first: {error}") from error


def _out_of_sight(model: SavedModel, error: object) -> ClusterError:
    return ClusterError(
        f"a worker cannot read the model {model.address} ({error}); put it where this machine and all workers find it "
        "under the same name: in a folder that they share, or at a URL such as s3://bucket/model"
    )


def _look(model: SavedModel) -> str:
    """Return why a model cannot be read here; nothing where it can."""
    try:
        model.load()
    except Exception as error:  # whatever it is, a person must learn of it
        return f"{error}" if isinstance(error, CkscError) else f"{type(error).__name__}: {error}"
    return ""


class _Blocks(Sequence[BlockTask]):
    """The blocks of some series, each read when it is asked for.

    ``edges`` are the rows between blocks, ``cells`` the work up to each.
    """

    def __init__(self, saved: SavedModel, series: NewSeries, top: int) -> None:
        self._saved, self._series, self._top = saved, series, top
        kept, offsets = saved.source().series
        frames = np.concatenate([[0], np.cumsum(series.lengths)])
        needed = len(offsets) - 1
        most_frames = min(BYTES / (8 * series.dims), CELLS / (len(kept) * series.dims))
        most_rows = max(1, min(ROWS, ENTRIES // needed))
        edges = [0]
        while edges[-1] < series.n:
            begin = edges[-1]
            by_frames = int(np.searchsorted(frames, frames[begin] + most_frames, side="right")) - 1
            edges.append(min(max(begin + 1, by_frames), begin + most_rows, series.n))
        self.edges = edges
        self.cells = frames[edges] * len(kept) * series.dims
        self.pairs = np.array(edges) * needed

    def __len__(self) -> int:
        return len(self.edges) - 1

    @overload
    def __getitem__(self, i: int) -> BlockTask: ...

    @overload
    def __getitem__(self, i: slice) -> Sequence[BlockTask]: ...

    def __getitem__(self, i: int | slice) -> BlockTask | Sequence[BlockTask]:
        if isinstance(i, slice):
            return _SomeBlocks(self, range(len(self))[i])
        begin, end = self.edges[i], self.edges[i + 1]
        return BlockTask(self._saved, self._top, begin, *self._series.read(begin, end))

    def work(self, i: int) -> tuple[int, int, int]:
        """Return what a block takes: cell updates, pairs, series."""
        return (
            int(self.cells[i + 1] - self.cells[i]),
            int(self.pairs[i + 1] - self.pairs[i]),
            self.edges[i + 1] - self.edges[i],
        )


@dataclass(frozen=True)
class _SomeBlocks(Sequence[BlockTask]):
    """Some of the blocks, still unread."""

    blocks: _Blocks
    numbers: range

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, i: Any) -> Any:
        return self.blocks[self.numbers[i]]


def explain_blocks(
    path: str | Path,
    series: NewSeries | SeriesSet,
    top: int = 5,
    run: RunSpec = RunSpec(),  # noqa: B008  frozen
    progress: Progress | None = None,
    *,
    client: Any = None,
) -> Explanations:
    """Explain many series with a saved model, block by block and in their order.

    Parameters
    ----------
    path
        Path or URL of a model that takes series. Workers of a cluster must find it there as well.
    series
        Series to classify, in memory or in a store: of the latter only some blocks are in memory at a time.
    top
        How many training samples and atoms to name for each.
    run
        How to run; no bit depends on it. Without a scheduler the first block is timed: threads where less than a
        minute is expected, otherwise a cluster is started on this machine.
    progress
        Hears what goes on.
    client
        A connected Dask client to work with, which stays open; None: as `run` says.

    Returns
    -------
    generator of lists
        What cannot be classified is told before the first; close it to stop early.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from cksc_dist import CKSC
    >>> from cksc_dist.io import make_gestures
    >>> data = make_gestures(n_per_class=10, random_state=1)
    >>> with TemporaryDirectory() as folder:
    ...     CKSC(sparsity=3, kernel="dtw", random_state=0).fit(data, data.labels).save(f"{folder}/model")
    ...     blocks = list(explain_blocks(f"{folder}/model", data, top=2, run=RunSpec("serial")))
    >>> [len(block) for block in blocks], blocks[0][0].label
    ([40], 'gesture0')
    """
    check_count("top", top)
    held: NewSeries = HeldSeries(series) if isinstance(series, SeriesSet) else series
    saved = SavedModel.at(path)
    _check(saved.source(), saved.address, held)
    return _explained(saved, _Blocks(saved, held, top), run, progress or Progress(), client)


def _check(source: DtwInput, address: str, series: NewSeries) -> None:
    """Raise an InputError for what would fail in the middle of the work."""
    if series.dims != source.n_features:
        raise InputError(
            f"the series have {series.dims} dims but {address} was trained on {source.n_features}; "
            "give series with the dims of the training set"
        )
    if source.checks_values:
        for begin in range(0, series.n, CHECK_ROWS):
            source.check(series.read(begin, min(begin + CHECK_ROWS, series.n)), begin)


def _explained(saved: SavedModel, blocks: _Blocks, run: RunSpec, progress: Progress, client: Any) -> Explanations:
    first: list[Explanation] | None = None
    expected = 0.0
    if client is None and run.executor == "auto" and run.scheduler is None:
        first, expected = _time_the_first(blocks, workers_of(run))
    done = 0 if first is None else 1
    with _workers(saved, run, expected, progress, client) as (executor, name, dashboard):
        total = int(blocks.cells[-1])
        progress.begin(Running("classifying", total, blocks.edges[-1], name, executor.slots, dashboard))
        try:
            if first is not None:
                progress.advance(*blocks.work(0))
                yield first
            with closing(_in_order(executor, blocks, done, progress)) as stream:
                yield from stream
        finally:
            progress.end()


def _time_the_first(blocks: _Blocks, workers: int) -> tuple[list[Explanation], float]:
    """Return the explanations of the first block, and the seconds that so many threads will take for all."""
    task = blocks[0]
    end = int(task.offsets[1])
    explain_block(BlockTask(task.model, task.top, 0, task.values[:end], task.offsets[:2]))  # it may have to compile
    begin = time.perf_counter()
    explanations = explain_block(task)
    seconds = time.perf_counter() - begin
    return explanations, seconds * float(blocks.cells[-1] / blocks.cells[1]) / min(workers, resolve_n_jobs(-1))


def _in_order(executor: Executor, blocks: _Blocks, first: int, progress: Progress) -> Explanations:
    """Give the results of blocks in their order; those that come early wait."""
    while first < len(blocks):
        some = blocks[first : first + TASKS_A_SLOT * executor.slots]
        waiting: dict[int, list[Explanation]] = {}
        due = 0
        for came in executor.stream(explain_block, some, "predict-block"):
            if came is None:
                progress.tick()
                continue
            number, waiting[number] = came
            progress.advance(*blocks.work(first + number))
            while due in waiting:
                yield waiting.pop(due)
                due += 1
        first += len(some)


@contextmanager
def _workers(
    saved: SavedModel, run: RunSpec, expected: float, progress: Progress, client: Any
) -> Iterator[tuple[Executor, str, str]]:
    """Give the executor, what to call it and why it was chosen, and the dashboard's address."""
    kind, why = ("dask", "with the client that was given") if client is not None else executor_kind(run, expected)
    workers = workers_of(run)
    if kind != "dask":
        yield (SerialExecutor() if kind == "serial" else ThreadExecutor(workers)), f"{kind} ({why})", ""
        return
    from cksc_dist.dist.cluster import working_client
    from cksc_dist.dist.dask_executor import DaskExecutor
    from cksc_dist.dist.workers import dashboard_of

    with working_client(run, workers, client, progress) as found:
        executor = DaskExecutor(found, progress)
        (reason,) = results(executor, _look, [saved], "predict-look")
        if reason:
            raise _out_of_sight(saved, reason)
        yield executor, f"{kind} ({why})", dashboard_of(found)
