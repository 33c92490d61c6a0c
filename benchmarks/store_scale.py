"""A matrix larger than the workers' memory: how long, how much memory, and how good was the forecast?

30,000 series of 8 frames and 2 dims: 450 million pairs, 3.6 GB as float32. Two workers of 1 GiB each. Peak memory is
what the operating system says of every process (VmHWM), so it needs Linux. Wanted: no worker above its limit,
client and scheduler (one process here) below 500 MiB, forecast of time within 30 %, of disk within 10 %.

    python benchmarks/store_scale.py
    python benchmarks/store_scale.py --series 8000
"""

import argparse
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import psutil

from cksc_dist import SeriesSet
from cksc_dist.dist.distances import compute_distances
from cksc_dist.dist.forecast import forecast
from cksc_dist.dist.ingest import ingest
from cksc_dist.spec import DistanceSpec, RunSpec
from cksc_dist.store.folder import Folder

LIMIT = 2**30


def peak(process):
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    return 0


class Watch:
    """Remembers the peak memory of this process and of all its children."""

    def __init__(self):
        self.peaks = {}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self):
        own = psutil.Process()
        while not self._end.wait(0.2):
            for process in [own, *own.children(recursive=True)]:
                try:
                    words = " ".join(process.cmdline())
                    role = "client and scheduler" if process == own else "worker" if "spawn_main" in words else "helper"
                    self.peaks[process.pid] = (role, max(peak(process.pid), self.peaks.get(process.pid, ("", 0))[1]))
                except (psutil.Error, OSError):
                    continue

    def stop(self):
        self._end.set()
        self._thread.join()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=int, default=30_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--folder", help="where to write (a temporary folder)")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    values = rng.standard_normal((options.series, 8, 2)).cumsum(axis=1).reshape(-1, 2)
    count = options.series
    data = SeriesSet(values, np.arange(count + 1) * 8, np.full(count, "?"), np.array([str(i) for i in range(count)]))
    spec = DistanceSpec(dtype="float32")
    run = RunSpec(executor="dask", workers=options.workers, memory=LIMIT)
    watch = Watch()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        store = Path(folder, "store.zarr")
        ingest(data, store)
        planned = forecast(store, spec, run).need
        begin = time.perf_counter()
        report = compute_distances(store, spec, run)
        whole = time.perf_counter() - begin
        disk = sum(Folder(store).files(f"distances/{report.fingerprint}").values())
    watch.stop()
    written = 4 * count * count
    print(f"{count:,} series, {report.pairs:,} pairs, {report.tiles:,} tiles, {options.workers} workers of 1 GiB")
    print(
        f"time: {report.seconds:.1f} s of tiles ({whole:.1f} s with the cluster), "
        f"{report.pairs / report.seconds:,.0f} pairs/s"
    )
    print(f"written: {written / 1e9:.2f} GB of values, {written / 1e9 / report.seconds:.3f} GB/s")
    print(
        f"forecast of time: {planned.seconds:.1f} s by plan, {report.need.seconds:.1f} s by the workers' own sample: "
        f"{planned.seconds / report.seconds:.2f} and {report.need.seconds / report.seconds:.2f} of what it took"
    )
    print(f"share of writing, as forecast: {report.need.writing / report.need.seconds:.0%}")
    print(
        f"forecast of disk: {planned.disk / disk:.3f} of {disk / 1e9:.2f} GB; "
        f"of memory: {planned.memory / 2**20:.0f} MiB a worker"
    )
    for role, most in sorted(watch.peaks.values()):
        print(f"peak memory of {role}: {most / 2**20:.0f} MiB")


if __name__ == "__main__":
    main()
