"""`ImageTextModel`: sentences and photos in, points of one joint space out; saved as one folder.

    config.json                the networks, how image vectors are prepared, the mixtures' parameters
    tensors-HASH.safetensors   words.*, whitening_*, mixtureN.*, cca.*
    hubness-HASH/              the hubness correction
    captioner/                 optional
    sentences/                 optional: what is ranked for a photo if no sentences are given
    calibration.json           optional: what turns scores into probabilities

A search needs the sentence vectors and the joint space, which are plain numpy objects. The estimators, the
image network and the captioner import scikit-learn, numba and onnxruntime, so they are made only when someone
asks for them. `lab.training` trains models.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from fishermix.errors import FishermixError
from fishermix.joint import (
    CCA_TENSORS,
    HUBNESS_KIND,
    CanonicalProjections,
    HubnessCorrection,
    JointSpace,
    from_bytes,
    to_bytes,
)
from fishermix.mixture.checkpoint import MixtureConfig
from fishermix.mixture.e_step import MIXTURE_TENSORS, MixtureParameters
from fishermix.mixture.families import make_family
from fishermix.storage import (
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
    load_folder,
    parse_json,
    require_tensors,
    save_folder,
    write_atomically,
)
from fishermix.text.sentences import WHITENING_TENSORS, SentenceVectors, WhiteningTransform
from fishermix.text.tokens import STOP_WORDS, Vocabulary
from fishermix.text.word_vectors import WordVectors
from msgspec import structs

from fishermix_photos.transformer import SHIPPED_TRANSFORMERS, SentenceTransformer, added_transformers

if TYPE_CHECKING:
    from fishermix.caption.captioner import Captioner
    from fishermix.caption.consensus import Description
    from fishermix.text.encoder import SentenceEncoder

SHIPPED = Path(__file__).parent / "pretrained" / "model"
CAPTIONER, HUBNESS, SENTENCES, CALIBRATION = "captioner", "hubness", "sentences", "calibration.json"


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


class Calibration(Struct, kw_only=True):
    """`calibration.json`: what turns scores into probabilities (see `search`), and the key of the model
    whose scores it is for.

    nothing : if the best photo has a lower probability, not one photo is right
    understood : a query whose nearest training sentence has a lower cosine is not understood
    """

    model_key: Text
    intercept: Number
    score: Number
    deviations: Number
    log_photos: Number
    log_words: Number
    hubness: Number = 0.0
    color: Number = 0.0
    number: Number = 0.0
    place: Number = 0.0
    minus: Number = 0.0
    nothing: Number = 0.2
    understood: Number = -1.0

    def save(self, folder: Path) -> None:
        """Write the file into a model's folder."""
        text = json.dumps(structs.asdict(self), indent=1) + "\n"
        write_atomically(folder / CALIBRATION, text.encode())

    @classmethod
    def load(cls, folder: Path, model_key: str) -> Calibration | None:
        """The calibration in a model's folder; None if it has none, or one for another model."""
        path = folder / CALIBRATION
        if not path.is_file():
            return None
        found = parse_json(path.read_bytes(), cls, path)
        return found if found.model_key == model_key else None


class PoolConfig(Struct):
    """`config.json` of a sentence pool: `model_key` is that of the model whose points these are."""

    model_key: Text
    source: str
    sentences: list[Text]


MODEL_TENSORS = {f"cca.{name}": shape for name, shape in CCA_TENSORS.items()}  # the others when it is used
MODEL_KIND = FolderKind("image-text model", 1, ModelConfig, MODEL_TENSORS, {HUBNESS: HUBNESS_KIND})
POOL_KIND = FolderKind("sentence pool", 1, PoolConfig, {"points": "int n d"})


@dataclass(frozen=True, eq=False)
class PooledSentences:
    """Sentences that a model ranks for a photo when the user gives none, and their unit points (n, d).

    source : a note on where the sentences come from, and their license
    """

    sentences: Sequence[str]
    points: np.ndarray
    source: str = ""

    def save(self, folder: str | os.PathLike, model_key: str) -> None:
        """Write the sentences, and their points as int8; only the direction matters."""
        config = PoolConfig(model_key, self.source, list(self.sentences))
        save_folder(folder, POOL_KIND, config, {"points": to_bytes(self.points)})

    @classmethod
    def load(cls, folder: str | os.PathLike, model_key: str, dimension: int) -> PooledSentences:
        """Read what `save` wrote for the model with this key."""
        saved = load_folder(folder, POOL_KIND)
        config = saved.config
        if config.model_key != model_key:
            raise FishermixError(f"The sentences in {folder} were encoded by another model. Delete them.")
        points, shape = saved.tensors["points"], (len(config.sentences), dimension)
        if points.shape != shape or points.dtype != np.int8 or not points.any(axis=1).all():
            raise FishermixError(f"{folder} is damaged: the points of the sentences are invalid.")
        return cls(config.sentences, from_bytes(points), config.source)


class ImageTextModel:
    """Sentences and photos as points of one joint space, where the cosine says how well they match.

    `ImageTextModel.load` opens a saved model, `fishermix_photos.lab.training.train_model` makes a new one.

    Parameters
    ----------
    sentence_encoder : SentenceEncoder
        The vectors of sentences.
    image_encoder : ImageEncoder
        The vectors of photos.
    joint_space : JointSpace
        The points of both.
    report : dict, optional
        How the model was trained: plain values for `config.json`.

    Attributes
    ----------
    captioner : Captioner or None
        Writes new sentences.
    pool : PooledSentences or None
        The sentences that are ranked for a photo if no others are given.
    calibration : Calibration or None
        Turns scores into probabilities.

    See Also
    --------
    fishermix_photos.PhotoLibrary : searches many photos.
    fishermix_photos.lab.training.train_model : trains a model.

    Examples
    --------
    >>> model = ImageTextModel.load()
    >>> model.similarity(["two dogs run on a beach"], ["photo.jpg"]).shape
    (1, 1)
    """

    _saved: SavedFolder | None = None
    calibration: Calibration | None = None

    def __init__(
        self,
        sentence_encoder: SentenceEncoder,
        image_encoder: Any,
        joint_space: JointSpace,
        report: Mapping[str, Any] | None = None,
    ):
        self.sentence_encoder = sentence_encoder
        self.image_encoder = image_encoder
        self.joint_space = joint_space
        self.report = dict(report or {})
        self.captioner = None
        self.pool = None

    @classmethod
    def load(cls, folder: str | os.PathLike | None = None) -> ImageTextModel:
        """The model that `save` wrote as this folder. Default: the one in the package."""
        model = cls.__new__(cls)
        model._saved = load_folder(SHIPPED if folder is None else folder, MODEL_KIND)
        model.joint_space = _load_joint_space(model._saved)
        model.report = model._saved.config.report
        model.calibration = Calibration.load(model._saved.folder, model.key)
        return model

    def save(self, folder: str | os.PathLike, half: bool = False) -> None:
        """Write the model as a folder of JSON and safetensors; `half` stores half-precision weights."""
        encoder, space = self.sentence_encoder, self.joint_space
        tensors, mixtures = _list_tensors(encoder, space, np.float16 if half else np.float32)
        config = ModelConfig(
            encoders=self.image_encoder.encoders,
            view=self.image_encoder.view,
            encoder_key=self.image_encoder.key,
            widths=list(space.image_widths),
            image_power=space.image_power,
            image_l2=space.image_l2,
            power=encoder.power,
            norm=cast('Literal["l2"] | None', encoder.norm),
            stop_words=list(encoder.stop_words),
            mixtures=mixtures,
            transformer=_describe_transformer(encoder),
            correlation_power=float(space.power),
            has_hubness=space.hubness is not None,
            report=self.report,
        )
        save_folder(
            folder, MODEL_KIND, config, tensors, {HUBNESS: space.hubness.save} if space.hubness else {}
        )
        if self.captioner is not None:
            self.captioner.save(Path(folder) / CAPTIONER)
        if self.pool is not None:
            self.pool.save(Path(folder) / SENTENCES, self.key)
        if self.calibration is not None:
            self.calibration.save(Path(folder))

    def __repr__(self) -> str:
        return f"ImageTextModel({self.dimension} dimensions, {self.key})"

    # Sentences

    def encode_text(self, sentences: Sequence[str]) -> np.ndarray:
        """Points (n, d) of sentences, float32 of length 1; zero where no word is known.

        Returns
        -------
        points : ndarray of shape (n, d)
            float32, in the order of the sentences.
        """
        if isinstance(sentences, str):
            raise FishermixError("encode_text takes a list of sentences. Put the sentence in brackets.")
        blocks = [np.zeros((0, self.dimension), np.float32)]
        for block in self.sentence_vectors.encode_blocks(list(sentences)):
            blocks.append(self.joint_space.sentence_points(block))
        return np.concatenate(blocks)

    def encode_query(self, sentence: str | Sequence[str]) -> tuple[np.ndarray, list[str]]:
        """The point (d,) of a sentence, or of its tokens, and its out-of-vocabulary words.

        The sentence is tokenized once. The point is zero if no word is known. Words such as "a" and "of" are
        not reported.
        """
        vectors, bags = self.sentence_vectors.encode([sentence])
        unknown = [word for word in dict.fromkeys(bags.out_of_vocabulary[0]) if word not in STOP_WORDS]
        return self.joint_space.sentence_points(vectors)[0], unknown

    @property
    def reads_unknown_words(self) -> bool:
        """Whether a sentence transformer reads words that are out of the vocabulary, by their pieces."""
        return self.sentence_vectors.transformer is not None

    @property
    def vocabulary(self) -> Vocabulary:
        """The words that have a vector."""
        return self.sentence_vectors.lookup.vocabulary

    @cached_property
    def word_counts(self) -> Mapping[str, int]:
        """How often the sentences of the pool, which describe photos, use each word."""
        sentences = self.pool.sentences if self.pool is not None else ()
        return Counter(word for sentence in sentences for word in sentence.lower().split())

    # Photos

    def encode_images(self, images: Sequence[Any]) -> np.ndarray:
        """Points (n, d) of photos, float32 of length 1. Photos are paths, bytes or PIL images.

        Returns
        -------
        points : ndarray of shape (n, d)
            float32, in the order of the photos.
        """
        if not len(images):
            return np.zeros((0, self.dimension), np.float32)
        return self.joint_space.image_points(self.image_encoder.transform(list(images)))

    def caption(self, images: Sequence[Any], **options: Any) -> list[str]:
        """A new sentence for each photo. The options are those of `Captioner.describe`, such as `beam`.

        Returns
        -------
        sentences : list of str
            In the order of the photos.
        """
        self._expect_captioner()  # before photos are encoded
        return [found.sentence for found in self.describe_points(self.encode_images(images), **options)]

    def describe_points(self, points: np.ndarray, **options: Any) -> list[Description]:
        """A new sentence for each point (n, d) of a photo, and how far it can be trusted."""
        return self._expect_captioner().describe(points, encode_text=self.encode_text, **options)

    def _expect_captioner(self) -> Captioner:
        if self.captioner is None:
            raise FishermixError(
                "This model has no captioner. Train one with `fishermix captioner train --model MODEL`."
            )
        return self.captioner

    # Scores

    def similarity(self, sentences: Sequence[str], images: Sequence[Any]) -> np.ndarray:
        """Scores (sentences, images): the cosine, corrected for hubs.

        Returns
        -------
        scores : ndarray of shape (sentences, images)
            float32; higher is more similar.
        """
        texts = self.joint_space.csls_sentences(self.encode_text(sentences))
        return texts @ self.joint_space.csls_images(self.encode_images(images)).T

    @property
    def dimension(self) -> int:
        """Of the joint space."""
        return len(self.joint_space.projections.correlations)

    @property
    def csls_dimension(self) -> int:
        """Of the vectors that a library stores: points, with two numbers for the hubness correction."""
        return self.dimension + (2 if self.joint_space.hubness else 0)

    @property
    def is_shipped(self) -> bool:
        """Whether this is the model in the package."""
        return self._saved is not None and self._saved.folder == SHIPPED

    @cached_property
    def key(self) -> str:
        """Identifies the vectors of photos that a library stores."""
        return self.joint_space.key(self._encoder_key)

    @property
    def space_key(self) -> str:
        """Identifies the map from photos to points. A captioner is trained for one such map."""
        return self.joint_space.space_key(self._encoder_key)

    @property
    def _encoder_key(self) -> str:
        return self._saved.config.encoder_key if self._saved else self.image_encoder.key

    # What a loaded model reads from its folder on first use. `__init__` sets the same names.

    @cached_property
    def sentence_vectors(self) -> SentenceVectors:
        """The plain object that encodes sentences, without scikit-learn."""
        if self._saved is None:
            return self.sentence_encoder.sentence_vectors
        sentences = SentenceVectors(**self._load_text_side(WhiteningTransform, _read_mixture))
        if sentences.n_features != len(self.joint_space.projections.y_weights):
            raise FishermixError(f"{self._saved.folder} is damaged: sentence vectors and CCA differ in size.")
        return sentences

    @cached_property
    def sentence_encoder(self) -> SentenceEncoder:
        """The same as an estimator."""
        from fishermix.mixture import Mixture
        from fishermix.text.encoder import SentenceEncoder
        from fishermix.text.whitening import Whitening

        return SentenceEncoder(**self._load_text_side(Whitening, Mixture.from_tensors))

    def _load_text_side(self, whitening: Any, read_mixture: Any) -> dict[str, Any]:
        """The arguments of a `SentenceEncoder`, with a whitening of this class and mixtures read so."""
        assert self._saved is not None
        config, tensors, folder = self._saved.config, self._saved.tensors, self._saved.folder
        mixtures = [_select(f"mixture{number}.", tensors) for number in range(len(config.mixtures))]
        for of_mixture in mixtures:
            require_tensors(of_mixture, MIXTURE_TENSORS, folder)
        is_whitened = "whitening_mean" in tensors
        require_tensors(tensors, WHITENING_TENSORS if is_whitened else {}, folder)
        return {
            "vectors": WordVectors.from_tensors(_select("words.", tensors)),
            "whitening": whitening.from_tensors(tensors) if is_whitened else None,
            "mixtures": [read_mixture(*found, folder) for found in zip(config.mixtures, mixtures)],
            "power": config.power,
            "norm": config.norm,
            "stop_words": tuple(config.stop_words),
            "transformer": _find_transformer(config.transformer, folder),
            "transformer_weight": config.transformer.weight if config.transformer else 1.0,
        }

    @cached_property
    def image_encoder(self) -> Any:
        """The vectors of photos."""
        from fishermix_photos.vision.encoder import ImageEncoder

        assert self._saved is not None
        config, folder = self._saved.config, self._saved.folder
        encoder = ImageEncoder(tuple(config.encoders), view=config.view)
        if encoder.key != config.encoder_key:
            raise FishermixError(
                f"{folder} was trained with another version of the network {', '.join(config.encoders)}. "
                "Train it again."
            )
        if encoder.n_features != len(self.joint_space.projections.x_weights):
            raise FishermixError(f"{folder} is damaged: image features and CCA differ in size.")
        return encoder

    @cached_property
    def captioner(self) -> Captioner | None:
        """Writes new sentences; None if the model's folder has no captioner."""
        folder = self._find_folder(CAPTIONER)
        if folder is None:
            return None
        from fishermix.caption.captioner import Captioner

        captioner = Captioner.load(folder)
        if captioner.model_key not in ("", self.space_key):
            raise FishermixError(
                f"The captioner in {folder} was trained for another model. Move it away, or train one for "
                "this model with `fishermix captioner train --model MODEL`."
            )
        return captioner

    @cached_property
    def pool(self) -> PooledSentences | None:
        """The sentences that are ranked for a photo if no others are given; None if the folder has none."""
        folder = self._find_folder(SENTENCES)
        return None if folder is None else PooledSentences.load(folder, self.key, self.dimension)

    def _find_folder(self, name: str) -> Path | None:
        """An optional folder inside the model's, if it is there."""
        folder = self._saved.folder / name if self._saved else None
        return folder if folder is not None and (folder / CONFIG).is_file() else None


def _read_mixture(
    config: MixtureConfig, tensors: Mapping[str, np.ndarray], folder: Path
) -> MixtureParameters:
    families = [make_family(family.name, family.parameters) for family in config.families]
    return MixtureParameters.from_tensors(families, tensors, folder)


def _load_joint_space(saved: SavedFolder) -> JointSpace:
    config, folder = saved.config, saved.folder
    projections = CanonicalProjections.from_tensors(_select("cca.", saved.tensors))
    if sum(config.widths) != len(projections.x_weights):
        raise FishermixError(f"'widths' in {folder / CONFIG} do not add up to the features of the CCA.")
    hubness = None
    if HUBNESS in saved.parts:
        hubness = HubnessCorrection.from_saved(saved.parts[HUBNESS], len(projections.correlations))
    elif config.has_hubness:
        raise FishermixError(
            f"The hubness correction in {folder} is missing: the model is incomplete. Copy it again or train "
            "it again."
        )
    return JointSpace(
        projections,
        power=config.correlation_power,
        hubness=hubness,
        image_power=config.image_power,
        image_l2=config.image_l2,
        image_widths=config.widths,
        n_word_features=_count_word_features(saved) if config.transformer else 0,
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
            "Train it again."
        )
    return transformer


def _describe_transformer(encoder: SentenceEncoder) -> TransformerConfig | None:
    transformer: Any = encoder.transformer
    if transformer is None:
        return None
    is_named = transformer.folder.parent in (SHIPPED_TRANSFORMERS, added_transformers())
    name = transformer.folder.name if is_named else str(transformer.folder)
    return TransformerConfig(name, transformer.key, encoder.transformer_weight)


def _list_tensors(
    encoder: SentenceEncoder, space: JointSpace, dtype: Any
) -> tuple[dict[str, np.ndarray], list[MixtureConfig]]:
    """All tensors of a model by name, and the mixtures' parameters."""
    tensors: dict[str, np.ndarray] = {}
    for name, value in encoder.vectors.to_tensors().items():
        tensors[f"words.{name}"] = value.astype(dtype) if value.dtype.kind == "f" else value
    if encoder.whitening is not None:
        tensors |= encoder.whitening.to_tensors()
    mixtures = []
    for number, mixture in enumerate(encoder.mixtures):
        config, of_mixture = mixture.to_tensors()
        mixtures.append(config)
        tensors |= {f"mixture{number}.{name}": value for name, value in of_mixture.items()}
    for name, value in space.projections.to_tensors().items():
        tensors[f"cca.{name}"] = value.astype(dtype) if value.ndim == 2 else value
    return tensors, mixtures


def _select(prefix: str, tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The tensors whose names begin with the prefix, without it."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
