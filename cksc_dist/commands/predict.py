"""``cksc predict``: classify series with a saved model, and say what each decision rests on."""

from __future__ import annotations

import codecs
import json
import re
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from cksc_dist.commands.screen import Screen
from cksc_dist.commands.work_screen import WorkScreen
from cksc_dist.errors import InputError
from cksc_dist.io import read
from cksc_dist.models import CKSC
from cksc_dist.models.explanation import Explanation
from cksc_dist.models.prediction import HeldSeries, NewSeries, SavedModel, explain_blocks
from cksc_dist.series import UNKNOWN
from cksc_dist.spec import RunSpec
from cksc_dist.store.folder import Folder, local_path
from cksc_dist.store.local_files import check_output, replacing
from cksc_dist.store.series_files import open_series
from cksc_dist.store.trouble import named_trouble

__all__ = ["predict"]

SHOWN = 50  # decisions that are printed unless more are asked for


def predict(
    model_path: str,
    source: str,
    reader_options: Mapping[str, Any],
    run: RunSpec,
    *,
    json_file: str | None,
    top: int,
    explain: bool,
    show_all: bool,
) -> None:
    """Print the label of each series and what it rests on, and write it as JSON lines where asked.

    Parameters
    ----------
    model_path
        Path or URL of a saved model that takes series.
    source, reader_options
        Series to classify: a store, or what `cksc_dist.io.read` takes.
    run
        How to run; no decision depends on it.
    json_file
        Where one JSON object a series goes; ``"-"``: standard output, all else then goes to standard error.
    top
        How many training series and atoms to name for each decision.
    explain
        Print each decision in full.
    show_all
        Print all decisions, not only the first.
    """
    screen = Screen(sys.stderr if json_file == "-" else None)
    if json_file not in (None, "-"):
        check_output(Path(json_file or ""), source)
    saved = SavedModel.at(model_path)
    saved.source()  # before a large file is read in vain
    series = _open(source, reader_options)
    try:
        blocks = explain_blocks(saved.address, series, top, run, _SeriesScreen(screen))
    except InputError as error:
        raise InputError(f"{source}: {error}") from error
    shown: list[Explanation] = []
    labels: list[str] = []
    with _json_stream(json_file) as stream, closing(blocks):
        for block in blocks:
            if stream is not None:
                records = [_record(series, i, explanation) for i, explanation in enumerate(block, len(labels))]
                _put(stream, json_file or "", "".join(_json_line(record, _is_narrow(stream)) for record in records))
            shown += block if explain or show_all else block[: SHOWN - len(shown)]
            labels += [str(explanation.label) for explanation in block]
    _print_decisions(screen, series, shown)
    if len(shown) < series.n:
        screen.line(f"and {series.n - len(shown):,} more; print them with --all, or write them with --json FILE")
    if explain:
        for name, explanation in zip(series.ids, shown, strict=True):
            screen.line()
            screen.heading(str(name))
            screen.line(str(explanation))
    screen.line()
    _print_summary(screen, saved.load(), series, np.array(labels))


class _SeriesScreen(WorkScreen):
    """Prints how far the work is in series, not in tiles."""

    def _state(self) -> str:
        return super()._state().replace(" tiles", " series")


def _open(source: str, reader_options: Mapping[str, Any]) -> NewSeries:
    """Return the series of a store, which stay where they are, or of anything that is read as a whole."""
    folder = Folder(source)
    if folder.local is not None and not (folder.local / "zarr.json").exists():
        return HeldSeries(read(local_path(source) or source, **reader_options))
    if reader_options:
        raise InputError(f"{source} is a store, and --option is for files that are read: leave it out")
    series = open_series(folder)
    series.check_values()
    return series


def _json_stream(json_file: str | None) -> AbstractContextManager[TextIO | None]:
    if json_file is None:
        return nullcontext()
    if json_file == "-":
        return nullcontext(sys.stdout)
    return replacing(Path(json_file))


def _is_narrow(stream: TextIO) -> bool:
    """Tell whether a stream lacks letters: JSON has its own way to spell them."""
    return not codecs.lookup(stream.encoding or "utf-8").name.startswith("utf")


def _json_line(record: dict[str, Any], narrow: bool = False) -> str:
    """Return a record as a line of JSON, which leaves some controls of terminals as they are."""
    text = json.dumps(record, ensure_ascii=narrow)
    return re.sub("[\x7f-\x9f\u202a-\u202e\u2066-\u2069]", lambda match: f"\\u{ord(match[0]):04x}", text) + "\n"


def _put(stream: TextIO, name: str, lines: str) -> None:
    """Write lines at once; say which file it is that cannot take them."""
    try:
        stream.write(lines)
        stream.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        if stream is not sys.stdout:
            with suppress(OSError):  # which has the same to say
                stream.close()
        if (trouble := named_trouble(error, name)) is None:
            raise
        raise trouble from error


def _record(series: NewSeries, i: int, explanation: Explanation) -> dict[str, Any]:
    truth = series.labels[i].item()
    known = {} if truth == UNKNOWN else {"true_label": truth}
    return {"id": str(series.ids[i])} | known | explanation.to_dict()


def _print_decisions(screen: Screen, series: NewSeries, explanations: list[Explanation]) -> None:
    labelled = bool((series.labels.astype(str) != UNKNOWN).any())
    header = [
        "series",
        "label",
        "sure",
        *(["truth"] if labelled else []),
        "rebuilt from training series",
    ]
    rows = []
    for name, truth, explanation in zip(series.ids, series.labels, explanations, strict=False):
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
    text = ", ".join(f"{part.name} ({part.label}) {part.share:.0%}" for part in explanation.samples)
    rest = explanation.n_samples - len(explanation.samples)
    return f"{text}, {rest} more" if rest else text


def _print_summary(screen: Screen, model: CKSC, series: NewSeries, labels: NDArray[np.str_]) -> None:
    # a file of text may name the same classes that were numbers in training: 1 and "1"
    truth = series.labels.astype(str)
    known = truth != UNKNOWN
    if known.any():
        right = int((truth == labels)[known].sum())
        screen.line(f"accuracy {right / known.sum():.1%}: {right:,} of {known.sum():,} labelled series are right")
        strange = sorted(set(truth[known]) - set(model.classes_.astype(str)))
        if strange:
            screen.line(f"the model was never shown these classes, so they count as wrong: {', '.join(strange)}")
    needed, saved = model.saved_distances(series.n)
    screen.line(
        f"distances computed: {needed:,}, to {needed // series.n:,} of {model.n_train_:,} training series; "
        f"saved: {saved:,}, to those that carry no weight"
    )
