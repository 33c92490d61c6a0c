"""The paper's comparison on Words.

Words by sensors on lips and tongue: 575 series of 9 dimensions, 25 classes (Wang et al. 2014; the set
ArticularyWordRecognition of the UEA archive).

    python jobs/run_words.py --data PATH                       a cluster is started on this machine
    python jobs/run_words.py --quick                           a first look
    python jobs/run_words.py --scheduler tcp://head:8786

Seven methods and two reference lines, each tuned inside the training part of ten splits; prints the table and the
dashboard's address, and writes a report to open in a browser. Kill it and run it again: no fit is repeated.
"""

from __future__ import annotations

from cksc_dist.commands.paper_job import main

if __name__ == "__main__":
    raise SystemExit(main("Words", __doc__))
