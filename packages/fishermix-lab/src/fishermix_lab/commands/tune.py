"""`fishermix networks tune`: let the network of a model learn from captions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from fishermix.errors import FishermixError, install_command
from fishermix_photos.cli.common import open_model, say
from fishermix_photos.cli.networks import networks

from fishermix_lab.commands import options
from fishermix_lab.commands.train import apply_changes, open_training_data

if TYPE_CHECKING:
    from fishermix_lab.datasets.readers import Dataset
    from fishermix_lab.tuning.tuned_model import TuningSet


@networks.command("tune", examples=["fishermix networks tune network/ --data flickr8k:DIR --out model/"])
def tune_network(
    network: Annotated[Path, typer.Argument(help="The folder to write the tuned network to.")],
    out: options.Out,
    data: options.Data = [],  # noqa: B006 - typer reads the default, nobody changes it
    data_only_train: options.OnlyTrain = [],  # noqa: B006
    share: options.Share = [],  # noqa: B006
    weight: options.Weight = [],  # noqa: B006
    copies: options.Copies = [],  # noqa: B006
    model: options.Model = None,
    words: options.Words = None,
    vectors: options.OtherVectors = None,
    classes: options.Classes = None,
    cut: options.Cut = "/_blocks.13/Add_output_0",
    changes: options.Changes = [],  # noqa: B006
    size: Annotated[
        int | None,
        typer.Option(min=32, max=4096, help="Side of the network's input in pixels. Default: as it is."),
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Number of batches of 128 photos.")] = 3000,
    toward: Annotated[
        float,
        typer.Option(
            min=0.0,
            max=1.0,
            help="How far to go from the weights at the start (0) to the tuned ones (1). A network that was "
            "tuned before forgets less with 0.3.",
        ),
    ] = 1.0,
    cca: Annotated[
        float,
        typer.Option(
            min=0.0,
            max=1.0,
            help="Share in the scores, times --toward, of a CCA of the tuned vectors. 0: tuned maps alone.",
        ),
    ] = 0.4,
    work: options.Stages = None,
) -> None:
    """Let the network of a model learn from captions, and solve its joint space again.

    Run the same command again to resume after an interruption.
    """
    from fishermix.saved import make_place
    from fishermix.text.word_vectors import WordVectors
    from fishermix_photos.model.saved import MODEL_KIND

    from fishermix_lab.recipe import find_recipe
    from fishermix_lab.stages import Stages

    try:
        from fishermix_lab.tuning.tune import TuningOptions
        from fishermix_lab.tuning.tuned_model import ModelTuning
    except ModuleNotFoundError as error:
        packages = f"{install_command('fishermix-lab[torch]')} and {install_command('fishermix-lab[onnx]')}"
        raise FishermixError(f"Tuning needs {error.name}. Run: {packages}", code="missing_package") from error
    sets = _weigh_sets(open_training_data(data, data_only_train), share, weight, copies)
    names = classes.read_text("utf8").splitlines() if classes else []
    out = make_place(out.absolute(), MODEL_KIND)
    stages = Stages(work or out.with_name(f"{out.name}.work"))
    with stages.hold():
        tuning = ModelTuning(
            model=open_model(model),
            sets=sets,
            stages=stages,
            cut=cut,
            n_words=words,
            vectors=WordVectors.load(vectors) if vectors else None,
            size=size,
        )
        recipe = apply_changes(find_recipe("shipped"), changes)
        tuning.run(TuningOptions(steps, toward=toward, cca=cca), recipe, network, names).save(out, half=True)
    say(f"The model is in {out}, its network in {network}. You can delete {stages.folder}.")


def _weigh_sets(
    sets: list[Dataset], share: list[float], weight: list[float], copies: list[int]
) -> list[TuningSet]:
    """The data sets with the values of --share, --weight and --copies, each given for all of them or none."""
    from fishermix_lab.tuning.tuned_model import TuningSet

    shares, weights = share or [float(len(dataset)) for dataset in sets], weight or [1.0] * len(sets)
    numbers = copies or [0] * len(sets)
    if not len(sets) == len(shares) == len(weights) == len(numbers):
        raise FishermixError(
            f"Give --share, --weight and --copies once for each of the {len(sets)} data sets.",
            code="wrong_parameter",
        )
    return [TuningSet(*values) for values in zip(sets, shares, weights, numbers)]
