"""The ``.arff`` form of the UEA and UCR archives.

Multivariate: one relational attribute, in the data a quoted string that holds one row for each dimension,
separated by a written-out backslash and ``n``. Univariate: one numeric attribute for each frame. The last
attribute is the class. Shorter series are padded with missing values at the end; here they are cut.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cksc_dist.errors import ReadError
from cksc_dist.io.text import Missing, check_missing, fill_missing, parse_dimensions, quote, statements
from cksc_dist.series import SeriesSet

__all__ = ["read_arff"]

_ATTRIBUTE = re.compile(r"""(?:'[^']*'|"[^"]*"|[^\s{'"]+)\s*(.*)""")
_CLASS_NAME = re.compile(r"""'[^']*'|"[^"]*"|[^,'"\s][^,'"]*""")
_LABEL_AT_END = re.compile(r""",\s*+('[^']*'|"[^"]*"|[^,]*)$""")
_NUMERIC = ("numeric", "real", "integer")
_FORMS = "one relational attribute and a class {a,b,...}, or numeric attributes and a class {a,b,...} as the last"


@dataclass(frozen=True)
class _Header:
    name: str
    relational: bool
    frames: int
    classes: frozenset[str]


def _unquote(text: str) -> str:
    text = text.strip()
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text


def _read_header(lines: Iterator[tuple[int, str]], path: Path) -> _Header:
    """Read up to and including ``@data``."""
    name = ""
    kinds: list[str] = []  # of the attributes of the file
    inner: list[str] = []  # of those inside the relational attribute
    inside = False
    for line, text in lines:
        keyword, *rest = text.split(maxsplit=1)
        key, value = keyword.lower(), rest[0] if rest else ""
        if key == "@data":
            break
        if key == "@relation":
            name = _unquote(value)
        elif key == "@end":
            inside = False
        elif key == "@attribute":
            match = _ATTRIBUTE.fullmatch(value)
            if match is None or not match[1]:
                raise ReadError(path, "the attribute has no type; write @attribute name type", line)
            kind = match[1].strip()
            kind = kind if kind.startswith("{") else kind.lower()
            if kind.startswith("{") and not kind.endswith("}"):
                raise ReadError(path, "the list of classes does not end with '}'; write it on one line", line)
            if not kind.startswith("{") and kind not in _NUMERIC and (inside or kind != "relational"):
                raise ReadError(
                    path,
                    f"attributes of type {quote(kind)} are not supported here; a file has {_FORMS}",
                    line,
                )
            (inner if inside else kinds).append(kind)
            inside = inside or kind == "relational"
        else:
            raise ReadError(path, f"{quote(text)} stands before @data and is no @ keyword of ARFF", line)
    else:
        raise ReadError(path, "has no @data line; this is no .arff file, or it is cut short")
    if inside:
        raise ReadError(path, "the relational attribute is not closed; write @end before @data")
    return _check_attributes(name, kinds, inner, path)


def _check_attributes(name: str, kinds: list[str], inner: list[str], path: Path) -> _Header:
    *values, last = kinds or [""]
    relational = values == ["relational"]
    frames = inner if relational else values
    if not last.startswith("{") or not frames or any(kind not in _NUMERIC for kind in frames):
        raise ReadError(path, f"the attributes are in no form that can be read; a file has {_FORMS}")
    classes = frozenset(_unquote(item) for item in _CLASS_NAME.findall(last[1:-1]))
    return _Header(name or path.stem, relational, len(frames), classes)


def _split_case(text: str, header: _Header, path: Path, line: int) -> tuple[list[str], str]:
    """Return one row of text for each dimension, and the label."""
    if not header.relational:
        match = _LABEL_AT_END.search(text)
        if match is None:
            raise ReadError(path, "the series has a label only, or none; write values,label", line)
        return [text[: match.start()]], _unquote(match[1])
    end = text.find(text[0], 1)
    if text[0] not in "'\"" or end < 0:
        raise ReadError(path, "the values are not quoted; write 'row\\nrow',label with a row a dimension", line)
    nothing, comma, label = text[end + 1 :].partition(",")
    if nothing.strip() or not comma:
        raise ReadError(path, "there is no comma and label after the quoted values", line)
    return text[1:end].removesuffix("\\n").split("\\n"), _unquote(label)


def _cut_padding(values: NDArray[np.float64], path: Path, line: int) -> NDArray[np.float64]:
    """Return the frames up to the last in which any dimension has a value."""
    present = np.flatnonzero(~np.isnan(values).all(axis=1))
    if not len(present):
        raise ReadError(path, "the series has no value at all; remove it", line)
    return values[: present[-1] + 1]


def read_arff(path: str | Path, *, missing: Missing = "error") -> SeriesSet:
    r"""Read an ``.arff`` file of time series.

    Parameters
    ----------
    path
        The file. Frames at the end that are missing in all dimensions are padding and are cut.
    missing
        What to do with other missing values (``?`` or NaN): ``"error"`` refuses them; ``"interpolate"``
        fills them linearly, at both ends with the nearest value.

    Returns
    -------
    SeriesSet
        Labels are the text in the file, ``"?"`` where the class is missing; ids are ``<file stem>/<index>``.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> text = r'''@relation taps
    ... @attribute taps relational
    ...   @attribute t0 numeric
    ...   @attribute t1 numeric
    ... @end taps
    ... @attribute class {a, b}
    ... @data
    ... '1,2\n3,4',a
    ... '5,?\n6,?',b
    ... '''
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder, "taps.arff")
    ...     _ = file.write_text(text)
    ...     data = read_arff(file)
    >>> data[0].tolist(), data[1].tolist(), data.labels.tolist()
    ([[1.0, 3.0], [2.0, 4.0]], [[5.0, 6.0]], ['a', 'b'])
    """
    check_missing(missing)
    path = Path(path)
    lines = statements(path)
    header = _read_header(lines, path)
    series: list[NDArray[np.float64]] = []
    labels: list[str] = []
    for line, text in lines:
        rows, label = _split_case(text, header, path, line)
        if label != "?" and label not in header.classes:
            raise ReadError(path, f"label {quote(label)} is not one of those in the header; mend either", line)
        values = parse_dimensions(rows, path, line)
        if len(values) != header.frames:
            raise ReadError(
                path,
                f"the series has {len(values)} values a dimension, but the header has {header.frames} "
                "attributes; pad shorter series with ? at the end",
                line,
            )
        if series and values.shape[1] != series[0].shape[1]:
            raise ReadError(
                path,
                f"the series has {values.shape[1]} dimensions, but the first has {series[0].shape[1]}; "
                "mend the file (dimensions are separated by \\n)",
                line,
            )
        series.append(fill_missing(_cut_padding(values, path, line), missing, path, line))
        labels.append(label)
    if not series:
        raise ReadError(path, "has no series after @data")
    ids = [f"{path.stem}/{i}" for i in range(len(series))]
    return SeriesSet.from_list(series, labels, ids, name=header.name)
