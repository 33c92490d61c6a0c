"""What does the dashboard show? Takes ``docs/page.png``: the page ``/cksc`` while the main job trains its models.

A scheduler and two workers are started on this machine, the job is sent to them, and headless Chromium looks at it
once objectives of both models are there. Takes about as long as the job.

    python benchmarks/page_picture.py [--output docs/page.png] [--videos-per-class 20] [--splits 10]
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # the browser is that of the tests

from tests.browser import running  # noqa: E402
from tests.dist.processes import DASK, answers, free_port, starter, wait_until  # noqa: E402

SECONDS = 1800.0


def state(address):
    """Return what the page knows of the latest run; nothing before there is one."""
    try:
        with urllib.request.urlopen(f"{address}/cksc.json", timeout=5) as answer:
            runs = json.load(answer)["runs"]
    except OSError:
        return {}
    return list(runs.values())[-1] if runs else {}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "page.png")
    parser.add_argument("--videos-per-class", default="20")
    parser.add_argument("--splits", default="10")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, starter(Path(folder)) as start, running() as browser:
        port, page = free_port(), free_port()
        start(
            *DASK, "scheduler", "--host", "127.0.0.1", "--port", f"{port}", "--dashboard-address", f"127.0.0.1:{page}"
        )
        wait_until(lambda: answers(port), "a scheduler that answers")
        start.workers(f"tcp://127.0.0.1:{port}", 2)
        sizes = ("--videos-per-class", options.videos_per_class, "--splits", options.splits)
        job = subprocess.Popen(
            [sys.executable, str(ROOT / "jobs" / "run_dyntex.py"), *sizes, "--scheduler", f"tcp://127.0.0.1:{port}"],
            cwd=folder,
        )
        shown, end = None, time.monotonic() + SECONDS
        while job.poll() is None and time.monotonic() < end:
            if shown is None and state(f"http://127.0.0.1:{page}"):
                shown = browser.open(f"http://127.0.0.1:{page}/cksc")
            if {"frames", "lbptop"} <= set(state(f"http://127.0.0.1:{page}").get("objectives", {})):
                break
            time.sleep(0.2)
        time.sleep(1.0)  # the page asks twice a second
        assert shown is not None, "the job was over before the page was there"
        shown.screenshot(options.output, whole=False)
        print(f"{options.output} after {json.dumps(state(f'http://127.0.0.1:{page}').get('stage', ''))}")
        return job.wait()


if __name__ == "__main__":
    raise SystemExit(main())
