"""The jobs as a user starts them."""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from distributed import Client
from scipy.io import savemat

from cksc_dist import load_model
from cksc_dist.commands.dyntex_job import add_dyntex_options, run_dyntex
from cksc_dist.dist.ingest import ingest
from cksc_dist.errors import CkscError, InputError
from cksc_dist.io import make_gestures
from cksc_dist.io.textures import TextureSpec, make_texture
from tests.dist.processes import free_port, starter

ROOT = Path(__file__).resolve().parents[1]
SMALL = ("--videos-per-class", "4", "--splits", "2", "--workers", "2")


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "jobs" / "run_dyntex.py"), *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
    )


def run_here(*arguments: str) -> None:
    """Do the work of the job in this process, which has imported all of it already."""
    parser = argparse.ArgumentParser()
    add_dyntex_options(parser)
    run_dyntex(parser.parse_args(arguments))


def results(folder: Path) -> dict[str, str]:
    """Return a digest of every file that must be the same on any cluster: videos, series, distances, models."""
    kept = ("videos/", ".zarr/series/", "/distance/", ".zarr/models/")
    files = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    return {
        name: hashlib.sha256(path.read_bytes()).hexdigest()
        for name, path in files.items()
        # these name the store, or hold digests of what does
        if any(part in name for part in kept) and not name.endswith(("zarr.json", "files.json"))
    }


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The job's folder, and what it printed."""
    folder = tmp_path_factory.mktemp("job")
    first = run(folder, *SMALL)
    assert first.returncode == 0, first.stderr
    assert not first.stderr
    return folder, first.stdout


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a scheduler with two workers."""
    with starter(tmp_path_factory.mktemp("scheduler")) as start:
        port = free_port()
        start.scheduler(port)
        start.workers(f"tcp://127.0.0.1:{port}", 2)
        yield f"tcp://127.0.0.1:{port}"


@pytest.mark.slow
def test_the_main_job_goes_through_all_stages(job: tuple[Path, str]) -> None:
    folder, printed = job
    assert re.search(r"^dashboard: http://127\.0\.0\.1:\d+/status$", printed, re.MULTILINE)
    assert re.search(r"^page: http://127\.0\.0\.1:\d+/cksc$", printed, re.MULTILINE)
    # a slow stage has told before how far it is
    stages = re.findall(r"^(\d)/8 ([\w ]+):.* in [\d.]+ (?:min|s)", printed, re.MULTILINE)
    names = ["textures", "descriptors", "series", "distances", "comparison on frames", "comparison on lbptop"]
    assert stages == [(str(at), name) for at, name in enumerate([*names, "final models", "report"], start=1)]
    assert "1/8 textures: 144 made" in printed
    assert "4/8 distances: 30,888 pairs computed" in printed  # frames with and without a band, LBP-TOP
    assert "are of made textures" in printed
    assert f"report: {folder / 'dyntex' / 'report.html'}" in printed
    report = (folder / "dyntex" / "report.html").read_text()
    for words in ("no figure here is one of DynTex++", "frame histograms under DTW", "LBP-TOP under chi-square"):
        assert words in report


@pytest.mark.slow
def test_small_sizes_have_a_smaller_t0_and_fewer_folds(job: tuple[Path, str]) -> None:
    for name in ("frames", "lbptop"):
        path = job[0] / "dyntex" / f"{name}.zarr"
        with xr.open_zarr(path, group=f"results/{name}", consolidated=False) as table:
            about = table.attrs
            assert (about["sparsity"], about["n_folds"], about["n_splits"], about["alpha"]) == (2, 4, 2, 0.15)
            assert sorted(table["method"].values) == ["1nn", "cksc", "svm"]
            assert float(table.accuracy.mean()) > 3 / 36  # of chance
        model = load_model(path / "models" / name)
        assert model.n_train_ == 72


@pytest.mark.slow
def test_the_main_job_does_nothing_twice(
    job: tuple[Path, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, printed = job
    before, report = results(folder / "dyntex"), folder / "dyntex" / "report.html"
    drawn = report.stat().st_mtime_ns
    monkeypatch.chdir(folder)
    run_here(*SMALL)
    again = capsys.readouterr().out
    assert "1/8 textures: 0 made" in again
    assert "distances: 0 pairs computed" in again
    assert again.count("fits are done already") >= 2
    assert re.findall("^(?:CKSC|SVM|1-NN).*$", again, re.MULTILINE) == re.findall(
        "^(?:CKSC|SVM|1-NN).*$", printed, re.MULTILINE
    )
    assert results(folder / "dyntex") == before
    assert report.stat().st_mtime_ns == drawn


def test_another_size_in_the_same_store_is_told_before_any_work(tmp_path: Path) -> None:
    ingest(make_gestures(n_per_class=4), tmp_path / "frames.zarr")
    with pytest.raises(InputError, match=r"holds 16 videos, other ones than these 144; name another --store, or put"):
        run_here("--store", str(tmp_path), "--videos-per-class", "4")
    assert [path.name for path in tmp_path.iterdir()] == ["frames.zarr"]


@pytest.mark.campaign  # a smaller one is in every run: test_videos_of_ones_own_on_a_scheduler_of_ones_own
def test_the_main_job_on_a_scheduler_of_ones_own_gives_the_same_bytes(
    job: tuple[Path, str], address: str, tmp_path: Path
) -> None:
    run_here(*SMALL, "--scheduler", address, "--store", str(tmp_path / "dyntex"))
    assert results(tmp_path / "dyntex") == results(job[0] / "dyntex")
    assert len(results(tmp_path / "dyntex")) > 150


@pytest.mark.slow
def test_videos_of_ones_own_on_a_scheduler_of_ones_own(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = TextureSpec(frames=9, side=12)
    for label, name in enumerate(("flag", "water", "grass")):
        (tmp_path / "videos" / name).mkdir(parents=True)
        for number in range(6):
            video = make_texture(spec, label, number)
            path = tmp_path / "videos" / name / f"{number}"
            if number % 2:
                savemat(f"{path}.mat", {"video": video.transpose(1, 2, 0)})  # as MATLAB has it
            else:
                np.save(f"{path}.npy", video)
    monkeypatch.chdir(tmp_path)
    place = ("--store", "own", "--report", "own.html", "--scheduler", address)
    run_here("--data", "videos", "--splits", "1", *place)
    printed = capsys.readouterr().out
    assert "1/7 descriptors: 18 videos" in printed
    assert "ade textures" not in printed
    assert "videos, frame histograms under DTW: " in printed
    assert (tmp_path / "own.html").exists()
    assert not (tmp_path / "own" / "videos").exists()
    assert load_model(tmp_path / "own" / "frames.zarr" / "models" / "frames").sparsity == 3
    with Client(address, set_as_default=False) as client:
        seen = client.run_on_scheduler(lambda dask_scheduler: set(dask_scheduler.task_prefixes))
    assert {"dtw-tile", "code-block", "atom-solve"} <= seen  # workers train
    run_here("--data", "videos", "--splits", "1", "--store", "here", "--report", "here.html", "--workers", "1")
    assert results(tmp_path / "own") == results(tmp_path / "here")
    assert len(results(tmp_path / "own")) > 30


def test_the_job_says_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").write_text("")
    for folder, count in (("one/a", 4), ("small/a", 4), ("small/b", 3)):
        (tmp_path / folder).mkdir(parents=True)
        for number in range(count):
            np.save(tmp_path / folder / f"{number}.npy", np.zeros((3, 3, 3), np.uint8))
    for arguments, words in (
        (("--data", "no-such-folder"), "no-such-folder: is no folder; videos come as FOLDER/<class>/<video>"),
        (("--data", "one"), "one has one class, 'a'; there must be at least two to tell apart"),
        (("--data", "small"), "small: class 'b' has 3 videos; each needs at least 4"),
        (("--store", "taken"), "--store taken is a file; give a folder"),
        (("--store", "s3://bucket/name"), "--store s3://bucket/name: videos are files"),
        (("--report", "one"), "--report one is a folder; name a file in it"),
        (("--method", "cksk"), "--method 'cksk' is unknown"),
    ):
        with pytest.raises(CkscError) as caught:
            run_here(*arguments)
        assert words in str(caught.value)
    wrong = run(tmp_path, "--data", "one")
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("run_dyntex: error: one has one class")
    assert not wrong.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "small", "taken"]


def test_jobs_are_thin() -> None:
    for job in (ROOT / "jobs").glob("*.py"):
        assert len(job.read_text().splitlines()) <= 100, job.name
