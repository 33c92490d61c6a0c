"""Start a Dask cluster whose workers are SLURM jobs; stays until Ctrl-C, which cancels them.

    DASK_CONFIG=cluster/dask.yaml python cluster/start_slurm.py --jobs 40 [--tls]

Run it on a login node: the scheduler is in this process. Memory, walltime and lifetime are in cluster/dask.yaml; the
rest is --directive. A job that ends, as all do after their walltime, is replaced. Needs pip install 'cksc_dist[slurm]',
and this Python and the certificates in a folder that all nodes share.
"""

from __future__ import annotations

import argparse
import time

from dask_jobqueue import SLURMCluster
from distributed import Security


def main() -> None:
    """Start the cluster, print its address, and wait."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="workers, one job each (2)")
    parser.add_argument("--queue", metavar="NAME", help="partition (that of the site)")
    parser.add_argument("--memory", metavar="SIZE", help="of one worker (4GiB)")
    parser.add_argument("--interface", metavar="NAME", help="network that all nodes share, as ib0")
    parser.add_argument("--directive", action="append", default=[], metavar="TEXT", help="for sbatch, as --qos=long")
    parser.add_argument("--tls", action="store_true", help="encrypt, with the certificates of Dask's configuration")
    options = parser.parse_args()
    chosen = {"queue": options.queue, "memory": options.memory, "interface": options.interface}
    cluster = SLURMCluster(
        job_extra_directives=options.directive,
        security=Security() if options.tls else None,
        **{name: value for name, value in chosen.items() if value is not None},
    )
    with cluster:
        # unlike scale, adapt replaces jobs that have ended
        cluster.adapt(minimum_jobs=options.jobs, maximum_jobs=options.jobs)
        print(f"scheduler: {cluster.scheduler_address}", flush=True)
        try:
            while True:
                time.sleep(3600)
        except KeyboardInterrupt:
            print("ending the cluster", flush=True)


if __name__ == "__main__":
    main()
