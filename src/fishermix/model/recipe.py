"""How the whole line is put together: every choice that the paper leaves open, as data."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from fishermix.errors import FishermixError

# The families of each mixture whose Fisher vectors stand side by side: the rows of the paper, and two more.
ROWS: dict[str, tuple[tuple[str, ...], ...]] = {
    "mean": (),
    "gmm": (("gaussian",),),
    "lmm": (("laplace",),),
    "hglmm": (("gaussian", "laplace"),),
    "gmm+hglmm": (("gaussian",), ("gaussian", "laplace")),
    "logistic": (("logistic",),),
    "four families": (("gaussian", "laplace", "logistic", "student-t"),),
}


@dataclass(frozen=True)
class Recipe:
    """One way to go from words and photographs to the joint space.

    row : which Fisher vectors, a key of `ROWS`
    components : of each mixture (the paper: 30)
    corpus_words : whitening and mixtures are learned on so many of the first word vectors
    whitening, l2_before, l2_after : of the word vectors, see `Whitening`
    encoders, view : networks side by side; None is each network's own view
    image_power, image_l2 : sign(z)|z|^power of a network's vector, then length 1
    kept : dimensions of the joint space (fewer if the image side has fewer)
    scales : powers of the correlations to choose from on the validation images
    reg_x, reg_y : ridges of the image and the sentence side to choose from on the validation images
    neighbours, bank : in the match of a sentence and a photo, see `HubnessCorrection`; 0: cosine.
        The banks hold so many training photos, and so many sentences
    """

    row: str = "hglmm"
    components: int = 30
    corpus_words: int = 100_000
    whitening: str = "ica"
    l2_before: bool = False
    l2_after: bool = False
    encoders: tuple[str, ...] = ("efficientnet-lite2",)
    view: str | None = None
    image_power: float = 1.0
    image_l2: bool = False
    kept: int = 1024
    scales: tuple[float, ...] = (1.0,)
    reg_x: tuple[float, ...] = (0.003, 0.01, 0.03, 0.1)
    reg_y: tuple[float, ...] = (0.003, 0.01, 0.03)
    neighbours: int = 0
    bank: int = 6_000
    stop_words: tuple[str, ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        if self.row not in ROWS:
            raise FishermixError(f"there is no row '{self.row}': choose among {', '.join(ROWS)}")

    @property
    def families(self) -> tuple[tuple[str, ...], ...]:
        return ROWS[self.row]

    def with_(self, **changes: Any) -> Recipe:
        return replace(self, **changes)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


_BEST = Recipe(
    row="gmm+hglmm",
    encoders=("efficientnet-lite2:depths",),
    view="flip",
    image_power=0.5,
    image_l2=True,
    kept=512,
    scales=(0.75, 1.0, 1.5),
    reg_x=(0.003, 0.01, 0.03),
    reg_y=(0.001, 0.003),
    neighbours=10,
)
RECIPES = {
    "paper": Recipe(),
    "best": _BEST,
    # The model in the package: one view, so that indexing is quick, and small enough to ship.
    "shipped": _BEST.with_(
        row="hglmm", view="squeeze", kept=384, reg_y=(0.002, 0.005), neighbours=5, bank=3_000
    ),
}


def recipe_named(name: str) -> Recipe:
    if name not in RECIPES:
        raise FishermixError(f"there is no recipe '{name}': choose among {', '.join(RECIPES)}")
    return RECIPES[name]
