"""How much quicker are non-negative codes by NQP than signed codes by scikit-learn's Batch-OMP?

Both code the same samples on the same Gram matrix with the same number of threads, one call each; the two
take turns, and the best time of each counts. The size is that of dynamic textures: 36 classes of 100 samples,
15 atoms a class, at most 15 entries a code.

    python benchmarks/nqp_codes.py [--samples 3600] [--threads 2] [--rounds 5]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import orthogonal_mp_gram
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from cksc_dist.maths.nqp import nqp_codes

CLASSES, ATOMS_PER_CLASS, DIMS, SPARSITY = 36, 15, 100, 15


def unit_rows_around(centres: NDArray[np.float64], n: int, rng: np.random.Generator) -> NDArray[np.float64]:
    rows = centres[np.arange(n) % len(centres)] + 0.5 * rng.normal(size=(n, centres.shape[1]))
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=3600)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()

    rng = np.random.default_rng(0)
    # non-negative centres correlate the atoms of different classes, as those of a kernel are
    centres = np.abs(rng.normal(size=(CLASSES, DIMS)))
    atoms = unit_rows_around(centres, CLASSES * ATOMS_PER_CLASS, rng)
    samples = unit_rows_around(centres, options.samples, rng)
    gram = atoms @ atoms.T
    gram = (gram + gram.T) / 2
    correlations = atoms @ samples.T
    linear = np.ascontiguousarray(-correlations.T)

    def ours() -> None:
        nqp_codes(gram, linear, SPARSITY, n_jobs=options.threads)

    def theirs() -> None:
        orthogonal_mp_gram(gram, correlations, n_nonzero_coefs=SPARSITY)

    with threadpool_limits(options.threads):
        print(f"first call (compiled, or read from the cache): {seconds(ours):.2f} s")
        times = [(seconds(ours), seconds(theirs), seconds(ours)) for _ in range(options.rounds)]
    best = min(min(first, second) for first, _, second in times)
    reference = min(other for _, other, _ in times)
    print(
        f"{options.samples} samples, {len(gram)} atoms, T0 = {SPARSITY}, {options.threads} threads: "
        f"NQP {best * 1e3:.1f} ms, orthogonal_mp_gram {reference * 1e3:.0f} ms"
    )
    print(f"ratio: {reference / best:.1f}")


if __name__ == "__main__":
    main()
