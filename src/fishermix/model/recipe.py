"""Recipes: every choice that the paper leaves open, as data."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from fishermix.aliases import RECIPE_KEYS
from fishermix.errors import FishermixError
from fishermix.schemas import Count, Name, Number, Positive, Seed, Size, Text, parse


class Variant(NamedTuple):
    """A row of the paper's tables: its label there, and the families of each mixture.

    The Fisher vectors of several mixtures are concatenated; without a mixture a sentence is the mean of its
    word vectors.
    """

    label: str
    families: tuple[tuple[str, ...], ...]


# The variants of the paper, and two more.
VARIANTS = {
    "mean": Variant("Mean Vec", ()),
    "gmm": Variant("GMM", (("gaussian",),)),
    "lmm": Variant("LMM", (("laplace",),)),
    "hglmm": Variant("HGLMM", (("gaussian", "laplace"),)),
    "gmm+hglmm": Variant("GMM+HGLMM", (("gaussian",), ("gaussian", "laplace"))),
    "logistic": Variant("Logistic", (("logistic",),)),
    "four families": Variant("Four families", (("gaussian", "laplace", "logistic", "student-t"),)),
}


@dataclass(frozen=True)
class Recipe:
    """One way from words and photos to the joint space.

    Parameters
    ----------
    variant
        The kind of sentence vector, a key of `VARIANTS`.
    mixture_components
        Number of components of each mixture (30 in the paper).
    corpus_words
        Whitening and mixtures are fitted to this many of the first word vectors.
    whitening, l2_before, l2_after
        How the word vectors are whitened, see `Whitening`.
    encoders, view
        Image networks, whose vectors are concatenated; None is each network's default view.
    image_power, image_l2
        `sign(z)|z|^power` of a network's vector, then scaling to unit length.
    n_components
        Dimensions of the joint space (fewer if a side has fewer features).
    correlation_powers
        Powers of the correlations to choose from on the validation images.
    reg_x, reg_y
        Ridges of the image and the sentence side to choose from on the validation images.
    csls_neighbours
        K of the hubness correction, see `HubnessCorrection`; 0 ranks by the cosine alone.
    csls_bank_size
        Number of training photos, and of training sentences, that it compares with.
    stop_words
        Words that sentence vectors ignore.
    transformer, transformer_weight
        A sentence transformer whose vectors, times the weight, are put next to the Fisher vectors; None
        for none, as in the paper.
    seed
        Seeds whitening, mixtures, held-out images and the banks.
    *values, **fields
        The fields, by position or by name; names of 0.1 are accepted.
    """

    variant: Name = "hglmm"
    mixture_components: Size = 30
    corpus_words: Size = 100_000
    whitening: Name = "ica"
    l2_before: bool = False
    l2_after: bool = False
    encoders: tuple[Text, ...] = ("efficientnet-lite2",)
    view: Name | None = None
    image_power: Positive = 1.0
    image_l2: bool = False
    n_components: Size = 1024
    correlation_powers: tuple[Number, ...] = (1.0,)
    reg_x: tuple[Positive, ...] = (0.003, 0.01, 0.03, 0.1)
    reg_y: tuple[Positive, ...] = (0.003, 0.01, 0.03)
    csls_neighbours: Count = 0
    csls_bank_size: Size = 6_000
    stop_words: tuple[Text, ...] = ()
    transformer: Text | None = None
    transformer_weight: Positive = 0.7  # best on Flickr8K's dev photos; 0.5 and 1 are within 1.3 points
    seed: Seed = 0

    def __post_init__(self) -> None:
        if self.variant not in VARIANTS:
            raise FishermixError(
                f"There is no variant '{self.variant}'. Choose one of {', '.join(VARIANTS)}."
            )

    @property
    def families(self) -> tuple[tuple[str, ...], ...]:
        return VARIANTS[self.variant].families

    def with_(self, **changes: Any) -> Recipe:
        """A copy with these fields changed."""
        return replace(self, **_rename_keys(changes))

    def as_json(self) -> dict[str, Any]:
        """The fields as values of JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Recipe:
        """Read what `as_json` gave, of this version or of 0.1; an unknown key is an error.

        Parameters
        ----------
        values : dict
            The fields by name.
        """
        fields = upgrade_recipe(values)
        unknown = set(fields) - set(cls.__dataclass_fields__) if isinstance(fields, Mapping) else set()
        if unknown:
            names = ", ".join(sorted(f"'{str(name)[:100]}'" for name in unknown))
            raise FishermixError(
                f"A recipe has no key {names}. Its keys are {', '.join(cls.__dataclass_fields__)}."
            )
        return parse(fields, cls, "the recipe")

    def __getattr__(self, name: str) -> Any:
        if name in RECIPE_KEYS:
            (new,) = _rename_keys({name: None})
            return getattr(self, new)
        raise AttributeError(f"'Recipe' object has no attribute '{name}'")


def upgrade_recipe(fields: Any) -> Any:
    """The fields of a saved recipe under today's names; whatever is not an object is left as it is."""
    if not isinstance(fields, Mapping):
        return fields
    return {RECIPE_KEYS.get(name, name): value for name, value in fields.items()}


def upgrade_model(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of a saved model, with its recipe under today's names."""
    recipe = upgrade_recipe(fields.get("recipe"))
    for name in ("variant", "image_power", "image_l2"):  # a default would give other points
        if isinstance(recipe, dict) and name not in recipe:
            raise FishermixError(f"'recipe.{name}' is missing in config.json of the model. It is damaged.")
    return fields | {"recipe": recipe}


def _accept_old_keys(given_init: Any) -> Any:
    def init(self: Recipe, *values: Any, **fields: Any) -> None:
        given_init(self, *values, **_rename_keys(fields))

    return init


def _rename_keys(fields: Mapping[str, Any]) -> dict[str, Any]:
    for name in fields:
        if name in RECIPE_KEYS:
            message = f"The recipe key '{name}' is now '{RECIPE_KEYS[name]}'."
            warnings.warn(message, DeprecationWarning, stacklevel=3)
    return {RECIPE_KEYS.get(name, name): value for name, value in fields.items()}


Recipe.__init__ = _accept_old_keys(Recipe.__init__)  # type: ignore[method-assign]

_BEST = Recipe(
    variant="gmm+hglmm",
    encoders=("efficientnet-lite2:depths",),
    view="flip",
    image_power=0.5,
    image_l2=True,
    n_components=512,
    correlation_powers=(0.75, 1.0, 1.5),
    reg_x=(0.003, 0.01, 0.03),
    reg_y=(0.001, 0.003),
    csls_neighbours=10,
    transformer="all-MiniLM-L6-v2",
)
RECIPES = {
    "paper": Recipe(),
    "best": _BEST,
    # The model in the package: one view, so that indexing is fast, and small enough to ship.
    "shipped": _BEST.with_(
        mixture_components=10,
        view="squeeze",
        n_components=384,
        reg_y=(0.002, 0.005),
        csls_neighbours=5,
        csls_bank_size=3_000,
    ),
}


def find_recipe(name: str) -> Recipe:
    if name not in RECIPES:
        raise FishermixError(f"There is no recipe '{name}'. Choose one of {', '.join(RECIPES)}.")
    return RECIPES[name]
