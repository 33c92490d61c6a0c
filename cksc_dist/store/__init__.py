"""Layer 1: what is kept on disk, in Zarr and JSON."""
