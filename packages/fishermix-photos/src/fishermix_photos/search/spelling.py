"""Which word of a vocabulary a mistyped one means, and which mistakes are corrected without asking."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from fishermix.text.tokens import STOP_WORDS
from fishermix.text.vocabulary import Vocabulary

from fishermix_photos.search.names import EVERYDAY_USES
from fishermix_photos.search.notes import Note
from fishermix_photos.search.terms import Term, write_query

if TYPE_CHECKING:
    from fishermix_photos.model.model import ImageTextModel

SHORTEST_CORRECTED = 4  # letters; a shorter word has neighbors of every meaning
MOST_MISTAKES = 2  # letters that are missing, added, replaced, or exchanged with the next one
# Letters that sound alike: whoever writes elefant means elephant rather than elegant.
SOUNDS = {"ph": "f", "ck": "k", "ch": "k", "qu": "k", "c": "k", "q": "k", "wh": "w", "rh": "r"}
SOUNDS |= {"ei": "i", "ie": "i", "y": "i", "ea": "e", "ee": "e", "z": "s", "j": "g"}
ENDINGS = ("s", "es", "ed", "er", "ing", "ly")
LEAST_LIKENESS = 0.15  # of a mistyped word and what is meant, for a sentence transformer
LEAST_LIKENESS_OF_RARE = 0.4  # if there is more reason to doubt, such as two mistakes
LONG = 7  # letters; a shorter word has at most one mistake, and with a capital letter it is often a name
MOST_COMPARED = 5  # words with the same number of mistakes
SOUND = re.compile("|".join(sorted(SOUNDS, key=len, reverse=True)))


def suggest_word(word: str, model: ImageTextModel) -> str | None:
    """The word that may be meant by one that is out of the vocabulary; None if there is none like it.

    Names and words of other languages are near to some word, too, as Hund is to hand. So both words must mean
    something alike if there are two mistakes, if no sentence about photos has the other word, if the
    transformer has learned the typed one, or if it is so short that every word is near to it.
    """
    typed, word = word, word.lower()
    found = list_spellings(word, model.vocabulary, model.word_counts)
    if not found or (found[0][1] > 1 and (len(word) < LONG or typed[0].isupper())):
        return None
    fewest = found[0][1]
    other, alike = _find_most_alike(word, [other for other, mistakes in found if mistakes == fewest], model)
    is_swapped = sorted(word) == sorted(other)
    is_doubtful = fewest > 1 or not model.word_counts.get(other) or model.knows_word(word)
    is_doubtful |= len(word) == SHORTEST_CORRECTED and not is_swapped
    if alike < (LEAST_LIKENESS_OF_RARE if is_doubtful else LEAST_LIKENESS):
        return None
    return None if _may_be_a_name(typed, other, model) else other


def list_spellings(word: str, vocabulary: Vocabulary, uses: Mapping[str, int]) -> list[tuple[str, float]]:
    """The words of a vocabulary that a word in lower case may mean, with the mistakes between them: those of
    the fewest mistakes first.

    A word that sounds like the mistyped one counts as half a mistake. Of equals, the one that `uses` counts
    most often is first; then the order is that of the vocabulary: frequent words first.
    """
    from rapidfuzz import process
    from rapidfuzz.distance import OSA

    if len(word) < SHORTEST_CORRECTED or not word.isalpha():
        return []
    sound = write_sound(word)
    similar = process.extract(
        word, list(vocabulary), scorer=OSA.distance, score_cutoff=MOST_MISTAKES, limit=None
    )
    found = []
    for other, distance, row in similar:
        mistakes: float = distance
        if write_sound(other) == sound:
            mistakes = min(mistakes, 0.5)
        elif sorted(other) == sorted(word):
            mistakes = min(mistakes, 1)
        if _may_be_meant(word, other):
            found.append((mistakes, -uses.get(other, 0), row, other))
    return [(other, mistakes) for mistakes, _, _, other in sorted(found)]


def correct_typo(word: str, model: ImageTextModel) -> str | None:
    """The word that is surely meant by a mistyped one: there is one mistake, the typed word is none that the
    model or its sentence transformer knows, and to the transformer both mean something alike. None if it is
    not sure.
    """
    typed, word = word, word.lower()
    if model.knows_word(word):
        return None
    found = list_spellings(word, model.vocabulary, model.word_counts)
    one_mistake = [other for other, mistakes in found if mistakes == found[0][1] <= 1]
    if not one_mistake or (len(word) == SHORTEST_CORRECTED and sorted(word) != sorted(one_mistake[0])):
        return None
    if any(is_form_of(word, other) for other in one_mistake):
        return None  # no mistake
    other, alike = _find_most_alike(word, one_mistake, model)
    least = LEAST_LIKENESS if model.word_counts.get(other) else LEAST_LIKENESS_OF_RARE
    return other if alike >= least and not _may_be_a_name(typed, other, model) else None


def suggest_everyday_word(word: str, model: ImageTextModel) -> str | None:
    """The everyday word that may be meant by one of the vocabulary, as mountain by moutain; None if there is
    none.

    Many people mistype such a word, so it has a vector, but a poor one. No sentence about photos has it, and
    the sentence transformer has not learned it. It lacks a letter, has one too many, or two are exchanged:
    with another letter, most are words of their own.
    """
    word = word.lower()
    if len(word) < SHORTEST_CORRECTED or word not in model.vocabulary or model.is_whole_word(word):
        return None
    if model.word_counts.get(word) or is_known_form(word, model.vocabulary):
        return None
    found = [
        other
        for other, mistakes in list_spellings(word, model.vocabulary, model.word_counts)
        if mistakes <= 1
        and model.word_counts.get(other, 0) >= EVERYDAY_USES
        and (len(other) != len(word) or sorted(other) == sorted(word))
        and (other[0], other[-1]) == (word[0], word[-1])
    ]
    if not found:
        return None
    other, alike = max(zip(found, model.compare_words(word, found[:MOST_COMPARED])), key=lambda pair: pair[1])
    return other if alike >= LEAST_LIKENESS_OF_RARE else None


def _find_most_alike(word: str, others: Sequence[str], model: ImageTextModel) -> tuple[str, float]:
    """The word that means what a mistyped one means, and how much alike they are. Everyday words come before
    others, and those that sentences about photos use before those that none uses.
    """
    for least in (EVERYDAY_USES, 1, 0):
        used = [other for other in others if model.word_counts.get(other, 0) >= least][:MOST_COMPARED]
        if used:
            break
    return max(zip(used, model.compare_words(word, used)), key=lambda pair: pair[1])


def _may_be_a_name(typed: str, other: str, model: ImageTextModel) -> bool:
    """Whether a word is short, has a capital letter and is near to nothing that photos often show: as Bello,
    which is near to bell.
    """
    is_everyday = model.word_counts.get(other, 0) >= EVERYDAY_USES
    return typed[:1].isupper() and len(typed) < LONG and not is_everyday


def is_form_of(word: str, other: str) -> bool:
    """Whether a word is another one with an ending, as gorillas of gorilla."""
    stems = other, other.removesuffix("e")
    forms = {stem + ending for stem in stems for ending in ENDINGS}
    if other.endswith("y"):
        forms.add(other.removesuffix("y") + "ies")
    return not other.endswith("s") and word in forms


def is_known_form(word: str, vocabulary: Vocabulary) -> bool:
    """Whether a word is a known one with an ending."""
    stems = [word.removesuffix(ending) for ending in ENDINGS if word.endswith(ending)]
    known = [*stems, *(f"{stem}e" for stem in stems), word.removesuffix("ies") + "y"]
    return any(other in vocabulary and is_form_of(word, other) for other in known)


def correct_terms(
    terms: Sequence[Term], original: Sequence[Term], is_name: Callable[[str], bool], model: ImageTextModel
) -> tuple[tuple[Term, ...], list[Note]]:
    """Sentences without typing mistakes, and a note on each correction.

    original : the terms as they were typed, for the line that searches for a word as it is
    """
    corrected: list[Term] = []
    notes: list[Note] = []
    for term in terms:
        if term.kind == "text" and not term.is_quoted:
            for word in dict.fromkeys(re.findall(r"[^\W\d_]+", term.value)):
                is_kept = word in term.kept or word.lower() in STOP_WORDS
                better = None if is_kept else correct_typo(word, model)
                if better is not None and not is_name(word):
                    term = replace_word([term], word, better)[0]
                    notes.append(Note("corrected", word, better, suggestion=keep_word(original, word)))
        corrected.append(term)
    return tuple(corrected), notes


def replace_word(terms: Sequence[Term], word: str, better: str) -> tuple[Term, ...]:
    """Terms with another word in place of one."""
    whole = re.compile(rf"\b{re.escape(word)}\b", re.IGNORECASE)
    return tuple(replace(term, value=whole.sub(better, term.value)) for term in terms)


def keep_word(terms: Sequence[Term], word: str) -> str | None:
    """The line of these terms with a word in quotes."""
    return write_query([replace(term, kept=(*term.kept, word)) for term in terms])


def write_sound(word: str) -> str:
    """A word with one spelling for letters that sound alike."""
    return SOUND.sub(lambda found: SOUNDS[found[0]], word)


def _may_be_meant(word: str, other: str) -> bool:
    """Whether hardly anybody would mistype the first letter, or half of a short word."""
    return other[:1] == word[:1] or len(word) > 2 * MOST_MISTAKES
