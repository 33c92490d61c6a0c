"""What does training cost when the kernel does not fit in memory, as multiples of one plain read of the matrix?

Made classes as series of one frame, so that DTW is the Euclidean distance and the matrix quick to make. A plain read
goes through all tiles of the distance matrix, on two threads. Wanted, at 20,000 samples with two workers of 700 MiB:
a pass of the ridge at most 1 read, at most 6 of them; a pass over the codes 0.3; a pass over the atoms 1.5 by two
threads of one process, 2.0 by two workers; no process above its limit.

    python benchmarks/train_scale.py
    python benchmarks/train_scale.py --samples 60000 --alternations 3 --memory 2GiB --place cluster
    python benchmarks/train_scale.py --samples 3000                          a quick look
"""

import argparse
import re
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import psutil
from dask.utils import parse_bytes

from cksc_dist import SeriesSet, open_matrix
from cksc_dist.dist.cluster import connected
from cksc_dist.dist.distances import compute_distances
from cksc_dist.dist.ingest import ingest
from cksc_dist.dist.progress import Progress
from cksc_dist.models.training import train
from cksc_dist.spec import DistanceSpec, ModelSpec, RunSpec

DIMS, CLASSES, WORKERS = 8, 20, 2


def peak(process):
    """Return the largest resident memory that a process has had, in MiB."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status).group(1)) / 1024


def made(samples):
    rng = np.random.default_rng(0)
    labels = np.arange(samples) % CLASSES
    centres = 3.0 * rng.standard_normal((CLASSES, DIMS))
    values = centres[labels] + rng.standard_normal((samples, DIMS))
    return SeriesSet.from_list(values[:, None, :], labels)


def plain_read(store):
    matrix = open_matrix(store)
    tiles = list(matrix._files.present())
    begin = time.perf_counter()
    with ThreadPoolExecutor(2) as pool:
        total = sum(pool.map(lambda tile: matrix._files.read_tile(tile).nbytes, tiles))
    return time.perf_counter() - begin, total


class Told(Progress):
    """Prints, and remembers what was said."""

    def __init__(self):
        self.lines = []

    def note(self, text):
        self.lines.append(text)
        print("   ", text, flush=True)


def seconds_of(lines):
    text = "\n".join(lines)
    passes = re.search(r"after (\d+) passes over K, ([\d.]+) s", text)
    codes = [float(found) for found in re.findall(r"codes ([\d.]+) s", text)]
    atoms = [float(found) for found in re.findall(r"atoms ([\d.]+) s", text)]
    return int(passes[1]), float(passes[2]) / int(passes[1]), min(codes[1:] or codes), min(atoms[1:] or atoms)


def run(place, options, store, folder):
    """Train in a process of its own, whose memory is then this training's alone; print what it cost, return J."""
    spec = ModelSpec(sparsity=options.sparsity, max_iter=options.alternations, tol=0.0)
    with connected(RunSpec(memory=options.memory), WORKERS) as client:
        workers = [psutil.Process(pid) for pid in client.run(lambda: __import__("os").getpid()).values()]
        told = Told()
        read, total = plain_read(store)
        begin = time.perf_counter()
        trained = train(
            store,
            f"{folder}/model-{place}",
            spec=spec,
            place=place,
            run=RunSpec(workers=WORKERS),
            progress=told,
            client=client if place == "cluster" else None,
            new_kernel=True,
            drop_kernel=True,
        )
        whole = time.perf_counter() - begin
        again, _ = plain_read(store)
        peaks = [peak(worker) for worker in workers]
    read = min(read, again)
    passes, ridge, codes, atoms = seconds_of(told.lines)
    print(f"{place}: {whole:.1f} s in all; one plain read {read:.2f} s, {total / 1e9:.2f} GB of values")
    print(f"  a pass of the ridge {ridge / read:.2f} reads (at most 1), {passes} passes (at most 6)")
    print(f"  a pass over the codes {codes / read:.2f} (at most 0.3), reads no byte of K")
    print(f"  a pass over the atoms {atoms / read:.2f} (at most {1.5 if place == 'disk' else 2.0})")
    if place == "cluster":
        limit = options.memory / 2**20
        print(f"  peak memory: workers {', '.join(f'{p:.0f}' for p in peaks)} MiB of {limit:.0f} each")
    print(f"  peak memory of this process, client and scheduler together: {peak(psutil.Process()):.0f} MiB", flush=True)
    J = trained.model.objective_history_
    print(f"  J from {J[0]:.6g} to {J[-1]:.6g}, never rising: {bool((np.diff(J) <= 1e-9 * J[0]).all())}")
    return J


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=20_000)
    parser.add_argument("--sparsity", type=int, default=10)
    parser.add_argument("--alternations", type=int, default=5)
    parser.add_argument("--memory", type=parse_bytes, default="700MiB")
    parser.add_argument("--place", choices=("disk", "cluster"), action="append")
    parser.add_argument("--store", help="where to keep the store for the next time (a temporary folder)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = options.store or f"{folder}/store.zarr"
        ingest(made(options.samples), store)
        report = compute_distances(store, DistanceSpec(dtype="float32"), RunSpec(trust=True))
        print(f"matrix of {report.n:,} samples: {report.computed} tiles in {report.seconds:.1f} s", flush=True)
        alone = {"max_workers": 1, "max_tasks_per_child": 1, "mp_context": get_context("spawn")}
        with ProcessPoolExecutor(**alone) as processes:
            places = options.place or ["disk", "cluster"]
            histories = [processes.submit(run, place, options, store, folder).result() for place in places]
        if len(histories) == 2:
            print(f"same bits from disk and on the cluster: {np.array_equal(*histories)}")


if __name__ == "__main__":
    main()
