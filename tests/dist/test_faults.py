"""Processes are killed at any moment: the next run goes on, and the bytes are those of a run that nobody disturbed."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cksc_dist.dist.ingest import ingest
from cksc_dist.io import make_gestures
from cksc_dist.store.folder import Folder
from cksc_dist.store.grid import Tile
from cksc_dist.store.ledger import Entry
from cksc_dist.store.matrix_files import find_matrices
from tests.dist.processes import Started, Starter, chunk_files, free_port, ledger_of, left_over, starter, wait_until

KILLS = 3
DASK_RUN = ("--executor", "dask", "--workers", "2")
LEAST_TILES = 60
"""The matrix has as many at least: kills find some done and some not."""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Starter]:
    with starter(tmp_path) as started:
        yield started


@pytest.fixture(scope="module")
def ingested(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Series whose distances take two workers some seconds, in a store without a matrix."""
    store = tmp_path_factory.mktemp("ingested") / "gestures.zarr"
    ingest(make_gestures(n_per_class=400, dims=6, length=(80, 120)), store)
    return store


@pytest.fixture(scope="module")
def undisturbed(ingested: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Digests of the files that a serial run makes which nobody disturbs."""
    folder = tmp_path_factory.mktemp("undisturbed")
    store = shutil.copytree(ingested, folder / "serial.zarr")
    with starter(folder) as start:
        run = start.cksc("distances", str(store), "--executor", "serial")
        assert run.wait() == 0, run.output
    assert len(ledger_of(store)) >= LEAST_TILES
    return chunk_files(store)


@pytest.fixture
def store(ingested: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(ingested, tmp_path / "gestures.zarr"))


@pytest.fixture
def moments() -> random.Random:
    """When to kill; other moments every time, told where a test fails."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"moments of seed {seed}")
    return random.Random(seed)


def wait_for_tiles(store: Path, run: Started, more: int) -> None:
    """Wait until a run has done so many more tiles than there are now."""
    done = len(ledger_of(store)) + more
    wait_until(lambda: not run.runs() or len(ledger_of(store)) >= done, f"{done} tiles that are done")
    assert run.runs(), f"ended before it could be killed:\n{run.output}"


def wait_for_the_end_of_all(run: Started) -> None:
    """Wait until the workers, too, have noticed that their client is dead."""
    wait_until(lambda run=run: not run.group(), "workers that end")


def random_pause(moments: random.Random) -> None:
    """Wait for up to the time of some tiles, so that a kill finds a worker anywhere in its task."""
    time.sleep(moments.uniform(0.0, 0.5))


def check_kept(store: Path, before: dict[Tile, Entry]) -> None:
    """What was done is not done again: its entry in the ledger is the one of that time."""
    now = ledger_of(store)
    assert {tile: now[tile] for tile in before} == before


def check_complete(store: Path, undisturbed: dict[str, str]) -> None:
    (files,) = find_matrices(Folder(store)).values()
    assert set(ledger_of(store)) == set(files.grid.all_tiles())
    assert chunk_files(store) == undisturbed
    assert left_over(store) == []


@pytest.mark.campaign  # such kills are in every run: tests/faults/test_kills.py
def test_killed_workers_are_replaced_while_the_run_goes_on(
    start: Starter, store: Path, undisturbed: dict[str, str], moments: random.Random
) -> None:
    run = start.cksc("distances", str(store), *DASK_RUN)
    before: dict[Tile, Entry] = {}
    for _ in range(KILLS):
        wait_for_tiles(store, run, moments.randint(2, 12))
        random_pause(moments)
        wait_until(lambda: len(run.workers()) == 2, "two workers")
        before = ledger_of(store) | before
        moments.choice(run.workers()).kill()
    assert run.wait() == 0, run.output
    assert 0 < len(before) < len(ledger_of(store))
    check_complete_but_for_partials(store, undisturbed)
    check_kept(store, before)
    wait_until(lambda run=run: not run.group(), "the end of all its processes")  # helpers of Python end a little later
    again = start.cksc("distances", str(store), "--executor", "serial")
    assert again.wait() == 0
    assert "complete" in again.output
    check_complete(store, undisturbed)


def check_complete_but_for_partials(store: Path, undisturbed: dict[str, str]) -> None:
    found = {name: digest for name, digest in chunk_files(store).items() if not name.endswith(".partial")}
    assert found == undisturbed


@pytest.mark.campaign  # such kills are in every run: tests/faults/test_kills.py
def test_a_killed_scheduler_ends_the_run_with_words_and_the_next_goes_on(
    start: Starter, store: Path, undisturbed: dict[str, str], moments: random.Random
) -> None:
    port = free_port()
    address = f"tcp://127.0.0.1:{port}"
    for _ in range(KILLS):
        scheduler, workers = start.scheduler(port), start.workers(address)
        run = start.cksc("distances", str(store), "--scheduler", address)
        wait_for_tiles(store, run, moments.randint(2, 12))
        random_pause(moments)
        before = ledger_of(store)
        scheduler.kill()
        assert run.wait() == 2, run.output
        assert "Traceback" not in run.output
        assert "the scheduler went away" in run.output
        assert "run the same command again" in run.output
        for worker in workers:
            worker.end()
        assert len(before) < LEAST_TILES
        check_kept(store, before)
    start.scheduler(port)
    start.workers(address)
    before = ledger_of(store)
    run = start.cksc("distances", str(store), "--scheduler", address)
    assert run.wait() == 0, run.output
    check_kept(store, before)
    check_complete(store, undisturbed)


@pytest.mark.campaign  # such kills are in every run: tests/faults/test_kills.py
def test_a_killed_client_leaves_no_workers_and_the_next_goes_on(
    start: Starter, store: Path, undisturbed: dict[str, str], moments: random.Random
) -> None:
    for _ in range(KILLS):
        run = start.cksc("distances", str(store), *DASK_RUN)
        wait_for_tiles(store, run, moments.randint(2, 12))
        random_pause(moments)
        run.kill()
        wait_for_the_end_of_all(run)
    # as a writer that is killed leaves it
    chunk = next(store.glob("distances/*/distance/c/*/*"))
    chunk.with_name(f"{chunk.name}.0123456789abcdef.partial").write_bytes(b"half a chunk")
    before = ledger_of(store)
    run = start.cksc("distances", str(store), *DASK_RUN)
    assert run.wait() == 0, run.output
    assert "unfinished files of a run that was killed" in run.output
    assert 0 < len(before) < len(ledger_of(store))
    check_kept(store, before)
    check_complete(store, undisturbed)


@pytest.mark.campaign
def test_workers_killed_while_the_cluster_starts(start: Starter, store: Path) -> None:
    run = start.cksc("distances", str(store), *DASK_RUN)
    wait_until(lambda: len(run.workers()) == 2, "two workers")
    for worker in run.workers():
        worker.kill()
    # new ones may take their place; if not, a person is told; older releases of Dask are given up after 70 s first
    assert run.wait(240) in (0, 2), run.output
    assert "Traceback" not in run.output
    wait_until(lambda run=run: not run.group(), "the end of all its processes")  # helpers of Python end a little later


@pytest.mark.slow
def test_a_scheduler_killed_before_the_first_tile_ends_the_run_with_words(
    start: Starter, store: Path, moments: random.Random
) -> None:
    port = free_port()
    address = f"tcp://127.0.0.1:{port}"
    scheduler, _ = start.scheduler(port), start.workers(address)
    run = start.cksc("distances", str(store), "--scheduler", address)
    wait_until(lambda: "client connection" in scheduler.output, "a client that is connected")
    time.sleep(moments.uniform(0.0, 0.6))  # versions are compared, then a sample is timed
    scheduler.kill()
    assert run.wait() == 2, run.output
    assert "Traceback" not in run.output
    assert "scheduler" in run.output
    assert "run the same command again" in run.output


@pytest.mark.slow
def test_a_second_run_is_told_who_is_at_work_and_takes_over_from_the_dead(
    start: Starter, store: Path, undisturbed: dict[str, str]
) -> None:
    first = start.cksc("distances", str(store), "--executor", "threads")
    wait_for_tiles(store, first, 2)
    second = start.cksc("distances", str(store), "--executor", "threads")
    assert second.wait() == 2, second.output
    assert f"is being written by process {first.process.pid} on {socket.gethostname()}" in second.output
    assert "cksc status" in second.output
    assert first.runs(), "the second ended too late to be told anything"
    status = start.cksc("status", str(store))
    assert status.wait() == 0
    assert f"process {first.process.pid}" in status.output
    first.kill()
    assert (store / "lock.json").exists()
    before = ledger_of(store)
    third = start.cksc("distances", str(store), "--executor", "threads")
    assert third.wait() == 0, third.output
    check_kept(store, before)
    check_complete(store, undisturbed)


def interrupt_process(run: Started) -> None:
    """As ``kill -INT`` does."""
    run.process.send_signal(signal.SIGINT)


def interrupt_group(run: Started) -> None:
    """As Ctrl-C on a terminal does: all processes in the foreground are told."""
    os.killpg(run.process.pid, signal.SIGINT)


@pytest.mark.slow
@pytest.mark.parametrize(
    "interrupts", [(interrupt_group,), pytest.param((interrupt_process, interrupt_group), marks=pytest.mark.campaign)]
)
def test_interrupted_by_the_user(
    start: Starter, store: Path, undisturbed: dict[str, str], interrupts: tuple[Callable[[Started], None], ...]
) -> None:
    for interrupt in interrupts:
        run = start.cksc("distances", str(store), *DASK_RUN)
        wait_for_tiles(store, run, 4)
        before = ledger_of(store)
        interrupt(run)
        assert run.wait() == 130, run.output
        assert "interrupted" in run.output
        assert "Traceback" not in run.output
        wait_until(
            lambda run=run: not run.group(), "the end of all its processes"
        )  # helpers of Python end a little later
        assert not (store / "lock.json").exists()
        check_kept(store, before)
    before = ledger_of(store)
    again = start.cksc("distances", str(store), "--executor", "threads")
    assert again.wait() == 0, again.output
    check_kept(store, before)
    check_complete(store, undisturbed)
