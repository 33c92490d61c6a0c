"""Ways to spoil good files: of bytes, of JSON, and of names. Every choice comes from a seeded generator."""

from __future__ import annotations

import io
import re
import struct
import zipfile
from collections.abc import Sequence
from functools import cache
from random import Random
from typing import Any
from warnings import catch_warnings, simplefilter

import google_crc32c
import numpy as np
import zarr
from numcodecs import Zstd
from zarr.codecs import BloscCodec, ZstdCodec

__all__ = [
    *("NAMES", "NUMBERS", "VAST", "bomb_npz", "hollow_array", "long_header", "mat_variable", "spoil", "spoil_json"),
    *("swell_array", "swell_text", "vast_variable", "zipped"),
]

SWOLLEN = 2**28
"""Bytes that a bomb unpacks to."""

NAMES = (
    *("../../x", "/cksc-fuzz-outside", "..", ".", "", " ", "a/../../b", "./x", "~/x", "$HOME", "%2e%2e/x", "x" * 300),
    *("C:\\x", "..\\..\\x", "\\\\host\\share", "con", "a\nb", "a\rb", "a\0b", "a\0", "\0", "\x1b[2J", "\u202e"),
    *("😀", "é", "e\u0301", "\ud800", "\udcff", "-x", "--debug", "x" * 5000, "zarr.json", "lock.json", "?", "*", "a.b"),
)
"""Names that have been paths, commands or the end of a program elsewhere."""

NUMBERS = (
    *("0", "-0", "-1", "1", "2", "3", "127", "128", "255", "256", "65535", "65536", "2147483647", "2147483648"),
    *("4294967295", "4294967296", "9223372036854775807", "-9223372036854775808", "18446744073709551616", "1" * 30),
    *("1e308", "1e309", "-1e308", "1e-320", "5e-324", "nan", "NaN", "inf", "-inf", "0x10", "1_0", "1.", ".5", "1e"),
    *("9" * 5000, "٣", "0" * 400 + "1", "1e-99999", "true", "null", "None"),
)
VAST = (
    *((10**7, 0, 3), (10**12, 0, 3), (0, 10**7), (10**7, 0), (2**40, 0), (0, 2**40), (3 * 10**8,), (2**16, 0), (0, 3)),
    *((10**5, 10**5), (2**31, 2**31), (2**62, 0, 2**62), (1, 10**9), (2**16 + 1, 0)),
)
"""Shapes of much, some of which take no bytes at all."""
_DIGITS = re.compile(rb"\d+")
_WORDS = (b"\0", b"\xff", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\n", b"\r", b"\xef\xbb\xbf", b"\xe2\x80\xa8")
_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 3, 16, 10**6, 2**31, 2**40, 2**63, 10**30, 0.0, -0.5, 0.5, 1e308, float("nan")),
    *(float("inf"), "", "x", [], {}, [[]], [1, 2], {"a": 1}, [None], ["float64"], "float64", "int64", "|O", "<U4"),
)


def spoil(rng: Random, content: bytes, tokens: Sequence[bytes] = (), others: Sequence[bytes] = ()) -> bytes:
    """Return content with one to six faults; now and then as it is."""
    for _ in range(rng.choice((0, 1, 1, 1, 2, 2, 3, 6))):
        content = _spoil_once(rng, content, tokens, others)
    return content[: 2**20]


def _spoil_once(rng: Random, content: bytes, tokens: Sequence[bytes], others: Sequence[bytes]) -> bytes:
    size = len(content)
    at = rng.randrange(size + 1)
    end = min(size, at + rng.choice((1, 1, 2, 4, 8, rng.randrange(64) + 1, rng.randrange(size + 1))))
    kind = rng.randrange(12)
    if kind == 0 and size:
        at = min(at, size - 1)
        return content[:at] + bytes([content[at] ^ (1 << rng.randrange(8))]) + content[at + 1 :]
    if kind == 1 and size:
        return content[:at] + bytes([rng.randrange(256)]) + content[at + 1 :]
    if kind == 2:
        return content[:at] + content[end:]
    if kind == 3:
        return content[:at]
    if kind == 4:
        return content[:end] + content[at:end] * rng.choice((1, 1, 2, 30)) + content[end:]
    if kind == 5:
        return content[:at] + rng.randbytes(rng.choice((1, 2, 4, 8, 40))) + content[at:]
    if kind == 6 and others:
        other = rng.choice(others)
        return content[:at] + other[rng.randrange(len(other) + 1) :]
    if kind == 7:
        numbers = list(_DIGITS.finditer(content[:4096]))
        if numbers:
            place = rng.choice(numbers)
            return content[: place.start()] + rng.choice(NUMBERS).encode() + content[place.end() :]
    if kind == 8:
        lines = content.split(b"\n")
        one, two = rng.randrange(len(lines)), rng.randrange(len(lines))
        lines[one], lines[two] = lines[two], lines[one]
        return b"\n".join(lines)
    if kind == 9:
        return content[:at] + rng.choice(NAMES).encode("utf-8", "surrogatepass") + content[at:]
    if kind == 10:
        return content[:at] + rng.choice(_WORDS) + content[min(size, at + rng.choice((0, 1, 4))) :]
    token = rng.choice(tokens) if tokens else rng.choice(NUMBERS).encode()
    return content[:at] + token + content[rng.choice((at, end)) :]


def spoil_json(rng: Random, value: Any) -> Any:
    """Return a value of JSON with another value, key or depth somewhere inside."""
    if rng.random() < 0.02:
        return _deep(rng.choice((5, 200, 900)))
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(sorted(value))
        kind = rng.randrange(12)
        if kind == 0:
            return {name: each for name, each in value.items() if name != key}
        if kind == 1:
            return value | {rng.choice(NAMES): value[key]}
        if kind == 2:
            return {(rng.choice(NAMES) if name == key else name): each for name, each in value.items()}
        return value | {key: spoil_json(rng, value[key])}
    if isinstance(value, list) and value and rng.random() < 0.8:
        at = rng.randrange(len(value))
        kind = rng.randrange(6)
        if kind == 0:
            return value[:at] + value[at + 1 :]
        if kind == 1:
            return value + [value[at]] * rng.choice((1, 2, 100))
        return [*value[:at], spoil_json(rng, value[at]), *value[at + 1 :]]
    if isinstance(value, str) and rng.random() < 0.6:
        return rng.choice(NAMES)
    if isinstance(value, int) and not isinstance(value, bool) and rng.random() < 0.5:
        return rng.choice((value + 1, value - 1, -value, value * 2, value * 10**9, float(value), str(value)))
    return rng.choice(_VALUES)


def _deep(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


def zipped(members: Sequence[tuple[str, bytes]], packing: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Return a zip archive."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", packing) as archive, catch_warnings():
        simplefilter("ignore")  # of two members of one name
        for name, inner in members:
            archive.writestr(zipfile.ZipInfo(name), inner, compress_type=packing)
    return content.getvalue()


def long_header(length: int, there: int | None = None) -> bytes:
    """Return an array in NumPy's format with a header of blanks, not all of which need be there."""
    return b"\x93NUMPY\x02\x00" + length.to_bytes(4, "little") + b" " * (length if there is None else there)


def mat_variable(name: str, kind: int, shape: Sequence[int], *elements: tuple[int, bytes]) -> bytes:
    """Return a variable of a MATLAB 5 file: its class, its shape, and type and bytes of each element."""
    head = ((6, struct.pack("<II", kind, 0)), (5, struct.pack(f"<{len(shape)}I", *shape)), (1, name.encode()))
    body = b"".join(_element(code, data) for code, data in (*head, *elements))
    return _element(14, body)


def _element(code: int, data: bytes) -> bytes:
    return struct.pack("<II", code, len(data)) + data + bytes(-len(data) % 8)


def vast_variable(rng: Random, names: Sequence[str]) -> bytes:
    """Return a variable of a MATLAB 5 file with a shape that little or nothing is there for."""
    kind = rng.choice((1, 2, 3, 4, 4, 4, 5, 6, 9, 16, rng.randrange(20)))
    texts = [(rng.choice((1, 2, 4, 16, 17, 18)), rng.choice((b"", b"a", b"abcd")))]
    structs = [(5, struct.pack("<I", 32)), (1, rng.choice((b"", b"a" + bytes(31))))]
    elements = {1: [], 2: structs, 3: [(1, b"name"), *structs], 4: texts, 5: [(5, b""), (5, bytes(8)), (9, b"")]}
    shape = [min(side, 2**32 - 1) for side in rng.choice(VAST)]
    return mat_variable(rng.choice(names), kind, shape, *elements.get(kind, [(9, rng.choice((b"", bytes(8))))]))


@cache
def bomb_npz(*names: str, dtype: str = "uint8", sides: tuple[int, ...] = ()) -> bytes:
    """Return an archive of zeros, packed to a thousandth."""
    content = io.BytesIO()
    side = round((SWOLLEN / np.dtype(dtype).itemsize / 4) ** 0.5)
    zeros = np.zeros(sides or (4, side, side), dtype)
    np.savez_compressed(content, **{name: zeros if name != "y" else zeros[:, 0, 0] for name in names})  # type: ignore[arg-type]
    return content.getvalue()


@cache
def _packed_zeros(codec: str) -> bytes:
    """Return a chunk of Zarr."""
    codecs: Any = {"zstd": ZstdCodec(level=1), "blosc": BloscCodec(cname="zstd", typesize=8)}[codec]
    store: dict[str, Any] = {}
    array = zarr.create_array(
        store, shape=(SWOLLEN // 8,), chunks=(SWOLLEN // 8,), dtype="float64", compressors=[codecs]
    )
    array.with_config({"write_empty_chunks": True})[...] = 0.0
    return bytes(store["c/0"].to_bytes())


def swell_array(rng: Random, metadata: dict[str, Any]) -> tuple[dict[str, Any], bytes | None]:
    """Return metadata of a Zarr array that asks for much memory, and a chunk of so many zeros; None: no chunk."""
    sides = [SWOLLEN // 8, *(1 for _ in metadata["shape"][1:])]
    codec = rng.choice(("zstd", "blosc"))
    metadata["chunk_grid"]["configuration"]["chunk_shape"] = sides
    if rng.random() < 0.5:
        metadata["shape"] = sides
    settings: dict[str, dict[str, Any]] = {
        "zstd": {"level": 1, "checksum": False},
        "blosc": {"cname": "zstd", "clevel": 5, "shuffle": "noshuffle", "typesize": 8, "blocksize": 0},
    }
    metadata["codecs"] = [
        {"name": "bytes", "configuration": {"endian": "little"}},
        {"name": codec, "configuration": settings[codec]},
    ]
    metadata["data_type"], metadata["fill_value"] = "float64", 0.0
    return metadata, _packed_zeros(codec) if rng.random() < 0.8 else None


def swell_text(rng: Random, metadata: dict[str, Any]) -> tuple[dict[str, Any], bytes | None]:
    """Return metadata of a Zarr array of text, and a chunk that says it has very many pieces."""
    chunk = rng.choice((2**20, 5 * 10**8, 2**31 - 1, 2**32 - 1)).to_bytes(4, "little") + b"\1\0\0\0a" * rng.randrange(3)
    packing = rng.choice(("", "crc32c", "zstd"))
    if packing == "crc32c":
        chunk += google_crc32c.value(chunk).to_bytes(4, "little")
    elif packing == "zstd":
        chunk = bytes(Zstd().encode(chunk))
    settings = {"configuration": {"level": 1, "checksum": False}} if packing == "zstd" else {}
    metadata["codecs"] = [{"name": "vlen-utf8"}, *([{"name": packing, **settings}] if packing else [])]
    if rng.random() < 0.8:  # otherwise numbers are read as text
        metadata["data_type"], metadata["fill_value"] = "string", ""
    if rng.random() < 0.3:
        metadata["chunk_grid"]["configuration"]["chunk_shape"] = [2**20, *(1 for _ in metadata["shape"][1:])]
    return metadata, chunk


def hollow_array(rng: Random, metadata: dict[str, Any]) -> tuple[dict[str, Any], bytes | None]:
    """Return metadata of a Zarr array with sides of 0 beside very long ones."""
    sides = [rng.choice((0, 1, 10**7, 10**12, 2**62)) for _ in metadata["shape"]]
    metadata["shape"] = sides
    if rng.random() < 0.7:
        metadata["chunk_grid"]["configuration"]["chunk_shape"] = [max(1, side) for side in sides]
    return metadata, None
