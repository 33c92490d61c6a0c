"""Layer 0: the mathematics, on NumPy, SciPy and Numba alone. Each file opens with its equations."""
