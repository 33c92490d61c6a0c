"""Connecting to a cluster, or starting one; comparing the code of both sides."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client, LocalCluster

from cksc_dist.dist import cluster as cluster_module
from cksc_dist.dist.cluster import check_code, connected, memory_of_workers, slots_of
from cksc_dist.dist.distances import compute_distances
from cksc_dist.dist.forecast import forecast
from cksc_dist.dist.ingest import ingest
from cksc_dist.dist.ship import code_digest
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
    ) -> None:
        self._code = code_digest() if code is None else code
        names = ("numpy", "numba", "zarr", "dask", "cksc_dist")
        same: dict[str, str | None] = {name: importlib.metadata.version(name) for name in names}
        same["python"] = platform.python_version()
        self._scheduler = same | (scheduler or {})
        self._workers = {"tcp://10.0.0.7:9000": same | (worker or {}), "tcp://10.0.0.8:9000": same}

    def run_on_scheduler(self, *_: object) -> dict[str, str | None]:
        return self._scheduler

    def run(self, _: object, look: str, on_error: str = "raise") -> dict[str, Any]:
        return dict.fromkeys(self._workers, self._code) if look == cluster_module._CODE else self._workers


class DyingSide:
    """In a client's place: of two workers one cannot be asked any more."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def run(self, *_: object, on_error: str) -> dict[str, Any]:
        assert on_error == "return"
        return {"tcp://10.0.0.7:9000": self._error, "tcp://10.0.0.8:9000": (2**30, 2)}


def test_a_worker_that_dies_while_it_is_asked_is_left_out() -> None:
    assert memory_of_workers(DyingSide(OSError("stream is closed"))) == 2**29
    assert memory_of_workers(DyingSide(TimeoutError("timed out"))) == 2**29
    with pytest.raises(ValueError, match="something else"):
        memory_of_workers(DyingSide(ValueError("something else")))


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
        monkeypatch.setattr(cluster_module, "code_digest", lambda: "another")
        with pytest.raises(ClusterError, match="but other code of it"):
            check_code(client)


def test_a_missing_library_is_an_error_that_says_which_and_where() -> None:
    with pytest.raises(ClusterError, match=r"worker tcp://10\.0\.0\.7:9000 has no numba; install numba .* there"):
        check_code(OtherSide(worker={"numba": None}))


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


def test_a_thread_that_does_not_start_in_time_is_given_another_try(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dask asserts that its thread runs after ten seconds; on a busy machine that was not so."""
    tries: list[str] = []

    def busy(address: str, **_: Any) -> str:
        tries.append(address)
        assert len(tries) > needed
        return "a client"

    monkeypatch.setattr(cluster_module, "Client", busy)
    needed = 1
    assert cluster_module._client_of("tcp://127.0.0.1:1") == "a client"
    needed = 9
    with pytest.raises(ClusterError, match=r"could not start a thread .*; run the same command again"):
        cluster_module._client_of("tcp://127.0.0.1:1")
    assert len(tries) == 4
