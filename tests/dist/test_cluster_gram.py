"""The kernel with workers: the bits of the kernel in memory, whoever works, however many, and whoever dies."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
from distributed import Client, LocalCluster
from distributed.diagnostics.plugin import SchedulerPlugin
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import sparse

from cksc_dist import SeriesSet, open_matrix
from cksc_dist.dist import kernel_copies, kernel_work
from cksc_dist.dist.cluster_gram import ClusterGram, cut
from cksc_dist.dist.dask_executor import DaskExecutor
from cksc_dist.dist.executors import Executor, SerialExecutor, ThreadExecutor
from cksc_dist.dist.kernel_copies import learn_delta, make_copy
from cksc_dist.dist.kernel_work import BandTask, PassTask, pass_product, write_band
from cksc_dist.dist.progress import Progress, Running
from cksc_dist.errors import InputError, PlanError, StoreError
from cksc_dist.io import make_gestures
from cksc_dist.maths.cksc import alternate
from cksc_dist.maths.codes import dictionary_products
from cksc_dist.maths.gram import MemoryGram
from cksc_dist.maths.sparse import SparseRows
from cksc_dist.processes import signature
from cksc_dist.spec import DistanceSpec, KernelSpec, ModelSpec
from cksc_dist.store import kernel_copy
from cksc_dist.store.folder import Folder
from cksc_dist.store.kernel_copy import STRIP, KernelCopy
from cksc_dist.store.lease import Lease
from cksc_dist.store.matrix import DistanceMatrix
from tests.small_stores import files_below
from tests.store.stored import finished

DATA = make_gestures(n_per_class=70, length=(6, 12))
ROWS = np.setdiff1d(np.arange(len(DATA)), [3, 77, 150, 151, 152, 279])
STRIPS = -(-len(ROWS) // STRIP)
EXECUTORS = ["serial", "threads", "dask 1", "dask 2", "dask 4"]
SPEC = ModelSpec(sparsity=4, max_iter=3, tol=0.0)


def made_store(folder: Path, data: SeriesSet = DATA, dtype: str = "float32", edge: int = 50) -> DistanceMatrix:
    finished(Folder(folder), data, DistanceSpec(dtype=dtype), edge)
    return open_matrix(folder)


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> DistanceMatrix:
    return made_store(tmp_path_factory.mktemp("store") / "gestures.zarr")


@pytest.fixture(scope="module")
def copy(matrix: DistanceMatrix) -> KernelCopy:
    return make_copy(matrix, ROWS, KernelSpec(), SerialExecutor(), Progress())


@pytest.fixture(scope="module")
def memory(matrix: DistanceMatrix) -> MemoryGram:
    return MemoryGram(np.asarray(matrix.kernel(ROWS)))


@pytest.fixture(scope="module")
def y() -> NDArray[np.int64]:
    return np.unique(DATA.labels[ROWS], return_inverse=True)[1].astype(np.int64)


@contextmanager
def cluster_of(count: int) -> Iterator[Client]:
    """Workers that are threads of this process: what is put in the place of the work reaches them."""
    with (
        LocalCluster(n_workers=count, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def clients() -> Iterator[dict[str, Client]]:
    with cluster_of(1) as one, cluster_of(2) as two, cluster_of(4) as four:
        yield {"dask 1": one, "dask 2": two, "dask 4": four}


@pytest.fixture(params=EXECUTORS)
def executor(request: pytest.FixtureRequest, clients: dict[str, Client]) -> Executor:
    if request.param == "serial":
        return SerialExecutor()
    return ThreadExecutor(2) if request.param == "threads" else DaskExecutor(clients[request.param])


@pytest.fixture(params=["large", "small"])
def size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Take the copy for one that processes keep in memory, or for one that they read again and again."""
    monkeypatch.setattr(kernel_copy, "SMALL_BYTES", 0 if request.param == "large" else 2**30)
    kernel_work._copy.cache_clear()
    yield request.param
    kernel_work._copy.cache_clear()


def sending(copy: KernelCopy, executor: Executor) -> ClusterGram:
    """All work goes to the workers, however small."""
    return ClusterGram(copy, executor, worth=0)


def weights_of(k: int, n: int, seed: int = 0) -> Any:
    found = sparse.csr_array(sparse.random(k, n, density=0.1, random_state=seed))
    found.sort_indices()
    return found


def atoms_of(k: int, n: int) -> SparseRows:
    rng = np.random.default_rng(4)
    atoms = SparseRows.empty(k, 4)
    for j in range(k):
        count = j % 5  # none and all of the places
        atoms.indices[j, :count] = np.sort(rng.choice(n, count, replace=False))
        atoms.values[j, :count] = rng.random(count)
        atoms.counts[j] = count
    return atoms


def whole(copy: KernelCopy) -> NDArray[Any]:
    """Return all rows; strips are copied, because the next one takes the place of the one before."""
    return np.concatenate([copy.strip(*edge).copy() for edge in copy.edges])


def check_same(one: Any, other: Any) -> None:
    for name, mine, theirs in zip(one._fields, one, other, strict=True):
        assert np.array_equal(mine, theirs), name


# the same bits, whoever works


@pytest.mark.usefixtures("size")
def test_passes_have_the_bits_of_memory(copy: KernelCopy, memory: MemoryGram, executor: Executor) -> None:
    gram, n = sending(copy, executor), copy.n
    assert np.array_equal(gram.diagonal, memory.diagonal)
    for width in (1, 13):
        V = np.random.default_rng(width).standard_normal((n, width))
        assert np.array_equal(gram.product(V), memory.product(V))
    assert np.array_equal(gram.product(np.asfortranarray(V)), memory.product(V))
    for k in (1, 9):
        assert np.array_equal(gram.weighted_rows(weights_of(k, n)), memory.weighted_rows(weights_of(k, n)))
    empty = sparse.csr_array((3, n))
    assert np.array_equal(gram.weighted_rows(empty), np.zeros((3, n)))


@pytest.mark.usefixtures("size")
def test_atoms_and_codes_have_the_bits_of_memory(
    copy: KernelCopy, memory: MemoryGram, executor: Executor, y: NDArray[np.int64]
) -> None:
    gram, n = sending(copy, executor), copy.n
    assert np.array_equal(gram.combine(atoms_of(6, n)), memory.combine(atoms_of(6, n)))
    for k in (1, 7):
        linear = np.random.default_rng(k).standard_normal((k, n))
        (found, images), (expected, expected_images) = (each.solve_atoms(linear, 0.2, SPEC) for each in (gram, memory))
        check_same(found, expected)
        assert np.array_equal(images, expected_images)
    atoms = SparseRows(found.indices, found.values, found.counts)
    dictionary = dictionary_products(atoms, images, y, 4)
    codes = SparseRows.empty(n, SPEC.sparsity)
    for _ in range(2):  # from nothing, then from something
        first, second = (each.code_step(codes, images, dictionary, y, 0.2, SPEC) for each in (gram, memory))
        check_same(first, second)
        codes = first
    assert codes.counts.any()


@pytest.mark.usefixtures("size")
def test_a_fit_has_the_bits_of_one_in_memory(
    copy: KernelCopy, memory: MemoryGram, executor: Executor, y: NDArray[np.int64]
) -> None:
    expected, found = (
        alternate(gram, y, 4, SPEC, np.random.default_rng(3)) for gram in (memory, sending(copy, executor))
    )
    check_same(found.atoms, expected.atoms)
    check_same(found.codes, expected.codes)
    assert np.array_equal(found.history, expected.history)
    assert np.array_equal(found.KU, expected.KU)
    assert found.beta == expected.beta


@pytest.mark.parametrize("rows", [ROWS, np.arange(50, 100), np.arange(0, 280, 7)], ids=len)
def test_the_bandwidth_has_the_bits_of_a_view(
    matrix: DistanceMatrix, rows: NDArray[np.int64], executor: Executor
) -> None:
    assert learn_delta(matrix, rows, KernelSpec(), executor) == matrix.kernel(rows).delta


@pytest.mark.parametrize("rule", ["paper", "squares", "median", 3.25])
def test_other_rules_have_the_bits_of_a_view(matrix: DistanceMatrix, rule: Any) -> None:
    found = learn_delta(matrix, ROWS, KernelSpec(bandwidth=rule), SerialExecutor())
    assert found == matrix.kernel(ROWS, bandwidth=rule).delta


def test_the_copy_is_the_kernel_and_the_same_files_whoever_writes(
    matrix: DistanceMatrix, copy: KernelCopy, executor: Executor
) -> None:
    assert copy.folder.local is not None
    expected = files_below(copy.folder.local)
    made = make_copy(matrix, ROWS, KernelSpec(), executor, Progress(), anew=True)
    assert files_below(copy.folder.local) == expected
    assert "lock.json" not in expected
    K = np.asarray(matrix.kernel(ROWS))
    assert np.array_equal(whole(made), K)
    assert np.array_equal(K, K.T)


@pytest.mark.parametrize(("edge", "memory"), [(17, None), (64, 1), (300, 10**6)])
def test_neither_tiles_nor_memory_change_a_byte_of_the_copy(
    tmp_path: Path, matrix: DistanceMatrix, copy: KernelCopy, edge: int, memory: int | None
) -> None:
    other = made_store(tmp_path / "other.zarr", dtype=matrix.dtype.name, edge=edge)
    delta = copy.delta  # rounded otherwise where tiles are others
    found = make_copy(other, ROWS, KernelSpec(), SerialExecutor(), Progress(), memory, delta=delta)
    for number in range(STRIPS):
        assert np.array_equal(found.strip(*found.edges[number]), copy.strip(*copy.edges[number]))


def test_factor_and_bandwidth_reach_the_copy(matrix: DistanceMatrix) -> None:
    kernel = KernelSpec(bandwidth=7.5, factor=0.25)
    copy = make_copy(matrix, ROWS, kernel, SerialExecutor(), Progress())
    expected = np.exp(-(matrix[ROWS, ROWS].astype(np.float64) ** 2) / (7.5 * 0.25))
    np.testing.assert_allclose(whole(copy), expected, rtol=1e-5, atol=1e-30)
    copy.drop()


# what is done is not done again


@pytest.fixture
def fresh(tmp_path: Path) -> DistanceMatrix:
    return made_store(tmp_path / "fresh.zarr")


class Heard(Progress):
    """What is told of the work."""

    def __init__(self) -> None:
        self.units = 0
        self.running: list[Running] = []
        self.notes: list[str] = []
        self.ends = 0

    def note(self, text: str) -> None:
        self.notes.append(text)

    def begin(self, running: Running) -> None:
        self.running.append(running)

    def advance(self, work: int, pairs: int, tiles: int = 1) -> None:
        self.units += work

    def end(self) -> None:
        self.ends += 1


def strips_of(copy: KernelCopy) -> dict[str, tuple[int, bytes]]:
    """Return the chunks, and what tells a file that was written again."""
    assert copy.folder.local is not None
    top = copy.folder.local / "strips" / "kernel" / "c"
    return {path.parent.name: (path.stat().st_ino, path.read_bytes()) for path in top.glob("*/0")}


@pytest.mark.parametrize("gone", [[0], [STRIPS - 1], [1, 2], [0, 2, 4], list(range(STRIPS))], ids=str)
def test_only_missing_strips_are_written(fresh: DistanceMatrix, gone: list[int]) -> None:
    copy = make_copy(fresh, ROWS, KernelSpec(), SerialExecutor(), Progress())
    before = strips_of(copy)
    assert len(before) == STRIPS == 5
    for number in gone:
        copy.folder.remove(f"strips/kernel/c/{number}/0")
    heard = Heard()
    make_copy(fresh, ROWS, KernelSpec(), ThreadExecutor(2), heard)
    after = strips_of(copy)
    assert {name: content for name, (_, content) in after.items()} == {n: content for n, (_, content) in before.items()}
    assert all(after[str(number)] == before[str(number)] for number in range(STRIPS) if number not in gone)
    assert heard.units == heard.running[0].total == len(gone)
    assert heard.ends == 1
    assert not any("bandwidth" in note for note in heard.notes)  # it is kept with the copy


def test_a_whole_copy_is_no_work_unless_it_is_wanted_anew(fresh: DistanceMatrix) -> None:
    copy = make_copy(fresh, ROWS, KernelSpec(), SerialExecutor(), Progress())
    before = strips_of(copy)
    heard = Heard()
    make_copy(fresh, ROWS, KernelSpec(), SerialExecutor(), heard)
    assert strips_of(copy) == before
    assert heard.running == []
    make_copy(fresh, ROWS, KernelSpec(), SerialExecutor(), heard, anew=True)
    assert heard.units == STRIPS


def test_a_run_that_dies_halfway_leaves_whole_strips_to_the_next(
    fresh: DistanceMatrix, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = KernelCopy.write_strip
    written: list[int] = []

    def die_at_the_third(copy: KernelCopy, number: int, values: NDArray[Any]) -> None:
        if len(written) == 2:
            raise KeyboardInterrupt
        written.append(number)
        write(copy, number, values)

    with monkeypatch.context() as patch:
        patch.setattr(KernelCopy, "write_strip", die_at_the_third)
        with pytest.raises(KeyboardInterrupt):
            make_copy(fresh, ROWS, KernelSpec(), SerialExecutor(), Progress())
    heard = Heard()
    copy = make_copy(fresh, ROWS, KernelSpec(), SerialExecutor(), heard)
    assert heard.units == STRIPS - len(written) == 3
    assert copy.missing() == []


def test_a_copy_that_another_training_writes_is_waited_for(
    fresh: DistanceMatrix, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several settings of the model on one kernel, started at once, is what people do."""
    monkeypatch.setattr(kernel_copies, "WAIT_SECONDS", 0.05)
    copy = make_copy(fresh, ROWS, KernelSpec(), SerialExecutor(), Progress())
    copy.folder.remove("strips/kernel/c/1/0")
    other, heard = Lease(copy.folder, "kernel copy"), Heard()
    other.__enter__()
    threading.Timer(0.5, lambda: other.__exit__(None, None, None)).start()
    assert make_copy(fresh, ROWS, KernelSpec(), SerialExecutor(), heard).missing() == []
    assert heard.units == 1


def test_a_copy_that_was_made_anew_is_not_taken_for_the_old_one(fresh: DistanceMatrix) -> None:
    copy = make_copy(fresh, ROWS, KernelSpec(), SerialExecutor(), Progress())
    task = BandTask(fresh.folder.url, fresh.state, copy.key, copy.id, 0, 1)
    assert write_band(task) == 1
    again = make_copy(fresh, ROWS, KernelSpec(), SerialExecutor(), Progress(), delta=2 * copy.delta, anew=True)
    assert again.id != copy.id
    K = again.strip(0, 64).copy()
    np.testing.assert_allclose(K**2, KernelCopy(fresh.folder, copy.key).strip(0, 64) ** 2)
    np.testing.assert_allclose(K, np.exp(-(fresh[ROWS[:64], ROWS] ** 2) / (2 * copy.delta)), rtol=1e-6)


def test_a_disk_that_is_too_small_is_told_before_anything_is_written(
    fresh: DistanceMatrix, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Folder, "free_bytes", lambda self: 1000)
    with pytest.raises(PlanError, match=r"the kernel of 274 rows takes 0\.0 GB on disk, but .* make room, or train on"):
        make_copy(fresh, ROWS, KernelSpec(), SerialExecutor(), Progress())
    assert fresh.folder.files("kernels") == {}


def test_series_that_changed_meanwhile_are_told(fresh: DistanceMatrix) -> None:
    copy = make_copy(fresh, ROWS, KernelSpec(), SerialExecutor(), Progress())
    with pytest.raises(StoreError, match="series or distances have changed since the training began; run the"):
        write_band(BandTask(fresh.folder.url, "another state", copy.key, copy.id, 0, 1))


# what is read, and what is left behind


class Reads:
    """Counts what is read of a copy: whole strips and single rows."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.counted: Counter[str] = Counter()
        self._lock = threading.Lock()
        for name in ("strip", "row", "_read"):
            monkeypatch.setattr(KernelCopy, name, self._counting(name, getattr(KernelCopy, name)))

    def _counting(self, name: str, read: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any) -> Any:
            with self._lock:
                self.counted[name] += 1
            return read(*arguments)

        return counted

    def since(self) -> Counter[str]:
        """Return what was read since the last call."""
        with self._lock:
            found, self.counted = self.counted, Counter()
        return found


def test_codes_read_no_byte_of_k_and_atoms_one_pass_and_few_rows(
    copy: KernelCopy, executor: Executor, y: NDArray[np.int64], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_copy, "SMALL_BYTES", 0)
    reads = Reads(monkeypatch)
    seen: list[tuple[str, Counter[str]]] = []
    alternate(
        sending(copy, executor),
        y,
        4,
        SPEC,
        np.random.default_rng(0),
        beta=0.5,
        on_half_step=lambda step, _: seen.append((step, reads.since())),
    )
    assert [step for step, _ in seen] == ["codes", "atoms"] * 3 + ["codes"]
    assert seen[0][1]["strip"] == 0
    for step, read in seen[1:]:  # before the first one, atoms are single samples whose rows are read
        if step == "codes":
            assert not read
        else:
            assert read["strip"] == STRIPS
            assert 0 < read["row"] <= 1.5 * 16 * SPEC.sparsity
            assert read["strip"] <= read["_read"] <= read["strip"] + read["row"]  # some rows are still in memory


def test_a_small_kernel_is_read_once_by_each_process(copy: KernelCopy, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel_work._copy.cache_clear()
    reads = Reads(monkeypatch)
    gram = sending(KernelCopy(copy.store, copy.key), SerialExecutor())  # other tests may have kept strips of theirs
    assert reads.since()["_read"] == STRIPS  # by the client, whole
    V = np.ones((copy.n, 1))
    gram.product(V)
    assert reads.since()["_read"] == STRIPS  # by the one worker
    gram.product(V)
    gram.solve_atoms(-np.ones((4, copy.n)), 0.1, SPEC)
    assert reads.since()["_read"] == 0


def test_what_a_pass_shares_is_gone_afterwards(copy: KernelCopy, executor: Executor) -> None:
    gram = sending(copy, executor)
    gram.product(np.ones((copy.n, 2)))
    gram.weighted_rows(weights_of(2, copy.n))
    with pytest.raises(InputError, match=r"V has 275 rows, but K 274 columns"):
        gram.product(np.ones((copy.n + 1, 2)))
    assert [name for name in copy.folder.names("") if name.startswith("pass-")] == []


def test_what_a_killed_run_left_is_removed_and_nothing_of_others(copy: KernelCopy) -> None:
    here, process, born = signature().split("-")
    names = {
        f"pass-{here}-{process}-{int(born) - 100}-0a-1.npz": False,  # of one who had this number before
        f"pass-{here}-{2**22 + 1}-{born}-0a-1.npz": False,  # no process has such a number
        f"pass-{here}-{process}-{born}-0a-1.npz": True,
        f"pass-00000000-{2**22 + 1}-{born}-0a-1.npz": True,  # of another host, which may live
        "pass-notes.npz": True,
    }
    for name in names:
        copy.folder.write(name, b"")
    ClusterGram(copy, SerialExecutor())
    assert {name: copy.folder.read(name) is not None for name in names} == names
    copy.folder.remove_many(list(names))


def test_a_task_of_a_run_that_has_ended_says_so(copy: KernelCopy) -> None:
    with pytest.raises(StoreError, match="is gone: the run that it belongs to has ended"):
        pass_product(PassTask(copy.store.url, copy.key, copy.id, 0, 1, "pass-0-0.npz"))


class Seen(SchedulerPlugin):  # type: ignore[misc]  # it has no types
    """Notes the names of tasks."""

    def __init__(self) -> None:
        self.names: Counter[str] = Counter()

    def transition(self, key: Any, start: str, finish: str, *_: Any, **__: Any) -> None:
        if finish == "processing":
            self.names["-".join(str(key).split("-")[:2])] += 1


def test_tasks_have_the_names_that_the_dashboard_shows(
    fresh: DistanceMatrix, clients: dict[str, Client], y: NDArray[np.int64]
) -> None:
    client, seen = clients["dask 2"], Seen()
    scheduler = client.cluster.scheduler
    scheduler.add_plugin(seen, name="seen")
    try:
        executor = DaskExecutor(client)
        copy = make_copy(fresh, ROWS, KernelSpec(), executor, Progress())
        assert seen.names["kernel-strip"] > 0
        gram = sending(copy, executor)
        passes: list[tuple[str, Callable[[], Any]]] = [
            ("kernel-strip", lambda: gram.product(np.ones((copy.n, 1)))),
            ("kernel-strip", lambda: gram.weighted_rows(weights_of(3, copy.n))),
            ("atom-solve", lambda: gram.solve_atoms(-np.ones((4, copy.n)), 0.1, SPEC)),
        ]
        for name, work in passes:
            seen.names.clear()
            work()
            assert set(seen.names) == {name}
            assert seen.names[name] >= 2
        seen.names.clear()
        atoms, images = gram.solve_atoms(-np.ones((4, copy.n)), 0.1, SPEC)
        dictionary = dictionary_products(SparseRows(*atoms[:3]), images, y, 4)
        seen.names.clear()
        gram.code_step(SparseRows.empty(copy.n, SPEC.sparsity), images, dictionary, y, 0.1, SPEC)
        assert set(seen.names) == {"code-block"}
        # what is smaller than its sending is done here, with the same bits
        seen.names.clear()
        here, images_here = ClusterGram(copy, executor).solve_atoms(-np.ones((4, copy.n)), 0.1, SPEC)
        assert not seen.names
        check_same(here, atoms)
        assert np.array_equal(images_here, images)
    finally:
        scheduler.remove_plugin("seen")


def test_a_damaged_strip_ends_the_pass_with_words(fresh: DistanceMatrix, clients: dict[str, Client]) -> None:
    copy = make_copy(fresh, ROWS, KernelSpec(), SerialExecutor(), Progress())
    assert copy.folder.local is not None
    path = copy.folder.local / "strips" / "kernel" / "c" / "2" / "0"
    content = bytearray(path.read_bytes())
    content[1000] ^= 1
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"strip 2 of the kernel copy .* --new-kernel"):
        ClusterGram(copy, DaskExecutor(clients["dask 2"])).product(np.ones((copy.n, 1)))
    mended = make_copy(fresh, ROWS, KernelSpec(), SerialExecutor(), Progress(), anew=True)
    assert np.array_equal(mended.strip(*mended.edges[2]), np.asarray(fresh.kernel(ROWS))[slice(*mended.edges[2])])


# workers that die


@pytest.mark.slow
def test_a_worker_killed_in_the_middle_changes_no_bit(fresh: DistanceMatrix, y: NDArray[np.int64]) -> None:
    copy = make_copy(fresh, ROWS, KernelSpec(), SerialExecutor(), Progress())
    spec = ModelSpec(sparsity=4, max_iter=6, tol=0.0)
    expected = alternate(np.asarray(fresh.kernel(ROWS)), y, 4, spec, np.random.default_rng(3))
    killed: list[int] = []
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 10}),
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        done = threading.Event()

        def kill_who_works() -> None:
            """Kill a worker that has a task at hand."""
            while not done.is_set() and not killed:
                processes = {worker.worker_address: worker.pid for worker in cluster.workers.values()}
                for address, keys in cluster.scheduler.workers.items():
                    pid = processes.get(address)
                    if keys.processing and pid and pid not in killed:
                        os.kill(pid, signal.SIGKILL)
                        killed.append(pid)
                        break
                time.sleep(0.01)

        killer = threading.Thread(target=kill_who_works)
        killer.start()
        try:
            found = alternate(sending(copy, DaskExecutor(client)), y, 4, spec, np.random.default_rng(3))
        finally:
            done.set()
            killer.join()
    assert killed
    check_same(found.atoms, expected.atoms)
    check_same(found.codes, expected.codes)
    assert np.array_equal(found.history, expected.history)
    assert [name for name in copy.folder.names("") if name.startswith("pass-")] == []


# how work is cut


@given(n=st.integers(0, 500), parts=st.integers(1, 60))
def test_parts_follow_each_other_and_are_even(n: int, parts: int) -> None:
    found = cut(n, parts)
    assert [i for a, b in found for i in range(a, b)] == list(range(n))
    assert len(found) == min(n, parts)
    sizes = {b - a for a, b in found}
    assert not sizes or max(sizes) - min(sizes) <= 1


@given(missing=st.sets(st.integers(0, 40), min_size=1), height=st.integers(1, 9))
def test_bands_are_the_missing_strips_and_no_others(missing: set[int], height: int) -> None:
    numbers = sorted(missing)
    found = [part for run in kernel_copies._runs(numbers) for part in kernel_copies._bands(run, height)]
    strips = [i for a, b in found for i in range(numbers[a], numbers[b - 1] + 1)]
    assert strips == numbers
    assert all(b - a <= height for a, b in found)
