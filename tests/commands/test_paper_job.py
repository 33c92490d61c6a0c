"""The jobs of the paper's data sets as a user starts them, on small files in the form of the published ones."""

from __future__ import annotations

import logging
import os
import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from distributed import LocalCluster
from scipy.io import savemat

from cksc_dist import pairwise_dtw
from cksc_dist.commands.paper_job import SETS, source_of
from cksc_dist.errors import InputError
from cksc_dist.evaluate.paper import TABLE1, TABLE2
from cksc_dist.io import make_gestures
from tests.small_stores import files_below

JOBS = Path(__file__).resolve().parents[2] / "jobs"
DATA = make_gestures(n_per_class=8, n_classes=3, dims=2, length=(6, 12), noise=0.6)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Of a scheduler whose worker is a thread of this process: others would take longer to start than to work."""
    with LocalCluster(
        n_workers=1,
        threads_per_worker=2,
        processes=False,
        protocol="tcp",
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        silence_logs=logging.CRITICAL,
    ) as cluster:
        yield cluster.scheduler_address


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with Cricket, as its authors published it."""
    folder = tmp_path_factory.mktemp("published")
    (folder / "Cricket").mkdir()
    signs, numbers = np.empty(len(DATA), dtype=object), np.unique(DATA.labels, return_inverse=True)[1] + 1
    signs[:] = [{"data": values, "class": int(number)} for values, number in zip(DATA, numbers, strict=True)]
    matrix = np.asarray(pairwise_dtw(DATA, window=2))
    matrix += 1e-9 * np.triu(matrix, 1)  # theirs is not quite symmetric either
    savemat(folder / SETS["Cricket"], {"data_all": signs, "list_labels": numbers, "alldistances": matrix})
    return folder


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs write where they are started, and look for data where a variable says."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CKSC_DATA", raising=False)


def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, job: str, *words: object) -> str:
    """Run a job, and return what it printed; of one that fails, what is on stderr."""
    capsys.readouterr()
    monkeypatch.setattr(sys, "argv", [f"{job}.py", *(str(word) for word in words)])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(JOBS / f"{job}.py"), run_name="__main__")
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    if ended.value.code:
        assert ended.value.code == 2
        return said.err
    return said.out


def table_of(store: Path) -> xr.Dataset:
    with xr.open_zarr(store, group="results/evaluation", consolidated=False) as found:
        return found.load()


def rows_of(said: str) -> list[str]:
    return re.findall(r"^(?:CKSC|SVM|1-NN).* \+-.*$", said, re.M)


@pytest.mark.slow
def test_a_job_runs_from_file_to_report_and_goes_on_where_it_stopped(
    published: Path, address: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    words = ("--data", published, "--quick", "--method", "cksc,svm", "--seed", "2", "--scheduler", address)
    said = run(capsys, monkeypatch, "run_cricket", *words)
    assert re.search(r"^Cricket: .*24 series", said, re.M)
    assert re.search(r"^dashboard: http://127\.0\.0\.1:\d+/status$", said, re.M)
    assert "report: cricket.html\n" in said
    assert "<svg" in (tmp_path / "cricket.html").read_text()
    table = table_of(tmp_path / "cricket.zarr")
    assert table.sizes["split"] == 3
    about = table.attrs
    assert (about["title"], about["random_state"], about["quick"]) == ("Cricket", 2, 1)
    assert (about["sparsity"], about["alpha"]) == tuple(TABLE1["Cricket"])
    rows = rows_of(said)
    assert len(rows) == 2
    assert f" {TABLE2['Cricket']['cksc']:.2f} " in rows[0]
    # given as the data set itself, or by the variable: the same, and done
    again = run(capsys, monkeypatch, "run_cricket", "--data", published / SETS["Cricket"], *words[2:])
    assert "72 of 72 fits are done already" in again
    assert rows_of(again) == rows
    monkeypatch.setenv("CKSC_DATA", str(published))
    untuned = run(capsys, monkeypatch, "run_cricket", *words[2:], "--no-tuning")
    assert "nothing is tuned" in untuned
    assert table_of(tmp_path / "cricket.zarr").attrs["tuned"] == 0


@pytest.mark.slow
def test_the_authors_own_distances_are_taken_as_they_are(
    published: Path, address: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    words = ("--data", published, "--quick", "--method", "svm,jksrc,1nn", "--authors-distances")
    said = run(capsys, monkeypatch, "run_cricket", *words, "--scheduler", address)
    assert "Cricket, by the authors' own distances" in said
    table = table_of(tmp_path / "cricket-authors.zarr")
    assert table.attrs["ready"] == 1
    assert table["method"].values.tolist() == ["svm", "1nn"]  # jksrc would need a kernel a dimension
    assert all('"factor": 1.0' in text for text in table.settings.sel({"method": "svm"}).values if text)
    assert not (tmp_path / "cricket.zarr").exists()
    # the matrix is there already, and so are the fits
    again = run(capsys, monkeypatch, "run_cricket", *words, "--scheduler", address)
    assert "27 of 27 fits are done already" in again
    assert rows_of(again) == rows_of(said)


@pytest.mark.slow
def test_the_paper_s_table_goes_into_a_readme(
    published: Path, address: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    words = ("--data", published, "--quick", "--method", "svm,1nn", "--sets", "Cricket", "--scheduler", address)
    readme = tmp_path / "README.md"
    readme.write_text("# No place\n")
    said = run(capsys, monkeypatch, "run_table2", *words, "--readme", readme)
    assert "run_table2: error: " in said
    assert "README.md has no place for the table: <!-- table 2 --> and <!-- end of table 2 -->" in said
    assert list(files_below(tmp_path)) == ["README.md"]  # told before anything is done
    readme.write_text("before\n<!-- table 2 -->\nold\n<!-- end of table 2 -->\nafter\n")
    said = run(capsys, monkeypatch, "run_table2", *words, "--readme", readme)
    head, _, rest = readme.read_text().partition("<!-- table 2 -->\n")
    table, _, tail = rest.partition("<!-- end of table 2 -->")
    assert (head, tail) == ("before\n", "\nafter\n")
    assert table.startswith("| | Cricket |\n|---|---|\n| 1-NN on the distance | ")
    assert table in said
    assert (tmp_path / "table2" / "cricket.html").exists()
    assert table_of(tmp_path / "table2" / "cricket.zarr").attrs["title"] == "Cricket"


# where data sets lie


def test_every_set_has_the_paper_s_parameters_and_a_job() -> None:
    assert set(SETS) == set(TABLE1) - {"DynTex++"}
    for title in SETS:
        assert f'main("{title}", __doc__' in (JOBS / f"run_{title.lower()}.py").read_text()


@pytest.mark.parametrize("title", SETS)
def test_a_set_lies_in_the_folder_of_all_or_where_it_is_said(
    title: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    assert source_of(title, str(own)) == own
    inside = tmp_path / "all" / SETS[title]
    inside.mkdir(parents=True)
    assert source_of(title, str(tmp_path / "all")) == inside
    monkeypatch.setenv("CKSC_DATA", str(tmp_path / "all"))
    assert source_of(title, None) == inside
    assert source_of(title, str(own)) == own  # what is said counts


def test_a_set_that_is_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="Words: give its path with --data, or set CKSC_DATA to the folder"):
        source_of("Words", None)
    with pytest.raises(InputError, match=r"Words: .*nowhere does not exist; give the data set with --data"):
        source_of("Words", str(tmp_path / "nowhere"))
    monkeypatch.setenv("CKSC_DATA", str(tmp_path / "gone"))
    with pytest.raises(InputError, match=r"Words: .*gone does not exist"):
        source_of("Words", None)


@pytest.mark.parametrize("job", ["run_cricket", "run_words", "run_utkinect", "run_schunk", "run_table2"])
def test_every_job_says_what_is_wrong_before_it_writes_anything(
    job: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said = run(capsys, monkeypatch, job)
    assert re.match(rf"{job}: error: \w+: give its path with --data, or set CKSC_DATA", said)
    said = run(capsys, monkeypatch, job, "--data", "nowhere")
    assert re.match(rf"{job}: error: \w+: nowhere does not exist", said)
    said = run(capsys, monkeypatch, job, "--method", "forest", "--data", tmp_path)
    assert said.startswith(f"{job}: error: --method 'forest' is unknown; choose of cksc, ")
    (tmp_path / "notes.txt").write_text("nothing to read")
    said = run(capsys, monkeypatch, job, "--data", tmp_path / "notes.txt")
    assert said.startswith(f"{job}: error: ")
    assert "notes.txt" in said
    assert os.listdir(tmp_path) == ["notes.txt"]
