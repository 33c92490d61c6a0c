from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cksc_dist.errors import InputError, ReadError
from cksc_dist.io import read, read_utkinect


def row(frame: int, start: float) -> str:
    return f"{frame}  " + "  ".join(f"{start + i}" for i in range(60)) + "  \n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    joints = tmp_path / "joints"
    joints.mkdir()
    (joints / "actionLabel_modified.txt").write_text(
        "s01_e01\nwalk: 10 14 \nsitDown: 14 15\ncarry:  NaN NaN\ns02_e01\nwalk: 1 1\n"
    )
    rows = [(8, 0.0), (10, 1.0), (12, 2.0), (12, 99.0), (14, 3.0), (16, 4.0)]
    (joints / "joints_s01_e01.txt").write_text("".join(row(frame, start) for frame, start in rows))
    (joints / "joints_s02_e01.txt").write_text(row(1, 5.0))
    return tmp_path


def test_actions_are_cut_and_a_repeated_frame_is_taken_once(folder: Path) -> None:
    data = read_utkinect(folder, centre=None)
    assert data.ids.tolist() == ["s01_e01/walk", "s01_e01/sitDown", "s02_e01/walk"]
    assert data.labels.tolist() == ["walk", "sitDown", "walk"]
    assert data[0][:, 0].tolist() == [1.0, 2.0, 3.0]
    assert data[1][:, 59].tolist() == [62.0]


def test_centred_on_the_first_joint_of_each_frame(folder: Path) -> None:
    raw, centred = read_utkinect(folder, centre=None), read_utkinect(folder)
    np.testing.assert_array_equal(centred.values[:, :3], 0.0)
    for joint in range(20):
        part = slice(3 * joint, 3 * joint + 3)
        np.testing.assert_array_equal(centred.values[:, part], raw.values[:, part] - raw.values[:, :3])


def test_dims_have_names(folder: Path) -> None:
    names = read_utkinect(folder).dim_names
    assert len(names) == 60
    assert names[:4] == ("hip_centre_x", "hip_centre_y", "hip_centre_z", "spine_x")
    assert names[-1] == "foot_right_z"


def test_the_label_file_may_stand_beside_the_joints(folder: Path) -> None:
    inside = folder / "joints" / "actionLabel_modified.txt"
    inside.rename(folder / inside.name)
    assert len(read(folder)) == 3


def test_the_joints_folder_itself_is_recognised(folder: Path) -> None:
    assert len(read(folder / "joints")) == 3


def test_the_list_with_typing_errors_is_not_used(folder: Path) -> None:
    labels = folder / "joints" / "actionLabel_modified.txt"
    labels.rename(labels.with_name("actionLabel.txt"))
    with pytest.raises(ReadError, match=r"has no actionLabel_modified.txt.*actionLabel.txt has typing errors"):
        read(folder)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("walk: 1 2\n", "line 1: 'walk: 1 2' is no recording .* and no action of one"),
        ("s01_e01\nwalk 1 2\n", "line 2: 'walk 1 2' is no recording"),
        ("s01_e01\nwalk: 12 10\n", "line 2: s01_e01 walk ends in frame 10, before its first, 12"),
        ("s01_e01\nwalk: 10 12\nwalk: 12 14\n", "line 3: s01_e01/walk is given twice"),
        ("s01_e01\nwalk: 100 120\n", "line 2: joints_s01_e01.txt has no frame from 100 to 120"),
        ("s01_e01\nwalk: NaN NaN\n", "lists no action with frames"),
        ("s07_e01\nwalk: 1 2\n", "joints_s07_e01.txt: cannot be opened"),
    ],
)
def test_faults_of_the_label_file(folder: Path, text: str, words: str) -> None:
    (folder / "joints" / "actionLabel_modified.txt").write_text(text)
    with pytest.raises(ReadError, match=words):
        read_utkinect(folder)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (row(10, 0.0) + "12 1 2 3\n", r"joints_s01_e01.txt, line 2: the row has 4 numbers; expected .* 60"),
        (row(10, 0.0).replace("5.0", "NaN", 1), "line 1: the row has 60 numbers"),
        (row(10, 0.0).replace("5.0", "x", 1), "line 1: value 7 of dimension 1 is 'x'"),
        ("", "has no frames"),
    ],
)
def test_faults_of_a_joints_file(folder: Path, text: str, words: str) -> None:
    (folder / "joints" / "joints_s01_e01.txt").write_text(text)
    with pytest.raises(ReadError, match=words):
        read_utkinect(folder)


def test_an_unknown_centre(folder: Path) -> None:
    with pytest.raises(InputError, match="centre='head': must be one of 'hip', None"):
        read_utkinect(folder, centre="head")  # type: ignore[arg-type]


@pytest.mark.realdata
def test_utkinect(real_data: Path) -> None:
    data = read(real_data / "UTKinect")
    assert (len(data), data.dims) == (199, 60)
    assert (data.lengths.min(), np.median(data.lengths), data.lengths.max()) == (5, 28, 110)
    labels, counts = np.unique(data.labels, return_counts=True)
    assert dict(zip(labels.tolist(), counts.tolist(), strict=True)) == {
        label: 19 if label == "carry" else 20 for label in labels
    }
    assert len(labels) == 10
    assert "s10_e02/carry" not in data.ids
    assert "s01_e01/walk" in data.ids
    # frames 3556 to 3622; the list with typing errors starts a thousand frames earlier
    assert data.lengths[data.ids == "s03_e01/push"] < 40
