"""Probabilities of scores: the map, its fit, its measure, and the shipped one."""

from pathlib import Path

import numpy as np
import pytest
from tiny_model import TinyModel, paint

from fishermix.cli.demo import copy_packaged_photos
from fishermix.datasets.dataset import Dataset
from fishermix.errors import FishermixError
from fishermix.experiments.calibration import (
    Bin,
    Trials,
    calibration_error,
    find_words,
    fit_calibration,
    measure_reliability,
    predict,
)
from fishermix.model.calibration import (
    Calibration,
    Judge,
    ScoreScale,
    load_calibration,
    measure_scale,
    save_calibration,
)
from fishermix.model.model import SHIPPED, ImageTextModel
from fishermix.retrieval.index import LIKELY, MAYBE, PhotoIndex
from fishermix.retrieval.query import encode_terms, parse_query

MAP = Calibration(model_key="tiny", intercept=-3, score=9, deviations=0.4, log_photos=-0.5, log_words=-0.6)


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
    judge = Judge(MAP, ScoreScale(0.1, 0.08, 400, 2))
    scores = np.linspace(-0.5, 1, 50)
    found = judge.find_probabilities(scores)
    by_hand = -3 + 9 * 0.4 + 0.4 * (0.4 - 0.1) / 0.08 - 0.5 * np.log(400) - 0.6 * np.log(2)
    assert judge.find_probabilities([0.4]) == [pytest.approx(1 / (1 + np.exp(-by_hand)))]
    assert np.all(np.diff(found) > 0)
    for score, probability in zip(scores, found):
        assert judge.find_score(probability) == pytest.approx(score)
    falling = Judge(
        Calibration(model_key="", intercept=0, score=-1, deviations=0, log_photos=0, log_words=0), judge.scale
    )
    assert falling.find_score(0.5) == -np.inf


def test_a_fit_recovers_the_map_that_made_the_answers():
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
    truth = predict(MAP, Trials(numbers, np.zeros(n, bool), best))
    trials = Trials(numbers, rng.random(n) < truth, best)
    found = fit_calibration([trials], "x")
    for name in ("intercept", "score", "deviations", "log_photos", "log_words"):
        assert getattr(found, name) == pytest.approx(getattr(MAP, name), rel=0.15, abs=0.1)
    bins = measure_reliability(predict(found, trials), trials.right)
    assert calibration_error(bins) < 0.01
    assert sum(one.photos for one in bins) == n


def test_the_calibration_error_is_the_mean_distance():
    assert calibration_error([Bin(30, 0.2, 0.3), Bin(10, 0.9, 0.5)]) == pytest.approx(
        (30 * 0.1 + 10 * 0.4) / 40
    )
    bins = measure_reliability(np.array([0.05, 0.06, 0.95, 1.0]), np.array([False, True, True, True]))
    assert bins == [Bin(2, pytest.approx(0.055), 0.5), Bin(2, pytest.approx(0.975), 1.0)]


def test_salient_words_are_those_that_most_captions_of_a_photo_name():
    sentences, image_of = [], []
    for image in range(8):
        animal = "giraffe" if image < 4 else "zebra"
        sentences += [f"a {animal} on grass", f"the {animal} stands", f"one tall {animal}", "an animal"]
        image_of += [image] * 4
    dataset = Dataset(
        "x", list("abcdefgh"), [Path(name) for name in "abcdefgh"], sentences, image_of, ["test"] * 8
    )
    found = find_words(dataset)
    assert list(found) == sorted(found)  # a fit gives the same numbers each time
    assert set(found) == {"giraffe", "zebra"}
    assert found["giraffe"].tolist() == [3] * 4 + [0] * 4


def test_a_calibration_belongs_to_one_model(tmp_path):
    assert load_calibration(tmp_path, "tiny") is None
    save_calibration(tmp_path, MAP)
    assert load_calibration(tmp_path, "tiny") == MAP
    assert load_calibration(tmp_path, "other") is None
    (tmp_path / "calibration.json").write_text('{"model_key": "tiny", "score": "high"}')
    with pytest.raises(FishermixError, match=r"calibration\.json"):
        load_calibration(tmp_path, "tiny")


class CalibratedModel(TinyModel):
    calibration = MAP

    def score_training_photos(self, query):
        return np.linspace(-0.1, 0.3, 41)


def test_the_threshold_is_the_score_of_photos_that_may_be_right(tmp_path):
    for number in range(9):
        paint(tmp_path / "p" / f"{number}.png", *["red"] * number, *["blue"] * (9 - number))
    with PhotoIndex(tmp_path / "p", CalibratedModel(), tmp_path / "i") as index:
        index.update()
        query = index.encode_query("a red photo")
        assert query.words == 3
        judge, hits = index.judge(query), index.search(query, 9)
        limit = index.estimate_threshold(query, hits)
        assert judge.find_probabilities([limit]) == [pytest.approx(MAYBE)]
        few = index.search(query, 9, "auto")
        assert few == [hit for hit in hits if judge.find_probabilities([hit.score])[0] >= MAYBE]
        assert 0 < len(few) < 9
        assert index.judge(index.encode_query(f"photo:{hits[0].id}")) is None  # photos go by the cosine


def test_a_folder_of_few_photos_is_judged_by_the_training_photos(tmp_path):
    paint(tmp_path / "p" / "red.png", "red")
    paint(tmp_path / "p" / "blue.png", "blue")
    with PhotoIndex(tmp_path / "p", CalibratedModel(), tmp_path / "i") as index:
        index.update()
        query = index.encode_query("red")
        scale = index.judge(query).scale
        assert (scale.center, scale.photos) == (pytest.approx(0.1), 2)
        assert scale.spread == pytest.approx(0.1 + 0.1 - 0.4 * 0.158655)


def test_a_query_of_unknown_words_is_a_guess(tmp_path):
    judge = Judge(MAP, ScoreScale(0.1, 0.08, 400, 2), 0.15)
    assert judge.find_probabilities([0.9]) == [0.15]
    assert judge.find_score(MAYBE) > 1
    assert judge.find_score(0.1) == Judge(MAP, judge.scale).find_score(0.1)
    model = CalibratedModel()
    assert not encode_terms(parse_query("red zorblax"), model).is_guess


@pytest.mark.skipif(not (SHIPPED / "config.json").is_file(), reason="no model in the package yet")
def test_the_shipped_model_is_calibrated(tmp_path):
    """If this fails, the model changed: run tools/calibrate.py, as `make model` does."""
    model = ImageTextModel.load()
    assert model.calibration is not None
    model.save(tmp_path / "copy", half=True)
    assert ImageTextModel.load(tmp_path / "copy").calibration == model.calibration
    with PhotoIndex(copy_packaged_photos(tmp_path / "p"), model, tmp_path / "i") as index:
        index.update()

        def best(words):
            query = index.encode_query(words)
            return index.judge(query).find_probabilities([index.search(query, 1)[0].score])[0]

        assert best("a cat") > LIKELY
        assert max(map(best, ("a giraffe", "people playing baseball", "a slice of pizza"))) < MAYBE
        assert index.encode_query("the xqzzt").is_guess
        assert not index.encode_query("an xqzzt cat").is_guess
        assert best("xqzzt") < MAYBE
        assert index.search("xqzzt", 5, "auto") == []


def test_a_photo_that_stands_out_of_a_burst_by_little_is_not_likely():
    burst = np.append(np.full(9, 0.10), 0.12)
    judge = Judge(ImageTextModel.load().calibration, measure_scale(burst, 2))
    assert max(judge.find_probabilities(burst)) < MAYBE
