"""``cksc train``: from series to a model on the command line, what it says on the way, and what it says is wrong."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from cksc_dist import SeriesSet, load_model, open_matrix
from cksc_dist.cli import main
from cksc_dist.dist.distances import compute_distances
from cksc_dist.dist.ingest import ingest
from cksc_dist.io import make_gestures, write_npz
from cksc_dist.spec import DistanceSpec, RunSpec
from cksc_dist.store.folder import Folder
from cksc_dist.store.kernel_copy import find_copies

DATA = make_gestures(n_per_class=20, length=(6, 12))
QUICK = ("--sparsity", "3", "--tol", "0.02")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("template") / "gestures.zarr"
    ingest(DATA, store)
    compute_distances(store, run=RunSpec(executor="serial"))
    return store


@pytest.fixture
def store(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template, tmp_path / "gestures.zarr"))


def run(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> str:
    """Run the command, and return what it printed; of one that fails, what is on stderr."""
    capsys.readouterr()
    assert main([str(argument) for argument in arguments]) == code
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return captured.err if code else captured.out


def rows_of(model: Path) -> int:
    return int(load_model(model).n_train_)


def test_from_series_to_decisions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, new, store, model = (tmp_path / name for name in ("old.npz", "new.npz", "gestures.zarr", "model"))
    write_npz(source, DATA)
    write_npz(new, make_gestures(n_per_class=3, length=(6, 12), random_state=8))
    run(capsys, "ingest", source, store)
    run(capsys, "distances", store)
    said = run(capsys, "train", store, model, *QUICK, "--hold-out", "0.25", "--seed", "3")
    assert re.search(r"training on 60 of 80 rows", said)
    assert re.search(r"^training in memory: the kernel takes 0\.0 MB, and .* are free: nothing is faster", said, re.M)
    assert re.search(r"^beta \S+ after \d passes over K, \S+ s; ", said, re.M)
    assert re.search(r"^alternation 1: J \S+ \(reconstruction \S+, ridge \S+, discrimination \S+\); codes ", said, re.M)
    assert re.search(r"^J .* \S+ to \S+, \d+ half steps$", said, re.M)
    assert re.search(r"^12 atoms after \d+ alternations; \d+ of 60 training series carry weight; mean", said, re.M)
    assert re.search(rf"^saved to {model} in .*; next: cksc predict {model} SOURCE$", said, re.M)
    found = re.search(r"^accuracy: (\S+)% of 20 series held out$", said, re.M)
    assert found is not None
    # the rows held out are in none of what was learnt; their series are classified the same way
    trained = load_model(model)
    origin = trained.origin_
    assert origin is not None
    assert float(found[1]) > 50
    predicted = run(capsys, "predict", model, new)
    assert "accuracy" in predicted
    assert origin["ids"][0].split("/")[0] in predicted
    again = run(capsys, "train", store, model, *QUICK, "--hold-out", "0.25", "--seed", "3")
    assert "is trained already, with these settings on these series; nothing to do" in again
    assert found[0] in again
    other = run(capsys, "train", store, model, *QUICK, "--hold-out", "0.25", "--seed", "4")
    assert "alternation 1:" in other  # other rows


def test_the_share_that_is_held_out_is_of_every_class_and_not_trained_on(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = run(capsys, "train", store, tmp_path / "model", *QUICK, "--hold-out", "0.5")
    model = load_model(tmp_path / "model")
    assert np.bincount(model._train_labels).tolist() == [10] * 4
    found = re.search(r"accuracy: (\S+)% of 40", said)
    assert found is not None


def test_settings_reach_the_model(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = "--sparsity 2 --alpha 0.35 --atoms-per-class 5 --recall reconstruction --schedule sequential"
    options += " --selection scaled --prune 0.05 --max-iter 40 --tol 0.03 --bandwidth median --factor 0.5 --seed 12"
    run(capsys, "train", store, tmp_path / "model", *options.split())
    model = load_model(tmp_path / "model")
    assert (model.sparsity, model.alpha, model.atoms_per_class, model.recall) == (2, 0.35, 5, "reconstruction")
    assert (model.schedule, model.selection, model.prune, model.max_iter) == ("sequential", "scaled", 0.05, 40)
    assert (model.tol, model.bandwidth, model.factor, model.random_state) == (0.03, "median", 0.5, 12)
    assert model.dictionary_.shape[1] == 20
    D = open_matrix(store)[:, :]
    assert model._source.transform.bandwidth_ == pytest.approx(2 * np.median(D) ** 2)  # type: ignore[attr-defined]
    run(capsys, "train", store, tmp_path / "clipped", *QUICK, "--repair", "clip")
    assert load_model(tmp_path / "clipped").repair == "clip"
    run(capsys, "train", store, tmp_path / "number", *QUICK, "--bandwidth", "7.5")
    assert load_model(tmp_path / "number").bandwidth == 7.5


def test_where_it_runs_is_said_and_can_be_forced(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = run(capsys, "train", store, tmp_path / "disk", *QUICK, "--train-on", "disk")
    assert "\ntraining from disk: as asked for\n" in said
    assert len(find_copies(Folder(store))) == 1
    said = run(capsys, "train", store, tmp_path / "small", *QUICK, "--memory", "20kB", "--seed", "1")
    assert re.search(r"training from disk: the kernel takes 0\.1 MB, and 0 MB .*; one machine reads it", said)
    assert "kept with the kernel copy" in said
    said = run(capsys, "train", store, tmp_path / "anew", *QUICK, "--train-on", "disk", "--seed", "2", "--new-kernel")
    assert "passes over K" in said
    run(capsys, "train", store, tmp_path / "last", *QUICK, "--train-on", "disk", "--seed", "3", "--drop-kernel")
    assert find_copies(Folder(store)) == []


@pytest.mark.filterwarnings("always::sklearn.exceptions.ConvergenceWarning")
def test_it_goes_on_and_begins_again_as_asked(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ("train", store, tmp_path / "model", "--sparsity", "3", "--tol", "0")
    assert main([*map(str, command), "--max-iter", "2"]) == 0
    captured = capsys.readouterr()
    assert "cksc: warning: J still changed by more than tol=0.0 after 2 alternations; run again with a" in captured.err
    said = run(capsys, *command, "--max-iter", "4")
    assert "going on after alternation 2" in said
    assert "after 4 alternations, 2 of them in earlier runs" in said
    said = run(capsys, *command, "--max-iter", "4", "--from-scratch")
    assert "alternation 1:" in said
    assert "earlier runs" not in said


# which rows


@pytest.mark.parametrize("kind", ["ids", "positions", "both", "npy", "mask"])
def test_rows_of_a_file(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str) -> None:
    rows = np.arange(1, 80, 2)
    names = {
        "ids": [str(name) for name in DATA.ids[rows]],
        "positions": [str(row) for row in rows],
        "both": [str(DATA.ids[row]) if row % 3 else str(row) for row in rows],
    }
    if kind in names:
        file = tmp_path / "rows.txt"
        file.write_text("\n" + "\r\n".join(f"  {name} " for name in names[kind]) + "\n\n", encoding="utf-8")
    else:
        file = tmp_path / "rows.npy"
        np.save(file, rows if kind == "npy" else np.isin(np.arange(80), rows))
    said = run(capsys, "train", store, tmp_path / "model", *QUICK, "--rows", file)
    assert "training on 40 of 80 rows" in said
    origin = load_model(tmp_path / "model").origin_
    assert origin is not None
    assert set(origin["rows"]) <= set(rows.tolist())
    assert rows_of(tmp_path / "model") == 40


def test_ids_that_are_numbers_are_ids(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = [str(100 - i) for i in range(80)]  # "30" is an id, and a position as well
    ingest(SeriesSet.from_list(DATA.series, DATA.labels, names), tmp_path / "store")
    compute_distances(tmp_path / "store", run=RunSpec(executor="serial"))
    (tmp_path / "rows.txt").write_text("\n".join(str(number) for number in range(25, 75)))
    run(capsys, "train", tmp_path / "store", tmp_path / "model", *QUICK, "--rows", tmp_path / "rows.txt")
    origin = load_model(tmp_path / "model").origin_
    assert origin is not None
    assert {int(name) for name in origin["ids"]} <= set(range(25, 75))


def test_a_row_that_is_named_twice_counts_once_and_is_not_held_out_from_itself(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rows.txt").write_text("\n".join([str(i) for i in range(0, 80, 2)] * 2))
    command = ("train", store, tmp_path / "model", *QUICK, "--rows", tmp_path / "rows.txt")
    said = run(capsys, *command, "--hold-out", "0.5")
    assert "training on 20 of 80 rows" in said
    assert "of 20 series held out" in said


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"gesture0/0\nnobody\n", "rows.txt, line 2: 'nobody' is neither an id nor a position among 80 rows"),
        (b"\n79\n80\n", "rows.txt, line 3: '80' is neither an id nor a position among 80 rows"),
        (b"-1\n", "rows.txt, line 1: '-1' is neither an id nor a position among 80 rows"),
        ("²\n".encode(), "rows.txt, line 1: '²' is neither an id nor a position among 80 rows"),
        (b"", "rows.txt: names no rows"),
        (b"\xff\xfe\x00", "rows.txt: is no text"),
    ],
)
def test_rows_that_are_none(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, words: str
) -> None:
    (tmp_path / "rows.txt").write_bytes(content)
    said = run(capsys, "train", store, tmp_path / "model", "--rows", tmp_path / "rows.txt", code=2)
    assert words in said
    assert not list(tmp_path.glob("model*"))


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("absent.txt", None, "absent.txt"),
        ("absent.npy", None, "absent.npy"),
        ("bad.npy", b"not an array", "bad.npy: is no array of positions"),
        ("floats.npy", np.array([0.5, 2.0]), "rows: arrays used as indices must be of integer (or boolean) type"),
        ("large.npy", np.array([3, 80]), "there are 80 rows"),
        ("mask.npy", np.ones(79, dtype=bool), "there are 80 rows, give positions or a mask of as many"),
        ("pickled.npy", np.array([{}], dtype=object), "pickled.npy: is no array of positions"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_files_of_rows_that_are_none(
    store: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    content: object,
    words: str,
) -> None:
    if isinstance(content, bytes):
        (tmp_path / name).write_bytes(content)
    elif isinstance(content, np.ndarray):
        np.save(tmp_path / name, content)
    said = run(capsys, "train", store, tmp_path / "model", "--rows", tmp_path / name, code=2)
    assert words in said
    assert not list(tmp_path.glob("model*"))


# what cannot be done


def test_a_hold_out_that_is_not_possible(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = run(capsys, "train", store, tmp_path / "model", "--hold-out", "0.01", code=2)
    assert "cksc: error: --hold-out 0.01 of these 80 rows is not possible: " in said
    for share in ("0", "1", "half", "-0.5", "nan"):
        with pytest.raises(SystemExit) as ended:
            main(["train", str(store), str(tmp_path / "model"), f"--hold-out={share}"])
        assert ended.value.code == 2
        assert f"'{share}' is not a share between 0 and 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--alpha", "-1"), "alpha=-1.0: must be a number in [0, 1e+06]"),
        (("--bandwidth", "wide"), "bandwidth='wide': must be one of 'mean', 'median', 'paper'"),
        (("--factor", "0"), "factor=0.0: must be a number in (0, 1e+300]"),
        (("--repair", "clip", "--train-on", "disk"), "repair='clip' needs all eigenvalues of the kernel, in memory"),
        (("--distances", "zz"), "has no such matrix; compute one with: cksc distances"),
        (("--train-on", "cluster", "--scheduler", "nonsense://nowhere"), "no scheduler answers at nonsense://nowhere"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_options_that_cannot_be(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], words: str
) -> None:
    said = run(capsys, "train", store, tmp_path / "model", *options, code=2)
    assert said.startswith("cksc: error: ")
    assert words in said
    assert not list(tmp_path.glob("model*"))


def test_stores_that_cannot_be_trained_on(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tmp_path / "model"
    assert "absent" in run(capsys, "train", tmp_path / "absent", model, code=2)
    ingest(DATA, tmp_path / "alone.zarr")
    said = run(capsys, "train", tmp_path / "alone.zarr", model, code=2)
    assert f"compute one with: cksc distances {tmp_path / 'alone.zarr'}" in said
    compute_distances(store, DistanceSpec(window=2), RunSpec(executor="serial"))
    said = run(capsys, "train", store, model, code=2)
    assert "holds several finished matrices; choose one by the first letters:" in said
    names = re.findall(r"^  ([0-9a-f]{16})  dtw", said, re.M)
    assert len(names) == 2
    for name in names:
        run(capsys, "train", store, tmp_path / f"model-{name}", *QUICK, "--distances", name[:6])
    windows = {load_model(tmp_path / f"model-{name}").window for name in names}
    assert windows == {None, 2}


def test_a_place_that_is_no_model(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "today.txt").write_text("mine")
    said = run(capsys, "train", store, tmp_path / "notes", *QUICK, code=2)
    assert "notes exists and is no saved model; choose another name or remove it" in said
    assert [path.name for path in (tmp_path / "notes").iterdir()] == ["today.txt"]


def test_help_is_enough_to_use_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["train", "--help"])
    assert ended.value.code == 0
    out = re.sub(r"\s+", " ", capsys.readouterr().out)
    for words in (
        "STORE MODEL",
        "--train-on {auto,memory,disk,cluster}",
        "--rows FILE",
        "--hold-out SHARE",
        "--from-scratch",
        "--new-kernel",
        "--drop-kernel",
        "--distances PREFIX",
        "--sparsity T0",
        "--scheduler ADDR",
        "--workers N",
        "--memory SIZE",
        "kill it whenever you like, run it again, and it goes on where it stopped",
        "cksc train taps.zarr model --sparsity 8 --alpha 0.2 --hold-out 0.5",
    ):
        assert words in out
    with pytest.raises(SystemExit):
        main(["--help"])
    assert re.search(r"^    train +Train CKSC on the finished distance matrix", capsys.readouterr().out, re.M)
