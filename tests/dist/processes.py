"""Processes that tests start, watch and kill. Each has a group of its own, so that nothing of it stays behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import psutil
from distributed import Client

from cksc_dist.store.folder import Folder
from cksc_dist.store.grid import Tile
from cksc_dist.store.ledger import Entry, Ledger
from cksc_dist.store.matrix_files import find_matrices

PATIENCE = 120.0
"""Seconds that anything may take which takes a few on an idle machine."""

CKSC = [sys.executable, "-m", "cksc_dist.cli"]
DASK = [sys.executable, "-m", "dask"]


def wait_until(happened: Callable[[], object], what: str, seconds: float = PATIENCE) -> None:
    """Wait for something to come true; fail where it does not."""
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, f"waited {seconds:.0f} s in vain: {what}"
        time.sleep(0.02)


class Started:
    """A process and all that it starts."""

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> None:
        self._log = log
        with log.open("wb") as stream:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=log.parent,  # the package is found where it is installed, not where the tests are run
                env={**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})},
            )

    @property
    def output(self) -> str:
        """What was printed so far, errors included."""
        return self._log.read_text()

    def wait(self, seconds: float = PATIENCE) -> int:
        """Return the exit code."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {seconds:.0f} s; it said:\n{self.output}") from None

    def runs(self) -> bool:
        """Tell whether the process itself is alive."""
        return self.process.poll() is None

    def workers(self) -> list[psutil.Process]:
        """Return the worker processes of a cluster that is embedded in the process."""
        found = []
        for child in psutil.Process(self.process.pid).children(recursive=True):
            try:
                if any("multiprocessing.spawn" in word for word in child.cmdline()):
                    found.append(child)
            except psutil.Error:
                continue  # gone meanwhile
        return found

    def group(self) -> list[psutil.Process]:
        """Return all living processes of the group, also those whose parent is dead."""
        found = []
        for process in psutil.process_iter():
            try:
                if os.getpgid(process.pid) == self.process.pid and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except (psutil.Error, ProcessLookupError, PermissionError):
                continue
        return found

    def kill(self) -> None:
        """Kill the process itself, with no chance to tidy up."""
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        """Kill the whole group."""
        for number in (signal.SIGCONT, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, number)
            except ProcessLookupError:
                break
        self.process.wait()


class Starter:
    """Starts processes whose logs go into a folder, and ends them all."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder, self._stack = folder, stack
        self._count = 0

    def __call__(self, *command: str, environment: Mapping[str, str] | None = None) -> Started:
        self._count += 1
        started = Started(command, self._folder / f"process-{self._count}.log", environment)
        self._stack.callback(started.end)
        return started

    def cksc(self, *arguments: str, environment: Mapping[str, str] | None = None) -> Started:
        """Start a command of this package."""
        return self(*CKSC, *arguments, environment=environment)

    def scheduler(self, port: int, environment: Mapping[str, str] | None = None) -> Started:
        """Start a Dask scheduler on loopback, and wait until it answers."""
        started = self(
            *DASK, "scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard", environment=environment
        )
        wait_until(lambda: answers(port), "a scheduler that answers")
        return started

    def workers(self, address: str, count: int = 2, environment: Mapping[str, str] | None = None) -> list[Started]:
        """Start workers of one thread each, and wait until they are known to the scheduler."""
        started = [
            self(*DASK, "worker", address, "--nthreads", "1", "--no-nanny", "--no-dashboard", environment=environment)
            for _ in range(count)
        ]
        wait_until(lambda: all("Registered to" in worker.output for worker in started), "registered workers")
        return started


@contextmanager
def starter(folder: Path) -> Iterator[Starter]:
    """Give a `Starter`; all that it started is dead afterwards."""
    with ExitStack() as stack:
        yield Starter(folder, stack)


def free_port() -> int:
    """Return a port of loopback that nobody uses now."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def answers(port: int) -> bool:
    """Tell whether somebody listens on a port of loopback."""
    with socket.socket() as caller:
        caller.settimeout(1.0)
        return caller.connect_ex(("127.0.0.1", port)) == 0


def ledger_of(store: str | Path) -> dict[Tile, Entry]:
    """Return what is done of the only matrix of a store; nothing where there is none yet."""
    folder = Folder(store)
    for name in find_matrices(folder):
        return Ledger(folder, name).load().entries
    return {}


def chunk_files(store: Path) -> dict[str, str]:
    """Return a digest of every file below the matrices of a local store."""
    top = store / "distances"
    files = sorted(path for path in top.rglob("*") if path.is_file())
    return {str(path.relative_to(top)): sha256(path.read_bytes()).hexdigest() for path in files}


def left_over(store: Path) -> list[str]:
    """Return unfinished files, locks and marks that are not collected."""
    names = [str(path.relative_to(store)) for path in store.rglob("*") if path.is_file()]
    return sorted(
        name for name in names if name.endswith(".partial") or name.startswith("lock.json") or "/done/" in name
    )


def late_plugins(client: Client) -> list[str]:
    """Return what a scheduler has on behalf of clients that work, to judge workers which join."""

    def look(dask_scheduler: Any) -> list[str]:
        return [name for name in (*dask_scheduler.worker_plugins, *dask_scheduler.plugins) if "cksc-late" in name]

    return list(client.run_on_scheduler(look))
