from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from cksc_dist.errors import InputError, ReadError
from cksc_dist.io import read, read_ts

LABELLED = "@classLabel true a b\n@data\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "taps.ts"


def test_every_keyword_in_any_case_and_comments_anywhere(file: Path) -> None:
    file.write_text(
        "# words\n% more\n@PROBLEMNAME Taps\n@timestamps FALSE\n@Missing false\n@univariate false\n"
        "@dimensions 2\n@equalLength true\n@serieslength 3\n\n@CLASSLABEL True a b\n@Data\n"
        "1,2,3:4,5,6:a\n# between\n 7 , 8e0, -9 : .5,0,+1 : b \n"
    )
    data = read_ts(file)
    assert data.name == "Taps"
    assert data.labels.tolist() == ["a", "b"]
    assert data.ids.tolist() == ["taps/0", "taps/1"]
    np.testing.assert_array_equal(data[0], [[1, 4], [2, 5], [3, 6]])
    np.testing.assert_array_equal(data[1], [[7, 0.5], [8, 0], [-9, 1]])


def test_unequal_lengths_and_a_name_from_the_file(file: Path) -> None:
    file.write_text("@equalLength false\n@seriesLength 0\n" + LABELLED + "1,2,3:a\n4:b\n")
    data = read_ts(file)
    assert data.lengths.tolist() == [3, 1]
    assert data.name == "taps"


def test_without_labels_every_series_is_a_question_mark(file: Path) -> None:
    file.write_text("@classLabel false\n@data\n1,2:3,4\n5,6:7,8\n")
    data = read_ts(file)
    assert data.labels.tolist() == ["?", "?"]
    assert data.dims == 2


def test_windows_line_ends_and_byte_order_mark(file: Path) -> None:
    file.write_bytes(b"\xef\xbb\xbf" + (LABELLED + "1,2:a\n").replace("\n", "\r\n").encode())
    assert read_ts(file)[0].tolist() == [[1.0], [2.0]]


def test_comments_may_be_in_any_encoding_but_data_may_not(file: Path) -> None:
    file.write_bytes(b"# caf\xe9\n" + LABELLED.encode() + b"1,2:a\n")
    assert len(read_ts(file)) == 1
    file.write_bytes(LABELLED.encode() + b"1,2:a\n1,2:\xe9\n")
    with pytest.raises(ReadError, match=r"taps\.ts, line 4: is not UTF-8 text; save the file as UTF-8"):
        read_ts(file)


@pytest.mark.parametrize("gap", ["?", " ? ", "NaN", "nan"])
def test_missing_values_are_refused_or_interpolated(file: Path, gap: str) -> None:
    row = f"{gap},1,{gap},{gap},4,{gap}"
    file.write_text(f"{LABELLED}0,0:1,1:a\n{row}:0,1,2,3,4,5:b\n")
    with pytest.raises(ReadError, match=r'line 4: value 1 of dimension 1 is missing; .*missing="interpolate"'):
        read_ts(file)
    np.testing.assert_allclose(read_ts(file, missing="interpolate")[1][:, 0], [1, 1, 2, 3, 4, 4])


def test_a_dimension_without_any_value_cannot_be_interpolated(file: Path) -> None:
    file.write_text(LABELLED + "1,2:?,?:a\n")
    with pytest.raises(ReadError, match=r"line 3: dimension 2 has no value at all"):
        read_ts(file, missing="interpolate")


def test_an_unknown_way_with_missing_values(file: Path) -> None:
    with pytest.raises(InputError, match="missing='drop': must be one of 'error', 'interpolate'"):
        read_ts(file, missing="drop")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has no @data line"),
        ("@classLabel true a\n1,2:a\n", r"line 2: '1,2:a' stands before @data"),
        ("@data\n1,2\n", "does not say whether the series have labels"),
        ("@classLabel maybe\n@data\n", "line 1: @classlabel is 'maybe'; it must be true or false"),
        ("@classLabel true\n@data\n1:a\n", "line 1: @classLabel true lists no labels"),
        ("@classLabel false\n@classlabel false\n@data\n1\n", "line 2: @classlabel is given twice"),
        ("@timeStamps true\n" + LABELLED, "line 1: the series carry time stamps, which are not supported"),
        (LABELLED + "(0,1),(1,2):a\n", "line 3: the series carry time stamps"),
        ("@targetLabel true\n@data\n1:2\n", "line 1: @targetLabel gives numbers to predict"),
        ("@dimensions two\n" + LABELLED, "line 1: @dimensions is 'two'; it must be a whole number above 0"),
        ("@dimensions 0\n" + LABELLED, "line 1: @dimensions is '0'"),
        (
            "@univariate true\n@dimensions 3\n" + LABELLED,
            "line 1: @univariate true contradicts @dimensions 3",
        ),
        ("@univariate true\n" + LABELLED + "1:2:a\n", "line 4: the series has 2 dimensions, but the header"),
        ("@dimensions 3\n" + LABELLED + "1:2:a\n", "line 4: .* 2 dimensions, but the header declares 3"),
        (LABELLED + "1:2:a\n1:2:3:a\n", "line 4: .* 3 dimensions, but the first series has 2"),
        (LABELLED + "1,2:3:a\n", "line 3: dimension 2 has 1 values but dimension 1 has 2"),
        (LABELLED + "1,2::a\n", "line 3: dimension 2 is empty"),
        ("@equalLength true\n@seriesLength 2\n" + LABELLED + "1:a\n", "1 frames, but @seriesLength is 2"),
        ("@equalLength true\n" + LABELLED + "1:a\n1,2:a\n", "2 frames, but the first series has 1"),
        ("@missing perhaps\n" + LABELLED, "line 1: @missing is 'perhaps'"),
        (LABELLED + "1,2:c\n", "line 3: label 'c' is not one of those that @classLabel lists"),
        (LABELLED + "1,2:\n", "line 3: label '' is not one of those"),
        (LABELLED + "a\n", "line 3: the series has a label only, or none"),
        (LABELLED + "1,x:a\n", "line 3: value 2 of dimension 1 is 'x'; it must be a finite number"),
        (LABELLED + "1,2:3,1e999:a\n", "line 3: value 2 of dimension 2 is '1e999'"),
        (LABELLED + "1,1_0:a\n", "line 3: value 2 of dimension 1 is '1_0'"),
        (LABELLED + "1,٣:a\n", "line 3: value 2 of dimension 1 is '٣'"),
        (LABELLED + "1,,2:a\n", "line 3: value 2 of dimension 1 is ''"),
        (LABELLED, "has no series after @data"),
    ],
)
def test_faults_say_where_and_what(file: Path, text: str, words: str) -> None:
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ReadError, match=words) as caught:
        read_ts(file)
    assert str(file) in str(caught.value)


def test_a_declared_size_allocates_nothing(file: Path) -> None:
    file.write_text("@dimensions 999999999999999\n" + LABELLED + "1:a\n")
    with pytest.raises(ReadError, match="declares 999999999999999"):
        read_ts(file)


def test_a_file_that_is_not_there(file: Path) -> None:
    with pytest.raises(ReadError, match="cannot be opened: No such file"):
        read_ts(file)


@pytest.mark.realdata
def test_articulary_word_recognition(real_data: Path) -> None:
    data = read(real_data / "ArticularyWordRecognition")
    assert (len(data), data.dims, data.name) == (575, 9, "ArticularyWordRecognition")
    assert set(data.lengths.tolist()) == {144}
    assert np.unique(data.labels, return_counts=True)[1].tolist() == [23] * 25
    assert data.ids[0] == "ArticularyWordRecognition_TRAIN/0"
    assert data.ids[275] == "ArticularyWordRecognition_TEST/0"
    train = read(real_data / "ArticularyWordRecognition" / "ArticularyWordRecognition_TRAIN.ts")
    np.testing.assert_array_equal(train.values, data.values[: 275 * 144])


def test_a_long_line_takes_a_few_times_its_letters(tmp_path: Path) -> None:
    text = "@classLabel true a\n@data\n" + "10," * 500_000 + "x:a\n"
    (tmp_path / "d.ts").write_text(text)
    tracemalloc.start()
    try:
        with pytest.raises(ReadError, match=r"value 500001 of dimension 1 is 'x'"):
            read_ts(tmp_path / "d.ts")
        assert tracemalloc.get_traced_memory()[1] < 16 * len(text)
    finally:
        tracemalloc.stop()
    (tmp_path / "d.ts").write_text(text.replace("x:a", "7:a"))
    assert read_ts(tmp_path / "d.ts")[0][[0, -1], 0].tolist() == [10.0, 7.0]
