"""``cksc demo``: the whole way from series to a decision that can be read, on made gestures."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cksc_dist.commands.screen import Screen
from cksc_dist.commands.sparkline import ASCII, BLOCKS, sparkline
from cksc_dist.errors import typed
from cksc_dist.io import make_gestures, write_npz
from cksc_dist.maths.dtw import pairwise_dtw
from cksc_dist.maths.threads import resolve_n_jobs
from cksc_dist.models import CKSC
from cksc_dist.models.explanation import Explanation
from cksc_dist.series import SeriesSet
from cksc_dist.store.model_files import check_place

__all__ = ["demo"]

SPARSITY = 3  # few enough to look at
SHOWN = 3
WIDTH = 16  # letters of a sparkline: three of them and their legend fit into 80


def demo(seed: int, per_class: int, n_jobs: int, save: Path | None) -> None:
    """Make series, compute their distances, train, classify the half held out, and explain one decision.

    Parameters
    ----------
    seed
        Which series to make.
    per_class
        Series of each of the four classes; every second one is for training.
    n_jobs
        Threads; -1: all cores.
    save
        Where the model goes; the series held out go beside it, ``<save>.test.npz``. None: nothing is written.
    """
    screen = Screen()
    if save is not None:
        check_place(save)  # before it is known what would go there
    data = make_gestures(n_per_class=per_class, random_state=seed)
    train, test = data.select(np.arange(0, len(data), 2)), data.select(np.arange(1, len(data), 2))
    screen.heading("Gestures, made")
    screen.line(
        f"{len(data)} series of {len(data.classes)} classes, {data.dims} dimensions, {data.lengths.min()} to "
        f"{data.lengths.max()} frames; each has its own\nspeed, amplitude, wandering and noise (seed {seed})"
    )
    with screen.busy("compiling: some 20 seconds on a first run"):
        ready = _seconds_to_get_ready(data.dims, n_jobs)
    screen.line(f"compiled code ready in {ready:.1f} s (a first run compiles, later ones read a cache)\n")

    start = time.perf_counter()
    distances = pairwise_dtw(data, n_jobs=n_jobs)
    middle = time.perf_counter()
    model = CKSC(sparsity=SPARSITY, kernel="dtw", random_state=seed, n_jobs=n_jobs).fit(train, train.labels)
    end = time.perf_counter()

    nearest = train.labels[distances[1::2, 0::2].argmin(axis=1)]
    screen.heading("Distances and model")
    screen.table(
        ["", ""],
        [
            ("DTW distances", _rate(len(data), middle - start, n_jobs)),
            *_about(model, len(train), end - middle),
            ("accuracy, CKSC", f"{model.score(test, test.labels):.1%} of {len(test)} series held out"),
            ("accuracy, 1-NN", f"{np.mean(nearest == test.labels):.1%} on the same distances"),
            ("distances saved", _saved(model, len(test))),
        ],
    )
    screen.line()
    _draw_decision(screen, model, train, test, 0)
    if save is not None:
        held_out = save.with_name(f"{save.name}.test.npz")
        model.save(save)
        write_npz(held_out, test)
        screen.line(f"\nsaved; now try: cksc predict {typed(save)} {typed(held_out)} --explain")


def _rate(n: int, seconds: float, n_jobs: int) -> str:
    pairs = n * (n - 1) // 2
    threads = resolve_n_jobs(n_jobs)
    return f"{pairs:,} pairs in {seconds:.3f} s: {pairs / seconds:,.0f} a second, {threads} thread(s)"


def _about(model: CKSC, n_train: int, seconds: float) -> list[tuple[str, str]]:
    purity = model.interpretability_.mean()
    return [
        ("training", f"{n_train} series in {seconds:.2f} s, {model.n_iter_} alternations"),
        ("beta", f"{model.beta_:.3f}, the ridge that makes recall convex"),
        ("interpretability", f"{purity:.1%} of an atom's weight is of one class, on average"),
    ]


def _saved(model: CKSC, n_test: int) -> str:
    needed, saved = model.saved_distances(n_test)
    carrying = f"{len(model.support_)} of {model.n_train_} series carry weight"
    return f"{saved:,} of {needed + saved:,} in prediction; {carrying}"


def _seconds_to_get_ready(dims: int, n_jobs: int) -> float:
    """Compile, or load from the cache, what the demonstration uses, so that it does not count as work."""
    begin = time.perf_counter()
    few = make_gestures(n_per_class=4, n_classes=2, dims=dims)
    pairwise_dtw(few, n_jobs=n_jobs)
    CKSC(sparsity=2, kernel="dtw", random_state=0, n_jobs=n_jobs).fit(few, few.labels).explain(few[0])
    return time.perf_counter() - begin


def _draw_decision(screen: Screen, model: CKSC, train: SeriesSet, test: SeriesSet, i: int) -> None:
    """Print a decision, with the sample and the training series that carry it drawn below each other."""
    explanation = model.explain(test[i], top=SHOWN)
    screen.heading("One decision: the first series held out")
    screen.line(_sentence(explanation, str(test.ids[i]), str(test.labels[i])))
    drawn = [test[i], *(train[part.row] for part in explanation.samples)]
    names = [f"{test.ids[i]}", *(str(train.ids[part.row]) for part in explanation.samples)]
    shares = ["sample", *(f"{part.share:.0%}" for part in explanation.samples)]
    letters = BLOCKS if screen.can_show(BLOCKS) else ASCII
    rows = [
        [share, name, *_sparklines(series, drawn, letters)]
        for share, name, series in zip(shares, names, drawn, strict=True)
    ]
    screen.table(["share", "series", *(f"dimension {q}" for q in range(test.dims))], rows, right=[0])


def _sentence(explanation: Explanation, name: str, truth: str) -> str:
    ranked = sorted(explanation.shares.items(), key=lambda item: -item[1])
    classes = ", ".join(f"{label} {share:.0%}" for label, share in ranked if share >= 0.005)
    verdict = "right" if explanation.label == truth else f"wrong, it is {truth}"
    return (
        f"{name} is decided to be {explanation.label} ({verdict}). It is rebuilt from "
        f"{explanation.n_samples} training series:\n{classes}. Those that carry most:"
    )


def _sparklines(series: NDArray[np.float64], drawn: list[NDArray[np.float64]], letters: str) -> list[str]:
    """Return a line for each dimension, at the scale that all drawn series share."""
    frames = np.concatenate(drawn)
    longest = max(len(other) for other in drawn)
    width = max(1, round(WIDTH * len(series) / longest))
    return [
        sparkline(series[:, q], width, float(frames[:, q].min()), float(frames[:, q].max()), letters)
        for q in range(series.shape[1])
    ]
