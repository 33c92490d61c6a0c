"""Load: very many tasks, very many workers, two users on one scheduler, very many predictions; nothing grows."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from distributed import Client

from cksc_dist import CKSC, load_model
from cksc_dist.dist.dask_executor import TASKS_AHEAD, DaskExecutor
from cksc_dist.dist.ingest import ingest
from cksc_dist.io import make_gestures
from tests.dist.processes import (
    DASK,
    Starter,
    answers,
    chunk_files,
    free_port,
    ledger_of,
    left_over,
    starter,
    wait_until,
)

pytestmark = pytest.mark.slow

MEBI = 2**20


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Starter]:
    with starter(tmp_path) as started:
        yield started


def memory_of_scheduler(client: Client) -> int:
    return int(client.run_on_scheduler(lambda: __import__("psutil").Process().memory_info().rss))


def forget_what_dask_keeps(client: Client) -> None:
    """Empty what Dask itself lets grow on a scheduler; what is measured is whether anything else does.

    A list gets an entry of some 300 bytes for each batch that is sent, without an end (`distributed.spans`; no setting
    turns it off), and the prefixes of the last 100,000 keys are remembered (`dask.utils.key_split`).
    """

    def forget(dask_scheduler: Any) -> None:
        for span in dask_scheduler.extensions["spans"].spans.values():
            (span._metadata or {"collections": []})["collections"].clear()
        __import__("dask.utils").utils.key_split.cache_clear()

    client.run_on_scheduler(forget)


def known_tasks(client: Client) -> int:
    return int(client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)))


@pytest.mark.parametrize("count", [1_000, pytest.param(100_000, marks=pytest.mark.campaign)])
def test_very_many_tasks_go_through_a_small_window(start: Starter, count: int) -> None:
    """The scheduler never knows more than a few of them, and its memory hardly follows their number."""
    port = free_port()
    start.scheduler(port)
    start.workers(f"tcp://127.0.0.1:{port}", 2)
    with Client(f"tcp://127.0.0.1:{port}", set_as_default=False) as client:
        executor = DaskExecutor(client)
        came, most, sizes = 0, 0, []
        for number, result in (pair for pair in executor.stream(abs, range(-count, 0), "tiny") if pair is not None):
            assert result == count - number
            came += 1
            if came % (count // 20) == 0:
                most = max(most, known_tasks(client))
                forget_what_dask_keeps(client)
                sizes.append(memory_of_scheduler(client))
        assert came == count
        assert most <= 2 * TASKS_AHEAD * 2
        quarters = [sizes[number] for number in (4, 9, 14, 19)]
        told = ", ".join(f"{size / MEBI:.1f}" for size in quarters)
        print(f"{count:,} tasks: at most {most} known at a time, MiB after each quarter: {told}")
        assert quarters[3] - quarters[1] < 10 * MEBI, told


@pytest.mark.parametrize("count", [4, pytest.param(64, marks=pytest.mark.campaign)])
def test_more_workers_than_cores(start: Starter, tmp_path: Path, count: int) -> None:
    store = tmp_path / "store"
    ingest(make_gestures(n_per_class=100, dims=4), store)
    alone = Path(shutil.copytree(store, tmp_path / "alone"))
    run = start.cksc("distances", str(alone), "--executor", "threads")
    assert run.wait() == 0, run.output
    port = free_port()
    start.scheduler(port)
    address = f"tcp://127.0.0.1:{port}"
    options = ("--nworkers", str(count), "--nthreads", "1", "--no-dashboard", "--host", "127.0.0.1")
    workers = start(*DASK, "worker", address, *options)
    wait_until(
        lambda: not workers.runs() or workers.output.count("Registered to") >= count, f"{count} workers", seconds=600.0
    )
    assert workers.runs(), workers.output
    run = start.cksc("distances", str(store), "--scheduler", address)
    assert run.wait(600.0) == 0, run.output
    assert f"workers: {count}" in run.output
    assert chunk_files(store) == chunk_files(alone)
    assert left_over(store) == []


def test_two_users_on_one_scheduler(start: Starter, tmp_path: Path) -> None:
    """Side by side, each gets what it would get alone, and nobody's worker is restarted."""
    stores = [tmp_path / "first", tmp_path / "second"]
    for seed, store in enumerate(stores):
        # so much that both are at work at the same time for a while, on a quick machine, too
        ingest(make_gestures(n_per_class=150, dims=6, length=(160, 220), random_state=seed), store)
        shutil.copytree(store, store.with_suffix(".alone"))
        run = start.cksc("distances", str(store.with_suffix(".alone")), "--executor", "threads")
        assert run.wait() == 0, run.output
    port = free_port()
    start.scheduler(port)
    address = f"tcp://127.0.0.1:{port}"
    workers = start.workers(address, 2)
    runs = [start.cksc("distances", str(store), "--scheduler", address) for store in stores]
    for run, store in zip(runs, stores, strict=True):
        assert run.wait() == 0, run.output
        assert chunk_files(store) == chunk_files(store.with_suffix(".alone"))
        assert left_over(store) == []
    first, second = ({entry.worker for entry in ledger_of(store).values()} for store in stores)
    assert first | second == first & second, "both workers work for both"
    assert all(worker.runs() for worker in workers)


@pytest.mark.parametrize("count", [300, pytest.param(1_000, marks=pytest.mark.campaign)])
def test_very_many_predictions_take_no_more_memory(tmp_path: Path, count: int) -> None:
    """A server that keeps a model, or loads it anew each time, does not grow."""
    data = make_gestures(n_per_class=15)
    CKSC(sparsity=3, kernel="dtw", random_state=0).fit(data.series, data.labels).save(tmp_path / "model")
    model, process = load_model(tmp_path / "model"), psutil.Process()
    truth = model.predict(data.series)
    sizes: list[int] = []
    for number in range(count):
        row = number % len(data)
        assert model.predict([data[row]])[0] == truth[row]
        model.explain(data[row], top=3)
        if number % 10 == 0:
            assert load_model(tmp_path / "model").predict([data[row]])[0] == truth[row]
        if number >= count // 5:
            sizes.append(process.memory_info().rss)
    print(f"{count:,} predictions: {sizes[0] / MEBI:.0f} to {sizes[-1] / MEBI:.0f} MiB")
    assert np.median(sizes[-20:]) - np.median(sizes[:20]) < 8 * MEBI
    assert process.num_fds() < 200


def test_work_that_is_asked_for_again_and_again_leaves_nothing_behind(tmp_path: Path, start: Starter) -> None:
    """Commands of one client, one after the other: the scheduler forgets each."""
    from cksc_dist.dist.distances import compute_distances

    port = free_port()
    start.scheduler(port)
    start.workers(f"tcp://127.0.0.1:{port}", 2)
    data: Any = make_gestures(n_per_class=4)
    with Client(f"tcp://127.0.0.1:{port}", set_as_default=False) as client:
        for number in range(8):
            ingest(data, tmp_path / str(number))
            compute_distances(tmp_path / str(number), client=client)
        end = time.monotonic() + 30.0
        while known_tasks(client) and time.monotonic() < end:
            time.sleep(0.1)  # what is released is forgotten a little later
        assert known_tasks(client) == 0
    assert answers(port)
