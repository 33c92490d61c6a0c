"""Checkpoints: the last one is whole whatever happens, and a checkpoint serves its own training alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from cksc_dist.errors import StoreError
from cksc_dist.store.checkpoints import KEPT, Checkpoints
from cksc_dist.store.folder import Folder
from tests.store.stored import flip, killed_at

HERE, ELSEWHERE = "these settings", "other settings"


def arrays_of(number: int) -> dict[str, NDArray[Any]]:
    rng = np.random.default_rng(number)
    return {
        "KU": rng.standard_normal((3, 7)),
        "codes_indices": rng.integers(-1, 5, (7, 2)),
        "empty": np.empty((0, 3)),
        "single": np.array([np.pi * number], dtype=np.float32),
    }


def save(checkpoints: Checkpoints, number: int) -> None:
    checkpoints.save(number, arrays_of(number), {"n_iter": number, "beta": 0.1 * number, "settled": number > 2})


def check_latest(checkpoints: Checkpoints, number: int) -> None:
    found = checkpoints.latest()
    assert found is not None
    assert found[0] == number
    assert found[2] == {"n_iter": number, "beta": 0.1 * number, "settled": number > 2}
    for name, expected in arrays_of(number).items():
        assert found[1][name].dtype == expected.dtype
        assert np.array_equal(found[1][name], expected)
    assert set(found[1]) == set(arrays_of(number))


def saved_files(folder: Folder) -> list[str]:
    return [name for name in folder.files("") if name.endswith(".npz")]


def test_there_is_none_at_first(folder: Folder) -> None:
    assert Checkpoints(folder, HERE).latest() is None
    Checkpoints(folder, HERE).clear()


def test_the_last_one_is_given_to_the_bit(folder: Folder) -> None:
    checkpoints = Checkpoints(folder, HERE)
    for number in (1, 2, 3):
        save(checkpoints, number)
        check_latest(Checkpoints(Folder(folder.url), HERE), number)


def test_only_the_last_few_are_kept(folder: Folder) -> None:
    checkpoints = Checkpoints(folder, HERE)
    for number in range(1, 8):
        save(checkpoints, number)
        assert len(saved_files(folder)) == min(number, KEPT)
    check_latest(checkpoints, 7)


def test_another_training_is_not_looked_at(folder: Folder) -> None:
    save(Checkpoints(folder, HERE), 4)
    assert Checkpoints(folder, ELSEWHERE).latest() is None
    check_latest(Checkpoints(folder, HERE), 4)
    save(Checkpoints(folder, ELSEWHERE), 1)
    assert Checkpoints(folder, HERE).latest() is None
    check_latest(Checkpoints(folder, ELSEWHERE), 1)
    assert len(saved_files(folder)) == 1  # those of a training that has ended are in nobody's way


@pytest.mark.parametrize("name", ["write", "write_json"])
def test_a_kill_before_a_checkpoint_is_published_leaves_the_older_one(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    checkpoints = Checkpoints(folder, HERE)
    save(checkpoints, 1)
    save(checkpoints, 2)
    with killed_at(monkeypatch, Folder, name):
        save(checkpoints, 3)
    check_latest(checkpoints, 2)
    save(checkpoints, 3)
    check_latest(checkpoints, 3)


def test_a_kill_after_it_is_published_leaves_the_new_one(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints = Checkpoints(folder, HERE)
    for number in (1, 2):
        save(checkpoints, number)
    with killed_at(monkeypatch, Folder, "remove"):
        save(checkpoints, 3)
    check_latest(checkpoints, 3)
    save(checkpoints, 4)
    assert len(saved_files(folder)) == KEPT  # what was left is removed with the next one


def test_another_training_that_is_killed_does_no_harm_to_this_one(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(Checkpoints(folder, HERE), 1)
    with killed_at(monkeypatch, Folder, "write_json"):
        Checkpoints(folder, ELSEWHERE).save(1, arrays_of(99), {})
    check_latest(Checkpoints(folder, HERE), 1)


def test_damage_is_said(folder: Folder) -> None:
    checkpoints = Checkpoints(folder, HERE)
    save(checkpoints, 1)
    save(checkpoints, 2)
    for name in saved_files(folder):
        flip(folder, name, 4321)
    with pytest.raises(StoreError, match=r"checkpoint 2 in .* and so are those before it; begin again with --from-s"):
        checkpoints.latest()
    for name in saved_files(folder):
        folder.remove(name)
    with pytest.raises(StoreError, match=r"checkpoint 2 in .* is damaged or lost"):
        checkpoints.latest()
    flip(folder, "latest.json", 100)
    with pytest.raises(StoreError, match=r"latest\.json is damaged"):
        checkpoints.latest()
    checkpoints.clear()
    assert checkpoints.latest() is None


def test_where_the_latest_is_damaged_the_one_before_serves(folder: Folder) -> None:
    checkpoints = Checkpoints(folder, HERE)
    for number in (1, 2, 3):
        save(checkpoints, number)
    (name,) = [name for name in saved_files(folder) if "000003" in name]
    flip(folder, name, 4321)
    check_latest(checkpoints, 2)


def test_cleared_nothing_is_left(folder: Folder) -> None:
    checkpoints = Checkpoints(folder, HERE)
    for number in (1, 2, 3):
        save(checkpoints, number)
    folder.write("lock.json", b"somebody's")
    checkpoints.clear()
    assert list(folder.files("")) == ["lock.json"]
    assert checkpoints.latest() is None


def test_a_kill_while_they_are_cleared_leaves_none_to_go_on_from(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = Checkpoints(folder, HERE)
    save(checkpoints, 1)
    with killed_at(monkeypatch, Checkpoints, "_saved"):
        checkpoints.clear()
    assert checkpoints.latest() is None


def test_files_of_others_are_left_alone(folder: Folder) -> None:
    folder.write("checkpoint-notes.npz", b"mine")
    folder.write("notes.txt", b"mine")
    checkpoints = Checkpoints(folder, HERE)
    save(checkpoints, 1)
    checkpoints.clear()
    assert set(folder.files("")) == {"checkpoint-notes.npz", "notes.txt"}
