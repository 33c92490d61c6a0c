"""The page ``/cksc`` as Bokeh draws it: the tile map, how far it is, curves of J, accuracies."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np
from bokeh.layouts import column, row
from bokeh.models import ColumnDataSource, FactorRange, LinearColorMapper, NumeralTickFormatter, Range1d
from bokeh.models.widgets import Div
from bokeh.palettes import Category20_20
from bokeh.plotting import figure

from cksc_dist.dist.dashboard_state import BEFORE, SPLIT, Run, Runs

__all__ = ["make_document"]

UPDATE_MILLISECONDS = 500
MOST_CELLS = 256
"""Rows of the picture of a tile map at most."""
GREY, PALE_BLUE, BLUE = "#e4e8ec", "#8fb3d1", "#2a6f9e"
STRONG, PALE = "#1d2b36", "#66757f"


def make_document(runs: Runs, extra: dict[str, Any], doc: Any) -> None:
    """Fill a document of the page, and keep it up to date."""
    page = _Page()
    page.show(runs)
    seen = runs.changes

    def update() -> None:
        nonlocal seen
        if runs.changes != seen:
            seen = runs.changes
            page.show(runs)

    doc.title = "cksc"
    doc.add_root(page.root)
    doc.add_periodic_callback(update, UPDATE_MILLISECONDS)
    try:
        from distributed.dashboard.components.scheduler import BOKEH_THEME, env

        doc.template = env.get_template("simple.html")
        doc.template_variables.update(extra)
        doc.theme = BOKEH_THEME
    except (ImportError, AttributeError, LookupError):
        pass  # without the navigation bar


class _Page:
    """The parts of the page of one visitor."""

    def __init__(self) -> None:
        self._head = Div(name="head", sizing_mode="stretch_width")
        self._others = Div(name="others", sizing_mode="stretch_width")
        self._map, self._tiles = _tile_map()
        self._curves, self._lines, self._points = _curves()
        self._dots, self._accuracies, self._means = _accuracies()
        right = column(self._curves, self._dots, sizing_mode="stretch_width")
        self.root = column(
            self._head,
            row(self._map, right, sizing_mode="stretch_width"),
            self._others,
            sizing_mode="stretch_width",
            margin=(8, 16, 8, 16),
        )

    def show(self, runs: Runs) -> None:
        """Show what is known now."""
        run = runs.latest()
        _set(self._head, text=_head(run) if run else _line("No run of cksc has been seen on this scheduler yet."))
        _set(self._others, text=_others(runs, run))
        if run is not None:
            self._show_tiles(run)
            self._show_curves(run)
            self._show_accuracies(run)

    def _show_tiles(self, run: Run) -> None:
        # what is worked on; once all are done the largest, which tells most
        heard = list(run.tiles.items())
        name, tiles = heard[-1] if heard else ("", None)
        if tiles is not None and tiles.done == tiles.total:
            name, tiles = max(reversed(heard), key=lambda item: item[1].blocks)
        if tiles is None:
            self._tiles.data = {"image": [], "size": []}
            _set(self._map.title, text="tiles: none yet")
            return
        share = f"{tiles.done:,} of {tiles.total:,}, {_percent(tiles.done / tiles.total)}"
        before = int(np.count_nonzero(tiles.state == BEFORE))
        earlier = f"; pale: {before:,} of earlier runs" if before else ""
        _set(self._map.title, text=f"tiles of matrix {name[:8]}: {share}{earlier}")
        _set(self._map.x_range, end=tiles.blocks)
        _set(self._map.y_range, start=tiles.blocks)
        image = tiles.image(MOST_CELLS)
        old = self._tiles.data["image"]
        if not (len(old) and np.array_equal(old[0], image)):
            self._tiles.data = {"image": [image], "size": [tiles.blocks]}

    def _show_curves(self, run: Run) -> None:
        xs, ys = [], []
        for count, values in run.objectives.values():
            xs.append(list(range(count - len(values) + 1, count + 1)))
            ys.append(list(values))
        names = list(run.objectives)
        labels = [name.split(SPLIT)[0] for name in names]  # splits of one method are drawn alike
        kinds = {label: number for number, label in enumerate(dict.fromkeys(labels))}
        colors = [Category20_20[(2 * kinds[label] + kinds[label] // 10) % 20] for label in labels]
        lines = {"x": xs, "y": ys, "color": colors, "fit": labels}
        if lines == self._lines.data:
            return
        self._lines.data = lines
        flat = [
            (x, y, color) for each, J, color in zip(xs, ys, colors, strict=True) for x, y in zip(each, J, strict=True)
        ]
        self._points.data = {key: [point[at] for point in flat] for at, key in enumerate(("x", "y", "color"))}
        latest = f": {names[-1][-40:]} at {ys[-1][-1]:.6g}" if names and ys[-1] else ": none yet"
        _set(self._curves.title, text=f"objective J after each alternation{latest}")

    def _show_accuracies(self, run: Run) -> None:
        found = run.accuracies()
        means = {method: sum(values.values()) / len(values) for method, values in found.items()}
        methods = sorted(means, key=lambda method: means[method])
        names = {method: f"{method[:40]}  {means[method]:.1%}" for method in methods}
        dots = [(names[method], value) for method in methods for value in found[method].values()]
        values = [value for _, value in dots]
        data = {"method": [name for name, _ in dots], "accuracy": values}
        if data == self._accuracies.data:
            return
        _set(self._dots.y_range, factors=list(names.values()))
        self._accuracies.data = data
        self._means.data = {"method": list(names.values()), "accuracy": [means[method] for method in methods]}
        margin = max(0.02, 0.05 * (1.0 - min(values, default=0.0)))
        _set(self._dots.x_range, start=max(0.0, min(values, default=0.0) - margin), end=1.0 + 0.4 * margin)
        _set(self._dots.title, text=f"accuracy so far: {len(dots)} fits" if dots else "accuracy so far: no fits yet")


def _tile_map() -> tuple[Any, ColumnDataSource]:
    source = ColumnDataSource({"image": [], "size": []}, name="tiles")
    plot: Any = figure(
        name="map",
        width=560,
        height=584,
        x_range=Range1d(start=0, end=1),
        y_range=Range1d(start=1, end=0),
        toolbar_location=None,
        tools="",
        title="tiles: none yet",
    )
    colors = LinearColorMapper(palette=[GREY, PALE_BLUE, BLUE], low=0, high=2)
    plot.image("image", x=0, y=0, dw="size", dh="size", color_mapper=colors, source=source)
    _plain(plot)
    plot.xaxis.axis_label = "block of series"
    plot.xaxis.ticker.min_interval = plot.yaxis.ticker.min_interval = 1
    return plot, source


def _curves() -> tuple[Any, ColumnDataSource, ColumnDataSource]:
    lines = ColumnDataSource({"x": [], "y": [], "color": [], "fit": []}, name="curves")
    points = ColumnDataSource({"x": [], "y": [], "color": []}, name="points")
    plot: Any = figure(
        height=288,
        sizing_mode="stretch_width",
        toolbar_location=None,
        tools="",
        title="objective J after each alternation: none yet",
    )
    plot.multi_line("x", "y", color="color", line_width=2, source=lines, legend_field="fit")
    plot.scatter("x", "y", color="color", size=5, source=points)
    plot.legend.label_text_font_size = "11px"
    plot.legend.border_line_color = None
    plot.add_layout(plot.legend[0], "right")  # beside the curves, which may be anywhere
    _plain(plot)
    plot.xaxis.axis_label = "alternation"
    plot.xaxis.ticker.min_interval = 1
    return plot, lines, points


def _accuracies() -> tuple[Any, ColumnDataSource, ColumnDataSource]:
    dots = ColumnDataSource({"method": [], "accuracy": []}, name="accuracies")
    means = ColumnDataSource({"method": [], "accuracy": []}, name="means")
    plot: Any = figure(
        height=288,
        sizing_mode="stretch_width",
        x_range=Range1d(start=0, end=1.02),
        y_range=FactorRange(),
        toolbar_location=None,
        tools="",
        title="accuracy so far: no fits yet",
    )
    plot.scatter("accuracy", "method", size=8, color=BLUE, alpha=0.35, source=dots)
    plot.scatter(
        "accuracy", "method", marker="dash", angle=np.pi / 2, size=22, line_width=3, color=STRONG, source=means
    )
    _plain(plot)
    plot.xaxis.formatter = NumeralTickFormatter(format="0%")
    plot.xaxis.axis_label = "of the test series, a dot for each split; the bar is the mean"
    return plot, dots, means


def _plain(plot: Any) -> None:
    """Give a plot the look of the page."""
    plot.outline_line_color = None
    plot.title.text_font_size = "14px"
    plot.title.text_color = STRONG
    plot.grid.grid_line_color = "#edf0f2"
    plot.axis.axis_line_color = None
    plot.axis.major_tick_line_color = "#c5ccd1"
    plot.axis.minor_tick_line_color = None
    plot.axis.axis_label_text_font_style = "normal"
    plot.axis.axis_label_text_color = PALE


def _set(model: Any, **values: Any) -> None:
    """Set what differs: Bokeh sends whatever is set."""
    for name, value in values.items():
        if getattr(model, name) != value:
            setattr(model, name, value)


def _head(run: Run) -> str:
    """Return what is said of the run: stage, share, rate, time."""
    share = _percent(run.share)
    facts = [
        f"{run.done:,} of {run.total:,} {run.unit}" if run.total else "",
        f"{_amount(run.rate)} {run.rate_unit}/s" if run.rate is not None else "",
        f"{run.workers} {'worker' if run.workers == 1 else 'workers'}" if run.workers else "",
        f"{_time(run.seconds)} so far" if not run.ended else "ended",
        f"ETA {_time(run.eta)}" if run.eta else "",
    ]
    bar = (
        f'<div style="height:10px;background:{GREY};border-radius:5px;margin:8px 0;overflow:hidden">'
        f'<div style="height:10px;width:{run.share:.1%};background:{BLUE}"></div></div>'
    )
    big = (
        f'<div style="font-size:26px;color:{STRONG}">{escape(run.stage) or "beginning"} '
        f'<b style="float:right">{share if run.work_total else ""}</b></div>'
    )
    return (
        '<div style="font-family:Helvetica,Arial,sans-serif;width:calc(100vw - 60px)">'
        f"{big}{bar}{_line(' &middot; '.join(escape(fact) for fact in facts if fact), STRONG)}"
        f"{_line(escape(run.note) or '&nbsp;')}{_line('run ' + escape(f'{run.key} of {run.who}'))}</div>"
    )


def _others(runs: Runs, shown: Run | None) -> str:
    """Return a line for each other run."""
    lines = [
        f"run {run.key} of {run.who}: {run.stage or 'beginning'} {_percent(run.share)}{', ended' if run.ended else ''}"
        for run in runs.found.values()
        if run is not shown
    ]
    return "".join(_line(escape(line)) for line in ["Also on this scheduler:", *lines]) if lines else ""


def _line(text: str, color: str = PALE) -> str:
    return f'<div style="font-size:14px;line-height:1.5;color:{color}">{text}</div>'


def _percent(share: float) -> str:
    """Return a share as text; 100 % is not said before it is true.

    Examples
    --------
    >>> _percent(0.9999), _percent(1.0)
    ('99.9 %', '100 %')
    """
    return "100 %" if share >= 1.0 else f"{min(share, 0.999):.1%}".replace("%", " %")


def _amount(value: float | None) -> str:
    """Return a number with a unit.

    Examples
    --------
    >>> _amount(0.25), _amount(1234567.0)
    ('0.25', '1.23 M')
    """
    value = value or 0.0
    for limit, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= limit:
            return f"{value / limit:.3g}{letter}"
    return f"{value:.3g}"


def _time(seconds: float | None) -> str:
    """Return a time as text.

    Examples
    --------
    >>> _time(4.4), _time(90), _time(7300)
    ('4 s', '1 min 30 s', '2 h 1 min')
    """
    whole = round(seconds or 0.0)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
