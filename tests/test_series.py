"""SeriesSet and ragged: what goes in comes out, and what is wrong is said with the sample."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from cksc_dist.dist.ingest import ingest, ingest_distances
from cksc_dist.errors import InputError, ReadError
from cksc_dist.io import write_npz
from cksc_dist.series import SeriesSet, label_array, ragged
from cksc_dist.store.folder import Folder
from cksc_dist.store.series_files import append_series
from tests.memory import little_memory
from tests.small_stores import files_below


def some(lengths: list[int], dims: int = 2, seed: int = 0) -> list[NDArray[np.float64]]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((length, dims)) for length in lengths]


@pytest.fixture
def data() -> SeriesSet:
    return SeriesSet.from_list(
        some([3, 1, 5]), ["b", "a", "b"], ["x", "y", "z"], name="taps", dim_names=["left", "right"]
    )


@settings(max_examples=30, deadline=None)
@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=8), dims=st.integers(1, 4))
def test_series_come_back_as_they_went_in(lengths: list[int], dims: int) -> None:
    series = some(lengths, dims)
    data = SeriesSet.from_list(series)
    assert len(data) == len(series)
    assert data.dims == dims
    assert data.lengths.tolist() == lengths
    assert data.values.shape == (sum(lengths), dims)
    for i, expected in enumerate(series):
        assert np.array_equal(data[i], expected)
        assert np.array_equal(data[i - len(series)], expected)
    assert all(np.array_equal(a, b) for a, b in zip(data, series, strict=True))
    assert all(np.array_equal(a, b) for a, b in zip(data.series, series, strict=True))


def test_defaults_of_labels_and_ids() -> None:
    data = SeriesSet.from_list(some([2, 3]))
    assert data.labels.tolist() == ["?", "?"]
    assert data.ids.tolist() == ["0", "1"]
    assert data.name == "series"
    assert data.dim_names == ()


def test_a_series_is_a_view_not_a_copy(data: SeriesSet) -> None:
    assert np.shares_memory(data[1], data.values)


def test_a_slice_is_the_set_of_these_series(data: SeriesSet) -> None:
    last = data[1:]
    assert last.ids.tolist() == ["y", "z"]
    assert last.labels.tolist() == ["a", "b"]
    assert np.array_equal(last[1], data[2])
    assert last.dim_names == ("left", "right")
    assert data[::-2].ids.tolist() == ["z", "x"]
    with pytest.raises(InputError, match="taps: select needs at least one row"):
        data[3:]


@pytest.mark.parametrize("i", [3, -4])
def test_index_out_of_range(data: SeriesSet, i: int) -> None:
    with pytest.raises(IndexError, match=f"series {i} of 3"):
        data[i]


def test_repr(data: SeriesSet) -> None:
    assert repr(data) == "SeriesSet('taps': 3 series, 2 dims, length 1..5, 2 classes)"
    assert repr(data.select([0])) == "SeriesSet('taps': 1 series, 2 dims, length 3, 1 classes)"


def test_classes_are_sorted(data: SeriesSet) -> None:
    assert data.classes.tolist() == ["a", "b"]


def test_cannot_be_assigned_to(data: SeriesSet) -> None:
    with pytest.raises(FrozenInstanceError):
        data.name = "other"  # type: ignore[misc]


def test_sets_are_compared_by_identity_and_can_be_keys(data: SeriesSet) -> None:
    assert data != data.select([0, 1, 2])
    assert {data: 1}[data] == 1


@pytest.mark.parametrize("labels", [["u", "v"], [3, -1], [True, False], np.array([1, 2], dtype=np.uint8)])
def test_kinds_of_labels(labels: Any) -> None:
    data = SeriesSet.from_list(some([2, 2]), labels)
    assert data.labels.tolist() == list(labels)
    assert data.labels.dtype.kind in "Uiub"


def test_labels_of_variable_width_become_plain() -> None:
    labels = np.array(["u", "vvv"], dtype=np.dtypes.StringDType())
    assert label_array(labels).dtype == "<U3"
    data = SeriesSet.from_list(some([2, 2]))
    direct = SeriesSet(data.values, data.offsets, labels, data.ids)
    assert direct.labels.dtype == "<U3"
    assert direct.labels.tolist() == ["u", "vvv"]


def test_labels_as_objects_become_plain() -> None:
    data = SeriesSet.from_list(some([2, 2]), np.array(["u", "v"], dtype=object))
    assert data.labels.dtype.kind == "U"


@pytest.mark.parametrize(
    ("labels", "kinds"),
    [
        (["a", 1], "int and str"),
        ([True, 2], "bool and int"),
        ([np.True_, "a"], "bool and str"),
        ([1, 2.5], "float and int"),
        ([None, "a"], "NoneType and str"),
        (np.array(["a", 1], dtype=object), "int and str"),
    ],
)
def test_labels_of_mixed_kinds(labels: Any, kinds: str) -> None:
    words = f"labels mix {kinds}; use str, int or bool, all of one kind"
    with pytest.raises(InputError, match=f"^{words}"):
        label_array(labels)
    with pytest.raises(InputError, match=f"^taps: {words}"):
        SeriesSet.from_list(some([2, 2]), labels, name="taps")


def test_numbers_of_one_kind_but_several_sizes_are_one_kind() -> None:
    assert label_array([1, np.int64(2), np.uint8(3)]).tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"labels": np.array([0.5, 1.5, 2.5])}, "labels are of type float64; use str, int or bool"),
        ({"labels": np.array([None] * 3)}, "labels are of type object; use str, int or bool"),
        ({"labels": np.array(["a", "b"])}, "3 series, but 2 labels and 3 ids; give one of each"),
        ({"labels": np.array([["a"]] * 3)}, r"labels have shape \(3, 1\) and ids \(3,\); both must be 1-D"),
        ({"ids": np.array(["x", "y"])}, "3 series, but 3 labels and 2 ids"),
        ({"ids": np.array(["x", "y", "x"])}, "id 'x' is used twice; ids must differ"),
        ({"dim_names": ("left",)}, "1 dim_names for 2 dims"),
        ({"offsets": np.array([0, 3, 4])}, "offsets run from 0 to 4; they must run from 0 to .* 9"),
        ({"offsets": np.array([1, 3, 4, 9])}, "offsets run from 1 to 9"),
        ({"offsets": np.array([0, 3, 3, 9])}, "series 1 is empty; remove it"),
        ({"offsets": np.array([0, 5, 3, 9])}, "series 1 is empty"),
        ({"offsets": np.array([0])}, "the set has no series"),
        ({"values": np.zeros(9)}, r"values have shape \(9,\); must be \(frames, dims\)"),
        ({"values": np.zeros((9, 0))}, r"values have shape \(9, 0\); must be"),
    ],
)
def test_what_is_no_set(data: SeriesSet, change: dict[str, Any], words: str) -> None:
    parts = {name: getattr(data, name) for name in ("values", "offsets", "labels", "ids", "name", "dim_names")}
    with pytest.raises(InputError, match=f"^taps: {words}"):
        SeriesSet(**(parts | change))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_is_named_by_series_and_frame(data: SeriesSet, bad: float) -> None:
    values = data.values.copy()
    values[6, 1] = bad
    with pytest.raises(InputError, match=r"taps: series 2 \(id z\) has a NaN or infinite value in frame 2; fill"):
        SeriesSet(values, data.offsets, data.labels, data.ids, name="taps")


def test_whatever_the_types_given_the_set_holds_those_it_promises() -> None:
    data = SeriesSet(
        np.asfortranarray(np.arange(6, dtype=np.float32).reshape(3, 2)),
        np.array([0, 1, 3], dtype=np.int32),
        np.array([1, 2]),
        np.array(["a", "b"]),
    )
    assert data.values.dtype == np.float64
    assert data.values.flags.c_contiguous
    assert data.offsets.dtype == np.int64
    assert data[1].tolist() == [[2.0, 3.0], [4.0, 5.0]]


@pytest.mark.parametrize("rows", [[2, 0], np.array([2, 0]), [-1, 0]])
def test_select_by_position_keeps_the_order_asked_for(data: SeriesSet, rows: Any) -> None:
    chosen = data.select(rows)
    assert chosen.ids.tolist() == ["z", "x"]
    assert chosen.labels.tolist() == ["b", "b"]
    assert np.array_equal(chosen[0], data[2])
    assert np.array_equal(chosen[1], data[0])
    assert chosen.name == "taps"
    assert chosen.dim_names == ("left", "right")


def test_select_by_mask(data: SeriesSet) -> None:
    assert data.select(data.labels == "b").ids.tolist() == ["x", "z"]


@pytest.mark.parametrize("rows", [[], np.zeros(3, dtype=bool), 1])
def test_select_of_nothing(data: SeriesSet, rows: Any) -> None:
    with pytest.raises(InputError, match="taps: select needs at least one row, in a list or mask"):
        data.select(rows)


def test_select_beyond_the_end(data: SeriesSet) -> None:
    with pytest.raises(IndexError):
        data.select([3])


def test_a_row_chosen_twice_would_have_one_id_twice(data: SeriesSet) -> None:
    with pytest.raises(InputError, match="id 'y' is used twice"):
        data.select([1, 1])


def test_select_dims(data: SeriesSet) -> None:
    right = data.select_dims([1])
    assert right.dim_names == ("right",)
    assert np.array_equal(right.values, data.values[:, 1:])
    assert right.ids.tolist() == data.ids.tolist()
    swapped = data.select_dims([1, 0])
    assert swapped.dim_names == ("right", "left")
    assert np.array_equal(swapped[2], data[2][:, ::-1])
    assert data.select_dims([True, False]).dim_names == ("left",)


@pytest.mark.parametrize("dims", [[], [False, False], 0])
def test_select_dims_of_nothing(data: SeriesSet, dims: Any) -> None:
    with pytest.raises(InputError, match="taps: select_dims needs at least one dimension"):
        data.select_dims(dims)


def test_map_may_change_lengths_and_dims(data: SeriesSet) -> None:
    doubled = data.map(lambda values: np.repeat(values, 2, axis=0))
    assert doubled.lengths.tolist() == [6, 2, 10]
    assert doubled.dim_names == ("left", "right")
    assert doubled.labels.tolist() == data.labels.tolist()
    assert doubled.ids.tolist() == data.ids.tolist()
    norms = data.map(lambda values: np.linalg.norm(values, axis=1))
    assert norms.dims == 1
    assert norms.dim_names == ()
    assert norms[0][:, 0] == pytest.approx(np.linalg.norm(data[0], axis=1))


def test_map_that_spoils_a_series_names_it(data: SeriesSet) -> None:
    with pytest.raises(InputError, match=r"taps\[1\] has a NaN or infinite value \(frame 0, dim 0\)"):
        data.map(lambda values: np.where(len(values) == 1, np.nan, values))
    with pytest.raises(InputError, match=r"taps\[1\] is empty \(shape \(0, 2\)\); remove it"):
        data.map(lambda values: values[1:])


def test_read_finds_the_form_by_itself(data: SeriesSet, tmp_path: Path) -> None:
    write_npz(tmp_path / "taps.npz", data)
    again = SeriesSet.read(tmp_path / "taps.npz")
    assert np.array_equal(again.values, data.values)
    assert again.labels.tolist() == data.labels.tolist()
    (tmp_path / "up.ts").write_text("@problemName up\n@classLabel true a b\n@data\n1,2,?:a\n4,5:b\n")
    with pytest.raises(ReadError, match=r"up\.ts"):
        SeriesSet.read(tmp_path / "up.ts")
    assert SeriesSet.read(tmp_path / "up.ts", missing="interpolate").lengths.tolist() == [3, 2]
    with pytest.raises(InputError, match="nowhere"):
        SeriesSet.read(tmp_path / "nowhere.npz")


def test_ragged_takes_lists_and_arrays_alike() -> None:
    stack = np.arange(12.0).reshape(2, 3, 2)
    for given_set in (stack, list(stack), stack.tolist(), SeriesSet.from_list(stack)):
        values, offsets = ragged(given_set)
        assert np.array_equal(values, stack.reshape(6, 2))
        assert offsets.tolist() == [0, 3, 6]
        assert values.dtype == np.float64
        assert offsets.dtype == np.int64
    lone = np.empty(2, dtype=object)
    lone[:] = [np.ones((2, 1)), np.zeros((1, 1))]
    assert ragged(lone)[1].tolist() == [0, 2, 3]


def test_ragged_takes_rows_of_a_matrix_as_series_of_one_dim() -> None:
    values, offsets = ragged(np.arange(6).reshape(2, 3))
    assert values.tolist() == [[0.0], [1.0], [2.0], [3.0], [4.0], [5.0]]
    assert offsets.tolist() == [0, 3, 6]
    assert np.array_equal(ragged([[0, 1, 2], [3, 4, 5]])[0], values)


@pytest.mark.parametrize(
    ("series", "words"),
    [
        (
            np.zeros(4),
            r"A: an array of shape \(4,\) is no set of series; pass a list of \(time, dims\) arrays",
        ),
        (np.zeros((1, 2, 3, 4)), r"A: an array of shape \(1, 2, 3, 4\) is no set of series"),
        ([], "A has no series; pass at least one"),
        (np.zeros((0, 3, 2)), "A has no series"),
        ([np.ones((2, 2)), np.ones((2, 3))], r"A\[1\] has 3 dims but A\[0\] has 2; all series of a set"),
        ([np.ones((2, 2)), np.ones((0, 2))], r"A\[1\] is empty \(shape \(0, 2\)\); remove it"),
        ([np.ones((2, 2, 1))], r"A\[0\] has shape \(2, 2, 1\); each series must be \(time, dims\)"),
        ([3.0], r"A\[0\] has shape \(\); each series must be"),
        (["walk"], r"A\[0\] holds text; it must hold real numbers, convert it first"),
        ([[1.0, 2.0], ["1.5", "2"]], r"A\[1\] holds text; it must hold real numbers"),
        ([np.array([1.0, "2"], dtype=object)], r"A\[0\] holds text; it must hold real numbers"),
        ([np.array([1 + 2j])], r"A\[0\] holds values of type complex128; it must hold real numbers"),
        ([np.array(["2020-01-01"], dtype="datetime64[D]")], r"A\[0\] holds values of type datetime64"),
        (np.zeros((2, 3, 1), dtype=complex), r"A\[0\] holds values of type complex128"),
        ([[[1, 2], [3]]], r"A\[0\] cannot be read as numbers"),
        (None, r"A is of type NoneType; pass a list of \(time, dims\) arrays"),
        (7, "A is of type int; pass a list"),
    ],
)
def test_ragged_says_what_is_no_series(series: Any, words: str) -> None:
    with pytest.raises(InputError, match=f"^{words}"):
        ragged(series, name="A")


def test_ragged_names_sample_frame_and_dim_of_a_bad_value() -> None:
    series = some([3, 4, 5])
    series[1][2, 1] = np.nan
    with pytest.raises(InputError, match=r"X\[1\] has a NaN or infinite value \(frame 2, dim 1\); fill it"):
        ragged(series, name="X")


class TestLongText:
    """Labels and ids are kept as wide as the longest."""

    def made(self, n: int, letters: int, *, array: bool = False) -> SeriesSet:
        labels = ["a"] * (n - 1) + ["b" * letters]
        return SeriesSet.from_list(np.zeros((n, 1, 1)), np.array(labels) if array else labels)

    @pytest.mark.parametrize("array", [False, True])
    def test_a_label_that_is_too_long_is_refused(self, array: bool) -> None:
        assert self.made(3, 5000, array=array).labels.dtype == "<U5000"
        with pytest.raises(InputError, match=r"labels: 'b{50}'\.\.\. has 5,001 letters, .*may have 5,000; shorten it"):
            self.made(3, 5001, array=array)
        # one among very many must be shorter: all of them are as wide
        assert self.made(100_000, 183, array=array).labels.dtype == "<U183"
        with pytest.raises(InputError, match=r"all 100,000 are kept as wide as the longest, which may have 183"):
            self.made(100_000, 184, array=array)

    @pytest.mark.parametrize("array", [False, True])
    def test_an_id_as_well(self, array: bool) -> None:
        ids = ["a", "b" * 5001]
        with pytest.raises(InputError, match=r"ids: 'b{50}'\.\.\. has 5,001 letters"):
            SeriesSet.from_list(np.zeros((2, 1, 1)), ids=np.array(ids) if array else ids)  # type: ignore[arg-type]

    def test_ids_of_a_set_are_looked_at_before_all_are_as_wide(self) -> None:
        n, ids = 3000, ["b" * 20_000, *map(str, range(2999))]
        with little_memory(2**24), pytest.raises(InputError, match=r"ids: .* has 20,000 letters"):
            SeriesSet(np.zeros((n, 1)), np.arange(n + 1), np.zeros(n, int), ids)  # type: ignore[arg-type]

    @pytest.mark.parametrize("form", ["X", "values"])
    def test_of_none_there_is_no_longest(self, form: str, tmp_path: Path) -> None:
        none = np.empty(0, "U200")
        whole = {
            "X": {"X": np.zeros((0, 2, 2)), "y": none},
            "values": {"values": np.zeros((2, 1)), "offsets": np.array([0, 2]), "labels": none, "ids": none},
        }
        np.savez(tmp_path / "a.npz", **whole[form])  # type: ignore[arg-type]
        with pytest.raises(InputError):
            SeriesSet.read(tmp_path / "a.npz")

    @pytest.mark.parametrize("suffix", ["ts", "arff"])
    def test_a_small_file_takes_little_memory(self, suffix: str, tmp_path: Path) -> None:
        long, path = "b" * 20_000, tmp_path / f"a.{suffix}"
        if suffix == "arff":
            head = f"@relation x\n@attribute a real\n@attribute c {{a,{long}}}\n@data\n"
            path.write_text(head + "1,a\n" * 3000 + f"1,{long}\n")
        else:
            head = f"@problemName x\n@univariate true\n@classLabel true a {long}\n@data\n"
            path.write_text(head + "1:a\n" * 3000 + f"1:{long}\n")
        with little_memory(2**24), pytest.raises(InputError, match="20,000 letters"):
            SeriesSet.read(path)

    def test_what_would_be_too_long_among_more_is_told_before_they_are_added(self, tmp_path: Path) -> None:
        ingest(self.made(10, 400), tmp_path / "s.zarr")
        before = files_below(tmp_path)
        more = SeriesSet.from_list(np.zeros((100_000, 1, 1)), ["a"] * 100_000, [f"more {i}" for i in range(100_000)])
        with pytest.raises(InputError, match=r"labels of .*s\.zarr with series: 'b{50}'\.\.\. has 400 letters"):
            append_series(Folder(tmp_path / "s.zarr"), more)
        assert files_below(tmp_path) == before

    def test_rows_of_a_ready_matrix(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"ids: .* has 5,001 letters"):
            ingest_distances(np.zeros((2, 2)), tmp_path / "s.zarr", ids=np.array(["a", "b" * 5001]))
        for which in ("ids", "labels"):
            with pytest.raises(InputError, match=rf"2 rows, but there are .*\b0 {which}"):
                ingest_distances(np.zeros((2, 2)), tmp_path / "s.zarr", **{which: np.empty(0, "U200")})  # type: ignore[arg-type]
        assert not (tmp_path / "s.zarr").exists()
