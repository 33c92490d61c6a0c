"""A client of the user's scheduler, or of a cluster that is started on this machine for the time of the work."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

import dask
from distributed import Client, LocalCluster
from distributed.comm.core import CommClosedError

from cksc_dist.dist.embedded import closed_in_time, local_cluster
from cksc_dist.dist.encryption import check_encryption, is_encrypted, lacking_certificates, warned
from cksc_dist.dist.progress import Progress
from cksc_dist.dist.same_code import same_code
from cksc_dist.errors import ClusterError
from cksc_dist.spec import RunSpec

__all__ = ["connected", "working_client"]

CONNECT_SECONDS = 20
WORKER_SECONDS = 30

_CONFIG = {
    "distributed.comm.timeouts.connect": "15s",
    "distributed.comm.timeouts.tcp": "15s",
    "distributed.scheduler.worker-ttl": "60s",
    # workers may be killed for reasons that have nothing to do with the task they run
    "distributed.scheduler.allowed-failures": 10,
    # so long after a worker has died its nanny is closed for good if just then the next one is not there, as where that
    # has died, too
    "distributed.deploy.lost-worker-timeout": "24h",
    # results are a few bytes: nothing to spill, and a tile comes and goes
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    # what is not spilled does not shrink: a worker that paused would never go on
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": 0.98,
    "distributed.admin.tick.limit": "30s",
    # looking after itself takes a tenth of both cores of a small machine, at the pace that is usual
    "distributed.worker.memory.monitor-interval": "1s",
    "distributed.worker.profile.enabled": False,
    "distributed.admin.system-monitor.interval": "2s",
    "distributed.admin.system-monitor.gil.enabled": False,
    "distributed.admin.tick.interval": "500ms",
    "distributed.scheduler.work-stealing-interval": "1s",
    "distributed.scheduler.active-memory-manager.start": False,
    "distributed.worker.preload": ["cksc_dist.dist.worker_setup"],
}


@contextmanager
def connected(run: RunSpec, workers: int) -> Iterator[Client]:
    """Connect to the scheduler of the settings; without one, start a cluster of so many workers on this machine."""
    with dask.config.set(_CONFIG), _quiet():
        if run.scheduler is not None:
            plain = check_encryption(run)
            with _closed_anyhow(_client_of(run.scheduler)) as client, _loss_in_words(client):
                if plain and run.scheduler not in warned:
                    warned.add(run.scheduler)
                    warnings.warn(plain, stacklevel=3)
                _wait_for_a_worker(client)
                yield client
            return
        with (
            closed_in_time(local_cluster(workers, run.memory)) as cluster,
            _closed_anyhow(_near_client(cluster)) as client,
        ):
            yield client


@contextmanager
def working_client(run: RunSpec, workers: int, client: Any, progress: Progress) -> Iterator[Client]:
    """Give the client to work with: the one that is given, or that of the settings; say what a person should know.

    Only on a cluster that was not started here may the code differ from that of this process.
    """
    given = client is not None or run.scheduler is not None
    if not given:
        progress.note(f"starting a cluster of {workers} workers on this machine")
    with (
        nullcontext(client) if client is not None else connected(run, workers) as found,
        _loss_in_words(found),
        same_code(found, progress) if given else nullcontext(),
        progress.on(found),
    ):
        yield found


def _client_of(address: str) -> Client:
    """Connect with the certificates of Dask's own configuration; say what is wrong where that fails."""
    try:
        return _new_client(address, timeout=f"{CONNECT_SECONDS}s")
    except (OSError, TimeoutError, ValueError, TypeError, RuntimeError) as error:
        lacking = lacking_certificates(address)
        if lacking:
            raise ClusterError(f"{address} wants TLS, {lacking}") from error
        text = str(error)
        if "encryption required" in text:
            raise ClusterError(
                f"{address} is not encrypted, and Dask's setting distributed.comm.require-encryption forbids that; use "
                "the tls:// address of the scheduler, or unset DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION"
            ) from error
        if "certificate" in text.lower() or "ssl" in text.lower():
            raise ClusterError(
                f"{address} and this side do not accept each other's certificates ({error}); both must be signed by "
                "the same CA: use the files that cluster/make_certs made for this cluster"
            ) from error
        if isinstance(error, TypeError | RuntimeError):
            raise
        plain = "" if is_encrypted(address) else ", is it one with TLS (then its address begins with tls://)"
        raise ClusterError(
            f"no scheduler answers at {address} within {CONNECT_SECONDS} s ({error}); is it running, and "
            f"is the address right{plain}? Start one with: dask scheduler"
        ) from error


def _new_client(target: Any, **options: Any) -> Client:
    """Return a client; one that cannot connect is closed at once.

    Otherwise it would be closed when it is collected as garbage. That may be while another client is started, by the
    same thread or by that one's own, and then Dask waits for a lock that it holds: for ten seconds, or for ever.
    """
    client = Client.__new__(Client)
    try:
        client.__init__(target, set_as_default=False, **options)
    except BaseException:
        client.__del__()
        with suppress(AttributeError):  # it may have failed before it had one
            client._loop_runner.stop()
        raise
    return client


@contextmanager
def _closed_anyhow(client: Client) -> Iterator[Client]:
    """Close a client in the end; what Dask meets with then, where the other side has gone, hides no other error."""
    try:
        yield client
    finally:
        with suppress(RuntimeError, OSError, TimeoutError):
            client.close()


def _near_client(cluster: LocalCluster) -> Client:
    """Return a client that fetches results from the workers themselves: on one machine it can reach them."""
    return _new_client(cluster, direct_to_workers=True)


def _wait_for_a_worker(client: Client) -> None:
    """Workers may be on their way still, but not for ever."""
    try:
        client.wait_for_workers(1, timeout=WORKER_SECONDS)
    except TimeoutError as error:
        address = client.scheduler.address
        raise ClusterError(
            f"the scheduler at {address} has had no worker for {WORKER_SECONDS} s; start some with: dask worker "
            f"{address}"
        ) from error


@contextmanager
def _loss_in_words(client: Client) -> Iterator[None]:
    """Say that the scheduler has gone, whichever way that shows."""
    try:
        yield
    except (OSError, TimeoutError) as error:
        # a line that has just been cut tells it sooner than the client does
        if client.status == "running" and not isinstance(error, CommClosedError):
            raise
        raise ClusterError(
            f"the scheduler went away ({error}); what is done is kept: start it again, then run the same command again"
        ) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the library's log lines about lost workers away: what matters of them is said by this package."""
    loggers = [logging.getLogger(name) for name in ("distributed", *logging.root.manager.loggerDict)]
    levels = {logger: logger.level for logger in loggers if logger.name.split(".")[0] in ("distributed", "tornado")}
    for logger in levels:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in levels.items():
            logger.setLevel(level)
