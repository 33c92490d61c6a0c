"""How commands and jobs end where memory or threads run out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cksc_dist.cli import main
from cksc_dist.commands import info as info_module
from cksc_dist.commands.program import run_job

WORDS = "memory ran out"
CURE = "give it less to do: fewer workers, threads or series at a time, a smaller --memory"


def too_much(*_: object) -> None:
    np.empty(2**62, np.uint8)


def nothing_left(*_: object) -> None:
    raise MemoryError


@pytest.mark.parametrize(("work", "told"), [(too_much, "(Unable to allocate 4.00 EiB"), (nothing_left, "; end other")])
def test_memory_that_runs_out_is_told_without_a_traceback(
    work: object, told: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(info_module, "info", work)
    assert main(["info", str(tmp_path)]) == 2
    assert run_job("job", work) == 2  # type: ignore[arg-type]
    for name, line in zip(("cksc", "job"), capsys.readouterr().err.splitlines(), strict=True):
        assert line.startswith(f"{name}: error: {WORDS}")
        assert told in line
        assert CURE in line


def test_the_traceback_is_there_for_who_asks(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(info_module, "info", nothing_left)
    assert main(["info", str(tmp_path), "--debug"]) == 2
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")
@pytest.mark.parametrize("name", ["cksc", "job"])
def test_too_few_addresses_are_told_before_the_libraries_are_loaded(name: str) -> None:
    """With 500 MB and two cores, OpenBLAS asks for memory without end, and no signal is heard."""
    call = "main(['status', 'none.zarr'])" if name == "cksc" else "run_job('job', lambda: main(['demo']))"
    code = (
        "import resource\n"
        "from cksc_dist.cli import main\nfrom cksc_dist.commands.program import run_job\n"
        "resource.setrlimit(resource.RLIMIT_AS, (500 * 2**20, -1))\n"
        f"raise SystemExit({call})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.startswith(f"{name}: error: this process may address 500 MiB, but needs 768 MiB")
    assert "raise ulimit -v" in done.stderr


def test_a_want_of_threads_is_told_in_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def start_one(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(info_module, "info", start_one)
    assert main(["info", str(tmp_path)]) == 2
    assert "can't start new thread: this user may have no more (ulimit -u)" in capsys.readouterr().err

    def fail(*_: object) -> None:
        raise RuntimeError("another thing")

    monkeypatch.setattr(info_module, "info", fail)
    with pytest.raises(RuntimeError, match="another thing"):
        main(["info", str(tmp_path)])
