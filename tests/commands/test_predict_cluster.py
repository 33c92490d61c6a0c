"""``cksc predict`` wherever it runs: the same bytes in the same order, and words for what workers cannot do."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cksc_dist import CKSC, SeriesSet
from cksc_dist.cli import main
from cksc_dist.dist.ingest import ingest, ingest_distances
from cksc_dist.io import make_gestures, write_npz
from cksc_dist.models import prediction
from cksc_dist.store.series_files import StoredSeries
from tests.dist.processes import Started, Starter, free_port, starter, wait_until

SERIES = 120


@pytest.fixture(scope="module")
def data() -> SeriesSet:
    return make_gestures(n_per_class=SERIES // 4, random_state=7)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    train = make_gestures(n_per_class=8, random_state=3)
    path = tmp_path_factory.mktemp("models") / "gestures"
    CKSC(sparsity=3, kernel="dtw", random_state=0, tol=0.01).fit(train, train.labels).save(path)
    return path


@pytest.fixture(scope="module")
def source(data: SeriesSet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("new") / "new.npz"
    write_npz(path, data)
    return path


@pytest.fixture(scope="module")
def store(data: SeriesSet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stores") / "new.zarr"
    ingest(data, path)
    return path


@pytest.fixture(scope="module")
def decisions(model: Path, source: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What a serial run writes, in one block."""
    return written(tmp_path_factory.mktemp("serial"), model, source, "--executor", "serial")


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prediction, "ROWS", 7)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Starter]:
    with starter(tmp_path) as started:
        yield started


_ALONE = """
import sys
from cksc_dist.cli import main
from cksc_dist.dist import forecast
from cksc_dist.models import prediction
prediction.ROWS, forecast.THREADS_BELOW_SECONDS = int(sys.argv[1]), float(sys.argv[2])
if __name__ == "__main__":
    sys.exit(main(sys.argv[3:]))
"""


def alone(start: Starter, *arguments: object, rows: int = 7, patience: float = 60.0) -> Started:
    """Run the command in a process of its own, with small blocks; where less than ``patience`` is expected, threads."""
    return start(sys.executable, "-c", _ALONE, str(rows), str(patience), "predict", *map(str, arguments))


def written(folder: Path, model: object, source: object, *options: str) -> bytes:
    """Run the command and return the JSON lines that it writes."""
    file = folder / "decisions.jsonl"
    assert main(["predict", str(model), str(source), "--json", str(file), *options]) == 0
    return file.read_bytes()


def test_the_lines_are_the_decisions_in_the_order_of_the_source(decisions: bytes, model: Path, data: SeriesSet) -> None:
    records = [json.loads(line) for line in decisions.splitlines()]
    assert [record["id"] for record in records] == data.ids.tolist()
    expected = [explanation.to_dict() for explanation in CKSC.load(model).explain_many(data, 3)]
    known = zip(data.ids, data.labels, expected, strict=True)
    assert records == [json.loads(json.dumps({"id": str(i), "true_label": str(y), **e})) for i, y, e in known]


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize(
    "options",
    [
        ("--executor", "serial"),
        ("--executor", "threads", "--workers", "1"),
        ("--executor", "threads", "--workers", "3"),
        (),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("place", ["file", "store"])
def test_the_same_bytes_whoever_works(
    options: tuple[str, ...], place: str, decisions: bytes, model: Path, source: Path, store: Path, tmp_path: Path
) -> None:
    assert written(tmp_path, model, source if place == "file" else store, *options) == decisions


def test_the_same_bytes_from_two_workers(
    decisions: bytes, model: Path, store: Path, tmp_path: Path, start: Starter
) -> None:
    file = tmp_path / "decisions.jsonl"
    run = alone(start, model, store, "--executor", "dask", "--workers", 2, "--json", file)
    assert run.wait() == 0, run.output
    assert "executor: dask (as asked); workers: 2" in run.output
    assert file.read_bytes() == decisions


@pytest.mark.usefixtures("small_blocks")
def test_blocks_that_come_out_of_order_wait_for_their_turn(
    decisions: bytes, model: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def backwards(self: Any, function: Any, tasks: Any, name: str) -> Iterator[Any]:
        assert name == "predict-block"
        for number in reversed(range(len(tasks))):
            yield None
            yield number, function(tasks[number])

    monkeypatch.setattr(prediction.SerialExecutor, "stream", backwards)
    monkeypatch.setattr(prediction, "TASKS_A_SLOT", 5)
    assert written(tmp_path, model, source, "--executor", "serial") == decisions


@pytest.mark.usefixtures("small_blocks")
def test_series_of_a_store_are_read_a_few_at_a_time(
    model: Path, store: Path, tmp_path: Path, decisions: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[tuple[int, int]] = []
    plain = StoredSeries.read

    def read(self: StoredSeries, begin: int, end: int) -> Any:
        reads.append((begin, end))
        return plain(self, begin, end)

    monkeypatch.setattr(StoredSeries, "read", read)
    assert written(tmp_path, model, store, "--executor", "serial") == decisions
    assert reads == [(begin, min(begin + 7, SERIES)) for begin in range(0, SERIES, 7)]


def test_a_store_keeps_labels_and_what_is_unknown(
    model: Path, data: SeriesSet, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    some = replace(data.select(range(4)), labels=np.array(["gesture0", "?", "jump", "?"]))
    ingest(some, tmp_path / "some.zarr")
    lines = written(tmp_path, model, tmp_path / "some.zarr").splitlines()
    assert [json.loads(line).get("true_label") for line in lines] == ["gesture0", None, "jump", None]
    assert "of 2 labelled series are right" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "limit", "sizes"),
    [
        ("ROWS", 50, [50, 50, 20]),
        ("ENTRIES", 1, [1] * SERIES),
        ("CELLS", 1.0, [1] * SERIES),
        ("BYTES", 1, [1] * SERIES),
    ],
)
def test_blocks_are_cut_by_rows_memory_and_work(
    name: str, limit: Any, sizes: list[int], model: Path, data: SeriesSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prediction, name, limit)
    blocks = prediction._Blocks(prediction.SavedModel.at(model), prediction.HeldSeries(data), 3)
    assert np.diff(blocks.edges).tolist() == sizes
    assert sum(blocks.work(i)[2] for i in range(len(blocks))) == SERIES


def test_a_task_is_small_in_bytes_and_in_words(model: Path, data: SeriesSet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prediction, "BYTES", 20_000)
    tasks = list(prediction._Blocks(prediction.SavedModel.at(model), prediction.HeldSeries(data), 3))
    assert max(task.values.nbytes for task in tasks) <= 20_000
    assert min(task.values.nbytes for task in tasks[:-1]) > 20_000 - 80 * 3 * 8  # none could take a series more
    assert np.array_equal(np.concatenate([task.values for task in tasks]), data.values)
    assert len(repr(tasks[0])) < 400  # it is named in an error


# who works


@pytest.mark.campaign
def test_more_than_a_minute_is_worth_a_cluster_and_the_reason_is_told(
    model: Path, source: Path, tmp_path: Path, decisions: bytes, start: Starter
) -> None:
    file = tmp_path / "decisions.jsonl"
    run = alone(start, model, source, "--workers", 1, "--json", file, patience=0.0)
    assert run.wait() == 0, run.output
    assert file.read_bytes() == decisions  # the first block, which was timed here, is among them
    assert "starting a cluster of 1 workers on this machine" in run.output
    told = r"executor: dask \(\d+ s are expected; on a cluster started on this machine\); workers: 1"
    assert re.search(told, run.output)
    assert "dashboard: http://127.0.0.1:" in run.output


def test_the_executor_that_was_asked_for_is_told(
    model: Path, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(tmp_path, model, source, "--executor", "threads", "--workers", "2")
    assert "executor: threads (as asked); workers: 2" in capsys.readouterr().out
    assert main(["predict", str(model), str(source), "--executor", "serial", "--scheduler", "tcp://nowhere:1"]) == 2
    assert "executor='serial' uses no scheduler" in capsys.readouterr().err


@pytest.mark.campaign
@pytest.mark.slow
def test_a_scheduler_of_ones_own_and_a_worker_that_dies_in_the_middle(
    start: Starter, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    many = make_gestures(n_per_class=150, dims=3, length=(150, 250), random_state=9)
    write_npz(tmp_path / "many.npz", many)
    serial = written(tmp_path, model, tmp_path / "many.npz", "--executor", "threads")
    address = f"tcp://127.0.0.1:{(port := free_port())}"
    start.scheduler(port)
    victim, _ = start.workers(address)
    file = tmp_path / "cluster.jsonl"
    run = alone(start, model, tmp_path / "many.npz", "--scheduler", address, "--json", file, rows=2)
    wait_until(lambda: not run.runs() or (file.exists() and len(file.read_bytes().splitlines()) > 20), "a few lines")
    assert run.runs(), f"ended before a worker could die:\n{run.output}"
    victim.kill()
    assert run.wait() == 0, run.output
    assert f"executor: dask (on {address})" in run.output
    assert file.read_bytes() == serial


@pytest.mark.skipif(not os.path.exists("/proc/self/cwd"), reason="needs /proc")
def test_a_model_that_workers_cannot_see_is_told_before_work_starts(
    model: Path,
    source: Path,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(model.parent)
    mine = "/proc/self/cwd/gestures"  # another folder for every process
    with starter(tmp_path_factory.mktemp("elsewhere")) as start:
        port = free_port()
        start.scheduler(port)
        start.workers(f"tcp://127.0.0.1:{port}", 1)
        run = ["--scheduler", f"tcp://127.0.0.1:{port}"]
        assert main(["predict", mine, str(source), *run, "--json", str(tmp_path / "out.jsonl")]) == 2
        captured = capsys.readouterr()
        assert f"a worker cannot read the model {mine} ({mine} does not exist; " in captured.err
        assert "put it where this machine and all workers find it under the same name" in captured.err
        assert "s3://bucket/model" in captured.err
        assert "executor:" not in captured.out
        assert not list(tmp_path.glob("out.jsonl*"))
        assert main(["predict", str(model), str(source), *run]) == 0


# what cannot be done


def test_wrong_dims_are_told_before_work(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ingest(make_gestures(3, dims=2), tmp_path / "flat.zarr")
    (tmp_path / "kept.jsonl").write_text("of yesterday")
    monkeypatch.setattr(prediction, "explain_block", None)
    file = str(tmp_path / "kept.jsonl")
    assert main(["predict", str(model), str(tmp_path / "flat.zarr"), "--executor", "dask", "--json", file]) == 2
    assert f"flat.zarr: the series have 2 dims but {model} was trained on 3; give series" in capsys.readouterr().err
    assert (tmp_path / "kept.jsonl").read_text() == "of yesterday"


def test_a_store_without_series_and_options_of_readers_are_refused(
    model: Path, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ingest_distances(np.ones((3, 3)) - np.eye(3), tmp_path / "ready.zarr")
    assert main(["predict", str(model), str(tmp_path / "ready.zarr")]) == 2
    assert "holds a ready matrix without series" in capsys.readouterr().err
    assert main(["predict", str(model), str(store), "--option", "missing=interpolate"]) == 2
    assert "is a store, and --option is for files that are read" in capsys.readouterr().err
    assert main(["predict", str(model), str(model)]) == 2
    assert "is something else than a store" in capsys.readouterr().err
    assert main(["predict", str(model), str(tmp_path / "absent")]) == 2
    assert "absent: does not exist" in capsys.readouterr().err


@pytest.mark.usefixtures("small_blocks")
def test_a_series_that_cannot_be_compared_is_named_among_its_block(
    model: Path, data: SeriesSet, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    series = data.series
    series[9] = 1e200 * series[9]
    write_npz(tmp_path / "huge.npz", SeriesSet.from_list(series))
    assert main(["predict", str(model), str(tmp_path / "huge.npz")]) == 2
    assert "among series 7 to 13, of which X[0] is the first: X[2] has values of up to" in capsys.readouterr().err


def test_a_model_that_is_replaced_meanwhile_is_not_mixed_with_the_new_one(
    model: Path, data: SeriesSet, tmp_path: Path
) -> None:
    path = tmp_path / "model"
    CKSC.load(model).save(path)
    saved = prediction.SavedModel.at(path)
    CKSC(sparsity=2, kernel="dtw", random_state=1, tol=0.01).fit(data, data.labels).save(path)
    with pytest.raises(prediction.ModelFileError, match="is no longer the model that this work began with"):
        saved.load()
    assert prediction.SavedModel.at(path).load().sparsity == 2


# what is shown


def test_the_screen_shows_the_first_fifty_unless_more_are_asked_for(
    model: Path, source: Path, data: SeriesSet, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = {}
    for option in ("--top=3", "--all", "--explain"):
        assert main(["predict", str(model), str(source), option]) == 0
        shown[option] = capsys.readouterr().out
    rows = {option: [name for name in data.ids if f"\n{name} " in out] for option, out in shown.items()}
    assert rows["--top=3"] == data.ids[:50].tolist()
    assert rows["--all"] == rows["--explain"] == data.ids.tolist()
    assert "and 70 more; print them with --all, or write them with --json FILE" in shown["--top=3"]
    assert "more; print" not in shown["--all"] + shown["--explain"]
    summaries = {re.search(r"accuracy .*\n.*", out)[0] for out in shown.values()}  # type: ignore[index]
    assert len(summaries) == 1
    assert "of 120 labelled series are right" in summaries.pop()


def test_help_tells_where_it_runs(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["predict", "--help"])
    out = re.sub(r"\s+", " ", capsys.readouterr().out)
    for words in (
        "--scheduler ADDR",
        "--executor",
        "--workers N",
        "--memory SIZE",
        "--all",
        "folder or URL",
        "a store",
    ):
        assert words in out
    assert "all workers must find MODEL under the same name" in out
    assert "--trust" not in out
