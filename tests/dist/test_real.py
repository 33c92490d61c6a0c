"""The published data sets through a store: the matrix, and what a classifier makes of it, are those of memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.model_selection import StratifiedShuffleSplit

from benchmarks.accuracy import SETS
from cksc_dist import CKSC, DistanceKernel, SeriesSet, open_matrix, pairwise_dtw
from cksc_dist.cli import main
from tests.small_stores import files_below

# percent, of the split with seed 0
FLOOR = {"Cricket": 97.0, "Words": 97.0, "UTKinect": 88.0}


LONG = ("Cricket", "Words")
"""Left to campaigns; their accuracy is tried in tests/test_accuracy.py."""


@pytest.mark.realdata
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::cksc_dist.errors.SmallClassWarning")
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.campaign] * (name in LONG)) for name in FLOOR])
def test_a_published_set_through_ingest_distances_verify_and_cksc(
    name: str, real_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, sparsity, alpha, _ = SETS[name]
    store = tmp_path / "store"
    assert main(["ingest", str(real_data / path), str(store)]) == 0
    assert main(["distances", str(store)]) == 0
    assert main(["verify", str(store), "--sample", "60", "--seed", "0"]) == 0
    assert "all is well" in capsys.readouterr().out

    data = SeriesSet.read(real_data / path)
    D = pairwise_dtw(data, n_jobs=-1)
    stored = open_matrix(store)
    np.testing.assert_array_equal(stored[:, :], D)
    assert stored.labels.tolist() == data.labels.tolist()
    assert stored.ids.tolist() == data.ids.tolist()

    y = data.labels
    train, test = next(StratifiedShuffleSplit(1, test_size=0.5, random_state=0).split(D, y))
    kernel = DistanceKernel()
    K_train = kernel.fit_transform(D[np.ix_(train, train)])
    K_test = kernel.transform(D[np.ix_(test, train)])
    view = stored.kernel(train)
    # the bandwidth is summed strip by strip: to the last bits only
    np.testing.assert_allclose(np.asarray(view), K_train, rtol=1e-10)
    np.testing.assert_allclose(view.against(test), K_test, rtol=1e-10)

    expected = CKSC(sparsity=sparsity, alpha=alpha, random_state=0, n_jobs=-1).fit(K_train, y[train])
    model = CKSC(sparsity=sparsity, alpha=alpha, random_state=0, n_jobs=-1).fit(view, y[train])
    predicted = model.predict(view.against(test))
    assert predicted.tolist() == expected.predict(K_test).tolist()
    assert 100 * np.mean(predicted == y[test]) >= FLOOR[name]

    before = files_below(store)
    assert main(["distances", str(store)]) == 0
    assert "complete: all" in capsys.readouterr().out
    assert files_below(store) == before
