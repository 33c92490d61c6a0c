"""A distance matrix in a store: made once, written tile by tile, grown at its end.

Workers write with Zarr directly: a chunk is a tile, so two tasks never touch the same chunk, and whole chunks appear at
once. The group also holds what xarray needs for labelled axes.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.core.sync import sync

from cksc_dist.errors import StoreError, brief, want_of_threads
from cksc_dist.spec import DistanceSpec, fingerprint
from cksc_dist.store.folder import Folder
from cksc_dist.store.grid import Grid, Tile
from cksc_dist.store.layout import DAMAGE, check_store, compressors
from cksc_dist.store.ledger import Ledger
from cksc_dist.store.metadata import (
    check_metadata,
    ensure_recorded,
    forget_metadata,
    record_metadata,
    recorded_metadata,
)
from cksc_dist.store.series_files import StoredSeries, write_array

__all__ = [
    "MatrixFiles",
    "create_matrix",
    "damaged_axes",
    "find_matrices",
    "grow_matrix",
    "open_files",
    "remove_matrix",
    "transposed",
]

TOP = "distances"

TRANSPOSE_BLOCK = 64


def transposed(values: NDArray[Any]) -> NDArray[Any]:
    """Return the mirror of a tile, row by row: in blocks, because NumPy alone takes twice as long.

    Examples
    --------
    >>> transposed(np.array([[1, 2, 3], [4, 5, 6]])).tolist()
    [[1, 4], [2, 5], [3, 6]]
    """
    mirror = np.empty(values.shape[::-1], values.dtype)
    for i in range(0, values.shape[0], TRANSPOSE_BLOCK):
        for j in range(0, values.shape[1], TRANSPOSE_BLOCK):
            block = values[i : i + TRANSPOSE_BLOCK, j : j + TRANSPOSE_BLOCK]
            mirror[j : j + TRANSPOSE_BLOCK, i : i + TRANSPOSE_BLOCK] = block.T
    return mirror


@dataclass(frozen=True)
class MatrixFiles:
    """The stored matrix of some settings.

    Parameters
    ----------
    folder
        The store.
    spec
        Resolved settings; their fingerprint names the matrix.
    grid
        Rows and tiles.
    state
        Digest of the series that it was made or grown for, which have been checked.
    """

    folder: Folder
    spec: DistanceSpec
    grid: Grid
    state: str = ""

    @property
    def fingerprint(self) -> str:
        """Name of the matrix."""
        return fingerprint(self.spec)

    @property
    def group(self) -> str:
        """Where it is in the store."""
        return f"{TOP}/{self.fingerprint}"

    @cached_property
    def array(self) -> Any:
        """The Zarr array of all distances, for reading and for writing whole tiles."""
        array: Any = zarr.open_group(self.folder.zarr(), path=self.group, mode="r+")["distance"]
        # a third of the time to write a tile would go into looking whether all of it is NaN
        return array.with_config({"write_empty_chunks": True})

    def close(self) -> None:
        """Open the array anew when it is next asked for: it may have been opened when it had another size."""
        vars(self).pop("array", None)

    def read_tile(self, tile: Tile) -> NDArray[Any]:
        """Return the stored values of a tile (or of its mirror); a ValueError tells of a bad checksum."""
        rows, columns = (slice(*self.grid.rows(block)) for block in tile)
        return np.asarray(self.array[rows, columns])

    def write_tile(self, tile: Tile, values: NDArray[Any]) -> None:
        """Write a tile and its mirror."""
        rows, columns = (slice(*self.grid.rows(block)) for block in tile)
        self.array[rows, columns] = values
        if tile[0] != tile[1]:
            self.array[columns, rows] = transposed(values)

    def whole_tiles(self) -> set[Tile]:
        """Return the tiles whose chunks are all there, the mirror's included."""
        there = self.present()
        return {(i, j) for i, j in there if i <= j and (j, i) in there}

    def present(self) -> dict[Tile, int]:
        """Return which chunks are there, mirrors included, with their bytes."""
        found = {}
        for name, size in self.folder.files(f"{self.group}/distance/c").items():
            parts = name.split("/")
            if len(parts) == 2 and parts[0].isdigit() and parts[1].isdigit():
                found[int(parts[0]), int(parts[1])] = size
        return found


def create_matrix(folder: Folder, spec: DistanceSpec, series: StoredSeries, edge: int) -> MatrixFiles:
    """Make the empty matrix of resolved settings. The store must be held for writing."""
    files = MatrixFiles(folder, spec, Grid(series.n, edge), series.state)
    forget_metadata(folder, files.group)
    Ledger(folder, files.fingerprint).clear()  # whose chunks are about to go
    root = zarr.open_group(folder.zarr(durable=True), mode="r+")
    # the group above all matrices first: one below a group that is not there would look like damage
    root.require_group(TOP)
    # the attributes come last: a group without them was cut off while it was made
    group = root.create_group(files.group, overwrite=True)
    group.create_array(
        "distance",
        shape=(series.n, series.n),
        dtype=spec.dtype,
        chunks=(edge, edge),
        fill_value=np.nan,
        compressors=compressors(np.dtype(spec.dtype).itemsize),
        dimension_names=("row", "col"),
        attributes={"coordinates": "label"},  # how xarray tells an axis from data
    )
    _write_axes(group, series)
    group.attrs.put({"spec": asdict(spec), "edge": edge, "series": series.state})
    record_metadata(folder, files.group)
    return files


def _axes(series: StoredSeries) -> dict[str, NDArray[Any]]:
    """Return what the axes of a matrix hold, by name."""
    return {"row": series.ids, "col": series.ids, "label": series.labels}


def _write_axes(group: zarr.Group, series: StoredSeries) -> None:
    for name, values in _axes(series).items():
        write_array(group, name, values, ("col",) if name == "col" else ("row",))


def remove_matrix(files: MatrixFiles) -> None:
    """Remove a matrix and its ledger. The store must be held for writing."""
    forget_metadata(files.folder, files.group)
    Ledger(files.folder, files.fingerprint).clear()
    del zarr.open_group(files.folder.zarr(), path=TOP, mode="r+")[files.fingerprint]


def damaged_axes(files: MatrixFiles, series: StoredSeries) -> list[str]:
    """Return the names of axes that are lost, damaged, or name other rows than the series."""
    group = zarr.open_group(files.folder.zarr(read_only=True), path=files.group, mode="r")
    bad = []
    for name, values in _axes(series).items():
        try:
            array: Any = group[name]
            if array.shape != values.shape or np.asarray(array[:]).tolist() != values.tolist():
                bad.append(name)
        except (*DAMAGE, FileNotFoundError) as error:
            want_of_threads(error)
            bad.append(name)
    return bad


def grow_matrix(files: MatrixFiles, series: StoredSeries) -> MatrixFiles:
    """Give a matrix the size and the axes of the series as they are now. The store must be held for writing.

    Chunks stay as they are; which of them still hold, the ledger tells.
    """
    group = zarr.open_group(files.folder.zarr(durable=True), path=files.group, mode="r+")
    distance: Any = group["distance"]
    whole = distance.shape == (series.n, series.n) and files.state == series.state
    if whole and not damaged_axes(files, series):
        ensure_recorded(files.folder, files.group)
        return files
    forget_metadata(files.folder, files.group)
    _write_axes(group, series)
    # Zarr would ask for each chunk that it cuts off, and of very many most may never have been written
    sync(distance.async_array.resize((series.n, series.n), delete_outside_chunks=False))
    blocks = Grid(series.n, files.grid.edge).blocks
    beyond = [f"{files.group}/distance/c/{i}/{j}" for i, j in files.present() if max(i, j) >= blocks]
    files.folder.remove_many(beyond)
    group.attrs.put({**group.attrs, "series": series.state})
    record_metadata(files.folder, files.group)
    return open_files(files.folder, files.fingerprint)


def find_matrices(folder: Folder) -> dict[str, MatrixFiles]:
    """Return all matrices of a store by fingerprint.

    One whose metadata is damaged is named by an error, and never taken for none: it would be made anew.
    """
    check_store(folder)
    recorded = _fingerprints(folder)
    names = sorted(set(folder.names(TOP, folders_only=True)) | recorded)
    if names:
        _check_top(folder)
    return {name: open_files(folder, name) for name in names if name in recorded or _is_made(folder, name)}


def _fingerprints(folder: Folder) -> set[str]:
    """Return the names of matrices that copies of metadata tell of."""
    keys = [key.split("/") for key in recorded_metadata(folder)]
    return {parts[1] for parts in keys if parts[0] == TOP and len(parts) > 2}


def _check_top(folder: Folder) -> None:
    """Raise a StoreError if the group above all matrices is lost or damaged."""
    try:
        zarr.open_group(folder.zarr(read_only=True), path=TOP, mode="r")
    except (*DAMAGE, FileNotFoundError) as error:
        raise _damaged(folder, TOP, error) from error


def _is_made(folder: Folder, name: str) -> bool:
    """Tell whether a matrix without copies of its metadata was made whole: its attributes are written last."""
    try:
        return "spec" in dict(zarr.open_group(folder.zarr(read_only=True), path=f"{TOP}/{name}", mode="r").attrs)
    except (*DAMAGE, FileNotFoundError) as error:
        want_of_threads(error)
        return False


def _damaged(folder: Folder, what: str, error: Exception) -> StoreError:
    want_of_threads(error)
    return StoreError(f"the metadata of {folder.url}/{what} is damaged ({brief(error)}); mend it with: {folder.repair}")


def open_files(folder: Folder, name: str) -> MatrixFiles:
    """Return the matrix of a fingerprint."""
    check_metadata(folder, f"{TOP}/{name}/zarr.json", f"{TOP}/{name}/distance/zarr.json")
    try:
        group = zarr.open_group(folder.zarr(read_only=True), path=f"{TOP}/{name}", mode="r")
        attributes: dict[str, Any] = dict(group.attrs)
        distance: Any = group["distance"]
        shape = distance.shape
        spec = attributes["spec"]
        edge = attributes["edge"]
        # a tile is a chunk: with another edge, two tasks would touch the same one
        if shape != (shape[0], shape[0]) or type(edge) is not int or distance.chunks != (edge, edge):
            raise ValueError(f"its shape is {shape}, its chunks are {distance.chunks} and its tiles {edge!r}")
        files = MatrixFiles(folder, DistanceSpec(**spec), Grid(shape[0], edge), attributes["series"])
    except FileNotFoundError as error:
        if name in _fingerprints(folder):
            raise _damaged(folder, f"{TOP}/{name}", error) from error
        raise StoreError(f"{folder.url} has no matrix {name}; see: cksc status {folder.typed}") from error
    except DAMAGE as error:
        raise _damaged(folder, f"{TOP}/{name}", error) from error
    if files.fingerprint != name:
        raise StoreError(f"{folder.url}/{TOP}/{name} holds settings of another name; its metadata was changed by hand")
    return files
