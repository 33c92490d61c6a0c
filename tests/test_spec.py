"""Settings: what is allowed, in which words it is refused, and fingerprints that name the settings alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import FrozenInstanceError, asdict, fields, replace
from typing import Any

import numpy as np
import pytest

from cksc_dist.errors import EngineError, InputError
from cksc_dist.spec import (
    DistanceSpec,
    KernelSpec,
    ModelSpec,
    RunSpec,
    check_choice,
    check_count,
    check_number,
    fingerprint,
)

# one other value for every field: a field that is added to a spec has to be added here as well
OTHERS: dict[type[Any], dict[str, Any]] = {
    DistanceSpec: {
        "mode": "independent",
        "window": 3,
        "cost": "abs",
        "normalise": "z",
        "per_length": True,
        "engine": "naive",
        "dtype": "float32",
        "dims": (0, 2),
        "metric": "euclidean",
    },
    KernelSpec: {"bandwidth": "median", "factor": 0.5, "repair": "clip"},
    ModelSpec: {
        "sparsity": 7,
        "alpha": 0.3,
        "atoms_per_class": 6,
        "recall": "reconstruction",
        "schedule": "sequential",
        "selection": "scaled",
        "prune": 0.01,
        "max_iter": 51,
        "tol": 1e-5,
    },
}
FIELDS = [(spec, name) for spec, others in OTHERS.items() for name in others]


@pytest.mark.parametrize("spec", OTHERS)
def test_every_field_is_tried_here(spec: type[Any]) -> None:
    assert set(OTHERS[spec]) == {field.name for field in fields(spec)}


@pytest.mark.parametrize(("spec", "name"), FIELDS)
def test_a_changed_field_changes_the_fingerprint(spec: type[Any], name: str) -> None:
    changed = replace(spec(), **{name: OTHERS[spec][name]})
    assert fingerprint(changed) != fingerprint(spec())


def test_no_two_of_all_these_specs_share_a_fingerprint() -> None:
    specs = [replace(spec(), **{name: OTHERS[spec][name]}) for spec, name in FIELDS]
    specs += [spec() for spec in OTHERS] + [DistanceSpec(window=1), DistanceSpec(window=1.0)]
    assert len({fingerprint(spec) for spec in specs}) == len(specs)


# stores are found again by these: they must never change
KNOWN = {
    "DistanceSpec()": "b950ae2d589983e3",
    "DistanceSpec().resolved()": "2905105cbdc53511",
    "KernelSpec()": "57576cf1ffe218f8",
    "ModelSpec()": "b53f75976aeb1899",
    "DistanceSpec(mode='independent', window=0.1, normalise='z')": "76cc74962bc92abc",
    "DistanceSpec(metric='chi2', dims=(0, 3), dtype='float32')": "2fca47795b6a2df0",
    "DistanceSpec(metric='external')": "50c855d699641eb2",
}


@pytest.mark.parametrize("text", KNOWN)
def test_known_fingerprints(text: str) -> None:
    assert fingerprint(eval(text)) == KNOWN[text]


def test_another_process_gives_the_same_fingerprints() -> None:
    code = f"from cksc_dist.spec import *; print(*[fingerprint(eval(t)) for t in {list(KNOWN)!r}])"
    for seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": seed}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.split() == list(KNOWN.values())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (KernelSpec(factor=1), KernelSpec(factor=1.0)),
        (KernelSpec(bandwidth=2), KernelSpec(bandwidth=np.float64(2))),
        (KernelSpec(factor=0.5), KernelSpec(factor=np.float32(0.5))),  # type: ignore[arg-type]
        (ModelSpec(sparsity=3, max_iter=9), ModelSpec(sparsity=np.int64(3), max_iter=np.int32(9))),  # type: ignore[arg-type]
        (ModelSpec(alpha=1, tol=0), ModelSpec(alpha=1.0, tol=0.0)),
        (ModelSpec(atoms_per_class=4), ModelSpec(atoms_per_class=np.uint8(4))),  # type: ignore[arg-type]
        (DistanceSpec(window=5), DistanceSpec(window=np.int64(5))),  # type: ignore[arg-type]
        (DistanceSpec(window=0.5), DistanceSpec(window=np.float32(0.5))),  # type: ignore[arg-type]
        (DistanceSpec(dims=(0, 2)), DistanceSpec(dims=[0, 2])),  # type: ignore[arg-type]
        (DistanceSpec(dims=(0, 2)), DistanceSpec(dims=np.array([0, 2], np.int8))),  # type: ignore[arg-type]
        (DistanceSpec(dims=(3,)), DistanceSpec(dims=3)),  # type: ignore[arg-type]
        (DistanceSpec().resolved(), DistanceSpec(engine="simd").resolved()),
    ],
)
def test_equal_numbers_are_the_same_settings(one: Any, other: Any) -> None:
    assert one == other
    assert fingerprint(one) == fingerprint(other)


def test_specs_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        ModelSpec().alpha = 1.0  # type: ignore[misc]


@pytest.mark.parametrize(
    ("spec", "settings", "words"),
    [
        (DistanceSpec, {"mode": "both"}, r"mode='both': must be one of 'dependent', 'independent'$"),
        (DistanceSpec, {"cost": None}, r"cost=None: must be one of 'squared', 'abs'$"),
        (DistanceSpec, {"normalise": "Z"}, r"normalise='Z': must be one of None, 'z'$"),
        (DistanceSpec, {"per_length": 1}, r"per_length=1: must be one of False, True$"),
        (DistanceSpec, {"dtype": "float16"}, r"dtype='float16': must be one of 'float64', 'float32'$"),
        (DistanceSpec, {"window": 0}, r"window=0: must be a whole number of at least 1$"),
        (DistanceSpec, {"window": -2}, r"window=-2: must be a whole number of at least 1$"),
        (DistanceSpec, {"window": 1.5}, r"window \(as a fraction .*\)=1.5: must be a number in \(0, 1\]$"),
        (DistanceSpec, {"window": 0.0}, r"=0.0: must be a number in \(0, 1\]$"),
        (DistanceSpec, {"window": True}, r"=True: must be a number in \(0, 1\]$"),
        (DistanceSpec, {"window": "5"}, r"='5': must be a number in \(0, 1\]$"),
        (DistanceSpec, {"window": float("nan")}, r"=nan: must be a number in \(0, 1\]$"),
        (DistanceSpec, {"dims": ()}, r"dims=\(\): give at least one dimension, ascending, each once$"),
        (DistanceSpec, {"dims": (2, 1)}, r"dims=\(2, 1\): give at least one dimension, ascending, each once$"),
        (DistanceSpec, {"dims": (1, 1)}, r"dims=\(1, 1\): give at least one dimension, ascending, each once$"),
        (DistanceSpec, {"dims": (0, -1)}, r"dims=-1: must be a whole number of at least 0$"),
        (DistanceSpec, {"dims": (0.0,)}, r"dims=0.0: must be a whole number of at least 0$"),
        (DistanceSpec, {"dims": True}, r"dims=True: must be a whole number of at least 0$"),
        (DistanceSpec, {"dims": "01"}, r"dims='01': must be a whole number of at least 0$"),
        (
            DistanceSpec,
            {"metric": "cosine"},
            r"metric='cosine': must be one of 'dtw', 'euclidean', 'chi2', 'chi', 'external'$",
        ),
        (DistanceSpec, {"metric": "chi2", "window": 3}, r"window=3 is for metric='dtw', not for 'chi2'$"),
        (DistanceSpec, {"metric": "euclidean", "engine": "simd"}, r"engine='simd' is for metric='dtw', not for"),
        (DistanceSpec, {"metric": "external", "normalise": "z"}, r"normalise='z' is for metric='dtw', not for"),
        (DistanceSpec, {"metric": "chi2", "per_length": True}, r"per_length=True is for metric='dtw', not for"),
        (DistanceSpec, {"metric": "chi2", "cost": "abs"}, r"cost='abs' is for metric='dtw', not for"),
        (DistanceSpec, {"metric": "chi2", "mode": "independent"}, r"mode='independent' is for metric='dtw', not for"),
        (RunSpec, {"executor": "spark"}, r"executor='spark': must be one of 'auto', 'serial', 'threads', 'dask'$"),
        (RunSpec, {"workers": 0}, r"workers=0: must be a whole number of at least 1$"),
        (RunSpec, {"memory": 1.5e9}, r"memory=1500000000.0: must be a whole number of at least 1$"),
        (RunSpec, {"trust": 1}, r"trust=1: must be one of False, True$"),
        (
            RunSpec,
            {"executor": "threads", "scheduler": "tcp://a:1"},
            r"executor='threads' uses no scheduler; leave",
        ),
        (
            RunSpec,
            {"scheduler": "tcp://me:secret@a:1"},
            r"^the address of the scheduler holds a name or pass",
        ),
        (RunSpec, {"executor": "serial", "scheduler": "tcp://a:1"}, r"executor='serial' uses no scheduler; leave"),
        (KernelSpec, {"bandwidth": "avg"}, r"bandwidth='avg': must be one of 'mean', 'median', 'paper', 'squares'$"),
        (KernelSpec, {"bandwidth": 0}, r"bandwidth=0: must be a number in \(0, 1e\+300\]$"),
        (KernelSpec, {"bandwidth": None}, r"bandwidth=None: must be a number"),
        (KernelSpec, {"factor": -1.0}, r"factor=-1.0: must be a number in \(0, 1e\+300\]$"),
        (KernelSpec, {"factor": float("inf")}, r"factor=inf: must be a number in"),
        (KernelSpec, {"repair": "shift"}, r"repair='shift': must be one of None, 'clip', 'flip'$"),
        (ModelSpec, {"sparsity": 0}, r"sparsity=0: must be a whole number of at least 1$"),
        (ModelSpec, {"sparsity": 2.0}, r"sparsity=2.0: must be a whole number"),
        (ModelSpec, {"sparsity": True}, r"sparsity=True: must be a whole number"),
        (ModelSpec, {"alpha": -0.1}, r"alpha=-0.1: must be a number in \[0, 1e\+06\]$"),
        (ModelSpec, {"alpha": float("nan")}, r"alpha=nan: must be a number"),
        (ModelSpec, {"alpha": "0.2"}, r"alpha='0.2': must be a number"),
        (ModelSpec, {"alpha": np.array([0.1, 0.2])}, r"alpha=array\(\[0.1, 0.2\]\): must be a number"),
        (ModelSpec, {"atoms_per_class": 0}, r"atoms_per_class=0: must be a whole number of at least 1$"),
        (ModelSpec, {"recall": "exact"}, r"recall='exact': must be one of 'confident', 'reconstruction'$"),
        (ModelSpec, {"schedule": "all"}, r"schedule='all': must be one of 'interleaved', 'sequential'$"),
        (ModelSpec, {"selection": None}, r"selection=None: must be one of 'scaled', 'plain'$"),
        (ModelSpec, {"prune": 0.6}, r"prune=0.6: must be a number in \[0, 0.5\]$"),
        (ModelSpec, {"max_iter": 0}, r"max_iter=0: must be a whole number of at least 1$"),
        (ModelSpec, {"tol": 2}, r"tol=2: must be a number in \[0, 1\]$"),
    ],
)
def test_what_is_refused_and_in_which_words(spec: type[Any], settings: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        spec(**settings)


def test_an_unknown_engine_is_an_engine_error_that_lists_the_others() -> None:
    with pytest.raises(EngineError, match=r"engine='gpu' is unknown; choose one of auto, simd, dtaidistance"):
        DistanceSpec(engine="gpu")
    for engine in (np.array(["simd", "naive"]), None):
        with pytest.raises(EngineError, match=r"is unknown; choose one of auto, simd, dtaidistance"):
            DistanceSpec(engine=engine)  # type: ignore[arg-type]


def test_a_scheduler_goes_with_dask() -> None:
    for executor in ("auto", "dask"):
        assert RunSpec(executor=executor, scheduler="tcp://a:1").scheduler == "tcp://a:1"


def test_auto_is_settled_for_dtw_alone_and_by_settings_alone() -> None:
    assert DistanceSpec().resolved() == DistanceSpec(engine="simd")
    assert DistanceSpec(engine="naive").resolved().engine == "naive"
    for metric in ("euclidean", "chi2", "external"):
        spec = DistanceSpec(metric=metric)
        assert spec.resolved() == spec


def test_settings_come_back_from_what_is_stored() -> None:
    for name, other in OTHERS[DistanceSpec].items():
        spec = replace(DistanceSpec(), **{name: other})
        again = DistanceSpec(**json.loads(json.dumps(asdict(spec))))
        assert (again, fingerprint(again)) == (spec, fingerprint(spec))


def test_edges_of_ranges_are_allowed() -> None:
    assert ModelSpec(alpha=0, prune=0.5, tol=1.0, sparsity=1, max_iter=1).prune == 0.5
    assert DistanceSpec(window=1.0).window == 1.0
    check_number("x", 0, 0, 1)
    with pytest.raises(InputError):
        check_number("x", 0, 0, 1, open_low=True)
    check_count("n", 0, low=0)
    with pytest.raises(InputError, match=r"n=0: must be a whole number of at least 1"):
        check_count("n", 0)


def test_a_choice_is_compared_by_kind_as_well() -> None:
    check_choice("flag", True, (False, True))
    for value in (1, np.array([1, 2]), "True"):
        with pytest.raises(InputError, match="must be one of False, True"):
            check_choice("flag", value, (False, True))


def test_a_number_of_more_than_64_bits_is_refused() -> None:
    with pytest.raises(InputError, match=r"window=9+: must be below 2\*\*63"):
        DistanceSpec(window=int("9" * 30))
