"""What the jobs of the paper's data sets have in common: read, compare methods, print the table, write the report."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import xarray as xr

from cksc_dist import SeriesSet
from cksc_dist.commands.evaluate import compare, method_names
from cksc_dist.commands.options import add_run_options, at_least, run_spec
from cksc_dist.commands.program import run_job
from cksc_dist.commands.screen import Screen
from cksc_dist.dist.ingest import ingest, ingest_distances
from cksc_dist.errors import InputError
from cksc_dist.evaluate.grids import KernelChoices
from cksc_dist.evaluate.paper import TABLE1
from cksc_dist.evaluate.protocol import Protocol
from cksc_dist.io.mat import load_variables

__all__ = ["SETS", "add_job_options", "main", "run_authors_distances", "run_set", "source_of"]

SETS = {
    "Cricket": "Cricket/cricket_data.mat",
    "Words": "ArticularyWordRecognition",
    "UTKinect": "UTKinect",
    "Schunk": "Schunk_SD5",
}
"""Where each data set lies in a folder that holds them all."""


def add_job_options(parser: argparse.ArgumentParser, *, store: str) -> None:
    """Add what all jobs are told."""
    parser.add_argument(
        "--data", metavar="PATH", help="the data set, or a folder with all of them (the variable CKSC_DATA)"
    )
    parser.add_argument("--store", default=store, metavar="STORE", help="folder or URL (%(default)s)")
    parser.add_argument("--method", default="all", metavar="NAMES", help="names, with commas between them (all)")
    parser.add_argument("--quick", action="store_true", help="three splits, three folds, small grids")
    parser.add_argument("--no-tuning", action="store_true", help="the parameters of the paper's Table 1, nothing tuned")
    parser.add_argument("--seed", type=at_least(0), default=0, metavar="N", help="split s has the seed N + s (0)")
    add_run_options(parser, always_dask=True)


def source_of(title: str, data: str | None) -> Path:
    """Return where a data set lies."""
    given = data or os.environ.get("CKSC_DATA")
    if not given:
        raise InputError(f"{title}: give its path with --data, or set CKSC_DATA to the folder with the published sets")
    whole, inside = Path(given), Path(given) / SETS[title]
    if inside.exists():
        return inside
    if not whole.exists():
        raise InputError(f"{title}: {whole} does not exist; give the data set with --data")
    others = [path for name, path in SETS.items() if name != title]
    if data is None or any((whole / path).exists() or whole.match(path) for path in others):
        raise InputError(f"{title}: {whole} holds no {SETS[title]}; give the data set with --data")
    return whole


def run_set(
    title: str,
    options: argparse.Namespace,
    screen: Screen,
    *,
    store: str,
    report: Path,
    sweeps: Sequence[str] = (),
) -> xr.Dataset:
    """Compare methods on one of the paper's data sets, with its T0, and write the report."""
    methods = method_names(options.method)
    data = SeriesSet.read(source_of(title, options.data))
    screen.line(f"{title}: {data}")
    ingest(data, store)
    return compare(
        store,
        methods,
        _protocol(options),
        KernelChoices(),
        run_spec(options),
        screen,
        title=title,
        sparsity=TABLE1[title].sparsity,
        alpha=TABLE1[title].alpha,
        sweeps=sweeps,
        report=report,
    )


def _protocol(options: argparse.Namespace) -> Protocol:
    usual = Protocol.short(options.seed) if options.quick else Protocol(random_state=options.seed)
    return replace(usual, tune=not options.no_tuning)


def run_authors_distances(options: argparse.Namespace, screen: Screen, *, store: str, report: Path) -> xr.Dataset:
    """Compare methods on the distances of Cricket that the authors published, with their rule for the bandwidth."""
    names = [name for name in method_names(options.method) if name != "jksrc"]  # there are no other kernels
    path = source_of("Cricket", options.data)
    data = SeriesSet.read(path)
    found = load_variables(path, ["alldistances"], "the authors' distances")["alldistances"]
    distances = np.asarray(found, dtype=np.float64)
    distances = (distances + distances.T) / 2.0
    screen.line("Cricket, by the authors' own distances (their dimensions 1 and 2 only)")
    ingest(data, store)  # or say that it holds others
    # the matrix may be there from an earlier run; written again it has the same bytes, and fits hold good
    fingerprint = ingest_distances(distances, store, data=data, name="alldistances", replace=True)
    return compare(
        store,
        names,
        _protocol(options),
        KernelChoices(None, factors=(1.0,)),
        run_spec(options),
        screen,
        title="Cricket",
        distances=fingerprint,
        sparsity=TABLE1["Cricket"].sparsity,
        alpha=TABLE1["Cricket"].alpha,
        report=report,
    )


def main(title: str, text: str | None, *, sweeps: Sequence[str] = ()) -> int:
    """Run the job of one data set from the command line, and return the exit code."""
    name = title.lower()
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_job_options(parser, store=f"{name}.zarr")
    parser.add_argument("--report", type=Path, default=Path(f"{name}.html"), metavar="FILE", help="(%(default)s)")
    authors = title == "Cricket"
    if authors:
        parser.add_argument(
            "--authors-distances", action="store_true", help="take the distances that the authors published"
        )
    options = parser.parse_args()

    def work() -> None:
        if authors and options.authors_distances:
            store = options.store.removesuffix(".zarr") + "-authors.zarr"
            report = options.report.with_stem(f"{options.report.stem}-authors")  # beside that of the computed distances
            run_authors_distances(options, Screen(), store=store, report=report)
        else:
            run_set(title, options, Screen(), store=options.store, report=options.report, sweeps=sweeps)

    return run_job(f"run_{name}", work)
