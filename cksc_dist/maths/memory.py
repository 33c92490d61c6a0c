"""Memory that large reads go to quickly.

Fresh memory of some megabytes is mapped page by page, which often takes longer than what is done with it; and a file is
copied six times as fast to where a page begins as to anywhere else (measured on virtual machines).
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Scratch", "page_aligned"]

PAGE = 4096


def page_aligned(size: int) -> NDArray[np.uint8]:
    """Return so many bytes with whatever is in them, from where a page begins.

    Examples
    --------
    >>> page_aligned(10).ctypes.data % 4096, len(page_aligned(10))
    (0, 10)
    """
    whole = np.empty(size + PAGE, np.uint8)
    skip = -whole.ctypes.data % PAGE
    return whole[skip : skip + size]


class Scratch(threading.local):
    """An array of each thread that is used again and again.

    Examples
    --------
    >>> scratch = Scratch()
    >>> scratch.array((2, 3), np.dtype(np.float32)).shape, scratch.array((4,), np.dtype(np.int64)).shape
    ((2, 3), (4,))
    """

    _memory: NDArray[np.uint8] | None = None

    def array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return an array with whatever is in it; it is another one's as soon as this thread asks again."""
        size = int(np.prod(shape)) * dtype.itemsize
        if self._memory is None or len(self._memory) < size:
            self._memory = page_aligned(size)
        array: NDArray[Any] = self._memory[:size].view(dtype).reshape(shape)
        return array
