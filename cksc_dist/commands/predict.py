"""``cksc predict``: classify series with a saved model, and say what each decision rests on."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from cksc_dist.commands.screen import Screen
from cksc_dist.errors import InputError
from cksc_dist.io import read
from cksc_dist.models import CKSC, load_model
from cksc_dist.models.explanation import Explanation
from cksc_dist.series import SeriesSet

__all__ = ["predict"]

BLOCK = 256  # series explained together: enough to keep all threads busy, few enough to show progress
UNKNOWN = "?"  # the label that readers give to a series without one


def predict(
    model_path: Path,
    source: Path,
    reader_options: Mapping[str, Any],
    *,
    json_file: str | None,
    top: int,
    explain: bool,
    n_jobs: int,
) -> None:
    """Print the label of each series and what it rests on, and write it as JSON lines where asked.

    Parameters
    ----------
    model_path
        A saved model with ``kernel="dtw"``.
    source, reader_options
        Series to classify, as `cksc_dist.io.read` takes them.
    json_file
        Where one JSON object a series goes; ``"-"``: standard output, all else then goes to standard error.
    top
        How many training series and atoms to name for each decision.
    explain
        Print each decision in full.
    n_jobs
        Threads; -1: all cores.
    """
    screen = Screen(sys.stderr if json_file == "-" else None)
    model = load_model(model_path)
    data = read(source, **reader_options)
    _check_fit(model, model_path, data, source)
    model.set_params(n_jobs=n_jobs)
    explanations: list[Explanation] = []
    starts = range(0, len(data), BLOCK)
    with _json_stream(json_file) as stream:
        for start in screen.track(starts, len(starts), "classifying"):
            block = model.explain_many(data[start : start + BLOCK], top)
            if stream is not None:
                for i, explanation in enumerate(block, start):
                    stream.write(json.dumps(_record(data, i, explanation), ensure_ascii=False) + "\n")
            explanations += block
    _print_decisions(screen, data, explanations)
    if explain:
        for name, explanation in zip(data.ids, explanations, strict=True):
            screen.line()
            screen.heading(str(name))
            screen.line(str(explanation))
    screen.line()
    _print_summary(screen, model, data, explanations)


def _check_fit(model: CKSC, model_path: Path, data: SeriesSet, source: Path) -> None:
    if model.kernel != "dtw":
        raise InputError(
            f"{model_path} was trained with kernel={model.kernel!r} and cannot take series; train with "
            "kernel='dtw', or use load_model in Python and pass it what it was trained on"
        )
    if data.dims != model.n_features_in_:
        raise InputError(
            f"{source} has {data.dims} dims but {model_path} was trained on {model.n_features_in_}; "
            "give series with the dims of the training set"
        )


def _json_stream(json_file: str | None) -> AbstractContextManager[TextIO | None]:
    if json_file is None:
        return nullcontext()
    if json_file == "-":
        return nullcontext(sys.stdout)
    return Path(json_file).open("w", encoding="utf-8")


def _record(data: SeriesSet, i: int, explanation: Explanation) -> dict[str, Any]:
    truth = data.labels[i].item()
    known = {} if truth == UNKNOWN else {"true_label": truth}
    return {"id": str(data.ids[i])} | known | explanation.to_dict()


def _print_decisions(screen: Screen, data: SeriesSet, explanations: list[Explanation]) -> None:
    labelled = bool((data.labels.astype(str) != UNKNOWN).any())
    header = [
        "series",
        "label",
        "sure",
        *(["truth"] if labelled else []),
        "rebuilt from training series",
    ]
    rows = []
    for name, truth, explanation in zip(data.ids, data.labels, explanations, strict=True):
        verdict = [_verdict(truth, explanation)] if labelled else []
        rows.append(
            [
                str(name),
                str(explanation.label),
                f"{explanation.confidence:.0%}",
                *verdict,
                _parts(explanation),
            ]
        )
    screen.table(header, rows, right=[2])


def _verdict(truth: Any, explanation: Explanation) -> str:
    if str(truth) == UNKNOWN:
        return UNKNOWN
    return "right" if str(truth) == str(explanation.label) else f"wrong: {truth}"


def _parts(explanation: Explanation) -> str:
    if explanation.far_away:
        return "none: like no training series, the label is a guess"
    text = ", ".join(f"row {part.row} ({part.label}) {part.share:.0%}" for part in explanation.samples)
    rest = explanation.n_samples - len(explanation.samples)
    return f"{text}, {rest} more" if rest else text


def _print_summary(screen: Screen, model: CKSC, data: SeriesSet, explanations: list[Explanation]) -> None:
    # a file of text may name the same classes that were numbers in training: 1 and "1"
    truth = data.labels.astype(str)
    labels = np.array([str(explanation.label) for explanation in explanations])
    known = truth != UNKNOWN
    if known.any():
        right = int((truth == labels)[known].sum())
        screen.line(f"accuracy {right / known.sum():.1%}: {right:,} of {known.sum():,} labelled series are right")
        strange = sorted(set(truth[known]) - set(model.classes_.astype(str)))
        if strange:
            screen.line(f"the model was never shown these classes, so they count as wrong: {', '.join(strange)}")
    needed, saved = model.saved_distances(len(data))
    screen.line(
        f"distances computed: {needed:,}, to {needed // len(data):,} of {model.n_train_:,} training series; "
        f"saved: {saved:,}, to those that carry no weight"
    )
