"""Containers as far as memory goes: control groups that a test makes, with a limit that the system enforces.

Needs root, and /sys/fs/cgroup that can be written; `container` skips the test where that is not so, and says why.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

GROUPS = Path("/sys/fs/cgroup")
# of version 1 and of version 2: where groups are made, the limit, and the file that counts processes that were killed
LAYOUTS = (
    (GROUPS / "memory", "memory.limit_in_bytes", "memory.oom_control"),
    (GROUPS, "memory.max", "memory.events"),
)
_numbers = itertools.count()


@dataclass(frozen=True)
class Container:
    """A control group."""

    folder: Path
    counts: str

    def inside(self, *command: str) -> list[str]:
        """Return a command that runs another one in the group, and so all that it starts."""
        return ["sh", "-c", f'echo $$ > {self.folder}/cgroup.procs && exec "$@"', "sh", *command]

    @property
    def killed(self) -> int:
        """How many processes the system has killed because the limit was reached."""
        lines = dict(line.split() for line in (self.folder / self.counts).read_text().splitlines())
        return int(lines["oom_kill"])


def _made() -> tuple[Path, str, str]:
    """Make a group, and return it with the names of its files for the limit and for the count."""
    for top, limit, counts in LAYOUTS:
        if not (top / "cgroup.procs").exists():
            continue
        folder = top / f"cksc-test-{os.getpid()}-{next(_numbers)}"
        try:
            folder.mkdir()
        except OSError as error:
            pytest.skip(f"needs root and control groups that can be made: {error}")
        if (folder / limit).exists():
            return folder, limit, counts
        folder.rmdir()
    pytest.skip("needs control groups with limits of memory below /sys/fs/cgroup")


@contextmanager
def container(megabytes: int) -> Iterator[Container]:
    """Give a group that may use so much memory; all that is left of it in the end is killed."""
    folder, limit, counts = _made()
    try:
        (folder / limit).write_text(str(megabytes * 2**20))
        for swap in ("memory.memsw.limit_in_bytes", "memory.swap.max"):
            with suppress(OSError):
                (folder / swap).write_text(str(megabytes * 2**20) if "memsw" in swap else "0")
        yield Container(folder, counts)
    finally:
        end = time.monotonic() + 10.0
        while (left := (folder / "cgroup.procs").read_text().split()) and time.monotonic() < end:
            for process in left:
                with suppress(ProcessLookupError):
                    os.kill(int(process), 9)
            time.sleep(0.05)
        folder.rmdir()
