"""A scheduler and workers that do not have the package get its code."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import cloudpickle
import numpy as np
import pytest
from distributed import Client, LocalCluster
from distributed.comm.core import CommClosedError

from cksc_dist import open_matrix, pairwise_dtw
from cksc_dist.dist import ship
from cksc_dist.dist.distances import compute_distances
from cksc_dist.dist.ingest import ingest
from cksc_dist.dist.progress import Progress
from cksc_dist.dist.same_code import versions_here
from cksc_dist.dist.ship import send_code
from cksc_dist.errors import ClusterError
from cksc_dist.io import make_gestures
from cksc_dist.spec import RunSpec


def start(arguments: list[str], folder: Path, cache: Path) -> subprocess.Popen[bytes]:
    # -S: no site-packages but those in the folder, where this package is not
    environment = {**os.environ, "PYTHONPATH": str(folder), "NUMBA_CACHE_DIR": str(cache)}
    return subprocess.Popen(
        [sys.executable, "-S", "-m", *arguments],
        env=environment,
        cwd=cache,
        stderr=subprocess.DEVNULL,
    )


def address_in(file: Path) -> str:
    end = time.monotonic() + 30
    while time.monotonic() < end:
        try:
            return str(json.loads(file.read_text())["address"])
        except (OSError, ValueError):
            time.sleep(0.1)
    raise AssertionError("the scheduler did not start")


@pytest.fixture
def foreign_cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """A scheduler and a worker whose Python has all of this one's packages but this one, and one that a test names."""
    without = ("cksc_dist", *([request.param] if hasattr(request, "param") else []))
    packages = tmp_path / "packages"
    packages.mkdir()
    for name in ("purelib", "platlib"):
        for entry in Path(sysconfig.get_path(name)).iterdir():
            left_out = any(name in entry.name for name in without) or entry.suffix == ".pth"
            if not left_out and not (packages / entry.name).exists():
                (packages / entry.name).symlink_to(entry)
    file = tmp_path / "scheduler.json"
    options = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(file)]
    running = [start(["distributed.cli.dask_scheduler", *options], packages, tmp_path)]
    try:
        address = address_in(file)
        options = [address, "--nthreads", "1", "--no-nanny", "--no-dashboard"]
        running.append(start(["distributed.cli.dask_worker", *options], packages, tmp_path))
        yield address
    finally:
        for process in running:
            process.kill()
            process.wait()


class Notes(Progress):
    def __init__(self) -> None:
        self.texts: list[str] = []

    def note(self, text: str) -> None:
        self.texts.append(text)


@pytest.mark.slow
def test_code_is_sent_where_it_is_missing(foreign_cluster: str, tmp_path: Path) -> None:
    data = make_gestures(n_per_class=10)
    store = tmp_path / "store.zarr"
    ingest(data, store)
    notes = Notes()
    report = compute_distances(store, run=RunSpec(scheduler=foreign_cluster), progress=notes)
    assert report.pairs == 40 * 39 // 2
    assert np.array_equal(np.asarray(open_matrix(store)), pairwise_dtw(data))
    for place in ("the scheduler", r"worker tcp://127\.0\.0\.1:\d+"):
        assert any(re.search(f"not installed on {place}: its code was sent there", text) for text in notes.texts)


@pytest.mark.slow
@pytest.mark.parametrize("foreign_cluster", ["threadpoolctl"], indirect=True)
def test_a_worker_that_lacks_a_library_is_named(foreign_cluster: str, tmp_path: Path) -> None:
    """Not only those whose versions must agree: it had ended in a traceback."""
    ingest(make_gestures(n_per_class=3), tmp_path / "store.zarr")
    words = r"worker tcp://\S+ has no threadpoolctl, which cksc_dist needs; .* pip install 'threadpoolctl>=\S+'$"
    with pytest.raises(ClusterError, match=words):
        compute_distances(tmp_path / "store.zarr", run=RunSpec(scheduler=foreign_cluster))


@pytest.mark.parametrize("missing", ["", "threadpoolctl"])
def test_a_worker_that_joins_late_and_lacks_a_library_is_sent_away(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = ship.distributions
    monkeypatch.setattr(ship, "distributions", lambda name: () if name == missing else there(name=name))
    found = ship._Judge("cksc_dist", ship.code_digest(), versions_here())._other_libraries()
    assert found == (f"no {missing}, which cksc_dist needs" if missing else "")


def test_a_worker_that_dies_while_the_code_is_brought_does_not_end_the_run() -> None:
    def run(*_: object, workers: list[str], on_error: str) -> dict[str, object]:
        assert on_error == "return"
        return dict(zip(workers, outcomes, strict=True))

    client = SimpleNamespace(run=run)
    outcomes: list[object] = [None, CommClosedError("Stream is closed")]
    send_code(client, ["tcp://10.0.0.7:9000", "tcp://10.0.0.8:9000"])  # type: ignore[arg-type]  # in a client's place
    for fault in (OSError(errno.ENOSPC, "No space left on device"), RuntimeError("other code was sent here before")):
        outcomes = [None, fault]
        with pytest.raises(
            ClusterError, match=r"worker tcp://10\.0\.0\.8:9000 could not take the code .*(space|other)"
        ):
            send_code(client, ["tcp://10.0.0.7:9000", "tcp://10.0.0.8:9000"])  # type: ignore[arg-type]


def test_two_may_send_at_a_time() -> None:
    first, second = ship._by_value(), ship._by_value()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    try:
        there = subprocess.run(  # on a side without the package
            [sys.executable, "-c", PICKLED], input=cloudpickle.dumps(ship._unpack), capture_output=True, check=True
        )
        assert there.stdout == b"_unpack"
    finally:
        second.__exit__(None, None, None)
    assert ship.__name__ not in cloudpickle.list_registry_pickle_by_value()


def test_code_that_a_killed_process_left_is_removed_by_the_next(tmp_path: Path) -> None:
    with ship._by_value():
        sent = cloudpickle.dumps((ship._unpack, ("made_up", {"made_up/__init__.py": b"here = True"}, "abc")))
    running = []

    def receives() -> str:
        """Start a process that is sent code; return the name of the folder it wrote."""
        environment = {**os.environ, "TMPDIR": str(tmp_path)}
        there = subprocess.Popen(
            [sys.executable, "-c", RECEIVED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        running.append(there)
        assert there.stdin is not None
        assert there.stdout is not None
        there.stdin.write(sent)
        there.stdin.flush()
        return Path(there.stdout.readline().decode().strip()).parent.parent.name

    def folders() -> set[str]:
        return {entry.name for entry in tmp_path.iterdir()}

    try:
        first, second = receives(), receives()
        assert folders() == {first, second}  # both live
        running[0].kill()
        running[0].wait()
        third = receives()
        assert folders() == {second, third}
        new, old, mine = "made_up-sent-abc-justmade", "made_up-sent-abc-longlong", "made_up-sent-thesis"
        for name in (new, old, mine):
            (tmp_path / name).mkdir()
        os.utime(tmp_path / old, (0, 0))  # its process was killed before it could lock it; that of the new one may live
        (tmp_path / mine / "chapter.txt").write_text("nobody sent this")
        fourth = receives()
        assert folders() == {second, third, fourth, new, mine}
    finally:
        for process in running:
            process.kill()
            process.communicate()


def test_code_can_be_sent_where_files_cannot_be_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(*_: object) -> None:
        raise OSError(38, "Function not implemented")

    left = tmp_path / "made_up-sent-abc-longlong"
    left.mkdir()
    os.utime(left, (0, 0))
    monkeypatch.setattr("fcntl.flock", flock)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(sys, "path", [*sys.path])
    ship._unpack("made_up", {"made_up/__init__.py": b""}, "abc")
    assert Path(sys.path[0]).parent == tmp_path
    assert (Path(sys.path[0]) / "made_up/__init__.py").exists()
    assert left.exists()  # whether it is somebody's cannot be told


RECEIVED = (
    "import sys; sys.modules['cksc_dist'] = None; import pickle, time; "
    "unpack, given = pickle.load(sys.stdin.buffer); unpack(*given); import made_up; "
    "print(made_up.__file__, flush=True); time.sleep(600)"
)

PICKLED = (
    "import sys; sys.modules['cksc_dist'] = None; import pickle; print(pickle.load(sys.stdin.buffer).__name__, end='')"
)


class Door:
    """In a client's place: notes what is asked of the scheduler, which takes its time, and may fail at first."""

    id, status = "client-1", "running"

    def __init__(self, faults: int = 0) -> None:
        self.asked: list[str] = []
        self._faults = faults

    def register_plugin(self, plugin: object) -> None:
        time.sleep(0.2)
        self._faults -= 1
        if self._faults >= 0:
            raise RuntimeError("the scheduler has lost this client")
        self.asked.append("stand")

    def run_on_scheduler(self, function: object, *_: object) -> None:
        time.sleep(0.2)
        self.asked.append("leave")


@pytest.mark.parametrize("faults", [0, 1])
def test_threads_of_one_client_are_judged_for_as_long_as_one_works(faults: int) -> None:
    """None works before workers are judged, and none is left alone by another one that fails or ends."""
    client = Door(faults)
    seen, failed = [], []

    def work(seconds: float) -> None:
        try:
            with ship.late_workers_judged(client, {}):  # type: ignore[arg-type]  # in a client's place
                seen.append(client.asked[-1:])
                time.sleep(seconds)
                seen.append(client.asked[-1:])
        except ClusterError:
            failed.append(1)

    threads = [threading.Thread(target=work, args=(seconds,)) for seconds in (0.1, 0.3, 0.6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(failed) == faults
    assert seen == [["stand"]] * 2 * (3 - faults)
    assert client.asked[-2:] == ["stand", "leave"]  # one that failed may leave before
    assert client.asked.count("stand") == 1


@pytest.mark.slow
def test_two_clients_of_one_process_at_a_time(tmp_path: Path) -> None:
    faults: list[BaseException] = []

    def work(address: str) -> None:
        try:
            with Client(address, set_as_default=False) as client:
                for _ in range(10):
                    with ship.late_workers_judged(client, {}):
                        pass
        except BaseException as error:
            faults.append(error)

    with LocalCluster(n_workers=0, processes=False, dashboard_address=":0") as cluster:
        threads = [threading.Thread(target=work, args=(cluster.scheduler_address,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert faults == []
