"""One writer at a time: the living are respected, the dead are recognised, and the second is told who the first is."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cksc_dist.errors import StoreAwayError, StoreBusyError, StoreError
from cksc_dist.store import lease as lease_module
from cksc_dist.store import patience
from cksc_dist.store.folder import Folder, json_record
from cksc_dist.store.lease import KEY, Lease, holder, holds
from tests.store.stored import flip


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Heartbeats of a test's pace."""
    monkeypatch.setattr(lease_module, "HEARTBEAT", 0.05)
    monkeypatch.setattr(lease_module, "STILL", 0.5)


def record(**others: Any) -> dict[str, Any]:
    """A lease of this very process, taken a second ago."""
    facts: dict[str, Any] = {
        "host": socket.gethostname(),
        "process": os.getpid(),
        "born": psutil.Process().create_time(),
        "token": "abc",
        "purpose": "distances",
        "since": time.time() - 1,
        "heartbeat": time.time(),
    }
    return facts | others


def torn(value: dict[str, Any]) -> bytes:
    """A record that is not what was written."""
    return json.dumps({"sha256": "0" * 64, "value": value}).encode()


def dead_process() -> int:
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def wait_for(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def test_a_store_is_held_and_given_back(folder: Folder) -> None:
    assert holder(folder) is None
    with Lease(folder, "ingest"):
        found = holder(folder)
        assert found is not None
        assert (found["host"], found["process"], found["purpose"]) == (socket.gethostname(), os.getpid(), "ingest")
        assert abs(found["since"] - time.time()) < 60
    assert holder(folder) is None
    assert folder.files("") == {}
    with Lease(folder, "again"):
        pass


def test_it_is_given_back_when_the_work_fails(folder: Folder) -> None:
    with pytest.raises(KeyboardInterrupt), Lease(folder, "ingest"):
        raise KeyboardInterrupt
    assert holder(folder) is None


def test_the_second_is_told_who_and_what_for(folder: Folder) -> None:
    words = (
        rf"^{re.escape(folder.url)} is being written by process {os.getpid()} on {re.escape(socket.gethostname())} "
        rf"\(append\); wait for it, or watch it with: cksc status {re.escape(folder.url)}$"
    )
    folder.write("zarr.json", b"{}")  # of a store, which has a status to look at
    with Lease(folder, "append") as first:
        with pytest.raises(StoreBusyError, match=words), Lease(Folder(folder.url), "distances"):
            pass
        first.check()
        assert (holder(folder) or {})["purpose"] == "append"
    with Lease(folder, "distances"):
        pass


def test_a_busy_store_is_a_store_error() -> None:
    assert issubclass(StoreBusyError, StoreError)


def test_the_heart_beats(folder: Folder, quick: None) -> None:
    with Lease(folder, "distances") as lease:
        first = (holder(folder) or {})["heartbeat"]
        wait_for(lambda: (holder(folder) or {}).get("heartbeat", 0) > first)
        lease.check()
    assert not [thread for thread in threading.enumerate() if thread.name == "cksc-lease"]


HOLD = """
import sys, time
from cksc_dist.store.folder import Folder
from cksc_dist.store.lease import Lease
with Lease(Folder(sys.argv[1]), "distances"):
    print("held", flush=True)
    time.sleep(60)
"""


@contextmanager
def holding(folder: Folder) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the store."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, folder.url], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()  # type: ignore[union-attr]


def test_a_living_process_is_respected_and_a_killed_one_is_not(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    with holding(folder) as process:
        with pytest.raises(StoreBusyError, match=f"by process {process.pid} on "), Lease(folder, "ingest"):
            pass
        # one that is stopped for a while is alive
        process.send_signal(signal.SIGSTOP)
        with pytest.raises(StoreBusyError, match=f"by process {process.pid} on "), Lease(folder, "ingest"):
            pass
        process.send_signal(signal.SIGCONT)
        # killed, and not yet buried by its parent
        process.send_signal(signal.SIGKILL)
        wait_for(lambda: psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE)
        assert holder(folder) is None
        begin = time.monotonic()
        with Lease(folder, "ingest"):
            assert (holder(folder) or {})["process"] == os.getpid()
        assert time.monotonic() - begin < 5
    assert folder.files("") == {}


def test_a_process_that_is_gone(folder: Folder) -> None:
    folder.write(KEY, json_record(record(process=dead_process())))
    assert holder(folder) is None
    with Lease(folder, "ingest"):
        assert (holder(folder) or {})["process"] == os.getpid()
    assert folder.files("") == {}


def test_a_process_number_that_is_used_again(folder: Folder) -> None:
    folder.write(KEY, json_record(record(born=psutil.Process().create_time() - 3600)))
    assert holder(folder) is None
    with Lease(folder, "ingest"):
        pass


def test_a_process_that_may_not_be_looked_at_is_alive(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.write(KEY, json_record(record()))

    def refuse(pid: int | None = None) -> psutil.Process:
        raise psutil.AccessDenied(pid)

    lease = Lease(folder, "ingest")
    monkeypatch.setattr(psutil, "Process", refuse)
    with pytest.raises(StoreBusyError), lease:
        pass


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'{"value": null}',
        b'{"value": {}}',
        b"\xff\x00",
        json_record({"host": "a"}),
        torn({key: value for key, value in record().items() if key != "born"}),
        torn({key: value for key, value in record(host="elsewhere").items() if key != "purpose"}),
        torn(record(process="one")),
        torn(record(host="elsewhere", heartbeat="now")),
    ],
    # some hold times and processes: their names must be the same whoever collects them
    ids=[
        "empty",
        "brace",
        "null",
        "list",
        "nothing",
        "nobody",
        "bytes",
        "host",
        "no-birth",
        "no-purpose",
        "process-in-words",
        "beat-in-words",
    ],
)
def test_a_damaged_lock_is_nobodys(folder: Folder, content: bytes, quick: None) -> None:
    folder.write(KEY, content)
    assert holder(folder) is None
    with Lease(folder, "ingest"):
        assert (holder(folder) or {})["process"] == os.getpid()
    assert folder.files("") == {}


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(bit=st.integers(0, 10**5), alive=st.booleans(), here=st.booleans())
def test_after_a_flipped_bit_a_lock_is_somebodys_or_nobodys_and_no_stumbling_block(
    bit: int, alive: bool, here: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(lease_module, "HEARTBEAT", 0.02)
        patch.setattr(lease_module, "STILL", 0.02)
        folder = Folder("memory://flipped-lock")
        place = {} if here else {"host": "elsewhere"}
        folder.write(KEY, json_record(record(**place, born=psutil.Process().create_time() if alive else 1.0)))
        flip(folder, KEY, bit)
        assert holder(folder) is None or isinstance(holder(folder), dict)
        with suppress(StoreBusyError), Lease(folder, "ingest"):  # a bit may change nothing that counts
            pass
        folder.remove(KEY)


ELSEWHERE = {"host": "elsewhere.example", "process": 7, "born": 1.0}


def test_another_host_with_a_fresh_heartbeat_is_respected(folder: Folder) -> None:
    folder.write(KEY, json_record(record(**ELSEWHERE)))
    assert (holder(folder) or {})["host"] == "elsewhere.example"
    begin = time.monotonic()
    with pytest.raises(StoreBusyError, match=r"by process 7 on elsewhere\.example \(distances\)"), Lease(folder, "x"):
        pass
    assert time.monotonic() - begin < 2


def test_another_host_of_the_same_name_is_another_host(folder: Folder) -> None:
    """Machines that were copied have the same name; what tells them apart is when each was started."""
    folder.write(KEY, json_record(record(process=dead_process(), born=1.0, namespace="pid:[4026531836] another start")))
    with pytest.raises(StoreBusyError, match="is being written by process"), Lease(folder, "x"):
        pass


@pytest.mark.parametrize("off", [-3600.0, 3600.0], ids=["old", "in-the-future"])
def test_another_host_whose_heart_stands_still_is_given_up_after_watching(
    folder: Folder, off: float, quick: None
) -> None:
    folder.write(KEY, json_record(record(**ELSEWHERE, heartbeat=time.time() + off)))
    begin = time.monotonic()
    with Lease(folder, "ingest"):
        assert (holder(folder) or {})["process"] == os.getpid()
    assert 0.45 < time.monotonic() - begin < 5
    assert folder.files("") == {}


@pytest.mark.parametrize("off", [-3600.0, 3600.0], ids=["behind", "ahead"])
def test_another_host_whose_clock_is_wrong_is_respected_while_its_heart_beats(
    folder: Folder, off: float, quick: None
) -> None:
    end = threading.Event()

    def beat() -> None:
        while not end.wait(0.1):
            folder.write(KEY, json_record(record(**ELSEWHERE, heartbeat=time.time() + off)))

    folder.write(KEY, json_record(record(**ELSEWHERE, heartbeat=time.time() + off)))
    other = threading.Thread(target=beat)
    other.start()
    try:
        with pytest.raises(StoreBusyError, match=r"on elsewhere\.example"), Lease(folder, "ingest"):
            pass
    finally:
        end.set()
        other.join()


def test_a_silent_process_whose_store_was_taken_over_is_told(folder: Folder, quick: None) -> None:
    with Lease(folder, "distances") as lease:
        lease.check()
        theirs = json_record(record(**ELSEWHERE))
        folder.write(KEY, theirs)
        words = (
            r"was taken over by another process, because this one gave no sign of life .* run the same command again"
        )

        def lost() -> bool:
            try:
                lease.check()
            except StoreBusyError:
                return True
            return False

        wait_for(lost)
        with pytest.raises(StoreBusyError, match=words):
            lease.check()
    # the other one keeps it
    assert folder.read(KEY) == theirs


def test_a_heartbeat_goes_on_after_a_write_that_failed(
    tmp_path: Path, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Folder(tmp_path)
    failures: list[str] = []
    write = Folder.write

    def fail_once(self: Folder, key: str, content: bytes, **how: bool) -> None:
        if not failures:
            failures.append(key)
            raise OSError("No space left on device")
        write(self, key, content, **how)

    with Lease(folder, "distances") as lease:
        monkeypatch.setattr(Folder, "write", fail_once)
        wait_for(lambda: bool(failures))
        before = (holder(folder) or {})["heartbeat"]
        wait_for(lambda: (holder(folder) or {}).get("heartbeat", 0) > before, seconds=3)
        lease.check()


@pytest.mark.parametrize("left", [record(process=2**22 + 1), {}], ids=["dead", "damaged"])
def test_of_several_who_take_over_at_once_one_gets_it(
    folder: Folder, left: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_module, "HEARTBEAT", 1.0)  # a damaged one is watched for longer
    for _ in range(3):
        folder.write(KEY, json_record(left) if left else b"torn")
        barrier, release = threading.Barrier(5), threading.Event()
        inside: list[int] = []
        told: list[str] = []

        def take(
            barrier: threading.Barrier = barrier,
            inside: list[int] = inside,
            told: list[str] = told,
            release: threading.Event = release,
        ) -> None:
            barrier.wait()
            try:
                with Lease(Folder(folder.url), "ingest") as lease:
                    inside.append(1)
                    release.wait(20)
                    lease.check()
            except StoreBusyError as error:
                told.append(str(error))

        threads = [threading.Thread(target=take) for _ in range(5)]
        for thread in threads:
            thread.start()
        wait_for(lambda inside=inside, told=told: len(inside) + len(told) == 5, seconds=20)  # type: ignore[misc]
        release.set()
        for thread in threads:
            thread.join()
        assert (len(inside), len(told)) == (1, 4)
        assert folder.files("") == {}


RACE = """
import sys, time
from cksc_dist.errors import StoreBusyError
from cksc_dist.store.folder import Folder
from cksc_dist.store.lease import Lease
print("ready", flush=True)
sys.stdin.readline()
try:
    with Lease(Folder(sys.argv[1]), "race"):
        print("in", flush=True)
        sys.stdin.readline()
except StoreBusyError:
    print("busy", flush=True)
"""


def test_of_several_processes_one_gets_the_store_of_a_dead_one(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACE, folder.url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    try:
        assert [racer.stdout.readline() for racer in racers] == ["ready\n"] * 3  # type: ignore[union-attr]
        folder.write(KEY, json_record(record(process=dead_process())))
        for racer in racers:
            racer.stdin.write("\n")  # type: ignore[union-attr]
            racer.stdin.flush()  # type: ignore[union-attr]
        assert sorted(racer.stdout.readline() for racer in racers) == ["busy\n", "busy\n", "in\n"]  # type: ignore[union-attr]
        for racer in racers:
            racer.communicate("\n", timeout=20)
        assert folder.files("") == {}
    finally:
        for racer in racers:
            racer.kill()
            racer.wait()


def test_a_taker_that_was_killed_while_it_took_over_does_not_block_the_next(folder: Folder) -> None:
    gone = record(process=dead_process())
    folder.write(KEY, json_record(gone))
    folder.write(f"{KEY}.{gone['token']}", b"")  # its claim to remove the lock
    begin = time.monotonic()
    with Lease(folder, "ingest"):
        pass
    assert time.monotonic() - begin < 10
    assert folder.files("") == {}


def test_the_record_is_plain_json_that_anybody_can_read(folder: Folder) -> None:
    with Lease(folder, "ingest"):
        value = json.loads(folder.read(KEY) or b"")["value"]
    assert {"host", "process", "heartbeat", "purpose", "since"} <= set(value)


def test_a_damaged_lock_of_the_living_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_module, "HEARTBEAT", 0.5)
    folder = Folder(tmp_path)
    with Lease(folder, "distances") as lease:
        folder.write(KEY, (folder.read(KEY) or b"")[:-7])
        assert holds(folder, lease.token)
        with pytest.raises(StoreBusyError, match="is being written by process"), Lease(folder, "ingest"):
            pass
        lease.check()
    assert folder.read(KEY) is None


def test_a_heartbeat_does_not_wait_for_a_store_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """When it is back somebody else may hold it: the next beat looks first."""
    folder = Folder("memory://lease-away")
    monkeypatch.setattr(lease_module, "HEARTBEAT", 0.05)
    with Lease(folder, "distances") as lease:

        def away(*_: object, **__: object) -> None:
            raise ConnectionError("away")

        tries: list[int] = []
        with monkeypatch.context() as patch:
            patch.setattr(type(folder._fs), "pipe_file", lambda *_, **__: (tries.append(1), away()))
            wait_for(lambda: len(tries) >= 4)  # patiently, there would be one in ten seconds
        lease.check()


def test_a_claim_tells_who_has_it(tmp_path: Path, quick: None) -> None:
    folder, seen = Folder(tmp_path), []
    folder.write(KEY, json_record(record(born=1.0)))
    create = Folder.create

    def look(self: Folder, key: str, content: bytes, **how: bool) -> bool:
        if key != KEY:
            seen.append((key, content, how))
        return create(self, key, content, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Folder, "create", look)
        with Lease(folder, "ingest") as lease:
            assert seen == [(f"{KEY}.{record()['token']}", lease.token.encode(), {"own": True})]


def test_after_an_outage_a_heartbeat_takes_nothing_back(monkeypatch: pytest.MonkeyPatch, quick: None) -> None:
    """What cannot be read is not damaged: while the store was away, somebody else may have taken it over."""
    folder = Folder("memory://lease-outage")
    monkeypatch.setattr(patience, "PATIENCE", 0.2)
    theirs = json_record(record(**ELSEWHERE))
    with Lease(folder, "distances") as lease:
        tries: list[int] = []

        def away(*_: object, **__: object) -> bytes:
            tries.append(1)
            raise ConnectionError("away")

        with monkeypatch.context() as patch:
            patch.setattr(type(folder._fs), "cat_file", away)
            wait_for(lambda: len(tries) > 1)
            folder.write(KEY, theirs)  # by the other, whose line is up again sooner
            seen = len(tries)
            wait_for(lambda: len(tries) > seen + 3)
            with pytest.raises(StoreAwayError, match="has been away for"):
                holds(folder, lease.token)
            with pytest.raises(StoreAwayError, match="has been away for"):
                holder(folder)
        wait_for(lambda: not lease.held)
        assert folder.read(KEY) == theirs
    assert folder.read(KEY) == theirs
    folder.remove(KEY)


def test_what_happened_is_told_though_the_lock_cannot_be_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Folder("memory://lease-stays")
    monkeypatch.setattr(patience, "PATIENCE", 0.2)

    def away(*_: object, **__: object) -> bytes:
        raise ConnectionError("away")

    def work(error: Exception | None) -> None:
        with monkeypatch.context() as patch, Lease(folder, "distances"):
            patch.setattr(type(folder._fs), "cat_file", away)
            if error is not None:
                raise error

    for error, told in ((None, StoreAwayError), (KeyError("this first"), KeyError)):
        with pytest.raises(told):
            work(error)
        folder.remove(KEY)


def test_a_lock_that_was_given_back_by_another_is_not_made_anew(folder: Folder, quick: None) -> None:
    with Lease(folder, "distances") as lease:
        folder.remove(KEY)  # taken over, and given back
        wait_for(lambda: not lease.held)
        assert folder.read(KEY) is None


@pytest.mark.parametrize("process", [-1, 0])
def test_a_lock_of_no_process_is_damaged(folder: Folder, process: int, quick: None) -> None:
    folder.write(KEY, json_record(record(process=process)))
    assert holder(folder) is None
    with Lease(folder, "ingest"):
        pass


def test_whoever_interrupts_the_wait_for_writes_gives_the_store_back(
    folder: Folder, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def settle(_: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(lease_module, "settle", settle)
    with pytest.raises(KeyboardInterrupt), Lease(folder, "distances"):
        raise KeyboardInterrupt
    assert folder.read(KEY) is None
    with Lease(folder, "append"):
        pass
