"""A disk of a few MiB that can be filled, emptied and made read-only; it needs root, and Linux."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

MIB = 2**20

needs_root = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0 or shutil.which("mount") is None,
    reason="needs root, to mount a small disk",
)


class Disk:
    """A tmpfs at a path."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._filler = path / "filler"

    def leave(self, room: int) -> None:
        """Fill the disk but for so many bytes."""
        self.free()
        found = os.statvfs(self.path)
        with self._filler.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, max(1, found.f_bavail * found.f_frsize - room))

    def free(self) -> None:
        """Remove what fills the disk."""
        self._filler.unlink(missing_ok=True)

    def remount(self, options: str) -> None:
        """Change how the disk is mounted."""
        subprocess.run(["mount", "-o", f"remount,{options}", str(self.path)], check=True)


@contextmanager
def small_disk(path: Path, size: int = 8 * MIB) -> Iterator[Disk]:
    """Mount a small disk at a new folder, and take it away in the end."""
    path.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "cksc-test", str(path)], capture_output=True)
    if made.returncode:
        pytest.skip(f"cannot mount a small disk here: {made.stderr.decode().strip()}")
    try:
        yield Disk(path)
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)
