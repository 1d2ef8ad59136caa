"""A model as a folder: what its files contain, how they are written, and what is made of them.

config.json                the networks, how image vectors are prepared, the mixtures' parameters
tensors-HASH.safetensors   words.*, whitening_*, mixtureN.*, cca.*
hubness-HASH/              the hubness correction
captioner/                 optional
sentences/                 optional: what is ranked for a photo if no sentences are given
phrases/                   optional: what completes short queries
calibration.json           optional: what turns scores into probabilities
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from fishermix.errors import FishermixError
from fishermix.joint.hubness import HUBNESS_KIND, HubnessCorrection
from fishermix.joint.projections import CCA_TENSORS, CanonicalProjections
from fishermix.joint.space import JointSpace
from fishermix.mixture.families import make_family
from fishermix.mixture.parameters import MixtureParameters
from fishermix.mixture.saved import MIXTURE_TENSORS, MixtureConfig, pack_mixture, unpack_parameters
from fishermix.saved import (
    CONFIG,
    Digest,
    FolderKind,
    Json,
    Name,
    Number,
    Positive,
    SavedFolder,
    Size,
    Struct,
    Text,
    field,
    require_tensors,
    save_folder,
)
from fishermix.text.sentences import WHITENING_TENSORS
from fishermix.text.word_vectors import WordVectors

from fishermix_photos.model.transformer import SHIPPED_TRANSFORMERS, SentenceTransformer, added_transformers

if TYPE_CHECKING:
    from fishermix.text.encoder import SentenceEncoder

    from fishermix_photos.model.model import ImageTextModel

SHIPPED = Path(__file__).parents[1] / "pretrained" / "model"
CAPTIONER, HUBNESS = "captioner", "hubness"  # folders inside the model's
SENTENCES, PHRASES = "sentences", "phrases"


class TransformerConfig(Struct):
    """The sentence transformer of a model: its name or folder, the hash of its files, and its weight."""

    name: Text
    key: Digest
    weight: Positive


class ModelConfig(Struct, kw_only=True):
    """`config.json` of a model."""

    encoders: list[Text]
    view: Name
    encoder_key: Text
    widths: list[Size]
    image_power: Positive
    image_l2: bool
    power: Positive
    norm: Literal["l2"] | None
    stop_words: list[Text]
    mixtures: list[MixtureConfig]
    transformer: TransformerConfig | None = None
    correlation_power: Number
    has_hubness: bool
    report: dict[Name, Json] = field(default_factory=dict)


MODEL_TENSORS = {f"cca.{name}": shape for name, shape in CCA_TENSORS.items()}  # the others when it is used
MODEL_KIND = FolderKind("image-text model", 1, ModelConfig, MODEL_TENSORS, {HUBNESS: HUBNESS_KIND})


ReadMixture = Callable[[MixtureConfig, dict[str, np.ndarray], Path], Any]


# Loading


def load_text_side(saved: SavedFolder, whitening: Any, read_mixture: ReadMixture) -> dict[str, Any]:
    """The arguments of a `SentenceEncoder`, with a whitening of this class and mixtures read so."""
    config, tensors, folder = saved.config, saved.tensors, saved.folder
    mixtures = [select(f"mixture{number}.", tensors) for number in range(len(config.mixtures))]
    for of_mixture in mixtures:
        require_tensors(of_mixture, MIXTURE_TENSORS, folder)
    is_whitened = "whitening_mean" in tensors
    require_tensors(tensors, WHITENING_TENSORS if is_whitened else {}, folder)
    return {
        "vectors": WordVectors._from_tensors(select("words.", tensors)),
        "whitening": whitening._from_tensors(tensors) if is_whitened else None,
        "mixtures": [read_mixture(*found, folder) for found in zip(config.mixtures, mixtures)],
        "power": config.power,
        "norm": config.norm,
        "stop_words": tuple(config.stop_words),
        "transformer": _find_transformer(config.transformer, folder),
        "transformer_weight": config.transformer.weight if config.transformer else 1.0,
    }


def read_mixture(config: MixtureConfig, tensors: Mapping[str, np.ndarray], folder: Path) -> MixtureParameters:
    families = [make_family(family.name, family.parameters) for family in config.families]
    return unpack_parameters(families, tensors, folder)


def load_joint_space(saved: SavedFolder) -> JointSpace:
    config, folder = saved.config, saved.folder
    projections = CanonicalProjections.from_tensors(select("cca.", saved.tensors))
    if sum(config.widths) != len(projections.x_weights):
        raise FishermixError(
            f"'widths' in {folder / CONFIG} do not add up to the features of the CCA.", code="damaged"
        )
    hubness = None
    if HUBNESS in saved.parts:
        hubness = HubnessCorrection.from_saved(saved.parts[HUBNESS], len(projections.correlations))
    elif config.has_hubness:
        raise FishermixError(
            f"The hubness correction in {folder} is missing: the model is incomplete. Copy it again or train "
            "it again.",
            code="damaged",
        )
    return JointSpace(
        projections,
        power=config.correlation_power,
        hubness=hubness,
        left_power=config.image_power,
        left_l2=config.image_l2,
        left_widths=config.widths,
        right_optional=_count_word_features(saved) if config.transformer else 0,
    )


def _count_word_features(saved: SavedFolder) -> int:
    """How many numbers of a sentence vector come from the words: Fisher vectors, or the mean of the words."""
    choices = [saved.tensors.get(f"mixture{number}.choice") for number in range(len(saved.config.mixtures))]
    vectors = saved.tensors.get("words.vectors")
    if vectors is None or any(choice is None for choice in choices):
        return 0  # the folder is damaged, which is reported when these parts are made
    return sum(2 * choice.size for choice in choices if choice is not None) or vectors.shape[1]


def _find_transformer(config: TransformerConfig | None, folder: Path) -> SentenceTransformer | None:
    if config is None:
        return None
    transformer = SentenceTransformer.find(config.name)
    if transformer.key != config.key:
        raise FishermixError(
            f"{folder} was trained with another version of the sentence transformer {config.name}. "
            "Train it again.",
            code="other_network",
        )
    return transformer


# Saving


def save_parts(model: ImageTextModel, folder: str | os.PathLike, half: bool) -> None:
    """Write all but the optional parts of a model; `half` stores half-precision weights."""
    encoder, space = model.sentence_encoder, model.joint_space
    tensors, mixtures = list_tensors(encoder, space, np.float16 if half else np.float32)
    config = ModelConfig(
        encoders=model.image_encoder.encoders,
        view=model.image_encoder.view,
        encoder_key=model.image_encoder.key,
        widths=list(space.left_widths),
        image_power=space.left_power,
        image_l2=space.left_l2,
        power=encoder.power,
        norm=cast('Literal["l2"] | None', encoder.norm),
        stop_words=list(encoder.stop_words),
        mixtures=mixtures,
        transformer=describe_transformer(encoder),
        correlation_power=float(space.power),
        has_hubness=space.hubness is not None,
        report=model.report,
    )
    save_folder(folder, MODEL_KIND, config, tensors, {HUBNESS: space.hubness.save} if space.hubness else {})


def describe_transformer(encoder: SentenceEncoder) -> TransformerConfig | None:
    transformer: Any = encoder.transformer
    if transformer is None:
        return None
    is_named = transformer.folder.parent in (SHIPPED_TRANSFORMERS, added_transformers())
    name = transformer.folder.name if is_named else str(transformer.folder)
    return TransformerConfig(name, transformer.key, encoder.transformer_weight)


def list_tensors(
    encoder: SentenceEncoder, space: JointSpace, dtype: Any
) -> tuple[dict[str, np.ndarray], list[MixtureConfig]]:
    """All tensors of a model by name, and the mixtures' parameters."""
    tensors: dict[str, np.ndarray] = {}
    for name, value in encoder.vectors._to_tensors().items():
        tensors[f"words.{name}"] = value.astype(dtype) if value.dtype.kind == "f" else value
    if encoder.whitening_ is not None:
        tensors |= encoder.whitening_._to_tensors()
    mixtures = []
    for number, mixture in enumerate(encoder.mixtures_):
        config, of_mixture = pack_mixture(mixture)
        mixtures.append(config)
        tensors |= {f"mixture{number}.{name}": value for name, value in of_mixture.items()}
    for name, value in space.projections.to_tensors().items():
        tensors[f"cca.{name}"] = value.astype(dtype) if value.ndim == 2 else value
    return tensors, mixtures


def select(prefix: str, tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The tensors whose names begin with the prefix, without it."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
