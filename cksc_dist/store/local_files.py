"""Files on this machine: each is written whole or not at all, outlives a power cut, and lies where its name says.

A temporary file is renamed. What takes the place of another file is on the disk before it does, so that a power cut
leaves the old one or the new one. What is new may be lost then, or be empty, and is noticed by its checksum or digest.
"""

from __future__ import annotations

import glob
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

from cksc_dist.errors import InputError, StoreError
from cksc_dist.files import NotPlainError, check_plain, plain_only
from cksc_dist.processes import is_abandoned, unfinished

__all__ = [
    "check_output",
    "check_stored",
    "check_unlinked",
    "groups_above",
    "open_stored",
    "path_below",
    "put",
    "replacing",
    "sync_folder",
    "sync_tree",
]


FOR_USERS = (".html", ".jsonl", ".txt")
"""How no file of a store ends."""

MOST_LETTERS = 170
"""Of a name, in bytes: systems allow 255, and while something is written its name is longer."""


def path_below(top: Path, key: str) -> Path:
    """Return the path of a file below a folder; a StoreError tells of a link on the way, which may lead anywhere."""
    above = top
    for part in key.split("/")[:-1]:
        above = above / part
        if above.is_symlink():
            raise StoreError(
                f"{above} is a link, which nothing is written or removed through; put a folder in its place (or mount "
                "the other disk there), and run the same command again"
            )
    return top / key


def open_stored(path: str | Path) -> io.BufferedReader:
    """Open a file of a store for reading; a StoreError tells of a pipe or a device in its place."""
    try:
        return open(path, "rb", opener=plain_only)
    except NotPlainError as error:
        raise _not_plain(path) from error


def check_stored(path: str | Path) -> None:
    """Raise a StoreError where a pipe or a device is in the place of a file that others will open."""
    try:
        check_plain(path)
    except NotPlainError as error:
        raise _not_plain(path) from error


def _not_plain(path: str | Path) -> StoreError:
    return StoreError(
        f"{path} is a pipe or a device, and no plain file; remove it, and restore the file from a copy or run the "
        "command again that made it"
    )


def groups_above(path: Path) -> list[Path]:
    """Return the stores and models that a path lies inside, the innermost first."""
    return [folder for folder in path.parents if (folder / "zarr.json").exists()]


def check_unlinked(path: Path) -> None:
    """Raise a StoreError where a path that lies inside a store is a link, or leads through one from there.

    Links outside of stores are their user's; a store may come from anybody.
    """
    whole = path.absolute()
    # the outermost: what a link inside a store leads to may be a store as well
    for top in groups_above(whole)[-1:]:
        path_below(top, f"{whole.relative_to(top).as_posix()}/")


def put(top: Path, key: str, content: Any, *, durable: bool = False, new: bool = False) -> bool:
    """Write a file below a folder.

    Parameters
    ----------
    top, key
        The folder, and the name of the file from there.
    content
        Bytes.
    durable
        File and name are on the disk itself before this returns.
    new
        Nothing happens where there is such a file already, and False is returned.
    """
    path = path_below(top, key)
    made = [above for above in path.parents if not above.exists()] if durable else []
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = unfinished(path)
    try:
        with partial.open("wb") as file:
            file.write(content)  # a full disk shows here, and leaves nothing under the name
            if durable or path.exists():
                file.flush()
                os.fsync(file.fileno())
        if new:
            return _linked(partial, path, content)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    if durable:
        for folder in (path.parent, *(above.parent for above in made)):
            sync_folder(folder)
    return True


def _linked(partial: Path, path: Path, content: Any) -> bool:
    """Give a file its name unless that is taken; return whether it was not."""
    try:
        os.link(partial, path)  # fails where the name is taken, and is whole where it is not
    except FileExistsError:
        # on a network disk the answer to the first attempt may be lost, and the second one finds its own file
        return partial.stat().st_nlink > 1
    except OSError:
        return _created_without_links(path, content)
    return True


def _created_without_links(path: Path, content: Any) -> bool:
    """Some file systems have no hard links; a reader may then see the file before its content."""
    try:
        file = path.open("xb")
    except FileExistsError:
        return False
    try:
        with file:
            file.write(content)
    except OSError:
        path.unlink(missing_ok=True)  # without its content it would be taken for a damaged one
        raise
    return True


def check_output(target: Path, *sources: str | Path) -> None:
    """Raise an InputError where a file for a user would take the place of what it is made from, or of other data.

    Inside a store, a StoreError tells of a link.
    """
    if target.is_dir() or not target.name:
        raise InputError(f"{str(target)!r} is a folder; give the name of a file to write")
    if len(os.fsencode(target.name)) > MOST_LETTERS:
        raise InputError(f"{target.name[:50]}...: the name is too long; choose one of at most {MOST_LETTERS} letters")
    check_unlinked(target)
    real = target.resolve()
    for source in sources:
        if real == Path(source).resolve():
            raise InputError(f"{target} is what is read; choose another file to write")
    for folder in groups_above(real) if target.suffix not in FOR_USERS else ():
        raise InputError(f"{target} lies inside {folder}, a store or model; choose another place for the file")


@contextmanager
def replacing(target: Path) -> Iterator[TextIO]:
    """Give a file to write text to, which takes the place of the target once it is whole.

    What killed processes left of the same target is removed. A pipe or a device is written to as it is.
    """
    if target.exists() and not target.is_file():
        with target.open("w", encoding="utf-8") as stream:
            yield stream
        return
    target = target.resolve()  # what a link leads to is meant
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = unfinished(target)
    try:
        with partial.open("w", encoding="utf-8") as stream:
            yield stream
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    for left in target.parent.glob(f"{glob.escape(target.name)}.*"):
        if is_abandoned(left):
            left.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Let the names in a folder outlive a power cut; where folders cannot be opened, the system sees to it."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def sync_tree(folder: Path) -> None:
    """Let all files below a folder outlive a power cut; links and pipes are nothing that this package writes."""
    for above, _, names in os.walk(folder):
        for name in names:
            path = Path(above, name)
            if path.is_symlink() or not path.is_file():
                continue
            with suppress(FileNotFoundError), open_stored(path) as file:
                os.fsync(file.fileno())
        sync_folder(Path(above))
