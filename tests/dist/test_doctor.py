"""What is said of healthy and of sick clusters."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from cksc_dist.dist import cluster as cluster_module
from cksc_dist.dist import doctor as doctor_module
from cksc_dist.dist import same_code as same_code_module
from cksc_dist.dist.cluster import connected
from cksc_dist.dist.doctor import (
    CAPS,
    KNOWN,
    Line,
    _known_matrix,
    _silence,
    check_store,
    diagnose,
    judge_clocks,
    judge_disk,
    judge_dtaidistance,
    judge_gil,
    judge_memory,
    judge_store,
    judge_threads,
)
from cksc_dist.dist.ingest import ingest
from cksc_dist.io import make_gestures
from cksc_dist.spec import RunSpec
from tests.dist.processes import Starter, free_port, starter

WORKER = "tcp://10.0.0.7:9000"
ONE_EACH = dict.fromkeys(CAPS, "1")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    ingest(make_gestures(n_per_class=5), tmp_path / "gestures.zarr")
    return tmp_path / "gestures.zarr"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with starter(tmp_path_factory.mktemp("doctor")) as start:
        yield started_cluster(start)


def started_cluster(start: Starter) -> str:
    """Return the address of a scheduler with two workers; the first caps nothing, the second all."""
    port = free_port()
    start.scheduler(port)
    start.workers(f"tcp://127.0.0.1:{port}", 1, dict.fromkeys(CAPS, "2"))
    start.workers(f"tcp://127.0.0.1:{port}", 1, ONE_EACH)
    return f"tcp://127.0.0.1:{port}"


def only(lines: list[Line], state: str) -> str:
    (line,) = lines
    assert line.state == state, line
    return line.text


def test_threads() -> None:
    assert only(judge_threads({WORKER: (1, ONE_EACH)}), "ok")
    assert f"worker {WORKER} runs 4 tasks at a time" in only(judge_threads({WORKER: (4, ONE_EACH)}), "warn")
    words = only(judge_threads({WORKER: (1, ONE_EACH | {"NUMBA_NUM_THREADS": None})}), "warn")
    assert f"worker {WORKER} does not cap NUMBA_NUM_THREADS:" in words
    assert "DASK_CONFIG=cluster/dask.yaml" in words


def test_memory(store: Path) -> None:
    assert "no limit" in only(judge_memory(None, None, 2), "warn")
    assert only(judge_memory(2**30, None, 2), "ok") == "1,024 MiB a thread"
    assert f"the distances of {store} need" in only(judge_memory(2**31, str(store), 2), "ok")
    words = only(judge_memory(2**20, str(store), 2), "fail")
    assert "but may use 1 MiB; start fewer workers" in words


def test_silence() -> None:
    assert only(judge_gil({WORKER: 0.25}), "ok") == "silent for 0.25 s at most"
    assert f"worker {WORKER} was silent for 12.3 s" in only(judge_gil({WORKER: 12.3}), "warn")
    assert "MemoryError: full" in only(judge_gil({WORKER: MemoryError("full")}), "fail")


def test_silence_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    import ctypes

    monkeypatch.setattr(doctor_module, "PROBE_SECONDS", 0.1)
    assert _silence() < 2.0
    # a call that holds Python's lock
    monkeypatch.setattr(doctor_module, "pairwise_dtw", lambda *_, **__: ctypes.PyDLL(None).usleep(600_000))
    assert _silence() > 0.5


def test_a_broken_build_of_dtaidistance() -> None:
    assert np.allclose(_known_matrix(), KNOWN, rtol=1e-12)
    assert only(judge_dtaidistance({WORKER: KNOWN}), "ok")
    zeros = [[0.0] * 3] * 3
    words = only(judge_dtaidistance({WORKER: zeros, "other": KNOWN}), "fail")
    assert f"worker {WORKER} computes {zeros}" in words
    assert "pip install --force-reinstall dtaidistance" in words


@pytest.mark.parametrize(("ahead", "state"), [(0.5, "ok"), (-9.0, "warn"), (90.0, "fail")])
def test_clocks(ahead: float, state: str) -> None:
    words = only(judge_clocks({WORKER: ahead}), state)
    assert {"ok": "0.5 s apart", "warn": "9 s behind", "fail": "90 s ahead"}[state] in words


def test_room() -> None:
    assert only(judge_disk({WORKER: 5 * 10**9}), "ok").startswith("5.0 GB")
    assert f"worker {WORKER} has 0.2 GB left" in only(judge_disk({WORKER: 2 * 10**8}), "warn")


def test_another_store_under_the_same_name() -> None:
    assert judge_store("/data", "token", {WORKER: b"token"}) == []
    assert "what it writes is not seen here" in only(judge_store("/data", "token", {WORKER: None}), "fail")
    words = only(judge_store("/data", "token", {WORKER: FileNotFoundError("it does not see")}), "fail")
    assert "all workers must see the same /data" in words


@pytest.mark.slow
class TestRealCluster:
    def test_every_part_has_its_line(self, address: str, store: Path) -> None:
        before = sorted(path for path in store.rglob("*"))
        lines = list(diagnose(RunSpec(scheduler=address), str(store)))
        found = {line.subject: line.state for line in lines}
        assert found == {
            "scheduler": "ok",
            "versions": "ok",
            "threads": "warn",  # one worker of the two has two threads for every library
            "memory": "ok",
            "heartbeat": "ok",
            "dtaidistance": "ok",
            "clock": "ok",
            "disk": "ok",
            "store": "ok",
        }
        (threads,) = (line for line in lines if line.subject == "threads")
        assert ", ".join(CAPS) in threads.text
        assert sorted(path for path in store.rglob("*")) == before  # tidied up

    def test_a_worker_that_sees_another_store(self, address: str, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        # what the client writes goes elsewhere, as it does where a folder is not shared
        monkeypatch.setattr(doctor_module.Folder, "write", lambda *_, **__: None)
        with connected(RunSpec(scheduler=address), 1) as client:
            lines = check_store(client, str(store))
        assert [line.state for line in lines] == ["fail", "fail"]
        assert all("it does not see what the client wrote" in line.text for line in lines)

    def test_what_is_no_store(self, address: str, tmp_path: Path) -> None:
        with connected(RunSpec(scheduler=address), 1) as client:
            words = only(check_store(client, str(tmp_path / "nothing")), "ok")
            assert "is read and written by all workers, and holds no series yet" in words
            assert not (tmp_path / "nothing").exists()  # a first run can be checked, and nothing is left
            (tmp_path / "job").mkdir()
            (tmp_path / "job" / "report.html").write_text("of a job, which has several stores there")
            assert "read and written" in only(check_store(client, str(tmp_path / "job")), "ok")
            assert [path.name for path in (tmp_path / "job").iterdir()] == ["report.html"]
            words = only(check_store(client, str(tmp_path / "job" / "report.html")), "fail")
        assert "is a file; a store is a folder" in words

    def test_other_versions_end_the_checks(self, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
        real = same_code_module.versions_here()
        monkeypatch.setattr(same_code_module, "versions_here", lambda: real | {"numpy": "99.0.0"})
        *_, last = diagnose(RunSpec(scheduler=address))
        assert (last.state, last.subject) == ("fail", "versions")
        assert "the scheduler has numpy" in last.text


def test_a_scheduler_that_does_not_answer_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "CONNECT_SECONDS", 1)
    (line,) = diagnose(RunSpec(scheduler=f"tcp://127.0.0.1:{free_port()}"))
    assert (line.state, line.subject) == ("fail", "scheduler")
    assert "no scheduler answers" in line.text
