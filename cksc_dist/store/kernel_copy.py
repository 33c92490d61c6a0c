"""The kernel of some rows of a matrix, written once row by row, for training on what does not fit in memory.

    kernels/<key>/about.json       what it is the kernel of, with delta
    kernels/<key>/rows.npy         the rows of the matrix, ascending
    kernels/<key>/strips/kernel/   (row, col) Zarr array of chunks (`STRIP`, n), not compressed, with crc32c
    kernels/<key>/sums/<strip>     the crc32c of a strip as it grows row by row, for rows that are read alone
    kernels/<key>/ridge-*.json     beta, once it has been computed for an alpha

A chunk is a strip of whole rows, so that a single row is one small read at a known place (from square chunks it would
take as many reads as there are chunks in a row). A strip is there or not: chunks appear whole. The checksum of a strip
is made row by row; with what it was before and after a row, that row is checked alone. The key names the matrix, the
series behind the rows, the rows and the settings of the kernel: a copy never serves for anything else.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import threading
from collections.abc import Callable
from dataclasses import asdict
from hashlib import sha256
from typing import Any

import google_crc32c
import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.codecs import Crc32cCodec

from cksc_dist.arrays import unpack_npy
from cksc_dist.errors import StoreError, brief
from cksc_dist.maths.memory import Scratch, page_aligned
from cksc_dist.spec import KernelSpec
from cksc_dist.store.folder import Folder
from cksc_dist.store.local_files import open_stored
from cksc_dist.store.manifest import differing, digests_of, listed_files

__all__ = ["KernelCopy", "copy_folder", "copy_key", "drop_copy", "find_copies"]

TOP = "kernels"

ARRAY = "strips/kernel"
"""In a group of its own, which xarray opens: it complains of other files in a group."""

STRIP = 64
"""Rows of a chunk: 5 MB at 20,000 samples in float32."""

SUMS = "sums"

CHECKSUM_BYTES = 4

MOST_OPEN = 256

ROW_BYTES = 48 * 2**20
"""Bytes of single rows that are kept: an alternation picks much the same rows as the one before."""

SMALL_BYTES = 128 * 2**20
"""A kernel of at most so many bytes is kept in memory by every process that reads it."""

Index = NDArray[np.int64]


def copy_key(fingerprint: str, digests: NDArray[np.uint8], rows: Index, kernel: KernelSpec, values: str = "") -> str:
    """Return the name of the copy: of a matrix, the digests of the series behind the rows, rows and settings.

    ``values`` is a digest of the distances themselves, where the series do not decide them.
    """
    about = {
        "values": values,
        "matrix": fingerprint,
        "series": hashlib.sha256(np.ascontiguousarray(digests[rows]).tobytes()).hexdigest(),
        "rows": hashlib.sha256(rows.astype("<i8").tobytes()).hexdigest(),
        "kernel": asdict(kernel),
    }
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:16]


def copy_folder(store: Folder, key: str) -> Folder:
    """Return where a copy is, or would be."""
    return store.below(f"{TOP}/{key}")


def find_copies(store: Folder) -> list[str]:
    """Return the keys of the copies in a store."""
    return store.names(TOP, folders_only=True)


def drop_copy(store: Folder, key: str) -> None:
    """Remove a copy, where there is one."""
    folder = copy_folder(store, key)
    folder.remove("about.json")  # first: what is left behind by a kill is no copy
    folder.remove_all()


class KernelCopy:
    """A kernel on disk, in strips of rows.

    Parameters
    ----------
    store
        The store.
    key
        Name of the copy (`copy_key`).
    """

    def __init__(self, store: Folder, key: str) -> None:
        self.store, self.key = store, key
        self.folder = copy_folder(store, key)
        self._strip = Scratch()
        self._lock, self._files = threading.Lock(), _OpenFiles()
        self._rows: dict[int, NDArray[Any]] = {}
        self._kept: dict[int, NDArray[Any]] = {}
        self._sums: dict[int, list[int]] = {}
        self._top = None if self.folder.local is None else str(self.folder.local)
        about = self.folder.read_json("about.json")
        if about is None:
            raise StoreError(f"{self.folder.url} is no kernel copy, or was dropped; run the same command again")
        try:
            self.n, self.delta, self.fingerprint = int(about["n"]), float(about["delta"]), str(about["matrix"])
            self.dtype: np.dtype[Any] = np.dtype(about["dtype"])
            self.factor = float(about["factor"])
            self.listed = listed_files(about.get("files", {}))
            # its diagonal alone takes memory: how many rows there are is not for one number to say
            if len(self.folder.read("rows.npy") or b"") < self.n * 8 or self.n < 1 or self.dtype.kind != "f":
                raise ValueError(f"{self.n} rows of type {self.dtype}, which {self.folder.url}/rows.npy does not hold")
        except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
            raise StoreError(
                f"{self.folder.url}/about.json does not describe a kernel copy ({brief(error)}); remove that folder, "
                "and run the same command again"
            ) from error
        self.diagonal = np.ones(self.n)  # of a Gaussian kernel

    @classmethod
    def create(
        cls, store: Folder, key: str, fingerprint: str, rows: Index, delta: float, factor: float, dtype: np.dtype[Any]
    ) -> KernelCopy:
        """Make an empty copy, or open the one that is there."""
        folder = copy_folder(store, key)
        if folder.read("about.json") is None:
            content = io.BytesIO()
            np.save(content, rows, allow_pickle=False)
            folder.write("rows.npy", content.getvalue(), durable=True)
            n = len(rows)
            zarr.create_array(
                folder.zarr(),
                name=ARRAY,
                shape=(n, n),
                chunks=(STRIP, n),
                dtype=dtype,
                compressors=[Crc32cCodec()],
                fill_value=np.nan,
                dimension_names=("row", "col"),
                overwrite=True,
            )
            about = {"matrix": fingerprint, "n": n, "dtype": dtype.name, "delta": delta, "factor": factor}
            own = [name for name in sorted(folder.files("")) if name.endswith(("zarr.json", "rows.npy"))]
            about["files"] = digests_of(folder, own)
            folder.write_json("about.json", about, durable=True)  # last: without it there is no copy
        return cls(store, key)

    @property
    def id(self) -> str:
        """What tells it from one of the same name that was dropped, to those who have that one open."""
        return self.delta.hex()

    @property
    def rows(self) -> Index:
        """Rows of the matrix, ascending."""
        content = self.folder.read("rows.npy")
        if content is None or sha256(content).hexdigest() != self.listed.get("rows.npy"):
            how = "lost" if content is None else "damaged"
            raise StoreError(f"{self.folder.url}/rows.npy is {how}; remove that folder, and run the same command again")
        try:
            rows: Index = unpack_npy(content)
        except ValueError as error:
            raise StoreError(
                f"{self.folder.url}/rows.npy holds no rows ({brief(error)}); remove that folder"
            ) from error
        return rows

    @property
    def edges(self) -> list[tuple[int, int]]:
        """First and last row of each strip."""
        return [(begin, min(begin + STRIP, self.n)) for begin in range(0, self.n, STRIP)]

    @property
    def nbytes(self) -> int:
        """Bytes of all values."""
        return self.n * self.n * int(self.dtype.itemsize)

    @property
    def is_small(self) -> bool:
        """Whether strips that have been read are kept."""
        return self.nbytes <= SMALL_BYTES

    @property
    def _chunk_bytes(self) -> int:
        return STRIP * self.n * int(self.dtype.itemsize) + CHECKSUM_BYTES

    @staticmethod
    def _chunk(strip: int) -> str:
        return f"{ARRAY}/c/{strip}/0"

    def missing(self) -> list[int]:
        """Return the numbers of the strips that are not there, or not whole."""
        there, sums = self.folder.files(f"{ARRAY}/c"), self.folder.files(SUMS)
        whole = (self._chunk_bytes, STRIP * CHECKSUM_BYTES)
        return [i for i in range(len(self.edges)) if (there.get(f"{i}/0"), sums.get(f"{i}")) != whole]

    def write_strip(self, number: int, values: NDArray[Any]) -> None:
        """Write a strip of rows; whole or not at all."""
        content = self._strip.array((self._chunk_bytes,), np.dtype(np.uint8))
        whole = content[:-CHECKSUM_BYTES].view(self.dtype).reshape(STRIP, self.n)
        whole[: len(values)], whole[len(values) :] = values, np.nan
        sums = _growing_checksums(whole)
        content[-CHECKSUM_BYTES:] = sums[-1:].view(np.uint8)
        self.folder.write(f"{SUMS}/{number}", sums.tobytes())
        self.folder.write(self._chunk(number), content.data)

    def strip(self, begin: int, end: int) -> NDArray[Any]:
        """Return rows ``begin .. end`` of one strip, with its checksum compared.

        Unless the kernel is small, the next strip that the same thread reads takes its place in memory.
        """
        number = begin // STRIP
        values = self._kept.get(number)
        if values is None:
            size = self._chunk_bytes
            content = page_aligned(size) if self.is_small else self._strip.array((size,), np.dtype(np.uint8))
            self._read_whole(number, lambda: self._read(number, 0, content) and _is_whole(content))
            values = content[:-CHECKSUM_BYTES].view(self.dtype).reshape(STRIP, self.n)
            if self.is_small:
                self._kept[number] = values
        return values[begin - number * STRIP : end - number * STRIP]

    def load(self) -> NDArray[Any]:
        """Return the whole kernel, which is then the caller's to keep."""
        whole: NDArray[Any] = page_aligned(self.nbytes).view(self.dtype).reshape(self.n, self.n)
        for begin, end in self.edges:
            whole[begin:end] = self.strip(begin, end)
            self._kept.clear()
        return whole

    def row(self, i: int) -> NDArray[Any]:
        """Return a single row, with its checksum compared: one small read, and the sums of its strip once."""
        if (strip := self._kept.get(i // STRIP)) is not None:
            kept: NDArray[Any] = strip[i % STRIP]
            return kept
        with self._lock:
            if i in self._rows:
                return self._rows[i]
        content = page_aligned(self.n * self.dtype.itemsize)
        self._read_whole(i // STRIP, lambda: self._read_row(i, content))
        values: NDArray[Any] = content.view(self.dtype)
        with self._lock:
            if (len(self._rows) + 1) * len(content) > ROW_BYTES and self._rows:
                # the newest: rows come in much the same order every alternation, so that the oldest is needed next
                self._rows.popitem()
            self._rows[i] = values
        return values

    def _read_whole(self, number: int, read: Callable[[], bool]) -> None:
        """Read something of a strip, or say that it is damaged.

        It is read twice: a strip that was damaged may have been made anew, and what is open here is the old one.
        """
        if read():
            return
        self._sums.pop(number, None)
        self._files.forget(f"{self._top}/{self._chunk(number)}")
        if not read():
            if self.folder.read("about.json") is None:
                raise StoreError(f"{self.folder.url} was dropped by another training; run the same command again")
            raise StoreError(
                f"strip {number} of the kernel copy {self.folder.url} is damaged or lost; run the same command again "
                "with --new-kernel"
            )

    def _read_row(self, i: int, content: NDArray[np.uint8]) -> bool:
        """Fill an array with a row; return whether its checksum is right."""
        number, place = divmod(i, STRIP)
        if not self._read(number, place * len(content), content) or (sums := self._sums_of(number)) is None:
            return False
        return bool(google_crc32c.extend(sums[place], content) == sums[place + 1])

    def _sums_of(self, number: int) -> list[int] | None:
        """Return the checksum of a strip before its first row and after each; None where they are lost."""
        found = self._sums.get(number)
        if found is None:
            content = self.folder.read(f"{SUMS}/{number}") or b""
            if len(content) != STRIP * CHECKSUM_BYTES:
                return None
            found = self._sums[number] = [0, *np.frombuffer(content, "<u4").tolist()]
        return found

    def _read(self, number: int, start: int, content: NDArray[np.uint8]) -> bool:
        """Fill an array with bytes of a chunk; return whether there were as many."""
        if self._top is None:
            found = self.folder.read_range(self._chunk(number), start, len(content))
            got = len(found)
            content[:got] = np.frombuffer(found, np.uint8)
        else:
            try:
                got = self._files.read(f"{self._top}/{self._chunk(number)}", start, content)
            except FileNotFoundError:
                return False
        return got == len(content)

    def faults(self) -> list[str]:
        """Read everything, and return what is damaged or missing."""
        bad = differing(self.folder, self.listed)
        bad += [name for name in self.folder.names("") if name.startswith("ridge-") and self._is_bad(name)]
        for number, (begin, _) in enumerate(self.edges):
            try:
                whole = self.strip(begin, begin + STRIP)
                if self.folder.read(f"{SUMS}/{number}") != _growing_checksums(whole).tobytes():
                    bad.append(f"{SUMS}/{number}")
            except StoreError:
                bad.append(self._chunk(number))
            self._kept.clear()
        return bad

    def _is_bad(self, name: str) -> bool:
        try:
            self.folder.read_json(name)
        except StoreError:
            return True
        return False

    def drop(self) -> None:
        """Remove the copy."""
        drop_copy(self.store, self.key)

    def ridge(self, name: str) -> Any:
        """Return what was kept of the ridge under a name; None: nothing."""
        return self.folder.read_json(f"ridge-{name}.json")

    def keep_ridge(self, name: str, value: Any) -> None:
        """Keep the ridge for the next training on the same kernel."""
        self.folder.write_json(f"ridge-{name}.json", value, durable=True)


class _OpenFiles:
    """Files that stay open: to open one for every row takes longer than to read the row."""

    def __init__(self) -> None:
        self._open: dict[str, int] = {}
        self._forgotten: list[int] = []
        self._lock = threading.Lock()

    def read(self, path: str, start: int, content: NDArray[np.uint8]) -> int:
        """Fill an array from a place in a file, and return how many bytes there were."""
        if not hasattr(os, "preadv"):
            with open_stored(path) as file:
                file.seek(start)
                return file.readinto(content.data)
        with self._lock:
            number = self._open.get(path)
            if number is None and len(self._open) < MOST_OPEN:
                number = self._open[path] = _number_of(path)
        own = _number_of(path) if number is None else number
        try:
            got = 0
            while got < len(content) and (more := os.preadv(own, [content.data[got:]], start + got)):
                got += more
            return got
        finally:
            if number is None:
                os.close(own)

    def forget(self, path: str) -> None:
        """Open a file anew when it is read next; the old one stays open, because another thread may be reading it."""
        with self._lock:
            if (number := self._open.pop(path, None)) is not None:
                self._forgotten.append(number)

    def __del__(self) -> None:
        for number in (*self._open.values(), *self._forgotten):
            os.close(number)


def _number_of(path: str) -> int:
    """Open a file, and return its number, which is the caller's to close."""
    with open_stored(path) as file:
        return os.dup(file.fileno())


def _is_whole(content: NDArray[np.uint8]) -> bool:
    """Tell whether a chunk ends in the checksum of what is before it."""
    found = np.array([google_crc32c.value(content[:-CHECKSUM_BYTES])], "<u4").view(np.uint8)
    return np.array_equal(found, content[-CHECKSUM_BYTES:])


def _growing_checksums(rows: NDArray[Any]) -> NDArray[np.uint32]:
    """Return the crc32c of the first row, of the first two, and so on; the last one is that of all."""
    found, last = np.empty(len(rows), "<u4"), 0
    for number, row in enumerate(rows):
        found[number] = last = google_crc32c.extend(last, row)
    return found
