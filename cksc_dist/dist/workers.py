"""What is there to work with: the workers of a cluster, their memory, and where to watch them."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Callable
from typing import Any

from distributed import Client

from cksc_dist.errors import ClusterError
from cksc_dist.machine import memories

__all__ = ["asked", "dashboard_of", "have_limits", "memory_of_workers", "slots_of"]


def asked(client: Client, function: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
    """Call a function on every worker, and return what came; a worker may die while it is asked, and is left out."""
    found = client.run(function, *arguments, on_error="return")
    for address, value in found.items():
        if isinstance(value, Exception) and not isinstance(value, OSError | TimeoutError):
            cure = "see its log, and start it again"
            if isinstance(value, ImportError) and value.name:
                cure = f"install {value.name.split('.')[0]} there as it is here, and start the worker again"
            raise ClusterError(f"worker {address} cannot work ({type(value).__name__}: {value}); {cure}") from value
    return {address: value for address, value in found.items() if not isinstance(value, Exception)}


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
    found = asked(client, _look_at_memory).values()
    threads = Counter[str]()
    for _, count, shared in found:
        threads.update({owner: count for owner, _ in shared})
    shares = [size // threads[owner] for _, _, shared in found for owner, size in shared]
    return min([*shares, *(limit // count for limit, count, _ in found if limit)], default=None)


def have_limits(client: Client) -> bool:
    """Tell whether every worker was started with a limit of memory."""
    return all(limit for limit, *_ in asked(client, _look_at_memory).values())


def slots_of(client: Client) -> int:
    """Return how many tasks the workers run at a time."""
    return int(sum(client.nthreads().values()))


def dashboard_of(client: Client) -> str:
    """Return the address of the dashboard; empty where the scheduler has none."""
    has_one = "dashboard" in client.scheduler_info().get("services", {})
    return str(client.dashboard_link) if has_one else ""
