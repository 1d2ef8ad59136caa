"""The pipeline as one object: sentences and photos in, points of one joint space out."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fishermix.errors import FishermixError
from fishermix.model.folder import CAPTIONER, SavedParts, load_model, save_model
from fishermix.model.joint_space import JointSpace, image_networks
from fishermix.model.recipe import Recipe, find_recipe

if TYPE_CHECKING:
    from fishermix.caption.captioner import Captioner
    from fishermix.caption.consensus import Description
    from fishermix.cca import RegularizedCCA
    from fishermix.datasets import Dataset
    from fishermix.evaluation.ranks import Figures
    from fishermix.model.calibration import Calibration
    from fishermix.model.hubness import HubnessCorrection
    from fishermix.model.pool import Pool
    from fishermix.text.encoder import SentenceEncoder
    from fishermix.text.sentence_vectors import SentenceVectors
    from fishermix.text.vectors import WordVectors

SHIPPED = Path(__file__).parent.parent / "pretrained" / "model"
EMPTY_WORDS = {"a", "an", "and", "of", "to"}


class ImageTextModel:
    """Sentences and photos as points of one joint space, where the cosine says how well they match.

    Parameters
    ----------
    vectors : WordVectors or path, optional
        The word vectors; needed by `fit`.
    recipe : Recipe or str
        What `fit` does: "paper", "best", "shipped" or a `Recipe`.

    Examples
    --------
    >>> model = ImageTextModel.load()                                          # doctest: +SKIP
    >>> model.similarity(["two dogs run on a beach"], ["photo.jpg"])           # doctest: +SKIP
    """

    def __init__(self, vectors: WordVectors | str | os.PathLike | None = None, recipe: Recipe | str = "best"):
        self.vectors = vectors
        self.report: dict[str, Any] = {}
        self._saved: SavedParts | None = None
        self._parts: dict[str, Any] = {}
        self.recipe = find_recipe(recipe) if isinstance(recipe, str) else recipe

    def __repr__(self) -> str:
        names = ", ".join(self.recipe.encoders)
        fitted = f"{self.dimension} dimensions" if {"cca", "joint_space"} & set(self._parts) else "not fitted"
        return f"ImageTextModel({self.recipe.variant}, {names}, {fitted})"

    def fit(self, dataset: Dataset, work: str | os.PathLike | None = None) -> ImageTextModel:
        """Train on the "train" images of a data set; its "dev" images choose the ridges and the power.

        Parameters
        ----------
        dataset : Dataset
            Photos and their sentences.
        work : path, optional
            The folder where finished stages are kept, so that an interrupted run continues.
        """
        from fishermix.model.training import train

        return train(self, dataset, work)

    @classmethod
    def load(cls, folder: str | os.PathLike | None = None) -> ImageTextModel:
        """A saved model, or the one in the package.

        Parameters
        ----------
        folder : path, optional
            A folder that `save` wrote. Default: the model in the package.
        """
        saved = load_model(SHIPPED if folder is None else folder)
        model = cls.__new__(cls)
        model.vectors, model.report = None, saved.config.report
        model._saved, model._parts = saved, {"joint_space": saved.joint_space}
        return model

    def save(self, folder: str | os.PathLike, half: bool = False) -> None:
        """Write the model as a folder of JSON and safetensors; `half`: vectors and weights in float16.

        Parameters
        ----------
        folder : path
            Where to write. The folder is created if it does not exist.
        half : bool
            Store floats in half precision.
        """
        save_model(self, folder, half)

    def encode_text(self, sentences: Sequence[str]) -> np.ndarray:
        """Points (n, d) of sentences, float32 of length 1; zero where no word is known.

        Parameters
        ----------
        sentences : sequence of str
            The sentences.
        """
        if isinstance(sentences, str):
            raise FishermixError("encode_text takes a list of sentences. Put the sentence in brackets.")
        space = self.joint_space
        blocks = [np.zeros((0, self.dimension), np.float32)]
        blocks += [space.sentence_points(block) for block in self._sentences.encode_blocks(list(sentences))]
        return np.concatenate(blocks)

    def encode_query(self, sentence: str | Sequence[str]) -> tuple[np.ndarray, list[str]]:
        """The point (d,) of a sentence, or of its tokens, and its out-of-vocabulary words.

        The sentence is tokenized once. The point is zero if no word is known.

        Parameters
        ----------
        sentence : str
            The sentence.
        """
        vectors, bags = self._sentences.encode([sentence])
        unknown = [word for word in dict.fromkeys(bags.out_of_vocabulary[0]) if word not in EMPTY_WORDS]
        return self.joint_space.sentence_points(vectors)[0], unknown

    @property
    def reads_unknown_words(self) -> bool:
        """Whether a sentence transformer reads words that are out of the vocabulary, by their pieces."""
        return self._sentences.transformer is not None

    def unknown_words(self, sentence: str | Sequence[str]) -> list[str]:
        """The out-of-vocabulary words of a sentence, or of its tokens, without "a", "of" and the like.

        Parameters
        ----------
        sentence : str
            The sentence.
        """
        words = dict.fromkeys(self._sentences.lookup.find([sentence]).out_of_vocabulary[0])
        return [word for word in words if word not in EMPTY_WORDS]

    def suggest_spelling(self, word: str) -> str | None:
        """The word of the vocabulary that a mistyped one most likely means; None if there is none.

        Parameters
        ----------
        word : str
            A word.
        """
        from fishermix.text.spelling import suggest_spelling

        return suggest_spelling(word, self._sentences.lookup.vocabulary, self._count_words())

    def _count_words(self) -> Mapping[str, int]:
        """How often the sentences of the pool, which describe photos, use each word."""
        if "word_counts" not in self._parts:
            from collections import Counter

            sentences = self.pool.sentences if self.pool is not None else ()
            self._parts["word_counts"] = Counter(word for one in sentences for word in one.lower().split())
        return self._parts["word_counts"]

    def encode_images(self, images: Sequence[Any]) -> np.ndarray:
        """Points (n, d) of photos (paths, bytes or Pillow images), float32 of length 1.

        Parameters
        ----------
        images : sequence of paths, bytes or PIL images
            The photos.
        """
        if not len(images):
            return np.zeros((0, self.dimension), np.float32)
        return self.image_points(self.image_encoder.transform(list(images)))

    def sentence_points(self, vectors: np.ndarray) -> np.ndarray:
        """Points (n, d) of sentence vectors (n, q). The zero vector of an unknown sentence stays zero.

        Parameters
        ----------
        vectors : array of shape (n, n_features)
            Sentence vectors.
        """
        return self.joint_space.sentence_points(vectors)

    def image_points(self, features: np.ndarray) -> np.ndarray:
        """Points (n, d) of the networks' vectors (n, p).

        Parameters
        ----------
        features : array of shape (n, p)
            Vectors of the image encoder.
        """
        return self.joint_space.image_points(features)

    def similarity(self, sentences: Sequence[str], images: Sequence[Any]) -> np.ndarray:
        """Scores (sentences, images): the cosine, corrected for hubs.

        Parameters
        ----------
        sentences : sequence of str
            The sentences.
        images : sequence of paths, bytes or PIL images
            The photos.
        """
        texts = self.csls_sentences(self.encode_text(sentences))
        return texts @ self.csls_images(self.encode_images(images)).T

    def csls_sentences(self, points: np.ndarray) -> np.ndarray:
        """Points (n, d) of sentences as vectors whose dot product with `csls_images` is the score.

        Parameters
        ----------
        points : array of shape (n, d)
            Unit points of the joint space.
        """
        return self.joint_space.csls_sentences(points)

    def score_training_photos(self, query: np.ndarray) -> np.ndarray | None:
        """The scores (m,) of a query with the training photos in the model; None if there are none.

        Parameters
        ----------
        query : array of shape (d + 2,)
            A row of `csls_sentences`.
        """
        return None if self.hubness is None else self.hubness.score_bank(query)

    def csls_images(self, points: np.ndarray) -> np.ndarray:
        """Points (n, d) of photos as vectors whose dot product with `csls_sentences` is the score.

        Parameters
        ----------
        points : array of shape (n, d)
            Unit points of the joint space.
        """
        return self.joint_space.csls_images(points)

    match_sentences, match_images = csls_sentences, csls_images  # as 0.1 called them

    def caption(self, images: Sequence[Any], **options: Any) -> list[str]:
        """A new sentence for each photo.

        Parameters
        ----------
        images : sequence of paths, bytes or PIL images
            The photos.
        """
        self._expect_captioner()
        return self.caption_points(self.encode_images(images), **options)

    def caption_points(self, points: np.ndarray, **options: Any) -> list[str]:
        """A new sentence for each point (n, d) of a photo.

        Parameters
        ----------
        points : array of shape (n, d)
            Unit points of the joint space.
        """
        return [one.sentence for one in self.describe_points(points, **options)]

    def describe_points(self, points: np.ndarray, **options: Any) -> list[Description]:
        """A new sentence for each point (n, d) of a photo, and how far it can be trusted.

        Parameters
        ----------
        points : array of shape (n, d)
            Unit points of the joint space.
        """
        return self._expect_captioner().describe(points, encode_text=self.encode_text, **options)

    def _expect_captioner(self) -> Captioner:
        if self.captioner is None:
            raise FishermixError(
                "This model has no captioner. Train one with `fishermix captioner train --model MODEL`."
            )
        return self.captioner

    def rank(self, dataset: Dataset, work: str | os.PathLike | None = None) -> dict[str, np.ndarray]:
        """The rank of the first right answer of every query of the three tasks, see `evaluation.ranks`.

        Parameters
        ----------
        dataset : Dataset
            Photos and their sentences.
        work : path, optional
            The folder where finished stages are kept, so that an interrupted run continues.
        """
        from fishermix.evaluation.ranks import task_ranks
        from fishermix.model.training import image_features

        dataset, features = image_features(dataset, self.image_encoder, work)
        images, sentences = self.image_points(features), self.encode_text(dataset.sentences)
        of = self.hubness
        corrections = (of.of_images(images), of.of_sentences(sentences)) if of else ()
        return task_ranks(images, sentences, dataset.image_of, *corrections)

    def evaluate(self, dataset: Dataset, work: str | os.PathLike | None = None) -> Figures:
        """Recalls, median and mean ranks of the three tasks on all images of a data set.

        Choose a part of it first: `dataset.part("test")`. `work` is a folder that keeps image features.

        Parameters
        ----------
        dataset : Dataset
            Photos and their sentences.
        work : path, optional
            The folder where finished stages are kept, so that an interrupted run continues.
        """
        from fishermix.evaluation.ranks import figures

        return figures(self.rank(dataset, work))

    @property
    def calibration(self) -> Calibration | None:
        """What turns scores into probabilities; None if the model's folder has no such file."""
        if "calibration" not in self._parts:
            from fishermix.model.calibration import load_calibration

            found = load_calibration(self._saved.folder, self.key) if self._saved else None
            self._parts["calibration"] = found
        return self._parts["calibration"]

    @property
    def dimension(self) -> int:
        """Of the joint space."""
        return len(self.joint_space.projections.correlations)

    @property
    def csls_dimension(self) -> int:
        """Of the vectors of `csls_sentences` and `csls_images`."""
        return self.dimension + (2 if self.hubness else 0)

    match_dimension = csls_dimension  # as 0.1 called it

    @property
    def key(self) -> str:
        """Identifies the vectors of photos that an index stores. An index with another key is rebuilt."""
        return self.joint_space.key(self._encoder_key)

    @property
    def space_key(self) -> str:
        """Identifies the map from photos to points. A captioner is trained for one such map."""
        return self.joint_space.space_key(self._encoder_key)

    @property
    def _encoder_key(self) -> str:
        return self._saved.config.encoder_key if self._saved else self.image_encoder.key

    # The parts. Training sets all of them; those of a loaded model are made on first use.

    def set_parts(self, **parts: Any) -> None:
        """Replace all that was fitted or loaded before; the recipe stays."""
        self._parts = {"recipe": self.recipe, **parts}
        self._saved = None

    def _part(self, name: str) -> Any:
        if name not in self._parts:
            if self._saved is None:
                raise AttributeError(f"This model has no {name} yet. Fit it, or load one.")
            self._parts[name] = getattr(self._saved, name)()
        return self._parts[name]

    def _set_part(self, name: str, value: Any, *derived: str) -> None:
        for part in (*derived, "calibration"):
            self._parts.pop(part, None)
        self._parts[name] = value

    @property
    def recipe(self) -> Recipe:
        return self._part("recipe")

    @recipe.setter
    def recipe(self, recipe: Recipe) -> None:
        self._set_part("recipe", recipe)

    @property
    def sentence_encoder(self) -> SentenceEncoder:
        return self._part("sentence_encoder")

    @sentence_encoder.setter
    def sentence_encoder(self, encoder: SentenceEncoder) -> None:
        self._set_part("sentence_encoder", encoder, "sentence_vectors")

    @property
    def _sentences(self) -> SentenceVectors:
        """Encodes sentences: of a loaded model without its estimator, as long as that was not made."""
        if "sentence_encoder" in self._parts or not self._saved:
            return self.sentence_encoder.sentence_vectors
        return self._part("sentence_vectors")

    @property
    def image_encoder(self) -> Any:
        return self._part("image_encoder")

    @image_encoder.setter
    def image_encoder(self, encoder: Any) -> None:
        self._set_part("image_encoder", encoder)

    @property
    def cca(self) -> RegularizedCCA:
        """The CCA as an estimator; the model itself computes with `joint_space`."""
        return self._part("cca")

    @cca.setter
    def cca(self, cca: RegularizedCCA) -> None:
        self._set_part("cca", cca, "joint_space")

    @property
    def joint_space(self) -> JointSpace:
        """The plain object that computes points and scores."""
        if "joint_space" not in self._parts:
            cca, encoder = self.cca, self._parts.get("image_encoder")
            widths = [network.n_features for network in image_networks(encoder)] if encoder else []
            how = self.recipe.image_power, self.recipe.image_l2, widths or [len(cca.x_weights_)]
            sentences: Any = self._parts.get("sentence_encoder")
            transformed = getattr(sentences, "transformer", None) is not None
            n_word_features = sentences.sentence_vectors.n_word_features if transformed else 0
            space = JointSpace(cca.projections_, cca.power, None, *how, n_word_features)
            self._parts["joint_space"] = space
        return self._parts["joint_space"]

    @property
    def hubness(self) -> HubnessCorrection | None:
        """The correction of the scores for hubs; None: scores are cosines."""
        return self.joint_space.hubness

    @hubness.setter
    def hubness(self, hubness: HubnessCorrection | None) -> None:
        self._set_part("joint_space", replace(self.joint_space, hubness=hubness))

    @property
    def captioner(self) -> Captioner | None:
        if self._saved is None:
            return self._parts.get("captioner")
        found = self._part("captioner")
        if found is not None and found.model_key not in ("", self.space_key):
            raise FishermixError(
                f"The captioner in {self._saved.folder / CAPTIONER} was trained for another model. Move it "
                "away, or train one for this model with `fishermix captioner train --model MODEL`."
            )
        return found

    @captioner.setter
    def captioner(self, captioner: Captioner | None) -> None:
        self._set_part("captioner", captioner)

    @property
    def pool(self) -> Pool | None:
        """The sentences that the model ranks for a photo if no others are given; None if it has none."""
        if "pool" not in self._parts:
            self._parts["pool"] = self._saved.pool(self.key) if self._saved else None
        return self._parts["pool"]

    @pool.setter
    def pool(self, pool: Pool | None) -> None:
        self._set_part("pool", pool, "word_counts")

    def __getstate__(self) -> dict[str, Any]:
        # Sentence vectors remember the words they have seen and hold a lock; they are made again.
        parts = {name: value for name, value in self._parts.items() if name != "sentence_vectors"}
        return vars(self) | {"_parts": parts}
