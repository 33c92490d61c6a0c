"""Connecting to a cluster, or starting one; comparing the code of both sides."""

from __future__ import annotations

import gc
import importlib.metadata
import logging
import os
import platform
import re
import threading
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest
from distributed import Client, LocalCluster
from distributed.comm.core import CommClosedError

from cksc_dist.dist import cluster as cluster_module
from cksc_dist.dist import embedded as embedded_module
from cksc_dist.dist import same_code as same_code_module
from cksc_dist.dist import ship
from cksc_dist.dist.cluster import connected
from cksc_dist.dist.distances import compute_distances
from cksc_dist.dist.forecast import forecast
from cksc_dist.dist.ingest import ingest
from cksc_dist.dist.same_code import check_code
from cksc_dist.dist.ship import DIGEST_THERE, code_digest
from cksc_dist.dist.workers import have_limits, memory_of_workers, slots_of
from cksc_dist.errors import ClusterError
from cksc_dist.io import make_gestures
from cksc_dist.spec import RunSpec
from tests.dist.processes import Starter, free_port, starter

A_MINUTE = 60.0


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Starter]:
    with starter(tmp_path) as started:
        yield started


@pytest.fixture
def store(tmp_path: Path) -> Path:
    ingest(make_gestures(n_per_class=5), tmp_path / "gestures.zarr")
    return tmp_path / "gestures.zarr"


class OtherSide:
    """In a client's place: tells of a scheduler and two workers with chosen versions, and evaluates nothing."""

    def __init__(
        self,
        scheduler: dict[str, str | None] | None = None,
        worker: dict[str, str | None] | None = None,
        code: str | None = None,
        arithmetic: str | None = None,
    ) -> None:
        self._code = code_digest() if code is None else code
        self._arithmetic = same_code_module._arithmetic() if arithmetic is None else arithmetic
        names = (*ship.requirements(), "cksc_dist")
        same: dict[str, str | None] = {name: importlib.metadata.version(name) for name in names}
        same["python"] = platform.python_version()
        self._scheduler = same | (scheduler or {})
        self._workers = {"tcp://10.0.0.7:9000": same | (worker or {}), "tcp://10.0.0.8:9000": same}

    def run_on_scheduler(self, *_: object) -> dict[str, str | None]:
        return self._scheduler

    def run(self, function: object, *look: str, on_error: str = "raise") -> dict[str, Any]:
        if function is same_code_module._arithmetic:
            return dict.fromkeys(self._workers, self._arithmetic)
        return dict.fromkeys(self._workers, self._code) if look == (DIGEST_THERE,) else self._workers


class DyingSide:
    """In a client's place: of two workers one cannot be asked any more."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def run(self, *_: object, on_error: str) -> dict[str, Any]:
        assert on_error == "return"
        return {"tcp://10.0.0.7:9000": self._error, "tcp://10.0.0.8:9000": (2**30, 2, [("host", 2**40)])}


def test_a_worker_that_dies_while_it_is_asked_is_left_out() -> None:
    assert memory_of_workers(DyingSide(OSError("stream is closed"))) == 2**29
    assert memory_of_workers(DyingSide(TimeoutError("timed out"))) == 2**29


@pytest.mark.parametrize(
    ("fault", "cure"),
    [
        (ModuleNotFoundError("No module named 'threadpoolctl'", name="threadpoolctl"), "install threadpoolctl there"),
        (ModuleNotFoundError("No module named 'scipy.linalg'", name="scipy.linalg"), "install scipy there"),
        (ValueError("something else"), "see its log"),
    ],
)
def test_a_worker_that_cannot_answer_is_named(fault: Exception, cure: str) -> None:
    words = rf"worker tcp://10\.0\.0\.7:9000 cannot work \({type(fault).__name__}: {fault}\); {cure}"
    with pytest.raises(ClusterError, match=words):
        memory_of_workers(DyingSide(fault))


class SmallHosts:
    """In a client's place: workers that say of their memory what they are told."""

    def __init__(self, *answers: tuple[int | None, int, list[tuple[str, int]]]) -> None:
        self._answers = {f"tcp://10.0.0.{number}:9000": answer for number, answer in enumerate(answers)}

    def run(self, *_: object, on_error: str) -> dict[str, Any]:
        return self._answers


def test_a_worker_may_use_its_share_of_its_limit_and_of_its_host() -> None:
    large, small = [("a machine", 2**40)], [("a machine", 2**30)]
    assert memory_of_workers(SmallHosts((8 * 2**30, 2, large))) == 4 * 2**30
    # a limit that the container does not hold to, and none at all
    assert memory_of_workers(SmallHosts((8 * 2**30, 2, small))) == 2**29
    others = [("b machine", 2**30)]
    assert memory_of_workers(SmallHosts((None, 2, small), (None, 6, small), (None, 1, others))) == 2**27
    assert memory_of_workers(SmallHosts()) is None
    assert have_limits(SmallHosts((2**30, 2, large)))
    assert not have_limits(SmallHosts((2**30, 2, large), (None, 2, large)))


@pytest.mark.parametrize(
    ("status", "error", "told"),
    [
        ("running", CommClosedError("Stream is closed"), ClusterError),  # the client has not noticed it yet
        ("connecting", OSError("timed out"), ClusterError),
        ("running", OSError(28, "No space left on device"), OSError),
    ],
)
def test_a_scheduler_that_went_away_is_told_in_words(status: str, error: OSError, told: type[Exception]) -> None:
    client: Any = SimpleNamespace(status=status)
    words = "run the same command again" if told is ClusterError else "No space left"
    with pytest.raises(told, match=words), cluster_module._loss_in_words(client):
        raise error


def test_a_cluster_that_does_not_start_is_given_up_and_started_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Dask leaves it, in some versions, where a worker dies before it has said that it is there."""
    released, closed, tries = threading.Event(), threading.Event(), []
    late: Any = SimpleNamespace(close=lambda timeout: closed.set())
    good: Any = object()

    def new_cluster(*_: object) -> Any:
        tries.append(1)
        if len(tries) > 1:
            return good
        released.wait(30)
        return late

    monkeypatch.setattr(embedded_module, "_new_cluster", new_cluster)
    monkeypatch.setattr(embedded_module, "UP_SECONDS", 0.2)
    monkeypatch.setattr(embedded_module, "EACH_SECONDS", 0)
    assert embedded_module.local_cluster(2, None) is good
    released.set()
    assert closed.wait(30)  # it came after all


def plain_cluster(n_workers: int = 1, name: str | None = None) -> LocalCluster:
    own: dict[str, Any] = {"dashboard_address": ":0", "silence_logs": logging.CRITICAL}
    return LocalCluster(name=name, n_workers=n_workers, threads_per_worker=1, **own)


def test_of_a_cluster_that_is_given_up_workers_are_killed_and_nobody_else_s() -> None:
    """One that stands still would be waited for, without a word, when this process ends."""
    released, ended = threading.Event(), threading.Event()
    stopped = list[psutil.Process]()

    def never_up(name: str) -> LocalCluster:
        cluster = plain_cluster(name=name)
        (nanny,) = cluster.workers.values()
        stopped.append(psutil.Process(nanny.pid))
        stopped[0].suspend()
        released.wait(60)
        ended.set()
        return cluster

    with plain_cluster() as foreign:
        with pytest.raises(TimeoutError, match="it was not up after 8 s"):
            embedded_module._started(never_up, 8)
        assert not psutil.wait_procs(stopped, 30)[1]
        with Client(foreign, set_as_default=False) as client:
            assert client.submit(sum, [1, 2]).result(timeout=30) == 3
    released.set()
    assert ended.wait(30)


def test_a_cluster_that_does_not_close_is_not_waited_for_without_end() -> None:
    """Its workers are ended, and its nannies start no others."""
    cluster = plain_cluster(n_workers=2)

    def close(timeout: float) -> None:
        raise TimeoutError

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(cluster, "close", close)
        with embedded_module.closed_in_time(cluster) as found:
            processes = set(psutil.Process().children())
            workers = [psutil.Process(nanny.pid) for nanny in found.workers.values()]
        assert not psutil.wait_procs(workers, 30)[1]
    time.sleep(1)
    assert set(psutil.Process().children()) <= processes
    cluster.close()


def test_workers_of_one_machine_may_have_limits_of_their_own() -> None:
    """As jobs of SLURM do: each had been given a fraction of what is its own."""
    jobs = [(None, 1, [("a machine", 2**36), (f"a /job_{number}", 2**34)]) for number in range(4)]
    assert memory_of_workers(SmallHosts(*jobs)) == 2**34
    assert memory_of_workers(SmallHosts(*jobs, (None, 4, [("a machine", 2**36)]))) == 2**36 // 8
    one_job = [(None, 1, [("a machine", 2**36), ("a /job_1", 2**34)])] * 2
    assert memory_of_workers(SmallHosts(*one_job)) == 2**33


def with_other(name: str, part: int) -> str:
    """Return the version of a package here, with one of its numbers raised."""
    version = platform.python_version() if name == "python" else importlib.metadata.version(name)
    numbers = version.split(".")
    numbers[part] = str(int(numbers[part]) + 1)
    return ".".join(numbers)


def test_equal_code_is_no_cause_for_words() -> None:
    assert check_code(OtherSide()) == []


@pytest.mark.parametrize("name", ["python", "numpy", "numba", "zarr", "dask"])
@pytest.mark.parametrize("part", [0, 1])
def test_another_minor_version_is_an_error_that_names_both_sides(name: str, part: int) -> None:
    other = with_other(name, part)
    mine = with_other(name, 2)  # not this one
    with pytest.raises(ClusterError) as caught:
        check_code(OtherSide(worker={name: other}))
    words = str(caught.value)
    assert f"worker tcp://10.0.0.7:9000 has {name} {other}" in words
    assert "here it is" in words
    assert mine not in words
    with pytest.raises(ClusterError, match=rf"the scheduler has {name} "):
        check_code(OtherSide(scheduler={name: other}))


@pytest.mark.parametrize("name", ["python", "numpy", "numba", "zarr", "dask"])
def test_a_smaller_difference_is_a_warning(name: str) -> None:
    other = with_other(name, 2)
    (words,) = check_code(OtherSide(worker={name: other}))
    assert f"tcp://10.0.0.7:9000 has {name} {other}" in words


def test_any_difference_of_this_package_is_an_error() -> None:
    other = with_other("cksc_dist", 2)
    with pytest.raises(ClusterError, match=f"tcp://10.0.0.7:9000 has cksc_dist {other}, but here it is"):
        check_code(OtherSide(worker={"cksc_dist": other}))


def test_other_code_of_the_same_version_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    words = r"tcp://10\.0\.0\.7:9000 has cksc_dist .* as it is here, but other code of it; .* install it anew there"
    with pytest.raises(ClusterError, match=words):
        check_code(OtherSide(code=""))  # as one answers that knows of no digest
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        assert check_code(client) == []
        monkeypatch.setattr(same_code_module, "code_digest", lambda: "another")
        with pytest.raises(ClusterError, match="but other code of it"):
            check_code(client)


def test_workers_that_round_otherwise_are_told() -> None:
    (words,) = check_code(OtherSide(arithmetic="NumPy with X86_V2, openblas for Nehalem"))
    assert "worker tcp://10.0.0.7:9000 (and 1 more) computes by NumPy with X86_V2, openblas for Nehalem" in words
    assert f"here it is {same_code_module._arithmetic()}" in words
    assert "the last bits of kernels and models may depend on who computes them, those of DTW distances do not" in words


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="names an early processor of this kind")
@pytest.mark.skipif(
    "openblas" not in same_code_module._arithmetic(), reason="needs a BLAS that can be told its processor"
)
def test_how_a_worker_rounds_is_really_looked_up_there(start: Starter) -> None:
    port = free_port()
    start.scheduler(port)
    address = f"tcp://127.0.0.1:{port}"
    start.workers(address, 1, {"OPENBLAS_CORETYPE": "Nehalem"})
    with connected(RunSpec(scheduler=address), 1) as client:
        (words,) = check_code(client)
    assert "computes by NumPy with" in words
    assert "openblas for Nehalem; here it is" in words


def test_a_missing_library_is_an_error_that_says_which_and_where() -> None:
    with pytest.raises(ClusterError, match=r"worker tcp://10\.0\.0\.7:9000 has no numba; install numba .* there"):
        check_code(OtherSide(worker={"numba": None}))
    words = (
        r"worker tcp://10\.0\.0\.7:9000 has no psutil, threadpoolctl, which cksc_dist needs; install there, then "
        r"start it again: pip install 'psutil>=\S+' 'threadpoolctl>=\S+'$"
    )
    with pytest.raises(ClusterError, match=words):
        check_code(OtherSide(worker={"threadpoolctl": None, "psutil": None}))


def test_what_a_worker_needs_is_what_the_project_says() -> None:
    project = tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text())["project"]
    assert list(ship.requirements().values()) == project["dependencies"]
    assert {"scikit-learn", "google-crc32c", "numpy"} < set(ship.requirements())


def test_versions_are_really_looked_up_on_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        assert check_code(client) == []
        assert slots_of(client) == 1
        # what this side is asked; the other side looks for itself
        monkeypatch.setattr(importlib.metadata, "version", lambda name: "99.0.0")
        with pytest.raises(ClusterError, match=r"the scheduler has numpy .*, but here it is 99\.0\.0"):
            check_code(client)


@pytest.mark.slow
def test_a_worker_with_another_release_is_refused_before_any_work(start: Starter, store: Path, tmp_path: Path) -> None:
    release = tmp_path / "other" / "cksc_dist-99.1.dist-info"
    release.mkdir(parents=True)
    (release / "METADATA").write_text("Metadata-Version: 2.1\nName: cksc_dist\nVersion: 99.1\n")
    port = free_port()
    start.scheduler(port)
    address = f"tcp://127.0.0.1:{port}"
    (_,) = start.workers(address, 1, {"PYTHONPATH": f"{release.parent}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"})
    run = start.cksc("distances", str(store), "--scheduler", address)
    assert run.wait() == 2, run.output
    here = importlib.metadata.version("cksc_dist")
    assert "worker tcp://127.0.0.1:" in run.output
    assert f"has cksc_dist 99.1, but here it is {here}" in run.output
    assert "Traceback" not in run.output
    assert not list(store.glob("distances/*/distance/c/*/*"))


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:{port}", "127.0.0.1:{port}"])
def test_a_scheduler_that_does_not_answer(store: Path, monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setattr(cluster_module, "CONNECT_SECONDS", 1)
    address = address.format(port=free_port())
    begin = time.monotonic()
    with pytest.raises(ClusterError, match=f"no scheduler answers at {address} within 1 s") as caught:
        compute_distances(store, run=RunSpec(scheduler=address))
    assert time.monotonic() - begin < A_MINUTE
    assert "Start one with: dask scheduler" in str(caught.value)
    assert not (store / "lock.json").exists()


@pytest.mark.parametrize("address", ["nonsense://head:8786", "tcp://head:port", "tcp://no-such-host.invalid:8786"])
def test_an_address_that_is_none(store: Path, monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setattr(cluster_module, "CONNECT_SECONDS", 1)
    with pytest.raises(ClusterError, match=f"no scheduler answers at {address}.*is the address right"):
        compute_distances(store, run=RunSpec(scheduler=address))


def test_a_scheduler_without_workers_is_told(start: Starter, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cluster_module.CONNECT_SECONDS + cluster_module.WORKER_SECONDS < A_MINUTE
    monkeypatch.setattr(cluster_module, "WORKER_SECONDS", 1)
    port = free_port()
    start.scheduler(port)
    address = f"tcp://127.0.0.1:{port}"
    for command in (compute_distances, forecast):
        with pytest.raises(ClusterError, match=f"has had no worker for 1 s; start some with: dask worker {address}"):
            command(store, run=RunSpec(scheduler=address))
    assert not (store / "lock.json").exists()


def _environment() -> dict[str, str]:
    import os

    return dict(os.environ)


def _limit_and_threads(dask_worker: Any) -> tuple[int, int]:
    return int(dask_worker.memory_manager.memory_limit), int(dask_worker.state.nthreads)


@pytest.mark.slow
def test_the_embedded_cluster_is_capped_private_and_gone_afterwards() -> None:
    with connected(RunSpec(executor="dask", memory=2**30), 2) as client:
        assert slots_of(client) == 2
        for environment in client.run(_environment).values():
            for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
                assert environment[name] == "1"
        assert list(client.run(_limit_and_threads).values()) == [(2**30, 1)] * 2
        addresses = [client.scheduler.address, client.dashboard_link, *client.nthreads()]
        assert all("127.0.0.1" in address for address in addresses), addresses
        processes = list(client.run(os.getpid).values())
        assert client.submit(np.sum, [1, 2]).result() == 3
    assert client.status == "closed"
    assert not any(Path(f"/proc/{process}").exists() for process in processes)


def test_a_client_that_cannot_connect_is_closed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Left to be collected as garbage while another one starts, it made Dask wait for itself."""
    monkeypatch.setattr(cluster_module, "CONNECT_SECONDS", 0.5)
    before = {thread.ident for thread in threading.enumerate()}
    gc.disable()
    try:
        for _ in range(3):
            with pytest.raises(ClusterError, match="no scheduler answers"):
                cluster_module._client_of("tcp://127.0.0.1:1")
        left = [thread for thread in threading.enumerate() if thread.ident not in before and thread.name == "IO loop"]
        assert not left
    finally:
        gc.enable()


@pytest.mark.parametrize("error", [RuntimeError("Cannot change state of expiring Timeout"), TimeoutError(), OSError()])
def test_a_client_that_cannot_be_closed_hides_no_other_error(error: Exception) -> None:
    """As Dask does where a scheduler died while the client was asking it something."""

    def close() -> None:
        closed.append(1)
        raise error

    closed = list[int]()
    client: Any = SimpleNamespace(close=close)
    with pytest.raises(ClusterError, match="the scheduler went away"), cluster_module._closed_anyhow(client):
        raise ClusterError("the scheduler went away")
    with cluster_module._closed_anyhow(client) as found:
        assert found is client
    assert len(closed) == 2


def said_by_a_worker() -> RuntimeError:
    """As Dask tells what a worker met with while it started."""
    error = RuntimeError("Nanny failed to start.")
    error.__cause__ = ModuleNotFoundError("No module named 'zict'")
    return error


@pytest.mark.parametrize(
    ("error", "starts"),
    [
        # a campaign killed three times in a row, on a machine so busy that a start took long
        (RuntimeError("Nanny failed to start worker process"), 10),
        (said_by_a_worker(), 3),
        (OSError("Resource temporarily unavailable"), 3),
    ],
)
@pytest.mark.parametrize("once_more", [False, True])
def test_a_cluster_whose_worker_dies_while_it_starts_is_started_again(
    monkeypatch: pytest.MonkeyPatch, error: Exception, starts: int, once_more: bool
) -> None:
    made: list[int] = []

    def start(**_: object) -> object:
        made.append(1)
        if len(made) < starts + once_more:
            raise error
        return made

    monkeypatch.setattr(embedded_module, "LocalCluster", start)
    if once_more:
        cause = re.escape(str(error.__cause__ or error))
        words = rf"no cluster could be started on this machine \({cause}\); run the command again or, where"
        with pytest.raises(ClusterError, match=words):
            embedded_module.local_cluster(2, None)
    else:
        assert embedded_module.local_cluster(2, None) is made
    assert len(made) == starts
