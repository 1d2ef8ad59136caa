"""Recipes: every choice that the paper leaves open, as data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from fishermix.errors import FishermixError
from fishermix.storage import Size


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
    csls_neighbors
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

    See Also
    --------
    fishermix_photos.lab.recipe.find_recipe : the recipes by their names.

    Examples
    --------
    >>> Recipe(variant="gmm", mixture_components=10).families
    (('gaussian',),)
    """

    variant: str = "hglmm"
    mixture_components: Size = 30
    corpus_words: Size = 100_000
    whitening: str = "ica"
    l2_before: bool = False
    l2_after: bool = False
    encoders: tuple[str, ...] = ("efficientnet-lite2",)
    view: str | None = None
    image_power: float = 1.0
    image_l2: bool = False
    n_components: Size = 1024
    correlation_powers: tuple[float, ...] = (1.0,)
    reg_x: tuple[float, ...] = (0.003, 0.01, 0.03, 0.1)
    reg_y: tuple[float, ...] = (0.003, 0.01, 0.03)
    csls_neighbors: int = 0
    csls_bank_size: Size = 6_000
    stop_words: tuple[str, ...] = ()
    transformer: str | None = None
    transformer_weight: float = 0.7  # best on Flickr8K's dev photos; 0.5 and 1 are within 1.3 points
    seed: int = 0

    def __post_init__(self) -> None:
        if self.variant not in VARIANTS:
            raise FishermixError(
                f"There is no variant '{self.variant}'. Choose one of {', '.join(VARIANTS)}."
            )

    @property
    def families(self) -> tuple[tuple[str, ...], ...]:
        """The families of each mixture."""
        return VARIANTS[self.variant].families

    def with_(self, **changes: Any) -> Recipe:
        """A copy with these fields changed.

        Returns
        -------
        recipe : Recipe
        """
        return replace(self, **changes)


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
    csls_neighbors=10,
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
        csls_neighbors=5,
        csls_bank_size=3_000,
    ),
}


def find_recipe(name: str) -> Recipe:
    """A recipe by its name.

    Parameters
    ----------
    name : {"paper", "best", "shipped"}
        The name.

    Returns
    -------
    recipe : Recipe

    Examples
    --------
    >>> find_recipe("paper").mixture_components
    30
    """
    if name not in RECIPES:
        raise FishermixError(f"There is no recipe '{name}'. Choose one of {', '.join(RECIPES)}.")
    return RECIPES[name]
