"""Bring this package's code where it is not installed, and keep out workers whose code is another.

What runs on the other side is pickled by value, so that Dask alone is needed there to understand it. The code is
written into a temporary folder that is put on the path; nobody's workers are restarted. While a client works, workers
that join are judged: one with other versions, or other code of the same, is sent away. What it computed would be mixed
into the results of the others, and nobody would know. One that lacks the package gets it from the scheduler. Nothing of
this outlives the client.
"""

from __future__ import annotations

import platform
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import sha256
from importlib import import_module
from importlib.metadata import distributions, requires, version
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

import cloudpickle
from distributed import Client, SchedulerPlugin, WorkerPlugin
from distributed.protocol.pickle import dumps

from cksc_dist.errors import ClusterError

__all__ = ["DIGEST_THERE", "REFUSED", "code_digest", "disagree", "late_workers_judged", "requirements", "send_code"]

REFUSED = "cksc-refused"
"""Topic of Dask's events that tells of workers which were sent away."""

# evaluated on the other side; a release may know of no digest
DIGEST_THERE = 'getattr(__import__("cksc_dist.dist.ship", fromlist=["ship"]), "code_digest", str)()'


class _Watch:
    """What of a client's work goes on: a piece may be part of another, or beside it in another thread."""

    def __init__(self) -> None:
        self.lock = Lock()  # held while the scheduler is asked: nobody works before workers are judged
        self.works, self.stands = 0, False


_watches: WeakKeyDictionary[Client, _Watch] = WeakKeyDictionary()
_sending: Counter[str] = Counter()
"""How many send something of a module by value just now: cloudpickle knows only whether one does."""
_counting = Lock()
"""Held while these two are changed, and never while anybody is asked for anything."""


def disagree(name: str, mine: str, other: str) -> bool:
    """Tell whether two versions may not work on one matrix: of this package any two, of others two minor releases."""
    return other != mine if name == "cksc_dist" else other.split(".")[:2] != mine.split(".")[:2]


def requirements() -> dict[str, str]:
    """Return what this package cannot run without, by name, as its own metadata has it.

    Examples
    --------
    >>> requirements()["threadpoolctl"]
    'threadpoolctl>=3.5'
    """
    # with a semicolon comes what only some need, as an extra
    always = [line for line in requires("cksc_dist") or () if ";" not in line]
    return {re.split(r"[^\w.-]", line, maxsplit=1)[0]: line for line in always}


def _unpack(package: str, files: dict[str, bytes], digest: str) -> None:
    """Write the files of a package and make it importable; for the other side, which knows nothing of this module."""
    import atexit
    import contextlib
    import importlib.util
    import os
    import re
    import shutil
    import sys
    import tempfile
    import time
    from pathlib import Path

    found = importlib.util.find_spec(package)
    if found is not None:
        sent = f"{package}-sent-" in str(found.origin)
        if sent and f"{package}-sent-{digest}-" not in str(found.origin):
            raise RuntimeError(f"other code of {package} was sent here before; restart the scheduler and its workers")
        return  # installed, or sent before
    folder = Path(tempfile.mkdtemp(prefix=f"{package}-sent-{digest}-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    if os.name == "posix":
        import fcntl

        lefts = []
        with contextlib.suppress(OSError):  # where there are no locks, nobody removes anything
            fcntl.flock(os.open(folder, os.O_RDONLY), fcntl.LOCK_SH)  # until this process ends, whichever way
            lefts = list(folder.parent.iterdir())
        for left in lefts:  # who was killed could not take it away
            if left == folder or not re.fullmatch(rf"{package}-sent-[0-9a-f]+-\w{{8}}", left.name):
                continue
            with contextlib.suppress(OSError):  # somebody else's, or locked: its process lives
                held = os.open(left, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
                try:
                    fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    about = os.fstat(held)
                    just_made = not any(left.iterdir()) and time.time() - about.st_mtime < 3600
                    if about.st_uid == os.getuid() and not just_made:
                        shutil.rmtree(left, ignore_errors=True)
                finally:
                    os.close(held)
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()


class _AtTheDoor(SchedulerPlugin):  # type: ignore[misc]  # distributed has no types
    """Has workers that join judged for a client, until that goes, whichever way."""

    def __init__(self, client: str, judge: bytes) -> None:
        self.name = f"cksc-late-{client}"
        self._client, self._judge = client, judge

    async def start(self, scheduler: Any) -> None:
        if self._client not in scheduler.clients:  # it may have been killed while it asked for this
            raise RuntimeError("the scheduler has lost this client; run the same command again")
        scheduler.worker_plugins[self.name] = self._judge  # not registered: those that are there are not told

    def remove_client(self, scheduler: Any, client: str) -> None:
        if client == self._client:
            del scheduler.worker_plugins[self.name]
            scheduler.remove_plugin(self.name)


class _Judge(WorkerPlugin):  # type: ignore[misc]  # distributed has no types
    """Judges the worker that it comes to, before that gets any task."""

    def __init__(self, package: str, digest: str, here: Mapping[str, str]) -> None:
        self._package, self._digest, self._here = package, digest, dict(here)
        self._needed = list(requirements())

    async def setup(self, worker: Any) -> None:
        fault = self._other_libraries()
        if not fault:
            if find_spec(self._package) is None:
                await _fetch(worker)
            if getattr(import_module(f"{self._package}.dist.ship"), "code_digest", str)() != self._digest:
                fault = f"other code of {self._package} {self._here[self._package]} than the client that works now"
        if fault:
            words = f"{worker.address} has {fault}; it is sent away"
            worker.log_event(REFUSED, {"reason": words})
            worker.loop.add_callback(worker.close, reason=words)
            raise RuntimeError(words)  # into the log of the worker

    def _other_libraries(self) -> str:
        for name, mine in self._here.items():
            found = next((one.version for one in distributions(name=name)), None)
            other = platform.python_version() if name == "python" else found
            if other is None and name == self._package:
                continue  # it will be brought
            if other is None or disagree(name, mine, other):
                return f"{name} {other}, but the client that works now has {mine}"
        missing = [name for name in self._needed if next(iter(distributions(name=name)), None) is None]
        return f"no {', '.join(missing)}, which {self._package} needs" if missing else ""


def _package_there() -> Any:
    """Return what the scheduler, where this runs, has of this package."""
    return import_module("cksc_dist.dist.ship")._package()


async def _fetch(worker: Any) -> None:
    """Bring the code from the scheduler to a worker, as a client asks the scheduler for something."""
    answer = await worker.scheduler.run_function(function=dumps(_package_there), args=dumps(()), kwargs=dumps({}))
    if answer["status"] == "error":
        raise RuntimeError(f"the scheduler cannot tell its code ({answer['text']})")
    _unpack(*answer["result"])


def _leave(client: str, dask_scheduler: Any) -> None:
    """Take away what judges for a client; runs on the scheduler."""
    dask_scheduler.plugins[f"cksc-late-{client}"].remove_client(dask_scheduler, client)


def send_code(client: Client, workers: Sequence[str] = ()) -> None:
    """Send this package to workers that lack it; to the scheduler, where none are named."""
    found: dict[str, Any] = {}
    with _by_value():
        if workers:
            found = client.run(_unpack, *_package(), workers=list(workers), on_error="return")
        else:
            try:
                client.run_on_scheduler(_unpack, *_package())
            except RuntimeError as error:
                raise ClusterError(str(error)) from error
    for address, fault in found.items():
        # one that died meanwhile is missed by nobody; the system's own errors have a number
        if isinstance(fault, Exception) and (not isinstance(fault, OSError) or fault.errno is not None):
            raise ClusterError(f"worker {address} could not take the code of this package: {fault}")


@contextmanager
def late_workers_judged(client: Client, here: Mapping[str, str]) -> Iterator[None]:
    """See to it that workers which join meanwhile run this code; ``here``: the versions that they must match.

    The scheduler must have this package, or have been sent it.
    """
    with _counting:
        watch = _watches.setdefault(client, _Watch())
    try:
        with watch.lock:
            watch.works += 1
            if not watch.stands:
                _stand(client, here)
                watch.stands = True
        yield
    finally:
        with watch.lock:
            watch.works -= 1
            if not watch.works:
                watch.stands = False
                with suppress(Exception), _by_value():  # the scheduler may be gone: then there is nothing to tidy up
                    if client.status == "running":
                        client.run_on_scheduler(_leave, client.id)


def _stand(client: Client, here: Mapping[str, str]) -> None:
    """Have workers judged from now on."""
    package, _, digest = _package()
    with _by_value():
        try:
            client.register_plugin(_AtTheDoor(client.id, dumps(_Judge(package, digest, here))))
        except RuntimeError as error:
            raise ClusterError(str(error)) from error


@cache  # what runs here does not change any more, whatever happens to the files
def _package() -> tuple[str, dict[str, bytes], str]:
    """Return the name of this package, its files, and a digest of them."""
    package = Path(__file__).resolve().parents[1]
    files = {path.relative_to(package.parent).as_posix(): path.read_bytes() for path in sorted(package.rglob("*.py"))}
    # so that its version is known there as here
    about = f"Metadata-Version: 2.1\nName: {package.name}\nVersion: {version(package.name)}\n"
    files[f"{package.name}-{version(package.name)}.dist-info/METADATA"] = about.encode()
    digest = sha256(b"".join(name.encode() + content for name, content in files.items())).hexdigest()[:8]
    return package.name, files, digest


def code_digest() -> str:
    """Return a digest of this package's code: two of one version may differ while it is worked on."""
    return _package()[2]


@contextmanager
def _by_value() -> Iterator[None]:
    """Pickle what is of this module by value meanwhile."""
    here = __import__(__name__, fromlist=["ship"])
    with _counting:
        _sending[__name__] += 1
        cloudpickle.register_pickle_by_value(here)
    try:
        yield
    finally:
        with _counting:
            _sending[__name__] -= 1
            if not _sending[__name__]:  # others of this process may still be sending
                cloudpickle.unregister_pickle_by_value(here)
