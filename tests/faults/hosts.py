"""Several hosts on one machine: network namespaces on a switch that is itself in one, so that no packet gets out.

A host has a name, an address and a link that can be cut. All see the same files. Needs root and ``ip`` (iproute2).
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress

NETWORK = "10.77.0"


def missing() -> str:
    """Say why there can be no hosts here; empty where there can be."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return "network namespaces need root and Debian's package iproute2"
    name = f"cksc{os.getpid()}try"
    tried = subprocess.run(["ip", "netns", "add", name], capture_output=True)
    if tried.returncode == 0:
        _ip("netns", "del", name)
    return "" if tried.returncode == 0 else "no network namespace can be made here"


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=30)


class Host:
    """A network namespace with one link.

    Parameters
    ----------
    name
        Of the namespace.
    switch
        Namespace of the switch.
    number
        Last part of the address.
    """

    def __init__(self, name: str, switch: str, number: int) -> None:
        self.name, self.address = name, f"{NETWORK}.{number}"
        self._switch, self._port = switch, f"port{number}"
        _ip("netns", "add", name)
        _ip("-n", switch, "link", "add", self._port, "type", "veth", "peer", "name", "eth0", "netns", name)
        _ip("-n", switch, "link", "set", self._port, "master", "bridge", "up")
        _ip("-n", name, "addr", "add", f"{self.address}/24", "dev", "eth0")
        _ip("-n", name, "link", "set", "eth0", "up")
        _ip("-n", name, "link", "set", "lo", "up")

    @property
    def here(self) -> tuple[str, ...]:
        """What to put before a command that shall run on this host."""
        return ("ip", "netns", "exec", self.name)

    def cut(self) -> None:
        """Cut the link: packets are lost, and nobody is told."""
        _ip("-n", self._switch, "link", "set", self._port, "down")

    def mend(self) -> None:
        """Join the link again."""
        _ip("-n", self._switch, "link", "set", self._port, "up")


@contextmanager
def hosts(count: int) -> Iterator[list[Host]]:
    """Give hosts that reach each other and nobody else; they are gone afterwards."""
    top = f"cksc{os.getpid()}"
    made = [f"{top}s"]
    try:
        _ip("netns", "add", made[0])
        _ip("-n", made[0], "link", "add", "bridge", "type", "bridge", "forward_delay", "0")
        _ip("-n", made[0], "link", "set", "bridge", "up")
        found = []
        for number in range(1, count + 1):
            made.append(f"{top}h{number}")
            found.append(Host(made[-1], made[0], number))
        yield found
    finally:
        for name in made:
            with suppress(subprocess.CalledProcessError):
                _ip("netns", "del", name)
