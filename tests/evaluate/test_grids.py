"""What tuning chooses from: as many points for every method, the plainest first."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from cksc_dist.errors import InputError
from cksc_dist.evaluate import FitTask, KernelChoices, SplitRows
from cksc_dist.evaluate.grids import WINDOWS, Point, grid_points, modalities
from cksc_dist.evaluate.methods import METHODS
from cksc_dist.spec import DistanceSpec, KernelSpec

PLAIN = KernelChoices()
TUNED = [method for method in METHODS if method != "1nn"]
GROUPS = ((0, 1), (2,))


def key(point: Point) -> str:
    return json.dumps([dict(point.parameters), dict(point.kernel), [asdict(each) for each in point.distances]])


@pytest.mark.parametrize("quick", [False, True], ids=["full", "quick"])
def test_every_method_has_as_many_points(quick: bool) -> None:
    counts = {method: len(grid_points(method, PLAIN, GROUPS, sparsity=6, quick=quick)) for method in TUNED}
    assert len(set(counts.values())) == 1, counts


def test_the_nearest_neighbour_is_tuned_over_modes_and_bands_which_is_all_it_has() -> None:
    points = grid_points("1nn", PLAIN, GROUPS, sparsity=6)
    assert len(points) == 8
    assert {(each.distances[0].mode, each.distances[0].window) for each in points} == {
        (mode, window) for mode in ("dependent", "independent") for window in WINDOWS
    }
    assert all(not point.parameters and not point.kernel for point in points)
    quick = grid_points("1nn", PLAIN, GROUPS, sparsity=6, quick=True)
    assert 1 < len(quick) < 8
    assert {key(point) for point in quick} < {key(point) for point in points}


@pytest.mark.parametrize("method", METHODS)
def test_a_full_grid_is_of_at_least_eight_different_points_that_hold_those_of_the_quick_one(method: str) -> None:
    full = [key(point) for point in grid_points(method, PLAIN, GROUPS, sparsity=6)]
    quick = [key(point) for point in grid_points(method, PLAIN, GROUPS, sparsity=6, quick=True)]
    assert len(set(full)) == len(full) >= 8
    assert len(quick) < len(full)
    assert set(quick) < set(full)  # fits of a first look are used again
    assert quick[0] == full[0]


@pytest.mark.parametrize("method", METHODS)
def test_the_first_point_is_what_a_user_gets_who_says_nothing(method: str) -> None:
    """So it is also what is taken where all points do equally well."""
    spec = METHODS[method].spec
    default = spec()
    first = grid_points(method, PLAIN, GROUPS, sparsity=getattr(default, "sparsity", 6))[0]
    assert spec(**first.parameters) == default
    assert KernelSpec(**first.kernel) == KernelSpec()
    dims = [each.dims for each in first.distances]
    assert dims == ([*GROUPS] if METHODS[method].takes == "kernels" else [None])
    assert {asdict(each)["mode"] for each in first.distances} == {DistanceSpec().mode}
    assert {each.window for each in first.distances} == {None}


@pytest.mark.parametrize("method", METHODS)
def test_every_point_can_be_fitted(method: str) -> None:
    for point in grid_points(method, PLAIN, GROUPS, sparsity=3, alpha=0.15):
        FitTask(SplitRows(0), {}, method, point.parameters, point.kernel).settings()


def test_sparsity_and_alpha_reach_the_methods_that_have_them() -> None:
    for method in METHODS:
        first = grid_points(method, PLAIN, GROUPS, sparsity=3, alpha=0.17)[0].parameters
        assert first.get("sparsity") == (None if method in ("1nn", "svm") else 3)
        assert first.get("alpha") == (0.17 if method == "cksc" else None)


@pytest.mark.parametrize("method", TUNED)
def test_kernels_multiply_the_points_of_every_method_alike(method: str) -> None:
    choices = KernelChoices(
        (DistanceSpec(), DistanceSpec(window=0.1), DistanceSpec(mode="independent")), (1.0, 2.0), ("mean", "median")
    )
    points = grid_points(method, choices, GROUPS, sparsity=6)
    own = len({json.dumps(dict(point.parameters)) for point in points})
    kernels = {
        (point.distances[0].mode, point.distances[0].window, point.kernel["bandwidth"], point.kernel["factor"])
        for point in points
    }
    assert len(kernels) == 3 * 2 * 2
    assert len(points) == len({key(point) for point in points}) == own * len(kernels)


def test_a_method_of_several_kernels_has_one_matrix_a_group_and_the_others_one_of_all_dimensions() -> None:
    choices = KernelChoices((DistanceSpec(window=3),))
    for point in grid_points("jksrc", choices, GROUPS, sparsity=6):
        assert point.distances == (DistanceSpec(window=3, dims=(0, 1)), DistanceSpec(window=3, dims=(2,)))
    for point in grid_points("ekdl", choices, GROUPS, sparsity=6):
        assert point.distances == (DistanceSpec(window=3),)


def test_a_ready_matrix_names_no_distances() -> None:
    for method in METHODS:
        points = grid_points(method, KernelChoices(None), GROUPS, sparsity=6)
        assert {point.distances for point in points} == {()}
        assert len(points) == (1 if method == "1nn" else len(grid_points(method, PLAIN, GROUPS, sparsity=6)))


def test_the_nearest_neighbour_takes_other_metrics_as_they_are() -> None:
    choices = KernelChoices((DistanceSpec(metric="euclidean"),))
    assert [point.distances for point in grid_points("1nn", choices, (), sparsity=6)] == [choices.distances]


def test_a_point_says_what_is_particular_about_it() -> None:
    choices = KernelChoices((DistanceSpec(), DistanceSpec(mode="independent", window=0.2)), factors=(0.5,))
    plain, *_, other = grid_points("svm", choices, GROUPS, sparsity=6)
    kernel = {"bandwidth": "mean", "factor": 0.5}
    assert plain.text() == {"C": plain.parameters["C"]} | kernel
    assert other.text() == {"C": other.parameters["C"]} | kernel | {"mode": "independent", "window": 0.2}
    assert plain.parameters != other.parameters
    assert grid_points("jksrc", choices, GROUPS, sparsity=6)[0].text()["kernels"] == 2
    assert json.loads(json.dumps(other.text())) == other.text()


def test_an_unknown_method_is_told() -> None:
    with pytest.raises(InputError, match=r"method='forest' is unknown; choose of cksc, kksvd, .*svm"):
        grid_points("forest", PLAIN, GROUPS, sparsity=6)


@pytest.mark.parametrize(
    ("names", "dims", "groups"),
    [
        (["hand_x", "hand_y", "foot_x", "hand_z"], 4, ((0, 1, 3), (2,))),
        (["sensor1_row1_column1", "sensor1_row1_column2", "sensor2_row1_column1"], 3, ((0, 1), (2,))),
        (["x", "y"], 2, ((0,), (1,))),
        (["hand_x", "y"], 2, ((0,), (1,))),  # what one name does not tell, the others do not either
        (["hand_x"], 2, ((0,), (1,))),
        ([], 3, ((0,), (1,), (2,))),
    ],
)
def test_names_of_dimensions_tell_what_belongs_together(
    names: list[str], dims: int, groups: tuple[tuple[int, ...], ...]
) -> None:
    assert modalities(names, dims) == groups
