"""Work inside a container that is too small for it: planned accordingly, refused, or done again in smaller pieces.

The containers are control groups, whose limit the system enforces: who takes more is killed
(`tests.faults.containers`).
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from cksc_dist import SeriesSet
from cksc_dist.dist.distances import compute_distances
from cksc_dist.dist.ingest import ingest
from cksc_dist.spec import RunSpec
from tests.dist.processes import CKSC, DASK, Starter, chunk_files, free_port, starter, wait_until
from tests.faults.containers import Container, container
from tests.small_stores import files_below

pytestmark = pytest.mark.cgroup

LIMIT = 420
"""MiB: a worker has room for 16 of these series at a time, but not for a tile of 48."""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Starter]:
    with starter(tmp_path) as started:
        yield started


@pytest.fixture
def box() -> Iterator[Container]:
    with container(LIMIT) as made:
        yield made


@pytest.fixture
def store(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    data = SeriesSet.from_list([rng.standard_normal((3, 40_000)) for _ in range(96)], ["a", "b"] * 48)
    ingest(data, tmp_path / "store")
    return tmp_path / "store"


def test_its_limit_is_known_inside(box: Container) -> None:
    look = "from cksc_dist.machine import free_memory, memory; print([memory(), free_memory()])"
    ran = subprocess.run(box.inside(sys.executable, "-c", look), capture_output=True, text=True, check=True)
    there, free = json.loads(ran.stdout)
    assert there == LIMIT * 2**20
    assert 0 < free < there


@pytest.mark.slow
def test_workers_at_its_limit_end_with_the_same_bytes(store: Path, start: Starter, box: Container) -> None:
    """Dask knows of no limit; the first run finds it out by itself, the second one is told that there is plenty."""
    planned, killed = (Path(shutil.copytree(store, store.with_name(name))) for name in ("planned", "killed"))
    compute_distances(store, run=RunSpec(executor="serial"))
    port = free_port()
    scheduler = f"tcp://127.0.0.1:{port}"
    start.scheduler(port)
    worker = start(*box.inside(*DASK, "worker", scheduler, "--nthreads", "1", "--memory-limit", "0", "--no-dashboard"))
    wait_until(lambda: "Registered to" in worker.output, "a worker that knows its scheduler")

    ran = start.cksc("distances", str(planned), "--scheduler", scheduler)
    assert ran.wait() == 0, ran.output
    assert box.killed == 0
    assert chunk_files(planned) == chunk_files(store)

    ran = start.cksc("distances", str(killed), "--scheduler", scheduler, "--memory", "1TiB")
    assert ran.wait() == 0, ran.output
    assert box.killed > 0
    assert chunk_files(killed) == chunk_files(store)


@pytest.mark.slow
def test_a_cluster_that_is_too_large_for_it_is_refused_before_it_starts(store: Path, box: Container) -> None:
    before = files_below(store)
    words = [*CKSC, "distances", str(store), "--executor", "dask", "--workers"]
    refused = subprocess.run(box.inside(*words, "2"), capture_output=True, text=True)
    assert refused.returncode == 2, refused.stderr
    assert "but may use 210 MiB; start fewer workers" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert box.killed == 0
    assert files_below(store) == before
