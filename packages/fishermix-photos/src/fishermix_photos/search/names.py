"""Names of folders, files and places in the terms of a query.

    "peru"                  the photos in folders or places named Peru
    "a church in peru"      the same, those that look like "a church" first
    "peru, chile or lima"   the photos of one of these names
    "IMG_10987.jpg"         the photo of this name
    "a dog on the beach"    photos in folders named Beach come first among equally likely ones

A name becomes a filter if it is a file name, if the model does not know it, or if it is the name of a folder
or a place and hardly any caption of a photo contains it. A name that is also an everyday word hides nothing:
then photos of that name come first within likely, maybe and unlikely.

The text in photos counts as a name of theirs if the model does not know the word. Photos that show another
word come first of all if hardly any caption contains it: a street sign must not hide the castles, and signs
with everyday words say little. Several words are also looked for as they are ("happy birthday"), and so is
what is in quotes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from fishermix.text.tokens import STOP_WORDS

from fishermix_photos.index.names import NameCounts, fold
from fishermix_photos.photos.formats import find_format
from fishermix_photos.search.terms import Term, check_words

if TYPE_CHECKING:
    from fishermix_photos.model.model import ImageTextModel

CountNames = Callable[[Sequence[str]], Mapping[str, NameCounts]]
LONGEST_NAME = 5  # words
MOST_PREFERRED = 10_000  # photos; a name that more of them have says little
SHORTEST_TEXT = 3  # letters of a word that is looked for in the text of photos
SHORTEST_NUMBER = 4  # digits: "2 dogs" asks for no photo number 2
EVERYDAY_USES = 5  # a word of this many of the 8,000 sentences about photos is an everyday word
PREPOSITIONS = {"in", "at", "from", "near", "of", "to", "around", "the"}


@dataclass(frozen=True)
class NameReading:
    """The terms without the names that are filters, and the names.

    required : a photo must have all of them; of names joined by "or", as "peru|chile", one
    preferred : photos with one of these names come first
    written : photos that show one of these phrases as text come first
    quoted : for each required name, the term with its words in quotes, where they are no name
    """

    terms: tuple[Term, ...]
    required: tuple[str, ...] = ()
    preferred: tuple[str, ...] = ()
    written: tuple[str, ...] = ()
    quoted: Mapping[str, Term] = field(default_factory=dict)


def find_names(
    terms: Sequence[Term], count_names: CountNames, model: Callable[[], ImageTextModel]
) -> NameReading:
    """The names in terms.

    count_names : the numbers of photos that have each of several names
    model : gives the model, which is not loaded for a query without names
    """
    left: list[Term] = []
    required: list[str] = []
    preferred: list[str] = []
    written: list[str] = []
    quoted: dict[str, Term] = {}
    for term in terms:
        if term.kind == "text" and not term.is_quoted:
            if term.sign == "+":
                found = _TextNames(term.value, count_names, model)
                required += found.required
                preferred += found.preferred
                written += found.written
                quoted |= {name: replace(term, is_quoted=True) for name in found.required}
                term = replace(term, value=found.rest)
            check_words(term.value)
        elif term.kind == "text" and term.sign == "+" and _is_written(fold(term.value), count_names):
            written.append(fold(term.value))
        if term.value:
            left.append(term)
    return NameReading(
        terms=tuple(left),
        required=tuple(required),
        preferred=tuple(dict.fromkeys(preferred)),
        written=tuple(dict.fromkeys(written)),
        quoted=quoted,
    )


def describes(text: str) -> bool:
    """Whether a text has a word that describes a photo."""
    return any(word.lower().strip(".,;:!?'") not in STOP_WORDS for word in text.split())


class _FoundName(NamedTuple):
    """A name in a text: the positions of its words, and whether it is a filter."""

    phrase: str
    start: int
    end: int
    is_filter: bool


class _TextNames:
    """The names in one text, and the rest of its words."""

    def __init__(self, text: str, count_names: CountNames, model: Callable[[], ImageTextModel]):
        self.words = text.split()
        self.folded = [fold(word) for word in self.words]
        self.model = model
        self._count_names = count_names
        candidates = [folded for word, folded in zip(self.words, self.folded) if _may_be_name(word, folded)]
        self.counts = self.count_names(candidates)
        self.required: list[str] = []
        self.preferred: list[str] = []
        self.written: list[str] = []
        left = list(range(len(self.words)))  # the positions of words that are no filter
        for alternatives in self._join(self._find(model)):
            first, last = alternatives[0], alternatives[-1]
            if any(name.is_filter for name in alternatives):
                self.required.append("|".join(name.phrase for name in alternatives))
                start = first.start
                while start > 0 and self.words[start - 1].lower() in (*PREPOSITIONS, "either"):
                    start -= 1
                left = [position for position in left if not start <= position < last.end]
            else:
                phrases = [name.phrase for name in alternatives]
                self.preferred += [name for name in phrases if 0 < self._count_named(name) <= MOST_PREFERRED]
                self.written += [name for name in phrases if 0 < self.counts[name].texts <= MOST_PREFERRED]
        whole = fold(text)
        if not self.required and 1 < len(whole.split()) <= LONGEST_NAME and _is_written(whole, count_names):
            self.written.append(whole)
        rest = " ".join(self.words[position] for position in left)
        self.rest = rest if len(left) == len(self.words) or describes(rest) else ""

    def count_names(self, names: Sequence[str]) -> dict[str, NameCounts]:
        """The numbers of photos that have each of several names, without the text of everyday words."""
        counts = dict(self._count_names(names))
        for name, found in counts.items():
            if found.texts and not _is_rare(name, self.model()):
                counts[name] = found._replace(texts=0)
        return counts

    def _count_named(self, name: str) -> int:
        return max(self.counts[name]._replace(texts=0))

    def _find(self, model: Callable[[], ImageTextModel]) -> list[_FoundName]:
        """The names, from left to right."""
        found = []
        start = 0
        while start < len(self.words):
            end = self._find_end(start)
            if end > start:
                name, phrase = " ".join(self.words[start:end]), " ".join(self.folded[start:end])
                is_filter = _is_filter(name, phrase, self.counts[phrase], model())
                found.append(_FoundName(phrase=phrase, start=start, end=end, is_filter=is_filter))
            start = max(end, start + 1)
        return found

    def _join(self, names: list[_FoundName]) -> list[list[_FoundName]]:
        """Names that are alternatives, as the three of "peru, chile or lima", and other names alone."""
        runs: list[list[_FoundName]] = []
        for name in names:
            if runs and self._find_link(runs[-1][-1], name):
                runs[-1].append(name)
            else:
                runs.append([name])
        joined: list[list[_FoundName]] = []
        for run in runs:
            has_or = any(self._find_link(*pair) == "or" for pair in pairwise(run))
            joined += [run] if has_or else [[name] for name in run]
        return joined

    def _find_link(self, first: _FoundName, second: _FoundName) -> str:
        """ "or" or a comma, if nothing else but prepositions is between two names."""
        between = [word.lower() for word in self.words[first.end : second.start]]
        others = [word for word in between if word not in PREPOSITIONS]
        if others == ["or"]:
            return "or"
        return "," if not others and self.words[first.end - 1].endswith(",") else ""

    def _find_end(self, start: int) -> int:
        """Where the longest name that begins at `start` ends; `start` if there is none."""
        if not any(self.counts.get(self.folded[start], ())):
            return start
        for end in range(min(len(self.folded), start + LONGEST_NAME), start + 1, -1):
            if any(self.counts.get(self.folded[end - 1], ())):
                phrase = " ".join(self.folded[start:end])
                self.counts |= self.count_names([phrase])
                if any(self.counts[phrase]):
                    return end
        return start + 1


def _may_be_name(word: str, folded: str) -> bool:
    if folded.isdigit():
        return len(folded) >= SHORTEST_NUMBER
    return len(folded) > 1 and word.lower() not in STOP_WORDS


def _is_written(phrase: str, count_names: CountNames) -> bool:
    """Whether some photos show a phrase, and not too many."""
    return bool(phrase) and 0 < count_names([phrase])[phrase].texts <= MOST_PREFERRED


def _is_filter(name: str, phrase: str, counts: NameCounts, model: ImageTextModel) -> bool:
    """Whether only photos of this name are wanted."""
    if find_format(name) is not None:
        return True
    words = [word for word in phrase.split() if word not in STOP_WORDS]
    if not all(word in model.vocabulary for word in words):
        return True
    return bool(counts.folders or counts.places) and _has_rare(words, model)


def _is_rare(phrase: str, model: ImageTextModel) -> bool:
    """Whether photos that show this phrase are meant: the model has hardly seen one of its words."""
    words = [word for word in phrase.split() if word not in STOP_WORDS]
    is_known = all(word in model.vocabulary for word in words)
    return len(phrase) >= SHORTEST_TEXT and (not is_known or _has_rare(words, model))


def _has_rare(words: Sequence[str], model: ImageTextModel) -> bool:
    """Whether hardly any caption of a photo has one of these words of the vocabulary."""
    return model.pool is not None and any(model.word_counts[word] < EVERYDAY_USES for word in words)
