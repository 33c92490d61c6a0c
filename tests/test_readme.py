from __future__ import annotations

import argparse
import doctest
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from cksc_dist import cli

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def test_python_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # they save a model
    text = "\n".join(blocks("pycon"))
    test = doctest.DocTestParser().get_doctest(text, {}, "README.md", "README.md", 0)
    assert len(test.examples) > 5
    report: list[str] = []
    result = doctest.DocTestRunner().run(test, out=report.append)
    assert result.failed == 0, "".join(report)


def test_two_commands_and_ci_runs_the_second() -> None:
    demo, test = [line for block in blocks("sh") for line in block.splitlines()]
    assert demo == "python3 -m venv .venv && .venv/bin/pip install -e . && .venv/bin/python jobs/run_dyntex.py"
    pattern = re.search(r"grep -E '(.+)' README\.md", (ROOT / ".ci" / "run").read_text())
    assert pattern
    found = subprocess.run(
        ["grep", "-E", pattern[1], str(ROOT / "README.md")], capture_output=True, text=True, check=True
    )
    assert found.stdout == f"{test}\n"


def test_commands_that_are_named_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[argparse.Namespace] = []
    stores = ("ingest", "plan", "distances", "status", "verify", "append")
    models = ("train", "evaluate", "report", "predict")
    for name in (f"_{name}" for name in ("demo", "info", "fetch", "doctor", *stores, *models)):
        monkeypatch.setattr(cli, name, ran.append)
    named = re.findall(r"`cksc ([^`]+)`", README) + re.findall(r"^\$ cksc (.+)$", README, re.MULTILINE)
    whole = [arguments for arguments in named if arguments not in ("status", "plan", "train")]  # named in a sentence
    for arguments in whole:
        assert cli.main(shlex.split(arguments.replace("...", ""), comments=True)) == 0
    assert len(ran) == len(whole) >= 12


@pytest.mark.parametrize(
    "page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md", "docs/promises.md", "docs/data.md"]
)
def test_links_lead_somewhere(page: str) -> None:
    path = ROOT / page
    links = re.findall(r"\]\(([^)]+)\)", path.read_text(encoding="utf-8"))
    for link in links:
        assert link.startswith("https://") or (path.parent / link).exists(), link


def test_every_benchmark_is_listed() -> None:
    page = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| \[`(\w+\.py)`\]\(\1\)", page, re.MULTILINE))
    assert listed == {path.name for path in (ROOT / "benchmarks").glob("*.py")}


def test_changelog_has_the_version_that_is_installed() -> None:
    import cksc_dist

    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## {re.escape(cksc_dist.__version__)}$", text, re.MULTILINE)
