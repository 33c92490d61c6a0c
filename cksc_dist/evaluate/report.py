"""The report: one HTML file with pictures inside, for people who look rather than read.

First the table with the paper's figures beside ours, then the figures, then settings and versions. Of a model alone:
what it has learnt, and how.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

import numpy as np
import xarray as xr

from cksc_dist.errors import InputError, ModelFileError, StoreError
from cksc_dist.evaluate.figures import accuracy_by_split, confusion, interpretability, small_confusion, svg, sweep
from cksc_dist.evaluate.fit_tasks import SplitRows
from cksc_dist.evaluate.methods import METHODS, REFERENCES
from cksc_dist.evaluate.model_sections import decision_section, model_pictures, model_settings
from cksc_dist.evaluate.page import Cell, Picture, cards, definitions, details, heading, page, pictures, table, text
from cksc_dist.evaluate.paper import TABLE2
from cksc_dist.evaluate.results import Evaluation, find_evaluations, told_by_table
from cksc_dist.evaluate.tables import LEVEL, ordered_methods
from cksc_dist.files import plain_only
from cksc_dist.models import load_model
from cksc_dist.store.folder import Folder
from cksc_dist.store.layout import is_store
from cksc_dist.store.local_files import check_output, replacing
from cksc_dist.store.model_files import model_digest
from cksc_dist.store.series_files import open_series
from cksc_dist.store.trouble import named_trouble

__all__ = ["write_joint_report", "write_report"]

SWEPT = {
    "alpha": ("alpha, the weight of the discriminative term", "Accuracy against alpha"),
    "sparsity": ("T0, the most non-zeros of a code and of an atom", "Accuracy against T0"),
}


def write_report(source: str | Path, path: str | Path, *, name: str = "") -> Path:
    """Write the report of a store's evaluations, or of a saved model, whole or not at all; return where it is.

    Parameters
    ----------
    source
        A store, or a model: a folder or URL.
    path
        The HTML file.
    name
        Which evaluation of a store comes first; left out: the newest.
    """
    check_output(Path(path))
    return _write(Path(path), _content(source, name))


def write_joint_report(
    stores: Sequence[str | Path], path: str | Path, *, title: str, note: str = "", name: str = ""
) -> Path:
    """Write one report of the evaluations of several stores, a part for each; return where it is.

    One that is there and was drawn from the same stays: drawing takes longer than all else that is done again.

    Parameters
    ----------
    stores
        Folders or URLs.
    path
        The HTML file.
    title, note
        What stands on top.
    name
        Which evaluation of each store is shown; left out: the newest.
    """
    check_output(Path(path))
    shown = [(folder, find_evaluations(folder, name)[0]) for folder in map(Folder, stores)]
    target, mark = Path(path), f"<!-- drawn from {_sources(shown, title, note)} -->\n"
    if _ends_with(target, mark):
        return target
    body = [heading(1, title), *([text(note)] if note else [])]
    for folder, evaluation in shown:
        body += [heading(1, _title(folder, evaluation)), *_evaluation_parts(folder, evaluation)]
    return _write(target, page(title, body) + mark)


def _sources(shown: Sequence[tuple[Folder, Evaluation]], *words: str) -> str:
    """Return a digest of all that a report is drawn from, and by which release."""
    known: list[object] = [version("cksc_dist"), version("matplotlib"), *words]
    for folder, evaluation in shown:
        known += [folder.url, open_series(folder).state, evaluation.damage, evaluation.changed]
        known += [] if evaluation.model is None else [model_digest(f"{folder.url}/models/{evaluation.name}")]
        for each in (evaluation.table, *evaluation.sweeps.values()):
            told = each.to_dict()
            for moment in ("seconds", "written"):  # of the command, which another run has others of; they are not drawn
                told["attrs"].pop(moment, None)
            known.append(told)
    return sha256(json.dumps(known, sort_keys=True, default=str).encode()).hexdigest()


def _ends_with(path: Path, mark: str) -> bool:
    try:
        with open(path, "rb", opener=plain_only) as file:  # a pipe has nothing yet
            file.seek(-len(mark), os.SEEK_END)
            return file.read() == mark.encode()
    except OSError:  # it is not there, or is shorter
        return False


def _write(target: Path, content: str) -> Path:
    """Write a file, whole or not at all."""
    try:
        with replacing(target) as stream:
            stream.write(content)
    except OSError as error:
        if (trouble := named_trouble(error, str(target))) is None:
            raise
        raise trouble from error
    return target


def _content(source: str | Path, name: str) -> str:
    """Return the page of whatever there is, or say why there is none."""
    folder = Folder(source)
    try:
        model_digest(source)
    except ModelFileError as error:
        try:
            found = is_store(folder)
        except StoreError as other:
            raise StoreError(
                f"{folder.url} can be read neither as a model ({error}) nor as a store ({other})"
            ) from other
        if not found:
            raise StoreError(f"{folder.url} is neither a store nor a saved model; give the folder of one") from error
        return _store_page(folder, name)
    if name:
        raise InputError(f"{folder.url} is a model, which has no evaluation {name!r}; give the store, or no name")
    return _model_page(str(source))


def _model_page(url: str) -> str:
    model = load_model(url)
    title = f"{type(model).__name__} model {url.rstrip('/').rsplit('/', 1)[-1]}"
    facts = [
        (type(model).__name__, "method"),
        (f"{len(model.classes_)}", "classes"),
        (f"{model.dictionary_.shape[1]:,}", "atoms"),
        (f"{len(model.support_):,} of {model.n_train_:,}", "training samples carry weight"),
        (f"{float(np.mean(model.interpretability_)):.2f}", "mean interpretability IP"),
    ]
    body = [heading(1, title), cards(facts), heading(2, "What it has learnt"), pictures(model_pictures(model))]
    return page(title, [*body, heading(2, "Settings"), definitions(model_settings(model))])


def _store_page(folder: Folder, name: str) -> str:
    evaluations = find_evaluations(folder, name)
    first = evaluations[0]
    title = f"{_title(folder, first)}: a comparison of kernel sparse coding methods"
    body = [heading(1, title), *_evaluation_parts(folder, first)]
    for other in evaluations[1:]:
        with told_by_table(folder, other.name):
            about = text(other.table.attrs["protocol"], "note")
            body += [
                heading(2, f"Another evaluation: {other.name}"),
                about,
                text(other.changed, "warning"),
                _table(other.table),
            ]
    return page(title, body)


def _title(folder: Folder, evaluation: Evaluation) -> str:
    with told_by_table(folder, evaluation.name):
        return str(evaluation.table.attrs["title"])


def _evaluation_parts(folder: Folder, evaluation: Evaluation) -> list[str]:
    measured = evaluation.table
    with told_by_table(folder, evaluation.name):
        body = [
            text(measured.attrs["protocol"]),
            text(evaluation.changed, "warning"),
            cards(_facts(measured)),
            _table(measured),
            text(_remarks(measured), "note"),
            heading(2, "The methods"),
            pictures(_method_pictures(evaluation)),
            heading(2, "Which classes are taken for which"),
            pictures(_confusions(measured)),
        ]
        settings = [heading(2, "Settings and versions"), *_settings(measured)]
        split = SplitRows(int(measured.attrs["random_state"]), float(measured.attrs["test_size"]))
    if evaluation.model is not None:
        body += [heading(2, "What CKSC has learnt"), pictures(model_pictures(evaluation.model))]
        body += decision_section(folder, evaluation.model, split)
    elif evaluation.damage:
        body += [text(f"The model that is kept is not shown: {evaluation.damage}", "note")]
    return body + settings


def _facts(measured: xr.Dataset) -> list[tuple[str, str]]:
    """Return what stands out."""
    best = measured.attrs["best"]
    paper = TABLE2.get(measured.attrs["title"], {})
    found = []
    for method in dict.fromkeys(["cksc", best, "svm", "1nn"]):
        if method in measured["method"].values:
            accuracy = 100 * float(measured.accuracy.sel({"method": method}).mean())
            known = f", in the paper {paper[method]:.1f}\u00a0%" if method in paper else ""
            found.append(
                (f"{accuracy:.1f}\u00a0%", f"{METHODS[method].title}{' (best)' if method == best else ''}{known}")
            )
    if "cksc" in measured["method"].values:
        used = float(measured.atoms_used.sel({"method": "cksc"}).mean())
        found.append((f"{used:.1f}", f"atoms in a decision of CKSC, at most {measured.attrs['sparsity']}"))
    return found


def _table(measured: xr.Dataset) -> str:
    """Return the table of all methods."""
    paper = TABLE2.get(measured.attrs["title"], {})
    header = ["method", "accuracy %"] + ["paper"] * bool(paper)
    header += ["macro F1", "IP", "calibration", "atoms", "a fit", "against best", "corrected p"]
    lines, kinds = [], []
    methods = ordered_methods(measured["method"].values)
    references = [method for method in methods if method in REFERENCES]
    low = max(0.0, float(measured.accuracy.min()) - 0.1)
    for method in methods:
        row = measured.sel({"method": method})
        accuracy = 100 * row.accuracy.values
        spread = f"± {accuracy.std(ddof=1):.1f}" if len(accuracy) > 1 else ""
        share = (accuracy.mean() / 100 - low) / (1 - low)
        seconds = float((row.train_seconds + row.predict_seconds).mean())
        is_best = method == measured.attrs["best"]
        lines.append(
            [
                Cell(METHODS[method].title, kind="left"),
                Cell(f"{accuracy.mean():.1f}", spread, share),
                *([Cell(_number(paper.get(method, np.nan), 1))] if paper else []),
                Cell(_number(100 * float(row.macro_f1.mean()), 1)),
                Cell(_number(float(row.interpretability.mean()), 2)),
                Cell(_number(float(row.calibration.mean()), 3)),
                Cell(_number(float(row.atoms_used.mean()), 1)),
                Cell(f"{1000 * seconds:.0f} ms" if seconds < 10 else f"{seconds:,.0f} s"),
                Cell("best" if is_best else _against(float(row.p_value)), kind="left"),
                Cell("" if is_best else _chance(float(row.p_corrected))),
            ]
        )
        kinds.append("own" if method == "cksc" else "apart" if method in references[:1] else "")
    return table(header, lines, kinds, left=(0, header.index("against best")))


def _against(p: float) -> str:
    """Say how a method stands to the best one, given the p value of their difference."""
    return "no test" if np.isnan(p) else f"{'worse' if p < LEVEL else 'level'}, p {_chance(p)}"


def _chance(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def _number(value: float, digits: int) -> str:
    return "" if np.isnan(value) else f"{value:.{digits}f}"


def _remarks(measured: xr.Dataset) -> str:
    """Return what a reader of the table must know."""
    known = [f"{METHODS[name].title}: {METHODS[name].remark}." for name in measured["method"].values]
    remarks = " ".join(line for line in known if not line.endswith(": ."))
    return (
        "Mean and standard deviation of the splits; bars begin ten points below the worst split. Worse: a two-sided "
        f"paired t-test against the best method has p below {LEVEL}. Corrected p: of a test that makes up for samples "
        "which splits share (Nadeau and Bengio). "
        "IP: share of an atom's weight in its strongest class. Calibration: expected error of the confidence. "
        + ("The splits of the paper are not known. " if measured.attrs["title"] in TABLE2 else "")
        + remarks
    )


def _method_pictures(evaluation: Evaluation) -> list[Picture]:
    """Return the figures that compare methods."""
    measured = evaluation.table
    methods = ordered_methods(measured["method"].values)
    paper = {name: value for name, value in TABLE2.get(measured.attrs["title"], {}).items() if name in methods}
    accuracies = {name: measured.accuracy.sel({"method": name}).values for name in methods}
    found = [
        Picture(
            "Accuracy of every split",
            "A dot is a split, the line their mean" + (", the diamond the paper's figure." if paper else "."),
            [svg(accuracy_by_split(accuracies, paper), title="accuracy of every split")],
        )
    ]
    means = {name: float(measured.interpretability.sel({"method": name}).mean()) for name in methods}
    if any(np.isfinite(value) for value in means.values()):
        found.append(
            Picture(
                "Interpretability of the atoms",
                "Mean share of an atom's weight in its strongest class: 1 where every atom is of one class.",
                [svg(interpretability(means), title="mean interpretability")],
            )
        )
    for axis, swept in evaluation.sweeps.items():
        label, title = SWEPT[axis]
        curves = {
            str(name): swept.accuracy.sel({"method": name}).transpose("split", axis).values
            for name in swept["method"].values
        }
        caption = "CKSC with nothing tuned; mean of the splits, and one standard deviation."
        smallest = int(measured.attrs.get("smallest_class", 0))
        if axis == "sparsity" and smallest:
            caption += (
                f" A class has as few as {smallest} training samples, and no more atoms than that: beyond it T0 "
                "changes only the bound on codes."
            )
        found.append(Picture(title, caption, [svg(sweep(swept[axis].values, curves, label), title=title)]))
    return found


def _confusions(measured: xr.Dataset) -> list[Picture]:
    """Return the confusion matrices: one with names, the others small."""
    classes = [str(name) for name in measured["class"].values]
    methods = ordered_methods(measured["method"].values)
    large = "cksc" if "cksc" in methods else methods[0]
    counts = {name: measured.confusion.sel({"method": name}).values for name in methods}
    found = [
        Picture(
            METHODS[large].title,
            "Rows are true classes, columns decisions, over all splits; blue is right, vermilion wrong.",
            [svg(confusion(counts[large], classes), title=f"confusion matrix of {METHODS[large].title}")],
        )
    ]
    others = [name for name in methods if name != large]
    if others:
        drawn = [svg(small_confusion(counts[name], name), title=f"confusion matrix of {name}") for name in others]
        found.append(Picture("The others", "The same order of classes.", drawn, "small"))
    return found


def _settings(measured: xr.Dataset) -> list[str]:
    """Return what was tuned and chosen, and what it was run with."""
    about = measured.attrs
    tuned = []
    for method in ordered_methods(measured["method"].values):
        row = measured.sel({"method": method})
        settings = [str(each) for each in row.settings.values]
        chosen = [settings[int(at)] for at in row.chosen.values]
        counts = sorted(((chosen.count(each), each) for each in set(chosen)), reverse=True)
        often = "; ".join(f"{count} × {_plainly(each)}" for count, each in counts)
        points, seconds = sum(1 for each in settings if each), float(row.tuning_seconds.sum())
        tuned.append((METHODS[method].title, f"{often} (of {points}, tuning took {seconds:,.0f}\u00a0s)"))
    kept = {key: about[key] for key in ("n_splits", "test_size", "n_folds", "random_state", "sparsity", "distances")}
    items = [(key.replace("_", " "), str(value)) for key, value in kept.items()]
    items += [(key, value) for key, value in json.loads(about["versions"]).items()]
    return [
        text("What tuning chose, and how often:"),
        definitions(tuned),
        details("All settings and versions", definitions(items)),
    ]


def _plainly(settings: str) -> str:
    """Return settings as text."""
    return ", ".join(f"{name} {value}" for name, value in json.loads(settings).items()) or "the defaults"
