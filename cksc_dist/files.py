"""Files that are opened if they are plain alone: whoever opens a pipe or a device may wait for ever."""

from __future__ import annotations

import errno
import os
import stat

__all__ = ["NotPlainError", "check_plain", "plain_only"]


class NotPlainError(OSError):
    """A pipe, a socket or a device in the place of a file."""

    def __init__(self, path: str) -> None:
        super().__init__(errno.EINVAL, "it is a pipe or a device, and no plain file", path)

    def __reduce__(self) -> tuple[type[NotPlainError], tuple[str]]:
        """Let it be sent from a worker: an exception is otherwise made again from all that is in it."""
        return type(self), (self.filename,)


def plain_only(path: str, flags: int) -> int:
    """Open a file, as an ``opener`` of `open`; what is not plain is refused, and not waited for.

    Examples
    --------
    >>> open(os.devnull, "rb", opener=plain_only)
    Traceback (most recent call last):
    ...
    cksc_dist.files.NotPlainError: [Errno 22] it is a pipe or a device, and no plain file: '/dev/null'
    """
    number = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    if not _may_be_read(os.fstat(number).st_mode):
        os.close(number)
        raise NotPlainError(os.fspath(path))
    return number


def check_plain(path: str | os.PathLike[str]) -> None:
    """Raise a NotPlainError for what is not plain, where others will open it."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return  # which is for whoever opens it to tell
    if not _may_be_read(mode):
        raise NotPlainError(os.fspath(path))


def _may_be_read(mode: int) -> bool:
    """Tell whether a file is plain, or a folder, of which Python says by itself that it is none."""
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)
