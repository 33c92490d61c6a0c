"""The work of some fits: read rows, train, measure, write each result; in any process that sees the store.

    fits/<name>/done/<key>.json     written by whoever ran the fit, as soon as it is done
    fits/<name>/fits.json           all of them together, collected now and then by the one who runs the work

A worker keeps the distances of a matrix in memory where they fit, and reads rows of it for each fit where not.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from math import nan
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import f1_score

from cksc_dist.errors import ClusterError, InputError, SmallClassWarning, StoreError
from cksc_dist.evaluate.fit_tasks import FitTask, Rows, key_of, rows_digest
from cksc_dist.evaluate.methods import METHODS, Method
from cksc_dist.evaluate.statistics import calibration_error
from cksc_dist.models.distance_kernel import DistanceKernel
from cksc_dist.models.kernel_classifier import KernelClassifier
from cksc_dist.store.folder import Folder
from cksc_dist.store.ledger import Ledger
from cksc_dist.store.matrix import open_matrix
from cksc_dist.store.series_files import StoredSeries, open_series

__all__ = ["MEASURES", "FitBatch", "FitFiles", "changed_data", "check_data", "data_digest", "data_of", "run_batch"]

MEASURES = {
    "accuracy": "share of test rows with the right label",
    "macro_f1": "mean over classes of the harmonic mean of precision and recall",
    "calibration": "expected calibration error of the confidence",
    "atoms_used": "mean number of atoms in a decision",
    "n_iter": "alternations of training",
    "objective": "objective at the end of training",
    "atoms": "atoms of the dictionary",
    "interpretability": "mean over atoms of the share of an atom's weight in its strongest class",
    "train_seconds": "seconds of training, the kernel included",
    "predict_seconds": "seconds of prediction, the kernel included",
}
"""What is measured of a fit; NaN where it has no meaning for a method."""

Measures = dict[str, Any]
"""Numbers by the names of `MEASURES`; where asked for, ``predicted`` and ``confidence`` of the test rows, and
``objectives``, the objective after each alternation."""


class FitFiles:
    """Results of fits by key.

    Parameters
    ----------
    url
        The store.
    name
        What the fits are called together.
    """

    def __init__(self, url: str, name: str) -> None:
        self.folder = Folder(url).below(f"fits/{name}")
        self.found: dict[str, Measures] = {}
        self.damaged: list[str] = []
        """Files that count as none; what they held is computed again."""
        self._marks: set[str] = set()
        """Keys whose results are here but not yet in the collected file."""

    def load(self) -> FitFiles:
        """Read what is there; a file that is damaged counts as none."""
        # marks first: one that is collected meanwhile is in the file that is read after them
        names = [name for name in self.folder.files("done") if name.endswith(".json")]
        keys = [name.removesuffix(".json") for name in names]
        marks = {key: found for key in keys if (found := self.read_mark(key)) is not None}
        collected = self._read("fits.json")
        known = collected if isinstance(collected, dict) else {}
        self.found = {key: found for key, found in known.items() if _is_whole(found)} | marks
        self._marks = set(marks)
        return self

    def read_mark(self, key: str) -> Measures | None:
        """Return a result that has not been collected yet; None where there is none."""
        found = self._read(f"done/{key}.json")
        return found if _is_whole(found) else None

    def _read(self, name: str) -> Any:
        try:
            return self.folder.read_json(name)
        except StoreError:
            self.damaged.append(f"{self.folder.url}/{name}")
            return None

    def mark(self, key: str, measures: Measures) -> None:
        """Write a result; done by whoever ran the fit."""
        self.folder.write_json(f"done/{key}.json", measures)

    def add(self, key: str, measures: Measures) -> None:
        """Take up a result that was written elsewhere."""
        self.found[key] = measures
        self._marks.add(key)

    def collect(self) -> None:
        """Put all results into one file, then remove the files that are in it."""
        if not self._marks:
            return
        # on the disk before the marks go
        self.folder.write_json("fits.json", self.found, durable=True)
        self.folder.remove_many([f"done/{key}.json" for key in sorted(self._marks)])
        self._marks.clear()


def _is_whole(found: Any) -> bool:
    return isinstance(found, dict) and all(isinstance(found.get(name), float) for name in MEASURES)


def data_digest(folder: Folder, fingerprint: str, series: StoredSeries | None = None) -> str:
    """Return a digest of all that a fit reads: distances by the checksums of their tiles, labels, series.

    The digests of series alone would not do: those of a matrix that came ready tell nothing of its values.
    """
    series = series or open_series(folder)
    entries = Ledger(folder, fingerprint).load().entries
    tiles = [f"{tile} {entry.checksum}" for tile, entry in sorted(entries.items())]
    return sha256("\n".join([fingerprint, series.state, series.sha256["label"], *tiles]).encode()).hexdigest()


def check_data(folder: Folder, fingerprint: str, data: str) -> None:
    """Raise a StoreError if `data_digest` says something else by now: nobody who reads holds a store."""
    if data_digest(folder, fingerprint) != data:
        raise changed_data(folder)


def changed_data(folder: Folder) -> StoreError:
    """Return the error for data that are no longer those of the plan."""
    return StoreError(f"{folder.url}: series or distances have changed since the work was planned; run it again")


@dataclass(frozen=True)
class FitBatch:
    """Fits for one worker to run, one after the other.

    Parameters
    ----------
    url
        The store.
    digests
        Fingerprints of the matrices in use, each with a digest of what was in it when the work was planned. The first
        is the one of fits that name none.
    name
        Where results go.
    room
        Bytes of distances that a process may keep in memory.
    fits
        Keys of the results, and tasks.
    """

    url: str
    digests: tuple[tuple[str, str], ...]
    name: str
    room: int
    fits: tuple[tuple[str, FitTask], ...]

    def __str__(self) -> str:
        more = len(self.fits) - 1
        return f"{self.fits[0][1]}{f' and {more} more' if more else ''}"


def data_of(task: FitTask, digests: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the matrices of a task, with their digests."""
    known = dict(digests)
    return [(name, known[name]) for name in task.matrices] if task.matrices else [digests[0]]


class _Opened:
    """A matrix as a process keeps it between tasks: its values where there is room for them."""

    def __init__(self, url: str, fingerprint: str, data: str, room: int) -> None:
        self._matrix = open_matrix(url, fingerprint)
        self._data = data
        self.labels = self._matrix.labels
        n = len(self._matrix)
        self._values: NDArray[Any] | None = None
        if n * n * self._matrix.dtype.itemsize <= room:
            self._values = self._matrix[:, :]
            self._values.setflags(write=False)
        self._check()

    @property
    def nbytes(self) -> int:
        """Bytes that are kept."""
        return 0 if self._values is None else self._values.nbytes

    def _check(self) -> None:
        """Raise a StoreError if what was read may be other data: the store is not held while fits run."""
        # whoever changes a tile takes it out of the ledger first
        check_data(Folder(self._matrix.folder.url), self._matrix.fingerprint, self._data)

    def distances(self, train: Rows, test: Rows) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the distances of training rows among themselves, and of test rows to them."""
        if self._values is not None:
            return self._values[np.ix_(train, train)], self._values[np.ix_(test, train)]
        read = self._matrix[train, train], self._matrix[test, train]
        self._check()
        return read


_kept: OrderedDict[tuple[str, str, str, int], _Opened] = OrderedDict()
"""Matrices that the process has open, the one used last at the end."""
_reading = threading.Lock()


def _opened(batch: FitBatch, fingerprint: str, data: str) -> _Opened:
    place = (batch.url, fingerprint, data, batch.room)
    with _reading:  # threads of a process wait for the one that reads, instead of reading the same again
        found = _kept.get(place)
        if found is None:
            found = _kept[place] = _Opened(*place)
        _kept.move_to_end(place)
        while len(_kept) > 1 and sum(each.nbytes for each in _kept.values()) > batch.room:
            _kept.popitem(last=False)
    return found


class _Quiet:
    """Filters of warnings belong to the process: the first who changes them saves them, the last restores them."""

    lock = threading.Lock()
    users = 0
    saved: Any = None


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep warnings about single fits away: hundreds of them tell nothing that the table does not."""
    with _Quiet.lock:
        if _Quiet.users == 0:
            _Quiet.saved = warnings.catch_warnings()
            _Quiet.saved.__enter__()
            warnings.simplefilter("ignore", SmallClassWarning)
            warnings.simplefilter("ignore", ConvergenceWarning)
            # of scikit-learn, where folds leave a sample or two of each class: labels they are all the same
            warnings.filterwarnings("ignore", "The number of unique classes is greater than 50%")
        _Quiet.users += 1
    try:
        yield
    finally:
        with _Quiet.lock:
            _Quiet.users -= 1
            if _Quiet.users == 0:
                _Quiet.saved.__exit__(None, None, None)


def run_batch(batch: FitBatch) -> list[tuple[str, Measures]]:
    """Run the fits of a batch, write each result, and return them by key."""
    files = FitFiles(batch.url, batch.name)
    with _quiet():
        return [(key, _run(files, batch, key, task)) for key, task in batch.fits]


def _run(files: FitFiles, batch: FitBatch, key: str, task: FitTask) -> Measures:
    found = files.read_mark(key)
    if found is not None:
        return found  # by a worker that was lost before it could finish the rest of its batch
    settings = task.settings()
    data = data_of(task, batch.digests)
    opened = [_opened(batch, *each) for each in data]
    train, test = task.draw(opened[0].labels)
    if key_of(settings, rows_digest(train, test), data) != key:
        raise ClusterError(
            f"{task}: a worker draws other rows, or has other defaults, than the client; both sides must have the same "
            "versions of cksc_dist and scikit-learn"
        )
    try:
        measures = _measure(opened, settings, train, test)
    except InputError as error:
        raise InputError(f"{task}: {error}") from error
    files.mark(key, measures)
    return measures


def _inputs(
    opened: list[_Opened], method: Method, kernel: dict[str, Any], train: Rows, test: Rows
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return what a method is fitted on and what it predicts from; all that is learnt is from the training rows."""
    pairs = [each.distances(train, test) for each in opened]
    if method.takes == "distances":
        return pairs[0]
    transforms = [DistanceKernel(**kernel) for _ in pairs]
    known = [transform.fit_transform(D) for transform, (D, _) in zip(transforms, pairs, strict=True)]
    asked = [transform.transform(D) for transform, (_, D) in zip(transforms, pairs, strict=True)]
    several = method.takes == "kernels"
    return (np.stack(known, axis=-1), np.stack(asked, axis=-1)) if several else (known[0], asked[0])


def _measure(opened: list[_Opened], settings: dict[str, Any], train: Rows, test: Rows) -> Measures:
    """Train on some rows, predict others, and return what is measured."""
    method, labels = METHODS[settings["method"]], opened[0].labels
    begin = time.perf_counter()
    known, asked = _inputs(opened, method, settings["kernel"], train, test)
    model = method.make(settings["parameters"], settings["random_state"])
    model.fit(known, labels[train])
    middle = time.perf_counter()
    confidence = used = None
    if isinstance(model, KernelClassifier):
        predicted, confidence, used = model.decisions(asked)
    else:
        predicted = model.predict(asked)
    end = time.perf_counter()
    right = predicted == labels[test]
    measures: Measures = {
        "accuracy": float(right.mean()),
        "macro_f1": float(f1_score(labels[test], predicted, average="macro", zero_division=0.0)),
        "calibration": nan if confidence is None else calibration_error(confidence, right),
        "atoms_used": nan if used is None else float(used.mean()),
        "n_iter": nan,
        "objective": nan,
        "atoms": nan,
        "interpretability": nan,
        "train_seconds": middle - begin,
        "predict_seconds": end - middle,
    }
    if isinstance(model, KernelClassifier):
        measures |= {
            "n_iter": float(model.n_iter_),
            "objective": float(model.objective_history_[-1]) if len(model.objective_history_) else nan,
            "atoms": float(model.dictionary_.shape[1]),
            "interpretability": float(np.mean(model.interpretability_)),
        }
    if settings["keep"]:
        measures["predicted"] = np.searchsorted(np.unique(labels), predicted).tolist()
        measures["confidence"] = None if confidence is None else confidence.round(6).tolist()
        measures["objectives"] = _after_alternations(model) if isinstance(model, KernelClassifier) else []
    return measures


def _after_alternations(model: KernelClassifier) -> list[float]:
    """Return the objective after each alternation; the history of some methods has values in between."""
    history = model.objective_history_
    steps = max(1, len(history) // max(1, model.n_iter_))
    values: list[float] = history[steps - 1 :: steps].tolist()
    return values
