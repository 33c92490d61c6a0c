"""Anything is killed at any moment, and the same command run again: see `tests.faults.kills`."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tests.faults.kills import STEPS, VICTIMS, Tally, campaign, done_work, plain, planned

CLIENTS = [
    ("ingest", "alone"),
    ("distances", "threads"),
    ("append", "threads"),
    ("train on a copy", "threads"),
    ("predict", "threads"),
    ("report of a model", "alone"),
]
"""Commands that work in one process; `cksc evaluate` is killed in tests/evaluate/test_protocol.py."""


def played(folder: Path, kills: int, seed: int, only: Sequence[tuple[str, str]] = (), **settings: Any) -> Tally:
    with campaign(folder, kills, seed, only, **settings) as tally:
        print(tally.text())
    assert not tally.faults, "\n\n".join(tally.faults)
    assert tally.total >= kills
    return tally


@pytest.mark.slow
def test_killed_commands_go_on_and_leave_the_bytes_of_undisturbed_ones(tmp_path: Path) -> None:
    played(tmp_path, 17, 0, CLIENTS, length=150, of_an_episode=3)  # at least one of each


@pytest.mark.slow
def test_workers_nannies_and_schedulers_are_killed(tmp_path: Path) -> None:
    """The seed begins with a worker and a scheduler; who is quicker than its blow is followed by others."""
    tally = played(
        tmp_path,
        3,
        26,
        [("distances", "separate")],
        length=150,
        of_an_episode=3,
        victims=("worker", "scheduler"),
        seconds=300,
    )
    assert {victim for _, _, victim in tally.kills} >= {"worker", "scheduler"}


@pytest.mark.campaign
def test_two_hundred_kills_of_all_commands(tmp_path: Path) -> None:
    tally = played(tmp_path, 200, 0)
    assert {step for step, _, _ in tally.kills} == {step.name for step in STEPS}
    assert {victim for _, _, victim in tally.kills} == {"client", "worker", "nanny", "scheduler"}


def test_a_seed_decides_who_is_killed_and_when() -> None:
    first, again, other = (list(islice(planned(seed, 5), 60)) for seed in (3, 3, 4))
    assert first == again
    assert first != other
    assert {(episode.step.name, episode.place) for episode in first} == {
        (step.name, place) for step in STEPS for place in step.places
    }
    blows = [blow for episode in first for run in episode.runs for blow in run]
    assert {blow.victim for blow in blows} == {victim for victims in VICTIMS.values() for victim in victims}
    assert {blow.by for blow in blows} == {"time", "operation"}
    for episode in first:
        for run in episode.runs:
            assert not any(blow.ends_the_run for blow in run[:-1])


def made_store(folder: Path) -> Path:
    from cksc_dist.dist.distances import compute_distances
    from cksc_dist.dist.ingest import ingest
    from tests.small_stores import made_series

    ingest(made_series(8), folder / "s.zarr")
    compute_distances(folder / "s.zarr")
    return folder / "s.zarr"


def test_the_comparison_leaves_out_who_computed_a_tile_and_when_but_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one, other = made_store(tmp_path / "a"), made_store(tmp_path / "b")
    (ledger,) = one.glob("ledger/*/tiles.json")
    assert ledger.read_bytes() != (other / ledger.relative_to(one)).read_bytes()
    assert plain(tmp_path / "a") == plain(tmp_path / "b")
    chunk = next(one.glob("distances/*/distance/c/*/*"))
    chunk.write_bytes(chunk.read_bytes()[:-1])
    (one / "empty").mkdir()
    found, expected = plain(tmp_path / "a"), plain(tmp_path / "b")
    assert {name for name in found if found[name] != expected.get(name)} == {
        f"s.zarr/{chunk.relative_to(one)}",
        "s.zarr/empty",
    }


def test_work_that_is_done_twice_is_noticed(tmp_path: Path) -> None:
    store = made_store(tmp_path)
    before = done_work(tmp_path)
    assert any("(0, 0)" in name for name in before)
    shutil.rmtree(store / "ledger")
    made_store(tmp_path)
    now = done_work(tmp_path)
    assert set(now) == set(before)
    assert [name for name in now if now[name] != before[name]] == [name for name in now if "(0, 0)" in name]
