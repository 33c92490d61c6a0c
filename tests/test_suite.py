"""All tests that there are belong to the suite: pytest passes over folders of some names without a word."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def test_no_folder_with_tests_or_doctests_is_passed_over(pytestconfig: pytest.Config) -> None:
    patterns = pytestconfig.getini("norecursedirs")
    top = [ROOT / name for name in pytestconfig.getini("testpaths")]
    files = [path for folder in top for path in folder.rglob("*.py")]
    assert len(files) > 200
    passed_over = {
        path.relative_to(ROOT).parent
        for path in files
        if any(fnmatch(part, pattern) for part in path.relative_to(ROOT).parent.parts for pattern in patterns)
    }
    assert not passed_over
