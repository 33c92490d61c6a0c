"""Numbers as people read them: bytes, times, large counts; and bytes as people type them."""

from __future__ import annotations

import re

__all__ = ["in_bytes", "in_time", "in_units", "parse_bytes"]

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


def in_bytes(count: float) -> str:
    """Return a number of bytes with its unit.

    Examples
    --------
    >>> in_bytes(288), in_bytes(3_600_000_000)
    ('288 bytes', '3.6 GB')
    """
    return f"{count:.0f} bytes" if count < 1000 else f"{in_units(count)}B"


def in_units(count: float) -> str:
    """Return a large number with a letter for thousands, millions and so on.

    Examples
    --------
    >>> in_units(950), in_units(1_234_567)
    ('950 ', '1.23 M')
    """
    size = float(count)
    for unit in ("", "k", "M", "G", "T", "P", "E"):
        if size < 999.5 or unit == "E":
            break
        size /= 1000
    return f"{size:.3g} {unit}"


def in_time(seconds: float) -> str:
    """Return a time span in the two units that matter.

    Examples
    --------
    >>> in_time(0.25), in_time(75), in_time(7300)
    ('0.25 s', '1 min 15 s', '2 h 1 min')
    """
    if seconds < 59.5:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} days {hours % 24} h"


def parse_bytes(text: str) -> int:
    """Return the number of bytes that a person typed.

    Examples
    --------
    >>> parse_bytes("1GiB"), parse_bytes("800 MB")
    (1073741824, 800000000)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]i?)?b?\s*", text.lower())
    # no machine has more digits, and a float no room for them
    count = int(float(match[1]) * _UNITS[match[2] or ""]) if match and len(match[1]) < 100 else 0
    if not count:
        raise ValueError(f"{text[:50]!r} is no amount of memory, as 2GiB or 800MB")
    return count
