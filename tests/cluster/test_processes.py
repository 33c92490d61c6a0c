"""A scheduler and workers that were started by hand, and workers that join while work goes on."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import sys
import sysconfig
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from distributed import Client

from cksc_dist import pairwise_dtw
from cksc_dist.dist.cluster import working_client
from cksc_dist.dist.dask_executor import DaskExecutor
from cksc_dist.dist.executors import results
from cksc_dist.dist.progress import Progress
from cksc_dist.io import make_gestures
from cksc_dist.spec import RunSpec
from tests.cluster.recipes import check_that_two_worked
from tests.dist.processes import DASK, Starter, answers, chunk_files, free_port, late_plugins, wait_until

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
    with working_client(RunSpec(scheduler=address), 1, None, Progress()) as client:
        before = set(client.nthreads())
        late = start(  # -S: no site-packages but those in the folder, where this package is not
            *(sys.executable, "-S", "-m", "distributed.cli.dask_worker", address, "--nthreads", "1"),
            *("--no-nanny", "--no-dashboard"),
            environment={"PYTHONPATH": str(packages), "NUMBA_CACHE_DIR": str(tmp_path)},
        )
        wait_until(lambda: "Registered to" in late.output, "a late worker")
        (worker,) = set(client.nthreads()) - before
        assert "cksc_dist-sent-" in client.submit(eval, "__import__('cksc_dist').__file__", workers=[worker]).result()
        told = client.submit(eval, "__import__('cksc_dist').__version__", workers=[worker]).result()
        assert told == importlib.metadata.version("cksc_dist")
        there = client.submit(pairwise_dtw, data, workers=[worker], pure=False).result()
        assert np.array_equal(there, pairwise_dtw(data))
    late.end()


class Notes(Progress):
    def __init__(self) -> None:
        self.texts: list[str] = []

    def note(self, text: str) -> None:
        self.texts.append(text)


def other_release(folder: Path) -> str:
    """Write what says that this package is here in another release; return a path with it."""
    release = folder / "cksc_dist-99.1.dist-info"
    release.mkdir()
    (release / "METADATA").write_text("Metadata-Version: 2.1\nName: cksc_dist\nVersion: 99.1\n")
    return f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"


def other_code(folder: Path) -> str:
    """Write a copy of this package that differs by a comment; return a path with it."""
    shutil.copytree(ROOT / "cksc_dist", folder / "cksc_dist")
    with (folder / "cksc_dist" / "errors.py").open("a") as file:
        file.write("# of another day\n")
    return f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"


HERE = importlib.metadata.version("cksc_dist")


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (other_release, f"has cksc_dist 99.1, but the client that works now has {HERE}; it is sent away"),
        (other_code, f"has other code of cksc_dist {HERE} than the client that works now; it is sent away"),
    ],
)
@pytest.mark.parametrize("whose", ["its own", "given"])
def test_a_late_worker_with_other_code_is_sent_away_and_the_client_told(
    start: Starter, address: str, tmp_path: Path, other: Callable[[Path], str], words: str, whose: str
) -> None:
    path, notes = other(tmp_path), Notes()
    command = [*DASK, "worker", address, "--nthreads", "1", "--no-nanny", "--no-dashboard"]
    with ExitStack() as stack:
        given = stack.enter_context(Client(address, set_as_default=False)) if whose == "given" else None
        with working_client(RunSpec(scheduler=address), 1, given, notes) as client:
            before = set(client.nthreads())
            executor = DaskExecutor(client, notes)
            late = start(*command, environment={"PYTHONPATH": path})
            late.wait(60.0)
            assert words in late.output
            assert set(client.nthreads()) == before
            wait_until(lambda: results(executor, abs, [-1], "abs") and notes.texts, "the client to be told")
            assert words in notes.texts[-1]
            with working_client(RunSpec(), 1, client, notes):
                pass
            assert late_plugins(client)  # work that was part of other work is over, but not that
    # nobody works now: whoever comes may stay
    later = start(*command, environment={"PYTHONPATH": path})
    wait_until(lambda: "Registered to" in later.output, "a worker")
    assert later.runs()
    assert "sent away" not in later.output
    later.end()


CLIENT = """
import sys, time
from distributed import Client
from cksc_dist.dist.same_code import versions_here
from cksc_dist.dist.ship import late_workers_judged
with Client(sys.argv[1], set_as_default=False) as client:
    with late_workers_judged(client, versions_here() | {"cksc_dist": "0.0.1"}):
        print("works now", flush=True)
        time.sleep(600)
"""


def test_clients_that_are_killed_leave_nothing_behind_and_judge_nobody(start: Starter, address: str) -> None:
    with Client(address, set_as_default=False) as look:
        assert late_plugins(look) == []
        clients = [start(sys.executable, "-c", CLIENT, address) for _ in range(2)]
        wait_until(lambda: all("works now" in each.output for each in clients), "clients at work")
        assert len(late_plugins(look)) == 2 * len(clients)
        sizes = look.run_on_scheduler(lambda dask_scheduler: [*map(len, dask_scheduler.worker_plugins.values())])
        assert max(sizes) < 20_000  # no code of this package in it
        clients[0].kill()
        wait_until(lambda: len(late_plugins(look)) == 2, "a scheduler that has noticed")
        clients[1].kill()
        wait_until(lambda: not late_plugins(look), "a scheduler that has noticed")
        before = set(look.nthreads())
        (late,) = start.workers(address, 1)
        assert len(set(look.nthreads()) - before) == 1
        assert "sent away" not in late.output
        late.end()
