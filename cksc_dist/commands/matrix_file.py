"""Reads a ready distance matrix: .npy, .npz (``D``, and where there are such ``y`` and ``ids``), .csv or .txt."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from cksc_dist.arrays import is_npy, load_npy, load_npz
from cksc_dist.errors import ReadError
from cksc_dist.series import label_array

__all__ = ["read_matrix"]


def read_matrix(path: Path) -> tuple[NDArray[Any], NDArray[Any] | None, NDArray[np.str_] | None]:
    """Return distances, labels and ids of a file; labels and ids are None where it has none."""
    if not path.is_file():
        raise ReadError(path, "does not exist, or is no file; give a matrix as .npy, .npz, .csv or .txt")
    kind = path.suffix.lower()
    if kind not in (".npy", ".npz", ".csv", ".txt"):
        raise ReadError(path, "is in no form that a matrix is read from; give .npy, .npz, .csv or .txt")
    try:
        if kind in (".csv", ".txt"):
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # of a file without numbers
                return np.loadtxt(path, delimiter="," if kind == ".csv" else None, ndmin=2), None, None
        with path.open("rb") as file:
            if is_npy(file) != (kind == ".npy"):
                raise ValueError(f"it is no {kind}, whatever its name says")
            return (load_npy(file), None, None) if kind == ".npy" else _from_archive(path, file)
    except ReadError:
        raise
    except (ValueError, OSError, EOFError, TypeError, UserWarning, MemoryError) as error:
        raise ReadError(path, f"cannot be read as a matrix of numbers: {error}") from error


def _from_archive(path: Path, file: BinaryIO) -> tuple[NDArray[Any], NDArray[Any] | None, NDArray[np.str_] | None]:
    content, names = load_npz(file, ("D", "y", "ids"))
    if "D" not in content:
        raise ReadError(path, f"has no array D, only {', '.join(names)[:200]}; save the distances as D")
    for name in content.keys() - {"D"}:
        if content[name].ndim != 1:
            raise ReadError(path, f"{name} has shape {content[name].shape}; give one of them for each row")
    labels = label_array(content["y"]) if "y" in content else None
    ids = content["ids"].astype(np.str_) if "ids" in content else None
    return content["D"], labels, ids
