from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.io import savemat

from cksc_dist.errors import ReadError
from cksc_dist.io import read, read_mat
from tests.faults.mutators import mat_variable
from tests.memory import little_memory


def cell(items: Sequence[Any]) -> NDArray[Any]:
    out = np.empty(len(items), dtype=object)
    out[:] = items
    return out


def signs(numbers: Sequence[int], dims: int = 2) -> NDArray[Any]:
    return cell([{"data": np.full((3 + i, dims), float(i)), "class": n} for i, n in enumerate(numbers)])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "signs.mat"


def test_numbers_are_labels_without_names(file: Path) -> None:
    savemat(file, {"data_all": signs([2, 1, 2]), "list_labels": np.array([2, 1, 2], dtype=np.uint8)})
    data = read_mat(file)
    assert data.labels.tolist() == [2, 1, 2]
    assert data.labels.dtype.kind == "i"
    assert data.lengths.tolist() == [3, 4, 5]
    assert data.ids.tolist() == ["signs/0", "signs/1", "signs/2"]
    assert data[2].tolist() == [[2.0, 2.0]] * 5


@pytest.mark.parametrize(
    ("listed", "labels"),
    [
        (cell(["no ball", "six"]), ["six", "no ball", "six"]),
        (np.array(["four", "six"]), ["six", "four", "six"]),
        (cell(["x", "y", "z"]), ["x", "y", "z"]),
    ],
    ids=["cell for each class", "char matrix", "cell for each series"],
)
def test_names_are_labels(file: Path, listed: NDArray[Any], labels: list[str]) -> None:
    savemat(file, {"data_all": signs([2, 1, 2]), "list_labels": listed})
    assert read_mat(file).labels.tolist() == labels


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        (
            {"alldistances": np.eye(2), "k": 1},
            "holds the variables alldistances, k; expected a cell data_all",
        ),
        ({"data_all": np.eye(2)}, r"data_all has shape \(2, 2\) and type float64; expected a cell"),
        ({"data_all": cell([np.eye(2)] * 2)}, r"data_all\{1\} is no struct with data and class"),
        ({"data_all": cell([{"data": 1, "class": 1}, {"data": 1}])}, r"data_all\{2\} is no struct"),
        (
            {"data_all": cell([{"data": "x", "class": 1}] * 2)},
            r"data_all\{1\}.data has shape .* expected numbers",
        ),
        ({"data_all": cell([{"data": [np.nan], "class": 1}] * 2)}, r"data_all\{1\}.data has a NaN"),
        ({"data_all": cell([{"data": [1.0], "class": 1.5}] * 2)}, r"data_all\{1\}.class is no whole number"),
        (
            {"data_all": cell([{"data": [1.0], "class": [1, 2]}] * 2)},
            r"data_all\{1\}.class is no whole number",
        ),
        (
            {"data_all": cell([*signs([1]), *signs([1], dims=3)])},
            r"data_all\{2\}.data has 3 dims but .* has 2",
        ),
        (
            {"data_all": signs([1, 2]), "list_labels": [2, 1]},
            "list_labels and the class of the structs disagree",
        ),
        ({"data_all": signs([1, 2, 3]), "list_labels": cell(["a", "b"])}, "2 names for classes 1 to 3"),
        (
            {"data_all": signs([1, 2]), "list_labels": cell([1, 2])},
            "list_labels holds neither names nor numbers",
        ),
    ],
)
def test_other_layouts_say_what_was_found(file: Path, variables: dict[str, Any], words: str) -> None:
    savemat(file, variables)
    with pytest.raises(ReadError, match=words) as caught:
        read_mat(file)
    assert str(file) in str(caught.value)


@pytest.mark.parametrize(
    "head",
    [b"MATLAB 7.3 MAT-file, Platform: GLNXA64", b"\x89HDF\r\n\x1a\n"],
)
def test_version_7_3_says_how_to_save_it_again(file: Path, head: bytes) -> None:
    file.write_bytes(head)
    with pytest.raises(ReadError, match=r"MATLAB 7.3 \(HDF5\) file, .*save\(name, '-v7'\)"):
        read_mat(file)


def test_damaged_files(file: Path) -> None:
    savemat(file, {"data_all": signs([1, 2])}, do_compression=True)
    good = file.read_bytes()
    for end in range(0, len(good), 40):
        file.write_bytes(good[:end])
        with pytest.raises(ReadError, match=r"cannot be read as a MATLAB file|holds the variables"):
            read_mat(file)


@pytest.mark.realdata
def test_cricket(real_data: Path) -> None:
    data = read(real_data / "Cricket" / "cricket_data.mat")
    assert (len(data), data.dims, set(data.lengths.tolist())) == (180, 6, {1197})
    labels, counts = np.unique(data.labels, return_counts=True)
    assert labels.tolist() == list(range(1, 13))
    assert counts.tolist() == [15] * 12


@pytest.mark.realdata
def test_a_matrix_of_distances_is_no_set_of_series(real_data: Path) -> None:
    with pytest.raises(ReadError, match="holds the variables alldistances, list_labels; expected"):
        read(real_data / "Cricket" / "DTW_Cricket_12_class.mat")


def test_a_file_that_is_not_there(file: Path) -> None:
    with pytest.raises(ReadError, match=r"signs.mat: cannot be opened: No such file"):
        read_mat(file)


def test_what_unpacks_to_a_thousand_times_its_bytes_is_refused(tmp_path: Path) -> None:
    cells = np.empty(2, dtype=object)
    cells[:] = [{"data": np.zeros((2**19, 8)), "class": 1}, {"data": np.ones((3, 8)), "class": 2}]
    savemat(tmp_path / "a.mat", {"data_all": cells}, do_compression=True)
    words = r"it unpacks to more than 33,554,432 bytes; save it again without"
    with little_memory(2**27), pytest.raises(ReadError, match=words):
        read_mat(tmp_path / "a.mat")
    savemat(tmp_path / "a.mat", {"data_all": cells})
    assert len(read_mat(tmp_path / "a.mat")) == 2


EMPTY: dict[str, tuple[int, tuple[tuple[int, bytes], ...]]] = {
    "text": (4, ((16, b""),)),
    "a letter": (4, ((16, b"a"),)),
    "numbers": (6, ((9, b""),)),
    "a struct without fields": (2, ((5, struct.pack("<I", 32)), (1, b""))),
    "a cell": (1, ()),
    "an object": (3, ((1, b"name"), (5, struct.pack("<I", 32)), (1, b"a" + bytes(31)))),
}
"""Of each kind of variable, its number, and elements that hold nothing."""


@pytest.mark.parametrize("what", EMPTY)
@pytest.mark.parametrize("shape", [(1, 3 * 10**8), (3 * 10**8, 0)], ids=str)
def test_a_shape_without_its_bytes_is_not_believed(file: Path, what: str, shape: tuple[int, int]) -> None:
    savemat(file, {"data_all": signs([1, 2])})
    kind, elements = EMPTY[what]
    file.write_bytes(file.read_bytes() + mat_variable("list_labels", kind, shape, *elements))
    with little_memory(2**22), pytest.raises(ReadError, match=r"damaged: (a shape of 300,000,000 entries|0 cells)"):
        read_mat(file)


def test_empty_text_and_numbers_are_read(tmp_path: Path) -> None:
    cells = np.empty(1, dtype=object)
    cells[:] = [{"data": np.ones((3, 2)), "class": 1, "note": "", "more": np.zeros((0, 40)), "letters": "é😀"}]
    savemat(tmp_path / "a.mat", {"data_all": cells})
    assert len(read_mat(tmp_path / "a.mat")) == 1


def test_of_very_many_variables_a_few_are_named(tmp_path: Path) -> None:
    savemat(tmp_path / "many.mat", {f"x{k:02}": 1.0 for k in range(50)})
    with pytest.raises(ReadError, match="holds the variables x00, x01, x02, x03, x04, x05, x06, x07 and 42 more; exp"):
        read_mat(tmp_path / "many.mat")


@pytest.mark.parametrize("negative", [True, False])
def test_files_of_matlab_4_are_refused(tmp_path: Path, negative: bool) -> None:
    if negative:  # a matrix of -22 bytes: whoever skips it, comes back to where it begins
        (tmp_path / "a.mat").write_bytes(struct.pack("<5i", 50, -22, 1, 0, 2) + b"a\0")
    else:
        savemat(tmp_path / "a.mat", {"x": np.ones((2, 2))}, format="4")
    with pytest.raises(ReadError, match=r"a MATLAB 4 file, which is not supported; save it again with save"):
        read_mat(tmp_path / "a.mat")
