"""The parameters of a saved mixture and no more: what the Fisher vectors of a few rows need.

Light to import, so that a search does not wait for scikit-learn and a compiler.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fishermix.errors import FishermixError
from fishermix.mixture.families import Family, family_from_config
from fishermix.storage import require_tensor

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix


@dataclass(frozen=True)
class FittedParameters:
    """The fitted attributes of a `Mixture`, under the same names."""

    families_: list[Family]
    weights_: np.ndarray
    locations_: np.ndarray
    scales_: np.ndarray
    choice_: np.ndarray

    @classmethod
    def from_tensors(
        cls, config: Mapping[str, Any], tensors: Mapping[str, np.ndarray], where: str | os.PathLike
    ) -> FittedParameters:
        """Out of what `Mixture.to_tensors` gave; `where` is named in what goes wrong."""
        families = checked_families(config, where)
        weights, choice = checked_choice(tensors, len(families), where)
        of_family = checked_fits(tensors, ("location", "scale"), (len(families), *choice.shape), where)
        locations, scales = (np.take_along_axis(part, choice[None], 0)[0] for part in of_family.values())
        return cls(families, weights, locations, scales, choice)

    def sparse_posteriors(self, X: np.ndarray, threshold: float) -> csr_matrix:
        """`Mixture.sparse_posteriors`."""
        from fishermix.mixture.mixture import Mixture

        mixture = Mixture(len(self.weights_))
        mixture.n_features_in_ = self.choice_.shape[1]
        for name, value in vars(self).items():
            setattr(mixture, name, value)
        return mixture.sparse_posteriors(X, threshold)


def checked_families(config: Mapping[str, Any], where: str | os.PathLike) -> list[Family]:
    """The families that a saved mixture chooses among."""
    try:
        return [family_from_config(family) for family in config["families"]]
    except (KeyError, TypeError) as error:
        raise FishermixError(f"{where} lacks {error}: the file is damaged") from error


def checked_choice(
    tensors: Mapping[str, np.ndarray], n_families: int, where: str | os.PathLike
) -> tuple[np.ndarray, np.ndarray]:
    """The weights (K,) and the choice (K, D) of a saved mixture."""
    weights = require_tensor(tensors, "weights", (None,), where)
    if not n_families or len(weights) == 0 or (weights <= 0).any() or not np.isclose(weights.sum(), 1):
        raise FishermixError(f"{where}: the weights are not positive numbers that sum to one")
    choice = require_tensor(tensors, "choice", (len(weights), None), where)
    if choice.dtype.kind not in "iu" or (choice < 0).any() or (choice >= n_families).any():
        raise FishermixError(f"{where}: tensor 'choice' does not number the {n_families} families")
    return weights, choice.astype(np.int64)


def checked_fits(
    tensors: Mapping[str, np.ndarray], names: Sequence[str], shape: tuple[int, ...], where: str | os.PathLike
) -> dict[str, np.ndarray]:
    """Tensors (families, K, D) of a saved mixture, "scale" among them."""
    parts = {name: require_tensor(tensors, name, shape, where) for name in names}
    if (parts["scale"] <= 0).any():
        raise FishermixError(f"{where}: tensor 'scale' is not positive everywhere")
    return parts
