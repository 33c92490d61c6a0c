"""Which engine is the quicker one where? Small and odd shapes, one thread, best of several, interleaved.

``auto`` stands for `simd`: this shows where that loses, and how little is lost there.

    python benchmarks/dtw_engines.py
"""

import time

import numpy as np

from cksc_dist import pairwise_dtw

# (rows, columns or None for a set with itself), length, dims
SHAPES = [
    ((1, 1), 10, 1),
    ((1, 1), 1000, 1),
    ((1, 1), 5000, 3),
    ((1, 1), 100, 60),
    ((1, 1), 50, 2500),
    ((5, None), 20, 3),
    ((20, None), 50, 3),
    ((1, 100), 100, 9),
    ((3, 3), 300, 486),
    ((50, None), 50, 2500),
    ((100, None), 1, 20),
    ((1000, None), 2, 1),
]


def best(function, seconds=1.0):
    times = []
    stop = time.perf_counter() + seconds
    while not times or time.perf_counter() < stop:
        begin = time.perf_counter()
        function()
        times.append(time.perf_counter() - begin)
    return min(times)


def main():
    rng = np.random.default_rng(0)
    print("shape                               dtaidistance ms       simd ms      ratio")
    for (rows, columns), length, dims in SHAPES:
        A = list(rng.standard_normal((rows, length, dims)).cumsum(axis=1))
        B = None if columns is None else list(rng.standard_normal((columns, length, dims)).cumsum(axis=1))
        pairwise_dtw(A, B, engine="simd")
        theirs, ours = (best(lambda e=e, a=A, b=B: pairwise_dtw(a, b, engine=e)) for e in ("dtaidistance", "simd"))
        shape = f"{rows} x {columns or rows}, length {length}, dims {dims}"
        print(f"{shape:35s} {theirs * 1e3:15.3f} {ours * 1e3:13.3f} {theirs / ours:10.2f}", flush=True)


if __name__ == "__main__":
    main()
