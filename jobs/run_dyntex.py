"""The main job: from videos to classifiers whose decisions can be read, on a Dask cluster.

    python jobs/run_dyntex.py                              a cluster is started on this machine
    python jobs/run_dyntex.py --scheduler tls://head:8786  on your own
    python jobs/run_dyntex.py --data FOLDER                DynTex++, or videos of yours, as FOLDER/<class>/<video>
    python jobs/run_dyntex.py --videos-per-class 100       made textures, as many as DynTex++ has videos

Without --data it makes dynamic textures: the figures are then of made data. Videos are described in two ways, by frame
histograms (compared under DTW) and by LBP-TOP (chi-square); on the kernel of each, CKSC, a support vector machine and a
nearest neighbour are tuned and compared over ten splits, and all of it is drawn in one report. The dashboard's address
is printed at the start, the report's path at the end. Kill it and run it again: nothing that is done is done twice.
"""

from __future__ import annotations

import argparse
import sys
import warnings

from cksc_dist.commands.dyntex_job import add_dyntex_options, run_dyntex
from cksc_dist.commands.program import run_job


def main() -> int:
    """Run the job and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_dyntex_options(parser)
    options = parser.parse_args()
    warnings.showwarning = lambda message, *_: print(f"run_dyntex: warning: {message}", file=sys.stderr)
    return run_job("run_dyntex", lambda: run_dyntex(options))


if __name__ == "__main__":
    raise SystemExit(main())
