"""Figures of an evaluation, each from arrays to a matplotlib Figure, and as SVG to stand inside a page.

Nothing here knows pyplot: a figure is an object of its own, and drawing one changes nothing else. Text from data is
never read as a formula, and stays text in the SVG, so that a browser finds letters for any language.
"""

from __future__ import annotations

import hashlib
import io
import re
import unicodedata
import warnings
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray

from cksc_dist.evaluate.methods import METHODS, REFERENCES
from cksc_dist.evaluate.page import spelt

__all__ = [
    "COLOURS",
    "HALO",
    "accuracy_by_split",
    "class_colours",
    "confusion",
    "interpretability",
    "letters",
    "method_name",
    "new_axes",
    "objective",
    "shortened",
    "small_confusion",
    "svg",
    "sweep",
]

Float = NDArray[np.float64]

BLUE, ORANGE, GREEN, VERMILION = "#0072B2", "#E69F00", "#009E73", "#D55E00"
COLOURS = (BLUE, ORANGE, GREEN, VERMILION, "#CC79A7", "#56B4E9", "#8A7A00", "#000000")
"""Okabe and Ito's colours, which colour-blind people can tell apart; their yellow darker, to be seen on white."""
INK, FAINT, RULE = "#22282f", "#6b747e", "#d5d9de"
HALO = "halo"
"""A text with this name (gid) gets a white edge: one that matplotlib draws would make outlines of its letters."""

WIDTH = 420.0
"""Width of a figure in its own units: on a telephone it is shown a little smaller, on a screen a little larger."""
FONT = 12.0
SMALL = 11.0
LABELLED = 30
"""Up to so many classes are named along a confusion matrix."""
COUNTED = 14
"""Up to so many classes have their counts written into the cells."""

SVG = "http://www.w3.org/2000/svg"
_LINK, _URL = re.compile(r"^#(.+)$"), re.compile(r"url\(#([^)]+)\)")

TERM_NAMES = {
    "reconstruction": "reconstruction ‖Φ(X) − Φ(X)UG‖²",
    "ridge": "ridge β‖UG‖²",
    "discrimination": "other classes αΣM∘(UG)ᵀ",
}


def method_name(method: str) -> str:
    """Return what people call a method."""
    return METHODS[method].title if method in METHODS else method


def shortened(text: Any, most: int = 18) -> str:
    """Return a name that is not too long for a figure, with its end, which may be all that tells it from another.

    Examples
    --------
    >>> shortened("a session of spring, number 12", 20)
    'a session o…mber 12'
    """
    words = " ".join(spelt(str(text)).split())
    whole, kept = words, min(len(words), most + 1)
    while letters(words) > most and kept > 1:
        kept -= 1
        tail = 2 * kept // 5
        words = f"{whole[: kept - tail]}…{whole[len(whole) - tail :]}"
    return words


def letters(text: str) -> float:
    """Return how wide a text is, in letters of usual width; an estimate, because the browser chooses the font."""
    wide = sum(letter in "MWmw@%" or unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return len(text) + 0.65 * wide + 0.15 * sum(letter.isupper() for letter in text)


def class_colours(classes: Sequence[Any]) -> dict[Any, str]:
    """Return a colour for each class; after the eighth they begin again, so that names must stand beside."""
    return {name: COLOURS[at % len(COLOURS)] for at, name in enumerate(classes)}


def new_axes(width: float = WIDTH, height: float = 260.0, *, left: float = 48.0, bottom: float = 40.0) -> Axes:
    """Return quiet axes on a figure of their own; sizes are in the units of the SVG.

    Parameters
    ----------
    width, height
        Of the whole figure.
    left, bottom
        Room for ticks and names.
    """
    figure = Figure(figsize=(width / 72, height / 72))
    top, right = 14.0, 14.0
    axes = figure.add_axes(
        (left / width, bottom / height, (width - left - right) / width, (height - bottom - top) / height)
    )
    axes.spines[["top", "right"]].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(RULE)
    axes.tick_params(colors=INK, labelsize=SMALL, length=3, color=RULE)
    axes.set_axisbelow(True)
    return axes


def svg(figure: Figure, *, title: str = "", name: str = "") -> str:
    """Return a figure as SVG to be put into a page: no date, no script, no id that another figure has.

    Parameters
    ----------
    figure
        What to draw.
    title
        Read out by a screen reader.
    name
        Begins all ids; where it is left out, a digest of title and drawing does.

    Examples
    --------
    >>> drawing = svg(interpretability({"cksc": 0.97, "kksvd": 0.61}), title="IP")
    >>> drawing.startswith("<svg"), "<title>IP</title>" in drawing, "K-KSVD" in drawing
    (True, True, True)
    """
    content = io.StringIO()
    settings: Any = {"svg.fonttype": "none", "svg.hashsalt": "cksc", "text.usetex": False}
    with warnings.catch_warnings(), matplotlib.rc_context(settings):
        warnings.filterwarnings("ignore", "Glyph .* missing")  # the browser has other fonts
        figure.savefig(content, format="svg", metadata={"Date": None}, transparent=True)
    drawn, title = content.getvalue(), spelt(title)
    # two drawings may look the same, and yet be of two things
    digest = hashlib.sha256(f"{title}\0{drawn}".encode()).hexdigest()[:10]
    prefix = re.sub(r"[^A-Za-z0-9-]", "-", name) or f"f{digest}"
    root = ET.fromstring(drawn)
    for parent in list(root.iter()):
        for child in list(parent):
            if _local(child.tag) in ("metadata", "style"):
                parent.remove(child)
        if parent.attrib.get("id", "").startswith(HALO):
            for name_text in parent.iter(f"{{{SVG}}}text"):
                name_text.attrib["style"] += "; stroke: #ffffff; stroke-width: 3px; paint-order: stroke"
    _own_ids(root, f"{prefix}-")
    _, _, width, height = (float(part) for part in root.attrib["viewBox"].split())
    root.attrib.pop("version", None)
    root.attrib |= {
        "xmlns": SVG,
        "width": f"{width:g}",
        "height": f"{height:g}",
        "stroke-linejoin": "round",
        "role": "img",
    }
    if title:
        root.attrib["aria-label"] = title
        root.insert(0, ET.Element("title"))
        root[0].text = title
    return ET.tostring(root, encoding="unicode")


def _local(tag: str) -> str:
    return tag.rsplit("}", 1)[-1]


def _own_ids(root: ET.Element, prefix: str) -> None:
    """Leave only the ids that something refers to, each with a prefix; and plain names, as HTML has them."""
    used: set[str] = set()
    for element in root.iter():
        element.tag = _local(element.tag)
        element.attrib = {_local(key): value for key, value in element.attrib.items()}
        for key, value in element.attrib.items():
            used |= set((_LINK if key == "href" else _URL).findall(value))
    for element in root.iter():
        own = element.attrib.pop("id", None)
        for key, value in element.attrib.items():
            pattern = _LINK if key == "href" else _URL
            element.attrib[key] = pattern.sub(lambda found: found[0].replace("#", f"#{prefix}"), value)
        if own in used:
            element.attrib["id"] = f"{prefix}{own}"


def accuracy_by_split(accuracies: Mapping[str, ArrayLike], paper: Mapping[str, float] | None = None) -> Figure:
    """Draw the accuracy of every split, a line for each method, with the mean and the paper's figure.

    Parameters
    ----------
    accuracies
        Of each method, by its short name: a share for each split; NaN where there is none.
    paper
        What the paper has, in percent.
    """
    paper = paper or {}
    methods = list(accuracies)
    axes = new_axes(height=70.0 + 26.0 * len(methods), left=150.0)
    for at, method in enumerate(methods):
        values = 100.0 * _known(accuracies[method])
        colour = _method_colour(method)
        axes.axhline(at, color=RULE, linewidth=0.6, zorder=0)
        spread = np.linspace(-0.16, 0.16, len(values)) if len(values) > 1 else np.zeros(len(values))
        axes.scatter(values, at + spread, s=17, color=colour, alpha=0.55, linewidths=0)
        if len(values):
            axes.plot([values.mean()] * 2, [at - 0.34, at + 0.34], color=colour, linewidth=2.4)
        if method in paper:
            axes.scatter([paper[method]], [at], s=34, marker="D", facecolor="white", edgecolor=INK, linewidth=1.1)
    _name_rows(axes, methods)
    axes.set_xlabel("accuracy in %", fontsize=SMALL, color=INK)
    axes.margins(x=0.04)
    low, high = axes.get_xlim()
    axes.set_xlim(low, min(high, 100.0 + 0.02 * (100.0 - low)))
    axes.grid(axis="x", color=RULE, linewidth=0.5)
    return _figure(axes)


def interpretability(means: Mapping[str, float]) -> Figure:
    """Draw the mean IP of methods; those for which it has no meaning (NaN) are left out."""
    methods = [method for method, mean in means.items() if np.isfinite(mean)]
    axes = new_axes(height=62.0 + 24.0 * len(methods), left=150.0)
    for at, method in enumerate(methods):
        axes.barh(at, means[method], height=0.5, color=_method_colour(method))
        inside = means[method] > 0.85
        axes.text(
            means[method] + (-0.02 if inside else 0.02),
            at,
            f"{means[method]:.2f}",
            va="center",
            ha="right" if inside else "left",
            fontsize=SMALL,
            color="white" if inside else INK,
        )
    _name_rows(axes, methods)
    axes.set_xlim(0.0, 1.0)
    axes.set_xlabel("mean interpretability IP", fontsize=SMALL, color=INK)
    return _figure(axes)


def sweep(values: ArrayLike, accuracies: Mapping[str, ArrayLike], name: str) -> Figure:
    """Draw accuracy against a parameter: mean over splits, and a band of one standard deviation.

    Parameters
    ----------
    values
        Of the parameter.
    accuracies
        Of each method (splits, values), as shares.
    name
        What the axis is called.
    """
    axes = new_axes(height=270.0)
    along = np.asarray(values, dtype=np.float64)
    for method, table in accuracies.items():
        percent = 100.0 * np.asarray(table, dtype=np.float64)
        known = np.isfinite(percent).any(axis=0)
        x, percent = along[known], percent[:, known]
        mean, deviation = np.nanmean(percent, axis=0), np.nanstd(percent, axis=0)
        colour = _method_colour(method)
        axes.fill_between(
            x, mean - deviation, np.minimum(mean + deviation, 100.0), color=colour, alpha=0.15, linewidth=0
        )
        axes.plot(x, mean, color=colour, linewidth=1.8, marker="o", markersize=4, label=method_name(method))
    _whole_ticks(axes, along)
    axes.set_xlabel(name, fontsize=SMALL, color=INK, parse_math=False)
    axes.set_ylabel("accuracy in %", fontsize=SMALL, color=INK)
    axes.grid(axis="y", color=RULE, linewidth=0.5)
    if len(accuracies) > 1:
        _legend(axes, 3)
    return _figure(axes)


def objective(terms: Mapping[str, ArrayLike]) -> Figure:
    """Draw J and its terms against alternations.

    Parameters
    ----------
    terms
        Each term after every half step (codes, atoms, codes, ...).
    """
    rows = {term: np.asarray(values, dtype=np.float64) for term, values in terms.items()}
    total = np.sum(list(rows.values()), axis=0)
    steps = (np.arange(len(total)) + 1) / 2
    axes = new_axes(height=300.0, left=56.0)
    axes.plot(steps, total, color=INK, linewidth=2.2, label="J, the sum")
    styles = ((BLUE, "-"), (ORANGE, "--"), (GREEN, ":"))
    for (term, values), (colour, dashes) in zip(rows.items(), styles, strict=False):
        axes.plot(steps, values, color=colour, linewidth=1.8, linestyle=dashes, label=TERM_NAMES.get(term, term))
    axes.set_xlabel("alternations of codes and atoms", fontsize=SMALL, color=INK)
    axes.set_ylim(bottom=min(0.0, float(min(values.min() for values in rows.values()))))
    axes.set_xlim(left=0.0)
    _whole_ticks(axes, np.ceil(steps))
    axes.grid(axis="y", color=RULE, linewidth=0.5)
    _legend(axes, 2, 40.0)
    return _figure(axes)


def confusion(counts: ArrayLike, classes: Sequence[Any]) -> Figure:
    """Draw which classes (rows) were taken for which (columns), with their names.

    Parameters
    ----------
    counts
        Samples of each class by decision.
    classes
        Names of rows and columns.
    """
    table = np.asarray(counts, dtype=np.float64)
    names = [shortened(name, 14) for name in classes]
    named = len(names) <= LABELLED
    longest = max(letters(name) for name in names)
    # as large as rows let them be, which are the smaller the more room names take
    size = min(SMALL, 0.75 * (WIDTH - 46.0) / (len(names) + 0.5 * longest))
    room = 32.0 + size * 0.62 * longest if named else 30.0
    side = WIDTH - room - 14.0
    axes = new_axes(WIDTH, side + room + 14.0, left=room, bottom=room)
    _cells(axes, table)
    if named:
        at = np.arange(len(names))
        axes.set_yticks(at, names, fontsize=size, parse_math=False)
        axes.set_xticks(at, names, fontsize=size, parse_math=False)
        if longest > 3:
            # they end at the axis, however wide the letters of the browser are
            for label in axes.get_xticklabels():
                label.set(rotation=90, rotation_mode="anchor", ha="right", va="center")
    else:
        axes.set_xticks([])
        axes.set_yticks([])
    if len(names) <= COUNTED:
        total = np.maximum(table.sum(axis=1), 1.0)
        for row, column in np.argwhere(table > 0):
            strong = table[row, column] / total[row] > 0.5
            text = f"{table[row, column]:.0f}"
            axes.text(column, row, text, ha="center", va="center", fontsize=SMALL, color="white" if strong else INK)
    axes.set_xlabel("decided", fontsize=SMALL, color=INK)
    axes.set_ylabel("true class", fontsize=SMALL, color=INK)
    return _figure(axes)


def small_confusion(counts: ArrayLike, method: str) -> Figure:
    """Draw a confusion matrix to be compared with others: no names but the method's and its accuracy."""
    table = np.asarray(counts, dtype=np.float64)
    axes = new_axes(190.0, 214.0, left=14.0, bottom=14.0)
    axes.set_position((14 / 190, 10 / 214, 162 / 190, 162 / 214))
    _cells(axes, table)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_title(
        f"{method_name(method)}\n{100 * np.trace(table) / max(table.sum(), 1.0):.1f} %", fontsize=FONT, color=INK, pad=5
    )
    return _figure(axes)


def _cells(axes: Axes, table: Float) -> None:
    """Fill the cells that hold anything: right ones blue, wrong ones vermilion, by their share of the row."""
    share = table / np.maximum(table.sum(axis=1, keepdims=True), 1.0)
    at = np.argwhere(table > 0)
    corners = np.array([(-0.5, -0.5), (0.5, -0.5), (0.5, 0.5), (-0.5, 0.5)])
    squares = [corners + np.array([column, row]) for row, column in at]
    tints = [_tint(BLUE if row == column else VERMILION, share[row, column]) for row, column in at]
    axes.add_collection(PolyCollection(squares, facecolors=tints, edgecolors="white", linewidths=0.4), autolim=False)
    axes.set_xlim(-0.5, table.shape[1] - 0.5)
    axes.set_ylim(table.shape[0] - 0.5, -0.5)
    axes.spines[["top", "right"]].set_visible(True)
    for spine in axes.spines.values():
        spine.set_color(RULE)
    axes.tick_params(length=0)


def _tint(colour: str, share: float) -> tuple[float, float, float]:
    """Return a colour mixed with white; never so pale that it is not seen."""
    full = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    weight = 0.25 + 0.75 * float(share)
    red, green, blue = (1.0 - weight * (1.0 - part) for part in full)
    return red, green, blue


def _whole_ticks(axes: Axes, values: Float) -> None:
    """Number an axis by whole numbers where it has no others."""
    if (values == np.round(values)).all():
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _known(values: ArrayLike) -> Float:
    row = np.asarray(values, dtype=np.float64).ravel()
    return row[np.isfinite(row)]


def _method_colour(method: str) -> str:
    return BLUE if method == "cksc" else "#9a6a00" if method in REFERENCES else FAINT


def _name_rows(axes: Axes, methods: Sequence[str]) -> None:
    axes.set_yticks(range(len(methods)), [shortened(method_name(name), 24) for name in methods], parse_math=False)
    for label, method in zip(axes.get_yticklabels(), methods, strict=True):
        label.set_fontsize(FONT)
        label.set_color(BLUE if method == "cksc" else INK)
        label.set_fontweight("bold" if method == "cksc" else "normal")
    axes.set_ylim(len(methods) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def _legend(axes: Axes, columns: int, room: float = 24.0) -> None:
    """Put the legend above the axes, where it hides nothing."""
    figure = _figure(axes)
    height = figure.get_figheight() * 72
    place = axes.get_position()
    axes.set_position((place.x0, place.y0, place.width, place.height - room / height))
    legend = figure.legend(
        *axes.get_legend_handles_labels(),
        loc="upper left",
        ncols=columns,
        frameon=False,
        fontsize=SMALL,
        labelcolor=INK,
        handlelength=1.8,
        columnspacing=1.2,
        borderaxespad=0.2,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)


def _figure(axes: Axes) -> Figure:
    figure = axes.get_figure(root=True)
    assert figure is not None
    return figure
