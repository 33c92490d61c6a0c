"""SeriesSet: a ragged collection of labelled multivariate time series.

Series are kept end to end in one array, ``values[offsets[i] : offsets[i + 1]]`` being series i as
(time, dims): no padding, and no NaN that stands for a length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cksc_dist.errors import InputError

__all__ = [
    "UNKNOWN",
    "Ragged",
    "SeriesSet",
    "check_labelled",
    "check_width",
    "have_labels",
    "is_text",
    "label_array",
    "ragged",
]

UNKNOWN = "?"
"""The label of a series without one."""

MOST_LETTERS = 5000
"""Of a label or an id."""
ALWAYS_LETTERS = 100
"""Of each, however many there are."""
LETTERS_IN_ALL = 2**23
"""What few may have beyond that, all together."""

Ragged = tuple[NDArray[np.float64], NDArray[np.int64]]
"""Frames end to end (frames, dims), and the ``n + 1`` edges between series."""


def have_labels(labels: NDArray[Any]) -> NDArray[np.bool_]:
    """Tell of each label whether it is one, and not the sign for an unknown one."""
    known: NDArray[np.bool_] = labels.astype(str) != UNKNOWN
    return known


def check_labelled(labels: NDArray[Any]) -> None:
    """Raise an InputError for rows without labels: otherwise they would become a class of their own."""
    known = have_labels(labels)
    if not known.all():
        raise InputError(
            f"{int((~known).sum()):,} of {len(labels):,} rows have the label {UNKNOWN!r}, which stands for an unknown "
            f"one, the first of them row {int(known.argmin())}; choose labelled rows, or put labels to them"
        )


def ragged(series: Any, *, name: str = "series") -> Ragged:
    """Return frames end to end and offsets, or say which sample is no finite (time, dims) array.

    Parameters
    ----------
    series
        A `SeriesSet`, a list of arrays (time, dims) or (time,), or an array (n, time, dims) or (n, time).
    name
        What to call the argument in an error.
    """
    if isinstance(series, SeriesSet):
        return series.values, series.offsets
    if isinstance(series, np.ndarray) and series.dtype != object and series.ndim not in (2, 3):
        raise InputError(
            f"{name}: an array of shape {series.shape} is no set of series; pass a list of (time, dims) "
            "arrays or one array (n, time, dims)"
        )
    if not hasattr(series, "__iter__"):
        raise InputError(f"{name} is of type {type(series).__name__}; pass a list of (time, dims) arrays")
    parts = [_frames(item, f"{name}[{i}]") for i, item in enumerate(series)]
    if not parts:
        raise InputError(f"{name} has no series; pass at least one")
    dims = parts[0].shape[1]
    for i, part in enumerate(parts):
        if part.shape[1] != dims:
            raise InputError(
                f"{name}[{i}] has {part.shape[1]} dims but {name}[0] has {dims}; all series of a set "
                "must have the same dims"
            )
    values = np.concatenate(parts)
    offsets = np.zeros(len(parts) + 1, dtype=np.int64)
    np.cumsum([len(part) for part in parts], out=offsets[1:])
    if not np.isfinite(values).all():
        row, dim = (int(v) for v in np.argwhere(~np.isfinite(values))[0])
        i = int(np.searchsorted(offsets, row, side="right")) - 1
        raise InputError(
            f"{name}[{i}] has a NaN or infinite value (frame {row - offsets[i]}, dim {dim}); "
            "fill it or remove the series"
        )
    return values, offsets


def _frames(item: Any, name: str) -> NDArray[np.float64]:
    if isinstance(item, np.ndarray) and item.dtype == np.float64 and item.ndim == 2 and item.size:
        return item
    try:
        given = np.asarray(item)
        values = given if given.dtype.kind in "USTcmM" else given.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{name} cannot be read as numbers: {error}") from error
    # NumPy alone would read "1.5" and dates as numbers, and drop the imaginary part of one
    text = given.dtype.kind in "UST" or (given.dtype == object and any(isinstance(value, str) for value in given.flat))
    if text or values.dtype != np.float64:
        what = "text" if text else f"values of type {given.dtype}"
        raise InputError(f"{name} holds {what}; it must hold real numbers, convert it first")
    if values.ndim == 1:
        values = values[:, None]
    if values.ndim != 2:
        raise InputError(f"{name} has shape {values.shape}; each series must be (time, dims)")
    if not values.size:
        raise InputError(f"{name} is empty (shape {values.shape}); remove it")
    return values


def is_text(array: NDArray[Any]) -> bool:
    """Tell whether all letters of an array of text are letters: NumPy keeps any number, and halves of pairs.

    Examples
    --------
    >>> is_text(np.array(["a", "é"])), is_text(np.array(["a", "\\ud800"])), is_text(np.array([1]))
    (True, False, True)
    """
    if array.dtype.kind != "U" or not array.size or not array.itemsize:
        return True
    letters = np.ascontiguousarray(array, array.dtype.newbyteorder("=")).reshape(-1).view(np.uint32)
    return bool((letters <= 0x10FFFF).all() and not ((letters >= 0xD800) & (letters <= 0xDFFF)).any())


def _text_array(given: Sequence[Any], name: str) -> NDArray[np.str_]:
    """Return text as an array, or say that it cannot be kept: NumPy drops NUL at the end, and makes all as wide."""
    texts = [text for text in given if isinstance(text, str)]
    lost = next((text for text in texts if text.endswith("\0")), None)
    if lost is not None:
        raise InputError(f"{name}: {lost[:100]!r} ends with NUL, which cannot be kept; rename it")
    _check_longest(max(texts, key=len, default=""), len(texts), name)
    return np.array(given, dtype=np.str_)


def check_width(text: NDArray[Any], name: str, count: int | None = None) -> None:
    """Raise an InputError where one of some labels or ids is too long among so many: as many as there are, or more."""
    if text.size and text.dtype.kind == "U" and text.dtype.itemsize > 4 * ALWAYS_LETTERS:
        longest = str(text.flat[int(np.strings.str_len(text).argmax())])
        _check_longest(longest, text.size if count is None else count, name)


def _check_longest(longest: str, count: int, name: str) -> None:
    # one long label in a small file would take gigabytes
    most = min(MOST_LETTERS, ALWAYS_LETTERS + LETTERS_IN_ALL // max(count, 1))
    if len(longest) > most:
        raise InputError(
            f"{name}: {longest[:50]!r}... has {len(longest):,} letters, but all {count:,} are kept as wide as the "
            f"longest, which may have {most:,}; shorten it"
        )


def label_array(labels: Any, *, name: str = "labels") -> NDArray[Any]:
    """Return labels as an array, or say that they are of several kinds.

    NumPy alone would turn ``["a", 1]`` into two strings, and ``[True, 2]`` into two whole numbers.

    Examples
    --------
    >>> label_array(["a", 1])
    Traceback (most recent call last):
    ...
    cksc_dist.errors.InputError: labels mix int and str; use str, int or bool, all of one kind
    """
    given = labels if isinstance(labels, np.ndarray) else np.asarray(labels, dtype=object)
    if given.dtype.kind == "T":
        given = given.astype(object)  # text of variable width, and what it takes for missing
    if given.dtype != object:
        check_width(given, name)
        return given
    kinds = sorted({_label_kind(label) for label in given.flat})
    if len(kinds) > 1:
        raise InputError(f"{name} mix {' and '.join(kinds)}; use str, int or bool, all of one kind")
    return _text_array(given.tolist(), name) if kinds == ["str"] else np.array(given.tolist())


def _label_kind(label: Any) -> str:
    kinds: dict[str, Any] = {"str": str, "bool": bool | np.bool_, "int": Integral}
    return next((kind for kind, types in kinds.items() if isinstance(label, types)), type(label).__name__)


@dataclass(frozen=True, eq=False)
class SeriesSet:
    """A ragged set of series with labels and ids.

    Parameters
    ----------
    values
        All frames end to end, (total frames, dims), float64, finite.
    offsets
        ``n + 1`` edges: series i is ``values[offsets[i] : offsets[i + 1]]``; every series has a frame.
    labels
        One label for each series: str, int or bool, all of one kind.
    ids
        One name for each series, all different; made from the position where not given.
    name
        What to call the set.
    dim_names
        A name for each dimension, where known.

    Examples
    --------
    >>> import numpy as np
    >>> data = SeriesSet.from_list([np.zeros((3, 2)), np.ones((5, 2))], labels=["a", "b"])
    >>> len(data), data.dims, data.lengths.tolist()
    (2, 2, [3, 5])
    >>> data[1].shape
    (5, 2)
    >>> data[1:]
    SeriesSet('series': 1 series, 2 dims, length 5, 1 classes)
    """

    values: NDArray[np.float64]
    offsets: NDArray[np.int64]
    labels: NDArray[Any]
    ids: NDArray[np.str_]
    name: str = "series"
    dim_names: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", label_array(self.labels, name=f"{self.name}: labels"))
        ids: Any = self.ids
        if isinstance(ids, list | tuple):
            object.__setattr__(self, "ids", _text_array(ids, f"{self.name}: ids"))
        for name, kind in (("values", np.float64), ("offsets", np.int64), ("labels", None), ("ids", np.str_)):
            # DTW compiles for these types, and reads frames in this order
            object.__setattr__(self, name, np.ascontiguousarray(getattr(self, name), dtype=kind))
        n = len(self.offsets) - 1
        if n < 1:
            raise InputError(f"{self.name}: the set has no series")
        if self.values.ndim != 2 or self.values.shape[1] == 0:
            raise InputError(f"{self.name}: values have shape {self.values.shape}; must be (frames, dims)")
        if int(self.offsets[0]) != 0 or int(self.offsets[-1]) != len(self.values):
            raise InputError(
                f"{self.name}: offsets run from {self.offsets[0]} to {self.offsets[-1]}; they must run from "
                f"0 to the number of frames, {len(self.values)}"
            )
        empty = np.flatnonzero(self.offsets[1:] <= self.offsets[:-1])  # a difference may overflow
        if len(empty):
            raise InputError(f"{self.name}: series {int(empty[0])} is empty; remove it")
        if len(self.labels) != n or len(self.ids) != n:
            raise InputError(
                f"{self.name}: {n} series, but {len(self.labels)} labels and {len(self.ids)} ids; "
                "give one of each for every series"
            )
        if self.labels.ndim != 1 or self.ids.ndim != 1:
            raise InputError(
                f"{self.name}: labels have shape {self.labels.shape} and ids {self.ids.shape}; both must be 1-D"
            )
        if self.labels.dtype.kind not in "Uiub":
            raise InputError(
                f"{self.name}: labels are of type {self.labels.dtype}; use str, int or bool, all of one kind"
            )
        _text_array(self.dim_names, f"{self.name}: names of dims")
        check_width(self.ids, f"{self.name}: ids")
        for name, text in (("labels", self.labels), ("ids", self.ids), ("names", (self.name, *self.dim_names))):
            if not is_text(np.asarray(text)):
                raise InputError(f"{self.name!r}: {name} hold letters that are no text in Unicode; rename them")
        if self.dim_names and len(self.dim_names) != self.dims:
            raise InputError(f"{self.name}: {len(self.dim_names)} dim_names for {self.dims} dims")
        unique, counts = np.unique(self.ids, return_counts=True)
        if len(unique) != n:
            raise InputError(f"{self.name}: id {str(unique[counts > 1][0])!r} is used twice; ids must differ")
        bad = np.flatnonzero(~np.isfinite(self.values).all(axis=1))
        if len(bad):
            i = int(np.searchsorted(self.offsets, bad[0], side="right")) - 1
            raise InputError(
                f"{self.name}: series {i} (id {self.ids[i]}) has a NaN or infinite value in frame "
                f"{int(bad[0] - self.offsets[i])}; fill it or remove the series"
            )

    @classmethod
    def from_list(
        cls,
        series: Any,
        labels: ArrayLike | None = None,
        ids: Sequence[str] | None = None,
        *,
        name: str = "series",
        dim_names: Sequence[str] = (),
    ) -> SeriesSet:
        """Make a set from a list of (time, dims) arrays or an array (n, time, dims).

        Without labels every series gets the label ``"?"``.
        """
        values, offsets = ragged(series, name=name)
        n = len(offsets) - 1
        return cls(
            values=values,
            offsets=offsets,
            labels=np.full(n, UNKNOWN) if labels is None else label_array(labels, name=f"{name}: labels"),
            ids=_text_array([f"{i}" for i in range(n)] if ids is None else list(ids), f"{name}: ids"),
            name=name,
            dim_names=tuple(dim_names),
        )

    @classmethod
    def read(cls, path: str | Path, **options: Any) -> SeriesSet:
        """Read a file or folder; the form is recognised by `cksc_dist.io.read`, which lists them."""
        from cksc_dist.io import read  # io is built on this module

        return read(path, **options)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, i: int) -> NDArray[np.float64]: ...

    @overload
    def __getitem__(self, i: slice) -> SeriesSet: ...

    def __getitem__(self, i: int | slice) -> NDArray[np.float64] | SeriesSet:
        """Return series i as a (time, dims) view, or for a slice the set of these series (as `select`)."""
        n = len(self)
        if isinstance(i, slice):
            return self.select(np.arange(n)[i])
        if not -n <= i < n:
            raise IndexError(f"series {i} of {n}")
        i %= n
        return self.values[self.offsets[i] : self.offsets[i + 1]]

    def __iter__(self) -> Iterator[NDArray[np.float64]]:
        return (self[i] for i in range(len(self)))

    @property
    def series(self) -> list[NDArray[np.float64]]:
        """The series as a list of (time, dims) views."""
        return list(self)

    @property
    def dims(self) -> int:
        """Number of dimensions of every series."""
        return int(self.values.shape[1])

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of frames of each series."""
        return np.diff(self.offsets)

    @property
    def classes(self) -> NDArray[Any]:
        """The different labels, sorted."""
        return np.unique(self.labels)

    def select(self, rows: ArrayLike) -> SeriesSet:
        """Return the set of the given rows (indices or a mask), in that order."""
        index = _chosen(len(self), rows)
        if index.ndim != 1 or not len(index):
            raise InputError(f"{self.name}: select needs at least one row, in a list or mask")
        return SeriesSet.from_list(
            [self[i] for i in index],
            self.labels[index],
            [str(v) for v in self.ids[index]],
            name=self.name,
            dim_names=self.dim_names,
        )

    def select_dims(self, dims: ArrayLike) -> SeriesSet:
        """Return the set with the given dimensions only (indices or a mask)."""
        index = _chosen(self.dims, dims)
        if index.ndim != 1 or not len(index):
            raise InputError(f"{self.name}: select_dims needs at least one dimension, in a list or mask")
        names = tuple(self.dim_names[i] for i in index) if self.dim_names else ()
        return replace(self, values=np.ascontiguousarray(self.values[:, index]), dim_names=names)

    def map(self, function: Callable[[NDArray[np.float64]], ArrayLike]) -> SeriesSet:
        """Return the set with ``function`` applied to every (time, dims) array.

        The names of the dimensions are kept where their number stays the same.
        """
        parts = [np.asarray(function(values), dtype=np.float64) for values in self]
        keep = self.dim_names if parts[0].ndim == 2 and parts[0].shape[1] == self.dims else ()
        return SeriesSet.from_list(parts, self.labels, [str(v) for v in self.ids], name=self.name, dim_names=keep)

    def __repr__(self) -> str:
        lengths = self.lengths
        span = f"{lengths.min()}" if lengths.min() == lengths.max() else f"{lengths.min()}..{lengths.max()}"
        return (
            f"SeriesSet({self.name!r}: {len(self)} series, {self.dims} dims, length {span}, "
            f"{len(self.classes)} classes)"
        )


def _chosen(n: int, which: ArrayLike) -> NDArray[np.int64]:
    """Return positions from positions or a mask."""
    index = np.asarray(which)
    # NumPy takes an empty list for one of floats, which are no positions
    positions: NDArray[np.int64] = np.arange(n)[index if index.size else index.astype(np.int64)]
    return positions
