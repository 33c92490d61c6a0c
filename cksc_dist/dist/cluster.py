"""A client of the user's scheduler, or of a cluster that is started on this machine for the time of the work."""

from __future__ import annotations

import importlib.metadata
import ipaddress
import logging
import os
import platform
import signal
import socket
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext, suppress
from multiprocessing import resource_tracker
from typing import Any

import dask
from distributed import Client, LocalCluster
from distributed.comm.core import CommClosedError

from cksc_dist.dist.progress import Progress
from cksc_dist.dist.ship import DIGEST_THERE, code_digest, disagree, late_workers_judged, requirements, send_code
from cksc_dist.errors import ClusterError
from cksc_dist.machine import memories, memory
from cksc_dist.maths.threads import resolve_n_jobs
from cksc_dist.spec import RunSpec

__all__ = [
    "check_code",
    "connected",
    "dashboard_of",
    "encryption_warning",
    "have_limits",
    "is_here",
    "memory_of_workers",
    "slots_of",
    "working_client",
]

# versions of one minor release understand each other's tasks; others are known not to
MUST_AGREE = ("numpy", "numba", "zarr", "dask")
OWN = "cksc_dist"
DASHBOARD_PORT = 8787

CONNECT_SECONDS = 20
WORKER_SECONDS = 30
START_SECONDS = 30
CLOSE_SECONDS = 30
STARTS = 3

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

_ONE_THREAD = {
    name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
}


@contextmanager
def connected(run: RunSpec, workers: int) -> Iterator[Client]:
    """Connect to the scheduler of the settings; without one, start a cluster of so many workers on this machine."""
    with dask.config.set(_CONFIG), _quiet():
        if run.scheduler is not None:
            plain = _check_encryption(run)
            with _client_of(run.scheduler) as client, _loss_in_words(client):
                if plain and run.scheduler not in _warned:
                    _warned.add(run.scheduler)
                    warnings.warn(plain, stacklevel=3)
                _wait_for_a_worker(client)
                yield client
            return
        with _closed_in_time(_local_cluster(workers, run.memory)) as cluster, _near_client(cluster) as client:
            yield client


def _client_of(address: str) -> Client:
    """Connect with the certificates of Dask's own configuration; say what is wrong where that fails."""
    try:
        return _new_client(address, timeout=f"{CONNECT_SECONDS}s")
    except (OSError, TimeoutError, ValueError, TypeError, RuntimeError) as error:
        missing = _missing_certificates(address)
        if missing:
            raise ClusterError(
                f"{address} wants TLS, but there is {missing}; set the lines that cluster/make_certs printed "
                "(export DASK_DISTRIBUTED__COMM__TLS__...) here as well"
            ) from error
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
        plain = "" if _is_encrypted(address) else ", is it one with TLS (then its address begins with tls://)"
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


def _missing_certificates(address: str) -> str:
    """Name the first file that TLS needs and that is not set or not there; empty where all are, or none is needed."""
    if not _is_encrypted(address):
        return ""
    for key in ("ca-file", "client.cert", "client.key"):
        name = f"distributed.comm.tls.{key}"
        value = dask.config.get(name, None)
        if value is None and key != "client.key":  # the key may be in the file of the certificate
            return f"no {name} in Dask's configuration"
        if value is not None and "\n" not in value and not os.access(value, os.R_OK):
            return f"no readable file {value}, which {name} names"
    return ""


def _is_encrypted(address: str) -> bool:
    default = dask.config.get("distributed.comm.default-scheme", "tcp")
    return (address.split("://")[0] if "://" in address else default) in ("tls", "wss")


def is_here(address: str) -> bool:
    """Tell whether what is sent to an address stays on this machine."""
    scheme, _, rest = address.rpartition("://")
    host = rest.rsplit(":", 1)[0].strip("[]")
    if scheme == "inproc" or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


_warned: set[str] = set()


def encryption_warning(run: RunSpec) -> str:
    """Return what is to be said of a scheduler without TLS, and take it as said; refuse it as settings demand."""
    text = _check_encryption(run)
    if text:
        _warned.add(run.scheduler or "")
    return text


def _check_encryption(run: RunSpec) -> str:
    """Return a warning of a scheduler that is reached over a network without TLS, or refuse it as settings demand."""
    address = run.scheduler or ""
    if _is_encrypted(address) or is_here(address):
        return ""
    recipe = (
        "make certificates with cluster/make_certs, set the lines that it prints for scheduler, workers and here, and "
        "use the tls:// address (cluster/README.md)"
    )
    if run.require_tls or os.environ.get("CKSC_REQUIRE_TLS", "0") not in ("", "0"):
        raise ClusterError(f"{address} is not encrypted, and TLS is required; {recipe}")
    return (
        f"{address} IS NOT ENCRYPTED: whoever reaches it over the network can read the data and run code on every "
        f"worker, and here; {recipe}. --require-tls, or CKSC_REQUIRE_TLS=1, makes this an error"
    )


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
        _same_code(found, progress) if given else nullcontext(),
        progress.on(found),
    ):
        yield found


@contextmanager
def _same_code(client: Client, progress: Progress) -> Iterator[None]:
    """Compare the code here with that of the cluster, and meanwhile with that of workers which join it."""
    notes = _check_scheduler(client)
    with late_workers_judged(client, versions_here()):  # first: nobody may join between the two
        for note in notes + _check_workers(client):
            progress.note(f"warning: {note}")
        yield


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


def _local_cluster(workers: int, limit: int | None) -> LocalCluster:
    """Start a cluster on this machine; once more, where a worker died meanwhile: Dask then gives up."""
    missing = _missing_certificates(_protocol() or "")
    if missing:
        raise ClusterError(
            f"Dask's setting distributed.comm.require-encryption wants TLS, but there is {missing}; set the lines that "
            "cluster/make_certs printed (export DASK_DISTRIBUTED__COMM__TLS__...), or unset "
            "DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION"
        )
    trouble = (RuntimeError, OSError, TimeoutError)
    for _ in range(STARTS - 1):
        with suppress(*trouble):
            return _uninterrupted(lambda: _new_cluster(workers, limit))
    try:
        return _uninterrupted(lambda: _new_cluster(workers, limit))
    except trouble as error:
        raise ClusterError(
            f"no cluster could be started on this machine ({error.__cause__ or error}); run the command again, or with "
            "--executor threads"
        ) from error


def _new_cluster(workers: int, limit: int | None) -> LocalCluster:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Port .* is already in use")
        return LocalCluster(
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
def _closed_in_time(cluster: LocalCluster) -> Iterator[LocalCluster]:
    """Close a cluster in the end; where a worker was just being started anew, Dask may wait for it without end."""
    try:
        yield cluster
    finally:
        nannies = list(cluster.workers.values())
        try:
            cluster.close(timeout=CLOSE_SECONDS)
        except TimeoutError:
            for process in (getattr(nanny, "process", None) for nanny in nannies):
                if process is not None and process.pid:
                    with suppress(OSError):
                        os.kill(process.pid, signal.SIGTERM)


def _protocol() -> str | None:
    """Return how the processes of a cluster on this machine talk: a person may demand encryption."""
    return "tls://" if dask.config.get("distributed.comm.require-encryption", None) else None


def _uninterrupted(start: Callable[[], LocalCluster]) -> LocalCluster:
    """Start a cluster in a thread of its own; whoever interrupts meanwhile is heard once it can be closed.

    Signals come to the main thread. Dask cannot close what is half started, and would say so in tracebacks at the end.
    """
    started: Future[LocalCluster] = Future()

    def run() -> None:
        # for what is started from here: Ctrl-C goes to all processes of a terminal, and this one ends its workers; once
        # the tracker runs, because starting it lets signals through again
        if hasattr(signal, "pthread_sigmask"):  # not on Windows
            resource_tracker.ensure_running()
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            started.set_result(start())
        except BaseException as error:
            started.set_exception(error)

    threading.Thread(target=run, name="cksc-cluster", daemon=True).start()
    try:
        return started.result()
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


def _look_at_memory(dask_worker: Any) -> tuple[int | None, int, list[tuple[str, int]]]:
    """Return what a worker may use as Dask knows it, its threads, and the memory that it shares; runs there."""
    host = socket.gethostname()
    shared = [(f"{host} {owner}", size) for owner, size in memories().items()]
    return dask_worker.memory_manager.memory_limit, dask_worker.state.nthreads, shared


def memory_of_workers(client: Client) -> int | None:
    """Return the bytes that one thread of the smallest worker may use; None where no worker answers.

    That is its share of the limit that the worker was started with, or of what its machine or container has: a limit of
    Dask's may be larger, or missing. Workers of one machine may be in containers, or jobs of SLURM, of their own.
    """
    found = _asked(client, _look_at_memory).values()
    threads = Counter[str]()
    for _, count, shared in found:
        threads.update({owner: count for owner, _ in shared})
    shares = [size // threads[owner] for _, _, shared in found for owner, size in shared]
    return min([*shares, *(limit // count for limit, count, _ in found if limit)], default=None)


def have_limits(client: Client) -> bool:
    """Tell whether every worker was started with a limit of memory."""
    return all(limit for limit, *_ in _asked(client, _look_at_memory).values())


def _asked(client: Client, function: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
    """Call a function on every worker, and return what came; a worker may die while it is asked, and is left out."""
    found = client.run(function, *arguments, on_error="return")
    for address, value in found.items():
        if isinstance(value, Exception) and not isinstance(value, OSError | TimeoutError):
            cure = "see its log, and start it again"
            if isinstance(value, ImportError) and value.name:
                cure = f"install {value.name.split('.')[0]} there as it is here, and start the worker again"
            raise ClusterError(f"worker {address} cannot work ({type(value).__name__}: {value}); {cure}") from value
    return {address: value for address, value in found.items() if not isinstance(value, Exception)}


def dashboard_of(client: Client) -> str:
    """Return the address of the dashboard; empty where the scheduler has none."""
    has_one = "dashboard" in client.scheduler_info().get("services", {})
    return str(client.dashboard_link) if has_one else ""


def slots_of(client: Client) -> int:
    """Return how many tasks the workers run at a time."""
    return int(sum(client.nthreads().values()))


def _look(names: Iterable[str]) -> str:
    """Return what is evaluated on the other side, where this package may be missing, to learn versions."""
    return (
        '{"python": __import__("platform").python_version(), **{name: next((found.version for found in '
        '__import__("importlib.metadata").metadata.distributions(name=name)), None) for name in NAMES}}'
    ).replace("NAMES", repr([*MUST_AGREE, OWN, *names]))


def _arithmetic() -> str:
    """Return which instructions NumPy and BLAS have chosen for the processor; runs on both sides."""
    import numpy as np
    import scipy.linalg  # noqa: F401  it brings a BLAS of its own
    from threadpoolctl import threadpool_info

    built: Any = np.show_config(mode="dicts")
    blas = {
        f"{library['internal_api']} for {library.get('architecture', 'any processor')}"
        for library in threadpool_info()
        if library["user_api"] == "blas"
    }
    vectors = built["SIMD Extensions"]
    return (
        f"NumPy with {' '.join((*vectors.get('baseline', ()), *vectors.get('found', ())))}, {', '.join(sorted(blas))}"
    )


def versions_here() -> dict[str, str]:
    """Return the versions of Python, of what must agree, and of this package, on this side."""
    names = (*MUST_AGREE, OWN)
    return {"python": platform.python_version()} | {name: importlib.metadata.version(name) for name in names}


def check_code(client: Client) -> list[str]:
    """Compare versions here, on the scheduler and on every worker; bring this package where it is missing.

    Returns what a person may want to know; raises a ClusterError that names both sides of a mismatch.
    """
    return _check_scheduler(client) + _check_workers(client)


def _check_scheduler(client: Client) -> list[str]:
    notes, lacks = _compared("the scheduler", client.run_on_scheduler(eval, _look(())))
    if lacks:
        send_code(client)
        notes.append(f"{OWN} is not installed on the scheduler: its code was sent there")
    return notes


def _check_workers(client: Client) -> list[str]:
    notes, without, needed = [], [], requirements()
    for address, versions in _asked(client, eval, _look(needed)).items():
        found, lacks = _compared(f"worker {address}", versions)
        if missing := [name for name in needed if versions.get(name) is None]:
            raise ClusterError(
                f"worker {address} has no {', '.join(missing)}, which {OWN} needs; install there, then start it "
                f"again: pip install {' '.join(repr(needed[name]) for name in missing)}"
            )
        notes += found
        without += [address] if lacks else []
    if without:
        send_code(client, without)
        more = f" and {len(without) - 1} more" if without[1:] else ""
        notes.append(f"{OWN} is not installed on worker {without[0]}{more}: its code was sent there")
    for address, digest in _asked(client, eval, DIGEST_THERE).items():
        if digest != code_digest():
            raise ClusterError(
                f"worker {address} has {OWN} {versions_here()[OWN]} as it is here, but other code of it; both sides "
                "must run the same: install it anew there, and start the worker again"
            )
    return notes + _other_arithmetic(_asked(client, _arithmetic))


def _other_arithmetic(there: Mapping[str, str]) -> list[str]:
    """Say which worker rounds otherwise than this side; one stands for all."""
    here = _arithmetic()
    others = [(address, found) for address, found in there.items() if found != here]
    if not others:
        return []
    address, found = others[0]
    more = f" (and {len(others) - 1} more)" if len(others) > 1 else ""
    return [
        f"worker {address}{more} computes by {found}; here it is {here}: the last bits of kernels and models may "
        "depend on who computes them, those of DTW distances do not; take processors of one kind where bytes must be "
        "the same"
    ]


def _compared(place: str, there: Mapping[str, str | None]) -> tuple[list[str], bool]:
    """Compare versions; return smaller differences, and whether this package is missing."""
    notes = []
    for name, mine in versions_here().items():
        other = there.get(name)
        if other is None and name != OWN:
            raise ClusterError(f"{place} has no {name}; install {name} {mine} there, as it is here")
        if other is not None and disagree(name, mine, other):
            raise ClusterError(
                f"{place} has {name} {other}, but here it is {mine}; both sides must run the same: install one of "
                "the two everywhere"
            )
        if other not in (None, mine):
            notes.append(f"{place} has {name} {other}, here it is {mine}")
    return notes, there.get(OWN) is None
