"""Train CKSC from the distance matrix of a store: wherever the kernel lives, with a checkpoint every alternation.

    train(store, model)      what ``cksc train STORE MODEL`` does

Where the kernel fits in memory, training runs in this process. Where it does not, a copy of it is written row by row
(`cksc_dist.store.kernel_copy`) and gone through once an alternation, by threads of this process or by the workers of a
cluster. Neither changes a bit of the model.
"""

from __future__ import annotations

import hashlib
import json
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from math import inf, isfinite
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from cksc_dist.dist.dashboard import watched
from cksc_dist.dist.progress import Progress
from cksc_dist.errors import InputError, ModelFileError, StoreBusyError, StoreError
from cksc_dist.maths.cksc import TERMS, State, alternate
from cksc_dist.maths.codes import Objective
from cksc_dist.maths.kernel import gaussian_kernel
from cksc_dist.maths.ridge import Ridge, ridge
from cksc_dist.maths.sparse import SparseRows
from cksc_dist.models.cksc import CKSC, check_classes
from cksc_dist.models.distance_kernel import DistanceKernel
from cksc_dist.models.kernel_classifier import Checked
from cksc_dist.models.kernel_input import DtwInput, KernelInput, PrecomputedInput
from cksc_dist.models.saved import check_array, check_sparse_rows
from cksc_dist.models.stored_kernel import PLACES, Place, StoredKernel, stored_kernel
from cksc_dist.series import Ragged, check_labelled
from cksc_dist.spec import KernelSpec, ModelSpec, RunSpec, check_choice, check_count, check_number
from cksc_dist.store.checkpoints import Checkpoints
from cksc_dist.store.folder import Folder
from cksc_dist.store.kernel_copy import drop_copy
from cksc_dist.store.kernel_view import positions
from cksc_dist.store.lease import Lease
from cksc_dist.store.local_files import check_unlinked
from cksc_dist.store.matrix import DistanceMatrix, open_matrix
from cksc_dist.store.model_files import check_place, model_digest, remove_left_over
from cksc_dist.store.series_files import StoredSeries

__all__ = ["PLACES", "Place", "Training", "held_out_accuracy", "train", "training_key"]

Index = NDArray[np.int64]

TRAINING = 1
"""Raised whenever the same settings would give another model: what an older release has left is then not used."""

HELD_OUT_ROWS = 2048
"""Rows that are classified at a time."""

SERIES_AT_A_TIME = 1024
"""Series of a store that are read at a time."""


@dataclass(frozen=True)
class Training:
    """A finished training.

    Parameters
    ----------
    model
        The model, as it was saved.
    place
        Where the kernel was, and why.
    rows
        Training rows of the matrix, ascending.
    resumed
        Alternations that an earlier run had made.
    seconds
        How long this run took.
    """

    model: CKSC
    place: str
    rows: Index
    resumed: int
    seconds: float


def train(
    store: str | Path,
    model: str | Path,
    *,
    distances: str = "",
    rows: ArrayLike | None = None,
    spec: ModelSpec = ModelSpec(),  # noqa: B008  frozen
    kernel: KernelSpec = KernelSpec(),  # noqa: B008  frozen
    seed: int = 0,
    place: Place = "auto",
    from_scratch: bool = False,
    new_kernel: bool = False,
    drop_kernel: bool = False,
    send_all: bool = False,
    run: RunSpec = RunSpec(),  # noqa: B008  frozen
    progress: Progress | None = None,
    client: Any = None,
) -> Training:
    """Train a model on the finished distances of a store, and save it.

    Run again after anything whatever, it goes on after the last alternation that was finished.

    Parameters
    ----------
    store
        Folder or URL.
    model
        Where the model goes: a folder or URL. Checkpoints are beside it, in ``MODEL.training``, until it is done.
    distances
        First letters of the matrix, where the store has several.
    rows
        Training rows, as positions or a mask; None: all.
    spec, kernel
        Parameters of the model and of its kernel.
    seed
        Draws the samples that the atoms start from.
    place
        ``"memory"``, ``"disk"`` or ``"cluster"``: where the kernel is; ``"auto"`` chooses.
    from_scratch
        Begin again, whatever an earlier run has left.
    new_kernel, drop_kernel
        Write the kernel copy again; remove it in the end.
    send_all
        On a cluster: send work however small it is, so that all of it shows on the dashboard; small work is done sooner
        here.
    run
        How to run.
    progress
        Hears what goes on.
    client
        A connected Dask client to work with; None: as `run` says.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from cksc_dist.dist.distances import compute_distances
    >>> from cksc_dist.dist.ingest import ingest
    >>> from cksc_dist.io import make_gestures
    >>> from cksc_dist import load_model
    >>> with TemporaryDirectory() as folder:
    ...     data = make_gestures(n_per_class=10)
    ...     _ = ingest(data, folder + "/store")
    ...     _ = compute_distances(folder + "/store")
    ...     _ = train(folder + "/store", folder + "/model", spec=ModelSpec(sparsity=3))
    ...     bool(load_model(folder + "/model").score(data.series, data.labels) > 0.9)
    True
    """
    begin = time.perf_counter()
    progress = watched(progress)
    check_choice("place", place, PLACES)
    check_count("seed", seed, low=0)
    check_number("seed", seed, 0, 2**32 - 1)
    matrix = open_matrix(store, distances)
    _check_name(Folder(model).url, matrix.folder.url)
    check_place(model)
    if matrix.spec.metric == "external" and kernel.repair is not None:
        raise InputError(
            f"repair={kernel.repair!r} is not for a ready matrix: later kernel rows would have to be repaired the same "
            "way; train without repair (beta makes up for negative eigenvalues)"
        )
    chosen = np.arange(len(matrix)) if rows is None else np.unique(positions(len(matrix), rows))
    labels = matrix.labels[chosen]
    check_labelled(labels)
    classes, y = check_classes(labels, spec)
    key = matrix.kernel_key(chosen, kernel)
    training = training_key(matrix, chosen, spec, kernel, seed)
    done = _finished(model, training, spec)
    if done is not None and not from_scratch:
        progress.note(f"{model} is trained already, with these settings on these series; nothing to do")
        _tidy_up(model, training if done.origin_ and done.origin_.get("converged") else "")
        if drop_kernel:
            drop_copy(matrix.folder, key)
        return Training(done, "not needed", chosen, done.n_iter_, time.perf_counter() - begin)
    folder = _checkpoint_folder(model)
    with _held(folder) as lease:
        folder.sweep()
        # other settings have their own, so that trying them for a moment loses nothing
        own = folder.below(training)
        checkpoints = Checkpoints(own, training)
        if from_scratch:
            checkpoints.clear()
        latest = checkpoints.latest()
        further = False
        if latest is not None and latest[0] > spec.max_iter:
            further = True
            progress.note(f"an earlier run has made {latest[0]} alternations; this shorter one keeps no checkpoints")

        def keep(now: State) -> None:
            lease.check()
            if not further:
                checkpoints.save(now.n_iter, *_saved(now))
            speaker.restart()

        state = None if further else _state_of(latest, len(chosen), len(classes), spec, own.url)
        del latest
        resumed = 0 if state is None else state.n_iter
        if state is not None:
            progress.note(f"going on after alternation {state.n_iter}")
        with (
            progress.on(client),
            stored_kernel(
                *(matrix, chosen, kernel, place, run, progress, client), new_kernel=new_kernel, send_all=send_all
            ) as ready,
        ):
            beta = None if state is not None else _ridge(ready, y, len(classes), spec, progress).beta
            name = Folder(model).url.rsplit("/", 1)[-1]
            for total in [] if state is None else state.history[1::2].sum(axis=1).tolist():
                progress.objective(name, total)
            speaker = _Speaker(progress, name, resumed)
            fit = alternate(
                ready.gram,
                y,
                len(classes),
                spec,
                # as the estimator draws them: the same parameters give the same model
                np.random.default_rng(check_random_state(int(seed)).randint(2**31 - 1)),
                ready.n_jobs,
                beta,
                speaker,
                state=state,
                on_alternation=keep,
            )
        estimator = _estimator(spec, kernel, matrix, seed)
        source = _source(matrix, ready.transform, chosen)
        origin = {
            "store": matrix.folder.url,
            "matrix": matrix.fingerprint,
            "training": training,
            "max_iter": spec.max_iter,
            "converged": fit.converged,
            "delta": ready.transform.delta_,
        }
        estimator._set_fit(spec, Checked(None, classes, y, None), source, fit, ready.n_jobs, origin)
        carrying = chosen[estimator.support_]
        estimator.origin_ = origin | {"rows": carrying.tolist(), "ids": matrix.ids[carrying].tolist()}
        lease.check()
        estimator.save(model)
        if fit.converged:
            own.remove_all()
        else:
            warnings.warn(
                f"J still changed by more than tol={spec.tol} after {fit.n_iter} alternations; run again with a larger "
                "max_iter, and training goes on from there",
                ConvergenceWarning,
                stacklevel=2,
            )
        if drop_kernel:
            drop_copy(matrix.folder, key)
    return Training(estimator, ready.why, chosen, resumed, time.perf_counter() - begin)


def _checkpoint_folder(model: str | Path) -> Folder:
    """Return where the checkpoints of a training are; inside a store, nobody may have put a link in its place."""
    folder = Folder(f"{Folder(model).url}.training")
    if folder.local is not None:
        check_unlinked(folder.local)
    return folder


@contextmanager
def _held(folder: Folder) -> Iterator[Lease]:
    """Hold the folder of a training; where nothing is left in it afterwards, it is gone."""
    try:
        with Lease(folder, "training") as lease:
            yield lease
    finally:
        if folder.local is not None:
            # the folder alone, while it is empty: another training of the same name may begin in it by now
            with suppress(OSError):
                folder.local.rmdir()


def _tidy_up(model: str | Path, training: str) -> None:
    """Remove what a run left that was killed when its model was saved; checkpoints only of a training that is named."""
    remove_left_over(model)
    folder = _checkpoint_folder(model)
    if folder.names(""):
        with suppress(StoreBusyError), _held(folder):  # another training of the same name goes on
            folder.sweep()
            if training:
                folder.below(training).remove_all()


def held_out_accuracy(model: CKSC, matrix: DistanceMatrix, train_rows: Index, test_rows: Index) -> float:
    """Return the share of rows of a matrix that a model gets right that was trained on other rows of it."""
    right = 0
    for begin in range(0, len(test_rows), HELD_OUT_ROWS):
        part = test_rows[begin : begin + HELD_OUT_ROWS]
        right += int((model._labels_of(_kernel_rows(model, matrix, train_rows, part)) == matrix.labels[part]).sum())
    return right / len(test_rows)


def _kernel_rows(model: CKSC, matrix: DistanceMatrix, train_rows: Index, rows: Index) -> NDArray[Any]:
    """Return the kernel of rows with the training rows that carry weight, from the distances that are there."""
    source = model._source
    if not isinstance(source, DtwInput):
        assert model.origin_ is not None
        return gaussian_kernel(matrix[rows, train_rows[model.support_]], float(model.origin_["delta"]))
    kept = train_rows if source.kernel.repair is not None else train_rows[model.support_]
    return np.ascontiguousarray(source.transform.transform(matrix[rows, kept])[:, source.columns])


def _check_name(model: str, store: str) -> None:
    """Raise an InputError for a model that would lie among the other parts of its store."""
    inside = model.removeprefix(f"{store}/")
    if model == store or (inside != model and (not inside.startswith("models/") or inside.count("/") != 1)):
        raise InputError(f"{model} lies inside the store; in there, a model is {store}/models/NAME")


def training_key(
    matrix: DistanceMatrix, rows: NDArray[np.int64], spec: ModelSpec, kernel: KernelSpec, seed: int
) -> str:
    """Return a name for all that decides how training goes; how long it may go on is no part of it.

    A model has it as ``origin_["training"]``. Rows are ascending.
    """
    settings = {name: value for name, value in asdict(spec).items() if name != "max_iter"}
    about = {
        "format": TRAINING,
        "kernel": matrix.kernel_key(rows, kernel),
        "labels": matrix.labels[rows].tolist(),
        "model": settings,
        "seed": int(seed),
    }
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:16]


def _finished(model: str | Path, training: str, spec: ModelSpec) -> CKSC | None:
    """Return the model that this training has left already; None where it has not, or may go on."""
    folder = Folder(model)
    if not folder.names("") and not (folder.local is not None and folder.local.is_file()):
        return None
    try:
        model_digest(model)
    except ModelFileError as error:  # before any work
        raise ModelFileError(f"{model} exists and is no saved model; choose another name or remove it") from error
    try:
        found = CKSC.load(model)
    except ModelFileError:
        return None  # damaged: it is written again
    origin = found.origin_ or {}
    ended = origin.get("converged") or origin.get("max_iter") == spec.max_iter
    done = ended and found.n_iter_ <= spec.max_iter
    return found if origin.get("training") == training and done else None


def _saved(state: State) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Return a state as arrays and settings."""
    arrays = {"KU": state.KU, "home": state.home, "history": state.history}
    for name in ("atoms", "codes"):
        arrays |= {f"{name}_{part}": array for part, array in getattr(state, name)._asdict().items()}
    return arrays, {name: getattr(state, name) for name in ("beta", "n_iter")} | {
        name: bool(getattr(state, name)) for name in ("settled", "converged")
    }


def _state_of(checkpoint: Any, n: int, n_classes: int, spec: ModelSpec, url: str) -> State | None:
    """Return the state of a checkpoint; None where there is none.

    A checksum tells of damage, but whoever makes a checkpoint makes its checksum, and compiled code does not look
    whether a position is one.
    """
    if checkpoint is None:
        return None
    number, arrays, settings = checkpoint
    try:
        atoms, codes = (
            SparseRows(*(arrays[f"{name}_{part}"] for part in SparseRows._fields)) for name in ("atoms", "codes")
        )
        state = State(atoms, arrays["KU"], codes, arrays["home"], history=arrays["history"], **settings)
        k = len(state.KU)
        check_sparse_rows("atoms", atoms, (k, spec.sparsity), n)
        check_sparse_rows("codes", codes, (n, spec.sparsity), k)
        check_array("KU", state.KU, "f8", (k, n))
        check_array("history", state.history, "f8", (2 * number, len(TERMS)))
        check_array("home", state.home, "i8", (k,), n_classes)
        if k < 1 or state.n_iter != number or not 0.0 <= float(state.beta) < inf:
            raise ValueError("settings that are none")
        if not type(state.settled) is type(state.converged) is bool:
            raise ValueError("an end that is none")
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(
            f"checkpoint {number} in {url} does not hold together ({error}); begin again with --from-scratch"
        ) from error
    return state


def _ridge(ready: StoredKernel, y: Index, n_classes: int, spec: ModelSpec, progress: Progress) -> Ridge:
    """Return beta, computed or as it was kept with the kernel copy, and say what the kernel is like."""
    classes = hashlib.sha256(y.astype("<i8").tobytes()).hexdigest()[:8]
    name = f"{spec.alpha!r}-{classes}"
    kept = None if ready.copy is None else ready.copy.ridge(name)
    with suppress(TypeError, ValueError):  # it is whatever somebody has put there
        found = Ridge(**(kept or {}))
        if not all(isinstance(value, int | float) and isfinite(value) for value in found) or found.beta < 0:
            raise ValueError
        progress.note(f"beta {found.beta:.6g}, kept with the kernel copy")
        return found
    begin = time.perf_counter()
    largest = float(ready.gram.diagonal.max())
    found = ridge(ready.gram.product, y, n_classes, float(spec.alpha), diagonal=largest)
    seconds = time.perf_counter() - begin
    progress.note(f"beta {found.beta:.6g} after {found.passes} passes over K, {seconds:.1f} s; {found.health()}")
    if ready.copy is not None:
        ready.copy.keep_ridge(name, found._asdict())
    return found


class _Speaker:
    """Says after every alternation what J is."""

    def __init__(self, progress: Progress, name: str, number: int) -> None:
        self._progress, self._name, self._number = progress, name, number
        self._codes = ""
        self.restart()

    def restart(self) -> None:
        """Begin to count the time anew: what has passed was spent on something else."""
        self._since = time.perf_counter()

    def __call__(self, step: str, now: Objective) -> None:
        """Hear of a half step."""
        seconds, self._since = time.perf_counter() - self._since, time.perf_counter()
        if step == "codes":
            self._codes = f"codes {seconds:.2f} s"
            return
        self._number += 1
        self._progress.objective(self._name, now.total)
        self._progress.note(
            f"alternation {self._number}: J {now.total:.6g} (reconstruction {now.reconstruction:.6g}, ridge "
            f"{now.ridge:.4g}, discrimination {now.discrimination:.4g}); {self._codes}, atoms {seconds:.2f} s"
        )


def _estimator(spec: ModelSpec, kernel: KernelSpec, matrix: DistanceMatrix, seed: int) -> CKSC:
    """Return the estimator that these settings are those of."""
    distance = matrix.spec
    shared: dict[str, Any] = asdict(kernel) | {"random_state": seed}
    if distance.metric == "external":
        return CKSC(kernel="precomputed", **asdict(spec), random_state=seed)
    names = ("mode", "window", "cost", "normalise", "per_length")
    return CKSC(kernel="dtw", **asdict(spec), **shared, **{name: getattr(distance, name) for name in names})


def _source(matrix: DistanceMatrix, transform: DistanceKernel, rows: Index) -> KernelInput:
    """Return where the kernel rows of new samples will come from."""
    if matrix.spec.metric == "external":
        return PrecomputedInput.of(len(rows))
    series = matrix.series

    def read(support: Index | None) -> Ragged:
        return _series_of(series, rows if support is None else rows[support])

    return DtwInput.of_rows(matrix.spec, transform, read)


def _series_of(series: StoredSeries, rows: Index) -> Ragged:
    """Return some series of a store, rows ascending; a range at a time, because single ones take long to read."""
    values, lengths = [], []
    for begin in range(0, series.n, SERIES_AT_A_TIME):
        wanted = rows[(rows >= begin) & (rows < begin + SERIES_AT_A_TIME)]
        if not len(wanted):
            continue
        first, last = int(wanted[0]), int(wanted[-1]) + 1
        part, offsets = series.read(first, last)
        values += [part[offsets[row - first] : offsets[row - first + 1]] for row in wanted]
        lengths += np.diff(offsets)[wanted - first].tolist()
    return np.concatenate(values), np.concatenate([[0], np.cumsum(lengths)])
