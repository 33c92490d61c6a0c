"""Where Numba keeps compiled code: beside the package, or in the user's home; where neither may be written, elsewhere.

In containers, and for services, both often belong to somebody else. Numba then fails at the first function that is to
be kept. What it reads back is unpickled, so the folder must be nobody else's.
"""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

__all__ = ["find_a_place"]

VARIABLE = "NUMBA_CACHE_DIR"


def find_a_place() -> None:
    """Name a private temporary folder to Numba where it would find no place for compiled code."""
    if not hasattr(os, "getuid"):
        return  # there, home is always the user's own
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path(os.path.expanduser("~"), ".cache"), "numba")
    chosen = os.environ.get(VARIABLE)
    places = [Path(chosen)] if chosen else [Path(__file__).parent / "__pycache__", home]
    if any(_may_be_written(place) for place in places):
        return
    with suppress(OSError):  # where there is no temporary folder either, Numba says so
        os.environ[VARIABLE] = str(_private_folder())
        if "numba" in sys.modules:
            sys.modules["numba"].config.CACHE_DIR = os.environ[VARIABLE]


def _may_be_written(place: Path) -> bool:
    """Tell whether there is such a folder, or could be, in which this user may make files."""
    while not os.path.lexists(place):
        place = place.parent
    return place.is_dir() and os.access(place, os.W_OK | os.X_OK)


def _private_folder() -> Path:
    """Return the same folder every time, so that nothing is compiled twice; another one if it is not this user's."""
    folder = Path(tempfile.gettempdir(), f"cksc_dist-{os.getuid()}")
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077:
        return folder
    return Path(tempfile.mkdtemp(prefix="cksc_dist-"))
