"""A store on S3 holds the same matrix as one in a folder, and a server that goes away for a while is waited for."""

from __future__ import annotations

import importlib.util
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from cksc_dist import SeriesSet, open_matrix
from cksc_dist.dist.distances import compute_distances
from cksc_dist.dist.ingest import append, ingest
from cksc_dist.dist.verify import verify
from cksc_dist.errors import StoreBusyError, StoreError
from cksc_dist.io import make_gestures
from cksc_dist.spec import RunSpec
from cksc_dist.store.folder import Folder
from cksc_dist.store.lease import Lease
from tests.dist.processes import Started, Starter, answers, free_port, ledger_of, starter, wait_until

for needed in ("s3fs", "moto", "flask"):
    if importlib.util.find_spec(needed) is None:
        pytest.skip(f"needs {needed}: pip install cksc_dist[test]", allow_module_level=True)

AWAY_SECONDS = 10.0
THREADS = RunSpec(executor="threads", workers=2)


class Server:
    """An S3 server on loopback; what is stored there is lost with it."""

    def __init__(self, process: Started, port: int) -> None:
        self.process, self.port = process, port

    def environment(self, port: int | None = None) -> dict[str, str]:
        """Return what a process must know to reach it, directly or through another port."""
        return {
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port or self.port}",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        }


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    import s3fs  # type: ignore[import-untyped]  # it has no types

    port = free_port()
    with starter(tmp_path_factory.mktemp("server")) as start, pytest.MonkeyPatch.context() as patch:
        found = Server(start(sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)), port)
        wait_until(lambda: answers(port), "a server that answers")
        for name, value in found.environment().items():
            patch.setenv(name, value)
        s3fs.S3FileSystem().mkdir("bucket")
        yield found


_numbers = count()


@pytest.fixture
def url(server: Server) -> str:
    """A place on the server that nobody has used."""
    return f"s3://bucket/folder/gestures-{next(_numbers)}.zarr"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Starter]:
    with starter(tmp_path) as started:
        yield started


@pytest.fixture(scope="module")
def gestures() -> SeriesSet:
    """Series whose matrix has about thirty tiles."""
    return make_gestures(n_per_class=50, dims=12, length=(200, 300))


@pytest.fixture(scope="module")
def local(gestures: SeriesSet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same in a folder."""
    store = tmp_path_factory.mktemp("local") / "gestures.zarr"
    ingest(gestures, store)
    compute_distances(store, run=RunSpec(executor="serial"))
    return store


def chunks(store: str | Path) -> dict[str, bytes]:
    """Return every file below the matrices of a store."""
    folder = Folder(store)
    found = {name: folder.read(f"distances/{name}") for name in folder.files("distances")}
    assert all(found.values())
    return {name: content for name, content in found.items() if content is not None}


def test_the_same_matrix_as_in_a_folder(url: str, gestures: SeriesSet, local: Path) -> None:
    assert ingest(gestures, url)
    assert not ingest(gestures, url)  # they are there already
    report = compute_distances(url, run=THREADS)
    assert report.computed == report.tiles > 10
    assert compute_distances(url, run=THREADS).computed == 0
    remote, expected = open_matrix(url), open_matrix(local)
    np.testing.assert_array_equal(np.asarray(remote), np.asarray(expected))
    np.testing.assert_array_equal(remote.to_xarray().values, np.asarray(expected))
    assert remote.ids.tolist() == expected.ids.tolist()
    assert remote.labels.tolist() == expected.labels.tolist()
    assert chunks(url) == chunks(local)
    assert Folder(url).read("lock.json") is None


def test_whether_a_file_was_written_anew_is_asked_without_reading_it(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Folder(url)
    assert folder.stamp("ledger") is None
    folder.write("ledger", b"one")
    monkeypatch.setattr(Folder, "read", None)  # a ledger may have a hundred megabytes
    first = folder.stamp("ledger")
    assert first is not None
    assert folder.stamp("ledger") == first
    Folder(url).write("ledger", b"two")
    second = folder.stamp("ledger")
    assert second not in (None, first)
    Folder(url).remove("ledger")
    assert folder.stamp("ledger") is None


def few_gestures(n_per_class: int, seed: int = 0) -> SeriesSet:
    made = make_gestures(n_per_class=n_per_class, dims=12, length=(200, 300), random_state=seed)
    return replace(made, ids=np.array([f"{seed}/{name}" for name in made.ids]))


def test_append_verify_and_repair(url: str, tmp_path: Path) -> None:
    stores = (url, str(tmp_path / "gestures.zarr"))
    for store in stores:
        ingest(few_gestures(10), store)
        assert compute_distances(store, run=THREADS).pairs == 40 * 39 // 2
        (report,) = append(store, few_gestures(5, seed=1), THREADS).reports
        assert report.pairs == 40 * 20 + 20 * 19 // 2
    expected = chunks(stores[1])
    assert chunks(url) == expected
    faults, (verdict,) = verify(url, sample=20, seed=0)
    assert faults == []
    assert verdict.ok
    assert verdict.checked == 20

    folder, key = Folder(url), f"distances/{report.fingerprint}/distance/c/1/0"
    content = bytearray(expected[key.removeprefix("distances/")])
    content[len(content) // 2] ^= 1
    folder.write(key, bytes(content))
    _, (verdict,) = verify(url, sample=0)
    assert list(verdict.bad) == [(0, 1)]
    again = compute_distances(url, run=THREADS)
    assert list(again.repaired) == [(0, 1)]
    assert again.computed == 1
    assert chunks(url) == expected


def test_one_writer_at_a_time(url: str) -> None:
    ingest(few_gestures(1), url)
    with (
        Lease(Folder(url), "distances"),
        pytest.raises(StoreBusyError, match=f"is being written by process {os.getpid()} on {socket.gethostname()}"),
    ):
        compute_distances(url, run=THREADS)


@pytest.mark.usefixtures("server")
def test_a_bucket_that_is_not_there_is_told() -> None:
    with pytest.raises((StoreError, OSError), match=r"(?i)no-such-bucket|bucket does not exist"):
        ingest(few_gestures(1), "s3://no-such-bucket/gestures.zarr")


class Line:
    """A line to a server that can be cut: connections are then dropped, and new ones refused."""

    def __init__(self, server_port: int) -> None:
        self.port = free_port()
        self._server_port = server_port
        self._open = threading.Event()
        self._thread = threading.Thread()

    def join(self) -> None:
        """Let connections through."""
        self._open.set()
        listening = socket.create_server(("127.0.0.1", self.port))
        self._thread = threading.Thread(target=self._listen, args=(listening,), daemon=True)
        self._thread.start()

    def cut(self) -> None:
        """Drop all connections and refuse new ones."""
        self._open.clear()
        self._thread.join()

    def _listen(self, listening: socket.socket) -> None:
        threads = []
        with listening:
            while self._open.is_set():
                if select.select([listening], [], [], 0.05)[0]:
                    threads.append(threading.Thread(target=self._carry, args=(listening.accept()[0],), daemon=True))
                    threads[-1].start()
        for thread in threads:
            thread.join()

    def _carry(self, caller: socket.socket) -> None:
        with caller, socket.create_connection(("127.0.0.1", self._server_port)) as called, suppress(OSError):
            other = {caller: called, called: caller}
            while self._open.is_set():
                for end in select.select([caller, called], [], [], 0.05)[0]:
                    content = end.recv(2**16)
                    if not content:
                        return
                    other[end].sendall(content)


@contextmanager
def refusing(server: Server, line: Line) -> Iterator[None]:
    """The server cannot be reached."""
    line.cut()
    yield
    line.join()


@contextmanager
def silent(server: Server, line: Line) -> Iterator[None]:
    """The server takes connections but does not answer."""
    server.process.process.send_signal(signal.SIGSTOP)
    yield
    server.process.process.send_signal(signal.SIGCONT)


Outage = Callable[[Server, Line], AbstractContextManager[None]]


@pytest.mark.campaign  # one that fails, throttles and is slow is in every run: tests/faults/test_s3_trouble.py
@pytest.mark.parametrize(("outage", "executor"), [(refusing, "dask"), (silent, "threads")])
def test_a_server_that_goes_away_for_ten_seconds_is_waited_for(
    url: str, server: Server, start: Starter, gestures: SeriesSet, local: Path, outage: Outage, executor: str
) -> None:
    ingest(gestures, url)
    line = Line(server.port)
    with ExitStack() as stack:
        line.join()
        stack.callback(line.cut)
        arguments = ("--executor", executor, "--workers", "2")
        run = start.cksc("distances", url, *arguments, environment=server.environment(line.port))
        wait_until(lambda: not run.runs() or len(ledger_of(url)) >= 3, "tiles that are done")
        before = ledger_of(url)
        with outage(server, line):
            assert run.runs(), run.output
            time.sleep(AWAY_SECONDS)
            assert run.runs(), run.output
        assert run.wait() == 0, run.output
    assert len(before) < len(ledger_of(url))
    assert chunks(url) == chunks(local)
    now = ledger_of(url)
    assert {tile: now[tile] for tile in before} == before


_IMPATIENT = """
import sys
from cksc_dist.cli import main
from cksc_dist.store import patience
patience.PATIENCE = 2.0
sys.exit(main(sys.argv[1:]))
"""


def test_a_server_that_stays_away_is_told(url: str, server: Server, start: Starter) -> None:
    nobody = server.environment(free_port())
    run = start(sys.executable, "-c", _IMPATIENT, "distances", url, environment=nobody)
    assert run.wait() == 2, run.output
    assert "has been away for 2 s" in run.output
    assert "run the same command again when it is back" in run.output
    assert "Traceback" not in run.output


def test_a_url_of_no_known_kind_is_told() -> None:
    with pytest.raises(StoreError, match="nowhere://bucket/store cannot be opened"):
        open_matrix("nowhere://bucket/store")
