"""A stored matrix: whole tiles and their mirrors, grown and shrunk with its series, found again or named as damaged."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cksc_dist.errors import StoreError
from cksc_dist.spec import DistanceSpec, fingerprint
from cksc_dist.store.folder import Folder
from cksc_dist.store.grid import Grid
from cksc_dist.store.ledger import Blocks, Ledger, checksum
from cksc_dist.store.matrix_files import (
    MatrixFiles,
    create_matrix,
    find_matrices,
    grow_matrix,
    open_files,
    transposed,
)
from cksc_dist.store.metadata import restore_metadata
from cksc_dist.store.series_files import append_series, open_series, write_series
from tests.store.stored import content, distances_of, fill, finished, flip, killed_at, made

SPEC = DistanceSpec().resolved()


def empty(folder: Folder, spec: DistanceSpec = SPEC, edge: int = 4) -> MatrixFiles:
    write_series(folder, made())
    return create_matrix(folder, spec, open_series(folder), edge)


def whole(files: MatrixFiles) -> Any:
    return open_files(files.folder, files.fingerprint).array[:, :]


def test_a_new_matrix_is_all_nan_and_named_by_its_settings(folder: Folder) -> None:
    files = empty(folder)
    assert files.fingerprint == fingerprint(SPEC)
    assert files.group == f"distances/{fingerprint(SPEC)}"
    assert np.isnan(whole(files)).all()
    assert files.present() == {}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_tiles_and_their_mirrors_make_the_matrix(folder: Folder, dtype: str) -> None:
    files = finished(folder, spec=DistanceSpec(dtype=dtype))
    expected = distances_of(made(), files.spec)
    found = whole(files)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, expected)
    for tile in files.grid.all_tiles():
        rows, columns = (slice(*files.grid.rows(block)) for block in tile)
        np.testing.assert_array_equal(files.read_tile(tile), expected[rows, columns])
        np.testing.assert_array_equal(files.read_tile(tile[::-1]), expected[columns, rows])


def test_a_tile_writes_its_own_two_chunks_and_no_other(folder: Folder) -> None:
    files = empty(folder)
    values = np.arange(8.0).reshape(4, 2)
    files.write_tile((0, 2), values)
    assert set(files.present()) == {(0, 2), (2, 0)}
    before = content(folder, files.group)
    files.write_tile((1, 1), np.ones((4, 4)))
    after = content(folder, files.group)
    assert {name for name in after if after[name] != before.get(name)} == {"distance/c/1/1"}
    assert set(files.present()) == {(0, 2), (2, 0), (1, 1)}
    assert files.present()[1, 1] == len(after["distance/c/1/1"])


def test_the_same_tile_written_again_has_the_same_bytes(folder: Folder) -> None:
    files = finished(folder)
    before = content(folder, f"{files.group}/distance")
    fill(files, made())
    assert content(folder, f"{files.group}/distance") == before


def test_chunks_of_two_places_have_the_same_bytes(folder: Folder) -> None:
    files, other = finished(folder), finished(Folder("memory://twin"))
    assert content(folder, f"{files.group}/distance") == content(other.folder, f"{other.group}/distance")


def test_what_killed_writers_left_is_no_chunk(folder: Folder) -> None:
    files = empty(folder)
    files.write_tile((0, 0), np.zeros((4, 4)))
    for name in (f"0/1.{'0' * 32}.partial", "x/1", "1/1/1"):
        folder.write(f"{files.group}/distance/c/{name}", b"")
    assert set(files.present()) == {(0, 0)}


@settings(max_examples=50)
@given(rows=st.integers(1, 200), columns=st.integers(1, 200), dtype=st.sampled_from(["f8", "f4"]))
def test_the_mirror_of_a_tile(rows: int, columns: int, dtype: str) -> None:
    values = np.random.default_rng(rows).random((rows, columns)).astype(dtype)
    mirror = transposed(values)
    np.testing.assert_array_equal(mirror, values.T)
    assert mirror.flags.c_contiguous
    assert mirror.dtype == values.dtype


def test_a_checksum_is_of_values_row_by_row() -> None:
    values = np.random.default_rng(0).random((5, 7))
    assert checksum(values) == checksum(np.asfortranarray(values)) == checksum(np.pad(values, 3)[3:-3, 3:-3])
    assert checksum(values) != checksum(values.T)
    changed = values.copy()
    changed[3, 3] = np.nextafter(changed[3, 3], 2)
    assert checksum(values) != checksum(changed)
    assert 0 <= checksum(values) < 2**32


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(bit=st.integers(0, 10**6), chunk=st.sampled_from(["0/0", "0/2", "2/1"]))
def test_a_flipped_bit_in_a_chunk_is_never_read(bit: int, chunk: str, shared: MatrixFiles) -> None:
    key = f"{shared.group}/distance/c/{chunk}"
    good = shared.folder.read(key) or b""
    flip(shared.folder, key, bit)
    tile = (int(chunk[0]), int(chunk[2]))
    with pytest.raises(ValueError, match=r"checksum|crc|bytes of memory"):
        shared.read_tile(tile)
    shared.folder.write(key, good)
    assert not np.isnan(shared.read_tile(tile)).any()


@pytest.fixture(scope="module")
def shared() -> MatrixFiles:
    return finished(Folder("memory://matrix-shared"))


def test_metadata_is_written_for_xarray(folder: Folder) -> None:
    files = empty(folder)
    group = zarr.open_group(folder.zarr(read_only=True), path=files.group, mode="r")
    distance: Any = group["distance"]
    assert distance.metadata.dimension_names == ("row", "col")
    assert distance.chunks == (4, 4)
    assert np.isnan(distance.fill_value)
    codecs = [type(codec).__name__ for codec in distance.compressors]
    assert codecs == ["BloscCodec", "Crc32cCodec"]
    axes = {name: array.metadata.dimension_names for name, array in group.arrays()}  # type: ignore[union-attr]
    assert (axes["row"], axes["col"], axes["label"]) == (("row",), ("col",), ("row",))


SPECS = [
    SPEC,
    DistanceSpec(window=3, dtype="float32").resolved(),
    DistanceSpec(window=0.25, mode="independent", normalise="z", per_length=True, engine="dtaidistance"),
    DistanceSpec(metric="euclidean", dims=(0,)),
    DistanceSpec(metric="external"),
]


def test_all_matrices_of_a_store_are_found_with_their_settings(folder: Folder) -> None:
    write_series(folder, made())
    assert find_matrices(folder) == {}
    for k, spec in enumerate(SPECS):
        create_matrix(folder, spec, open_series(folder), 3 + k)
    found = find_matrices(folder)
    assert set(found) == {fingerprint(spec) for spec in SPECS}
    for k, spec in enumerate(SPECS):
        files = found[fingerprint(spec)]
        assert (files.spec, files.grid, files.fingerprint) == (spec, Grid(10, 3 + k), fingerprint(spec))


def test_a_matrix_that_is_not_there_is_named(folder: Folder) -> None:
    write_series(folder, made())
    with pytest.raises(StoreError, match=r"has no matrix 0123; see: cksc status "):
        open_files(folder, "0123")


def test_no_store_has_no_matrices(folder: Folder) -> None:
    with pytest.raises(StoreError, match=r"is no store; make one with: cksc ingest"):
        find_matrices(folder)


def test_the_group_above_all_matrices_is_there_before_any_of_them(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise whoever looks meanwhile, or after a kill, would take it for damage."""
    write_series(folder, made())
    with killed_at(monkeypatch, zarr.Group, "create_group"):
        create_matrix(folder, SPEC, open_series(folder), 4)
    folder.write(f"distances/{fingerprint(SPEC)}/zarr.json.0.partial", b"")
    assert find_matrices(folder) == {}
    create_matrix(folder, SPEC, open_series(folder), 4)
    assert list(find_matrices(folder)) == [fingerprint(SPEC)]


def test_a_matrix_that_was_cut_off_while_it_was_made_is_left_out_and_made_anew(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_series(folder, made())
    with killed_at(monkeypatch, zarr.core.attributes.Attributes, "put"):
        create_matrix(folder, SPEC, open_series(folder), 4)
    assert find_matrices(folder) == {}
    files = create_matrix(folder, SPEC, open_series(folder), 4)
    assert list(find_matrices(folder)) == [files.fingerprint]


def _torn(folder: Folder, group: str) -> None:
    folder.write(f"{group}/zarr.json", b'{"attr')


def _lost(folder: Folder, group: str) -> None:
    folder.remove(f"{group}/zarr.json")


def _renamed(folder: Folder, group: str) -> None:
    folder.write(f"{group}/zarr.json", (folder.read(f"{group}/zarr.json") or b"").replace(b'"spec"', b'"rpec"'))


def _torn_array(folder: Folder, group: str) -> None:
    folder.write(f"{group}/distance/zarr.json", b"")


def _lost_array(folder: Folder, group: str) -> None:
    folder.remove(f"{group}/distance/zarr.json")


def _other_settings(folder: Folder, group: str) -> None:
    text = folder.read(f"{group}/zarr.json") or b""
    assert b'"dependent"' in text
    folder.write(f"{group}/zarr.json", text.replace(b'"dependent"', b'"independent"'))


def _lost_top(folder: Folder, group: str) -> None:
    folder.remove("distances/zarr.json")


def _torn_top(folder: Folder, group: str) -> None:
    folder.write("distances/zarr.json", b"{")


DAMAGE = [_torn, _lost, _renamed, _torn_array, _lost_array, _other_settings, _lost_top, _torn_top]


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_finished_matrix_with_damaged_metadata_is_named_and_never_taken_for_none(folder: Folder, damage: Any) -> None:
    # taken for none, it would be made anew, and all that was computed lost
    files = finished(folder)
    damage(folder, files.group)
    where = "distances" if damage in (_lost_top, _torn_top) else files.group
    with pytest.raises(StoreError, match=rf"{folder.url}/{where}"):
        find_matrices(folder)


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_metadata_of_one_matrix_can_be_mended(folder: Folder, damage: Any) -> None:
    files = finished(folder)
    damage(folder, files.group)
    assert restore_metadata(folder)
    np.testing.assert_array_equal(find_matrices(folder)[files.fingerprint].array[:, :], distances_of(made(), SPEC))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(bit=st.integers(0, 10**5), name=st.sampled_from(["zarr.json", "distance/zarr.json"]))
def test_a_flipped_bit_in_the_metadata_is_a_store_error_or_harmless(bit: int, name: str, shared: MatrixFiles) -> None:
    key = f"{shared.group}/{name}"
    good = shared.folder.read(key) or b""
    flip(shared.folder, key, bit)
    try:
        open_files(shared.folder, shared.fingerprint)
    except StoreError as error:
        assert shared.fingerprint in str(error)  # noqa: PT017  most bits make no error at all
    finally:
        shared.folder.write(key, good)


def test_a_matrix_grows_with_its_series_and_old_chunks_keep_their_bytes(folder: Folder) -> None:
    files = finished(folder)
    before = content(folder, f"{files.group}/distance/c")
    append_series(folder, made(n=5, seed=1, first=10))
    series = open_series(folder)
    grown = grow_matrix(files, series)
    assert grown.grid == Grid(15, 4)
    assert content(folder, f"{files.group}/distance/c") == before
    found = whole(grown)
    np.testing.assert_array_equal(found[:10, :10], distances_of(made(), SPEC))
    assert np.isnan(found[10:]).all()
    assert np.isnan(found[:, 10:]).all()
    group = zarr.open_group(folder.zarr(read_only=True), path=files.group, mode="r")
    for name in ("row", "col"):
        assert np.asarray(group[name][:]).tolist() == series.ids.tolist()  # type: ignore[index]
    assert np.asarray(group["label"][:]).tolist() == series.labels.tolist()  # type: ignore[index]


def test_a_matrix_that_fits_is_left_as_it_is(folder: Folder) -> None:
    files = finished(folder)
    before = content(folder)
    assert grow_matrix(files, open_series(folder)) == files
    assert content(folder) == before


def test_axes_follow_when_only_names_or_labels_change(folder: Folder) -> None:
    files = finished(folder)
    renamed = made(first=100, labels=list(range(10)))
    write_series(folder, renamed)
    grow_matrix(files, open_series(folder))
    group = zarr.open_group(folder.zarr(read_only=True), path=files.group, mode="r")
    assert np.asarray(group["row"][:]).tolist() == renamed.ids.tolist()  # type: ignore[index]
    assert np.asarray(group["label"][:]).tolist() == list(range(10))  # type: ignore[index]
    np.testing.assert_array_equal(whole(files), distances_of(made(), SPEC))


def test_a_matrix_that_shrank_and_grew_again_is_not_vouched_for_where_its_chunks_are_gone(folder: Folder) -> None:
    files, data = finished(folder), made()
    ledger = Ledger(folder, files.fingerprint).load()
    ledger.collect()
    write_series(folder, data.select(range(6)))
    files = grow_matrix(files, open_series(folder))
    assert files.grid.n == 6
    np.testing.assert_array_equal(whole(files)[:4, :4], distances_of(data, SPEC)[:4, :4])
    write_series(folder, data)
    files = grow_matrix(files, open_series(folder))
    blocks, there = Blocks(files.grid, open_series(folder).digests), files.present()
    found, expected = whole(files), distances_of(data, SPEC)
    for tile in files.grid.all_tiles():
        rows, columns = (slice(*files.grid.rows(block)) for block in tile)
        if tile in there and tile[::-1] in there and blocks.is_done(tile, ledger.entries.get(tile)):
            np.testing.assert_array_equal(found[rows, columns], expected[rows, columns])
    assert (2, 2) not in there
