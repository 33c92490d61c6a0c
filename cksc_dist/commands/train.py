"""``cksc train``: a model from the distance matrix of a store."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedShuffleSplit

from cksc_dist.arrays import load_npy
from cksc_dist.commands.amounts import in_time
from cksc_dist.commands.screen import Screen
from cksc_dist.commands.sparkline import ASCII, BLOCKS, sparkline
from cksc_dist.commands.work_screen import WorkScreen
from cksc_dist.errors import InputError, ReadError, typed
from cksc_dist.files import plain_only
from cksc_dist.io.text import quote
from cksc_dist.models.training import Place, Training, held_out_accuracy, train
from cksc_dist.series import UNKNOWN, have_labels
from cksc_dist.spec import KernelSpec, ModelSpec, RunSpec
from cksc_dist.store.kernel_view import positions
from cksc_dist.store.matrix import DistanceMatrix, open_matrix

__all__ = ["train_model"]

Index = NDArray[np.int64]


def train_model(
    store: str,
    model: str,
    spec: ModelSpec,
    kernel: KernelSpec,
    run: RunSpec,
    *,
    distances: str,
    rows: Path | None,
    hold_out: float | None,
    seed: int,
    place: Place,
    from_scratch: bool,
    new_kernel: bool,
    drop_kernel: bool,
) -> None:
    """Train a model, save it, and say what it is like.

    Parameters
    ----------
    rows
        A file with the training rows, by position or id; None: all.
    hold_out
        Share of the rows to keep away from training, and to measure the accuracy on; None: none.
    """
    screen = Screen()
    matrix = open_matrix(store, distances)
    train_rows = np.flatnonzero(have_labels(matrix.labels)) if rows is None else _read_rows(rows, matrix)
    test_rows: Index | None = None
    if hold_out is not None:
        train_rows, test_rows = _split(matrix, train_rows, hold_out, seed)
    screen.line(f"{matrix!r}: training on {len(train_rows):,} of {len(matrix):,} rows")
    if rows is None and (unlabelled := int((~have_labels(matrix.labels)).sum())):
        screen.line(f"{unlabelled:,} rows have no label ({UNKNOWN}), and are left out")
    done = train(
        store,
        model,
        distances=matrix.fingerprint,
        rows=train_rows,
        spec=spec,
        kernel=kernel,
        seed=seed,
        place=place,
        from_scratch=from_scratch,
        new_kernel=new_kernel,
        drop_kernel=drop_kernel,
        run=run,
        progress=WorkScreen(screen),
    )
    _say(screen, done, model)
    if test_rows is not None:
        accuracy = held_out_accuracy(done.model, matrix, done.rows, test_rows)
        screen.line(f"accuracy: {accuracy:.1%} of {len(test_rows):,} series held out")


def _say(screen: Screen, done: Training, model: str) -> None:
    estimator = done.model
    J = estimator.objective_history_
    line = sparkline(J, 60, 0.0, float(J.max()), letters=BLOCKS if screen.can_show(BLOCKS) else ASCII)
    screen.line(f"J {line} {J[0]:.6g} to {J[-1]:.6g}, {len(J)} half steps")
    how = f"after {estimator.n_iter_} alternations"
    how += f", {done.resumed} of them in earlier runs" if done.resumed else ""
    screen.line(
        f"{estimator.dictionary_.shape[1]} atoms {how}; {len(estimator.support_):,} of {estimator.n_train_:,} training "
        f"series carry weight; mean interpretability {estimator.interpretability_.mean():.2f}"
    )
    screen.line(f"saved to {model} in {in_time(done.seconds)}; next: cksc predict {typed(model)} SOURCE")


def _split(matrix: DistanceMatrix, rows: Index, share: float, seed: int) -> tuple[Index, Index]:
    labels = matrix.labels[rows]
    try:
        kept, held = next(StratifiedShuffleSplit(1, test_size=share, random_state=seed).split(rows, labels))
    except ValueError as error:
        raise InputError(
            f"--hold-out {share:g} of these {len(rows)} rows is not possible: {error}; hold out another share, or "
            "leave out small classes (--rows)"
        ) from error
    return np.sort(rows[kept]), np.sort(rows[held])


def _read_rows(path: Path, matrix: DistanceMatrix) -> Index:
    """Return the rows that a file names: .npy with positions or a mask, otherwise text with a position or id a line.

    Each counts once: a row that is named twice must not be trained on and held out as well.
    """
    if path.suffix == ".npy":
        try:
            with open(path, "rb", opener=plain_only) as file:
                found = np.unique(positions(len(matrix), load_npy(file)))
        except ValueError as error:
            raise ReadError(path, f"is no array of positions, nor a mask ({error})") from error
        if not len(found):
            raise ReadError(path, "names no rows; give positions, or a mask that is true somewhere")
        return found
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise ReadError(path, f"is no text with a position or id a line ({error})") from error
    of_id = {str(name): row for row, name in enumerate(matrix.ids)}
    rows = []
    for number, line in enumerate(lines, 1):
        name = line.strip()
        if name in of_id:
            rows.append(of_id[name])
        elif name.isascii() and name.isdigit() and len(name) < 19 and int(name) < len(matrix):
            rows.append(int(name))
        elif name:
            raise ReadError(path, f"{quote(name)} is neither an id nor a position among {len(matrix):,} rows", number)
    if not rows:
        raise ReadError(path, "names no rows; write a position or id a line")
    return np.unique(np.array(rows, np.int64))
