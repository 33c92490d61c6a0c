"""What does one alternation of CKSC cost, how does it grow with N, and how much memory does it need?

A kernel of 36 classes, k = 540 atoms, T0 = 15, float64, two threads. One alternation (all codes, then all atoms) is
measured against products ``K @ U`` with a dense float64 U (N x k) in NumPy on two BLAS threads, interleaved in one run.
Wanted: at N = 3600 no longer than eight products; no faster growth than N^2; K plus at most six arrays of N x k.

    python benchmarks/fit_speed.py
"""

import time
import tracemalloc

import numpy as np
from threadpoolctl import threadpool_limits

from cksc_dist.maths.cksc import alternate
from cksc_dist.maths.kernel_product import kernel_product
from cksc_dist.maths.ridge import ridge
from cksc_dist.spec import ModelSpec

CLASSES, T0, THREADS = 36, 15, 2


def kernel(n):
    """An indefinite kernel with class structure, as DTW gives it: Gaussian of perturbed distances."""
    rng = np.random.default_rng(0)
    y = np.arange(n) % CLASSES
    X = rng.standard_normal((CLASSES, 20))[y] + 0.8 * rng.standard_normal((n, 20))
    squared = (X**2).sum(axis=1)
    D = np.sqrt(np.maximum(squared[:, None] + squared - 2 * X @ X.T, 0))
    noise = rng.standard_normal((n, n)) * 0.03 * D
    D = np.abs(D + noise + noise.T)
    D = (D + D.T) / 2
    np.fill_diagonal(D, 0)
    return np.exp(-(D**2) / (2 * D.mean() ** 2)), y


def half_steps(K, y, beta, alternations):
    """Return the seconds of every half step."""
    marks = [time.perf_counter()]
    spec = ModelSpec(sparsity=T0, alpha=0.15, max_iter=alternations, tol=0.0)
    fit = alternate(
        K, y, CLASSES, spec, np.random.default_rng(0), THREADS, beta, lambda *_: marks.append(time.perf_counter())
    )
    assert (np.diff(fit.history.sum(axis=1)) <= 0).all()
    return np.diff(marks)


def main():
    print("    N      codes s   atoms s   alternation s   K @ U s   in products   growth")
    before = None
    for n in (900, 1800, 3600):
        K, y = kernel(n)
        beta = ridge(kernel_product(K, THREADS), y, CLASSES, 0.15).beta
        U = np.random.default_rng(1).standard_normal((n, CLASSES * T0))
        half_steps(K, y, beta, 1)  # compiled
        product, codes, atoms = np.inf, np.inf, np.inf
        with threadpool_limits(limits=THREADS):
            for _ in range(5):
                begin = time.perf_counter()
                K @ U
                product = min(product, time.perf_counter() - begin)
                steps = half_steps(K, y, beta, 3)
                # the first alternation starts from nothing and is not typical
                codes, atoms = min(codes, steps[2:6:2].min()), min(atoms, steps[3:6:2].min())
        whole = codes + atoms
        growth = "" if before is None else f"{whole / before:8.2f}  (N^2: 4)"
        print(
            f"{n:5d} {codes:10.3f} {atoms:9.3f} {whole:12.3f} {product:12.3f} {whole / product:12.2f}   {growth}",
            flush=True,
        )
        before = whole
    tracemalloc.start()
    half_steps(K, y, beta, 2)
    peak = tracemalloc.get_traced_memory()[1]
    print(f"peak memory at N = {n}: K plus {peak / (n * CLASSES * T0 * 8):.2f} arrays of N x k")


if __name__ == "__main__":
    main()
