"""`fishermix` and `python -m fishermix_photos`: Ctrl-C is one line, even while commands are loaded."""

from __future__ import annotations

import os
import sys

INTERRUPTED = "fishermix: Interrupted. Completed work is kept. Run the command again to continue."


# numpy, scipy and the compiled kernels bring their own threads, and those of OpenBLAS spin for a tenth of a
# second after every call, on cores that the others then wait for. 2^20 clock ticks are 0.3 ms.
SPIN = "20"


def main() -> None:
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", SPIN)  # read when numpy is imported
    # numba reads .numba_config.yaml of the current folder, which may name pickles to load and modules to
    # import. The variables have precedence; empty is numba's own default.
    os.environ.setdefault("NUMBA_CACHE_DIR", "")
    os.environ.setdefault("NUMBA_CACHE_LOCATOR_CLASSES", "")
    try:
        from fishermix_photos.cli import main as run

        run()
    except KeyboardInterrupt:
        print(INTERRUPTED, file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
