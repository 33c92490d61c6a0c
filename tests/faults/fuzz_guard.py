"""What one execution may do: time, memory, warnings and writing, watched from inside the process that fuzzes."""

from __future__ import annotations

import os
import resource
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from cksc_dist.errors import CkscError, SmallClassWarning

__all__ = ["Guard", "memory_limited"]

MEMORY = 3 * 2**29
"""Bytes that a target may take on top of what it has when it begins."""
MOST_RESIDENT = 3 * 2**26
"""Bytes that may really be in memory on top of that; more was believed of a file than is in it."""
MOST_SECONDS = 20.0
"""Seconds for one execution; most take a thousandth, but on a busy machine anything may wait."""

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_CHANGES = {
    *("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod"),
    *("shutil.rmtree", "shutil.move", "shutil.copyfile", "os.chown", "os.utime"),
}


@contextmanager
def memory_limited() -> Iterator[None]:
    """Let this process take so much more memory, and no more."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


class Guard:
    """Runs executions one by one and says what was wrong with each; None: nothing."""

    def __init__(self) -> None:
        self._box = ""
        self._outside: list[str] = []
        self._active = False
        self._begun = 0
        self.slowest = 0.0
        sys.addaudithook(self._hear)

    def begin(self, box: Path) -> None:
        """Begin with a target, which may write to a folder."""
        self._box, self.slowest = os.path.realpath(box), 0.0
        with suppress(OSError):  # the most memory that was ever taken begins anew with what is taken now
            Path("/proc/self/clear_refs").write_text("5")
        self._begun = _most_memory()

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Note what is changed outside of the box, whom it talks to, and what it starts."""
        if not self._active:
            return
        if event == "open":
            path, mode, flags = arguments
            if isinstance(path, str | bytes) and (set(mode or "") & set("wax+") or (flags or 0) & _WRITING):
                self._check(event, path)
        elif event in _CHANGES:
            for path in arguments[: 2 if event in ("os.rename", "os.link", "shutil.move", "os.symlink") else 1]:
                if isinstance(path, str | bytes | os.PathLike):
                    # what is removed with its folder is named from there
                    below = arguments[-1] if event in ("os.remove", "os.rmdir") else -1
                    self._check(event, f"/proc/self/fd/{below}/{os.fsdecode(path)}" if below >= 0 else path)
        elif event == "socket.connect" and "127.0.0.1" not in str(arguments[1]):
            self._outside.append(f"connects to {arguments[1]!r}")
        elif event in ("subprocess.Popen", "os.system", "os.exec") and "fc-list" not in str(arguments):
            self._outside.append(f"{event} {arguments!r:.200}")
        elif event == "pickle.find_class" and arguments[0].split(".")[0] in (
            "os",
            "posix",
            "nt",
            "subprocess",
            "shutil",
        ):
            # others are in order: Numba keeps compiled code in pickles of its own
            self._outside.append(f"{event} {arguments!r:.200}")

    def _check(self, event: str, path: Any) -> None:
        where = os.path.realpath(os.fsdecode(path))
        inside = where == self._box or where.startswith(f"{self._box}{os.sep}")
        caches = where.startswith(os.environ.get("MPLCONFIGDIR", "\0")) or "__pycache__" in where
        nowhere = where in (os.devnull, "/proc") or where.startswith("/proc/nothing")  # as command lines may ask for
        if not inside and not caches and not nowhere:
            self._outside.append(f"{event} {where!r:.200}")

    def run(self, execute: Callable[[], bool]) -> tuple[str, str | None]:
        """Return what came of an execution (accepted, refused, failed), and what was wrong with it."""
        self._outside.clear()
        begun = time.perf_counter()
        outcome, wrong = "refused", None
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            self._active = True
            try:
                outcome = "accepted" if execute() else "refused"
            except CkscError as error:
                wrong = _ill_worded(error)
            except BaseException as error:
                wrong = "".join(traceback.format_exception(error, limit=-12))
            finally:
                self._active = False
        seconds = time.perf_counter() - begun
        self.slowest = max(self.slowest, seconds)
        strange = [each for each in heard if not _is_in_place(each)]
        if wrong is None and strange:
            wrong = f"warns: {strange[0].category.__name__}: {strange[0].message} ({strange[0].filename})"
        if wrong is None and self._outside:
            wrong = f"outside of its place: {'; '.join(self._outside[:3])}"
        if wrong is None and seconds > MOST_SECONDS:
            wrong = f"took {seconds:.1f} s"
        grown = _most_memory() - self._begun
        if wrong is None and grown > MOST_RESIDENT:
            self._begun += grown
            wrong = f"memory grew by {grown:,} bytes"
        return ("failed" if wrong else outcome), wrong


def _most_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _is_in_place(told: warnings.WarningMessage) -> bool:
    """Tell whether a warning is this package's own, or one of a library that tells of an odd but readable file."""
    old_header = str(told.message).startswith("Reading `.npy`")
    return (
        issubclass(told.category, SmallClassWarning)
        or old_header
        or any(part in told.filename for part in ("/PIL/", "numpy/lib/_format_impl.py", "<unknown>"))
    )


def _ill_worded(error: CkscError) -> str | None:
    """Return what is wrong with a named error: it must have words, and a length that can be read."""
    text = str(error)
    if not text.strip():
        return f"{type(error).__name__} without words"
    return f"{type(error).__name__} of {len(text):,} letters: {text[:200]}" if len(text) > 20_000 else None
