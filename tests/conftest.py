"""What all tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder with the published data sets."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("CKSC_DATA", beside))
    if not folder.is_dir():
        pytest.skip("set CKSC_DATA to the folder with the published data sets")
    return folder
