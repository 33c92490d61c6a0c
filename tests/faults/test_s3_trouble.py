"""An S3 server that fails, throttles, is slow or cuts connections: the job ends right, or says what to do."""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cksc_dist import open_matrix
from cksc_dist.dist.distances import compute_distances
from cksc_dist.dist.ingest import append, ingest
from cksc_dist.errors import StoreAwayError
from cksc_dist.spec import RunSpec
from cksc_dist.store import patience
from cksc_dist.store.folder import Folder
from cksc_dist.store.lease import Lease
from tests.dist.processes import Starter, answers, free_port, starter, wait_until
from tests.faults.s3_proxy import TROUBLES, Trouble, troubled
from tests.small_stores import made_series, small_tiles

for needed in ("s3fs", "moto", "flask"):
    if importlib.util.find_spec(needed) is None:
        pytest.skip(f"needs {needed}: pip install cksc_dist[test]", allow_module_level=True)

DATA = made_series(40, length=(4, 8))
MORE = made_series(8, seed=3, prefix="more", length=(4, 8))
_numbers = count()

_JOB = """
import json, sys, warnings
from pathlib import Path
import pytest
from cksc_dist import open_matrix, load_model
from cksc_dist.dist.distances import compute_distances
from cksc_dist.dist.ingest import append, ingest
from cksc_dist.errors import CkscError
from cksc_dist.models.training import train
from cksc_dist.spec import ModelSpec, RunSpec
from cksc_dist.store import patience
from tests.faults.test_s3_trouble import DATA, MORE
from tests.small_stores import small_tiles

url, patience.PATIENCE = sys.argv[1], float(sys.argv[2])
run = RunSpec(executor="threads", workers=2)
with pytest.MonkeyPatch.context() as patch:
    small_tiles(patch)
    try:
        ingest(DATA, url)
        compute_distances(url, run=run)
        append(url, MORE, run)
        warnings.simplefilter("ignore")
        train(url, url + "/models/first", spec=ModelSpec(sparsity=2, max_iter=2), place="memory", run=run)
        found = load_model(url + "/models/first").predict(MORE.series).tolist()
    except CkscError as error:
        print("named:", error)
        sys.exit(2)
print(json.dumps(found))
"""
"""All that a job does on a store, in a process of its own: the addresses of servers are read once."""


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A server with a bucket."""
    import s3fs  # type: ignore[import-untyped]  # it has no types

    found = free_port()
    with starter(tmp_path_factory.mktemp("server")) as start, pytest.MonkeyPatch.context() as patch:
        start(sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(found))
        wait_until(lambda: answers(found), "a server that answers")
        for name, value in environment(found).items():
            patch.setenv(name, value)
        _forget_connections()
        s3fs.S3FileSystem().mkdir("troubled")
        yield found
        _forget_connections()


def environment(port: int) -> dict[str, str]:
    """Return what a process must know to reach a server."""
    return {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_EC2_METADATA_DISABLED": "true",
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Starter]:
    with starter(tmp_path) as started:
        yield started


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, bytes | None], Any]:
    """The chunks and values of the same work in a folder."""
    path = tmp_path_factory.mktemp("expected") / "store"
    with pytest.MonkeyPatch.context() as patch:
        small_tiles(patch)
        ingest(DATA, path)
        compute_distances(path, run=RunSpec(executor="serial"))
        append(path, MORE, RunSpec(executor="serial"))
    return chunks(path), np.asarray(open_matrix(path))


def chunks(store: str | Path) -> dict[str, bytes | None]:
    """Return every file of series and matrices."""
    folder = Folder(store)
    return {
        f"{top}/{name}": folder.read(f"{top}/{name}") for top in ("series", "distances") for name in folder.files(top)
    }


def job(start: Starter, port: int, url: str, trouble: Trouble, patience: float) -> tuple[int, str, float]:
    """Run the job through a troubled line; return exit code, output and seconds."""
    begin = time.monotonic()
    with troubled(port, trouble) as other:
        run = start(sys.executable, "-c", _JOB, url, str(patience), environment=environment(other))
        code = run.wait(1200)  # a third of 2,500 requests throttled took 440 s, and longer on a busy machine
    return code, run.output, time.monotonic() - begin


def check(start: Starter, port: int, expected: tuple[Any, Any], kind: str, share: float, capsys: Any) -> None:
    """Run the job under a trouble until it ends right; what it says on the way must be named."""
    url = f"s3://troubled/{kind.replace(' ', '-')}-{next(_numbers)}"
    trouble = Trouble(kind, share)
    code, said, seconds = job(start, port, url, trouble, 120.0)
    assert trouble.met[kind] > 5
    gave_up = code == 2
    if gave_up:
        assert "run the same command again" in said, said
        code, said, _ = job(start, port, url, Trouble(kind, 0.0), 120.0)
    assert code == 0, said
    assert len(json.loads(said.splitlines()[-1])) == len(MORE)
    assert chunks(url) == expected[0]
    np.testing.assert_array_equal(np.asarray(open_matrix(url)), expected[1])
    assert Folder(url).read("lock.json") is None
    with capsys.disabled():
        how = "gave up, and went on without trouble" if gave_up else "went through"
        print(f"\n{kind} {share:.0%}: {how}, {seconds:.1f} s, {dict(trouble.met)}")


@contextmanager
def reached_through(port: int, attempts: int = 1) -> Iterator[None]:
    """Let this process reach the server through another port; one attempt: without retries of the library below."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (environment(port) | {"AWS_MAX_ATTEMPTS": str(attempts)}).items():
            patch.setenv(name, value)
        _forget_connections()
        yield
    _forget_connections()


_held: list[Any] = []


def _forget_connections() -> None:
    """Let the next call connect anew; the old ones are held, because they complain when they are dropped unclosed."""
    import s3fs

    _held.extend(s3fs.S3FileSystem._cache.values())
    s3fs.S3FileSystem.clear_instance_cache()


def test_a_server_in_trouble_gives_the_same_bytes(port: int, tmp_path: Path) -> None:
    url, trouble = f"s3://troubled/few-{next(_numbers)}", Trouble("any", 0.08)
    for store in (tmp_path / "store", url):
        with ExitStack() as stack:
            if store == url:
                stack.enter_context(reached_through(stack.enter_context(troubled(port, trouble))))
            ingest(MORE, store)
            compute_distances(store, run=RunSpec(executor="serial"))
    assert len(trouble.met) > 3
    assert chunks(url) == chunks(tmp_path / "store")
    np.testing.assert_array_equal(np.asarray(open_matrix(url)), np.asarray(open_matrix(tmp_path / "store")))
    assert Folder(url).read("lock.json") is None


def test_a_server_that_fails_for_good_is_told(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "PATIENCE", 1.0)
    url = f"s3://troubled/never-{next(_numbers)}"
    away = r"has been away for 1 s .*run the same command again when it is back"
    with (
        troubled(port, Trouble("throttle", 1.0)) as other,
        reached_through(other),
        pytest.raises(StoreAwayError, match=away),
    ):
        ingest(MORE, url)
    assert Folder(url).files("") == {}


def test_an_answer_that_is_lost_does_not_shut_a_writer_out(port: int) -> None:
    """The put has happened, and the library asks again: what is in the way is the writer's own lock."""
    url = f"s3://troubled/held-{next(_numbers)}"
    trouble = Trouble("lost answer", 0.0)
    with troubled(port, trouble) as other, reached_through(other, attempts=3):
        lease = Lease(Folder(url), "ingest")
        trouble.once = True
        with lease:
            assert trouble.met["lost answer"] == 1
    assert Folder(url).files("") == {}


@pytest.mark.campaign
@pytest.mark.parametrize("share", [0.05, 0.3])
@pytest.mark.parametrize("kind", TROUBLES)
def test_a_server_in_more_trouble_gives_the_same_bytes(
    port: int, start: Starter, expected: tuple[Any, Any], kind: str, share: float, capsys: pytest.CaptureFixture[str]
) -> None:
    check(start, port, expected, kind, share, capsys)
