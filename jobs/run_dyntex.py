"""The main job: from series to a classifier whose decisions can be read, on a Dask cluster.

    python jobs/run_dyntex.py                            a cluster is started on this machine
    python jobs/run_dyntex.py --scheduler tcp://head:8786
    python jobs/run_dyntex.py --data FILE_OR_FOLDER      your own labelled series

Without --data it makes series that stand in for the dynamic textures of DynTex++: the figures that it prints are of
made data. Kill it and run it again: distances that are done are not computed again.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from sklearn.model_selection import StratifiedShuffleSplit

from cksc_dist import CKSC, SeriesSet, open_matrix
from cksc_dist.commands.options import add_run_options, at_least, run_spec
from cksc_dist.commands.screen import Screen
from cksc_dist.commands.work_screen import WorkScreen
from cksc_dist.dist.cluster import connected
from cksc_dist.dist.distances import compute_distances
from cksc_dist.dist.ingest import ingest
from cksc_dist.errors import CkscError
from cksc_dist.io import make_gestures
from cksc_dist.maths.threads import resolve_n_jobs
from cksc_dist.spec import DistanceSpec


def main() -> int:
    """Run the job and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", metavar="SOURCE", help="labelled series in any form that cksc info reads")
    parser.add_argument("--store", default="dyntex.zarr", metavar="STORE", help="folder or URL (%(default)s)")
    parser.add_argument("--per-class", type=at_least(4), default=150, metavar="N", help="made series a class (150)")
    parser.add_argument("--sparsity", type=at_least(1), default=6, metavar="T0", help="(%(default)s)")
    parser.add_argument("--seed", type=at_least(0), default=0, metavar="N", help="of made series and split (0)")
    parser.add_argument("--replace", action="store_true", help="put the series in the place of others in the store")
    add_run_options(parser, always_dask=True)
    options = parser.parse_args()
    try:
        run_job(options)
    except (CkscError, OSError) as error:
        parser.exit(2, f"run_dyntex: error: {error}\n")
    except KeyboardInterrupt:
        parser.exit(130, "run_dyntex: interrupted; run it again to go on\n")
    return 0


def run_job(options: argparse.Namespace) -> None:
    """Ingest, compute distances, train on one half, classify the other, explain one decision."""
    screen, run = Screen(), run_spec(options)
    if options.data:
        data = SeriesSet.read(options.data)
    else:
        data = make_gestures(n_per_class=options.per_class, n_classes=8, random_state=options.seed)
        screen.line("no --data: made series stand in for the dynamic textures of DynTex++")
    screen.line(f"{data}")
    ingest(data, options.store, replace=options.replace)

    with connected(run, run.workers or resolve_n_jobs(-1)) as client:
        report = compute_distances(options.store, DistanceSpec(), run, WorkScreen(screen), client=client)
    screen.line(f"distances: {report.pairs:,} pairs computed in {report.seconds:.1f} s, store {options.store}")

    distances = open_matrix(options.store, report.fingerprint)
    labels = distances.labels
    split = StratifiedShuffleSplit(1, test_size=0.5, random_state=options.seed)
    train, test = next(split.split(np.zeros(len(labels)), labels))
    begin = time.perf_counter()
    kernel = distances.kernel(train)
    model = CKSC(sparsity=options.sparsity, random_state=options.seed, n_jobs=-1).fit(kernel, labels[train])
    screen.line(f"trained on {len(train):,} in {time.perf_counter() - begin:.1f} s, {model.n_iter_} alternations")
    rows = kernel.against(test)
    screen.line(f"accuracy: {model.score(rows, labels[test]):.1%} of {len(test):,} series held out")
    screen.line(f"one decision, of {distances.ids[test[0]]} (class {labels[test[0]]}):")
    screen.line(str(model.explain(rows[0], top=3)))


if __name__ == "__main__":
    raise SystemExit(main())
