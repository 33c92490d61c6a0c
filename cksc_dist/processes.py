"""Who has left this: words for a process, to be put into names of files, and whether it is still there.

A process is known by its host, that host's last start, its container, its number, and its birth: numbers are used
again, and in a container the same program often has the same one. The birth is counted from the start of the machine,
where the system tells: a clock that is set moves all times of day.
"""

from __future__ import annotations

import os
import re
import socket
import time
import uuid
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

import psutil

__all__ = [
    "NAMESPACE",
    "PARTIAL",
    "SIGNATURE",
    "birth",
    "is_abandoned",
    "is_of_the_dead",
    "runs",
    "signature",
    "unfinished",
]

PARTIAL = ".partial"
"""How the names of unfinished files end."""

SIGNATURE = r"[0-9a-f]{8}-\d+-\d+"
"""The form of a word for a process."""

UNFINISHED = re.compile(rf"\.({SIGNATURE})\.[0-9a-f]{{32}}{re.escape(PARTIAL)}$")
"""How unfinished files end, with a word for the process that writes."""

ABANDONED_SECONDS = 86400.0

TIME_OF_DAY = 1e9
"""Earlier releases counted from 1970: no machine has been running for so many seconds."""


def _namespace() -> str:
    """Return what tells this start of this machine, and this container, from others of the same name."""
    with suppress(OSError):
        started = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{os.readlink('/proc/self/ns/pid')} {started}"
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
    except (psutil.NoSuchProcess, ValueError):  # the latter of what is no number of a process
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


def is_of_the_dead(word: str, path: Path) -> bool:
    """Tell whether what has a signature in its name is of a process that is gone.

    Of this host that is known. Elsewhere, or before this machine was started last, it is where nobody has touched the
    thing for a day: to write one takes seconds.

    Examples
    --------
    >>> is_of_the_dead(signature(), Path())
    False
    """
    here, process, born = word.split("-")
    if here == _here():
        return not runs(int(process), float(born) + 0.5)
    with suppress(OSError):
        return time.time() - path.stat().st_mtime > ABANDONED_SECONDS
    return False


def is_abandoned(path: Path) -> bool:
    """Tell whether a path has a name of `unfinished`, and whoever wrote there is gone."""
    found = UNFINISHED.search(path.name)
    return found is not None and is_of_the_dead(found[1], path)


def _here() -> str:
    return sha256(f"{socket.gethostname()} {NAMESPACE}".encode()).hexdigest()[:8]
