"""What the text forms share: lines with their numbers, values with their places, and missing values.

Nothing that a file declares about its size is used to allocate anything, and every fault names the line.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from cksc_dist.errors import InputError, ReadError
from cksc_dist.files import plain_only

__all__ = ["Missing", "check_missing", "few_names", "fill_missing", "parse_dimensions", "quote", "statements"]

MOST_NAMED = 8
MOST_LETTERS = 63
"""Of a name, as MATLAB has it; damaged files have longer ones."""
PIECE = 2**16
"""Letters of a row that are taken apart at a time."""

Missing = Literal["error", "interpolate"]


def quote(text: str) -> str:
    """Return a short quotation of what stands in a file, for an error."""
    return repr(text if len(text) <= 30 else text[:27] + "...")


def few_names(names: Iterable[str]) -> str:
    """Return the first of some names from a file, shortened, and how many there are beside them, for an error.

    Examples
    --------
    >>> few_names(["x", "y"]), few_names(str(number) for number in range(30_000)), few_names([])
    ('x, y', '0, 1, 2, 3, 4, 5, 6, 7 and 29992 more', 'none')
    """
    listed = list(names)
    more = f" and {len(listed) - MOST_NAMED} more" if len(listed) > MOST_NAMED else ""
    return (", ".join(name[:MOST_LETTERS] for name in listed[:MOST_NAMED]) or "none") + more


def statements(path: Path) -> Iterator[tuple[int, str]]:
    """Yield number and stripped text of each line that is neither blank nor a comment (``#``, ``%``)."""
    try:
        # Comments of archive files come in any encoding; only what is read as data has to be UTF-8.
        with open(path, encoding="utf-8-sig", errors="surrogateescape", opener=plain_only) as handle:
            for line, raw in enumerate(handle, start=1):
                text = raw.strip()
                if not text or text[0] in "#%":
                    continue
                if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
                    raise ReadError(path, "is not UTF-8 text; save the file as UTF-8", line)
                yield line, text
    except OSError as error:
        raise ReadError(path, f"cannot be opened: {error.strerror}; check the path and its permissions") from error


def _number(token: str) -> float:
    """Return the value of a token: NaN where it is missing, infinity where it is no finite number."""
    try:
        value = float(token)
    except ValueError:
        return math.nan if token.strip() == "?" else math.inf
    # float() also takes 1_000 and the digits of other scripts: in a data file these are damage
    return value if token.isascii() and "_" not in token else math.inf


def parse_dimensions(rows: Sequence[str], path: Path, line: int) -> NDArray[np.float64]:
    """Return (time, dims) from one comma-separated row for each dimension; missing values (``?``) are NaN."""
    lengths = [row.count(",") + 1 for row in rows]
    for dim, (row, length) in enumerate(zip(rows, lengths, strict=True), start=1):
        if not row.strip():
            raise ReadError(path, f"dimension {dim} is empty; give it values or remove the series", line)
        if length != lengths[0]:
            raise ReadError(
                path,
                f"dimension {dim} has {length} values but dimension 1 has {lengths[0]}; all dimensions of a "
                "series must have the same length",
                line,
            )
    values = np.empty((lengths[0], len(rows)))
    for dim, row in enumerate(rows):
        tokens = row.split(",") if len(row) <= PIECE else _tokens(row)
        values[:, dim] = np.fromiter(map(_number, tokens), np.float64, lengths[0])
        wrong = np.flatnonzero(np.isinf(values[:, dim]))
        if len(wrong):
            token = next(islice(_tokens(row), int(wrong[0]), None))
            raise ReadError(
                path,
                f"value {wrong[0] + 1} of dimension {dim + 1} is {quote(token)}; it must be a finite "
                "number, or ? where it is missing",
                line,
            )
    return values


def _tokens(row: str) -> Iterator[str]:
    """Give what stands between commas; of a long row in pieces, because a token takes twenty times its letters."""
    at = 0
    while len(row) - at > PIECE and (end := row.find(",", at + PIECE)) >= 0:
        yield from row[at:end].split(",")
        at = end + 1
    yield from row[at:].split(",")


def check_missing(missing: str) -> None:
    """Raise unless ``missing`` names a way to treat missing values."""
    if missing not in ("error", "interpolate"):
        raise InputError(f"missing={missing!r}: must be one of 'error', 'interpolate'")


def fill_missing(values: NDArray[np.float64], missing: Missing, path: Path, line: int) -> NDArray[np.float64]:
    """Return (time, dims) without NaN: linear between known values, the nearest one at both ends."""
    gaps = np.isnan(values)
    if not gaps.any():
        return values
    if missing == "error":
        frame, dim = (int(v) for v in np.argwhere(gaps)[0])
        raise ReadError(
            path,
            f"value {frame + 1} of dimension {dim + 1} is missing; fill it in the file, or read it with "
            'missing="interpolate"',
            line,
        )
    filled = values.copy()
    frames = np.arange(len(values))
    for dim in map(int, np.flatnonzero(gaps.any(axis=0))):
        known = np.flatnonzero(~gaps[:, dim])
        if not len(known):
            raise ReadError(
                path,
                f"dimension {dim + 1} has no value at all, so none can be interpolated; remove the series or "
                "the dimension",
                line,
            )
        filled[:, dim] = np.interp(frames, known, values[known, dim])
    return filled
