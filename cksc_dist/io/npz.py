"""NumPy archives, ``.npz``, in two forms.

Ragged: ``values``, ``offsets``, ``labels``. Of equal length: ``X``, ``y``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cksc_dist.arrays import is_npy, load_npz
from cksc_dist.errors import InputError, ReadError, brief
from cksc_dist.files import plain_only
from cksc_dist.io.text import few_names
from cksc_dist.series import SeriesSet

__all__ = ["read_npz", "write_npz"]

_FORMS = (
    "an .npz file holds either values (frames, dims), offsets (n + 1) and labels (n), with ids and dim_names "
    "where wanted, or X (n, time, dims) or (n, time) and y (n)"
)
_KEYS = ("values", "offsets", "labels", "ids", "dim_names", "X", "y")


def _load(path: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of an archive that belong to one of the forms; never unpickles."""
    try:
        with open(path, "rb", opener=plain_only) as handle:
            if is_npy(handle):
                raise ReadError(path, f"is a single array (.npy); {_FORMS}")
            arrays, found = load_npz(handle, _KEYS)
    except ReadError:
        raise
    except PermissionError as error:
        raise ReadError(path, f"cannot be opened: {error.strerror}; check the path and its permissions") from error
    except (ValueError, OSError, MemoryError) as error:
        raise ReadError(
            path,
            f"cannot be read as arrays of numbers and text ({brief(error)}); object arrays are refused; {_FORMS}",
        ) from error
    if not ({"values", "offsets", "labels"} <= arrays.keys() or {"X", "y"} <= arrays.keys()):
        raise ReadError(path, f"holds the arrays {few_names(map(repr, found))}; {_FORMS}")
    return arrays


def _vector(arrays: dict[str, NDArray[Any]], key: str, kinds: str, path: Path) -> NDArray[Any]:
    """Return a 1-D array whose dtype is of one of the kinds."""
    array = arrays[key]
    if array.ndim != 1 or array.dtype.kind not in kinds:
        raise ReadError(path, f"{key} has shape {array.shape} and type {array.dtype}; {_FORMS}")
    return array


def _numbers(arrays: dict[str, NDArray[Any]], key: str, ndims: tuple[int, int], path: Path) -> NDArray[np.float64]:
    """Return an array of real numbers as float64, with one axis more where it lacks that of the dims."""
    array = arrays[key]
    if array.ndim not in ndims or array.dtype.kind not in "fiub":
        raise ReadError(path, f"{key} has shape {array.shape} and type {array.dtype}; {_FORMS}")
    values = array.astype(np.float64, copy=False)
    return values if values.ndim == max(ndims) else values[..., None]


def read_npz(path: str | Path) -> SeriesSet:
    """Read an ``.npz`` file.

    Parameters
    ----------
    path
        Holds either ``values`` (frames, dims), ``offsets`` and ``labels``, with ``ids`` and ``dim_names``
        where wanted, series i being ``values[offsets[i] : offsets[i + 1]]``; or ``X`` (n, time, dims) or
        (n, time) and ``y``.

    Returns
    -------
    SeriesSet
        Without ``ids`` these are ``<file stem>/<index>``.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "taps.npz")
    ...     np.savez(file, X=np.zeros((4, 10, 3)), y=["a", "a", "b", "b"])
    ...     data = read_npz(file)
    >>> data
    SeriesSet('taps': 4 series, 3 dims, length 10, 2 classes)
    """
    path = Path(path)
    arrays = _load(path)
    if "values" in arrays:
        values = _numbers(arrays, "values", (1, 2), path)
        offsets = _vector(arrays, "offsets", "iu", path).astype(np.int64)
        labels = _vector(arrays, "labels", "Uiub", path)
    else:
        block = _numbers(arrays, "X", (2, 3), path)
        values = block.reshape(-1, block.shape[2]) if block.size else np.empty((0, 1))
        offsets = np.arange(len(block) + 1, dtype=np.int64) * block.shape[1]
        labels = _vector(arrays, "y", "Uiub", path)
    n = len(offsets) - 1
    ids = _vector(arrays, "ids", "U", path) if "ids" in arrays else [f"{path.stem}/{i}" for i in range(n)]
    names = _vector(arrays, "dim_names", "U", path).tolist() if "dim_names" in arrays else []
    try:
        return SeriesSet(
            values,
            offsets,
            labels,
            np.array(ids, dtype=np.str_),
            path.stem,
            tuple(names),
        )
    except InputError as error:
        raise ReadError(path, str(error)) from error


def write_npz(path: str | Path, series_set: SeriesSet) -> None:
    """Write a set so that `read_npz` gives it back; its name becomes that of the file.

    Parameters
    ----------
    path
        A path that ends in ``.npz``; a file that is there is replaced.
    series_set
        What to write.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np
    >>> data = SeriesSet.from_list([np.zeros((3, 2)), np.ones((5, 2))], labels=["a", "b"])
    >>> with TemporaryDirectory() as folder:
    ...     write_npz(Path(folder, "pair.npz"), data)
    ...     read_npz(Path(folder, "pair.npz"))
    SeriesSet('pair': 2 series, 2 dims, length 3..5, 2 classes)
    """
    path = Path(path)
    if path.suffix != ".npz":
        raise InputError(f"{path}: the name must end in .npz, by which the form is recognised when it is read")
    labels = series_set.labels
    np.savez(
        path,
        values=series_set.values,
        offsets=series_set.offsets,
        # NumPy's own variable-width strings cannot be saved without pickle
        labels=np.array(labels.tolist(), dtype=np.str_) if labels.dtype.kind == "T" else labels,
        ids=series_set.ids,
        dim_names=np.array(series_set.dim_names, dtype=np.str_),
    )
