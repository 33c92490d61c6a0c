"""Reads a ready distance matrix: .npy, .npz (``D``, and where there are such ``y`` and ``ids``), .csv or .txt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cksc_dist.errors import ReadError
from cksc_dist.series import label_array

__all__ = ["read_matrix"]


def read_matrix(path: Path) -> tuple[NDArray[Any], NDArray[Any] | None, NDArray[np.str_] | None]:
    """Return distances, labels and ids of a file; labels and ids are None where it has none."""
    if not path.is_file():
        raise ReadError(path, "does not exist, or is no file; give a matrix as .npy, .npz, .csv or .txt")
    kind = path.suffix.lower()
    try:
        if kind == ".npz":
            with np.load(path, allow_pickle=False) as content:
                if "D" not in content:
                    raise ReadError(path, f"has no array D, only {', '.join(content.files)}; save the distances as D")
                labels = label_array(content["y"]) if "y" in content else None
                ids = content["ids"].astype(np.str_) if "ids" in content else None
                return content["D"], labels, ids
        if kind == ".npy":
            return np.load(path, allow_pickle=False), None, None
        if kind in (".csv", ".txt"):
            return np.loadtxt(path, delimiter="," if kind == ".csv" else None, ndmin=2), None, None
    except (ValueError, OSError, EOFError) as error:
        if isinstance(error, ReadError):
            raise
        raise ReadError(path, f"cannot be read as a matrix of numbers: {error}") from error
    raise ReadError(path, "is in no form that a matrix is read from; give .npy, .npz, .csv or .txt")
