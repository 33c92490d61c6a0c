"""Saved models: the same bits come back, damage is noticed, and nothing is lost when writing stops halfway."""

from __future__ import annotations

import json
import os
import pickle
import pickletools
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import zarr
from scipy.spatial.distance import cdist
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from cksc_dist import CKSC, load_model
from cksc_dist.errors import ModelFileError, StoreError
from cksc_dist.io import make_gestures
from cksc_dist.processes import signature
from cksc_dist.store.model_files import files_of_a_model, read_model, write_model

LABELS: dict[str, Any] = {
    "str": ["fünf", "a b", "c"],
    "int": [-7, 0, 2**40],
    "int8": np.array([3, 4, 5], np.int8),
    "bool": [False, True],
}


class Case(NamedTuple):
    """A fitted model and samples to try it on, one of them far away."""

    model: CKSC
    new: Any


def make_case(kernel: str, kind: str = "str", **parameters: Any) -> Case:
    names = np.asarray(LABELS[kind])
    y = names[np.arange(36) % len(names)]
    defaults: dict[str, Any] = {"sparsity": 3, "kernel": kernel, "random_state": 0, "tol": 0.01}
    model = CKSC(**defaults | parameters)
    if kernel == "dtw":
        data = make_gestures(24, len(names), dims=2, length=(8, 16))
        classes = np.unique(data.labels, return_inverse=True)[1]
        order = np.random.default_rng(0).permutation(len(data))
        train, test = order[::2], order[1::2]
        far = [1e12 * np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])]
        return Case(model.fit(data.select(train), names[classes[train]]), data.select(test).series + far)
    X = np.random.default_rng(0).standard_normal((72, 2)) + 2.0 * (np.arange(72) % len(names))[:, None]
    if kernel == "rbf":
        return Case(model.fit(X[:36], y), np.vstack([X[36:], [[1e9, 1e9]]]))
    K = np.exp(-(cdist(X, X[:36]) ** 2) / 4)
    return Case(model.fit(K[:36], y), np.vstack([K[36:], np.zeros(36)]))


@pytest.fixture(scope="module")
def case() -> Case:
    return make_case("precomputed")


@pytest.fixture
def saved(case: Case, tmp_path: Path) -> Path:
    case.model.save(tmp_path / "model")
    return tmp_path / "model"


def answers(model: CKSC, new: Any) -> list[Any]:
    """All that a model can say about samples, as bytes."""
    arrays = [model.predict(new), model.class_shares(new), model.decision_function(new), model.transform(new)]
    arrays += [model.objective_history_, model.interpretability_, model.support_, model.classes_]
    arrays += [model.dictionary_.toarray(), model.codes_.toarray(), np.array([model.beta_, model.n_iter_])]
    arrays += list(model.objective_terms_.values())
    explained = [repr(model.explain(z, top=99)) for z in (new[0], new[-1])]
    return [(array.dtype.str, array.shape, array.tobytes()) for array in arrays] + explained


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in files(folder)}


@pytest.mark.parametrize(
    ("kernel", "kind", "parameters"),
    [
        ("precomputed", "str", {}),
        ("precomputed", "int", {"recall": "reconstruction", "alpha": 0.5}),
        ("precomputed", "int8", {"prune": 0.1, "selection": "plain"}),
        ("precomputed", "bool", {"sparsity": np.int64(2), "alpha": np.float32(0.25)}),
        ("rbf", "str", {}),
        ("rbf", "bool", {"gamma": 0.3}),
        ("dtw", "str", {}),
        ("dtw", "int", {"repair": "clip", "factor": 9.0}),
        ("dtw", "bool", {"repair": "flip", "factor": 9.0}),
        ("dtw", "str", {"mode": "independent", "window": 0.3, "bandwidth": np.float32(30)}),
        ("dtw", "int", {"cost": "abs", "normalise": "z", "window": np.int64(5), "bandwidth": "median"}),
    ],
)
def test_a_model_comes_back_to_the_bit(kernel: str, kind: str, parameters: dict[str, Any], tmp_path: Path) -> None:
    model, new = make_case(kernel, kind, **parameters)
    model.save(tmp_path / "model")
    for again in (load_model(tmp_path / "model"), CKSC.load(str(tmp_path / "model"))):
        assert answers(again, new) == answers(model, new)
        assert again.get_params() == model.get_params()
        assert again.saved_distances(3) == model.saved_distances(3)
        assert (again.n_features_in_, again.n_train_) == (model.n_features_in_, model.n_train_)
    if "repair" in parameters:
        repair = model._source.transform.spectral_repair_  # type: ignore[attr-defined]
        assert len(repair.eigenvalues)  # there was something to repair, and so to save


def test_a_loaded_model_is_an_estimator_like_any_other(case: Case, saved: Path, tmp_path: Path) -> None:
    again = load_model(saved)
    again.save(tmp_path / "copy")
    assert contents(tmp_path / "copy") == contents(saved)
    K = np.exp(-cdist(np.arange(8.0)[:, None], np.arange(8.0)[:, None]))
    for model in (clone(again), again):
        assert model.fit(K, [5] * 4 + [6] * 4).predict(K).tolist() == [5] * 4 + [6] * 4


def test_parameters_set_after_fit_do_not_sneak_into_the_file(tmp_path: Path) -> None:
    model, new = make_case("precomputed")
    before = model.class_shares(new)
    model.set_params(alpha=0.9, recall="reconstruction", sparsity=1, kernel="dtw", prune=0.5)
    model.save(tmp_path / "model")
    again = load_model(tmp_path / "model")
    assert np.array_equal(again.class_shares(new), before)
    assert again.get_params() == model.get_params()


def test_a_generator_is_saved_as_none(tmp_path: Path) -> None:
    model, new = make_case("precomputed", random_state=np.random.RandomState(0))
    model.save(tmp_path / "model")
    again = load_model(tmp_path / "model")
    assert again.random_state is None
    assert np.array_equal(again.class_shares(new), model.class_shares(new))


def test_names_of_features_come_back(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    X = pandas.DataFrame({"height": np.arange(12.0), "width": np.arange(12.0) % 5})
    model = CKSC(sparsity=2, kernel="rbf", random_state=0, tol=0.01).fit(X, np.repeat(["a", "b"], 6))
    model.save(tmp_path / "model")
    again = load_model(tmp_path / "model")
    assert np.array_equal(again.predict(X), model.predict(X))  # a warning about names would be an error
    assert again.feature_names_in_.tolist() == ["height", "width"]


def test_same_model_same_bytes(case: Case, saved: Path, tmp_path: Path) -> None:
    case.model.save(tmp_path / "other")
    assert contents(saved) == contents(tmp_path / "other")


# nothing but Zarr and JSON


@pytest.mark.parametrize("kernel", ["precomputed", "rbf", "dtw"])
def test_the_folder_holds_zarr_and_json_alone(kernel: str, tmp_path: Path) -> None:
    make_case(kernel).model.save(tmp_path / "model")
    group = zarr.open_group(tmp_path / "model", mode="r")
    for name, array in group.arrays():
        assert array.dtype.kind in "iufb", name
        assert "crc32c" in json.dumps(array.metadata.to_dict()["codecs"]), name
    for path in files(tmp_path / "model"):
        content = path.read_bytes()
        if path.name == "zarr.json":
            assert json.loads(content)["zarr_format"] == 3
        else:
            assert path.parts[len(tmp_path.parts) + 2] == "c", f"{path} is no chunk"
        with pytest.raises(ValueError, match=r"opcode|pickle|unpack|newline|expected"):
            list(pickletools.genops(content))
    assert os.listdir(tmp_path) == ["model"]


def test_neither_writing_nor_reading_pickles(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: Any, **__: Any) -> None:
        raise AssertionError("pickle was used")

    for name in ("dump", "dumps", "load", "loads", "Pickler", "Unpickler"):
        monkeypatch.setattr(pickle, name, forbidden)
    case.model.save(tmp_path / "model")
    assert load_model(tmp_path / "model").n_train_ == 36


# damage


@pytest.mark.parametrize("kernel", ["precomputed", "dtw"])
def test_a_flipped_bit_in_any_file_is_noticed_or_does_no_harm(kernel: str, tmp_path: Path) -> None:
    model, new = make_case(kernel, "str", repair="clip" if kernel == "dtw" else None)
    model.save(tmp_path / "model")
    expected = answers(model, new)
    rng = np.random.default_rng(0)
    noticed: dict[str, int] = {}
    for path in files(tmp_path / "model"):
        content = path.read_bytes()
        root = path.parent == tmp_path / "model"
        places = rng.choice(len(content), min(len(content), 25 if root else 2), replace=False)
        for place in places:
            damaged = bytearray(content)
            damaged[place] ^= 1 << int(rng.integers(8))
            path.write_bytes(bytes(damaged))
            kind = "root" if root else "chunk" if path.name != "zarr.json" else "header"
            try:
                again = load_model(tmp_path / "model")
            except ModelFileError as error:
                noticed[kind] = noticed.get(kind, 0) + 1
                if "model" not in str(error):
                    pytest.fail(f"no word of what is damaged: {error}")
            else:
                assert kind != "chunk", f"{path}: byte {place}"  # a checksum covers these
                assert answers(again, new) == expected, f"{path}: byte {place}"
            path.write_bytes(content)
    assert answers(load_model(tmp_path / "model"), new) == expected
    assert min(noticed["root"], noticed["chunk"], noticed["header"]) > 5


def test_a_file_cut_short_emptied_or_missing_is_noticed(case: Case, saved: Path) -> None:
    expected = answers(case.model, case.new)
    for path in files(saved):
        content = path.read_bytes()
        for change in (content[:-1], b"", None):
            path.unlink()
            if change is not None:
                path.write_bytes(change)
            with pytest.raises(ModelFileError):
                load_model(saved)
            path.write_bytes(content)
    assert answers(load_model(saved), case.new) == expected


def test_parts_of_two_models_do_not_mix(case: Case, saved: Path, tmp_path: Path) -> None:
    make_case("precomputed", random_state=1).model.save(tmp_path / "other")
    shutil.rmtree(saved / "gram")
    shutil.copytree(tmp_path / "other" / "gram", saved / "gram")
    with pytest.raises(ModelFileError, match=r"model is damaged: its digest does not match; save the model again"):
        load_model(saved)


def edit(path: Path, **changes: Any) -> None:
    metadata = json.loads((path / "zarr.json").read_text())
    metadata["attributes"] |= changes
    (path / "zarr.json").write_text(json.dumps(metadata))


def test_a_setting_changed_by_hand_is_noticed(saved: Path) -> None:
    settings = json.loads((saved / "zarr.json").read_text())["attributes"]["settings"]
    settings["beta"] += 0.1
    edit(saved, settings=settings)
    with pytest.raises(ModelFileError, match="its digest does not match"):
        load_model(saved)


def test_a_newer_version_says_what_to_do(saved: Path) -> None:
    edit(saved, version=2)
    with pytest.raises(ModelFileError, match=r"model has version 2, but this release reads version 1; train the"):
        load_model(saved)


def test_what_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"absent does not exist; give the folder that save\(\) wrote"):
        load_model(tmp_path / "absent")
    (tmp_path / "notes.txt").write_text("hello")
    zarr.create_group(store=tmp_path / "group").create_array("x", shape=(2,), dtype="f8")
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "zarr.json").write_text("[1, 2")
    (tmp_path / "list").mkdir()
    (tmp_path / "list" / "zarr.json").write_text('{"attributes": [1]}')
    for name in ("notes.txt", "group", "empty", "broken", "list"):
        with pytest.raises(ModelFileError, match=rf"{name} is no saved model; give the folder that save\(\) wrote"):
            load_model(tmp_path / name)


def test_a_model_of_another_class(tmp_path: Path) -> None:
    write_model(tmp_path / "other", "Foreign", {"gram": np.eye(2)}, {})
    with pytest.raises(ModelFileError, match="other holds a model of class Foreign; this version knows CKSC"):
        load_model(tmp_path / "other")
    with pytest.raises(ModelFileError, match="other holds a model of class Foreign, not CKSC"):
        CKSC.load(tmp_path / "other")


# writing


def test_arrays_of_every_shape_and_kind_come_back(tmp_path: Path) -> None:
    arrays = {
        "scalar": np.array(3.5),
        "empty": np.zeros((0, 4)),
        "zeros": np.zeros((3, 2), dtype=np.int32),
        "flags": np.array([True, False]),
        "tiny": np.array([5e-324, -0.0, np.inf]),
        "columns": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    }
    write_model(tmp_path / "m", "Any", arrays, {"text": "ü", "number": 0.1, "nothing": None, "list": [1, [2]]})
    name, again, settings = read_model(tmp_path / "m")
    assert name == "Any"
    assert settings == {"text": "ü", "number": 0.1, "nothing": None, "list": [1, [2]]}
    assert again.keys() == arrays.keys()
    for key, array in arrays.items():
        assert (again[key].dtype, again[key].shape) == (array.dtype, array.shape)
        assert again[key].tobytes() == array.tobytes()


def test_only_what_is_fitted_can_be_saved(tmp_path: Path) -> None:
    with pytest.raises(NotFittedError):
        CKSC().save(tmp_path / "model")
    assert not files(tmp_path)


def test_folders_above_are_made(case: Case, tmp_path: Path) -> None:
    case.model.save(tmp_path / "models" / "of today" / "first")
    assert load_model(tmp_path / "models" / "of today" / "first").n_train_ == 36


def test_saving_twice_replaces_the_model_and_leaves_no_trace(case: Case, saved: Path) -> None:
    other, new = make_case("rbf")
    other.save(saved)
    assert answers(load_model(saved), new) == answers(other, new)
    assert os.listdir(saved.parent) == ["model"]
    case.model.save(saved)
    assert answers(load_model(saved), case.new) == answers(case.model, case.new)


@pytest.mark.parametrize("kind", ["folder", "empty folder", "file", "zarr group"])
def test_what_is_no_model_is_never_overwritten(case: Case, tmp_path: Path, kind: str) -> None:
    target = tmp_path / "precious"
    if kind == "file":
        target.write_text("thesis")
    elif kind == "zarr group":
        zarr.create_group(store=target).create_array("x", data=np.arange(3))
    else:
        target.mkdir()
    if kind == "folder":
        (target / "thesis.tex").write_text("thesis")
    before = contents(tmp_path)
    with pytest.raises(ModelFileError, match="precious exists and is no saved model; choose another name or remove"):
        case.model.save(target)
    assert contents(tmp_path) == before
    assert target.exists()


@pytest.mark.parametrize("stop", [OSError("disk full"), KeyboardInterrupt()])
@pytest.mark.parametrize("earlier", [True, False])
def test_a_write_that_stops_halfway_leaves_the_old_model(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: BaseException, earlier: bool
) -> None:
    target = tmp_path / "model"
    if earlier:
        case.model.save(target)
    before = contents(tmp_path)
    create, count = zarr.Group.create_array, 0

    def fails_in_the_middle(self: Any, *arguments: Any, **options: Any) -> Any:
        nonlocal count
        count += 1
        if count == 5:
            raise stop
        return create(self, *arguments, **options)

    monkeypatch.setattr(zarr.Group, "create_array", fails_in_the_middle)
    with pytest.raises(type(stop)):
        make_case("rbf").model.save(target)
    assert count == 5
    assert contents(tmp_path) == before
    assert os.listdir(tmp_path) == (["model"] if earlier else [])


@pytest.mark.parametrize("earlier", [True, False])
def test_a_rename_that_fails_puts_the_old_model_back(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, earlier: bool
) -> None:
    target = tmp_path / "model"
    if earlier:
        case.model.save(target)
    before = contents(tmp_path)
    rename = Path.rename

    def fails_for_the_new_one(self: Path, to: Path) -> Path:
        if self.name.endswith(".partial") and not to.exists():
            raise PermissionError("not allowed")
        return rename(self, to)

    monkeypatch.setattr(Path, "rename", fails_for_the_new_one)
    with pytest.raises(StoreError, match=r"model cannot be written \(not allowed\): .* see to the permissions"):
        make_case("rbf").model.save(target)
    assert contents(tmp_path) == before
    assert os.listdir(tmp_path) == (["model"] if earlier else [])


@pytest.fixture(scope="module")
def dead_process() -> str:
    """The word for a process that has ended: it had the number of this one, as it may be in a container."""
    here, process, born = signature().split("-")
    return f"{here}-{process}-{int(born) - 60}"


def left_behind(target: Path, process: str, role: str) -> Path:
    return target.with_name(f"{target.name}.{process}.{'0' * 32}.{role}")


def test_what_a_killed_process_left_behind_is_removed(case: Case, tmp_path: Path, dead_process: str) -> None:
    target = tmp_path / "model"
    for role in ("partial", "replaced"):
        left_behind(target, dead_process, role).mkdir()
        left_behind(target, signature(), role).mkdir()  # still being written
        left_behind(tmp_path / "model.old", dead_process, role).mkdir()  # of another model
        (left_behind(target, dead_process, role) / "zarr.json").write_text("half")
    case.model.save(target)
    case.model.save(target)
    assert load_model(target).n_train_ == 36
    kept = [left_behind(target, signature(), role) for role in ("partial", "replaced")]
    kept += [left_behind(tmp_path / "model.old", dead_process, role) for role in ("partial", "replaced")]
    assert sorted(tmp_path.iterdir()) == sorted([target, *kept])


def test_a_replacement_killed_between_its_renames_is_undone(tmp_path: Path, dead_process: str) -> None:
    target = tmp_path / "model"
    aside = left_behind(target, dead_process, "replaced")
    write_model(target, "CKSC", {"x": np.arange(3)}, {"version": "old"})
    target.rename(aside)
    _, arrays, settings = read_model(target)
    assert settings == {"version": "old"}
    assert arrays["x"].tolist() == [0, 1, 2]
    assert list(tmp_path.iterdir()) == [aside]  # a reader moves nothing: a writer may be about to
    with pytest.raises(TypeError, match="JSON"):
        write_model(target, "CKSC", {"x": np.arange(4)}, {"version": object()})
    assert list(tmp_path.iterdir()) == [target]  # put back, although the new model failed
    target.rename(aside)
    write_model(target, "CKSC", {"x": np.arange(4)}, {"version": "new"})
    assert read_model(target)[2] == {"version": "new"}
    assert list(tmp_path.iterdir()) == [target]


def test_what_a_living_writer_set_aside_is_read_but_not_put_back(tmp_path: Path) -> None:
    target = tmp_path / "model"
    aside = left_behind(target, signature(), "replaced")
    write_model(target, "CKSC", {"x": np.arange(3)}, {"version": "old"})
    target.rename(aside)
    assert read_model(target)[2] == {"version": "old"}
    write_model(target, "CKSC", {"x": np.arange(3)}, {"version": "new"})
    assert aside.exists()
    assert read_model(target)[2] == {"version": "new"}


def test_a_model_named_like_the_start_of_another_is_not_mistaken_for_it(tmp_path: Path, dead_process: str) -> None:
    write_model(tmp_path / "model.old", "CKSC", {"x": np.arange(3)}, {})
    (tmp_path / "model.old").rename(left_behind(tmp_path / "model.old", dead_process, "replaced"))
    with pytest.raises(ModelFileError, match="model does not exist"):
        read_model(tmp_path / "model")


def test_threads_that_save_and_read_one_path_see_whole_models(tmp_path: Path) -> None:
    target = tmp_path / "model"

    def save(k: int) -> None:
        write_model(target, "CKSC", {"x": np.full(5, k), "y": np.full(7, k)}, {"k": k})

    def load(_: int) -> None:
        _, arrays, settings = read_model(target)
        assert set(arrays["x"]) == set(arrays["y"]) == {settings["k"]}

    save(0)
    with ThreadPoolExecutor(6) as pool:
        tasks = [pool.submit(load if k % 2 else save, k) for k in range(60)]
    for task in tasks:
        task.result()
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("word", [b'"files"', b'"sha256"', b'"digest"', b'"settings"', b'"model"'])
def test_a_changed_word_of_the_attributes_is_that_of_the_file(tmp_path: Path, word: bytes) -> None:
    """One without its list of files is not taken for a model of an older release, which had none."""
    write_model(tmp_path / "model", "CKSC", {"a": np.arange(3.0)}, {"b": 1})
    path = tmp_path / "model" / "zarr.json"
    content = path.read_bytes()
    assert files_of_a_model(tmp_path / "model")[2] == []
    path.write_bytes(content.replace(word, word.replace(b"e", b"E", 1).replace(b"sha", b"shA"), 1))
    assert files_of_a_model(tmp_path / "model")[2] == ["zarr.json"]


@pytest.mark.parametrize("content", [b"", b"{", b'{"attributes": {"format": "cksc_dist modem"}}', None])
def test_a_model_whose_attributes_are_lost_names_their_file(tmp_path: Path, content: bytes | None) -> None:
    write_model(tmp_path / "model", "CKSC", {"a": np.arange(3.0)}, {"b": 1})
    path = tmp_path / "model" / "zarr.json"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ModelFileError, match=r"/model/zarr\.json is lost, or not what was written"):
        files_of_a_model(tmp_path / "model")
