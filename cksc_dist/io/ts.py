"""The ``.ts`` text form of the UEA and UCR archives.

After a header of ``@keyword value`` lines and ``@data`` stands one series a line: its dimensions separated
by ``:``, the values of a dimension by ``,``, and last the class label where the header promises one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cksc_dist.errors import ReadError
from cksc_dist.io.text import Missing, check_missing, fill_missing, parse_dimensions, quote, statements
from cksc_dist.series import UNKNOWN, SeriesSet

__all__ = ["read_ts"]


@dataclass(frozen=True)
class _Header:
    """What the header promises, and every case is then checked against; None: nothing."""

    name: str
    classes: frozenset[str] | None
    dims: int | None
    equal_length: bool
    length: int | None


class _Entries:
    """The ``@keyword value`` lines of a header, by keyword in lower case."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._entries: dict[str, tuple[int, str]] = {}

    def add(self, line: int, text: str) -> None:
        """Take one line of the header."""
        keyword, *rest = text.split(maxsplit=1)
        key = keyword.lower()
        if not key.startswith("@"):
            raise ReadError(self.path, f"{quote(text)} stands before @data; only @ keywords and comments may", line)
        if key in self._entries:
            raise ReadError(self.path, f"{keyword} is given twice; remove one", line)
        self._entries[key] = (line, rest[0] if rest else "")

    def line(self, key: str) -> int | None:
        """Return the line of a keyword, None where it is not given."""
        return self._entries[key][0] if key in self._entries else None

    def text(self, key: str) -> str:
        """Return what stands after a keyword."""
        return self._entries.get(key, (0, ""))[1]

    def flag(self, key: str) -> bool | None:
        """Return the first word after a keyword as true or false, None where it is not given."""
        if key not in self._entries:
            return None
        line, text = self._entries[key]
        word = text.split(maxsplit=1)[0].lower() if text else ""
        if word not in ("true", "false"):
            raise ReadError(self.path, f"{key} is {quote(word)}; it must be true or false", line)
        return word == "true"

    def count(self, key: str) -> int | None:
        """Return the whole number after a keyword, None where it is not given."""
        if key not in self._entries:
            return None
        line, text = self._entries[key]
        if not (text.isascii() and text.isdigit() and len(text) < 16 and int(text) > 0):
            raise ReadError(self.path, f"{key} is {quote(text)}; it must be a whole number above 0", line)
        return int(text)


def _read_header(lines: Iterator[tuple[int, str]], path: Path) -> _Header:
    """Read up to and including ``@data``."""
    entries = _Entries(path)
    for line, text in lines:
        if text.lower() == "@data":
            break
        entries.add(line, text)
    else:
        raise ReadError(path, "has no @data line; this is no .ts file of time series, or it is cut short")
    if entries.flag("@timestamps"):
        raise _timestamps(path, entries.line("@timestamps"))
    if entries.flag("@targetlabel"):
        raise ReadError(
            path,
            "@targetLabel gives numbers to predict, not class labels; use a file with @classLabel",
            entries.line("@targetlabel"),
        )
    entries.flag("@missing")  # checked for its form alone: what is missing is seen in the values
    dims = entries.count("@dimensions")
    if entries.flag("@univariate"):
        if dims not in (None, 1):
            raise ReadError(
                path,
                f"@univariate true contradicts @dimensions {dims}; mend one of them",
                entries.line("@univariate"),
            )
        dims = 1
    equal_length = bool(entries.flag("@equallength"))
    return _Header(
        name=entries.text("@problemname").strip() or path.stem,
        classes=_read_classes(entries),
        dims=dims,
        equal_length=equal_length,
        # files of unequal length write anything here: 0, the longest, the mean
        length=entries.count("@serieslength") if equal_length else None,
    )


def _read_classes(entries: _Entries) -> frozenset[str] | None:
    labelled = entries.flag("@classlabel")
    if labelled is None and entries.flag("@targetlabel") is None:
        raise ReadError(
            entries.path,
            "the header does not say whether the series have labels; add '@classLabel false' or "
            "'@classLabel true' with the labels",
        )
    if not labelled:
        return None
    classes = frozenset(entries.text("@classlabel").split()[1:])
    if not classes:
        raise ReadError(
            entries.path,
            "@classLabel true lists no labels; write them after it, separated by blanks",
            entries.line("@classlabel"),
        )
    return classes


def _timestamps(path: Path, line: int | None) -> ReadError:
    return ReadError(
        path,
        "the series carry time stamps, which are not supported; resample them to even steps and write the "
        "values alone, with @timeStamps false",
        line,
    )


def _read_case(text: str, header: _Header, missing: Missing, path: Path, line: int) -> tuple[NDArray[np.float64], str]:
    """Return the values (time, dims) and the label of one data line."""
    if text.startswith("("):
        raise _timestamps(path, line)
    rows = text.split(":")
    label = UNKNOWN
    if header.classes is not None:
        label = rows.pop().strip()
        if not rows:
            raise ReadError(path, "the series has a label only, or none; write values:label", line)
        if label not in header.classes:
            raise ReadError(path, f"label {quote(label)} is not one of those that @classLabel lists; mend either", line)
    values = parse_dimensions(rows, path, line)
    return fill_missing(values, missing, path, line), label


def read_ts(path: str | Path, *, missing: Missing = "error") -> SeriesSet:
    """Read a ``.ts`` file.

    Parameters
    ----------
    path
        The file. Series of unequal length are read as they are.
    missing
        What to do with missing values (``?`` or NaN): ``"error"`` refuses them; ``"interpolate"`` fills
        them linearly, at both ends with the nearest value.

    Returns
    -------
    SeriesSet
        Labels are the text in the file, ``"?"`` with ``@classLabel false``; ids are ``<file stem>/<index>``.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "taps.ts")
    ...     _ = file.write_text("@classLabel true a b\\n@data\\n1,2,3:4,5,6:a\\n1,?:0,0:b\\n")
    ...     data = read_ts(file, missing="interpolate")
    >>> data
    SeriesSet('taps': 2 series, 2 dims, length 2..3, 2 classes)
    >>> data[1].tolist(), str(data.ids[1]), str(data.labels[1])
    ([[1.0, 0.0], [1.0, 0.0]], 'taps/1', 'b')
    """
    check_missing(missing)
    path = Path(path)
    lines = statements(path)
    header = _read_header(lines, path)
    dims, length = header.dims, header.length
    dims_source = "the header declares" if dims is not None else "the first series has"
    length_source = "@seriesLength is" if length is not None else "the first series has"
    series: list[NDArray[np.float64]] = []
    labels: list[str] = []
    for line, text in lines:
        values, label = _read_case(text, header, missing, path, line)
        dims = values.shape[1] if dims is None else dims
        if values.shape[1] != dims:
            raise ReadError(
                path,
                f"the series has {values.shape[1]} dimensions, but {dims_source} {dims}; "
                "mend the file (dimensions are separated by ':')",
                line,
            )
        if header.equal_length:
            length = len(values) if length is None else length
            if len(values) != length:
                raise ReadError(
                    path,
                    f"the series has {len(values)} frames, but {length_source} {length}; mend it, or "
                    "write @equalLength false",
                    line,
                )
        series.append(values)
        labels.append(label)
    if not series:
        raise ReadError(path, "has no series after @data")
    ids = [f"{path.stem}/{i}" for i in range(len(series))]
    return SeriesSet.from_list(series, labels, ids, name=header.name)
