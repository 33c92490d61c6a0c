"""Works on a store on S3, as a process whose environment holds secrets; fetches all that is kept there.

python -m tests.faults.secret_store FOLDER
"""

from __future__ import annotations

import sys
import urllib.request
from pathlib import Path

import s3fs  # type: ignore[import-untyped]  # it has no types

from cksc_dist.cli import main
from cksc_dist.dist.cluster import connected
from cksc_dist.dist.dashboard import watched
from cksc_dist.dist.distances import compute_distances
from cksc_dist.io import make_gestures, write_npz
from cksc_dist.spec import RunSpec
from cksc_dist.store import patience

PAGES = ("cksc.json", "cksc", "info/main/workers.html", "info/main/logs.html", "metrics", "json/identity.json")


def work(home: Path) -> None:
    """Do everything."""
    s3fs.S3FileSystem().mkdir("bucket")
    store, model, source = "s3://bucket/store", "s3://bucket/model", str(home / "new.npz")
    write_npz(source, make_gestures(n_per_class=6, n_classes=2, length=(8, 12), random_state=0))
    assert main(["ingest", source, store]) == 0
    with connected(RunSpec(executor="dask", workers=1), 1) as client:
        compute_distances(store, progress=watched(None), client=client)
        for page in PAGES:
            address = client.dashboard_link.replace("/status", f"/{page}")
            try:
                with urllib.request.urlopen(address, timeout=30) as answer:
                    (home / f"page-{page.replace('/', '-')}").write_bytes(answer.read())
            except OSError:
                continue  # not every release has all of them
        told = [client.get_events(), client.get_scheduler_logs(), client.get_worker_logs()]
        (home / "told").write_text(repr(client.scheduler_info()) + repr(told))
    assert main(["train", store, model, "--sparsity", "2", "--max-iter", "2", "--train-on", "disk"]) == 0
    assert main(["predict", model, source, "--json", str(home / "decisions.jsonl")]) == 0
    assert main(["status", store]) == 0
    assert main(["report", model, "--output", str(home / "report.html")]) == 0
    # errors, with their tracebacks
    patience.PATIENCE = 1.0
    assert main(["status", "s3://bucket/none", "--debug"]) == 2
    assert main(["ingest", source, "s3://no-such-bucket/x", "--debug"]) == 2
    s3fs.S3FileSystem().get("bucket", str(home / "bucket"), recursive=True)


if __name__ == "__main__":
    work(Path(sys.argv[1]))
