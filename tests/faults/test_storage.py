"""A disk that is full, read-only or closed to the user, and stores of other versions: named, and nothing is lost."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from cksc_dist import open_matrix
from cksc_dist.cli import main
from cksc_dist.dist.distances import compute_distances
from cksc_dist.dist.ingest import append, ingest
from cksc_dist.errors import CkscError, SmallClassWarning, StoreError
from cksc_dist.evaluate import Protocol, evaluate
from cksc_dist.evaluate.results import find_evaluations
from cksc_dist.io.npz import write_npz
from cksc_dist.models.training import train
from cksc_dist.spec import RunSpec
from cksc_dist.store.folder import Folder
from tests.faults.full_store import DATA, NEW, READERS, SERIAL, SPEC
from tests.faults.small_disk import Disk, needs_root, small_disk
from tests.small_stores import files_below, made_series, small_tiles

PAGE = 4096
MORE = made_series(30, seed=3, prefix="more", length=(4, 8))


@pytest.fixture(autouse=True)
def tiles(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    small_tiles(monkeypatch)
    with warnings.catch_warnings():
        for kind in (SmallClassWarning, ConvergenceWarning):
            warnings.simplefilter("ignore", kind)
        yield


@pytest.fixture(scope="module")
def template(full_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with everything, and beside it one with series alone and one with a matrix."""
    path = tmp_path_factory.mktemp("storage")
    shutil.copytree(full_store, path / "full")
    with pytest.MonkeyPatch.context() as patch:
        small_tiles(patch)
        ingest(DATA, path / "series")
        shutil.copytree(path / "series", path / "matrix")
        compute_distances(path / "matrix", run=SERIAL)
    (path / "nothing").mkdir()
    write_npz(path / "new.npz", NEW)
    return path


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with small_disk(tmp_path / "disk") as found:
        yield found


@contextmanager
def after_writes(count: int | None, action: Callable[[], None]) -> Iterator[list[str]]:
    """Do something after so many files have been written by the package itself; None: at once. Give what was written.

    Chunks, which Zarr writes, come in between.
    """
    written: list[str] = []
    write = Folder.write

    def counting(self: Folder, key: str, content: bytes | memoryview, **options: Any) -> None:
        write(self, key, content, **options)
        if not key.startswith(("lock.json", "sample.")):  # heartbeats, and a disk that is timed
            written.append(key)
            if len(written) == count:
                action()

    if count is None:
        action()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Folder, "write", counting)
        yield written


def do_ingest(store: Path) -> None:
    ingest(DATA, store)


def do_distances(store: Path) -> None:
    compute_distances(store, run=SERIAL)


def do_append(store: Path) -> None:
    append(store, MORE, SERIAL)


def do_train(store: Path) -> None:
    train(store, store / "models" / "first", spec=SPEC, place="memory", run=SERIAL)


def do_train_from_disk(store: Path) -> None:
    train(store, store / "models" / "first", spec=SPEC, place="disk", run=SERIAL)


def do_evaluate(store: Path) -> None:
    evaluate(store, ["cksc", "1nn"], Protocol(n_splits=2, tune=False), sparsity=2, run=SERIAL)


@dataclass(frozen=True)
class Work:
    """What is done, the store that it begins with, and what is the middle: after some writes, with room left."""

    begin: str
    act: Callable[[Path], None]
    middle: tuple[int | None, int]


WORK = {
    "ingest": Work("nothing", do_ingest, (None, 5 * PAGE)),
    "distances": Work("series", do_distances, (4, 0)),
    "append": Work("matrix", do_append, (3, 0)),
    "train": Work("matrix", do_train, (2, 0)),
    "train from disk": Work("matrix", do_train_from_disk, (3, 0)),
    "evaluate": Work("matrix", do_evaluate, (2, 0)),
}

TIMED = ("ledger/", "fits/", "results/", "metadata.json")
"""Parts that hold times; the copies of metadata are the sum of what is compared."""


def content(store: Path) -> dict[str, Any]:
    """Return all that must be the same, whatever happened on the way."""
    found: dict[str, Any] = {
        name: content for name, content in files_below(store).items() if not name.startswith((*TIMED, "models/"))
    }
    # the settings of a model say where its store is
    found |= {name: value for name, value in files_below(store).items() if name.startswith("models/") and "/c/" in name}
    if (store / "results").exists():
        (table,) = (each.table for each in find_evaluations(Folder(store)))
        found["table"] = [repr(table[name].values.tolist()) for name in ("accuracy", "macro_f1", "objective")]
    return found


@pytest.fixture(scope="module")
def expected(template: Path) -> Callable[[str], dict[str, Any]]:
    """What comes of each kind of work on a disk with room, done once each."""
    known: dict[str, dict[str, Any]] = {}

    def find(name: str) -> dict[str, Any]:
        if name not in known:
            store = Path(shutil.copytree(template / WORK[name].begin, template / "made" / name))
            WORK[name].act(store)
            known[name] = content(store)
        return known[name]

    return find


def try_a_full_disk(
    disk: Disk, template: Path, name: str, after: int | None, room: int, expected: dict[str, Any]
) -> str:
    """Do work on a disk of which after some writes only so much is left; return what came of it.

    ``"full"``: it ran out; ``"enough"``: it did not; ``"over"``: the work ended before.
    """
    work = WORK[name]
    store = disk.path / "store"
    shutil.rmtree(store, ignore_errors=True)
    shutil.copytree(template / work.begin, store)
    came = "enough"
    with after_writes(after, lambda: disk.leave(room)) as written:
        try:
            work.act(store)
        except CkscError as error:
            came, words = "full", str(error)
            assert "make room" in words or "GB left" in words or "free" in words, words
            assert str(disk.path) in words, words
    assert not list(store.rglob("lock.json*")), "a lock is left behind"
    assert not list(store.rglob("*.partial")), "half a file is left behind"
    if work.begin == "matrix" and name != "append":  # what was there can still be read
        np.testing.assert_array_equal(np.asarray(open_matrix(store)), np.asarray(open_matrix(template / "matrix")))
    disk.free()
    work.act(store)
    assert content(store) == expected
    return "over" if after is not None and len(written) < after else came


@needs_root
@pytest.mark.parametrize("name", WORK)
def test_a_full_disk_is_told_and_with_room_all_is_as_ever(
    disk: Disk, template: Path, expected: Callable[[str], dict[str, Any]], name: str
) -> None:
    for after, room in ((None, 0), WORK[name].middle):
        assert try_a_full_disk(disk, template, name, after, room, expected(name)) == "full"


@needs_root
@pytest.mark.campaign
@pytest.mark.parametrize("name", WORK)
def test_a_disk_that_is_full_at_any_moment(
    disk: Disk, template: Path, expected: Callable[[str], dict[str, Any]], name: str, capsys: Any
) -> None:
    """After any number of writes, and with any number of pages left at the beginning."""
    came, after = Counter[str](), 0
    while came["over"] == 0:
        after += 1
        came[try_a_full_disk(disk, template, name, after, 0, expected(name))] += 1
    pages, enough = 1, 0
    while enough < 2:
        last = try_a_full_disk(disk, template, name, None, pages * PAGE, expected(name))
        came[last] += 1
        enough = enough + 1 if last == "enough" else 0
        pages += 1 + pages // 12
    assert came["full"] > 3
    with capsys.disabled():
        print(f"\n{name}: {dict(came)}; {after} writes, {pages} pages")


@needs_root
def test_a_report_and_decisions_that_find_no_room(
    disk: Disk, template: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, model, new = template / "full", str(template / "full/models/first"), str(template / "new.npz")
    page, lines = disk.path / "report.html", disk.path / "lines.jsonl"
    page.write_text("the old one")
    disk.leave(0)
    for command in (["report", str(store), "--output", str(page)], ["predict", model, new, "--json", str(lines)]):
        assert main(command) == 2
        error = capsys.readouterr().err
        assert f"{command[-1]} cannot be written ([Errno 28] No space left on device): there is no room left" in error
        assert "make room, then run the same command again" in error
    assert page.read_text() == "the old one"
    assert {path.name for path in disk.path.iterdir()} == {"filler", "report.html"}
    disk.free()
    assert main(["report", str(store), "--output", str(page)]) == 0
    assert main(["predict", model, new, "--json", str(lines)]) == 0
    assert len(lines.read_text().splitlines()) == len(NEW)
    assert page.read_text().startswith("<!DOCTYPE html>")


# a store that can only be read


@needs_root
def test_a_read_only_store_is_read_and_writers_are_told(
    disk: Disk, template: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    store = Path(shutil.copytree(template / "full", disk.path / "store"))
    before = files_below(store)
    truth = {name: read(template / "full") for name, read in READERS.items()}
    disk.remount("ro")
    for name, read in READERS.items():
        assert read(store) == truth[name]
    new = str(template / "new.npz")
    for command in (
        ["status", str(store)],
        ["verify", str(store), "--sample", "5"],
        ["predict", str(store / "models/first"), str(store)],
        ["report", str(store), "--output", str(tmp_path / "report.html")],
    ):
        assert main(command) == 0, command
    for command in (
        ["ingest", new, str(store), "--replace"],
        ["distances", str(store), "--window", "0.5"],
        ["append", str(store), new],
        ["train", str(store), str(store / "models/new")],
        ["report", str(store), "--output", str(store / "report.html")],
    ):
        capsys.readouterr()
        assert main(command) == 2, command
        error = capsys.readouterr().err
        assert "Read-only file system" in error
        assert "it can only be read; mount it for writing, or work on a copy of it" in error
    disk.remount("rw")
    assert files_below(store) == before


@needs_root
def test_a_permission_that_is_lost_on_the_way(template: Path, expected: Callable[[str], dict[str, Any]]) -> None:
    compute_distances(shutil.copytree(template / "series", template / "warm"), run=SERIAL)  # root alone may compile
    wanted = expected("distances")
    with tempfile.TemporaryDirectory(prefix="cksc-permission-") as top:
        os.chmod(top, 0o755)
        store = Path(shutil.copytree(template / "series", Path(top) / "store"))
        for path in (store, *store.rglob("*")):
            os.chown(path, 65534, 65534)
        closed: list[Path] = []

        def close() -> None:
            closed.extend(store.glob("distances/*/distance/c/*"))
            closed.extend(store.glob("distances/*/distance/c"))
            for folder in closed:
                folder.chmod(0o500)

        os.seteuid(65534)
        try:
            denied = r"Permission denied.* see to the permissions, or choose another"
            with after_writes(4, close), pytest.raises(StoreError, match=denied):
                compute_distances(store, run=SERIAL)
            assert closed
            assert not (store / "lock.json").exists()
            with pytest.raises(StoreError, match=r"not finished, \d of 6 tiles are missing"):
                open_matrix(store)
            for folder in closed:
                folder.chmod(0o700)
            assert compute_distances(store, run=SERIAL).computed < 6
        finally:
            os.seteuid(0)
        assert content(store) == wanted


@needs_root
@pytest.mark.parametrize("closed", ["series", "distances", "ledger"])
def test_what_cannot_be_read_is_not_said_to_be_well(
    closed: str, template: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with tempfile.TemporaryDirectory(prefix="cksc-permission-") as top:
        os.chmod(top, 0o755)
        store = Path(shutil.copytree(template / "series", Path(top) / "store"))
        compute_distances(store, run=SERIAL)
        (store / "models" / "m" / "gram").mkdir(parents=True)
        for path in (store, *store.rglob("*")):
            os.chown(path, 65534, 65534)
        for folder in (store / closed, store / "models" / "m"):
            folder.chmod(0)
            os.seteuid(65534)
            try:
                assert main(["verify", str(store)]) == 2
            finally:
                os.seteuid(0)
            assert "Permission denied" in capsys.readouterr().err
            folder.chmod(0o700)


# stores of other versions


def of_version(store: Path, version: int) -> None:
    """Let a store say that it has another layout."""
    folder = Folder(store)
    root = json.loads((store / "zarr.json").read_bytes())
    root["attributes"]["version"] = version
    text = json.dumps(root)
    (store / "zarr.json").write_text(text)
    folder.write_json("metadata.json", folder.read_json("metadata.json") | {"zarr.json": text})


@pytest.mark.parametrize("version", [0, 2], ids=["older", "newer"])
def test_a_store_of_another_version_is_named_and_left_alone(
    template: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], version: int
) -> None:
    store = Path(shutil.copytree(template / "full", tmp_path / "store"))
    of_version(store, version)
    before, new = files_below(store), str(template / "new.npz")
    for command in (
        ["status", str(store)],
        ["plan", str(store)],
        ["verify", str(store)],
        ["verify", str(store), "--repair"],
        ["distances", str(store)],
        ["ingest", new, str(store)],
        ["ingest", new, str(store), "--replace"],
        ["append", str(store), new],
        ["train", str(store), str(tmp_path / "model")],
        ["report", str(store), "--output", str(tmp_path / "report.html")],
        ["predict", str(store / "models/first"), str(store)],
    ):
        assert main(command) == 2, command
        error = capsys.readouterr().err
        assert f"has layout version {version}, but this release reads version 1; install the release" in error
    with pytest.raises(StoreError, match=f"has layout version {version}"):
        evaluate(store, ["1nn"], Protocol(n_splits=2, tune=False), run=RunSpec(executor="serial"))
    assert files_below(store) == before
    assert not (tmp_path / "model").exists()


def test_a_model_of_another_version_is_named_and_left_alone(
    template: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = Path(shutil.copytree(template / "full/models/first", tmp_path / "model"))
    for version in (0, 2):
        root = json.loads((model / "zarr.json").read_bytes())
        root["attributes"]["version"] = version
        (model / "zarr.json").write_text(json.dumps(root))
        before = files_below(model)
        for command in (
            ["predict", str(model), str(template / "new.npz")],
            ["train", str(template / "matrix"), str(model)],
            ["report", str(model), "--output", str(tmp_path / "report.html")],
        ):
            assert main(command) == 2, command
            error = capsys.readouterr().err
            assert "has version" in error or "is no saved model" in error
        assert files_below(model) == before
