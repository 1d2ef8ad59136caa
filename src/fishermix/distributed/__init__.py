"""Beyond memory and beyond one machine: the same steps on files, on streams of blocks and on a Dask cluster.

`tables` reads rows from files, `streaming` runs EM over them within a stated memory; `cluster` reaches a Dask
cluster, and `mixtures`, `covariances`, `sentences` and `images` do their work there.
"""
