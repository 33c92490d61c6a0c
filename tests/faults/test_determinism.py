"""The same seed gives the same bytes: whatever the cores, the threads of BLAS, hash seeds, locale and time zone.

Each case is a process of its own that prints digests of all results (`tests.faults.digests`). Other Pythons are
compared by the campaign, where the variable CKSC_PYTHONS names them: paths of interpreters that have this package and
the same versions of NumPy and SciPy, with colons between them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 600.0
THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")

NARROW = {**dict.fromkeys(THREADS, "1"), "PYTHONHASHSEED": "0", "LC_ALL": "C", "TZ": "UTC"}
WIDE = {**dict.fromkeys(THREADS, "4"), "PYTHONHASHSEED": "4711", "LC_ALL": "C.UTF-8", "TZ": "Asia/Kathmandu"}

ALONE = {
    "BLAS": dict.fromkeys(THREADS, "4"),
    "hash seed": {"PYTHONHASHSEED": "4711"},
    "locale": {"LC_ALL": "de_DE.UTF-8", "LANG": "tr_TR.UTF-8"},
    "time zone": {"TZ": "Pacific/Kiritimati"},
    "no UTF-8": {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "POSIX"},
    "other memory": {"MALLOC_PERTURB_": "165", "PYTHONMALLOC": "malloc"},
}
"""Variables that change nothing, one kind at a time."""


class Run:
    """A process that prints digests, on so many cores."""

    def __init__(
        self, environment: Mapping[str, str], cores: int | None, *options: str, python: str = sys.executable
    ) -> None:
        all_cores = sorted(os.sched_getaffinity(0))
        allowed = set(all_cores[:cores]) if cores else set(all_cores)
        self._process = subprocess.Popen(
            [python, "-m", "tests.faults.digests", *options],
            cwd=ROOT,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: os.sched_setaffinity(0, allowed),  # before any thread starts
        )

    def digests(self, end: float) -> dict[str, str]:
        """Wait for the digests."""
        try:
            out, errors = self._process.communicate(timeout=max(1.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            raise
        assert self._process.returncode == 0, errors
        found: dict[str, str] = json.loads(out)
        return found


def differing(one: dict[str, str], other: dict[str, str]) -> list[str]:
    """Return the names of what differs."""
    assert one.keys() == other.keys()
    return [name for name in one if one[name] != other[name]]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs a system on which cores can be chosen")
def test_one_core_and_all_with_other_threads_hashes_locale_and_clock_give_the_same_bytes() -> None:
    runs = [Run(NARROW, 1), Run(WIDE, None)]
    end = time.monotonic() + PATIENCE
    one, other = (run.digests(end) for run in runs)
    assert differing(one, other) == []
    # wherever it was trained
    assert one["trained/memory"] == one["trained/disk"]
    # a test that digests nothing would pass as well
    assert len(one) > 150
    assert len(set(one.values())) > 100


@pytest.mark.campaign
def test_nothing_in_the_environment_changes_a_byte() -> None:
    end = time.monotonic() + 3600.0
    options = ("--cluster", "--tune")
    expected = Run(NARROW, 1, *options).digests(end)
    assert expected["trained/memory"] == expected["trained/disk"] == expected["trained/cluster"]
    wrong = {}
    for name, environment in {"all": WIDE, **ALONE}.items():
        wrong[name] = differing(expected, Run({**NARROW, **environment}, None, *options).digests(end))
    assert not any(wrong.values()), wrong


@pytest.mark.campaign
@pytest.mark.skipif(not os.environ.get("CKSC_PYTHONS"), reason="set CKSC_PYTHONS to the paths of other Pythons")
def test_other_pythons_give_the_same_bytes() -> None:
    end = time.monotonic() + 3600.0
    expected = Run(NARROW, None).digests(end)
    wrong = {}
    for python in os.environ["CKSC_PYTHONS"].split(":"):
        wrong[python] = differing(expected, Run(NARROW, None, python=python).digests(end))
    assert not any(wrong.values()), wrong
