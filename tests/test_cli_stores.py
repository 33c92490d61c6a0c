"""The commands for stores, as a person types them."""

from __future__ import annotations

import io
import json
import re
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr

from cksc_dist import SeriesSet, open_matrix, pairwise_dtw
from cksc_dist.cli import main
from cksc_dist.commands import work_screen
from cksc_dist.commands.screen import Screen
from cksc_dist.commands.work_screen import WorkScreen
from cksc_dist.dist import forecast as forecast_module
from cksc_dist.dist.progress import Running
from cksc_dist.io import write_npz
from cksc_dist.store.folder import Folder
from cksc_dist.store.lease import Lease
from tests.small_stores import (
    changed,
    chunk_files,
    chunk_path,
    entries,
    files_below,
    joined,
    made_series,
    matrix_of,
    small_tiles,
)

N = 45
DATA = made_series(N)
PAIRS = N * (N - 1) // 2


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    small_tiles(monkeypatch)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of series, a store of them, and one with their distances."""
    top = tmp_path_factory.mktemp("template")
    write_npz(top / "taps.npz", DATA)
    with pytest.MonkeyPatch.context() as patch:
        small_tiles(patch)
        for name in ("series", "done"):
            assert main(["ingest", str(top / "taps.npz"), str(top / name)]) == 0
        assert main(["distances", str(top / "done"), "--executor", "serial"]) == 0
    return top


@pytest.fixture
def source(template: Path) -> Path:
    return template / "taps.npz"


@pytest.fixture
def store(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template / "series", tmp_path / "taps.zarr"))


@pytest.fixture
def done(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template / "done", tmp_path / "done.zarr"))


Typed = Callable[..., tuple[int, str, str]]


@pytest.fixture
def typed(capsys: pytest.CaptureFixture[str]) -> Typed:
    """Type a command; get exit code, output and errors."""

    def run(*words: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([str(word) for word in words])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def rejected(typed: Typed, store: Path, words: str, *command: object, code: int = 2) -> None:
    """Type something that cannot be done: it is said in one line, and the store stays as it was."""
    before = files_below(store)
    found, _, error = typed(*command)
    assert found == code
    assert re.search(words, error)
    assert error.startswith("cksc: error: ")
    assert "Traceback" not in error
    assert files_below(store) == before


# a user's story


def test_from_a_file_to_a_matrix_that_xarray_opens(tmp_path: Path, source: Path, typed: Typed) -> None:
    store = tmp_path / "taps.zarr"
    code, out, _ = typed("ingest", source, store)
    assert code == 0
    assert re.search(r"series +45\n", out)
    assert re.search(r"classes +2: sit 22, walk 23\n", out)
    assert re.search(rf"written to {store} in .*; next: cksc distances {store}", out)
    # what is told to be typed can be, whatever the name
    spaced = store.with_name("my gestures' store.zarr")
    store.rename(spaced)
    (line,) = re.findall(r"compute one with: (.*)", typed("status", spaced)[1])
    assert shlex.split(line) == ["cksc", "distances", str(spaced)]
    spaced.rename(store)

    code, out, _ = typed("plan", store, "--workers", 3)
    assert code == 0
    assert re.search(r"tiles +6 to compute of 6, of 16 x 16\n", out)
    assert re.search(rf"pairs +{PAIRS}\n", out)
    assert re.search(r"with 3 workers", out)
    assert re.search(r"on disk +[\d.]+ kB for the whole matrix \(\d+% of its values\); \S+ \S+ are free", out)
    assert re.search(r"memory of a worker +\d+ MB of ", out)
    assert re.search(r"executor +threads \(", out)
    assert not (store / "distances").exists()

    code, out, _ = typed("distances", store)
    assert code == 0
    assert re.search(r"executor: threads \(.* less than a cluster is worth\); workers: \d+\n", out)
    assert re.search(rf"computed {PAIRS} pairs, 6 of 6 tiles, in .* \(.*pairs/s; .* were forecast\)", out)
    opening = re.search(r'open it with: (open_matrix\("(.*)", "(\w{6})"\))', out)
    assert opening
    D = open_matrix(opening[2], opening[3])
    np.testing.assert_array_equal(D[:, :], pairwise_dtw(DATA))

    code, out, _ = typed("status", store)
    assert code == 0
    assert f"{store}: taps, 45 rows, 2 dims, {DATA.offsets[-1]} frames" in out
    assert "6 of 6 done, 100.0% of the work" in out
    line = re.search(r"open with +(xr\.open_zarr\(.*\))\n", out)
    assert line
    with eval(line[1], {"xr": xr}) as opened:  # what is printed works as it stands
        assert opened["distance"].dims == ("row", "col")
        assert float(opened["distance"].sel(row="s3", col="s40")) == D[3, 40]

    code, out, _ = typed("verify", store, "--sample", 40)
    assert code == 0
    assert f"{D.fingerprint}: all is well" in out
    assert "6 of 6 tiles read, 0 bad; 40 entries computed again by dtaidistance" in out

    new = made_series(5, seed=7, prefix="new ")
    write_npz(tmp_path / "more.npz", new)
    code, out, _ = typed("append", store, tmp_path / "more.npz")
    assert code == 0
    assert f"5 series to the 45 of {store}, in 1 matrices" in out or "in 1 matrix" in out
    assert f"computed {5 * 45 + 10} pairs" in out
    assert "5 chunks at the edge were rewritten, with their old values kept" in out
    np.testing.assert_array_equal(matrix_of(store), pairwise_dtw(joined(DATA, new)))


@pytest.mark.parametrize("command", ["ingest", "plan", "distances", "status", "verify", "append"])
def test_help_of_each_command_shows_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code == 0
    assert f"examples:\n  cksc {command}" in capsys.readouterr().out


# ingest


def test_a_second_ingest_of_the_same_series_does_nothing(store: Path, source: Path, typed: Typed) -> None:
    before = files_below(store)
    code, out, _ = typed("ingest", source, store)
    assert code == 0
    assert f"{store} holds just these series already; nothing to do" in out
    assert files_below(store) == before


def test_a_second_ingest_of_other_series_is_refused(done: Path, tmp_path: Path, typed: Typed) -> None:
    write_npz(tmp_path / "other.npz", changed(DATA, 1))
    words = r"holds other series; add these with cksc append, put them in their place with --replace"
    rejected(typed, done, words, "ingest", tmp_path / "other.npz", done)
    assert typed("ingest", tmp_path / "other.npz", done, "--replace")[0] == 0
    _, out, _ = typed("status", done)
    assert "3 of 6 done" in out
    assert f"3 tiles; go on with: cksc distances {done}" in out
    _, out, _ = typed("distances", done)
    assert "3 of 6 tiles" in out
    np.testing.assert_array_equal(matrix_of(done), pairwise_dtw(changed(DATA, 1)))


def test_several_sources_make_one_set(tmp_path: Path, source: Path, typed: Typed) -> None:
    write_npz(tmp_path / "more.npz", made_series(4, seed=3, prefix="x"))
    code, out, _ = typed("ingest", source, tmp_path / "more.npz", tmp_path / "store")
    assert code == 0
    assert re.search(r"series +49\n", out)
    assert typed("distances", tmp_path / "store")[0] == 0
    assert open_matrix(tmp_path / "store").shape == (49, 49)


def test_nothing_to_read(tmp_path: Path, typed: Typed) -> None:
    code, _, error = typed("ingest", tmp_path / "store")
    assert code == 2
    assert f"give what to read, and last the store to make: cksc ingest SOURCE {tmp_path / 'store'}" in error
    assert not (tmp_path / "store").exists()


def test_a_source_that_is_not_there(tmp_path: Path, typed: Typed) -> None:
    code, _, error = typed("ingest", tmp_path / "no.npz", tmp_path / "store")
    assert code == 2
    assert "no.npz" in error
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_never_reaches_a_store(tmp_path: Path, store: Path, typed: Typed, bad: float) -> None:
    values = DATA.values.copy()
    values[DATA.offsets[12] + 2, 1] = bad
    np.savez(tmp_path / "bad.npz", values=values, offsets=DATA.offsets, labels=DATA.labels)
    words = r"series 12 \(id \S+\) has a NaN or infinite value in frame 2; fill it or remove the series"
    code, _, error = typed("ingest", tmp_path / "bad.npz", tmp_path / "new")
    assert code == 2
    assert re.search(words, error)
    assert not (tmp_path / "new").exists()
    rejected(typed, store, words, "ingest", tmp_path / "bad.npz", store, "--replace")
    rejected(typed, store, words, "append", store, tmp_path / "bad.npz")


def test_a_place_that_is_taken(tmp_path: Path, source: Path, typed: Typed) -> None:
    file = tmp_path / "letter.txt"
    file.write_text("dear")
    code, _, error = typed("ingest", source, file)
    assert code == 2
    assert "letter.txt is a file; a store is a folder: choose another place" in error
    assert file.read_text() == "dear"
    folder = tmp_path / "letters"
    folder.mkdir()
    file.rename(folder / "letter.txt")
    rejected(typed, folder, "is something else than a store of this package; choose another", "ingest", source, folder)
    zarr.create_group(tmp_path / "theirs", attributes={"format": "of another package"})
    rejected(typed, tmp_path / "theirs", "is something else than a store", "ingest", source, tmp_path / "theirs")
    rejected(typed, folder, "is something else", "ingest", source, folder, "--replace")


# a ready matrix


@pytest.fixture
def ready(tmp_path: Path) -> Path:
    path = tmp_path / "D.npz"
    np.savez(path, D=pairwise_dtw(DATA), y=DATA.labels, ids=DATA.ids)
    return path


def test_a_ready_matrix_without_series(tmp_path: Path, ready: Path, typed: Typed) -> None:
    store = tmp_path / "ready.zarr"
    code, out, _ = typed("ingest", store, "--distances", ready)
    assert code == 0
    assert re.search(r"ready matrix of 45 rows; open it with: open_matrix\(.+, \"\w{6}\"\)\n", out)
    D = open_matrix(store)
    np.testing.assert_array_equal(D[:, :], pairwise_dtw(DATA))
    assert D.labels.tolist() == DATA.labels.tolist()
    assert D.ids.tolist() == DATA.ids.tolist()
    code, out, _ = typed("status", store)
    assert "45 rows, without series" in out
    assert re.search(r"matrix +\w{16} +external\n", out)
    code, out, _ = typed("verify", store)
    assert code == 0
    assert "all is well" in out
    for command in ("distances", "plan"):
        rejected(typed, store, "holds a ready matrix without series; ingest series into a new store", command, store)
    write_npz(tmp_path / "more.npz", made_series(2, prefix="n"))
    rejected(typed, store, "nobody can add rows; ingest the larger matrix", "append", store, tmp_path / "more.npz")


def test_a_ready_matrix_beside_its_series(tmp_path: Path, source: Path, ready: Path, typed: Typed) -> None:
    store = tmp_path / "both.zarr"
    assert typed("ingest", source, store, "--distances", ready)[0] == 0
    assert open_matrix(store).spec.metric == "external"
    assert typed("distances", store)[0] == 0  # a matrix of its own
    _, out, _ = typed("status", store)
    assert len(re.findall(r"6 of 6 done", out)) == 2


def test_a_ready_matrix_takes_no_others_place_unasked(tmp_path: Path, source: Path, ready: Path, typed: Typed) -> None:
    for sources in ([], [source]):
        store = tmp_path / f"store {len(sources)}"
        assert typed("ingest", *sources, store, "--distances", ready)[0] == 0
        np.save(tmp_path / "other.npy", 2 * pairwise_dtw(DATA))
        rejected(typed, store, "--replace", "ingest", *sources, store, "--distances", tmp_path / "other.npy")
        assert typed("ingest", *sources, store, "--distances", tmp_path / "other.npy", "--replace")[0] == 0
        np.testing.assert_array_equal(matrix_of(store), 2 * pairwise_dtw(DATA))


def test_a_damaged_ready_matrix_cannot_be_computed_but_brought_again(tmp_path: Path, ready: Path, typed: Typed) -> None:
    store = tmp_path / "ready.zarr"
    typed("ingest", store, "--distances", ready)
    chunk_path(store, 0, 1).unlink()
    assert typed("verify", store)[0] == 1
    code, out, error = typed("verify", store, "--repair")
    assert code != 0
    assert "ingest it again with --replace" in out + error
    assert typed("ingest", store, "--distances", ready, "--replace")[0] == 0
    assert typed("verify", store)[0] == 0


BAD_MATRICES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "not square": (lambda D: D[:-1], "distances has shape|distances have shape"),
    "not symmetric": (lambda D: D + np.triu(np.ones_like(D), 1), "not symmetric"),
    "negative": (lambda D: -D, "distances cannot be negative"),
    "NaN": (lambda D: np.where(np.eye(len(D), k=3), np.nan, D), "every entry must be finite"),
    "a kernel": (lambda D: np.exp(-D), "the distance of a sample to itself must be 0"),
}


@pytest.mark.parametrize("what", BAD_MATRICES)
def test_a_bad_matrix_is_refused(tmp_path: Path, what: str, typed: Typed) -> None:
    change, words = BAD_MATRICES[what]
    np.save(tmp_path / "D.npy", change(pairwise_dtw(DATA)))
    code, _, error = typed("ingest", tmp_path / "store", "--distances", tmp_path / "D.npy")
    assert code == 2
    assert re.search(words, error)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"ids": ["a"] * N}, "twice"),
        ({"y": [1, 2]}, "45 rows, but there are 2 labels"),
        ({"y": np.linspace(0, 1, N)}, "str, int or bool"),
    ],
    ids=["ids", "few labels", "labels"],
)
def test_bad_names_of_rows_are_refused(tmp_path: Path, arrays: dict[str, Any], words: str, typed: Typed) -> None:
    np.savez(tmp_path / "D.npz", D=pairwise_dtw(DATA), **arrays)
    code, _, error = typed("ingest", tmp_path / "store", "--distances", tmp_path / "D.npz")
    assert code == 2
    assert words in error
    assert not (tmp_path / "store").exists()


def test_a_matrix_of_another_size_than_the_series(tmp_path: Path, source: Path, typed: Typed) -> None:
    np.save(tmp_path / "D.npy", pairwise_dtw(DATA[:7]))
    code, _, error = typed("ingest", source, tmp_path / "store", "--distances", tmp_path / "D.npy")
    assert code == 2
    assert "distances have 7 rows, but there are 45 series" in error
    assert not (tmp_path / "store").exists()


# distances


def test_a_second_run_says_that_all_is_done(done: Path, typed: Typed) -> None:
    before = files_below(done)
    code, out, _ = typed("distances", done)
    assert code == 0
    (name,) = (path.name for path in (done / "ledger").iterdir())
    assert f"complete: all 6 tiles of {name} are done and hold good" in out
    assert files_below(done) == before
    code, out, _ = typed("plan", done)
    assert re.search(r"tiles +0 to compute of 6", out)
    assert re.search(r"executor +none needed", out)


def test_what_was_mended_is_told(done: Path, typed: Typed) -> None:
    before = files_below(done / "distances")
    chunk_path(done, 0, 2).write_bytes(b"rubbish")
    (done / "distances" / "1.ab.partial").write_bytes(b"half")
    _, out, _ = typed("distances", done)
    assert "removed 1 unfinished files of a run that was killed" in out or "removed 1 unfinished file of" in out
    assert "tile (0, 2) is computed again: chunk (0, 2)" in out
    assert "1 of 6 tiles" in out
    assert files_below(done / "distances") == before


def test_trust_takes_the_ledgers_word(done: Path, typed: Typed) -> None:
    chunk_path(done, 0, 2).write_bytes(b"rubbish")
    _, out, _ = typed("distances", done, "--trust")
    assert "complete" in out
    _, out, _ = typed("distances", done)
    assert "1 of 6 tiles" in out


def test_every_setting_that_can_be_typed_counts(store: Path, typed: Typed) -> None:
    names = set()
    for words in (
        [],
        ["--window", "3"],
        ["--window", "0.3"],
        ["--mode", "independent"],
        ["--dtype", "float32"],
        ["--engine", "dtaidistance"],
        ["--cost", "abs"],
        ["--normalise", "z"],
        ["--per-length"],
        ["--dims", "1"],
    ):
        code, out, _ = typed("distances", store, *words, "--executor", "serial")
        assert code == 0
        assert f"computed {PAIRS} pairs" in out
        found = re.search(r'open_matrix\(".*", "(\w+)"\)', out)
        assert found
        names.add(found[1])
    assert len(names) == 10
    assert all(open_matrix(store, name).shape == (N, N) for name in names)
    _, out, _ = typed("status", store)
    for text in ("dtw engine=simd", "dtw window=3 ", "window=0.3", "mode=independent", "dims=(1,)", "normalise=z"):
        assert text in out


def test_groups_of_dimensions_make_a_matrix_each(tmp_path: Path, typed: Typed) -> None:
    data = made_series(20, dims=4)
    write_npz(tmp_path / "four.npz", data)
    store = tmp_path / "store"
    typed("ingest", tmp_path / "four.npz", store)
    code, out, _ = typed("distances", store, "--dims", "0,2", "1-3")
    assert code == 0
    names = re.findall(r'open_matrix\(".*", "(\w+)"\)', out)
    assert len(names) == 2
    np.testing.assert_array_equal(matrix_of(store, names[0]), pairwise_dtw(data.select_dims([0, 2])))
    np.testing.assert_array_equal(matrix_of(store, names[1]), pairwise_dtw(data.select_dims([1, 2, 3])))
    code, out, _ = typed("distances", store, "--dims", "each")
    assert code == 0
    names = re.findall(r'open_matrix\(".*", "(\w+)"\)', out)
    assert len(names) == 4
    for dim, name in enumerate(names):
        np.testing.assert_array_equal(matrix_of(store, name), pairwise_dtw(data.select_dims([dim])))
    _, out, _ = typed("plan", store, "--dims", "each")
    assert out.count("to compute of") == 4
    with pytest.raises(Exception, match="holds several finished matrices; choose one by the first letters") as error:
        open_matrix(store)
    assert str(error.value).count("dims=") == 6


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--dims", "2"], "there is no dimension 2; the series have 2, from 0 on"),
        (["--dims", "1,0"], "give at least one dimension, ascending, each once"),
        (["--metric", "euclidean"], "needs series of one length, but series"),
        (["--metric", "chi2", "--window", "3"], "window=3 is for metric='dtw', not for 'chi2'"),
        (["--window", "0"], "window=0: must be a whole number of at least 1"),
        (["--window", "1.5"], "must be a number in (0, 1]"),
        (["--engine", "dtaidistance", "--cost", "abs"], "has no cost='abs' for several dimensions"),
        (["--memory", "1MB"], "a worker needs"),
        (["--executor", "threads", "--scheduler", "tcp://x:1"], "executor='threads' uses no scheduler"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
@pytest.mark.parametrize("command", ["distances", "plan"])
def test_what_cannot_be_done_is_said(store: Path, typed: Typed, command: str, words: list[str], message: str) -> None:
    rejected(typed, store, re.escape(message), command, store, *words)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--window", "wide"], "'wide' is neither frames (10) nor a fraction (0.1)"),
        (["--dims", "x"], "'x' is no group of dimensions, as 0,2 or 3-5, nor 'each'"),
        (["--memory", "much"], "'much' is no amount of memory, as 2GiB or 800MB"),
        (["--workers", "0"], "'0' is not a whole number of at least 1"),
        (["--metric", "external"], "invalid choice: 'external'"),
        (["--executor", "magic"], "invalid choice: 'magic'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_read_is_said(
    store: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["distances", str(store), *words])
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


def test_a_constant_dimension_is_named_and_the_store_stays(tmp_path: Path, typed: Typed) -> None:
    series = DATA.series
    series[33] = series[33].copy()
    series[33][:, 1] = 2.5
    write_npz(tmp_path / "flat.npz", SeriesSet.from_list(series, DATA.labels, DATA.ids.tolist()))
    store = tmp_path / "store"
    _, out, _ = typed("ingest", tmp_path / "flat.npz", store)
    assert "normalise='z' refuses" in out
    for command in ("distances", "plan"):
        rejected(typed, store, r"series\[33\], dim 1 has zero variance", command, store, "--normalise", "z")


def test_too_little_disk_is_said(store: Path, typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Folder, "free_bytes", lambda self: 100)
    for command in ("distances", "plan"):
        rejected(typed, store, r"the matrix needs .* on disk, .*--dtype float32 halves it", command, store)


def test_where_much_is_expected_a_cluster_would_be_started(
    store: Path, typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forecast_module, "THREADS_BELOW_SECONDS", 0.0)
    _, out, _ = typed("plan", store)
    assert re.search(r"executor +dask \(.* s are expected; on a cluster started on this machine\)", out)


# stores that cannot be used


@pytest.mark.parametrize("command", ["distances", "plan", "status", "verify", "append"])
def test_a_store_that_cannot_be_used(tmp_path: Path, store: Path, source: Path, typed: Typed, command: str) -> None:
    more = [source] if command == "append" else []
    code, _, error = typed(command, tmp_path / "nowhere", *more)
    assert code == 2
    assert "nowhere is no store; make one with: cksc ingest SOURCE" in error
    assert not (tmp_path / "nowhere").exists()

    (tmp_path / "file").write_text("hello")
    code, _, error = typed(command, tmp_path / "file", *more)
    assert code == 2
    assert "file is a file; a store is a folder" in error

    zarr.create_group(tmp_path / "theirs", attributes={"format": "of another package"})
    words = "is something else than a store of this package"
    rejected(typed, tmp_path / "theirs", words, command, tmp_path / "theirs", *more)

    empty = Path(shutil.copytree(store, tmp_path / "empty"))
    shutil.rmtree(empty / "series")
    (empty / "metadata.json").unlink()
    words = "has no series, or ingesting them was cut off; run cksc ingest again"
    rejected(typed, empty, words, command, empty, *more)
    assert typed("ingest", source, empty)[0] == 0

    root = json.loads((store / "zarr.json").read_text())
    root["attributes"]["version"] = 99
    (store / "zarr.json").write_text(json.dumps(root))
    (store / "metadata.json").unlink()  # a store that was written so, not one that was changed
    words = "has layout version 99, but this release reads version 1; install the release that wrote it"
    rejected(typed, store, words, command, store, *more)
    rejected(typed, store, words, "ingest", source, store, "--replace")


@pytest.mark.parametrize("command", ["distances", "append", "ingest"])
def test_a_store_that_somebody_else_is_writing(store: Path, tmp_path: Path, typed: Typed, command: str) -> None:
    write_npz(tmp_path / "more.npz", made_series(3, prefix="n"))
    words = {
        "distances": ["distances", store],
        "append": ["append", store, tmp_path / "more.npz"],
        "ingest": ["ingest", tmp_path / "more.npz", store, "--replace"],
    }[command]
    with Lease(Folder(store), "distances"):
        rejected(typed, store, r"is being written by process \d+ on \S+ \(distances\); wait for it", *words)
        _, out, _ = typed("status", store)
        assert re.search(r"being written by process \d+ on \S+ \(distances\) for ", out)
        assert typed("verify", store)[0] == 0  # to look is allowed at any time
        assert typed("plan", store)[0] == 0
    assert typed("distances", store)[0] == 0


def test_debug_shows_where_an_error_comes_from(tmp_path: Path, typed: Typed) -> None:
    code, _, error = typed("status", tmp_path / "nowhere", "--debug")
    assert code == 2
    assert "Traceback" in error


# append


def test_append_goes_on_after_a_kill(done: Path, tmp_path: Path, typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    from cksc_dist.dist import ingest as ingest_module

    new = made_series(6, seed=2, prefix="n")
    write_npz(tmp_path / "more.npz", new)

    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ingest_module, "compute_distances", stop)
        code, _, error = typed("append", done, tmp_path / "more.npz")
    assert code == 130
    assert error == "cksc: interrupted; what is done in a store is kept\n"
    _, out, _ = typed("status", done)
    assert f"cksc distances {done}" in out
    code, out, _ = typed("append", done, tmp_path / "more.npz")
    assert code == 0
    assert f"computed {6 * 45 + 15} pairs" in out
    np.testing.assert_array_equal(matrix_of(done), pairwise_dtw(joined(DATA, new)))


def test_append_without_a_matrix(store: Path, tmp_path: Path, typed: Typed) -> None:
    write_npz(tmp_path / "more.npz", made_series(2, prefix="n"))
    code, out, _ = typed("append", store, tmp_path / "more.npz")
    assert code == 0
    assert f"no matrix yet; compute one with: cksc distances {store}" in out


def test_append_of_what_is_there(done: Path, tmp_path: Path, typed: Typed) -> None:
    write_npz(tmp_path / "again.npz", made_series(4, seed=5))
    rejected(
        typed, done, r"id 's0' is in .* already \(4 of 4 are\); ids must differ", "append", done, tmp_path / "again.npz"
    )
    write_npz(tmp_path / "wide.npz", made_series(4, dims=9, prefix="w"))
    rejected(typed, done, "has 9 dims, but the series of .* have 2", "append", done, tmp_path / "wide.npz")


# verify


def test_verify_checks_the_chosen_matrix(done: Path, typed: Typed) -> None:
    _, out, _ = typed("distances", done, "--dtype", "float32")
    found = re.search(r'open_matrix\(".*", "(\w+)"\)', out)
    assert found
    code, out, _ = typed("verify", done, "--distances", found[1], "--sample", 5, "--seed", 1)
    assert code == 0
    assert out.count("all is well") == 1
    assert "5 entries computed again" in out


def test_verify_of_a_matrix_that_is_not_there(done: Path, typed: Typed) -> None:
    """Nothing was checked: that must not pass for well."""
    code, out, error = typed("verify", done, "--distances", "ffff0000")
    assert code != 0
    assert "ffff0000" in out + error


# progress


def test_a_log_has_a_line_now_and_then(done: Path, typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_screen, "LOG_SECONDS", 0.0)
    before = entries(done)
    shutil.rmtree(done / "ledger")
    code, out, _ = typed("distances", done, "--executor", "serial")
    assert code == 0
    lines = re.findall(r"^distances: ([\d.]+)%, (\d) of 6 tiles, \S+ \S*pairs/s, 1 workers?, ETA (.*)$", out, re.M)
    assert [int(count) for _, count, _ in lines] == [1, 2, 3, 4, 5, 6]
    shares = [float(share) for share, _, _ in lines]
    assert shares == sorted(shares)
    assert shares[-1] == 100.0
    assert "\x1b" not in out  # a log has no colours
    _, out, _ = typed("distances", done)
    assert len(re.findall(r"^reading what is done: ", out, re.M)) == 6
    assert set(entries(done)) == set(before)


def test_a_log_is_silent_in_between(store: Path, typed: Typed) -> None:
    _, out, _ = typed("distances", store, "--executor", "serial")
    assert "% " not in out
    assert "tiles, " in out


def test_lines_of_a_log_come_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log is a file or a pipe, which Python fills in large blocks: who looks at it must see the line now."""
    monkeypatch.setattr(work_screen, "LOG_SECONDS", 0.0)
    raw = io.BytesIO()
    screen = WorkScreen(Screen(io.TextIOWrapper(io.BufferedWriter(raw), encoding="utf-8")))
    screen.begin(Running("distances", 100, 4, "dask (as asked)", 2, "http://127.0.0.1:8787/status"))
    assert b"dashboard: http://127.0.0.1:8787/status\n" in raw.getvalue()
    assert b"executor: dask (as asked); workers: 2\n" in raw.getvalue()
    screen.advance(25, 1000)
    assert b"distances: 25.0%, 1 of 4 tiles, " in raw.getvalue()
    assert b"2 workers, ETA " in raw.getvalue()


def test_a_terminal_has_a_bar(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setattr(work_screen, "LOG_SECONDS", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    assert main(["distances", str(store), "--executor", "serial"]) == 0
    text = terminal.getvalue()
    assert "\x1b[" in text
    assert "━" in text
    assert "ETA" in text
    assert "100%" in text
    assert "6 of 6 tiles, in" in text
    assert not re.search(r"distances: [\d.]+%", text)  # lines are for logs


def test_a_bar_ends_with_the_work(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the work fails: a bar that went on would draw over the error."""
    from cksc_dist.dist import tile_work
    from cksc_dist.errors import InputError

    def fail(*_: Any, **__: Any) -> None:
        raise InputError("something of a tile")

    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setattr(tile_work, "compute_values", fail)
    assert main(["distances", str(store), "--executor", "serial"]) == 2
    shown, hidden = terminal.getvalue().count("\x1b[?25h"), terminal.getvalue().count("\x1b[?25l")
    assert shown == hidden  # the cursor is back


def test_chunks_are_the_same_whatever_is_typed(done: Path, store: Path, typed: Typed) -> None:
    typed("distances", store, "--executor", "threads", "--workers", 2, "--memory", "1GiB")
    assert chunk_files(store) == chunk_files(done)
