"""How accurate is CKSC on the real sets, with the parameters of the paper's Table 1?

Ten stratified 50/50 splits (seeds 0 to 9), dependent DTW, bandwidth from the training rows only, nothing tuned
for a set. The reach of recall and the selection were settled while looking at these splits: a little optimistic.
Set CKSC_DATA to the folder with the published data sets.

    python benchmarks/accuracy.py [--recall reconstruction] [--selection scaled]
"""

import argparse
import os
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.model_selection import StratifiedShuffleSplit

from cksc_dist import CKSC, DistanceKernel, SeriesSet, pairwise_dtw
from cksc_dist.errors import SmallClassWarning

# name: (path, T0, alpha, accuracy in the paper)
SETS = {
    "Words": ("ArticularyWordRecognition", 8, 0.2, 98.82),
    "UTKinect": ("UTKinect", 7, 0.1, 86.52),
    "Cricket": ("Cricket/cricket_data.mat", 6, 0.2, 86.45),
    "Schunk": ("Schunk_SD5", 5, 0.15, 91.42),
}


def accuracies(D, y, T0, alpha, **options):
    ours, nearest, seconds = [], [], 0.0
    for seed in range(10):
        split = StratifiedShuffleSplit(1, test_size=0.5, random_state=seed)
        train, test = next(split.split(D, y))
        kernel = DistanceKernel()
        begin = time.perf_counter()
        K_train = kernel.fit_transform(D[np.ix_(train, train)])
        K_test = kernel.transform(D[np.ix_(test, train)])
        model = CKSC(sparsity=T0, alpha=alpha, random_state=seed, n_jobs=-1, **options)
        ours.append(100 * model.fit(K_train, y[train]).score(K_test, y[test]))
        seconds += time.perf_counter() - begin
        nearest.append(100 * np.mean(y[train][D[np.ix_(test, train)].argmin(axis=1)] == y[test]))
    return np.array(ours), np.array(nearest), seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recall", default="confident")
    parser.add_argument("--selection", default="plain")
    parser.add_argument("--schedule", default="interleaved")
    parser.add_argument("sets", nargs="*", default=list(SETS))
    options = parser.parse_args()
    folder = Path(os.environ.get("CKSC_DATA", "data"))
    warnings.simplefilter("ignore", SmallClassWarning)
    print("set        CKSC           1-NN           paper   DTW s   fits s")
    for name in options.sets:
        path, T0, alpha, paper = SETS[name]
        data = SeriesSet.read(folder / path)
        begin = time.perf_counter()
        D = pairwise_dtw(data, n_jobs=-1)
        dtw_seconds = time.perf_counter() - begin
        ours, nearest, seconds = accuracies(
            D, data.labels, T0, alpha, recall=options.recall, selection=options.selection, schedule=options.schedule
        )
        print(
            f"{name:9s} {ours.mean():6.2f} +- {ours.std(ddof=1):4.2f} {nearest.mean():6.2f} +- "
            f"{nearest.std(ddof=1):4.2f}  {paper:6.2f}  {dtw_seconds:6.2f}  {seconds:6.2f}"
        )


if __name__ == "__main__":
    main()
