"""Copies of all metadata: damage is named and put back byte for byte, and a healthy store is never blamed."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cksc_dist.dist import ingest as ingesting
from cksc_dist.errors import StoreError
from cksc_dist.spec import DistanceSpec
from cksc_dist.store import matrix_files, series_files
from cksc_dist.store.folder import Folder
from cksc_dist.store.matrix_files import create_matrix, find_matrices, grow_matrix
from cksc_dist.store.metadata import damaged_metadata, record_metadata, restore_metadata
from cksc_dist.store.series_files import append_series, open_series, write_series
from tests.store.stored import content, finished, flip, killed_at, made


def metadata_files(folder: Folder) -> list[str]:
    tops = [f"{top}/{name}" for top in ("series", "distances") for name in folder.files(top)]
    return ["zarr.json", *(name for name in tops if name.endswith("zarr.json"))]


def test_a_whole_store_has_no_damage(folder: Folder) -> None:
    finished(folder)
    assert damaged_metadata(folder) == []
    assert restore_metadata(folder) == []


def test_every_metadata_file_that_is_read_is_covered(folder: Folder) -> None:
    files = finished(folder)
    wanted = {"zarr.json", "series/zarr.json", f"{files.group}/zarr.json"}
    wanted |= {f"series/{name}/zarr.json" for name in ("values", "offsets", "digest", "label", "row")}
    wanted |= {f"{files.group}/{name}/zarr.json" for name in ("distance", "row", "col", "label")}
    assert wanted <= set(folder.read_json("metadata.json"))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_flipped_bit_in_any_metadata_file_is_named_and_mended(data: st.DataObject, shared: Folder) -> None:
    key = data.draw(st.sampled_from(sorted(shared.read_json("metadata.json"))), "file")
    bit = data.draw(st.integers(0, 10**5), "bit")
    before = content(shared)
    flip(shared, key, bit)
    assert damaged_metadata(shared) == [key]
    assert restore_metadata(shared) == [key]
    assert content(shared) == before
    assert damaged_metadata(shared) == []


@pytest.fixture(scope="module")
def shared() -> Folder:
    folder = Folder("memory://metadata-shared")
    finished(folder)
    return folder


def test_a_missing_metadata_file_is_named_and_mended(folder: Folder) -> None:
    files = finished(folder)
    lost = [f"{files.group}/distance/zarr.json", "series/values/zarr.json", "zarr.json"]
    before = {key: folder.read(key) for key in lost}
    for key in lost:
        folder.remove(key)
    assert sorted(damaged_metadata(folder)) == sorted(lost)
    assert sorted(restore_metadata(folder)) == sorted(lost)
    assert {key: folder.read(key) for key in lost} == before
    assert open_series(folder).n == 10


@pytest.mark.parametrize(
    ("key", "was", "now"),
    [
        ("{matrix}/distance/zarr.json", '"fill_value": "NaN"', '"fill_value": 0.0'),  # what is lost would be near
        ("{matrix}/zarr.json", '"series": "', '"series": "0'),
        ("series/zarr.json", '"frames": ', '"name": "of others", "frames": '),
    ],
)
def test_metadata_that_is_wrong_and_looks_right_is_never_gone_by(folder: Folder, key: str, was: str, now: str) -> None:
    key = key.format(matrix=finished(folder).group)
    before = (folder.read(key) or b"").decode()
    wrong = json.dumps(json.loads(before)).replace(was, now)
    assert wrong != json.dumps(json.loads(before))
    folder.write(key, wrong.encode())
    with pytest.raises(
        StoreError, match=rf"{re.escape(key)} is damaged \(it differs from its copy in metadata\.json\)"
    ):
        _ = find_matrices(folder) if "distances" in key else open_series(folder)
    assert restore_metadata(folder) == [key]
    assert find_matrices(folder)
    assert open_series(folder).n == 10


def test_a_damaged_file_of_copies_is_named(folder: Folder) -> None:
    finished(folder)
    flip(folder, "metadata.json", 8 * 500)
    with pytest.raises(StoreError, match=r"metadata\.json is damaged"):
        damaged_metadata(folder)


def test_what_is_no_longer_there_is_not_asked_for(folder: Folder) -> None:
    write_series(folder, made(labels=[1] * 10))
    assert "series/values/zarr.json" in folder.read_json("metadata.json")
    series = made()
    series_files.write_rows(folder, series.labels, series.ids, "ready")
    assert "series/values/zarr.json" not in folder.read_json("metadata.json")
    assert damaged_metadata(folder) == []


def test_groups_of_like_names_are_told_apart(folder: Folder) -> None:
    finished(folder)
    before = folder.read_json("metadata.json")
    record_metadata(folder, "series")
    assert folder.read_json("metadata.json") == before


def stored(folder: Folder) -> Any:
    return open_series(folder).load()


def test_an_ingest_killed_before_its_copies_is_healthy_once_it_is_run_again(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = made()
    with killed_at(monkeypatch, series_files, "record_metadata"):
        write_series(folder, data)
    ingesting.ingest(data, folder)
    assert damaged_metadata(folder) == []
    flip(folder, "series/values/zarr.json", 8 * 30)
    assert damaged_metadata(folder) == ["series/values/zarr.json"]


def test_a_replacement_killed_before_its_copies_is_not_undone_by_a_repair(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_series(folder, made(n=10))
    data = made(n=6, seed=1)
    with killed_at(monkeypatch, series_files, "record_metadata"):
        write_series(folder, data)
    ingesting.ingest(data, folder, replace=True)
    assert damaged_metadata(folder) == []
    restore_metadata(folder)
    assert stored(folder).ids.tolist() == data.ids.tolist()
    assert stored(folder).values.tolist() == data.values.tolist()


def test_an_append_killed_before_its_copies_is_not_undone_by_a_repair(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_series(folder, made(n=10))
    more = made(n=5, seed=1, first=10)
    with killed_at(monkeypatch, series_files, "record_metadata"):
        append_series(folder, more)
    ingesting.append(folder, more)
    assert damaged_metadata(folder) == []
    restore_metadata(folder)
    assert stored(folder).ids.tolist() == [f"s{i}" for i in range(15)]


def test_an_append_killed_before_its_commit_leaves_a_store_that_repair_makes_whole(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, more = made(n=10), made(n=5, seed=1, first=10)
    write_series(folder, old)
    with killed_at(monkeypatch, zarr.core.attributes.Attributes, "put"):
        append_series(folder, more)
    restore_metadata(folder)
    assert damaged_metadata(folder) == []
    assert stored(folder).values.tolist() == old.values.tolist()
    append_series(folder, more)
    assert stored(folder).ids.tolist() == [f"s{i}" for i in range(15)]
    assert stored(folder).values.tolist() == [*old.values.tolist(), *more.values.tolist()]
    assert damaged_metadata(folder) == []


def test_a_matrix_made_by_a_process_killed_before_its_copies_is_covered_by_the_next_run(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_series(folder, made())
    series = open_series(folder)
    with killed_at(monkeypatch, matrix_files, "record_metadata"):
        create_matrix(folder, DistanceSpec().resolved(), series, 4)
    (files,) = find_matrices(folder).values()
    grow_matrix(files, series)
    flip(folder, f"{files.group}/zarr.json", 8 * 30)
    assert damaged_metadata(folder) == [f"{files.group}/zarr.json"]


def test_a_matrix_grown_by_a_process_killed_before_its_copies_is_healthy_after_the_next_run(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = finished(folder, made(n=10))
    append_series(folder, made(n=5, seed=1, first=10))
    series = open_series(folder)
    with killed_at(monkeypatch, matrix_files, "record_metadata"):
        grow_matrix(files, series)
    again = grow_matrix(find_matrices(folder)[files.fingerprint], series)
    assert again.grid.n == 15
    assert damaged_metadata(folder) == []
