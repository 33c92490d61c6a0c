"""The jobs as a user starts them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "jobs" / "run_dyntex.py"), *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.slow
def test_the_main_job_runs_and_goes_on_where_it_stopped(tmp_path: Path) -> None:
    first = run(tmp_path, "--per-class", "20", "--workers", "2")
    assert first.returncode == 0, first.stderr
    assert "stand in for the dynamic textures" in first.stdout
    assert re.search(r"dashboard: http://127\.0\.0\.1:\d+/status", first.stdout)
    assert "distances: 12,720 pairs computed" in first.stdout
    accuracy = re.search(r"accuracy: ([\d.]+)% of 80 series held out", first.stdout)
    assert accuracy
    assert float(accuracy[1]) > 80
    assert re.search(r"label gesture\d", first.stdout)

    again = run(tmp_path, "--per-class", "20", "--workers", "1")
    assert "distances: 0 pairs computed" in again.stdout
    assert again.stdout.partition("accuracy")[2] == first.stdout.partition("accuracy")[2]


def test_the_job_says_what_is_wrong(tmp_path: Path) -> None:
    wrong = run(tmp_path, "--data", "no-such-file.ts")
    assert wrong.returncode == 2
    assert "run_dyntex: error: no-such-file.ts: does not exist; check the path" in wrong.stderr
    (tmp_path / "taken").write_text("")
    wrong = run(tmp_path, "--per-class", "4", "--store", "taken")
    assert wrong.returncode == 2
    assert "is a file; a store is a folder" in wrong.stderr


def test_jobs_are_thin() -> None:
    for job in (ROOT / "jobs").glob("*.py"):
        assert len(job.read_text().splitlines()) <= 100, job.name
