"""How long does the first call take in a fresh process, with an empty cache of compiled code, and with a warm one?

Wanted: under 3 s with an empty cache, under 1.5 s with a warm one, imports included.

    python benchmarks/start.py
"""

import os
import subprocess
import sys
import tempfile
import time

CODE = """
import numpy as np
from cksc_dist import pairwise_dtw
rng = np.random.default_rng(0)
pairwise_dtw([rng.standard_normal((20, {dims})) for _ in range(5)], window={window})
"""


def seconds(code, cache):
    """Return how long a fresh process takes to run the code with this folder of compiled code."""
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | {"NUMBA_CACHE_DIR": cache})
    return time.perf_counter() - begin


def main():
    print("dims  window   empty cache s   warm cache s      (best of three)")
    for dims, window in ((1, None), (3, None), (9, None), (1, 0.1), (9, 0.1)):
        code = CODE.format(dims=dims, window=window)
        empty, warm = [], []
        for _ in range(3):
            with tempfile.TemporaryDirectory() as cache:
                empty.append(seconds(code, cache))
                warm.append(seconds(code, cache))
        print(f"{dims:4d}  {window!s:6s} {min(empty):12.2f} {min(warm):14.2f}", flush=True)


if __name__ == "__main__":
    main()
