"""Arrays in NumPy's own format, of files that are not trusted: .npy, and .npz, which is a zip archive of such.

The only reader of this format in the package. Nothing is ever unpickled. What a file says about its own size is
compared with the bytes that are there before memory is taken: the length of a header, which NumPy reads before it looks
how long it is, the shape of an array, also of one without any bytes, and what an archive unpacks to. Text must be text:
NumPy keeps any number as a letter, and Python fails on it much later.
"""

from __future__ import annotations

import io
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, NamedTuple, TypeVar
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

import numpy as np
from numpy.typing import NDArray

from cksc_dist.machine import free_memory
from cksc_dist.series import is_text

__all__ = [
    "MOST_EMPTY",
    "Header",
    "Npz",
    "check_swelling",
    "is_npy",
    "load_npy",
    "load_npz",
    "places",
    "read_array",
    "read_header",
    "room",
    "unpack_npy",
    "unpack_npz",
]

MOST_HEADER = 2**16
"""Bytes of a header; NumPy writes some hundred."""
SMALL = 2**25
"""What takes less memory is no bomb, however well it was packed. The same on every machine: so is what is refused."""
SWELLING = 20
"""So many times its size a file may unpack to: measured values are packed to half or a third."""
SERIES = 2**7
"""Bytes that an entry of the first axis takes beside its values: an id and a label."""
MOST_EMPTY = 2**16
"""Places of an array without bytes, which any shape with a side of 0 and any type of no width have."""

ATTEMPTS = 10

Result = TypeVar("Result")


class Header(NamedTuple):
    """What the header of an array tells."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def size(self) -> int:
        """Bytes of the array."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def taken(self) -> int:
        """Bytes that it takes in memory, where numbers become float64, and what is on the first axis gets a name."""
        return math.prod(self.shape) * max(8, self.dtype.itemsize) + SERIES * sum(self.shape[:1])


def places(shape: Iterable[int]) -> int:
    """Return the entries of an array, as if no side were 0: whoever walks along another side takes as many steps.

    Examples
    --------
    >>> places((4, 3)), places((10**9, 0)), places(())
    (12, 1000000000, 1)
    """
    return math.prod(max(1, side) for side in shape)


def is_npy(handle: BinaryIO) -> bool:
    """Tell whether a file begins as a single array does."""
    found = handle.read(6) == np.lib.format.MAGIC_PREFIX
    handle.seek(0)
    return found


def read_header(handle: Any) -> Header:
    """Return what the header of an array tells, and leave the handle at the first byte behind it."""
    begin = handle.read(np.lib.format.MAGIC_LEN)
    version = np.lib.format.read_magic(io.BytesIO(begin))
    width = 2 if version == (1, 0) else 4
    told = handle.read(width)
    length = int.from_bytes(told, "little")
    if length > MOST_HEADER:
        raise ValueError(f"its header says that it is {length:,} bytes long, more than {MOST_HEADER:,}")
    header = told + handle.read(length)
    read = np.lib.format.read_array_header_1_0 if width == 2 else np.lib.format.read_array_header_2_0
    shape, _, dtype = _beside_others(lambda: read(io.BytesIO(header)))
    return Header(shape, dtype)


def _beside_others(read: Callable[[], Result]) -> Result:
    """Read a header; again where Python 3.11 counts wrong because another thread reads one, too: no damage."""
    for _ in range(ATTEMPTS - 1):
        with suppress(SystemError):
            return read()
    return read()


def read_array(handle: Any, size: int) -> NDArray[Any]:
    """Return the array of a file of so many bytes, which is read from its beginning."""
    handle.seek(0)
    header = read_header(handle)
    if header.dtype.hasobject:
        raise ValueError("it holds Python objects")
    if header.dtype.subdtype is not None:  # which adds sides to the shape
        raise ValueError("its type is an array of its own")
    there = size - handle.tell()
    if header.size != there:
        raise ValueError(
            f"its shape {header.shape} and type {header.dtype} take {header.size:,} bytes, but {there:,} are there"
        )
    if not header.size and places(header.shape) > MOST_EMPTY:
        raise ValueError(
            f"its shape {header.shape} and type {header.dtype} have {places(header.shape):,} places for no bytes at "
            f"all, more than {MOST_EMPTY:,}"
        )

    def read() -> NDArray[Any]:
        handle.seek(0)
        found: NDArray[Any] = np.lib.format.read_array(handle, allow_pickle=False)
        return found

    array = _beside_others(read)
    if not is_text(array):
        raise ValueError("it holds letters that are none")
    return array


class Npz:
    """An archive of arrays.

    Parameters
    ----------
    handle
        The file.

    Examples
    --------
    >>> content = io.BytesIO()
    >>> np.savez(content, x=np.arange(3), y=np.array(["a"]))
    >>> archive = Npz(content)
    >>> [name for name, _ in archive.headers()], archive.read("x")
    (['x', 'y'], array([0, 1, 2]))
    """

    def __init__(self, handle: BinaryIO) -> None:
        self._packed = _size(handle)
        self._archive = ZipFile(handle)
        self.names = [each.filename.removesuffix(".npy") for each in self._archive.infolist()]
        self._members = dict(zip(self.names, self._archive.infolist(), strict=True))

    def headers(self, names: Sequence[str] | None = None) -> list[tuple[str, Header]]:
        """Return names of arrays, all by default, with what their headers tell; a name may be there twice."""
        found = []
        for name, member in zip(self.names, self._archive.infolist(), strict=True):
            if name in names if names is not None else member.filename.endswith(".npy"):
                if member.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
                    raise ValueError(f"{member.filename} is packed in a way that NumPy does not know")
                with self._archive.open(member) as content:
                    found.append((name, read_header(content)))
        return found

    def check(self, names: Sequence[str]) -> None:
        """Raise a ValueError where some arrays swell as no data does."""
        size = self.size(names)
        if size > self._packed:  # what is not packed takes as much as it brings
            check_swelling(size, self._packed, sum(header.taken for _, header in self.headers(names)))

    def size(self, names: Sequence[str]) -> int:
        """Return the bytes of some arrays, unpacked."""
        return sum(self._members[name].file_size for name in names)

    def read(self, name: str) -> NDArray[Any]:
        """Return an array."""
        member = self._members[name]
        with self._archive.open(member) as content:
            return read_array(content, member.file_size)


def room(packed: int) -> int:
    """Return how many bytes a file of some may unpack to."""
    return max(SMALL, SWELLING * packed)


def check_swelling(size: int, packed: int, taken: int = 0) -> None:
    """Raise a ValueError for what swells as no data does: of zeros, a thousand bytes are packed into one.

    ``taken`` is what it takes in memory, where each byte may become a float64.
    """
    if size > room(packed) or taken > room(8 * packed):
        raise ValueError(
            f"its {packed:,} bytes unpack to {size:,}, more than {SWELLING} times as many, and take "
            f"{max(size, taken):,} in memory, more than {SMALL:,}; write it again without compression"
        )


def load_npy(handle: BinaryIO) -> NDArray[Any]:
    """Return the array of a .npy file; a ValueError says what is wrong with it."""
    with _named():
        return read_array(handle, _size(handle))


def load_npz(handle: BinaryIO, keys: Sequence[str]) -> tuple[dict[str, NDArray[Any]], list[str]]:
    """Return those arrays of a .npz file that have one of the names, and the names of all that it holds."""
    with _named():
        archive = Npz(handle)
        wanted = [key for key in keys if key in archive.names]
        size, free = archive.size(wanted), free_memory()
        if size > free // 2:
            raise ValueError(
                f"unpacked it takes {size:,} bytes, more than half of the {free:,} bytes of memory that are free"
            )
        archive.check(wanted)
        return {name: archive.read(name) for name in wanted}, archive.names


def unpack_npy(content: bytes) -> NDArray[Any]:
    """Return the array of a .npy file that this package wrote; a ValueError says that it is damaged."""
    with _named():
        return read_array(io.BytesIO(content), len(content))


def unpack_npz(content: bytes) -> dict[str, NDArray[Any]]:
    """Return the arrays of a .npz file that this package wrote; a ValueError says that it is damaged."""
    with _named():
        archive = Npz(io.BytesIO(content))
        if archive.size(archive.names) > len(content):
            raise ValueError("it is packed, as this package never does")
        return {name: archive.read(name) for name in archive.names}


@contextmanager
def _named() -> Iterator[None]:
    try:
        yield
    except MemoryError:
        raise  # what is there is more than memory holds, which is no damage
    except Exception as error:  # damaged bytes end in any of a dozen kinds, of tokenize, ast, numpy, zipfile and zlib
        raise ValueError(str(error) or type(error).__name__) from error


def _size(handle: BinaryIO) -> int:
    size = handle.seek(0, os.SEEK_END)
    handle.seek(0)
    return size
