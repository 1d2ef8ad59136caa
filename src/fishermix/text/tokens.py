"""A small, deterministic tokeniser for captions, and the spellings under which a word may be known.

Rules, in this order:
1. Unicode NFKC, typographic quotes and dashes made plain, lower case.
2. "n't" becomes "not": isn't -> is not; can't, won't, shan't, ain't -> can, will, shall, is, and not.
3. 's 're 've 'll 'd 'm are left out, attached or apart: the dog's ball -> the dog ball.
4. A token is a run of letters and digits, with hyphens or apostrophes inside it (t-shirt, o'clock); a number
   with a decimal point (2.5); or letters with full stops (u.s.). 1,000 is 1000. All else separates tokens.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

PLAIN = str.maketrans({"‘": "'", "’": "'", "ʼ": "'", "`": "'", "‐": "-", "‑": "-", "–": " ", "—": " "})
NEGATION = re.compile(r"(?<![^\W_])([a-z]*?) ?n't(?![^\W_])")
NEGATED = {"ca": "can", "wo": "will", "sha": "shall", "ai": "is"}
CLITIC = re.compile(r" ?'(?:s|re|ve|ll|d|m)(?![^\W_]|')")
THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
TOKEN = re.compile(r"\d+\.\d+|(?<![^\W_])(?:[a-z]\.){2,}|[^\W_]+(?:[-'][^\W_]+)*")
NUMBERS = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven"),
    *("twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty"),
)
AMERICAN = [
    ("grey", "gray"),
    ("our", "or"),
    ("tre", "ter"),
    ("lli", "li"),
    ("lle", "le"),
    ("ise", "ize"),
    ("isi", "izi"),
]


def tokenize(sentence: str) -> list[str]:
    """The words of a sentence, in order.

    >>> tokenize("The dog's not in a T-shirt; it isn't 2.5 feet tall!")
    ['the', 'dog', 'not', 'in', 'a', 't-shirt', 'it', 'is', 'not', '2.5', 'feet', 'tall']
    """
    plain = sentence.lower().rstrip(" .\n")
    if plain.isascii() and plain.replace(" ", "").isalpha():
        return plain.split()  # most captions: the rules below would give the same, ten times slower
    text = unicodedata.normalize("NFKC", sentence).translate(PLAIN).lower()
    text = NEGATION.sub(lambda found: f"{NEGATED.get(found[1], found[1])} not", text)
    return TOKEN.findall(THOUSANDS.sub("", CLITIC.sub("", text)))


def spellings(token: str) -> Iterator[str]:
    """Under what to look a token up: itself first, then case variants, then other ways to write it.

    A list of word vectors may hold names only with a capital, numbers as `##` (GoogleNews) or as words,
    compounds as one word or with an underscore, American spellings only, and no accents.

    >>> list(spellings("colour"))
    ['colour', 'Colour', 'COLOUR', 'color']
    """
    yield from _cased(token)
    if token.isdecimal():
        if len(token) <= 2 and int(token) < len(NUMBERS):
            yield NUMBERS[int(token)]
        if len(token) > 1:
            yield "#" * len(token)
        return
    if "-" in token:
        yield from _cased(token.replace("-", "_"))
        yield token.replace("-", "")
    if "." in token:
        yield token.replace(".", "").upper()
        yield token.replace(".", "")
    if not token.isascii():
        bare = "".join(c for c in unicodedata.normalize("NFKD", token) if not unicodedata.combining(c))
        yield from _cased(bare)
    for british, american in AMERICAN:
        if british in token:
            yield token.replace(british, american)


def _cased(token: str) -> tuple[str, str, str]:
    return token, token.capitalize(), token.upper()


def parts(token: str) -> list[str]:
    """The pieces of a hyphenated token; none for any other.

    >>> parts("snow-covered")
    ['snow', 'covered']
    """
    return token.split("-") if "-" in token else []
