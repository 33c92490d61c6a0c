"""What a store holds of evaluations: their tables, sweeps over a parameter, and a model to look into."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import xarray as xr
from zarr.errors import ZarrUserWarning

from cksc_dist.errors import CkscError, ModelFileError, StoreError, brief, want_of_threads
from cksc_dist.evaluate.example import Example
from cksc_dist.evaluate.fit_work import data_digest
from cksc_dist.models import load_model
from cksc_dist.models.training import training_key
from cksc_dist.store.folder import Folder
from cksc_dist.store.layout import DAMAGE
from cksc_dist.store.matrix import open_matrix
from cksc_dist.store.table_files import check_table, check_table_size

__all__ = ["Evaluation", "find_evaluations", "told_by_table"]

SWEPT = ("alpha", "sparsity")
BELONGING = ("random_state", "n_splits", "test_size", "sparsity", "alpha", "distances", "data")
"""Attributes of a table that a sweep has to share, but for what it goes over."""


@dataclass(frozen=True)
class Evaluation:
    """An evaluation in a store.

    Parameters
    ----------
    name
        Its name there.
    table
        Measures by method and split, in memory.
    sweeps
        Accuracy against a parameter, by its name.
    model
        CKSC as trained for the first split; None where none is kept.
    damage
        Why a model that is kept is not shown.
    changed
        What a reader must know, where the store no longer holds what the table is of.
    """

    name: str
    table: xr.Dataset
    sweeps: dict[str, xr.Dataset]
    model: Any = None
    damage: str = ""
    changed: str = ""


def find_evaluations(folder: Folder, name: str = "") -> list[Evaluation]:
    """Return the evaluations of a store, the newest first, or before all others the one that is named.

    Parameters
    ----------
    folder
        The store.
    name
        Which comes first; it must be there.
    """
    tables = {each: _table(folder, each) for each in folder.names("results", folders_only=True)}
    found = [each for each, table in tables.items() if table is not None and table.attrs.get("kind") == "evaluation"]
    if not found:
        raise StoreError(f"{folder.url} holds no evaluation to report; make one with: cksc evaluate {folder.typed}")
    if name and name not in found:
        raise StoreError(f"{folder.url} has no evaluation {name!r}; it has {', '.join(found)}")
    written = {each: _written(folder, each, tables[each]) for each in found}
    found.sort(key=lambda each: (each != name, -written[each], each))
    evaluations = []
    for each in found:
        with told_by_table(folder, each):
            evaluations.append(_evaluation(folder, each, tables))
    return evaluations


@contextmanager
def told_by_table(folder: Folder, name: str) -> Iterator[None]:
    """Say in this package's words that a table is none of an evaluation: anybody may write one, with right digests."""
    try:
        yield
    except (CkscError, OSError, MemoryError, ImportError):
        raise
    except Exception as error:  # of whatever it lacks
        want_of_threads(error)
        raise StoreError(
            f"{folder.url}/results/{name} does not hold together ({type(error).__name__}: {brief(error)}); remove it, "
            "and run the evaluation again: fits that are done are not repeated"
        ) from error


def _table(folder: Folder, name: str) -> xr.Dataset | None:
    """Return a table; None where there is none yet."""
    if folder.read(f"results/{name}/zarr.json") is None and folder.read(f"results/{name}.files.json") is None:
        return None
    check_table(folder, name)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ZarrUserWarning)  # of files that are nobody's, which verify names
            check_table_size(folder, name)
            store = folder.zarr(read_only=True)
            table: xr.Dataset = xr.open_zarr(store, group=f"results/{name}", consolidated=False, chunks=None).load()
    except MemoryError:
        raise
    except (*DAMAGE, FileNotFoundError) as error:
        want_of_threads(error)
        raise StoreError(
            f"{folder.url}/results/{name} is damaged ({brief(error)}); remove it, and run the evaluation again: fits "
            "that are done are not repeated"
        ) from error
    return table


def _written(folder: Folder, name: str, table: xr.Dataset | None) -> float:
    """Return when a table was written, which it says itself: the times of its files change where a store is copied."""
    with told_by_table(folder, name):
        return 0.0 if table is None else float(table.attrs.get("written", 0.0))  # earlier releases did not say


def _evaluation(folder: Folder, name: str, tables: dict[str, xr.Dataset | None]) -> Evaluation:
    table = tables[name]
    assert table is not None
    sweeps = {axis: swept for axis in SWEPT if (swept := tables.get(f"{name}-{axis}")) is not None}
    sweeps = {axis: swept for axis, swept in sweeps.items() if _belongs(swept, table, axis)}
    model, damage = None, ""
    if folder.names(f"models/{name}") and "cksc" in table["method"].values:
        try:
            model = load_model(f"{folder.url}/models/{name}")
            if not _is_trained_for(model, table, folder):
                model, damage = None, "it was trained for another evaluation of this name, or on other series"
        except (ModelFileError, StoreError) as error:  # the second of distances that are no longer there
            model, damage = None, f"it cannot be read: {error}"
    return Evaluation(name, table, sweeps, model, damage, _changed(folder, table))


def _changed(folder: Folder, table: xr.Dataset) -> str:
    """Say whether series, labels or distances are others by now; series may have been replaced or added."""
    data, distances = table.attrs.get("data"), table.attrs["distances"]  # earlier releases did not say which data
    try:
        if data is None or data_digest(folder, distances) == data:
            return ""
        open_matrix(folder.url, distances)  # where tiles are missing, the others may be those of then
    except StoreError as error:
        return f"It cannot be told whether the store still holds what this table is of: {error}"
    return (
        "Series, labels or distances of the store have changed since: these figures are of before. Run the evaluation "
        "again for those of now; fits that are still right are not repeated."
    )


def _belongs(swept: xr.Dataset, table: xr.Dataset, axis: str) -> bool:
    """Whether a sweep is of this evaluation, and not of an earlier one of the same name."""
    alike = all(swept.attrs.get(name) == table.attrs.get(name) for name in BELONGING if name != axis)
    return alike and "accuracy" in swept and {axis, "split", "method"} <= set(swept.accuracy.dims)


def _is_trained_for(model: Any, table: xr.Dataset, folder: Folder) -> bool:
    """Whether a model is that of the first split, of the series as they are: what is shown as held out must be so."""
    example = Example.of(table)
    matrix = open_matrix(folder.url, example.distances)
    key = training_key(matrix, example.rows(matrix.labels), example.spec, example.kernel, example.seed)
    return bool((model.origin_ or {}).get("training") == key)
