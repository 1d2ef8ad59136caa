"""The whole line in one object: sentences and photographs in, points of one joint space out."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fishermix.errors import FishermixError
from fishermix.model.folder import CAPTIONER, HUBNESS, KIND, VERSION, JointSpace, SavedModel
from fishermix.model.recipe import Recipe, recipe_named
from fishermix.storage import save_folder

if TYPE_CHECKING:
    from fishermix.caption.captioner import Captioner
    from fishermix.datasets import Dataset
    from fishermix.evaluation.tasks import Figures
    from fishermix.model.hubness import HubnessCorrection
    from fishermix.text.encoder import SentenceEncoder
    from fishermix.text.sentence_vectors import SentenceSums
    from fishermix.text.vectors import WordVectors

SHIPPED = Path(__file__).parent.parent / "pretrained" / "model"
EMPTY_WORDS = {"a", "an", "and", "of", "to"}
CCA_TENSORS = ("correlations_", "x_weights_", "y_weights_", "x_mean_", "y_mean_")


class ImageTextModel:
    """Sentences and photographs as points of one joint space, where the cosine says how well they match.

    >>> model = ImageTextModel.load()                                          # doctest: +SKIP
    >>> model.similarity(["two dogs run on a beach"], ["photo.jpg"])           # doctest: +SKIP

    vectors : the word vectors, or their folder or file; needed only to `fit`
    recipe : a `Recipe`, or the name of one: "best" or "paper"
    """

    def __init__(self, vectors: WordVectors | str | os.PathLike | None = None, recipe: Recipe | str = "best"):
        self.vectors = vectors
        self.recipe = recipe_named(recipe) if isinstance(recipe, str) else recipe
        self._saved: SavedModel | None = None
        self.report: dict[str, Any] = {}

    def fit(self, dataset: Dataset, work: str | os.PathLike | None = None) -> ImageTextModel:
        """Train on the "train" images of a data set; its "dev" images choose ridges and scale.

        work : a folder that keeps finished stages, so that a fit started again goes on where it was
        """
        from fishermix.model.training import train

        return train(self, dataset, work)

    # The parts of a loaded model are made when they are first asked for; training sets them.

    @cached_property
    def sentence_encoder(self) -> SentenceEncoder:
        return self._expect_saved("sentence_encoder").sentence_encoder()

    @cached_property
    def image_encoder(self) -> Any:
        return self._expect_saved("image_encoder").image_encoder()

    @cached_property
    def cca(self) -> Any:
        return self._expect_saved("cca").cca()

    @cached_property
    def hubness(self) -> HubnessCorrection | None:
        """What takes hubs out of the match of a sentence and a photo; None: the match is the cosine."""
        return self._saved.hubness() if self._saved else None

    @cached_property
    def captioner(self) -> Captioner | None:
        if self._saved is None:
            return None
        found = self._saved.captioner()
        if found is not None and found.model_key not in ("", self.space_key):
            raise FishermixError(
                f"the captioner in {self._saved.folder / CAPTIONER} was trained for another model: train one "
                "for this, `fishermix captioner train --model MODEL`, or move it away"
            )
        return found

    def _expect_saved(self, part: str) -> SavedModel:
        if self._saved is None:
            raise AttributeError(f"this model has no {part} yet: fit it, or load one")
        return self._saved

    def encode_text(self, sentences: Sequence[str]) -> np.ndarray:
        """Points (n, d) of sentences, float32 of length 1; zero where no word is known."""
        if isinstance(sentences, str):
            raise FishermixError("encode_text takes a list of sentences: put the sentence in brackets")
        blocks = [np.zeros((0, self.dimension), np.float32)]
        blocks += [self.sentence_points(block) for block in self._sentences.blocks(list(sentences))]
        return np.concatenate(blocks)

    def encode_query(self, sentence: str | Sequence[str]) -> tuple[np.ndarray, list[str]]:
        """The point (d,) of a sentence, or of its tokens, and its out-of-vocabulary words.

        The sentence is tokenized once. The point is zero if no word is known.
        """
        lookup = self._sentences.lookup
        tokens = lookup.tokens(sentence)
        vector = next(iter(self._sentences.blocks([tokens])))  # not read to its end, so it does not warn
        unknown = [word for word in dict.fromkeys(tokens) if word not in EMPTY_WORDS and not lookup[word]]
        return self.sentence_points(vector)[0], unknown

    def unknown_words(self, sentence: str) -> list[str]:
        """The out-of-vocabulary words of a sentence."""
        return self.encode_query(sentence)[1]

    def encode_images(self, images: Sequence[Any]) -> np.ndarray:
        """Points (n, d) of photographs (paths, bytes or Pillow images), float32 of length 1."""
        if not len(images):
            return np.zeros((0, self.dimension), np.float32)
        return self.image_points(self.image_encoder.transform(list(images)))

    def sentence_points(self, vectors: np.ndarray) -> np.ndarray:
        """Points (n, d) of sentence vectors (n, q): the zero vector of an unknown sentence stays zero."""
        points = vectors @ self._sentence_map - self._sentence_origin
        return unit_rows(np.where(np.any(vectors, axis=1, keepdims=True), points, 0))

    def image_points(self, features: np.ndarray) -> np.ndarray:
        """Points (n, d) of a network's vectors (n, p)."""
        points = prepare_features(features, self.recipe, self._widths) @ self._image_map - self._image_origin
        return unit_rows(points)

    def similarity(self, sentences: Sequence[str], images: Sequence[Any]) -> np.ndarray:
        """How well sentences and images match (sentences, images): the cosine, corrected for hubs."""
        texts = self.match_sentences(self.encode_text(sentences))
        return texts @ self.match_images(self.encode_images(images)).T

    def match_sentences(self, points: np.ndarray) -> np.ndarray:
        """Points (n, d) of sentences as vectors whose dot product with `match_images` is the match."""
        return self.hubness.match_sentences(points) if self.hubness else points

    def match_images(self, points: np.ndarray) -> np.ndarray:
        """Points (n, d) of photographs as vectors whose dot product with `match_sentences` is the match."""
        return self.hubness.match_images(points) if self.hubness else points

    def caption(self, images: Sequence[Any], **options: Any) -> list[str]:
        """A new sentence for each photograph."""
        self._expect_captioner()
        return self.caption_points(self.encode_images(images), **options)

    def caption_points(self, points: np.ndarray, **options: Any) -> list[str]:
        """The same for points (n, d) of photographs."""
        return self._expect_captioner().caption(points, encode_text=self.encode_text, **options)

    def _expect_captioner(self) -> Captioner:
        if self.captioner is None:
            raise FishermixError(
                "this model has no captioner: train one with `fishermix captioner train --model MODEL`"
            )
        return self.captioner

    def evaluate(self, dataset: Dataset, work: str | os.PathLike | None = None) -> Figures:
        """Ranks of the three tasks on all images of a data set (choose a part of it before)."""
        from fishermix.evaluation.tasks import figures, task_ranks
        from fishermix.model.training import image_features

        dataset, features = image_features(dataset, self.image_encoder, work)
        points = self.encode_text(dataset.sentences)
        return figures(task_ranks(self.image_points(features), points, dataset.image_of, self.hubness))

    @property
    def dimension(self) -> int:
        """Of the joint space."""
        return len(self._space.correlations_)

    @property
    def match_dimension(self) -> int:
        """Of the vectors of `match_sentences` and `match_images`."""
        return self.dimension + (2 if self.hubness else 0)

    @cached_property
    def key(self) -> str:
        """Names the map from photographs to what an index keeps: one made with another key is of no use."""
        if self.hubness is None:
            return self.space_key
        return hashlib.sha256(f"{self.space_key} {self.hubness.key}".encode()).hexdigest()[:16]

    @cached_property
    def space_key(self) -> str:
        """Names the map from photographs to points: a captioner speaks of the points of one such map."""
        digest = hashlib.sha256(f"{self._encoder_key} {self.recipe.image_power}".encode())
        digest.update(np.ascontiguousarray(self._image_map).tobytes())
        digest.update(np.ascontiguousarray(self._image_origin).tobytes())
        return digest.hexdigest()[:16]

    def save(self, folder: str | os.PathLike, half: bool = False) -> None:
        """Write the model as a folder of JSON and safetensors; `half`: vectors and weights in float16."""
        encoder, dtype = self.sentence_encoder, np.float16 if half else np.float32
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
        for name in CCA_TENSORS:
            value = getattr(self.cca, name)
            tensors[f"cca.{name}"] = value.astype(dtype) if value.ndim == 2 else value
        config = {
            "recipe": self.recipe.as_json(),
            "encoders": [str(part.encoder) for part in encoder_parts(self.image_encoder)],
            "view": self.image_encoder.view,
            "encoder_key": self.image_encoder.key,
            "widths": self._widths,
            "power": encoder.power,
            "norm": encoder.norm,
            "mixtures": mixtures,
            "cca": self.cca.get_params(),
            "report": self.report,
        }
        parts = {HUBNESS: self.hubness.save} if self.hubness else {}
        save_folder(folder, KIND, VERSION, config, tensors, parts)
        if self.captioner is not None:
            self.captioner.save(Path(folder) / CAPTIONER)

    @classmethod
    def load(cls, folder: str | os.PathLike | None = None) -> ImageTextModel:
        """A saved model, or the one in the package."""
        saved = SavedModel(SHIPPED if folder is None else folder)
        model = cls(recipe=saved.recipe)
        model._saved, model.report = saved, saved.config.get("report", {})
        return model

    # What a query needs of the parts: from the folder as long as nobody asked for the part itself.

    @property
    def _sentences(self) -> SentenceSums | SentenceEncoder:
        if self._saved and "sentence_encoder" not in vars(self):
            return self._saved.sentences
        return self.sentence_encoder

    @property
    def _space(self) -> JointSpace | Any:
        return self._saved.space if self._saved and "cca" not in vars(self) else self.cca

    @property
    def _encoder_key(self) -> str:
        if self._saved and "image_encoder" not in vars(self):
            return self._saved.config["encoder_key"]
        return self.image_encoder.key

    @cached_property
    def _widths(self) -> list[int]:
        return [part.n_features for part in encoder_parts(self.image_encoder)]

    @cached_property
    def _scale(self) -> np.ndarray:
        return self._space.correlations_ ** float(self._space.scale)

    @cached_property
    def _image_map(self) -> np.ndarray:
        return (self._space.x_weights_ * self._scale).astype(np.float32)

    @cached_property
    def _image_origin(self) -> np.ndarray:
        return (self._space.x_mean_ @ self._image_map).astype(np.float32)

    @cached_property
    def _sentence_map(self) -> np.ndarray:
        return np.multiply(self._space.y_weights_, self._scale.astype(np.float32), dtype=np.float32)

    @cached_property
    def _sentence_origin(self) -> np.ndarray:
        return (self._space.y_mean_.astype(np.float32) @ self._sentence_map).astype(np.float32)


def encoder_parts(encoder: Any) -> list[Any]:
    return list(getattr(encoder, "encoders", [encoder]))


def prepare_features(features: np.ndarray, recipe: Recipe, widths: Sequence[int]) -> np.ndarray:
    """sign(z)|z|^power and length 1 for each network's part (n, width) of the vectors, as the recipe says."""
    prepared = np.array(features, np.float32)
    if recipe.image_power != 1:
        prepared = np.sign(prepared) * np.abs(prepared) ** np.float32(recipe.image_power)
    if recipe.image_l2:
        ends = np.cumsum(widths)
        for start, end in zip(ends - widths, ends):
            prepared[:, start:end] = unit_rows(prepared[:, start:end])
    return prepared


def unit_rows(points: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(points, axis=1, keepdims=True)
    return (points / np.where(lengths > 0, lengths, 1)).astype(np.float32, copy=False)
