"""Memory of the machine and of containers, in both layouts that control groups have."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from cksc_dist import machine

GIB = 2**30
NO_LIMIT = "9223372036854771712\n"
"""What version 1 says."""


@pytest.fixture(autouse=True)
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of 16 GiB, 10 of them free, without any group yet."""
    monkeypatch.setattr(machine, "GROUPS", tmp_path / "groups")
    monkeypatch.setattr(machine, "OWN", tmp_path / "own")
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(total=16 * GIB, available=10 * GIB))
    return tmp_path


def group(made: Path, layout: str, path: str, limit: str, used: int = 0, cache: int = 0) -> None:
    """Make a group as the system shows it."""
    first = layout == "1"
    folder = made / "groups" / ("memory" if first else "") / path
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ("memory.limit_in_bytes" if first else "memory.max")).write_text(f"{limit}\n")
    (folder / ("memory.usage_in_bytes" if first else "memory.current")).write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"rss 7\n{'total_' if first else ''}inactive_file {cache}\n")


def belong(made: Path, layout: str, path: str) -> None:
    """Put this process into a group."""
    lines = {"1": f"7:cpu,cpuacct:/elsewhere\n4:memory:/{path}\n0::/\n", "2": f"0::/{path}\n"}
    (made / "own").write_text(lines[layout])


def test_without_groups_there_is_the_machine() -> None:
    assert (machine.memory(), machine.free_memory()) == (16 * GIB, 10 * GIB)


@pytest.mark.parametrize("layout", ["1", "2"])
class TestGroups:
    """The same in both versions."""

    def test_the_limit_of_the_own_group(self, made: Path, layout: str) -> None:
        group(made, layout, "job/step", str(2 * GIB), used=GIB)
        belong(made, layout, "job/step")
        assert (machine.memory(), machine.free_memory()) == (2 * GIB, GIB)

    def test_whom_it_is_shared_with(self, made: Path, layout: str) -> None:
        group(made, layout, "job/step", str(2 * GIB))
        group(made, layout, "job", str(3 * GIB))
        belong(made, layout, "job/step")
        found = machine.memories()
        assert sorted(found.values()) == [2 * GIB, 3 * GIB, 16 * GIB]
        assert found["machine"] == 16 * GIB
        belong(made, layout, "job/other")
        assert set(machine.memories()) < set(found)  # with whoever is in that job, and with the machine

    def test_the_limit_of_a_group_above(self, made: Path, layout: str) -> None:
        group(made, layout, "job", str(2 * GIB), used=GIB)
        group(made, layout, "job/step", NO_LIMIT if layout == "1" else "max", used=GIB)
        belong(made, layout, "job/step")
        assert (machine.memory(), machine.free_memory()) == (2 * GIB, GIB)

    def test_a_group_of_others_is_none_of_ours(self, made: Path, layout: str) -> None:
        group(made, layout, "other", str(GIB))
        group(made, layout, "job", str(4 * GIB))
        belong(made, layout, "job")
        assert machine.memory() == 4 * GIB

    def test_a_container_that_sees_its_own_group_at_the_top(self, made: Path, layout: str) -> None:
        group(made, layout, "", str(3 * GIB), used=GIB)
        belong(made, layout, "docker/0123456789ab")
        assert (machine.memory(), machine.free_memory()) == (3 * GIB, 2 * GIB)

    def test_files_kept_in_memory_are_free(self, made: Path, layout: str) -> None:
        group(made, layout, "job", str(2 * GIB), used=2 * GIB, cache=GIB)
        belong(made, layout, "job")
        assert machine.free_memory() == GIB

    def test_a_limit_above_the_machine_is_none(self, made: Path, layout: str) -> None:
        group(made, layout, "job", str(64 * GIB))
        belong(made, layout, "job")
        assert (machine.memory(), machine.free_memory()) == (16 * GIB, 10 * GIB)

    def test_more_used_than_allowed_is_nothing_free(self, made: Path, layout: str) -> None:
        group(made, layout, "job", str(GIB), used=2 * GIB)
        belong(made, layout, "job")
        assert machine.free_memory() == 0

    def test_what_cannot_be_read_is_left_out(self, made: Path, layout: str) -> None:
        group(made, layout, "job", "much")
        belong(made, layout, "job")
        assert machine.memory() == 16 * GIB

    def test_a_limit_holds_whatever_else_cannot_be_read(self, made: Path, layout: str) -> None:
        group(made, layout, "job", str(2 * GIB), used=GIB)
        belong(made, layout, "job")
        folder = made / "groups" / ("memory" if layout == "1" else "") / "job"
        stat, used = folder / "memory.stat", folder / ("memory.usage_in_bytes" if layout == "1" else "memory.current")
        stat.write_text("rss 7\n")
        assert (machine.memory(), machine.free_memory()) == (2 * GIB, GIB)
        stat.write_text("one two three\nfour\n")
        assert (machine.memory(), machine.free_memory()) == (2 * GIB, GIB)
        stat.unlink()
        assert (machine.memory(), machine.free_memory()) == (2 * GIB, GIB)
        used.unlink()
        assert (machine.memory(), machine.free_memory()) == (2 * GIB, 2 * GIB)
