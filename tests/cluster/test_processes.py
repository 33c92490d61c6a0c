"""A scheduler and workers that were started by hand, and workers that join while work goes on."""

from __future__ import annotations

import importlib.metadata
import json
import os
import sys
import sysconfig
import urllib.request
from pathlib import Path

import numpy as np
import pytest

from cksc_dist import pairwise_dtw
from cksc_dist.dist.cluster import connected
from cksc_dist.io import make_gestures
from cksc_dist.spec import RunSpec
from tests.cluster.recipes import check_that_two_worked
from tests.dist.processes import DASK, Starter, answers, chunk_files, free_port, wait_until

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def address(start: Starter) -> str:
    port = free_port()
    start.scheduler(port)
    start.workers(f"tcp://127.0.0.1:{port}", 2)
    return f"tcp://127.0.0.1:{port}"


def test_two_worker_processes_write_the_bytes_of_the_embedded_cluster(
    start: Starter, address: str, store: Path, expected: dict[str, str]
) -> None:
    run = start.cksc("distances", str(store), "--scheduler", address)
    assert run.wait() == 0, run.output
    assert "warning" not in run.output  # loopback needs no encryption
    assert chunk_files(store) == expected
    check_that_two_worked(store)


def packages_but_this_one(folder: Path) -> Path:
    """Return a folder with all packages that are installed here, but not this one."""
    packages = folder / "packages"
    packages.mkdir()
    for name in ("purelib", "platlib"):
        for entry in Path(sysconfig.get_path(name)).iterdir():
            own = "cksc_dist" in entry.name or entry.suffix == ".pth"
            if not own and not (packages / entry.name).exists():
                (packages / entry.name).symlink_to(entry)
    return packages


@pytest.mark.campaign  # both workers compile everything anew
def test_the_main_job_where_the_package_is_not_installed(start: Starter, tmp_path: Path) -> None:
    port, page = free_port(), free_port()
    address = f"tcp://127.0.0.1:{port}"
    there = {"PYTHONPATH": str(packages_but_this_one(tmp_path)), "NUMBA_CACHE_DIR": str(tmp_path / "numba")}
    bare = (sys.executable, "-S", "-m")  # no site-packages but those in the folder
    at = ("--host", "127.0.0.1", "--port", str(port), "--dashboard-address", f"127.0.0.1:{page}")
    scheduler = start(*bare, "distributed.cli.dask_scheduler", *at, environment=there)
    wait_until(lambda: answers(port), "a scheduler that answers")
    options = ("--nthreads", "1", "--no-nanny", "--no-dashboard")
    for _ in range(2):
        worker = start(*bare, "distributed.cli.dask_worker", address, *options, environment=there)
        wait_until(lambda worker=worker: "Registered to" in worker.output, "a worker")
    job = [sys.executable, str(ROOT / "jobs" / "run_dyntex.py"), "--videos-per-class", "4", "--splits", "1"]
    run = start(*job, "--scheduler", address, "--store", str(tmp_path / "dyntex"))
    assert run.wait(300.0) == 0, run.output
    assert "its code was sent there" in run.output
    with urllib.request.urlopen(f"http://127.0.0.1:{page}/cksc.json") as answer:
        told = json.load(answer)
    assert told["version"] == importlib.metadata.version("cksc_dist")
    assert scheduler.runs()


def test_a_worker_that_joins_late_gets_the_code(start: Starter, address: str, tmp_path: Path) -> None:
    packages = packages_but_this_one(tmp_path)
    data = make_gestures(n_per_class=2).series
    with connected(RunSpec(scheduler=address), 1) as client:
        before = set(client.nthreads())
        late = start(  # -S: no site-packages but those in the folder, where this package is not
            *(sys.executable, "-S", "-m", "distributed.cli.dask_worker", address, "--nthreads", "1"),
            *("--no-nanny", "--no-dashboard"),
            environment={"PYTHONPATH": str(packages), "NUMBA_CACHE_DIR": str(tmp_path)},
        )
        wait_until(lambda: "Registered to" in late.output, "a late worker")
        (worker,) = set(client.nthreads()) - before
        assert "cksc_dist-code-" in client.submit(eval, "__import__('cksc_dist').__file__", workers=[worker]).result()
        told = client.submit(eval, "__import__('cksc_dist').__version__", workers=[worker]).result()
        assert told == importlib.metadata.version("cksc_dist")
        there = client.submit(pairwise_dtw, data, workers=[worker], pure=False).result()
        assert np.array_equal(there, pairwise_dtw(data))
    late.end()


def test_a_late_worker_with_another_release_is_sent_away(start: Starter, address: str, tmp_path: Path) -> None:
    release = tmp_path / "cksc_dist-99.1.dist-info"
    release.mkdir()
    (release / "METADATA").write_text("Metadata-Version: 2.1\nName: cksc_dist\nVersion: 99.1\n")
    path = f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    command = [*DASK, "worker", address, "--nthreads", "1", "--no-nanny", "--no-dashboard"]
    with connected(RunSpec(scheduler=address), 1) as client:
        before = set(client.nthreads())
        late = start(*command, environment={"PYTHONPATH": path})
        late.wait(60.0)
        assert set(client.nthreads()) == before
        (event,) = client.get_events("cksc-refused")
    here = importlib.metadata.version("cksc_dist")
    words = f"has cksc_dist 99.1, but the client that works now has {here}; it is sent away"
    assert words in event[1]["reason"]
    assert words in late.output
    # nobody works now: whoever comes may stay
    later = start(*command, environment={"PYTHONPATH": path})
    wait_until(lambda: "Registered to" in later.output, "a worker")
    assert later.runs()
    assert "sent away" not in later.output
    later.end()
