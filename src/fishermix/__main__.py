"""`fishermix` and `python -m fishermix`: Ctrl-C is reported on one line even while commands are loaded."""

from __future__ import annotations

import sys

INTERRUPTED = "fishermix: Interrupted. Completed work is kept. Run the command again to continue."


def main() -> None:
    try:
        from fishermix.cli import main as run

        run()
    except KeyboardInterrupt:
        print(INTERRUPTED, file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
