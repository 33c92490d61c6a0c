"""cksc doctor: what is printed, and the exit code."""

from __future__ import annotations

import pytest

from cksc_dist.cli import main
from cksc_dist.commands import doctor as doctor_module
from cksc_dist.dist.doctor import Line
from cksc_dist.spec import RunSpec

GOOD = Line("ok", "clock", "0.0 s apart at most")
DOUBT = Line("warn", "threads", "worker a runs 4 tasks; start more")
BAD = Line("fail", "store", "worker a does not see it; share it")


@pytest.mark.parametrize(("lines", "code"), [([GOOD], 0), ([GOOD, DOUBT], 0), ([GOOD, DOUBT, BAD], 1)])
def test_only_failures_make_the_exit_code(
    lines: list[Line], code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[RunSpec, str | None]] = []

    def found(run: RunSpec, store: str | None) -> list[Line]:
        asked.append((run, store))
        return lines

    monkeypatch.setattr(doctor_module, "diagnose", found)
    assert main(["doctor", "--scheduler", "tls://head:8786", "--store", "taps.zarr", "--require-tls"]) == code
    assert asked == [(RunSpec(executor="dask", scheduler="tls://head:8786", require_tls=True), "taps.zarr")]
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "ok    clock         0.0 s apart at most"
    assert [line.split()[0] for line in printed[:-1]] == [line.state for line in lines]
    assert printed[-1] == f"1 ok, {int(DOUBT in lines)} to look at, {int(BAD in lines)} to mend"


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["doctor", "--help"])
    text = capsys.readouterr().out
    for word in (
        "cksc doctor --scheduler tls://head:8786 --store",
        "Exits with 1",
        "cluster/README.md",
        "--require-tls",
    ):
        assert word in text
