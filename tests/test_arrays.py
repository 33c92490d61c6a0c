"""Files in NumPy's format: what they say of their own size is compared with what is there before memory is taken."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import ZIP_STORED

import google_crc32c
import numpy as np
import pytest

from cksc_dist import arrays
from cksc_dist.arrays import load_npy, load_npz, unpack_npy, unpack_npz
from cksc_dist.commands.matrix_file import read_matrix
from cksc_dist.commands.train import _read_rows
from cksc_dist.dist.kernel_work import shared_arrays
from cksc_dist.errors import CkscError
from cksc_dist.io import read
from cksc_dist.io.videos import read_video
from cksc_dist.store.checkpoints import Checkpoints
from cksc_dist.store.folder import Folder
from cksc_dist.store.kernel_copy import KernelCopy
from cksc_dist.store.manifest import digests_of
from tests.faults.fuzz_targets import huge, npy
from tests.faults.mutators import long_header, zipped
from tests.memory import little_memory

NAMES = ("values", "offsets", "labels", "X", "y", "D", "film")


def checkpoint(folder: Path, content: bytes) -> object:
    checksum = google_crc32c.value(content)
    Folder(folder).write(f"checkpoint-000001-{checksum:08x}.npz", content)
    record = {"training": "these", "number": 1, "crc32c": checksum, "settings": {}}
    Folder(folder).write_json("latest.json", {"records": [record]})
    return Checkpoints(Folder(folder), "these").latest()


def shared(folder: Path, content: bytes) -> object:
    Folder(folder).write("pass.npz", content)
    shared_arrays.cache_clear()
    return shared_arrays(str(folder), "pass.npz")


def rows_of_a_copy(folder: Path, content: bytes) -> object:
    copy = Folder(folder / "kernels" / "key")
    copy.write("rows.npy", content)
    about = {"matrix": "m", "n": 3, "dtype": "float64", "delta": 1.0, "factor": 1.0}
    copy.write_json("about.json", about | {"files": digests_of(copy, ["rows.npy"])})
    return KernelCopy(Folder(folder), "key").rows


class NoMatrix(list[str]):
    """As many rows as there are names."""


def put(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


ARCHIVES: dict[str, Callable[[Path, bytes], object]] = {
    "series": lambda folder, content: read(put(folder / "d.npz", content)),
    "a video": lambda folder, content: read_video(put(folder / "d.npz", content)),
    "a matrix": lambda folder, content: read_matrix(put(folder / "d.npz", content)),
    "a checkpoint": checkpoint,
    "shared arrays": shared,
}
SINGLE: dict[str, Callable[[Path, bytes], object]] = {
    "a video": lambda folder, content: read_video(put(folder / "d.npy", content)),
    "a matrix": lambda folder, content: read_matrix(put(folder / "d.npy", content)),
    "rows to train on": lambda folder, content: _read_rows(
        put(folder / "d.npy", content),
        NoMatrix(["a"]),  # type: ignore[arg-type]
    ),
    "rows of a kernel copy": rows_of_a_copy,
}


@pytest.mark.parametrize("what", ARCHIVES)
def test_a_long_header_in_an_archive_is_not_read(tmp_path: Path, what: str) -> None:
    content = zipped([(f"{name}.npy", long_header(2**25)) for name in NAMES])
    assert len(content) < 300_000
    with little_memory(), pytest.raises(CkscError):
        ARCHIVES[what](tmp_path, content)


@pytest.mark.parametrize("what", SINGLE)
def test_a_header_that_says_it_is_long_is_not_believed(tmp_path: Path, what: str) -> None:
    content = long_header(2**30, there=100)
    with little_memory(), pytest.raises(CkscError, match="its header says that it is 1,073,741,824 bytes long"):
        SINGLE[what](tmp_path, content)


def bomb(**zeros: Any) -> bytes:
    content = io.BytesIO()
    np.savez_compressed(content, **zeros)
    return content.getvalue()


def test_zeros_that_were_packed_to_a_thousandth_are_refused(tmp_path: Path) -> None:
    X = np.zeros((4, 2**20, 2))  # 64 MiB
    content = bomb(X=X, y=np.arange(4), D=X, film=X)
    assert len(content) < 300_000
    for what in ("series", "a matrix", "a checkpoint", "shared arrays"):
        with little_memory(2**21), pytest.raises(CkscError) as caught:
            ARCHIVES[what](tmp_path, content)
        told = "more than 33,554,432; write it again without compression"
        assert told in str(caught.value) or what in ("a checkpoint", "shared arrays")
    film = put(tmp_path / "film.npz", bomb(film=np.zeros((4, 2**11, 2**13), np.uint8)))
    with little_memory(2**21), pytest.raises(CkscError, match=r"unpack to 67,108,9.., more than 20 times as many"):
        read_video(film)
    # the same without compression, and less of it, is taken
    np.savez(tmp_path / "plain.npz", X=X, y=np.arange(4))
    assert read(tmp_path / "plain.npz").values.nbytes == X.nbytes
    assert len(read(put(tmp_path / "small.npz", bomb(X=X[:, : 2**18], y=np.arange(4))))) == 4


def test_bytes_count_for_the_floats_that_they_become(tmp_path: Path) -> None:
    content = bomb(X=np.zeros((4, 2**20, 10), np.int8), y=np.arange(4))
    with little_memory(2**21), pytest.raises(CkscError, match="more than 20 times as many"):
        read(put(tmp_path / "d.npz", content))


def test_memory_that_is_free_is_no_reason_to_believe_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.zeros((4, 2**19, 3))
    X[:, 0] = 1.0
    path = put(tmp_path / "zeros.npz", bomb(X=X, y=np.arange(4)))
    monkeypatch.setattr(arrays, "free_memory", lambda: 2**40)
    with little_memory(2**21), pytest.raises(CkscError, match="more than 20 times as many, and take 50,332,"):
        read(path)


def test_the_ids_of_many_short_series_count(tmp_path: Path) -> None:
    content = bomb(X=np.zeros((2**20, 1, 1), np.int8), y=np.zeros(2**20, np.int8))
    assert len(content) < 10_000
    with little_memory(2**21), pytest.raises(CkscError, match=r"unpack to 2,097,408, .* and take 28"):
        read(put(tmp_path / "d.npz", content))


EMPTY = [
    *(((10**7, 0, 3), "<f8"), ((10**12, 0, 3), "<f8"), ((0, 2**40), "<i8"), ((10**8,), "<U0")),
    ((2**62, 2**62), "|S0"),
]


@pytest.mark.parametrize(("shape", "descr"), EMPTY, ids=str)
def test_a_shape_without_bytes_is_not_believed(tmp_path: Path, shape: tuple[int, ...], descr: str) -> None:
    vast = huge(shape, descr)
    for load in (lambda: unpack_npy(vast), lambda: unpack_npz(zipped([("x.npy", vast)], ZIP_STORED))):
        with little_memory(2**20), pytest.raises(ValueError, match=r"places for no bytes at all, more than 65,536"):
            load()
    ragged = {"values": np.ones((3, 1)), "offsets": np.array([0, 3]), "labels": np.array(["a"])}
    equal = {"X": np.ones((1, 3, 1)), "y": np.arange(1)}
    for spoilt in ("values", "offsets", "labels", "ids", "dim_names", "X", "y"):
        good = {name: npy(array) for name, array in (equal if spoilt in "Xy" else ragged).items()}
        members = [(f"{name}.npy", content) for name, content in (good | {spoilt: vast}).items()]
        with little_memory(2**20), pytest.raises(CkscError, match="places for no bytes at all"):
            read(put(tmp_path / "d.npz", zipped(members)))
    for single in SINGLE.values():
        with little_memory(2**20), pytest.raises(CkscError):
            single(tmp_path, vast)


def test_small_arrays_without_bytes_are_read() -> None:
    for array in (np.zeros(0), np.zeros((0, 3)), np.zeros((40, 0, 3)), np.zeros((0, 2**16), np.int8)):
        assert unpack_npy(npy(array)).shape == array.shape
    assert unpack_npy(huge((3,), "<U0")).tolist() == ["", "", ""]


def test_a_type_that_is_an_array_is_refused() -> None:
    descr = "('<f8', (1000000000, 0))"
    content = huge((1,), "<f8").replace(b"'<f8'", descr.encode()).replace(b" " * (len(descr) - 5) + b"\n", b"\n")
    with little_memory(2**20), pytest.raises(ValueError, match="its type is an array of its own"):
        unpack_npy(content)


def test_files_of_this_package_are_never_packed() -> None:
    with pytest.raises(ValueError, match="it is packed, as this package never does"):
        unpack_npz(bomb(x=np.zeros(1000)))
    plain = io.BytesIO()
    np.savez(plain, x=np.arange(3), y=np.array(["a"]))
    assert {name: array.tolist() for name, array in unpack_npz(plain.getvalue()).items()} == {
        "x": [0, 1, 2],
        "y": ["a"],
    }


@pytest.mark.parametrize("load", [lambda content: load_npy(io.BytesIO(content)), unpack_npy])
def test_too_little_memory_is_no_damage(load: Callable[[bytes], object], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise MemoryError

    content = io.BytesIO()
    np.save(content, np.arange(3))
    monkeypatch.setattr(np.lib.format, "read_array", refuse)
    with pytest.raises(MemoryError):
        load(content.getvalue())


def test_headers_of_every_version_are_read(tmp_path: Path) -> None:
    array = np.arange(6).reshape(2, 3)
    for version in ((1, 0), (2, 0), (3, 0)):
        content = io.BytesIO()
        np.lib.format.write_array(content, array, version=version)
        content.seek(0)
        np.testing.assert_array_equal(load_npy(content), array)
    content = io.BytesIO()
    np.savez(content, a=array, b=array[0])
    found, names = load_npz(content, ("b", "none"))
    assert (list(found), names) == (["b"], ["a", "b"])


def test_one_name_twice_counts_once() -> None:
    content = zipped([("x.npy", npy(np.arange(3))), ("x.npy", npy(np.arange(5)))])
    assert len(load_npz(io.BytesIO(content), ("x",))[0]["x"]) == 5  # as NumPy has it


def test_the_limits_are_those_of_the_words() -> None:
    arrays.check_swelling(200_000_000, 10_000_000)
    with pytest.raises(ValueError, match="its 10,000,000 bytes unpack to 200,000,001, more than 20 times as many"):
        arrays.check_swelling(200_000_001, 10_000_000)


@pytest.mark.parametrize("name", ["read_array_header_1_0", "read_array"])
def test_a_header_that_python_miscounts_beside_another_thread_is_no_damage(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    real, tries = getattr(np.lib.format, name), list[int]()

    def miscounted(*args: Any, **options: Any) -> Any:
        tries.append(1)
        if len(tries) < 3:
            args[0].read(20)
            raise SystemError("AST constructor recursion depth mismatch (before=72, after=66)")
        return real(*args, **options)

    content = io.BytesIO()
    np.savez(content, X=np.arange(6.0).reshape(2, 3))
    monkeypatch.setattr(np.lib.format, name, miscounted)
    assert unpack_npz(content.getvalue())["X"].tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    assert len(tries) >= 3
