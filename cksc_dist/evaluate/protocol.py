"""The paper's protocol: repeated stratified splits, every method tuned alike inside the training part, then compared.

    for each split:  training part, test part                                  10 of them, one half each
        for each fold of the training part, for each point of a method's grid:
            fit on the other folds, measure on this one                        nothing of the test part is looked at
        the best point (`best_point`) is fitted on the whole training part, and measured on the test part

Every fit is a task (`run_fits`), so that a run that was stopped goes on, and all of them can use a cluster.
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from cksc_dist.dist.distances import compute_distances
from cksc_dist.dist.progress import Progress
from cksc_dist.errors import InputError
from cksc_dist.evaluate.choice import best_point
from cksc_dist.evaluate.fit_tasks import FitTask, SplitRows
from cksc_dist.evaluate.fit_work import MEASURES, check_data, data_digest
from cksc_dist.evaluate.fits import check_name, fit_results, run_fits, write_table
from cksc_dist.evaluate.grids import KernelChoices, Point, grid_points, modalities
from cksc_dist.evaluate.methods import METHODS
from cksc_dist.evaluate.statistics import paired_p_values
from cksc_dist.series import check_labelled
from cksc_dist.spec import DistanceSpec, ModelSpec, RunSpec, check_count, check_number, fingerprint
from cksc_dist.store.folder import Folder
from cksc_dist.store.matrix import open_matrix
from cksc_dist.store.series_files import open_series

__all__ = ["Protocol", "evaluate", "needed_distances", "plan_evaluation"]

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Protocol:
    """How methods are compared.

    Parameters
    ----------
    n_splits
        Random stratified selections of a training and a test part.
    test_size
        Share of the rows that is tested on.
    n_folds
        Folds of the training part that parameters are chosen by; fewer where the smallest class has fewer rows there.
    random_state
        Split s, and its fits, have the seed ``random_state + s``.
    quick
        Small grids.
    tune
        False: nothing is tuned, every method has the first point of its grid, which is the plainest; for CKSC that is
        what the paper chose.
    """

    n_splits: int = 10
    test_size: float = 0.5
    n_folds: int = 5
    random_state: int = 0
    quick: bool = False
    tune: bool = True

    def __post_init__(self) -> None:
        check_count("n_splits", self.n_splits)
        check_number("test_size", self.test_size, 0.0, 0.99, open_low=True)
        check_count("n_folds", self.n_folds, low=2)
        check_count("random_state", self.random_state, low=0)

    @classmethod
    def short(cls, random_state: int = 0) -> Protocol:
        """Return three splits, three folds and small grids: a first look."""
        return cls(n_splits=3, n_folds=3, random_state=random_state, quick=True)

    def __str__(self) -> str:
        share = f"{1 - self.test_size:.0%} training, {self.test_size:.0%} test"
        tuned = (
            f"parameters and kernel by cross-validation of at most {self.n_folds} folds inside the training part, for "
            "every method alike"
            if self.tune
            else "nothing is tuned"
        )
        return (
            f"{self.n_splits} stratified splits ({share}, seeds {self.random_state} to "
            f"{self.random_state + self.n_splits - 1}); {tuned}; all that is learnt comes from training rows"
        )

    def splits(self, labels: NDArray[Any]) -> list[list[SplitRows]]:
        """Return the folds of each split: as many as asked for, or as the smallest class of its training part has."""
        found = []
        for split in range(self.n_splits):
            whole = SplitRows(self.random_state + split, self.test_size)
            FitTask(whole, {"split": split}).draw(labels)  # or say that a class has no rows to train on
            if not self.tune:
                found.append([whole])
                continue
            folds = min(self.n_folds, _smallest_class(labels, whole))
            if folds < 2:
                raise InputError(
                    f"split {split}: a class has one row in the training part, which cannot be cross-validated; leave "
                    "out classes that small, or ask for a smaller test_size"
                )
            found.append([SplitRows(whole.seed, self.test_size, folds, fold) for fold in range(folds)])
        return found


def plan_evaluation(
    store: str | Path | Folder,
    methods: Sequence[str],
    protocol: Protocol,
    *,
    name: str,
    choices: KernelChoices,
    distances: str = "",
    groups: Sequence[Sequence[int]] | None = None,
    sparsity: int,
    alpha: float,
) -> dict[str, list[Point]]:
    """Return the points that each method may have in `evaluate` with these arguments.

    All that is wrong with them, and shows without any work, is told here: a command asks before it starts a cluster.
    """
    check_name(name)
    check_count("sparsity", sparsity)
    for method in methods:
        if method not in METHODS:
            raise InputError(f"method={method!r} is unknown; choose of {', '.join(METHODS)}")
    if len(set(methods)) < len(methods) or not methods:
        raise InputError(f"methods={list(methods)}: give at least one, each once")
    if distances and choices.distances is not None:
        raise InputError(f"distances={distances!r} names a ready matrix; give choices=KernelChoices(None) with it")
    folder = Folder.of(store)
    series = open_series(folder)
    parts = groups if groups is not None else modalities(series.dim_names, series.dims)
    own: dict[str, Any] = {"sparsity": sparsity, "alpha": alpha, "quick": protocol.quick}
    grids = {method: grid_points(method, choices, parts, **own) for method in methods}
    if not protocol.tune:
        grids = {method: points[:1] for method, points in grids.items()}
    check_labelled(series.labels)
    protocol.splits(series.labels)
    _check_points(choices, grids)
    if choices.distances is None:
        open_matrix(folder.url, distances)
    elif (series.digests == series.digests[0]).all():
        raise InputError(f"all {series.n} series of {folder.url} are identical: no distance tells one from another")
    return grids


def evaluate(
    store: str | Path | Folder,
    methods: Sequence[str] = tuple(METHODS),
    protocol: Protocol = Protocol(),
    *,
    name: str = "evaluation",
    title: str = "",
    choices: KernelChoices = KernelChoices(),  # noqa: B008  frozen
    distances: str = "",
    groups: Sequence[Sequence[int]] | None = None,
    sparsity: int = ModelSpec.sparsity,
    alpha: float = ModelSpec.alpha,
    run: RunSpec = RunSpec(),  # noqa: B008  frozen
    progress: Progress | None = None,
    client: Any = None,
) -> xr.Dataset:
    """Compare methods on the series of a store; what is done already is not done again.

    Parameters
    ----------
    store
        A folder or URL that `ingest` wrote.
    methods
        Names of `METHODS`.
    protocol
        Splits, folds and seeds.
    name
        What the evaluation is called; its table is in the group ``results/<name>`` of the store.
    title
        What the data set is called; left out: as the store is.
    choices
        Kernels that tuning may choose from. Distances that are missing are computed.
    distances
        First letters of the fingerprint of a ready matrix, where ``choices.distances`` is None.
    groups
        Dimensions of each kernel, for methods that take several; None: as the names of the dimensions tell.
    sparsity
        T0 of all methods that have one.
    alpha
        Of CKSC: the first that is tried.
    run, progress, client
        As for `run_fits`.

    Returns
    -------
    xarray.Dataset
        Measures by ``method`` and ``split``; what tuning saw and chose (``tuning_accuracy``, ``chosen``, ``settings``);
        ``confusion``; p values of t-tests against the best method.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from cksc_dist.dist.ingest import ingest
    >>> from cksc_dist.io import make_gestures
    >>> with TemporaryDirectory() as folder:
    ...     _ = ingest(make_gestures(n_per_class=10), folder)
    ...     table = evaluate(folder, ["cksc", "1nn"], Protocol(2, n_folds=2, quick=True), sparsity=2)
    >>> dict(table.sizes)["split"], bool((table.accuracy > 0.5).all()), table.attrs["best"] in ("cksc", "1nn")
    (2, True, True)
    """
    begin = time.perf_counter()
    folder, progress = Folder.of(store), progress or Progress()
    grids = plan_evaluation(
        folder,
        methods,
        protocol,
        name=name,
        choices=choices,
        distances=distances,
        groups=groups,
        sparsity=sparsity,
        alpha=alpha,
    )
    _compute(folder, _needed(choices, grids), run, progress, client)
    base = (
        open_matrix(folder.url, distances).fingerprint
        if choices.distances is None
        else fingerprint(choices.distances[0].resolved())
    )
    series = open_series(folder)
    data, labels = data_digest(folder, base, series), series.labels
    splits = protocol.splits(labels)  # as they are now: it may have taken days until here
    settings: dict[str, Any] = {"distances": base, "data": data, "run": run, "progress": progress, "client": client}
    tuned = _tune(folder, grids, splits, f"{name}-tuning", settings) if protocol.tune else _untuned(grids, splits)
    chosen = xr.zeros_like(tuned.seconds, dtype=np.int64)
    for method, points in grids.items() if protocol.tune else ():
        seen = tuned.seen.sel({"method": method}).transpose("split", "point").values[:, : len(points)]
        said = _in_full([point.text() for point in points])
        chosen.loc[{"method": method}] = [best_point(row, said) for row in seen]
    final = [
        FitTask(
            SplitRows(folds[0].seed, protocol.test_size),
            {"method": method, "split": split},
            method,
            points[at].parameters,
            points[at].kernel,
            folds[0].seed,
            _fingerprints(points[at]),
            keep=True,
        )
        for method, points in grids.items()
        for split, folds in enumerate(splits)
        for at in [int(chosen.sel({"method": method}).values[split])]
    ]
    table = run_fits(folder, final, name=f"{name}-final", **settings)
    results = fit_results(folder, final, name=f"{name}-final", distances=base, data=data)
    table = table[list(MEASURES)].assign(
        tuning_accuracy=tuned.seen.transpose("method", "split", "point"),
        tuning_seconds=tuned.seconds.transpose("method", "split"),
        chosen=chosen,
        settings=(("method", "point"), _texts(grids)),
        confusion=(("method", "class", "predicted"), _confusion(final, results, labels, list(methods))),
    )
    classes = [str(each) for each in np.unique(labels)]
    table = table.assign_coords({"class": classes, "predicted": classes})
    table = _with_tests(table, protocol.test_size)
    table.attrs |= {
        "kind": "evaluation",
        "name": name,
        "title": title or folder.url.rstrip("/").rsplit("/", 1)[-1].removesuffix(".zarr"),
        "n_splits": protocol.n_splits,
        "test_size": protocol.test_size,
        "n_folds": protocol.n_folds,
        "random_state": protocol.random_state,
        "quick": int(protocol.quick),
        "tuned": int(protocol.tune),
        "sparsity": int(sparsity),
        "alpha": float(alpha),
        "distances": base,
        "data": data,
        "ready": int(choices.distances is None),
        "smallest_class": min(_smallest_class(labels, task.rows) for task in final),
        "protocol": str(protocol),
        "versions": json.dumps(_versions()),
        "seconds": round(time.perf_counter() - begin, 1),
        "written": round(time.time(), 3),
    }
    check_data(folder, base, data)
    write_table(folder, name, table)
    return table


def _tune(
    folder: Folder,
    grids: Mapping[str, list[Point]],
    splits: Sequence[Sequence[SplitRows]],
    name: str,
    settings: Mapping[str, Any],
) -> xr.Dataset:
    """Return the mean accuracy over the folds (``seen``) and the seconds of tuning (``seconds``)."""
    tasks = [
        FitTask(
            fold,
            {"method": method, "split": split, "fold": fold.fold, "point": number},
            method,
            point.parameters,
            point.kernel,
            fold.seed,
            _fingerprints(point),
        )
        for method, points in grids.items()
        for split, folds in enumerate(splits)
        for fold in folds
        for number, point in enumerate(points)
    ]
    settings["progress"].note(f"tuning: {len(tasks):,} fits")
    found = run_fits(folder, tasks, name=name, **settings)
    seconds = (found.train_seconds + found.predict_seconds).sum(["fold", "point"])
    return xr.Dataset({"seen": found.accuracy.mean("fold"), "seconds": seconds})


def _untuned(grids: Mapping[str, list[Point]], splits: Sequence[Any]) -> xr.Dataset:
    """Return the same where there is one point a method, and nothing to choose."""
    axes = {"method": list(grids), "split": range(len(splits))}
    none = xr.DataArray(np.zeros((len(grids), len(splits))), axes)
    return xr.Dataset({"seen": none.expand_dims(point=[0]) + np.nan, "seconds": none})


def _smallest_class(labels: NDArray[Any], rows: Any) -> int:
    """Return how many training rows the smallest class has."""
    return int(np.unique(labels[rows.draw(labels)[0]], return_counts=True)[1].min())


def _fingerprints(point: Point) -> tuple[str, ...]:
    return tuple(fingerprint(each.resolved()) for each in point.distances)


def _check_points(choices: KernelChoices, grids: Mapping[str, list[Point]]) -> None:
    """Raise an InputError for the first point that cannot be fitted, before anything is computed for it."""
    for part in fields(choices):
        if getattr(choices, part.name) == ():
            raise InputError(f"choices: {part.name} is empty; give at least one value, or leave it out")
    for method, points in grids.items():
        for point in points:
            FitTask(SplitRows(0), {}, method, point.parameters, point.kernel).settings()


def _in_full(settings: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return settings that all name the same parameters: one that is left out at a point has a value there, too."""
    names = dict.fromkeys(name for each in settings for name in each)
    return [{name: each.get(name) for name in names} for each in settings]


def _first_best(values: xr.DataArray, axis: str) -> xr.DataArray:
    """Return where along an axis the largest value is; of those that rounding alone tells apart, the first."""
    return values.round(12).argmax(axis)


def needed_distances(
    store: str | Path | Folder,
    methods: Sequence[str],
    choices: KernelChoices = KernelChoices(),  # noqa: B008  frozen
    *,
    quick: bool = False,
) -> list[DistanceSpec]:
    """Return the distances that an evaluation of a store's series would compute where they are missing."""
    series = open_series(Folder.of(store))
    parts = modalities(series.dim_names, series.dims)
    return _needed(choices, {name: grid_points(name, choices, parts, sparsity=1, quick=quick) for name in methods})


def _needed(choices: KernelChoices, grids: Mapping[str, list[Point]]) -> list[DistanceSpec]:
    """Return the distances that some point needs, and those that the evaluation is named after."""
    needed = (each for points in grids.values() for point in points for each in point.distances)
    return list(dict.fromkeys([*(choices.distances or ())[:1], *needed]))


def _compute(folder: Folder, wanted: Sequence[DistanceSpec], run: RunSpec, progress: Progress, client: Any) -> None:
    for number, spec in enumerate(wanted, start=1):
        report = compute_distances(folder, spec, run, progress, client=client)
        if report.pairs:
            progress.note(f"distances {number} of {len(wanted)}: {report.pairs:,} pairs in {report.seconds:.1f} s")


def _texts(grids: Mapping[str, list[Point]]) -> NDArray[Any]:
    """Return the settings of each point as JSON; empty where a method has fewer points."""
    width = max(len(points) for points in grids.values())
    return np.array(
        [[json.dumps(point.text()) for point in points] + [""] * (width - len(points)) for points in grids.values()],
        dtype=object,
    )


def _confusion(
    tasks: Sequence[FitTask], results: Sequence[Mapping[str, Any]], labels: NDArray[Any], methods: list[str]
) -> NDArray[np.int64]:
    """Return how often a sample of one class was taken for another, over all splits."""
    classes, numbers = np.unique(labels, return_inverse=True)
    counts = np.zeros((len(methods), len(classes), len(classes)), dtype=np.int64)
    for task, result in zip(tasks, results, strict=True):
        test = task.draw(labels)[1]
        np.add.at(counts[methods.index(task.method)], (numbers[test], np.array(result["predicted"])), 1)
    return counts


def _with_tests(table: xr.Dataset, test_size: float) -> xr.Dataset:
    """Add the tests of each method against the best."""
    best = str(table["method"].values[int(_first_best(table.accuracy.mean("split"), "method"))])
    pairs = [
        paired_p_values(accuracies, table.accuracy.sel({"method": best}).values, test_size)
        for accuracies in table.accuracy.values
    ]
    table = table.assign(
        p_value=("method", [pair[0] for pair in pairs]), p_corrected=("method", [pair[1] for pair in pairs])
    )
    table.attrs["best"] = best
    return table


def _versions() -> dict[str, str]:
    names = ("cksc_dist", "numpy", "scipy", "scikit-learn", "numba", "zarr", "xarray", "dask", "dtaidistance")
    return {"python": platform.python_version()} | {name: version(name) for name in names}
