"""Where the vectors of compiled code wait: a matter of speed that no value shows."""

import os
import platform
import re
import subprocess
import sys

import pytest

CODE = """
import numpy as np
from cksc_dist import pairwise_dtw
from cksc_dist.maths import dtw_simd
pairwise_dtw(list(np.random.default_rng(0).standard_normal((20, 8, {dims}))))
print(*dtw_simd._compute.inspect_asm().values())
"""


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="reads x86 instructions")
@pytest.mark.parametrize("dims", [1, 9])
def test_vectors_on_the_stack_do_not_lie_across_lines_of_the_cache(dims, tmp_path):
    """Otherwise the speed of a thread depends on where its stack happens to be, by a half."""
    # with a cache of its own: code that is loaded from one brings no text
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", CODE.format(dims=dims)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert re.search(r"andq?\s+\$-64, %rsp", done.stdout)
