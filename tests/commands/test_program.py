"""How commands and jobs end where memory runs out."""

from __future__ import annotations

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
