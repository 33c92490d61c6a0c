"""Sections of the report on one model: how it was learnt, its atoms, and single decisions with their reasons."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cksc_dist.errors import InputError, StoreError
from cksc_dist.evaluate.curves import Curves
from cksc_dist.evaluate.decision_figures import alignment, atom, class_shares, embed_codes, embedding
from cksc_dist.evaluate.figures import objective, shortened, svg
from cksc_dist.evaluate.fit_tasks import SplitRows
from cksc_dist.evaluate.page import Picture, heading, pictures, text
from cksc_dist.maths.dtw import prepare
from cksc_dist.maths.metrics import pick_dims
from cksc_dist.maths.warping import warping_path
from cksc_dist.models.explanation import Explanation
from cksc_dist.models.kernel_input import DtwInput
from cksc_dist.models.stored_decisions import decide_rows
from cksc_dist.series import Ragged
from cksc_dist.spec import DistanceSpec
from cksc_dist.store.folder import Folder
from cksc_dist.store.matrix import DistanceMatrix, open_matrix

__all__ = ["decision_section", "model_pictures", "model_settings"]

Float = NDArray[np.float64]
Index = NDArray[np.int64]

EMBEDDED = 600
"""At most so many codes are embedded; more would be a blot."""
ATOMS = 12
"""Atoms that are drawn: one of each class at least, where there are not more classes."""
EXAMPLES = 3
"""Training series that a decision is drawn with."""
LONGEST = 4_000_000
"""Cells of a warping that is drawn at most: longer series are drawn without lines between them."""


def model_settings(model: Any) -> list[tuple[str, str]]:
    """Return the settings of a model by name."""
    items = [(name, str(value)) for name, value in asdict(model._spec).items()]
    if isinstance(model._source, DtwInput):
        items += [(name, str(value)) for name, value in asdict(model._source.distance).items()]
        items += [(name, str(value)) for name, value in asdict(model._source.kernel).items()]
    if hasattr(model, "beta_"):
        items.append(("beta", f"{model.beta_:.6g}"))
    origin = model.origin_ or {}
    return items + [(name, str(origin[name])) for name in ("store", "matrix", "training") if name in origin]


def model_pictures(model: Any) -> list[Picture]:
    """Return the objective, an embedding of the codes, and atoms as what they are made of."""
    found = []
    if hasattr(model, "objective_terms_"):
        found.append(
            Picture(
                "The objective J",
                f"After every half step of {model.n_iter_} alternations; it never rises.",
                [svg(objective(model.objective_terms_), title="objective against alternations")],
            )
        )
    rows = _evenly(model.n_train_, EMBEDDED)
    labels = model.classes_[model._train_labels[rows]]
    points = embed_codes(model.codes_[rows])
    found.append(
        Picture(
            "The codes of the training series",
            "t-SNE of the angles between codes: series that use the same atoms lie together.",
            [svg(embedding(points, labels.tolist()), title="embedding of codes")],
        )
    )
    if isinstance(model._source, DtwInput):
        found.append(_atom_picture(model))
    return found


def _evenly(n: int, most: int) -> Index:
    return np.unique(np.linspace(0, n - 1, min(n, most)).round().astype(np.int64))


def _atom_picture(model: Any) -> Picture:
    """Return atoms, the most used of each class first, drawn as their training series."""
    values, offsets = _compared(model._source.series, model._source.distance)
    places = model._source.columns  # of the support among the series that are kept
    series = [values[offsets[place] : offsets[place + 1]] for place in places]
    curves = Curves.of(series)
    atoms = model._support_atoms
    use = np.asarray(abs(model.codes_).sum(axis=0)).ravel()
    home = model._class_weight().argmax(axis=1)
    drawn = []
    for j in _chosen_atoms(use, home):
        entries = slice(atoms.indptr[j], atoms.indptr[j + 1])
        members, weights = atoms.indices[entries], atoms.data[entries]
        heavy = np.argsort(-np.abs(weights), kind="stable")[:12]
        share = float(model.interpretability_[j])
        title = f"{shortened(model.classes_[home[j]].item())}: {len(members)} series"
        title += f", {share:.0%} its own" if share < 0.995 else ""
        figure = atom([curves(series[member]) for member in members[heavy]], weights[heavy], title)
        drawn.append(svg(figure, title=f"atom {j}"))
    caption = (
        "Each is a weighted sum of these training series; the heavier, the darker. Where other classes have a part in "
        "an atom, it says how much is of its own. "
    ) + ("" if curves.along_dims else "Time fills the width. ")
    return Picture("Atoms, and the training series that they are made of", caption + curves.note, drawn, "medium")


def _chosen_atoms(use: Float, home: Index) -> list[int]:
    """Return atoms to draw: the most used one of each class, then the second, and so on."""
    order = np.argsort(-use, kind="stable")
    rank = np.zeros(len(use), np.int64)
    seen: dict[int, int] = {}
    for j in order:
        rank[j] = seen.get(int(home[j]), 0)
        seen[int(home[j])] = int(rank[j]) + 1
    chosen = sorted(range(len(use)), key=lambda j: (rank[j], home[j]))[:ATOMS]
    return chosen


def decision_section(folder: Folder, model: Any, split: SplitRows) -> list[str]:
    """Return single decisions on the test part of the split that a model was trained on, with what they are made of."""
    if model.origin_ is None:
        return [text("Decisions are not drawn: the model was not trained on a store", "note")]
    try:
        matrix = open_matrix(folder.url, model.origin_["matrix"])
        rows = split.draw(matrix.labels)[1]
        decided = decide_rows(model, matrix, rows, top=EXAMPLES)
    except (StoreError, InputError) as error:
        return [text(f"Decisions are not drawn: {error}", "note")]
    truth = matrix.labels[rows]
    wrong = np.array([why.label != true for why, true in zip(decided.explanations, truth.tolist(), strict=True)])
    near = _evenly(len(rows), EMBEDDED)
    points = embed_codes(decided.codes[near])
    mistaken = int(wrong[near].sum())
    told = f"a ring marks the {mistaken} of {len(near)} that are" if mistaken else f"none of the {len(near)} is"
    overview = Picture(
        "The codes of series that were held out",
        f"Coloured by their true class; {told} decided wrongly.",
        [svg(embedding(points, truth[near].tolist(), wrong[near]), title="embedding of held-out codes")],
        "beside",
    )
    body = [heading(2, "Single decisions, and why"), pictures([overview])]
    if not matrix.series.dims:
        return [*body, text("The store holds a ready matrix without series: there is nothing to draw them by.", "note")]
    for title, at in _examples(decided.explanations, wrong):
        body += [heading(3, title), pictures(_decision_pictures(matrix, int(rows[at]), decided.explanations[at]))]
    return body


def _examples(found: list[Explanation], wrong: NDArray[np.bool_]) -> list[tuple[str, int]]:
    """Return a sure decision, the least sure right one, and a wrong one."""
    confidence = np.array([why.confidence for why in found])
    right = np.flatnonzero(~wrong)
    examples = []
    if len(right):
        middle = right[np.argsort(-confidence[right], kind="stable")[len(right) // 4]]
        examples = [("A sure decision", int(middle)), ("Right, but not sure", int(right[confidence[right].argmin()]))]
    if wrong.any():
        mistaken = np.flatnonzero(wrong)
        examples.append(("A wrong decision", int(mistaken[confidence[mistaken].argmax()])))
    return list({at: (title, at) for title, at in reversed(examples)}.values())[::-1]


def _decision_pictures(matrix: DistanceMatrix, row: int, why: Explanation) -> list[Picture]:
    """Return class shares, and the sample beside the series that rebuild it, frame by frame."""
    true, name = matrix.labels[row].item(), str(matrix.ids[row])
    sample = _series(matrix, row)
    parts = [(part, _series(matrix, part.row)) for part in why.samples]
    curves = Curves.of([sample, *(series for _, series in parts)], _dim_names(matrix))
    told = f"{name}, of class {true}: decided {why.label} with {why.confidence:.0%}"
    reason = (
        f"Shares of the classes in the {why.n_samples} training series and {why.n_atoms} atoms that rebuild it; the "
        f"reconstruction has cosine {why.similarity:.2f} with the series."
    )
    if why.far_away:
        reason = "It is like no training series, so that nothing rebuilds it: a guess, the largest class."
    shares = svg(class_shares(why.shares, why.label, true), title=f"class shares of {name}")
    found = [Picture(told, reason, [shares], "beside")]
    if not parts:
        return found
    drawn = []
    paths = [_path(matrix.spec, sample, series) for _, series in parts]
    for (part, series), path in zip(parts, paths, strict=True):
        label = f"{part.share:.0%}, class {shortened(part.label)}: {part.name}"
        drawn.append(
            svg(alignment(curves(sample), curves(series), path, (name, label)), title=f"{name} and {part.name}")
        )
    caption = "Above the series to be decided, below the training series, with its share of the reconstruction. "
    if any(len(path) for path in paths):
        caption += "Lines join frames that the warping lays beside each other. "
    return [*found, Picture("What it is rebuilt from", caption + curves.note, drawn, "medium")]


def _dim_names(matrix: DistanceMatrix) -> list[str]:
    names = list(matrix.series.dim_names)
    dims = matrix.spec.dims
    return names if dims is None or not names else [names[dim] for dim in dims]


def _series(matrix: DistanceMatrix, row: int) -> Float:
    """Return a series of a store as it is compared."""
    return _compared(matrix.series.read(row, row + 1), matrix.spec)[0]


def _compared(series: Ragged, spec: DistanceSpec) -> Ragged:
    """Return the dimensions that a distance looks at, scaled as it asks."""
    return prepare(pick_dims(series, spec), spec, "series")


def _path(spec: DistanceSpec, one: Float, other: Float) -> Index:
    """Return which frames lie beside each other; none where no single warping tells."""
    several = spec.mode == "independent" and one.shape[1] > 1
    if spec.metric != "dtw" or several or len(one) * len(other) > LONGEST:
        return np.zeros((0, 2), np.int64)
    return warping_path(one, other, spec)
