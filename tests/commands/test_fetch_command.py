"""cksc fetch: what is printed, and the exit code."""

from __future__ import annotations

import hashlib
import io
import re
import socket
import sys
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from cksc_dist import SeriesSet
from cksc_dist.cli import main
from cksc_dist.commands import fetch as command_module
from cksc_dist.io.fetch import NAMES

TEXT = "@problemName Taps\n@classLabel true a b\n@data\n1,2,3:4,5,6:a\n2,3:5,6:b\n"


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


class Handler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Keep silent."""


@pytest.fixture
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one archive."""
    folder = tmp_path_factory.mktemp("archives")
    with zipfile.ZipFile(folder / "Taps.zip", "w") as archive:
        archive.writestr("Taps_TRAIN.ts", TEXT)
        archive.writestr("Taps_TEST.ts", TEXT)
    return folder


@pytest.fixture
def base(archives: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a server that has it."""
    monkeypatch.setenv("no_proxy", "*")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=archives)) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_set_is_fetched_once(archives: Path, base: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["fetch", "Taps", "--to", str(tmp_path / "data"), "--from", base]
    assert main(arguments) == 0
    body = (archives / "Taps.zip").read_bytes()
    assert capsys.readouterr().out.splitlines() == [
        f"{base}/Taps.zip: {len(body)} bytes, sha256 {hashlib.sha256(body).hexdigest()}",
        f"{tmp_path / 'data' / 'Taps'}: SeriesSet('Taps': 4 series, 2 dims, length 2..3, 2 classes)",
    ]
    assert main(["info", str(tmp_path / "data" / "Taps")]) == 0
    capsys.readouterr()

    mark = tmp_path / "data" / "Taps" / "Taps_TEST.ts"
    mark.write_text("changed")
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert out == f"{mark.parent} is there already, so nothing is fetched; --replace puts a new copy in its place\n"
    assert mark.read_text() == "changed"
    assert main([*arguments, "--replace"]) == 0
    assert mark.read_text() == TEXT


def test_without_a_folder_it_comes_here_and_the_environment_tells_from_where(
    archives: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CKSC_FETCH_URL", archives.as_uri())
    assert main(["fetch", "Taps"]) == 0
    assert capsys.readouterr().out.splitlines()[1].startswith("Taps: SeriesSet('Taps'")
    assert len(SeriesSet.read("Taps")) == 4


def test_a_note_is_a_line(archives: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with zipfile.ZipFile(archives / "Gaps.zip", "w") as archive:
        archive.writestr("Gaps_TRAIN.ts", TEXT.replace("3", "?"))
        archive.writestr("Gaps_TEST.ts", TEXT)
    assert main(["fetch", "Gaps", "--to", str(tmp_path), "--from", archives.as_uri()]) == 0
    assert capsys.readouterr().out.endswith("\nnote: values are missing: read it with the option missing=interpolate\n")


def test_names_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fetch", "--list"]) == 0
    assert capsys.readouterr().out.splitlines() == list(NAMES)


def test_faults_are_a_line_with_what_to_do_and_leave_nothing(
    base: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as free:  # bound, and nobody listens
        free.bind(("127.0.0.1", 0))
        closed = f"http://127.0.0.1:{free.getsockname()[1]}"
        for name, source, words in [
            ("basicmotion", base, r"404\); did you mean BasicMotions\?"),
            ("Taps", closed, r"cannot be reached \(Connection refused\); check the network"),
            ("../Taps", base, "is no name of a data set"),
            ("Taps", "ftp://host", "must begin with https://"),
        ]:
            assert main(["fetch", name, "--to", str(tmp_path / "data"), "--from", source]) == 2
            captured = capsys.readouterr()
            assert re.fullmatch(rf"cksc: error: .*{words}.*\n", captured.err)
            assert captured.out == ""
            assert not list(tmp_path.iterdir())
    assert main(["fetch"]) == 2
    assert "name a data set, as cksc fetch BasicMotions; cksc fetch --list shows names" in capsys.readouterr().err


def test_a_long_fetch_speaks_now_and_then(
    base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command_module, "LOG_SECONDS", 0.0)
    assert main(["fetch", "Taps", "--to", str(tmp_path), "--from", base]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert re.fullmatch(r"fetching Taps: \d+ bytes of \d+ bytes, [\d.]+ (bytes|.B)/s, ETA 0 s", first)


def test_a_terminal_has_a_bar(base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stdout", stream)
    assert main(["fetch", "Taps", "--to", str(tmp_path), "--from", base]) == 0
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())
    assert "fetching Taps" in text
    assert "sha256" in text


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["fetch", "--help"])
    text = capsys.readouterr().out
    for word in ("cksc fetch --list", "CKSC_FETCH_URL", "docs/data.md", "--from file:///", "--replace"):
        assert word in text
