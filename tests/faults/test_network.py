"""Hosts whose links are cut, for a while or for good, and processes that stand still: the work ends, and is right."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cksc_dist.dist.ingest import ingest
from cksc_dist.io import make_gestures
from tests.dist.processes import CKSC, DASK, Started, Starter, chunk_files, ledger_of, left_over, starter, wait_until
from tests.faults.hosts import Host, hosts, missing

ROOT = Path(__file__).resolve().parents[2]
WHY_NOT = missing()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.netns,
    pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT),
]

TILES = 8
"""Tiles that are done when something happens; there are ten times as many."""


class Network:
    """A scheduler, two workers and a client, each on a host of its own."""

    def __init__(self, start: Starter, found: list[Host]) -> None:
        self._start = start
        self.head, self.client, *self.homes = found
        self.address = f"tcp://{self.head.address}:8786"
        self._settings = {"DASK_CONFIG": str(ROOT / "cluster" / "dask.yaml")}
        scheduler = ("scheduler", "--host", self.head.address, "--port", "8786", "--no-dashboard")
        begun = self.on(self.head, *DASK, *scheduler)
        wait_until(lambda: "Scheduler at" in begun.output, "a scheduler")
        self.workers = [self.worker(home) for home in self.homes]

    def on(self, host: Host, *command: str) -> Started:
        return self._start(*host.here, *command, environment=self._settings)

    def worker(self, home: Host) -> Started:
        options = ("--nthreads", "1", "--no-nanny", "--no-dashboard", "--host", home.address)
        begun = self.on(home, *DASK, "worker", self.address, *options)
        wait_until(lambda: "Registered to" in begun.output, "a registered worker")
        return begun

    def distances(self, store: Path) -> Started:
        """Begin to compute distances, and wait until some are there."""
        run = self.on(self.client, *CKSC, "distances", str(store), "--scheduler", self.address)
        wait_until(lambda: not run.runs() or len(ledger_of(store)) >= TILES, "some tiles")
        assert run.runs(), f"ended too soon:\n{run.output}"
        return run


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    with hosts(4) as found, starter(tmp_path) as start:
        yield Network(start, found)


@pytest.fixture(scope="module")
def ingested(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("ingested") / "gestures.zarr"
    ingest(make_gestures(n_per_class=400, dims=6, length=(80, 120)), store)
    return store


@pytest.fixture(scope="module")
def undisturbed(ingested: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("undisturbed")
    store = shutil.copytree(ingested, folder / "serial.zarr")
    with starter(folder) as start:
        run = start.cksc("distances", str(store), "--executor", "threads")
        assert run.wait() == 0, run.output
    return chunk_files(store)


@pytest.fixture
def store(ingested: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(ingested, tmp_path / "gestures.zarr"))


def stop_for(worker: Started, seconds: float) -> None:
    """Let all processes of a worker stand still, then go on."""
    for number, pause in ((signal.SIGSTOP, seconds), (signal.SIGCONT, 0.0)):
        for process in worker.group():
            process.send_signal(number)
        time.sleep(pause)


def cut_for(host: Host, seconds: float) -> None:
    host.cut()
    time.sleep(seconds)
    host.mend()


def check(run: Started, store: Path, undisturbed: dict[str, str], begun: float) -> None:
    """The run has ended well, with the bytes of one that nobody disturbed."""
    assert run.wait(300.0) == 0, run.output
    print(f"ended {time.monotonic() - begun:.0f} s after it happened")
    assert chunk_files(store) == undisturbed
    assert left_over(store) == []


def stop_both_for(network: Network, seconds: float) -> None:
    for worker in network.workers:
        stop_for(worker, seconds)


DISTURBANCES: dict[str, Callable[[Network], None]] = {
    "the link of a worker is cut for good": lambda network: network.homes[0].cut(),
    "the link of a worker is cut for 5 s": lambda network: cut_for(network.homes[0], 5.0),
    "a worker stands still for 5 s": lambda network: stop_for(network.workers[0], 5.0),
}
LONG: dict[str, Callable[[Network], None]] = {
    "the link of the client is cut for 5 s": lambda network: cut_for(network.client, 5.0),
    "the link of the scheduler is cut for 5 s": lambda network: cut_for(network.head, 5.0),
    "the link of a worker is cut for 40 s, and it comes back": lambda network: cut_for(network.homes[0], 40.0),
    "a worker stands still for 80 s, longer than it is waited for": lambda network: stop_for(network.workers[0], 80.0),
    "one worker stands still for 10 s, then the other": lambda network: stop_both_for(network, 10.0),
}


@pytest.mark.parametrize("what", [*DISTURBANCES, *(pytest.param(what, marks=pytest.mark.campaign) for what in LONG)])
def test_the_work_ends_and_is_right(what: str, network: Network, store: Path, undisturbed: dict[str, str]) -> None:
    run, begun = network.distances(store), time.monotonic()
    (DISTURBANCES | LONG)[what](network)
    check(run, store, undisturbed, begun)


@pytest.mark.campaign
def test_a_client_that_is_cut_off_for_good_says_so_and_the_next_goes_on(
    network: Network, store: Path, undisturbed: dict[str, str]
) -> None:
    run, begun = network.distances(store), time.monotonic()
    network.client.cut()
    assert run.wait(300.0) == 2, run.output
    print(f"told {time.monotonic() - begun:.0f} s after it happened")
    assert "run the same command again" in run.output
    network.client.mend()
    before = ledger_of(store)
    again = network.on(network.client, *CKSC, "distances", str(store), "--scheduler", network.address)
    check(again, store, undisturbed, time.monotonic())
    now = ledger_of(store)
    assert {tile: now[tile] for tile in before} == before, "what was done is not done again"
