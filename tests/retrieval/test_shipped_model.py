"""The model in the package on real photographs, through the same code as the commands."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from fishermix.cli import load_commands
from fishermix.cli.demo import copy_packaged_photos
from fishermix.datasets import open_dataset
from fishermix.evaluation.ranks import search_ranks, summary
from fishermix.model.model import SHIPPED, ImageTextModel
from fishermix.retrieval.explain import Explainer
from fishermix.retrieval.index import PhotoIndex

pytestmark = pytest.mark.skipif(not (SHIPPED / "config.json").is_file(), reason="no model in the package yet")


@pytest.fixture(scope="module")
def model():
    return ImageTextModel.load()


@pytest.fixture(scope="module")
def index(model, tmp_path_factory):
    folder = copy_packaged_photos(tmp_path_factory.mktemp("demo") / "photos")
    with PhotoIndex(folder, model, index=tmp_path_factory.mktemp("index") / "i") as index:
        index.update()
        yield index


@pytest.mark.parametrize(
    ("sentence", "photo"),
    [
        ("a cat looks at the camera", "chelsea.png"),
        ("a cup of coffee on a table", "coffee.png"),
        ("a motorcycle in a garage", "motorcycle_left.png"),
        ("a woman smiles at the camera", "astronaut.png"),
        ("a flower", "flower.jpg"),
    ],
)
def test_sentences_find_their_photographs(index, sentence, photo):
    best = index.search(sentence, n=2)
    assert photo in [hit.path for hit in best]


def test_a_photo_finds_itself(index, model):
    for path in ("coffee.png", "china.jpg"):
        hit = index.search(model.encode_images([index.folder / path])[0], n=1)[0]
        assert hit.path == path
        assert hit.score == pytest.approx(1, abs=1e-3)


def test_explanations_add_up_and_name_the_word(index, model):
    point = index.point_of(index.store.id_of("chelsea.png"))
    found = Explainer(model).explain("a cat looks at the camera", point)
    assert max(found.words, key=lambda part: part.drop).word == "cat"
    parts = Explainer(model)._split_cosine("a cat looks at the camera", point)
    assert parts.sum() + found.hubness == pytest.approx(found.score, abs=1e-3)
    listed = {hit.path: hit.score for hit in index.search("a cat looks at the camera", n=100)}
    assert found.score == pytest.approx(listed["chelsea.png"], abs=1e-5)
    assert all(component.near for component in found.components)


def test_an_explanation_has_the_score_of_the_search_also_with_punctuation(index, model):
    point = index.point_of(index.store.id_of("chelsea.png"))
    for sentence in ("A cat, asleep?! No: it's looking at the camera...", "zorblax cat", "a kittycat"):
        found = Explainer(model).explain(sentence, point)
        listed = {hit.path: hit.score for hit in index.search(sentence, n=100)}
        assert found.score == pytest.approx(listed["chelsea.png"], abs=1e-5)
        shares = [component.part for component in found.components]
        total = sum(shares) + found.transformer + found.rest + found.hubness
        assert total == pytest.approx(found.score, abs=1e-5)


def test_every_photo_gets_a_sentence(index, model):
    if model.captioner is None:
        pytest.skip("this model has no captioner")
    points = np.stack([index.point_of(index.store.id_of(path)) for path in index.store.stamps()])
    assert all(len(sentence.split()) >= 3 for sentence in model.captioner.caption(points))


@pytest.mark.real
def test_the_command_ranks_as_the_evaluation_does(flickr8k, model, tmp_path, monkeypatch):
    """Captions of test photos as queries through the command: the same ranks as
    `fishermix.evaluation.ranks`.
    """
    monkeypatch.setenv("FISHERMIX_HOME", str(tmp_path / "home"))
    test = open_dataset(f"flickr8k:{flickr8k}").part("test").select(np.arange(120))
    folder = tmp_path / "photos"
    folder.mkdir()
    for path in test.image_paths:
        (folder / path.name).write_bytes(path.read_bytes())
    with PhotoIndex(folder, model) as index:
        index.update()
        points = np.stack([index.point_of(index.store.id_of(path.name)) for path in test.image_paths])
    queries = np.arange(0, len(test.sentences), 20)
    expected = search_ranks(
        points,
        model.encode_text([test.sentences[q] for q in queries]),
        test.image_of[queries],
        model.hubness.of_images(points),
    )
    app, found = load_commands(), []
    monkeypatch.setattr(ImageTextModel, "load", classmethod(lambda cls, folder=None: model))
    for query in queries:
        command = [
            "--quiet",
            "search",
            test.sentences[query],
            str(folder),
            "--json",
            "-n",
            "120",
            "--no-update",
        ]
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, done.exception
        listed = json.loads(done.stdout)
        names = [entry["path"].rsplit("/", 1)[1] for entry in listed]
        found.append(names.index(test.image_names[test.image_of[query]]) + 1)
    np.testing.assert_array_equal(found, expected)
    assert summary(np.array(found))["r@10"] > 50
