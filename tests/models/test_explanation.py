"""Explanations: every number in them follows from dictionary, code and labels, and the words can be read."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from cksc_dist import CKSC, DistanceKernel
from cksc_dist.errors import InputError
from cksc_dist.io import make_gestures
from cksc_dist.maths.codes import recall
from cksc_dist.models import cksc as cksc_module
from cksc_dist.models.explanation import Explanation

EVERYTHING = 10_000


@pytest.fixture(scope="module")
def overlapping() -> tuple[CKSC, Any, Any]:
    """A model of three classes that overlap, its test kernel, and the training labels."""
    rng = np.random.default_rng(0)
    y = rng.permutation(np.repeat(["left", "right", "up"], [30, 26, 24]))
    X = rng.standard_normal((80, 2)) + 2.0 * np.unique(y, return_inverse=True)[1][:, None]
    D = cdist(X, X)
    kernel = DistanceKernel(factor=0.5)
    K_train = kernel.fit_transform(D[:50, :50])
    model = CKSC(sparsity=4, random_state=0, recall="reconstruction").fit(K_train, y[:50])
    return model, kernel.transform(D[50:, :50]), y[:50]


def explanations(model: CKSC, K_test: Any, top: int) -> list[Explanation]:
    return [model.explain(row, top=top) for row in K_test]


def test_label_and_shares_are_those_of_prediction(overlapping: tuple[CKSC, Any, Any]) -> None:
    model, K_test, _ = overlapping
    shares = model.class_shares(K_test)
    for i, explanation in enumerate(explanations(model, K_test, 5)):
        assert explanation.label == model.predict(K_test)[i]
        assert list(explanation.shares) == model.classes_.tolist()
        assert list(explanation.shares.values()) == shares[i].tolist()
        assert explanation.confidence == shares[i].max()
        assert not explanation.far_away


def test_all_samples_together_are_the_class_shares(overlapping: tuple[CKSC, Any, Any]) -> None:
    model, K_test, y_train = overlapping
    mixed = 0
    for explanation in explanations(model, K_test, EVERYTHING):
        summed = dict.fromkeys(explanation.shares, 0.0)
        for part in explanation.samples:
            assert part.label == y_train[part.row]  # rows refer to the training set
            assert part.share > 0
            summed[part.label] += part.share
        assert summed == pytest.approx(explanation.shares, abs=1e-12)
        assert sum(part.share for part in explanation.samples) == pytest.approx(1.0)
        assert len(explanation.samples) == explanation.n_samples
        mixed += explanation.confidence < 0.99
    assert mixed > 3  # several classes took part in some


def test_parts_are_those_of_dictionary_and_code(overlapping: tuple[CKSC, Any, Any]) -> None:
    model, K_test, _ = overlapping
    codes = model.transform(K_test)
    weights = codes @ model.dictionary_.toarray().T
    for i, explanation in enumerate(explanations(model, K_test, EVERYTHING)):
        expected = {int(j): codes[i, j] for j in np.flatnonzero(codes[i])}
        assert {part.atom: part.weight for part in explanation.atoms} == expected
        assert explanation.n_atoms == len(expected)
        for part in explanation.atoms:
            assert part.interpretability == model.interpretability_[part.atom]
        rows = {part.row: part.share for part in explanation.samples}
        assert rows.keys() == set(np.flatnonzero(weights[i]).tolist())
        assert [rows[r] for r in sorted(rows)] == pytest.approx(weights[i][sorted(rows)] / weights[i].sum())


def test_the_class_of_an_atom_is_its_strongest(overlapping: tuple[CKSC, Any, Any]) -> None:
    model, K_test, y_train = overlapping
    weight = model.dictionary_.toarray().T @ (y_train[:, None] == model.classes_)
    for explanation in explanations(model, K_test, EVERYTHING):
        for part in explanation.atoms:
            assert part.label == model.classes_[weight[part.atom].argmax()]


def test_similarity_is_the_cosine_with_the_reconstruction(overlapping: tuple[CKSC, Any, Any]) -> None:
    """<z, X u> / |X u|, from coordinates in which the kernel of test and training samples is an inner product."""
    rng = np.random.default_rng(1)
    Z = rng.standard_normal((24, 6)) + 3 * np.repeat(np.eye(6)[:2], 12, axis=0)
    Z /= np.linalg.norm(Z, axis=1, keepdims=True)
    train, test = np.arange(0, 24, 2), np.arange(1, 24, 2)
    model = CKSC(sparsity=3, random_state=0, tol=0.01).fit(Z[train] @ Z[train].T, np.repeat([0, 1], 6))
    for z in Z[test]:
        explanation = model.explain(Z[train] @ z)
        image = Z[train].T @ (model.dictionary_ @ model.transform([Z[train] @ z])[0])
        assert explanation.similarity == pytest.approx(z @ image / np.linalg.norm(image))
        assert 0 < explanation.similarity <= 1


@pytest.mark.parametrize("top", [1, 2, 5])
def test_top_names_the_heaviest(overlapping: tuple[CKSC, Any, Any], top: int) -> None:
    model, K_test, _ = overlapping
    shorter = 0
    for few, everything in zip(explanations(model, K_test, top), explanations(model, K_test, EVERYTHING), strict=True):
        assert few.samples == everything.samples[:top]
        assert few.atoms == everything.atoms[:top]
        assert (few.n_samples, few.n_atoms) == (everything.n_samples, everything.n_atoms)
        shares = [part.share for part in everything.samples]
        assert shares == sorted(shares, reverse=True)
        weights = [part.weight for part in everything.atoms]
        assert weights == sorted(weights, reverse=True)
        assert sum(part.share for part in few.samples) <= 1 + 1e-12
        shorter += len(few.samples) < len(everything.samples)
    assert shorter


def test_it_reads_as_a_text(overlapping: tuple[CKSC, Any, Any]) -> None:
    model, K_test, _ = overlapping
    index = int(np.argmax(model.class_shares(K_test).max(axis=1) < 0.95))
    explanation = model.explain(K_test[index], top=2)
    lines = str(explanation).split("\n")
    assert lines[0] == (
        f"label {explanation.label}, {explanation.confidence:.0%} sure; the reconstruction from "
        f"{explanation.n_samples} training samples and {explanation.n_atoms} atoms has cosine "
        f"{explanation.similarity:.3f} with the sample"
    )
    assert lines[1].startswith(f"  classes  {explanation.label} {explanation.confidence:.0%}, ")
    first = explanation.samples[0]
    assert lines[2] == f"  sample   row {first.row} of class {first.label}: {first.share:.0%}"
    assert sum(line.startswith("  atom ") for line in lines) == len(explanation.atoms)
    assert max(len(line) for line in lines) < 120
    assert "np." not in str(explanation)


@pytest.mark.parametrize("labels", [["a", "b"], [0, 1], [False, True], np.array(["a", "b"], dtype=object)])
def test_it_goes_into_json_and_back(labels: Any) -> None:
    K = np.exp(-cdist(np.arange(12.0)[:, None], np.arange(12.0)[:, None]) / 3)
    model = CKSC(sparsity=3, random_state=0).fit(K, np.repeat(labels, 6))
    explanation = model.explain(K[5], top=EVERYTHING)
    again = json.loads(json.dumps(explanation.to_dict()))
    assert again["label"] == explanation.label == model.predict(K[5:6])[0]
    assert again["shares"] == {str(name): share for name, share in explanation.shares.items()}
    assert [part["row"] for part in again["samples"]] == [part.row for part in explanation.samples]
    assert [part["weight"] for part in again["atoms"]] == [part.weight for part in explanation.atoms]
    assert again.keys() == vars(explanation).keys()


def test_a_sample_like_no_other_is_flagged_in_words(overlapping: tuple[CKSC, Any, Any]) -> None:
    model, K_test, y_train = overlapping
    names, counts = np.unique(y_train, return_counts=True)
    explanation = model.explain(np.zeros(K_test.shape[1]))
    assert explanation.far_away
    assert explanation.label == names[counts.argmax()]
    assert explanation.confidence == pytest.approx(1 / 3)
    assert explanation.samples == ()
    assert explanation.atoms == ()
    assert (explanation.n_samples, explanation.n_atoms, explanation.similarity) == (0, 0, 0.0)
    assert str(explanation) == (
        f"label {explanation.label}: a guess, the largest class. The sample is like no training sample; "
        "check its scale, or train on samples like it"
    )
    assert json.loads(json.dumps(explanation.to_dict()))["far_away"] is True


def test_series_and_vectors_can_be_explained_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    data = make_gestures(8, 2, dims=2, length=(10, 20), noise=0.1)
    model = CKSC(sparsity=3, kernel="dtw", random_state=0, tol=0.01).fit(data, data.labels)
    rows = []

    def counted(kernel_rows: Any, *others: Any) -> Any:
        rows.append(len(kernel_rows))
        return recall(kernel_rows, *others)

    monkeypatch.setattr(cksc_module, "recall", counted)
    explanation = model.explain(data[3])
    assert rows == [1]  # distances are dear: each is computed once
    assert explanation.label == "gesture0"
    assert all(data.labels[part.row] == part.label for part in explanation.samples)
    assert model.explain(1e9 * data[3]).far_away
    X = np.random.default_rng(0).standard_normal((20, 2)) + np.repeat([0, 4], 10)[:, None]
    vectors = CKSC(sparsity=3, kernel="rbf", random_state=0, tol=0.01).fit(X, np.repeat(["a", "b"], 10))
    assert vectors.explain(X[12]).label == "b"


def test_many_are_explained_as_one_by_one(overlapping: tuple[CKSC, Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    model, K_test, _ = overlapping
    rows = np.vstack([K_test, np.zeros(K_test.shape[1])])  # the last one is far away
    calls = []

    def counted(kernel_rows: Any, *others: Any) -> Any:
        calls.append(len(kernel_rows))
        return recall(kernel_rows, *others)

    for top in (2, EVERYTHING):
        expected = explanations(model, rows, top)
        with monkeypatch.context() as patch:
            patch.setattr(cksc_module, "recall", counted)
            assert model.explain_many(rows, top) == expected
    assert calls == [len(rows)] * 2
    assert expected[-1].far_away
    with pytest.raises(InputError, match=r"top=0: must be a whole number of at least 1"):
        model.explain_many(rows, 0)


def test_several_series_are_not_one() -> None:
    data = make_gestures(8, 2, dims=2, length=(10, 20), noise=0.1)
    model = CKSC(sparsity=3, kernel="dtw", random_state=0, tol=0.01).fit(data, data.labels)
    with pytest.raises(InputError, match=r"explain takes one sample, but z is a list of parts of unequal length; pass"):
        model.explain(data.series)
    with pytest.raises(InputError, match=r"explain takes one sample, but z is SeriesSet\('gestures': 1 series"):
        model.explain(data[:1])
    assert model.explain_many(data[2:4]) == [model.explain(data[2]), model.explain(data[3])]


def test_a_row_of_a_table_is_explained_without_a_word_about_names() -> None:
    pandas = pytest.importorskip("pandas")
    X = pandas.DataFrame({"height": np.arange(12.0), "width": np.arange(12.0) % 5})
    model = CKSC(sparsity=2, kernel="rbf", random_state=0, tol=0.01).fit(X, np.repeat(["a", "b"], 6))
    one = model.explain(X.iloc[3])  # a warning would be an error
    assert one == model.explain(X.to_numpy()[3]) == model.explain_many(X)[3]
    with pytest.raises(InputError, match=r"X has 3 features, but the model was trained on vectors with 2"):
        model.explain([1.0, 2.0, 3.0])


def test_what_explain_refuses(overlapping: tuple[CKSC, Any, Any]) -> None:
    model, K_test, _ = overlapping
    with pytest.raises(InputError, match=r"explain takes one sample, but z has shape \(1, 50\); pass one of them"):
        model.explain(K_test[:1])
    with pytest.raises(InputError, match=r"K has 49 columns, but the model was trained on 50 samples"):
        model.explain(K_test[0][:-1])
    for top in (0, -1, 2.5):
        with pytest.raises(InputError, match=rf"top={top}: must be a whole number of at least 1"):
            model.explain(K_test[0], top=top)  # type: ignore[arg-type]
