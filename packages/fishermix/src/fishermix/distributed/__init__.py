"""Work on a Dask cluster: `cluster` connects to it; `mixtures` and `covariances` run on it."""
