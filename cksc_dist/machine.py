"""Memory that this process may use: of the machine, or of the container that it is in.

A container, a job of SLURM and a service of systemd are control groups: folders below /sys/fs/cgroup that tell how much
memory all processes of a group may use, and how much they do. There are two versions of their layout. The limits of the
groups above hold as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

__all__ = ["free_memory", "memories", "memory"]

GROUPS = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")


@dataclass(frozen=True)
class _Layout:
    """Where a version of control groups has its folders, and what it calls the files in them."""

    top: str
    limit: str
    used: str
    cache: str
    """Line of memory.stat: the part of what is used that is given back when somebody needs it."""


VERSION_1 = _Layout("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
VERSION_2 = _Layout("", "memory.max", "memory.current", "inactive_file")


def memory() -> int:
    """Return the bytes of memory of this machine, or of the container that this process is in."""
    return min(memories().values())


def memories() -> dict[str, int]:
    """Return the bytes of memory of this machine and of each container around this process, by whose it is.

    Two processes of one machine that name the same share it. A container cannot tell its own name: those who see none
    but their own group may be taken to share what they do not, which promises them less than they have.
    """
    return {"machine": int(psutil.virtual_memory().total)} | {str(folder): limit for folder, limit, _ in _groups()}


def free_memory() -> int:
    """Return how many bytes of it are free, or would be if somebody needed them."""
    free = [int(psutil.virtual_memory().available), *(limit - used for _, limit, used in _groups())]
    return max(0, min(free))


def _groups() -> Iterator[tuple[Path, int, int]]:
    """Give folder, limit and use of the control group of this process and of those above it that have a limit."""
    lines = []
    with suppress(OSError):
        lines = OWN.read_text().splitlines()
    for line in lines:
        number, controllers, path = line.split(":", 2)
        layout = VERSION_2 if number == "0" else VERSION_1
        if layout is VERSION_1 and "memory" not in controllers.split(","):
            continue
        top = GROUPS / layout.top
        own = top / path.strip("/")
        # inside a container its own group may be at the top, whatever it is called outside
        for folder in (own, *(above for above in own.parents if above.is_relative_to(top))):
            with suppress(OSError, ValueError):
                limit = int((folder / layout.limit).read_text())  # no number: no limit
                yield folder, limit, max(0, _used(folder, layout) - _cache(folder, layout))


def _used(folder: Path, layout: _Layout) -> int:
    with suppress(OSError, ValueError):
        return int((folder / layout.used).read_text())
    return 0  # a limit holds, whether or not the system tells how much is used


def _cache(folder: Path, layout: _Layout) -> int:
    with suppress(OSError, ValueError):
        lines = dict(line.split(maxsplit=1) for line in (folder / "memory.stat").read_text().splitlines())
        return int(lines.get(layout.cache, 0))
    return 0
