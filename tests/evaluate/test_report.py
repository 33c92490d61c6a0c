"""The report: all numbers of the table, every part of the model, and no word of the data that becomes markup."""

from __future__ import annotations

import json
import re
import shutil
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from sklearn.exceptions import ConvergenceWarning

from cksc_dist import CKSC, DistanceKernel, SeriesSet, load_model, pairwise_dtw
from cksc_dist.dist.distances import compute_distances
from cksc_dist.dist.ingest import ingest, ingest_distances
from cksc_dist.errors import InputError, ModelFileError, StoreError
from cksc_dist.evaluate import KernelChoices, Protocol, SplitRows, evaluate
from cksc_dist.evaluate import page as pieces
from cksc_dist.evaluate.extras import example_model, sweep
from cksc_dist.evaluate.fits import write_table
from cksc_dist.evaluate.methods import METHODS
from cksc_dist.evaluate.model_sections import decision_section
from cksc_dist.evaluate.paper import TABLE2
from cksc_dist.evaluate.report import write_joint_report, write_report
from cksc_dist.evaluate.results import Evaluation, find_evaluations
from cksc_dist.io import make_gestures
from cksc_dist.models import KKSVD
from cksc_dist.models.training import train
from cksc_dist.spec import DistanceSpec, ModelSpec, RunSpec
from cksc_dist.store.folder import Folder
from cksc_dist.store.local_files import replacing
from tests.small_stores import flip_bit

SERIAL = RunSpec(executor="serial")
HOSTILE = '<b>&"$x$'
CLASSES = [HOSTILE, "中文", "a name that goes on and on, and has no end at all", "</td></svg><script>alert(1)</script>"]
TITLE = "<script>alert('title')</script> & \"others\""
IDS = '<img src="http://192.0.2.1/pixel.png" onerror="alert(2)">'
METHODS_RUN = ["cksc", "kksvd", "1nn", "svm"]
VOID = {"meta", "img", "br", "hr", "input", "link"}


def hostile_data() -> SeriesSet:
    """Return series whose names would be markup, a formula and a script, if anything took them for such."""
    data = make_gestures(n_per_class=8, n_classes=4, length=(14, 22), noise=0.7)
    labels = [CLASSES[int(str(label)[-1])] for label in data.labels]
    return SeriesSet.from_list(data.series, labels, [f"{IDS}{i}" for i in range(len(data))], name="hostile")


def made_evaluation(base: Path) -> Path:
    """Return a store with two evaluations, made once for all tests; it must not be changed."""
    store = base / "hostile.zarr"
    if store.exists():
        return store
    growing = base / "growing.zarr"
    ingest(hostile_data(), growing)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        protocol = Protocol(2, n_folds=2, quick=True)
        table = evaluate(growing, METHODS_RUN, protocol, name="first", title=TITLE, sparsity=3, run=SERIAL)
        sweep(growing, table, "alpha", (0.05, 0.2, 0.8), run=SERIAL)
        sweep(growing, table, "sparsity", (1, 2, 4), run=SERIAL)
        example_model(growing, table, run=RunSpec(workers=1))
        evaluate(growing, ["svm", "cksc"], protocol, name="second", title="Words", sparsity=2, run=SERIAL)
    return growing.rename(store)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_evaluation(tmp_path_factory.getbasetemp())


@pytest.fixture
def store(template: Path, tmp_path: Path) -> Path:
    """A store that a test may change."""
    return Path(shutil.copytree(template, tmp_path / "store.zarr"))


class Read(HTMLParser):
    """What a browser would make of a page: its elements with their text, and that none is left open."""

    def __init__(self, content: str) -> None:
        super().__init__(convert_charrefs=True)
        self.opened: list[tuple[str, dict[str, str | None]]] = []
        self.elements: list[tuple[str, str]] = []
        self._stack: list[tuple[str, list[str]]] = []
        self.feed(content)
        self.close()
        assert not self._stack, f"left open: {[tag for tag, _ in self._stack]}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.opened.append((tag, dict(attrs)))
        if tag not in VOID:
            self._stack.append((tag, []))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.opened.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        last, parts = self._stack.pop()
        assert last == tag
        text = "".join(parts)
        self.elements.append((tag, text))
        if self._stack:
            self._stack[-1][1].append(text)

    def handle_data(self, data: str) -> None:
        if self._stack:
            self._stack[-1][1].append(data)

    def texts(self, tag: str) -> list[str]:
        return [text for name, text in self.elements if name == tag]

    @property
    def tags(self) -> Counter[str]:
        return Counter(tag for tag, _ in self.opened)

    @property
    def rows(self) -> list[list[str]]:
        """Return the cells of all rows of all tables, in order."""
        found: list[list[str]] = []
        cells: list[str] = []
        for tag, text in self.elements:
            if tag in ("td", "th"):
                cells.append(" ".join(text.split()))
            elif tag == "tr":
                found.append(cells)
                cells = []
        return found


@pytest.fixture(scope="module")
def written(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(template, tmp_path_factory.mktemp("written") / "report.html", name="first")


@pytest.fixture(scope="module")
def report(written: Path) -> Read:
    return Read(written.read_text())


@pytest.fixture(scope="module")
def second(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Read:
    """The report with the other evaluation first, which keeps no model."""
    return Read(write_report(template, tmp_path_factory.mktemp("second") / "report.html", name="second").read_text())


def tables(store: Path) -> dict[str, xr.Dataset]:
    found = {}
    for name in ("first", "second"):
        with xr.open_zarr(store, group=f"results/{name}", consolidated=False) as opened:
            found[name] = opened.load()
    return found


# the pieces of a page


@pytest.mark.parametrize(
    ("made", "tag"),
    [
        (pieces.heading(2, HOSTILE), "h2"),
        (pieces.text(HOSTILE, "note"), "p"),
        (pieces.details(HOSTILE, ""), "summary"),
        (pieces.cards([(HOSTILE, "what")]), "b"),
        (pieces.cards([("what", HOSTILE)]), "span"),
        (pieces.definitions([(HOSTILE, "what")]), "dt"),
        (pieces.definitions([("what", HOSTILE)]), "dd"),
        (pieces.table([HOSTILE], []), "th"),
        (pieces.table(["name"], [[pieces.Cell(HOSTILE)]]), "td"),
        (pieces.table(["name"], [[pieces.Cell("", HOSTILE)]]), "small"),
        (pieces.pictures([pieces.Picture(HOSTILE, "", [])]), "b"),
        (pieces.pictures([pieces.Picture("", HOSTILE, [])]), "figcaption"),
        (pieces.page(HOSTILE, []), "title"),
    ],
)
def test_a_text_is_never_markup(made: str, tag: str) -> None:
    read = Read(made)
    assert HOSTILE in read.texts(tag)
    assert HOSTILE not in made


def test_what_no_page_may_hold_has_a_sign_in_its_place() -> None:
    for character in ("\x00", "\x1b", "\x7f", "\ud800", "\uffff"):
        assert Read(pieces.heading(1, f"a{character}b")).texts("h1") == ["a\ufffdb"]
    assert Read(pieces.heading(1, "a\tb\nü中😀")).texts("h1") == ["a\tb\nü中😀"]


def test_a_picture_has_all_its_drawings_and_its_name_for_those_who_hear() -> None:
    for size in ("one", "small", "medium", "beside"):
        read = Read(pieces.Picture(HOSTILE, "told", ["<svg></svg>"] * 3, size).html())  # type: ignore[arg-type]
        assert read.tags["svg"] == 3
        assert read.opened[0][0] == "figure"
        assert read.opened[0][1]["aria-label"] == HOSTILE
        assert read.texts("figcaption") == [f"{HOSTILE}told"]


def test_a_bar_is_as_long_as_its_share_and_never_longer_than_its_place() -> None:
    for share, width in ((0.25, "25.0%"), (-1.0, "0.0%"), (7.0, "100.0%")):
        assert f'style="width:{width}"' in pieces.Cell("x", share=share).html()
    assert "bar" not in pieces.Cell("x").html()


def test_what_is_empty_takes_no_room() -> None:
    assert pieces.pictures([]) == pieces.text("") == ""


def test_a_page_forbids_whatever_might_come_in() -> None:
    read = Read(pieces.page("title", []))
    (policy,) = [about["content"] for tag, about in read.opened if about.get("http-equiv") == "Content-Security-Policy"]
    assert policy == "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    assert ("meta", {"charset": "utf-8"}) in read.opened
    assert ("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}) in read.opened


# the report of a store


def test_the_report_runs_nothing_and_fetches_nothing(report: Read, written: Path) -> None:
    assert not set(report.tags) & {"script", "img", "link", "iframe", "object", "embed", "form", "base", "image"}
    for tag, about in report.opened:
        for key, value in about.items():
            assert not key.startswith("on")
            if key in ("src", "href", "srcset", "data", "action", "xlink:href"):
                assert str(value).startswith("#"), (tag, key, value)
            if key in ("style", "clip-path"):
                assert "//" not in str(value)
    addresses = {about["xmlns"] for _, about in report.opened if "xmlns" in about}
    assert addresses == {"http://www.w3.org/2000/svg"}
    # what else looks like an address is what a series is called
    found = Counter(re.findall(r"https?://[\w.]+", written.read_text()))
    assert set(found) == {"http://www.w3.org", "http://192.0.2.1"}
    assert "@import" not in written.read_text()
    assert len([1 for _, about in report.opened if about.get("http-equiv") == "Content-Security-Policy"]) == 1


def test_hostile_names_are_shown_as_they_are(report: Read) -> None:
    title = f"{TITLE}: a comparison of kernel sparse coding methods"
    assert report.texts("h1") == [title]
    assert report.texts("title")[0] == title
    drawn = Counter(report.texts("text"))
    assert drawn[HOSTILE] >= 4  # confusion matrix and embeddings
    assert drawn["中文"] >= 4
    assert any(text.startswith("a name") and "…" in text for text in drawn)
    assert any(text.startswith("</td>") for text in drawn)
    captions = " ".join(report.texts("figcaption"))
    assert IDS in captions
    assert any(name in captions for name in CLASSES)


def test_no_two_elements_share_an_id(report: Read) -> None:
    found = Counter(about["id"] for _, about in report.opened if "id" in about)
    assert len(found) > 20
    assert max(found.values()) == 1


def test_the_table_has_the_numbers_of_the_evaluation(report: Read, template: Path) -> None:
    table = tables(template)["first"]
    header, *rows = report.rows[:5]
    assert header[:4] == ["method", "accuracy %", "macro F1", "IP"]  # the paper has no such data
    assert header[-2:] == ["against best", "corrected p"]
    assert [row[0] for row in rows] == [METHODS[name].title for name in METHODS_RUN]
    for method, row in zip(METHODS_RUN, rows, strict=True):
        of = table.sel({"method": method})
        accuracy = [100 * float(value) for value in of.accuracy.values]
        spread = np.sqrt(sum((value - np.mean(accuracy)) ** 2 for value in accuracy) / (len(accuracy) - 1))
        assert row[1] == f"{np.mean(accuracy):.1f} ± {spread:.1f}"
        assert row[2] == f"{100 * float(of.macro_f1.mean()):.1f}"
        ip = float(of.interpretability.mean())
        assert row[3] == ("" if np.isnan(ip) else f"{ip:.2f}")
        if method == table.attrs["best"]:
            assert row[-2:] == ["best", ""]
        else:
            p = float(of.p_value)
            assert row[-2] == f"{'worse' if p < 0.05 else 'level'}, p {'< 0.001' if p < 0.001 else f'{p:.3f}'}"
            assert row[-1] == f"{float(of.p_corrected):.3f}"
    assert sum(row[-2] == "best" for row in rows) == 1


def test_the_figures_of_the_paper_stand_beside_ours(second: Read) -> None:
    read = second
    assert read.texts("h1") == ["Words: a comparison of kernel sparse coding methods"]
    assert read.rows[0][:3] == ["method", "accuracy %", "paper"]
    rows = {row[0]: row for row in read.rows[:3]}
    assert rows["CKSC"][2] == f"{TABLE2['Words']['cksc']:.1f}" == "98.8"
    assert rows["SVM on the kernel"][2] == ""
    assert any("in the paper 98.8\u00a0%" in text for text in read.texts("span"))
    assert "the diamond the paper's figure" in " ".join(read.texts("figcaption"))


def test_what_is_ours_stands_out_and_references_are_set_apart(report: Read, second: Read) -> None:
    for read, kinds in ((report, ["own", "", "apart", ""]), (second, ["own", "apart"])):
        found = [about["class"] for tag, about in read.opened if tag == "tr" and "class" in about]
        assert found[: len(kinds)] == kinds


def test_a_small_p_value_is_not_called_zero(store: Path) -> None:
    shutil.rmtree(store / "models" / "first")  # drawing it takes longest
    table = tables(store)["first"]
    other = next(name for name in METHODS_RUN if name != table.attrs["best"])
    table.p_value.loc[{"method": other}] = 1e-9
    table.p_corrected.loc[{"method": other}] = 2e-4
    write_table(Folder(store), "first", table)
    rows = {row[0]: row for row in Read(write_report(store, store / "r.html", name="first").read_text()).rows[:5]}
    assert rows[METHODS[other].title][-2:] == ["worse, p < 0.001", "< 0.001"]


def test_every_part_is_there_and_in_its_order(report: Read) -> None:
    assert report.texts("h2") == [
        "The methods",
        "Which classes are taken for which",
        "What CKSC has learnt",
        "Single decisions, and why",
        "Settings and versions",
        "Another evaluation: second",
    ]
    captions = [text for tag, text in report.elements if tag == "b"]
    wanted = [
        "Accuracy of every split",
        "Interpretability of the atoms",
        "Accuracy against alpha",
        "Accuracy against T0",
        "CKSC",
        "The others",
        "The objective J",
        "The codes of the training series",
        "Atoms, and the training series that they are made of",
        "The codes of series that were held out",
        "What it is rebuilt from",
    ]
    places = [captions.index(title) for title in wanted]
    assert places == sorted(places)


def test_every_part_is_drawn(report: Read, template: Path) -> None:
    """One drawing each of accuracy, IP and two sweeps; a matrix a method; J and two embeddings; atoms; decisions."""
    model = load_model(template / "models" / "first")
    atoms = min(12, model.dictionary_.shape[1])
    examples = report.texts("h3")
    assert examples == ["A sure decision", "Right, but not sure", "A wrong decision"]
    names = [str(about.get("aria-label")) for tag, about in report.opened if tag == "svg"]
    assert len([name for name in names if name.startswith("confusion matrix")]) == len(METHODS_RUN)
    assert len([name for name in names if name.startswith("atom ")]) == atoms
    assert len([name for name in names if name.startswith("class shares of ")]) == len(examples)
    rebuilt = [name for name in names if " and " in name and IDS in name]
    assert len(examples) <= len(rebuilt) <= 3 * len(examples)
    assert len(names) == 4 + len(METHODS_RUN) + 3 + atoms + len(examples) + len(rebuilt)


def test_decisions_are_those_of_the_model_on_rows_that_it_was_not_trained_on(report: Read, template: Path) -> None:
    model = load_model(template / "models" / "first")
    data = hostile_data()
    test = SplitRows(0).draw(data.labels)[1]
    labels, confidence, _ = model.decisions([data[int(row)] for row in test])
    known = {
        f"{data.ids[row]}, of class {data.labels[row]}: decided {label} with {share:.0%}": (
            label == data.labels[row],
            share,
        )
        for row, label, share in zip(test, labels, confidence, strict=True)
    }
    told = [text for tag, text in report.elements if tag == "b" and text in known]
    assert len(told) == 3
    (sure, sure_share), (unsure, unsure_share), (wrong, _) = (known[text] for text in told)
    assert [sure, unsure, wrong] == [True, True, False]
    assert sure_share >= unsure_share == min(share for right, share in known.values() if right)
    mistakes = sum(not right for right, _ in known.values())
    assert f"a ring marks the {mistakes} of {len(test)} that are decided wrongly" in " ".join(
        report.texts("figcaption")
    )


def test_settings_and_versions_are_told(report: Read, template: Path) -> None:
    table = tables(template)["first"]
    items = dict(zip(report.texts("dt"), report.texts("dd"), strict=True))
    assert [items[key] for key in ("n splits", "n folds", "test size", "sparsity")] == ["2", "2", "0.5", "3"]
    for name, version in json.loads(table.attrs["versions"]).items():
        assert items[name] == version
    row = table.sel({"method": "cksc"})
    chosen = [json.loads(str(row.settings.values[int(at)])) for at in row.chosen.values]
    for settings in chosen:
        for name, value in settings.items():
            assert f"{name} {value}" in items["CKSC"]
    assert "the defaults" in items["1-NN on the distance"] or "window" in items["1-NN on the distance"]


def test_all_evaluations_are_shown_and_the_named_one_comes_first(report: Read, second: Read) -> None:
    for read, other in ((report, "second"), (second, "first")):
        assert [text for text in read.texts("h2") if "Another" in text] == [f"Another evaluation: {other}"]
        assert sum(row[0] != "method" for row in read.rows) == len(METHODS_RUN) + 2
    assert [row[0] for row in second.rows] == [row[0] for row in report.rows[-3:] + report.rows[:5]]


def test_without_a_name_the_newest_comes_first(store: Path) -> None:
    shutil.rmtree(store / "models" / "first")  # drawing it takes longest
    tables = {each.name: each.table for each in find_evaluations(Folder(store))}
    for newest in ("first", "second"):
        for name, table in tables.items():
            write_table(Folder(store), name, table.assign_attrs(written=2e9 if name == newest else 1e9))
        read = Read(write_report(store, store / "report.html").read_text())
        assert read.texts("h1")[0].startswith(TITLE if newest == "first" else "Words")


def test_the_report_has_the_same_bytes_whenever_it_is_written(template: Path, written: Path, tmp_path: Path) -> None:
    again = write_report(str(template), str(tmp_path / "again.html"), name="first")
    assert again == tmp_path / "again.html"
    assert again.read_bytes() == written.read_bytes()


# what is not there, or damaged


def test_a_damaged_model_is_told_and_the_rest_is_shown(store: Path) -> None:
    (chunk,) = (store / "models" / "first" / "codes_values").glob("c/*")
    flip_bit(chunk)
    read = Read(write_report(store, store / "report.html", name="first").read_text())
    assert re.search(
        r"The model that is kept is not shown: it cannot be read: .*models/first is damaged", " ".join(read.texts("p"))
    )
    assert not read.texts("h3")
    assert "Settings and versions" in read.texts("h2")


def told_of(store: Path, model: Any) -> str:
    """Return what stands in the place of decisions that cannot be drawn."""
    (note,) = decision_section(Folder(store), model, SplitRows(0))
    return "".join(Read(note).texts("p"))


def test_a_matrix_that_is_gone_is_told(store: Path) -> None:
    model = load_model(store / "models" / "first")
    shutil.rmtree(store / "distances" / model.origin_["matrix"])
    assert told_of(store, model).startswith("Decisions are not drawn: ")


def test_a_model_of_other_series_is_told(template: Path, tmp_path: Path) -> None:
    data = make_gestures(4, 2, length=(8, 10))
    alone = CKSC(sparsity=2, kernel="dtw", tol=0.1, random_state=0).fit(data, data.labels)
    assert told_of(template, alone) == "Decisions are not drawn: the model was not trained on a store"
    ingest(data, tmp_path / "other")
    compute_distances(tmp_path / "other", run=SERIAL)
    other = train(tmp_path / "other", tmp_path / "model", spec=ModelSpec(sparsity=2, tol=0.1)).model
    assert re.match("Decisions are not drawn: the model was not trained on .*DistanceMatrix", told_of(template, other))


def refused(source: Path, words: str, error: type[Exception] = StoreError, **options: Any) -> None:
    """The error has these words, and nothing was written: neither a report nor a folder for it."""
    target = source.parent / "new" / "report.html"
    with pytest.raises(error, match=words):
        write_report(source, target, **options)
    assert not target.parent.exists()


def test_a_store_without_an_evaluation_says_how_to_make_one(tmp_path: Path) -> None:
    ingest(make_gestures(2, 2), tmp_path / "store")
    refused(tmp_path / "store", "store holds no evaluation to report; make one with: cksc evaluate")


def test_an_evaluation_that_is_not_there_is_told(template: Path) -> None:
    refused(template, "has no evaluation 'third'; it has first, second", name="third")


def test_what_is_neither_a_store_nor_a_model_is_told(tmp_path: Path) -> None:
    refused(tmp_path / "nowhere", "nowhere is neither a store nor a saved model; give the folder of one")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file.txt").write_text("mine")
    refused(
        tmp_path / "folder", r"can be read neither as a model \(.*is no saved model.*nor as a store \(.*something else"
    )


@pytest.fixture
def model(tmp_path: Path) -> Path:
    data = make_gestures(4, 2, dims=2, length=(8, 10))
    CKSC(sparsity=2, kernel="dtw", tol=0.1, random_state=0).fit(data, data.labels).save(tmp_path / "model")
    return tmp_path / "model"


def test_a_damaged_model_alone_is_a_named_error(model: Path) -> None:
    (chunk,) = (model / "codes_values").glob("c/*")
    content = chunk.read_bytes()
    flip_bit(chunk)
    refused(model, "model is damaged", ModelFileError)
    chunk.write_bytes(content)
    (model / "zarr.json").write_bytes((model / "zarr.json").read_bytes()[:100])
    refused(model, "can be read neither as a model")


def test_a_model_of_another_release_is_told(model: Path) -> None:
    about = json.loads((model / "zarr.json").read_text())
    about["attributes"]["version"] = 99
    (model / "zarr.json").write_text(json.dumps(about))
    refused(model, "has version 99, but this release reads version")


def test_a_model_has_no_evaluation_to_name(model: Path) -> None:
    refused(
        model, "model is a model, which has no evaluation 'first'; give the store, or no name", InputError, name="first"
    )


def test_a_report_is_written_whole_or_not_at_all(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "report.html"
    target.write_text("the last one")
    before = sorted(tmp_path.iterdir())

    @contextmanager
    def full(target: Path) -> Iterator[Any]:
        with replacing(target) as stream:
            stream.write("half")
            raise OSError(28, "No space left on device")
            yield stream

    with monkeypatch.context() as patch:
        patch.setattr("cksc_dist.evaluate.report.replacing", full)
        with pytest.raises(StoreError, match=r"report\.html cannot be written .*No space left.* make room"):
            write_report(model, target)
    assert target.read_text() == "the last one"
    assert sorted(tmp_path.iterdir()) == before
    write_report(model, target)
    assert Read(target.read_text()).texts("h1") == ["CKSC model model"]
    assert sorted(tmp_path.iterdir()) == before


def test_a_folder_in_the_way_is_an_error_and_nothing_is_left_beside_it(model: Path, tmp_path: Path) -> None:
    (tmp_path / "report.html").mkdir()
    before = sorted(tmp_path.iterdir())
    with pytest.raises(InputError, match=r"report\.html' is a folder; give the name of a file to write"):
        write_report(model, tmp_path / "report.html")
    assert sorted(tmp_path.iterdir()) == before


# the report of a model


def fitted(method: Any, kernel: str) -> Any:
    data = hostile_data()[:16]
    X: Any = data
    if kernel == "precomputed":
        X = DistanceKernel().fit_transform(pairwise_dtw(data))
    elif kernel == "rbf":
        X = np.array([series.mean(axis=0) for series in data])
    return method(sparsity=2, kernel=kernel, random_state=0, tol=0.1).fit(X, data.labels)


@pytest.mark.parametrize(
    ("method", "kernel", "drawn"),
    [
        (CKSC, "dtw", ["objective", "embedding", "atom"]),
        (CKSC, "precomputed", ["objective", "embedding"]),
        (CKSC, "rbf", ["objective", "embedding"]),
        (KKSVD, "dtw", ["embedding", "atom"]),
        (KKSVD, "precomputed", ["embedding"]),
    ],
)
def test_a_model_alone_shows_what_it_has_learnt(method: Any, kernel: str, drawn: list[str], tmp_path: Path) -> None:
    model = fitted(method, kernel)
    model.save(tmp_path / "mine")
    read = Read(write_report(tmp_path / "mine", tmp_path / "report.html").read_text())
    name = method.__name__
    assert read.texts("h1") == [f"{name} model mine"]
    assert read.texts("h2") == ["What it has learnt", "Settings"]
    k = model.dictionary_.shape[1]
    cards = dict(zip(read.texts("span"), read.texts("b"), strict=False))
    assert [cards[key] for key in ("method", "classes", "atoms")] == [name, "2", str(k)]
    assert cards["training samples carry weight"] == f"{len(model.support_)} of 16"
    assert cards["mean interpretability IP"] == f"{model.interpretability_.mean():.2f}"
    names = [str(about["aria-label"]) for tag, about in read.opened if tag == "svg"]
    assert list(dict.fromkeys(name.split()[0] for name in names)) == drawn
    assert sum(name.startswith("atom") for name in names) == (min(12, k) if "atom" in drawn else 0)
    settings = dict(zip(read.texts("dt"), read.texts("dd"), strict=True))
    assert settings["sparsity"] == "2"
    assert ("window" in settings) == (kernel == "dtw")
    assert ("beta" in settings) == (method is CKSC)
    drawn_names = Counter(read.texts("text"))
    assert drawn_names[HOSTILE] >= 1


def test_an_atom_is_drawn_by_the_series_that_it_is_made_of(tmp_path: Path) -> None:
    model = fitted(CKSC, "dtw")
    model.save(tmp_path / "mine")
    read = Read(write_report(tmp_path / "mine", tmp_path / "report.html").read_text())
    told = [text for text in read.texts("text") if re.search(r": \d+ series", text)]
    sizes = np.diff(model.dictionary_.indptr)
    assert len(told) == len(sizes) <= 12
    assert sorted(int(re.findall(r": (\d+) series", text)[0]) for text in told) == sorted(sizes.tolist())


def test_a_model_behind_a_url(tmp_path: Path) -> None:
    fitted(CKSC, "rbf").save("memory://reports/mine")
    read = Read(write_report("memory://reports/mine/", tmp_path / "report.html").read_text())
    assert read.texts("h1") == ["CKSC model mine"]


# single decisions


def decisions(store: Path, data: SeriesSet, spec: DistanceSpec) -> Read:
    ingest(data, store)
    fingerprint = compute_distances(store, spec, SERIAL).fingerprint
    rows = SplitRows(0).draw(data.labels)[0]
    found = train(store, store / "models" / "m", rows=rows, spec=ModelSpec(sparsity=3, tol=0.01), distances=fingerprint)
    return Read("".join(decision_section(Folder(store), found.model, SplitRows(0))))


@pytest.mark.parametrize(
    ("spec", "warped"),
    [
        (DistanceSpec(normalise="z", window=0.3, dims=(0, 2)), True),
        (DistanceSpec(mode="independent", dims=(1,)), True),
        (DistanceSpec(mode="independent"), False),
        (DistanceSpec(metric="euclidean"), False),
    ],
)
def test_frames_are_joined_where_one_warping_tells_which(tmp_path: Path, spec: DistanceSpec, warped: bool) -> None:
    read = decisions(tmp_path / "store", make_gestures(6, 2, length=(9, 9), noise=0.2), spec)
    captions = [text for text in read.texts("figcaption") if text.startswith("What it is rebuilt from")]
    assert captions
    assert all(("Lines join frames" in text) == warped for text in captions)
    links = sum("stroke: #9aa3ad" in str(about.get("style")) for tag, about in read.opened if tag == "path")
    assert (links > 0) == warped


def test_a_series_like_no_other_is_called_a_guess(tmp_path: Path) -> None:
    """Nothing rebuilds it: there is a decision to show, but nothing to lay beside it."""
    data = make_gestures(6, 3, length=(12, 12), noise=0.2)
    row = int(SplitRows(0).draw(data.labels)[1][0])
    series = data.series
    series[row] = series[row] * 1e6
    read = decisions(tmp_path / "store", SeriesSet.from_list(series, data.labels, data.ids.tolist()), DistanceSpec())
    told = [text for text in read.texts("figcaption") if f"{data.ids[row]}, of class" in text]
    assert len(told) == 1
    rebuilt = [text for text in read.texts("figcaption") if text.startswith("What it is rebuilt from")]
    assert len(rebuilt) == len(read.texts("h3")) - 1
    assert told[0].endswith(
        "with 33%It is like no training series, so that nothing rebuilds it: a guess, the largest class."
    )


def test_a_matrix_that_came_ready_has_no_series_to_draw(tmp_path: Path) -> None:
    data = make_gestures(6, 2, length=(8, 10), noise=0.4)
    store = tmp_path / "ready.zarr"
    ingest_distances(pairwise_dtw(data), store, labels=data.labels, ids=data.ids)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        protocol, choices = Protocol(1, n_folds=2, quick=True), KernelChoices(distances=None)
        table = evaluate(store, ["cksc", "1nn"], protocol, choices=choices, sparsity=2, run=SERIAL)
        example_model(store, table, run=RunSpec(workers=1))
    read = Read(write_report(store, tmp_path / "report.html").read_text())
    assert "The codes of series that were held out" in read.texts("b")
    assert "The store holds a ready matrix without series: there is nothing to draw them by." in read.texts("p")
    assert not read.texts("h3")
    assert read.texts("h1") == ["ready: a comparison of kernel sparse coding methods"]
    assert (
        read.rows[1][1] == f"{100 * float(table.accuracy.sel({'method': 'cksc'}).mean()):.1f}"
    )  # one split: no spread


def test_a_joint_report_is_drawn_again_only_where_it_would_be_another(
    template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, drawn = tmp_path / "joint.html", list[str]()

    def parts(folder: Folder, evaluation: Evaluation) -> list[str]:
        drawn.append(evaluation.name)
        return [f"<p>{evaluation.name}</p>"]

    monkeypatch.setattr("cksc_dist.evaluate.report._evaluation_parts", parts)
    for _ in range(2):
        assert write_joint_report([template, template], path, title="Both", name="first") == path
    assert drawn == ["first", "first"]
    whole = path.read_bytes()
    assert len(Read(whole.decode()).texts("h1")) == 3
    path.write_bytes(whole[: len(whole) // 2])
    write_joint_report([template, template], path, title="Both", name="first")
    assert path.read_bytes() == whole
    for other in ({"title": "All"}, {"title": "Both", "note": "a word"}, {"title": "Both", "name": "second"}):
        drawn.clear()
        write_joint_report([template, template], path, **({"name": "first"} | other))
        assert len(drawn) == 2
