"""Many fits over one matrix: the protocol that they follow, the work, and tables of what came out."""

from __future__ import annotations

from cksc_dist.evaluate.fit_tasks import ChosenRows, FitTask, SplitRows, protocol_tasks
from cksc_dist.evaluate.fits import run_fits

__all__ = ["ChosenRows", "FitTask", "SplitRows", "protocol_tasks", "run_fits"]
