"""Work on a cluster, or on the cores of this machine: plan it, run it, look after it.

The only part of the package that imports Dask, and of it only `cluster` and `dask_executor` do.
"""
