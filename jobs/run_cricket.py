"""The paper's comparison on Cricket.

Umpire signals: 180 series of 6 dimensions, 12 classes (Ko et al. 2005), as published by the authors of the paper.

    python jobs/run_cricket.py --data PATH                       a cluster is started on this machine
    python jobs/run_cricket.py --quick                           a first look
    python jobs/run_cricket.py --scheduler tcp://head:8786
    python jobs/run_cricket.py --authors-distances          their published matrix in place of DTW

Seven methods and two reference lines, each tuned inside the training part of ten splits; prints the table and the
dashboard's address, and writes a report to open in a browser. Kill it and run it again: no fit is repeated.
"""

from __future__ import annotations

from cksc_dist.commands.paper_job import main

if __name__ == "__main__":
    raise SystemExit(main("Cricket", __doc__))
