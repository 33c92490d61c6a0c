"""A small store that holds one of everything, and what all public ways of reading it give."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from sklearn.exceptions import ConvergenceWarning

from cksc_dist import load_model, open_matrix
from cksc_dist.dist.distances import compute_distances
from cksc_dist.dist.executors import SerialExecutor
from cksc_dist.dist.ingest import ingest
from cksc_dist.dist.progress import Progress
from cksc_dist.dist.video_work import describe_videos, make_textures
from cksc_dist.errors import SmallClassWarning, StoreError
from cksc_dist.evaluate import Protocol, evaluate
from cksc_dist.evaluate.extras import example_model, sweep
from cksc_dist.evaluate.fit_work import FitFiles
from cksc_dist.evaluate.report import write_report
from cksc_dist.evaluate.results import find_evaluations
from cksc_dist.io.textures import TextureSpec
from cksc_dist.io.videos import find_videos
from cksc_dist.models.training import train
from cksc_dist.spec import ModelSpec, RunSpec
from cksc_dist.store.folder import Folder
from cksc_dist.store.kernel_copy import KernelCopy, find_copies
from cksc_dist.store.ledger import Ledger
from tests.small_stores import made_series, small_tiles

DATA = made_series(40, length=(4, 8))
NEW = made_series(6, seed=9, prefix="new", length=(4, 8))
SERIAL = RunSpec(executor="serial", workers=1)
SPEC = ModelSpec(sparsity=2, max_iter=2, tol=0.0)
"""Two alternations, which do not end a training: its checkpoints stay."""


def make_store(path: Path) -> None:
    """Write series, a matrix, a kernel copy, a model, checkpoints, fits, tables with a sweep and their model."""
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        small_tiles(patch)
        for kind in (SmallClassWarning, ConvergenceWarning):
            warnings.simplefilter("ignore", kind)
        ingest(DATA, path)
        name = compute_distances(path, run=SERIAL).fingerprint
        train(path, path / "models" / "first", spec=SPEC, place="disk", run=SERIAL)
        protocol = Protocol(n_splits=2, tune=False)
        table = evaluate(path, ["cksc", "1nn"], protocol, sparsity=2, run=SERIAL)
        sweep(path, table, "alpha", [0.2, 0.4], run=SERIAL)
        example_model(path, table, run=SERIAL)
    # what is there while others work: a mark of a tile, and of a fit
    ledger = Ledger(Folder(path), name).load()
    ledger.mark((0, 1), ledger.entries[0, 1])
    fits = FitFiles(str(path), "evaluation-alpha").load()
    fits.mark(*next(iter(fits.found.items())))


def go_on(store: Path, model: str = "first") -> bytes:
    """Train further, from the checkpoints and the kernel copy, and return the content of the model."""
    spec = ModelSpec(**(asdict(SPEC) | {"max_iter": 3}))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return weights(train(store, store / "models" / model, spec=spec, place="disk", run=SERIAL).model)


def train_anew(store: Path) -> bytes:
    """Train once more on the kernel copy alone, and return the content of the model."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return weights(train(store, store / "models" / "other", spec=SPEC, seed=1, place="disk", run=SERIAL).model)


def weights(model: Any) -> bytes:
    return b"".join(np.ascontiguousarray(each).tobytes() for each in (model.dictionary_.toarray(), model.support_))


def read_matrix(store: Path) -> Any:
    matrix = open_matrix(store)
    return np.asarray(matrix).tobytes(), matrix.ids.tolist(), matrix.labels.tolist(), matrix.spec, matrix.tile_edge


def read_labelled(store: Path) -> Any:
    found = open_matrix(store).to_xarray()
    try:
        values = found.values
    except ValueError as error:  # read later, by xarray alone: the words are Zarr's
        raise StoreError(str(error)) from error
    return values.tobytes(), found.dims, *(found[name].values.tolist() for name in ("row", "col", "label"))


def read_series(store: Path) -> Any:
    series = open_matrix(store).series
    data = series.load()
    return data.values.tobytes(), data.offsets.tolist(), data.labels.tolist(), data.ids.tolist(), data.name, series.dims


def read_models(store: Path) -> Any:
    found = []
    for name in ("first", "evaluation"):
        model = load_model(store / "models" / name)
        found.append([each.tolist() for each in (model.predict(NEW.series), model.predict_proba(NEW.series))])
    return found


def read_tables(store: Path) -> Any:
    found = find_evaluations(Folder(store))
    return [(each.name, [_content(table) for table in (each.table, *each.sweeps.values())]) for each in found]


def _content(table: xr.Dataset) -> str:
    """Return all of a table as text, in which NaN is what it was; the order on disk is anybody's."""
    variables = [(name, table[name].dims, table[name].values.tolist()) for name in sorted(map(str, table.variables))]
    return repr((variables, sorted(table.attrs.items())))


def read_fits(store: Path) -> Any:
    """Return all fits; what is damaged counts as none, and is computed again by the next run."""
    return [FitFiles(str(store), path.name).load().found for path in sorted((store / "fits").iterdir())]


def read_report(store: Path) -> Any:
    """Return the page; one that leaves out a model says why."""
    page = write_report(store, store.parent / "report.html").read_text()
    said = "The model that is kept cannot be read:"
    if said in page:
        raise StoreError(page.partition(said)[2][:300])
    return page


def read_kernel(store: Path) -> Any:
    found = []
    for key in find_copies(Folder(store)):
        copy = KernelCopy(Folder(store), key)
        ridges = [copy.ridge(name[6:-5]) for name in copy.folder.names("") if name.startswith("ridge-")]
        found.append((copy.load().tobytes(), copy.rows.tolist(), copy.delta, copy.factor, ridges))
    return found


READERS: dict[str, Callable[[Path], Any]] = {
    "matrix": read_matrix,
    "xarray": read_labelled,
    "series": read_series,
    "models": read_models,
    "tables": read_tables,
    "kernel": read_kernel,
}
"""Quick ones; those that follow take long, and are asked where a file matters to them."""

SLOW: dict[str, tuple[Callable[[Path], Any], tuple[str, ...]]] = {
    "report": (read_report, ("results/", "models/evaluation")),
    "goes on": (go_on, ("models/first.training", "kernels/")),
    "anew": (train_anew, ("kernels/",)),
}


def make_descriptors(folder: Path) -> Callable[[], Any]:
    """Write textures and their descriptors; return what reads these, or makes them again."""
    spec = TextureSpec(classes=2, videos_per_class=2, frames=4, side=8)
    make_textures(folder / "videos", spec, SerialExecutor(), Progress())

    def read() -> Any:
        found = describe_videos(find_videos(folder / "videos"), str(folder / "blocks"), SerialExecutor(), Progress())
        return [(each.values.tobytes(), each.offsets.tolist(), each.ids.tolist()) for each in found]

    read()
    return read
