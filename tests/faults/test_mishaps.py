"""What people do by mistake, and what systems do to programs: nothing is lost, and it is said what to do."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cksc_dist import CKSC, SeriesSet, load_model, open_matrix, pairwise_dtw
from cksc_dist.cli import main
from cksc_dist.commands.program import prepared
from cksc_dist.dist.distances import compute_distances
from cksc_dist.dist.ingest import ingest, ingest_distances
from cksc_dist.errors import InputError, StoreError
from cksc_dist.io import make_gestures, write_npz
from cksc_dist.maths import code_cache
from cksc_dist.models.training import train
from cksc_dist.spec import DistanceSpec, ModelSpec
from cksc_dist.store.folder import Folder
from cksc_dist.store.lease import Lease
from cksc_dist.store.matrix_files import MatrixFiles, find_matrices
from tests.dist.processes import CKSC as COMMAND
from tests.dist.processes import Starter, starter, wait_until
from tests.small_stores import chunk_path, files_below, flip_bit, made_series, small_tiles


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Series, a store of them and a model."""
    path = tmp_path_factory.mktemp("mishaps")
    data = make_gestures(n_per_class=6, n_classes=2, length=(8, 12))
    write_npz(path / "series.npz", data)
    ingest(data, path / "store")
    compute_distances(path / "store")
    CKSC(sparsity=2, kernel="dtw", random_state=0).fit(data, data.labels).save(path / "model")
    return path


@pytest.fixture
def place(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template, tmp_path / "place"))


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Starter]:
    with starter(tmp_path) as started:
        yield started


def refused(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    """Run a command that is refused, and return what it says."""
    capsys.readouterr()
    assert main([str(word) for word in words]) == 2
    return capsys.readouterr().err


@pytest.mark.parametrize("target", ["series.npz", "model/zarr.json", "store/zarr.json", "store/series/0", "."])
def test_an_output_never_takes_the_place_of_data(place: Path, target: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = files_below(place)
    error = refused(capsys, "predict", place / "model", place / "series.npz", "--json", place / target)
    assert "choose another" in error or "give the name of a file" in error
    if target != "series.npz":
        error = refused(capsys, "report", place / "model", "--output", place / target)
        assert "lies inside" in error or "is a folder" in error
        words = ("evaluate", place / "store", "--quick", "--report", place / target)
        assert "a store or model" in refused(capsys, *words) or target == "."
    assert files_below(place) == before


def test_decisions_appear_whole_or_not_at_all(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cksc_dist.commands import predict

    words = ["predict", str(place / "model"), str(place / "series.npz"), "--json", str(place / "new" / "lines.jsonl")]
    assert main(words) == 0
    whole = (place / "new" / "lines.jsonl").read_bytes()

    def cut(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(predict, "_put", cut)
    assert main(words) == 130
    assert files_below(place / "new") == {"lines.jsonl": whole}
    monkeypatch.undo()
    os.mkfifo(place / "pipe")
    with subprocess.Popen(["cat", place / "pipe"], stdout=subprocess.PIPE) as reader:
        assert main([*words[:-1], str(place / "pipe")]) == 0
        assert reader.communicate()[0] == whole


def test_a_model_behind_a_link_is_replaced_where_it_is(place: Path) -> None:
    (place / "latest").symlink_to("model")
    train(place / "store", place / "latest", spec=ModelSpec(sparsity=2, max_iter=60), seed=3, place="memory")
    assert (place / "latest").is_symlink()
    assert (load_model(place / "model").origin_ or {})["store"] == str(place / "store")


@pytest.mark.parametrize("name", ["", "x" * 230, "."])
def test_a_model_that_cannot_be_saved_is_told_before_it_is_trained(
    place: Path, name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    before = files_below(place)
    assert "name" in refused(capsys, "train", place / "store", name)
    if name:
        assert "name" in refused(capsys, "demo", "--save", name)
    assert files_below(place) == before


def test_a_store_inside_a_store_is_refused(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = files_below(place)
    error = refused(capsys, "ingest", place / "series.npz", place / "store" / "inner")
    assert "lies inside" in error
    assert "another store or model; choose another place" in error
    assert files_below(place) == before
    assert not (place / "store" / "inner").exists()


def test_series_without_labels_are_no_class(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = make_gestures(n_per_class=6, n_classes=2, length=(8, 12))
    labels = np.where(np.arange(12) % 3 == 0, "?", data.labels)
    ingest(SeriesSet.from_list(data.series, labels, data.ids.tolist()), tmp_path / "store")
    compute_distances(tmp_path / "store")
    words = r"4 of 12 rows have the label '\?', which stands for an unknown one, the first of them row 0; choose label"
    with pytest.raises(InputError, match=words):
        train(tmp_path / "store", tmp_path / "model", spec=ModelSpec(sparsity=2))
    assert "rows have the label '?'" in refused(capsys, "evaluate", tmp_path / "store")
    assert main(["train", str(tmp_path / "store"), str(tmp_path / "model"), "--sparsity", "2"]) == 0
    assert "4 rows have no label (?), and are left out" in capsys.readouterr().out
    assert load_model(tmp_path / "model").classes_.tolist() == ["gesture0", "gesture1"]


def test_a_ready_matrix_in_the_place_of_series_leaves_nothing_that_nobody_can_finish(place: Path) -> None:
    other = pairwise_dtw(made_series(7))
    ingest_distances(other, place / "store", replace=True)
    (files,) = find_matrices(Folder(place / "store")).values()
    assert files.spec.metric == "external"
    assert main(["verify", str(place / "store")]) == 0


def test_a_ready_matrix_that_is_there_is_left_tidy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by a kill after the last tile: its marks and its lock are still there."""
    small_tiles(monkeypatch)
    D = pairwise_dtw(made_series(40))
    with monkeypatch.context() as patch:
        patch.setattr("cksc_dist.store.ledger.Ledger.collect", lambda self: None)
        name = ingest_distances(D, tmp_path / "store")
    assert list((tmp_path / "store" / "ledger" / name / "done").iterdir())
    assert ingest_distances(D, tmp_path / "store") == name
    assert sorted(path.name for path in (tmp_path / "store" / "ledger" / name).rglob("*.json")) == ["tiles.json"]


@pytest.mark.parametrize("replace", [True, False])
@pytest.mark.parametrize("with_series", [True, False])
@pytest.mark.parametrize("damage", [flip_bit, lambda path: path.write_bytes(b""), Path.unlink])
def test_a_damaged_ready_matrix_is_whole_once_it_is_ingested_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[Path], None], with_series: bool, replace: bool
) -> None:
    """It is what a user is told to do; only what is damaged is written."""
    small_tiles(monkeypatch)
    data, store = made_series(40), tmp_path / "store"
    D, own = pairwise_dtw(data), {"data": data} if with_series else {}
    ingest_distances(D, store, **own)
    whole = files_below(store)
    write, written = MatrixFiles.write_tile, []

    def seen(self: MatrixFiles, tile: Any, values: Any) -> None:
        written.append(tile)
        write(self, tile, values)

    for chunk in ((0, 0), (2, 1)):
        damage(chunk_path(store, *chunk))
    monkeypatch.setattr(MatrixFiles, "write_tile", seen)
    ingest_distances(D, store, replace=replace, **own)
    assert written == [(0, 0), (1, 2)]
    assert {name for name, content in files_below(store).items() if content != whole.get(name)} <= {
        name for name in whole if name.endswith("tiles.json")
    }
    assert main(["verify", str(store)]) == 0


def test_a_ready_matrix_does_not_pass_for_that_of_other_series(tmp_path: Path) -> None:
    data, other, store = made_series(12), made_series(12, seed=1, prefix="other"), tmp_path / "store"
    D = pairwise_dtw(data)
    ingest_distances(D, store, data=data)
    before = files_below(store)
    with pytest.raises(StoreError, match="holds other series; add these with cksc append, put them in their place"):
        ingest_distances(D, store, data=other)
    assert files_below(store) == before
    ingest_distances(D, tmp_path / "rows", labels=data.labels, ids=data.ids)
    with pytest.raises(StoreError, match="holds other series"):
        ingest_distances(D, tmp_path / "rows", data=data)  # which it does not have yet
    ingest_distances(D, store, data=other, replace=True)
    assert open_matrix(store).ids.tolist() == other.ids.tolist()


def test_series_that_took_the_place_of_others_get_a_ready_matrix_of_their_own(tmp_path: Path) -> None:
    data, other, store = made_series(12), made_series(12, seed=1, prefix="other"), tmp_path / "store"
    D = pairwise_dtw(data)
    ingest_distances(D, store, data=data)
    ingest(other, store, replace=True)
    ingest_distances(D, store, data=other)
    assert open_matrix(store).ids.tolist() == other.ids.tolist()
    assert main(["verify", str(store)]) == 0


def test_a_repair_that_was_killed_goes_on(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = place / "store"
    whole = {name: content for name, content in files_below(store).items() if name.startswith("distances")}
    flip_bit(next(store.glob("distances/*/distance/c/*/*")))
    (store / "series" / "row" / f"zarr.{'0' * 32}.partial").write_bytes(b"half")

    def killed(*_: object) -> None:
        raise KeyboardInterrupt  # after the damaged tile has left the ledger

    with monkeypatch.context() as patch:
        patch.setattr("cksc_dist.dist.distances.chosen_executor", killed)
        assert main(["verify", str(store), "--repair"]) == 130
    assert main(["verify", str(store), "--repair"]) == 0
    assert {name: content for name, content in files_below(store).items() if name.startswith("distances")} == whole
    assert not list(store.rglob("*.partial"))
    assert main(["verify", str(store)]) == 0


def test_a_copy_that_another_training_drops_is_told(place: Path) -> None:
    from cksc_dist.store.kernel_copy import KernelCopy, drop_copy, find_copies

    train(place / "store", place / "second", spec=ModelSpec(sparsity=2, max_iter=60), place="disk")
    folder = Folder(place / "store")
    (key,) = find_copies(folder)
    copy = KernelCopy(folder, key)
    drop_copy(folder, key)
    with pytest.raises(StoreError, match="was dropped by another training; run the same command again"):
        copy.strip(0, 4)


def test_hanging_up_is_not_heard_where_nohup_says_so() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with prepared():
            os.kill(os.getpid(), signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_letters_that_a_stream_lacks_are_spelt_out(encoding: str, tmp_path: Path) -> None:
    data = SeriesSet.from_list(np.random.default_rng(0).random((8, 3, 1)), ["ü", "😀"] * 4, [f"ж{i}" for i in range(8)])
    write_npz(tmp_path / "d.npz", data)
    CKSC(sparsity=2, kernel="dtw", random_state=0).fit(data, data.labels).save(tmp_path / "m")

    def said(*words: str) -> str:
        ran = subprocess.run(
            [*COMMAND, *words], cwd=tmp_path, capture_output=True, env=os.environ | {"PYTHONIOENCODING": encoding}
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout.decode(encoding)

    assert r"\U0001f600" in said("info", "d.npz")
    assert r"\U0001f600" in said("ingest", "d.npz", "s.zarr")
    told = [json.loads(line) for line in said("predict", "m", "s.zarr", "--json", "-", "--workers", "1").splitlines()]
    assert [(each["id"], each["true_label"]) for each in told] == list(zip(data.ids, data.labels, strict=True))


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_closed_stream_is_no_trouble(place: Path, stream: str) -> None:
    number = {"stdout": 1, "stderr": 2}[stream]
    words = " ".join([*COMMAND, "status", str(place / "store")])
    ran = subprocess.run(["sh", "-c", f"{words} {number}>&-"], capture_output=True, text=True)
    assert (ran.returncode, "Traceback" in ran.stderr + ran.stdout) == (0, False)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_request_to_end_is_heard(number: signal.Signals, place: Path, start: Starter) -> None:
    """Batch systems send SIGTERM before they kill, closed terminals hang up: the lock is given back, workers end."""
    run = start.cksc("distances", str(place / "store"), "--window", "2", "--executor", "dask", "--workers", "2")
    wait_until(lambda: "timing a sample" in run.output or "dashboard" in run.output, "a run at work")
    run.process.send_signal(number)
    assert run.wait() == 128 + number
    assert "interrupted; what is done in a store is kept" in run.output
    assert "Traceback" not in run.output
    assert not (place / "store" / "lock.json").exists()
    wait_until(lambda: not run.group(), "workers that have ended")


def begun_on_a_terminal(store: Path, errors: Path) -> tuple[subprocess.Popen[bytes], int]:
    """Return a run that draws its bar, and the other end of the terminal that it is drawn on."""
    pty = pytest.importorskip("pty", reason="this system has no pseudo-terminals")
    words = [*COMMAND, "distances", str(store), "--window", "2", "--executor", "dask", "--workers", "2"]
    its_own = (
        "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
    )
    terminal, other_end = pty.openpty()
    with errors.open("w") as log:
        run = subprocess.Popen(
            [sys.executable, "-c", its_own, *words],
            stdin=other_end,
            stdout=other_end,
            stderr=log,
            start_new_session=True,
            env=os.environ | {"TERM": "xterm"},
        )
    os.close(other_end)
    shown = b""
    while b"ETA" not in shown:  # a bar that is drawn again and again
        shown += os.read(terminal, 4096)
    return run, terminal


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_a_terminal_that_lives_on_is_left_as_it_was(number: signal.Signals, place: Path, tmp_path: Path) -> None:
    """Anybody may send the signal that a closed terminal sends, and in the very moment when a bar is first drawn."""
    run, terminal = begun_on_a_terminal(place / "store", tmp_path / "errors")
    run.send_signal(number)
    shown = b""
    with suppress(OSError):  # when all is said
        while more := os.read(terminal, 4096):
            shown += more
    os.close(terminal)
    assert run.wait(60) == 128 + number
    assert b"\x1b[?25h" in shown  # the cursor is there again


@pytest.mark.slow
def test_a_terminal_that_is_closed_is_no_broken_disk(place: Path, tmp_path: Path) -> None:
    store, errors = place / "store", tmp_path / "errors"
    run, terminal = begun_on_a_terminal(store, errors)
    os.close(terminal)
    assert run.wait(60) == 128 + signal.SIGHUP, errors.read_text()
    assert "interrupted; what is done in a store is kept" in errors.read_text()
    assert not (store / "lock.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "seconds"),
    [
        (signal.SIGTERM, 1.0),
        (signal.SIGINT, 0.5),
        *(
            pytest.param(number, seconds, marks=pytest.mark.campaign)
            for number, seconds in ((signal.SIGTERM, 0.0), (signal.SIGTERM, 2.0), (signal.SIGINT, 1.5))
        ),
    ],
)
def test_a_request_to_end_is_heard_while_a_cluster_starts(
    place: Path, start: Starter, number: signal.Signals, seconds: float
) -> None:
    """Dask cannot close what is half started, and had said so in tracebacks; Ctrl-C comes to the workers as well."""
    run = start.cksc("distances", str(place / "store"), "--window", "2", "--executor", "dask", "--workers", "2")
    wait_until(lambda: "starting a cluster" in run.output, "a run that starts a cluster")
    time.sleep(seconds)
    if number == signal.SIGINT:
        os.killpg(run.process.pid, number)
    else:
        run.process.send_signal(number)
    assert run.wait() == 128 + number, run.output
    assert "interrupted; what is done in a store is kept" in run.output
    assert "Traceback" not in run.output
    assert not (place / "store" / "lock.json").exists()
    wait_until(lambda: not run.group(), "workers that have ended")


def test_compiled_code_has_a_place_of_its_own_where_nothing_else_may_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv(code_cache.VARIABLE, raising=False)
    code_cache.find_a_place()
    assert code_cache.VARIABLE not in os.environ  # the package's own folder will do
    monkeypatch.setattr(code_cache, "_may_be_written", lambda _: False)
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.delitem(sys.modules, "numba")
    monkeypatch.setenv(code_cache.VARIABLE, "/nowhere")
    code_cache.find_a_place()
    folder = Path(os.environ[code_cache.VARIABLE])
    assert folder == tmp_path / f"cksc_dist-{os.getuid()}"
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o777)  # somebody else may have put something there that is unpickled
    code_cache.find_a_place()
    assert Path(os.environ[code_cache.VARIABLE]) != folder
    assert not code_cache._private_folder().is_symlink()


def test_what_may_be_written_is_found_out(tmp_path: Path) -> None:
    assert code_cache._may_be_written(tmp_path / "not" / "yet")
    (tmp_path / "file").write_bytes(b"")
    assert not code_cache._may_be_written(tmp_path / "file" / "below")


def test_python_without_assertions_works_or_is_told(place: Path) -> None:
    """Zarr's own readers do some of their work inside of assertions."""
    words = [sys.executable, "-O", *COMMAND[1:], "distances", str(place / "store"), "--window", "3"]
    ran = subprocess.run(words, capture_output=True, text=True)
    assert "Traceback" not in ran.stderr
    assert ran.returncode == 0 or "does not work without assertions; run Python without -O" in ran.stderr


def test_a_store_that_is_held_is_not_repaired(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Lease(Folder(place / "store"), "distances"):
        assert "is being written by process" in refused(capsys, "verify", place / "store", "--repair")


def test_whole_numbers_are_not_taken_for_truth(tmp_path: Path) -> None:
    values, numbers = np.random.default_rng(0).random((4, 3, 1)), np.array([0, 1, 1, 0])
    ingest(SeriesSet.from_list(values, numbers), tmp_path / "s.zarr")
    assert not ingest(SeriesSet.from_list(values, numbers.astype(np.int8)), tmp_path / "s.zarr")  # just these
    with pytest.raises(StoreError, match="holds other series"):
        ingest(SeriesSet.from_list(values, numbers.astype(bool)), tmp_path / "s.zarr")


def test_a_matrix_of_other_settings_is_not_said_to_go_on_by_a_command_that_leaves_it_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "s.zarr"
    ingest(made_series(8), store)
    compute_distances(store, DistanceSpec(window=0.5))
    ingest(made_series(8, seed=1), store, replace=True)
    assert main(["status", str(store)]) == 0
    assert f"go on with: cksc verify {store} --repair" in capsys.readouterr().out
    with pytest.raises(StoreError, match=r"compute them with: cksc verify .* --repair"):
        open_matrix(store)
    assert main(["verify", str(store), "--repair"]) == 0
    open_matrix(store)
