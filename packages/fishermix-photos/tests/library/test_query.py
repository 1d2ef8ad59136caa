"""Queries are read as they are meant."""

import numpy as np
import pytest
from fishermix.errors import FishermixError
from fishermix_photos.model.subtraction import subtract_scores
from fishermix_photos.search.results import Query
from fishermix_photos.search.terms import Term, check_words, parse_arguments, parse_query, write_query
from fishermix_photos.search.vectors import embed_terms
from hypothesis import given
from hypothesis import strategies as st
from refuses import refuses
from tiny_model import NAMES, TinyModel, paint


def text(*signed):
    return tuple(Term(piece[0], "text", piece[1:]) for piece in signed)


def test_arguments_are_terms_with_signs_between():
    assert parse_arguments(["a well-known dog"]) == text("+a well-known dog")
    assert parse_arguments(["two dogs - a leash"]) == text("+two dogs", "-a leash")  # as on the page
    assert parse_arguments(['"two dogs - or one"'])[0].value == "two dogs - or one"
    assert parse_arguments(["beach", "-", "people", "+", "a dog"]) == text("+beach", "-people", "+a dog")
    assert parse_arguments(["-", "people"]) == text("-people")
    assert parse_arguments(["-people"]) == parse_arguments(["- people"]) == text("-people")
    assert parse_arguments(["beach", "-people"]) == text("+beach", "-people")


def test_a_photo_is_a_term_only_if_it_exists(tmp_path):
    photo = paint(tmp_path / "a.png", "red")
    assert parse_arguments([str(photo), "+", "at night"]) == (
        Term("+", "photo", str(photo)),
        *text("+at night"),
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["missing.png"],
        ["IMG_9000.HEIC"],
        ["IMG_9000"],
        ["dsc-01234"],
        ["DSC01234"],
        ["missing.jpg", "+", "at night"],
        ["at night", "-", "sub/missing.cr3"],
        ["IMG_9000.HEIC at night"],
        ["my photo.jpg"],
        ["clip.mov"],
        ["drawing.psd"],
    ],
)
def test_a_file_name_that_no_photo_has_is_never_words(arguments, library, photos):
    library.update([photos])
    with refuses("not_found"):
        library.search(Query(parse_arguments(arguments)))
    with refuses("not_found"):
        library.search(" ".join(arguments))


def test_the_name_of_a_camera_file_needs_no_suffix(library, tmp_path):
    paint(tmp_path / "new" / "IMG_9000.png", "red")
    paint(tmp_path / "new" / "DSC01234.png", "blue")
    library.update([tmp_path / "new"], query=library.prepare("IMG_9000"))
    for name in ("IMG_9000", "img_9000", "DSC01234"):
        [photo] = library.search(name).photos
        assert photo.relative.lower() == f"{name.lower()}.png"
    for text in ("covid-19", "2041", "mp3", "B-52"):  # words
        check_words(text)


@pytest.mark.parametrize(
    ("line", "terms"),
    [
        ("beach -people", "+beach|-people"),
        ("beach -people sunset", "+beach sunset|-people"),
        ('beach -"palm trees" -dogs', "+beach|-palm trees|-dogs"),
        ("a t-shirt -red", "+a t-shirt|-red"),
        ('"a dog -people"', "+a dog -people"),
        ("dogs 2018 -2019", "+dogs 2018 -2019"),
    ],
)
def test_a_minus_before_a_word_subtracts_this_word(line, terms):
    expected = [(part[0], part[1:]) for part in terms.split("|")]
    assert [(term.sign, term.value) for term in parse_query(line)] == expected
    if '"' not in line:  # in one pair of quotes of a shell
        assert [(term.sign, term.value) for term in parse_arguments([line])] == expected


def test_words_with_dots_are_words():
    for words in ("a dog.", "st. bernard", "a .jpg", "no. 5", "mr. t", "i.e. a cat", "a png or jpg"):
        assert parse_arguments([words]) == text(f"+{words}")
        assert parse_query(words) == text(f"+{words}")


def test_a_file_that_is_no_photo_or_cannot_be_read_is_an_error(tmp_path, monkeypatch):
    (tmp_path / "notes.txt").write_text("dogs")
    with refuses("wrong_file"):
        parse_arguments([str(tmp_path / "notes.txt")])
    (tmp_path / "raw.cr3").write_bytes(b"x")
    monkeypatch.setattr("fishermix_photos.photos.formats._has_module", lambda module: False)
    with refuses("wrong_file"):
        parse_arguments([str(tmp_path / "raw.cr3")])


def test_one_line_is_split_at_lone_signs():
    assert parse_query("a dog on a beach - people") == text("+a dog on a beach", "-people")
    assert parse_query('"beach" - "people"') == text("+beach", "-people")
    assert parse_query('"black - white" photo') == text("+black - white photo")
    assert parse_query("a well-known t-shirt") == text("+a well-known t-shirt")
    assert parse_query("photo:ab12 + at night") == (Term("+", "id", "ab12"), *text("+at night"))


@pytest.mark.parametrize("arguments", [["a", "b"], ["a", "+"], ["a", "+", "-", "b"], ["-", "+", "b"], []])
def test_unclear_queries_are_refused(arguments):
    with refuses("wrong_query"):
        parse_arguments(arguments)


def test_a_sentence_longer_than_a_file_name_is_text():
    sentence = "a dog and " * 40
    assert parse_arguments([sentence]) == text(f"+{sentence}")
    assert parse_arguments(["~nobody/x"]) == text("+~nobody/x")


@given(st.text(max_size=60))
def test_any_line_is_a_query_or_a_clear_mistake(line):
    try:
        terms = parse_query(line)
    except FishermixError:
        return
    assert terms
    assert all(term.sign in "+-" for term in terms)


def test_the_vector_of_a_combination():
    model = TinyModel()
    red, blue = np.eye(7, dtype=np.float32)[[NAMES.index("red"), NAMES.index("blue")]]
    np.testing.assert_allclose(
        embed_terms(text("+red", "+blue"), model, {}.get).vector, (red + blue) / np.sqrt(2), rtol=1e-6
    )
    by_id = embed_terms([Term("+", "id", "x")], model, {"x": blue}.get).vector
    np.testing.assert_allclose(by_id, blue)
    only_minus = embed_terms(text("-red", "-blue"), model, {}.get)
    np.testing.assert_allclose(only_minus.vector, -(red + blue) / np.sqrt(2), rtol=1e-6)
    assert only_minus.unwanted is None


@given(st.lists(st.floats(-1, 1, width=32), min_size=7, max_size=7), st.sampled_from(["", "2:", "0.5:"]))
def test_what_is_subtracted_only_lowers_scores(photo, weight):
    """By as much as a photo shows of it; one that shows nothing of it loses nothing."""
    photo = np.array([photo], np.float32)
    red, blue = photo[0, [NAMES.index("red"), NAMES.index("blue")]]
    vector = embed_terms(parse_query(f"red - {weight}blue"), TinyModel(), {}.get)
    score = vector.subtract(photo @ vector.vector, photo)[0]
    factor = float(weight.removesuffix(":") or 1)
    loss = max(0.0, blue - 0.1) + 4 * max(0.0, blue - 0.2)
    assert score == pytest.approx(red - factor * loss, abs=1e-4)
    assert score <= red


def test_queries_without_a_direction_are_explained():
    model = TinyModel()
    with refuses("unknown_term"):
        embed_terms(text("+zorblax"), model, {}.get)
    with refuses("unknown_term"):
        embed_terms([Term("+", "id", "nothing")], model, {}.get)
    with refuses("wrong_query"):
        embed_terms(text("+red", "-red"), model, {}.get)


@pytest.mark.parametrize(
    ("query", "value", "weight"),
    [
        ('2:"2 dogs"', "2 dogs", 2.0),
        ('.5:"3 cats"', "3 cats", 0.5),
        ('"200:dog"', "200:dog", 1.0),
        ('"photo:abc"', "photo:abc", 1.0),
        ('"dog.jpg"', "dog.jpg", 1.0),
    ],
)
def test_nothing_is_read_into_quoted_words(query, value, weight):
    (term,) = parse_query(query)
    assert (term.kind, term.value, term.weight, term.is_quoted) == ("text", value, weight, True)


def test_the_weight_of_quoted_words_is_checked():
    with refuses("wrong_query"):
        parse_query('200:"2 dogs"')


def test_words_in_quotes_within_a_sentence_are_kept():
    for line in ('a red "bycicle" in 2005', '"sunsett" beach', 'a "big sunsett" - people'):
        assert write_query(parse_query(line)) == write_query(parse_query(write_query(parse_query(line))))
        (by_line, *_), (by_argument, *_) = parse_query(line), parse_arguments([line])
        assert (by_line.value, by_line.kept) == (by_argument.value, by_argument.kept)
    assert parse_query('a red "bycicle" in 2005')[0].kept == ("bycicle",)
    assert parse_query('a "big sunsett" - people')[0].kept == ("big", "sunsett")


@given(
    st.lists(st.floats(-1, 1), min_size=2, max_size=20),
    st.lists(st.floats(-1, 1), min_size=2, max_size=20),
    st.floats(0.01, 100),
)
def test_what_is_subtracted_only_lowers_scores_and_more_of_it_lowers_them_more(scores, unwanted, weight):
    n = min(len(scores), len(unwanted))
    wanted, shown = np.array(scores[:n]), np.sort(unwanted[:n])
    losses = wanted - subtract_scores(wanted, shown[:, None], [weight])
    assert (losses >= -1e-9).all()
    assert np.abs(losses[shown <= 0.1]).max(initial=0) <= 1e-9
    assert (np.diff(losses) >= -1e-9).all()


def test_what_probably_shows_the_subtracted_falls_behind_what_does_not():
    """A photo of people at a beach scores 0.6 with beach and 0.45 with people, an empty one 0.4 and 0.3."""
    people, empty = subtract_scores(np.array([0.6, 0.4]), np.array([[0.45], [0.3]]), [1.0])
    assert people < empty
