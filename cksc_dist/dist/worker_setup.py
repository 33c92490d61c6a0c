"""Loaded by every worker of a cluster that this package starts: Ctrl-C is for the client, which ends its workers."""

from __future__ import annotations

import signal
import threading
from typing import Any

__all__ = ["dask_setup"]


def dask_setup(worker: Any) -> None:
    """Let an interrupt from the terminal, which reaches all processes of a command, pass by."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
