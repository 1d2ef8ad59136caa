"""Probabilities of scores: the map, its fit, its measure, and the shipped one."""

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fishermix_photos import PhotoLibrary
from fishermix_photos.cli.demo import copy_packaged_photos
from fishermix_photos.model.calibration import Calibration
from fishermix_photos.model.model import ImageTextModel
from fishermix_photos.model.saved import SHIPPED
from fishermix_photos.search.calibration import (
    LIKELY,
    MAYBE,
    Probabilities,
    ScoreScale,
    find_logits,
    find_probabilities,
    make_probabilities,
    measure_scale,
    word_verdict,
)
from fishermix_photos.search.reading import read_terms
from fishermix_photos.search.results import Query
from fishermix_photos.search.terms import parse_query
from fishermix_photos.search.vectors import QueryKind, QueryVector, embed_terms, find_query_kind
from msgspec import structs
from refuses import refuses
from tiny_model import TinyModel, TrainingScores

TOOL = Path(__file__).parents[4] / "tools/calibrate.py"
MAP = Calibration(
    model_key="tiny",
    intercept=-3,
    score=9,
    deviations=0.4,
    log_photos=-0.5,
    log_words=-0.6,
    hubness=2,
    nothing=0.1,
    understood=0.3,
)


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
    judge = Probabilities(MAP, ScoreScale(0.1, 0.08, 800, 2, hubness=0.3))
    scores = np.linspace(-0.5, 1, 50)
    found = judge.of_scores(scores)
    by_hand = -3 + 9 * 0.4 + 0.4 * (0.4 - 0.1) / 0.08 - 0.5 * np.log(800) - 0.6 * np.log(2) + 2 * 0.3
    assert judge.of_scores([0.4]) == [pytest.approx(1 / (1 + np.exp(-by_hand)))]
    assert np.all(np.diff(found) > 0)
    for score, probability in zip(scores, found):
        assert judge.threshold(probability) == pytest.approx(score)
    falling = Probabilities(
        Calibration(model_key="", intercept=0, score=-1, deviations=0, log_photos=0, log_words=0), judge.scale
    )
    assert falling.threshold(0.5) == -np.inf


@pytest.mark.parametrize(
    ("query", "kind"),
    [
        ("a dog", QueryKind()),
        ("A Red car", QueryKind(color=True)),
        ("two men in orange shirts", QueryKind(color=True, number=True, place=True)),
        ("2 dogs", QueryKind(number=True)),
        ("a tired onlooker", QueryKind()),
        ("a boat - blue sky", QueryKind()),
        ("a bowl with no fruit in it", QueryKind()),
        ("a cat under a table without people", QueryKind(place=True)),
    ],
)
def test_a_query_has_a_kind(query, kind):
    assert find_query_kind(read_terms(parse_query(query)).terms) == kind


def test_the_kind_of_a_query_shifts_its_probabilities():
    shifted = structs.replace(MAP, color=-1.0, number=0.25, place=-0.5)
    scale = ScoreScale(0.1, 0.08, 800, 2)
    plain = Probabilities(shifted, scale).of_scores([0.4])[0]
    for kind, weight in (
        (QueryKind(color=True, place=True), -1.5),
        (QueryKind(number=True), 0.25),
    ):
        judge = Probabilities(shifted, replace(scale, kind=kind))
        odds = plain / (1 - plain) * np.exp(weight)
        assert judge.of_scores([0.4]) == [pytest.approx(odds / (1 + odds))]
        assert judge.threshold(odds / (1 + odds)) == pytest.approx(0.4)


def test_a_fit_recovers_the_map_that_made_the_answers(tool):
    rng = np.random.default_rng(0)
    n = 40_000
    columns = [
        rng.normal(0.3, 0.1, n),
        rng.normal(2, 1, n),
        np.log(rng.choice([60, 250], n)),
        rng.uniform(0, 2, n),
        rng.normal(0, 0.3, n),
    ]
    numbers = np.pad(np.stack(columns, 1), ((0, 0), (0, 3)))
    right = rng.random(n) < find_probabilities(MAP, numbers)
    trials = tool.Trials(numbers, right, np.arange(n) // 5, np.full(n, "word"))
    found = tool.fit_weights([trials], "x")
    for name in ("intercept", *tool.WEIGHTS):
        assert getattr(found, name) == pytest.approx(getattr(MAP, name), rel=0.15, abs=0.1)
    bins = tool.measure_reliability(find_probabilities(found, trials.numbers), trials.right)
    assert tool.calibration_error(bins) < 0.01
    assert sum(one.photos for one in bins) == n


def test_the_calibration_error_is_the_mean_distance(tool):
    assert tool.calibration_error([tool.Bin(30, 0.2, 0.3), tool.Bin(10, 0.9, 0.5)]) == pytest.approx(
        (30 * 0.1 + 10 * 0.4) / 40
    )
    bins = tool.measure_reliability(np.array([0.05, 0.06, 0.95, 1.0]), np.array([False, True, True, True]))
    assert bins == [tool.Bin(2, pytest.approx(0.055), 0.5), tool.Bin(2, pytest.approx(0.975), 1.0)]


def test_judgments_change_slope_and_shift_and_weigh_kinds(tool):
    """People who call more photos right than captions do raise the probabilities, also of unseen queries."""
    rng = np.random.default_rng(0)
    n = 40_000
    numbers = np.zeros((n, 8))
    numbers[:, 0] = rng.normal(0.3, 0.1, n)
    numbers[:, 5:] = rng.random((n, 3)) < 0.3
    strict = tool.structs.replace(MAP, hubness=0)
    judged_by = tool.rescale(strict, 0.5, 1.5)
    assert find_logits(judged_by, numbers) == pytest.approx(0.5 * find_logits(strict, numbers) + 1.5)
    judged_by = tool.structs.replace(judged_by, color=-1, number=0.5)
    judged = tool.Trials(
        numbers,
        rng.random(n) < find_probabilities(judged_by, numbers),
        np.arange(n) // 5,
        np.full(n, "judged"),
    )
    found, left_out = tool.fit_to_judgments(strict, judged)
    assert find_probabilities(found, numbers) == pytest.approx(
        find_probabilities(judged_by, numbers), abs=0.03
    )
    assert left_out == pytest.approx(find_probabilities(judged_by, numbers), abs=0.05)


def test_nothing_is_said_where_it_is_true_nineteen_times_out_of_twenty(tool):
    rng = np.random.default_rng(0)
    probability = rng.uniform(0.01, 0.99, 20_000)
    right = rng.random(20_000) < probability
    trials = tool.Trials(np.zeros((20_000, 8)), right, np.arange(20_000), np.full(20_000, "judged"))
    assert tool.fit_nothing(probability, trials) == pytest.approx(0.05, abs=0.01)
    pairs = tool.Trials(np.zeros((4, 8)), np.array([0, 1, 0, 0], bool), np.array([0, 0, 1, 1]), right[:4])
    first, has_right = tool.summarize(np.array([0.9, 0.2, 0.4, 0.1]), pairs)
    assert (first.tolist(), has_right.tolist()) == ([0.9, 0.4], [True, False])


@pytest.fixture
def zoo(tool):
    """Photos of giraffes on grass, of zebras, and of men who run."""
    captions = []
    for row in range(12):
        animal = ("giraffe", "zebras", "men")[row // 4]
        captions += [(row, f"the {animal} stood"), (row, f"one tall {animal} running")]
    captions += [(0, "grass"), (0, "green grass"), (5, "a zebra on grass"), (5, "grass")]
    return tool.Collection.make(np.eye(12), [f"{row}.jpg" for row in range(12)], captions)


def test_photos_are_right_if_their_captions_have_all_words_in_any_inflection(tool, zoo):
    assert tool.find_stems("the men ran") == tool.find_stems("a running man")[::-1]
    assert np.flatnonzero(zoo.find_right(tool.find_stems("a zebra"))).tolist() == [4, 5, 6, 7]
    assert np.flatnonzero(zoo.find_right(tool.find_stems("zebras on the grass"))).tolist() == [5]
    assert np.flatnonzero(zoo.find_right(tool.find_stems("a man runs"))).tolist() == [8, 9, 10, 11]
    salience = zoo.measure_salience()
    assert salience["giraff"] == pytest.approx((3 * 1 + 2 / 4) / 4)
    twice = tool.Collection.join([zoo, zoo])
    assert np.flatnonzero(twice.find_right(["grass"])).tolist() == [0, 5, 12, 17]


def test_queries_of_all_kinds_know_their_right_photos(tool, zoo):
    salience = zoo.measure_salience()
    questions = tool.make_questions(zoo, salience, np.random.default_rng(0), 20)
    assert {question.kind for question in questions} == {"word", "two words", "short", "minus"}
    assert not any("green" in question.text for question in questions)  # too few captions mention it
    for question in questions:
        first, _, second = question.text.partition(" - ")
        right = zoo.find_right(tool.find_stems(first))
        assert np.array_equal(
            question.right, right & ~zoo.find_right(tool.find_stems(second)) if second else right
        )


def test_a_folder_has_right_photos_or_none(tool):
    rng, right = np.random.default_rng(0), np.arange(100) < 20
    for size in (2, 10, 60):
        assert not right[tool.draw_folder(right, size, False, rng)].any()
        folder = tool.draw_folder(right, size, True, rng)
        assert right[folder].any()
        assert len(set(folder.tolist())) == size


def test_a_calibration_belongs_to_one_model(tmp_path):
    assert Calibration.load(tmp_path, "tiny") is None
    MAP.save(tmp_path)
    assert Calibration.load(tmp_path, "tiny") == MAP
    assert Calibration.load(tmp_path, "other") is None
    (tmp_path / "calibration.json").write_text('{"model_key": "tiny", "score": "high"}')
    with refuses("damaged"):
        Calibration.load(tmp_path, "tiny")


class CalibratedModel(TinyModel):
    calibration = MAP
    hubness = TrainingScores(-0.1, 0.3, 41)


def test_a_query_of_unknown_words_is_a_guess(tmp_path):
    judge = Probabilities(MAP, ScoreScale(0.1, 0.08, 400, 2), 0.15)
    assert judge.of_scores([0.9]) == [0.15]
    assert judge.threshold(MAYBE) > 1
    assert judge.threshold(0.1) == Probabilities(MAP, judge.scale).threshold(0.1)
    model = CalibratedModel()
    encoded = embed_terms(parse_query("red zorblax"), model, None)
    assert not encoded.is_guess
    assert encoded.kind == QueryKind(color=True)


@pytest.mark.slow
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
        assert library.search("people playing baseball").nothing_matches
        before = best("a gray cat")
        model.calibration = structs.replace(model.calibration, color=model.calibration.color - 5)
        assert best("a gray cat") < 0.1 * before
        assert best("xqzzt") < MAYBE
        unknown = library.search("xqzzt")
        assert not unknown.is_understood
        assert not unknown.nothing_matches
        assert unknown.verdict
    assert embed_terms(parse_query("the xqzzt"), model, None).is_guess
    assert not embed_terms(parse_query("an xqzzt cat"), model, None).is_guess


@pytest.mark.parametrize(
    ("nearness", "unknown", "is_guess", "is_understood"),
    [
        (0.31, ["lemur"], False, True),
        (0.29, ["lemur"], False, False),
        (0.29, [], False, True),  # coins: a known word, though hardly any caption is near to it
        (0.45, ["lemur"], True, True),
        (0.35, ["lemur"], True, False),
    ],
)
def test_unknown_words_are_understood_if_their_pieces_are(nearness, unknown, is_guess, is_understood):
    model = CalibratedModel()
    vector = QueryVector(np.eye(7)[0], 7, tuple(unknown), n_words=1, is_guess=is_guess, nearness=nearness)
    probabilities = make_probabilities(np.linspace(0, 0.9, 20), vector, model)
    assert (probabilities.most == 1) == is_understood
    assert (probabilities.of_scores([0.9])[0] > MAYBE) == is_understood


def test_nothing_is_said_above_a_clear_match():
    assert [word_verdict(best, False, True) == "" for best in (0.9, 0.4, 0.39, 0.2, 0.1, None)] == [
        *(True, True, False, False, False, True)
    ]
    assert len({word_verdict(0.1, *flags) for flags in ((False, True), (True, True), (False, False))}) == 3


def test_a_photo_that_stands_out_of_a_burst_by_little_is_not_likely():
    burst = np.append(np.full(9, 0.10), 0.12)
    judge = Probabilities(ImageTextModel.load().calibration, measure_scale(burst, 2))
    assert max(judge.of_scores(burst)) < MAYBE
