"""A matrix that is brought ready: every form that is read, and the words for a file that is none."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cksc_dist.commands.matrix_file import read_matrix
from cksc_dist.errors import ReadError

D = np.array([[0.0, 1.25, 2.0], [1.25, 0.0, 3.5], [2.0, 3.5, 0.0]])


@pytest.mark.parametrize(
    ("name", "save"),
    [
        ("d.npy", lambda path: np.save(path, D)),
        ("d.npz", lambda path: np.savez(path, D=D)),
        ("small.npz", lambda path: np.savez_compressed(path, D=D)),
        ("d.csv", lambda path: np.savetxt(path, D, delimiter=",")),
        ("d.txt", lambda path: np.savetxt(path, D)),
    ],
)
def test_every_form_gives_the_same_matrix(tmp_path: Path, name: str, save: Callable[[Path], None]) -> None:
    save(tmp_path / name)
    again = tmp_path / f"again{Path(name).suffix.upper()}"
    shutil.copy(tmp_path / name, again)
    for path in (tmp_path / name, again):
        values, labels, ids = read_matrix(path)
        np.testing.assert_array_equal(values, D)
        assert labels is None
        assert ids is None


def test_the_type_of_the_values_is_kept(tmp_path: Path) -> None:
    np.save(tmp_path / "d.npy", D.astype(np.float32))
    assert read_matrix(tmp_path / "d.npy")[0].dtype == np.float32


@pytest.mark.parametrize("y", [["walk", "run", "walk"], [3, -1, 3], [True, False, True]])
def test_labels_and_ids_come_with_npz(tmp_path: Path, y: list[Any]) -> None:
    np.savez(tmp_path / "d.npz", D=D, y=y, ids=[10, 20, 30])
    _, labels, ids = read_matrix(tmp_path / "d.npz")
    assert labels is not None
    assert ids is not None
    assert labels.tolist() == y
    assert ids.tolist() == ["10", "20", "30"]
    assert ids.dtype.kind == "U"


def test_a_single_row_of_text_is_a_matrix(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("0,1.5\n")
    assert read_matrix(tmp_path / "d.csv")[0].shape == (1, 2)


def damaged_npz(path: Path) -> bytes:
    np.savez_compressed(path, D=np.random.default_rng(0).random((30, 30)))
    return path.read_bytes()


def cut_npy(path: Path) -> None:
    np.save(path, D)
    path.write_bytes(path.read_bytes()[:-20])


def npy_called_npz(path: Path) -> None:
    np.save(path.with_suffix(".npy"), D)
    path.with_suffix(".npy").rename(path)


def npz_called_npy(path: Path) -> None:
    np.savez(path.with_suffix(".npz"), D=D)
    path.with_suffix(".npz").rename(path)


def cut(path: Path) -> None:
    path.write_bytes(damaged_npz(path)[:-40])


def flipped(path: Path) -> None:
    content = bytearray(damaged_npz(path))
    content[len(content) // 2] ^= 16
    path.write_bytes(content)


BROKEN: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "text as npy": ("d.npy", lambda path: path.write_text("0,1\n1,0\n")),
    "cut npy": ("d.npy", cut_npy),
    "empty npy": ("d.npy", lambda path: path.write_bytes(b"")),
    "objects as npy": ("d.npy", lambda path: np.save(path, np.array([[0, None]], object), allow_pickle=True)),
    "text as npz": ("d.npz", lambda path: path.write_text("D")),
    "cut npz": ("d.npz", cut),
    "flipped bit in npz": ("d.npz", flipped),
    "npy called npz": ("d.npz", npy_called_npz),
    "npz called npy": ("d.npy", npz_called_npy),
    "objects in npz": ("d.npz", lambda path: np.savez(path, D=np.array([[0, None]], object))),
    "words in csv": ("d.csv", lambda path: path.write_text("0,far\nfar,0\n")),
    "ragged csv": ("d.csv", lambda path: path.write_text("0,1\n1\n")),
    "semicolons in csv": ("d.csv", lambda path: path.write_text("0;1\n1;0\n")),
    "bytes in csv": ("d.csv", lambda path: path.write_bytes(bytes(range(256)))),
    "empty csv": ("d.csv", lambda path: path.write_text("")),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_file_is_named(tmp_path: Path, what: str) -> None:
    name, make = BROKEN[what]
    make(tmp_path / name)
    with pytest.raises(ReadError, match=rf"{name}: cannot be read as a matrix of numbers"):
        read_matrix(tmp_path / name)


def test_npz_without_the_matrix_says_what_it_has(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", distances=D, y=[1, 2, 3])
    with pytest.raises(ReadError, match=r"d\.npz: has no array D, only distances, y; save the distances as D$"):
        read_matrix(tmp_path / "d.npz")


def test_no_such_file_and_no_such_form(tmp_path: Path) -> None:
    words = r"does not exist, or is no file; give a matrix as \.npy, \.npz, \.csv or \.txt"
    for path in (tmp_path / "none.npy", tmp_path):
        with pytest.raises(ReadError, match=words):
            read_matrix(path)
    (tmp_path / "d.xlsx").write_text("0")
    with pytest.raises(ReadError, match=r"d\.xlsx: is in no form that a matrix is read from; give \.npy, \.npz"):
        read_matrix(tmp_path / "d.xlsx")
