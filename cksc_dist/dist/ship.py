"""Bring this package's code to a scheduler and to workers that do not have it installed.

The plugins are pickled by value, so that the other side needs Dask alone to understand them. They write the package
into a temporary folder and put that on the path; nobody's workers are restarted, and workers that join later get it
as well.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import cloudpickle
from distributed import Client, SchedulerPlugin, WorkerPlugin

from cksc_dist.errors import ClusterError

__all__ = ["ship_code"]


def _unpack(package: str, files: dict[str, bytes], digest: str) -> None:
    """Write the files of a package and make it importable; for the other side, which knows nothing of this module."""
    import importlib.util
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
    for name, content in files.items():
        path = folder / package / name
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


def ship_code(client: Client) -> None:
    """Send this package to the scheduler and to all workers, present and future, that lack it."""
    package = Path(__file__).resolve().parents[1]
    files = {path.relative_to(package).as_posix(): path.read_bytes() for path in sorted(package.rglob("*.py"))}
    digest = sha256(b"".join(name.encode() + content for name, content in files.items())).hexdigest()[:8]
    here = __import__(__name__, fromlist=["ship_code"])
    cloudpickle.register_pickle_by_value(here)
    try:
        client.register_plugin(_OnScheduler(package.name, files, digest))
        client.register_plugin(_OnWorker(package.name, files, digest))
    except RuntimeError as error:
        raise ClusterError(str(error)) from error
    finally:
        cloudpickle.unregister_pickle_by_value(here)
