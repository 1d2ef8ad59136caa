"""A hundred queries as people type them, on a mixed folder whose right photos are known by their captions.

    python benchmarks/queries.py --flickr8k DIR --coco DIR --features WORK [--model MODEL] [--markdown]

The folder: the test photos of Flickr8K, 1,000 test photos of COCO, and the pictures of scikit-image and
scikit-learn. A photo is right if its captions match all patterns of the query. A query is good at finding if
the best photo is right, or most of the first five are; a query without a right photo, if it says so.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from fishermix_lab.datasets.readers import open_dataset
from fishermix_lab.features import extract
from fishermix_photos import ImageTextModel
from fishermix_photos.search.calibration import Probabilities, find_band, measure_scale, read_hubness
from fishermix_photos.search.terms import parse_query
from fishermix_photos.search.vectors import embed_terms

FIRST = 5
PACKAGED = {
    "skimage/data/astronaut.png": "a woman astronaut in a space suit, portrait, american flag",
    "skimage/data/brick.png": "a brick wall, bricks",
    "skimage/data/camera.png": "a man with a camera on a tripod, photographer, black and white",
    "skimage/data/chelsea.png": "a cat, the face of a cat",
    "skimage/data/coffee.png": "a cup of coffee with a spoon on a table",
    "skimage/data/coins.png": "coins, money",
    "skimage/data/grass.png": "grass, lawn",
    "skimage/data/gravel.png": "gravel, stones",
    "skimage/data/hubble_deep_field.jpg": "galaxies, stars in the night sky, space",
    "skimage/data/moon.png": "the surface of the moon, craters",
    "skimage/data/motorcycle_left.png": "a motorcycle in a garage",
    "skimage/data/motorcycle_right.png": "a motorcycle in a garage",
    "skimage/data/page.png": "a page of text, a document",
    "skimage/data/text.png": "handwriting, text, equations",
    "skimage/data/retina.jpg": "the retina of an eye",
    "skimage/data/rocket.jpg": "a rocket launch, launch pad",
    "sklearn/datasets/images/china.jpg": "a chinese temple, building, pagoda",
    "sklearn/datasets/images/flower.jpg": "a flower, red dahlia, petals",
}
# One query per line, then what captions of right photos contain: all of the patterns, in any caption.
QUERIES = r"""
a dog | dogs?|puppy
two dogs running on a beach | dogs & beach|shore|sand|ocean
a black dog in the snow | black dog|dog.*black & snow
a dog catching a frisbee | dogs? & frisbee|disc
a dog jumping over a hurdle | dogs? & hurdle|obstacle|bar|jump
a dog swimming with a stick | dogs? & stick|branch & water|swim
a brown dog in the grass | brown dog|dog.*brown & grass
a cat | cats?|kitten
a cat on a bed | cats?|kitten & bed|blanket
a cat and a laptop | cats?|kitten & laptop|computer|keyboard
a giraffe | giraffes?
giraffes next to a tree | giraffes? & trees?
zebras | zebras?
an elephant | elephants?
a baby elephant with its mother | elephants? & baby|mother|young|small
a bear | bears?
a teddy bear | teddy|stuffed
cows on a field | cows?|cattle & field|grass|pasture
sheep | sheep|lambs?
a horse | horses?
people riding horses | horses? & rid(?:e|es|ing|ers?)
a bird on a branch | birds? & branch|tree|perch
birds on the water | birds?|ducks?|gulls?|geese & water|lake|ocean|beach|pond
a pizza | pizzas?
a slice of pizza on a plate | pizzas? & plate & slices?
a birthday cake | cakes? & birthday|candles?
a sandwich | sandwich(?:es)?|burger
bananas | bananas?
broccoli | broccoli
a bowl of fruit | bowls? & fruits?|oranges?|apples?|bananas?
a donut | donuts?|doughnuts?
a hot dog | hot ?dogs?
a glass of wine | wine
a cup of coffee | coffee|cup
a kitchen | kitchen
a white bathroom with a toilet | bathroom|toilet & white|toilet
a bathroom sink | sinks?
a bed in a bedroom | beds?|bedroom
a living room with a couch | living room|couch|sofa
a laptop on a desk | laptops?|computers? & desk|table
a man talking on a phone | phone|cell
a television | tv|television
a train at a station | trains? & station|platform
a red double decker bus | bus(?:es)? & double|decker
an airplane in the sky | airplanes?|planes?|jets?|aircraft
boats on the water | boats?|ships?|sailboats?
a truck | trucks?
a motorcycle | motorcycles?|motorbikes?|motor bike
a man on a dirt bike | dirt bike|motocross|motorcycle|motorbike & jump|dirt|race|rid
a bicycle | bicycles?|bikes?
a boy doing a trick on a bike | bikes?|bicycles? & trick|jump|ramp|air
a traffic light | traffic lights?|stop lights?|traffic signals?
a stop sign | stop sign
a fire hydrant | hydrants?
a parking meter | parking meters?
a bench in a park | bench(?:es)?
a clock on a tower | clocks? & tower
a vase with flowers | vases? & flowers?
people with umbrellas | umbrellas?
kites in the sky | kites?
a surfer on a wave | surf(?:er|ers|ing|board|s)? & waves?|surf
a boy on a skateboard | skate ?board(?:er|ing|s)?|skater
a snowboarder jumping | snowboard(?:er|ing|s)? & jump|air|trick|flip
people skiing | ski(?:s|er|ers|ing)?
a tennis player | tennis
a baseball game | baseball|batter|bat
children playing soccer | soccer|football
a football player with the ball | football
a basketball player | basketball
a man climbing a rock | climb(?:s|ing|er)?|rappel & rock|cliff|mountain|wall
a child on a swing | swings?|swinging
a child on a slide | slides?|sliding
children in a swimming pool | pool
a boy jumping into water | jump|div & water|pool|lake
a girl in a pink dress | pink & girl & dress|shirt|outfit|dressed
a man in a red shirt | red & man & shirt|jacket
a bride | bride|wedding
a man playing guitar | guitars?
a crowd of people | crowd|group of people
people at a market | market|vendor|stand
a mountain with snow | mountains?|snowy & snow
a sunset | sunset|sun set|dusk
an astronaut | astronauts?
a rocket launch | rocket
stars and galaxies | galax(?:y|ies)|stars
the surface of the moon | moon & crater|surface
coins | coins?
a brick wall | brick
a chinese temple | temple|pagoda
a red flower | flowers? & red|dahlia
a page of text | page|document|handwriting
a penguin | penguins?
a submarine | submarines?
a volcano | volcano(?:es)?
a violin | violins?
a dinosaur | dinosaurs?
a camel in the desert | camels?
a lighthouse | lighthouse
a spider | spiders?
a helicopter | helicopters?
a castle | castle
a kangaroo | kangaroos?
a whale | whales?
"""


@dataclass(frozen=True)
class Result:
    """right : photos of the folder that match; found : those of them among the first five
    first : whether the best photo is right; probability : that of the best photo; None: not calibrated
    """

    query: str
    right: int
    found: int
    first: bool
    probability: float | None

    @property
    def says(self) -> str:
        return "" if self.probability is None else find_band(self.probability)

    @property
    def is_good(self) -> bool:
        if not self.right:
            return self.says == "unlikely"
        return self.first or self.found >= min(3, self.right)


def read_queries() -> list[tuple[str, list[re.Pattern[str]]]]:
    found = []
    for line in QUERIES.strip().splitlines():
        query, _, patterns = line.partition(" | ")
        found.append(
            (query, [re.compile(rf"\b(?:{part.strip()})\b", re.I) for part in patterns.split(" & ")])
        )
    return found


def is_right(captions: str, patterns: Sequence[re.Pattern[str]]) -> bool:
    return all(pattern.search(captions) for pattern in patterns)


def gather(flickr8k: str, coco: str) -> tuple[list[Path], list[str]]:
    """The photos of the mixed folder, and the captions of each, joined."""
    import sklearn

    paths, captions = [], []
    for dataset in (
        open_dataset(f"flickr8k:{flickr8k}").part("test"),
        open_dataset(f"folder:{coco}").sample("test", 1000),
    ):
        texts: list[list[str]] = [[] for _ in dataset.image_paths]
        for sentence, image in zip(dataset.sentences, dataset.image_of):
            texts[image].append(sentence)
        paths += dataset.image_paths
        captions += [" / ".join(some) for some in texts]
    packages = Path(sklearn.__file__).parent.parent
    for name, caption in PACKAGED.items():
        if (packages / name).is_file():
            paths.append(packages / name)
            captions.append(caption)
    return paths, captions


def run_queries(model: ImageTextModel, vectors: np.ndarray, captions: Sequence[str]) -> list[Result]:
    results = []
    for query, patterns in read_queries():
        encoded = embed_terms(parse_query(query), model, lambda photo: None)
        scores = vectors @ encoded.vector
        best = np.argsort(-scores)[:FIRST]
        right = np.array([is_right(text, patterns) for text in captions])
        scale = measure_scale(scores, encoded.n_words, hubness=read_hubness(encoded.vector))
        probability = None
        if model.calibration is not None and scale is not None:
            scale = replace(scale, kind=encoded.kind)
            probability = Probabilities(model.calibration, scale).of_scores(scores[best[:1]])[0]
        found = int(right[best].sum())
        results.append(Result(query, int(right.sum()), found, bool(right[best[0]]), probability))
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--flickr8k", required=True)
    parser.add_argument("--coco", required=True)
    parser.add_argument("--features", required=True, help="folder of the feature cache")
    parser.add_argument("--model", help="folder of a model; default: the model in the package")
    parser.add_argument("--markdown", action="store_true", help="print a table for docs/queries.md")
    arguments = parser.parse_args()
    model = ImageTextModel.load(arguments.model)
    paths, captions = gather(arguments.flickr8k, arguments.coco)
    features = extract(paths, model.image_encoder, arguments.features).features
    vectors = model.joint_space.csls_left(model.joint_space.embed_left(features))
    results = run_queries(model, vectors, captions)
    line = "| {} | {} | {} | {} | {} |" if arguments.markdown else "{:42} {:>5} {:>6} {:>5} {:>8}"
    print(line.format("query", "right", "in 5", "best", "says"))
    if arguments.markdown:
        print("|---|---|---|---|---|")
    for result in results:
        best = "right" if result.first else "wrong" if result.right else ""
        found = result.found if result.right else ""
        print(line.format(result.query, result.right, found, best, result.says))
    print()
    summarize(results, len(paths), model.key)


def summarize(results: Sequence[Result], photos: int, key: str) -> None:
    present = [result for result in results if result.right]
    absent = [result for result in results if not result.right]
    hits = sum(result.found for result in present)
    possible = sum(min(FIRST, result.right) for result in present)
    called = sum(result.says in ("likely", "maybe") for result in present)
    print(f"model {key}, {photos:,} photos, {len(results)} queries")
    print(f"best photo right         {sum(result.first for result in present)} of {len(present)}")
    print(f"right among the first 5  {hits} of {possible} possible")
    print(f"called likely or maybe   {called} of {len(present)}")
    print(f"absent, and said so      {sum(result.is_good for result in absent)} of {len(absent)}")
    print(f"good                     {sum(result.is_good for result in results)} of {len(results)}")


if __name__ == "__main__":
    main()
