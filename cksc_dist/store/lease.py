"""One writer at a time: a lease on a store, with host, process and heartbeat.

A lease whose process is gone (on this host), or whose heartbeat stands still (elsewhere), is taken over. A clock that
is wrong on another host does no harm: a heartbeat that looks old is watched for a while before it counts as still.
"""

from __future__ import annotations

import math
import os
import re
import socket
import threading
import time
import uuid
from contextlib import suppress
from typing import Any

from cksc_dist.errors import CkscError, StoreAwayError, StoreBusyError, StoreError
from cksc_dist.processes import NAMESPACE, birth, runs
from cksc_dist.store.folder import Folder, json_record
from cksc_dist.store.in_flight import settle
from cksc_dist.store.trouble import named_trouble

__all__ = ["Lease", "holder", "holds", "silence"]

KEY = "lock.json"
_KINDS = {"host": str, "process": int, "born": float, "token": str, "purpose": str, "since": float, "heartbeat": float}
DAMAGED = "damaged"
TOKEN = re.compile(r"[A-Za-z0-9-]{1,64}")
CLAIM = re.compile(rf"{re.escape(KEY)}\.([0-9a-f]{{32}}|{DAMAGED})")
HEARTBEAT = 5.0
"""Seconds between two signs of life."""
STILL = 4 * HEARTBEAT
"""Without a sign for so long, a lease of another host is over."""


def holder(folder: Folder) -> dict[str, Any] | None:
    """Return who is writing the store now: host, process, purpose, since; None where nobody is."""
    record = _read(folder)
    return None if record is None or _is_dead(record) else record


def holds(folder: Folder, token: str) -> bool:
    """Tell whether the store is held by the lease of a token; one that is damaged is still its holder's.

    Of a store that is away nobody knows: that is a StoreAwayError.
    """
    record = _read(folder)
    return record is not None and (not record or record["token"] == token)


def silence(record: dict[str, Any]) -> float | None:
    """Return for how many seconds a writer elsewhere has given no sign of life; None while that is not long."""
    seconds = time.time() - float(record["heartbeat"])
    return seconds if seconds > STILL else None


def _read(folder: Folder) -> dict[str, Any] | None:
    """Return the lease of a store; None where there is none, and nothing in it where it is damaged."""
    try:
        found = folder.read_json(KEY)
        if found is None:
            return None
        record = dict(found)
    except (StoreError, TypeError, ValueError):
        return {}  # damaged: nobody's
    whole = all(isinstance(record.get(name), kind) for name, kind in _KINDS.items())
    whole = whole and all(math.isfinite(record[name]) for name in ("born", "since", "heartbeat"))
    # the token becomes part of a name: whoever writes a store must not choose which file is made and removed
    whole = whole and record["process"] > 0 and TOKEN.fullmatch(record["token"]) is not None
    return record if whole else {}


def _is_dead(record: dict[str, Any]) -> bool:
    """Tell whether a lease is over for sure, without waiting."""
    if not record:
        return True
    return _is_here(record) and not runs(record["process"], record["born"])


def _is_here(record: dict[str, Any]) -> bool:
    """Tell whether a lease is of this host, and of this container: process numbers mean nothing elsewhere."""
    return bool(record["host"] == socket.gethostname() and record.get("namespace", NAMESPACE) == NAMESPACE)


class Lease:
    """Hold a store for writing, as a context manager.

    Parameters
    ----------
    folder
        The store.
    purpose
        What for, in a word or two: the other one is told.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as path, Lease(Folder(path), "distances"):
    ...     holder(Folder(path))["purpose"]
    'distances'
    """

    def __init__(self, folder: Folder, purpose: str) -> None:
        self._folder = folder
        # only a store has a status
        self._watch = f", or watch it with: cksc status {folder.typed}" if folder.read("zarr.json") is not None else ""
        self._record: dict[str, Any] = {
            "host": socket.gethostname(),
            "namespace": NAMESPACE,
            "process": os.getpid(),
            "born": birth(os.getpid()),
            "token": uuid.uuid4().hex,
            "purpose": purpose,
            "since": time.time(),
            "heartbeat": 0.0,
        }
        self._end = threading.Event()
        self._lost = False

    def __enter__(self) -> Lease:
        try:
            while not self._folder.create(KEY, self._content(), own=True):
                self._take_from_the_dead()
        except OSError as error:
            if (trouble := named_trouble(error, self._folder.url)) is None:
                raise
            raise trouble from error
        self._remove_claims()
        self._thread = threading.Thread(target=self._beat, name="cksc-lease", daemon=True)
        self._thread.start()
        return self

    def _remove_claims(self) -> None:
        """Remove claims of those who died while they took a lease over; none counts while it is held."""
        for name in self._folder.names(""):
            if CLAIM.fullmatch(name):
                self._folder.remove(name)

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        try:
            if error is not None and self._folder.local is not None:
                settle(self._folder.local)
        finally:  # whoever interrupts once more wants an end, and none wants a store that stays locked
            self._give_back(error)

    def _give_back(self, error: BaseException | None) -> None:
        self._end.set()
        self._thread.join()
        trouble = named_trouble(error, self._folder.url)
        try:
            if (found := _read(self._folder)) and found["token"] == self._record["token"]:
                self._folder.remove(KEY)
        except OSError as other:
            trouble = trouble or named_trouble(other, self._folder.url)
            if trouble is None:
                raise
        except StoreAwayError:
            if error is None:  # otherwise that is what happened first
                raise
        if trouble is not None:  # whoever writes holds a lease: this is the place to say what to do
            raise trouble from error

    @property
    def token(self) -> str:
        """What tells this lease from all others."""
        return str(self._record["token"])

    @property
    def held(self) -> bool:
        """Whether nobody else has taken the store over."""
        return not self._lost

    def check(self) -> None:
        """Raise a StoreBusyError if somebody else has taken the store over: this process was silent for too long."""
        if self._lost:
            raise StoreBusyError(
                f"{self._folder.url} was taken over by another process, because this one gave no sign of life for "
                f"{STILL:.0f} s; what is done is kept: wait for the other, then run the same command again"
            )

    def _content(self) -> bytes:
        self._record["heartbeat"] = time.time()
        return json_record(self._record)

    def _beat(self) -> None:
        while not self._end.wait(HEARTBEAT):
            with suppress(OSError, CkscError):  # a store that is away: the next beat will do
                found = _read(self._folder)
                # without a lock, somebody has held the store and given it back
                if found is None or (found and found["token"] != self._record["token"]):
                    self._lost = True
                    return
                # not patiently: when the store is back, somebody else may hold it, and the next beat looks first
                self._folder.write(KEY, self._content(), patient=False)

    def _take_from_the_dead(self) -> None:
        found = _read(self._folder)
        if found is None:
            return  # given back meanwhile
        if not found and self._is_mended():
            return
        if not _is_dead(found) and (_is_here(found) or self._stirs(found)):
            raise StoreBusyError(
                f"{self._folder.url} is being written by process {found['process']} on {found['host']} "
                f"({found['purpose']}); wait for it{self._watch}"
            )
        # of several who see a dead lease only one may remove it: the others must not remove the new one
        claim = f"{KEY}.{found.get('token', DAMAGED)}"
        if self._folder.create(claim, self.token.encode(), own=True) or self._is_old(claim):
            if _read(self._folder) == found:
                self._folder.remove(KEY)
            self._folder.remove(claim)
        else:
            time.sleep(0.1)

    def _is_mended(self) -> bool:
        """Tell whether somebody writes a lock anew that cannot be read: a damaged one may be of the living."""
        end = time.monotonic() + 1.5 * HEARTBEAT
        while time.monotonic() < end:
            time.sleep(HEARTBEAT / 20)
            if _read(self._folder) != {}:
                return True
        return False

    def _is_old(self, claim: str) -> bool:
        """Tell whether a claim was left by a process that died before it could remove it."""
        time.sleep(1.0)
        return self._folder.read(claim) is not None

    def _stirs(self, found: dict[str, Any]) -> bool:
        """Tell whether a lease of another host shows a sign of life while it is watched."""
        if 0 <= time.time() - found["heartbeat"] < STILL:
            return True
        end = time.monotonic() + STILL
        while time.monotonic() < end:
            time.sleep(HEARTBEAT / 5)
            if _read(self._folder) != found:
                return True
        return False
