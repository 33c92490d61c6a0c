"""Bring this package's code to a scheduler and to workers that do not have it installed.

The plugins are pickled by value, so that the other side needs Dask alone to understand them. They write the package
into a temporary folder and put that on the path; nobody's workers are restarted, and workers that join later get it
as well. While a client works, a worker that joins and runs other versions is sent away: what it computed would be mixed
into the results of the others, and nobody would know.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

import cloudpickle
from distributed import Client, SchedulerPlugin, WorkerPlugin

from cksc_dist.errors import ClusterError

__all__ = ["code_digest", "code_for_late_workers", "disagree", "ship_code"]

TRIES = 10
PAUSE_SECONDS = 1.0


def disagree(name: str, mine: str, other: str) -> bool:
    """Tell whether two versions may not work on one matrix: of this package any two, of others two minor releases."""
    return other != mine if name == "cksc_dist" else other.split(".")[:2] != mine.split(".")[:2]


def _unpack(package: str, files: dict[str, bytes], digest: str) -> None:
    """Write the files of a package and make it importable; for the other side, which knows nothing of this module."""
    import atexit
    import importlib.util
    import shutil
    import sys
    import tempfile
    from pathlib import Path

    found = importlib.util.find_spec(package)
    if found is not None:
        sent = f"{package}-code-" in str(found.origin)
        if sent and f"{package}-code-{digest}-" not in str(found.origin):
            raise RuntimeError(f"other code of {package} was sent here before; restart the scheduler and its workers")
        return  # installed, or sent before
    folder = Path(tempfile.mkdtemp(prefix=f"{package}-code-{digest}-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()


class _OnScheduler(SchedulerPlugin):  # type: ignore[misc]  # distributed has no types
    idempotent = True

    def __init__(self, package: str, files: dict[str, bytes], digest: str) -> None:
        self.name = f"{package}-code-{digest}"
        self._arguments = (package, files, digest)

    async def start(self, scheduler: Any) -> None:
        _unpack(*self._arguments)


class _OnWorker(WorkerPlugin):  # type: ignore[misc]  # distributed has no types
    def __init__(self, package: str, files: dict[str, bytes], digest: str) -> None:
        self.name = f"{package}-code-{digest}"
        self._arguments = (package, files, digest)

    def setup(self, worker: Any) -> None:
        _unpack(*self._arguments)


class _OnLateWorker(_OnWorker):
    """Brings the code to workers that join later, and sends those away whose versions are others."""

    def __init__(self, package: str, files: dict[str, bytes], digest: str, client: Client, here: Mapping[str, str]):
        super().__init__(package, files, digest)
        self.name = f"{self.name}-{client.id}"
        self._known = set(client.nthreads())  # the client has compared, or will compare, their versions itself
        self._here = dict(here)

    def setup(self, worker: Any) -> None:
        if worker.address in self._known:
            return
        import platform
        from importlib.metadata import distributions

        for name, mine in self._here.items():
            found = next((one.version for one in distributions(name=name)), None)
            other = platform.python_version() if name == "python" else found
            if other is None and name == self._arguments[0]:
                continue  # it is brought below
            if other is None or disagree(name, mine, other):
                words = (
                    f"{worker.address} has {name} {other}, but the client that works now has {mine}; it is sent away"
                )
                worker.log_event("cksc-refused", {"reason": words})
                worker.loop.add_callback(worker.close, reason=words)
                raise RuntimeError(words)  # into the log of the worker
        _unpack(*self._arguments)


def ship_code(client: Client) -> None:
    """Send this package to the scheduler and to all workers, present and future, that lack it."""
    parts = _package()
    _register(client, _OnScheduler(*parts), _OnWorker(*parts))


@contextmanager
def code_for_late_workers(client: Client, here: Mapping[str, str]) -> Iterator[None]:
    """See to it that workers which join from now on have this package; ``here``: the versions that they must match."""
    plugin = _OnLateWorker(*_package(), client, here)
    _register(client, plugin)
    try:
        yield
    finally:
        with suppress(Exception):  # the scheduler may be gone, and then there is nothing to tidy up
            if client.status == "running":
                client.unregister_worker_plugin(plugin.name)


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


def _register(client: Client, *plugins: Any) -> None:
    """Register plugins that are pickled by value."""
    here = __import__(__name__, fromlist=["ship_code"])
    cloudpickle.register_pickle_by_value(here)
    try:
        for plugin in plugins:
            _register_patiently(client, plugin)
    except RuntimeError as error:
        raise ClusterError(str(error)) from error
    finally:
        cloudpickle.unregister_pickle_by_value(here)


def _register_patiently(client: Client, plugin: Any) -> None:
    """Register a plugin, again where a worker died while it was told of it."""
    for tries_left in reversed(range(TRIES)):
        try:
            client.register_plugin(plugin)
            return
        except OSError:
            if client.status != "running" or not tries_left:
                raise
        time.sleep(PAUSE_SECONDS)
