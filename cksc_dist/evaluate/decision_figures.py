"""Figures of what a model has learnt and decides: an embedding of codes, atoms, and single decisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray
from sklearn.manifold import TSNE

from cksc_dist.evaluate.curves import thinned
from cksc_dist.evaluate.figures import (
    COLOURS,
    FAINT,
    HALO,
    INK,
    SMALL,
    VERMILION,
    WIDTH,
    class_colours,
    letters,
    new_axes,
    shortened,
)
from cksc_dist.maths.threads import one_blas_thread

__all__ = ["alignment", "atom", "class_shares", "embed_codes", "embedding"]

Float = NDArray[np.float64]
Index = NDArray[np.int64]

LINKS = 26
"""Lines that are drawn of a warping path."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")


@one_blas_thread()
def embed_codes(codes: Any, random_state: int = 0) -> Float:
    """Return a point in two dimensions for each code (n, k): t-SNE of their cosine distances, from a fixed seed.

    Parameters
    ----------
    codes
        Dense or sparse.
    random_state
        Seed.
    """
    dense = np.asarray(codes.toarray() if hasattr(codes, "toarray") else codes, dtype=np.float64)
    size = np.linalg.norm(dense, axis=1, keepdims=True)
    # of vectors of length 1 the Euclidean distance tells the angle; a code of nothing stays at the origin
    unit = np.divide(dense, size, out=np.zeros_like(dense), where=size > 0)
    if len(unit) < 4 or not np.ptp(unit, axis=0).any():
        return np.column_stack([np.arange(len(unit)), np.zeros(len(unit))]).astype(np.float64)
    centred = unit - unit.mean(axis=0)
    left, strength, _ = np.linalg.svd(centred, full_matrices=False)
    start = np.zeros((len(unit), 2))
    known = min(2, left.shape[1])
    start[:, :known] = left[:, :known] * strength[:known]
    start *= np.where(start[np.abs(start).argmax(axis=0), [0, 1]] < 0, -1.0, 1.0)
    start *= 1e-4 / max(float(start[:, 0].std()), 1e-300)
    perplexity = min(30.0, (len(unit) - 1) / 3)
    points = TSNE(
        perplexity=perplexity, init=start.astype(np.float32), random_state=random_state, method="exact", max_iter=500
    ).fit_transform(unit)
    return np.asarray(points, dtype=np.float64)


def embedding(points: ArrayLike, labels: Sequence[Any], wrong: ArrayLike | None = None) -> Figure:
    """Draw points by class, with the name of each class among its points.

    Parameters
    ----------
    points
        (n, 2).
    labels
        Class of each point.
    wrong
        Which points are decided wrongly: they get a ring.
    """
    xy = np.asarray(points, dtype=np.float64)
    names = np.asarray(labels)
    classes = np.unique(names)
    colours = class_colours(classes.tolist())
    axes = new_axes(WIDTH, 400.0, left=14.0, bottom=14.0)
    for at, name in enumerate(classes):
        own = xy[names == name]
        marker = MARKERS[at // len(COLOURS) % len(MARKERS)]
        axes.scatter(own[:, 0], own[:, 1], s=20, color=colours[name.item()], alpha=0.75, linewidths=0, marker=marker)
    if wrong is not None and np.any(wrong):
        ring = xy[np.asarray(wrong, dtype=bool)]
        axes.scatter(ring[:, 0], ring[:, 1], s=70, facecolors="none", edgecolors=VERMILION, linewidths=1.3)
    axes.margins(0.08)
    axes.set_xticks([])
    axes.set_yticks([])
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    _name_groups(axes, xy, names, classes, colours)
    return _root(axes)


def _name_groups(axes: Axes, xy: Float, names: NDArray[Any], classes: NDArray[Any], colours: Mapping[Any, str]) -> None:
    """Write the name of each class near the middle of its points, where it covers no other name and few points."""
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    letter, height = 7.4 / 392.0 * (right - left), 13.0 / 372.0 * (high - low)  # of the axes of this figure
    placed: list[tuple[float, float, float]] = []
    size = SMALL if len(classes) <= 12 else SMALL - 1
    for name in classes:
        text = shortened(name.item(), 16)
        own = xy[names == name]
        middle = own[np.linalg.norm(own - np.median(own, axis=0), axis=1).argmin()]
        half = 0.5 * letters(text) * letter
        x = float(np.clip(middle[0], left + half, right - half))
        near = xy[np.abs(xy[:, 0] - x) < half + 0.5 * height, 1]
        tries = [float(middle[1]) + 0.5 * side * step * height for step in range(2, 10) for side in (1, -1)]
        tries = [float(np.clip(y, low + 0.5 * height, high - 0.5 * height)) for y in tries]
        free = [y for y in tries if not any(abs(x - a) < half + b and abs(y - c) < height for a, b, c in placed)]
        # a name must not hide the few points that it stands for; of equally good places the nearest
        hidden = [int((np.abs(near - y) < 0.85 * height).sum()) for y in free or tries]
        y = (free or tries)[hidden.index(min(hidden))]
        placed.append((x, half, y))
        axes.text(
            x,
            y,
            text,
            ha="center",
            va="center",
            fontsize=size,
            fontweight="bold",
            color=colours[name.item()],
            gid=HALO,
            parse_math=False,
        )


def atom(curves: Sequence[Float], weights: ArrayLike, title: str) -> Figure:
    """Draw an atom as the training series that it is made of, one over the other; the heavier, the darker.

    Parameters
    ----------
    curves
        Each series as curves (time, curves), of any length: all are drawn over the same width.
    weights
        Of the series.
    title
        Its class.
    """
    shares = np.abs(np.asarray(weights, dtype=np.float64))
    shares = shares / max(float(shares.max()), 1e-300)
    width, height = 300.0, 170.0
    axes = new_axes(width, height, left=12.0, bottom=12.0)
    axes.set_position((12 / width, 10 / height, 276 / width, 132 / height))
    for series, share in sorted(zip(curves, shares, strict=True), key=lambda pair: float(pair[1])):
        at = thinned(len(series))
        along = at / max(len(series) - 1, 1)
        for q in range(series.shape[1]):
            axes.plot(along, series[at, q], color=COLOURS[q], alpha=0.2 + 0.75 * float(share), linewidth=1.0 + share)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.margins(x=0.01)
    axes.set_title(shortened(title, 38), fontsize=SMALL, color=INK, loc="left", pad=5, parse_math=False)
    return _root(axes)


def class_shares(shares: Mapping[Any, float], decided: Any, true: Any = None) -> Figure:
    """Draw the shares of classes in a decision; the decided class blue, the true one marked where it is another."""
    ranked = sorted(((name, share) for name, share in shares.items() if share >= 0.005), key=lambda item: -item[1])[:6]
    for name in (decided, true):
        if name is not None and name not in dict(ranked):
            ranked.append((name, float(shares.get(name, 0.0))))
    height = 22.0 + 24.0 * len(ranked)
    axes = new_axes(WIDTH, height, left=130.0, bottom=8.0)
    for at, (name, share) in enumerate(ranked):
        colour = COLOURS[0] if name == decided else VERMILION if name == true else FAINT
        axes.barh(at, share, height=0.62, color=colour)
        remark = "" if name == decided or name != true else "  the true class"
        inside = share > 0.8
        axes.text(
            share + (-0.015 if inside else 0.015),
            at,
            f"{share:.0%}{remark}",
            va="center",
            ha="right" if inside else "left",
            fontsize=SMALL,
            color="white" if inside else INK,
        )
    axes.set_yticks(range(len(ranked)), [shortened(name) for name, _ in ranked], fontsize=SMALL, parse_math=False)
    axes.set_ylim(len(ranked) - 0.4, -0.6)
    axes.set_xlim(0.0, 1.0)
    axes.set_xticks([])
    axes.tick_params(axis="y", length=0)
    axes.spines["bottom"].set_visible(False)
    return _root(axes)


def alignment(sample: Float, other: Float, path: Index, names: tuple[str, str]) -> Figure:
    """Draw a series above another, with lines between frames that the warping lays beside each other.

    Parameters
    ----------
    sample, other
        Curves (time, curves); the first curve of each carries the lines.
    path
        Pairs of frames.
    names
        What the two are called.
    """
    both = np.concatenate([sample, other])
    low, high = float(both.min()), float(both.max())
    gap = 1.15 * max(high - low, 1e-9)
    width, height = 330.0, 220.0
    axes = new_axes(width, height, left=6.0, bottom=12.0)
    axes.set_position((6 / width, 22 / height, 318 / width, 176 / height))
    links = path[thinned(len(path), LINKS)]
    for i, j in links:
        axes.plot([i, j], [sample[i, 0] + gap, other[j, 0]], color="#9aa3ad", linewidth=0.7, zorder=1)
    for series, shift in ((sample, gap), (other, 0.0)):
        at = thinned(len(series))
        for q in range(series.shape[1]):
            axes.plot(at, series[at, q] + shift, color=COLOURS[q], linewidth=1.7 if q == 0 else 1.2, zorder=3 - 0.1 * q)
    axes.set_xlim(-1, max(len(sample), len(other)))
    axes.set_ylim(low - 0.05 * gap, high + gap + 0.05 * gap)
    axes.set_xticks([])
    axes.set_yticks([])
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    figure = _root(axes)
    for text, y, side in ((names[0], 1 - 3 / height, "top"), (names[1], 4 / height, "bottom")):
        figure.text(6 / width, y, shortened(text, 48), fontsize=SMALL - 0.5, color=INK, va=side, parse_math=False)
    return figure


def _root(axes: Axes) -> Figure:
    figure = axes.get_figure(root=True)
    assert figure is not None
    return figure
