"""A folder on this machine or anywhere that fsspec reaches: small whole files by key, and a Zarr store.

A write is seen whole or not at all: on this machine a temporary file is renamed, and object stores put whole objects.
A remote store that goes away for a while is waited for before an error is raised (`patience`).
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit
from urllib.request import url2pathname

from cksc_dist.errors import StoreError, typed, want_of_threads
from cksc_dist.processes import PARTIAL, is_abandoned
from cksc_dist.store.local_files import open_stored, path_below, put, sync_tree
from cksc_dist.store.patience import NOT_AWAY, Waiting
from cksc_dist.store.zarr_stores import PlainFsspecStore, PlainLocalStore, check_assertions

__all__ = ["Folder", "local_path"]

MANY = 500
"""Files that a server is asked to remove at a time."""

OTHERS = ("kernels/", "models/", "fits/", "results/")
"""Parts of a store that are written without holding the store."""

Result = TypeVar("Result")


class Folder:
    """Files below a path or URL.

    Parameters
    ----------
    url
        A path, or a URL that fsspec knows (``s3://bucket/name``); credentials and endpoints come from the environment,
        as they do for the library that serves the URL.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as path:
    ...     folder = Folder(path)
    ...     folder.write_json("a/b.json", {"n": 1})
    ...     folder.read_json("a/b.json"), list(folder.files("a")), folder.read("c")
    ({'n': 1}, ['b.json'], None)
    """

    def __init__(self, url: str | Path) -> None:
        text, path = str(url), local_path(url)
        if "\0" in (text if path is None else str(path)):
            raise StoreError(f"{text!r} is no path: it holds NUL")
        self.local: Path | None = None
        if path is not None:
            self.local = path.absolute()
            self.url = str(self.local)
        else:
            _check_no_secret(text)
            self.url = text.rstrip("/")
            self._fs, self._root = _file_system(self.url)

    @classmethod
    def of(cls, store: str | Path | Folder) -> Folder:
        """Return the folder of a path or URL, or the folder that is given."""
        return store if isinstance(store, Folder) else cls(store)

    def __repr__(self) -> str:
        return f"Folder({self.url!r})"

    @property
    def typed(self) -> str:
        """Its address, as it is to be typed in a command."""
        return typed(self.url)

    @property
    def repair(self) -> str:
        """The command that mends it, where it is a store."""
        return f"cksc verify {self.typed} --repair"

    def below(self, key: str) -> Folder:
        """Return a folder inside this one; nobody may have put a link to elsewhere in its place."""
        if self.local is not None:
            path_below(self.local, f"{key}/")
        return Folder(f"{self.url}/{key}")

    def zarr(self, *, read_only: bool = False, durable: bool = False) -> Any:
        """Return the Zarr store of this folder; durable: chunks outlive a power cut once they are written."""
        check_assertions()
        if self.local is not None:
            return PlainLocalStore(self.local, read_only=read_only, durable=durable)
        return PlainFsspecStore.from_url(self.url, read_only=read_only)

    def _patiently(self, action: Callable[[], Result]) -> Result:
        """Call a function that touches the folder; where it is remote, again and again while the store is away."""
        if self.local is not None:
            return action()
        waiting = Waiting(self.url)
        while True:
            try:
                return action()
            except NOT_AWAY:
                raise
            except Exception as error:  # each library has its own kinds for a server that is away
                want_of_threads(error)
                pause = waiting.pause(error)
            time.sleep(pause)

    def read(self, key: str) -> bytes | None:
        """Return the content of a file, None where there is none."""
        try:
            if self.local is not None:
                with open_stored(self.local / key) as file:
                    return file.read()
            content: bytes = self._patiently(lambda: self._fs.cat_file(f"{self._root}/{key}"))
            return content
        except (FileNotFoundError, NotADirectoryError):
            return None

    def stamp(self, key: str) -> str | None:
        """Return what is another whenever a file is written anew, without reading much; None where there is no file."""
        if self.local is None:
            return self._remote_stamp(key)
        with suppress(FileNotFoundError, NotADirectoryError), open_stored(self.local / key) as file:
            # of an open file: behind a network, those of a path may be of earlier
            now = os.fstat(file.fileno())
            return f"{now.st_ino} {now.st_mtime_ns} {now.st_size}"
        return None

    def _remote_stamp(self, key: str) -> str | None:
        path = f"{self._root}/{key}"

        def info() -> dict[str, Any]:
            self._fs.invalidate_cache(path)  # a listing may be of earlier
            return dict(self._fs.info(path))

        try:
            tags = [str(value) for name, value in self._patiently(info).items() if name.lower() == "etag" and value]
        except (FileNotFoundError, NotADirectoryError):
            return None
        if tags:
            return tags[0]
        content = self.read(key)  # of other servers nothing as good is known: times may be of whole seconds
        return None if content is None else sha256(content).hexdigest()

    def read_range(self, key: str, start: int, count: int) -> bytes:
        """Return some bytes of a file; none or fewer where there are not as many."""
        if self.local is not None:
            with suppress(FileNotFoundError), open_stored(self.local / key) as file:
                file.seek(start)
                return file.read(count)
            return b""

        def cat() -> bytes:
            try:
                content: bytes = self._fs.cat_file(f"{self._root}/{key}", start=start, end=start + count)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                return b""  # how S3 answers where the file ends before
            return content

        try:
            return self._patiently(cat)
        except FileNotFoundError:
            return b""

    def write(self, key: str, content: bytes | memoryview, *, durable: bool = False, patient: bool = True) -> None:
        """Write a file, whole or not at all.

        Parameters
        ----------
        key, content
            Its name and bytes.
        durable
            On the disk itself before this returns.
        patient
            A remote store that is away is waited for.
        """
        if self.local is None:
            whole = bytes(content)
            pipe = partial(self._fs.pipe_file, f"{self._root}/{key}", whole)
            self._patiently(pipe) if patient else pipe()
            return
        put(self.local, key, content, durable=durable)

    def sync(self, key: str) -> None:
        """Let all files below a key outlive a power cut; a server sees to that itself."""
        if self.local is not None:
            sync_tree(self.local / key)

    def create(self, key: str, content: bytes, *, own: bool = False) -> bool:
        """Write a file unless there is one already; return whether it was written.

        ``own`` tells that nobody else writes such content: one's own file is then known, should an answer be lost.
        """
        if self.local is None:
            return self._create_remote(key, content, own)
        return put(self.local, key, content, new=True)

    def _create_remote(self, key: str, content: bytes, own: bool) -> bool:
        path = f"{self._root}/{key}"
        attempts = []

        def create() -> bool:
            attempts.append(1)
            # looked for first: there are servers that take no notice of the condition, and would write over it
            found = self.read(key)
            if found is not None:
                # somebody's; or one's own, if the answer to an earlier attempt was lost on the way
                return (own or len(attempts) > 1) and found == content
            try:
                self._fs.pipe_file(path, content, mode="create")
            except FileExistsError:
                # the same; the library below makes several attempts of its own
                return (own or len(attempts) > 1) and self.read(key) == content
            except (TypeError, NotImplementedError, ValueError):
                # no conditional put there: the last writer wins, and all look who that was
                self._fs.pipe_file(path, content)
                time.sleep(1.0)
            return self.read(key) == content

        return self._patiently(create)

    def remove(self, key: str) -> None:
        """Remove a file, where there is one."""
        if self.local is not None:
            path_below(self.local, key).unlink(missing_ok=True)
            return
        with suppress(FileNotFoundError):
            self._patiently(lambda: self._fs.rm_file(f"{self._root}/{key}"))

    def remove_many(self, keys: Sequence[str]) -> None:
        """Remove files, where they are; on a server in a few requests instead of one each."""
        if self.local is not None:
            for key in keys:
                self.remove(key)
            return
        paths = [f"{self._root}/{key}" for key in keys]
        for begin in range(0, len(paths), MANY):
            part = paths[begin : begin + MANY]
            with suppress(FileNotFoundError):
                self._patiently(lambda part=part: self._fs.rm(part))  # type: ignore[misc]

    def remove_all(self) -> None:
        """Remove everything below this folder, and on this machine the folder itself."""
        if self.local is not None:
            with suppress(FileNotFoundError):
                shutil.rmtree(self.local)
        else:
            self.remove_many(list(self.files("")))

    def files(self, key: str) -> dict[str, int]:
        """Return all files below a key, named from there, with their sizes; empty where there are none."""
        if self.local is not None:
            found = {}
            for name in _names_below(self.local / key, _raise):
                with suppress(FileNotFoundError):  # renamed or removed meanwhile
                    found[name] = os.path.getsize(self.local / key / name)
            return found
        path = f"{self._root}/{key}".rstrip("/")

        def listed() -> dict[str, Any]:
            self._fs.invalidate_cache()
            return dict(self._fs.find(path, detail=True))

        try:
            details = self._patiently(listed)
        except FileNotFoundError:
            return {}
        return {name[len(path) + 1 :]: int(info["size"]) for name, info in details.items() if len(name) > len(path)}

    def names(self, key: str, *, folders_only: bool = False) -> list[str]:
        """Return the names in a folder, sorted; empty where there is no such folder."""
        if self.local is not None:
            try:
                with os.scandir(self.local / key) as entries:
                    return sorted(entry.name for entry in entries if entry.is_dir() or not folders_only)
            except (FileNotFoundError, NotADirectoryError):
                return []

        def listed() -> list[dict[str, Any]]:
            self._fs.invalidate_cache()
            return list(self._fs.ls(f"{self._root}/{key}".rstrip("/"), detail=True))

        try:
            details = self._patiently(listed)
        except FileNotFoundError:
            return []
        kept = [info["name"] for info in details if info["type"] == "directory" or not folders_only]
        return sorted(name.rstrip("/").rsplit("/", 1)[-1] for name in kept)

    def read_json(self, key: str) -> Any:
        """Return what `write_json` wrote, None where there is nothing, or say that the file is damaged."""
        content = self.read(key)
        if content is None:
            return None
        try:
            record = json.loads(content)
            value, digest = record["value"], record["sha256"]
            # the digest is of the value; a letter may change and the value stay (1e-05 and 1E-05)
            good = digest == _digest(value) and content == json_record(value)
        except (ValueError, KeyError, TypeError, RecursionError) as error:  # the last of brackets within brackets
            raise StoreError(f"{self.url}/{key} is damaged: no JSON with a digest; {_MEND}") from error
        if not good:
            raise StoreError(f"{self.url}/{key} is damaged: its digest does not match; {_MEND}")
        return value

    def write_json(self, key: str, value: Any, *, durable: bool = False) -> None:
        """Write a value as JSON, with a digest of it; durable: it also outlives a power cut."""
        self.write(key, json_record(value), durable=durable)

    def sweep(self, *, held: bool = True) -> list[str]:
        """Remove what killed writers left half-written, and return its names; held: nobody else may be writing.

        Of what others may write while somebody holds the store, only that of processes which are gone.
        """
        if self.local is None:
            return []
        # names alone: on a disk behind a network, to ask for the size of each of a million files takes minutes
        partial = [name for name in _names_below(self.local) if name.endswith(PARTIAL)]
        left = [name for name in partial if (held and not name.startswith(OTHERS)) or is_abandoned(self.local / name)]
        for name in left:
            self.remove(name)
        return left

    @contextmanager
    def swept(self, *, held: bool = True) -> Iterator[list[str]]:
        """Sweep before some work and after it: a worker may die while the others go on. Gives what was there before."""
        yield self.sweep(held=held)
        self.sweep(held=held)

    def free_bytes(self) -> int | None:
        """Return how much room there is; None where nobody can say."""
        if self.local is None:
            return None
        path = self.local
        while not path.exists():
            path = path.parent
        return shutil.disk_usage(path).free


def local_path(url: str | Path) -> Path | None:
    """Return the path of a folder of this machine, which a ``file://`` URL may name; None for other URLs.

    Examples
    --------
    >>> [str(local_path(each)) for each in ("a b", "file:///tmp/a%20b", "file://localhost/tmp", "s3://bucket/x")]
    ['a b', '/tmp/a b', '/tmp', 'None']
    """
    text = str(url)
    if "://" not in text:
        return Path(text)
    if not text.startswith("file://"):
        return None
    host, slash, path = text.removeprefix("file://").partition("/")
    if host not in ("", "localhost") or not slash or re.search(r"[?#]", path):
        raise StoreError(
            f"{text!r} names no folder of this machine: a file:// URL has no host but localhost, a whole path "
            "(file:///data/store), and in it %3F and %23 for ? and #"
        )
    return Path(url2pathname(slash + path))


def _raise(error: OSError) -> None:
    """Say that a folder cannot be read; one that is not there, or went meanwhile, has no files."""
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error


def _names_below(top: Path, onerror: Callable[[OSError], None] | None = None) -> Iterator[str]:
    """Give the names of all files below a folder, as they are from there; folders that cannot be read have none."""
    for folder, _, names in os.walk(top, onerror=onerror):
        below = os.path.relpath(folder, top).replace(os.sep, "/")
        for name in names:
            yield name if below == "." else f"{below}/{name}"


_MEND = "restore it from a copy, or remove it and run the command again"


def _check_no_secret(url: str) -> None:
    """Refuse a URL with a password: addresses are printed, sent to workers, and written into models and tables.

    What follows a question mark is often a signature that lets anybody in.
    """
    scheme, _, rest = url.partition("://")
    host = re.sub(r"\[.*?\]", "", rest.split("/", 1)[0])
    # a key may hold any letter, a slash among them; what follows a colon is a port or a secret
    if re.search(r"[@?#]", rest) or re.search(r":(?!\d+$)", host):
        raise StoreError(
            f"an address that begins with {scheme}:// holds a key or password, or looks so (an @, a ? or #, or a colon "
            "that no port follows); addresses are shown and kept in many places: leave such out, and set them in the "
            "environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY)"
        )


def _file_system(url: str) -> tuple[Any, str]:
    import fsspec  # not needed for a path

    try:
        urlsplit(url)  # which some libraries do only when they are asked for something
        fs, root = fsspec.core.url_to_fs(url)
    except (ValueError, ImportError) as error:
        raise StoreError(f"{url} cannot be opened: {error}") from error
    return fs, str(root).rstrip("/")


def _digest(value: Any) -> str:
    return sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def json_record(value: Any) -> bytes:
    """Return a value and its digest as JSON."""
    return json.dumps({"sha256": _digest(value), "value": value}, sort_keys=True).encode()
