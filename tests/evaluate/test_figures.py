"""Figures: each draws all that it is given, as SVG that a page can hold whatever the data are called."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable
from typing import Any

import matplotlib
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from scipy import sparse
from scipy.spatial.distance import cdist, pdist

from cksc_dist.evaluate.curves import Curves, thinned
from cksc_dist.evaluate.decision_figures import alignment, atom, class_shares, embed_codes, embedding
from cksc_dist.evaluate.figures import (
    accuracy_by_split,
    confusion,
    interpretability,
    letters,
    objective,
    shortened,
    small_confusion,
    svg,
    sweep,
)

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = '<b>&"$x$'
"""Markup, an entity, a quotation mark and what matplotlib would take for a formula."""
NAMES = [HOSTILE, "中文", "a\x00b\x1b", "plain"]
SEEN = [HOSTILE, "中文", "a\ufffdb\ufffd", "plain"]
"""As a page can show them: some characters have no place in it."""
BLUE, ORANGE, GREEN, VERMILION = "#0072b2", "#e69f00", "#009e73", "#d55e00"
RNG = np.random.default_rng(0)
WAVES = [np.column_stack([np.sin(np.arange(n) / 3), np.cos(np.arange(n) / 4)]) for n in (20, 31, 400)]
POINTS = np.repeat([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0], [9.0, 9.0]], 6, axis=0) + RNG.standard_normal((24, 2))

FIGURES: dict[str, Callable[[], Figure]] = {
    "accuracy": lambda: accuracy_by_split({"cksc": [0.9, 0.8, np.nan], "1nn": [0.7], HOSTILE: [0.6]}, {"cksc": 91.0}),
    "interpretability": lambda: interpretability({"cksc": 0.97, "svm": np.nan, HOSTILE: 0.4}),
    "sweep": lambda: sweep([0.1, 0.2], {"cksc": [[0.9, 0.8]], HOSTILE: [[0.5, np.nan]]}, HOSTILE),
    "objective": lambda: objective({"reconstruction": [3.0, 2.0], "ridge": [1.0, 0.5], "discrimination": [0.1, 0.2]}),
    "confusion": lambda: confusion(np.arange(16).reshape(4, 4), NAMES),
    "small confusion": lambda: small_confusion([[3, 1], [0, 2]], "kksvd"),
    "embedding": lambda: embedding(POINTS, NAMES * 6, np.arange(24) < 3),
    "atom": lambda: atom(WAVES, [0.5, 0.2, 0.1], HOSTILE),
    "class shares": lambda: class_shares(dict(zip(NAMES, (0.5, 0.3, 0.15, 0.05), strict=True)), NAMES[0], NAMES[2]),
    "alignment": lambda: alignment(WAVES[0], WAVES[1], np.array([[0, 0], [19, 30]]), (HOSTILE, NAMES[2])),
}


def parsed(figure: Figure, **options: str) -> ET.Element:
    return ET.fromstring(svg(figure, **options))


def texts(root: ET.Element) -> list[str]:
    return ["".join(element.itertext()) for element in root.iter(f"{SVG}text")]


def painted(root: ET.Element, what: str, colour: str) -> list[ET.Element]:
    """Return the marks (``use`` or ``path``) that are filled with a colour."""
    return [each for each in root.iter(f"{SVG}{what}") if f"fill: {colour}" in each.attrib.get("style", "")]


def lines(figure: Figure) -> list[Any]:
    return list(figure.axes[0].lines)


# all of them


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_svg_that_needs_nothing_and_runs_nothing(name: str) -> None:
    root = parsed(FIGURES[name](), title="what it is")
    assert root.tag == f"{SVG}svg"
    assert [root.attrib["role"], root.attrib["aria-label"], root[0].text] == ["img", "what it is", "what it is"]
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    assert root.attrib["viewBox"] == f"0 0 {width:g} {height:g}"
    known = {"svg", "title", "g", "path", "use", "text", "defs", "clipPath", "rect"}
    own = {element.attrib["id"] for element in root.iter() if "id" in element.attrib}
    for element in root.iter():
        assert element.tag.removeprefix(SVG) in known
        for key, value in element.attrib.items():
            assert not key.startswith("on")
            if key == "href":
                assert value.removeprefix("#") in own
            assert set(re.findall(r"url\(#?([^)]*)\)", value)) <= own
            assert "://" not in value


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_draws_marks_beside_its_frame(name: str) -> None:
    root = parsed(FIGURES[name]())
    marks = [
        element.attrib["d"] if "d" in element.attrib else element.attrib["href"]
        for kind in ("path", "use")
        for element in root.iter(f"{SVG}{kind}")
        if "clip-path" in element.attrib or kind == "use"
    ]
    assert marks
    assert not any("nan" in mark.lower() for mark in marks)


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_has_the_same_bytes_whenever_it_is_drawn(name: str) -> None:
    before = dict(matplotlib.rcParams)
    first = svg(FIGURES[name](), title="same")
    assert svg(FIGURES[name](), title="same") == first
    assert dict(matplotlib.rcParams) == before


def test_no_two_figures_of_a_page_share_an_id() -> None:
    # equal drawings of two things among them: atoms of the same series are common
    drawings = [svg(make(), title=f"{title} of {name}") for name, make in FIGURES.items() for title in ("one", "other")]
    found = Counter(re.findall(r'\bid="([^"]*)"', "".join(drawings)))
    assert len(found) > len(FIGURES)
    assert max(found.values()) == 1


def test_ids_begin_with_the_name_that_is_given() -> None:
    root = parsed(FIGURES["accuracy"](), name='a "b>')
    own = [element.attrib["id"] for element in root.iter() if "id" in element.attrib]
    assert own
    assert all(name.startswith("a--b--") for name in own)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("accuracy", [HOSTILE]),
        ("interpretability", [HOSTILE]),
        ("sweep", [HOSTILE, HOSTILE]),
        ("confusion", SEEN * 2),
        ("embedding", SEEN),
        ("atom", [HOSTILE]),
        ("class shares", SEEN),
        ("alignment", [HOSTILE, SEEN[2]]),
    ],
)
def test_names_from_data_stay_the_text_that_they_are(name: str, expected: list[str]) -> None:
    """No element, no formula, and no outlines of letters that the font of this machine may lack."""
    found = Counter(texts(parsed(FIGURES[name]())))
    assert Counter(expected) - found == Counter()


def test_a_title_from_data_stays_text() -> None:
    root = parsed(FIGURES["atom"](), title=f"{HOSTILE}\x00</title><script>")
    assert root[0].text == root.attrib["aria-label"] == f"{HOSTILE}\ufffd</title><script>"


# the methods


def test_a_dot_for_each_split_a_line_for_each_mean_and_a_diamond_for_the_paper() -> None:
    accuracies = {"cksc": [0.9, 0.8, np.nan], "kksvd": [0.75], "svm": [np.nan, np.nan, np.nan]}
    figure = accuracy_by_split(accuracies, {"cksc": 91.42, "svm": 60.0})
    root = parsed(figure)
    assert len(painted(root, "use", BLUE)) == 2
    assert len(painted(root, "use", "#6b747e")) == 1
    assert len(painted(root, "use", "#ffffff")) == 2
    drawn = [collection.get_offsets().tolist() for collection in figure.axes[0].collections]
    assert sorted(x for part in drawn for x, _ in part) == pytest.approx([60.0, 75.0, 80.0, 90.0, 91.42])
    means = [line.get_xdata()[0] for line in lines(figure) if to_hex(line.get_color()) in (BLUE, "#6b747e")]
    assert means == pytest.approx([85.0, 75.0])
    assert texts(root)[-3:] == ["CKSC", "K-KSVD", "SVM on the kernel"]


@pytest.mark.parametrize("n_methods", [1, 9, 30])
def test_every_method_has_a_row_inside_the_figure(n_methods: int) -> None:
    figure = accuracy_by_split({f"method {i}": [0.5 + i / 100, 1.0] for i in range(n_methods)})
    low, high = figure.axes[0].get_ylim()
    assert high < 0
    assert n_methods - 1 < low
    left, right = figure.axes[0].get_xlim()
    assert left < 50 < 100 < right


def test_a_bar_for_each_method_that_has_an_ip() -> None:
    figure = interpretability({"cksc": 0.973, "svm": np.nan, "ekdl": 0.2, "jksrc": 0.0})
    assert [bar.get_width() for bar in figure.axes[0].patches] == [0.973, 0.2, 0.0]
    found = texts(parsed(figure))
    assert {"0.97", "0.20", "0.00", "CKSC", "EKDL", "JKSRC"} <= set(found)
    assert not {"SVM on the kernel", "nan"} & set(found)


def test_a_sweep_is_the_mean_with_a_band_of_one_deviation() -> None:
    table = np.array([[0.5, 0.9, np.nan, 0.7], [0.7, 0.9, np.nan, np.nan]])
    figure = sweep([1, 2, 5, 9], {"cksc": table, "kksvd": [[0.1, 0.2, 0.3, 0.4]]}, "T0")
    first, second = lines(figure)
    assert first.get_xdata().tolist() == [1.0, 2.0, 9.0]
    assert first.get_ydata() == pytest.approx([60.0, 90.0, 70.0])
    assert second.get_ydata() == pytest.approx([10.0, 20.0, 30.0, 40.0])
    band = figure.axes[0].collections[0].get_paths()[0].vertices
    assert {(1.0, 50.0), (1.0, 70.0), (2.0, 90.0)} <= {(round(x, 6), round(y, 6)) for x, y in band.tolist()}
    root = parsed(figure)
    marks = [mark for mark in painted(root, "use", BLUE) if "opacity" not in mark.attrib["style"]]
    assert len(marks) == 3 + 1  # one is in the legend
    assert {"CKSC", "K-KSVD", "T0"} <= set(texts(root))


def test_the_band_of_a_sweep_ends_at_all_right() -> None:
    figure = sweep([0.1, 0.2], {"cksc": [[1.0, 0.9], [0.8, 0.9]]}, "alpha")
    assert figure.axes[0].collections[0].get_paths()[0].vertices[:, 1].max() == 100.0


def test_whole_numbers_are_numbered_by_whole_numbers() -> None:
    of_atoms, of_weights = (sweep(values, {"cksc": [[0.5, 0.6, 0.7]]}, "x") for values in ([1, 2, 4], [0.1, 0.2, 0.4]))
    assert all(tick == round(tick) for tick in of_atoms.axes[0].get_xticks())
    assert any(tick != round(tick) for tick in of_weights.axes[0].get_xticks())


def test_one_value_and_one_split_are_seen() -> None:
    alone = painted(parsed(sweep([0.3], {"cksc": [[0.8]]}, "alpha")), "use", BLUE)
    assert len([mark for mark in alone if "opacity" not in mark.attrib["style"]]) == 1  # the band has no height
    assert len(painted(parsed(accuracy_by_split({"cksc": [0.8]})), "use", BLUE)) == 1


def test_j_is_the_sum_of_its_terms_after_every_half_step() -> None:
    terms = {"reconstruction": [5.0, 4.0, 3.5], "ridge": [1.0, 2.0, 1.5], "discrimination": [0.5, 0.25, -1.0]}
    figure = objective(terms)
    total, *others = lines(figure)
    assert total.get_xdata().tolist() == [0.5, 1.0, 1.5]
    assert total.get_ydata() == pytest.approx([6.5, 6.25, 4.0])
    assert [line.get_ydata().tolist() for line in others] == list(terms.values())
    low, high = figure.axes[0].get_ylim()
    assert low <= -1.0 < 6.5 <= high
    found = " ".join(texts(parsed(figure)))
    for word in ("J, the sum", "reconstruction", "ridge", "other classes"):
        assert word in found


# confusion


@pytest.mark.parametrize("n", [2, 14, 30, 100])
def test_a_cell_for_every_confusion_that_happened(n: int) -> None:
    counts = RNG.integers(0, 3, (n, n)) * (RNG.random((n, n)) < 0.2) + 7 * np.eye(n, dtype=int)
    names = [f"class {i}" for i in range(n)]
    figure = confusion(counts, names)
    (cells,) = figure.axes[0].collections
    assert len(cells.get_paths()) == np.count_nonzero(counts)
    middles = {tuple(path.vertices[:4].mean(axis=0).round(6).tolist()) for path in cells.get_paths()}
    assert middles == {(float(column), float(row)) for row, column in np.argwhere(counts)}
    found = texts(parsed(figure))
    # what would be too small to be read is left out
    assert [found.count(name) for name in names] == [2 if n <= 30 else 0] * n
    numbers = Counter(text for text in found if text.isdigit())
    assert numbers == (Counter(str(count) for count in counts[counts > 0]) if n <= 14 else Counter())


def test_right_is_blue_wrong_is_vermilion_and_more_is_stronger() -> None:
    figure = confusion([[8, 2, 0], [0, 4, 0], [9, 0, 1]], ["a", "b", "c"])
    colours = [np.array(colour[:3]) for colour in figure.axes[0].collections[0].get_facecolors()]
    right, sometimes, always, often, seldom = colours
    assert to_hex(always) == BLUE
    for blue in (right, always, seldom):
        assert blue[2] > blue[0]
    for vermilion in (sometimes, often):
        assert vermilion[0] > vermilion[2]
    assert always.sum() < right.sum() < seldom.sum() < 3.0
    assert often.sum() < sometimes.sum() < 3.0


def test_a_class_that_was_never_tested_is_an_empty_row() -> None:
    assert len(confusion([[0, 0], [0, 3]], ["a", "b"]).axes[0].collections[0].get_paths()) == 1
    assert len(small_confusion([[0, 0], [0, 0]], "cksc").axes[0].collections[0].get_paths()) == 0


def test_a_small_matrix_says_of_what_and_how_good() -> None:
    figure = small_confusion([[3, 1], [0, 4]], "lcnnksc")
    assert len(figure.axes[0].collections[0].get_paths()) == 3
    assert {"LC-NNKSC", "87.5 %"} <= set(texts(parsed(figure)))


# codes and decisions


@pytest.mark.parametrize("n_classes", [1, 2, 9, 100])
def test_a_point_for_every_code_a_name_for_every_class_and_a_ring_for_every_error(n_classes: int) -> None:
    labels = np.arange(200) % n_classes
    points = RNG.standard_normal((200, 2))
    figure = embedding(points, labels.tolist(), np.arange(200) % 50 == 0)
    *groups, rings = figure.axes[0].collections
    assert len(groups) == n_classes
    assert np.concatenate([group.get_offsets() for group in groups]).tolist() == [
        points[i].tolist() for label in range(n_classes) for i in np.flatnonzero(labels == label)
    ]
    assert rings.get_offsets().tolist() == points[::50].tolist()
    assert sorted(text for text in texts(parsed(figure))) == sorted(str(label) for label in range(n_classes))
    # colours begin again after eight classes, and then the marks are others
    looks = {(to_hex(group.get_facecolor()[0]), group.get_paths()[0].vertices.tobytes()) for group in groups}
    assert len(looks) == min(n_classes, 56)


def test_without_an_error_there_is_no_ring() -> None:
    assert len(embedding(POINTS, ["a", "b"] * 12).axes[0].collections) == 2
    assert len(embedding(POINTS, ["a", "b"] * 12, np.zeros(24, bool)).axes[0].collections) == 2


def test_names_lie_beside_their_points_in_the_figure_and_not_on_each_other() -> None:
    """Groups of few points, at the edges too, and with long names: a name must not hide what it names."""
    places = [(x, y) for x in range(3) for y in range(3)]
    points = np.array([(x + 0.01 * k, y + 0.01 * k) for x, y in places for k in range(3)])
    labels = [f"group number {at}" for at in range(9) for _ in range(3)]
    figure = embedding(points, labels)
    axes = figure.axes[0]
    # in the units of the SVG, with letters as wide as those of DejaVu Sans bold
    boxes = []
    for text in axes.texts:
        x, y = axes.transData.transform(text.get_position()) * 72 / figure.dpi
        half = 0.5 * 7.0 * letters(text.get_text())
        boxes.append((x - half, y - 5.0, x + half, y + 5.0))
    width, height = figure.get_size_inches() * 72
    marks = axes.transData.transform(points) * 72 / figure.dpi
    for at, (left, low, right, high) in enumerate(boxes):
        assert left >= 0 <= low
        assert right <= width
        assert high <= height
        assert not any(left < x < right and low < y < high for x, y in marks)
        for other_left, other_low, other_right, other_high in boxes[at + 1 :]:
            assert right <= other_left or other_right <= left or high <= other_low or other_high <= low


def test_an_atom_is_all_curves_of_its_series_the_heavier_above() -> None:
    figure = atom(WAVES, [0.1, -0.9, 0.3], "wave: 3 series")
    drawn = lines(figure)
    assert len(drawn) == 3 * 2
    alphas = [line.get_alpha() for line in drawn]
    assert alphas == sorted(alphas)
    assert alphas[-1] == pytest.approx(0.95)
    assert drawn[-1].get_ydata().tolist() == WAVES[1][:, 1].tolist()
    for line in drawn:
        assert line.get_xdata()[[0, -1]].tolist() == [0.0, 1.0]  # time fills the width
        assert len(line.get_xdata()) <= 160
    assert texts(parsed(figure)) == ["wave: 3 series"]


def test_an_atom_of_one_frame_and_no_weight_is_drawn() -> None:
    assert len(lines(atom([np.ones((1, 3))], [0.0], "point"))) == 3


def test_shares_are_ranked_and_the_decided_and_the_true_class_are_always_there() -> None:
    shares = {f"c{i}": share for i, share in enumerate([0.02, 0.3, 0.25, 0.15, 0.1, 0.08, 0.06, 0.04, 0.0])}
    figure = class_shares(shares, "c1", "c8")
    bars = figure.axes[0].patches
    assert [bar.get_width() for bar in bars] == [0.3, 0.25, 0.15, 0.1, 0.08, 0.06, 0.0]
    assert [to_hex(bar.get_facecolor()) for bar in bars] == [BLUE, *["#6b747e"] * 5, VERMILION]
    found = texts(parsed(figure))
    assert {"c1", "c8", "30%", "0%  the true class"} <= set(found)
    # a guess among so many classes that none has a share to speak of
    even = dict.fromkeys([f"c{i}" for i in range(400)], 1 / 400)
    assert {"c7", "c9", "0%", "0%  the true class"} <= set(texts(parsed(class_shares(even, "c7", "c9"))))


def test_a_right_decision_marks_no_other_class() -> None:
    figure = class_shares({"a": 0.9, "b": 0.1}, "a", "a")
    assert [to_hex(bar.get_facecolor()) for bar in figure.axes[0].patches] == [BLUE, "#6b747e"]
    assert not any("true" in text for text in texts(parsed(figure)))


def test_lines_join_the_frames_that_the_path_does() -> None:
    a, b = WAVES[0], WAVES[1]
    path = np.array([[0, 0], [3, 5], [10, 20], [19, 30]])
    figure = alignment(a, b, path, ("above", "below"))
    links = [line for line in lines(figure) if len(line.get_xdata()) == 2]
    curves = [line for line in lines(figure) if len(line.get_xdata()) > 2]
    assert [[int(frame) for frame in line.get_xdata()] for line in links] == path.tolist()
    upper, lower = curves[0], curves[2]  # the first curve of each series carries the lines
    for line, (i, j) in zip(links, path, strict=True):
        assert list(line.get_ydata()) == [upper.get_ydata()[i], lower.get_ydata()[j]]
    assert upper.get_ydata().min() > lower.get_ydata().max()
    assert [len(curve.get_xdata()) for curve in curves] == [20, 20, 31, 31]
    assert texts(parsed(figure)) == ["above", "below"]


def test_a_long_path_has_lines_that_can_be_told_apart_and_none_has_none() -> None:
    steps = np.arange(400)
    long = alignment(WAVES[2], WAVES[2], np.column_stack([steps, steps]), ("a", "b"))
    links = [line for line in lines(long) if len(line.get_xdata()) == 2]
    assert len(links) == 26
    assert [int(links[0].get_xdata()[0]), int(links[-1].get_xdata()[0])] == [0, 399]
    without = alignment(WAVES[0], WAVES[1], np.zeros((0, 2), np.int64), ("a", "b"))
    assert not [line for line in lines(without) if len(line.get_xdata()) == 2]
    assert len(lines(without)) == 4


# where codes are laid


def grouped_codes() -> Any:
    codes = np.zeros((40, 8))
    for row in range(40):
        codes[row, [2 * (row % 4), 2 * (row % 4) + 1]] = RNG.random(2) + 0.5
    return codes


def test_codes_that_use_the_same_atoms_lie_together() -> None:
    points = embed_codes(grouped_codes())
    D = cdist(points, points) + np.diag([np.inf] * 40)
    assert (D.argmin(axis=1) % 4 == np.arange(40) % 4).all()


def test_the_length_of_a_code_and_how_it_is_kept_change_nothing() -> None:
    codes = grouped_codes()
    expected = embed_codes(codes)
    assert (embed_codes(sparse.csr_array(codes)) == expected).all()
    assert (embed_codes(codes * 2.0 ** np.arange(40)[:, None]) == expected).all()


@pytest.mark.parametrize("codes", [np.zeros((5, 3)), np.ones((6, 2)), np.eye(1), np.eye(3), np.ones((9, 1))])
def test_codes_without_a_shape_still_have_places_of_their_own(codes: Any) -> None:
    points = embed_codes(codes)
    assert points.shape == (len(codes), 2)
    assert len(np.unique(points, axis=0)) == len(codes)


def test_a_code_of_nothing_among_others_has_a_place() -> None:
    codes = grouped_codes()
    codes[7] = 0.0
    assert np.isfinite(embed_codes(codes)).all()


# curves


@given(st.integers(1, 2000), st.integers(2, 200))
@settings(max_examples=100, deadline=None)
def test_a_thinned_series_keeps_its_ends_and_an_even_pace(length: int, most: int) -> None:
    at = thinned(length, most)
    assert len(at) == min(length, most)
    assert (at[0], at[-1]) == (0, length - 1)
    gaps = np.diff(at)
    assert len(gaps) == 0 or gaps.max() - gaps.min() <= 1


def test_few_dimensions_are_drawn_as_they_are_each_on_its_scale() -> None:
    series = [RNG.standard_normal((30, 2)) * [1.0, 1000.0] + [5.0, 0.0] for _ in range(4)]
    curves = Curves.of(series, ["x", HOSTILE])
    drawn = np.concatenate([curves(each) for each in series])
    assert drawn.mean(axis=0) == pytest.approx([0.0, 0.0], abs=1e-12)
    assert drawn.std(axis=0) == pytest.approx([1.0, 1.0])
    assert np.abs(np.corrcoef(drawn[:, 0], np.concatenate(series)[:, 0])[0, 1]) == pytest.approx(1.0)
    assert curves.note == f"Curves: x, {HOSTILE}, each on a scale of its own."
    assert Curves.of(series).names == ("dimension 1", "dimension 2")
    assert Curves.of([each[:, :1] for each in series]).note == ""


def test_many_dimensions_are_drawn_by_what_they_vary_in() -> None:
    """Frames in a space of three dimensions among ten: all their distances are kept, but for one scale."""
    base = np.linalg.qr(RNG.standard_normal((10, 10)))[0][:3]
    series = [RNG.standard_normal((50, 3)) * [5.0, 2.0, 1.0] @ base + 7.0 for _ in range(3)]
    curves = Curves.of(series)
    ratio = pdist(curves(series[0])) / pdist(series[0])
    assert ratio == pytest.approx(np.full(len(ratio), ratio[0]))
    assert curves.explained == pytest.approx(1.0)
    assert "first three principal components of the frames (100% of their variance)" in curves.note
    drawn = np.concatenate([curves(each) for each in series])
    assert drawn.std(axis=0)[0] == pytest.approx(1.0)
    assert (np.diff(drawn.std(axis=0)) < 0).all()
    noise = [each + 3.0 * RNG.standard_normal(each.shape) for each in series]
    assert 0.2 < Curves.of(noise).explained < 0.9


def test_the_sign_of_a_component_does_not_depend_on_the_order_of_series() -> None:
    series = [RNG.standard_normal((20, 6)) for _ in range(4)]
    forth, back = Curves.of(series), Curves.of(series[::-1])
    np.testing.assert_allclose(forth.directions, back.directions, atol=1e-9)
    assert (forth.directions[np.abs(forth.directions).argmax(axis=0), range(3)] > 0).all()


@pytest.mark.parametrize("dims", [1, 3, 4, 9])
def test_series_that_never_move_are_drawn_as_lines(dims: int) -> None:
    curves = Curves.of([np.full((6, dims), 0.1)])
    assert np.isfinite(curves(np.full((4, dims), 0.1))).all()
    assert np.isfinite(curves(np.full((4, dims), 5.0))).all()
    assert np.ptp(curves(np.full((4, dims), 0.1)), axis=0).max() == 0.0


def test_a_dimension_may_be_called_like_a_component() -> None:
    assert Curves.of(WAVES, ["component 1", "y"]).note == "Curves: component 1, y, each on a scale of its own."


# names


@given(st.text(max_size=60), st.integers(4, 30))
@settings(max_examples=100, deadline=None)
def test_a_shortened_name_fits_and_keeps_both_ends(text: str, most: int) -> None:
    short = shortened(text, most)
    assert letters(short) <= most
    whole = shortened(text, 1000)
    if letters(whole) <= most:
        assert short == whole
    else:
        head, _, tail = short.rpartition("…")
        assert head
        assert whole.startswith(head)
        assert whole.endswith(tail)
        assert len(short) <= len(whole)


def test_names_that_differ_in_their_last_letters_stay_different() -> None:
    assert len({shortened(f"a class of many names, number {i}", 14) for i in range(100)}) == 100


def test_a_name_without_end_is_shortened_at_once() -> None:
    assert letters(shortened("x" * 10**6, 20)) <= 20
