"""Every reader on spoilt files: some hundreds by default, a million with ``pytest -m campaign``."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest

from cksc_dist.errors import InputError
from tests.faults.fuzz import Tally, run
from tests.faults.fuzz_guard import Guard
from tests.faults.fuzz_targets import TARGETS
from tests.faults.mutators import spoil, spoil_json


def failures(tallies: list[Tally]) -> str:
    return "\n\n".join(f"{key}\n{text}" for tally in tallies for key, text in tally.failures.items())


def test_spoilt_input_is_taken_or_refused_by_a_named_error() -> None:
    tallies = run(400, seed=1)
    assert not any(tally.failed for tally in tallies), failures(tallies)
    assert [tally.target for tally in tallies] == list(TARGETS)
    assert sum(tally.executions for tally in tallies) >= 390
    # not all of it is noise: some is taken, some is refused
    assert min(sum(tally.accepted for tally in tallies), sum(tally.refused for tally in tallies)) > 60


def test_slow_readers_get_their_share() -> None:
    shares = {name: target.share for name, target in TARGETS.items()}
    assert sum(shares.values()) == 1000
    assert min(share for name, share in shares.items() if name not in ("texts", "video-names", "evaluated")) >= 20


@pytest.mark.campaign
def test_a_million_spoilt_inputs() -> None:
    tallies = run(1_000_000, seed=0)
    assert not any(tally.failed for tally in tallies), failures(tallies)


def test_faults_come_from_the_seed_alone() -> None:
    for seed in range(50):
        one, two = (spoil(Random(seed), b"1,2,3:a\n4,5,6:b\n") for _ in range(2))
        assert one == two
    values = [repr(spoil_json(Random(seed), {"n": 3, "ids": ["a", "b"]})) for seed in range(50)]
    assert values == [repr(spoil_json(Random(seed), {"n": 3, "ids": ["a", "b"]})) for seed in range(50)]
    assert len(set(values)) > 25


@pytest.fixture(scope="module")
def guard() -> Guard:
    return Guard()


def test_the_guard_hears_what_must_not_be(guard: Guard, tmp_path: Path) -> None:
    box = tmp_path / "box"
    box.mkdir()
    guard.begin(box)

    def refuse() -> bool:
        raise InputError("the file is none")

    def fail() -> bool:
        raise KeyError("n")

    def write_beside() -> bool:
        (tmp_path / "beside").write_text("x")
        return True

    def write_above() -> bool:
        (box / ".." / "above").mkdir()
        return True

    def overflow() -> bool:
        return bool(np.array([1e300]) ** 2 > 0)

    def write_inside() -> bool:
        (box / "inside").write_text("x")
        return True

    def take_much() -> bool:
        return bool(np.ones(2**25).sum())

    assert guard.run(refuse) == ("refused", None)
    assert guard.run(write_inside) == ("accepted", None)
    for execute, words in (
        (fail, "KeyError: 'n'"),
        (write_beside, "outside of its place: open"),
        (write_above, "outside of its place: os.mkdir"),
        (overflow, "warns: RuntimeWarning: overflow"),
        (take_much, "memory grew by"),
    ):
        outcome, wrong = guard.run(execute)
        assert outcome == "failed"
        assert words in str(wrong)


def test_a_target_that_fails_or_ends_its_process_is_told() -> None:
    (tally,) = run(12, targets=["broken"], jobs=1)
    # the fifth fails; the ninth ends the process; another process goes on with the last three
    assert (tally.executions, tally.failed) == (12, 2)
    told = failures([tally])
    assert "died with -6, 8" in told
    assert "--target broken --seed 0 --only 8" in told
