"""The documented rules of the tokeniser, one by one."""

import doctest

import pytest
from fishermix.text import tokens
from fishermix.text.tokens import spellings, tokenize
from hypothesis import given
from hypothesis import strategies as st

CASES = {
    "A Dog runs , fast .": "a dog runs fast",
    "a man 's hat and the man's dog": "a man hat and the man dog",
    "It isn't ; it is n't": "it is not it is not",
    "can't won't shan't ain't": "can not will not shall not is not",
    "ca n't wo n't": "can not will not",
    "don’t": "do not",
    "They're we've I'll he'd I'm": "they we i he i",
    "snow-covered T-shirt - well": "snow-covered t-shirt well",
    "2 dogs, 1,000 cats, 2.5 m, no 23": "2 dogs 1000 cats 2.5 m no 23",
    "U.S. flag": "u.s. flag",
    "six o'clock": "six o'clock",
    "tikes' 'quoted' \"words\"": "tikes quoted words",
    "one/two_three": "one two three",
    "café ＡＢＣ": "café abc",
    "a—b": "a b",
    "... !? '' -": "",
    "": "",
}


@pytest.mark.parametrize("sentence", CASES)
def test_rules(sentence):
    assert tokenize(sentence) == CASES[sentence].split()


@pytest.mark.slow
@given(st.text())
def test_tokens_hold_neither_spaces_nor_capitals_and_are_stable(sentence):
    found = tokenize(sentence)
    for token in found:
        assert token
        assert token == token.lower()
        assert not any(c.isspace() for c in token)


@pytest.mark.slow
@given(st.lists(st.from_regex(r"[a-z]{1,8}(-[a-z]{1,8})?", fullmatch=True)))
def test_plain_words_come_back_as_they_are(words):
    assert tokenize(" ".join(words)) == words
    assert tokenize(" , ".join(words).upper() + ".") == words


@pytest.mark.parametrize(
    ("token", "spelling"),
    [
        ("john", "John"),
        ("bmx", "BMX"),
        ("t-shirt", "t_shirt"),
        ("wet-suit", "wetsuit"),
        ("2", "two"),
        ("12", "##"),
    ]
    + [
        ("grey", "gray"),
        ("colourful", "colorful"),
        ("piñata", "pinata"),
        ("u.s.", "US"),
        ("travelling", "traveling"),
    ],
)
def test_spellings_begin_with_the_token_and_offer(token, spelling):
    offered = list(spellings(token))
    assert offered[0] == token
    assert spelling in offered


def test_the_documented_examples():
    assert doctest.testmod(tokens).failed == 0


@given(st.text(alphabet=" abA-,;!?."))
def test_the_short_cut_for_plain_sentences_changes_nothing(sentence):
    # An apostrophe between spaces is no token, but it leads past the short cut.
    assert tokenize(sentence) == tokenize(f"{sentence} ' ")
