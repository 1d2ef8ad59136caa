"""Speed against named peers, measured in the same run: `python -m benchmarks [NAME...]`."""

import os

# Threads of OpenBLAS spin for a tenth of a second after every call and slow down whatever is measured next.
# numpy reads this when it is imported. `fishermix` sets it, too; here it also serves the peers.
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "20")
