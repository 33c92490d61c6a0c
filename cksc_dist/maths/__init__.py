"""Layer 0: the mathematics, on NumPy, SciPy and Numba. Each file opens with its equations."""

from cksc_dist.maths.code_cache import find_a_place

find_a_place()  # before any of them is imported
