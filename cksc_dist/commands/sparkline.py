"""A series in one line of text: each letter is as high as the mean of the frames it stands for."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["ASCII", "BLOCKS", "sparkline"]

BLOCKS = "▁▂▃▄▅▆▇█"
ASCII = "_.,-=+*#"


def sparkline(values: NDArray[np.float64], width: int, low: float, high: float, letters: str = BLOCKS) -> str:
    """Return a series of numbers as a line of letters.

    Parameters
    ----------
    values
        One dimension of a series, (time,).
    width
        Letters at most; a shorter series takes one letter a frame.
    low, high
        Values that the lowest and highest letter stand for; pass the same for series to be compared.
    letters
        From low to high.

    Examples
    --------
    >>> import numpy as np
    >>> sparkline(np.arange(16.0), width=8, low=0.0, high=15.0)
    '▁▂▃▄▅▆▇█'
    >>> sparkline(np.array([0.0, 9.0, 0.0]), width=8, low=0.0, high=9.0, letters="_#")
    '_#_'
    """
    edges = np.linspace(0, len(values), min(width, len(values)) + 1).astype(int)
    means = np.add.reduceat(values, edges[:-1]) / np.diff(edges)
    height = (means - low) / (high - low) if high > low else np.full(len(means), 0.5)
    steps = np.clip((height * len(letters)).astype(int), 0, len(letters) - 1)
    return "".join(letters[step] for step in steps)
