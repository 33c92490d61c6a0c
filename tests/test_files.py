"""Pipes and devices in the place of files: refused by name, and never waited for."""

from __future__ import annotations

import os
import pickle
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from cksc_dist import CKSC, load_model, open_matrix
from cksc_dist.cli import main
from cksc_dist.commands.train import _read_rows
from cksc_dist.dist.distances import compute_distances
from cksc_dist.dist.ingest import ingest
from cksc_dist.dist.status import store_status
from cksc_dist.dist.verify import verify
from cksc_dist.errors import CkscError, ReadError, StoreError
from cksc_dist.files import NotPlainError, check_plain, plain_only
from cksc_dist.io import read, write_npz
from cksc_dist.spec import KernelSpec, RunSpec
from cksc_dist.store.folder import Folder
from cksc_dist.store.kernel_copy import ARRAY, KernelCopy
from cksc_dist.store.series_files import open_series
from tests.small_stores import files_below, made_series

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes with names")

SERIAL = RunSpec(executor="serial")
WORDS = "is a pipe or a device, and no plain file"


def in_time(action: Callable[[], object], seconds: float = 60.0) -> BaseException | None:
    """Return what a function raises; one that waits for ever fails, and does not keep the others waiting."""
    raised: list[BaseException | None] = []

    def act() -> None:
        try:
            action()
        except BaseException as error:
            raised.append(error)
        else:
            raised.append(None)

    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    thread.join(seconds)
    assert raised, "it waits for ever"
    return raised[0]


def to_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("made")
    data = made_series(6)
    ingest(data, place / "s.zarr")
    compute_distances(place / "s.zarr", run=SERIAL)
    CKSC(sparsity=2, kernel="dtw", random_state=0).fit(data, data.labels).save(place / "m")
    return place


@pytest.fixture
def place(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "here")
    return tmp_path / "here"


def test_every_file_of_a_store_may_be_a_pipe(made: Path, tmp_path: Path) -> None:
    named = 0
    for number, name in enumerate(sorted(files_below(made / "s.zarr"))):
        store = tmp_path / str(number)
        shutil.copytree(made / "s.zarr", store)
        to_pipe(store / name)
        for use in (
            lambda store=store: store_status(store),
            lambda store=store: open_matrix(store)[:, :],
            lambda store=store: open_series(Folder(store)).load(),
            lambda store=store: verify(store, sample=2, seed=0),
        ):
            error = in_time(use)
            assert error is None or isinstance(error, CkscError), (name, error)
            named += WORDS in str(error)
    assert named > 20


def test_every_file_of_a_model_may_be_a_pipe(made: Path, tmp_path: Path) -> None:
    for number, name in enumerate(sorted(files_below(made / "m"))):
        model = tmp_path / str(number)
        shutil.copytree(made / "m", model)
        to_pipe(model / name)
        error = in_time(lambda model=model: load_model(model))
        assert isinstance(error, CkscError), (name, error)


def test_the_command_says_which_file_it_is(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    to_pipe(place / "s.zarr" / "metadata.json")
    codes: list[int] = []
    assert in_time(lambda: codes.append(main(["status", str(place / "s.zarr")]))) is None
    assert codes == [2]
    told = capsys.readouterr().err
    assert f"s.zarr/metadata.json {WORDS}; remove it, and restore the file from a copy" in told


def test_ranges_and_strips_of_kernels(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    assert isinstance(in_time(lambda: folder.read_range("pipe", 0, 3)), StoreError)
    folder.write("plain", b"0123456789")
    assert (folder.read_range("plain", 2, 3), folder.read_range("plain", 8, 5), folder.read_range("no", 0, 1)) == (
        *(b"234", b"89", b""),
    )
    rows = np.arange(6)
    copy = KernelCopy.create(folder, "k", "m", rows, 1.0, KernelSpec().factor, np.dtype("float64"))
    copy.write_strip(0, np.eye(6))
    to_pipe(tmp_path / "kernels" / "k" / ARRAY / "c" / "0" / "0")
    fresh = KernelCopy(folder, "k")
    for use in (lambda: fresh.strip(0, 6), lambda: fresh.row(2)):
        error = in_time(use)
        assert isinstance(error, StoreError)
        assert WORDS in str(error)


@pytest.mark.parametrize("suffix", [".ts", ".arff", ".npz", ".mat"])
def test_readers_of_series(tmp_path: Path, suffix: str) -> None:
    os.mkfifo(tmp_path / f"taps{suffix}")
    error = in_time(lambda: read(tmp_path / f"taps{suffix}"))
    assert isinstance(error, ReadError)
    assert "it is a pipe or a device, and no plain file" in str(error)


def test_rows_to_train_on(tmp_path: Path, made: Path) -> None:
    matrix = open_matrix(made / "s.zarr")
    os.mkfifo(tmp_path / "rows.npy")
    assert isinstance(in_time(lambda: _read_rows(tmp_path / "rows.npy", matrix)), OSError)
    # text comes through a pipe, as a shell makes it of <(...)
    os.mkfifo(tmp_path / "rows")
    writer = threading.Thread(target=lambda: (tmp_path / "rows").write_text("0\n2\n"), daemon=True)
    writer.start()
    assert _read_rows(tmp_path / "rows", matrix).tolist() == [0, 2]
    writer.join()


def test_what_is_told_goes_through_pipes(place: Path, tmp_path: Path) -> None:
    write_npz(tmp_path / "new.npz", made_series(3))
    for arguments in (
        ["predict", str(place / "m"), str(tmp_path / "new.npz"), "--executor", "serial", "--json"],
        ["report", str(place / "m"), "--output"],
    ):
        pipe = tmp_path / f"{arguments[0]}.html"
        os.mkfifo(pipe)
        got: list[str] = []
        reader = threading.Thread(target=lambda pipe=pipe, got=got: got.append(pipe.read_text()), daemon=True)
        reader.start()
        codes: list[int] = []
        assert in_time(lambda codes=codes, a=arguments, pipe=pipe: codes.append(main([*a, str(pipe)]))) is None
        reader.join(60)
        assert codes == [0]
        assert len(got[0]) > 100


def test_what_is_no_plain_file(tmp_path: Path) -> None:
    for path in (tmp_path / "pipe", Path(os.devnull)):
        if path.name == "pipe":
            os.mkfifo(path)
        for use in (lambda path=path: open(path, "rb", opener=plain_only), lambda path=path: check_plain(path)):  # noqa: SIM115
            error = in_time(use)
            assert isinstance(error, NotPlainError)
            assert repr(str(path)) in str(pickle.loads(pickle.dumps(error)))
    check_plain(tmp_path / "nothing")
    with pytest.raises(IsADirectoryError):
        open(tmp_path, "rb", opener=plain_only)  # noqa: SIM115
    (tmp_path / "plain").write_bytes(b"x")
    with open(tmp_path / "plain", "rb", opener=plain_only) as file:
        assert file.read() == b"x"
