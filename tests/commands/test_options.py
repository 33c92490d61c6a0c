"""Options as they are typed, the settings that come of them, and the words for what cannot be read."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

import pytest

from cksc_dist.commands.options import (
    add_dims_option,
    add_distance_options,
    add_n_jobs,
    add_reader_options,
    add_run_options,
    at_least,
    distance_specs,
    run_spec,
)
from cksc_dist.errors import InputError
from cksc_dist.spec import DistanceSpec, RunSpec


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("store")
    for add in (add_n_jobs, add_reader_options, add_distance_options, add_dims_option, add_run_options):
        add(parser)
    return parser.parse_args(["STORE", *words])


def no_store(store: str) -> int:
    raise AssertionError(f"{store} was opened without need")


def specs(*words: str) -> list[DistanceSpec]:
    return distance_specs(parsed(*words), no_store)


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as stop:
        parsed(*words)
    assert stop.value.code == 2
    return capsys.readouterr().err


def test_nothing_typed_gives_the_defaults_of_the_settings() -> None:
    assert specs() == [DistanceSpec()]
    assert run_spec(parsed()) == RunSpec()
    assert parsed().n_jobs == -1
    assert parsed().reader_options == []


@pytest.mark.parametrize(
    ("words", "changed"),
    [
        (("--metric", "chi2"), {"metric": "chi2"}),
        (("--mode", "independent"), {"mode": "independent"}),
        (("--window", "10"), {"window": 10}),
        (("--window", "0.1"), {"window": 0.1}),
        (("--window", "1"), {"window": 1}),
        (("--window", "1.0"), {"window": 1.0}),
        (("--cost", "abs"), {"cost": "abs"}),
        (("--normalise", "z"), {"normalise": "z"}),
        (("--per-length",), {"per_length": True}),
        (("--engine", "dtaidistance"), {"engine": "dtaidistance"}),
        (("--dtype", "float32"), {"dtype": "float32"}),
        (("--dims", "0,2"), {"dims": (0, 2)}),
        (("--dims", "3-5"), {"dims": (3, 4, 5)}),
        (("--dims", "0,3-5,9"), {"dims": (0, 3, 4, 5, 9)}),
    ],
)
def test_each_option_changes_its_setting_alone(words: tuple[str, ...], changed: dict[str, Any]) -> None:
    (found,) = specs(*words)
    assert found == replace(DistanceSpec(), **changed)
    # 1 frame and the fraction 1.0 are equal to Python, but not the same band
    assert [type(getattr(found, name)) for name in changed] == [type(value) for value in changed.values()]


@pytest.mark.parametrize(
    ("words", "changed"),
    [
        (("--scheduler", "tcp://a:8786"), {"scheduler": "tcp://a:8786"}),
        (("--executor", "serial"), {"executor": "serial"}),
        (("--workers", "3"), {"workers": 3}),
        (("--memory", "2GiB"), {"memory": 2**31}),
        (("--trust",), {"trust": True}),
    ],
)
def test_how_to_run(words: tuple[str, ...], changed: dict[str, Any]) -> None:
    assert run_spec(parsed(*words)) == replace(RunSpec(), **changed)


def test_several_groups_of_dimensions_make_several_matrices() -> None:
    found = specs("--window", "5", "--dims", "0", "1,2")
    assert found == [DistanceSpec(window=5, dims=(0,)), DistanceSpec(window=5, dims=(1, 2))]


def test_each_makes_one_matrix_for_every_dimension_of_the_store() -> None:
    asked = []

    def count_dims(store: str) -> int:
        asked.append(store)
        return 3

    found = distance_specs(parsed("--dims", "each", "0-2"), count_dims)
    assert [spec.dims for spec in found] == [(0,), (1,), (2,), (0, 1, 2)]
    assert asked == ["STORE"]


@pytest.mark.parametrize("text", ["", "a", "0,", ",1", "1-", "-1", "1-2-3", "0.5", "all", "0;2"])
def test_what_is_no_group_of_dimensions(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = refused(capsys, f"--dims={text}")
    assert f"{text!r} is no group of dimensions, as 0,2 or 3-5, nor 'each'" in words


@pytest.mark.parametrize("text", ["5-3", "2,0", "1,1", "0-2,1"])
def test_dimensions_out_of_order_are_refused_by_the_settings(text: str) -> None:
    with pytest.raises(InputError, match="give at least one dimension, ascending, each once"):
        specs("--dims", text)


@pytest.mark.parametrize("text", ["ten", "10%", "1_0x", "²"])
def test_what_is_no_window(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert f"{text!r} is neither frames (10) nor a fraction (0.1)" in refused(capsys, "--window", text)


@pytest.mark.parametrize("text", ["0", "1.5", "-3", "nan", "inf", "10.0"])
def test_a_window_out_of_range_is_refused_by_the_settings(text: str) -> None:
    with pytest.raises(InputError, match=r"^window.*must be"):
        specs(f"--window={text}")


@pytest.mark.parametrize(("text", "frames"), [(" 3", 3), ("1_0", 10), ("+7 ", 7), ("\u0663", 3)])
def test_a_whole_number_however_written_is_frames(text: str, frames: int) -> None:
    assert specs("--window", text) == [DistanceSpec(window=frames)]


def test_frames_below_zero_are_not_taken_for_a_fraction() -> None:
    with pytest.raises(InputError, match=r"^window=-1: must be a whole number"):
        specs("--window=-1")


def test_memory_that_cannot_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert "'lots' is no amount of memory, as 2GiB or 800MB" in refused(capsys, "--memory", "lots")


@pytest.mark.parametrize("text", ["0", "-2", "1.5", "two", ""])
def test_workers_that_cannot_be_read(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert f"{text!r} is not a whole number of at least 1" in refused(capsys, f"--workers={text}")


def test_at_least_reads_from_its_limit_on() -> None:
    read = at_least(0)
    assert [read("0"), read("12")] == [0, 12]
    with pytest.raises(argparse.ArgumentTypeError, match="'-1' is not a whole number of at least 0"):
        read("-1")


def test_a_choice_that_is_not_offered_is_told_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    words = refused(capsys, "--metric", "external")
    assert "dtw" in words
    assert "chi2" in words
    assert "euclidean" in words


def test_reader_options_may_be_given_several_times(capsys: pytest.CaptureFixture[str]) -> None:
    found = parsed("--option", "missing=interpolate", "--option", "centre=none", "--option", "a=b=c", "--option", "d=")
    assert dict(found.reader_options) == {"missing": "interpolate", "centre": None, "a": "b=c", "d": ""}
    for text in ("missing", "=x"):
        assert f"{text!r} is not NAME=VALUE, as in missing=interpolate" in refused(capsys, "--option", text)
