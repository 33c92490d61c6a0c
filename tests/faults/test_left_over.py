"""What killed processes leave, the same command removes when it is run again; what the living write stays."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from cksc_dist import open_matrix, pairwise_dtw
from cksc_dist.dist.distances import compute_distances
from cksc_dist.dist.executors import SerialExecutor
from cksc_dist.dist.ingest import append, ingest, ingest_distances
from cksc_dist.dist.progress import Progress
from cksc_dist.dist.video_work import describe_videos, make_textures
from cksc_dist.errors import StoreError
from cksc_dist.evaluate.fits import write_table
from cksc_dist.evaluate.report import write_report
from cksc_dist.io import fetch, make_gestures
from cksc_dist.io.textures import TextureSpec
from cksc_dist.io.videos import find_videos
from cksc_dist.models import training
from cksc_dist.models.training import train
from cksc_dist.processes import signature, unfinished
from cksc_dist.spec import ModelSpec
from cksc_dist.store.folder import Folder
from cksc_dist.store.lease import Lease
from cksc_dist.store.matrix_files import MatrixFiles
from tests.small_stores import files_below, made_series, small_tiles

HEX = "0123456789abcdef" * 2


def dead_process() -> int:
    """Return the number of a process that is gone."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    return ended.pid


def dead_signature() -> str:
    """Return the word for a process of this host that is gone."""
    here, _, born = signature().split("-")
    return f"{here}-{dead_process()}-{born}"


def write_lock_of_the_dead(folder: Path) -> None:
    """Leave a lease as a killed process does."""
    context = multiprocessing.get_context("spawn")
    holder = context.Process(target=_hold_and_die, args=(str(folder),))
    holder.start()
    holder.join()
    assert (folder / "lock.json").exists()


def _hold_and_die(folder: str) -> None:
    Lease(Folder(folder), "a killed one").__enter__()
    os._exit(1)


def test_unfinished_files_name_their_process_and_only_those_of_the_dead_are_swept_among_what_others_write(
    tmp_path: Path,
) -> None:
    folder = Folder(tmp_path)
    path = unfinished(tmp_path / "results" / "zarr.json")
    assert signature() in path.name
    dead = tmp_path / "results" / f"zarr.json.{dead_signature()}.{HEX}.partial"
    elsewhere = tmp_path / "results" / f"zarr.json.00000000-1-1.{HEX}.partial"
    own = tmp_path / "series" / "zarr.0.partial"
    for each in (path, dead, elsewhere, own):
        each.parent.mkdir(exist_ok=True)
        each.write_bytes(b"half")
    assert sorted(folder.sweep()) == sorted(str(each.relative_to(tmp_path)) for each in (dead, own))
    assert path.exists()
    assert elsewhere.exists()
    # of another host, or of before this one was started, nobody knows, but a day later nobody is writing any more
    yesterday = time.time() - 90_000.0
    for each in (path, elsewhere):
        os.utime(each, (yesterday, yesterday))
    assert folder.sweep() == [str(elsewhere.relative_to(tmp_path))]


def test_a_claim_whose_process_died_is_removed_by_the_next_who_holds(tmp_path: Path) -> None:
    for name in (f"lock.json.{HEX}", "lock.json.damaged"):
        (tmp_path / name).write_bytes(b"")
    with Lease(Folder(tmp_path), "anything"):
        assert sorted(files_below(tmp_path)) == ["lock.json"]
    assert not files_below(tmp_path)


def test_ingest_and_append_remove_what_was_half_written(tmp_path: Path) -> None:
    store = tmp_path / "s.zarr"
    ingest(made_series(6), store)
    whole = files_below(store)
    half = store / "series" / "row" / f"zarr.{HEX}.partial"
    half.write_bytes(b"half")
    assert not ingest(made_series(6), store)
    assert files_below(store) == whole
    half.write_bytes(b"half")
    append(store, made_series(4, prefix="t"))
    assert not half.exists()


@pytest.fixture(scope="module")
def computed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("computed") / "s.zarr"
    ingest(make_gestures(n_per_class=8), store)
    compute_distances(store)
    return store


def trained(store: Path, model: Path, max_iter: int = 50) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        train(store, model, spec=ModelSpec(sparsity=2, max_iter=max_iter), place="memory")


def test_training_that_was_killed_after_its_model_was_saved_is_tidied_up(computed: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    trained(computed, model)
    whole = files_below(tmp_path)
    training = tmp_path / "model.training"
    training.mkdir()
    write_lock_of_the_dead(training)
    (training / f"lock.json.{HEX}.partial").write_bytes(b"half")
    for role in ("partial", "replaced"):
        left = tmp_path / f"model.{dead_signature()}.{HEX}.{role}"
        left.mkdir()
        (left / "zarr.json").write_bytes(b"{}")
    living = tmp_path / f"model.{os.getppid()}.{HEX}.partial"
    living.mkdir()
    trained(computed, model)
    living.rmdir()
    assert files_below(tmp_path) == whole
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]


def test_training_that_goes_on_under_the_same_name_is_left_alone(computed: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    trained(computed, model)
    with Lease(Folder(f"{model}.training"), "training"):
        (tmp_path / "model.training" / f"latest.json.{HEX}.partial").write_bytes(b"half")
        trained(computed, model)
        assert len(files_below(tmp_path / "model.training")) == 2


def test_a_report_removes_what_was_left_of_earlier_ones(computed: Path, tmp_path: Path) -> None:
    trained(computed, tmp_path / "model")
    here, _, born = signature().split("-")
    dead, living, other = (
        tmp_path / f"{name}.{word}.{HEX}.partial"
        for name, word in (
            ("report.html", dead_signature()),
            ("report.html", signature()),
            ("another.html", f"{here}-{dead_process()}-{born}"),
        )
    )
    for each in (dead, other):
        each.write_bytes(b"half")
    write_report(tmp_path / "model", tmp_path / "report.html")
    assert not dead.exists()
    assert not living.exists()  # one's own
    assert other.exists()


def test_videos_and_descriptors_are_left_without_halves(tmp_path: Path) -> None:
    spec = TextureSpec(classes=2, videos_per_class=2, frames=8, side=8)
    videos, descriptors = tmp_path / "videos", tmp_path / "descriptors"
    living = descriptors / f"block.npz.{signature()}.{HEX}.partial"
    for _ in range(2):  # while there is work, and when all is done
        for half in (videos / "texture00" / ".000.npy", descriptors / "block.npz"):
            path = half.with_name(f"{half.name}.{dead_signature()}.{HEX}.partial")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"half")
        living.write_bytes(b"half")
        make_textures(videos, spec, SerialExecutor(), Progress())
        found = describe_videos(find_videos(videos), str(descriptors), SerialExecutor(), Progress())
        assert len(found.frames) == 4
        assert np.isfinite(found.planes.values).all()
        names = [*files_below(videos), *files_below(descriptors)]
        assert [name for name in names if name.endswith(".partial")] == [living.name]
        assert len(names) == 4 + 1 + 1 + 1


def test_a_video_that_is_being_written_names_its_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = TextureSpec(classes=2, videos_per_class=2, frames=8, side=8)
    seen: list[str] = []
    save = np.save

    def look(handle: Any, video: Any) -> None:
        seen.append(Path(handle.name).name)
        save(handle, video)

    monkeypatch.setattr(np, "save", look)
    make_textures(tmp_path, spec, SerialExecutor(), Progress())
    assert len(seen) == 4
    assert all(f".{signature()}." in name for name in seen)


@pytest.mark.parametrize("with_series", [False, True])
@pytest.mark.parametrize("tiles", [0, 1, 2])
def test_a_ready_matrix_that_was_killed_on_its_way_in_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_series: bool, tiles: int
) -> None:
    data = made_series(40)
    D = pairwise_dtw(data)
    own: dict[str, Any] = {"data": data} if with_series else {"labels": data.labels, "ids": data.ids}
    small_tiles(monkeypatch)
    name = ingest_distances(D, tmp_path / "whole", **own)
    write, written = MatrixFiles.write_tile, []

    def die(self: MatrixFiles, *arguments: Any) -> None:
        if len(written) == tiles:
            raise KeyboardInterrupt
        written.append(1)
        write(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(MatrixFiles, "write_tile", die)
        with pytest.raises(KeyboardInterrupt):
            ingest_distances(D, tmp_path / "store", **own)
    assert ingest_distances(D, tmp_path / "store", **own) == name
    np.testing.assert_array_equal(np.asarray(open_matrix(tmp_path / "store")), D)
    before = files_below(tmp_path / "store")
    assert ingest_distances(D, tmp_path / "store", **own) == name  # the same once more is nothing to do
    assert files_below(tmp_path / "store") == before
    with pytest.raises(StoreError, match="holds a ready matrix already"):
        ingest_distances(2 * D, tmp_path / "store", **own)
    if not with_series:
        with pytest.raises(StoreError, match="is in use"):
            ingest_distances(D, tmp_path / "store", labels=data.labels, ids=data.ids[::-1])


def test_a_first_ingest_that_was_killed_at_once_can_be_repeated(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    (store / f"zarr.{HEX}.partial").write_bytes(b"{")
    assert ingest(made_series(8), store)
    assert [name for name in files_below(store) if name.endswith(".partial")] == []


def test_a_table_leaves_nothing_of_writers_that_died(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    left = tmp_path / "results" / f"evaluation.files.json.{dead_signature()}.{HEX}.partial"
    left.write_bytes(b"half")
    table = xr.Dataset({"accuracy": ("split", [0.5, 1.0])})
    write_table(Folder(tmp_path), "evaluation", table)
    assert not left.exists()


def test_two_trainings_of_one_name_the_first_takes_nothing_of_the_second_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One ends, and another one begins before its folder is gone."""
    folder = Folder(tmp_path / "model.training")
    leave = Lease.__exit__

    def leave_and_another_comes(self: Lease, *arguments: Any) -> None:
        leave(self, *arguments)
        folder.write("another.json", b"{}")

    monkeypatch.setattr(Lease, "__exit__", leave_and_another_comes)
    with training._held(folder):
        pass
    assert folder.read("another.json") == b"{}"


@pytest.mark.parametrize("replaced", [False, True])
def test_what_a_killed_fetch_left_goes_and_an_old_set_is_put_back(tmp_path: Path, replaced: bool) -> None:
    target = tmp_path / "Words"
    stage = tmp_path / f".Words.{dead_signature()}.abc_12.part"
    others = [tmp_path / f".Words.{signature()}.abc.part", tmp_path / f".More.{dead_signature()}.abc.part"]
    for folder in (stage / "fresh", *others):
        folder.mkdir(parents=True)
    if replaced:
        (stage / "old").mkdir()
        (stage / "old" / "kept.ts").write_text("@data")
    fetch._remove_left_over(target)
    assert sorted(tmp_path.iterdir()) == sorted([*others, *([target] if replaced else [])])
    assert [path.name for path in target.glob("*")] == (["kept.ts"] if replaced else [])
