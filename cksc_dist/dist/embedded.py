"""A cluster of processes on this machine, for the time of the work."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing import resource_tracker
from typing import Any
from uuid import uuid4

import dask
from distributed import LocalCluster
from distributed.deploy.spec import SpecCluster

from cksc_dist.dist.encryption import lacking_certificates
from cksc_dist.errors import ClusterError, want_of_threads
from cksc_dist.machine import memory
from cksc_dist.maths.threads import resolve_n_jobs

__all__ = ["closed_in_time", "local_cluster"]

DASHBOARD_PORT = 8787

UP_SECONDS = 60
EACH_SECONDS = 5
"""So long a cluster may take to start, and so much longer for each of its workers; then it is given up and another one
started: where a worker dies meanwhile, Dask may wait without end."""
START_SECONDS = 30
CLOSE_SECONDS = 30
STARTS = 3
STARTS_OF_DYING = 10
"""So often a cluster is started whose workers die without a word, as those do that somebody kills."""
KILL = getattr(signal, "SIGKILL", signal.SIGTERM)  # which Windows lacks

_ONE_THREAD = {
    name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
}


def local_cluster(workers: int, limit: int | None) -> LocalCluster:
    """Start a cluster on this machine; once more where a worker died meanwhile, and again: Dask then gives up."""
    protocol = _protocol()  # left out, it is not encrypted, whatever Dask's default is
    lacking = lacking_certificates(protocol) if protocol else ""
    if lacking:
        raise ClusterError(
            f"Dask's setting distributed.comm.require-encryption wants TLS, {lacking}, or unset "
            "DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION"
        )
    seconds = UP_SECONDS + workers * EACH_SECONDS
    left = {False: STARTS, True: STARTS_OF_DYING}
    while True:
        try:
            return _started(partial(_new_cluster, workers, limit), seconds)
        except (RuntimeError, OSError, TimeoutError) as error:
            want_of_threads(error)
            died = _died(error)
            left[died] -= 1
            if left[died]:
                continue
            raise ClusterError(
                f"no cluster could be started on this machine ({error.__cause__ or error}); run the command again or, "
                "where it takes that, with --executor threads"
            ) from error


def _died(error: BaseException) -> bool:
    """Tell whether a worker died without a word; one that meets with an error while it starts tells it."""
    while error.__cause__ is not None:
        error = error.__cause__
    return isinstance(error, RuntimeError)


def _new_cluster(workers: int, limit: int | None, name: str) -> LocalCluster:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Port .* is already in use")
        return LocalCluster(
            name=name,
            n_workers=workers,
            threads_per_worker=1,
            # more workers than cores share them, and seldom all need their most at the same time
            memory_limit=limit or memory() // min(workers, resolve_n_jobs(-1)),
            host="127.0.0.1",
            protocol=_protocol(),
            dashboard_address=_dashboard_address(),
            silence_logs=logging.CRITICAL,
            env=_ONE_THREAD,
        )


@contextmanager
def closed_in_time(cluster: LocalCluster) -> Iterator[LocalCluster]:
    """Close a cluster in the end; where a worker was just being started anew, Dask may wait for it without end."""
    try:
        yield cluster
    finally:
        nannies = list(cluster.workers.values())
        try:
            cluster.close(timeout=CLOSE_SECONDS)
        except TimeoutError:
            _end_workers(nannies)


def _end_workers(nannies: Iterable[Any]) -> None:
    for nanny in nannies:
        nanny.close_gracefully()  # it would start its worker anew
        if nanny.process is not None and nanny.process.pid:
            with suppress(OSError):
                os.kill(nanny.process.pid, KILL)  # one that stands still would be waited for when this process ends


def _protocol() -> str | None:
    """Return how the processes of a cluster on this machine talk: a person may demand encryption."""
    return "tls://" if dask.config.get("distributed.comm.require-encryption", None) else None


def _started(start: Callable[[str], LocalCluster], seconds: float) -> LocalCluster:
    """Start a cluster in a thread of its own; whoever interrupts meanwhile is heard once it can be closed.

    One that is not up after so many seconds is given up. Signals come to the main thread. Dask cannot close what is
    half started, and would say so in tracebacks at the end.
    """
    started: Future[LocalCluster] = Future()
    given_up = threading.Event()
    name = f"cksc-{uuid4().hex}"

    def run() -> None:
        # for what is started from here: Ctrl-C goes to all processes of a terminal, and this one ends its workers; once
        # the tracker runs, because starting it lets signals through again
        if hasattr(signal, "pthread_sigmask"):  # not on Windows
            resource_tracker.ensure_running()
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            cluster = start(name)
            if given_up.is_set():
                cluster.close(timeout=CLOSE_SECONDS)
            started.set_result(cluster)
        except BaseException as error:
            started.set_exception(error)

    threading.Thread(target=run, name="cksc-cluster", daemon=True).start()
    try:
        return started.result(timeout=seconds)
    except TimeoutError:
        if started.done():  # Dask's own
            raise
        given_up.set()
        for cluster in list(SpecCluster._instances):
            if getattr(cluster, "name", None) == name:  # others may have clusters of their own
                cluster.shutdown_on_close = False  # Dask would wait for it when this process ends
                _end_workers(list(cluster._created))
        raise TimeoutError(f"it was not up after {seconds:.0f} s") from None
    except KeyboardInterrupt:
        with suppress(Exception):
            started.result(timeout=START_SECONDS).close(timeout=START_SECONDS)
        raise


def _dashboard_address() -> str:
    """Return Dask's usual place for the dashboard or, where somebody has it, any other: Dask would complain first."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError):
            probe.bind(("127.0.0.1", DASHBOARD_PORT))
            return f"127.0.0.1:{DASHBOARD_PORT}"
    return "127.0.0.1:0"
