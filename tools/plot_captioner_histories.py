"""Learning curves of captioner trainings: `plot_captioner_histories.py OUT.svg NAME=HISTORY.json …`

The histories are the files WORK/captioner.json of `fishermix captioner train`.
"""

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot

PANELS = {"dev_loss": "loss on dev (nats a word)", "cider_d": "CIDEr-D on dev, greedy"}


def main(out: str, *named: str) -> None:
    pyplot.rcParams["svg.hashsalt"] = "fishermix"
    figure, axes = pyplot.subplots(1, len(PANELS), figsize=(8, 3), layout="constrained")
    for name, _, path in (one.partition("=") for one in named):
        history = json.loads(Path(path).read_text())
        for axis, key in zip(axes, PANELS):
            axis.plot(
                [record["epoch"] for record in history],
                [record[key] for record in history],
                marker="o",
                markersize=3,
                label=name,
            )
    for axis, title in zip(axes, PANELS.values()):
        axis.set(title=title, xlabel="epoch")
        axis.grid(alpha=0.3)
        axis.legend()
    figure.savefig(out, metadata={"Date": None})


if __name__ == "__main__":
    main(*sys.argv[1:])
