"""The paper's comparison on UTKinect.

Human actions seen by a depth camera: 199 series of 20 joints, 10 classes (Xia et al. 2012).

    python jobs/run_utkinect.py --data PATH                       a cluster is started on this machine
    python jobs/run_utkinect.py --quick                           a first look
    python jobs/run_utkinect.py --scheduler tcp://head:8786

Seven methods and two reference lines, each tuned inside the training part of ten splits; prints the table and the
dashboard's address, and writes a report to open in a browser. Kill it and run it again: no fit is repeated.
"""

from __future__ import annotations

from cksc_dist.commands.paper_job import main

if __name__ == "__main__":
    raise SystemExit(main("UTKinect", __doc__))
