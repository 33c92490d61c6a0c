"""MATLAB files, and the layout in which the Cricket umpire signals are published."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.io import loadmat, whosmat

from cksc_dist.errors import ReadError, brief
from cksc_dist.files import plain_only
from cksc_dist.io.mat5 import check_release, check_structure
from cksc_dist.io.text import few_names
from cksc_dist.series import SeriesSet

__all__ = ["load_variables", "read_mat", "variable_names"]

_FORM = "a cell data_all of structs with data (time x dims) and class"


def _checked_content(path: Path) -> bytes:
    """Return the bytes of a MATLAB file whose structure is sound."""
    try:
        with open(path, "rb", opener=plain_only) as handle:
            content = handle.read()
    except OSError as error:
        raise ReadError(path, f"cannot be opened: {error.strerror}; check the path and its permissions") from error
    check_release(path, content)
    try:
        check_structure(content)
    except Exception as error:
        raise _unreadable(path, error) from error
    return content


def _unreadable(path: Path, error: Exception) -> ReadError:
    return ReadError(path, f"cannot be read as a MATLAB file ({brief(error)}); fetch or save it again")


def variable_names(path: Path) -> list[str]:
    """Return the names of the variables of a MATLAB file (up to version 7)."""
    content = _checked_content(path)
    try:
        return [str(name) for name, _, _ in whosmat(BytesIO(content))]
    except Exception as error:  # as above
        raise _unreadable(path, error) from error


def load_variables(
    path: Path, required: Sequence[str], form: str, optional: Sequence[str] = ()
) -> dict[str, NDArray[Any]]:
    """Return variables of a MATLAB file (up to version 7).

    Parameters
    ----------
    path
        The file.
    required, optional
        Names of the variables that must, or may, be there.
    form
        What the file is expected to hold, for errors.
    """
    content = _checked_content(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)  # "returned data may be corrupt"
            variables = loadmat(BytesIO(content), variable_names=[*required, *optional])
    except Exception as error:  # damaged bytes end in any of a dozen kinds of exception inside scipy
        raise _unreadable(path, error) from error
    if not set(required) <= variables.keys():
        names = variable_names(path)
        raise ReadError(path, f"holds the variables {few_names(names)}; expected {form}")
    return {name: np.asarray(variables[name]) for name in (*required, *optional) if name in variables}


def _read_struct(cell: Any, path: Path, i: int) -> tuple[NDArray[np.float64], int]:
    """Return values and class number of one cell."""
    fields = getattr(cell, "dtype", np.dtype(float)).names or ()
    if not {"data", "class"} <= set(fields) or cell.size != 1:
        raise ReadError(path, f"data_all{{{i + 1}}} is no struct with data and class; expected {_FORM}")
    values, number = (np.asarray(cell[field].item()) for field in ("data", "class"))
    if values.ndim != 2 or not values.size or values.dtype.kind not in "fiub":
        raise ReadError(
            path,
            f"data_all{{{i + 1}}}.data has shape {values.shape} and type {values.dtype}; expected numbers, time x dims",
        )
    if not np.isfinite(values).all():
        raise ReadError(path, f"data_all{{{i + 1}}}.data has a NaN or infinite value; fill or remove it")
    if number.size != 1 or number.dtype.kind not in "fiu" or not float(number.item()).is_integer():
        raise ReadError(path, f"data_all{{{i + 1}}}.class is no whole number; number the classes 1, 2, ...")
    return values.astype(np.float64, copy=False), int(number.item())


def _class_names(array: NDArray[Any]) -> list[str] | None:
    """Return the strings of a char matrix or a cell of strings, None where it holds anything else."""
    items = [np.asarray(item) for item in array.ravel()]
    if not items or any(item.dtype.kind != "U" or item.size > 1 for item in items):
        return None
    return ["".join(item.ravel()).strip() for item in items]


def _labels(numbers: list[int], listed: NDArray[Any] | None, path: Path) -> list[str] | list[int]:
    """Return a name for each series where ``list_labels`` has names, else the class numbers."""
    if listed is None:
        return numbers
    names = _class_names(listed)
    if names is None:
        if listed.dtype.kind not in "fiu":
            raise ReadError(path, "list_labels holds neither names nor numbers; give one of them for each series")
        # numbers, one for each series: a second copy of `class`
        if listed.size == len(numbers) and listed.ravel().tolist() != numbers:
            raise ReadError(path, "list_labels and the class of the structs disagree; mend one of them")
        return numbers
    if len(names) == len(numbers):
        return names
    if not all(1 <= number <= len(names) for number in numbers):
        raise ReadError(
            path,
            f"list_labels has {len(names)} names for classes {min(numbers)} to {max(numbers)}; give one for "
            "each class, or one for each series",
        )
    return [names[number - 1] for number in numbers]


def read_mat(path: str | Path) -> SeriesSet:
    """Read a MATLAB file that holds a cell ``data_all`` of structs with ``data`` (time x dims) and ``class``.

    Parameters
    ----------
    path
        The file, of MATLAB version 7 or before.

    Returns
    -------
    SeriesSet
        Labels are the names in ``list_labels`` where it has names, one for each class or for each series;
        otherwise the class numbers. Ids are ``<file stem>/<index>``.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np
    >>> from scipy.io import savemat
    >>> cells = np.empty(2, dtype=object)
    >>> cells[:] = [{"data": np.zeros((5, 3)), "class": 1}, {"data": np.ones((8, 3)), "class": 2}]
    >>> with TemporaryDirectory() as folder:
    ...     savemat(Path(folder, "signs.mat"), {"data_all": cells})
    ...     data = read_mat(Path(folder, "signs.mat"))
    >>> data, data.labels.tolist()
    (SeriesSet('signs': 2 series, 3 dims, length 5..8, 2 classes), [1, 2])
    """
    path = Path(path)
    variables = load_variables(path, ["data_all"], _FORM, optional=["list_labels"])
    cells = variables["data_all"]
    if cells.dtype != object or not cells.size:
        raise ReadError(path, f"data_all has shape {cells.shape} and type {cells.dtype}; expected {_FORM}")
    series: list[NDArray[np.float64]] = []
    numbers: list[int] = []
    for i, cell in enumerate(cells.ravel()):
        values, number = _read_struct(cell, path, i)
        if series and values.shape[1] != series[0].shape[1]:
            raise ReadError(
                path,
                f"data_all{{{i + 1}}}.data has {values.shape[1]} dims but data_all{{1}}.data has "
                f"{series[0].shape[1]}; all series must have the same",
            )
        series.append(values)
        numbers.append(number)
    labels = _labels(numbers, variables.get("list_labels"), path)
    ids = [f"{path.stem}/{i}" for i in range(len(series))]
    return SeriesSet.from_list(series, labels, ids, name=path.stem)
