"""Readers of the forms in which time series are published, and makers of series to try things on."""

from cksc_dist.io.arff import read_arff
from cksc_dist.io.mat import read_mat
from cksc_dist.io.npz import read_npz, write_npz
from cksc_dist.io.read import read
from cksc_dist.io.schunk import read_schunk
from cksc_dist.io.synthetic import make_gestures
from cksc_dist.io.ts import read_ts
from cksc_dist.io.utkinect import read_utkinect

__all__ = [
    "make_gestures",
    "read",
    "read_arff",
    "read_mat",
    "read_npz",
    "read_schunk",
    "read_ts",
    "read_utkinect",
    "write_npz",
]
