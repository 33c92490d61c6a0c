"""Whatever stands in a text file, reading it gives a set or an `InputError`, never another exception."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cksc_dist.errors import InputError
from cksc_dist.io import read_arff, read_ts
from cksc_dist.series import SeriesSet

TS = (
    "# taps\n@problemName taps\n@timeStamps false\n@missing true\n@univariate false\n@dimensions 2\n"
    "@equalLength true\n@seriesLength 3\n@classLabel true a b\n@data\n1,2,3:4,?,6:a\n7,8,9:1e3,-1,.5:b\n"
)
ARFF = (
    "% taps\n@relation taps\n@attribute taps relational\n@attribute t0 numeric\n@attribute t1 numeric\n"
    "@end taps\n@attribute class {a,'b c'}\n@data\n'1,2\\n3,?',a\n'5,?\\n7,?','b c'\n"
)
SNIPPETS = st.one_of(
    st.sampled_from(["?", ",", ":", "\n", "'", '"', "\\n", "@", "@data\n", "@end", "{", "}", "(", "NaN", "inf"]),
    st.sampled_from(["1e308", "-1e308", "true", "relational", "9" * 5000, "\x00", "\ufeff", "\u2028", "\r", "#"]),
    st.text(max_size=8),
)
EDITS = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 12), SNIPPETS), min_size=1, max_size=4)
READERS = pytest.mark.parametrize(("reader", "text"), [(read_ts, TS), (read_arff, ARFF)], ids=["ts", "arff"])


def edited(text: str, edits: list[tuple[float, int, str]]) -> str:
    for place, removed, added in edits:
        start = int(place * len(text))
        text = text[:start] + added + text[start + removed :]
    return text


def read_bytes(reader: Callable[..., SeriesSet], folder: Path, content: bytes, missing: str) -> SeriesSet | None:
    file = folder / "fuzzed"
    file.write_bytes(content)
    try:
        return reader(file, missing=missing)
    except InputError:
        return None


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


@READERS
def test_the_text_that_is_edited_is_good(reader: Callable[..., SeriesSet], text: str, folder: Path) -> None:
    assert read_bytes(reader, folder, text.encode(), "interpolate") is not None


@READERS
@settings(max_examples=200, deadline=None)
@given(edits=EDITS, missing=st.sampled_from(["error", "interpolate"]))
def test_edited_files(
    reader: Callable[..., SeriesSet],
    text: str,
    folder: Path,
    edits: list[tuple[float, int, str]],
    missing: str,
) -> None:
    read_bytes(reader, folder, edited(text, edits).encode("utf-8", "surrogatepass"), missing)


@READERS
@settings(max_examples=100, deadline=None)
@given(content=st.one_of(st.binary(max_size=200), st.text(max_size=200).map(str.encode)))
def test_any_bytes_after_the_header(reader: Callable[..., SeriesSet], text: str, folder: Path, content: bytes) -> None:
    header = text[: text.index("@data\n") + 6].encode()
    read_bytes(reader, folder, content, "error")
    read_bytes(reader, folder, header + content, "interpolate")
