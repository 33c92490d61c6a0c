"""Who has left this: words for a process, to be put into names of files, and whether it is still there.

A process is known by its host and container, its number, and its birth: numbers are used again, and in a container the
same program often has the same one. The birth is counted from the start of the machine, where the system tells: a clock
that is set moves all times of day.
"""

from __future__ import annotations

import os
import socket
import uuid
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

import psutil

__all__ = ["NAMESPACE", "PARTIAL", "SIGNATURE", "birth", "is_of_the_dead", "runs", "signature", "unfinished"]

PARTIAL = ".partial"
"""How the names of unfinished files end."""

SIGNATURE = r"[0-9a-f]{8}-\d+-\d+"
"""The form of a word for a process."""

TIME_OF_DAY = 1e9
"""Earlier releases counted from 1970: no machine has been running for so many seconds."""


def _namespace() -> str:
    with suppress(OSError):
        return os.readlink("/proc/self/ns/pid")
    return ""


NAMESPACE = _namespace()


def birth(process: int) -> float:
    """Return when a process began, in seconds since its machine did; elsewhere than on Linux since 1970."""
    found = psutil.Process(process)
    with suppress(OSError, ValueError, IndexError):
        told = Path(f"/proc/{process}/stat").read_bytes()
        # after the name, which may hold anything, the 20th word
        return int(told.rpartition(b")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    return float(found.create_time())


def runs(process: int, born: float) -> bool:
    """Tell whether a process of this host is there that was born at that time."""
    try:
        found = psutil.Process(process)
        then = found.create_time() if born > TIME_OF_DAY else birth(process)
        return bool(abs(then - born) < 1.0 and found.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True


def signature() -> str:
    """Return a word for this process, to put into the names of files that nobody needs once it is dead."""
    return _signature(os.getpid())


@lru_cache(maxsize=1)
def _signature(process: int) -> str:
    return f"{_here()}-{process}-{int(birth(process))}"


def unfinished(path: Path) -> Path:
    """Return a name beside a path for what is not whole yet, which tells who writes it; nobody else uses it."""
    return path.with_name(f"{path.name}.{signature()}.{uuid.uuid4().hex}{PARTIAL}")


def is_of_the_dead(word: str) -> bool:
    """Tell whether a signature is of a process of this host that is gone.

    Examples
    --------
    >>> is_of_the_dead(signature())
    False
    """
    here, process, born = word.split("-")
    return here == _here() and not runs(int(process), float(born) + 0.5)


def _here() -> str:
    return sha256(f"{socket.gethostname()} {NAMESPACE}".encode()).hexdigest()[:8]
