"""A model's folder, and its parts made of it when they are first asked for.

To answer a query takes the words, a few sums and two matrices. The estimators, the image network and the
captioner bring scikit-learn, a compiler and onnxruntime along, and wait until somebody needs them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fishermix.errors import FishermixError
from fishermix.model.recipe import Recipe
from fishermix.storage import NAME_DIGITS, load_folder, part_folder, require_tensor
from fishermix.text.sentence_vectors import SentenceSums
from fishermix.text.vectors import WordVectors
from fishermix.vision.network_file import features_key

if TYPE_CHECKING:
    from fishermix.caption.captioner import Captioner
    from fishermix.cca import RegularizedCCA
    from fishermix.model.hubness import HubnessCorrection
    from fishermix.text.encoder import SentenceEncoder

KIND, VERSION = "image-text model", 1
CAPTIONER, HUBNESS = "captioner", "hubness"


def hubness_folder(model: Path, config: Mapping[str, Any]) -> Path:
    """The folder of a model's hubness correction; 0.1 did not name it in `config.json`."""
    found = part_folder(model, config, HUBNESS)
    return found or model / f"crowding-{config['sha256'][:NAME_DIGITS]}"


@dataclass(frozen=True)
class JointSpace:
    """The fitted attributes of a `RegularizedCCA` that give points, under the same names."""

    correlations_: np.ndarray
    x_weights_: np.ndarray
    y_weights_: np.ndarray
    x_mean_: np.ndarray
    y_mean_: np.ndarray
    scale: float


class SavedModel:
    """The checked content of a model's folder."""

    def __init__(self, folder: str | os.PathLike):
        self.folder = Path(folder)
        self.config, self.tensors = load_folder(self.folder, KIND, VERSION)
        try:
            self.recipe = self._read_recipe()
            self.space = self._read_space()
            n_features = self.sentences.n_features
            names, view = list(self.config["encoders"]), str(self.config["view"])
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, FishermixError):
                raise
            raise FishermixError(
                f"{self.folder} is damaged: its config.json lacks or garbles {error}"
            ) from error
        if len(self.space.y_weights_) != n_features:
            raise FishermixError(f"{self.folder} is damaged: sentence vectors and CCA differ in size")
        if "+".join(features_key(name, view) for name in names) != self.config["encoder_key"]:
            raise FishermixError(
                f"{self.folder} was trained with another version of the network {', '.join(names)}: "
                "train it again"
            )

    def _read_recipe(self) -> Recipe:
        try:
            values: dict[str, Any] = {}
            for name, value in self.config["recipe"].items():
                values[name] = tuple(value) if isinstance(value, list) else value
            return Recipe(**values)
        except (KeyError, TypeError, ValueError) as error:
            raise FishermixError(f"{self.folder} is damaged: its recipe cannot be read ({error})") from error

    def _read_space(self) -> JointSpace:
        parts = _under("cca.", self.tensors)
        correlations = require_tensor(parts, "correlations_", (None,), self.folder)
        found = {"correlations_": correlations}
        for side in "xy":
            weights = require_tensor(parts, f"{side}_weights_", (None, len(correlations)), self.folder)
            found[f"{side}_weights_"] = weights
            found[f"{side}_mean_"] = require_tensor(parts, f"{side}_mean_", (len(weights),), self.folder)
        return JointSpace(**found, scale=float(self.config["cca"]["scale"]))

    @cached_property
    def sentences(self) -> SentenceSums:
        """What `sentence_encoder` gives, without the estimators."""
        from fishermix.mixture.parameters import MixtureParameters
        from fishermix.text.whitening_map import WhiteningMap

        return SentenceSums(*self._text_parts(WhiteningMap, MixtureParameters))

    def sentence_encoder(self) -> SentenceEncoder:
        from fishermix.mixture import Mixture
        from fishermix.text.encoder import SentenceEncoder
        from fishermix.text.whitening import Whitening

        return SentenceEncoder(*self._text_parts(Whitening, Mixture))

    def _text_parts(self, whitening: Any, mixture: Any) -> tuple[Any, ...]:
        """What makes sentence vectors, with whitening and mixtures of these classes."""
        white = whitening.from_tensors(self.tensors) if "whitening_mean" in self.tensors else None
        mixtures = [
            mixture.from_tensors(parameters, _under(f"mixture{number}.", self.tensors), self.folder)
            for number, parameters in enumerate(self.config["mixtures"])
        ]
        power, norm = float(self.config["power"]), self.config["norm"]
        return self._vectors, white, mixtures, power, norm, self.recipe.stop_words

    @cached_property
    def _vectors(self) -> WordVectors:
        return WordVectors.from_tensors(_under("words.", self.tensors))

    def cca(self) -> RegularizedCCA:
        from fishermix.cca import RegularizedCCA

        cca = RegularizedCCA(**self.config["cca"])
        for name, value in vars(self.space).items():
            if name.endswith("_"):
                setattr(cca, name, value)
        cca.n_features_in_, cca.n_components_ = len(cca.x_weights_), len(cca.correlations_)
        return cca

    def image_encoder(self) -> Any:
        from fishermix.vision.encoders import open_encoders

        encoder = open_encoders(tuple(self.config["encoders"]), self.config["view"])
        if encoder.n_features != len(self.space.x_weights_):
            raise FishermixError(f"{self.folder} is damaged: image features and CCA differ in size")
        return encoder

    def hubness(self) -> HubnessCorrection | None:
        folder = hubness_folder(self.folder, self.config)
        if not folder.is_dir():
            if self.recipe.neighbours:
                raise FishermixError(
                    f"{folder} is missing: the model is incomplete, copy it or train it again"
                )
            return None
        from fishermix.model.hubness import HubnessCorrection

        return HubnessCorrection.load(folder, len(self.space.correlations_))

    def captioner(self) -> Captioner | None:
        if not (self.folder / CAPTIONER / "config.json").is_file():
            return None
        from fishermix.caption.captioner import Captioner

        return Captioner.load(self.folder / CAPTIONER)

    def __getstate__(self) -> dict[str, Any]:
        # Grows with the words it has seen, and holds a lock.
        return {name: value for name, value in vars(self).items() if name != "sentences"}


def _under(prefix: str, tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
