"""Which point of a grid tuning chooses: the most accurate; of equals, the one whose settings do best elsewhere as well.

Folds of small sets make many points equally accurate by chance. A point is a setting of several parameters; with m_p(v)
the mean accuracy of all points at which parameter p has the value v,

    chosen = argmax accuracy, then argmax sum_p m_p(v_p), then the first

so that a point on a plateau is preferred to one that stands alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["best_point"]

EQUAL = 1e-9
"""Accuracies that differ by less are equal: they are means of shares, with rounding."""


def best_point(accuracies: ArrayLike, settings: Sequence[Mapping[str, Any]]) -> int:
    """Return the number of the point to choose.

    Parameters
    ----------
    accuracies
        Of each point, mean over the folds.
    settings
        Of each point: values by the names of parameters.

    Examples
    --------
    >>> grid = [{"a": a, "b": b} for a in (1, 2) for b in (1, 2)]
    >>> best_point([0.9, 0.6, 0.8, 0.9], grid), best_point([0.9, 0.9, 0.1, 0.9], grid)
    (0, 1)
    """
    found = np.asarray(accuracies, dtype=np.float64)
    best = np.flatnonzero(found >= found.max() - EQUAL)
    support = np.array(
        [sum(_mean_with(found, settings, name, value) for name, value in each.items()) for each in settings]
    )
    return int(best[np.argmax(np.round(support[best], 9))])


def _mean_with(found: np.ndarray[Any, Any], settings: Sequence[Mapping[str, Any]], name: str, value: Any) -> float:
    """Return the mean accuracy of the points at which a parameter has a value."""
    return float(np.mean([accuracy for accuracy, each in zip(found, settings, strict=True) if each.get(name) == value]))
