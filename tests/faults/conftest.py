"""What the fault campaign shares."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.full_store import make_store


@pytest.fixture(scope="session")
def full_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that holds one of everything, not to be changed."""
    path = tmp_path_factory.mktemp("full") / "store"
    make_store(path)
    return path
