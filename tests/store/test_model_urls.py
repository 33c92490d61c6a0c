"""Models behind URLs, where nothing can be renamed: whole or not at all, also when writing stops halfway."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
import zarr

from cksc_dist import CKSC, SeriesSet, load_model
from cksc_dist.cli import main
from cksc_dist.dist.ingest import ingest
from cksc_dist.errors import ModelFileError
from cksc_dist.io import make_gestures, write_npz
from cksc_dist.store import model_files
from cksc_dist.store.folder import Folder
from cksc_dist.store.model_files import model_digest, read_model, write_model
from tests.dist.processes import starter

KINDS = ["memory", "s3"]
ARRAYS = {"x": np.arange(5.0), "y": np.array([True, False]), "none": np.zeros((0, 3))}
_numbers = count()


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest) -> str:
    """A place that nobody has used."""
    top = request.getfixturevalue("bucket") if request.param == "s3" else "memory://models"
    return f"{top}/of today/gestures-{next(_numbers)}"


@pytest.fixture(scope="module")
def data() -> SeriesSet:
    return make_gestures(n_per_class=8, n_classes=3, dims=2, length=(8, 16), random_state=1)


@pytest.fixture(scope="module")
def model(data: SeriesSet) -> CKSC:
    return CKSC(sparsity=3, kernel="dtw", random_state=0, tol=0.01).fit(data.series[::2], data.labels[::2])


def places(url: str) -> list[str]:
    """Names of what is in a model, its small file left out."""
    return [name for name in Folder(url).names("") if name != "model.json"]


def test_a_model_comes_back_to_the_bit(url: str, model: CKSC, data: SeriesSet) -> None:
    model.save(url)
    for again in (load_model(url), CKSC.load(url)):
        assert np.array_equal(again.class_shares(data), model.class_shares(data))
        assert again.get_params() == model.get_params()
        assert again.explain(data[1]) == model.explain(data[1])


def test_arrays_of_every_kind_come_back(url: str) -> None:
    write_model(url, "Any", ARRAYS, {"text": "ü", "list": [1, None]})
    name, arrays, settings = read_model(url)
    assert (name, settings) == ("Any", {"text": "ü", "list": [1, None]})
    assert {key: (a.dtype, a.shape, a.tobytes()) for key, a in arrays.items()} == {
        key: (a.dtype, a.shape, a.tobytes()) for key, a in ARRAYS.items()
    }


def test_a_new_model_replaces_the_old_one_and_leaves_no_trace(url: str) -> None:
    write_model(url, "CKSC", ARRAYS, {"k": 1})
    first, digest = places(url), model_digest(url)
    write_model(url, "CKSC", {"x": np.zeros(2)}, {"k": 2})
    assert read_model(url)[2] == {"k": 2}
    assert len(places(url)) == 1
    assert places(url) != first
    assert model_digest(url) != digest
    assert not Folder(url).files(first[0])


def test_the_digest_is_that_of_the_same_model_anywhere(url: str, tmp_path: Path) -> None:
    for path in (url, tmp_path / "model"):
        write_model(path, "CKSC", ARRAYS, {"k": 1})
    assert model_digest(url) == model_digest(tmp_path / "model")


def test_the_last_thing_written_is_the_one_that_publishes(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write_model(url, "CKSC", ARRAYS, {"k": 1})

    def killed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "write_json", killed)
        with pytest.raises(KeyboardInterrupt):
            write_model(url, "CKSC", {"x": np.zeros(2)}, {"k": 2})
    assert len(places(url)) == 2  # all of the new one is there, and is not looked at
    assert read_model(url)[2] == {"k": 1}


_KILLED = """
import os, signal, sys
import numpy as np
from cksc_dist.store.folder import Folder
from cksc_dist.store.model_files import write_model
Folder.write_json = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
write_model(sys.argv[1], "CKSC", {"x": np.zeros(2)}, {"k": 2})
"""


@pytest.mark.parametrize("earlier", [True, False])
def test_a_writer_killed_before_it_publishes_leaves_the_old_model(bucket: str, earlier: bool) -> None:
    url = f"{bucket}/killed-{earlier}"
    if earlier:
        write_model(url, "CKSC", ARRAYS, {"k": 1})
    assert subprocess.run([sys.executable, "-c", _KILLED, url], check=False).returncode == -9
    assert len(places(url)) == 1 + earlier
    if earlier:
        assert read_model(url)[2] == {"k": 1}
    else:
        with pytest.raises(ModelFileError, match="is no saved model"):
            read_model(url)
    write_model(url, "CKSC", ARRAYS, {"k": 3})
    assert read_model(url)[2] == {"k": 3}


def test_what_killed_writers_left_goes_after_a_day(url: str) -> None:
    folder, now = Folder(url), int(time.time())
    old, young = f"{now - 2 * 86400}-{'0' * 32}", f"{now - 60}-{'1' * 32}"
    for place in (old, young):
        folder.write(f"{place}/x/c/0", b"half")
    write_model(url, "CKSC", ARRAYS, {})
    assert not folder.files(old)
    assert folder.files(young) == {"x/c/0": 4}  # its writer may be at work
    assert read_model(url)[0] == "CKSC"


def test_a_write_that_fails_removes_what_it_began(url: str) -> None:
    write_model(url, "CKSC", ARRAYS, {"k": 1})
    before = Folder(url).files("")
    with pytest.raises(TypeError, match="JSON"):
        write_model(url, "CKSC", ARRAYS, {"k": object()})
    assert Folder(url).files("") == before
    assert read_model(url)[2] == {"k": 1}


@pytest.mark.parametrize("what", ["file", "files", "zarr group", "store", "pointer of others", "damaged pointer"])
def test_what_is_no_model_is_never_overwritten(url: str, what: str, data: SeriesSet) -> None:
    folder = Folder(url)
    if what == "file":
        above, name = url.rsplit("/", 1)
        Folder(above).write(name, b"thesis")
    elif what == "files":
        folder.write("chapters/1.tex", b"thesis")
    elif what == "zarr group":
        zarr.create_group(store=folder.zarr()).create_array("x", data=np.arange(3))
    elif what == "store":
        ingest(data, url)
    elif what == "pointer of others":
        folder.write_json("model.json", {"at": "elsewhere"})
    else:
        write_model(url, "CKSC", ARRAYS, {})
        folder.write("model.json", b"[")
    before = Folder(url.rsplit("/", 1)[0]).files("")
    with pytest.raises(
        ModelFileError, match=r"gestures-\d+ exists and is no saved model; choose another name or remov"
    ):
        write_model(url, "CKSC", ARRAYS, {})
    assert Folder(url.rsplit("/", 1)[0]).files("") == before
    with pytest.raises(ModelFileError, match=r"is no saved model|is damaged"):
        read_model(url)


def test_nothing_there(url: str) -> None:
    for look in (read_model, model_digest):
        with pytest.raises(ModelFileError, match=r"gestures-\d+ does not exist; give the folder that save\(\) wrote"):
            look(url)


def test_a_newer_version_says_what_to_do(url: str) -> None:
    write_model(url, "CKSC", ARRAYS, {})
    folder = Folder(url)
    folder.write_json("model.json", folder.read_json("model.json") | {"version": 2})
    with pytest.raises(ModelFileError, match="has version 2, but this release reads version 1; train the model again"):
        read_model(url)


@pytest.mark.parametrize("change", ["gone", "cut", "flipped"])
def test_damage_of_any_file_is_noticed(change: str) -> None:
    url = f"memory://models/damaged-{next(_numbers)}"
    write_model(url, "CKSC", {"x": np.arange(1.0, 90.0), "y": np.arange(7)}, {"k": 1})
    folder = Folder(url)
    for name in folder.files(""):
        content = folder.read(name)
        assert content is not None
        if change == "gone":
            folder.remove(name)
        else:
            flipped = bytearray(content)
            flipped[len(content) // 2] ^= 1
            folder.write(name, content[:-1] if change == "cut" else bytes(flipped))
        try:
            _, arrays, settings = read_model(url)
        except ModelFileError as error:
            if "damaged-" not in str(error):
                pytest.fail(f"no word of what is damaged: {error}")
        else:
            # a letter of a header that means nothing
            assert (change, name[-9:]) == ("flipped", "zarr.json")
            assert (arrays["x"].tolist(), settings) == (list(range(1, 90)), {"k": 1})
        folder.write(name, content)
    assert read_model(url)[2] == {"k": 1}


def test_a_reader_whose_model_is_replaced_reads_the_new_one(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write_model(url, "CKSC", ARRAYS, {"k": 1})
    read_group, reads = model_files._read_group, []

    def replaced_meanwhile(*arguments: Any) -> Any:
        reads.append(1)
        if len(reads) == 1:
            write_model(url, "CKSC", ARRAYS, {"k": 2})
        return read_group(*arguments)

    monkeypatch.setattr(model_files, "_read_group", replaced_meanwhile)
    assert read_model(url)[2] == {"k": 2}
    assert len(reads) == 2


def test_threads_that_save_and_read_one_url_see_whole_models() -> None:
    url = f"memory://models/threads-{next(_numbers)}"

    def save(k: int) -> None:
        write_model(url, "CKSC", {"x": np.full(5, k), "y": np.full(7, k)}, {"k": k})

    def load(_: int) -> None:
        _, arrays, settings = read_model(url)
        assert set(arrays["x"]) == set(arrays["y"]) == {settings["k"]}

    save(0)
    with ThreadPoolExecutor(4) as pool:
        tasks = [pool.submit(load if k % 2 else save, k) for k in range(40)]
    for task in tasks:
        task.result()


# copies


def copied(source: Folder, target: Folder) -> None:
    for name in source.files(""):
        content = source.read(name)
        assert content is not None
        target.write(name, content)


def test_a_local_model_that_was_uploaded_is_a_model(url: str, tmp_path: Path) -> None:
    write_model(tmp_path / "model", "CKSC", ARRAYS, {"k": 1})
    copied(Folder(tmp_path / "model"), Folder(url))
    Folder(url).write("notes/today.txt", b"kept")
    assert read_model(url)[2] == {"k": 1}
    assert model_digest(url) == model_digest(tmp_path / "model")
    write_model(url, "CKSC", ARRAYS, {"k": 2})
    assert read_model(url)[2] == {"k": 2}
    (place,) = (name for name in places(url) if name != "notes")  # all else of the old one is gone
    assert Folder(url).files("notes") == {"today.txt": 4}
    assert read_model(url)[1]["x"].tolist() == ARRAYS["x"].tolist()
    assert Folder(url).files(place)


def test_a_model_that_was_downloaded_is_a_model(url: str, tmp_path: Path) -> None:
    write_model(url, "CKSC", ARRAYS, {"k": 1})
    copied(Folder(url), Folder(tmp_path / "model"))
    assert read_model(tmp_path / "model")[2] == {"k": 1}
    assert model_digest(tmp_path / "model") == model_digest(url)
    write_model(tmp_path / "model", "CKSC", ARRAYS, {"k": 2})
    assert read_model(tmp_path / "model")[2] == {"k": 2}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]
    assert not (tmp_path / "model" / "model.json").exists()


def test_a_file_url_is_a_path(tmp_path: Path) -> None:
    write_model(f"file://{tmp_path}/model", "CKSC", ARRAYS, {"k": 1})
    assert read_model(tmp_path / "model")[2] == {"k": 1}
    assert read_model(f"file://{tmp_path}/model")[2] == {"k": 1}
    assert list(tmp_path.iterdir()) == [tmp_path / "model"]


# prediction


@pytest.mark.campaign
def test_workers_take_the_model_and_the_client_the_series_from_urls(
    bucket: str, model: CKSC, data: SeriesSet, tmp_path: Path
) -> None:
    model.save(f"{bucket}/model")
    model.save(tmp_path / "model")
    ingest(data, f"{bucket}/new.zarr")
    write_npz(tmp_path / "new.npz", data)
    files = [tmp_path / "here.jsonl", tmp_path / "there.jsonl"]
    here = ["predict", f"{tmp_path}/model", f"{tmp_path}/new.npz", "--executor", "serial", "--json", str(files[0])]
    there = ["predict", f"{bucket}/model", f"{bucket}/new.zarr", "--executor", "dask", "--workers", "1"]
    assert main(here) == 0
    with starter(tmp_path) as start:
        run = start.cksc(*there, "--json", str(files[1]))
        assert run.wait() == 0, run.output
    records = [[json.loads(line) for line in file.read_text().splitlines()] for file in files]
    assert [record["id"] for record in records[1]] == data.ids.tolist()
    assert files[0].read_bytes() == files[1].read_bytes()


@pytest.fixture(scope="module", autouse=True)
def nothing_stays_in_memory() -> Iterator[None]:
    yield
    memory = fsspec.filesystem("memory")
    if memory.exists("/models"):
        memory.rm("/models", recursive=True)
