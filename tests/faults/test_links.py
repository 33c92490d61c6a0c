"""Nothing is written or removed through a link inside a store; those of a user outside of it lead where they do."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from sklearn.exceptions import ConvergenceWarning

from cksc_dist import load_model
from cksc_dist.cli import main
from cksc_dist.dist.distances import compute_distances
from cksc_dist.dist.ingest import append, ingest
from cksc_dist.errors import StoreError
from cksc_dist.models.training import train
from cksc_dist.spec import ModelSpec, RunSpec
from cksc_dist.store.local_files import check_output
from tests.small_stores import files_below, made_series


@pytest.mark.parametrize("part", ["series", "distances", "ledger"])
def test_nothing_is_written_or_removed_through_a_link_inside_a_store(tmp_path: Path, part: str) -> None:
    """A store may come from anybody, and a link in it may lead anywhere."""
    store, elsewhere = tmp_path / "store", tmp_path / "elsewhere"
    ingest(made_series(20), store)
    compute_distances(store)
    elsewhere.mkdir()
    for path in list((store / part).iterdir()):
        path.rename(elsewhere / path.name)
    (store / part).rmdir()
    (store / part).symlink_to(elsewhere)
    before = files_below(elsewhere)
    with pytest.raises(
        StoreError, match=rf"/{part} is a link, which nothing is written or removed through; put a fold"
    ):
        append(store, made_series(4, prefix="more"))
    assert files_below(elsewhere) == before
    # the store itself may be reached by a link
    (tmp_path / "other").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "other")
    ingest(made_series(20), tmp_path / "link")
    assert (tmp_path / "other" / "zarr.json").exists()


@pytest.fixture
def linked(tmp_path: Path) -> tuple[Path, Path]:
    """A store with distances, and a model of somebody elsewhere."""
    store, elsewhere = tmp_path / "store", tmp_path / "elsewhere"
    ingest(made_series(20), store)
    compute_distances(store)
    elsewhere.mkdir()
    train_quickly(store, elsewhere / "mine")
    return store, elsewhere


def train_quickly(store: Path, model: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        train(store, model, spec=ModelSpec(sparsity=2, max_iter=1), place="memory", run=RunSpec(executor="serial"))


LINK = "is a link, which nothing is written or removed through; put a folder in its place"


@pytest.mark.parametrize("part", ["models", "models/m", "models/m.training"])
def test_no_model_is_written_through_a_link_inside_a_store(linked: tuple[Path, Path], part: str) -> None:
    store, elsewhere = linked
    (store / part).parent.mkdir(exist_ok=True)
    (store / part).symlink_to(elsewhere / "mine" if part == "models/m" else elsewhere)
    before = files_below(elsewhere)
    with pytest.raises(StoreError, match=f"/{part} {LINK}"):
        train_quickly(store, store / "models" / "m")
    if part != "models/m.training":
        with pytest.raises(StoreError, match=f"/{part} {LINK}"):
            load_model(elsewhere / "mine").save(store / "models" / "m")
    assert files_below(elsewhere) == before
    assert sorted(path.name for path in elsewhere.iterdir()) == ["mine", "mine.training"]


def test_an_evaluation_is_refused_before_it_begins_where_its_model_is_a_link(
    linked: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    store, elsewhere = linked
    (store / "models").mkdir()
    (store / "models" / "evaluation").symlink_to(elsewhere / "mine")
    before = files_below(elsewhere)
    assert main(["evaluate", str(store), "--method", "cksc", "--quick"]) == 2
    assert LINK in capsys.readouterr().err
    assert files_below(elsewhere) == before
    assert not (store / "fits").exists()


def test_a_report_is_not_written_through_a_link_inside_a_store(linked: tuple[Path, Path]) -> None:
    store, elsewhere = linked
    (elsewhere / "mine.html").write_text("mine")
    (store / "report.html").symlink_to(elsewhere / "mine.html")
    with pytest.raises(StoreError, match=f"/report.html {LINK}"):
        check_output(store / "report.html")


def test_a_store_that_a_link_leads_to_makes_it_no_folder(linked: tuple[Path, Path]) -> None:
    store, elsewhere = linked
    ingest(made_series(4), elsewhere / "store")
    (store / "models").symlink_to(elsewhere / "store")
    with pytest.raises(StoreError, match=f"/models {LINK}"):
        train_quickly(store, store / "models" / "m")


def test_links_of_a_user_outside_of_stores_lead_where_they_do(linked: tuple[Path, Path], tmp_path: Path) -> None:
    store, elsewhere = linked
    before = files_below(elsewhere / "mine")
    for link, target in (("to-model", elsewhere / "mine"), ("to-folder", elsewhere), ("to-store", store)):
        (tmp_path / link).symlink_to(target)
    load_model(elsewhere / "mine").save(tmp_path / "to-model")
    assert (tmp_path / "to-model").is_symlink()
    assert files_below(elsewhere / "mine").keys() == before.keys()
    for model in (tmp_path / "to-folder" / "other", tmp_path / "to-store" / "models" / "m"):
        train_quickly(store, model)
        assert load_model(model).n_iter_ == 1
