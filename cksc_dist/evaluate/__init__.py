"""Comparing methods: the protocol, many fits over one store, tables, figures, and the report."""

from __future__ import annotations

from cksc_dist.evaluate.fit_tasks import ChosenRows, FitTask, SplitRows, protocol_tasks
from cksc_dist.evaluate.fits import run_fits
from cksc_dist.evaluate.grids import KernelChoices
from cksc_dist.evaluate.protocol import Protocol, evaluate

__all__ = [
    "ChosenRows",
    "FitTask",
    "KernelChoices",
    "Protocol",
    "SplitRows",
    "evaluate",
    "protocol_tasks",
    "run_fits",
]
