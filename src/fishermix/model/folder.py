"""The folder of a model: one `save_model`, one `load_model`, and the parts that are made on first use.

A search needs the sentence vectors and the joint space, which are plain numpy objects. The estimators, the
image network and the captioner import scikit-learn, numba and onnxruntime, so they are made only when someone
asks for them.

    config.json                the recipe, the networks, the mixtures' and the CCA's parameters
    tensors-HASH.safetensors   words.*, whitening_*, mixtureN.*, cca.*
    hubness-HASH/              the hubness correction; 0.1 called the folder crowding-HASH
    captioner/                 optional
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from fishermix.cca.projections import CanonicalProjections
from fishermix.errors import FishermixError
from fishermix.model.hubness import HubnessCorrection
from fishermix.model.joint_space import JointSpace, image_networks
from fishermix.storage import CONFIG, NAME_DIGITS, load_folder, part_folder, save_folder
from fishermix.text.sentence_vectors import SentenceVectors
from fishermix.text.transformer import SHIPPED as SHIPPED_TRANSFORMERS
from fishermix.text.vectors import WordVectors

if TYPE_CHECKING:
    from fishermix.caption.captioner import Captioner
    from fishermix.cca import RegularizedCCA
    from fishermix.model.model import ImageTextModel
    from fishermix.model.recipe import Recipe
    from fishermix.text.encoder import SentenceEncoder
    from fishermix.text.transformer import SentenceTransformer

KIND, VERSION = "image-text model", 1
CAPTIONER, HUBNESS = "captioner", "hubness"
T = TypeVar("T")


def save_model(model: ImageTextModel, folder: str | os.PathLike, half: bool = False) -> None:
    """Write a model; with `half`, word vectors and CCA weights are stored in float16."""
    encoder, space, cca = model.sentence_encoder, model.joint_space, model.cca
    dtype = np.float16 if half else np.float32
    tensors: dict[str, np.ndarray] = {}
    for name, value in encoder.vectors.to_tensors().items():
        tensors[f"words.{name}"] = value.astype(dtype) if value.dtype.kind == "f" else value
    if encoder.whitening is not None:
        tensors |= encoder.whitening.to_tensors()
    mixtures = []
    for number, mixture in enumerate(encoder.mixtures):
        config, parts = mixture.to_tensors()
        mixtures.append(config)
        tensors |= {f"mixture{number}.{name}": value for name, value in parts.items()}
    for name, value in space.projections.to_tensors().items():
        tensors[f"cca.{name}"] = value.astype(dtype) if value.ndim == 2 else value
    config = {
        "recipe": model.recipe.as_json(),
        "encoders": [str(part.encoder) for part in image_networks(model.image_encoder)],
        "view": model.image_encoder.view,
        "encoder_key": model.image_encoder.key,
        "widths": list(space.image_widths),
        "power": encoder.power,
        "norm": encoder.norm,
        "mixtures": mixtures,
        "transformer": _describe_transformer(encoder),
        "cca": cca.get_params() | {"scale": space.power},
        "cca_fit": {"method": cca.method_, "x_ridge": cca.x_ridge_, "y_ridge": cca.y_ridge_},
        "report": model.report,
    }
    parts = {HUBNESS: space.hubness.save} if space.hubness else {}
    save_folder(folder, KIND, VERSION, config, tensors, parts)
    if model.captioner is not None:
        model.captioner.save(Path(folder) / CAPTIONER)


def _describe_transformer(encoder: SentenceEncoder) -> dict[str, Any] | None:
    if (transformer := encoder.transformer) is None:
        return None
    shipped = transformer.folder.parent == SHIPPED_TRANSFORMERS
    name = transformer.folder.name if shipped else str(transformer.folder)
    return {"name": name, "key": transformer.key, "weight": encoder.transformer_weight}


def load_model(folder: str | os.PathLike) -> SavedParts:
    """Read and check the folder of a model."""
    folder = Path(folder)
    config, tensors = load_folder(folder, KIND, VERSION)

    def read(name: str, parse: Callable[[Any], T]) -> T:
        try:
            return parse(config[name])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise FishermixError(
                f"'{name}' is missing or invalid in {folder / CONFIG}: the file is damaged."
            ) from error

    read("encoders", lambda names: [_expect(str, name) for name in _expect(list, names)])
    read("view", lambda view: _expect(str, view))
    read("mixtures", lambda mixtures: _expect(list, mixtures))
    read("power", float)
    image_power, image_l2, neighbours = read("recipe", _parse_recipe)
    projections = CanonicalProjections.from_tensors(_take_part("cca.", tensors), folder)
    space = JointSpace(
        projections,
        power=read("cca", lambda params: float(params["scale"])),
        hubness=_load_hubness(folder, config, neighbours, len(projections.correlations)),
        image_power=image_power,
        image_l2=image_l2,
        image_widths=read("widths", lambda widths: [int(width) for width in widths]),
    )
    return SavedParts(folder, config, tensors, space, read("encoder_key", str))


def _parse_recipe(recipe: Mapping[str, Any]) -> tuple[float, bool, int]:
    """What the joint space needs of a recipe, of this version or of 0.1."""
    neighbours = recipe.get("csls_neighbours", recipe.get("neighbours", 0))
    return _expect((int, float), recipe["image_power"]), bool(recipe["image_l2"]), int(neighbours)


def _expect(kind: Any, value: Any) -> Any:
    if not isinstance(value, kind):
        raise TypeError(value)
    return value


def _load_hubness(
    folder: Path, config: Mapping[str, Any], neighbours: int, dimension: int
) -> HubnessCorrection | None:
    # 0.1 did not name the folder in config.json.
    place = part_folder(folder, config, HUBNESS) or folder / f"crowding-{config['sha256'][:NAME_DIGITS]}"
    if place.is_dir():
        return HubnessCorrection.load(place, dimension)
    if neighbours:
        raise FishermixError(f"{place} is missing: the model is incomplete. Copy it again or train it again.")
    return None


@dataclass(frozen=True, eq=False)
class SavedParts:
    """The checked content of a model's folder. The methods make its parts, which takes a moment each."""

    folder: Path
    config: Mapping[str, Any]
    tensors: Mapping[str, np.ndarray]
    joint_space: JointSpace
    encoder_key: str

    def recipe(self) -> Recipe:
        from fishermix.model.recipe import Recipe

        try:
            return Recipe.from_json(self.config["recipe"])
        except (AttributeError, TypeError, ValueError) as error:
            raise FishermixError(
                f"'recipe' is invalid in {self.folder / CONFIG}: the file is damaged ({error})."
            ) from error

    def sentence_vectors(self) -> SentenceVectors:
        """What `sentence_encoder` computes with, without scikit-learn."""
        from fishermix.mixture.parameters import MixtureParameters
        from fishermix.text.whitening_transform import WhiteningTransform

        sentences = SentenceVectors(*self._text_parts(WhiteningTransform, MixtureParameters))
        if sentences.n_features != len(self.joint_space.projections.y_weights):
            raise FishermixError(f"{self.folder} is damaged: sentence vectors and CCA differ in size.")
        return sentences

    def sentence_encoder(self) -> SentenceEncoder:
        from fishermix.mixture import Mixture
        from fishermix.text.encoder import SentenceEncoder
        from fishermix.text.whitening import Whitening

        return SentenceEncoder(*self._text_parts(Whitening, Mixture))

    def _text_parts(self, whitening: Any, mixture: Any) -> tuple[Any, ...]:
        """The arguments of a `SentenceEncoder`, with whitening and mixtures of these classes."""
        white = whitening.from_tensors(self.tensors) if "whitening_mean" in self.tensors else None
        mixtures = [
            mixture.from_tensors(parameters, _take_part(f"mixture{number}.", self.tensors), self.folder)
            for number, parameters in enumerate(self.config["mixtures"])
        ]
        power, norm = float(self.config["power"]), self.config.get("norm")
        stop_words = tuple(self.config["recipe"].get("stop_words", ()))
        return self._vectors, white, mixtures, power, norm, stop_words, *self._transformer

    @cached_property
    def _transformer(self) -> tuple[SentenceTransformer | None, float]:
        """The sentence transformer, if the model has one, and its weight."""
        if not (found := self.config.get("transformer")):
            return None, 1.0
        from fishermix.text.transformer import SentenceTransformer

        try:
            name, key, weight = str(found["name"]), found["key"], float(found["weight"])
        except (KeyError, TypeError, ValueError) as error:
            where = self.folder / CONFIG
            raise FishermixError(f"'transformer' is invalid in {where}: the file is damaged.") from error
        transformer = SentenceTransformer.find(name)
        if transformer.key != key:
            raise FishermixError(
                f"{self.folder} was trained with another version of the sentence transformer {name}. "
                "Train it again."
            )
        return transformer, weight

    @cached_property
    def _vectors(self) -> WordVectors:
        return WordVectors.from_tensors(_take_part("words.", self.tensors))

    def cca(self) -> RegularizedCCA:
        from fishermix.cca import RegularizedCCA

        # 0.1 did not save how the CCA was fitted; a training always streams.
        fit = self.config.get("cca_fit") or {"method": "streaming", "x_ridge": None, "y_ridge": None}
        return RegularizedCCA.from_projections(self.joint_space.projections, self.config["cca"], **fit)

    def image_encoder(self) -> Any:
        from fishermix.vision.encoders import open_encoders

        names = self.config["encoders"]
        encoder = open_encoders(tuple(names), self.config["view"])
        if encoder.key != self.encoder_key:
            raise FishermixError(
                f"{self.folder} was trained with another version of the network {', '.join(names)}. "
                "Train it again."
            )
        if encoder.n_features != len(self.joint_space.projections.x_weights):
            raise FishermixError(f"{self.folder} is damaged: image features and CCA differ in size.")
        return encoder

    def captioner(self) -> Captioner | None:
        if not (self.folder / CAPTIONER / CONFIG).is_file():
            return None
        from fishermix.caption.captioner import Captioner

        return Captioner.load(self.folder / CAPTIONER)


def _take_part(prefix: str, tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
