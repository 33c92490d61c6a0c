"""Files that were made to do harm, one by one: what fuzzing has found, and what it would take too long to find."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from cksc_dist import CKSC, load_model
from cksc_dist.cli import main
from cksc_dist.commands.matrix_file import read_matrix
from cksc_dist.commands.train import _read_rows
from cksc_dist.dist.distances import compute_distances
from cksc_dist.dist.ingest import ingest
from cksc_dist.dist.status import store_status
from cksc_dist.errors import ModelFileError, ReadError, StoreError
from cksc_dist.io import read
from cksc_dist.spec import RunSpec
from cksc_dist.store.checkpoints import Checkpoints
from cksc_dist.store.folder import Folder
from cksc_dist.store.kernel_copy import KernelCopy
from cksc_dist.store.lease import Lease
from cksc_dist.store.ledger import Ledger
from cksc_dist.store.model_files import read_model, write_model
from tests.faults.fuzz_targets import huge, npy
from tests.small_stores import files_below, made_series


class Rows(SimpleNamespace):
    """A matrix of which only the ids are asked for."""

    def __len__(self) -> int:
        return len(self.ids)


# arrays


LIES = {
    "8 TB": huge((2**40,)),
    "more than there is": huge((2**20, 2)) + bytes(16),
    "less than there is": huge((1, 1)) + bytes(80),
    "text a gigabyte wide": huge((2,), "<U134217728") + bytes(8),
    "a header that never ends": b"\x93NUMPY\x01\x00v\x00" + b"{'descr': (".ljust(118),
    "objects": npy(np.array([{}], object)),
    "no letters": npy(np.array(["a"])).replace(b"a\0\0\0", b"\xff\xff\xff\xff"),
}


@pytest.mark.parametrize("lie", LIES)
def test_what_an_array_says_of_itself_is_not_believed(tmp_path: Path, lie: str) -> None:
    with zipfile.ZipFile(tmp_path / "d.npz", "w") as archive:
        archive.writestr("X.npy", LIES[lie])
        archive.writestr("y.npy", npy(np.array(["a"])))
        archive.writestr("D.npy", LIES[lie])
    (tmp_path / "d.npy").write_bytes(LIES[lie])
    with pytest.raises(ReadError, match=r"d\.npz: cannot be read as arrays"):
        read(tmp_path / "d.npz")
    for name in ("d.npz", "d.npy"):
        with pytest.raises(ReadError, match=rf"{name}: cannot be read as a matrix"):
            read_matrix(tmp_path / name)
    with pytest.raises(ReadError, match=r"d\.npy: is no array of positions, nor a mask"):
        _read_rows(tmp_path / "d.npy", Rows(ids=["a"]))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "words"),
    [("9" * 5000, "neither an id nor a position"), ("-1", "neither"), ("٣", "neither"), ("\n", "names no rows")],
)
def test_rows_that_are_none(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "rows.txt").write_text(text)
    with pytest.raises(ReadError, match=words) as caught:
        _read_rows(tmp_path / "rows.txt", Rows(ids=["a", "b", "c", "d"]))  # type: ignore[arg-type]
    assert len(str(caught.value)) < 500


def test_a_mask_of_no_rows(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.zeros(3, bool))
    with pytest.raises(ReadError, match=r"rows\.npy: names no rows"):
        _read_rows(tmp_path / "rows.npy", Rows(ids=["a", "b", "c"]))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["y", "ids"])
def test_names_of_rows_in_another_shape(tmp_path: Path, name: str) -> None:
    np.savez(tmp_path / "d.npz", D=1 - np.eye(2), **{name: np.array("a")})
    with pytest.raises(ReadError, match=rf"{name} has shape \(\); give one of them for each row"):
        read_matrix(tmp_path / "d.npz")


# what is typed


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["status", "http://["], "cannot be opened: Invalid IPv6 URL"),
        (["status", "a\0b"], "is no text that a system could pass on"),
        (["train", "s.zarr", "m", "--rows", "\ud800"], "is no text that a system could pass on"),
        (["plan", "s.zarr", "--memory", "9" * 5000], "is no amount of memory"),
    ],
)
def test_what_is_typed(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code: Any = main(arguments)
    except SystemExit as end:  # of argparse
        code = end.code
    assert code == 2
    assert words in capsys.readouterr().err.replace("'...", "'")


# stores


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("made") / "s.zarr"
    ingest(made_series(6), place)
    compute_distances(place, run=RunSpec(executor="serial"))
    return place


@pytest.fixture
def store(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "a" / "s.zarr")
    return tmp_path / "a" / "s.zarr"


@pytest.mark.parametrize("token", ["/../../../victim", "x/../../../victim", "", "a\0b", "x" * 300])
def test_a_lease_does_not_say_which_file_is_removed(store: Path, token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cksc_dist.store.lease.HEARTBEAT", 0.1)
    victim = store.parents[1] / "victim"
    victim.write_text("dear")
    record = {"host": "elsewhere", "process": 1, "born": 1.0, "purpose": "distances", "since": 1.0, "heartbeat": 1.0}
    Folder(store).write_json("lock.json", record | {"token": token})
    before = files_below(store.parents[1])
    with Lease(Folder(store), "ingest"):
        pass
    del before["a/s.zarr/lock.json"]
    assert files_below(store.parents[1]) == before


@pytest.mark.parametrize("key", ["../../beside", "../../zarr.json", "/beside/zarr.json", "a/../../../zarr.json", ""])
def test_copies_of_metadata_are_put_back_below_the_store_only(
    store: Path, key: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Folder(store)
    folder.write_json("metadata.json", folder.read_json("metadata.json") | {key: "{}"})
    before = files_below(store.parents[1])
    assert main(["verify", str(store), "--repair"]) == 2
    assert "metadata.json holds something else than copies of metadata" in capsys.readouterr().err
    assert files_below(store.parents[1]) == before


@pytest.mark.parametrize("content", [b"[" * 100_000, b'{"value":' * 50_000, b'{"sha256": 1, "value": ' + b"9" * 5000])
def test_json_that_is_too_deep_or_too_long(store: Path, content: bytes) -> None:
    for name in ("metadata.json", "zarr.json", "series/zarr.json"):
        kept = (store / name).read_bytes()
        (store / name).write_bytes(content)
        with pytest.raises(StoreError):
            store_status(store)
        (store / name).write_bytes(kept)


@pytest.mark.parametrize("change", [{"zarr_format": [[1]]}, {"zarr_format": 2}, {"node_type": "array"}], ids=str)
def test_a_root_that_zarr_would_refuse_is_told_before_anything_is_written(store: Path, change: dict[str, Any]) -> None:
    root = json.loads((store / "zarr.json").read_bytes())
    (store / "zarr.json").write_text(json.dumps(root | change))
    before = files_below(store)
    with pytest.raises(StoreError, match=r"s\.zarr/zarr\.json is damaged"):
        ingest(made_series(3), store, replace=True)
    assert files_below(store) == before


@pytest.mark.parametrize("value", [[], {"0.0": 1}, {"0": {}}, {"../x": {}}, {"0.0": {"rows": "a"}}, "x"])
def test_a_ledger_of_something_else(store: Path, value: Any) -> None:
    if not value:
        value = [1]
    name = next((store / "ledger").iterdir()).name
    Folder(store).write_json(f"ledger/{name}/tiles.json", value)
    with pytest.raises(StoreError, match="something else than entries of tiles"):
        Ledger(Folder(store), name).load()
    Folder(store).write_json(f"ledger/{name}/tiles.json", {})
    Folder(store).write_json(f"ledger/{name}/done/0.0.json", value)
    (store / "ledger" / name / "done" / "x.y.json").write_text("{}")
    assert Ledger(Folder(store), name).load().entries == {}  # the tile is computed again


def test_other_files_of_something_else(store: Path) -> None:
    folder = Folder(store)
    whole = {"matrix": "x", "n": 10**12, "dtype": "float64", "delta": 1.0, "factor": 1.0}
    for about in (1, [], {}, whole, whole | {"n": -1}, whole | {"dtype": "O"}):
        folder.write_json("kernels/k/about.json", about)
        with pytest.raises(StoreError, match=r"about\.json does not describe|is no kernel copy"):
            KernelCopy(folder, "k")
    for latest in (1, {"records": 1}, {"records": [{}]}, {"records": [{"number": "x", "training": "t"}]}):
        folder.write_json("models/m.training/t/latest.json", latest)
        with pytest.raises(StoreError, match="names no checkpoints"):
            Checkpoints(Folder(store / "models" / "m.training" / "t"), "t").latest()
        with pytest.raises(StoreError, match="names no checkpoints"):
            store_status(store)


# models: arrays of another shape would be read beyond their end by compiled code


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = made_series(8)
    place = tmp_path_factory.mktemp("model") / "m"
    CKSC(sparsity=2, kernel="dtw", random_state=0, tol=1.0).fit(data, data.labels).save(place)
    return place


def changed(array: NDArray[Any], value: Any) -> NDArray[Any]:
    array = array.copy()
    array.flat[-1] = value
    return array


FORGED: dict[str, Any] = {
    "dictionary_indices": lambda array: changed(array, 2**31 - 1),
    "codes_indices": lambda array: changed(array, -1),
    "dictionary_edges": lambda array: changed(array, 2**31 - 1),
    "codes_edges": lambda array: changed(array, 0),  # as if it were empty
    "support": lambda array: changed(array, 10**6),
    "train_labels": lambda array: changed(array, 7),
    "gram": lambda array: array[:2, :2],
    "class_weight": lambda array: array[:, :1],
    "overlap": lambda array: changed(array, np.nan),
    "input_columns": lambda array: changed(array, 10**9),
    "input_series_offsets": lambda array: changed(array, 10**9),
    "input_series_values": lambda array: array.astype(np.float32),
    "input_bandwidth": lambda array: -array,
}


@pytest.mark.parametrize("name", FORGED)
def test_a_model_whose_arrays_do_not_fit_is_refused(model: Path, tmp_path: Path, name: str) -> None:
    kind, arrays, settings = read_model(model)
    write_model(tmp_path / "m", kind, arrays | {name: FORGED[name](arrays[name])}, settings)
    with pytest.raises(ModelFileError, match=r"m does not hold together \(.*\); save the model again"):
        load_model(tmp_path / "m")


@pytest.mark.parametrize(
    "change",
    [
        {"parameters": 1},
        {"parameters": {"no_such": 1}},
        {"spec": {"sparsity": -1}},
        {"input": "../x"},
        {"classes": ["a", 1]},
        {"classes": ["a", "a"]},
        {"class_type": "<U999999999"},
        {"class_type": "O"},
        {"beta": "x"},
        {"distance": {"metric": "none"}},
    ],
    ids=str,
)
def test_a_model_whose_settings_make_none_is_refused(model: Path, tmp_path: Path, change: dict[str, Any]) -> None:
    kind, arrays, settings = read_model(model)
    write_model(tmp_path / "m", kind, arrays, settings | change)
    with pytest.raises(ModelFileError, match=r"m does not hold together"):
        load_model(tmp_path / "m")
