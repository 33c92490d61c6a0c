"""A run that was silent for too long, and whose store another has taken over, changes nothing any more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from cksc_dist.dist.distances import compute_distances
from cksc_dist.dist.executors import Done, SerialExecutor
from cksc_dist.dist.ingest import ingest
from cksc_dist.dist.tile_work import TileTask
from cksc_dist.errors import StoreBusyError, StoreError
from cksc_dist.spec import RunSpec
from cksc_dist.store.folder import Folder
from cksc_dist.store.lease import KEY, Lease
from cksc_dist.store.ledger import Ledger
from tests.small_stores import files_below, made_series, small_tiles

SERIAL = RunSpec(executor="serial")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    small_tiles(monkeypatch)
    ingest(made_series(45), tmp_path / "store")
    return tmp_path / "store"


def test_the_ledger_of_the_one_who_took_over_stays(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = SerialExecutor.run
    taken: list[int] = []

    def interrupted(self: SerialExecutor, tasks: Sequence[TileTask]) -> Iterator[Done]:
        if taken:
            yield from plain(self, tasks)
            return
        yield run_first(tasks)
        # asleep for an hour: another takes the store over and finishes the work
        taken.append(1)
        Folder(store).remove(KEY)
        monkeypatch.setattr(Lease, "held", False)
        finished.append(compute_distances(store, run=SERIAL).fingerprint)
        before.update(files_below(store / "ledger"))
        with pytest.raises(StoreError, match="is not held by this run any more"):
            list(plain(self, tasks))
        raise StoreBusyError("as check() says")

    def run_first(tasks: Sequence[TileTask]) -> Done:
        return next(iter(plain(SerialExecutor(), tasks)))

    finished: list[str] = []
    before: dict[str, bytes] = {}
    monkeypatch.setattr(SerialExecutor, "run", interrupted)
    with pytest.raises(StoreBusyError):
        compute_distances(store, run=SERIAL)
    assert files_below(store / "ledger") == before
    (fingerprint,) = finished
    assert len(Ledger(Folder(store), fingerprint).load().entries) == 6
