"""What does a decision look like? Draws ``docs/decision.png``: a series and those that it is rebuilt from.

Made gestures of two dimensions. Of the held-out series that are decided rightly, the one whose confidence is
nearest to two thirds is taken: it shows what partly sure means.

    python benchmarks/picture.py [--output docs/decision.png] [--seed 2]
"""

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from cksc_dist import CKSC
from cksc_dist.io import make_gestures

INK, FAINT, RULE = "#22282f", "#8a929b", "#d5d9de"
COLOURS = ("#1f77b4", "#e07b39", "#2a9d78", "#a3568f")
SPARSITY = 3  # three atoms of three series each: nine at most
DASHED = (0, (2.2, 1.1))


def decide(seed):
    """Return the training set, one series held out with its name, its explanation, and a colour a class."""
    data = make_gestures(n_per_class=40, dims=2, length=(60, 120), noise=0.06, random_state=seed)
    train, test = data.select(np.arange(0, len(data), 2)), data.select(np.arange(1, len(data), 2))
    model = CKSC(sparsity=SPARSITY, kernel="dtw", random_state=seed, n_jobs=-1).fit(train, train.labels)
    right = np.flatnonzero(model.predict(test) == test.labels)
    i = int(right[np.abs(model.class_shares(test)[right].max(axis=1) - 2 / 3).argmin()])
    colours = dict(zip(model.classes_.tolist(), COLOURS, strict=True))
    return train, test[i], str(test.ids[i]), model.explain(test[i], top=SPARSITY**2), colours


def draw_series(axes, series, colour, width, frame_limits, value_limits):
    for q, style in enumerate(("-", DASHED)):
        axes.plot(series[:, q], color=colour, lw=width, ls=style)
    axes.set(xlim=frame_limits, ylim=value_limits, xticks=[], yticks=[])
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(RULE)


def draw_shares(axes, shares, colours):
    """Draw one bar, cut into the classes that the series is rebuilt from."""
    left = 0.0
    for name, share in sorted(shares.items(), key=lambda item: -item[1]):
        axes.barh(0, share, left=left, color=colours[name], height=1, edgecolor="white", lw=2)
        if share > 0.1:
            text = f"{name}  {share:.0%}"
            axes.text(left + share / 2, 0, text, color="white", ha="center", va="center", fontsize=10)
        left += share
    axes.set_xlim(0, 1)
    axes.axis("off")


def draw(train, sample, name, explanation, colours):
    parts = [train[part.row] for part in explanation.samples]
    frames = np.concatenate([sample, *parts])
    margin = 0.05 * np.ptp(frames)
    limits = (-2, 1 + max(map(len, [sample, *parts]))), (frames.min() - margin, frames.max() + margin)

    plt.rcParams.update({"font.family": "DejaVu Sans", "text.color": INK})
    figure = plt.figure(figsize=(10, 5.2), dpi=120)
    rows = -(-len(parts) // 3)
    edges = {"left": 0.025, "right": 0.985, "top": 0.86, "bottom": 0.04, "wspace": 0.16, "hspace": 0.5}
    grid = figure.add_gridspec(rows + 1, 4, width_ratios=[1.65, 1, 1, 1], height_ratios=[1] * rows + [0.32], **edges)
    left = figure.add_subplot(grid[:rows, 0])
    draw_series(left, sample, INK, 2.0, *limits)
    left.set_title(f"new series {name}", loc="left", fontsize=11, pad=3)
    for at, (part, series) in enumerate(zip(explanation.samples, parts, strict=True)):
        axes = figure.add_subplot(grid[at // 3, 1 + at % 3])
        colour = colours[part.label]
        draw_series(axes, series, colour, 1.5, *limits)
        axes.set_title(f"{part.share:.0%}", loc="left", fontsize=13, color=colour, weight="bold", pad=3)
        axes.set_title(str(train.ids[part.row]), loc="right", fontsize=9, color=FAINT, pad=3)
    draw_shares(figure.add_subplot(grid[rows, 1:]), explanation.shares, colours)
    verdict = figure.add_subplot(grid[rows, 0])
    verdict.axis("off")
    text = f"decided: {explanation.label}, {explanation.confidence:.0%} sure"
    verdict.text(0, 0.5, text, va="center", fontsize=12, weight="bold", transform=verdict.transAxes)
    text = f"A decision, and the {len(parts)} training series that it is rebuilt from"
    figure.text(0.025, 0.945, text, fontsize=13, weight="bold")
    note = "solid and dashed: two dimensions; same axes in all"
    figure.text(0.985, 0.948, note, fontsize=9, color=FAINT, ha="right")
    return figure


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path(__file__).parents[1] / "docs" / "decision.png")
    parser.add_argument("--seed", type=int, default=2)
    options = parser.parse_args()
    figure = draw(*decide(options.seed))
    options.output.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(options.output, metadata={"Software": None})
    print(f"{options.output.name}: {options.output.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
