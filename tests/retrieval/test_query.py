"""Queries are read as they are meant."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_model import NAMES, TinyModel, paint

from fishermix.errors import FishermixError
from fishermix.retrieval.query import Term, query_vector, terms_of_arguments, terms_of_text


def text(*signed):
    return [Term(piece[0], "text", piece[1:]) for piece in signed]


def test_arguments_are_terms_with_signs_between():
    assert terms_of_arguments(["two dogs - or one"]) == text("+two dogs - or one")
    assert terms_of_arguments(["beach", "-", "people", "+", "a dog"]) == text("+beach", "-people", "+a dog")
    assert terms_of_arguments(["-", "people"]) == text("-people")


def test_a_photo_is_a_term_only_if_it_exists(tmp_path):
    photo = paint(tmp_path / "a.png", "red")
    assert terms_of_arguments([str(photo), "+", "at night"]) == [
        Term("+", "photo", str(photo)),
        *text("+at night"),
    ]
    assert terms_of_arguments(["missing.png"]) == text("+missing.png")


def test_one_line_is_split_at_lone_signs():
    assert terms_of_text("a dog on a beach - people") == text("+a dog on a beach", "-people")
    assert terms_of_text('"beach" - "people"') == text("+beach", "-people")
    assert terms_of_text('"black - white" photo') == text("+black - white photo")
    assert terms_of_text("a well-known t-shirt") == text("+a well-known t-shirt")
    assert terms_of_text("photo:ab12 + at night") == [Term("+", "id", "ab12"), *text("+at night")]


@pytest.mark.parametrize("arguments", [["a", "b"], ["a", "+"], ["a", "+", "-", "b"], ["-", "+", "b"], []])
def test_unclear_queries_are_refused(arguments):
    with pytest.raises(FishermixError):
        terms_of_arguments(arguments)


@given(st.text(max_size=60))
def test_any_line_is_a_query_or_a_clear_mistake(line):
    try:
        terms = terms_of_text(line)
    except FishermixError:
        return
    assert terms
    assert all(term.sign in "+-" for term in terms)


def test_the_point_of_a_combination():
    model = TinyModel()
    red, blue = np.eye(7, dtype=np.float32)[[NAMES.index("red"), NAMES.index("blue")]]
    np.testing.assert_allclose(
        query_vector(text("+red", "+blue"), model), (red + blue) / np.sqrt(2), rtol=1e-6
    )
    minus = query_vector(text("+red", "-blue"), model)
    np.testing.assert_allclose(minus, (red - blue) / np.sqrt(2), rtol=1e-6)
    by_id = query_vector([Term("+", "id", "x")], model, {"x": blue}.get)
    np.testing.assert_allclose(by_id, blue)


def test_queries_without_a_direction_are_explained():
    model = TinyModel()
    with pytest.raises(FishermixError, match="knows no word"):
        query_vector(text("+zorblax"), model)
    with pytest.raises(FishermixError, match="no photo"):
        query_vector([Term("+", "id", "nothing")], model, {}.get)
    with pytest.raises(FishermixError, match="takes away"):
        query_vector(text("+red", "-red"), model)
