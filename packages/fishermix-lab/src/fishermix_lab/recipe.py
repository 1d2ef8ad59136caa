"""Recipes: every choice that the paper leaves open, as data."""

from __future__ import annotations

import runpy
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from importlib import import_module
from typing import NamedTuple

from fishermix.errors import FishermixError
from fishermix.mixture import Family
from fishermix.mixture.families import REGISTERED, parse_families, register_family
from fishermix.saved import Size


class Variant(NamedTuple):
    """A row of the paper's tables: its label there, and the families of each mixture.

    The Fisher vectors of several mixtures are concatenated; without any, a sentence is the mean of its words.
    """

    label: str
    families: tuple[tuple[str, ...], ...]


VARIANTS = {
    "mean": Variant("Mean Vec", ()),
    "gmm": Variant("GMM", (("gaussian",),)),
    "lmm": Variant("LMM", (("laplace",),)),
    "hglmm": Variant("HGLMM", (("gaussian", "laplace"),)),
    "gmm+hglmm": Variant("GMM+HGLMM", (("gaussian",), ("gaussian", "laplace"))),
}


def find_variant(name: str) -> Variant:
    """A variant by its key in `VARIANTS`, or by its families.

    "/" separates the families offered to a mixture, "+" the mixtures: "gaussian+gaussian/laplace" is
    GMM+HGLMM.
    """
    families = tuple(tuple(mixture.split("/")) for mixture in name.split("+"))
    if name not in VARIANTS and not all(family in REGISTERED for mixture in families for family in mixture):
        raise FishermixError(
            f"There is no variant '{name}'. Choose one of {', '.join(VARIANTS)}, or families such as "
            "gaussian/laplace.",
            code="wrong_parameter",
        )
    return VARIANTS.get(name) or Variant(name, families)


@dataclass(frozen=True)
class Recipe:
    """One way from words and photos to the joint space.

    Parameters
    ----------
    variant
        The kind of sentence vector: a key of `VARIANTS`, or the names of families, see `find_variant`.
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
    families
        The families of each mixture, by their names or as `Family` objects, in place of those of `variant`:
        [["gaussian", MyFamily()]] is one mixture of two families.

    See Also
    --------
    fishermix_lab.recipe.find_recipe : the recipes by their names.

    Examples
    --------
    >>> Recipe(variant="gmm", mixture_components=10).mixtures
    [[Gaussian()]]
    >>> from fishermix.mixture import StudentT
    >>> Recipe(families=[["gaussian", StudentT(df=3.0)]]).mixtures
    [[Gaussian(), StudentT(df=3.0)]]
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
    families: Sequence[Sequence[str | Family]] | None = None

    def __post_init__(self) -> None:
        if not (self.reg_x and self.reg_y and self.correlation_powers):
            raise FishermixError(
                "reg_x, reg_y and correlation_powers need at least one value each.", code="wrong_parameter"
            )
        if isinstance(self.families, str):
            raise FishermixError(
                "families must be a list of lists such as [['gaussian', 'laplace']].", code="wrong_parameter"
            )
        if self.families is not None:
            names = ["/".join(family.name for family in mixture) for mixture in self.mixtures]
            object.__setattr__(self, "variant", "+".join(names))
        else:
            find_variant(self.variant)

    @property
    def mixtures(self) -> list[list[Family]]:
        """The families of each mixture."""
        families = find_variant(self.variant).families if self.families is None else self.families
        return [parse_families(mixture) for mixture in families]

    @property
    def stages(self) -> list[str]:
        """The stages that train and measure a model, see `fishermix_lab.stages`."""
        optional = {"mixture": self.mixtures, "sentence transformer": self.transformer}
        always = ["image features", "whitening", "sentence vectors", "joint space", "ranks"]
        return sorted([*always, *(stage for stage, wanted in optional.items() if wanted)])

    def describe(self) -> dict[str, object]:
        """The fields as JSON values; the families by their names and parameters.

        Returns
        -------
        fields : dict
        """
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        families = self.families and [[repr(family) for family in mixture] for mixture in self.mixtures]
        return values | {"families": families}

    def with_(self, **changes: object) -> Recipe:
        """A copy with these fields changed.

        Returns
        -------
        recipe : Recipe
        """
        return replace(self, **changes)  # type: ignore[arg-type]  # __post_init__ checks them


def load_family(place: str) -> Family:
    """Register a family of the command line, MODULE:CLASS or FILE.py:CLASS; this runs the user's code."""
    module, _, name = place.rpartition(":")
    try:
        is_file = module.endswith(".py")
        found = runpy.run_path(module).get(name) if is_file else getattr(import_module(module), name, None)
        if not (isinstance(found, type) and issubclass(found, Family)):
            raise FishermixError(
                f"--family {place}: there is no subclass of Family there. Write MODULE:CLASS.",
                code="wrong_parameter",
            )
        family = found()
    except (ImportError, OSError, SyntaxError, TypeError, ValueError) as error:
        raise FishermixError(f"--family {place}: {error}.", code="wrong_parameter") from error
    register_family(found)
    return family


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
    """A recipe by its name: "paper", "best" or "shipped".

    Returns
    -------
    recipe : Recipe

    Examples
    --------
    >>> find_recipe("paper").mixture_components
    30
    """
    if name not in RECIPES:
        raise FishermixError(
            f"There is no recipe '{name}'. Choose one of {', '.join(RECIPES)}.", code="wrong_parameter"
        )
    return RECIPES[name]
