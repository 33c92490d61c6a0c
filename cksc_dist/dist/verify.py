"""Trust, but verify: metadata, checksums, symmetry, and a random sample of entries against an independent engine."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from cksc_dist.dist.progress import Progress, Running
from cksc_dist.dist.survey import find_damage
from cksc_dist.dist.tile_work import BlockCache
from cksc_dist.errors import StoreError
from cksc_dist.maths.metrics import pairwise_metric, pick_dims
from cksc_dist.maths.threads import resolve_n_jobs
from cksc_dist.series import Ragged
from cksc_dist.spec import DistanceSpec
from cksc_dist.store.folder import Folder
from cksc_dist.store.grid import Tile, places
from cksc_dist.store.ledger import Blocks, Ledger
from cksc_dist.store.matrix_files import MatrixFiles, damaged_axes, find_matrices
from cksc_dist.store.metadata import damaged_metadata
from cksc_dist.store.series_files import StoredSeries, open_series

__all__ = ["Verdict", "independent_engine", "verify"]

# rounding of other sums in another order; anything else is an error
TOLERANCE = {"float64": 1e-9, "float32": 2e-4}


@dataclass(frozen=True)
class Verdict:
    """What was found in a matrix.

    Parameters
    ----------
    fingerprint
        Name of the matrix.
    tiles, missing
        Tiles in all, and not yet computed.
    bad
        What is wrong, by tile.
    checked, worst
        Entries that were computed again, and the largest relative difference.
    engine
        What they were computed with.
    axes
        Axes that are damaged, or name other rows.
    """

    fingerprint: str
    tiles: int
    missing: int
    bad: dict[Tile, str]
    checked: int
    worst: float
    engine: str
    axes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong and nothing missing."""
        return not self.bad and not self.missing and not self.axes


def independent_engine(spec: DistanceSpec, dims: int) -> str:
    """Return an engine for DTW that shares no code with the one that was used.

    Examples
    --------
    >>> independent_engine(DistanceSpec(), 3), independent_engine(DistanceSpec(cost="abs"), 3)
    ('dtaidistance', 'naive')
    """
    if spec.resolved().engine == "dtaidistance":
        return "simd"
    return "naive" if spec.cost == "abs" and spec.mode == "dependent" and dims > 1 else "dtaidistance"


def verify(
    store: str | Path | Folder,
    sample: int = 200,
    seed: int | None = None,
    progress: Progress | None = None,
    distances: str = "",
) -> tuple[list[str], list[Verdict]]:
    """Check a store; return damaged files of metadata or series, and a verdict for each matrix.

    Parameters
    ----------
    store
        Folder or URL.
    sample
        Entries of each matrix to compute again.
    seed
        Which; None: others every time.
    progress
        Hears what goes on.
    distances
        First letters of the fingerprints to look at.
    """
    folder = Folder.of(store)
    progress = progress or Progress()
    files_at_fault = damaged_metadata(folder)
    if files_at_fault:
        return files_at_fault, []
    series = open_series(folder)
    if folder.read("metadata.json") is None:
        files_at_fault.append("metadata.json, the copies of all metadata, is lost")
    files_at_fault += [f"series {i} ({series.ids[i]})" for i in series.changed()]
    there = find_matrices(folder)
    found = [files for name, files in there.items() if name.startswith(distances)]
    if distances and not found:
        raise StoreError(f"{folder.url} has no matrix {distances}...; it holds {', '.join(there) or 'none'}")
    verdicts = [_verify_matrix(files, series, sample, seed, progress) for files in found]
    series.check_still()
    return files_at_fault, verdicts


def _verify_matrix(
    files: MatrixFiles, series: StoredSeries, sample: int, seed: int | None, progress: Progress
) -> Verdict:
    ledger = Ledger(files.folder, files.fingerprint).load()
    blocks, there = Blocks(files.grid, series.digests[: files.grid.n]), files.present()
    valid = {
        tile: ledger.entries[tile]
        for tile in files.grid.all_tiles()
        if files.grid.n == series.n and blocks.is_done(tile, ledger.entries.get(tile))
    }
    lost = {tile: f"chunk {place} is lost" for tile in valid for place in places(tile) if place not in there}
    entries = {tile: entry for tile, entry in valid.items() if tile not in lost}
    progress.begin(Running(f"reading {files.fingerprint}", len(entries), len(entries)))
    try:
        bad = lost | find_damage(files, entries, resolve_n_jobs(-1), lambda: progress.advance(1, 0))
    finally:
        progress.end()
    good = sorted(set(entries) - set(bad))
    checked, worst, engine = 0, 0.0, "none"
    if files.spec.metric != "external" and good and sample:
        engine = _referee(files.spec, series.dims)
        checked, worst, wrong = _recompute(files, series, good, sample, seed, engine)
        bad |= wrong
    if bad:
        now = Ledger(files.folder, files.fingerprint).load().entries
        if any(now.get(tile) != valid[tile] for tile in bad):
            raise StoreError(f"{files.folder.url}: another command has changed distances meanwhile; run this one again")
    axes = tuple(damaged_axes(files, series)) if files.grid.n == series.n else ()
    tiles = files.grid.tiles
    return Verdict(files.fingerprint, tiles, tiles - len(valid), bad, checked, worst, engine, axes)


def _referee(spec: DistanceSpec, dims: int) -> str:
    if spec.metric != "dtw":
        return "NumPy"
    return independent_engine(spec, len(spec.dims) if spec.dims else dims)


def _recompute(
    files: MatrixFiles, series: StoredSeries, tiles: list[Tile], sample: int, seed: int | None, engine: str
) -> tuple[int, float, dict[Tile, str]]:
    """Compute random entries again; return how many, the largest relative difference, and tiles that are wrong."""
    rng = np.random.default_rng(seed)
    grid = files.grid
    pairs = np.array([grid.size(i) * grid.size(j) for i, j in tiles], np.float64)
    sample = min(sample, int(pairs.sum()))  # no more than there are
    drawn = np.sort(rng.choice(len(tiles), size=sample, p=pairs / pairs.sum()))
    worst, wrong = 0.0, {}
    kept = BlockCache()  # series of a small store are drawn several times

    def read(row: int) -> Ragged:
        return kept.get(row, lambda: series.read(row, row + 1))

    for k in np.unique(drawn):
        tile = tiles[k]
        values = files.read_tile(tile)
        rows = [int(x) for x in rng.integers(0, values.shape[0], int((drawn == k).sum()))]
        columns = [int(x) for x in rng.integers(0, values.shape[1], len(rows))]
        for i, j in zip(rows, columns, strict=True):
            a, b = grid.rows(tile[0])[0] + i, grid.rows(tile[1])[0] + j
            x, y = read(a), read(b)
            expected = _distance(x, y, files.spec, engine)
            off = abs(float(values[i, j]) - expected)
            worst = max(worst, off / expected if expected else off)
            if not off <= TOLERANCE[files.spec.dtype] * expected + _rounding(x, y, files.spec):
                wrong[tile] = f"entry ({a}, {b}) is {values[i, j]:.9g}, but {engine} finds {expected:.9g}"
    return sample, worst, wrong


def _rounding(a: Ragged, b: Ragged, spec: DistanceSpec) -> float:
    """Return what rounding the series themselves to the type of the matrix may cost a distance."""
    frames = len(a[0]) + len(b[0])
    # of values with mean 0 and deviation 1, none exceeds the root of their number
    largest = np.sqrt(frames) if spec.normalise else max(np.abs(a[0]).max(), np.abs(b[0]).max())
    terms = frames * a[0].shape[1]
    # the root of a sum of squares grows by the root of the number of terms, a sum of moduli by their number
    return float(np.finfo(spec.dtype).eps * largest * (terms if spec.cost == "abs" else np.sqrt(terms)))


def _distance(a: Ragged, b: Ragged, spec: DistanceSpec, engine: str) -> float:
    if spec.metric == "dtw":
        return float(pairwise_metric(a, b, replace(spec, engine=engine, dtype="float64"))[0, 0])
    x, y = pick_dims(a, spec)[0].ravel(), pick_dims(b, spec)[0].ravel()
    if spec.metric == "euclidean":
        return float(np.linalg.norm(x - y))
    total = x + y
    chi2 = float(((x - y) ** 2 / np.where(total > 0, total, 1)).sum())
    return chi2 if spec.metric == "chi2" else float(np.sqrt(chi2))
