"""Memory runs out: the same chunks are computed in smaller pieces, or the work is refused before it begins."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cksc_dist import SeriesSet, open_matrix
from cksc_dist.dist import tile_work
from cksc_dist.dist.distances import compute_distances
from cksc_dist.dist.ingest import ingest
from cksc_dist.errors import PlanError
from cksc_dist.spec import RunSpec
from tests.dist.processes import CKSC, DASK, chunk_files, free_port, starter, wait_until
from tests.small_stores import files_below, made_series

SERIAL = RunSpec(executor="serial")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    ingest(made_series(70), tmp_path / "store")
    return tmp_path / "store"


def out_of_memory_above(monkeypatch: pytest.MonkeyPatch, most: int) -> list[int]:
    """Let work on more series than so many at a time fail for want of memory; return the sizes that were tried."""
    tried: list[int] = []
    really = tile_work.pairwise_metric

    def limited(one: Any, other: Any, spec: Any) -> Any:
        tried.append(max(len(each[1]) - 1 for each in (one, other) if each is not None))
        if tried[-1] > most:
            raise MemoryError
        return really(one, other, spec)

    monkeypatch.setattr(tile_work, "pairwise_metric", limited)
    return tried


@pytest.mark.parametrize("most", [48, 16])
def test_a_chunk_is_computed_in_smaller_pieces(store: Path, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    whole = shutil.copytree(store, store.with_name("whole"))
    compute_distances(whole, run=SERIAL)
    tried = out_of_memory_above(monkeypatch, most)
    compute_distances(store, run=SERIAL)
    assert max(tried) > most >= min(tried)
    assert chunk_files(store) == chunk_files(whole)


def test_where_nothing_is_small_enough_it_is_said(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = out_of_memory_above(monkeypatch, 0)
    with pytest.raises(PlanError, match=r"memory runs out even with 16 series at a time; start fewer workers"):
        compute_distances(store, run=SERIAL)
    assert min(tried) == 16


LIMITED = """
import resource, sys
from cksc_dist import pairwise_dtw
from cksc_dist.dist.distances import compute_distances
from cksc_dist.dist.ingest import ingest
from cksc_dist.io import make_gestures
from cksc_dist.spec import DistanceSpec, RunSpec
from cksc_dist.dist import tile_work
import tempfile
for dims in (4, 600):  # all is imported and compiled before the limit is set
    with tempfile.TemporaryDirectory() as folder:
        ingest(make_gestures(n_per_class=8, dims=dims), folder)
        compute_distances(folder, run=RunSpec(executor="serial"))
tile_work._CACHE.clear = lambda clear=tile_work._CACHE.clear: (print("once more", file=sys.stderr), clear())
size = int(next(line for line in open("/proc/self/status") if line.startswith("VmSize")).split()[1]) * 1024
resource.setrlimit(resource.RLIMIT_AS, (size + int(sys.argv[2]) * 2**20, resource.RLIM_INFINITY))
print(compute_distances(sys.argv[1], run=RunSpec(executor="serial", memory=2**40)).pairs)
"""


@pytest.mark.slow
def test_a_process_at_its_limit_ends_with_the_same_bytes(tmp_path: Path) -> None:
    """The system itself refuses memory; the plan was told that there is plenty."""
    rng = np.random.default_rng(0)
    data = SeriesSet.from_list([rng.standard_normal((3, 20_000)) for _ in range(96)], ["a", "b"] * 48)
    ingest(data, tmp_path / "limited")
    free = Path(shutil.copytree(tmp_path / "limited", tmp_path / "free"))
    for store, megabytes in ((free, "100000"), (tmp_path / "limited", "100")):
        ran = subprocess.run([sys.executable, "-c", LIMITED, str(store), megabytes], capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
        assert ran.stdout == "4560\n"
        assert ("once more" in ran.stderr) == (store != free)
    assert chunk_files(tmp_path / "limited") == chunk_files(free)


@pytest.mark.campaign  # in every run the system kills one: tests/faults/test_container.py
def test_a_worker_that_its_nanny_terminates_at_its_limit_ends_with_the_same_bytes(tmp_path: Path) -> None:
    """A worker needs 550 MiB for a tile of 48 of these series, 370 MiB by 16 at a time; the plan is told of plenty."""
    rng = np.random.default_rng(0)
    data = SeriesSet.from_list([rng.standard_normal((3, 40_000)) for _ in range(96)], ["a", "b"] * 48)
    ingest(data, tmp_path / "limited")
    free = Path(shutil.copytree(tmp_path / "limited", tmp_path / "free"))
    compute_distances(free, run=SERIAL)
    port = free_port()
    scheduler = f"tcp://127.0.0.1:{port}"
    with starter(tmp_path) as start:
        start.scheduler(port)
        worker = start(*DASK, "worker", scheduler, "--nthreads", "1", "--memory-limit", "480MiB", "--no-dashboard")
        wait_until(lambda: "Registered to" in worker.output, "a worker that knows its scheduler")
        ran = start.cksc("distances", str(tmp_path / "limited"), "--scheduler", scheduler, "--memory", "1TiB")
        assert ran.wait(300.0) == 0, ran.output
        assert "exceeded 95% memory budget. Restarting" in worker.output
        assert "Traceback" not in ran.output
    assert chunk_files(tmp_path / "limited") == chunk_files(free)


@pytest.mark.slow
def test_a_plan_that_does_not_fit_is_refused_and_the_advice_works(tmp_path: Path) -> None:
    ingest(made_series(20), tmp_path / "store")
    before = files_below(tmp_path / "store")

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*CKSC, "distances", str(tmp_path / "store"), *arguments], capture_output=True, text=True)

    refused = run("--memory", "100MiB")
    assert refused.returncode == 2
    assert "Traceback" not in refused.stderr
    advice = refused.stderr.partition("each with --memory ")[2].split()[0]
    assert advice.endswith("MiB")
    assert files_below(tmp_path / "store") == before
    heeded = run("--memory", advice, "--executor", "dask", "--workers", "1")
    assert heeded.returncode == 0, heeded.stderr
    assert np.isfinite(open_matrix(tmp_path / "store")[:, :]).all()
