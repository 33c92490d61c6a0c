from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cksc_dist.errors import ReadError
from cksc_dist.io import read_arff

MULTI = """% a comment
@RELATION 'two taps'
@attribute taps relational
  @attribute t0 numeric
  @attribute t1 REAL
  @attribute t2 integer
@end taps
@attribute class {a,'b c', "d"}
@data
"""
SINGLE = "@relation one\n@attribute 'the first' numeric\n@attribute t1 real\n@attribute class{a,'b, c'}\n@data\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "taps.arff"


def test_multivariate_rows_are_dimensions(file: Path) -> None:
    file.write_text(MULTI + "'1,2,3\\n4,5,6',a\n\"7,8,9\\n0,0,0\\n\" , 'b c'\n'1,1,1\\n2,2,2',d\n'1,1,1\\n2,2,2',?\n")
    data = read_arff(file)
    assert data.name == "two taps"
    assert data.labels.tolist() == ["a", "b c", "d", "?"]
    assert data.ids.tolist() == [f"taps/{i}" for i in range(4)]
    np.testing.assert_array_equal(data[0], [[1, 4], [2, 5], [3, 6]])
    np.testing.assert_array_equal(data[1], [[7, 0], [8, 0], [9, 0]])


def test_univariate_attributes_are_frames(file: Path) -> None:
    file.write_text(SINGLE + "1,2,a\n3,4, 'b, c'\n")
    data = read_arff(file)
    assert data.labels.tolist() == ["a", "b, c"]
    np.testing.assert_array_equal(data[1], [[3], [4]])


def test_padding_at_the_end_is_cut_where_all_dimensions_lack_it(file: Path) -> None:
    file.write_text(MULTI + "'1,?,?\\n4,NaN,?',a\n'1,2,?\\n4,5,6',a\n")
    with pytest.raises(ReadError, match=r"line 11: value 3 of dimension 1 is missing"):
        read_arff(file)
    data = read_arff(file, missing="interpolate")
    assert data.lengths.tolist() == [1, 3]
    np.testing.assert_array_equal(data[1], [[1, 4], [2, 5], [2, 6]])


def test_univariate_padding_is_cut(file: Path) -> None:
    file.write_text(SINGLE + "1,?,a\n?,2,a\n")
    assert read_arff(file, missing="interpolate").lengths.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has no @data line"),
        ("@relation x\n1,2\n", "line 2: '1,2' stands before @data"),
        ("@attribute x\n", "line 1: the attribute has no type"),
        ("@attribute class {a,b\n", "line 1: the list of classes does not end with '}'"),
        ("@attribute x date\n", "line 1: attributes of type 'date' are not supported"),
        ("@attribute r relational\n@attribute s relational\n", "line 2: attributes of type 'relational'"),
        ("@attribute r relational\n@attribute t numeric\n@data\n", "relational attribute is not closed"),
        ("@attribute t numeric\n@data\n1\n", "the attributes are in no form that can be read; .*numeric"),
        ("@attribute c {a}\n@data\na\n", "the attributes are in no form"),
        ("@attribute c {a}\n@attribute t numeric\n@data\na,1\n", "the attributes are in no form"),
        (MULTI, "has no series after @data"),
        (MULTI + "1,2,3,a\n", "line 10: the values are not quoted"),
        (MULTI + "'1,2,3\\n4,5,6\n", "line 10: the values are not quoted"),
        (MULTI + "'1,2,3\\n4,5,6'\n", "line 10: there is no comma and label"),
        (MULTI + "'1,2,3\\n4,5,6' x,a\n", "line 10: there is no comma and label"),
        (MULTI + "'1,2,3\\n4,5',a\n", "line 10: dimension 2 has 2 values but dimension 1 has 3"),
        (MULTI + "'1,2\\n4,5',a\n", "line 10: the series has 2 values a dimension, but the header has 3"),
        (
            MULTI + "'1,2,3\\n4,5,6',a\n'1,2,3',a\n",
            "line 11: the series has 1 dimensions, but the first has 2",
        ),
        (MULTI + "'1,2,3\\n4,x,6',a\n", "line 10: value 2 of dimension 2 is 'x'"),
        (MULTI + "'?,?,?\\n?,?,?',a\n", "line 10: the series has no value at all"),
        (MULTI + "'1,2,3\\n4,5,6',z\n", "line 10: label 'z' is not one of those in the header"),
        (SINGLE + "a\n", "line 6: the series has a label only, or none"),
        (SINGLE + "{0 1},a\n", "line 6: value 1 of dimension 1 is '{0 1}'"),
    ],
)
def test_faults_say_where_and_what(file: Path, text: str, words: str) -> None:
    file.write_text(text)
    with pytest.raises(ReadError, match=words) as caught:
        read_arff(file)
    assert str(file) in str(caught.value)
