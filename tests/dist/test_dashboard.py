"""The page /cksc on the scheduler: what it knows, how it is served, what it does where Dask's insides differ."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client, LocalCluster
from distributed.http.routing import RoutingApplication

from cksc_dist.dist import dashboard, dashboard_state, plan
from cksc_dist.dist.dashboard import DashboardProgress, show_page, watched
from cksc_dist.dist.dashboard_state import Runs
from cksc_dist.dist.distances import compute_distances
from cksc_dist.dist.ingest import ingest
from cksc_dist.dist.progress import Progress, Running
from cksc_dist.evaluate.fit_tasks import protocol_tasks
from cksc_dist.evaluate.fits import run_fits
from cksc_dist.io import make_gestures
from cksc_dist.models.training import train
from cksc_dist.spec import ModelSpec, RunSpec
from tests.browser import needs_chromium, running
from tests.dist.processes import DASK, answers, free_port, starter, wait_until
from tests.small_stores import made_series, small_tiles

SERIES = 160
TILES = 55
"""Tiles of so many series, in blocks of 16."""


@contextmanager
def local() -> Iterator[Client]:
    """A scheduler in this process, with a dashboard, and two workers."""
    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=False,
            protocol="tcp://",
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """One for all: a run takes the place of those that have ended."""
    with local() as found:
        yield found


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    small_tiles(monkeypatch)
    ingest(made_series(SERIES), tmp_path / "store")
    return str(tmp_path / "store")


def fetch(address: str) -> str:
    with urllib.request.urlopen(address, timeout=20) as answer:
        return str(answer.read().decode())


def json_of(client: Client) -> Any:
    return json.loads(fetch(client.dashboard_link.replace("/status", "/cksc.json")))


class Heard(Progress):
    """Keeps all that it hears, in order."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        for name in ("note", "begin", "advance", "tick", "end", "tiles_done", "objective", "result"):
            setattr(self, name, lambda *given, name=name: self.calls.append((name, *given)))


class FakeClient:
    """Takes events, and answers as a client whose scheduler shows the page."""

    id, status, dashboard_link = "Client-1", "running", "http://here/status"

    def __init__(self) -> None:
        self.events: list[Any] = []

    def log_event(self, topic: str, message: Any) -> None:
        assert topic == "cksc"
        self.events.append(message)

    def run_on_scheduler(self, *_: Any) -> Any:
        return ""


# the state, from events


def told(run: str = "a", **about: Any) -> dict[str, Any]:
    return {"run": run, "stage": "distances", "unit": "tiles", "client": f"client of {run}", **about}


def numbers(*tiles: int) -> bytes:
    return np.array(tiles, "<u4").tobytes()


def test_tiles_of_earlier_runs_and_of_this_one_make_a_map() -> None:
    runs = Runs()
    runs.hear(told(tiles={"m": [3, numbers(0, 1)]}))  # (0, 0) and (0, 1) were done before
    runs.hear(told(tiles={"m": [3, numbers(4, 5, 4, 1)]}))  # (1, 1), (1, 2); told twice is told once
    (tiles,) = runs.as_json()["a"]["tiles"].values()
    assert tiles == {"blocks": 3, "done": 4, "total": 6, "before": 2}
    assert runs.found["a"].tiles["m"].image(10).tolist() == [[1, 1, 0], [1, 2, 2], [0, 2, 0]]


def test_a_large_map_is_drawn_coarser_and_no_place_is_done_before_all_its_tiles_are() -> None:
    runs = Runs()
    every = [i * 10 + j for i in range(10) for j in range(i, 10)]
    runs.hear(told(tiles={"m": [10, numbers()]}))
    runs.hear(told(tiles={"m": [10, numbers(*every[:-1])]}))
    image = runs.found["a"].tiles["m"].image(4)
    assert image.shape == (4, 4)
    assert image.ravel().tolist() == [2] * 15 + [0]


def test_rate_and_eta_follow_from_the_work_done() -> None:
    runs = Runs()
    runs.hear(told(done=1, total=4, work=300, work_total=400, pairs=50, seconds=10.0))
    run = runs.as_json()["a"]
    assert (run["share"], run["rate"], run["rate_unit"]) == (0.75, 5.0, "pairs")
    assert run["eta_seconds"] == pytest.approx(10 / 3)
    runs.hear(told(done=3, total=4, work=3, work_total=4, seconds=6.0, ended=True))
    run = runs.as_json()["a"]
    assert (run["rate"], run["rate_unit"], run["eta_seconds"], run["ended"]) == (0.5, "tiles", None, True)


def test_a_later_run_takes_the_place_of_finished_ones_and_none_of_those_that_go_on() -> None:
    runs = Runs()
    runs.hear(told("finished"))
    runs.hear(told("other", done=3))
    runs.hear(told("finished", ended=True))
    assert list(runs.found) == ["finished", "other"]
    assert runs.latest() is runs.found["other"]
    runs.hear(told("new", done=7))
    assert list(runs.found) == ["other", "new"]
    assert (runs.found["other"].done, runs.found["new"].done) == (3, 7)
    assert runs.latest() is runs.found["new"]
    runs.gone("client of new")  # killed: it could not say that it ended
    assert runs.found["new"].ended
    assert runs.latest() is runs.found["other"]


def test_what_is_kept_stays_small() -> None:
    runs = Runs()
    for number in range(12):
        message = told(f"run {number}", note="x" * 10_000)
        message["tiles"] = {f"matrix {k}": [8, numbers(1)] for k in range(30)}
        message["objectives"] = {f"fit {k}": [1.0] * 900 for k in range(50)}
        message["results"] = [["svm", split, 0.5] for split in range(5000)]
        runs.hear(message)
    assert len(runs.found) == dashboard_state.RUNS
    run = runs.found["run 11"]
    assert len(run.note) == dashboard_state.LETTERS
    assert len(run.tiles) == dashboard_state.MATRICES
    assert len(run.objectives) == dashboard_state.FITS
    assert run.as_json()["objectives"]["fit 49"]["first"] == 900 - dashboard_state.VALUES + 1
    assert all(len(values) == dashboard_state.VALUES for _, values in run.objectives.values())
    assert len(run.results) == dashboard_state.RESULTS
    assert len(json.dumps(runs.as_json())) < 2_000_000


@pytest.mark.parametrize(
    "nonsense",
    [
        None,
        "text",
        {"run": "a", "tiles": {"m": [10**9, b""]}},
        {"run": "a", "tiles": {"m": [-1, b""]}},
        {"run": "a", "tiles": {"m": [3, b"odd"]}},
        {"run": "a", "tiles": {"m": [3, numbers(9, 4_000_000_000)]}},
        {"run": "a", "done": "many"},
        {"run": "a", "objectives": {"f": ["J"]}},
        {"run": "a", "objectives": {"f": [float("nan"), float("inf")]}},
        {"run": "a", "results": [["svm"]]},
        {"run": "a", "results": [["svm", 0, float("nan")]]},
    ],
)
def test_nonsense_does_no_harm(nonsense: Any) -> None:
    runs = Runs()
    runs.hear(nonsense)
    runs.hear(told("b", done=2))
    assert runs.latest() is runs.found["b"]
    json.dumps(runs.as_json(), allow_nan=False)


# the listener


def test_everything_is_passed_on() -> None:
    heard = Heard()
    progress = watched(heard)
    assert watched(progress) is progress
    about = Running("distances", 10, 2)
    progress.note("hello")
    progress.begin(about)
    progress.tiles_done("m", 3, [(0, 1)])
    progress.advance(5, 7)
    progress.tick()
    progress.objective("model", 1.5)
    progress.result("cksc", 0, 0.9, [2.0, 1.0])
    progress.end()
    assert heard.calls == [
        ("note", "hello"),
        ("begin", about),
        ("tiles_done", "m", 3, [(0, 1)]),
        ("advance", 5, 7, 1),
        ("tick",),
        ("objective", "model", 1.5),
        ("result", "cksc", 0, 0.9, [2.0, 1.0]),
        ("end",),
    ]


def test_events_are_few_and_lose_nothing() -> None:
    client, progress, runs = FakeClient(), DashboardProgress(), Runs()
    progress.result("svm", 0, 0.5)  # before there is a client
    with progress.on(client), progress.on(client):
        progress.begin(Running("distances", 10_000, 10_000))
        progress.tiles_done("m", 100, [(0, 0)])
        for number in range(1, 5000):
            progress.advance(1, 2)
            progress.tiles_done("m", 100, [divmod(number, 100)] if number % 100 >= number // 100 else [])
        progress.objective("model", 3.0)
        progress.end()
    assert len(client.events) < 12
    for event in client.events:
        runs.hear(event)
    (run,) = runs.as_json().values()
    assert (run["done"], run["total"], run["unit"], run["ended"]) == (4999, 10_000, "tiles", True)
    assert run["tiles"]["m"] == {"blocks": 100, "done": 3775, "total": 5050, "before": 1}
    assert run["objectives"]["model"]["values"] == [3.0]
    assert run["results"]["svm"] == {"splits": {"0": 0.5}, "mean": 0.5}
    assert [event["ended"] for event in client.events].count(True) == 1


def test_a_scheduler_that_is_gone_is_tried_once_and_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashboard, "SEND_SECONDS", 0.0)
    client, heard, tries = FakeClient(), Heard(), []

    def fail(topic: str, message: Any) -> None:
        tries.append(message)
        raise OSError("gone")

    monkeypatch.setattr(client, "log_event", fail)
    progress = DashboardProgress(heard)
    with progress.on(client):
        progress.begin(Running("distances", 10, 2))
        progress.advance(1, 1)
        progress.end()
    assert len(tries) == 1
    assert [call[0] for call in heard.calls] == ["begin", "advance", "end"]


def test_without_a_client_nothing_is_shown_and_nothing_piles_up() -> None:
    progress = DashboardProgress()
    with progress.on(None):
        for split in range(3 * dashboard_state.RESULTS):
            progress.tiles_done("m", 10, [(0, 0)])
            progress.objective("model", 1.0)
            progress.result("svm", split, 1.0)
    assert not progress._tiles
    assert not progress._objectives
    assert len(progress._results) == dashboard_state.RESULTS


# on a scheduler


def test_a_run_of_distances_ends_with_every_tile_done(client: Client, store: str) -> None:
    heard = Heard()
    report = compute_distances(store, progress=heard, client=client)
    page = client.dashboard_link.replace("/status", "/cksc")
    assert ("note", f"page: {page}") in heard.calls
    answer = json_of(client)
    (run,) = answer["runs"].values()
    assert (run["stage"], run["done"], run["total"], run["unit"]) == ("distances", TILES, TILES, "tiles")
    assert (run["share"], run["ended"], run["workers"]) == (1.0, True, 2)
    assert run["rate"] > 0
    assert run["rate_unit"] == "pairs"
    assert run["tiles"] == {report.fingerprint: {"blocks": 10, "done": TILES, "total": TILES, "before": 0}}
    assert set(answer) == {"runs", "version", "about"}
    assert "the latest last" in answer["about"]["runs"]
    # asked again, there is nothing to compute
    with watched(Progress()).on(client):
        assert compute_distances(store, client=client).pairs == 0


def test_the_page_is_put_there_once_and_stands_in_the_navigation(client: Client) -> None:
    page = client.dashboard_link.replace("/status", "/cksc")
    assert show_page(client) == page
    applications = client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.http_application.applications))
    assert show_page(client) == page
    with Client(client.scheduler.address, set_as_default=False) as another:
        assert show_page(another).endswith("/cksc")
    same = client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.http_application.applications))
    assert same == applications
    assert fetch(page).count('<a href="cksc">') == 1
    assert fetch(client.dashboard_link).count('<a href="cksc">') == 1


def test_fits_tell_their_accuracy_and_objective_those_of_earlier_runs_as_well(client: Client, tmp_path: Path) -> None:
    data = make_gestures(n_per_class=10)
    ingest(data, tmp_path / "store")
    compute_distances(tmp_path / "store")
    found = [task for task in protocol_tasks(data.labels, n_splits=3) if set(task.coordinates) == {"method", "split"}]
    tasks = [replace(task, keep=True) for task in found]
    assert len(tasks) == 3
    run_fits(tmp_path / "store", tasks[:2], name="final", run=RunSpec(executor="serial"))
    table = run_fits(tmp_path / "store", tasks, name="final", client=client)
    (run,) = json_of(client)["runs"].values()
    assert run["results"]["cksc"]["splits"] == {
        str(split): pytest.approx(float(table.accuracy.sel(split=split).item())) for split in range(3)
    }
    assert run["results"]["cksc"]["mean"] == pytest.approx(float(table.accuracy.mean()))
    assert set(run["objectives"]) == {f"cksc, split {split}" for split in range(3)}
    for split in range(3):
        values = run["objectives"][f"cksc, split {split}"]["values"]
        assert len(values) == int(table.n_iter.sel(split=split).item())
        assert values == sorted(values, reverse=True)  # J never rises


def test_a_client_that_vanishes_has_ended_its_run(client: Client) -> None:
    with Client(client.scheduler.address, set_as_default=False) as other:
        show_page(other)
        progress = DashboardProgress()
        context = progress.on(other)
        context.__enter__()
        progress.begin(Running("distances", 10, 2))
        (run,) = json_of(client)["runs"].values()
        assert not run["ended"]
    wait_until(lambda: all(run["ended"] for run in json_of(client)["runs"].values()), "the end of the run")


@pytest.mark.parametrize("broken", ["add_application", "add_handlers", "both", "log_event"])
def test_where_the_insides_differ_the_work_goes_on(broken: str, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def moved(*_: Any, **__: Any) -> None:
        raise AttributeError("moved")

    with local() as client:
        for name in ("add_application", "add_handlers"):
            if broken in (name, "both"):
                monkeypatch.setattr(RoutingApplication, name, moved)
        if broken == "log_event":
            monkeypatch.setattr(Client, "log_event", moved)
        base = client.dashboard_link.removesuffix("/status")
        best = {"add_application": f"{base}/cksc.json", "both": ""}.get(broken, f"{base}/cksc")
        assert show_page(client) == best
        assert compute_distances(store, client=client).computed == TILES
        if broken == "add_application":
            (run,) = json_of(client)["runs"].values()
            assert run["done"] == TILES
        if broken in ("add_application", "both"):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                fetch(f"{base}/cksc")
            assert '<a href="cksc">' not in fetch(f"{base}/status")


def test_a_scheduler_that_lacks_the_package_has_no_page(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashboard, "_IS_THERE", dashboard._IS_THERE.replace("cksc_dist", "cksc_nowhere"))
    assert show_page(client) == ""
    monkeypatch.undo()
    monkeypatch.setattr(Client, "register_plugin", lambda *_: 1 / 0)
    assert show_page(client) == ""


def test_prometheus_reads_gauges_where_it_is_installed(client: Client, store: str) -> None:
    pytest.importorskip("prometheus_client")
    report = compute_distances(store, client=client)
    (key,) = json_of(client)["runs"]
    said = fetch(client.dashboard_link.replace("/status", "/metrics"))
    assert f'cksc_share{{run="{key}",stage="distances"}} 1.0' in said
    assert f'cksc_tiles_done{{matrix="{report.fingerprint}",run="{key}"}} {TILES}.0' in said


def test_a_plain_scheduler_shows_it_as_well(tmp_path: Path, store: str) -> None:
    port, http = free_port(), free_port()
    with starter(tmp_path) as start:
        start(
            *DASK,
            "scheduler",
            *("--host", "127.0.0.1", "--port", str(port), "--dashboard-address", f"127.0.0.1:{http}"),
        )
        wait_until(lambda: answers(port), "a scheduler that answers")
        start.workers(f"tcp://127.0.0.1:{port}", 1)
        heard = Heard()
        compute_distances(store, run=RunSpec(scheduler=f"tcp://127.0.0.1:{port}"), progress=heard)
        assert ("note", f"page: http://127.0.0.1:{http}/cksc") in heard.calls
        (run,) = json.loads(fetch(f"http://127.0.0.1:{http}/cksc.json"))["runs"].values()
        assert (run["done"], run["total"], run["ended"]) == (TILES, TILES, True)
        assert '<a href="cksc">' in fetch(f"http://127.0.0.1:{http}/cksc")


# in a browser


class Slow(Progress):
    """Lets a run wait after its first tiles, until it is told to go on."""

    def __init__(self) -> None:
        self.seen, self.go_on = threading.Event(), threading.Event()
        self._tiles = 0

    def advance(self, work: int, pairs: int, tiles: int = 1) -> None:
        self._tiles += tiles
        if self._tiles > TILES // 3:
            self.seen.set()
            assert self.go_on.wait(60)


@pytest.mark.browser
@needs_chromium[1]
def test_the_page_fills_up_in_a_browser(store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashboard, "SEND_SECONDS", 0.0)
    monkeypatch.setattr(plan, "TASK_SECONDS", (0.0, 0.0))  # a task for each tile: they come one by one
    slow = Slow()
    progress = DashboardProgress(slow)
    names = ", ".join(f'"{name}"' for name in ("head", "tiles", "points", "map"))
    parts = f"[{names}].map(name => Bokeh.documents[0].get_model_by_name(name))"
    done = f"Array.from({parts}[1].data.image[0] || []).filter(value => value > 0).length"
    with local() as client, running() as browser:
        page = browser.open(show_page(client))
        page.wait("window.Bokeh && Bokeh.documents.length && Bokeh.documents[0].roots().length", "the plots")
        assert "No run of cksc" in page.evaluate(f"{parts}[0].text")
        work = threading.Thread(
            target=compute_distances, args=(store,), kwargs={"progress": progress, "client": client}
        )
        work.start()
        try:
            assert slow.seen.wait(60)
            early = page.wait(done, "the first tiles")
            assert 0 < early < 100
            share = page.evaluate(f"{parts}[0].text")
            assert "100 %" not in share
            assert "ETA" in share
        finally:
            slow.go_on.set()
        page.wait(f"{parts}[0].text.includes('100 %') && {parts}[3].title.text.includes('55 of 55, 100 %')", "100 %")
        work.join()
        assert page.wait(f"{done} === 100", "all tiles and their mirrors")
        train(
            store,
            tmp_path / "model",
            spec=ModelSpec(sparsity=2, tol=0.1),
            place="cluster",
            progress=progress,
            client=client,
        )
        page.wait(f"{parts}[2].data.y.length > 0", "points of the curve")
        points = page.evaluate(f"Array.from({parts}[2].data.y)")
        (run,) = json_of(client)["runs"].values()
        assert points == run["objectives"]["model"]["values"][: len(points)]
        assert page.errors == []
