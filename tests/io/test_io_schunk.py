from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.io import savemat

from cksc_dist.errors import InputError, ReadError
from cksc_dist.io import read, read_schunk


def grasp(*sensors: Any) -> dict[str, NDArray[Any]]:
    cell = np.empty(len(sensors), dtype=object)
    cell[:] = sensors
    return {"TS": cell, "JS": np.zeros((7, 3))}


def sensor(rows: int, columns: int, time: int, start: int = 0) -> NDArray[np.uint8]:
    return (start + np.arange(rows * columns * time, dtype=np.uint8)).reshape(rows, columns, time)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for label, name, time in [("WOOD", "grasp-2", 4), ("DUCK", "grasp-1", 3), ("WOOD", "grasp-1", 5)]:
        (tmp_path / label).mkdir(exist_ok=True)
        savemat(tmp_path / label / f"{name}.mat", grasp(sensor(2, 3, time), sensor(1, 2, time, start=100)))
    return tmp_path


def test_taxels_of_all_sensors_are_dims(folder: Path) -> None:
    data = read_schunk(folder, baseline=None)
    assert data.ids.tolist() == ["DUCK/grasp-1", "WOOD/grasp-1", "WOOD/grasp-2"]
    assert data.labels.tolist() == ["DUCK", "WOOD", "WOOD"]
    assert data.lengths.tolist() == [3, 5, 4]
    assert data.name == folder.name
    values = data[0]
    for dim, name in enumerate(data.dim_names[:6]):
        row, column = divmod(dim, 3)
        assert name == f"sensor1_row{row + 1}_column{column + 1}"
        np.testing.assert_array_equal(values[:, dim], sensor(2, 3, 3)[row, column])
    assert data.dim_names[6:] == ("sensor2_row1_column1", "sensor2_row1_column2")
    np.testing.assert_array_equal(values[:, 7], [103, 104, 105])


def test_the_first_frame_is_subtracted_without_wrapping_round(folder: Path) -> None:
    falling = sensor(2, 3, 3)[..., ::-1]
    savemat(folder / "DUCK" / "grasp-1.mat", grasp(falling, sensor(1, 2, 3)))
    np.testing.assert_array_equal(read(folder)[0][:, 0], [0, -1, -2])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"JS": np.zeros(3)}, "holds the variables JS; expected a cell TS"),
        ({"TS": np.zeros((2, 2))}, r"TS has shape \(2, 2\) and type float64; expected a cell"),
        (grasp(np.zeros((2, 3)), np.zeros(2)), r"TS\{1\} has shape \(2, 3\)"),
        (grasp(sensor(2, 3, 4), sensor(1, 2, 3)), r"TS\{2\} has 3 frames but TS\{1\} has 4"),
        (grasp(np.full((2, 3, 4), np.nan), sensor(1, 2, 4)), r"TS\{1\} has a NaN"),
        (
            grasp(sensor(3, 3, 4), sensor(1, 2, 4)),
            "its sensors have other shapes than those of .*grasp-1.mat",
        ),
    ],
)
def test_faults_name_the_file(folder: Path, content: dict[str, Any], words: str) -> None:
    savemat(folder / "WOOD" / "grasp-2.mat", content)
    with pytest.raises(ReadError, match=f"grasp-2.mat: .*{words}"):
        read_schunk(folder)


def test_a_folder_without_grasps(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match=r"has no <OBJECT>/\*.mat files"):
        read_schunk(tmp_path)


def test_an_unknown_baseline(folder: Path) -> None:
    with pytest.raises(InputError, match="baseline='mean': must be one of 'first', None"):
        read_schunk(folder, baseline="mean")  # type: ignore[arg-type]


@pytest.mark.realdata
def test_schunk(real_data: Path) -> None:
    data = read(real_data / "Schunk_SD5")
    assert (len(data), data.dims) == (51, 486)
    assert (data.lengths.min(), data.lengths.max()) == (324, 404)
    assert np.unique(data.labels, return_counts=True)[1].tolist() == [10, 10, 10, 12, 9]
    np.testing.assert_array_equal(data.values[data.offsets[:-1]], 0.0)
    raw = read(real_data / "Schunk_SD5", baseline=None)
    assert (raw.values == 0).all(axis=0).sum() == 30
