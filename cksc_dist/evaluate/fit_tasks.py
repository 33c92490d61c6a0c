"""What one fit is: rows to train and to test on, a method, its parameters; and the fits of the usual protocol.

A task names its rows by the seed of a split instead of listing them, so that it stays small; whoever runs it draws the
same rows from the labels of the store.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from hashlib import sha256
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.model_selection import StratifiedKFold, StratifiedShuffleSplit

from cksc_dist import __version__
from cksc_dist.errors import InputError
from cksc_dist.evaluate.methods import METHODS
from cksc_dist.spec import KernelSpec, check_count, check_number
from cksc_dist.store.kernel_view import positions

__all__ = ["ChosenRows", "FitTask", "SplitRows", "protocol_tasks"]

Rows = NDArray[np.int64]

FITS = ""
"""A letter more with every change of what fits give within a release: results of other code are not reused."""

KERNEL_NAMES = tuple(part.name for part in fields(KernelSpec))


@dataclass(frozen=True)
class SplitRows:
    """Rows by a stratified split of the labels, drawn from its seed.

    Parameters
    ----------
    seed
        Draws the split, and the folds inside it.
    test_size
        Share of the rows that are held out.
    n_folds, fold
        0: train on the one part, test on the other. Otherwise the training part is cut into so many folds, one of
        which is tested on by a fit of the others; what is held out is not looked at.
    """

    seed: int
    test_size: float = 0.5
    n_folds: int = 0
    fold: int = 0

    def __post_init__(self) -> None:
        check_count("seed", self.seed, low=0)
        check_number("test_size", self.test_size, 0.0, 1.0, open_low=True)
        check_count("n_folds", self.n_folds, low=0)
        check_count("fold", self.fold, low=0)
        if self.n_folds == 1:
            raise InputError("n_folds=1: give 0 for no folds, or at least 2")
        if self.fold >= max(1, self.n_folds):
            raise InputError(f"fold={self.fold}: there are {self.n_folds} folds, counted from 0")

    def draw(self, labels: NDArray[Any]) -> tuple[Rows, Rows]:
        """Return training rows and test rows.

        Examples
        --------
        >>> train, test = SplitRows(seed=0).draw(np.array(["a", "b"] * 4))
        >>> len(train), len(test), sorted([*train, *test]) == list(range(8))
        (4, 4, True)
        """
        try:
            split = StratifiedShuffleSplit(1, test_size=self.test_size, random_state=self.seed)
            # in the order of the store, which training from it takes rows in as well
            train, test = (np.sort(part) for part in next(split.split(labels, labels)))
        except ValueError as error:
            raise InputError(
                f"the {len(labels)} rows cannot be split with test_size={self.test_size}: {error}; ingest more series "
                "of the smallest class, or none of it"
            ) from error
        if not self.n_folds:
            return train.astype(np.int64), test.astype(np.int64)
        classes, counts = np.unique(labels[train], return_counts=True)
        if counts.min() < self.n_folds:
            raise InputError(
                f"n_folds={self.n_folds}: class {classes[counts.argmin()].item()!r} has {counts.min()} rows in the "
                "training part; ask for fewer folds, or for a smaller test_size"
            )
        folds = StratifiedKFold(self.n_folds, shuffle=True, random_state=self.seed)
        inner, outer = list(folds.split(labels[train], labels[train]))[self.fold]
        return train[inner].astype(np.int64), train[outer].astype(np.int64)


@dataclass(frozen=True)
class ChosenRows:
    """Rows that are listed, where no seed gives them.

    Parameters
    ----------
    train, test
        Positions of rows in the store.
    """

    train: tuple[int, ...]
    test: tuple[int, ...]

    def __post_init__(self) -> None:
        for name in ("train", "test"):
            object.__setattr__(self, name, tuple(int(row) for row in getattr(self, name)))

    def draw(self, labels: NDArray[Any]) -> tuple[Rows, Rows]:
        """Return training rows and test rows, or say that there are none such."""
        for name, rows in (("train", self.train), ("test", self.test)):
            if not rows:
                raise InputError(f"{name}: no rows are given")
            outside = [row for row in rows if not 0 <= row < len(labels)]
            if outside:
                raise InputError(f"{name}: row {outside[0]} is out of range; the store has rows 0 to {len(labels) - 1}")
            if len(set(rows)) < len(rows):
                raise InputError(f"{name}: a row is given twice")
        return positions(len(labels), self.train), positions(len(labels), self.test)


@dataclass(frozen=True)
class FitTask:
    """One fit.

    Parameters
    ----------
    rows
        What to train and to test on.
    coordinates
        Where the result stands in the table: a value (text or number) for each axis.
    method
        One of `METHODS`.
    parameters
        Of the method; those left out have their defaults.
    kernel
        ``bandwidth``, ``factor`` and ``repair``, as in `DistanceKernel`; learnt on the training rows alone.
    random_state
        Seed of the fit.
    matrices
        Fingerprints of the matrices whose distances it is fitted on: one, or several for a method that takes several
        kernels; none: the one that `run_fits` is told.
    keep
        Keep the predictions, not only what is measured of them.
    """

    rows: SplitRows | ChosenRows
    coordinates: Mapping[str, Any]
    method: str = "cksc"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    kernel: Mapping[str, Any] = field(default_factory=dict)
    random_state: int = 0
    matrices: tuple[str, ...] = ()
    keep: bool = False

    def __str__(self) -> str:
        return "the fit at " + ", ".join(f"{name}={value}" for name, value in self.coordinates.items())

    def settings(self) -> dict[str, Any]:
        """Return method, parameters and kernel, checked, with all defaults filled in."""
        if self.method not in METHODS:
            raise InputError(f"method={self.method!r} is unknown; choose one of {', '.join(METHODS)}")
        check_count("random_state", self.random_state, low=0)
        if len(self.matrices) > 1 and METHODS[self.method].takes != "kernels":
            raise InputError(f"{self}: method {self.method} takes one matrix, but {len(self.matrices)} are given")
        return {
            "method": self.method,
            "parameters": _resolved(METHODS[self.method].spec, self.parameters, f"method {self.method}"),
            "kernel": _resolved(KernelSpec, self.kernel, "the kernel"),
            "random_state": int(self.random_state),
            "keep": bool(self.keep),
        }

    def draw(self, labels: NDArray[Any]) -> tuple[Rows, Rows]:
        """Return training rows and test rows, or say why a fit on them would mean nothing."""
        train, test = self.rows.draw(labels)
        both = np.intersect1d(train, test)
        if len(both):
            raise InputError(f"{self}: row {both[0]} is to be trained on and tested on; leave it out of one")
        known = np.unique(labels[train])
        unknown = np.setdiff1d(labels[test], known)
        if len(unknown):
            raise InputError(
                f"{self}: class {unknown[0].item()!r} is tested on but missing in the training part; give it rows there"
            )
        if len(known) < 2:
            raise InputError(f"{self}: the training part has one class, {known[0].item()!r}; it needs two at least")
        return train, test


def _resolved(spec: type, given: Mapping[str, Any], whose: str) -> dict[str, Any]:
    """Return parameters as their spec settles them."""
    names = [part.name for part in fields(spec)]
    for name in given:
        if name not in names:
            raise InputError(f"parameter {name!r} is unknown to {whose}; it has {', '.join(names)}")
    return asdict(spec(**given))


def rows_digest(train: Rows, test: Rows) -> str:
    """Return a digest of the rows of a fit, and of their order."""
    return sha256(f"{len(train)} {len(test)} ".encode() + train.tobytes() + test.tobytes()).hexdigest()


def key_of(settings: Mapping[str, Any], rows: str, data: Sequence[tuple[str, str]]) -> str:
    """Return the name of a result: a digest of all that decides it, the release of this package included.

    Parameters
    ----------
    settings
        Of `FitTask.settings`.
    rows
        Digest of the rows.
    data
        Fingerprints of the matrices, each with a digest of distances and labels.
    """
    text = json.dumps([settings, rows, [list(each) for each in data], __version__ + FITS], sort_keys=True)
    return sha256(text.encode()).hexdigest()[:32]


def protocol_tasks(
    labels: ArrayLike,
    *,
    n_splits: int = 10,
    test_size: float = 0.5,
    n_folds: int = 0,
    method: str = "cksc",
    grid: Mapping[str, Any] | None = None,
    random_state: int = 0,
) -> list[FitTask]:
    """Return the fits of repeated stratified splits, for every combination of parameters.

    Parameters
    ----------
    labels
        Of all rows of the store.
    n_splits
        Number of splits.
    test_size
        Share of the rows that a split holds out.
    n_folds
        0: train on the one part of a split, test on the other. Otherwise cross-validation inside the training part.
    method
        One of `METHODS`.
    grid
        Parameters by name. Several values (a list, a range, an array) are an axis of the table; a plain value holds
        for all fits. ``bandwidth``, ``factor`` and ``repair`` go to the kernel.
    random_state
        Split s, and its fits, have the seed ``random_state + s``.

    Examples
    --------
    >>> tasks = protocol_tasks(["a", "b"] * 10, n_splits=2, n_folds=5, grid={"sparsity": 3, "factor": [0.5, 1.0]})
    >>> len(tasks), dict(tasks[-1].coordinates)
    (20, {'method': 'cksc', 'split': 1, 'fold': 4, 'factor': 1.0})
    """
    check_count("n_splits", n_splits)
    check_count("random_state", random_state, low=0)
    several = (list, tuple, range, np.ndarray)
    axes = [name for name, value in (grid or {}).items() if isinstance(value, several)]
    values = {
        name: np.asarray(value).tolist() if isinstance(value, np.ndarray) else list(value) if name in axes else [value]
        for name, value in (grid or {}).items()
    }
    names = np.asarray(labels)
    tasks = []
    for split, fold in product(range(n_splits), range(max(1, n_folds))):
        seed = random_state + split
        rows = SplitRows(seed, test_size, n_folds, fold)
        rows.draw(names)  # what cannot be split is told here
        place = {"method": method, "split": split} | ({"fold": fold} if n_folds else {})
        for point in product(*values.values()):
            chosen = dict(zip(values, point, strict=True))
            kernel = {name: value for name, value in chosen.items() if name in KERNEL_NAMES}
            parameters = {name: value for name, value in chosen.items() if name not in KERNEL_NAMES}
            coordinates = place | {name: chosen[name] for name in axes}
            tasks.append(FitTask(rows, coordinates, method, parameters, kernel, seed))
    if not tasks:
        raise InputError("grid: a parameter has an empty list of values; give at least one value, or leave it out")
    return tasks
