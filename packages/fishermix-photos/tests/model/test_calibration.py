"""Probabilities of scores: the map, its fit, its measure, and the shipped one."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
from fishermix.errors import FishermixError
from fishermix_photos import PhotoLibrary
from fishermix_photos.cli.demo import copy_packaged_photos
from fishermix_photos.lab.datasets import Dataset
from fishermix_photos.model import SHIPPED, Calibration, ImageTextModel
from fishermix_photos.query import encode_terms, parse_query
from fishermix_photos.results import Query
from fishermix_photos.search import (
    LIKELY,
    MAYBE,
    Probabilities,
    ScoreScale,
    measure_scale,
)
from tiny_model import TinyModel

TOOL = Path(__file__).parents[4] / "tools/calibrate.py"
MAP = Calibration(model_key="tiny", intercept=-3, score=9, deviations=0.4, log_photos=-0.5, log_words=-0.6)


@pytest.fixture(scope="module")
def tool():
    """The program that fits calibrations."""
    spec = importlib.util.spec_from_file_location("calibrate", TOOL)
    sys.modules["calibrate"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_scale_is_that_of_quantiles():
    scores = np.random.default_rng(0).normal(0.2, 0.1, 501)
    scale = measure_scale(scores, 3)
    low, center = np.quantile(scores, [0.158655, 0.5])
    assert scale == ScoreScale(pytest.approx(center), pytest.approx(center - low), 501, 3)
    assert measure_scale(scores[:7], 3) is None
    assert measure_scale(scores[:7], 3, scores) == ScoreScale(scale.center, scale.spread, 7, 3)
    assert measure_scale(scores[:8], 3, scores) == measure_scale(scores[:8], 3)
    assert measure_scale(scores[:0], 3, scores) is None
    assert measure_scale(np.zeros(10), 0) == ScoreScale(0.0, pytest.approx(0.02), 10, 1)


def test_a_probability_grows_with_the_score_and_has_an_inverse():
    judge = Probabilities(MAP, ScoreScale(0.1, 0.08, 400, 2))
    scores = np.linspace(-0.5, 1, 50)
    found = judge.of_scores(scores)
    by_hand = -3 + 9 * 0.4 + 0.4 * (0.4 - 0.1) / 0.08 - 0.5 * np.log(400) - 0.6 * np.log(2)
    assert judge.of_scores([0.4]) == [pytest.approx(1 / (1 + np.exp(-by_hand)))]
    assert np.all(np.diff(found) > 0)
    for score, probability in zip(scores, found):
        assert judge.threshold(probability) == pytest.approx(score)
    falling = Probabilities(
        Calibration(model_key="", intercept=0, score=-1, deviations=0, log_photos=0, log_words=0), judge.scale
    )
    assert falling.threshold(0.5) == -np.inf


def test_a_fit_recovers_the_map_that_made_the_answers(tool):
    rng = np.random.default_rng(0)
    n = 40_000
    numbers = np.stack(
        [
            rng.normal(0.3, 0.1, n),
            rng.normal(2, 1, n),
            np.log(rng.choice([60, 250], n)),
            rng.uniform(0, 2, n),
        ],
        1,
    )
    best = np.arange(n) % 10 == 0
    truth = MAP.apply(numbers)
    trials = tool.Trials(numbers, rng.random(n) < truth, best)
    found = tool.fit_calibration([trials], "x")
    for name in ("intercept", "score", "deviations", "log_photos", "log_words"):
        assert getattr(found, name) == pytest.approx(getattr(MAP, name), rel=0.15, abs=0.1)
    bins = tool.measure_reliability(found.apply(trials.numbers), trials.right)
    assert tool.calibration_error(bins) < 0.01
    assert sum(one.photos for one in bins) == n


def test_the_calibration_error_is_the_mean_distance(tool):
    assert tool.calibration_error([tool.Bin(30, 0.2, 0.3), tool.Bin(10, 0.9, 0.5)]) == pytest.approx(
        (30 * 0.1 + 10 * 0.4) / 40
    )
    bins = tool.measure_reliability(np.array([0.05, 0.06, 0.95, 1.0]), np.array([False, True, True, True]))
    assert bins == [tool.Bin(2, pytest.approx(0.055), 0.5), tool.Bin(2, pytest.approx(0.975), 1.0)]


def test_salient_words_are_those_that_most_captions_of_a_photo_name(tool):
    sentences, image_of = [], []
    for image in range(8):
        animal = "giraffe" if image < 4 else "zebra"
        sentences += [f"a {animal} on grass", f"the {animal} stands", f"one tall {animal}", "an animal"]
        image_of += [image] * 4
    dataset = Dataset(
        "x", list("abcdefgh"), [Path(name) for name in "abcdefgh"], sentences, image_of, ["test"] * 8
    )
    found = tool.find_words(dataset)
    assert list(found) == sorted(found)  # a fit gives the same numbers each time
    assert set(found) == {"giraffe", "zebra"}
    assert found["giraffe"].tolist() == [3] * 4 + [0] * 4


def test_a_calibration_belongs_to_one_model(tmp_path):
    assert Calibration.load(tmp_path, "tiny") is None
    MAP.save(tmp_path)
    assert Calibration.load(tmp_path, "tiny") == MAP
    assert Calibration.load(tmp_path, "other") is None
    (tmp_path / "calibration.json").write_text('{"model_key": "tiny", "score": "high"}')
    with pytest.raises(FishermixError, match=r"calibration\.json"):
        Calibration.load(tmp_path, "tiny")


class CalibratedModel(TinyModel):
    calibration = MAP

    def score_training_photos(self, query):
        return np.linspace(-0.1, 0.3, 41)


def test_a_query_of_unknown_words_is_a_guess(tmp_path):
    judge = Probabilities(MAP, ScoreScale(0.1, 0.08, 400, 2), 0.15)
    assert judge.of_scores([0.9]) == [0.15]
    assert judge.threshold(MAYBE) > 1
    assert judge.threshold(0.1) == Probabilities(MAP, judge.scale).threshold(0.1)
    model = CalibratedModel()
    assert not encode_terms(parse_query("red zorblax"), model, None).is_guess


@pytest.mark.skipif(not (SHIPPED / "config.json").is_file(), reason="no model in the package yet")
def test_the_shipped_model_is_calibrated(tmp_path):
    """If this fails, the model changed: run tools/calibrate.py, as `make model` does."""
    model = ImageTextModel.load()
    assert model.calibration is not None
    model.save(tmp_path / "copy", half=True)
    assert ImageTextModel.load(tmp_path / "copy").calibration == model.calibration
    with PhotoLibrary(tmp_path / "library", model) as library:
        library.update([copy_packaged_photos(tmp_path / "photos")])

        def best(words):
            return library.search(Query(parse_query(words), n=1)).photos[0].probability

        assert best("a cat") > LIKELY
        assert max(map(best, ("a giraffe", "people playing baseball", "a slice of pizza"))) < MAYBE
        assert best("xqzzt") < MAYBE
        assert library.search("xqzzt").nothing_matches
    assert encode_terms(parse_query("the xqzzt"), model, None).is_guess
    assert not encode_terms(parse_query("an xqzzt cat"), model, None).is_guess


def test_a_photo_that_stands_out_of_a_burst_by_little_is_not_likely():
    burst = np.append(np.full(9, 0.10), 0.12)
    judge = Probabilities(ImageTextModel.load().calibration, measure_scale(burst, 2))
    assert max(judge.of_scores(burst)) < MAYBE
