"""The model in the package on real photographs, through the same code as the commands."""

import json

import numpy as np
import pytest
from fishermix.joint.ranks import summary, task_ranks
from fishermix_lab.datasets.readers import open_dataset
from fishermix_photos.cli import load_commands
from fishermix_photos.cli.demo import copy_packaged_photos
from fishermix_photos.library import PhotoLibrary
from fishermix_photos.model.model import ImageTextModel
from fishermix_photos.model.saved import SHIPPED
from fishermix_photos.search.results import Query
from fishermix_photos.search.terms import parse_query
from typer.testing import CliRunner

pytestmark = pytest.mark.skipif(not (SHIPPED / "config.json").is_file(), reason="no model in the package yet")


@pytest.fixture(scope="module")
def model():
    return ImageTextModel.load()


@pytest.fixture(scope="module")
def library(model, tmp_path_factory):
    folder = copy_packaged_photos(tmp_path_factory.mktemp("demo") / "photos")
    with PhotoLibrary(tmp_path_factory.mktemp("library"), model) as library:
        library.update([folder])
        yield library


def list_photos(library):
    return {photo.relative: photo for photo in library.browse(Query(n=100)).photos}


def list_scores(library, sentence):
    return {
        photo.relative: photo.score for photo in library.search(Query(parse_query(sentence), n=100)).photos
    }


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
def test_sentences_find_their_photographs(library, sentence, photo):
    assert photo in list(list_scores(library, sentence))[:2]


def test_a_photo_finds_itself(library):
    for path in ("coffee.png", "china.jpg"):
        point = library.encode_photo(list_photos(library)[path].path)
        [photo] = library.similar(point, n=1).photos
        assert photo.relative == path
        assert photo.score == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("sentence", ["a cat looks at the camera", "zorblax cat", "a kittycat"])
def test_explanations_have_the_score_of_the_search(library, sentence):
    found = library.explain(sentence, list_photos(library)["chelsea.png"].id)
    assert max(found.words, key=lambda part: part.drop).word in ("cat", "kittycat")
    assert found.score == pytest.approx(list_scores(library, sentence)["chelsea.png"], abs=1e-5)


@pytest.mark.slow
def test_every_photo_gets_a_sentence(library):
    for photo in list(list_photos(library).values())[:5]:
        assert len(library.describe(photo.id).sentence.split()) >= 3


@pytest.mark.real
def test_the_command_ranks_as_the_evaluation_does(flickr8k, model, tmp_path, monkeypatch):
    """Captions of test photos as queries through the command: the same ranks as
    `fishermix.joint.ranks`.
    """
    monkeypatch.setenv("FISHERMIX_HOME", str(tmp_path / "home"))
    test = open_dataset(f"flickr8k:{flickr8k}").part("test").select(np.arange(120))
    folder = tmp_path / "photos"
    folder.mkdir()
    for path in test.image_paths:
        (folder / path.name).write_bytes(path.read_bytes())
    with PhotoLibrary(model=model) as library:
        library.update([folder])
        points = np.stack([library.encode_photo(folder / path.name) for path in test.image_paths])
    queries = np.arange(0, len(test.sentences), 20)
    expected = task_ranks(
        points,
        model.encode_queries([test.sentences[q] for q in queries]),
        test.image_of[queries],
        model.joint_space.hubness.of_left(points),
        tasks=["search"],
    )["search"]
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
