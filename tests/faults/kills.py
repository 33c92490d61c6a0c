"""Kill anything at any moment, run the same command again, and compare with a run that nobody disturbed.

    python -m tests.faults.kills --kills 200 --seed 0

An episode is one command on a store as the commands before it have left it. It is started, something is killed
(``kill -9``), what is dead is started again, and so on, until the command is done. Then every file must have the bytes
of the undisturbed run, but for what names times, hosts and processes (`plain`); nothing else may be left, neither in
the folder nor in the temporary one; and what was done when something died was not done again (`done_work`).

Who is killed and when follows from the seed. A moment is a share of the time that the command takes, or of the number
of its file operations: the time between the last chunk and the ledger is too short for a clock.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from tempfile import mkdtemp
from types import SimpleNamespace
from typing import Any
from zipfile import ZipFile

import numpy as np
import psutil
from distributed import Client

from cksc_dist import SeriesSet, pairwise_dtw
from cksc_dist.errors import StoreError
from cksc_dist.evaluate.fit_work import FitFiles
from cksc_dist.io import make_gestures, write_npz
from cksc_dist.io.textures import TextureSpec, make_texture
from cksc_dist.store.folder import Folder
from cksc_dist.store.ledger import Blocks, Ledger
from cksc_dist.store.matrix_files import find_matrices
from cksc_dist.store.series_files import open_series
from tests.dist.processes import DASK, Started, Starter, free_port, late_plugins, starter, wait_until
from tests.small_stores import flip_bit

ROOT = Path(__file__).resolve().parents[2]
VICTIM = [sys.executable, str(ROOT / "tests" / "faults" / "victim.py")]
JOB = str(ROOT / "jobs" / "run_dyntex.py")

WORKERS = 2
KILLED = -9
PATIENCE = 400.0
"""Seconds that a command may take which takes some on an idle machine."""


@dataclass(frozen=True)
class Step:
    """A command of the story.

    Parameters
    ----------
    name
        What it is called in the summary.
    command
        Words, of which ``WORK`` stands for the folder of the story and ``INPUT`` for that of the sources.
    places
        Where its work may be done, with the words that say so; ``SCHEDULER`` stands for an address.
    damaged
        Whether the store is damaged before it begins.
    """

    name: str
    command: tuple[str, ...]
    places: dict[str, tuple[str, ...]]
    damaged: bool = False


ALONE = {"alone": ()}
EMBEDDED = ("--workers", str(WORKERS))
SEPARATE = ("--scheduler", "SCHEDULER")
ANYWHERE = {
    "threads": ("--executor", "threads", *EMBEDDED),
    "embedded": ("--executor", "dask", *EMBEDDED),
    "separate": SEPARATE,
}
CLUSTERS = {"embedded": EMBEDDED, "separate": SEPARATE}
STORE = "WORK/s.zarr"

STEPS = (
    Step("ingest", ("cksc", "ingest", "INPUT/first.npz", STORE), ALONE),
    Step("distances", ("cksc", "distances", STORE), ANYWHERE),
    Step("append", ("cksc", "append", STORE, "INPUT/more.npz"), ANYWHERE),
    Step(
        "repair",
        ("cksc", "verify", STORE, "--repair", "--sample", "9", "--seed", "1"),
        {place: words for place, words in ANYWHERE.items() if place != "embedded"},
        damaged=True,
    ),
    Step("ingest a matrix", ("cksc", "ingest", "WORK/ready.zarr", "--distances", "INPUT/ready.npz"), ALONE),
    Step("fetch", ("cksc", "fetch", "Taps", "--from", "file://INPUT", "--to", "WORK/fetched"), ALONE),
    Step("train", ("cksc", "train", STORE, f"{STORE}/models/plain", "--train-on", "memory"), ALONE),
    Step(
        "train on a copy",
        ("cksc", "train", STORE, "WORK/model", "--alpha", "0.3"),
        {
            "threads": ("--train-on", "disk"),
            "embedded": ("--train-on", "cluster", *EMBEDDED),
            "separate": ("--train-on", "cluster", *SEPARATE),
        },
    ),
    # the model of before is replaced
    Step(
        "train again", ("cksc", "train", STORE, f"{STORE}/models/plain", "--train-on", "memory", "--seed", "1"), ALONE
    ),
    Step("predict", ("cksc", "predict", "WORK/model", "INPUT/new.npz", "--json", "WORK/decisions.jsonl"), ANYWHERE),
    Step("report of a model", ("cksc", "report", "WORK/model", "--output", "WORK/model.html"), ALONE),
    Step(
        "evaluate",
        tuple(f"cksc evaluate {STORE} --method cksc,1nn --sparsity 3 --quick --splits 1 --folds 2 --factor 1".split()),
        CLUSTERS,
    ),
    Step("report", ("cksc", "report", STORE, "--output", "WORK/report.html"), ALONE),
    Step(
        "job",
        tuple(f"{JOB} --data INPUT/videos --store WORK/job --splits 1 --method cksc,1nn --train-on memory".split()),
        CLUSTERS,
    ),
)

LONG = ("evaluate", "job")
LONG_EVERY = 3
"""Commands that take long have a part in one of so many rounds."""

FORKED = ("alone", "threads")
"""Places whose commands are forked from a process that has imported the package; the others start from nothing."""

STARTED = {"alone": 0.0, "threads": 0.0, "embedded": 0.5, "separate": 0.5}
"""Share of a command's time after which its work goes on."""

VICTIMS = {
    "alone": ("client",),
    "threads": ("client",),
    "embedded": ("client", "worker", "worker"),
    "separate": ("client", "worker", "nanny", "scheduler"),
}


@dataclass(frozen=True)
class Blow:
    """Who is killed and when.

    Parameters
    ----------
    victim
        ``"client"``, ``"worker"``, ``"nanny"`` or ``"scheduler"``.
    share
        Of the command's time, or of its file operations.
    by
        ``"time"`` or ``"operation"``.
    draw
        Between 0 and 1: which of several.
    """

    victim: str
    share: float
    by: str
    draw: float

    @property
    def ends_the_run(self) -> bool:
        """Whether the command cannot go on."""
        return self.victim in ("client", "scheduler")


@dataclass(frozen=True)
class Episode:
    """A command that is disturbed; each of its runs has blows, the last of which ends it or not."""

    step: Step
    place: str
    runs: tuple[tuple[Blow, ...], ...]

    @property
    def kills(self) -> int:
        """How many there will be, if all hit."""
        return sum(len(blows) for blows in self.runs)


def planned(seed: int, kills: int, only: Sequence[tuple[str, str]] = ()) -> Iterator[Episode]:
    """Give episodes, without end: every command at every place in turn, shuffled anew each round; the long ones rarely.

    Parameters
    ----------
    seed
        Decides all of it.
    kills
        Of an episode, at most.
    only
        Names and places of steps; none: all there are.
    """
    chance = random.Random(seed)
    pairs = [(step, place) for step in STEPS for place in step.places if not only or (step.name, place) in only]
    for number in itertools.count():
        chance.shuffle(pairs)
        for step, place in pairs:
            if step.name in LONG and number % LONG_EVERY:
                continue
            left, runs = chance.randint((kills + 1) // 2, kills), []
            while left > 0:
                runs.append(_blows(chance, place, left))
                left -= len(runs[-1])
            yield Episode(step, place, tuple(runs))


def _blows(chance: random.Random, place: str, most: int) -> tuple[Blow, ...]:
    """Return what happens in one run: any number of workers die, then perhaps what it cannot go on without."""
    blows: list[Blow] = []
    while len(blows) < most:
        victim = chance.choice(VICTIMS[place])
        by = "operation" if victim == "client" and not blows and chance.random() < 0.6 else "time"
        # a fourth of them at the very end, where what is done becomes known, a fourth at any time; the others while
        # there is work, which on a cluster is not at once
        first = chance.choice((0.9, 0.0, STARTED[place], STARTED[place]))
        share = chance.uniform(first, 1.0)
        blows.append(Blow(victim, share, by, chance.random()))
        if blows[-1].ends_the_run:
            break
    return tuple(blows)


class Server:
    """A process that has imported the package, and forks for every command."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._count = folder, 0
        self.process = subprocess.Popen(
            [*VICTIM, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder
        )

    def __call__(self, words: Sequence[str], environment: dict[str, str]) -> Forked:
        """Start a command."""
        self._count += 1
        return Forked(self.process, words, self._folder / f"forked-{self._count}.log", environment)

    def end(self) -> None:
        """End it; it forks no more."""
        self.process.kill()
        self.process.communicate()


class Forked(Started):
    """A command that a server forked, with the interface of one that was started."""

    def __init__(self, server: Any, words: Sequence[str], log: Path, environment: dict[str, str]) -> None:
        self._log, self._server, self._code = log, server, None
        log.write_bytes(b"")
        server.stdin.write(json.dumps([list(words), environment, str(log)]) + "\n")
        server.stdin.flush()
        self.process = SimpleNamespace(pid=int(server.stdout.readline()))  # type: ignore[assignment]
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        self._code = int(self._server.stdout.readline() or KILLED)

    def wait(self, seconds: float = PATIENCE) -> int:
        """Return the exit code."""
        self._reader.join(seconds)
        assert self._code is not None, f"still running after {seconds:.0f} s; it said:\n{self.output}"
        return self._code

    def runs(self) -> bool:
        """Tell whether the process itself is alive."""
        return self._reader.is_alive()

    def end(self) -> None:
        """Kill the whole group."""
        if self.runs():
            os.killpg(self.process.pid, signal.SIGKILL)
            self._reader.join()


@dataclass
class Tally:
    """What was done, and how it ended."""

    kills: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """By command, place and victim."""
    missed: int = 0
    """Commands that were done before their moment came."""
    ends: Counter[str] = field(default_factory=Counter)
    """Of runs in which something was killed."""
    episodes: int = 0
    in_flight: int = 0
    """Tiles whose chunks were there, but no mark, when something died."""
    alternations: int = 0
    """Alternations that were made twice."""
    faults: list[str] = field(default_factory=list)

    @property
    def total(self) -> int:
        """How many were killed."""
        return sum(self.kills.values())

    def text(self) -> str:
        """Return the summary."""
        lines = [f"{'command':<18} {'place':<9} client worker nanny scheduler"]
        for step in STEPS:
            for place in step.places:
                counts = [self.kills[step.name, place, victim] for victim in ("client", "worker", "nanny", "scheduler")]
                if any(counts):
                    lines.append("{:<18} {:<9} {:6} {:6} {:5} {:9}".format(step.name, place, *counts))
        lines.append(f"{self.total} kills in {self.episodes} episodes; {self.missed} moments came after the end")
        lines += [f"{count:5} runs: {end}" for end, count in self.ends.most_common()]
        lines.append(
            f"done twice: {self.in_flight} tiles that were in flight, {self.alternations} alternations of training"
        )
        lines += [f"FAULT: {fault}" for fault in self.faults] or ["no fault"]
        return "\n".join(lines)


class Cluster:
    """A scheduler and workers with nannies, as a user starts them; what is dead is started again."""

    def __init__(self, start: Starter, environment: dict[str, str]) -> None:
        self._start, self._environment = start, environment
        self.address = ""
        self.scheduler: Started | None = None
        self.nannies: list[Started] = []

    def top_up(self) -> None:
        """Start what is not running, and wait for it."""
        if self.scheduler is None or not self.scheduler.runs():
            for nanny in self.nannies:  # they end with their scheduler, in their own time
                with suppress(AssertionError):
                    nanny.wait(30.0)
                nanny.end()
            port = int(self.address.rsplit(":", 1)[1]) if self.address else free_port()
            self.address = f"tcp://127.0.0.1:{port}"
            self.scheduler = self._start.scheduler(port, self._environment)
        for nanny in self.nannies:
            if not nanny.runs():
                nanny.end()
        self.nannies = [nanny for nanny in self.nannies if nanny.runs()]
        words = [*DASK, "worker", self.address, "--nthreads", "1", "--no-dashboard"]
        new = [self._start(*words, environment=self._environment) for _ in range(WORKERS - len(self.nannies))]
        self.nannies += new
        wait_until(lambda: all("Registered to" in nanny.output for nanny in new), "workers that know their scheduler")

    def end(self) -> None:
        """End all of it."""
        for each in [*self.nannies, *([] if self.scheduler is None else [self.scheduler])]:
            each.end()
        self.nannies, self.scheduler = [], None

    def check_forgotten(self) -> None:
        """A scheduler that has lived through kills has nothing left of clients that are dead."""
        if self.scheduler is None or not self.scheduler.runs():
            return
        with Client(self.address, set_as_default=False) as client:
            wait_until(lambda: not late_plugins(client), "a scheduler that forgets its dead clients", 30.0)

    def processes(self, victim: str) -> list[psutil.Process]:
        """Return who may be killed."""
        if victim == "scheduler":
            assert self.scheduler is not None
            return [psutil.Process(self.scheduler.process.pid)] if self.scheduler.runs() else []
        if victim == "nanny":
            return [psutil.Process(nanny.process.pid) for nanny in self.nannies if nanny.runs()]
        return [worker for nanny in self.nannies if nanny.runs() for worker in nanny.workers()]


class Campaign:
    """The story undisturbed, then episodes of it.

    Parameters
    ----------
    folder
        Where all of it goes.
    start
        Starts processes.
    steps
        Names of the commands of the story; the others are left out of it.
    length
        Frames of a series: how slow a tile is.
    say
        Hears what goes on.
    """

    def __init__(
        self, folder: Path, start: Starter, steps: Sequence[str] = (), length: int = 300, say: Any = print
    ) -> None:
        self.work, self._input = folder / "work", folder / "input"
        self._before, self._temporary = folder / "before", folder / "tmp"
        self._count = folder / "count"
        self._start, self._say = start, say
        self._server = Server(folder)
        self._steps = [step for step in STEPS if not steps or step.name in steps]
        self._environment = {"TMPDIR": str(self._temporary), "CKSC_KILL_BELOW": f"{self.work}/"}
        self._seconds: dict[tuple[str, str], float] = {}
        self._operations: dict[tuple[str, str], int] = {}
        self._expected: dict[str, dict[str, str]] = {}
        self._cluster = Cluster(start, {"TMPDIR": str(self._temporary)})
        self.tally = Tally()
        for each in (self.work, self._input, self._before, self._temporary):
            each.mkdir()
        make_sources(self._input, length)

    def undisturbed(self) -> None:
        """Run the story, and keep what each command starts from and ends with."""
        for step in self._steps:
            if step.damaged:
                damage(self.work / "s.zarr")
            shutil.copytree(self.work, self._before / step.name)
            self._time(step, next(iter(step.places)))
            self._expected[step.name] = plain(self.work)

    def _time(self, step: Step, place: str) -> None:
        """Run a command undisturbed, and keep how long it takes there."""
        run = self._run(step, place, 0)
        begin = time.monotonic()
        code = run.wait(PATIENCE)
        assert code == 0, f"{step.name}, {place}: {code}\n{run.output}"
        self._seconds[step.name, place] = time.monotonic() - begin
        self._operations[step.name, place] = self._counted()
        self._say(f"{step.name}, {place}: {self._seconds[step.name, place]:.1f} s, {self._counted()} file operations")

    def _counted(self) -> int:
        return int(self._count.read_text()) if self._count.exists() else 1

    def _run(self, step: Step, place: str, at: int) -> Started:
        """Start a command, to die before a file operation; 0: none."""
        names = {"WORK": str(self.work), "INPUT": str(self._input), "SCHEDULER": self._cluster.address}
        words = [re.sub("WORK|INPUT|SCHEDULER", lambda found: names[found[0]], word) for word in step.command]
        words += [names.get(word, word) for word in step.places[place]]
        self._count.unlink(missing_ok=True)
        own = {"CKSC_KILL_AT": str(at), "CKSC_KILL_COUNT": str(self._count)}
        if place in FORKED:
            return self._server(words, self._environment | own)
        return self._start(*VICTIM, *words, environment=self._environment | own)

    def play(self, episode: Episode) -> None:
        """Disturb a command until it is done, and look at what came out; a fault is noted, and ends the episode."""
        step, place = episode.step, episode.place
        if (step.name, place) not in self._seconds:  # where else it may be done, it takes another time
            self._put_back(step)
            if place == "separate":
                self._cluster.top_up()
            self._time(step, place)
            self._check_files(step)
        self._put_back(step)
        self.tally.episodes += 1
        before = self.tally.total
        outputs: list[str] = []
        try:
            known: dict[str, Any] = {}
            for number, blows in enumerate((*episode.runs, ())):
                code, output = self._disturb(step, place, blows, SHORTER**number)
                outputs.append(output)
                known = self._check_kept(known, step)
                if code == 0:
                    break
            assert code == 0, f"ended with {code} although nobody disturbed it"
            self._check_files(step)
            self._cluster.check_forgotten()
            self._check_alternations(step, outputs, self.tally.total - before)
        except AssertionError as error:
            blown = [[(blow.victim, blow.by, round(blow.share, 3)) for blow in blows] for blows in episode.runs]
            said = "\n--- next run ---\n".join(output[-3000:] for output in outputs)
            self.tally.faults.append(f"{step.name}, {place}, {blown}: {error}\n{said}")
            self._say(f"FAULT: {self.tally.faults[-1]}")
        self._say(
            f"{self.tally.total:4} kills: {step.name}, {place}, {len(outputs)} runs"
            + (f"; {len(self.tally.faults)} FAULTS so far" if self.tally.faults else "")
        )

    def _put_back(self, step: Step) -> None:
        """Lay the folder out as it is before a command."""
        shutil.rmtree(self.work)
        shutil.copytree(self._before / step.name, self.work)

    def _disturb(self, step: Step, place: str, blows: Sequence[Blow], left: float = 1.0) -> tuple[int, str]:
        """Run a command once, with blows, that has so much left to do; return how it ended and what it said."""
        if place == "separate":
            self._cluster.top_up()
        seconds = left * self._seconds[step.name, place]
        operations = round(left * self._operations[step.name, place])
        at = max(1, round(blows[0].share * operations)) if blows and blows[0].by == "operation" else 0
        begin = time.monotonic()
        run = self._run(step, place, at)
        hit = []
        for blow in blows:
            if blow.by == "operation":
                if run.wait(PATIENCE) == KILLED:
                    hit.append(blow)
            elif self._strike(run, blow, place, begin + blow.share * seconds if not hit else time.monotonic()):
                hit.append(blow)
        code = run.wait(PATIENCE)
        wait_until(lambda: not run.group(), "workers that end with their client")
        self.tally.missed += len(blows) - len(hit)
        for blow in hit:
            self.tally.kills[step.name, place, blow.victim] += 1
        if code == 0:
            if len(hit) < len(blows) and left == 1.0:  # too late: next time it will be expected to end so soon
                self._seconds[step.name, place] = time.monotonic() - begin
            if not hit and left == 1.0:
                self._operations[step.name, place] = self._counted()
        self._check_end(run, code, hit)
        return code, run.output

    def _strike(self, run: Started, blow: Blow, place: str, moment: float) -> bool:
        """Wait for a moment and kill somebody; return whether the run was still going on."""
        pause = 0.0 if time.monotonic() < moment else blow.draw * 2.0  # after another: a moment later
        moment = max(moment, time.monotonic()) + pause
        while time.monotonic() < moment and run.runs():
            time.sleep(min(0.01, max(0.0, moment - time.monotonic())))
        while run.runs():
            with suppress(psutil.Error):
                found = self._found(run, blow.victim, place)
                if found:
                    chosen = found[int(blow.draw * len(found))]
                    chosen.kill()
                    if blow.victim == "nanny":
                        self._cluster.top_up()
                    return True
            time.sleep(0.02)  # nobody there yet
        return False

    def _found(self, run: Started, victim: str, place: str) -> list[psutil.Process]:
        if victim == "client":
            return [psutil.Process(run.process.pid)]
        return run.workers() if place == "embedded" else self._cluster.processes(victim)

    def _check_end(self, run: Started, code: int, hit: Sequence[Blow]) -> None:
        """A command goes on, or ends with words that say what to do."""
        victims = " and ".join(sorted({f"a {blow.victim}" for blow in hit})) or "nobody"
        if code == KILLED:
            assert any(blow.victim == "client" for blow in hit), "killed by somebody else"
            self.tally.ends["killed itself, as the client"] += 1
            return
        if hit:
            words = re.findall(r"error: (.{0,60})", run.output)
            how = "went on to its end" if code == 0 else f"ended with {code}: {words[-1] if words else ''}"
            self.tally.ends[f"{victims} killed, {how}"] += 1
        said = f"with {victims} killed:\n{run.output[-3000:]}"
        assert "Traceback" not in run.output, f"a traceback, {said}"
        # others take the place of a worker, and the command goes on; nobody takes that of a scheduler
        assert code == 0 or (code == 2 and any(blow.victim == "scheduler" for blow in hit)), (
            f"ended with {code}, {said}"
        )
        if code == 2:
            assert re.search("again|Start one with", run.output), f"no word on how to go on, {said}"

    def _check_kept(self, before: dict[str, Any], step: Step) -> dict[str, Any]:
        """What was done is there still, and is the very same piece of work."""
        if step.damaged:
            return {}  # what is mended is done again
        now = done_work(self.work)
        # a model makes room for another; when a store grows, so do tiles at its edge, and all are looked at again
        passing = {name for name in before if "zarr.json" in name or step.name == "append"}
        again = {
            name: (value, now.get(name))
            for name, value in before.items()
            if now.get(name) != value and not (name in passing and name not in now)
        }
        assert not again, f"done twice, or lost: {dict(list(again.items())[:3])}, {len(again)} in all"
        if step.name == "distances":
            loose = _unmarked_tiles(self.work / "s.zarr")
            assert loose <= WORKERS, f"{loose} tiles were in flight at {WORKERS} workers"
            self.tally.in_flight += loose
        return before | now

    def _check_files(self, step: Step) -> None:
        found, expected = plain(self.work), self._expected[step.name]
        more, less = sorted(set(found) - set(expected)), sorted(set(expected) - set(found))
        other = sorted(name for name in set(found) & set(expected) if found[name] != expected[name])
        assert not more + less + other, f"left over {more}, missing {less}, other bytes {other}"
        outside = [path.name for path in self._temporary.iterdir() if path.name != SCRATCH]
        assert not outside, f"left over in the temporary folder: {outside}"

    def _check_alternations(self, step: Step, outputs: Sequence[str], kills: int) -> None:
        """Of a training, one alternation is made again for each kill, at most."""
        if not step.name.startswith("train"):
            return
        made = Counter(number for output in outputs for number in re.findall(r"alternation (\d+): J", output))
        twice = sum(made.values()) - len(made)
        assert twice <= kills, f"{twice} alternations were made twice, after {kills} kills"
        self.tally.alternations += twice

    def end(self) -> None:
        """End what was started for all episodes."""
        self._server.end()
        self._cluster.end()

    def look_outside(self) -> None:
        """End the cluster, run one of our own once more, and look at what is left outside of the folder."""
        self._cluster.end()
        step = next((step for step in self._steps if "embedded" in step.places), None)
        clusters = {place for _, place, _ in self.tally.kills} & set(CLUSTERS)
        if step is not None and clusters:  # Dask removes folders of dead workers when the next one starts
            self._put_back(step)
            assert self._run(step, "embedded", 0).wait(PATIENCE) == 0
        left = [str(path.relative_to(self._temporary)) for path in self._temporary.rglob("*")]
        left = [name for name in left if name not in (SCRATCH, f"{SCRATCH}/global.lock", f"{SCRATCH}/purge.lock")]
        if left:
            self.tally.faults.append(f"left over in the temporary folder: {left}")


SHORTER = 0.7
"""What a run has left to do after one that was killed, as a guess at when to strike."""

SCRATCH = "dask-scratch-space"
"""Dask's own folder, which stays."""


TAPS = """\
@problemName Taps
@timeStamps false
@univariate true
@classLabel true a b
@data
1,2,3:a
2,3,4,5:b
"""


def damage(store: Path) -> None:
    """Damage a store in ways that a repair mends: a flipped bit in two tiles, one lost chunk, and damaged metadata."""
    first, second, third, *_ = sorted(path for path in store.glob("distances/*/distance/c/*/*") if path.is_file())
    flip_bit(first)
    flip_bit(second)
    third.unlink()
    flip_bit(store / "series" / "zarr.json")


def make_sources(folder: Path, length: int) -> None:
    """Write the files that the commands read: two sets of series for the store, one to classify, and videos."""
    data = make_gestures(n_per_class=36, dims=3, length=(length - 20, length + 20))
    order = np.random.default_rng(0).permutation(len(data))
    series, labels, ids = data.series, data.labels[order].tolist(), data.ids[order].tolist()
    for name, begin, end in (("first", 0, 100), ("more", 100, 120), ("new", 120, 144)):
        part = SeriesSet.from_list([series[i] for i in order[begin:end]], labels[begin:end], ids[begin:end], name=name)
        write_npz(folder / f"{name}.npz", part)
    ready = data.select(order[:50])
    np.savez(folder / "ready.npz", D=pairwise_dtw(ready), y=ready.labels, ids=ready.ids)
    with ZipFile(folder / "Taps.zip", "w") as archive:
        for name in ("Taps_TRAIN.ts", "Taps_TEST.ts"):
            archive.writestr(name, TAPS)
    spec = TextureSpec(classes=2, videos_per_class=6, frames=12, side=16)
    for label in range(2):
        (folder / "videos" / str(label)).mkdir(parents=True)
        for number in range(6):
            np.save(folder / "videos" / str(label) / f"{number}.npy", make_texture(spec, label, number))


MEASURED = ("seconds", "train_seconds", "predict_seconds", "tuning_seconds", "written")
"""Numbers of a watch."""
ENTRY = ("seconds", "worker", "at")
"""What an entry of a ledger tells of who computed a tile, and when."""


def plain(folder: Path) -> dict[str, str]:
    """Return a digest of each file below a folder, and the names of folders; left out is what a stop-watch says.

    That is, of ledgers who computed a tile, when and how long it took; of fits, tables and reports the seconds.
    """
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        found[name] = "folder" if path.is_dir() else sha256(_plain_bytes(name, path)).hexdigest()
    return found


def _plain_bytes(name: str, path: Path) -> bytes:
    content = path.read_bytes()
    if re.search(r"ledger/\w+/(tiles|done/.*)\.json$", name):
        return _without(content, ENTRY)
    if re.search(r"fits/[^/]+/(fits|done/.*)\.json$", name):
        return _without(content, MEASURED)
    if re.search(rf"results/[^/]+/({'|'.join(MEASURED)})/c/", name):
        return b"seconds"
    if re.search(r"results/[^/]+\.files\.json$", name):  # digests of the files of a table
        timed = rf"/({'|'.join(MEASURED)})/c/|results/[^/]+/zarr\.json$"
        listed = json.loads(content)["value"]
        return json.dumps({key: "" if re.search(timed, key) else digest for key, digest in listed.items()}).encode()
    if re.search(r"results/[^/]+/zarr\.json$", name):
        return json.dumps(_cleaned(json.loads(content), MEASURED), sort_keys=True).encode()
    if name.endswith("report.html"):
        content = re.sub(rb"<!-- drawn from \w+ -->", b"", content)  # a digest of tables that hold seconds
        return re.sub(rb"\d[\d,.]*(\s|&nbsp;|\xc2\xa0)(ms|s)\b", b"SECONDS", content)
    return content


def _without(content: bytes, names: tuple[str, ...]) -> bytes:
    """Return a record without some keys, and without the digest that covers them."""
    return json.dumps(_cleaned(json.loads(content)["value"], names), sort_keys=True).encode()


def _cleaned(value: Any, names: tuple[str, ...]) -> Any:
    if isinstance(value, dict):
        return {key: _cleaned(each, names) for key, each in value.items() if key not in names}
    return [_cleaned(each, names) for each in value] if isinstance(value, list) else value


def done_work(folder: Path) -> dict[str, Any]:
    """Return all pieces of work that are done, each with what would be another if it were done again."""
    found: dict[str, Any] = {}
    for store in sorted(folder.rglob("*.zarr")):
        if store.is_dir():
            found |= {f"{store.name} {name}": value for name, value in _done_in_store(store).items()}
    for pattern in ("**/descriptors/*.npz", "**/strips/kernel/c/*/*", "**/model/zarr.json", "**/models/*/zarr.json"):
        for path in folder.glob(pattern):
            if ".partial" not in str(path) and ".replaced" not in str(path):
                content = sha256(path.read_bytes()).hexdigest()
                found[f"{path.relative_to(folder)} {content}"] = path.stat().st_mtime_ns
    return found


def _done_in_store(store: Path) -> dict[str, Any]:
    folder, found = Folder(store), {}
    try:
        series = open_series(folder)
        found[f"series {series.n}"] = (store / "series" / "row" / "c" / "0").stat().st_mtime_ns
        for name, files in find_matrices(folder).items():
            if files.grid.n != series.n:
                continue
            blocks = Blocks(files.grid, series.digests)
            for tile, entry in Ledger(folder, name).load().entries.items():
                if blocks.is_done(tile, entry):
                    found[f"{name} {tile} of {entry.rows} x {entry.columns}"] = entry
    except StoreError:
        return found  # cut off while it was made
    for name in folder.names("fits", folders_only=True):
        for key, measures in FitFiles(str(store), name).load().found.items():
            found[f"fit {name} {key}"] = (measures["train_seconds"], measures["predict_seconds"])
    return found


def _unmarked_tiles(store: Path) -> int:
    """Return how many tiles are written but not marked as done."""
    folder = Folder(store)
    try:
        matrices = find_matrices(folder).items()
    except StoreError:
        return 0
    return sum(len(files.whole_tiles() - set(Ledger(folder, name).load().entries)) for name, files in matrices)


@contextmanager
def campaign(
    folder: Path,
    kills: int,
    seed: int,
    only: Sequence[tuple[str, str]] = (),
    length: int = 300,
    of_an_episode: int = 5,
    seconds: float | None = None,
    victims: Sequence[str] = (),
    say: Any = print,
) -> Iterator[Tally]:
    """Run a campaign of so many kills, and one of each of the chosen; give what came out; no process is left behind.

    Where victims are named, it goes on until each of these was killed.
    """
    with starter(folder) as start:
        names = {name for name, _ in only}
        last = max((k for k, step in enumerate(STEPS) if step.name in names), default=len(STEPS) - 1)
        steps = [step.name for step in STEPS[: last + 1]]
        played = Campaign(folder, start, steps, length, say)
        try:
            played.undisturbed()
            end = time.monotonic() + (seconds or float("inf"))
            for episode in planned(seed, of_an_episode, only):
                hit = {(step, place) for step, place, _ in played.tally.kills}
                dead = {victim for _, _, victim in played.tally.kills}
                enough = played.tally.total >= kills and hit.issuperset(only) and dead.issuperset(victims)
                if enough or time.monotonic() > end:
                    break
                played.play(episode)
            played.look_outside()
        finally:
            played.end()
        yield played.tally


def main() -> int:
    """Run the campaign by hand."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", default=[], metavar="COMMAND:PLACE", help="as distances:separate (all)")
    parser.add_argument("--seconds", type=float, help="begin no other episode after so long (no limit)")
    parser.add_argument("--folder", type=Path, help="to keep; otherwise a temporary one that is removed")
    options = parser.parse_args()
    folder = options.folder or Path(mkdtemp(prefix="kills-"))
    folder.mkdir(exist_ok=True)
    only = [tuple(each.split(":")) for each in options.only]
    try:
        with campaign(folder, options.kills, options.seed, only, seconds=options.seconds) as tally:
            print(tally.text())
    finally:
        if options.folder is None:
            shutil.rmtree(folder)
    return 1 if tally.faults else 0


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    sys.exit(main())
