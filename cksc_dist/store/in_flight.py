"""Files that are being written: where one of several cannot be, Zarr says so at once, and goes on with the others.

Whoever then removes what is half written, or gives a store back, must wait for them: they would come after it.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["settle", "writing"]

QUIET = 0.05
"""Seconds without any write after which no other is on its way: each begins when one before it ends."""
PATIENCE = 60.0
"""Seconds that are waited for them; a disk may hang."""

_now = Counter[Path]()
_changed = threading.Condition()


@contextmanager
def writing(top: Path) -> Iterator[None]:
    """Tell that a file below a folder is being written."""
    top = top.absolute()
    with _changed:
        _now[top] += 1
    try:
        yield
    finally:
        with _changed:
            _now[top] -= 1
            if not _now[top]:
                del _now[top]
            _changed.notify_all()


def settle(top: Path) -> None:
    """Wait until this process writes no file below a folder any more."""
    top, end = top.absolute(), time.monotonic() + PATIENCE

    def rests() -> bool:
        return not any(place.is_relative_to(top) for place in _now)

    with _changed:
        while _changed.wait_for(rests, end - time.monotonic()) and _changed.wait_for(lambda: not rests(), QUIET):
            pass
