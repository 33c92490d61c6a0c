"""The report in a real browser, on a screen and on a telephone: every figure draws something, and nothing is cut."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread

from cksc_dist.evaluate.figures import accuracy_by_split, interpretability, new_axes, small_confusion, svg, sweep
from cksc_dist.evaluate.page import Picture, heading, page, pictures, table, text
from cksc_dist.evaluate.report import write_report
from tests.browser import Browser, Page, needs_chromium, running
from tests.evaluate.test_report import CLASSES, METHODS_RUN, made_evaluation

pytestmark = needs_chromium

WIDTHS = [1280, 400]

FIGURES = """[...document.querySelectorAll("svg")].map(svg => {
  const box = element => { const r = element.getBoundingClientRect(); return [r.left, r.top, r.right, r.bottom] }
  const frame = box(svg), scale = (frame[2] - frame[0]) / svg.viewBox.baseVal.width
  // what shows data is clipped to the axes, which names and frame are not; the lines of the grid are so as well
  const isMark = element => {
    const style = getComputedStyle(element), paints = [style.fill, style.stroke]
    const seen = paints.some(paint => !["none", "rgb(213, 217, 222)", "rgb(255, 255, 255)"].includes(paint))
    const [left, top, right, bottom] = box(element)
    const inside = right > frame[0] && left < frame[2] && bottom > frame[1] && top < frame[3]
    return seen && inside && right - left + bottom - top > 1 && style.visibility == "visible" && style.opacity > 0
  }
  const marks = [...svg.querySelectorAll("path, use")].filter(each => each.closest("[clip-path]") && isMark(each))
  const texts = [...svg.querySelectorAll("text")].map(each => ({
    text: each.textContent, box: box(each), size: scale * parseFloat(getComputedStyle(each).fontSize)
  }))
  return {name: svg.getAttribute("aria-label"), box: frame, marks: marks.length, texts}
})"""


def empty_figures(opened: Page) -> list[str]:
    """Return the names of drawings in which no mark of any data is seen."""
    return [figure["name"] for figure in opened.evaluate(FIGURES) if not figure["marks"]]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running() as found:
        yield found


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The reports of a store whose names are as hard to show as can be, and of the model in it."""
    store, folder = made_evaluation(tmp_path_factory.getbasetemp()), tmp_path_factory.mktemp("reports")
    return {
        "store": write_report(store, folder / "store.html", name="first"),
        "model": write_report(store / "models" / "first", folder / "model.html"),
    }


@pytest.fixture(scope="module", params=[(name, width) for name in ("store", "model") for width in WIDTHS], ids=str)
def opened(request: pytest.FixtureRequest, browser: Browser, reports: dict[str, Path]) -> tuple[Page, str, int]:
    name, width = request.param
    return browser.open(reports[name], width, cut_off=True), name, width


Opened = tuple[Page, str, int]


# the report


def test_every_figure_drew_something(opened: Opened) -> None:
    shown, name, width = opened
    figures = shown.evaluate(FIGURES)
    assert len(figures) > (25 if name == "store" else 8)
    assert empty_figures(shown) == []
    for figure in figures:
        left, top, right, bottom = figure["box"]
        assert 0 <= left < right <= width, figure["name"]
        assert right - left >= 130, figure["name"]
        assert bottom - top >= 35, figure["name"]


def test_every_figure_is_seen_on_the_screen(opened: Opened, tmp_path: Path) -> None:
    """Not what the browser has been told to draw, but what came out."""
    shown, _, _ = opened
    pixels = imread(shown.screenshot(tmp_path / "page.png"))[..., :3]
    for figure in shown.evaluate(FIGURES):
        left, top, right, bottom = (round(edge) for edge in figure["box"])
        part = pixels[top:bottom, left:right]
        coloured = (np.ptp(part, axis=2) > 0.2).mean()
        assert coloured > 0.0005, figure["name"]


def test_nothing_was_asked_of_the_network_and_nothing_went_wrong(opened: Opened, reports: dict[str, Path]) -> None:
    shown, name, _ = opened
    assert shown.requests == [reports[name].as_uri()]
    assert shown.errors == []
    assert shown.evaluate("document.querySelectorAll('script, img, iframe').length") == 0


def test_the_page_does_not_scroll_sideways(opened: Opened) -> None:
    shown, _, width = opened
    assert shown.evaluate("innerWidth") == width
    assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_every_heading_and_caption_is_seen_whole(opened: Opened) -> None:
    shown, name, width = opened
    found = shown.evaluate("""[...document.querySelectorAll("h1, h2, h3, figcaption, p, dd, .card")].map(each => {
      const r = each.getBoundingClientRect(), hidden = each.closest("details:not([open])")
      return [each.tagName, each.textContent, r.left, r.right, r.height, each.scrollWidth - each.clientWidth, !!hidden]
    })""")
    seen = [each for each in found if not each[-1]]
    assert sum(each[0] in ("H1", "H2", "H3") for each in seen) == (10 if name == "store" else 3)
    for tag, words, left, right, height, beyond, _ in seen:
        assert words.strip(), tag
        assert 0 <= left < right <= width, words
        assert height >= 15, words
        assert beyond <= 0, words


def test_no_text_of_a_figure_is_cut_off_or_too_small_to_be_read(opened: Opened) -> None:
    shown, _, _ = opened
    for figure in shown.evaluate(FIGURES):
        left, top, right, bottom = figure["box"]
        for each in figure["texts"]:
            where = (figure["name"], each["text"])
            assert left - 2 <= each["box"][0], where
            assert top - 2 <= each["box"][1], where
            assert each["box"][2] <= right + 2, where
            assert each["box"][3] <= bottom + 2, where
            assert each["size"] >= 8, where


def covers(one: Any, other: Any, least: float = 3.0) -> bool:
    """Tell whether two boxes lie on each other by more than the room around letters."""
    wide = min(one[2], other[2]) - max(one[0], other[0])
    high = min(one[3], other[3]) - max(one[1], other[1])
    return bool(min(wide, high) > least)


def test_nothing_lies_on_anything_else(opened: Opened) -> None:
    shown, _, _ = opened
    figures = shown.evaluate(FIGURES)
    for one, other in combinations(figures, 2):
        assert not covers(one["box"], other["box"], 0.5), (one["name"], other["name"])
    for figure in figures:
        for one, other in combinations(figure["texts"], 2):
            assert not covers(one["box"], other["box"]), (figure["name"], one["text"], other["text"])


def test_the_table_fits_a_screen_and_its_first_columns_a_telephone(browser: Browser, reports: dict[str, Path]) -> None:
    """Also that of the second evaluation, which has a column for the paper's figures."""
    shown = browser.open(reports["store"], 1280)
    assert shown.evaluate(
        "[...document.querySelectorAll('.scroll')].map(box => box.scrollWidth - box.clientWidth)"
    ) == [0, 0]
    shown.set_width(400)
    header = "[...document.querySelectorAll('.scroll')].map(box => [...box.querySelectorAll('th')])"
    first, second = shown.evaluate(
        f"{header}.map(row => row.map(th => [th.textContent, th.getBoundingClientRect().right]))"
    )
    assert [name for name, right in first if right <= 400][:2] == ["method", "accuracy %"]
    assert [name for name, right in second if right <= 400][:3] == ["method", "accuracy %", "paper"]
    # the others are reached in the box of the table, without the page moving
    assert shown.evaluate("document.querySelector('.scroll').scrollWidth") > 400


def test_hostile_names_are_read_as_they_are(browser: Browser, reports: dict[str, Path]) -> None:
    shown = browser.open(reports["store"])
    words = shown.evaluate("document.body.innerText")
    told = shown.evaluate("[...document.querySelectorAll('figcaption b')].map(each => each.textContent)")
    assert "<script>alert('title')</script> & \"others\"" in words
    assert any(f"of class {name}: decided" in line for line in told for name in CLASSES)
    assert shown.evaluate("document.querySelector('tbody').rows.length") == len(METHODS_RUN)


# the checks themselves


def written(folder: Path, *drawings: tuple[str, Any]) -> Path:
    path = folder / "page.html"
    items = [Picture(name, "", [svg(figure, title=name)]) for name, figure in drawings]
    path.write_text(page("figures", [heading(1, "figures"), pictures(items)]))
    return path


def out_of_sight() -> Any:
    axes = new_axes()
    axes.plot([0.0, 1.0], [0.0, 1.0])
    axes.set_xlim(5.0, 6.0)
    return axes.get_figure()


def with_a_grid() -> Any:
    axes = new_axes()
    axes.grid(color="#d5d9de")
    axes.set_title("nothing")
    return axes.get_figure()


def test_a_figure_without_data_is_found_among_others(browser: Browser, tmp_path: Path) -> None:
    """Frames, ticks, numbers and names are no drawing: with the data gone, all of these are still there."""
    nan = float("nan")
    path = written(
        tmp_path,
        ("full accuracy", accuracy_by_split({"cksc": [0.8, 0.9]})),
        ("no accuracy", accuracy_by_split({"cksc": [nan, nan], "svm": [nan]})),
        ("full matrix", small_confusion([[1, 0], [0, 0]], "cksc")),
        ("empty matrix", small_confusion([[0, 0], [0, 0]], "cksc")),
        ("full sweep", sweep([0.1], {"cksc": [[0.5]]}, "alpha")),
        ("empty sweep", sweep([0.1], {"cksc": [[nan]]}, "alpha")),
        ("no bars", interpretability({"cksc": nan})),
        ("only axes", new_axes().get_figure()),
        ("only a grid", with_a_grid()),
        ("out of sight", out_of_sight()),
    )
    found = empty_figures(browser.open(path))
    expected = ["no accuracy", "empty matrix", "empty sweep", "no bars", "only axes", "only a grid", "out of sight"]
    assert found == expected


def test_what_is_hidden_is_not_drawn(browser: Browser, tmp_path: Path) -> None:
    path = written(
        tmp_path, ("seen", accuracy_by_split({"cksc": [0.8, 0.9]})), ("other", small_confusion([[1]], "svm"))
    )
    shown = browser.open(path)
    assert empty_figures(shown) == []
    shown.evaluate("document.querySelector('svg').style.display = 'none'")
    assert empty_figures(shown) == ["seen"]


def test_a_page_that_is_too_wide_scrolls_sideways(browser: Browser, tmp_path: Path) -> None:
    """A table has its own box for that, and any other text is broken."""
    path = tmp_path / "page.html"
    path.write_text(page("wide", [text("x" * 500), table(["y" * 500], []), heading(2, "z" * 500)]))
    shown = browser.open(path, 400)
    assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth")
    shown.evaluate("document.querySelector('.scroll').style.overflow = 'visible'")
    assert not shown.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_browser_tells_of_errors_and_of_what_is_asked_for(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    script = "<script>console.error('said', 1); throw Error('thrown')</script>"
    path.write_text(f"<title>bad</title><img src='http://192.0.2.1/pixel.png'>{script}")
    shown = browser.open(path, cut_off=True)
    assert shown.requests == [path.as_uri(), "http://192.0.2.1/pixel.png"]
    told = " ".join(shown.errors)
    for words in ("said 1", "Uncaught", "ERR_INTERNET_DISCONNECTED"):
        assert words in told
    with pytest.raises(AssertionError, match="ReferenceError"):
        shown.evaluate("nowhere.to.be.found")
    with pytest.raises(AssertionError, match="in vain for the impossible"):
        shown.wait("1 > 2", "the impossible", seconds=0.1)


def test_a_script_that_came_in_with_the_data_would_not_run(browser: Browser, tmp_path: Path) -> None:
    """Escaping keeps it out; were that to fail, the policy of the page does."""
    path = tmp_path / "page.html"
    path.write_text(
        page("evil", ["<p onclick='1'>x</p><script>document.title = 'run'</script><img src='http://192.0.2.1/p'>"])
    )
    shown = browser.open(path, cut_off=True)
    assert shown.evaluate("document.title") == "evil"
    assert shown.requests == [path.as_uri()]
    assert len([words for words in shown.errors if "Content Security Policy" in words]) == 3
