"""The kernel copy: strips and single rows of what was written, damage that is noticed, and a key for nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
import xarray as xr
import zarr
from numpy.typing import NDArray

from cksc_dist.errors import StoreError
from cksc_dist.spec import KernelSpec
from cksc_dist.store import kernel_copy
from cksc_dist.store.folder import Folder
from cksc_dist.store.kernel_copy import STRIP, KernelCopy, copy_key, find_copies
from tests.store.stored import flip, killed_at

MATRIX = "0123456789abcdef"
_numbers = count()


@pytest.fixture(params=["local", "memory", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Folder]:
    """A store that nobody has used, of each kind."""
    if request.param == "local":
        yield Folder(tmp_path / "store")
    elif request.param == "s3":
        yield Folder(f"{request.getfixturevalue('bucket')}/of today/store-{next(_numbers)}.zarr")
    else:
        name = f"/kernel-copies-{next(_numbers)}"
        yield Folder(f"memory:/{name}")
        memory = fsspec.filesystem("memory")
        if memory.exists(name):
            memory.rm(name, recursive=True)


def made(n: int = 150, dtype: str = "float32", seed: int = 0) -> NDArray[Any]:
    values = np.random.default_rng(seed).random((n, n))
    return ((values + values.T) / 2).astype(dtype)


def empty(store: Folder, n: int = 150, dtype: str = "float32", key: str = "key") -> KernelCopy:
    return KernelCopy.create(store, key, MATRIX, np.arange(0, 2 * n, 2), 1.25, 0.5, np.dtype(dtype))


def written(store: Folder, K: NDArray[Any], key: str = "key") -> KernelCopy:
    copy = empty(store, len(K), K.dtype.name, key)
    for number, (begin, end) in enumerate(copy.edges):
        copy.write_strip(number, K[begin:end])
    return copy


def chunk(number: int) -> str:
    return f"kernels/key/strips/kernel/c/{number}/0"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [1, STRIP - 1, STRIP, 2 * STRIP + 22])
def test_strips_and_rows_are_what_was_written(store: Folder, n: int, dtype: str) -> None:
    K = made(n, dtype)
    copy = written(store, K)
    assert copy.missing() == []
    assert copy.edges[-1] == ((n - 1) // STRIP * STRIP, n)  # the last strip ends with the rows
    opened = KernelCopy(Folder(store.url), "key")
    assert np.array_equal(np.concatenate([opened.strip(*edge).copy() for edge in opened.edges]), K)
    for row in {0, n // 2, n - 1}:
        assert np.array_equal(opened.row(row), K[row])
    assert opened.strip(0, 1).dtype == opened.row(0).dtype == np.dtype(dtype)
    assert np.array_equal(opened.strip(*opened.edges[-1]), K[opened.edges[-1][0] :])


def test_compiled_code_may_have_what_is_read(store: Folder) -> None:
    copy = written(store, made())
    assert copy.strip(0, STRIP).flags.writeable
    assert copy.row(3).flags.writeable
    assert copy.strip(*copy.edges[-1]).flags.c_contiguous


def test_threads_do_not_read_into_each_others_strips(store: Folder) -> None:
    K = made()
    copy = written(store, K)
    mine = copy.strip(0, STRIP)
    with ThreadPoolExecutor(1) as pool:
        theirs = pool.submit(copy.strip, STRIP, 2 * STRIP).result()
        assert np.array_equal(mine, K[:STRIP])
        assert np.array_equal(theirs, K[STRIP : 2 * STRIP])


def test_what_it_is_the_kernel_of_is_kept(store: Folder) -> None:
    copy = written(store, made())
    opened = KernelCopy(Folder(store.url), "key")
    assert (opened.n, opened.delta, opened.factor, opened.fingerprint) == (150, 1.25, 0.5, MATRIX)
    assert opened.nbytes == 150 * 150 * 4
    assert np.array_equal(opened.rows, np.arange(0, 300, 2))
    assert np.array_equal(opened.diagonal, np.ones(150))
    assert find_copies(store) == [copy.key] == ["key"]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_zarr_and_xarray_open_it(store: Folder, dtype: str) -> None:
    K = made(dtype=dtype)
    copy = written(store, K)
    array: Any = zarr.open_array(copy.folder.zarr(read_only=True), path="strips/kernel", mode="r")
    assert np.array_equal(array[:], K)
    data = xr.open_zarr(store.zarr(read_only=True), group="kernels/key/strips", consolidated=False)
    assert data["kernel"].dims == ("row", "col")
    assert np.array_equal(data["kernel"].values, K)
    flip(store, chunk(1), 12345)
    with pytest.raises((ValueError, RuntimeError), match=r"(?i)checksum"):  # the checksum is the one of Zarr's codec
        array[STRIP : 2 * STRIP]


def test_missing_strips_are_told_and_those_of_another_size(store: Folder) -> None:
    K = made()
    copy = empty(store)
    assert copy.missing() == [0, 1, 2]
    copy.write_strip(1, K[STRIP : 2 * STRIP])
    assert copy.missing() == [0, 2]
    copy.write_strip(2, K[2 * STRIP :])
    copy.write_strip(0, K[:STRIP])
    assert copy.missing() == []
    store.write(chunk(2), (store.read(chunk(2)) or b"")[:-1])
    assert copy.missing() == [2]
    store.remove(chunk(0))
    assert copy.missing() == [0, 2]


@pytest.mark.parametrize("where", [0.0, 0.3, 0.999999])
def test_a_flipped_bit_is_noticed(store: Folder, where: float) -> None:
    copy = written(store, made())
    bits = 8 * len(store.read(chunk(1)) or b"")
    flip(store, chunk(1), int(where * bits))
    with pytest.raises(StoreError, match=r"strip 1 of the kernel copy .* is damaged or lost; run .* --new-kernel"):
        copy.strip(STRIP, 2 * STRIP)
    assert np.array_equal(copy.strip(0, STRIP), made()[:STRIP])


def test_a_flipped_bit_is_noticed_in_a_row_that_is_read_alone(store: Folder) -> None:
    K, bits = made(), 8 * 150 * 4
    copy = written(store, K)
    flip(store, chunk(1), 3 * bits + 777)
    assert np.array_equal(copy.row(STRIP + 2), K[STRIP + 2])
    assert np.array_equal(copy.row(STRIP + 4), K[STRIP + 4])
    with pytest.raises(StoreError, match=r"strip 1 of the kernel copy .* is damaged or lost; run .* --new-kernel"):
        copy.row(STRIP + 3)
    assert copy.faults() == ["strips/kernel/c/1/0"]
    flip(store, "kernels/key/sums/0", 32 * 5 + 1)
    for row in (5, 6):  # after the one row, before the other
        with pytest.raises(StoreError, match="strip 0 "):
            KernelCopy(store, "key").row(row)
    assert np.array_equal(KernelCopy(store, "key").row(7), K[7])
    assert copy.faults() == ["sums/0", "strips/kernel/c/1/0"]
    store.write("kernels/key/sums/2", b"short")
    assert copy.missing() == [2]
    with pytest.raises(StoreError, match="strip 2 "):
        copy.row(149)


def test_a_lost_or_torn_strip_is_told(store: Folder) -> None:
    copy = written(store, made())
    store.remove(chunk(0))
    store.write(chunk(1), (store.read(chunk(1)) or b"")[:1000])
    reads: list[Callable[[], Any]] = [lambda: copy.strip(0, 3), lambda: copy.row(5)]
    for read in reads:
        with pytest.raises(StoreError, match=r"strip 0 .* is damaged or lost"):
            read()
    reads = [lambda: copy.strip(STRIP, 2 * STRIP), lambda: copy.row(2 * STRIP - 1)]
    for read in reads:
        with pytest.raises(StoreError, match=r"strip 1 .* is damaged or lost"):
            read()


def test_a_strip_that_was_mended_is_read_anew_by_those_who_have_it_open(store: Folder) -> None:
    """Workers keep files open; a damaged one that is made again is another file."""
    K = made()
    copy = written(store, K)
    assert np.array_equal(copy.row(STRIP + 1), K[STRIP + 1])  # now it is open
    flip(store, chunk(1), 8 * 150 * 4 * 3 + 5)
    reads: list[Callable[[], Any]] = [lambda: copy.strip(STRIP, 2 * STRIP), lambda: copy.row(STRIP + 3)]
    for read in reads:
        with pytest.raises(StoreError, match="strip 1 "):
            read()
    written(store, K)
    assert np.array_equal(copy.row(STRIP + 3), K[STRIP + 3])
    assert np.array_equal(copy.strip(STRIP, 2 * STRIP), K[STRIP : 2 * STRIP])


def test_making_it_again_keeps_what_is_there(store: Folder) -> None:
    K = made()
    copy = empty(store)
    copy.write_strip(1, K[STRIP : 2 * STRIP])
    again = empty(store)
    assert again.missing() == [0, 2]
    assert np.array_equal(again.strip(STRIP, 2 * STRIP), K[STRIP : 2 * STRIP])


def test_one_that_was_cut_off_while_it_was_made_is_none(store: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    with killed_at(monkeypatch, Folder, "write_json"):
        empty(store)
    with pytest.raises(StoreError, match="is no kernel copy, or was dropped; run the same command again"):
        KernelCopy(store, "key")
    written(store, made())
    assert KernelCopy(store, "key").missing() == []


def test_dropped_it_is_gone_and_others_stay(store: Folder) -> None:
    copy, other = written(store, made()), written(store, made(seed=1), "other")
    copy.drop()
    assert find_copies(store) == ["other"]
    assert store.files("kernels/key") == {}
    with pytest.raises(StoreError, match="is no kernel copy"):
        KernelCopy(store, "key")
    assert np.array_equal(other.row(9), made(seed=1)[9])


def test_a_kill_while_it_is_dropped_leaves_no_copy(store: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = written(store, made())
    with killed_at(monkeypatch, Folder, "remove_all"):
        copy.drop()
    with pytest.raises(StoreError, match="is no kernel copy"):
        KernelCopy(store, "key")
    assert empty(store).missing() == [0, 1, 2]  # what was left is of nobody knows what


def test_lost_rows_are_told(store: Folder) -> None:
    copy = written(store, made())
    store.remove("kernels/key/rows.npy")
    with pytest.raises(StoreError, match=r"rows\.npy is lost; remove that folder"):
        _ = copy.rows
    with pytest.raises(
        StoreError, match=r"about.json does not describe .*, which .*kernels/key/rows\.npy does not hold"
    ):
        KernelCopy(store, "key")


def test_the_ridge_is_kept_by_name(store: Folder) -> None:
    copy = written(store, made())
    assert copy.ridge("0.2-aa") is None
    copy.keep_ridge("0.2-aa", {"beta": 0.125})
    assert KernelCopy(store, "key").ridge("0.2-aa") == {"beta": 0.125}
    assert copy.ridge("0.3-aa") is None
    copy.drop()
    assert empty(store).ridge("0.2-aa") is None


def digests(n: int = 10, seed: int = 0) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (n, 16), dtype=np.uint8)


def test_a_key_is_of_the_matrix_its_rows_their_series_and_the_settings() -> None:
    rows = np.array([1, 2, 5])
    key = copy_key(MATRIX, digests(), rows, KernelSpec())
    changed = digests()
    changed[5, 0] ^= 1
    others = [
        copy_key("fedcba9876543210", digests(), rows, KernelSpec()),
        copy_key(MATRIX, changed, rows, KernelSpec()),
        copy_key(MATRIX, digests(), np.array([1, 2, 6]), KernelSpec()),
        copy_key(MATRIX, digests(), np.array([1, 2]), KernelSpec()),
        copy_key(MATRIX, digests(), rows, KernelSpec(bandwidth="paper")),
        copy_key(MATRIX, digests(), rows, KernelSpec(bandwidth=2.0)),
        copy_key(MATRIX, digests(), rows, KernelSpec(factor=0.5)),
    ]
    assert len({key, *others}) == 1 + len(others)
    unseen = digests()
    unseen[7] = 0  # no training row
    assert copy_key(MATRIX, unseen, rows, KernelSpec()) == key
    assert copy_key(MATRIX, digests(), rows.astype(np.int32), KernelSpec()) == key
    assert copy_key(MATRIX, np.vstack([digests(), digests(seed=1)]), rows, KernelSpec()) == key  # appended ones


def test_rows_that_move_have_another_key_even_where_their_series_are_the_same() -> None:
    same = np.repeat(digests(1), 10, axis=0)
    assert copy_key(MATRIX, same, np.array([0, 1]), KernelSpec()) != copy_key(
        MATRIX, same, np.array([0, 2]), KernelSpec()
    )


def test_a_strip_is_the_same_bytes_whoever_writes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    K = made()
    ours = written(Folder(tmp_path / "ours"), K)
    theirs = empty(Folder(tmp_path / "theirs"))
    array: Any = zarr.open_array(theirs.folder.zarr(), path="strips/kernel", mode="r+")
    array[:] = K
    assert theirs.missing() == [0, 1, 2]  # Zarr writes no checksums of single rows
    for number in range(len(ours.edges) - 1):  # of the last one Zarr leaves open what follows the rows
        assert Folder(tmp_path / "ours").read(chunk(number)) == Folder(tmp_path / "theirs").read(chunk(number))
    assert np.array_equal(theirs.strip(*theirs.edges[-1]), K[theirs.edges[-1][0] :])
    assert kernel_copy.CHECKSUM_BYTES == 4
