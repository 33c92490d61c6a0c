"""`open_matrix`: the finished distances of a store, by rows, strips or tiles, for xarray and Dask, and as a kernel."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cksc_dist.errors import StoreError, brief, typed, want_of_threads
from cksc_dist.spec import DistanceSpec, KernelSpec
from cksc_dist.store.chunk_sizes import check_held
from cksc_dist.store.folder import Folder
from cksc_dist.store.grid import Grid, Tile
from cksc_dist.store.kernel_copy import copy_key
from cksc_dist.store.kernel_view import KernelView, positions
from cksc_dist.store.layout import DAMAGE
from cksc_dist.store.ledger import Blocks, Entry, Ledger
from cksc_dist.store.matrix_files import MatrixFiles, damaged_axes, find_matrices
from cksc_dist.store.series_files import StoredSeries, open_series

__all__ = ["DistanceMatrix", "count_missing", "going_on", "open_matrix"]

READINGS = 10
"""So often rows are read while others write them anew."""


def open_matrix(store: str | Path, distances: str = "") -> DistanceMatrix:
    """Open the finished distance matrix of a store.

    Parameters
    ----------
    store
        Folder or URL.
    distances
        First letters of the fingerprint, where the store holds several finished matrices.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from cksc_dist.dist.distances import compute_distances
    >>> from cksc_dist.io import make_gestures
    >>> from cksc_dist.store.series_files import write_series
    >>> with TemporaryDirectory() as folder:
    ...     write_series(Folder(folder), make_gestures(n_per_class=10))
    ...     _ = compute_distances(folder)
    ...     D = open_matrix(folder)
    ...     D.shape, D[0, :3].round(1).tolist(), float(D.to_xarray().sel(row="gesture0/0", col="gesture3/9")) > 0
    ((40, 40), [0.0, 7.9, 7.7], True)
    """
    folder = Folder(store)
    series = open_series(folder)
    found = {name: files for name, files in find_matrices(folder).items() if name.startswith(distances)}
    stamps = {name: Ledger(folder, name).stamp() for name in found}  # before it is read
    unfinished = {name: count_missing(files, series) for name, files in found.items()}
    finished = [name for name, missing in unfinished.items() if not missing]
    if len(finished) == 1:
        return DistanceMatrix(found[finished[0]], series, stamps[finished[0]])
    where = f"{folder.url}{f' (distances {distances}...)' if distances else ''}"
    if len(finished) > 1:
        listed = "\n".join(f"  {name}  {describe(found[name].spec)}" for name in finished)
        raise StoreError(f"{where} holds several finished matrices; choose one by the first letters:\n{listed}")
    if unfinished:
        name = min(unfinished, key=lambda each: unfinished[each])
        raise StoreError(
            f"{where}: matrix {name} is not finished, {unfinished[name]:,} of "
            f"{Grid(series.n, found[name].grid.edge).tiles:,} tiles are missing; compute them with: "
            f"{going_on(found[name].spec, folder.url)}"
        )
    raise StoreError(f"{where} has no such matrix; compute one with: cksc distances {folder.typed}")


def count_missing(files: MatrixFiles, series: StoredSeries) -> int:
    """Return how many tiles are not there, or not vouched for by the ledger."""
    resized = files.grid.n != series.n
    files = MatrixFiles(files.folder, files.spec, Grid(series.n, files.grid.edge))
    ledger, blocks = Ledger(files.folder, files.fingerprint).load(), Blocks(files.grid, series.digests)
    there = files.present()
    missing = sum(
        not (tile in there and tile[::-1] in there and blocks.is_done(tile, ledger.entries.get(tile)))
        for tile in files.grid.all_tiles()
    )
    if not missing:  # it is about to be read, by anybody and in any parts
        try:
            check_held(files.grid.n**2 * np.dtype(files.spec.dtype).itemsize, there.values)
        except ValueError as error:
            raise StoreError(f"{files.folder.url}/{files.group} is damaged: {error}; compute it again") from error
    return max(missing, int(resized))


def describe(spec: DistanceSpec) -> str:
    """Return settings in a few words: what differs from the defaults.

    Examples
    --------
    >>> describe(DistanceSpec(window=0.1, dtype="float32"))
    'dtw window=0.1 engine=simd dtype=float32'
    """
    spec, plain = spec.resolved(), DistanceSpec()
    names = ("mode", "window", "cost", "normalise", "per_length", "engine", "dtype", "dims")
    words = [f"{name}={getattr(spec, name)}" for name in names if getattr(spec, name) != getattr(plain, name)]
    return " ".join([spec.metric, *words])


def going_on(spec: DistanceSpec, store: str) -> str:
    """Return the command that computes what is missing of a matrix; one of other settings goes on by a repair.

    Examples
    --------
    >>> going_on(DistanceSpec(), "a.zarr"), going_on(DistanceSpec(window=0.1), "a.zarr")
    ('cksc distances a.zarr', 'cksc verify a.zarr --repair')
    """
    plain = spec.resolved() == DistanceSpec().resolved()
    return f"cksc distances {typed(store)}" if plain else f"cksc verify {typed(store)} --repair"


def _digest(value: Any) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()


def _values_digest(entries: dict[Tile, Entry]) -> str:
    return _digest([(tile, entries[tile].checksum) for tile in sorted(entries)])


class DistanceMatrix:
    """A finished matrix in a store; nothing is read before it is asked for.

    Parameters
    ----------
    files
        The matrix.
    series
        The series that its rows are.
    stamp
        Of the ledger, when it was last found to vouch for all tiles; none: it is asked.
    """

    def __init__(self, files: MatrixFiles, series: StoredSeries, stamp: str | None = "") -> None:
        self._files, self._series = files, series
        self._ledger = Ledger(files.folder, files.fingerprint)
        self._stamp, self._entries, self._values = stamp, "", ""
        if self.spec.metric == "external":
            self._stamp, entries = self._own_entries()
            self._values = _values_digest(entries)
        elif not stamp:
            self._is_as_before()

    def __repr__(self) -> str:
        n = self.shape[0]
        return f"DistanceMatrix({self._files.folder.url!r}: {n:,} x {n:,} {self.dtype}, {describe(self.spec)})"

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns, as many as there are series."""
        return self._files.grid.n, self._files.grid.n

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values."""
        return np.dtype(self.spec.dtype)

    @property
    def spec(self) -> DistanceSpec:
        """Settings that the distances were computed with."""
        return self._files.spec

    @property
    def fingerprint(self) -> str:
        """Name of the matrix in its store."""
        return self._files.fingerprint

    @property
    def group(self) -> str:
        """Group of the store, for ``xr.open_zarr(store, group=..., consolidated=False)``."""
        return self._files.group

    @property
    def folder(self) -> Folder:
        """The store."""
        return self._files.folder

    @property
    def series(self) -> StoredSeries:
        """The series that the rows are."""
        return self._series

    @property
    def labels(self) -> NDArray[Any]:
        """One label for each row."""
        return self._series.labels

    @property
    def ids(self) -> NDArray[np.str_]:
        """One name for each row."""
        return self._series.ids

    @property
    def state(self) -> str:
        """A digest of all that the distances depend on."""
        return self.series.state + self._values[:16]

    def kernel_key(self, rows: NDArray[np.int64], kernel: KernelSpec) -> str:
        """Return the name that a kernel copy of these rows has."""
        return copy_key(self.fingerprint, self.series.digests, rows, kernel, self._values)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> NDArray[Any]:
        """Return entries: ``D[i, j]``, ``D[rows]``, ``D[rows, columns]``, all rows with all columns.

        Unlike NumPy, two lists of positions give the matrix of both, as ``D[np.ix_(rows, columns)]`` does.
        """
        rows, columns = key if isinstance(key, tuple) else (key, slice(None))
        n = self.shape[0]
        taken = [self._positions(part, n) for part in (rows, columns)]
        values = self._read(*taken)
        scalar = tuple(0 if isinstance(part, int | np.integer) else slice(None) for part in (rows, columns))
        return np.asarray(values[scalar])

    @staticmethod
    def _positions(part: Any, n: int) -> slice | NDArray[np.int64]:
        if isinstance(part, slice) and part.step in (None, 1):
            return slice(*part.indices(n)[:2])
        positions: NDArray[np.int64] = np.atleast_1d(np.arange(n)[part])
        return positions

    def _read(self, rows: slice | NDArray[np.int64], columns: slice | NDArray[np.int64]) -> NDArray[Any]:
        if isinstance(rows, slice) and isinstance(columns, slice):
            return self._checked(lambda: self._files.array[rows, columns])
        return self._checked(lambda: self._files.array.oindex[rows, columns])

    def _checked(self, read: Callable[[], Any]) -> NDArray[Any]:
        """Return what is read, or say that a chunk of it is damaged or lost (a lost one would read as NaN)."""
        url = self._files.folder.url
        for _ in range(READINGS):
            begun = self._entries
            try:
                values, how = np.asarray(read()), "it is lost"
            except MemoryError:
                raise
            except (*DAMAGE, FileNotFoundError) as error:
                want_of_threads(error)
                values, how = None, brief(error)
            same = False
            try:
                # another thread may have asked before, and found that what this one has read was written anew
                same = self._is_as_before() and self._entries == begun
            finally:
                if not same:
                    self._files.close()
            if same:
                break
        else:
            raise self._changed()
        if values is not None and not np.isnan(values).any():
            return values
        raise StoreError(f"a chunk of {url}/{self.group} is damaged ({how}); mend it with: {self._files.folder.repair}")

    def _is_as_before(self) -> bool:
        """Tell whether no tile was written since this was last asked; nobody who reads holds a store.

        Where some were, and are what they should be, what was read just now may still be of a time in between. Where
        they are distances of others, that is an error.
        """
        if not self._series.still():
            raise self._changed()
        if self._ledger.stamp() == self._stamp:
            return True
        stamp, entries = self._own_entries()
        if not self._vouches(entries):
            raise self._changed()
        before, self._entries = self._entries, _digest(sorted(entries.items()))
        self._stamp = stamp  # last: whoever finds it finds these entries, too
        return self._entries == before

    def _own_entries(self) -> tuple[str | None, dict[Tile, Entry]]:
        """Return what the ledger tells of the tiles of this matrix, which may have become a larger one."""
        stamp = self._ledger.stamp()  # before it is read
        entries = self._ledger.load().entries
        return stamp, {tile: entries[tile] for tile in self._files.grid.all_tiles() if tile in entries}

    def _vouches(self, entries: dict[Tile, Entry]) -> bool:
        """Tell whether entries are of the distances that this matrix was opened for."""
        if self._values:
            return _values_digest(entries) == self._values
        series, grid = open_series(self._files.folder), self._files.grid
        blocks = Blocks(Grid(series.n, grid.edge), series.digests)
        for i, j in grid.all_tiles():
            rows, columns = blocks.kept((i, j), entries.get((i, j)))
            if rows < grid.size(i) or columns < grid.size(j):
                return False
        return True

    def _changed(self) -> StoreError:
        return StoreError(
            f"{self._files.folder.url}: another command has changed series or distances meanwhile; run this one again, "
            "or open the matrix again"
        )

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Return the whole matrix, in memory."""
        return self[:, :].astype(dtype or self.dtype, copy=False)

    def tile(self, tile: Tile) -> NDArray[Any]:
        """Return a tile, as it is stored."""
        return self._checked(lambda: self._files.read_tile(tile))

    @property
    def tile_edge(self) -> int:
        """Rows of a tile: strips of as many rows are read without waste."""
        return self._files.grid.edge

    def strips(self, height: int | None = None) -> list[tuple[int, int]]:
        """Return ranges of rows to go through the matrix by."""
        step = height or self.tile_edge
        return [(begin, min(begin + step, len(self))) for begin in range(0, len(self), step)]

    def to_xarray(self) -> Any:
        """Return the distances as a lazy xarray.DataArray with ids and labels on its axes."""
        import xarray as xr

        self._is_as_before()
        bad = damaged_axes(self._files, self._series)
        if bad:  # unless series were added since
            bad = damaged_axes(self._files, open_series(self._files.folder))
        if bad:
            url = self._files.folder.url
            raise StoreError(
                f"axis {bad[0]} of {url}/{self.group} is damaged; mend it with: {self._files.folder.repair}"
            )
        try:
            data = xr.open_zarr(self._files.folder.zarr(read_only=True), group=self.group, consolidated=False)
            return data["distance"][: len(self), : len(self)]
        except DAMAGE as error:
            want_of_threads(error)
            url = self._files.folder.url
            raise StoreError(
                f"the metadata of {url}/{self.group} is damaged ({brief(error)}); mend it with: "
                f"{self._files.folder.repair}"
            ) from error

    def to_dask(self) -> Any:
        """Return the distances as a Dask array, one chunk a tile."""
        return self.to_xarray().data

    def kernel(
        self, rows: ArrayLike | None = None, *, bandwidth: str | float = "mean", factor: float = 1.0
    ) -> KernelView:
        """Return the kernel of some rows as a lazy view, its bandwidth learnt on these rows alone.

        Parameters
        ----------
        rows
            Training rows, as positions or a mask; None: all.
        bandwidth, factor
            As in `cksc_dist.DistanceKernel`.
        """
        chosen = np.arange(len(self)) if rows is None else positions(len(self), rows)
        return KernelView(self, chosen, bandwidth=bandwidth, factor=factor)
