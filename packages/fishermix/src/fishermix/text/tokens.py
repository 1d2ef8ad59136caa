"""Sentences to tokens, and tokens to rows of the vocabulary: a small, deterministic tokenizer for captions.

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
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain
from typing import overload

import numpy as np

from fishermix.errors import FishermixError

Sentence = str | Sequence[str]

VOCABULARY_TENSORS = {
    "words": "uint8",
    "word_offsets": "int64",
    "word_hashes": "uint64",
    "word_order": "int64",
}
CHECKED_WORDS = 8  # that are looked up when tables are opened
MOST_REMEMBERED_TOKENS = 1_000_000  # about 200 MB; then the lookup forgets them all
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


class Vocabulary(Sequence[str]):
    """n different words: one blob of bytes and a sorted table of hashes.

    blob (bytes,) uint8: the words in UTF-8, one after the other; offsets (n + 1,) int64: where each begins.
    hashes (n,) uint64: the sorted hashes of the words; order (n,) int64: the word each of them belongs to.

    Opening decodes and hashes nothing, so all four arrays may be memory-mapped.
    """

    def __init__(self, blob: np.ndarray, offsets: np.ndarray, hashes: np.ndarray, order: np.ndarray):
        n = len(hashes)
        fits = len(offsets) == n + 1 and len(order) == n and offsets[0] == 0 and offsets[-1] == len(blob)
        if not fits:
            raise FishermixError("The vocabulary is damaged: its tables do not fit together.")
        # Plain views of the maps: a slice of a np.memmap takes as long as a whole lookup.
        self._blob, self._offsets, self._hashes, self._order = map(np.asarray, (blob, offsets, hashes, order))

    @classmethod
    def from_words(cls, words: Iterable[str]) -> Vocabulary:
        encoded = [word.encode() for word in words]
        offsets = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum([len(word) for word in encoded], out=offsets[1:])
        hashes = np.array([_hash(word) for word in encoded], np.uint64)
        order = np.argsort(hashes, kind="stable")
        hashes = hashes[order]
        for left in np.flatnonzero(hashes[1:] == hashes[:-1]):
            run = order[hashes == hashes[left]]
            [(word, times)] = Counter(encoded[row] for row in run).most_common(1)
            if times > 1:
                raise FishermixError(f"The word '{word.decode()}' occurs twice.")
        return cls(np.frombuffer(b"".join(encoded), np.uint8), offsets, hashes, order)

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, np.ndarray]) -> Vocabulary:
        for name, dtype in VOCABULARY_TENSORS.items():
            if name not in tensors or tensors[name].ndim != 1 or tensors[name].dtype != dtype:
                raise FishermixError(f"The vocabulary is damaged: the tensor '{name}' is missing or invalid.")
        found = cls(*(tensors[name] for name in VOCABULARY_TENSORS))
        rows = np.linspace(0, len(found) - 1, CHECKED_WORDS if len(found) else 0).astype(int).tolist()
        if found.rows([found[row] for row in rows]) != rows:
            raise FishermixError("The vocabulary is damaged: words are not found where its table says.")
        return found

    def to_tensors(self) -> dict[str, np.ndarray]:
        return dict(zip(VOCABULARY_TENSORS, (self._blob, self._offsets, self._hashes, self._order)))

    def __len__(self) -> int:
        return len(self._hashes)

    @overload
    def __getitem__(self, row: int) -> str: ...
    @overload
    def __getitem__(self, row: slice) -> list[str]: ...
    def __getitem__(self, row):
        if isinstance(row, slice):
            return [self[i] for i in range(*row.indices(len(self)))]
        if not -len(self) <= row < len(self):
            raise IndexError(f"row {row} of {len(self)} words")
        row %= len(self)
        try:
            return self._read(row).decode()
        except UnicodeDecodeError as error:
            raise FishermixError(f"The vocabulary is damaged: word {row} is not UTF-8.") from error

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and self.rows([word])[0] >= 0

    def rows(self, words: Iterable[str]) -> list[int]:
        """The row of each word, -1 for a word out of vocabulary."""
        rows = []
        encoded = [word.encode(errors="replace") for word in words]
        hashes = [_hash(word) for word in encoded]
        places = self._hashes.searchsorted(np.array(hashes, np.uint64)).tolist()
        for word, hashed, at in zip(encoded, hashes, places):
            found = -1
            while found < 0 and at < len(self._hashes) and int(self._hashes[at]) == hashed:
                row = int(self._order[at])
                if 0 <= row < len(self._hashes) and self._read(row) == word:
                    found = row
                at += 1
            rows.append(found)
        return rows

    def _read(self, row: int) -> bytes:
        return self._blob[self._offsets[row] : self._offsets[row + 1]].tobytes()


def _hash(encoded: bytes) -> int:
    # Written to disk, so it has to be the same in every process: Python's own hash() is salted.
    return int.from_bytes(blake2b(encoded, digest_size=8).digest(), "little")


@dataclass(frozen=True)
class WordBags:
    """What `WordLookup.find` found in n sentences.

    rows: rows of the vocabulary, int64; sentence s has rows[offsets[s]:offsets[s + 1]].
    tokens: the tokens of each sentence, without stop words. lookup: what found them.
    """

    rows: np.ndarray
    offsets: np.ndarray
    tokens: list[list[str]]
    lookup: WordLookup

    @property
    def out_of_vocabulary(self) -> list[list[str]]:
        """For each sentence, its tokens that are not in the vocabulary."""
        return [[token for token in tokens if not self.lookup[token]] for tokens in self.tokens]

    @property
    def empty(self) -> np.ndarray:
        """The positions of the sentences without any word of the vocabulary."""
        return np.flatnonzero(np.diff(self.offsets) == 0)


class WordLookup:
    """Finds tokens in a vocabulary: as they are, in another spelling, or by the parts of a hyphenated word.

    `lookup[token]` is a tuple of rows: one row, several for a compound known by its parts, or none.
    """

    def __init__(self, vocabulary: Vocabulary, stop_words: Iterable[str] = ()):
        if isinstance(stop_words, str):
            raise FishermixError(f"stop_words is {stop_words!r}. Give a list of words, such as ['a', 'the'].")
        self.vocabulary = vocabulary
        self.stop_words = frozenset(stop_words)
        self._rows: dict[str, tuple[int, ...]] = {}

    def __getitem__(self, token: str) -> tuple[int, ...]:
        if token not in self._rows:
            self._learn([token])
        return self._rows[token]

    def tokenize(self, sentence: Sentence) -> list[str]:
        """The tokens of a string, or of a list of tokens, without the stop words."""
        if isinstance(sentence, str):
            tokens = tokenize(sentence)
        else:
            is_list = isinstance(sentence, Iterable) and not isinstance(sentence, bytes)
            tokens = list(sentence) if is_list else []
            if not is_list or not all(isinstance(token, str) for token in tokens):
                raise FishermixError(f"A sentence must be a string or a list of words, not {sentence!r:.60}.")
        return [token for token in tokens if token not in self.stop_words] if self.stop_words else tokens

    def find(self, sentences: Iterable[Sentence]) -> WordBags:
        """Tokenize sentences, each once, and find the rows of their words."""
        tokenized = [self.tokenize(sentence) for sentence in sentences]
        if not all(map(self._rows.__contains__, chain.from_iterable(tokenized))):
            self._learn(chain.from_iterable(tokenized))
        rows: list[int] = []
        offsets, find_rows = [0], self._rows.__getitem__
        for tokens in tokenized:
            rows.extend(chain.from_iterable(map(find_rows, tokens)))
            offsets.append(len(rows))
        return WordBags(np.array(rows, np.int64), np.array(offsets, np.int64), tokenized, self)

    def _learn(self, tokens: Iterable[str]) -> None:
        """Look up the tokens that are new, all in one go."""
        if len(self._rows) >= MOST_REMEMBERED_TOKENS:
            self._rows.clear()
        missing = self._learn_spellings(tokens)
        self._rows.update(dict.fromkeys(missing, ()))
        compounds = {
            token: [part for part in token.split("-") if part not in self.stop_words]
            for token in missing
            if "-" in token  # snow-covered
        }
        unknown = self._learn_spellings(chain.from_iterable(compounds.values()))
        self._rows.update(dict.fromkeys(unknown, ()))
        for token, parts in compounds.items():
            self._rows[token] = tuple(row for part in parts for row in self._rows[part])

    def _learn_spellings(self, tokens: Iterable[str]) -> list[str]:
        """Look up tokens, in other spellings if need be; returns those that are not found."""
        new = [token for token in dict.fromkeys(tokens) if token not in self._rows]
        if not new:
            return []
        others = []
        for token, row in zip(new, self.vocabulary.rows(new)):
            if row < 0:
                others += [(token, spelling) for spelling in spellings(token)]
            else:
                self._rows[token] = (row,)
        if others:
            for (token, _), row in zip(others, self.vocabulary.rows([spelling for _, spelling in others])):
                if row >= 0 and token not in self._rows:
                    self._rows[token] = (row,)
        return [token for token in new if token not in self._rows]
