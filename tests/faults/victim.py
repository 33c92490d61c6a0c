"""A command as a process that may kill itself: before a file operation of a number, where no clock would hit.

python victim.py cksc ARGUMENTS            a command of this package, with the smallest tiles that there are
python victim.py jobs/run_x.py ARGUMENTS   a job

The environment tells which files count (``CKSC_KILL_BELOW``), before which operation to die (``CKSC_KILL_AT``, the
first is 1; 0: none), and where to write how many there were (``CKSC_KILL_COUNT``). Processes that are started from
here know nothing of it.

    python victim.py serve

takes orders from standard input, one a line, and forks for each: most of the time of a small command goes into
imports. It answers with the number of the process, and when that is over with how it ended.
"""

from __future__ import annotations

import importlib
import itertools
import json
import os
import runpy
import signal
import sys
import tempfile
import traceback
from pathlib import Path

CHANGES = {"os.rename": 2, "os.link": 2, "os.remove": 1, "os.mkdir": 1, "os.rmdir": 1}
"""Audit events that change a folder, and how many of their arguments are paths."""
MODULES = (
    "cksc_dist.cli",
    "cksc_dist.commands.stores",
    "cksc_dist.commands.train",
    "cksc_dist.commands.predict",
    "cksc_dist.evaluate.report",
)
"""What is imported before the first order."""
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def watch(below: str, at: int, count: Path | None) -> None:
    """Count operations on files below a folder, and die before one of them."""
    numbers = itertools.count(1)

    def look(event: str, arguments: tuple[object, ...]) -> None:
        if event == "open":
            paths, changes = arguments[:1], bool(int(arguments[2] or 0) & WRITING)  # type: ignore[call-overload]
        else:
            paths, changes = arguments[: CHANGES.get(event, 0)], event in CHANGES
        if not changes or not any(_text(path).startswith(below) for path in (*paths, *_open_folders(event, arguments))):
            return
        number = next(numbers)
        if number == at:
            os.kill(os.getpid(), signal.SIGKILL)
        if count is not None:
            with os.fdopen(os.open(count, os.O_WRONLY | os.O_CREAT), "w") as file:  # not below the folder
                file.write(f"{number:9d}")

    sys.addaudithook(look)


def _open_folders(event: str, arguments: tuple[object, ...]) -> list[str]:
    """Return the folder that a name is relative to: whole trees are removed by names in a folder that is open."""
    number = arguments[-1] if event in ("os.remove", "os.rmdir") else -1
    return [f"{os.readlink(f'/proc/self/fd/{number}')}/"] if isinstance(number, int) and number >= 0 else []


def _text(path: object) -> str:
    return os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else ""


def serve() -> None:
    """Fork for each order: a list of words, variables of the environment, and a file for what is printed."""
    for name in MODULES:
        importlib.import_module(name)
    for line in sys.stdin:
        words, environment, log = json.loads(line)
        number = os.fork()
        if number == 0:
            os.setsid()
            for stream, path, flags in ((0, os.devnull, os.O_RDONLY), (1, log, os.O_WRONLY | os.O_CREAT), (2, log, 0)):
                os.dup2(1 if stream == 2 else os.open(path, flags), stream)
            os.environ.update(environment)
            tempfile.tempdir = None
            sys.argv[1:] = words
            _run_and_leave()
        print(number, flush=True)
        _, status = os.waitpid(number, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _run_and_leave() -> None:
    """Run a command and end the process, whatever comes."""
    code = 1
    try:
        main()
        code = 0
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    """Run what the command line says."""
    below, at = os.environ.pop("CKSC_KILL_BELOW"), int(os.environ.pop("CKSC_KILL_AT", "0"))
    count = os.environ.pop("CKSC_KILL_COUNT", "")
    watch(below, at, Path(count) if count else None)

    from cksc_dist.dist import plan

    plan.LEAST_TILE_CELLS = 1  # many tiles of a few series, as in tests/small_stores.py
    program = sys.argv.pop(1)
    if program != "cksc":
        sys.argv[0] = program
        runpy.run_path(program, run_name="__main__")
        return
    from cksc_dist.cli import main as cksc

    sys.exit(cksc())


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["serve"] else main()
