"""``cksc evaluate`` and the jobs of the paper's data sets: compare methods, print the table, write the report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import xarray as xr

from cksc_dist.commands.amounts import in_time
from cksc_dist.commands.screen import Screen
from cksc_dist.commands.work_screen import WorkScreen
from cksc_dist.dist.cluster import connected
from cksc_dist.dist.dashboard import watched
from cksc_dist.dist.workers import dashboard_of
from cksc_dist.errors import InputError
from cksc_dist.evaluate.extras import ALPHAS, SPARSITIES, example_model, model_url, sweep
from cksc_dist.evaluate.grids import KernelChoices
from cksc_dist.evaluate.methods import METHODS
from cksc_dist.evaluate.protocol import Protocol, evaluate, plan_evaluation
from cksc_dist.evaluate.report import write_report
from cksc_dist.evaluate.tables import comparison
from cksc_dist.maths.threads import resolve_n_jobs
from cksc_dist.spec import ModelSpec, RunSpec
from cksc_dist.store.local_files import check_output
from cksc_dist.store.model_files import check_place

__all__ = ["SWEEPS", "compare", "method_names", "say_comparison"]

SWEEPS = {"alpha": ALPHAS, "sparsity": SPARSITIES}
"""Parameters that CKSC may be drawn over."""


def method_names(text: str) -> list[str]:
    """Return methods by the names that were typed.

    Examples
    --------
    >>> method_names("cksc,svm")
    ['cksc', 'svm']
    """
    names = list(METHODS) if text == "all" else [name.strip().lower() for name in text.split(",")]
    for name in names:
        if name not in METHODS:
            raise InputError(f"--method {name!r} is unknown; choose of {', '.join(METHODS)}, or all")
    return names


def compare(
    store: str,
    methods: Sequence[str],
    protocol: Protocol,
    choices: KernelChoices,
    run: RunSpec,
    screen: Screen,
    *,
    name: str = "evaluation",
    title: str = "",
    distances: str = "",
    sparsity: int = ModelSpec.sparsity,
    alpha: float = ModelSpec.alpha,
    sweeps: Sequence[str] = (),
    report: Path | None = None,
) -> xr.Dataset:
    """Compare methods on a store with one cluster for all of it; say what came out.

    Parameters
    ----------
    alpha
        Of CKSC: the first that tuning tries, and that of the sweep over the sparsity.
    sweeps
        Names of `SWEEPS`.
    report
        Where the HTML file goes; None: no report.
    """
    how: dict[str, Any] = {
        "name": name,
        "choices": choices,
        "distances": distances,
        "sparsity": sparsity,
        "alpha": alpha,
    }
    plan_evaluation(store, methods, protocol, **how)  # before a cluster is started in vain
    if report is not None:
        check_output(report)
    if "cksc" in methods:
        check_place(model_url(store, name))
    work, workers = watched(WorkScreen(screen)), run.workers or resolve_n_jobs(-1)
    with connected(run, workers) as client, work.on(client):
        screen.line(f"dashboard: {dashboard_of(client) or 'none (the scheduler has none)'}")
        table = evaluate(store, methods, protocol, title=title, run=run, progress=work, client=client, **how)
        for axis in sweeps:
            values = SWEEPS[axis][::3] if protocol.quick else SWEEPS[axis]
            sweep(store, table, axis, values, run=run, progress=work, client=client)
    if "cksc" in methods:
        example_model(store, table, run=RunSpec(workers=workers))
    say_comparison(screen, table, store)
    if report is not None:
        screen.line(f"report: {write_report(store, report, name=name)}")
    return table


def say_comparison(screen: Screen, table: xr.Dataset, store: str) -> None:
    """Print the table of an evaluation, how it came about and where it is."""
    about = table.attrs
    screen.line("")
    screen.line(f"{about['title']}: {about['protocol']}")
    for line in comparison(table):
        screen.line(line)
    screen.line(f"in {in_time(about['seconds'])}; table: {store}, group results/{about['name']}")
