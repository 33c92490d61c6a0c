"""Workers as real SLURM jobs, on two virtual nodes of this machine."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.recipes import CLUSTER, address_of, check_that_two_worked, listening, make_certs
from tests.cluster.slurm import end_jobs, missing, start_slurm
from tests.dist.processes import Starter, chunk_files, starter, wait_until

pytest.importorskip("dask_jobqueue", reason="needs dask-jobqueue: pip install 'cksc_dist[slurm]'")
pytestmark = [
    pytest.mark.slurm,
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing()), reason=missing()),
]


@pytest.fixture(scope="module")
def slurm() -> Iterator[tuple[Starter, dict[str, str]]]:
    """A starter of processes that live no longer than SLURM, and the environment of sbatch."""
    # munge wants a path that everybody may enter, and pytest's folders are closed
    folder = Path(tempfile.mkdtemp(prefix="cksc-slurm-"))
    folder.chmod(0o711)
    try:
        (folder / "clusters").mkdir()
        with starter(folder) as daemons:
            environment = start_slurm(daemons, folder)
            try:
                with starter(folder / "clusters") as start:  # ended first: it would send new jobs for those that end
                    yield start, environment
            finally:
                end_jobs(environment)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def jobs(environment: dict[str, str]) -> list[str]:
    """Return the jobs of the queue: name, state, minutes, memory."""
    asked = subprocess.run(
        ["squeue", "-h", "-o", "%j %T %l %m"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **environment},
    )
    return asked.stdout.splitlines()


@pytest.mark.parametrize("tls", [pytest.param(False, marks=pytest.mark.campaign), True], ids=["plain", "tls"])
def test_two_jobs_write_the_bytes_of_the_embedded_cluster(
    slurm: tuple[Starter, dict[str, str]], store: Path, tmp_path: Path, expected: dict[str, str], tls: bool
) -> None:
    start, queue = slurm
    environment = {**queue, "DASK_CONFIG": str(CLUSTER / "dask.yaml")}
    environment |= make_certs(tmp_path / "certs") if tls else {}
    cluster = start(
        *(sys.executable, str(CLUSTER / "start_slurm.py"), "--jobs", "2", "--queue", "short", "--memory", "1GiB"),
        *("--interface", "lo", f"--directive=--output={tmp_path}/job-%j.log", *(["--tls"] if tls else [])),
        environment=environment,
    )
    address = address_of(cluster)
    assert address.startswith("tls://127.0.0.1:" if tls else "tcp://127.0.0.1:")
    wait_until(lambda: jobs(queue) == ["cksc-worker RUNNING 1:00:00 1G"] * 2, "two jobs that run", 60.0)
    run = start.cksc("distances", str(store), "--scheduler", address, environment=environment)
    assert run.wait() == 0, run.output
    assert chunk_files(store) == expected
    check_that_two_worked(store)
    if not tls:  # dashboards have no password: neither that of the scheduler nor those of workers may be open
        assert listening(address) == {"127.0.0.1"}
    logs = [path.read_text() for path in tmp_path.glob("job-*.log")]
    assert len(logs) == 2
    assert all("Registered to" in log and address in log for log in logs), logs
    cluster.process.send_signal(signal.SIGINT)
    assert cluster.wait(30.0) == 0, cluster.output
    wait_until(lambda: not jobs(queue), "an empty queue", 30.0)
