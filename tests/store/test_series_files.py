"""Series in a store: the same bits come back by any range, an append counts once it is committed, damage is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cksc_dist.errors import InputError, StoreError
from cksc_dist.series import SeriesSet
from cksc_dist.store import series_files
from cksc_dist.store.folder import Folder
from cksc_dist.store.layout import CHUNK_BYTES, FORMAT, VERSION
from cksc_dist.store.series_files import (
    StoredSeries,
    append_series,
    open_series,
    series_digests,
    write_rows,
    write_series,
)
from tests.store.stored import content, flip, killed_at, made

LABELS: dict[str, Any] = {
    "str": ["fünf", "a b", "", "c" * 300],
    "int": [-7, 0, 2**40, 5],
    "int8": np.array([3, 4, -5, 127], np.int8),
    "uint64": np.array([0, 1, 2**63, 5], np.uint64),
    "bool": [False, True, True, False],
}


def assert_same(found: SeriesSet, data: SeriesSet) -> None:
    np.testing.assert_array_equal(found.values, data.values)
    np.testing.assert_array_equal(found.offsets, data.offsets)
    assert found.labels.tolist() == data.labels.tolist()
    assert found.labels.dtype.kind == data.labels.dtype.kind
    assert found.ids.tolist() == data.ids.tolist()
    assert (found.name, found.dim_names) == (data.name, data.dim_names)


@pytest.mark.parametrize("kind", LABELS)
def test_what_is_written_comes_back(folder: Folder, kind: str) -> None:
    data = made(n=4, labels=LABELS[kind])
    write_series(folder, data)
    stored = open_series(folder)
    assert_same(stored.load(), data)
    assert (stored.n, stored.frames, stored.dims) == (4, len(data.values), 2)
    assert stored.lengths.tolist() == data.lengths.tolist()


def test_odd_names_and_odd_numbers_come_back(folder: Folder) -> None:
    series = [np.array([[0.0, -0.0]]), np.array([[5e-324, -1.7e308]]), np.zeros((3, 2))]
    ids = ["ü/ö.ts", " a\nb ", "日本"]
    data = SeriesSet.from_list(series, ["x", "y", "x"], ids, name="naïve", dim_names=["x axis", ""])
    write_series(folder, data)
    found = open_series(folder).load()
    assert_same(found, data)
    assert np.signbit(found.values).tolist() == np.signbit(data.values).tolist()


@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_any_range_of_rows_is_read_alone(data: st.DataObject) -> None:
    folder, whole = Folder("memory://ranges"), made(n=20)
    write_series(folder, whole)
    begin = data.draw(st.integers(0, 19))
    end = data.draw(st.integers(begin + 1, 20))
    stored = open_series(folder)
    values, offsets = stored.read(begin, end)
    part = whole.select(range(begin, end))
    np.testing.assert_array_equal(values, part.values)
    np.testing.assert_array_equal(offsets, part.offsets)
    assert_same(stored.select(begin, end), part)


def test_too_little_memory_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Folder(tmp_path)
    write_series(folder, made())
    series = open_series(folder)
    assert len(series.offsets) > 2  # which are kept

    def run_out(*_: Any, **__: Any) -> Any:
        raise MemoryError("Unable to allocate")

    monkeypatch.setattr(zarr.Array, "__getitem__", run_out)
    with pytest.raises(MemoryError):
        series.read(0, 2)
    metadata = tmp_path / "series" / "values" / "zarr.json"
    metadata.write_bytes(metadata.read_bytes().replace(b'"shape"', b'"shape" '))
    with pytest.raises(StoreError, match="damaged"):  # of which a shape may take any memory
        series.read(0, 2)


def test_rows_beyond_one_chunk(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    data = SeriesSet.from_list([rng.standard_normal((CHUNK_BYTES // 8 // 3, 1)) for _ in range(8)])
    folder = Folder(tmp_path)
    write_series(folder, data)
    assert len([name for name in folder.files("series/values") if name.startswith("c/")]) == 3
    stored = open_series(folder)
    assert_same(stored.load(), data)
    np.testing.assert_array_equal(stored.read(5, 7)[0], np.concatenate([data[5], data[6]]))


def test_a_read_of_some_rows_touches_only_their_chunks(tmp_path: Path) -> None:
    data = SeriesSet.from_list([np.full((CHUNK_BYTES // 8, 1), float(i + 1)) for i in range(4)])
    folder = Folder(tmp_path)
    write_series(folder, data)
    flip(folder, "series/values/c/3/0", 999)
    assert open_series(folder).read(0, 3)[0][-1, 0] == 3.0


def test_xarray_and_the_attributes_tell_what_is_there(folder: Folder) -> None:
    write_series(folder, made())
    group = zarr.open_group(folder.zarr(read_only=True), path="series", mode="r")
    assert group.attrs["dim_names"] == ["d0", "d1"]
    assert group.attrs["classes"] == ["rün", "walk"]
    axes = {name: array.metadata.dimension_names for name, array in group.arrays()}  # type: ignore[union-attr]
    assert axes["values"] == ("frame", "dim")
    assert axes["offsets"] == ("edge",)
    assert axes["label"] == axes["row"] == ("row",)


def test_digests_tell_series_apart(folder: Folder) -> None:
    series = [np.zeros((2, 1)), np.zeros((3, 1)), np.zeros((2, 1)), np.array([[0.0], [-0.0]])]
    digests = series_digests(SeriesSet.from_list(series))
    assert digests.shape == (4, 16)
    assert digests[0].tolist() == digests[2].tolist()
    assert len({bytes(row) for row in digests}) == 3
    # the same numbers in another shape are another series
    tall, wide = (SeriesSet.from_list([np.arange(4.0).reshape(shape)]) for shape in ((4, 1), (2, 2)))
    assert series_digests(tall).tolist() != series_digests(wide).tolist()
    write_series(folder, made())
    np.testing.assert_array_equal(open_series(folder).digests, series_digests(made()))


def test_new_series_take_the_place_of_old_ones(folder: Folder) -> None:
    write_series(folder, made(n=20))
    data = made(n=3, seed=1, dims=4, labels=[1, 2, 3])
    write_series(folder, data)
    assert_same(open_series(folder).load(), data)


def test_rows_of_a_ready_matrix_have_names_and_no_series(folder: Folder) -> None:
    write_rows(folder, np.array([1, 2, 1]), np.array(["a", "b", "c"]), "ready")
    stored = open_series(folder)
    assert (stored.n, stored.frames, stored.dims, stored.name, stored.dim_names) == (3, 0, 0, "ready", ())
    assert stored.labels.tolist() == [1, 2, 1]
    assert stored.ids.tolist() == ["a", "b", "c"]
    assert len({bytes(row) for row in stored.digests}) == 3
    for use in (stored.check_values, stored.load, lambda: append_series(folder, made())):
        with pytest.raises(StoreError, match="holds a ready matrix without series; ingest series into a new store"):
            use()


@settings(max_examples=8, deadline=None)
@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=5))
def test_appended_series_are_as_if_ingested_at_once(sizes: list[int]) -> None:
    folder = Folder("memory://appended")
    parts = [made(n=n, seed=k, first=100 * k) for k, n in enumerate(sizes)]
    write_series(folder, parts[0])
    for part in parts[1:]:
        append_series(folder, part)
    together = SeriesSet.from_list(
        [series for part in parts for series in part],
        [label for part in parts for label in part.labels.tolist()],
        [str(name) for part in parts for name in part.ids],
        name="made",
        dim_names=parts[0].dim_names,
    )
    stored = open_series(folder)
    assert_same(stored.load(), together)
    np.testing.assert_array_equal(stored.digests, series_digests(together))


def test_an_append_brings_its_classes(folder: Folder) -> None:
    write_series(folder, made(n=4))
    append_series(folder, made(n=2, first=4, labels=["jump", "walk"]))
    assert zarr.open_group(folder.zarr(), path="series").attrs["classes"] == ["jump", "rün", "walk"]
    assert open_series(folder).labels.tolist()[-2:] == ["jump", "walk"]


STEPS = [(zarr.Array, "resize"), (zarr.core.attributes.Attributes, "put"), (series_files, "series_digests")]


@pytest.mark.parametrize(("target", "name"), STEPS, ids=["resize", "commit", "digests"])
def test_an_append_killed_before_its_commit_has_not_happened(
    folder: Folder, target: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, lost, new = made(n=10), made(n=7, seed=1, first=10), made(n=3, seed=2, first=10)
    write_series(folder, old)
    with killed_at(monkeypatch, target, name):
        append_series(folder, lost)
    assert_same(open_series(folder).load(), old)
    np.testing.assert_array_equal(open_series(folder).digests, series_digests(old))
    # others, and fewer, come in their place
    append_series(folder, new)
    stored = open_series(folder)
    assert stored.n == 13
    assert_same(stored.select(10, 13), new)
    assert_same(stored.select(0, 10), old)


@pytest.mark.parametrize("after", range(5))
def test_an_append_killed_between_any_two_arrays_has_not_happened(
    folder: Folder, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, lost = made(n=10), made(n=7, seed=1, first=10)
    write_series(folder, old)
    resize = zarr.Array.resize
    count: list[int] = []

    def dying(self: Any, *args: Any) -> None:
        if len(count) == after:
            raise SystemExit
        count.append(1)
        resize(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(zarr.Array, "resize", dying)
        with pytest.raises(SystemExit):
            append_series(folder, lost)
    assert_same(open_series(folder).load(), old)
    append_series(folder, lost)
    assert_same(open_series(folder).select(10, 17), lost)


def test_an_ingest_killed_before_its_commit_is_told_and_can_be_run_again(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with killed_at(monkeypatch, zarr.core.attributes.Attributes, "put"):
        write_series(folder, made())
    with pytest.raises(StoreError, match=r"has no series, or ingesting them was cut off; run cksc ingest again"):
        open_series(folder)
    write_series(folder, made())
    assert_same(open_series(folder).load(), made())


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (made(n=3, dims=3, first=10), r"made has 3 dims, but the series of .* have 2"),
        (made(n=3, first=8), r"made: id 's8' is in .* already \(2 of 3 are\); ids must differ: rename the file"),
        (
            made(n=3, first=10, labels=[1, 2, 3]),
            r"labels of made are of type int64, those of .*; write them in one kind",
        ),
        (
            made(n=3, first=10, labels=[True, True, False]),
            r"labels of made are of type bool, those of .*; write them in",
        ),
    ],
    ids=["dims", "ids", "labels-int", "labels-bool"],
)
def test_series_that_do_not_fit_are_refused_and_leave_the_store_as_it_was(
    folder: Folder, data: SeriesSet, words: str
) -> None:
    write_series(folder, made(n=10))
    before = content(folder, "series")
    with pytest.raises(InputError, match=words):
        append_series(folder, data)
    assert content(folder, "series") == before


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (np.array([1, 2], np.int8), [1000, -1000]),
        (np.array([1, 2], np.uint8), [-1, 5]),
        ([1, 2], np.array([2**63 + 5, 1], np.uint64)),
        (np.array([1, 2], np.uint8), np.array([3, 255], np.uint8)),
    ],
)
def test_appended_whole_numbers_keep_their_values_or_are_refused(folder: Folder, old: Any, new: Any) -> None:
    write_series(folder, made(n=2, labels=old))
    before = content(folder, "series")
    data = made(n=2, first=2, labels=new)
    try:
        append_series(folder, data)
    except InputError:
        assert content(folder, "series") == before
    else:
        assert open_series(folder).labels.tolist() == [*np.asarray(old).tolist(), *np.asarray(new).tolist()]


def read_all(stored: StoredSeries) -> None:
    """Look at everything that is stored."""
    stored.load()
    len(stored.digests)


ARRAYS = ("values", "offsets", "digest", "label", "row")


@pytest.fixture(scope="module")
def shared() -> Folder:
    folder = Folder("memory://series-shared")
    write_series(folder, made())
    return folder


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from(ARRAYS), bit=st.integers(0, 10**5))
def test_a_flipped_bit_in_a_chunk_is_named(shared: Folder, name: str, bit: int) -> None:
    (chunk,) = (key for key in shared.files(f"series/{name}") if key.startswith("c/"))
    key = f"series/{name}/{chunk}"
    good = shared.read(key)
    assert good is not None
    flip(shared, key, bit)
    stored = open_series(shared)
    words = rf"memory://series-shared/series/{name} is damaged \(.*\); ingest the series again with --replace"
    with pytest.raises(StoreError, match=words):
        read_all(stored)
    shared.write(key, good)
    assert_same(open_series(shared).load(), made())


@pytest.mark.parametrize("size", [0, 2, 20])
@pytest.mark.parametrize("name", ARRAYS)
def test_a_cut_chunk_is_named(folder: Folder, name: str, size: int) -> None:
    write_series(folder, made())
    (chunk,) = (key for key in folder.files(f"series/{name}") if key.startswith("c/"))
    folder.write(f"series/{name}/{chunk}", (folder.read(f"series/{name}/{chunk}") or b"")[:size])
    stored = open_series(folder)
    with pytest.raises(StoreError, match=rf"series/{name} is damaged"):
        read_all(stored)


@pytest.mark.parametrize("name", ARRAYS)
def test_a_lost_chunk_is_named_and_not_read_as_zeros(folder: Folder, name: str) -> None:
    write_series(folder, made())
    (chunk,) = (key for key in folder.files(f"series/{name}") if key.startswith("c/"))
    folder.remove(f"series/{name}/{chunk}")
    stored = open_series(folder)
    with pytest.raises(StoreError, match=rf"series/{name} is damaged"):
        read_all(stored)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(key=st.sampled_from(["zarr.json", "series/zarr.json"]), bit=st.integers(0, 10**5))
def test_a_flipped_bit_in_the_metadata_is_a_store_error_or_harmless(shared: Folder, key: str, bit: int) -> None:
    good = shared.read(key)
    assert good is not None
    flip(shared, key, bit)
    try:
        open_series(shared)
    except StoreError as error:
        assert "memory://series-shared" in str(error)  # noqa: PT017  most bits make no error at all
    finally:
        shared.write(key, good)


@pytest.mark.parametrize("name", ARRAYS)
def test_lost_or_torn_metadata_of_an_array_is_named(folder: Folder, name: str) -> None:
    write_series(folder, made())
    for torn in (None, b"", b"{}", b"[1"):
        if torn is None:
            folder.remove(f"series/{name}/zarr.json")
        else:
            folder.write(f"series/{name}/zarr.json", torn)
        stored = open_series(folder)
        with pytest.raises(StoreError, match=rf"series/{name}"):
            read_all(stored)


def test_no_store_says_how_to_make_one(folder: Folder) -> None:
    with pytest.raises(StoreError, match=r"is no store; make one with: cksc ingest SOURCE "):
        open_series(folder)


def test_other_things_in_the_place_of_a_store_are_told_apart_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "data.npz").write_bytes(b"mine")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").write_bytes(b"mine")
    zarr.create_group(tmp_path / "other.zarr", zarr_format=3, attributes={"format": "theirs"})
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "zarr.json").write_text('{"attr')
    words = {
        "data.npz": "is a file; a store is a folder: choose another place",
        "photos": "is something else than a store of this package; choose another place",
        "other.zarr": "is something else than a store of this package; choose another place",
        "torn": "is something else than a store of this package; choose another place",
    }
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for name, message in words.items():
        for use in (open_series, lambda folder: write_series(folder, made())):
            with pytest.raises(StoreError, match=message):
                use(Folder(tmp_path / name))
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_store_whose_root_is_damaged_is_still_known_for_a_store(folder: Folder) -> None:
    write_series(folder, made())
    folder.write("zarr.json", (folder.read("zarr.json") or b"")[:20])
    with pytest.raises(StoreError, match=r"zarr\.json is damaged.*; mend it with: cksc verify"):
        open_series(folder)


def test_a_store_of_another_version_is_refused_by_both_numbers(folder: Folder) -> None:
    write_series(folder, made())
    root = json.loads(folder.read("zarr.json") or b"")
    assert root["attributes"] == {"format": FORMAT, "version": VERSION}
    root["attributes"]["version"] = VERSION + 1
    folder.write("zarr.json", json.dumps(root).encode())
    words = (
        rf"has layout version {VERSION + 1}, but this release reads version {VERSION}; install the release that wrote "
        "it, or ingest the series into a new store"
    )
    for use in (open_series, lambda folder: write_series(folder, made()), lambda folder: append_series(folder, made())):
        with pytest.raises(StoreError, match=words):
            use(folder)


def test_ids_that_are_no_text_are_named(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a store has them that no release wrote, with right digests."""
    write_series(folder, made(3))
    monkeypatch.setattr(series_files.StoredSeries, "_whole", lambda _, __, n: np.arange(n))
    with pytest.raises(StoreError, match=r"series/row.* \(it holds no text\)"):
        _ = open_series(folder).ids
