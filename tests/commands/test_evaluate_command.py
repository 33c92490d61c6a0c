"""``cksc evaluate`` as a person types it."""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from distributed import LocalCluster

from cksc_dist import SeriesSet, load_model
from cksc_dist.cli import main
from cksc_dist.commands import evaluate as command
from cksc_dist.commands.evaluate import method_names
from cksc_dist.dist.distances import compute_distances
from cksc_dist.dist.ingest import ingest
from cksc_dist.evaluate import KernelChoices, Protocol, evaluate
from cksc_dist.evaluate.methods import METHODS
from cksc_dist.io import make_gestures
from cksc_dist.spec import DistanceSpec, RunSpec, fingerprint
from tests.small_stores import files_below

DATA = make_gestures(n_per_class=8, n_classes=3, dims=2, length=(6, 12), noise=0.6)
FEW = ("--splits", "2", "--folds", "2", "--sparsity", "2", "--quick")


@pytest.fixture(scope="module")
def cluster() -> Iterator[tuple[str, str]]:
    """The address of a scheduler, and of its dashboard.

    Its worker is a thread of this process: to start others, and to import all there, takes longer than the work.
    """
    with LocalCluster(
        n_workers=1,
        threads_per_worker=2,
        processes=False,
        protocol="tcp",
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        silence_logs=logging.CRITICAL,
    ) as made:
        yield made.scheduler_address, made.dashboard_link


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("template") / "gestures.zarr"
    ingest(DATA, store)
    return store


@pytest.fixture
def store(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template, tmp_path / "gestures.zarr"))


NOBODY = ("--scheduler", "tcp://127.0.0.1:9")
"""Where no scheduler answers: whoever asks it would say so."""


def run(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> str:
    """Run the command, and return what it printed; of one that fails, what is on stderr."""
    capsys.readouterr()
    assert main(["evaluate", *(str(argument) for argument in arguments)]) == code
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return captured.err if code else captured.out


def opened(store: Path, name: str = "evaluation") -> xr.Dataset:
    with xr.open_zarr(store, group=f"results/{name}", consolidated=False) as found:
        return found.load()


def printed(said: str) -> dict[str, list[str]]:
    """Return the words of each line of the table, by method."""
    titles = {method.title: name for name, method in METHODS.items()}
    found = {}
    for line in said.splitlines():
        title = line[:22].strip()
        if title in titles and " +-" in line:
            found[titles[title]] = line[22:].replace("+-", " ").split()
    return found


# the whole of it


def test_from_series_to_a_table_and_a_report(
    store: Path, cluster: tuple[str, str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    address, dashboard = cluster
    report = tmp_path / "gestures.html"
    words = (store, "--method", "svm,cksc,1nn", *FEW, "--scheduler", address, "--title", "Cricket")
    said = run(capsys, *words, "--sweep", "alpha", "--report", report)
    assert f"dashboard: {dashboard}\n" in said
    assert re.match(r"http://127\.0\.0\.1:\d+/status", dashboard)
    assert re.search(r"^distances 1 of 2: 276 pairs in ", said, re.M)
    assert "tuning: 40 fits" in said
    assert re.search(r"^Cricket: 2 stratified splits \(50% training, 50% test, seeds 0 to 1\)", said, re.M)
    assert f"; table: {store}, group results/evaluation\n" in said
    table, lines = opened(store), printed(said)
    assert list(lines) == table["method"].values.tolist() == ["svm", "cksc", "1nn"]
    for method, line in lines.items():
        accuracy = 100 * table.accuracy.sel({"method": method})
        assert line[:2] == [f"{float(accuracy.mean()):.2f}", f"{float(accuracy.std(ddof=1)):.2f}"]
        assert line[2] == ("86.45" if method == "cksc" else "-")  # the paper's figure for Cricket
    assert lines[table.attrs["best"]][-1] == "best"
    # the same numbers as without a cluster and a command
    alone = evaluate(
        store,
        ["svm", "cksc", "1nn"],
        Protocol(2, n_folds=2, quick=True),
        name="alone",
        sparsity=2,
        run=RunSpec(executor="serial"),
    )
    same = ["accuracy", "macro_f1", "objective", "chosen", "confusion", "tuning_accuracy", "p_value"]
    xr.testing.assert_identical(table[same].drop_attrs(), alone[same].drop_attrs())
    # what the report is drawn with
    swept = opened(store, "evaluation-alpha")
    assert swept["alpha"].values.tolist() == list(command.SWEEPS["alpha"][::3])
    assert load_model(store / "models" / "evaluation").sparsity == 2
    assert f"report: {report}\n" in said
    assert "<svg" in report.read_text()

    again = run(capsys, *words)
    assert "40 of 40 fits are done already" in again
    assert "6 of 6 fits are done already" in again
    assert printed(again) == lines  # the seconds of that time, too
    xr.testing.assert_identical(opened(store).drop_attrs(), table.drop_attrs())


# what was typed reaches the work


def typed(monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return what the command hands on."""
    heard: list[Any] = []
    monkeypatch.setattr(command, "compare", lambda *given, **named: heard.append((given, named)))
    assert main(["evaluate", "taps.zarr", *words]) == 0
    ((given, named),) = heard
    return given, named


def test_who_types_nothing_gets_the_paper_s_protocol_and_all_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    (store, methods, protocol, choices, how, _), named = typed(monkeypatch)
    assert (store, methods) == ("taps.zarr", list(METHODS))
    assert protocol == Protocol()
    assert choices == KernelChoices()
    assert (how.scheduler, how.executor) == (None, "dask")
    assert (named["name"], named["sparsity"], named["alpha"]) == ("evaluation", 6, 0.2)
    assert (list(named["sweeps"]), named["report"], named["distances"]) == ([], None, "")


def test_quick_is_less_of_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    assert typed(monkeypatch, "--quick")[0][2] == Protocol.short()
    assert typed(monkeypatch, "--quick", "--splits", "7", "--folds", "4")[0][2] == Protocol(7, n_folds=4, quick=True)


def test_every_option_of_the_protocol(monkeypatch: pytest.MonkeyPatch) -> None:
    words = "--splits 4 --folds 3 --test-size 0.3 --seed 9 --no-tuning --sparsity 8 --alpha 0.15 --name second"
    given, named = typed(monkeypatch, *words.split(), "--method", "KKSVD, svm")
    assert given[1] == ["kksvd", "svm"]
    assert given[2] == Protocol(4, 0.3, 3, 9, quick=False, tune=False)
    assert (named["sparsity"], named["alpha"], named["name"]) == (8, 0.15, "second")


def test_several_values_of_a_kernel_s_setting_are_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    words = "--mode independent dependent --window none 10 0.1 --factor 2 0.5 --bandwidth median 7.5 --normalise z"
    choices = typed(monkeypatch, *words.split())[0][3]
    assert choices.factors == (2.0, 0.5)
    assert choices.bandwidths == ("median", 7.5)
    assert choices.distances == tuple(
        DistanceSpec(mode=mode, window=window, normalise="z")
        for mode in ("independent", "dependent")
        for window in (None, 10, 0.1)
    )


def test_a_matrix_that_is_named_is_taken_as_it_is(
    store: Path, cluster: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    spec = DistanceSpec(window=2)
    for each in (spec, DistanceSpec()):
        compute_distances(store, each, RunSpec(executor="serial"))
    name = fingerprint(spec.resolved())
    before = set(files_below(store / "distances"))
    words = (store, "--method", "svm,1nn", *FEW, "--scheduler", cluster[0])
    run(capsys, *words, "--distances", name[:6])
    assert set(files_below(store / "distances")) == before
    ready = opened(store)
    assert (ready.attrs["distances"], ready.attrs["ready"]) == (name, 1)
    run(capsys, *words, "--window", "2", "--name", "computed")
    computed = opened(store, "computed")
    assert ready.accuracy.sel({"method": "svm"}).equals(computed.accuracy.sel({"method": "svm"}))
    said = run(capsys, *words, "--distances", "zz", code=2)
    assert "(distances zz...) has no such matrix" in said


def test_methods_by_name() -> None:
    assert method_names("all") == list(METHODS)
    assert method_names(" CKSC ,1nn") == ["cksc", "1nn"]


# what cannot be


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--splits", "0"), "'0' is not a whole number of at least 1"),
        (("--folds", "1"), "'1' is not a whole number of at least 2"),
        (("--test-size", "1"), "'1' is not a share between 0 and 1"),
        (("--seed", "-1"), "'-1' is not a whole number of at least 0"),
        (("--mode", "loose"), "argument --mode: invalid choice: 'loose'"),
        (("--window", "wide"), "'wide' is neither frames (10) nor a fraction (0.1)"),
        (("--factor",), "argument --factor: expected at least one argument"),
        (("--sweep", "beta"), "argument --sweep: invalid choice: 'beta'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_words_that_are_no_options(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], text: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["evaluate", "taps.zarr", *words])
    assert ended.value.code == 2
    assert text in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--method", "cksc,forest"), "--method 'forest' is unknown; choose of cksc, kksvd, "),
        (("--method", ""), "--method '' is unknown; choose of cksc"),
        (
            ("--distances", "29", "--window", "0.1"),
            "--distances takes a matrix as it is; leave out --mode, --window and",
        ),
        (("--distances", "29", "--mode", "independent"), "--distances takes a matrix as it is; leave out --mode"),
        (("--method", "svm,svm"), "methods=['svm', 'svm']: give at least one, each once"),
        (("--method", "svm", "--bandwidth", "wide"), "bandwidth='wide': must be one of 'mean', 'median', 'paper'"),
        (("--method", "svm", "--factor", "0"), "factor=0.0: must be a number in (0, 1e+300]"),
        (("--method", "svm", "--window", "-1.5"), "window (as a fraction of the longer series)=-1.5: must be"),
        (("--method", "svm", "--test-size", "0.01"), "the 24 rows cannot be split with test_size=0.01"),
        (("--method", "svm", "--name", "a b"), "name='a b': must be letters, digits"),
        (("--method", "svm", "--name", "../outside"), "name='../outside': must be letters, digits"),
        (("--method", "svm", "--name", 101 * "x"), "'-', '_' and '.', at most 100, and begin with"),
        (("--method", "svm", "--distances", "none"), "(distances none...) has no such matrix; compute one with"),
        (("--method", "cksc", "--alpha", "-1"), "alpha=-1.0: must be a number in [0, 1e+06]"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_options_that_cannot_be_are_told_before_there_is_a_cluster(
    template: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], text: str
) -> None:
    before = files_below(template)
    said = run(capsys, template, *words, *NOBODY, code=2)
    assert said.startswith("cksc: error: ")
    assert text in said
    assert files_below(template) == before


def test_stores_that_cannot_be_evaluated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert f"{tmp_path / 'absent'} is no store" in run(capsys, tmp_path / "absent", *NOBODY, code=2)
    ingest(SeriesSet.from_list(DATA.series), tmp_path / "unlabelled.zarr")
    said = run(capsys, tmp_path / "unlabelled.zarr", *NOBODY, code=2)
    assert "rows have the label '?', which stands for an unknown one" in said
    same = tmp_path / "same.zarr"
    ingest(SeriesSet.from_list([np.ones((9, 2))] * 8, ["a", "b"] * 4), same)
    before = files_below(same)
    assert f"all 8 series of {same} are identical: no distance tells one from" in run(capsys, same, *NOBODY, code=2)
    assert files_below(same) == before


def test_a_scheduler_that_is_none(template: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = run(capsys, template, "--scheduler", "nonsense://nowhere", code=2)
    assert "no scheduler answers at nonsense://nowhere" in said


def test_help_is_enough_to_use_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["evaluate", "--help"])
    assert ended.value.code == 0
    out = re.sub(r"\s+", " ", capsys.readouterr().out)
    for words in (
        "Methods: cksc, kksvd, jksrc, lcnnksc, lpksvd, kgdl, ekdl, and for reference 1nn and svm",
        "kill it whenever you like, run it again, and it goes on where it stopped",
        "--splits N",
        "--quick",
        "--no-tuning",
        "--distances PREFIX",
        "--sweep {alpha,sparsity}",
        "--report FILE",
        "--scheduler ADDR",
        "cksc evaluate taps.zarr --method cksc,svm,1nn --sparsity 8",
    ):
        assert words in out
