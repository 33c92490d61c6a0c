"""Numbers as people read and type them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cksc_dist.commands.amounts import in_bytes, in_time, in_units, parse_bytes

LETTERS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 "),
        (7, "7 "),
        (999, "999 "),
        (1000, "1 k"),
        (999_499, "999 k"),
        (999_500, "1 M"),
        (1_234_567, "1.23 M"),
        (8 * 10**9, "8 G"),
        (2.5e12, "2.5 T"),
        (3e15, "3 P"),
        (4e18, "4 E"),
    ],
)
def test_large_counts(count: float, text: str) -> None:
    assert in_units(count) == text


@given(st.integers(1, 10**20))
def test_a_count_is_told_to_three_digits(count: int) -> None:
    number, letter = in_units(count).split(" ")
    assert float(number) * LETTERS[letter] == pytest.approx(count, rel=0.0051)
    assert len(re.sub(r"\D", "", number)) <= 3 or letter == "E"


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 bytes"), (288, "288 bytes"), (999, "999 bytes"), (1000, "1 kB"), (3_600_000_000, "3.6 GB")],
)
def test_bytes(count: float, text: str) -> None:
    assert in_bytes(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.25, "0.25 s"),
        (0.0021, "0.0021 s"),
        (9.4, "9.4 s"),
        (42.4, "42 s"),
        (59.4, "59 s"),
        (59.6, "1 min 0 s"),
        (75, "1 min 15 s"),
        (3599, "59 min 59 s"),
        (3599.7, "1 h 0 min"),
        (7300, "2 h 1 min"),
        (47 * 3600 + 59 * 60, "47 h 59 min"),
        (48 * 3600, "2 days 0 h"),
        (100 * 3600, "4 days 4 h"),
    ],
)
def test_times(seconds: float, text: str) -> None:
    assert in_time(seconds) == text


@given(st.floats(0, 40 * 86400))
def test_a_time_is_told_to_a_60th(seconds: float) -> None:
    spans = {"s": 1.0, "min": 60.0, "h": 3600.0, "days": 86400.0}
    words = in_time(seconds).split()
    told = sum(float(number) * spans[unit] for number, unit in zip(words[::2], words[1::2], strict=True))
    assert told == pytest.approx(seconds, rel=0.051 if seconds < 10 else 1 / 24, abs=1e-300)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("1", 1),
        ("1GiB", 2**30),
        ("1 gib", 2**30),
        ("1.5GiB", 3 * 2**29),
        ("800MB", 800_000_000),
        ("800 m", 800_000_000),
        (" 2k ", 2000),
        ("2KiB", 2048),
        ("3TB", 3 * 10**12),
        ("1TiB", 2**40),
        ("4096b", 4096),
    ],
)
def test_memory_as_typed(text: str, count: int) -> None:
    assert parse_bytes(text) == count


@pytest.mark.parametrize(
    "text", ["", "GB", "-1GB", "0", "0 GiB", "0.4", "1e9", "nan", "1 GB RAM", "1,5GB", "2 PB", "1i"]
)
def test_what_is_no_amount_of_memory(text: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(repr(text))} is no amount of memory, as 2GiB or 800MB$"):
        parse_bytes(text)


@given(st.integers(1, 2**50))
def test_a_plain_number_is_bytes(count: int) -> None:
    assert parse_bytes(str(count)) == count
