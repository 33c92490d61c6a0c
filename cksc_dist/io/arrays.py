"""Arrays in NumPy's own format, of files that are not trusted: .npy, and .npz, which is a zip archive of such.

Nothing is ever unpickled. What a header says about the size of its array is compared with the bytes that are there
before memory is taken, and text must be text: NumPy keeps any number as a letter, and Python fails on it much later.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any, BinaryIO
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

import numpy as np
import psutil
from numpy.typing import NDArray

from cksc_dist.series import is_text

__all__ = ["is_npy", "load_npy", "load_npz"]


def is_npy(handle: BinaryIO) -> bool:
    """Tell whether a file begins as a single array does."""
    found = handle.read(6) == b"\x93NUMPY"
    handle.seek(0)
    return found


def load_npy(handle: BinaryIO) -> NDArray[Any]:
    """Return the array of a .npy file; a ValueError says what is wrong with it."""
    try:
        return _load(handle, os.fstat(handle.fileno()).st_size)
    except Exception as error:  # damaged bytes end in any of a dozen kinds, of tokenize, ast and numpy
        raise ValueError(_words(error)) from error


def load_npz(handle: BinaryIO, keys: Sequence[str]) -> tuple[dict[str, NDArray[Any]], list[str]]:
    """Return those arrays of a .npz file that have one of the names, and the names of all that it holds."""
    try:
        with ZipFile(handle) as archive:
            members = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
            _check_memory(sum(members[key].file_size for key in keys if key in members))
            arrays = {}
            for key in keys:
                if key in members:
                    if members[key].compress_type not in (ZIP_STORED, ZIP_DEFLATED):
                        raise ValueError(f"{key} is packed in a way that NumPy does not know")
                    with archive.open(members[key]) as content:
                        arrays[key] = _load(content, members[key].file_size)
            return arrays, list(members)
    except Exception as error:  # of zipfile, zlib and lzma as well
        raise ValueError(_words(error)) from error


def _check_memory(size: int) -> None:
    """Raise a ValueError for what swells to more than memory holds: of zeros, a thousand bytes are packed into one."""
    free = psutil.virtual_memory().available
    if size > free // 2:
        raise ValueError(
            f"unpacked it takes {size:,} bytes, more than half of the {free:,} bytes of memory that are free"
        )


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__


def _load(handle: Any, size: int) -> NDArray[Any]:
    version = np.lib.format.read_magic(handle)
    read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read_header(handle)
    if dtype.hasobject:
        raise ValueError("it holds Python objects")
    told, there = math.prod(shape) * dtype.itemsize, size - handle.tell()
    if told != there:
        raise ValueError(f"its shape {shape} and type {dtype} take {told:,} bytes, but {there:,} are there")
    handle.seek(0)
    array: NDArray[Any] = np.lib.format.read_array(handle, allow_pickle=False)
    if not is_text(array):
        raise ValueError("it holds letters that are none")
    return array
