"""What an evaluation is drawn with besides its table: CKSC over a parameter, and a model whose decisions are shown."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import xarray as xr
from sklearn.exceptions import ConvergenceWarning

from cksc_dist.dist.progress import Progress
from cksc_dist.errors import SmallClassWarning
from cksc_dist.evaluate.example import Example
from cksc_dist.evaluate.fit_tasks import protocol_tasks
from cksc_dist.evaluate.fit_work import check_data
from cksc_dist.evaluate.fits import run_fits, write_table
from cksc_dist.evaluate.results import BELONGING
from cksc_dist.models.training import Place, train
from cksc_dist.spec import RunSpec
from cksc_dist.store.folder import Folder
from cksc_dist.store.matrix import open_matrix

__all__ = ["ALPHAS", "SPARSITIES", "example_model", "model_url", "sweep"]

ALPHAS = (0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
SPARSITIES = tuple(range(1, 21))


def sweep(
    store: str | Path | Folder,
    table: xr.Dataset,
    axis: str,
    values: Sequence[float],
    *,
    run: RunSpec = RunSpec(),  # noqa: B008  frozen
    progress: Progress | None = None,
    client: Any = None,
) -> xr.Dataset:
    """Return the accuracy of CKSC against one parameter, on the splits of an evaluation, nothing tuned.

    Parameters
    ----------
    table
        Of `evaluate`.
    axis
        ``"alpha"`` or ``"sparsity"``; the other one stays as the evaluation has it.
    values
        Of that parameter.
    """
    folder, about = Folder.of(store), table.attrs
    fixed: dict[str, Any] = {"alpha": about["alpha"], "sparsity": about["sparsity"]} | {axis: list(values)}
    tasks = protocol_tasks(
        open_matrix(folder.url, about["distances"]).labels,
        n_splits=about["n_splits"],
        test_size=about["test_size"],
        grid=fixed,
        random_state=about["random_state"],
    )
    swept = run_fits(
        folder,
        tasks,
        name=f"{about['name']}-{axis}",
        distances=about["distances"],
        data=about.get("data", ""),
        run=run,
        progress=progress,
        client=client,
    )
    swept.attrs |= {name: about[name] for name in BELONGING if name in about}
    write_table(folder, f"{about['name']}-{axis}", swept)
    return swept


def model_url(store: str | Path | Folder, name: str) -> str:
    """Return where `example_model` keeps the model of an evaluation."""
    return f"{Folder.of(store).url}/models/{name}"


def example_model(
    store: str | Path | Folder,
    table: xr.Dataset,
    *,
    place: Place = "memory",
    send_all: bool = False,
    run: RunSpec = RunSpec(),  # noqa: B008  frozen
    progress: Progress | None = None,
    client: Any = None,
) -> str:
    """Train CKSC as tuning chose it for the first split, save it in the store, and return where.

    Training is the same as that of the evaluation: the same rows, the same settings, the same seed.

    Parameters
    ----------
    table
        Of `evaluate`.
    place, send_all, run, progress, client
        As for `train`; none of them changes a bit of the model.
    """
    folder, about = Folder.of(store), table.attrs
    example = Example.of(table)
    model = model_url(folder, about["name"])
    _check_same(folder, about)
    rows = example.rows(open_matrix(folder.url, example.distances).labels)
    with warnings.catch_warnings():
        # what is to be said of small classes and slow ones, the table has said
        warnings.simplefilter("ignore", SmallClassWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        train(
            folder.url,
            model,
            spec=example.spec,
            kernel=example.kernel,
            distances=example.distances,
            rows=rows,
            seed=example.seed,
            place=place,
            send_all=send_all,
            run=run,
            progress=progress,
            client=client,
        )
    _check_same(folder, about)
    return model


def _check_same(folder: Folder, about: dict[str, Any]) -> None:
    """Raise a StoreError unless the data are those of the table; earlier releases did not say which they were."""
    if "data" in about:
        check_data(folder, about["distances"], about["data"])
