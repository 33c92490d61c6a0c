"""``cksc doctor``: what is wrong with a cluster or a store, and what to do."""

from __future__ import annotations

from cksc_dist.commands.screen import Screen
from cksc_dist.dist.doctor import diagnose
from cksc_dist.spec import RunSpec
from cksc_dist.store.folder import Folder

__all__ = ["doctor"]


def doctor(run: RunSpec, store: str | None) -> int:
    """Print findings as they come; return 1 where something fails, 0 otherwise."""
    if store is not None:
        Folder(store)  # an address that cannot be one is told before a cluster is started
    screen = Screen()
    counts = {"ok": 0, "warn": 0, "fail": 0}
    for line in diagnose(run, store):
        counts[line.state] += 1
        screen.line(f"{line.state:<4}  {line.subject:<12}  {line.text}")
    screen.line(f"{counts['ok']} ok, {counts['warn']} to look at, {counts['fail']} to mend")
    return 1 if counts["fail"] else 0
