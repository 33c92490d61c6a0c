"""Which model is shown beside an evaluation: CKSC as it was tuned for the first split."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from cksc_dist.evaluate.fit_tasks import SplitRows
from cksc_dist.spec import DistanceSpec, KernelSpec, ModelSpec, fingerprint

__all__ = ["Example"]


@dataclass(frozen=True)
class Example:
    """How that model is trained.

    Parameters
    ----------
    distances
        Fingerprint of the matrix.
    spec, kernel, seed
        As for `train`.
    split
        Draws its rows.
    """

    distances: str
    spec: ModelSpec
    kernel: KernelSpec
    seed: int
    split: SplitRows

    @classmethod
    def of(cls, table: xr.Dataset) -> Example:
        """Return what a table of `evaluate` says of it."""
        about, row = table.attrs, table.sel({"method": "cksc"})
        chosen = json.loads(str(row.settings.values[int(row.chosen.values[0])]))

        def picked(kind: Any) -> Any:
            return kind(**{part.name: chosen[part.name] for part in fields(kind) if part.name in chosen})

        return cls(
            distances=about["distances"] if about.get("ready") else fingerprint(picked(DistanceSpec).resolved()),
            spec=picked(ModelSpec),
            kernel=picked(KernelSpec),
            seed=int(about["random_state"]),
            split=SplitRows(int(about["random_state"]), float(about["test_size"])),
        )

    def rows(self, labels: NDArray[Any]) -> NDArray[np.int64]:
        """Return the rows that it is trained on, ascending."""
        return np.unique(self.split.draw(labels)[0])
