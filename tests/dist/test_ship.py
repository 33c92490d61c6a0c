"""A scheduler and workers that do not have the package get its code."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from distributed.comm.core import CommClosedError

from cksc_dist import open_matrix, pairwise_dtw
from cksc_dist.dist import ship
from cksc_dist.dist.distances import compute_distances
from cksc_dist.dist.ingest import ingest
from cksc_dist.dist.progress import Progress
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
def foreign_cluster(tmp_path: Path) -> Iterator[str]:
    """A scheduler and a worker whose Python has all of this one's packages but this one."""
    packages = tmp_path / "packages"
    packages.mkdir()
    for name in ("purelib", "platlib"):
        for entry in Path(sysconfig.get_path(name)).iterdir():
            own = "cksc_dist" in entry.name or entry.suffix == ".pth"
            if not own and not (packages / entry.name).exists():
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
    assert any(
        re.search(r"not installed on the scheduler and 1 more places: its code was sent", text) for text in notes.texts
    )


class Dying:
    """In a client's place: of the workers that are told of a plugin, so many die meanwhile."""

    def __init__(self, deaths: int, status: str = "running") -> None:
        self.deaths, self.status, self.tries = deaths, status, 0

    def register_plugin(self, plugin: object) -> None:
        self.tries += 1
        if self.tries <= self.deaths:
            raise CommClosedError("Stream is closed")


def test_a_worker_that_dies_while_the_code_is_brought_does_not_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ship, "PAUSE_SECONDS", 0.0)
    patient = Dying(3)
    ship._register(patient, object())  # type: ignore[arg-type]  # a client's place
    assert patient.tries == 4
    for client, tries in ((Dying(1, "closed"), 1), (Dying(99), ship.TRIES)):
        with pytest.raises(CommClosedError):
            ship._register(client, object())  # type: ignore[arg-type]
        assert client.tries == tries
