"""What is wrong with a cluster or a store, told before work starts, each with what to do.

diagnose(run, store)      lines as they are found; what ``cksc doctor`` prints

A check asks every worker for facts and gives them to a function that judges them, so that what is said of a sick
cluster can be tested without one.
"""

from __future__ import annotations

import math
import os
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from distributed import Client

from cksc_dist.dist.cluster import connected
from cksc_dist.dist.encryption import encryption_warning
from cksc_dist.dist.forecast import make_plan, new_edge, workers_of
from cksc_dist.dist.plan import Rate
from cksc_dist.dist.same_code import check_code, versions_here
from cksc_dist.dist.workers import have_limits, memory_of_workers, slots_of
from cksc_dist.errors import CkscError, ClusterError, PlanError, want_of_threads
from cksc_dist.maths.dtw import pairwise_dtw
from cksc_dist.spec import DistanceSpec, RunSpec
from cksc_dist.store.folder import Folder
from cksc_dist.store.grid import Grid
from cksc_dist.store.layout import is_store
from cksc_dist.store.matrix_files import MatrixFiles
from cksc_dist.store.series_files import open_series

__all__ = ["Line", "diagnose"]

CAPS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
GAP_SECONDS = 2.0
"""A worker that is silent for longer while it computes may be taken for dead where many compute at once."""
PROBE_SECONDS = 1.0
SKEW_SECONDS = 5.0
"""Clocks that differ by more make times in a ledger, and the age of a lock, hard to read."""
SKEW_LIMIT = 60.0
"""From here on a living writer may be taken for a dead one."""
LOCAL_BYTES = 10**9
"""Room that a worker should have for its temporary files."""
SECONDS = 120.0
"""How long any answer of the workers is waited for."""

# alone these have known distances: a build of the C library that is broken has given zeros
KNOWN_SERIES = ([0.0, 0.0, 1.0], [0.0, 1.0, 1.0], [3.0, 3.0, 3.0])
KNOWN = ((0.0, 0.0, math.sqrt(22.0)), (0.0, 0.0, math.sqrt(17.0)), (math.sqrt(22.0), math.sqrt(17.0), 0.0))


@dataclass(frozen=True)
class Line:
    """One finding: how it is (``ok``, ``warn``, ``fail``), of what, and in words, with what to do."""

    state: Literal["ok", "warn", "fail"]
    subject: str
    text: str


def diagnose(run: RunSpec, store: str | None = None) -> Iterator[Line]:
    """Check a cluster, and a store where one is given; without a scheduler, the cluster that would be started here.

    Parameters
    ----------
    run
        Which scheduler, or how many workers on this machine.
    store
        Folder or URL of a store that the workers are to work on.
    """
    try:
        plain = encryption_warning(run)
        if plain:
            yield Line("warn", "encryption", plain)
        with connected(run, workers_of(run)) as client:
            yield from _check_all(client, store)
    except ClusterError as error:
        yield Line("fail", "scheduler", str(error))
    except (OSError, TimeoutError, RuntimeError, KeyError) as error:
        want_of_threads(error)
        yield Line(
            "fail",
            "scheduler",
            f"it, or a worker, went away while it was asked ({error}); see their logs, and ask again",
        )


def _check_all(client: Client, store: str | None) -> Iterator[Line]:
    count, slots = len(client.nthreads()), slots_of(client)
    yield Line("ok", "scheduler", f"{client.scheduler.address}: {count} workers, {slots} threads")
    try:
        notes = check_code(client)
    except ClusterError as error:
        yield Line("fail", "versions", f"{error}; the other checks need the same code on both sides")
        return
    versions = ", ".join(f"{name} {version}" for name, version in versions_here().items())
    yield from [Line("warn", "versions", note) for note in notes] or [Line("ok", "versions", versions)]
    yield from judge_threads(client.run(_threads))
    yield from judge_memory(memory_of_workers(client) if have_limits(client) else None, store, slots)
    yield from judge_gil(_on_each(client, _silence))
    yield from judge_dtaidistance(_on_each(client, _known_matrix))
    yield from judge_clocks(_clocks(client))
    yield from judge_disk(client.run(_local_room))
    if store is not None:
        yield from check_store(client, store)


def _on_each(client: Client, function: Any, *arguments: Any) -> dict[str, Any]:
    """Call a function in a task on every worker, where it may take its time; an exception is a result as well."""
    futures = {
        address: client.submit(function, *arguments, workers=[address], pure=False) for address in client.nthreads()
    }
    found: dict[str, Any] = {}
    for address, future in futures.items():
        try:
            found[address] = future.result(timeout=SECONDS)
        except Exception as error:  # whatever is wrong there is what is to be told
            found[address] = error
    return found


def _failures(subject: str, found: Mapping[str, Any], todo: str) -> list[Line]:
    return [
        Line("fail", subject, f"worker {address}: {type(error).__name__}: {error}; {todo}")
        for address, error in found.items()
        if isinstance(error, Exception)
    ]


def _threads(dask_worker: Any) -> tuple[int, dict[str, str | None]]:
    """Return how many tasks a worker runs at a time, and the threads that libraries may start; runs there."""
    return dask_worker.state.nthreads, {name: os.environ.get(name) for name in CAPS}


def judge_threads(found: Mapping[str, tuple[int, Mapping[str, str | None]]]) -> list[Line]:
    """Say which workers run several tasks, or let libraries start threads of their own."""
    lines = []
    for address, (threads, caps) in found.items():
        free = [name for name, value in caps.items() if value != "1"]
        if threads > 1:
            lines.append(
                Line(
                    "warn",
                    "threads",
                    f"worker {address} runs {threads} tasks at a time, and code that holds Python's lock runs one; "
                    "start more workers with --nthreads 1",
                )
            )
        if free:
            lines.append(
                Line(
                    "warn",
                    "threads",
                    f"worker {address} does not cap {', '.join(free)}: its libraries may start a thread for each core; "
                    "set them to 1, or start it with DASK_CONFIG=cluster/dask.yaml",
                )
            )
    return lines or [Line("ok", "threads", "one task a worker, and one thread a library")]


def judge_memory(memory: int | None, store: str | None, slots: int) -> list[Line]:
    """Say whether workers have a limit, and whether the distances of the store can be computed within it."""
    if memory is None:
        return [
            Line("warn", "memory", "workers have no limit, and may fill the machine; start them with --memory-limit")
        ]
    allowed = f"{memory / 2**20:,.0f} MiB a thread"
    if store is None:
        return [Line("ok", "memory", allowed)]
    try:
        series, spec = open_series(Folder(store)), DistanceSpec().resolved()
        plan = make_plan(series, MatrixFiles(series.folder, spec, Grid(series.n, new_edge(series, spec))))
        need = plan.need(Rate(1.0, 0.0, 1.0), slots, memory).memory
    except PlanError as error:
        return [Line("fail", "memory", str(error))]
    except (CkscError, OSError):
        return [Line("ok", "memory", allowed)]  # what is wrong with the store is told where it is checked
    return [Line("ok", "memory", f"{allowed}; the distances of {store} need {need / 2**20:,.0f} MiB")]


def _silence() -> float:
    """Return the longest time that another thread had to wait while distances were computed; runs on a worker."""
    rng = np.random.default_rng(0)
    series = [rng.standard_normal((200, 3)) for _ in range(48)]
    pairwise_dtw(series[:4], n_jobs=1)  # compiles
    gap, stop = [0.0], threading.Event()

    def beat() -> None:
        last = time.monotonic()
        while not stop.wait(0.01):
            now = time.monotonic()
            gap[0], last = max(gap[0], now - last), now

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    end = time.monotonic() + PROBE_SECONDS
    while time.monotonic() < end:
        pairwise_dtw(series, n_jobs=1)
    stop.set()
    thread.join()
    return gap[0]


def judge_gil(found: Mapping[str, Any]) -> list[Line]:
    """Say whether workers can show that they are alive while they compute."""
    lines = _failures("heartbeat", found, "the kernel does not run there: see the log of the worker")
    gaps = {address: gap for address, gap in found.items() if not isinstance(gap, Exception)}
    lines += [
        Line(
            "warn",
            "heartbeat",
            f"worker {address} was silent for {gap:.1f} s while it computed; its machine is overloaded (fewer workers "
            "there), or Numba does not release Python's lock (see versions)",
        )
        for address, gap in gaps.items()
        if gap > GAP_SECONDS
    ]
    return lines or [Line("ok", "heartbeat", f"silent for {max(gaps.values(), default=0.0):.2f} s at most")]


def _known_matrix() -> list[list[float]]:
    """Return what dtaidistance says of known series; runs on a worker."""
    series = [np.array(values)[:, np.newaxis] for values in KNOWN_SERIES]
    distances: list[list[float]] = pairwise_dtw(series, engine="dtaidistance", n_jobs=1).tolist()
    return distances


def judge_dtaidistance(found: Mapping[str, Any]) -> list[Line]:
    """Say where the library that results are verified with gives wrong values."""
    todo = "install dtaidistance again there: pip install --force-reinstall dtaidistance"
    lines = _failures("dtaidistance", found, todo)
    for address, values in found.items():
        if not isinstance(values, Exception) and not np.allclose(values, KNOWN, rtol=1e-12, atol=0.0):
            lines.append(
                Line("fail", "dtaidistance", f"worker {address} computes {values}, but {KNOWN} is right; {todo}")
            )
    return lines or [Line("ok", "dtaidistance", "a known matrix comes out right")]


def _clocks(client: Client) -> dict[str, float]:
    """Return how far the clock of each worker is ahead of this one, as far as the way there lets one say."""
    found = {}
    for address in client.nthreads():
        begin = time.time()
        there = client.run(time.time, workers=[address])[address]
        end = time.time()
        found[address] = there - min(max(there, begin), end)  # nothing where it lies between
    return found


def judge_clocks(ahead: Mapping[str, float]) -> list[Line]:
    """Say which clocks are wrong."""
    lines = []
    for address, seconds in ahead.items():
        if abs(seconds) > SKEW_SECONDS:
            lines.append(
                Line(
                    "fail" if abs(seconds) > SKEW_LIMIT else "warn",
                    "clock",
                    f"worker {address} is {abs(seconds):.0f} s {'ahead' if seconds > 0 else 'behind'}, and locks and "
                    "ledgers carry times; set the clocks by NTP",
                )
            )
    most = max((abs(seconds) for seconds in ahead.values()), default=0.0)
    return lines or [Line("ok", "clock", f"{most:.1f} s apart at most")]


def _local_room(dask_worker: Any) -> int:
    """Return the room for temporary files; runs on a worker."""
    return min(shutil.disk_usage(path).free for path in (dask_worker.local_directory, tempfile.gettempdir()))


def judge_disk(found: Mapping[str, int]) -> list[Line]:
    """Say which workers are short of room for temporary files."""
    lines = [
        Line(
            "warn",
            "disk",
            f"worker {address} has {free / 1e9:.1f} GB left for temporary files; clear up there, or start it with "
            "--local-directory elsewhere",
        )
        for address, free in found.items()
        if free < LOCAL_BYTES
    ]
    return lines or [Line("ok", "disk", f"{min(found.values()) / 1e9:,.1f} GB or more for temporary files")]


def check_store(client: Client, store: str) -> list[Line]:
    """See whether all workers read and write the very store that this process sees; leaves nothing in it."""
    folder, rows = Folder(store), 0
    try:
        if is_store(folder):
            rows = open_series(folder).n
    except (CkscError, OSError) as error:
        if not _is_plain_folder(folder):
            return [Line("fail", "store", f"{error}")]
    tokens, there = f"doctor-{uuid.uuid4().hex}", folder.local is not None and folder.local.exists()
    try:
        folder.write(f"{tokens}/client", tokens.encode())
        found = _on_each(client, _answer, folder.url, tokens)
        back = {
            address: key if isinstance(key, Exception) else folder.read(f"{tokens}/{key}")
            for address, key in found.items()
        }
    except OSError as error:
        return [Line("fail", "store", f"{folder.url} cannot be written from here ({error}); mend its rights")]
    finally:
        with suppress(OSError):
            folder.below(tokens).remove_all()
        if folder.local is not None and not there:
            with suppress(OSError):
                folder.local.rmdir()
    lines = judge_store(folder.url, tokens, back)
    return lines or _room(folder, rows)


def _is_plain_folder(folder: Folder) -> bool:
    """Tell whether it is a folder of this machine without a store in it, such as one that holds several."""
    return folder.local is not None and folder.local.is_dir() and not (folder.local / "zarr.json").exists()


def _answer(url: str, tokens: str) -> str:
    """Read what the client wrote, write it back under a name of one's own, and return that; runs on a worker."""
    folder = Folder(url)
    read = folder.read(f"{tokens}/client")
    if read is None:
        raise FileNotFoundError(f"it does not see what the client wrote to {url}")
    key = uuid.uuid4().hex
    folder.write(f"{tokens}/{key}", read)
    return key


def judge_store(url: str, tokens: str, back: Mapping[str, Any]) -> list[Line]:
    """Say which workers do not see the same store; nothing where all do."""
    todo = f"all workers must see the same {url}: use a folder that they share under one name, or a URL as s3://bucket/name"
    lines = _failures("store", back, todo)
    for address, content in back.items():
        if not isinstance(content, Exception) and content != tokens.encode():
            lines.append(Line("fail", "store", f"worker {address}: what it writes is not seen here; {todo}"))
    return lines


def _room(folder: Folder, n: int) -> list[Line]:
    free, wanted = folder.free_bytes(), 8 * n * n
    seen = f"{folder.url} is read and written by all workers"
    if not n:
        seen += ", and holds no series yet"
    if free is None:
        return [Line("ok", "store", seen)]
    if free < wanted:
        return [
            Line(
                "warn",
                "store",
                f"{seen}, but has {free / 1e9:,.1f} GB left, and a matrix of float64 takes {wanted / 1e9:,.1f} GB; "
                "clear up, choose another place, or --dtype float32",
            )
        ]
    return [
        Line("ok", "store", f"{seen}; {free / 1e9:,.1f} GB left, {wanted / 1e9:,.1f} GB for a new matrix of float64")
    ]
