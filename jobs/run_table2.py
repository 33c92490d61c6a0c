"""The paper's Table 2, run again: seven methods and two reference lines on four of its five data sets.

    python jobs/run_table2.py --data FOLDER                 a cluster is started on this machine
    python jobs/run_table2.py --quick                       a first look, in minutes
    python jobs/run_table2.py --readme README.md            put the table in the place of the one there

FOLDER holds the published sets (or set CKSC_DATA). DynTex++ has a job of its own. Kill it and run it again: no fit is
repeated. Prints the table, the dashboard's address, and where the report of each data set is.
"""

from __future__ import annotations

import argparse
import re
import time
from pathlib import Path

from cksc_dist.commands.amounts import in_time
from cksc_dist.commands.paper_job import SETS, add_job_options, run_set, source_of
from cksc_dist.commands.program import run_job
from cksc_dist.commands.screen import Screen
from cksc_dist.errors import InputError
from cksc_dist.evaluate.tables import markdown

PLACE = re.compile(r"(?<=<!-- table 2 -->\n).*?(?=<!-- end of table 2 -->)", re.DOTALL)
"""Where a README has the table."""


def main() -> int:
    """Run the job and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_job_options(parser, store="table2")
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS), help="data sets (all)")
    parser.add_argument("--readme", type=Path, metavar="FILE", help="where to put the table (nowhere)")
    options = parser.parse_args()
    return run_job("run_table2", lambda: compare(options))


def compare(options: argparse.Namespace) -> None:
    """Compare all methods on all data sets, a store and a report for each."""
    screen, begin = Screen(), time.perf_counter()
    if options.readme is not None and not PLACE.search(options.readme.read_text()):
        raise InputError(f"{options.readme} has no place for the table: <!-- table 2 --> and <!-- end of table 2 -->")
    for title in options.sets:
        source_of(title, options.data)  # what is missing is told before hours of work
    tables = []
    for title in options.sets:
        store = f"{options.store}/{title.lower()}.zarr"
        report = Path(f"{title.lower()}.html" if "://" in options.store else f"{options.store}/{title.lower()}.html")
        sweeps = ("alpha", "sparsity") if title == "Schunk" else ()
        tables.append(run_set(title, options, screen, store=store, report=report, sweeps=sweeps))
    text = markdown(tables)
    screen.line("")
    for line in text.splitlines():
        screen.line(line)
    screen.line(f"accuracy in % (the paper's), in {in_time(time.perf_counter() - begin)}")
    if options.readme is not None:
        options.readme.write_text(PLACE.sub(text + "\n", options.readme.read_text()))
        screen.line(f"the table is in {options.readme}")


if __name__ == "__main__":
    raise SystemExit(main())
