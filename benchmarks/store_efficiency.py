"""What does it cost to compute a matrix through the store and Dask, instead of in memory on threads?

The same series by `pairwise_dtw(n_jobs=2)` and by `compute_distances` with one and with two worker processes, in turns
in one run; the start of the cluster is left out. Wanted: two workers take at most 1.15 times what two threads take, and
are at least 1.8 times as fast as one.

    python benchmarks/store_efficiency.py
    python benchmarks/store_efficiency.py --series 1500 --repeats 1      a quick look
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

from cksc_dist import SeriesSet, open_matrix, pairwise_dtw
from cksc_dist.dist.cluster import connected
from cksc_dist.dist.distances import compute_distances
from cksc_dist.dist.ingest import ingest
from cksc_dist.spec import DistanceSpec, RunSpec

LENGTH, DIMS = 144, 9


def through_the_store(data, workers):
    with tempfile.TemporaryDirectory() as folder, connected(RunSpec(), workers) as client:
        store = Path(folder, "store.zarr")
        ingest(data, store)
        begin = time.perf_counter()
        report = compute_distances(store, DistanceSpec(), client=client)
        whole = time.perf_counter() - begin
        rows = open_matrix(store)[:3]
        return whole, report, rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=int, default=3200, help="(3200: more than a minute of work for two workers)")
    parser.add_argument("--repeats", type=int, default=2)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    data = SeriesSet.from_list(rng.standard_normal((options.series, LENGTH, DIMS)).cumsum(axis=1))
    pairwise_dtw(data[:40], n_jobs=2)  # compiles
    best = {"two threads in memory": np.inf, "one worker": np.inf, "two workers": np.inf}
    for _ in range(options.repeats):
        begin = time.perf_counter()
        expected = pairwise_dtw(data, n_jobs=2)[:3]
        best["two threads in memory"] = min(best["two threads in memory"], time.perf_counter() - begin)
        for name, workers in (("two workers", 2), ("one worker", 1)):
            seconds, report, rows = through_the_store(data, workers)
            assert np.array_equal(rows, expected)
            best[name] = min(best[name], seconds)
            print(
                f"{name}: {seconds:.1f} s in all, {report.seconds:.1f} s of tiles, {report.need.seconds:.1f} forecast, "
                f"{report.need.tasks} tasks of {report.tiles} tiles",
                flush=True,
            )
    for name, seconds in best.items():
        print(f"{name:22s} {seconds:8.2f} s")
    print(f"two workers against two threads: {best['two workers'] / best['two threads in memory']:.3f}  (at most 1.15)")
    print(f"one worker against two workers:  {best['one worker'] / best['two workers']:.2f}  (at least 1.8)")


if __name__ == "__main__":
    main()
