"""Whether all sides of a cluster run the same code: what they compute is mixed, and must not depend on who did."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from distributed import Client

from cksc_dist.dist.progress import Progress
from cksc_dist.dist.ship import DIGEST_THERE, code_digest, disagree, late_workers_judged, requirements, send_code
from cksc_dist.dist.workers import asked
from cksc_dist.errors import ClusterError

__all__ = ["check_code", "same_code", "versions_here"]

# versions of one minor release understand each other's tasks; others are known not to
MUST_AGREE = ("numpy", "numba", "zarr", "dask")
OWN = "cksc_dist"


def versions_here() -> dict[str, str]:
    """Return the versions of Python, of what must agree, and of this package, on this side."""
    names = (*MUST_AGREE, OWN)
    return {"python": platform.python_version()} | {name: importlib.metadata.version(name) for name in names}


def check_code(client: Client) -> list[str]:
    """Compare versions here, on the scheduler and on every worker; bring this package where it is missing.

    Returns what a person may want to know; raises a ClusterError that names both sides of a mismatch.
    """
    return _check_scheduler(client) + _check_workers(client)


@contextmanager
def same_code(client: Client, progress: Progress) -> Iterator[None]:
    """Compare the code here with that of the cluster, and meanwhile with that of workers which join it."""
    notes = _check_scheduler(client)
    with late_workers_judged(client, versions_here()):  # first: nobody may join between the two
        for note in notes + _check_workers(client):
            progress.note(f"warning: {note}")
        yield


def _check_scheduler(client: Client) -> list[str]:
    notes, lacks = _compared("the scheduler", client.run_on_scheduler(eval, _look(())))
    if lacks:
        send_code(client)
        notes.append(f"{OWN} is not installed on the scheduler: its code was sent there")
    return notes


def _check_workers(client: Client) -> list[str]:
    notes, without, needed = [], [], requirements()
    for address, versions in asked(client, eval, _look(needed)).items():
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
    for address, digest in asked(client, eval, DIGEST_THERE).items():
        if digest != code_digest():
            raise ClusterError(
                f"worker {address} has {OWN} {versions_here()[OWN]} as it is here, but other code of it; both sides "
                "must run the same: install it anew there, and start the worker again"
            )
    return notes + _other_arithmetic(asked(client, _arithmetic))


def _look(names: Iterable[str]) -> str:
    """Return what is evaluated on the other side, where this package may be missing, to learn versions."""
    return (
        '{"python": __import__("platform").python_version(), **{name: next((found.version for found in '
        '__import__("importlib.metadata").metadata.distributions(name=name)), None) for name in NAMES}}'
    ).replace("NAMES", repr([*MUST_AGREE, OWN, *names]))


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
