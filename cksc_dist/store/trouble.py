"""What the operating system says of a disk, in words that tell what to do."""

from __future__ import annotations

import errno

from cksc_dist.errors import StoreError

__all__ = ["advice", "named_trouble"]

_FULL = "there is no room left on the disk; make room, then run the same command again"
_DENIED = "this user may not read or write there; see to the permissions, or choose another place"

_ADVICE = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: "this user's share of the disk is used up; make room, then run the same command again",
    errno.EFBIG: "a file would be larger than this process may write (see ulimit -f)",
    errno.EROFS: "it can only be read; mount it for writing, or work on a copy of it",
    errno.EACCES: _DENIED,
    errno.EPERM: _DENIED,
    errno.EIO: "the disk cannot read or write there; look at the log of the system, then check with cksc verify",
    errno.EMFILE: "this process may not open more files (see ulimit -n)",
}


def advice(error: OSError) -> str:
    """Return what to do about an error of the operating system; empty where nobody knows.

    Examples
    --------
    >>> advice(OSError(errno.EROFS, "Read-only file system"))
    'it can only be read; mount it for writing, or work on a copy of it'
    """
    if error.errno is None and isinstance(error, PermissionError):
        return _DENIED  # of a server, which has no numbers
    return _ADVICE.get(error.errno or 0, "")


def named_trouble(error: BaseException | None, url: str) -> StoreError | None:
    """Return an error that says what to do about a disk while something is written; None where it is another error."""
    if not isinstance(error, OSError) or isinstance(error, StoreError) or not (words := advice(error)):
        return None
    return StoreError(f"{url} cannot be written ({error}): {words}; what is done is kept")
