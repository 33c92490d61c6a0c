from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cksc_dist.errors import InputError, ReadError
from cksc_dist.io import make_gestures, read, write_npz
from cksc_dist.series import SeriesSet


def write_ts(path: Path, *cases: str, name: str = "taps") -> Path:
    path.write_text(f"@problemName {name}\n@classLabel true a b\n@data\n" + "\n".join(cases) + "\n")
    return path


def write_arff(path: Path, *cases: str) -> Path:
    path.write_text("@relation taps\n@attribute t numeric\n@attribute c {a,b}\n@data\n" + "\n".join(cases) + "\n")
    return path


def test_several_files_are_one_set_in_the_order_given(tmp_path: Path) -> None:
    second = write_ts(tmp_path / "second.TS", "1,2:a", "3,4:b")
    first = write_arff(tmp_path / "first.arff", "5,b")
    data = read([second, str(first)])
    assert data.ids.tolist() == ["second/0", "second/1", "first/0"]
    assert data.labels.tolist() == ["a", "b", "b"]
    assert data.lengths.tolist() == [2, 2, 1]
    assert data.name == "taps"


@pytest.mark.parametrize("suffix", ["ts", "arff"])
def test_a_folder_of_an_archive_is_read_train_first(tmp_path: Path, suffix: str) -> None:
    write, case = (write_ts, "{}:a") if suffix == "ts" else (write_arff, "{},a")
    write(tmp_path / f"taps_TEST.{suffix}", case.format(2))
    write(tmp_path / f"taps_TRAIN.{suffix}", case.format(1))
    (tmp_path / "README.txt").write_text("about")
    data = SeriesSet.read(tmp_path)
    assert data.values[:, 0].tolist() == [1.0, 2.0]
    assert data.ids.tolist() == ["taps_TRAIN/0", "taps_TEST/0"]


def test_ts_goes_before_arff_and_the_whole_before_its_dimensions(tmp_path: Path) -> None:
    for part in ("TRAIN", "TEST"):
        write_arff(tmp_path / f"taps_{part}.arff", "1,a")
        write_arff(tmp_path / f"tapsDimension1_{part}.arff", "2,a")
    assert read(tmp_path).values[:, 0].tolist() == [1.0, 1.0]
    for part in ("TRAIN", "TEST"):
        write_ts(tmp_path / f"taps_{part}.ts", "3:a")
    assert read(tmp_path).values[:, 0].tolist() == [3.0, 3.0]


def test_half_an_archive_folder(tmp_path: Path) -> None:
    write_ts(tmp_path / "taps_TRAIN.ts", "1:a")
    with pytest.raises(ReadError, match=r"has no taps_TEST.ts; to read the other part alone, name its file"):
        read(tmp_path)


def test_two_problems_in_a_folder(tmp_path: Path) -> None:
    write_ts(tmp_path / "taps_TRAIN.ts", "1:a")
    write_ts(tmp_path / "claps_TRAIN.ts", "1:a")
    with pytest.raises(ReadError, match="holds several problems, claps, taps; name the files"):
        read(tmp_path)


@pytest.mark.parametrize("name", ["data.csv", "folder", "noSuffix"])
def test_an_unknown_form_lists_the_known_ones(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name == "folder":
        path.mkdir()
    else:
        path.write_text("1,2")
    with pytest.raises(ReadError, match="is in no form that can be read; the known forms are") as caught:
        read(path)
    for word in ("*.ts", "*.arff", "*.npz", "*.mat", "NAME_TRAIN", "joints/", "<OBJECT>/*.mat", name):
        assert word in str(caught.value)


def test_a_path_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match=r"absent.ts: does not exist"):
        read(tmp_path / "absent.ts")


def test_no_paths() -> None:
    with pytest.raises(InputError, match="the list of paths to read is empty"):
        read([])


def test_options_reach_the_reader_and_others_are_refused(tmp_path: Path) -> None:
    file = write_ts(tmp_path / "taps.ts", "1,?:a")
    assert read(file, missing="interpolate")[0].tolist() == [[1.0], [1.0]]
    with pytest.raises(InputError, match=r"taps.ts: option 'centre' does not apply to it; its form takes missing"):
        read(file, centre=None)
    write_npz(tmp_path / "taps.npz", make_gestures(1, 1))
    with pytest.raises(InputError, match="option 'missing' does not apply to it; its form takes no options"):
        read(tmp_path / "taps.npz", missing="error")


def test_sets_that_do_not_join(tmp_path: Path) -> None:
    file = write_ts(tmp_path / "taps.ts", "1,2:a")
    with pytest.raises(ReadError, match=r"taps.ts: has the id 'taps/0', as .*taps.ts has; give a path once"):
        read([file, file])
    wide = write_ts(tmp_path / "wide.ts", "1:2:a")
    with pytest.raises(ReadError, match=r"wide.ts: has 2 dims but .*taps.ts has 1"):
        read([file, wide])
    numbered, named = tmp_path / "numbered.npz", tmp_path / "named.npz"
    write_npz(numbered, SeriesSet.from_list(np.zeros((1, 2, 1)), [1]))
    with pytest.raises(ReadError, match=r"numbered.npz: has labels of kind int but those of .*taps.ts are str"):
        read([file, numbered])
    write_npz(named, SeriesSet.from_list(np.zeros((1, 2, 1)), ["a"], dim_names=["x"]))
    with pytest.raises(ReadError, match=r"named.npz: has other names of dims than .*taps.ts"):
        read([file, named])


def test_sets_of_different_names_join_under_both(tmp_path: Path) -> None:
    files = [write_ts(tmp_path / f"{name}.ts", "1:a", name=name) for name in ("taps", "claps")]
    assert read(files).name == "taps + claps"
