"""Prints a digest of all that the package computes from fixed seeds, as JSON: run it in two environments and compare.

    python -m tests.faults.digests [--cluster] [--tune] [--numbers FILE]

What belongs to a moment or a place is left out of a digest: seconds, addresses of folders, versions of libraries.
With --numbers the floating-point results themselves go into a file (.npz), to see how far apart two environments are.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import sys
import tempfile
import types
import warnings
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from cksc_dist import CKSC, DistanceKernel, pairwise_dtw
from cksc_dist.dist.distances import compute_distances
from cksc_dist.dist.executors import SerialExecutor, ThreadExecutor
from cksc_dist.dist.ingest import ingest
from cksc_dist.dist.progress import Progress
from cksc_dist.dist.video_work import describe_videos, make_textures
from cksc_dist.evaluate import KernelChoices, Protocol, evaluate, fit_work, protocol
from cksc_dist.evaluate.curves import Curves
from cksc_dist.evaluate.extras import example_model
from cksc_dist.evaluate.methods import METHODS
from cksc_dist.evaluate.report import write_report
from cksc_dist.io import make_gestures, write_npz
from cksc_dist.io.textures import TextureSpec
from cksc_dist.io.videos import find_videos
from cksc_dist.maths.threads import resolve_n_jobs
from cksc_dist.models import EKDL, JKSRC, KGDL, KKSVD, LCNNKSC, LPKSVD
from cksc_dist.models.prediction import explain_blocks
from cksc_dist.models.training import train
from cksc_dist.spec import DistanceSpec, ModelSpec, RunSpec
from cksc_dist.store.model_files import read_model

CORES = resolve_n_jobs(-1)
"""As many threads as this process may use cores: what is computed must not depend on it."""

SPECS = {
    "plain": DistanceSpec(),
    "independent": DistanceSpec(mode="independent", window=0.2, cost="abs"),
    "float32": DistanceSpec(dtype="float32", normalise="z"),
}
SECONDS = {"train_seconds", "predict_seconds"}


class Digests:
    """Digests by name, and the arrays that they are of."""

    def __init__(self) -> None:
        self.found: dict[str, str] = {}
        self.numbers: dict[str, Any] = {}

    def array(self, name: str, array: Any) -> None:
        """Add an array."""
        values = np.ascontiguousarray(array)
        self.numbers[name] = values
        self.found[name] = sha256(f"{values.dtype.str}{values.shape}".encode() + values.tobytes()).hexdigest()[:16]

    def text(self, name: str, content: str | bytes) -> None:
        """Add a text or bytes."""
        self.found[name] = sha256(content.encode() if isinstance(content, str) else content).hexdigest()[:16]

    def files(self, name: str, top: Path, pattern: str = "**/*") -> None:
        """Add the content of files, with their names."""
        files = sorted(path for path in top.glob(pattern) if path.is_file())
        assert files, f"nothing is below {top}"
        self.text(name, b"".join(str(path.relative_to(top)).encode() + path.read_bytes() for path in files))

    def model(self, name: str, path: Path, home: Path) -> None:
        """Add a saved model: its arrays, and its settings but for addresses."""
        kind, arrays, settings = read_model(path)
        for key in sorted(arrays):
            self.array(f"{name}/{key}", arrays[key])
        self.text(f"{name}/settings", kind + json.dumps(settings, sort_keys=True).replace(str(home), "HOME"))


def _clock() -> types.SimpleNamespace:
    """Return a clock that goes on by a second whenever somebody looks, in the place of the module."""
    ticks = itertools.count()
    return types.SimpleNamespace(perf_counter=lambda: float(next(ticks)), time=lambda: 0.0)


def videos(digests: Digests, home: Path) -> None:
    """Made textures, and their descriptors."""
    spec = TextureSpec(classes=3, videos_per_class=2, frames=12, side=20, seed=3)
    make_textures(home / "textures", spec, ThreadExecutor(CORES), Progress())
    digests.files("textures", home / "textures", "**/*.npy")
    found = describe_videos(find_videos(home / "textures"), str(home / "described"), SerialExecutor(), Progress())
    for name in ("frames", "planes"):
        digests.array(f"descriptors/{name}", getattr(found, name).values)


def stores(digests: Digests, home: Path, *, cluster: bool) -> None:
    """Series, distances, a kernel copy, models trained in every place, decisions."""
    data = make_gestures(n_per_class=14, n_classes=3, length=(14, 22), noise=0.7, random_state=5)
    digests.array("series", data.values)
    write_npz(home / "series.npz", data)
    digests.files("series file", home, "series.npz")
    store = home / "store"
    ingest(data, store)
    for name, spec in SPECS.items():
        report = compute_distances(store, spec, RunSpec(executor="threads", workers=CORES))
        digests.files(f"distances/{name}", store / "distances" / report.fingerprint)
        if name == "plain":
            matrix = report.fingerprint
    digests.files("series of the store", store / "series")
    digests.array("pairwise", pairwise_dtw(data, n_jobs=CORES))
    settings: dict[str, Any] = {"distances": matrix, "spec": ModelSpec(sparsity=3, max_iter=6), "seed": 4}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for place in ("memory", "disk", *(["cluster"] if cluster else [])):
            run = RunSpec(executor="dask" if place == "cluster" else "auto", workers=CORES)
            train(store, home / place, place=place, run=run, new_kernel=True, **settings)
            digests.text(f"trained/{place}", _model_digest(home / place))
    digests.model("trained", home / "memory", home)
    digests.files("kernel copy", store / "kernels", "*/strips/**/*")
    digests.files("ridge", store / "kernels", "*/ridge-*.json")
    new = make_gestures(n_per_class=4, n_classes=3, length=(14, 22), noise=0.7, random_state=6)
    blocks = list(explain_blocks(home / "memory", new, 3, RunSpec(executor="threads", workers=CORES)))
    digests.text("decisions", json.dumps([decision.to_dict() for block in blocks for decision in block]))
    digests.array("confidence", [decision.confidence for block in blocks for decision in block])


def _model_digest(path: Path) -> str:
    _, arrays, _ = read_model(path)
    return "".join(sha256(np.ascontiguousarray(arrays[name]).tobytes()).hexdigest() for name in sorted(arrays))


def methods(digests: Digests, home: Path) -> None:
    """All that seven methods learn, and what they say of new samples."""
    data = make_gestures(n_per_class=12, n_classes=3, length=(14, 22), noise=0.8, random_state=7)
    y = data.labels
    K = DistanceKernel().fit_transform(pairwise_dtw(data))
    parts = [pairwise_dtw([series[:, [dim]] for series in data]) for dim in range(data.dims)]
    stack = np.stack([DistanceKernel().fit_transform(D) for D in parts], axis=2)
    for method in (CKSC, KKSVD, JKSRC, LCNNKSC, LPKSVD, KGDL, EKDL):
        given = stack if method is JKSRC else K
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = method(random_state=2, n_jobs=-1).fit(given[:24][:, :24], y[:24])
        name = method.__name__
        model.save(home / name)
        digests.model(f"fit/{name}", home / name, home)
        digests.array(f"shares/{name}", model.class_shares(given[24:][:, :24]))


def many_samples(digests: Digests, home: Path) -> None:
    """Repairs, fits and decisions on so many samples that BLAS would use all its threads, from an indefinite kernel."""
    train, asked, classes = 900, 300, 6
    rng = np.random.default_rng(3)
    y = np.arange(train + asked) % classes
    X = 1.2 * rng.standard_normal((classes, 5))[y] + rng.standard_normal((train + asked, 5))
    D = np.abs(X[:, None] - X[:train]).max(axis=2)  # the kernel of a distance that is not Euclidean
    for repair in ("clip", "flip"):
        kernel = DistanceKernel(repair=repair)
        digests.array(f"many/{repair}", kernel.fit_transform(D[:train]))
        digests.array(f"many/{repair} of new", kernel.transform(D[train:]))
    kernel = DistanceKernel()
    K, new = kernel.fit_transform(D[:train]), kernel.transform(D[train:])
    health = kernel.health(D[:train])
    assert health.negative_mass > 0.01
    digests.text("many/health", repr(health))
    frames = rng.standard_normal((1200, 400))
    digests.array("many/curves", Curves.of([frames])(frames))
    for method in (CKSC, KKSVD, JKSRC, LCNNKSC, LPKSVD, KGDL, EKDL):
        few = {} if method is JKSRC else {"max_iter": 2}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = method(sparsity=3, random_state=2, **few).fit(K, y[:train])
        name = method.__name__
        model.save(home / f"many-{name}")
        digests.model(f"many/{name}", home / f"many-{name}", home)
        digests.array(f"many/{name} shares", model.class_shares(new))
        digests.array(f"many/{name} similarity", [why.similarity for why in model.explain_many(new)])


def evaluation(digests: Digests, home: Path, *, tune: bool) -> None:
    """The table of all methods, and the page of it."""
    fit_work.time, protocol.time = _clock(), _clock()  # type: ignore[assignment]
    data = make_gestures(n_per_class=8, n_classes=3, length=(10, 14), noise=0.8, random_state=9)
    store = home / "evaluated"
    ingest(data, store)
    choices = KernelChoices(factors=(1.0, 0.5))
    how = Protocol(n_splits=2, n_folds=2, quick=True, tune=tune, random_state=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = evaluate(store, list(METHODS), how, choices=choices, sparsity=3, run=RunSpec(executor="serial"))
        example_model(store, table, run=RunSpec(executor="serial"))
    for name in sorted({*table.data_vars} - SECONDS):
        values = table[name].values
        if values.dtype.kind in "OU":
            digests.text(f"table/{name}", json.dumps(values.tolist()))
        else:
            digests.array(f"table/{name}", values)
    write_report(store, home / "report.html")
    page = (home / "report.html").read_text(encoding="utf-8").replace(str(home), "HOME")
    digests.text("report", re.sub(r"<dd>\d+\.\d+\.\d+[^<]*</dd>", "", page))  # versions
    digests.numbers["page"] = np.array(page)


def main() -> None:
    """Print digests of everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cluster", action="store_true", help="train on a cluster as well")
    parser.add_argument("--tune", action="store_true", help="tune the methods that are compared")
    parser.add_argument("--numbers", type=Path, help="where the numbers go")
    options = parser.parse_args()
    digests = Digests()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(os.path.realpath(folder))
        videos(digests, home)
        stores(digests, home, cluster=options.cluster)
        methods(digests, home)
        many_samples(digests, home)
        evaluation(digests, home, tune=options.tune)
    if options.numbers:
        np.savez(options.numbers, **{name.replace("/", " "): values for name, values in digests.numbers.items()})
    json.dump(digests.found, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
