"""The Dask executor: a bounded window, retries, backup copies, and words for every way in which a cluster fails."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import dask
import pytest
from distributed import Client, LocalCluster

from cksc_dist.dist import dask_executor
from cksc_dist.dist.cluster import _CONFIG
from cksc_dist.dist.dask_executor import DaskExecutor
from cksc_dist.dist.embedded import closed_in_time
from cksc_dist.dist.executors import Done
from cksc_dist.dist.plan import Plan, Rate, Todo
from cksc_dist.dist.progress import Progress
from cksc_dist.dist.tile_work import TileTask
from cksc_dist.errors import ClusterError, InputError
from cksc_dist.store.ledger import Entry
from tests.dist.processes import wait_until

ENOUGH = 40.0
"""Seconds after which something that takes one or two hangs."""

Work = Callable[[TileTask, str], Done]


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """Two workers that are threads of this process: what is put in the place of the work reaches them."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster, set_as_default=False) as found,
    ):
        yield found


@pytest.fixture(scope="module")
def mortal_client() -> Iterator[Client]:
    """Two workers that are processes, so that they can die."""
    with (
        dask.config.set(_CONFIG | {"distributed.scheduler.allowed-failures": 1}),
        closed_in_time(LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0")) as cluster,
        Client(cluster, set_as_default=False) as found,
    ):
        yield found


@pytest.fixture
def executor(client: Client) -> Iterator[DaskExecutor]:
    yield DaskExecutor(client)
    # what runs already cannot be cancelled: it must not reach into the next test
    wait_until(lambda: not client.cluster.scheduler.tasks and not busy(client), "workers without work")


def busy(client: Client) -> bool:
    return any(worker.state.executing for worker in client.cluster.workers.values())


def task_of(number: int) -> TileTask:
    return TileTask("nowhere", "0" * 16, 16, "0" * 16, (Todo((number, number)),))


def entry_of(worker: str) -> Entry:
    return Entry(0, 1, 1, "", "", 0.01, worker, time.time(), 1)


def number_of(task: TileTask) -> int:
    return task.todo[0].tile[0]


def plain_work(task: TileTask, worker: str) -> Done:
    return [(task.todo[0].tile, entry_of(worker))]


@pytest.fixture
def work_is(monkeypatch: pytest.MonkeyPatch) -> Callable[[Work], None]:
    """Put something else in the place of a task's work."""
    return lambda work: monkeypatch.setattr(dask_executor, "run_task", work)


def within(seconds: float, action: Callable[[], Any]) -> Any:
    """Return what a function gives, or fail once it takes too long; its thread may then stay behind."""
    outcome: Future[Any] = Future()

    def act() -> None:
        try:
            outcome.set_result(action())
        except BaseException as error:  # whatever it is, the test is told
            outcome.set_exception(error)

    threading.Thread(target=act, daemon=True).start()
    return outcome.result(seconds)


def run_all(executor: DaskExecutor, count: int, seconds: float = ENOUGH) -> list[int]:
    """Run so many tasks and return their numbers in the order in which they came back."""
    tasks = [task_of(number) for number in range(count)]
    return [tile[0] for results in within(seconds, lambda: list(executor.run(tasks))) for tile, _ in results]


def test_every_task_comes_back_once_from_both_workers(executor: DaskExecutor, work_is: Callable[[Work], None]) -> None:
    workers = set()

    def work(task: TileTask, worker: str) -> Done:
        workers.add(worker)
        time.sleep(0.02)
        return plain_work(task, worker)

    work_is(work)
    assert sorted(run_all(executor, 40)) == list(range(40))
    assert len(workers) == executor.slots == 2
    assert executor.backups == 0


def test_no_tasks_are_no_work(executor: DaskExecutor) -> None:
    assert run_all(executor, 0) == []


def test_tasks_in_flight_are_few_and_named_for_the_dashboard(
    executor: DaskExecutor, client: Client, work_is: Callable[[Work], None]
) -> None:
    scheduler = client.cluster.scheduler
    seen: list[list[str]] = []

    def work(task: TileTask, worker: str) -> Done:
        seen.append([str(key) for key in list(scheduler.tasks)])
        return plain_work(task, worker)

    work_is(work)
    assert len(run_all(executor, 200)) == 200
    most = max(map(len, seen))
    # those sent, and those whose results the client has not let go yet
    assert 1 < most <= 2 * dask_executor.TASKS_AHEAD * executor.slots
    assert all(key.startswith("dtw-tile-") for keys in seen for key in keys)


def test_a_task_that_fails_now_and_then_is_tried_again(executor: DaskExecutor, work_is: Callable[[Work], None]) -> None:
    tries: Counter[int] = Counter()

    def work(task: TileTask, worker: str) -> Done:
        number = number_of(task)
        tries[number] += 1
        if number == 3 and tries[number] <= dask_executor.RETRIES:
            raise OSError("the disk stumbled")
        return plain_work(task, worker)

    work_is(work)
    assert sorted(run_all(executor, 8)) == list(range(8))
    assert tries[3] == 1 + dask_executor.RETRIES
    assert all(tries[number] == 1 for number in range(8) if number != 3)


def test_a_task_that_always_fails_tells_its_own_words(executor: DaskExecutor, work_is: Callable[[Work], None]) -> None:
    def work(task: TileTask, worker: str) -> Done:
        if number_of(task) == 5:
            raise InputError("the distance of series 7 and 8 is inf")
        return plain_work(task, worker)

    work_is(work)
    with pytest.raises(InputError, match="the distance of series 7 and 8 is inf"):
        run_all(executor, 40)


def test_nothing_is_left_in_flight_when_the_results_are_no_longer_wanted(
    executor: DaskExecutor, client: Client, work_is: Callable[[Work], None]
) -> None:
    release = threading.Event()

    def work(task: TileTask, worker: str) -> Done:
        if number_of(task) > 0:
            release.wait(ENOUGH)
        return plain_work(task, worker)

    work_is(work)
    results = executor.run([task_of(number) for number in range(40)])
    assert next(results)[0][0] == (0, 0)
    results.close()  # type: ignore[attr-defined]  # a generator, which the protocol need not say
    release.set()
    wait_until(lambda: not client.cluster.scheduler.tasks, "a scheduler without tasks")


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task is late after a tenth of a second."""
    monkeypatch.setattr(dask_executor, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(dask_executor, "LEAST_STRAGGLER_SECONDS", 0.1)


@pytest.mark.usefixtures("hasty")
def test_a_straggler_gets_a_backup_copy_and_counts_once(
    executor: DaskExecutor, work_is: Callable[[Work], None]
) -> None:
    begun: Counter[int] = Counter()
    release = threading.Event()

    def work(task: TileTask, worker: str) -> Done:
        number = number_of(task)
        begun[number] += 1
        if number == 0 and begun[0] == 1:
            release.wait(ENOUGH)  # the first copy hangs; the backup does not
        return plain_work(task, worker)

    work_is(work)
    try:
        assert sorted(run_all(executor, 12)) == list(range(12))
    finally:
        release.set()
    assert begun[0] == 2
    assert executor.backups in (1, 2)  # a task that waits behind the stuck one may get a copy, too


class Notes(Progress):
    def __init__(self) -> None:
        self.texts: list[str] = []

    def note(self, text: str) -> None:
        self.texts.append(text)


@pytest.mark.usefixtures("hasty")
def test_after_a_long_silence_it_is_told_who_has_tasks(
    client: Client, work_is: Callable[[Work], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first task hangs, so that no backup copy is sent: nobody knows how long it should take."""
    monkeypatch.setattr(dask_executor, "SILENT_SECONDS", 0.5)
    notes, release = Notes(), threading.Event()

    def work(task: TileTask, worker: str) -> Done:
        release.wait(ENOUGH)
        return plain_work(task, worker)

    work_is(work)
    executor = DaskExecutor(client, notes)
    results = executor.run([task_of(0)])
    try:
        while len(notes.texts) < 2:
            assert next(results) == []
        (worker,) = (worker for worker, keys in client.processing().items() if keys)
    finally:
        release.set()
    assert f"nothing has come back for 0 min; of the tasks that were sent, {worker} has 1, for 0 min" in notes.texts[0]
    assert sum(map(len, results)) == 1
    assert executor.backups == 0


@pytest.mark.usefixtures("hasty")
def test_a_backup_copy_that_fails_does_no_harm(
    executor: DaskExecutor, work_is: Callable[[Work], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask_executor, "RETRIES", 0)
    begun: Counter[int] = Counter()
    failed = threading.Event()

    def work(task: TileTask, worker: str) -> Done:
        number = number_of(task)
        begun[number] += 1
        if number == 0 and begun[0] == 1:
            assert failed.wait(ENOUGH)
            time.sleep(0.5)  # the client has heard of the failure before this copy is done
        elif number == 0:
            failed.set()
            raise OSError("the copy has no luck")
        return plain_work(task, worker)

    work_is(work)
    assert sorted(run_all(executor, 12)) == list(range(12))
    assert begun[0] >= 2


@pytest.mark.usefixtures("hasty")
def test_two_stragglers_get_backup_copies_while_a_third_worker_is_idle(work_is: Callable[[Work], None]) -> None:
    begun: Counter[int] = Counter()
    stuck: list[int] = []
    release = threading.Event()

    def work(task: TileTask, worker: str) -> Done:
        number = number_of(task)
        begun[number] += 1
        if number < 2 and begun[number] == 1 and len(stuck) < 2:
            stuck.append(number)
            release.wait(ENOUGH)
        return plain_work(task, worker)

    work_is(work)
    with (
        LocalCluster(n_workers=3, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        try:
            assert sorted(run_all(DaskExecutor(client), 12, 20.0)) == list(range(12))
        finally:
            release.set()


def test_a_slow_task_is_no_straggler_while_there_is_other_work(
    executor: DaskExecutor, work_is: Callable[[Work], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask_executor, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(dask_executor, "LEAST_STRAGGLER_SECONDS", 0.05)

    def work(task: TileTask, worker: str) -> Done:
        time.sleep(0.1)
        return plain_work(task, worker)

    work_is(work)
    begun = run_all(executor, 10)
    assert sorted(begun) == list(range(10))
    # the very last may be late, with one worker idle; never those before
    assert executor.backups <= 1


def test_a_scheduler_without_workers_is_told_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_executor, "AWAY_SECONDS", 1.0)
    with (
        LocalCluster(n_workers=0, processes=False, dashboard_address=":0") as cluster,
        Client(cluster, set_as_default=False) as client,
        pytest.raises(ClusterError, match=r"no workers for 1 s; .* start some with: dask worker .* same command again"),
    ):
        within(ENOUGH, lambda: DaskExecutor(client).sample("nowhere", None))  # type: ignore[arg-type]  # not looked at


def test_workers_that_all_go_away_for_good_end_the_run_with_words(
    work_is: Callable[[Work], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, seconds in (("LOOK_SECONDS", 0.05), ("AWAY_SECONDS", 1.0)):
        monkeypatch.setattr(dask_executor, name, seconds)

    def work(task: TileTask, worker: str) -> Done:
        time.sleep(0.2)
        return plain_work(task, worker)

    work_is(work)
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        results = DaskExecutor(client).run([task_of(number) for number in range(100)])
        next(results)
        cluster.scale(0)
        with pytest.raises(ClusterError, match="no workers"):
            within(20.0, lambda: list(results))


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
def test_a_scheduler_that_goes_away_ends_the_run_with_words(work_is: Callable[[Work], None]) -> None:
    def work(task: TileTask, worker: str) -> Done:
        time.sleep(0.2)
        return plain_work(task, worker)

    work_is(work)
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster:
        client = Client(cluster.scheduler_address, set_as_default=False)
        results = DaskExecutor(client).run([task_of(number) for number in range(100)])
        next(results)
        cluster.close()
        with pytest.raises(ClusterError, match=r"the scheduler went away .* run the same command again"):
            within(ENOUGH, lambda: list(results))
        client.close()


@pytest.mark.slow
def test_a_task_that_kills_its_workers_is_named(mortal_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    # defined here, it is sent to the workers by value
    def work_that_kills(task: TileTask) -> Done:
        os._exit(9)

    monkeypatch.setattr(dask_executor, "_run_on_worker", work_that_kills)
    executor = DaskExecutor(mortal_client)
    # alone: tasks that wait for a worker which dies come under suspicion, too
    with pytest.raises(ClusterError, match=r"workers die again and again at the task of tiles \(3, 3\)") as caught:
        within(ENOUGH, lambda: list(executor.run([task_of(3)])))
    assert "look at their logs and memory" in str(caught.value)


@pytest.mark.slow
def test_a_task_that_is_too_heavy_for_its_workers_is_sent_again_in_smaller_pieces(
    mortal_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that the system, or its nanny, ends at its limit of memory cannot tell any more.

    Dask blames all tasks that it had: those that are light already must not fall for others.
    """

    def work_that_kills(task: TileTask) -> Done:
        if (task.piece or task.edge) > 16:
            os._exit(9)
        return [(task.todo[0].tile, Entry(0, 1, 1, "", "", 0.01, str(task.piece), 1.0, 1))]

    monkeypatch.setattr(dask_executor, "_run_on_worker", work_that_kills)
    executor = DaskExecutor(mortal_client)
    tasks = [TileTask("nowhere", "0" * 16, 64, "0" * 16, (Todo((number, number)),)) for number in range(12)]
    done = within(2 * ENOUGH, lambda: [each for results in executor.run(tasks) for each in results])
    assert sorted(tile[0] for tile, _ in done) == list(range(12))
    assert {entry.worker for _, entry in done} == {"16"}


@pytest.mark.slow
def test_results_that_are_lost_with_their_worker_while_the_client_is_busy_are_computed_again(
    mortal_client: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def work_that_is_slow_at_last(task: TileTask) -> Done:
        number = task.todo[0].tile[0]
        if list(tmp_path.glob(f"{number}-*")):
            time.sleep(2.0)  # still on its way when the client looks
        (tmp_path / f"{number}-{time.monotonic_ns()}").touch()
        return [(task.todo[0].tile, Entry(0, 1, 1, "", "", 0.01, "", 1.0, 1))]

    monkeypatch.setattr(dask_executor, "_run_on_worker", work_that_is_slow_at_last)
    mortal_client.wait_for_workers(2, timeout=ENOUGH)
    results = DaskExecutor(mortal_client).run([task_of(number) for number in range(6)])
    found = [next(done for done in results if done)]
    wait_until(lambda: sum(map(len, mortal_client.has_what().values())) >= 5, "results that nobody has fetched")
    victim = max(mortal_client.has_what().items(), key=lambda item: len(item[1]))[0]
    (process,) = mortal_client.run(os.getpid, workers=[victim]).values()
    os.kill(process, signal.SIGKILL)
    wait_until(lambda: victim not in mortal_client.nthreads(), "a worker that is missed")
    found += [done for done in within(ENOUGH, lambda: list(results)) if done]
    assert sorted(tile[0] for done in found for tile, _ in done) == list(range(6))
    assert len(list(tmp_path.iterdir())) > 6


@pytest.mark.slow
def test_a_worker_that_dies_in_the_timed_sample_does_not_stop_the_run(
    mortal_client: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mark = tmp_path / "died"

    def sample_that_kills_once(url: str, plan: Plan, seed: int) -> Rate:
        if seed == 0 and not mark.exists():
            mark.touch()
            os._exit(9)
        return Rate(2.0, 1.0, 1.0)

    monkeypatch.setattr(dask_executor, "_sample_on_worker", sample_that_kills_once)
    mortal_client.wait_for_workers(2, timeout=ENOUGH)
    rate = within(ENOUGH, lambda: DaskExecutor(mortal_client).sample("nowhere", None))  # type: ignore[arg-type]
    assert mark.exists()
    assert rate == Rate(2.0, 1.0, 1.0)


def test_the_last_workers_may_die_in_the_timed_sample_and_others_take_their_place(
    mortal_client: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Dask alone would wait for the dead: a task that was sent to the last worker runs on no other, ever."""

    def sample_that_kills_once(url: str, plan: Plan, seed: int) -> Rate:
        mark = tmp_path / f"died{seed}"
        if not mark.exists():
            mark.touch()
            while len(list(tmp_path.iterdir())) < 2:
                time.sleep(0.01)
            os._exit(9)
        return Rate(2.0, 1.0, 1.0)

    monkeypatch.setattr(dask_executor, "_sample_on_worker", sample_that_kills_once)
    mortal_client.wait_for_workers(2, timeout=ENOUGH)
    rate = within(ENOUGH, lambda: DaskExecutor(mortal_client).sample("nowhere", None))  # type: ignore[arg-type]
    assert len(list(tmp_path.iterdir())) == 2
    assert rate == Rate(2.0, 1.0, 1.0)


@pytest.mark.slow
def test_workers_that_die_at_every_timed_sample_end_the_run_with_words(
    mortal_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sample_that_kills(url: str, plan: Plan, seed: int) -> Rate:
        os._exit(9)

    monkeypatch.setattr(dask_executor, "_sample_on_worker", sample_that_kills)
    with pytest.raises(ClusterError, match="workers die again and again while a sample of pairs is timed; look at"):
        within(2 * ENOUGH, lambda: DaskExecutor(mortal_client).sample("nowhere", None))  # type: ignore[arg-type]


class Deserted:
    """In a client's place: has workers only after it was asked a few times."""

    def __init__(self, asked: int) -> None:
        self.left = asked

    def subscribe_topic(self, *_: object) -> None:
        pass

    def nthreads(self) -> dict[str, int]:
        self.left -= 1
        return {} if self.left else {"tcp://127.0.0.1:1": 1}


def test_workers_that_are_all_away_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_executor, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(dask_executor, "AWAY_SECONDS", 60.0)
    assert DaskExecutor(Deserted(5))._workers_in_time() == ["tcp://127.0.0.1:1"]


class NeverComes:
    """In a future's place: its result does not come, and is lost at one attempt."""

    def __init__(self, lost_at: int) -> None:
        self._lost_at = lost_at
        self.status, self.asked = "finished", list[float]()

    def result(self, timeout: float) -> object:
        self.asked.append(timeout)
        self.status = "pending" if len(self.asked) == self._lost_at else "finished"
        raise TimeoutError


@pytest.mark.parametrize("lost_at", [0, 1, dask_executor.FETCHES])
def test_a_result_that_does_not_come_is_not_waited_for_without_end(lost_at: int) -> None:
    executor, future = DaskExecutor.__new__(DaskExecutor), NeverComes(lost_at)
    flight = dask_executor._Flight(0, "a task")
    attempts = dask_executor.FETCHES + lost_at  # one that was lost is computed once more, and has as many
    for _ in range(attempts - 1):
        assert executor._fetched(future, flight) is None  # type: ignore[arg-type]  # in a future's place
    with pytest.raises(ClusterError, match="the result of a task does not come from its worker"):
        executor._fetched(future, flight)  # type: ignore[arg-type]
    longest = dask_executor.RESULT_SECONDS * 2 ** (dask_executor.FETCHES - 1)
    assert max(future.asked) == longest
