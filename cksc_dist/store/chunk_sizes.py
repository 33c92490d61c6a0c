"""What an array of a store would take in memory, compared with the bytes that are there.

Zarr takes as much memory as metadata and the heads of chunks ask for, and a store may come from anybody: a few
kilobytes can ask for gigabytes. So every chunk is looked at when it is read, and before a large part of an array is
read, how much there is of it in files: a chunk that is not there stands for its fill value, however large it is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from cksc_dist.arrays import MOST_EMPTY, places

__all__ = ["Chunks", "check_chunk", "check_held", "chunk_count", "chunks_of", "taken"]

SMALL = 2**25
"""What takes less memory may be packed as well as can be."""
SWELLING = 255
"""So many bytes lz4, by which this package packs, makes of one at most."""
MOST_BEYOND = 2**22
"""So many values a chunk may have more than its array: small arrays have room to grow."""
ENTRY = 2**10
"""Bytes that Zarr takes for each chunk that it has to look for."""

_NUMBER = re.compile(r"(?:int|uint|float|complex)(8|16|32|64|128)")
_PACKINGS = ("blosc", "zstd")


class Chunks(NamedTuple):
    """What the metadata of an array says of each chunk."""

    values: int
    size: int | None
    """Bytes, unpacked; None for text."""
    packing: str


def chunks_of(key: str, metadata: dict[str, Any]) -> Chunks | None:
    """Return what the metadata of an array says of its chunks; None where it is damaged, which is for Zarr to tell."""
    kind = metadata.get("data_type")
    number = _NUMBER.fullmatch(kind) if isinstance(kind, str) else None
    if number is None and kind not in ("bool", "string"):
        raise ValueError(f"{key} asks for the type {kind!r:.50}, which is not used by this package")
    names = [codec.get("name") if isinstance(codec, dict) else codec for codec in metadata["codecs"]]
    packings = [name for name in names if name in _PACKINGS]
    if len(packings) > 1:
        raise ValueError(f"{key} asks for several codecs that unpack, which is not done by this package")
    # of packed text, nobody could tell how many pieces it says it has before they are made
    if ("vlen-utf8" in names) != (kind == "string") or (kind == "string" and packings):
        raise ValueError(f"{key} asks for packed text, or for numbers as text, which is not written by this package")
    try:
        hollow = 0 in metadata["shape"] and places(metadata["shape"]) > MOST_EMPTY
        values = math.prod(metadata["chunk_grid"]["configuration"]["chunk_shape"])
        size = None if kind == "string" else values * int(number[1] if number else 8) // 8
        larger = values - math.prod(metadata["shape"]) > MOST_BEYOND
    except (LookupError, TypeError):
        return None
    if hollow:  # no file tells how long its other sides are
        raise ValueError(f"{key} asks for the shape {metadata['shape']!r:.50}, which has no values but many places")
    if larger:  # whoever writes a part of a chunk takes memory for all of it
        raise ValueError(f"{key} asks for chunks of {values:,} values, far more than the array has")
    return Chunks(values, size, "".join(packings))


def check_chunk(key: str, chunks: Chunks, head: bytes, length: int) -> None:
    """Raise a ValueError for a chunk that asks for more memory than it can hold.

    Parameters
    ----------
    key
        Its name.
    chunks
        What metadata says of it.
    head, length
        Its first 18 bytes, and how many there are.

    Examples
    --------
    >>> check_chunk("a/c/0", Chunks(2**30, 2**33, "blosc"), bytes(18), 100)
    Traceback (most recent call last):
    ...
    ValueError: a/c/0 asks for 8,589,934,592 bytes of memory, which its 100 bytes cannot hold
    """
    room = SMALL + SWELLING * length
    asked = 8 * chunks.values if chunks.size is None else chunks.size
    told = _told(chunks, head)
    # memory for what a chunk says of itself is taken before that is compared with anything
    if asked > room or told > (room if chunks.size is None else max(SMALL, chunks.size)):
        raise ValueError(f"{key} asks for {max(asked, told):,} bytes of memory, which its {length:,} bytes cannot hold")


def _told(chunks: Chunks, head: bytes) -> int:
    """Return how large a chunk says that it is; a chunk that is not packed is as large as it is."""
    if chunks.packing == "blosc":
        return int.from_bytes(head[4:8], "little")
    if chunks.packing == "zstd":
        return _told_by_zstd(head)
    if chunks.size is None:  # text begins with the number of its pieces
        count = int.from_bytes(head[:4], "little")
        return 8 * count if count > chunks.values else 0
    return 0


def _told_by_zstd(head: bytes) -> int:
    """Return the size of what a frame of zstd unpacks to, by its head (RFC 8878, 3.1.1.1)."""
    if head[:4] != b"\x28\xb5\x2f\xfd" or len(head) < 6:
        return 0  # which it then is not
    flags = head[4]
    single = flags >> 5 & 1
    at = 5 + (1 - single) + (0, 1, 2, 4)[flags & 3]
    width = (single, 2, 4, 8)[flags >> 6]
    if not width:
        return 2**63  # it does not say, and may be as large as it likes
    return int.from_bytes(head[at : at + width], "little") + (256 if width == 2 else 0)


def chunk_count(shape: Sequence[int], chunks: Sequence[int]) -> int:
    """Return how many chunks an array of some shape has.

    Examples
    --------
    >>> chunk_count((8, 3), (5, 5)), chunk_count((0, 3), (5, 5))
    (2, 0)
    """
    return math.prod(-(-side // chunk) for side, chunk in zip(shape, chunks, strict=True))


def taken(array: Any, begin: int = 0, end: int | None = None) -> int:
    """Return the bytes that some rows of an array take while Zarr reads them."""
    if not array.shape:
        return int(array.dtype.itemsize)
    rows = len(range(*slice(begin, end).indices(array.shape[0])))
    sides, chunks = (rows, *array.shape[1:]), array.chunks
    entries = math.prod(-(-side // chunk) + 1 for side, chunk in zip(sides, chunks, strict=True))
    return int(math.prod(sides) * array.dtype.itemsize + ENTRY * entries)


def check_held(told: int, sizes: Callable[[], Iterable[int]]) -> None:
    """Raise a ValueError where what is about to be read takes more memory than its files can hold.

    Parameters
    ----------
    told
        Bytes that it takes (`taken`).
    sizes
        Gives the sizes of its files; asked for what is large alone, since there may be very many.
    """
    if told <= SMALL:
        return
    there = list(sizes())
    if told > SMALL + SWELLING * sum(there) + ENTRY * len(there):
        raise ValueError(f"it asks for {told:,} bytes of memory, which the {sum(there):,} of its files cannot hold")
