"""The folder with the recipes, and addresses that its scripts print."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from distributed import Client

from tests.dist.processes import Started, ledger_of, wait_until

CLUSTER = Path(__file__).resolve().parents[2] / "cluster"


def make_certs(folder: Path) -> dict[str, str]:
    """Make certificates, and return the environment that is printed."""
    done = subprocess.run([sys.executable, CLUSTER / "make_certs", folder], capture_output=True, text=True, check=True)
    return dict(re.findall(r"^export (\w+)=(.*)$", done.stdout, re.MULTILINE))


def address_of(started: Started) -> str:
    """Return the address of the scheduler that a script of the recipes has started."""
    wait_until(lambda: "scheduler: " in started.output or not started.runs(), "the address of a scheduler", 60.0)
    found = re.search(r"^scheduler: (\S+)$", started.output, re.MULTILINE)
    assert found, started.output
    return found[1]


def listening(address: str) -> set[str]:
    """Return the addresses of this machine on which the scheduler and the workers of a cluster listen."""
    ask = (
        "{one.laddr.ip for one in __import__('psutil').Process().net_connections('tcp') if one.status == 'LISTEN'} "
        "- {'::1'}"
    )
    with Client(address, timeout="20s", set_as_default=False) as client:
        client.wait_for_workers(2, timeout=60)
        return set().union(client.run_on_scheduler(eval, ask), *client.run(eval, ask).values())


def check_that_two_worked(store: Path) -> None:
    """The ledger names two workers."""
    assert len({entry.worker for entry in ledger_of(store).values()}) == 2
