"""How much quicker do two workers run many fits over one matrix than one worker?

Fits of CKSC on Words (575 series, 25 classes): ten stratified 50/50 splits for each combination of parameters, by one
and by two worker processes, in turns in one run; the start of the cluster, and a first fit on every worker, are left
out. Wanted: two workers are at least 1.7 times as fast as one.
Set CKSC_DATA to the folder with the published data sets.

    python benchmarks/many_fits.py
    python benchmarks/many_fits.py --fits 40      a quick look
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

import numpy as np

from cksc_dist import SeriesSet
from cksc_dist.dist.cluster import connected
from cksc_dist.dist.distances import compute_distances
from cksc_dist.dist.ingest import ingest
from cksc_dist.evaluate import protocol_tasks, run_fits
from cksc_dist.spec import RunSpec

GRID = {"sparsity": [4, 6, 8, 10], "factor": [0.25, 0.5, 1.0, 2.0, 4.0]}


def timed(store, labels, count, workers, turn):
    """Return the table, and the seconds that it took."""
    with connected(RunSpec(), workers) as client:
        warm = protocol_tasks(labels, n_splits=4 * workers, random_state=1000, grid={"max_iter": 1})
        run_fits(store, warm, name=f"warm-{workers}-{turn}", client=client)
        tasks = protocol_tasks(labels, n_splits=10, grid=GRID)[:count]
        begin = time.perf_counter()
        table = run_fits(store, tasks, name=f"words-{workers}-{turn}", client=client)
        return table, time.perf_counter() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fits", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=1)
    options = parser.parse_args()
    data = SeriesSet.read(Path(os.environ.get("CKSC_DATA", "data"), "ArticularyWordRecognition"))
    best, tables = {1: np.inf, 2: np.inf}, {}
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder, "words.zarr")
        ingest(data, store)
        compute_distances(store)
        for turn in range(options.repeats):
            for workers in best:
                table, seconds = timed(store, data.labels, options.fits, workers, turn)
                best[workers], tables[workers] = min(best[workers], seconds), table
                inside = float(table.train_seconds.sum() + table.predict_seconds.sum()) / (workers * seconds)
                print(
                    f"workers: {workers}; {options.fits} fits in {seconds:.1f} s, {inside:.1%} of "
                    f"the workers' time inside fits; mean accuracy {float(table.accuracy.mean()):.4f}",
                    flush=True,
                )
    for measure in ("accuracy", "objective", "n_iter"):
        assert np.array_equal(tables[1][measure], tables[2][measure], equal_nan=True)
    print(f"one worker against two workers: {best[1] / best[2]:.2f}  (at least 1.7)")


if __name__ == "__main__":
    main()
