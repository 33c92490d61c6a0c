"""Files below a path or URL: whole or not at all, damage is named, a server that is away is waited for."""

from __future__ import annotations

import math
import os
import threading
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from zarr.storage import FsspecStore

from cksc_dist.errors import StoreAwayError, StoreError
from cksc_dist.store import patience
from cksc_dist.store.folder import Folder, json_record
from cksc_dist.store.model_files import read_model, write_model
from tests.store.stored import Killed, flip, killed_at

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def test_nothing_is_there_at_first(folder: Folder) -> None:
    assert folder.read("a") is None
    assert folder.read_json("a/b.json") is None
    assert folder.files("") == {}
    assert folder.files("a") == {}
    folder.remove("a/b")
    assert folder.sweep() == []


def test_what_is_written_is_read_and_removed(folder: Folder) -> None:
    folder.write("a/b/c", b"one")
    folder.write("a/b/c", b"three")
    folder.write("a/d", b"")
    assert folder.read("a/b/c") == b"three"
    assert folder.read("a/d") == b""
    folder.remove("a/b/c")
    assert folder.read("a/b/c") is None
    assert folder.files("a") == {"d": 0}


def test_files_are_named_from_the_key_on_with_their_sizes(folder: Folder) -> None:
    for key in ("a/b/c", "a/x", "ab/y", "z"):
        folder.write(key, key.encode())
    assert folder.files("a") == {"b/c": 5, "x": 3}
    assert folder.files("a/b") == {"c": 5}
    assert folder.files("none") == {}
    assert folder.files("") == {"a/b/c": 5, "a/x": 3, "ab/y": 4, "z": 1}


def test_another_folder_of_the_same_place_sees_the_same(folder: Folder) -> None:
    again = Folder(folder.url)
    assert again.url == folder.url
    again.files("a")  # a listing that might be remembered
    folder.write("a/b", b"1")
    assert again.files("a") == {"b": 1}
    assert again.read("a/b") == b"1"


def test_a_place_is_known_by_path_or_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    places = [Folder("s"), Folder(Path("s")), Folder(tmp_path / "s"), Folder(f"file://{tmp_path}/s"), Folder("s/")]
    assert {(place.url, place.local) for place in places} == {(str(tmp_path / "s"), tmp_path / "s")}
    assert Folder("memory://x/").url == Folder("memory://x").url == "memory://x"
    assert Folder("memory://x").local is None
    assert repr(Folder("memory://x")) == "Folder('memory://x')"


def test_a_file_url_is_read_as_one(tmp_path: Path) -> None:
    strange = tmp_path / "a b?c#d%@:é"
    assert Folder(strange).local == Folder(strange.as_uri()).local == strange
    assert Folder(strange.as_uri().replace("file://", "file://localhost")).local == strange
    write_model(strange.as_uri(), "CKSC", {"x": np.arange(3)}, {})
    assert [path.name for path in tmp_path.iterdir()] == [strange.name]
    assert read_model(strange.as_uri())[1]["x"].tolist() == [0, 1, 2]
    for url in ("file://host/tmp/x", "file://tmp", "file://", "file:///tmp/x?y", "file:///tmp/x#y"):
        with pytest.raises(
            StoreError, match=r"names no folder of this machine: a file:// URL has no host but localhost"
        ):
            Folder(url)
    with pytest.raises(StoreError, match="is no path: it holds NUL"):
        Folder("file:///tmp/a%00b")


@pytest.mark.parametrize("url", ["https://h/x?sig=5ecret", "s3://b/x#5ecret", "memory://x?y"])
def test_a_url_with_a_query_may_hold_a_signature(url: str) -> None:
    with pytest.raises(StoreError, match=r"holds a key or password, or looks so \(an @, a \? or #") as caught:
        Folder(url)
    assert "5ecret" not in str(caught.value)


def test_sweeping_asks_for_names_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Folder(tmp_path)
    for key in ("a", "b/c", "b/d.partial", "b/e/f"):
        folder.write(key, b"x")
    asked = []
    stat, getsize = os.stat, os.path.getsize
    monkeypatch.setattr(os, "stat", lambda path, *a, **k: (asked.append(path), stat(path, *a, **k))[1])
    monkeypatch.setattr(os.path, "getsize", lambda path: (asked.append(path), getsize(path))[1])
    assert folder.sweep() == ["b/d.partial"]
    assert not [path for path in map(str, asked) if path.endswith(("/a", "/c", "/f"))]
    assert folder.files("b") == {"c": 1, "e/f": 1}
    assert len(asked) >= 2


def test_a_url_of_an_unknown_kind_is_named() -> None:
    with pytest.raises(StoreError, match=r"^gopher://x cannot be opened: Protocol not known: gopher"):
        Folder("gopher://x")


def test_create_writes_only_where_nothing_is(folder: Folder) -> None:
    assert folder.create("a/lock", b"first")
    assert not folder.create("a/lock", b"second")
    assert folder.read("a/lock") == b"first"
    assert not folder.create("a/lock", b"first")  # not even the same once more
    assert folder.files("a") == {"lock": 5}
    folder.remove("a/lock")
    assert folder.create("a/lock", b"")
    assert not folder.create("a/lock", b"")


def test_of_many_who_create_at_once_one_does(folder: Folder) -> None:
    for attempt in range(5):
        barrier = threading.Barrier(8)
        made: list[bool] = []

        def create(key: str, content: bytes, barrier: threading.Barrier = barrier, made: list[bool] = made) -> None:
            barrier.wait()
            made.append(folder.create(key, content))

        threads = [threading.Thread(target=create, args=(f"{attempt}", b"%d" % i)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(made) == [False] * 7 + [True]


def test_a_file_system_without_hard_links_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("os.link", refuse)
    folder = Folder(tmp_path)
    assert folder.create("a/lock", b"first")
    assert not folder.create("a/lock", b"second")
    assert folder.read("a/lock") == b"first"
    assert folder.files("") == {"a/lock": 5}


def test_where_a_server_knows_no_conditional_put_the_file_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    folder = Folder("memory://no-conditional-put")
    plain = folder._fs.pipe_file

    def pipe_file(path: str, value: bytes, **options: Any) -> None:
        if options:
            raise TypeError("unexpected keyword argument 'mode'")
        plain(path, value)

    monkeypatch.setattr(folder._fs, "pipe_file", pipe_file)
    folder.remove("lock")
    assert folder.create("lock", b"first")
    assert not folder.create("lock", b"second")
    assert folder.read("lock") == b"first"

    def overtaken(path: str, value: bytes, **options: Any) -> None:
        pipe_file(path, value, **options)
        plain(path, b"somebody else's")

    folder.remove("lock")
    monkeypatch.setattr(folder._fs, "pipe_file", overtaken)
    assert not folder.create("lock", b"third")  # the last writer has it
    folder.remove("lock")


def test_a_local_write_that_is_cut_off_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Folder(tmp_path)
    folder.write("a", b"old")
    with killed_at(monkeypatch, Path, "replace"):
        folder.write("a", b"new")
    assert folder.read("a") == b"old"
    with killed_at(monkeypatch, os, "fsync"):
        folder.write("a", b"new", durable=True)
    assert folder.read("a") == b"old"
    assert folder.files("") == {"a": 3}


def test_nobody_sees_a_file_half_written(tmp_path: Path) -> None:
    folder, versions = Folder(tmp_path), [bytes([k]) * 200_000 for k in range(5)]
    folder.write("a", versions[0])
    end = threading.Event()

    def write() -> None:
        k = 0
        while not end.is_set():
            folder.write("a", versions[k % 5])
            k += 1

    writers = [threading.Thread(target=write) for _ in range(2)]
    for writer in writers:
        writer.start()
    seen = {folder.read("a") for _ in range(300)}
    end.set()
    for writer in writers:
        writer.join()
    assert seen <= set(versions)
    assert folder.files("") == {"a": 200_000}


def test_sweep_removes_partial_files_of_this_module_and_of_zarr_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Folder(tmp_path)
    folder.write("a/keep.json", b"1")
    folder.write("a/partial", b"1")
    array = zarr.create_array(folder.zarr(), name="z", shape=(4,), chunks=(2,), dtype="i8")
    array[:] = 1
    whole = set(folder.files(""))
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", lambda *_, **__: None)  # a killed process cleans nothing up
        with killed_at(patch, Path, "replace"):
            folder.write("a/keep.json", b"2")
        left = set(folder.files("")) - whole
    # as Zarr 3 names what it has not finished
    folder.write(f"z/c/0.{'0' * 32}.partial", b"torn")
    assert len(left) == 1
    assert set(folder.sweep()) == left | {f"z/c/0.{'0' * 32}.partial"}
    assert set(folder.files("")) == whole
    assert folder.read("a/keep.json") == b"1"
    np.testing.assert_array_equal(array[:], 1)


def test_zarr_names_unfinished_files_as_sweep_expects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Folder(tmp_path)
    array = zarr.create_array(folder.zarr(), name="z", shape=(2,), chunks=(2,), dtype="i8")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", lambda *_, **__: None)
        patch.setattr(Path, "replace", _raise_killed)
        with pytest.raises(Killed):
            array[:] = 1
    left = [name for name in folder.files("") if "zarr.json" not in name]
    assert left
    assert sorted(folder.sweep()) == sorted(left)


def _raise_killed(*_: Any) -> None:
    raise Killed


def test_zarr_stores_see_the_same_files(folder: Folder) -> None:
    group = zarr.create_group(folder.zarr(), zarr_format=3, attributes={"k": 1})
    group.create_array("a", shape=(4,), chunks=(2,), dtype="f8")[:] = [1, 2, 3, 4]
    assert set(folder.files("a")) == {"zarr.json", "c/0", "c/1"}
    read = zarr.open_group(folder.zarr(read_only=True), mode="r")
    assert read["a"][:].tolist() == [1, 2, 3, 4]  # type: ignore[index, union-attr]
    with pytest.raises(ValueError, match="read-only"):
        read["a"][:] = 0  # type: ignore[index]


@given(JSON)
def test_json_comes_back(value: Any) -> None:
    folder = Folder("memory://json-comes-back")
    folder.write_json("v.json", value)
    assert folder.read_json("v.json") == value
    assert folder.read("v.json") == json_record(value)


def test_json_keeps_nan_and_the_digest_does_not_follow_the_order_of_keys(folder: Folder) -> None:
    folder.write_json("v.json", {"b": math.nan, "a": 1})
    assert math.isnan(folder.read_json("v.json")["b"])
    assert json_record({"b": 1, "a": 2}) == json_record({"a": 2, "b": 1})


@settings(max_examples=300)
@given(value=JSON, bit=st.integers(0, 10**6))
def test_a_flipped_bit_is_noticed(value: Any, bit: int) -> None:
    """Even one that changes nothing, as of 1e9 and 1E9."""
    folder = Folder("memory://flipped-json")
    folder.write_json("v.json", value)
    flip(folder, "v.json", bit)
    where = (
        r"^memory://flipped-json/v\.json is damaged: .*; restore it from a copy, or remove it and run the command again"
    )
    with pytest.raises(StoreError, match=where):
        folder.read_json("v.json")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"3", b'{"value": 1}', b"\xff\xfe", b'"value sha256"'])
def test_a_file_without_a_digest_is_damaged(folder: Folder, content: bytes) -> None:
    folder.write("v.json", content)
    with pytest.raises(StoreError, match=r"v\.json is damaged: no JSON with a digest"):
        folder.read_json("v.json")


def test_a_changed_value_is_damaged(folder: Folder) -> None:
    folder.write("v.json", json_record({"n": 1}).replace(b'"n": 1', b'"n": 2'))
    with pytest.raises(StoreError, match=r"v\.json is damaged: its digest does not match"):
        folder.read_json("v.json")


def test_room_is_known_on_this_machine(tmp_path: Path) -> None:
    free = Folder(tmp_path / "not" / "there" / "yet").free_bytes()
    assert free is not None
    assert free > 0
    assert not (tmp_path / "not").exists()
    assert Folder("memory://x").free_bytes() is None


class Away:
    """A file system whose first calls fail, each time it is told to be away."""

    def __init__(self, kind: type[BaseException] = ConnectionError) -> None:
        self.inner = fsspec.filesystem("memory")
        self.kind = kind
        self.failures = 0

    def __getattr__(self, name: str) -> Any:
        if name == "invalidate_cache":
            return self.inner.invalidate_cache
        method = getattr(self.inner, name)

        def call(*args: Any, **options: Any) -> Any:
            if self.failures:
                self.failures -= 1
                raise self.kind("connection refused")
            return method(*args, **options)

        return call


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> tuple[Folder, Away]:
    monkeypatch.setattr("time.sleep", lambda _: None)
    folder, away = Folder("memory://server"), Away()
    folder._fs = away
    for name in ("a", "b/c", "new"):
        folder.remove(name)
    folder.write("a", b"1")
    folder.write("b/c", b"1")
    return folder, away


@pytest.mark.parametrize(
    ("what", "result"),
    [
        (lambda folder: folder.read("a"), b"1"),
        (lambda folder: folder.files("b"), {"c": 1}),
        (lambda folder: folder.write("a", b"2"), None),
        (lambda folder: folder.remove("a"), None),
        (lambda folder: folder.create("new", b"3"), True),
        (lambda folder: folder.create("a", b"3"), False),
    ],
    ids=["read", "files", "write", "remove", "create", "create-taken"],
)
@pytest.mark.parametrize("kind", [ConnectionError, OSError, TimeoutError, RuntimeError])
def test_a_server_that_comes_back_is_waited_for(
    server: tuple[Folder, Away], what: Any, result: Any, kind: type[Exception]
) -> None:
    folder, away = server
    away.failures, away.kind = 6, kind
    assert what(folder) == result
    assert away.failures == 0


def test_what_was_created_although_the_answer_was_lost_is_ones_own(
    server: tuple[Folder, Away], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, away = server
    put, calls = away.inner.pipe_file, []

    def answer_lost(*args: Any, **options: Any) -> None:
        calls.append(1)
        put(*args, **options)
        if len(calls) == 1:
            raise ConnectionError("reset by peer")

    monkeypatch.setattr(away.inner, "pipe_file", answer_lost)
    assert folder.create("new", b"mine")
    assert folder.read("new") == b"mine"


def test_a_server_that_takes_no_notice_of_conditions_still_keeps_what_is_there(
    server: tuple[Folder, Away], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As some that speak S3 do: a lock of the living would be written over."""
    folder, away = server
    put = away.inner.pipe_file
    monkeypatch.setattr(away.inner, "pipe_file", lambda path, content, mode="overwrite": put(path, content))
    assert folder.create("lock", b"first")
    assert not folder.create("lock", b"second")
    assert not folder.create("lock", b"second", own=True)
    assert folder.read("lock") == b"first"
    assert folder.create("lock", b"first", own=True)


def test_a_server_that_stays_away_is_given_up(server: tuple[Folder, Away], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, away = server
    clock = iter(range(0, 10_000, 7))
    monkeypatch.setattr("time.monotonic", lambda: float(next(clock)))
    away.failures = 10**9
    words = (
        r"memory://server has been away for 120 s \(ConnectionError: connection refused\); what is done is kept: run "
        r"the same command again when it is back"
    )
    with pytest.raises(StoreAwayError, match=words):
        folder.read("a")
    assert 10**9 - away.failures > 5


@pytest.mark.parametrize("kind", [FileNotFoundError, PermissionError, ValueError, KeyError, StoreError, StoreAwayError])
def test_what_waiting_does_not_mend_is_raised_at_once(server: tuple[Folder, Away], kind: type[Exception]) -> None:
    calls = []

    def action() -> None:
        calls.append(1)
        raise kind("no")

    with pytest.raises(kind):
        server[0]._patiently(action)
    assert len(calls) == 1


def of_botocore(name: str, above: type[Exception] = Exception) -> type[Exception]:
    """Return a kind of error by the name that the library of S3, which need not be there, has for it."""
    return type(name, (above,), {"__module__": "botocore.exceptions"})


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (of_botocore("NoCredentialsError"), "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"),
        (of_botocore("PartialCredentialsError"), "set AWS_ACCESS_KEY_ID"),
        (of_botocore("SSOTokenLoadError", of_botocore("SSOError")), "log in again"),
        (of_botocore("ProfileNotFound"), "mend the settings of AWS: AWS_PROFILE"),
        (of_botocore("ParamValidationError"), "mend the address"),
    ],
)
def test_a_library_that_cannot_ask_its_server_is_not_waited_for(
    server: tuple[Folder, Away], monkeypatch: pytest.MonkeyPatch, kind: type[Exception], words: str
) -> None:
    folder, away = server
    away.failures, away.kind = 10, kind
    with pytest.raises(
        StoreAwayError, match=rf"^memory://server cannot be asked for \(connection refused\): .*{words}"
    ):
        folder.read("a")
    assert away.failures == 9

    async def refused(*_: Any, **__: Any) -> None:
        calls.append(1)
        raise kind("no\n" * 200)

    calls: list[int] = []
    monkeypatch.setattr(FsspecStore, "get", refused)
    with pytest.raises(
        StoreAwayError, match=rf"^memory:///?server cannot be asked for \(no no .{{,150}}\.\.\.\): .*{words}"
    ):
        zarr.open_group(folder.zarr(read_only=True), mode="r")
    assert calls == [1]


def test_the_names_of_errors_are_those_of_the_library() -> None:
    library = pytest.importorskip("botocore.exceptions")
    for name in patience._NOT_ASKED:
        assert issubclass(getattr(library, name), library.BotoCoreError), name
    assert not patience._what_to_set(library.EndpointConnectionError(endpoint_url="http://host"))
    assert not patience._what_to_set(library.ReadTimeoutError(endpoint_url="http://host"))


def test_a_local_folder_does_not_wait(tmp_path: Path) -> None:
    calls = []

    def action() -> None:
        calls.append(1)
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        Folder(tmp_path)._patiently(action)
    assert len(calls) == 1


def test_waiting_is_as_long_as_a_server_takes_to_restart() -> None:
    assert patience.PATIENCE >= 60
