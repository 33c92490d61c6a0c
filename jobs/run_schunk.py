"""The paper's comparison on Schunk.

Grasps of five objects by a tactile hand: 51 series of 486 taxels, 5 classes (Drimus et al.; Madry et al. 2014). The
paper's set is uncertain: its text says five objects, its sizes of dictionaries do not fit that.

    python jobs/run_schunk.py --data PATH                       a cluster is started on this machine
    python jobs/run_schunk.py --quick                           a first look
    python jobs/run_schunk.py --scheduler tcp://head:8786

Seven methods and two reference lines, each tuned inside the training part of ten splits; prints the table and the
dashboard's address, and writes a report to open in a browser. Kill it and run it again: no fit is repeated.
"""

from __future__ import annotations

from cksc_dist.commands.paper_job import main

if __name__ == "__main__":
    raise SystemExit(main("Schunk", __doc__, sweeps=("alpha", "sparsity")))
