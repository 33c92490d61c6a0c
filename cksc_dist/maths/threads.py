"""Threads for compiled code that releases the GIL: independent blocks, results in the order of the blocks.

A block is fixed by its position, never by the thread that runs it, so a result does not depend on `n_jobs`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from numbers import Integral
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

from cksc_dist.errors import InputError
from cksc_dist.spec import check_count

__all__ = ["one_blas_thread", "resolve_n_jobs", "run_blocks"]

Result = TypeVar("Result")


def resolve_n_jobs(n_jobs: int | None) -> int:
    """Return how many threads `n_jobs` stands for: None is 1, -1 all cores that this process may use.

    Examples
    --------
    >>> resolve_n_jobs(None), resolve_n_jobs(3)
    (1, 3)
    """
    if n_jobs is None:
        return 1
    asked: Any = n_jobs
    if isinstance(asked, bool) or not isinstance(asked, Integral) or (int(asked) < 1 and int(asked) != -1):
        raise InputError(f"n_jobs={asked!r}: must be None (one thread), a number of threads, or -1 (all cores)")
    return _usable_cores() if int(asked) == -1 else int(asked)


def _usable_cores() -> int:
    # a batch system or container often allows fewer cores than the machine has
    if hasattr(os, "process_cpu_count"):
        return int(os.process_cpu_count() or 1)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run_blocks(function: Callable[[int, int], Result], n: int, block: int, n_jobs: int | None = None) -> list[Result]:
    """Call ``function(start, stop)`` for consecutive blocks of ``range(n)`` and return what they returned.

    Parameters
    ----------
    function
        Called with the edges of a block, at most once for each; several calls at a time where `n_jobs`
        allows, a free thread taking the next block.
    n
        Number of items.
    block
        Items in a block; the last may be shorter.
    n_jobs
        Threads: None is 1 (no pool is made), -1 all cores.

    Returns
    -------
    list
        One result for each block, in the order of the blocks. If a block raises, those not yet begun are
        skipped and the error of the first such block is raised here.

    Examples
    --------
    >>> run_blocks(lambda start, stop: list(range(start, stop)), n=5, block=2, n_jobs=2)
    [[0, 1], [2, 3], [4]]
    """
    check_count("block", block)
    edges = [(start, min(start + block, n)) for start in range(0, n, block)]
    threads = min(resolve_n_jobs(n_jobs), len(edges))
    if threads <= 1:
        return [function(start, stop) for start, stop in edges]
    with ThreadPoolExecutor(threads) as pool:
        futures = [pool.submit(function, start, stop) for start, stop in edges]
        try:
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


class _BlasLimit:
    """The number of BLAS threads belongs to the process: the first who limits it saves it, the last restores it."""

    lock = threading.Lock()
    users = 0
    limit: Any = None


@cache  # to look for libraries takes longer than to decide on a sample
def _blas() -> Any:
    import scipy.linalg  # noqa: F401  it brings a BLAS of its own, which compiled code uses as well

    return ThreadpoolController().select(user_api="blas")


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Let BLAS use one thread in this block, in whichever threads the block runs at the same time.

    The rounding of BLAS depends on its threads; what must not depend on them is computed in here.
    """
    with _BlasLimit.lock:
        if _BlasLimit.users == 0:
            _BlasLimit.limit = _blas().limit(limits=1)
        _BlasLimit.users += 1
    try:
        yield
    finally:
        with _BlasLimit.lock:
            _BlasLimit.users -= 1
            if _BlasLimit.users == 0:
                _BlasLimit.limit.restore_original_limits()
