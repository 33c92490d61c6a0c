"""What killed processes leave, the same command removes when it is run again; what the living write stays."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cksc_dist.dist.distances import compute_distances
from cksc_dist.dist.executors import SerialExecutor
from cksc_dist.dist.ingest import append, ingest
from cksc_dist.dist.progress import Progress
from cksc_dist.dist.video_work import describe_videos, make_textures
from cksc_dist.evaluate.report import write_report
from cksc_dist.io import make_gestures
from cksc_dist.io.textures import TextureSpec
from cksc_dist.io.videos import find_videos
from cksc_dist.models.training import train
from cksc_dist.processes import signature
from cksc_dist.spec import ModelSpec
from cksc_dist.store.folder import Folder
from cksc_dist.store.lease import Lease
from tests.small_stores import files_below, made_series

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
    path = folder._partial(tmp_path / "results" / "zarr.json")
    path.write_bytes(b"half")
    assert signature() in path.name
    dead = tmp_path / "results" / f"zarr.json.{dead_signature()}.{HEX}.partial"
    elsewhere = tmp_path / "results" / f"zarr.json.00000000-1-1.{HEX}.partial"
    own = tmp_path / "series" / "zarr.0.partial"
    for each in (dead, elsewhere, own):
        each.parent.mkdir(exist_ok=True)
        each.write_bytes(b"half")
    assert sorted(folder.sweep()) == sorted(str(each.relative_to(tmp_path)) for each in (dead, own))
    assert path.exists()
    assert elsewhere.exists()


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
        tmp_path / f"{name}.{word}.partial"
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
