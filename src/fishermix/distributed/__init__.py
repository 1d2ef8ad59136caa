"""Work on a Dask cluster.

`cluster` connects to it; `mixtures`, `covariances`, `sentences` and `images` run on it.
"""
