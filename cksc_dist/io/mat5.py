"""The structure of a MATLAB 5 file, checked before SciPy reads it.

SciPy looks up a type by the number in a tag without checking it: one damaged byte can end the process instead
of raising. Here every tag is walked once: known types in their places, sizes within their parent, as many
cells and fields as the shape says. Compressed elements carry a checksum, which is checked on the way; what they unpack
to is counted before memory is taken for all of it, since SciPy unpacks it again. A shape must have its bytes: SciPy
fills text that is empty, and structs without fields, up to the shape that they declare.
"""

from __future__ import annotations

import math
import struct
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

from cksc_dist.arrays import places, room
from cksc_dist.errors import ReadError

__all__ = ["check_release", "check_structure"]

_HDF5 = b"\x89HDF\r\n\x1a\n"
_HEADER = 128
_INT8, _INT32, _UINT32, _MATRIX, _COMPRESSED, _UTF8 = 1, 5, 6, 14, 15, 16
_NUMBERS = frozenset({1, 2, 3, 4, 5, 6, 7, 9, 12, 13})
_LETTERS = _NUMBERS | {16, 17, 18}
_CELL, _STRUCT, _CHAR, _SPARSE = 1, 2, 4, 5
_NUMERIC_CLASSES = range(6, 16)
_FEW = 2**12
"""Entries that need no bytes: a side may be 0, and a struct may have no fields."""


def check_release(path: Path, content: bytes) -> None:
    """Refuse files of the releases before and after this format; of version 4, SciPy may read one without end."""
    release = "4" if 0 in content[:4] else "7.3 (HDF5)" if content.startswith((b"MATLAB 7.3", _HDF5)) else ""
    if release:
        raise ReadError(
            path, f"is a MATLAB {release} file, which is not supported; save it again with save(name, '-v7')"
        )


def check_structure(content: bytes, most: int = sys.maxsize) -> None:
    """Raise ValueError where the bytes of a MATLAB 5 file do not hold together, or unpack to too many."""
    order = {b"IM": "<", b"MI": ">"}.get(content[_HEADER - 2 : _HEADER])
    if order is None:
        raise ValueError("no MATLAB header")
    size, most = 0, min(most, room(len(content)))
    for code, body in _elements(memoryview(content)[_HEADER:], order):
        if code == _COMPRESSED:
            unpacked = _unpacked(body, most - size, most)
            size += len(unpacked)
            for inner, matrix in _elements(memoryview(unpacked), order):
                _require(inner == _MATRIX, "a compressed element that is no variable")
                _check_matrix(matrix, order)
        else:
            _require(code == _MATRIX, "an element that is no variable")
            _check_matrix(body, order)


def _unpacked(body: memoryview, room: int, most: int) -> bytes:
    """Return what a compressed element holds, unless it takes more than what is left of so many bytes."""
    unpack = zlib.decompressobj()
    content = unpack.decompress(body, room + 1)
    if len(content) > room:
        raise ValueError(
            f"it unpacks to more than {most:,} bytes; save it again without compression (-v6), or in parts"
        )
    _require(unpack.eof and not unpack.unused_data, "a compressed element that is cut short")
    return content


def _require(good: bool, found: str) -> None:
    if not good:
        raise ValueError(f"damaged: {found}")


def _elements(body: memoryview, order: str) -> Iterator[tuple[int, memoryview]]:
    """Yield type and data of the elements that stand one after the other."""
    at = 0
    while at < len(body):
        _require(at + 8 <= len(body), "a tag that is cut short")
        word, size = struct.unpack_from(f"{order}II", body, at)
        if word >> 16:  # up to four bytes of data inside the tag itself
            code, size, start = word & 0xFFFF, word >> 16, at + 4
            _require(size <= 4, "a short element that is too long")
            at += 8
        else:
            code, start = word, at + 8
            at = start + size + (0 if code == _COMPRESSED else -size % 8)
        _require(start + size <= len(body), "an element longer than what holds it")
        yield code, body[start : start + size]


def _check_matrix(body: memoryview, order: str) -> None:
    """Walk one variable, cell or field."""
    if not body:
        return  # an empty cell
    elements = list(_elements(body, order))
    codes = [code for code, _ in elements]
    head = len(codes) >= 3 and codes[0] == _UINT32 and codes[1] in (_INT32, _UINT32) and codes[2] in (_INT8, _UTF8)
    _require(head and len(elements[0][1]) == 8 and not len(elements[1][1]) % 4, "the head of a variable")
    (flags,) = struct.unpack_from(f"{order}I", elements[0][1])
    shape = struct.unpack(f"{order}{len(elements[1][1]) // 4}I", elements[1][1])
    _require(len(shape) >= 2, "a variable with fewer than two sides")  # of text without any, SciPy ends the process
    kind, is_complex = flags & 0xFF, bool(flags & 0x800)
    rest = elements[3:]
    if kind != _SPARSE:  # of which SciPy makes no more than its numbers
        count = places(shape)
        held = sum(len(data) for _, data in rest)
        _require(count <= max(_FEW, held), f"a shape of {count:,} entries with {held:,} bytes for them")
    if kind in _NUMERIC_CLASSES:
        good = len(rest) == 1 + is_complex and all(code in _NUMBERS for code, _ in rest)
        _require(good, "the numbers of a matrix")
    elif kind == _CHAR:
        _require(len(rest) == 1 and rest[0][0] in _LETTERS, "the letters of a text")
    elif kind == _CELL:
        _check_children(rest, math.prod(shape), order)
    elif kind == _STRUCT:
        good = len(rest) >= 2 and rest[0][0] == _INT32 and len(rest[0][1]) == 4 and rest[1][0] == _INT8
        _require(good, "the fields of a struct")
        (width,) = struct.unpack(f"{order}I", rest[0][1])
        _require(width > 0 and not len(rest[1][1]) % width, "the names of fields")
        _check_children(rest[2:], math.prod(shape) * (len(rest[1][1]) // width), order)
    elif kind == _SPARSE:  # rows, columns and values
        good = len(rest) == 3 + is_complex and all(code in _NUMBERS for code, _ in rest)
        _require(good, "the numbers of a sparse matrix")
    else:
        _require(all(code in _LETTERS | {_MATRIX} for code, _ in rest), "a type of data")
        for code, inner in rest:
            if code == _MATRIX:
                _check_matrix(inner, order)


def _check_children(children: list[tuple[int, memoryview]], count: int, order: str) -> None:
    _require(len(children) == count, f"{len(children)} cells or fields where the shape says {count}")
    for code, body in children:
        _require(code == _MATRIX, "a cell or field that is no variable")
        _check_matrix(body, order)
