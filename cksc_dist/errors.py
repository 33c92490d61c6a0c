"""The exceptions of this package. Each message says what is wrong, where, and what to do.

Everything raised on purpose derives from `CkscError`; what a caller did wrong also is a `ValueError`,
so that code written for scikit-learn or NumPy catches it without knowing this package.
"""

from __future__ import annotations

import shlex
from pathlib import Path

__all__ = [
    "CkscError",
    "ClusterError",
    "EngineError",
    "InputError",
    "ModelFileError",
    "NoSeriesError",
    "NoThreadError",
    "PlanError",
    "ReadError",
    "SmallClassWarning",
    "StoreAwayError",
    "StoreBusyError",
    "StoreError",
    "brief",
    "typed",
    "want_of_threads",
]

MOST_LETTERS = 300
"""Of what a library says."""


class CkscError(Exception):
    """Base of all errors that this package raises on purpose."""


class InputError(CkscError, ValueError):
    """Data or a parameter that cannot be used; raised before any work starts."""


class ReadError(InputError):
    """A file that cannot be read as what it claims to be; names the file and, where there is one, the line."""

    def __init__(self, path: str | Path, message: str, line: int | None = None) -> None:
        where = f"{path}, line {line}" if line is not None else f"{path}"
        super().__init__(f"{where}: {message}")
        self.path = Path(path)
        self.line = line
        self._message = message

    def __reduce__(self) -> tuple[type[ReadError], tuple[Path, str, int | None]]:
        """Let it be sent from a worker: an exception is otherwise made again from its text alone."""
        return type(self), (self.path, self._message, self.line)


class EngineError(InputError):
    """A distance engine that is unknown, not installed, broken, or unable to do what was asked of it."""


class ModelFileError(CkscError, ValueError):
    """A saved model that is missing, damaged, or written by another version."""


class StoreError(CkscError, ValueError):
    """A store that is missing, damaged, unfinished, or written by another version."""


class NoSeriesError(StoreError):
    """A store that has no series yet, or in which writing the first ones was cut off."""


class StoreAwayError(CkscError):
    """A store that does not answer: nothing is known of what it holds.

    It is no `StoreError`: who takes that for damage would compute again, or have removed, what is well.
    """


class StoreBusyError(StoreError):
    """A store that another process is writing."""


class PlanError(InputError):
    """Work that cannot be done with the memory or disk there is; says what would do."""


class NoThreadError(CkscError):
    """No thread could be started: that says nothing of whatever was to be read by it, and is no damage."""


class ClusterError(CkscError, RuntimeError):
    """A cluster that cannot be reached, went away, or runs other code than this process."""


class SmallClassWarning(UserWarning):
    """A class has fewer samples than the number of atoms asked for; it starts with all it has."""


def brief(error: BaseException) -> str:
    """Return what an error of a library says, for one of this package: it may quote much of a file, or say nothing.

    Examples
    --------
    >>> brief(ValueError("no header")), brief(MemoryError()), len(brief(ValueError("x" * 25_000)))
    ('no header', 'MemoryError', 300)
    """
    words = str(error) or type(error).__name__
    return words if len(words) <= MOST_LETTERS else words[: MOST_LETTERS - 3] + "..."


def typed(path: str | Path) -> str:
    """Return a path or URL as it is to be typed in a command that a person is told to run.

    Examples
    --------
    >>> print(typed("taps.zarr"), typed("s3://bucket/taps"), typed("my data/taps.zarr"), typed("-taps"))
    taps.zarr s3://bucket/taps 'my data/taps.zarr' ./-taps
    """
    text = str(path)
    return shlex.quote(f"./{text}" if text.startswith("-") else text)


def want_of_threads(error: BaseException) -> None:
    """Raise a NoThreadError where that is what an error tells."""
    if isinstance(error, RuntimeError) and "can't start new thread" in str(error):
        raise NoThreadError(
            f"{error}: this user may have no more (ulimit -u), or this process no more memory (ulimit -v); end other "
            "programs, or use fewer workers; what is done is kept"
        ) from error
