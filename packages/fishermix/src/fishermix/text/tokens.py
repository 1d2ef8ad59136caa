"""Sentences to tokens, and other spellings of tokens: a small, deterministic tokenizer for captions.

The rules of `tokenize`, in this order:
1. Unicode NFKC, plain quotes and dashes instead of typographic ones, lower case.
2. "n't" becomes "not": isn't -> is not; can't, won't, shan't, ain't -> can, will, shall, is, and not.
3. 's 're 've 'll 'd 'm are removed, attached or not: the dog's ball -> the dog ball.
4. A token is a run of letters and digits, with hyphens or apostrophes inside it (t-shirt, o'clock); a number
   with a decimal point (2.5); or letters with periods (u.s.). 1,000 is 1000. All else separates tokens.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence

Sentence = str | Sequence[str]

PLAIN = str.maketrans({"‘": "'", "’": "'", "ʼ": "'", "`": "'", "‐": "-", "‑": "-", "–": " ", "—": " "})
NEGATION = re.compile(r"(?<![^\W_])([a-z]*?) ?n't(?![^\W_])")
NEGATED = {"ca": "can", "wo": "will", "sha": "shall", "ai": "is"}
CLITIC = re.compile(r" ?'(?:s|re|ve|ll|d|m)(?![^\W_]|')")
THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
TOKEN_PATTERN = re.compile(r"\d+\.\d+|(?<![^\W_])(?:[a-z]\.){2,}|[^\W_]+(?:[-'][^\W_]+)*")
NUMBER_WORDS = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven"),
    *("twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty"),
)
_AMERICAN = "grey/gray our/or tre/ter lli/li lle/le ise/ize isi/izi"
AMERICAN = [pair.split("/") for pair in _AMERICAN.split()]
_FUNCTION_WORDS = """
a an the this that these those some any all each every both another other others no not
i you he she it we they him her them his hers its their our your my who whom whose which what where when
one two three four five six seven eight nine ten several many few more most much
of in on at to into onto from by with without for about around above across after against along alongside
among as away back before behind below beneath beside besides between beyond down during front inside
like near next off out outside over past through throughout together toward towards under underneath until
up upon via while within
and or but nor so than then there here if because also just very too
is are was were be been being am has have had having do does did doing can could will would may might must
"""
STOP_WORDS = frozenset(_FUNCTION_WORDS.split())


def tokenize(sentence: str) -> list[str]:
    """The words of a sentence, in order.

    Parameters
    ----------
    sentence : str
        The sentence.

    Returns
    -------
    words : list of str

    Examples
    --------
    >>> tokenize("The dog's not in a T-shirt; it isn't 2.5 feet tall!")
    ['the', 'dog', 'not', 'in', 'a', 't-shirt', 'it', 'is', 'not', '2.5', 'feet', 'tall']
    """
    plain = sentence.lower().rstrip(" .\n")
    if plain.isascii() and plain.replace(" ", "").isalpha():
        return plain.split()  # most captions: the rules below give the same result and take ten times as long
    text = unicodedata.normalize("NFKC", sentence).translate(PLAIN).lower()
    text = NEGATION.sub(lambda found: f"{NEGATED.get(found[1], found[1])} not", text)
    return TOKEN_PATTERN.findall(THOUSANDS.sub("", CLITIC.sub("", text)))


def spellings(token: str) -> Iterator[str]:
    """The spellings under which to look up a token: itself first, then other cases, then other variants.

    A vocabulary may hold names only capitalized, numbers as `##` (GoogleNews) or as words, compounds as one
    word or with an underscore, only American spellings, and no accents.

    >>> list(spellings("colour"))
    ['colour', 'Colour', 'COLOUR', 'color']
    """
    yield from _vary_case(token)
    if token.isdecimal():
        if len(token) <= 2 and int(token) < len(NUMBER_WORDS):
            yield NUMBER_WORDS[int(token)]
        if len(token) > 1:
            yield "#" * len(token)
        return
    if "-" in token:
        yield from _vary_case(token.replace("-", "_"))
        yield token.replace("-", "")
    if "." in token:
        yield token.replace(".", "").upper()
        yield token.replace(".", "")
    if not token.isascii():
        bare = "".join(c for c in unicodedata.normalize("NFKD", token) if not unicodedata.combining(c))
        yield from _vary_case(bare)
    for british, american in AMERICAN:
        if british in token:
            yield token.replace(british, american)


def _vary_case(token: str) -> tuple[str, str, str]:
    return token, token.capitalize(), token.upper()
