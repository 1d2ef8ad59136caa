"""Writes one small folder of each kind with fishermix 0.1, and the numbers that it computed from them.

Run once, with 0.1 on the path, in this folder; `tests/test_old_folders.py` loads the results:

    PYTHONPATH=FISHERMIX_0_1/src python make_folders.py
"""

import json
import warnings
from pathlib import Path

import numpy as np
from fishermix.caption.dictionary import Dictionary, word_points
from fishermix.recipes import Recipe
from fishermix.vision.store import extract
from PIL import Image

from fishermix import HybridMixture, ImageEncoder, ImageTextModel, RegularizedCCA, WordVectors
from fishermix.caption.captioner import Captioner
from fishermix.caption.decoding import Weights
from fishermix.datasets.dataset import Dataset
from fishermix.retrieval.index import PhotoIndex

HERE = Path(".")
SENTENCES = ["red green", "a blue photo", "zorblax"]
RECIPE = Recipe(
    row="hglmm",
    components=2,
    kept=3,
    whitening="pca",
    view="squeeze",
    image_power=0.5,
    image_l2=True,
    scales=(0.5, 1.0),
    reg_x=(0.01,),
    reg_y=(0.01,),
    neighbours=2,
    bank=6,
    stop_words=("the",),
)


def rows_to_fit() -> np.ndarray:
    """(200, 3): two clusters, as `tests/test_old_folders.py` draws them too."""
    rng = np.random.default_rng(0)
    return 4.0 * rng.integers(2, size=(200, 1)) + rng.laplace(size=(200, 3))


def two_views() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(40, 4))
    return x, x @ rng.normal(size=(4, 5)) + rng.normal(size=(40, 5))


def describe_mixture(mixture) -> dict:
    return {
        "weights": mixture.weights_.tolist(),
        "locations": mixture.locations_.tolist(),
        "scales": mixture.scales_.tolist(),
        "choice": mixture.choice_.tolist(),
        "lower_bounds": list(mixture.lower_bounds_),
    }


def paint_photos(folder: Path, n: int) -> list[Path]:
    folder.mkdir(exist_ok=True)
    colors = [(220, 30, 30), (30, 160, 40), (30, 60, 220)]
    paths = []
    for number in range(n):
        paths.append(folder / f"{number}.png")
        image = Image.new("RGB", (24 + number, 24), colors[number % 3])
        image.paste((255, 255, 255), (4, 4, 8 + number, 12))
        image.save(paths[-1])
    return paths


def make_mixtures(expected: dict) -> None:
    mixture = HybridMixture(2, max_iter=5, tol=0, random_state=0).fit(rows_to_fit())
    mixture.save(HERE / "mixture")
    expected["mixture"] = describe_mixture(mixture) | {"score": mixture.score(rows_to_fit())}
    HybridMixture(2, max_iter=3, tol=0, random_state=0, checkpoint=HERE / "checkpoint").fit(rows_to_fit())
    whole = HybridMixture(2, max_iter=6, tol=0, random_state=0).fit(rows_to_fit())
    expected["checkpoint"] = describe_mixture(whole)


def make_cca(expected: dict) -> None:
    x, y = two_views()
    cca = RegularizedCCA(2, reg_x=0.1, reg_y=0.01, scale=1.5).fit(x, y)
    cca.save(HERE / "cca")
    expected["cca"] = {
        "params": cca.get_params(),
        "method": cca.method_,
        "ridges": [cca.x_ridge_, cca.y_ridge_],
        "correlations": cca.correlations_.tolist(),
        "x": cca.transform(x[:3]).tolist(),
        "y": cca.transform_y(y[:3]).tolist(),
    }


def make_word_vectors(expected: dict) -> WordVectors:
    words = ["red", "green", "blue", "a", "the", "photo", *(f"word{chr(97 + n)}" for n in range(26))]
    rng = np.random.default_rng(2)
    vectors = WordVectors(words, rng.normal(size=(len(words), 3)).astype(np.float32))
    vectors.save(HERE / "word_vectors")
    expected["word_vectors"] = {"words": words, "red": vectors["red"].tolist()}
    return vectors


def make_model(vectors: WordVectors, expected: dict, scratch: Path) -> ImageTextModel:
    paths = paint_photos(scratch, 12)
    sentences = [f"{('red', 'green', 'blue')[number % 3]} photo" for number in range(12)]
    splits = np.array(["train"] * 9 + ["dev"] * 3)
    names = [path.name for path in paths]
    dataset = Dataset("tiny", names, paths, sentences, np.arange(12), splits)
    model = ImageTextModel(vectors, RECIPE).fit(dataset)
    model.report["seconds"] = {}
    model.save(HERE / "model")

    rng = np.random.default_rng(3)
    words = ["ENDSENT", "red", "green", "photo"]
    points = np.concatenate([np.zeros((1, 3), np.float32), word_points(words[1:], model.encode_text, 3)[0]])
    shapes = {
        "input_weights": (16, 3),
        "recurrent_weights": (16, 4),
        "gate_bias": (16,),
        "output_weights": (4, 4),
        "output_bias": (4,),
    }
    weights = Weights(**{name: 3 * rng.normal(size=of).astype(np.float32) for name, of in shapes.items()})
    captioner = Captioner(Dictionary(words), points, weights, model.space_key)
    captioner.save(HERE / "model" / "captioner")
    return ImageTextModel.load(HERE / "model")


def describe_model(model: ImageTextModel, photos: list[Path]) -> dict:
    features = np.random.default_rng(4).gamma(0.3, size=(2, len(model.cca.x_weights_)))
    return {
        "text": model.encode_text(SENTENCES).tolist(),
        "points": model.image_points(features).tolist(),
        "similarity": model.similarity(SENTENCES, photos).tolist(),
        "captions": model.caption(photos),
        "key": model.key,
        "space_key": model.space_key,
        "recipe": model.recipe.as_json(),
    }


def main() -> None:
    warnings.simplefilter("ignore")
    expected: dict = {}
    make_mixtures(expected)
    make_cca(expected)
    vectors = make_word_vectors(expected)
    photos = paint_photos(HERE / "photos", 3)
    model = make_model(vectors, expected, HERE / "scratch")
    expected["model"] = describe_model(model, photos)
    paint_photos(HERE / "photos", 3)  # the store remembers no path of a file that has just changed
    found = extract(photos, ImageEncoder(), HERE / "features")
    expected["features"] = {
        "sum": found.features.sum(axis=1).tolist(),
        "first": found.features[:, :5].tolist(),
    }
    with PhotoIndex(HERE / "photos", model, HERE / "index") as index:
        index.update()
        expected["index"] = [[hit.path, hit.score] for hit in index.search("a red photo", n=3)]
    (HERE / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
