"""An evaluation as text, and the paper's figures beside it."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import xarray as xr

from cksc_dist.evaluate.fit_work import MEASURES
from cksc_dist.evaluate.methods import METHODS, REFERENCES
from cksc_dist.evaluate.paper import TABLE1, TABLE2
from cksc_dist.evaluate.tables import comparison, markdown, ordered_methods

ACCURACY = {
    "svm": [0.9, 0.8, 0.85],
    "cksc": [0.95, 0.9, 0.925],
    "kksvd": [0.5, 0.6, 0.7],
}
P_VALUES = {"svm": 0.0499, "cksc": 1.0, "kksvd": 0.05}

PRINTED = """
| data | K-KSVD | JKSRC | LC-NNKSC | LP-KSVD | KGDL | EKDL | CKSC |
| Schunk | 83.42 | 87.49 | 89.96 | 89.62 | 88.17 | 88.39 | 91.42 |
| DynTex++ | 89.22 | 89.95 | 93.22 | 93.12 | 92.83 | 93.51 | 94.36 |
| Words | 93.35 | 92.14 | 97.33 | 97.64 | 95.82 | 96.53 | 98.82 |
| Cricket | 75.12 | 78.14 | 83.33 | 83.33 | 82.78 | 84.25 | 86.45 |
| UTKinect | 80.26 | 81.47 | 84.12 | 84.93 | 83.51 | 84.18 | 86.52 |
"""
"""Table 2, as it was copied from the paper for this test."""


def made_table(title: str = "Cricket", splits: int = 3, **accuracy: list[float]) -> xr.Dataset:
    """Return a table as `evaluate` makes it, with known numbers."""
    known = accuracy or ACCURACY
    names = list(known)
    shape = (len(names), splits)
    values: dict[str, Any] = {name: (("method", "split"), np.full(shape, np.nan)) for name in MEASURES}
    values["accuracy"] = (("method", "split"), np.array([known[name][:splits] for name in names]))
    values["macro_f1"] = (("method", "split"), np.full(shape, 0.876))
    values["train_seconds"] = (("method", "split"), np.full(shape, 1.25))
    values["predict_seconds"] = (("method", "split"), np.full(shape, 0.5))
    values["p_value"] = ("method", [P_VALUES[name] for name in names])
    table = xr.Dataset(values, {"method": names, "split": range(splits)})
    for measure, value in (("interpretability", 0.87), ("calibration", 0.123), ("atoms_used", 3.4)):
        if "cksc" in names:
            table[measure].loc[{"method": "cksc"}] = value
    table.attrs = {"title": title, "best": "cksc" if "cksc" in names else names[0]}
    return table


def test_the_printed_table_is_the_paper_s() -> None:
    header, *rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in PRINTED.strip().splitlines()]
    titles = {method.title: name for name, method in METHODS.items()}
    printed = {
        data: {titles[title]: float(cell) for title, cell in zip(header[1:], cells, strict=True)}
        for data, *cells in rows
    }
    assert printed == TABLE2
    assert {name: tuple(chosen) for name, chosen in TABLE1.items()} == {
        "Cricket": (6, 0.2),
        "Words": (8, 0.2),
        "Schunk": (5, 0.15),
        "UTKinect": (7, 0.1),
        "DynTex++": (15, 0.15),
    }


def test_methods_are_in_one_order_with_the_reference_lines_last() -> None:
    assert ordered_methods(reversed(METHODS)) == list(METHODS)
    assert set(ordered_methods(METHODS)[-2:]) == set(REFERENCES)
    assert ordered_methods(["svm", "cksc", "svm"]) == ["cksc", "svm"]


def test_a_line_for_each_method_with_all_that_was_measured() -> None:
    header, *lines = comparison(made_table())
    assert re.sub(r"\s+", " ", header) == "method accuracy % paper F1 IP calibr. atoms fit s against the best"
    words = {line.split("  ")[0].strip(): re.split(r"\s+", line[22:].strip()) for line in lines}
    # 92.5 and its deviation over three splits, with n - 1 below: 2.5
    assert words["CKSC"] == ["92.50", "+-", "2.50", "86.45", "87.6", "0.87", "0.123", "3.4", "1.750", "best"]
    assert words["K-KSVD"][:4] == ["60.00", "+-10.00", "75.12", "87.6"]
    assert words["SVM on the kernel"][:5] == ["85.00", "+-", "5.00", "-", "87.6"]  # the paper has none
    assert words["SVM on the kernel"][5:8] == ["-", "-", "-"]  # nor has it atoms


def test_what_is_told_apart_at_five_percent_and_what_is_not() -> None:
    lines = {line.split("  ")[0]: line for line in comparison(made_table())}
    assert lines["SVM on the kernel"].endswith("p = 0.050")
    assert lines["K-KSVD"].endswith("p = 0.050, not different")  # just so


def test_columns_stand_below_their_heads() -> None:
    lines = comparison(made_table())
    ends = [lines[0].index(head) + len(head) for head in ("paper", "F1", "IP", "calibr.", "atoms", "fit s")]
    for line in lines[1:]:
        assert all(line[end - 1] != " " and line[end] == " " for end in ends)


def test_one_split_has_no_spread_and_other_data_no_paper() -> None:
    lines = comparison(made_table("my gestures", splits=1))
    assert not re.search("nan|inf", "\n".join(lines))
    assert "75.12" not in "\n".join(lines)
    assert re.search(r"^CKSC +95\.00 \+- +- +- ", "\n".join(lines), re.M)


def test_a_table_for_a_readme() -> None:
    text = markdown([made_table(), made_table("Words", cksc=[0.99, 0.98, 0.97], svm=[0.9, 0.9, 0.9])])
    rows = [[cell.strip() for cell in line[1:-1].split("|")] for line in text.splitlines()]
    assert rows[0] == ["", "Cricket", "Words"]
    assert {len(row) for row in rows} == {3}
    assert rows[2:] == [
        ["CKSC", "**92.5 ± 2.5** (86.5)", "**98.0 ± 1.0** (98.8)"],
        ["K-KSVD", "**60.0 ± 10.0** (75.1)", ""],  # the test does not tell it from the best
        ["SVM on the kernel", "85.0 ± 5.0", "90.0 ± 0.0"],
    ]


@pytest.mark.parametrize("splits", [1, 2])
def test_a_readme_of_few_splits(splits: int) -> None:
    line = markdown([made_table(splits=splits)]).splitlines()[2]
    assert line == ("| CKSC | **95.0** (86.5) |" if splits == 1 else "| CKSC | **92.5 ± 3.5** (86.5) |")
