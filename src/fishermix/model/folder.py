"""The folder of a model: one `save_model`, one `load_model`, and the parts that are made on first use.

A search needs the sentence vectors and the joint space, which are plain numpy objects. The estimators, the
image network and the captioner import scikit-learn, numba and onnxruntime, so they are made only when someone
asks for them.

    config.json                the recipe, the networks, the mixtures' and the CCA's parameters
    tensors-HASH.safetensors   words.*, whitening_*, mixtureN.*, cca.*
    hubness-HASH/              the hubness correction; 0.1 called the folder crowding-HASH
    captioner/                 optional
    sentences/                 optional: what `annotate` ranks if it is given no sentences
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from msgspec import structs

from fishermix.cca.projections import CanonicalProjections, CCAFit, CCAParameters, FitMethod
from fishermix.errors import FishermixError
from fishermix.mixture.parameters import MixtureConfig, MixtureParameters
from fishermix.model.hubness import KIND as HUBNESS_KIND
from fishermix.model.hubness import HubnessCorrection
from fishermix.model.joint_space import JointSpace, image_networks
from fishermix.model.recipe import Recipe, upgrade_model
from fishermix.schemas import Digest, Json, Name, Number, Positive, Size, Struct, Text, field
from fishermix.storage import (
    CONFIG,
    FolderKind,
    load_whole,
    save_folder,
)
from fishermix.text.sentence_vectors import SentenceVectors, WhiteningTransform
from fishermix.text.transformer import SHIPPED as SHIPPED_TRANSFORMERS
from fishermix.text.vectors import WordVectors

if TYPE_CHECKING:
    from fishermix.caption.captioner import Captioner
    from fishermix.cca import RegularizedCCA
    from fishermix.model.model import ImageTextModel
    from fishermix.model.pool import Pool
    from fishermix.text.encoder import SentenceEncoder
    from fishermix.text.transformer import SentenceTransformer

CAPTIONER, HUBNESS, SENTENCES = "captioner", "hubness", "sentences"
Norm = Literal["l2"]


class TransformerConfig(Struct):
    """The sentence transformer of a model: its name or folder, the hash of its files, and its weight."""

    name: Text
    key: Digest
    weight: Positive


class ModelCCA(CCAParameters, kw_only=True):
    """The parameters of a model's CCA: the power of the correlations is a number."""

    scale: Number


class ModelConfig(Struct, kw_only=True):
    """`config.json` of a model."""

    recipe: Recipe
    encoders: list[Text]
    view: Name
    encoder_key: Text
    widths: list[Size]
    power: Positive
    norm: Norm | None = None
    mixtures: list[MixtureConfig]
    transformer: TransformerConfig | None = None
    cca: ModelCCA
    # 0.1 did not save how the CCA was fitted; a training always streams.
    cca_fit: CCAFit = CCAFit(method="streaming")
    report: dict[Name, Json] = field(default_factory=dict)


KIND = FolderKind("image-text model", 1, ModelConfig, upgrade_model, {HUBNESS: HUBNESS_KIND})


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
        of_mixture, parts = mixture.to_tensors()
        mixtures.append(of_mixture)
        tensors |= {f"mixture{number}.{name}": value for name, value in parts.items()}
    for name, value in space.projections.to_tensors().items():
        tensors[f"cca.{name}"] = value.astype(dtype) if value.ndim == 2 else value
    config = ModelConfig(
        recipe=model.recipe,
        encoders=[str(part.encoder) for part in image_networks(model.image_encoder)],
        view=model.image_encoder.view,
        encoder_key=model.image_encoder.key,
        widths=list(space.image_widths),
        power=encoder.power,
        norm=cast("Norm | None", encoder.norm),
        mixtures=mixtures,
        transformer=_describe_transformer(encoder),
        cca=ModelCCA(**(cca.get_params() | {"scale": float(space.power)})),
        cca_fit=CCAFit(cast("FitMethod", cca.method_), cca.x_ridge_, cca.y_ridge_),
        report=model.report,
    )
    save_folder(folder, KIND, config, tensors, {HUBNESS: space.hubness.save} if space.hubness else {})
    if model.captioner is not None:
        model.captioner.save(Path(folder) / CAPTIONER)
    if model.pool is not None:
        model.pool.save(Path(folder) / SENTENCES, model.key)
    if model.calibration is not None:
        from fishermix.model.calibration import save_calibration

        save_calibration(Path(folder), model.calibration)


def _describe_transformer(encoder: SentenceEncoder) -> TransformerConfig | None:
    if (transformer := encoder.transformer) is None:
        return None
    shipped = transformer.folder.parent == SHIPPED_TRANSFORMERS
    name = transformer.folder.name if shipped else str(transformer.folder)
    return TransformerConfig(name, transformer.key, encoder.transformer_weight)


def load_model(folder: str | os.PathLike) -> SavedParts:
    """Read and check the folder of a model."""
    saved = load_whole(folder, KIND)
    config, tensors, recipe = saved.config, saved.tensors, saved.config.recipe
    projections = CanonicalProjections.from_tensors(_take_part("cca.", tensors), folder)
    if sum(config.widths) != len(projections.x_weights):
        raise FishermixError(f"'widths' in {saved.folder / CONFIG} do not add up to the features of the CCA.")
    if HUBNESS in saved.parts:
        hubness = HubnessCorrection.from_saved(saved.parts[HUBNESS], len(projections.correlations))
    elif recipe.csls_neighbours:
        raise FishermixError(
            f"The hubness correction in {folder} is missing: the model is incomplete. Copy it again or train "
            "it again."
        )
    else:
        hubness = None
    space = JointSpace(
        projections,
        power=config.cca.scale,
        hubness=hubness,
        image_power=recipe.image_power,
        image_l2=recipe.image_l2,
        image_widths=config.widths,
        n_word_features=_count_word_features(config, tensors) if config.transformer else 0,
    )
    return SavedParts(saved.folder, config, tensors, space)


def _count_word_features(config: ModelConfig, tensors: Mapping[str, np.ndarray]) -> int:
    """How many numbers of a sentence vector come from the words: Fisher vectors, or the mean of the words."""
    choices = [tensors.get(f"mixture{number}.choice") for number in range(len(config.mixtures))]
    vectors = tensors.get("words.vectors")
    if vectors is None or any(choice is None for choice in choices):
        return 0  # the folder is damaged, which is reported when these parts are made
    return sum(2 * choice.size for choice in choices if choice is not None) or vectors.shape[1]


@dataclass(frozen=True, eq=False)
class SavedParts:
    """The checked content of a model's folder. The methods make its parts, which takes a moment each."""

    folder: Path
    config: ModelConfig
    tensors: Mapping[str, np.ndarray]
    joint_space: JointSpace

    def recipe(self) -> Recipe:
        return self.config.recipe

    def sentence_vectors(self) -> SentenceVectors:
        """What `sentence_encoder` computes with, without scikit-learn."""
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
        config, transformer = self.config, self._transformer
        parts = [_take_part(f"mixture{number}.", self.tensors) for number in range(len(config.mixtures))]
        vectors = self._vectors
        white = whitening.from_tensors(self.tensors) if "whitening_mean" in self.tensors else None
        mixtures = [
            mixture.from_tensors(parameters, tensors, self.folder)
            for parameters, tensors in zip(config.mixtures, parts)
        ]
        return vectors, white, mixtures, config.power, config.norm, config.recipe.stop_words, *transformer

    @cached_property
    def _transformer(self) -> tuple[SentenceTransformer | None, float]:
        """The sentence transformer, if the model has one, and its weight."""
        if (found := self.config.transformer) is None:
            return None, 1.0
        from fishermix.text.transformer import SentenceTransformer

        transformer = SentenceTransformer.find(found.name)
        if transformer.key != found.key:
            raise FishermixError(
                f"{self.folder} was trained with another version of the sentence transformer {found.name}. "
                "Train it again."
            )
        return transformer, found.weight

    @cached_property
    def _vectors(self) -> WordVectors:
        return WordVectors.from_tensors(_take_part("words.", self.tensors))

    def cca(self) -> RegularizedCCA:
        from fishermix.cca import RegularizedCCA

        fit = self.config.cca_fit
        parameters = structs.asdict(self.config.cca)
        return RegularizedCCA.from_projections(
            self.joint_space.projections, parameters, fit.method, fit.x_ridge, fit.y_ridge
        )

    def image_encoder(self) -> Any:
        from fishermix.vision.encoders import open_encoders

        names = self.config.encoders
        encoder = open_encoders(tuple(names), self.config.view)
        if encoder.key != self.config.encoder_key:
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

    def pool(self, model_key: str) -> Pool | None:
        if not (self.folder / SENTENCES / CONFIG).is_file():
            return None
        from fishermix.model.pool import Pool

        return Pool.load(self.folder / SENTENCES, model_key, len(self.joint_space.projections.correlations))


def _take_part(prefix: str, tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
