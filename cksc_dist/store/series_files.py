"""Series in a store: written once, read by ranges of rows.

The attributes of the group ``series`` are the commit: they are written last, in one put, and say how many rows and
frames count. What a killed writer left beyond them is written over by the next. All that they vouch for is on the disk
before they are: series that a power cut takes away cannot be computed again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from cksc_dist.errors import InputError, NoSeriesError, StoreError, brief, want_of_threads
from cksc_dist.series import Ragged, SeriesSet, check_width, label_array
from cksc_dist.store.chunk_sizes import check_held, chunk_count, taken
from cksc_dist.store.folder import Folder
from cksc_dist.store.layout import CHUNK_BYTES, DAMAGE, check_store, compressors, create_root
from cksc_dist.store.metadata import (
    check_metadata,
    damaged_metadata,
    forget_metadata,
    record_metadata,
    recorded_metadata,
)

__all__ = ["StoredSeries", "append_series", "open_series", "series_digests", "write_rows", "write_series"]

GROUP = "series"
DIGEST_BYTES = 16
TEXT_CHUNK = 2**14
CHECK_ROWS = 4096
MOST_LEFT = 2**14
"""Chunks that a killed writer may have left beyond the commit; one append does not bring more."""


def _held() -> None:
    """Take for granted that nobody else writes."""


def series_digests(data: SeriesSet) -> NDArray[np.uint8]:
    """Return a digest of the values of each series, as rows of bytes."""
    return np.array([_series_digest(values) for values in data], np.uint8)


def _series_digest(values: NDArray[np.float64]) -> NDArray[np.uint8]:
    return _digest(str(values.shape).encode() + values.tobytes())


def _digest(content: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(hashlib.sha256(content).digest()[:DIGEST_BYTES], np.uint8)


def write_series(folder: Folder, data: SeriesSet, check_held: Callable[[], None] = _held) -> None:
    """Write the series of a store; earlier ones are replaced.

    The store must be held for writing: ``check_held`` is called before what is written counts.
    """
    arrays: dict[str, tuple[NDArray[Any], tuple[str, ...]]] = {
        "values": (data.values, ("frame", "dim")),
        "offsets": (data.offsets, ("edge",)),
        "digest": (series_digests(data), ("sample", "byte")),
    }
    attributes = {"frames": len(data.values), "dims": data.dims, "dim_names": list(data.dim_names)}
    _write(folder, data.labels, data.ids, arrays, attributes | {"name": data.name}, check_held)


def write_rows(
    folder: Folder, labels: NDArray[Any], ids: NDArray[np.str_], name: str, check_held: Callable[[], None] = _held
) -> None:
    """Write a store that has names and labels but no series, for a matrix that comes ready."""
    digests = np.array([_digest(str(row).encode()) for row in ids], np.uint8)
    attributes = {"frames": 0, "dims": 0, "name": name}
    _write(folder, labels, ids, {"digest": (digests, ("sample", "byte"))}, attributes, check_held)


def _write(
    folder: Folder,
    labels: NDArray[Any],
    ids: NDArray[np.str_],
    arrays: dict[str, tuple[NDArray[Any], tuple[str, ...]]],
    attributes: dict[str, Any],
    check_held: Callable[[], None],
) -> None:
    labels = _storable(labels)
    create_root(folder)
    forget_metadata(folder, GROUP)
    group = zarr.open_group(folder.zarr(durable=True), mode="r+").create_group(GROUP, overwrite=True)
    for name, (array, axes) in (arrays | {"label": (labels, ("row",)), "row": (ids, ("row",))}).items():
        write_array(group, name, array, axes)
    classes = [label.item() for label in np.unique(labels)]
    digests = {name: _array_digest(array) for name, (array, _) in arrays.items() if name != "values"}
    digests |= {"label": _array_digest(labels), "row": _array_digest(ids)}
    check_held()
    group.attrs.put(attributes | {"n": len(ids), "classes": classes, "sha256": digests})
    record_metadata(folder, GROUP)


def _storable(labels: NDArray[Any]) -> NDArray[Any]:
    """Return labels in the type that they are stored in: whole numbers of any width are of 64 bits there."""
    if labels.dtype.kind not in "iu":
        return labels
    # NumPy has two types of 64 bits, of which Zarr knows these
    return labels.astype(np.uint64 if labels.max() > np.iinfo(np.int64).max else np.int64)


def _array_digest(array: NDArray[Any]) -> str:
    """Return a digest of an array; a chunk that is lost reads as zeros, which no checksum of chunks tells."""
    content = (
        json.dumps(array.tolist()).encode() if array.dtype.kind in "UTO" else np.ascontiguousarray(array).tobytes()
    )
    return hashlib.sha256(content).hexdigest()


def write_array(group: zarr.Group, name: str, array: NDArray[Any], axes: tuple[str, ...]) -> None:
    """Write a whole array with named axes, in chunks along its first one."""
    text = array.dtype.kind in "UT"
    row_bytes = max(1, array.itemsize * int(np.prod(array.shape[1:])))
    height = TEXT_CHUNK if text else max(1, CHUNK_BYTES // row_bytes)
    stored = group.create_array(
        name,
        shape=array.shape,
        dtype=str if text else array.dtype,
        chunks=(height, *array.shape[1:]),
        compressors=[compressors(1)[1]] if text else compressors(array.itemsize),
        dimension_names=axes,
        overwrite=True,
    )
    # a chunk that is not there could be lost, and zeros may be all there is
    stored.with_config({"write_empty_chunks": True})[...] = array.astype(object) if text else array


def append_series(folder: Folder, data: SeriesSet, check_held: Callable[[], None] = _held) -> None:
    """Add series after those that are there; as in `write_series`, the store must be held."""
    old = open_series(folder)
    _check_appendable(old, data)
    labels = _storable(data.labels)
    digests = np.concatenate([old.digests, series_digests(data)])
    forget_metadata(folder, GROUP)
    group = zarr.open_group(folder.zarr(durable=True), path=GROUP, mode="r+")
    frames = old.frames
    new: dict[str, tuple[int, NDArray[Any]]] = {
        "values": (frames, data.values),
        "offsets": (old.n, data.offsets + frames),
        "digest": (old.n, digests[old.n :]),
        "label": (old.n, labels.astype(object) if labels.dtype.kind == "U" else labels),
        "row": (old.n, data.ids.astype(object)),
    }
    for name, (at, part) in new.items():
        array: Any = group[name].with_config({"write_empty_chunks": True})  # type: ignore[union-attr]
        array.resize((at + len(part), *array.shape[1:]))
        array[at:] = part
    attributes: dict[str, Any] = dict(group.attrs)
    classes = sorted(set(attributes["classes"]) | {label.item() for label in np.unique(data.labels)})
    whole = {
        "offsets": np.concatenate([old.offsets[:-1], data.offsets + frames]),
        "digest": digests,
        "label": np.concatenate([old.labels, labels]),
        "row": np.concatenate([old.ids, data.ids]),
    }
    attributes |= {"n": old.n + len(data), "frames": frames + len(data.values), "classes": classes}
    check_held()
    group.attrs.put(attributes | {"sha256": {name: _array_digest(array) for name, array in whole.items()}})
    record_metadata(folder, GROUP)


def _check_appendable(old: StoredSeries, data: SeriesSet) -> None:
    old.check_values()
    # what cannot be opened is said before anything is changed
    lengths = {"values": old.frames, "offsets": old.n + 1, "digest": old.n, "label": old.n, "row": old.n}
    for name, length in lengths.items():
        old._read(name, 0, 1)
        old.check_length(name, length)
    if data.dims != old.dims:
        raise InputError(
            f"{data.name} has {data.dims} dims, but the series of {old.folder.url} have {old.dims}; bring them to "
            "the same dimensions, or ingest these into a store of their own"
        )
    new, there = _storable(data.labels).dtype, _storable(old.labels).dtype
    if new != there and not new.kind == there.kind == "U":
        raise InputError(
            f"labels of {data.name} are of type {data.labels.dtype}, those of {old.folder.url} of {old.labels.dtype}; "
            "write them in one kind"
        )
    for what, text in (("labels", old.labels), ("labels", data.labels), ("ids", old.ids), ("ids", data.ids)):
        check_width(text, f"{what} of {old.folder.url} with {data.name}", old.n + len(data))
    twice = np.intersect1d(old.ids, data.ids)
    if len(twice):
        raise InputError(
            f"{data.name}: id {str(twice[0])!r} is in {old.folder.url} already ({len(twice)} of {len(data)} are); "
            "ids must differ: rename the file, or leave out what is there"
        )


@dataclass(frozen=True)
class StoredSeries:
    """The series of a store, as they are committed; values are read when asked for.

    Parameters
    ----------
    folder
        The store.
    n, frames, dims
        How many series, frames in all, and dimensions; a store of a ready matrix has no frames.
    name, dim_names
        As in `SeriesSet`.
    sha256
        Digests of the arrays other than the values, whose series have digests of their own.
    """

    folder: Folder
    n: int
    frames: int
    dims: int
    name: str
    dim_names: tuple[str, ...]
    sha256: dict[str, str]

    @cached_property
    def _group(self) -> zarr.Group:
        return zarr.open_group(self.folder.zarr(read_only=True), path=GROUP, mode="r")

    def _array(self, name: str) -> Any:
        """Return an array, whose metadata is read once: half of the time that a single series takes."""
        if name not in self._arrays:
            self._arrays[name] = self._group[name]
        return self._arrays[name]

    @cached_property
    def _arrays(self) -> dict[str, Any]:
        return {}

    def _read(self, name: str, begin: int, end: int) -> NDArray[Any]:
        try:
            array = self._array(name)
            check_held(taken(array, begin, end), lambda: self._sizes(name))
            return np.asarray(array[begin:end])
        except (*DAMAGE, FileNotFoundError) as error:
            want_of_threads(error)
            if isinstance(error, MemoryError) and f"{GROUP}/{name}/zarr.json" not in damaged_metadata(self.folder):
                raise  # there is not enough for what is really there
            raise self._damaged(name, brief(error)) from error

    def _sizes(self, name: str) -> list[int]:
        """Return the sizes of the files of an array, which are listed once: there may be very many."""
        if name not in self._listed:
            self._listed[name] = list(self.folder.files(f"{GROUP}/{name}").values())
        return self._listed[name]

    @cached_property
    def _listed(self) -> dict[str, list[int]]:
        return {}

    def check_length(self, name: str, length: int) -> None:
        """Raise a StoreError for an array far longer than what counts: Zarr asks for each chunk that it cuts off."""
        array = self._array(name)
        beyond = chunk_count(array.shape, array.chunks) - chunk_count((length, *array.shape[1:]), array.chunks)
        if beyond > MOST_LEFT:
            raise self._damaged(name, f"it has room for {array.shape[0]:,}, and there are {length:,}")

    def still(self) -> bool:
        """Tell whether these are still the first series of the store: others may take their place, or come after them.

        Cheap enough to be asked after each reading of what belongs to them. Labels and names may be others.
        """
        commit = self.folder.read(f"{GROUP}/zarr.json")
        if commit is None:
            return False
        if commit != self._seen.get("commit"):
            try:
                now = open_series(self.folder)
                if now.n < self.n or _array_digest(now.digests[: self.n]) != self.sha256.get("digest"):
                    return False
            except StoreError:  # they are being written
                return False
            if self.folder.read(f"{GROUP}/zarr.json") == commit:
                self._seen["commit"] = commit
        return True

    @cached_property
    def _seen(self) -> dict[str, bytes]:
        """The commit that was last found to be of these series."""
        return {}

    def _is_changed(self) -> bool:
        """Tell whether another command has written anything since these series were opened."""
        try:
            return open_series(self.folder).sha256 != self.sha256
        except StoreError:
            return True

    def check_still(self) -> None:
        """Raise a StoreError unless these are still the first series of the store."""
        if not self.still():
            raise self._replaced()

    def _replaced(self) -> StoreError:
        return StoreError(f"{self.folder.url}: another command has changed the series meanwhile; run this one again")

    def _damaged(self, name: str, how: str) -> StoreError:
        self._arrays.clear()  # which may be those of others: these series may come back
        self._listed.clear()
        if self._is_changed():
            return self._replaced()
        if f"{GROUP}/{name}/zarr.json" in damaged_metadata(self.folder):
            return StoreError(
                f"the metadata of {self.folder.url}/{GROUP}/{name} is damaged ({how}); mend it with: "
                f"{self.folder.repair}"
            )
        return StoreError(
            f"{self.folder.url}/{GROUP}/{name} is damaged ({how}); ingest the series again with --replace: tiles of "
            "unchanged series are kept"
        )

    def _whole(self, name: str, length: int) -> NDArray[Any]:
        """Return an array, or say that it is not what was written."""
        array = self._read(name, 0, length)
        if _array_digest(array) != self.sha256.get(name):
            raise self._damaged(name, "its digest does not match")
        return array

    def _text(self, name: str) -> NDArray[Any]:
        """Return labels or ids, which are kept at the width of the longest."""
        try:
            return label_array(self._whole(name, self.n))
        except InputError as error:
            raise self._damaged(name, str(error)) from error

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """``n + 1`` edges between series, in frames."""
        return self._whole("offsets", self.n + 1)

    @cached_property
    def digests(self) -> NDArray[np.uint8]:
        """A digest of each series."""
        return self._whole("digest", self.n)

    @cached_property
    def labels(self) -> NDArray[Any]:
        """One label for each series."""
        return self._text("label")

    @cached_property
    def ids(self) -> NDArray[np.str_]:
        """One name for each series."""
        ids = self._text("row")
        if ids.dtype.kind != "U":
            raise self._damaged("row", "it holds no text")
        return ids

    @cached_property
    def state(self) -> str:
        """A digest of all series."""
        return hashlib.sha256(self.digests.tobytes()).hexdigest()[:16]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Frames of each series."""
        return np.diff(self.offsets)

    def check_values(self) -> None:
        """Raise a StoreError for a store that has no series."""
        if not self.dims:
            raise StoreError(f"{self.folder.url} holds a ready matrix without series; ingest series into a new store")

    def read(self, begin: int, end: int) -> Ragged:
        """Return the series of some rows, checked by their digests: frames end to end, and the edges between them."""
        first, last = int(self.offsets[begin]), int(self.offsets[end])
        values, offsets = self._read("values", first, last), self.offsets[begin : end + 1] - first
        changed = self._changed(values, offsets, begin)
        if changed:
            raise self._damaged("values", f"series {changed[0]}, {self.ids[changed[0]]}, is not what was ingested")
        return values, offsets

    def _changed(self, values: NDArray[np.float64], offsets: NDArray[np.int64], begin: int) -> list[int]:
        """Return the rows whose series are not what was ingested."""
        return [
            begin + k
            for k in range(len(offsets) - 1)
            if not np.array_equal(_series_digest(values[offsets[k] : offsets[k + 1]]), self.digests[begin + k])
        ]

    def changed(self) -> list[int]:
        """Read all series, and return the rows of those that are not what was ingested."""
        rows = []
        for begin in range(0, self.n if self.dims else 0, CHECK_ROWS):
            end = min(begin + CHECK_ROWS, self.n)
            first, last = int(self.offsets[begin]), int(self.offsets[end])
            rows += self._changed(self._read("values", first, last), self.offsets[begin : end + 1] - first, begin)
        return rows

    def select(self, begin: int, end: int) -> SeriesSet:
        """Return the series of some rows with their labels and ids, in memory."""
        self.check_values()
        rows = slice(begin, end)
        return SeriesSet(*self.read(begin, end), self.labels[rows], self.ids[rows], self.name, self.dim_names)

    def load(self) -> SeriesSet:
        """Return all series, in memory."""
        return self.select(0, self.n)


def _check_attributes(found: dict[str, Any], dim_names: tuple[Any, ...]) -> None:
    """Raise a TypeError or ValueError for attributes that this module does not write."""
    counts = [found[name] for name in ("n", "frames", "dims")]
    digests = found["sha256"]
    if not all(type(count) is int and count >= 0 for count in counts) or found["n"] < 1:
        raise ValueError(f"n, frames and dims are {counts}")
    if not isinstance(digests, dict) or not all(isinstance(text, str) for text in (found["name"], *dim_names)):
        raise TypeError("its digests or names are of another kind")


def open_series(folder: Folder) -> StoredSeries:
    """Return the series of a store, or say that there are none."""
    check_store(folder)
    check_metadata(folder, f"{GROUP}/zarr.json")
    try:
        attributes: dict[str, Any] = dict(zarr.open_group(folder.zarr(read_only=True), path=GROUP, mode="r").attrs)
        if "n" not in attributes:
            raise FileNotFoundError
        found: dict[str, Any] = {key: attributes[key] for key in ("n", "frames", "dims", "name", "sha256")}
        dim_names = tuple(attributes.get("dim_names", ()))
        _check_attributes(found, dim_names)
        return StoredSeries(folder, dim_names=dim_names, **found)
    except FileNotFoundError:
        if f"{GROUP}/zarr.json" not in recorded_metadata(folder):
            raise NoSeriesError(
                f"{folder.url} has no series, or ingesting them was cut off; run cksc ingest again"
            ) from None
        how = "it is lost, or lacks what it held"
    except DAMAGE as error:
        want_of_threads(error)
        how = str(error)
    raise StoreError(f"{folder.url}/{GROUP}/zarr.json is damaged ({how}); mend it with: {folder.repair}")
