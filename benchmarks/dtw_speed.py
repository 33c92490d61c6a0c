"""How much quicker is the engine ``simd`` than dtaidistance's own parallel C matrix function?

Random walks, float64, the same number of threads on both sides, interleaved in one run, best of several (a peer's call
of over 10 s is made once). dtaidistance runs ``distance_matrix_fast`` with its best settings: pruning on where it
exists (one dimension), if that is the quicker. Every matrix is compared, too.

    python benchmarks/dtw_speed.py                       all shapes, one and two threads
    python benchmarks/dtw_speed.py --window 0.1          with a Sakoe-Chiba band of 10 %
    python benchmarks/dtw_speed.py --only 0,1 --repeats 3
"""

import argparse
import time

import numpy as np
from dtaidistance import dtw, dtw_ndim
from threadpoolctl import threadpool_limits

from cksc_dist import pairwise_dtw

# n, length (a pair: ragged), dims, least ratio with one thread, with two
SHAPES = [
    (300, 144, 1, 35, 45),
    (300, 144, 3, 18, 25),
    (300, 144, 9, 9, 13),
    (60, 1197, 6, 9, 13),
    (400, 50, 60, 8, 11),
    (300, (20, 110), 60, 7, 10),
    (400, 50, 600, 12, 16),
    (2000, 8, 2, 10, 12),
]


def made(n, length, dims):
    rng = np.random.default_rng(0)
    lengths = np.full(n, length) if isinstance(length, int) else rng.integers(length[0], length[1] + 1, n)
    return [rng.standard_normal((t, dims)).cumsum(axis=0) for t in lengths]


def peer(series, threads, window):
    """Return the quickest call of the peer for this shape."""
    if series[0].shape[1] == 1:
        flat = [np.ascontiguousarray(x[:, 0]) for x in series]
        calls = [
            lambda p=p: dtw.distance_matrix_fast(flat, parallel=threads > 1, window=window, use_pruning=p)
            for p in (False, True)
        ]
    else:
        calls = [lambda: dtw_ndim.distance_matrix_fast(series, parallel=threads > 1, window=window)]
    return calls


def clock(function):
    begin = time.perf_counter()
    result = function()
    return time.perf_counter() - begin, result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--window", type=float, default=None)
    parser.add_argument("--only", default=",".join(str(i) for i in range(len(SHAPES))))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", default="1,2")
    options = parser.parse_args()
    print("shape                     threads   dtaidistance s    simd s    ratio  (at least)  Gcells/s  float32  error")
    for number in options.only.split(","):
        n, length, dims, *least = SHAPES[int(number)]
        series = made(n, length, dims)
        lengths = np.array([len(x) for x in series])
        window = None
        if options.window is not None:
            # one window in frames for the set, so that both sides do the same
            window = int(np.ceil(options.window * lengths.max()))
        cells = (lengths.sum() ** 2 - (lengths**2).sum()) / 2 if window is None else np.nan
        for threads in (int(t) for t in options.threads.split(",")):
            setting = {"window": window, "engine": "simd", "n_jobs": threads}
            for dtype in ("float64", "float32"):
                pairwise_dtw(series, dtype=dtype, **setting)  # compiled
            times = {"peer": [], "float64": [], "float32": []}
            with threadpool_limits(limits=threads):
                calls = peer(series, threads, window)
                for repeat in range(options.repeats):
                    if repeat == 0 or min(times["peer"]) < 10:
                        for call in calls:
                            seconds, theirs = clock(call)
                            times["peer"].append(seconds)
                    for dtype in ("float64", "float32"):
                        seconds, ours = clock(lambda d=dtype, x=series, s=setting: pairwise_dtw(x, dtype=d, **s))
                        times[dtype].append(seconds)
                        if dtype == "float64":
                            upper = np.triu_indices(n, 1)
                            error = np.max(np.abs(ours[upper] - theirs[upper]) / theirs[upper])
            best = {name: min(values) for name, values in times.items()}
            wanted = least[threads > 1] * (0.5 if window else 1)
            shape = f"{n}, {length}, {dims}"
            print(
                f"{shape:25s} {threads:4d} {best['peer']:15.3f} {best['float64']:11.4f} "
                f"{best['peer'] / best['float64']:9.1f}  {wanted:8.1f}  {cells / best['float64'] / 1e9:9.3f} "
                f"{best['float64'] / best['float32']:8.2f}  {error:.0e}",
                flush=True,
            )


if __name__ == "__main__":
    main()
