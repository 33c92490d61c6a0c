"""Small stores that ask for much memory: refused by name, before it is taken."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr
from numcodecs import Zstd
from zarr.codecs import BloscCodec, Crc32cCodec, ZstdCodec

from cksc_dist import open_matrix
from cksc_dist.dist.distances import compute_distances
from cksc_dist.dist.ingest import ingest
from cksc_dist.errors import CkscError, ModelFileError, StoreError
from cksc_dist.evaluate.fits import write_table
from cksc_dist.evaluate.results import find_evaluations
from cksc_dist.spec import RunSpec
from cksc_dist.store import chunk_sizes
from cksc_dist.store.chunk_sizes import Chunks, check_chunk, check_held
from cksc_dist.store.folder import Folder
from cksc_dist.store.layout import compressors
from cksc_dist.store.manifest import digests_of
from cksc_dist.store.matrix import count_missing
from cksc_dist.store.matrix_files import find_matrices
from cksc_dist.store.model_files import read_model, write_model
from cksc_dist.store.series_files import open_series
from tests.memory import little_memory
from tests.small_stores import made_series

MUCH = 2**28
CODECS: dict[str, list[Any]] = {
    "zstd": [ZstdCodec(level=1)],
    "blosc of zstd": [BloscCodec(cname="zstd"), Crc32cCodec()],
    "lost": [Crc32cCodec()],
}
"""Ways to have many zeros in a few bytes; lost: no chunk at all."""


def plant(place: Path, group: str, name: str, shape: tuple[int, ...], how: str, dtype: str = "float64") -> None:
    """Put an array of zeros in the place of one that is there, in one chunk."""
    codecs = CODECS[how]
    array = zarr.open_group(place, path=group, mode="r+").create_array(
        name, shape=shape, chunks=shape, dtype=dtype, compressors=codecs, overwrite=True, fill_value=0
    )
    if how != "lost":
        array = array.with_config({"write_empty_chunks": True})
        array[...] = np.zeros(shape, dtype)
    assert sum(path.stat().st_size for path in (place / group / name).rglob("*") if path.is_file()) < 2**20


def sign(store: Path) -> None:
    """Make copies of metadata agree, as whoever makes such a store would."""
    folder = Folder(store)
    copies = folder.read_json("metadata.json")
    folder.write_json("metadata.json", {key: (folder.read(key) or b"").decode() for key in copies})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("made") / "s.zarr"
    ingest(made_series(6), place)
    compute_distances(place, run=RunSpec(executor="serial"))
    write_table(Folder(place), "e", xr.Dataset({"a": ("x", np.arange(3.0))}, attrs={"kind": "evaluation"}))
    return place


@pytest.fixture
def store(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "s.zarr")
    return tmp_path / "s.zarr"


@pytest.mark.parametrize("how", CODECS)
def test_a_small_model_that_asks_for_much(tmp_path: Path, how: str) -> None:
    write_model(tmp_path / "m", "CKSC", {"x": np.arange(3.0)}, {})
    plant(tmp_path, "m", "x", (MUCH // 8,), how)
    with (
        little_memory(2**24),
        pytest.raises(ModelFileError, match=r"m is damaged \(.* bytes of memory, which .*"),
    ):
        read_model(tmp_path / "m")


@pytest.mark.parametrize("shape", [(10**7, 0, 3), (0, 10**12)], ids=str)
def test_a_model_with_long_sides_beside_one_of_0(tmp_path: Path, shape: tuple[int, ...]) -> None:
    write_model(tmp_path / "m", "CKSC", {"x": np.zeros(shape)}, {})
    with little_memory(2**22), pytest.raises(ModelFileError, match=r"m is damaged \(x/zarr.json asks for the shape"):
        read_model(tmp_path / "m")
    write_model(tmp_path / "m", "CKSC", {"x": np.zeros((0, 3))}, {})
    assert read_model(tmp_path / "m")[1]["x"].shape == (0, 3)


def test_a_model_of_many_arrays_counts_as_one(tmp_path: Path) -> None:
    write_model(tmp_path / "m", "CKSC", {f"x{k}": np.arange(3.0) for k in range(9)}, {})
    for k in range(9):
        plant(tmp_path, "m", f"x{k}", (2**19,), "lost")  # 4 MiB each
    with (
        little_memory(2**24),
        pytest.raises(ModelFileError, match=r"37,\d{3},\d{3} bytes of memory, which .* cannot hold"),
    ):
        read_model(tmp_path / "m")


@pytest.mark.parametrize("how", CODECS)
def test_a_small_store_whose_series_ask_for_much(store: Path, how: str) -> None:
    rows = MUCH // 16
    plant(store, "series", "digest", (rows, 16), how, "uint8")
    group = zarr.open_group(store, path="series", mode="r+")
    group.attrs.put({**group.attrs, "n": rows})
    sign(store)
    with little_memory(2**24), pytest.raises(StoreError, match=r"series/digest is damaged \(.* bytes of memory"):
        open_series(Folder(store)).digests  # noqa: B018
    with little_memory(2**24), pytest.raises(StoreError, match=r"bytes of memory"):
        open_matrix(store)


@pytest.mark.parametrize("how", ["zstd", "blosc of zstd"])
def test_a_small_matrix_that_asks_for_much(store: Path, how: str) -> None:
    (name,) = (path.name for path in (store / "distances").iterdir() if path.is_dir())
    plant(store, f"distances/{name}", "distance", (2**13, 2**12), how)
    about = store / "distances" / name / "distance" / "zarr.json"
    metadata = json.loads(about.read_text())
    # a chunk larger than the matrix, as every matrix of few rows has
    metadata |= {"shape": [6, 6]}
    about.write_text(json.dumps(metadata))
    with little_memory(2**24), pytest.raises(ValueError, match=r"asks for chunks of .* far more than the array has"):
        zarr.open_group(Folder(store).zarr(read_only=True), path=f"distances/{name}", mode="r")["distance"][:3, :3]  # type: ignore[index]


def test_a_finished_matrix_is_no_larger_than_its_files_can_hold(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    series = open_series(Folder(store))
    ((_, files),) = find_matrices(Folder(store)).items()
    assert count_missing(files, series) == 0
    for name in ("SMALL", "SWELLING", "ENTRY"):
        monkeypatch.setattr(chunk_sizes, name, 0)
    with pytest.raises(StoreError, match=r"is damaged: it asks for 288 bytes of memory, which the \d+ of its files"):
        count_missing(files, series)
    next((store / files.group / "distance" / "c").rglob("0")).rename(store / "beside")
    assert count_missing(files, series) == 1  # what is not finished is not read


@pytest.mark.parametrize("how", CODECS)
def test_a_small_table_that_asks_for_much(store: Path, how: str) -> None:
    plant(store, "results/e", "a", (MUCH // 8,), how)
    listed = [key for key in Folder(store).read_json("results/e.files.json") if (store / key).exists()]
    Folder(store).write_json("results/e.files.json", digests_of(Folder(store), listed))
    with little_memory(2**24), pytest.raises(StoreError, match=r"results/e is damaged \(.* bytes of memory"):
        find_evaluations(Folder(store))


def test_a_chunk_that_says_it_is_larger_than_it_is(store: Path) -> None:
    chunk = store / "series" / "values" / "c" / "0" / "0"
    content = bytearray(chunk.read_bytes())
    content[4:8] = (2**30).to_bytes(4, "little")
    chunk.write_bytes(content)
    with (
        little_memory(2**24),
        pytest.raises(StoreError, match=r"values is damaged \(.* asks for 1,073,741,824 bytes"),
    ):
        open_series(Folder(store)).load()


def test_text_that_says_it_has_many_pieces(store: Path) -> None:
    chunk = store / "series" / "row" / "c" / "0"
    content = bytearray(chunk.read_bytes())
    content[:4] = (2**28).to_bytes(4, "little")
    chunk.write_bytes(content)
    with (
        little_memory(2**24),
        pytest.raises(StoreError, match=r"series/row is damaged \(.* asks for 2,147,483,648 bytes"),
    ):
        open_series(Folder(store)).ids  # noqa: B018


def test_text_that_was_packed_is_refused(store: Path) -> None:
    group = zarr.open_group(store, path="series", mode="r+")
    array = group.create_array("row", shape=(6,), chunks=(6,), dtype=str, compressors=[ZstdCodec()], overwrite=True)
    array[...] = np.array(list("abcdef"), object)
    chunk = store / "series" / "row" / "c" / "0"
    chunk.write_bytes(Zstd().encode((5 * 10**8).to_bytes(4, "little")))
    assert chunk.stat().st_size < 20
    sign(store)
    with little_memory(2**24), pytest.raises(StoreError, match=r"series/row/zarr.json asks for packed text"):
        open_series(Folder(store)).ids  # noqa: B018


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"codecs": [{"name": "vlen-utf8"}]}, "asks for packed text, or for numbers as text"),
        ({"data_type": {"name": "fixed_length_utf32", "configuration": {"length_bytes": 2**30}}}, "asks for the type"),
        ({"data_type": "r8589934592"}, "asks for the type 'r8589934592'"),
        ({"codecs": ["bytes", {"name": "gzip", "configuration": {"level": 1}}]}, "asks for the codec 'gzip'"),
        ({"codecs": ["bytes", {"name": "zstd"}, {"name": "blosc"}]}, "asks for several codecs that unpack"),
    ],
    ids=lambda each: str(each)[:40],
)
def test_metadata_that_asks_for_what_is_never_written(store: Path, change: dict[str, Any], words: str) -> None:
    about = store / "series" / "values" / "zarr.json"
    about.write_text(json.dumps(json.loads(about.read_text()) | change))
    sign(store)
    with little_memory(2**24), pytest.raises(CkscError, match=words):
        open_series(Folder(store)).load()


def zstd_of(**options: Any) -> bytes:
    group = zarr.create_group(zarr.storage.MemoryStore())
    array = group.create_array("a", shape=(5000,), chunks=(5000,), dtype="float64", compressors=[ZstdCodec(**options)])
    array[...] = np.arange(5000)
    return bytes(group.store._store_dict["a/c/0"].to_bytes())  # type: ignore[attr-defined]


def test_the_size_that_zstd_tells_is_read() -> None:
    content = zstd_of(level=3)
    assert chunk_sizes._told_by_zstd(content[:18]) == 40_000
    assert chunk_sizes._told_by_zstd(b"\x28\xb5\x2f\xfd" + bytes(14)) == 2**63  # a frame that does not say
    with pytest.raises(ValueError, match="bytes of memory"):
        check_chunk("a/c/0", Chunks(5000, 40_000, "zstd"), b"\x28\xb5\x2f\xfd" + bytes(14), 100)


@pytest.mark.parametrize("make", [np.zeros, np.ones, np.arange], ids=lambda make: make.__name__)
def test_what_this_package_packs_is_never_refused(tmp_path: Path, make: Callable[[int], Any]) -> None:
    values = np.asarray(make(3 * chunk_sizes.SMALL // 8), np.float64)
    group = zarr.create_group(Folder(tmp_path).zarr())
    for name, codecs in (("own", compressors(8)), ("plain", [Crc32cCodec()])):
        array = group.create_array(name, shape=values.shape, chunks=values.shape, dtype="float64", compressors=codecs)
        array.with_config({"write_empty_chunks": True})[...] = values
        stored: Any = zarr.open_group(Folder(tmp_path).zarr(read_only=True), mode="r")[name]
        check_held(chunk_sizes.taken(stored), Folder(tmp_path).files(name).values)
        assert np.array_equal(stored[...], values)


def test_files_are_listed_for_what_is_large_alone(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = []
    files = Folder.files
    monkeypatch.setattr(Folder, "files", lambda self, key: (listed.append(key), files(self, key))[1])
    series = open_series(Folder(store))
    series.load()
    assert listed == []
    monkeypatch.setattr(chunk_sizes, "SMALL", 2**12)
    for _ in range(3):
        series.read(0, 6)
    assert listed in ([], ["series/values"])


def test_chunks_far_larger_than_their_array_are_refused() -> None:
    """Whoever appends to such an array takes memory for a whole chunk."""
    metadata = {
        "shape": [63, 2],
        "data_type": "float64",
        "chunk_grid": {"configuration": {"chunk_shape": [1024, 2]}},
        "codecs": [{"name": "bytes"}],
    }
    assert chunk_sizes.chunks_of("series/values", metadata) == Chunks(2048, 16384, "")
    metadata["chunk_grid"] = {"configuration": {"chunk_shape": [2**25, 1]}}
    with pytest.raises(ValueError, match="series/values asks for chunks of 33,554,432 values, far more than the array"):
        chunk_sizes.chunks_of("series/values", metadata)
