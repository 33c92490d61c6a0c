"""How much memory something takes on its way."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def little_memory(limit: int = 2**22) -> Iterator[None]:
    """Fail where more memory is taken on the way."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < limit
    finally:
        tracemalloc.stop()
