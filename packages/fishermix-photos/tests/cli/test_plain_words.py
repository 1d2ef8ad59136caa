"""Dates and negations in plain queries, weights, and typing mistakes."""

import calendar
import json
import re
from collections import Counter
from datetime import date

import numpy as np
import pytest
from fishermix.text.vocabulary import Vocabulary
from fishermix_photos.cli.wording import word_note, word_notes
from fishermix_photos.index.filters import Filter
from fishermix_photos.search.dates import parse_dates
from fishermix_photos.search.negation import parse_negations
from fishermix_photos.search.notes import Note
from fishermix_photos.search.reading import Reading, explain_rare, explain_unknown, read_terms
from fishermix_photos.search.spelling import (
    correct_typo,
    is_known_form,
    list_spellings,
    suggest_everyday_word,
    suggest_word,
)
from fishermix_photos.search.terms import Term, parse_arguments, parse_query
from fishermix_photos.search.vectors import embed_terms
from hypothesis import given
from hypothesis import strategies as st
from refuses import refuses
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
    reading = parse_dates(text)
    assert (reading.wanted, reading.after, reading.before) == (wanted, after, before)
    assert reading.note.kind == "date"
    assert reading.note.meaning.startswith(after or "/")
    own = Filter(after="2001")  # of an option: it decides
    assert read_terms([Term("+", "text", text)], own).filter == own


@given(
    st.integers(0, 11),
    st.integers(0, 11),
    st.integers(1950, 2024),
    st.sampled_from(["from {} to {}", "between {} and {}", "{}-{}", "in {} and {}", "{} until {}"]),
    st.booleans(),
)
def test_months_that_share_a_year_are_a_range(first, last, year, form, is_short):
    names = [(month[:3] if is_short else month) for month in calendar.month_name[1:]]
    reading = parse_dates("dogs " + form.format(names[first], names[last]) + f" {year}")
    begins = date(year - (first > last), first + 1, 1)
    ends = date(year + (last == 11), (last + 1) % 12 + 1, 1)
    assert (reading.wanted, reading.after, reading.before) == ("dogs", str(begins), str(ends))


@pytest.mark.parametrize(
    "text",
    [
        *("2000 people on a street", "a crowd of 2000", "in 2150", "may flowers"),
        *("a summer meadow", "a room with 1999 chairs", "1850 map", "a dog in march", "12019", "20195"),
        *("space odyssey 2001 poster", "from 2018 to 1990 things"),
    ],
)
def test_other_numbers_and_months_are_words(text):
    reading = parse_dates(text)
    assert (reading.wanted, reading.after, reading.before, reading.note) == (text, None, None, None)


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
    assert parse_negations(text) == (wanted, tuple(unwanted))
    assert [note.kind for note in read_terms(parse_query(text)).notes] == ["excluded"]


@pytest.mark.parametrize(
    "text", ["a no parking sign", "no", "a man who is not", "a knot", "nothing", "notes"]
)
def test_what_only_looks_like_a_negation(text):
    assert parse_negations(text) == (text, ())


def test_quotes_keep_words_as_they_are():
    for terms in (parse_query('"a beach without people in 2018"'), parse_arguments(['"a beach in 2018"'])):
        assert read_terms(terms) == Reading(terms)
    assert read_terms(parse_query("a beach without people")).terms == parse_query("a beach - people")


@pytest.mark.parametrize(
    "text", ["dogs in 31 february 2019", "31 february 2005", "2019-02-30", "summer 2099"]
)
def test_a_day_that_does_not_exist_is_named(text):
    reading = parse_dates(text)
    assert (reading.wanted, reading.after, reading.note.kind) == (text, None, "no_such_date")
    assert reading.note.name in text


@pytest.mark.parametrize(
    ("text", "suggestion"),
    [
        ("31 february 2005", "february 2005"),
        ("dogs in february 30, 2019", "dogs in february, 2019"),
        ("dogs 2019-02-30", "dogs 2019-02"),
        ("summer 2099", None),
        ("2019-13", "2019"),
    ],
)
def test_the_month_of_a_day_that_does_not_exist_is_suggested(text, suggestion):
    assert parse_dates(text).note.suggestion == suggestion


def test_the_words_of_a_date_that_does_not_exist_need_no_other_hint():
    notes = read_terms(parse_query("dogs in 31 february 2005")).notes
    found = explain_unknown(["february", "2005", "yelow"], TinyModel(), (), notes)
    assert {note.name for note in found} == {"yelow"}


@pytest.mark.parametrize(
    "text", ["dogs without a date", "undated dogs", "dogs, no date", "dogs with no date"]
)
def test_photos_without_a_date_can_be_asked_for(text):
    reading = read_terms(parse_query(text))
    assert ([term.value for term in reading.terms], reading.filter) == (["dogs"], Filter(undated=True))
    assert [note.kind for note in reading.notes] == ["undated"]
    assert not parse_dates("a couple on a date").undated


@given(st.text(max_size=60))
def test_any_text_can_be_read(text):
    reading = parse_dates(text)
    assert reading.wanted or reading.after or reading.before or not text.strip(" ,;.")
    wanted, unwanted = parse_negations(text)
    assert wanted or unwanted or not text.strip(" ,;.")


WORDS = ["dogs", "in", "summer", "2019", "may", "no", "not", "without", "2018", "-", ",", "from", "to"]


@given(st.lists(st.sampled_from(WORDS)))
def test_any_combination_can_be_read(words):
    read_terms([Term("+", "text", " ".join(words))])


def test_weights():
    expected = (Term("+", "text", "golden retriever", 2.0), Term("-", "text", "fruit", 0.5))
    assert parse_query('2:"golden retriever" - 0.5:fruit') == expected
    assert parse_arguments(["2:golden retriever", "-", "0.5:fruit"]) == expected
    assert parse_query("10:30 on a clock") == (Term("+", "text", "10:30 on a clock"),)
    assert parse_query("2:photo:ab12") == (Term("+", "id", "ab12", 2.0),)
    with refuses("wrong_query"):
        parse_query("0:dog")
    red, blue = np.eye(7, dtype=np.float32)[[NAMES.index("red"), NAMES.index("blue")]]
    vector = embed_terms(parse_query("2:red + 0.5:blue"), TinyModel(), lambda photo: None).vector
    np.testing.assert_allclose(vector, (2 * red + 0.5 * blue) / np.sqrt(4.25), rtol=1e-6)


def test_a_weight_of_a_photo(tmp_path):
    photo = paint(tmp_path / "a.png", "red")
    assert parse_arguments([f"2:{photo}"]) == (Term("+", "photo", str(photo), 2.0),)
    odd = paint(tmp_path / "x" / "3:b.png", "red")
    assert parse_arguments([str(odd)])[0].weight == 1


def suggest_spelling(word, vocabulary, uses=None):
    return next((other for other, _ in list_spellings(word, vocabulary, uses or {})), None)


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


def test_the_command_reads_dates_and_several_folders(tiny, photos, tmp_path, monkeypatch):
    remarks = tiny.remarks
    paint(photos / "IMG_20180704_120000.png", "red", "black")
    paint(photos / "IMG_20190704_120000.png", "red", "blue")
    other = tmp_path / "other"
    paint(other / "IMG_20180101_120000.png", "red")
    assert tiny("search", "red in 2018", photos, "-f") == f"{photos}/IMG_20180704_120000.png\n"
    assert "from 2018-01-01 until 2018-12-31" in remarks[-2]
    assert "8 photos" in remarks.pop()  # without a date of their own
    assert remarks.pop().endswith("""fishermix search '"red in 2018"'""")
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
    assert remarks[-1].startswith("Searching for: red - blue.")


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
    reading = parse_dates(text)
    assert reading.after is None
    assert reading.before is None
    assert reading.note.kind == "several_dates"


def test_a_link_between_two_negations_is_no_word_of_either():
    assert parse_negations("a man, not a woman and without a dog").unwanted == ("a woman", "a dog")


def test_a_month_without_a_year_is_not_taken_for_a_mistake():
    model = TinyModel()
    assert [note.kind for note in explain_unknown(["june"], model)] == ["month"]
    assert explain_unknown(["yelow"], model) == [Note("similar_word", "yelow", "yellow")]


@pytest.mark.parametrize(
    ("meaning", "days"),
    [
        ("2004-07-14/2004-07-14", 1),
        ("2004-07-01/2004-07-31", 2),
        ("2004-07-01/", 1),
        ("/2004-07-31", 1),
    ],
)
def test_a_single_day_is_named_once(meaning, days):
    said = word_note(Note("date", "then", meaning))
    assert len(re.findall(r"2004-07-\d\d", said)) == days


class Reader(TinyModel):
    """Its transformer knows some words as a whole, and says how much two words mean the same."""

    vocabulary = Vocabulary.from_words(
        ["sunset", "elephant", "plates", "tennis", "gorilla", "girl", "lion", "quite"]
    )

    def __init__(self):
        super().__init__()
        self.word_counts = Counter(sunset=5, elephant=5, plates=5, tennis=5, girl=5, lion=5)

    def knows_word(self, word):
        return word in self.vocabulary or word == "lisbon"

    def compare_words(self, word, others):
        return [{"pilates": 0.05, "quito": 0.3}.get(word, 0.5)] * len(others)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        *(("sunsett", "sunset"), ("Elefant", "elephant"), ("tenniss", "tennis"), ("gril", "girl")),
        ("sunset", None),
        ("lisbon", None),  # the transformer knows it
        ("pilates", None),  # means something else
        ("quito", None),  # no sentence about photos says "quite"
        ("gorillas", None),  # a form of a known word
        ("snst", None),  # two mistakes
        ("gurl", None),  # too short for anything but letters in another order
    ],
)
def test_what_is_corrected_without_asking(typed, meant):
    assert correct_typo(typed, Reader()) == meant


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("sunst", "sunset"), ("gurl", "girl"), ("snset", "sunset"), ("pilates", None), ("quit", "quite")],
)
def test_a_word_that_means_something_else_is_not_suggested(typed, meant):
    assert suggest_word(typed, Reader()) == meant


class Traveled(Reader):
    """Its transformer knows a name, too, and its vocabulary has words that no photo is described with."""

    vocabulary = Vocabulary.from_words(
        [
            "hand",
            "hunk",
            "ana",
            "bell",
            "washer",
            "blue",
            "flower",
            "flow",
            "caste",
            "castle",
            "gorilla",
            "water",
        ]
    )

    def __init__(self):
        super().__init__()
        self.word_counts = Counter(hand=60, bell=4, washer=1, blue=188, flower=11, flow=2, castle=2, water=9)

    def knows_word(self, word):
        return word in self.vocabulary or word == "anna"

    def compare_words(self, word, others):
        near = {("flowr", "flow"): 0.8, ("bello", "bell"): 0.8, ("gorila", "gorilla"): 0.8}
        return [near.get((word, other), 0.3) for other in others]


@pytest.mark.parametrize(
    ("typed", "corrected", "asked"),
    [
        ("Anna", None, None),  # the transformer knows it, and photos show no ana
        ("Hund", None, None),  # hand is near, but so it is to every word of four letters
        ("hund", None, None),
        ("Bello", None, None),  # a name rather than a bell
        ("Wasser", None, None),
        ("Blumen", None, None),  # two mistakes
        ("Flowr", "flower", "flower"),  # rather than flow: photos often show one
        ("castel", "castle", "castle"),  # rather than caste, which no photo is described with
        ("gorila", "gorilla", "gorilla"),  # though no photo is described with it
        ("zorblax", None, None),
    ],
)
def test_names_and_words_of_other_languages_are_not_corrected(typed, corrected, asked):
    assert correct_typo(typed, Traveled()) == corrected
    assert suggest_word(typed, Traveled()) == asked


def test_a_word_that_cannot_be_corrected_is_named_once_as_it_was_typed():
    terms = parse_query("a Hund and the Katze - june")
    notes = explain_unknown(["hund", "katze", "june"], Traveled(), terms)
    assert [(note.kind, note.name) for note in notes] == [
        ("ignored", "Hund"),
        ("ignored", "Katze"),
        ("month", "june"),
    ]
    assert word_notes(notes)[0] == "'Hund' and 'Katze' are not English words that the model knows."
    assert word_notes(notes[:1]) == ["'Hund' is not an English word that the model knows."]


class Misspelled(Reader):
    """Some words of its vocabulary are misspelled: many people mistype them."""

    vocabulary = Vocabulary.from_words(
        ["mountain", "moutain", "people", "poeple", "bandana", "banana", "gamers", "gamer", "games", "coral"]
    )
    reads_unknown_words = True

    def __init__(self):
        super().__init__()
        self.word_counts = Counter(mountain=60, people=600, banana=16, games=20)

    def is_whole_word(self, word):
        return word in ("mountain", "people", "games", "gamer", "coral", "banana")

    def compare_words(self, word, others):
        return [{"bandana": 0.1}.get(word, 0.5)] * len(others)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        *(("moutain", "mountain"), ("Poeple", "people")),
        ("mountain", None),  # photos are described with it
        ("coral", None),  # the transformer has learned it
        ("bandana", None),  # means something else
        ("gamers", None),  # a form of a known word
        ("moutainn", None),  # not in the vocabulary: `suggest_word` is for those
    ],
)
def test_a_misspelled_word_of_the_vocabulary_is_pointed_out(typed, meant):
    assert suggest_everyday_word(typed, Misspelled()) == meant


def test_a_misspelled_word_of_the_vocabulary_gets_a_note():
    terms = parse_query("the moutain with poeple")
    notes = explain_rare(terms, Misspelled(), [])
    assert [(note.kind, note.name, note.meaning, note.suggestion) for note in notes] == [
        ("similar_word", "moutain", "mountain", "the mountain with poeple"),
        ("similar_word", "poeple", "people", "the moutain with people"),
    ]
    assert explain_rare(terms, Misspelled(), ["moutain", "poeple"]) == []  # they have notes of their own
    assert explain_rare(parse_query('"moutain"'), Misspelled(), []) == []
    assert explain_rare(terms, TinyModel(), []) == []


def test_forms_of_known_words_are_known():
    words = Vocabulary.from_words(["gorilla", "galaxy", "skate", "tennis"])
    assert all(is_known_form(word, words) for word in ("gorillas", "galaxies", "skating", "skater"))
    assert not any(is_known_form(word, words) for word in ("tenniss", "gorila", "zorblax", "galaxy"))


@pytest.mark.parametrize("text", ["2019.", "in 2019, ."])
def test_a_date_and_a_full_stop_is_a_date(text):
    reading = parse_dates(text)
    assert (reading.wanted, reading.after) == ("", "2019-01-01")


def test_a_negation_has_few_words():
    words = " ".join(f"word{number}" for number in range(100))
    assert len(parse_negations(f"a dog without {words}").unwanted[0].split()) == 12
    many = parse_negations("no " * 5000 + "sign")  # took minutes
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
        reading = parse_dates(line, today)
        assert (reading.wanted, reading.after, reading.before) == (rest, after, before)
    assert parse_dates("last dogs in a row", today).after is None
