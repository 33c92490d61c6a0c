"""An evaluation as text: a table for the screen, and one for a README."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import xarray as xr

from cksc_dist.evaluate.methods import METHODS
from cksc_dist.evaluate.paper import TABLE2

__all__ = ["LEVEL", "comparison", "markdown", "ordered_methods"]

LEVEL = 0.05
"""Below this p value a method is said to differ from the best."""


def ordered_methods(names: Iterable[str]) -> list[str]:
    """Return methods as a table has them: CKSC and those that it is compared with, then the reference lines.

    Examples
    --------
    >>> ordered_methods(["svm", "kksvd", "cksc"])
    ['cksc', 'kksvd', 'svm']
    """
    known = set(names)
    return [name for name in METHODS if name in known]


def comparison(table: xr.Dataset) -> list[str]:
    """Return the lines of a table of one evaluation, the paper's figures beside ours."""
    paper = TABLE2.get(table.attrs["title"], {})
    lines = [
        f"{'method':22s} {'accuracy %':>15s} {'paper':>7s} {'F1':>6s} {'IP':>5s} {'calibr.':>7s} {'atoms':>6s} "
        f"{'fit s':>7s}  against the best"
    ]
    for method in table["method"].values:
        row = table.sel({"method": method})
        accuracy = 100 * row.accuracy.values
        spread = accuracy.std(ddof=1) if len(accuracy) > 1 else np.nan
        if method == table.attrs["best"]:
            mark = "best"
        else:
            p = float(row.p_value)
            mark = "no test" if np.isnan(p) else f"p = {p:.3f}{'' if p < LEVEL else ', not different'}"
        lines.append(
            f"{METHODS[method].title:22s} {accuracy.mean():7.2f} +-{_number(spread, 5, 2)} "
            f"{_number(paper.get(method, np.nan), 7, 2)} {_number(100 * float(row.macro_f1.mean()), 6, 1)} "
            f"{_number(float(row.interpretability.mean()), 5, 2)} {_number(float(row.calibration.mean()), 7, 3)} "
            f"{_number(float(row.atoms_used.mean()), 6, 1)} "
            f"{_number(float((row.train_seconds + row.predict_seconds).mean()), 7, 3)}  {mark}"
        )
    return lines


def _number(value: float, width: int, digits: int) -> str:
    return f"{'-':>{width}s}" if np.isnan(value) else f"{value:{width}.{digits}f}"


def markdown(tables: Sequence[xr.Dataset]) -> str:
    """Return one table of several evaluations: a row a method, a column a data set, the paper's figure in brackets.

    Bold: the best of a column, and what a two-sided paired t-test at 5 % does not tell from it.
    """
    ordered = ordered_methods(name for table in tables for name in table["method"].values)
    lines = [
        "| | " + " | ".join(table.attrs["title"] for table in tables) + " |",
        "|---|" + "---|" * len(tables),
    ]
    for method in ordered:
        cells = [_cell(table, method) for table in tables]
        lines.append(f"| {METHODS[method].title} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(table: xr.Dataset, method: str) -> str:
    if method not in table["method"].values:
        return ""
    row = table.sel({"method": method})
    accuracy = 100 * row.accuracy.values
    text = f"{accuracy.mean():.1f} ± {accuracy.std(ddof=1):.1f}" if len(accuracy) > 1 else f"{accuracy.mean():.1f}"
    if method == table.attrs["best"] or float(row.p_value) >= LEVEL:
        text = f"**{text}**"
    paper = TABLE2.get(table.attrs["title"], {}).get(method)
    return text if paper is None else f"{text} ({paper:.1f})"
