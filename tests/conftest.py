"""What all tests share."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import settings

# how long an example takes is no property: machines are busy
settings.register_profile("any speed", deadline=None)
settings.load_profile("any speed")

if hasattr(signal, "SIGHUP"):
    # under nohup, whatever is started from here would not hear it either
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder with the published data sets."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("CKSC_DATA", beside))
    if not folder.is_dir():
        pytest.skip("set CKSC_DATA to the folder with the published data sets")
    return folder
