"""Dates and negations in plain queries, weights, and typing mistakes."""

import calendar
import json
from datetime import date

import numpy as np
import pytest
from fishermix.errors import FishermixError
from fishermix.text.tokens import Vocabulary
from fishermix_photos.dates import read_words
from fishermix_photos.query import (
    Term,
    encode_terms,
    parse_arguments,
    parse_query,
    read_terms,
    suggest_words,
)
from fishermix_photos.spelling import suggest_spelling
from hypothesis import given
from hypothesis import strategies as st
from tiny_model import NAMES, TinyModel, paint


@pytest.mark.parametrize(
    ("text", "wanted", "after", "before"),
    [
        ("dogs in summer 2019", "dogs", "2019-06-01", "2019-09-01"),
        ("march 2020", "", "2020-03-01", "2020-04-01"),
        ("2018", "", "2018-01-01", "2019-01-01"),
        ("dogs in 2018", "dogs", "2018-01-01", "2019-01-01"),
        ("dogs 2018", "dogs", "2018-01-01", "2019-01-01"),
        ("winter 2019 in the mountains", "in the mountains", "2019-12-01", "2020-03-01"),
        ("christmas party December 24, 2015", "christmas party", "2015-12-24", "2015-12-25"),
        ("14th of July 2019", "", "2019-07-14", "2019-07-15"),
        ("a boat on 2019-07-14", "a boat", "2019-07-14", "2019-07-15"),
        ("a boat 2019-07", "a boat", "2019-07-01", "2019-08-01"),
        ("beach since 2015", "beach", "2015-01-01", None),
        ("beach after 2015", "beach", "2016-01-01", None),
        ("beach before march 2015", "beach", None, "2015-03-01"),
        ("beach until march 2015", "beach", None, "2015-04-01"),
        ("dogs from 2016 to 2018", "dogs", "2016-01-01", "2019-01-01"),
        ("dogs from may to june 2019", "dogs", "2019-05-01", "2019-07-01"),
        ("dogs may-june 2019 on a beach", "dogs on a beach", "2019-05-01", "2019-07-01"),
        ("dogs in May and June 2019", "dogs", "2019-05-01", "2019-07-01"),
        ("from november to february 2019", "", "2018-11-01", "2019-03-01"),
        ("winter to spring 2019", "", "2018-12-01", "2019-06-01"),
        ("between july 14 and july 20 2019", "", "2019-07-14", "2019-07-21"),
        ("dogs from 3 may to 5 june 2019", "dogs", "2019-05-03", "2019-06-06"),
        ("2018-2020", "", "2018-01-01", "2021-01-01"),
        ("dogs 2018 – 2020", "dogs", "2018-01-01", "2021-01-01"),
        ("dogs between 2018 and 2020", "dogs", "2018-01-01", "2021-01-01"),
        ("dogs since march 2015 until 2018", "dogs", "2015-03-01", "2019-01-01"),
        ("before 2020", "", None, "2020-01-01"),
        ("the man may run to june 2019", "the man may run to", "2019-06-01", "2019-07-01"),
        ("10 to 20 people in 2019", "10 to 20 people", "2019-01-01", "2020-01-01"),
        ("dogs between may 2016 and june 2017", "dogs", "2016-05-01", "2017-07-01"),
        (
            "photos of dogs taken in fall 2011, at the sea",
            "photos of dogs , at the sea",
            "2011-09-01",
            "2011-12-01",
        ),
    ],
)
def test_dates_become_filters(text, wanted, after, before):
    reading = read_words(text)
    assert (reading.wanted, reading.after, reading.before) == (wanted, after, before)
    assert len(reading.remarks) == 1
    assert read_words(text, dates=False).after is None


@given(
    st.integers(0, 11),
    st.integers(0, 11),
    st.integers(1950, 2024),
    st.sampled_from(["from {} to {}", "between {} and {}", "{}-{}", "in {} and {}", "{} until {}"]),
    st.booleans(),
)
def test_months_that_share_a_year_are_a_range(first, last, year, form, is_short):
    names = [(month[:3] if is_short else month) for month in calendar.month_name[1:]]
    reading = read_words("dogs " + form.format(names[first], names[last]) + f" {year}")
    begins = date(year - (first > last), first + 1, 1)
    ends = date(year + (last == 11), (last + 1) % 12 + 1, 1)
    assert (reading.wanted, reading.after, reading.before) == ("dogs", str(begins), str(ends))


@pytest.mark.parametrize(
    "text",
    [
        *("2000 people on a street", "a crowd of 2000", "in 2150", "dogs in 31 february 2019", "may flowers"),
        *("a summer meadow", "a room with 1999 chairs", "1850 map", "a dog in march", "12019", "20195"),
        *("space odyssey 2001 poster", "from 2018 to 1990 things"),
    ],
)
def test_other_numbers_and_months_are_words(text):
    reading = read_words(text)
    assert (reading.wanted, reading.after, reading.before, reading.remarks) == (text, None, None, [])


@pytest.mark.parametrize(
    ("text", "wanted", "unwanted"),
    [
        ("a beach without people", "a beach", ["people"]),
        ("a beach without any people at sunset", "a beach at sunset", ["people"]),
        ("a dog with no leash", "a dog", ["leash"]),
        ("bowl with no fruit in it", "bowl", ["fruit"]),
        ("plates without food on them, near a window", "plates near a window", ["food"]),
        ("a park with no people there", "a park", ["people"]),
        ("a table with no food on a balcony", "a table on a balcony", ["food"]),
        ("a street without cars or people", "a street", ["cars or people"]),
        ("a dog, not a cat", "a dog", ["a cat"]),
        ("a man not wearing a helmet on a bike", "a man on a bike", ["wearing a helmet"]),
        ("a dog that is not black", "a dog", ["black"]),
        ("a dog not in the water", "a dog", ["in the water"]),
        ("beach without people without dogs", "beach", ["people", "dogs"]),
        ("no people", "", ["people"]),
    ],
)
def test_negations_become_a_minus(text, wanted, unwanted):
    reading = read_words(text)
    assert (reading.wanted, reading.unwanted) == (wanted, unwanted)
    assert "Searching for" in reading.remarks[0]


@pytest.mark.parametrize(
    "text", ["a no parking sign", "no", "a man who is not", "a knot", "nothing", "notes"]
)
def test_what_only_looks_like_a_negation(text):
    assert read_words(text).wanted == text
    assert read_words(text).remarks == []


def test_quotes_keep_words_as_they_are():
    for terms in (parse_query('"a beach without people in 2018"'), parse_arguments(['"a beach in 2018"'])):
        found, only, remarks = read_terms(terms)
        assert tuple(found) == terms
        assert not only
        assert remarks == []
    assert tuple(read_terms(parse_query("a beach without people"))[0]) == parse_query("a beach - people")


@given(st.text(max_size=60))
def test_any_text_can_be_read(text):
    reading = read_words(text)
    assert reading.wanted or reading.unwanted or reading.after or reading.before or not text.strip(" ,;.")


WORDS = ["dogs", "in", "summer", "2019", "may", "no", "not", "without", "2018", "-", ",", "from", "to"]


@given(st.lists(st.sampled_from(WORDS)))
def test_any_combination_can_be_read(words):
    read_words(" ".join(words))


def test_weights():
    expected = (Term("+", "text", "golden retriever", 2.0), Term("-", "text", "fruit", 0.5))
    assert parse_query('2:"golden retriever" - 0.5:fruit') == expected
    assert parse_arguments(["2:golden retriever", "-", "0.5:fruit"]) == expected
    assert parse_query("10:30 on a clock") == (Term("+", "text", "10:30 on a clock"),)
    assert parse_query("2:photo:ab12") == (Term("+", "id", "ab12", 2.0),)
    with pytest.raises(FishermixError, match="weight 0 must be above 0"):
        parse_query("0:dog")
    red, blue = np.eye(7, dtype=np.float32)[[NAMES.index("red"), NAMES.index("blue")]]
    vector = encode_terms(parse_query("2:red - 0.5:blue"), TinyModel(), lambda photo: None).vector
    np.testing.assert_allclose(vector, (2 * red - 0.5 * blue) / np.sqrt(4.25), rtol=1e-6)


def test_a_weight_of_a_photo(tmp_path):
    photo = paint(tmp_path / "a.png", "red")
    assert parse_arguments([f"2:{photo}"]) == (Term("+", "photo", str(photo), 2.0),)
    odd = paint(tmp_path / "x" / "3:b.png", "red")
    assert parse_arguments([str(odd)])[0].weight == 1


def test_typing_mistakes():
    words = Vocabulary.from_words(["bicycle", "dog", "beach", "breach", "surfing", "mountain"])
    assert suggest_spelling("bycicle", words) == "bicycle"
    assert suggest_spelling("bicyle", words) == "bicycle"
    assert suggest_spelling("baech", words) == "beach"
    assert suggest_spelling("moutnian", words) == "mountain"
    assert suggest_spelling("surfng", words) == "surfing"
    assert suggest_spelling("dg", words) is None
    zoo = Vocabulary.from_words(["elegant", "elephant", "bread", "bear", "beard"])
    assert suggest_spelling("elefant", zoo) == "elephant"
    assert suggest_spelling("beer", zoo) == "bear"
    assert suggest_spelling("bearb", zoo) == "bear"
    assert suggest_spelling("bearb", zoo, {"beard": 2, "bear": 1}) == "beard"
    assert suggest_spelling("zorblax", words) is None
    with pytest.raises(FishermixError, match="Did you mean yellow instead of yelow"):
        encode_terms(parse_query("yelow"), TinyModel(), lambda photo: None)


def test_the_command_reads_dates_and_several_folders(tiny, photos, tmp_path, monkeypatch):
    remarks = tiny.remarks
    paint(photos / "IMG_20180704_120000.png", "red", "black")
    paint(photos / "IMG_20190704_120000.png", "red", "blue")
    other = tmp_path / "other"
    paint(other / "IMG_20180101_120000.png", "red")
    assert tiny("search", "red in 2018", photos, "-f") == f"{photos}/IMG_20180704_120000.png\n"
    assert "from 2018-01-01 until 2018-12-31" in remarks[-1]
    assert """in double quotes within single quotes, as in '"no parking"', to search""" in remarks.pop()
    both = tiny("search", "red in 2018", photos, other, "-f").splitlines()
    assert both == [f"{other}/IMG_20180101_120000.png", f"{photos}/IMG_20180704_120000.png"]
    assert tiny("search", "2018", photos) == f"{photos}/IMG_20180704_120000.png\n"
    listed = tiny("search", "red", photos, other, "-f", "-n", 3).splitlines()
    assert {*listed} > {f"{photos}/red.png", f"{other}/IMG_20180101_120000.png"}
    [copy] = json.loads(tiny("search", "red", photos, other, "--json", "-n", 1))
    both = [f"{photos}/red.png", f"{other}/IMG_20180101_120000.png"]  # show nothing but red
    assert sorted([copy["path"], *copy["similar"]]) == sorted(both)
    found = json.loads(
        tiny("search", "red in 2018", photos, "--after", "2019", "--before", "2020", "--json", "-n", 1)
    )
    assert found[0]["path"] == f"{photos}/IMG_20190704_120000.png"  # the option decides
    remarks.clear()
    assert tiny("search", "red without blue", photos, "-f").splitlines()[-1].endswith("blue.png")
    assert remarks[0].startswith("Searching for: red - blue.")


@pytest.mark.parametrize(
    "text",
    [
        "dogs not in 2019",
        "dogs except 2019",
        "dogs except from may to june 2019",
        "from may to june 2019 and july 2020",
        "dogs after 2019 before 2015",
        "dogs after 2015 before 2019",
        "dogs before 2019 and after 2015",
        "dogs after march 2015 until 2018",
        "since 2015 and a dog before 2019",
        "a walk in march until 2019",
        "dogs in 2018 or 2019",
        "dogs in 2018 and in 2020",
        "beach 2019, 2020",
    ],
)
def test_a_negated_date_and_a_second_date_are_not_read_as_one_date(text):
    reading = read_words(text)
    assert reading.after is None
    assert reading.before is None
    assert "dates were not read" in reading.remarks[0]


def test_a_link_between_two_negations_is_no_word_of_either():
    assert read_words("a man, not a woman and without a dog").unwanted == ["a woman", "a dog"]


def test_a_month_without_a_year_is_not_taken_for_a_mistake():
    model = TinyModel()
    assert suggest_words(["june"], model) == ["A month is a date only with a year: june 2024."]
    assert suggest_words(["yelow"], model) == ["Did you mean yellow instead of yelow?"]


@pytest.mark.parametrize("text", ["2019.", "in 2019, ."])
def test_a_date_and_a_full_stop_is_a_date(text):
    reading = read_words(text)
    assert (reading.wanted, reading.after) == ("", "2019-01-01")


def test_a_negation_has_few_words():
    words = " ".join(f"word{number}" for number in range(100))
    assert len(read_words(f"a dog without {words}").unwanted[0].split()) == 12
    many = read_words("no " * 5000 + "sign")  # took minutes
    assert many.wanted.endswith("sign")


@pytest.mark.parametrize(
    ("text", "after", "before"),
    [
        ("last year", "2025-01-01", "2026-01-01"),
        ("this year", "2026-01-01", "2027-01-01"),
        ("yesterday", "2026-11-17", "2026-11-18"),
        ("today", "2026-11-18", "2026-11-19"),
        ("last week", "2026-11-09", "2026-11-16"),
        ("last weekend", "2026-11-14", "2026-11-16"),
        ("last month", "2026-10-01", "2026-11-01"),
        ("last summer", "2026-06-01", "2026-09-01"),
        ("last winter", "2025-12-01", "2026-03-01"),
        ("last july", "2026-07-01", "2026-08-01"),
        ("last december", "2025-12-01", "2026-01-01"),
        ("last christmas", "2025-12-24", "2025-12-27"),
        ("christmas 2004", "2004-12-24", "2004-12-27"),
        ("new year 2005", "2004-12-31", "2005-01-02"),
        ("christmas to new year 2005", "2004-12-24", "2005-01-02"),
    ],
)
def test_dates_without_a_year_and_feasts(text, after, before):
    today = date(2026, 11, 18)
    for line, rest in ((text, ""), (f"dogs {text}", "dogs"), (f"{text} in the snow", "in the snow")):
        reading = read_words(line, today=today)
        assert (reading.wanted, reading.after, reading.before) == (rest, after, before)
    assert read_words("last dogs in a row", today=today).after is None
