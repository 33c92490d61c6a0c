"""Layer 0: the mathematics, on NumPy, SciPy and Numba. Each file opens with its equations."""
