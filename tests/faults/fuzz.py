"""Fuzzing of every reader: `python -m tests.faults.fuzz --executions 1000000 --seed 0 [--target ts]`.

Targets run in processes of their own, with a limit on memory, ears for warnings and for files that are written, and
somebody outside who watches that they go on (`tests.faults.fuzz_guard`). Whatever an input is, it is taken or refused
by a named error; all else is a failure, which is shown with the number that makes it again: ``--only NUMBER``.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

__all__ = ["Tally", "main", "run"]

HANG = 60.0
"""Seconds without an execution that ends; on a busy machine one takes a few."""
SHOWN = 40
"""Different failures of a target that are kept."""
PIECE = 20_000
"""Executions of a target that are done at a time."""

Piece = tuple[str, int, int]
"""A target, the number of its first execution, and how many."""


@dataclass
class Tally:
    """What came of the executions of a target."""

    target: str
    executions: int = 0
    accepted: int = 0
    refused: int = 0
    failed: int = 0
    seconds: float = 0.0
    slowest: float = 0.0
    failures: dict[str, str] = field(default_factory=dict)

    def add(self, other: Tally) -> None:
        """Count in what another process has done."""
        for name in ("executions", "accepted", "refused", "failed", "seconds"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.slowest = max(self.slowest, other.slowest)
        self.failures |= other.failures


def run(executions: int, seed: int = 0, targets: Sequence[str] = (), jobs: int = 2, first: int = 0) -> list[Tally]:
    """Fuzz, and return what came of each target."""
    from tests.faults.fuzz_targets import ALL, TARGETS

    chosen = list(targets or TARGETS)
    total = sum(ALL[name].share for name in chosen)
    pieces: list[Piece] = []
    for name in chosen:
        own = max(1, round(executions * ALL[name].share / total))
        size = PIECE if own > 2 * PIECE else -(-own // jobs)
        pieces += [(name, first + at, min(size, own - at)) for at in range(0, own, size)]
    tallies = {name: Tally(name) for name in chosen}
    with ThreadPoolExecutor(jobs) as pool:
        for parts in pool.map(lambda k: _watch(pieces[k::jobs], seed), range(jobs)):
            for tally in parts:
                tallies[tally.target].add(tally)
    return list(tallies.values())


def _watch(pieces: list[Piece], seed: int) -> list[Tally]:
    """Run pieces in a process; one that dies is a failure, and another goes on behind it."""
    done: list[Tally] = []
    while pieces:
        home = Path(tempfile.mkdtemp(prefix="cksc-fuzz-", dir=_quick_place()))
        try:
            part, left = _child(home, pieces, seed)
        finally:
            shutil.rmtree(os.fsencode(home), ignore_errors=True)
        done += part
        pieces = left
    return done


def _child(home: Path, pieces: list[Piece], seed: int) -> tuple[list[Tally], list[Piece]]:
    """Run one process; return what it has done, and what it has not."""
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.faults.fuzz", "--child", str(home)]
    command += ["--seed", str(seed), "--pieces", json.dumps(pieces)]
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
    environment = (
        os.environ | dict.fromkeys(names, "1") | {"MALLOC_ARENA_MAX": "2", "MPLCONFIGDIR": str(home / "matplotlib")}
    )
    with (home / "printed").open("wb") as printed:
        process = subprocess.Popen(command, stderr=printed, stdout=printed, env=environment, cwd=_root())
        try:
            _see_to_it(process, home)
        finally:
            process.kill()
            process.wait()
    told = _text(home / "printed")
    done = [Tally(**json.loads(line)) for line in _text(home / "tally").splitlines()]
    if process.returncode == 0:
        if "Traceback" in told or "Exception ignored" in told:  # libraries of C say a line or two
            done[-1].failed += 1
            done[-1].failures["printed"] = told[:3000]
        return done, []
    (target, first, count), *rest = pieces[len(done) :] or pieces[-1:]
    at = [int(word) for word in _text(home / "at").split()]
    number = at[1] if at and at[0] == len(done) else first
    said = told[max(0, told.find("Fatal Python")) :][:3000]
    words = f"ended with {process.returncode} at --target {target} --seed {seed} --only {number}\n{said}"
    # what had failed before it died was written down at once
    failures = dict(json.loads(line) for line in _text(home / f"failures{len(done)}").splitlines())
    died = Tally(target, number - first + 1, failed=1 + len(failures), failures=failures)
    died.refused = died.executions - died.failed
    died.failures[f"{target}: died with {process.returncode}, {number}"] = words
    left = first + count - number - 1
    return [*done, died], [*([(target, number + 1, left)] if left > 0 else []), *rest]


def _see_to_it(process: subprocess.Popen[bytes], home: Path) -> None:
    """Wait for the end of a process that goes on; one that stands still is ended, with a traceback."""
    seen, since = "", time.monotonic()
    while process.poll() is None:
        time.sleep(0.05)
        now = _text(home / "at")
        if now != seen:
            seen, since = now, time.monotonic()
        elif time.monotonic() - since > HANG * (1 if seen.strip() else 4):
            process.send_signal(signal.SIGABRT)
            process.wait()


def _root() -> Path:
    return Path(__file__).parents[2]


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except FileNotFoundError:
        return ""


def _quick_place() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def _fuzz(home: Path, pieces: Sequence[Piece], seed: int) -> None:
    """Fuzz in this process, and write down how far it is."""
    from tests.faults.fuzz_guard import Guard, memory_limited
    from tests.faults.fuzz_targets import ALL

    (home / "at").write_bytes(b" " * 18)
    with (home / "at").open("r+b") as file:
        at = mmap.mmap(file.fileno(), 18)  # a call of the system for each execution would take as long as a reader
    guard = Guard()
    for k, (target, first, count) in enumerate(pieces):
        box = home / f"box{k}"
        box.mkdir()
        subject = ALL[target](box)
        with memory_limited():
            guard.begin(box)
            tally = Tally(target)
            outcomes: Counter[str] = Counter()
            begun = time.monotonic()
            for number in range(first, first + count):
                at[:] = b"%-5d %-12d" % (k, number)
                rng = Random(f"{seed}/{target}/{number}")
                outcome, wrong = guard.run(lambda rng=rng, subject=subject: subject.execute(rng))  # type: ignore[misc]
                outcomes[outcome] += 1
                if wrong is not None:
                    key = f"{target}: {_gist(wrong)}"
                    if key not in tally.failures and len(tally.failures) < SHOWN:
                        tally.failures[key] = f"--target {target} --seed {seed} --only {number}\n{wrong}"
                        with (home / f"failures{k}").open("a") as file:
                            file.write(json.dumps([key, tally.failures[key]]) + "\n")
        tally.executions, tally.seconds, tally.slowest = count, time.monotonic() - begun, guard.slowest
        tally.accepted, tally.refused, tally.failed = (outcomes[name] for name in ("accepted", "refused", "failed"))
        subject.end()
        with (home / "tally").open("a") as file:
            file.write(json.dumps(vars(tally)) + "\n")


def _gist(wrong: str) -> str:
    """Return what two failures of one cause share: the kind of the error and the last place in this package."""
    lines = wrong.strip().splitlines()
    places = [line.strip() for line in lines if line.strip().startswith("File") and "cksc_dist" in line]
    return f"{lines[-1][:60]} {places[-1] if places else ''}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="fuzz every reader of this package")
    parser.add_argument("--executions", type=int, default=10_000, help="of all targets together (%(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", action="append", default=[], help="one of them only; may be given again")
    parser.add_argument("--jobs", type=int, default=2, help="processes side by side (%(default)s)")
    parser.add_argument("--first", type=int, default=0, help="number of the first execution")
    parser.add_argument("--only", type=int, help="this execution alone")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--pieces", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child is not None:
        _fuzz(options.child, options.pieces, options.seed)
        sys.stdout.flush()
        os._exit(0)  # the threads of libraries need not come to their end
    if options.only is not None:
        options.first, options.executions, options.jobs = options.only, 1, 1
    tallies = run(options.executions, options.seed, options.target, options.jobs, options.first)
    show(tallies)
    return int(any(tally.failed for tally in tallies))


def show(tallies: list[Tally]) -> None:
    """Print what came of each target, and the failures."""
    heads = ("executions", "accepted", "named errors", "failed", "a second", "slowest")
    print(f"{'target':14}{''.join(f'{head:>14}' for head in heads)}")
    whole = Tally("all")
    for tally in tallies:
        whole.add(tally)
    for tally in (*tallies, whole):
        counts = (tally.executions, tally.accepted, tally.refused, tally.failed)
        rate = tally.executions / max(tally.seconds, 1e-9)
        print(f"{tally.target:14}{''.join(f'{n:14,}' for n in counts)}{rate:14,.0f}{tally.slowest:12.2f} s")
    for key, text in whole.failures.items():
        print(f"\n== {key}\n{text}")


if __name__ == "__main__":
    sys.exit(main())
