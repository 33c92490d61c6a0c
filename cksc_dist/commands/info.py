"""``cksc info``: what is in a file or folder of series."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cksc_dist.commands.amounts import in_bytes
from cksc_dist.commands.screen import Screen
from cksc_dist.io import read
from cksc_dist.series import UNKNOWN, SeriesSet

__all__ = ["info", "summary"]

FLOAT64_BYTES = 8


def info(sources: Sequence[Path], reader_options: Mapping[str, Any]) -> None:
    """Print a summary of each source."""
    screen = Screen()
    for i, source in enumerate(sources):
        with screen.busy(f"reading {source}"):
            data = read(source, **reader_options)
        if i:
            screen.line()
        screen.heading(f"{source}")
        screen.table(["", ""], summary(data))


def summary(data: SeriesSet) -> list[tuple[str, str]]:
    """Return what there is to say about a set, as names and values.

    Examples
    --------
    >>> from cksc_dist.io import make_gestures
    >>> for name, value in summary(make_gestures(n_per_class=3, n_classes=2)):
    ...     print(f"{name}: {value}")
    name: gestures
    series: 6
    classes: 2: gesture0 3, gesture1 3
    dimensions: 3
    lengths: 53 shortest, 57 median, 78 longest
    constant dimensions: none
    full distance matrix: 288 bytes in float64; 15 pairs
    """
    n, lengths = len(data), data.lengths
    return [
        ("name", data.name),
        ("series", f"{n:,}"),
        ("classes", _classes(data)),
        ("dimensions", f"{data.dims:,}"),
        ("lengths", f"{lengths.min():,} shortest, {np.median(lengths):,g} median, {lengths.max():,} longest"),
        ("constant dimensions", _constant_dimensions(data)),
        ("full distance matrix", f"{in_bytes(n * n * FLOAT64_BYTES)} in float64; {n * (n - 1) // 2:,} pairs"),
    ]


def _classes(data: SeriesSet) -> str:
    names, counts = np.unique(data.labels, return_counts=True)
    if names.tolist() == [UNKNOWN]:
        return "none: the series have no labels"
    return f"{len(names)}: " + ", ".join(f"{name} {count}" for name, count in zip(names, counts, strict=True))


def _constant_dimensions(data: SeriesSet) -> str:
    low = np.minimum.reduceat(data.values, data.offsets[:-1], axis=0)
    high = np.maximum.reduceat(data.values, data.offsets[:-1], axis=0)
    still = low == high  # (series, dims)
    if not still.any():
        return "none"
    never = low.min(axis=0) == high.max(axis=0)
    series = int(still.any(axis=1).sum())
    return (
        f"{int(never.sum()):,} of {data.dims:,} have one value in the whole set; {series:,} of {len(data):,} "
        "series have a dimension without change, which normalise='z' refuses"
    )
