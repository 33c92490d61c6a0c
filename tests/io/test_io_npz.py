from __future__ import annotations

import io
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest

from cksc_dist.errors import InputError, ReadError
from cksc_dist.io import read_npz, write_npz
from cksc_dist.series import SeriesSet

RAGGED: dict[str, Any] = {
    "values": np.arange(10.0).reshape(5, 2),
    "offsets": [0, 2, 5],
    "labels": ["a", "b"],
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "taps.npz"


@pytest.mark.parametrize("labels", [["left", "b"], [3, -1], [True, False]])
def test_what_is_written_is_read_back(file: Path, labels: list[Any]) -> None:
    rng = np.random.default_rng(0)
    parts = [rng.standard_normal((3, 2)), rng.standard_normal((5, 2))]
    data = SeriesSet.from_list(parts, labels, ["x", "longer"], name="other", dim_names=["u", "v"])
    write_npz(file, data)
    again = read_npz(file)
    for field in ("values", "offsets", "labels", "ids"):
        np.testing.assert_array_equal(getattr(again, field), getattr(data, field))
    assert (again.dim_names, again.name) == (("u", "v"), "taps")


def test_labels_of_variable_width_are_written(file: Path) -> None:
    data = SeriesSet.from_list(np.zeros((2, 3, 1)), np.array(["a", "bc"], dtype=np.dtypes.StringDType()))
    write_npz(file, data)
    assert read_npz(file).labels.tolist() == ["a", "bc"]


def test_ragged_form_without_ids(file: Path) -> None:
    np.savez(file, **RAGGED)
    data = read_npz(file)
    np.testing.assert_array_equal(data[1], [[4, 5], [6, 7], [8, 9]])
    assert data.ids.tolist() == ["taps/0", "taps/1"]
    assert data.dim_names == ()


def test_ragged_form_of_one_dimension(file: Path) -> None:
    np.savez(file, values=np.arange(5, dtype=np.int16), offsets=np.array([0, 2, 5], dtype=np.uint8), labels=[1, 2])
    assert read_npz(file)[1].tolist() == [[2.0], [3.0], [4.0]]


@pytest.mark.parametrize("shape", [(4, 3), (4, 3, 2)])
def test_equal_form(file: Path, shape: tuple[int, ...]) -> None:
    block = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    np.savez(file, X=block, y=[0, 0, 1, 1])
    data = read_npz(file)
    np.testing.assert_array_equal(data[2], block[2].reshape(3, -1))
    assert data.values.dtype == np.float64
    assert data.labels.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"offsets": [[0, 5]]}, r"offsets has shape \(1, 2\)"),
        ({"offsets": [0.0, 2.0, 5.0]}, "offsets has shape .* type float64"),
        ({"offsets": [0, 2, 6]}, "offsets run from 0 to 6"),
        ({"offsets": [0, 0, 5]}, "series 0 is empty"),
        ({"offsets": [0]}, "the set has no series"),
        ({"offsets": np.array([0, 2**63, 5], dtype=np.uint64)}, "series 0 is empty"),
        ({"labels": [0.5, 1.5]}, "labels has shape .* type float64"),
        ({"labels": ["a"]}, "2 series, but 1 labels"),
        ({"values": np.full((5, 2), np.nan)}, "has a NaN or infinite value in frame 0"),
        (
            {"values": np.zeros((5, 2), dtype=complex)},
            "values has shape .* type complex128; an .npz file holds",
        ),
        ({"values": np.zeros((5, 2, 2))}, r"values has shape \(5, 2, 2\)"),
        ({"values": np.zeros((5, 0))}, r"values have shape \(5, 0\)"),
        ({"ids": ["x", "x"]}, "id 'x' is used twice"),
        ({"ids": [1, 2]}, "ids has shape .* type int64"),
        ({"dim_names": ["x"]}, "1 dim_names for 2 dims"),
    ],
)
def test_faults_of_the_ragged_form(file: Path, change: dict[str, Any], words: str) -> None:
    np.savez(file, **(RAGGED | change))
    with pytest.raises(ReadError, match=words) as caught:
        read_npz(file)
    assert str(file) in str(caught.value)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"X": np.zeros((2, 3))}, "holds the arrays 'X'; an .npz file holds either values .* or X"),
        (
            {"values": np.zeros((2, 3)), "labels": [1]},
            "holds the arrays 'values', 'labels'; an .npz file holds",
        ),
        ({}, "holds the arrays none"),
        ({"X": np.zeros(3), "y": [1]}, r"X has shape \(3,\)"),
        ({"X": np.zeros((2, 0, 3)), "y": [1, 2]}, "series 0 is empty"),
        ({"X": np.zeros((0, 3)), "y": [1]}, "the set has no series"),
        ({"X": np.zeros((2, 3)), "y": [[1], [2]]}, r"y has shape \(2, 1\)"),
    ],
)
def test_faults_of_the_equal_form(file: Path, arrays: dict[str, Any], words: str) -> None:
    np.savez(file, **arrays)
    with pytest.raises(ReadError, match=words):
        read_npz(file)


def test_object_arrays_are_never_unpickled(file: Path) -> None:
    np.savez(file, X=np.array([np.zeros(2), np.zeros(3)], dtype=object), y=[0, 1])
    with pytest.raises(ReadError, match=r"object arrays are refused; an .npz file holds"):
        read_npz(file)


def test_a_single_array_under_the_wrong_suffix(file: Path) -> None:
    with file.open("wb") as handle:
        np.save(handle, np.zeros(3))
    with pytest.raises(ReadError, match=r"is a single array \(.npy\)"):
        read_npz(file)


def test_damaged_archives(file: Path) -> None:
    np.savez_compressed(file, X=np.random.default_rng(0).standard_normal((20, 30)), y=np.arange(20))
    good = file.read_bytes()
    for start in range(0, len(good), max(1, len(good) // 60)):
        file.write_bytes(good[:start] + bytes(b ^ 0x5A for b in good[start : start + 4]) + good[start + 4 :])
        try:
            read_npz(file)
        except ReadError as error:
            assert str(file) in str(error)  # noqa: PT017 - some damage falls on bytes that do not matter
        file.write_bytes(good[:start])
        with pytest.raises(ReadError, match="cannot be read as arrays"):
            read_npz(file)


def test_what_a_library_quotes_of_a_file_is_cut(file: Path) -> None:
    """Of a damaged archive, Python's own error quotes as long a name as the file says it has."""
    np.savez(file, X=np.zeros((2000, 3)), y=np.arange(2000))
    content = bytearray(file.read_bytes())
    content[26:28] = (30_000).to_bytes(2, "little")  # length of the first name
    file.write_bytes(content)
    with pytest.raises(ReadError, match="cannot be read as arrays") as told:
        read_npz(file)
    assert len(str(told.value)) < 1000
    assert "...); object arrays are refused; an .npz file" in str(told.value)


def test_a_huge_declared_shape(file: Path) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (10**12, 10**3)})
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("X.npy", header.getvalue())
        archive.writestr("y.npy", header.getvalue())
    with pytest.raises(ReadError, match="cannot be read as arrays"):
        read_npz(file)


def test_a_name_that_read_would_not_recognise(tmp_path: Path) -> None:
    data = SeriesSet.from_list(np.zeros((1, 2, 1)))
    with pytest.raises(InputError, match=r"the name must end in .npz"):
        write_npz(tmp_path / "taps.data", data)
    assert not list(tmp_path.iterdir())


def test_what_swells_to_more_than_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez_compressed(tmp_path / "zeros.npz", X=np.zeros((4, 50_000, 2)), y=[0, 0, 1, 1])
    assert (tmp_path / "zeros.npz").stat().st_size < 50_000
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=4_000_000))
    with pytest.raises(ReadError, match=r"unpacked it takes 3,200,.* bytes, more than half of the 4,000,000 bytes"):
        SeriesSet.read(tmp_path / "zeros.npz")


def test_very_many_arrays_are_not_all_named(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "many.npz", "w") as archive:
        for number in range(3000):
            archive.writestr(f"n{number}.npy", b"")
    with pytest.raises(ReadError, match=r"holds the arrays 'n0', 'n1', .* and 2992 more;") as found:
        read_npz(tmp_path / "many.npz")
    assert len(str(found.value)) < 1000


def test_a_file_that_may_not_be_read(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def opener(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("cksc_dist.io.npz.plain_only", opener)
    np.savez(file, X=np.zeros((2, 3)), y=np.arange(2))
    with pytest.raises(ReadError, match="cannot be opened: Permission denied; check the path and its permissions"):
        read_npz(file)
