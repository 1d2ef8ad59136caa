"""`ImageTextModel`: sentences and photos in, points of one joint space out (`saved` has its files).

A search needs the sentence vectors and the joint space, which are plain numpy objects. The estimators, the
image network and the captioner import scikit-learn, numba and onnxruntime, so they are made only when someone
asks for them. `fishermix_lab.training` trains models.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, cast

import numpy as np
from fishermix.errors import FishermixError
from fishermix.joint.space import JointSpace
from fishermix.mixture.parameters import FEW_ROWS
from fishermix.saved import CONFIG, SavedFolder, load_folder
from fishermix.text.sentences import SentenceVectors, WhiteningTransform
from fishermix.text.tokens import STOP_WORDS
from fishermix.text.vocabulary import Vocabulary

from fishermix_photos.model.calibration import Calibration
from fishermix_photos.model.phrases import Phrases, split_query
from fishermix_photos.model.saved import (
    CAPTIONER,
    MODEL_KIND,
    PHRASES,
    SENTENCES,
    SHIPPED,
    load_joint_space,
    load_text_side,
    read_mixture,
    save_parts,
)

if TYPE_CHECKING:
    from fishermix.text.encoder import SentenceEncoder

    from fishermix_photos.model.captioner.captioner import Captioner, CaptionOptions
    from fishermix_photos.model.captioner.consensus import Description
    from fishermix_photos.model.image_vectors import ImageVectors
    from fishermix_photos.model.sentences import PooledSentences
    from fishermix_photos.model.transformer import SentenceTransformer
    from fishermix_photos.photos.open import ImageSource


class ImageTextModel:
    """Sentences and photos as points of one joint space, where the cosine says how well they match.

    `ImageTextModel.load` opens a saved model, `fishermix_lab.training.train_model` makes a new one.

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
    phrases : Phrases or None
        What captions say where they use a phrase, for short queries.
    calibration : Calibration or None
        Turns scores into probabilities.

    See Also
    --------
    fishermix_photos.PhotoLibrary : searches many photos.
    fishermix_lab.training.train_model : trains a model.

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
        image_encoder: ImageVectors,
        joint_space: JointSpace,
        report: Mapping[str, object] | None = None,
    ):
        self.sentence_encoder = sentence_encoder
        self.image_encoder = image_encoder
        self.joint_space = joint_space
        self.report: dict[str, Any] = dict(report or {})
        self.captioner = None
        self.pool = None
        self.phrases = None

    @classmethod
    def load(cls, folder: str | os.PathLike[str] | None = None) -> ImageTextModel:
        """The model that `save` wrote as this folder. Default: the one in the package."""
        model = cls.__new__(cls)
        model._saved = load_folder(SHIPPED if folder is None else folder, MODEL_KIND)
        model.joint_space = load_joint_space(model._saved)
        model.report = model._saved.config.report
        model.calibration = Calibration.load(model._saved.folder, model.key)
        return model

    def save(self, folder: str | os.PathLike[str], half: bool = False) -> None:
        """Write the model as a folder of JSON and safetensors; `half` stores half-precision weights."""
        save_parts(self, folder, half)
        if self.captioner is not None:
            self.captioner.save(Path(folder) / CAPTIONER)
        if self.pool is not None:
            self.pool.save(Path(folder) / SENTENCES, self.key)
        if self.phrases is not None:
            self.phrases.save(Path(folder) / PHRASES, self.key)
        if self.calibration is not None:
            self.calibration.save(Path(folder))

    def __repr__(self) -> str:
        return f"ImageTextModel({self.dimension} dimensions, {self.key})"

    # Sentences

    def encode_text(self, sentences: Sequence[str | Sequence[str]]) -> np.ndarray:
        """Points (n, d) of sentences, or of their tokens, float32 of length 1; zero where no word is known.

        Returns
        -------
        points : ndarray of shape (n, d)
            float32, in the order of the sentences.
        """
        if isinstance(sentences, str):
            raise FishermixError(
                "encode_text takes a list of sentences. Put the sentence in brackets.", code="wrong_parameter"
            )
        blocks = [np.zeros((0, self.dimension), np.float32)]
        for block in self.sentence_vectors.encode_blocks(list(sentences)):
            blocks.append(self.joint_space.embed_right(block))
        return np.concatenate(blocks)

    def encode_query(self, sentence: str | Sequence[str]) -> tuple[np.ndarray, list[str]]:
        """The point (d,) of a query, or of its tokens, and its out-of-vocabulary words.

        As that of `encode_text`, but a short phrase is completed by what captions say (`model.phrases`). The
        point is zero if no word is known. Words such as "a" and "of" are not reported.
        """
        vectors, bags = self.sentence_vectors.encode([sentence])
        unknown = [word for word in dict.fromkeys(bags.out_of_vocabulary[0]) if word not in STOP_WORDS]
        return self._complete(sentence, self.joint_space.embed_right(vectors)[0]), unknown

    def encode_queries(self, queries: Sequence[str | Sequence[str]]) -> np.ndarray:
        """The points (n, d) that `encode_query` gives."""
        points = self.encode_text(queries)
        completed = [self._complete(query, point) for query, point in zip(queries, points)]
        return np.array(completed, np.float32).reshape(points.shape)

    def _complete(self, query: str | Sequence[str], point: np.ndarray) -> np.ndarray:
        return point if self.phrases is None else self.phrases.complete(split_query(query), point)

    @property
    def reads_unknown_words(self) -> bool:
        """Whether a sentence transformer reads words that are out of the vocabulary, by their pieces."""
        return self.sentence_vectors.transformer is not None

    @property
    def vocabulary(self) -> Vocabulary:
        """The words that have a vector."""
        return self.sentence_vectors.lookup.vocabulary

    def knows_word(self, word: str) -> bool:
        """Whether a word has a vector, or is one that the sentence transformer has learned as a whole."""
        transformer = cast("SentenceTransformer | None", self.sentence_vectors.transformer)
        return word in self.vocabulary or (transformer is not None and transformer.knows_word(word))

    def is_whole_word(self, word: str) -> bool:
        """Whether the sentence transformer has learned a word as a whole; True without one."""
        transformer = cast("SentenceTransformer | None", self.sentence_vectors.transformer)
        return transformer is None or transformer.knows_word(word)

    def compare_words(self, word: str, others: Sequence[str]) -> list[float]:
        """The cosines of a word with others, by the sentence transformer, which reads unknown words, too; 1
        without one.
        """
        transformer = self.sentence_vectors.transformer
        if transformer is None:
            return [1.0] * len(others)
        vectors = transformer.encode([word, *others])
        return (vectors[1:] @ vectors[0]).tolist()

    @cached_property
    def word_counts(self) -> Mapping[str, int]:
        """How often the sentences of the pool, which describe photos, use each word."""
        sentences = self.pool.sentences if self.pool is not None else ()
        return Counter(word for sentence in sentences for word in sentence.lower().split())

    # Photos

    def encode_images(self, images: Sequence[ImageSource]) -> np.ndarray:
        """Points (n, d) of photos, float32 of length 1. Photos are paths, bytes or PIL images.

        Returns
        -------
        points : ndarray of shape (n, d)
            float32, in the order of the photos.
        """
        if not len(images):
            return np.zeros((0, self.dimension), np.float32)
        return self.joint_space.embed_left(self.image_encoder.transform(list(images)))

    def caption(self, images: Sequence[ImageSource], **options: Unpack[CaptionOptions]) -> list[str]:
        """A new sentence for each photo. The options are those of `Captioner.describe`, such as `beam`.

        Returns
        -------
        sentences : list of str
            In the order of the photos.
        """
        self._expect_captioner()  # before photos are encoded
        from fishermix_photos.photos.color import look_for_colors

        in_color = [look_for_colors(image) for image in images]
        described = self.describe_points(self.encode_images(images), in_color=in_color, **options)
        return [found.sentence for found in described]

    def describe_points(
        self,
        points: np.ndarray,
        in_color: Sequence[bool | None] | None = None,
        **options: Unpack[CaptionOptions],
    ) -> list[Description]:
        """A new sentence for each point (n, d) of a photo, and how far it can be trusted."""
        encode_text = self.encode_text if len(points) > 1 else self._encode_few
        return self._expect_captioner().describe(
            points, encode_text=encode_text, in_color=in_color, **options
        )

    def _encode_few(self, sentences: Sequence[str]) -> np.ndarray:
        """As `encode_text`, some words at a time: so few that nothing is compiled, which takes seconds and
        140 MB. The sentences for one photo are encoded sooner without it.
        """
        pieces: list[list[str]] = [[]]
        words = 0
        for sentence in sentences:
            words += len(sentence.split())
            if words > FEW_ROWS and pieces[-1]:
                pieces.append([])
                words = len(sentence.split())
            pieces[-1].append(sentence)
        return np.concatenate([self.encode_text(piece) for piece in pieces])

    def _expect_captioner(self) -> Captioner:
        if self.captioner is None:
            raise FishermixError(
                "This model has no captioner. Train one with `fishermix captioner train --model MODEL`.",
                code="missing_captioner",
            )
        return self.captioner

    # Scores

    def similarity(self, sentences: Sequence[str], images: Sequence[ImageSource]) -> np.ndarray:
        """Scores (sentences, images): the cosine, corrected for hubs.

        Returns
        -------
        scores : ndarray of shape (sentences, images)
            float32; higher is more similar.
        """
        texts = self.joint_space.csls_right(self.encode_text(sentences))
        return texts @ self.joint_space.csls_left(self.encode_images(images)).T

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

    def release(self) -> bool:
        """Forget the networks and sentences that only photos and captions need: they are read again on next
        use. Returns whether there were any.
        """
        names = ("image_encoder", "captioner", "pool") if self._saved is not None else ()
        forgotten = [vars(self).pop(name, None) for name in names]
        return any(part is not None for part in forgotten)

    # What a loaded model reads from its folder on first use. `__init__` sets the same names.

    @cached_property
    def sentence_vectors(self) -> SentenceVectors:
        """The plain object that encodes sentences, without scikit-learn."""
        if self._saved is None:
            return self.sentence_encoder.sentence_vectors
        sentences = SentenceVectors(**load_text_side(self._saved, WhiteningTransform, read_mixture))
        if sentences.n_features != len(self.joint_space.projections.y_weights):
            raise FishermixError(
                f"{self._saved.folder} is damaged: sentence vectors and CCA differ in size.", code="damaged"
            )
        return sentences

    @cached_property
    def sentence_encoder(self) -> SentenceEncoder:
        """The same as an estimator."""
        from fishermix.mixture.saved import unpack_mixture
        from fishermix.text.encoder import SentenceEncoder
        from fishermix.text.whitening import Whitening

        assert self._saved is not None
        return SentenceEncoder.from_fitted(**load_text_side(self._saved, Whitening, unpack_mixture))

    @cached_property
    def image_encoder(self) -> ImageVectors:
        """The vectors of photos."""
        from fishermix_photos.model.image_vectors import ImageVectors  # without scikit-learn

        assert self._saved is not None
        config, folder = self._saved.config, self._saved.folder
        encoder = ImageVectors(tuple(config.encoders), view=config.view)
        if encoder.key != config.encoder_key:
            raise FishermixError(
                f"{folder} was trained with another version of the network {', '.join(config.encoders)}. "
                "Train it again.",
                code="other_network",
            )
        if encoder.n_features != len(self.joint_space.projections.x_weights):
            raise FishermixError(
                f"{folder} is damaged: image features and CCA differ in size.", code="damaged"
            )
        return encoder

    @cached_property
    def captioner(self) -> Captioner | None:
        """Writes new sentences; None if the model's folder has no captioner."""
        folder = self._find_folder(CAPTIONER)
        if folder is None:
            return None
        from fishermix_photos.model.captioner.captioner import Captioner

        captioner = Captioner.load(folder)
        if captioner.model_key not in ("", self.space_key):
            raise FishermixError(
                f"The captioner in {folder} was trained for another model. Move it away, or train one for "
                "this model with `fishermix captioner train --model MODEL`.",
                code="wrong_captioner",
            )
        return captioner

    @cached_property
    def pool(self) -> PooledSentences | None:
        """The sentences that are ranked for a photo if no others are given; None if the folder has none."""
        folder = self._find_folder(SENTENCES)
        if folder is None:
            return None
        from fishermix_photos.model.sentences import PooledSentences

        return PooledSentences.load(folder, self.key, self.dimension)

    @cached_property
    def phrases(self) -> Phrases | None:
        """What completes short queries; None if the folder has no phrases."""
        folder = self._find_folder(PHRASES)
        return None if folder is None else Phrases.load(folder, self.key, self.dimension)

    def _find_folder(self, name: str) -> Path | None:
        """An optional folder inside the model's, if it is there."""
        folder = self._saved.folder / name if self._saved else None
        return folder if folder is not None and (folder / CONFIG).is_file() else None
