"""DTW engines against each other, against the obvious recurrence, and on the cases that break lesser ones."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cksc_dist import SeriesSet, pairwise_dtw
from cksc_dist.errors import EngineError, InputError

# 1e-10 is the promise; where values are near rounding of the inputs, an absolute term of their scale is due
TOLERANCE = 1e-10


def random_set(rng, n, lengths, dims, kind="walk"):
    out = []
    for _ in range(n):
        values = rng.standard_normal((int(rng.integers(*lengths)), dims))
        out.append(values.cumsum(axis=0) if kind == "walk" else values)
    return out


@st.composite
def ragged_sets(draw):
    """Sets with length-1, constant, identical, nearly identical and far offset series among them."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n, dims = draw(st.integers(2, 21)), draw(st.sampled_from([1, 2, 3, 4, 5, 9, 17]))
    longest = draw(st.sampled_from([1, 2, 7, 13, 33]))
    series = random_set(rng, n, (1, longest + 1), dims)
    series[0] = series[0][:1]
    for special in draw(st.lists(st.sampled_from(["constant", "same", "near", "offset"]), max_size=4)):
        i, j = rng.integers(n, size=2)
        if special == "constant":
            series[i] = np.full_like(series[i], 3.7)
        elif special == "same":
            series[i] = series[j].copy()
        elif special == "near":
            series[i] = series[j] + 10.0 ** -float(rng.integers(3, 8)) * rng.standard_normal(series[j].shape)
        else:
            for values in series:
                values[:, dims - 1] += 1e6
    return series


windows = st.one_of(st.none(), st.integers(1, 9), st.sampled_from([0.1, 0.3, 1.0]))


@settings(max_examples=150, deadline=None)
@given(ragged_sets(), windows, st.sampled_from(["dependent", "independent"]))
def test_simd_equals_dtaidistance(series, window, mode):
    ours = pairwise_dtw(series, mode=mode, window=window, engine="simd")
    theirs = pairwise_dtw(series, mode=mode, window=window, engine="dtaidistance")
    np.testing.assert_allclose(ours, theirs, rtol=TOLERANCE, atol=0)


@settings(max_examples=40, deadline=None)
@given(
    ragged_sets(),
    windows,
    st.sampled_from(["dependent", "independent"]),
    st.sampled_from(["squared", "abs"]),
    st.booleans(),
    st.integers(1, 5),
)
def test_simd_equals_naive_in_every_setting(series, window, mode, cost, per_length, n_rows):
    setting = {"window": window, "mode": mode, "cost": cost, "per_length": per_length}
    series = [values[:12] for values in series]
    rows = series[:n_rows]
    ours = pairwise_dtw(rows, series, engine="simd", **setting)
    np.testing.assert_allclose(ours, pairwise_dtw(rows, series, engine="naive", **setting), rtol=TOLERANCE, atol=0)


@pytest.mark.parametrize("mode", ["dependent", "independent"])
@pytest.mark.parametrize("window", [None, 3, 0.2])
@pytest.mark.parametrize(("dims", "cost"), [(1, "squared"), (1, "abs"), (3, "squared")])
def test_dtaidistance_adapter_equals_naive(dims, cost, window, mode):
    rng = np.random.default_rng(1)
    a, b = random_set(rng, 5, (1, 15), dims), random_set(rng, 7, (1, 15), dims)
    for pair in [(a, None), (a, b), (b, a)]:
        for per_length in (False, True):
            setting = {"window": window, "mode": mode, "cost": cost, "per_length": per_length}
            np.testing.assert_allclose(
                pairwise_dtw(*pair, engine="dtaidistance", n_jobs=2, **setting),
                pairwise_dtw(*pair, engine="naive", **setting),
                rtol=TOLERANCE,
            )


def test_dtaidistance_adapter_in_several_bands(monkeypatch):
    from cksc_dist.maths import dtw_dtai

    monkeypatch.setattr(dtw_dtai, "CELLS_A_CALL", 500)
    rng = np.random.default_rng(2)
    a, b = random_set(rng, 9, (2, 15), 2), random_set(rng, 6, (2, 15), 2)
    for pair in [(a, None), (a, b)]:
        np.testing.assert_allclose(
            pairwise_dtw(*pair, engine="dtaidistance"), pairwise_dtw(*pair, engine="naive"), rtol=TOLERANCE
        )


SHAPES = [(30, (144, 145), 1), (30, (144, 145), 3), (30, (144, 145), 9), (20, (300, 301), 6)]
SHAPES += [(40, (50, 51), 60), (40, (20, 111), 60), (20, (50, 51), 600), (100, (8, 9), 2)]


@pytest.mark.parametrize(("n", "lengths", "dims"), SHAPES)
@pytest.mark.parametrize("window", [None, 0.1])
def test_shapes_of_the_benchmark(n, lengths, dims, window):
    series = random_set(np.random.default_rng(0), n, lengths, dims)
    ours = pairwise_dtw(series, window=window, engine="simd", n_jobs=2)
    np.testing.assert_allclose(
        ours, pairwise_dtw(series, window=window, engine="dtaidistance", n_jobs=2), rtol=TOLERANCE
    )
    assert (ours == ours.T).all()
    assert (np.diag(ours) == 0).all()


@pytest.mark.parametrize("dims", [1, 2, 3, 5, 60])
@pytest.mark.parametrize("noise", [1e-3, 1e-5, 1e-7])
def test_no_cancellation(dims, noise):
    """Near-duplicates far from the origin: a product form would lose all digits here."""
    rng = np.random.default_rng(3)
    base = rng.standard_normal((40, dims)).cumsum(axis=0)
    base[:, 0] += 1e6
    series = [base + noise * rng.standard_normal(base.shape) for _ in range(12)]
    np.testing.assert_allclose(
        pairwise_dtw(series, engine="simd"), pairwise_dtw(series, engine="dtaidistance"), rtol=TOLERANCE, atol=0
    )


@pytest.mark.parametrize("dims", [1, 3, 7])
@pytest.mark.parametrize("window", [None, 4, 0.15])
@pytest.mark.parametrize("mode", ["dependent", "independent"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_bits_of_a_pair_depend_on_nothing_else(dims, window, mode, dtype):
    """The same pair in another set, order, lane, thread, and with its sides exchanged."""
    rng = np.random.default_rng(4)
    series = random_set(rng, 61, (1, 40), dims)
    setting = {"window": window, "mode": mode, "dtype": dtype, "engine": "simd"}
    full = pairwise_dtw(series, **setting)
    assert full.dtype == dtype
    assert (full == pairwise_dtw(series, n_jobs=2, **setting)).all()
    order = rng.permutation(len(series))
    shuffled = pairwise_dtw([series[i] for i in order], n_jobs=2, **setting)
    assert (shuffled == full[np.ix_(order, order)]).all()
    some = rng.permutation(len(series))[:11]
    few = [series[i] for i in some]
    assert (pairwise_dtw(few, **setting) == full[np.ix_(some, some)]).all()
    assert (pairwise_dtw(few, series, **setting) == full[some]).all()
    assert (pairwise_dtw(series, few, **setting) == full[:, some]).all()
    i, j = some[:2]
    assert pairwise_dtw([series[i]], [series[j]], **setting)[0, 0] == full[i, j]


def test_independent_is_the_sum_over_dimensions():
    series = random_set(np.random.default_rng(5), 20, (5, 30), 4)
    together = pairwise_dtw(series, mode="independent")
    alone = [pairwise_dtw([values[:, q] for values in series]) for q in range(4)]
    np.testing.assert_allclose(together**2, sum(d**2 for d in alone), rtol=1e-12)
    together = pairwise_dtw(series, mode="independent", cost="abs")
    alone = [pairwise_dtw([values[:, q] for values in series], cost="abs") for q in range(4)]
    np.testing.assert_allclose(together, sum(alone), rtol=1e-12)


@pytest.mark.parametrize("dims", [2, 6])
def test_float32_is_close(dims):
    series = random_set(np.random.default_rng(6), 30, (5, 60), dims)
    for mode in ("dependent", "independent"):
        np.testing.assert_allclose(
            pairwise_dtw(series, mode=mode, dtype="float32"), pairwise_dtw(series, mode=mode), rtol=2e-5
        )


def test_z_normalisation():
    rng = np.random.default_rng(7)
    series = random_set(rng, 9, (5, 20), 3)
    scaled = [(x - x.mean(axis=0)) / x.std(axis=0) for x in series]
    expected = pairwise_dtw(scaled)
    np.testing.assert_allclose(pairwise_dtw(series, normalise="z"), expected, rtol=1e-9)
    moved = [5 * x - 7 for x in series]
    np.testing.assert_allclose(pairwise_dtw(moved, series, normalise="z"), expected, rtol=1e-9, atol=1e-6)


def test_window_means_what_it_says():
    x = np.arange(6.0)[:, None]
    y = x[::-1].copy()
    # a window of one frame leaves the diagonal: the Euclidean distance
    assert pairwise_dtw([x], [y], window=1)[0, 0] == pytest.approx(np.linalg.norm(x - y))
    assert pairwise_dtw([x], [y], window=6)[0, 0] == pairwise_dtw([x], [y])[0, 0]
    assert pairwise_dtw([x], [y], window=0.5)[0, 0] == pairwise_dtw([x], [y], window=3)[0, 0]


def test_accepts_the_usual_containers():
    array = np.random.default_rng(8).standard_normal((5, 7, 2))
    expected = pairwise_dtw(list(array))
    assert (pairwise_dtw(array) == expected).all()
    assert (pairwise_dtw(SeriesSet.from_list(array)) == expected).all()
    assert (pairwise_dtw(array.tolist()) == expected).all()
    assert (pairwise_dtw(array[:, :, 0]) == pairwise_dtw([x[:, :1] for x in array])).all()
    assert (pairwise_dtw([x[::1, ::-1] for x in array]) == expected).sum() == 25  # views are read as they are


def test_the_largest_values_do_not_become_nan():
    series = [np.array([[1e200]]), np.array([[-1e200]]), np.array([[1e-300]])]
    D = pairwise_dtw(series)
    assert D[0, 1] == np.inf
    assert D[0, 2] == np.inf
    assert (np.diag(D) == 0).all()


def test_errors_name_the_sample():
    good = np.zeros((3, 2))
    with pytest.raises(InputError, match=r"A\[1\] has a NaN or infinite value \(frame 2, dim 1\)"):
        pairwise_dtw([good, np.array([[0, 0], [0, 0], [0, np.nan]])])
    with pytest.raises(InputError, match=r"B\[0\] has a NaN or infinite"):
        pairwise_dtw([good], [np.full((2, 2), np.inf)])
    with pytest.raises(InputError, match=r"A\[1\] is empty"):
        pairwise_dtw([good, np.zeros((0, 2))])
    with pytest.raises(InputError, match=r"A\[2\] has 3 dims but A\[0\] has 2"):
        pairwise_dtw([good, good, np.zeros((4, 3))])
    with pytest.raises(InputError, match="A has 2 dims but B has 1"):
        pairwise_dtw([good], [np.zeros((4, 1))])
    with pytest.raises(InputError, match="A has no series"):
        pairwise_dtw([])
    with pytest.raises(InputError, match=r"A\[0\] holds text; it must hold real numbers"):
        pairwise_dtw([["x", "y"]])
    with pytest.raises(InputError, match=r"A\[1\], dim 0 has zero variance and cannot be z-normalised"):
        pairwise_dtw([np.array([[1.0], [2.0]]), np.full((5, 1), 0.1)], normalise="z")
    with pytest.raises(InputError, match=r"B\[0\] has a value beyond float32"):
        pairwise_dtw([good], [np.full((2, 2), 1e39)], dtype="float32")


def test_errors_name_the_setting():
    x = [np.zeros((3, 2))]
    with pytest.raises(EngineError, match="engine='fast' is unknown; choose one of auto, simd"):
        pairwise_dtw(x, engine="fast")
    with pytest.raises(EngineError, match="no cost='abs' for several dimensions"):
        pairwise_dtw(x, engine="dtaidistance", cost="abs")
    with pytest.raises(InputError, match="mode='both': must be one of 'dependent', 'independent'"):
        pairwise_dtw(x, mode="both")
    with pytest.raises(InputError, match="window=0: must be a whole number of at least 1"):
        pairwise_dtw(x, window=0)
    with pytest.raises(InputError, match=r"window .*=1.5: must be a number in \(0, 1\]"):
        pairwise_dtw(x, window=1.5)
    with pytest.raises(InputError, match="dtype='float16'"):
        pairwise_dtw(x, dtype="float16")
    with pytest.raises(InputError, match="n_jobs=0"):
        pairwise_dtw(x, n_jobs=0)


@pytest.mark.parametrize("scale", [1e-170, 1e-300, 1.0, 1e200, 1e308])
def test_z_normalisation_does_not_depend_on_the_unit(scale):
    rng = np.random.default_rng(9)
    series = [rng.uniform(-1, 1, (12, 2)) for _ in range(5)]
    expected = pairwise_dtw(series, normalise="z")
    np.testing.assert_allclose(pairwise_dtw([scale * x for x in series], normalise="z"), expected, rtol=1e-9)
