"""Who has left a file is known by host, number and birth, and a clock that is set changes nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from cksc_dist import processes
from cksc_dist.processes import birth, is_of_the_dead, runs, signature
from tests.dist.processes import wait_until


def test_a_process_is_there_until_it_is_gone() -> None:
    with subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE) as child:
        born = birth(child.pid)
        assert runs(child.pid, born)
        assert runs(child.pid, psutil.Process(child.pid).create_time())  # as earlier releases counted
        assert not runs(child.pid, born - 60.0)  # another one that had its number
        child.kill()
        wait_until(lambda: not runs(child.pid, born), "a process that is no more than a name")
    assert not runs(child.pid, born)
    with pytest.raises(psutil.NoSuchProcess):
        birth(child.pid)


def test_a_clock_that_is_set_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    word, born = signature(), birth(os.getpid())
    monkeypatch.setattr(psutil.Process, "create_time", lambda self: time.time() + 3600.0)
    processes._signature.cache_clear()
    assert signature() == word
    assert runs(os.getpid(), born)
    assert not is_of_the_dead(word, Path())


def test_a_signature_is_of_one_life_on_one_host(tmp_path: Path) -> None:
    here, process, born = signature().split("-")
    (path := tmp_path / "left").write_bytes(b"")
    assert is_of_the_dead(f"{here}-{process}-{int(born) - 60}", path)
    assert not is_of_the_dead(f"00000000-{process}-{int(born) - 60}", path)
    # of another host, of which nobody here knows
    assert not is_of_the_dead(f"00000000-{process}-{int(born) - 60}", tmp_path / "gone")


def test_a_machine_that_was_started_again_is_another_one(tmp_path: Path) -> None:
    """Numbers and births of processes come again after a start; a service may even find its own."""
    look = "from cksc_dist import processes; print(processes.NAMESPACE)"
    same = [subprocess.run([sys.executable, "-c", look], capture_output=True, text=True).stdout for _ in range(2)]
    assert same == [f"{processes.NAMESPACE}\n"] * 2
    if sys.platform == "linux":
        assert Path("/proc/sys/kernel/random/boot_id").read_text().strip() in processes.NAMESPACE


@pytest.mark.parametrize("number", [-1, 2**22 + 1, 2**70])
def test_what_is_no_number_of_a_process_does_not_run(number: int) -> None:
    assert not runs(number, 1.0)
