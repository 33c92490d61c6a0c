"""Records of a store with a right digest that no release wrote: named errors, no traceback, nothing read elsewhere."""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cksc_dist import CKSC, load_model, open_matrix
from cksc_dist.cli import main
from cksc_dist.dist.distances import compute_distances
from cksc_dist.dist.ingest import append, ingest
from cksc_dist.dist.verify import verify
from cksc_dist.dist.verify_files import verify_files
from cksc_dist.errors import ModelFileError, StoreError
from cksc_dist.spec import RunSpec
from cksc_dist.store.folder import Folder, json_record
from cksc_dist.store.manifest import listed_files
from cksc_dist.store.model_files import _attributes_digest, _canonical
from tests.memory import little_memory
from tests.small_stores import files_below, made_series

DATA = made_series(6)
RECORD = {"training": "own", "number": 1, "crc32c": 5, "settings": {}}
LOCK = {
    "host": "elsewhere",
    "process": 5,
    "born": 1.0,
    "token": "a",
    "purpose": "distances",
    "since": 1.0,
    "heartbeat": 1.0,
}
COPY = {"n": 3, "delta": 1.0, "matrix": "m", "dtype": "float64", "factor": 1.0, "files": {}}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("made")
    ingest(DATA, place / "s.zarr")
    compute_distances(place / "s.zarr", run=RunSpec(executor="serial"))
    CKSC(sparsity=2, kernel="dtw", random_state=0).fit(DATA, DATA.labels).save(place / "s.zarr" / "models" / "m")
    return place


@pytest.fixture
def store(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made / "s.zarr", tmp_path / "s.zarr"))


def write(store: Path, key: str, value: object) -> None:
    path = store / key
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(json_record(value))


def add_array(store: Path, text: Callable[[dict[str, Any]], str]) -> None:
    """Put one more array beside those of the series, and its copy where all copies are."""
    metadata = text(json.loads((store / "series" / "offsets" / "zarr.json").read_text()))
    (store / "series" / "more").mkdir()
    (store / "series" / "more" / "zarr.json").write_text(metadata)
    copies = json.loads((store / "metadata.json").read_text())["value"]
    write(store, "metadata.json", copies | {"series/more/zarr.json": metadata})


def in_chunks(metadata: dict[str, Any], size: int, edge: int) -> str:
    grid = {"name": "regular", "configuration": {"chunk_shape": [edge]}}
    return json.dumps(metadata | {"shape": [size], "chunk_grid": grid})


def change_ledger(store: Path, **values: object) -> None:
    (path,) = store.glob("ledger/*/tiles.json")
    entries = json.loads(path.read_text())["value"]
    write(store, str(path.relative_to(store)), {tile: entry | values for tile, entry in entries.items()})


def change_model(folder: Path, **values: object) -> None:
    metadata = json.loads((folder / "zarr.json").read_text())
    metadata["attributes"] |= values
    metadata["attributes"]["sha256"] = _attributes_digest(metadata["attributes"])
    (folder / "zarr.json").write_bytes(_canonical(metadata))


def copy_of_a_kernel(store: Path, **values: object) -> None:
    write(store, "kernels/k/about.json", COPY | values)
    (store / "kernels" / "k" / "rows.npy").write_bytes(b"0" * 100)


CRAFTED: dict[str, Callable[[Path], None]] = {
    "an array of a thousand million chunks": lambda at: add_array(at, lambda old: in_chunks(old, 10**9, 1)),
    "chunks of no size": lambda at: add_array(at, lambda old: in_chunks(old, 9, 0)),
    "metadata that is no JSON": lambda at: add_array(at, lambda _: "nonsense"),
    "metadata of neither group nor array": lambda at: add_array(at, lambda _: "[]"),
    "a time of 400 digits": lambda at: change_ledger(at, seconds=10**400),
    "a time without end": lambda at: change_ledger(at, at=float("inf")),
    "a list of files that is none": lambda at: write(at, "results/t.files.json", [1, 2]),
    "a file with NUL in its name": lambda at: write(at, "results/t.files.json", {"a\0b": "0"}),
    "a file without a digest": lambda at: write(at, "results/t.files.json", {"a": 1}),
    "a file elsewhere": lambda at: write(at, "results/t.files.json", {"../../secret": "0"}),
    "a model without names": lambda at: change_model(at / "models" / "m", files=["a"]),
    "a model with NUL in a name": lambda at: change_model(at / "models" / "m", files={"a\0": "1"}),
    "a model with files elsewhere": lambda at: change_model(at / "models" / "m", files={"/etc/hostname": "1"}),
    "a checkpoint of 300 digits": lambda at: write(
        at, "models/t.training/own/latest.json", {"records": [RECORD | {"number": 10**300}]}
    ),
    "a checksum below zero": lambda at: write(
        at, "models/t.training/own/latest.json", {"records": [RECORD | {"crc32c": -5}]}
    ),
    "a kernel with NUL in a name": lambda at: copy_of_a_kernel(at, files={"a\0": "1"}),
    "a kernel that is none": lambda at: write(at, "kernels/k/about.json", [1]),
    "a kernel of 400 digits": lambda at: copy_of_a_kernel(at, factor=10**400),
    "fits that are none": lambda at: write(at, "fits/f/fits.json", [1]),
}


HARMLESS = {"an array of a thousand million chunks", "fits that are none"}
"""What nobody reads, or takes for nothing."""


@pytest.mark.parametrize("what", CRAFTED)
def test_every_command_names_what_is_wrong(what: str, store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (store.parent / "secret").write_text("not to be read")
    CRAFTED[what](store)
    assert main(["verify", str(store)]) in ((0,) if what in HARMLESS else (1, 2))
    told = capsys.readouterr()
    assert len(told.err + told.out) < 5000
    for command in (["status"], ["distances", "--executor", "serial"], ["report"]):
        assert main([command[0], str(store), *command[1:]]) in (0, 1, 2)


@pytest.mark.parametrize("values", [{"since": float("inf")}, {"born": float("nan")}, {"heartbeat": float("-inf")}])
def test_a_lock_whose_times_are_none_is_a_damaged_one(values: dict[str, Any], store: Path) -> None:
    for host in ("elsewhere", socket.gethostname()):
        write(store, "lock.json", LOCK | {"host": host} | values)
        assert main(["status", str(store)]) == 0


def test_verify_takes_no_memory_for_chunks_that_are_not_there(store: Path) -> None:
    CRAFTED["an array of a thousand million chunks"](store)
    with little_memory(2**25):
        verify_files(Folder(store))


def test_a_model_is_read_where_it_is_and_nowhere_else(made: Path, tmp_path: Path) -> None:
    model = Path(shutil.copytree(made / "s.zarr" / "models" / "m", tmp_path / "m"))
    other = tmp_path / "other"
    other.mkdir()
    shutil.copy(model / "zarr.json", other)
    change_model(other, at="../m")
    with pytest.raises(ModelFileError, match="damaged"):
        load_model(other)


def test_files_of_a_list_are_below_its_folder() -> None:
    good = {"a": "1", "c/0/0": "2", "über/zarr.json": "3"}
    assert listed_files(good) == good
    for name in ("", "/a", "a/", "a//b", "..", "../a", "a/../b", "a/.", "a\nb", "a" * 256):
        with pytest.raises(ValueError, match="no file of it"):
            listed_files({name: "1"})


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes with names")
def test_a_pipe_or_a_link_among_chunks_keeps_nobody_waiting(tmp_path: Path) -> None:
    from cksc_dist.store.local_files import sync_tree

    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "0").write_bytes(b"a chunk")
    os.mkfifo(tmp_path / "c" / "pipe")
    (tmp_path / "c" / "link").symlink_to(tmp_path / "nowhere")
    sync_tree(tmp_path)


def lengthen(store: Path, key: str, side: int) -> None:
    """Let an array say that it is longer than it is, and the copy of its metadata as well."""
    about = store / key / "zarr.json"
    metadata = json.loads(about.read_text())
    about.write_text(json.dumps(metadata | {"shape": [side] * len(metadata["shape"])}))
    copies = json.loads((store / "metadata.json").read_text())["value"]
    write(store, "metadata.json", copies | {f"{key}/zarr.json": about.read_text()})


@pytest.mark.parametrize("name", ["values", "offsets", "digest", "label", "row"])
def test_series_are_not_added_to_arrays_that_are_far_too_long(name: str, store: Path) -> None:
    """Zarr would ask for each of a million chunks whether it is there, to remove it."""
    lengthen(store, f"series/{name}", 16 * 10**9)
    before = files_below(store)
    with pytest.raises(StoreError, match=rf"series/{name} is damaged"):
        append(store, made_series(2, seed=1, prefix="t"))
    assert files_below(store) == before


def test_a_matrix_that_is_far_too_large_is_cut_to_its_size(store: Path) -> None:
    """As one that was begun for very many series, before few took their place."""
    right = open_matrix(store)[:, :]
    (distance,) = store.glob("distances/*/distance")
    lengthen(store, str(distance.relative_to(store)), 16 * 10**9)
    report = compute_distances(store, run=RunSpec(executor="serial"))
    assert report.pairs == 0
    np.testing.assert_array_equal(open_matrix(store)[:, :], right)
    assert verify(store)[0] == []
