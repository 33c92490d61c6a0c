from __future__ import annotations

import struct
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import savemat

from cksc_dist.errors import ReadError
from cksc_dist.io import read_mat
from cksc_dist.io.mat5 import check_structure


def saved(variables: dict[str, Any], **options: Any) -> bytes:
    stream = BytesIO()
    savemat(stream, variables, **options)
    return stream.getvalue()


def cell(*items: Any) -> np.ndarray[Any, Any]:
    out = np.empty(len(items), dtype=object)
    out[:] = items
    return out


SIGNS = {"data_all": cell({"data": np.eye(3), "class": 1}, {"data": np.eye(3), "class": 2})}


@pytest.mark.parametrize("options", [{}, {"do_compression": True}], ids=str)
def test_numbers(options: dict[str, Any]) -> None:
    check_structure(saved({"a": np.eye(3), "b": np.arange(5), "c": np.eye(2) * 1j}, **options))


@pytest.mark.parametrize("value", ["text", "", cell("a", cell()), {"x": 1, "y": {"z": "w"}}, SIGNS["data_all"]])
def test_texts_cells_and_structs(value: Any) -> None:
    check_structure(saved({"value": value}))
    check_structure(saved({"value": value}, do_compression=True))


def element(code: int, data: bytes) -> bytes:
    return struct.pack("<II", code, len(data)) + data + b"\0" * (-len(data) % 8)


def matrix(kind: int, shape: tuple[int, ...], *parts: bytes) -> bytes:
    head = element(6, struct.pack("<II", kind, 0)) + element(5, struct.pack(f"<{len(shape)}I", *shape))
    return element(14, head + element(1, b"name") + b"".join(parts))


def file_of(*parts: bytes) -> bytes:
    return b"MATLAB 5.0".ljust(124) + b"\x00\x01IM" + b"".join(parts)


NUMBER = matrix(6, (1, 1), element(9, bytes(8)))
NAMES = (element(5, struct.pack("<I", 2)), element(1, b"x\0y\0"))


def test_files_made_by_hand_hold_together() -> None:
    check_structure(file_of(NUMBER, matrix(1, (1, 2), NUMBER, NUMBER), matrix(2, (1, 1), *NAMES, NUMBER, NUMBER)))
    check_structure(file_of(matrix(0x806, (1, 1), element(9, bytes(8)), element(9, bytes(8)))))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"MATL", "no MATLAB header"),
        (file_of(b"\x0e\0\0\0"), "a tag that is cut short"),
        (file_of(NUMBER[:-8]), "an element longer than what holds it"),
        (file_of(element(9, bytes(8))), "an element that is no variable"),
        (file_of(struct.pack("<II", 14 | 5 << 16, 0)), "a short element that is too long"),
        (file_of(element(14, element(9, bytes(8)))), "the head of a variable"),
        (file_of(matrix(6, (1, 1), element(14, b""))), "the numbers of a matrix"),
        (file_of(matrix(6, (1, 1), element(99, bytes(8)))), "the numbers of a matrix"),
        (file_of(matrix(0x806, (1, 1), element(9, bytes(8)))), "the numbers of a matrix"),
        (file_of(matrix(4, (1, 1), element(0, b"a"))), "the letters of a text"),
        (file_of(matrix(1, (1, 3), NUMBER)), "1 cells or fields where the shape says 3"),
        (file_of(matrix(1, (1, 1), element(9, bytes(8)))), "a cell or field that is no variable"),
        (file_of(matrix(2, (1, 1))), "the fields of a struct"),
        (file_of(matrix(2, (1, 1), element(5, bytes(4)), NAMES[1])), "the names of fields"),
        (file_of(matrix(2, (1, 1), *NAMES, NUMBER)), "1 cells or fields where the shape says 2"),
        (file_of(matrix(99, (1, 1), element(99, bytes(8)))), "a type of data"),
        (file_of(matrix(99, (1, 1), matrix(6, (1, 1), element(99, bytes(8))))), "the numbers of a matrix"),
        (file_of(matrix(5, (1, 2), NUMBER, NUMBER)), "the numbers of a sparse matrix"),
        (file_of(matrix(4, (), element(16, b"right"))), "a variable with fewer than two sides"),
        (file_of(matrix(6, (3,), element(9, bytes(24)))), "a variable with fewer than two sides"),
    ],
)
def test_damage_is_named(content: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        check_structure(content)


@pytest.mark.parametrize("compressed", [False, True])
def test_no_damaged_byte_ends_the_process(tmp_path: Path, compressed: bool) -> None:
    file = tmp_path / "signs.mat"
    good = saved(SIGNS, do_compression=compressed)
    refused = 0
    for at in range(128, len(good)):
        file.write_bytes(good[:at] + bytes([good[at] ^ 0x0F]) + good[at + 1 :])
        try:
            read_mat(file)
        except ReadError:
            refused += 1
    assert refused > 100
