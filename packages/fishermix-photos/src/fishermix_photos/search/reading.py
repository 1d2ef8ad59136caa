"""What the words of a query mean: a date is a filter, "without" a minus, and unknown words are explained."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING

from fishermix.errors import FishermixError

from fishermix_photos.index.filters import NO_FILTER, Filter
from fishermix_photos.search.dates import is_month, may_be_dated, parse_dates
from fishermix_photos.search.names import describes
from fishermix_photos.search.negation import may_negate, parse_negations
from fishermix_photos.search.notes import Note
from fishermix_photos.search.spelling import replace_word, suggest_everyday_word, suggest_word
from fishermix_photos.search.terms import Term, write_query

if TYPE_CHECKING:
    from fishermix_photos.model.model import ImageTextModel

# What a user calls the photos themselves: it describes none of them.
ABOUT_PHOTOS = re.compile(
    r"(?:(?:show|find|me|my|our|all|some|the|a)\s+)*(?:photo(?:graph)?|picture|pic|image|shot)s?"
    r"(?:\s+(?:of|showing|with|taken)\b\s*|\s*$|(?=\s+(?:in|at|from|near|on\s+\d|since|before|after)\b))",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Reading:
    """What a query means.

    terms : what photos are compared with; none if the query is only a date or a name
    filter : the conditions that photos must meet
    notes : how the query was understood
    preferred : photos with one of these names come first within their band
    written : photos that show one of these phrases as text come first of all
    """

    terms: tuple[Term, ...] = ()
    filter: Filter = NO_FILTER
    notes: tuple[Note, ...] = ()
    preferred: tuple[str, ...] = ()
    written: tuple[str, ...] = ()


def read_terms(terms: Sequence[Term], filter: Filter = NO_FILTER, today: date | None = None) -> Reading:
    """Read dates and negations in the words of terms. Words such as "photos of" are dropped.

    A date of the filter itself decides: then no date is read.
    """
    found: list[Term] = []
    notes: list[Note] = []
    for term in terms:
        if term.kind != "text" or term.is_quoted or term.sign == "-":
            found.append(term)
            continue
        text = term.value
        is_dated = False
        has_no_date = filter.after is None and filter.before is None and not filter.undated
        if has_no_date and may_be_dated(text):
            dated = parse_dates(text, today)
            text = dated.wanted
            if is_dated := dated.is_date:
                filter = replace(filter, after=dated.after, before=dated.before, undated=dated.undated)
            if dated.note is not None:
                as_words = f'"{term.value}"' if dated.note.kind == "date" else dated.note.suggestion
                notes.append(replace(dated.note, suggestion=as_words))
        unwanted: tuple[str, ...] = ()
        if may_negate(text):
            text, unwanted = parse_negations(text)
            if unwanted:
                line = " ".join([text, *(f"- {phrase}" for phrase in unwanted)]).strip()
                notes.append(Note("excluded", term.value, line, suggestion=f'"{term.value}"'))
        wanted = drop_photo_words(text)
        if describes(wanted) or (text and not is_dated):
            found.append(replace(term, value=wanted or text))
        found += [Term("-", "text", phrase, term.weight) for phrase in unwanted]
    return Reading(tuple(found), filter, tuple(notes))


def drop_photo_words(text: str) -> str:
    """A text without a beginning such as "photos of"."""
    found = ABOUT_PHOTOS.match(text)
    return text[found.end() :].strip() if found else text


def split_sentences(terms: Sequence[Term]) -> tuple[str, list[tuple[str, float]]]:
    """The sentences that terms add, as one, and those that they subtract with their weights."""
    sentences = [term for term in terms if term.kind == "text"]
    wanted = [term.value for term in sentences if term.sign == "+"]
    if not wanted:
        raise FishermixError(
            "This query adds no sentence, and only sentences can be explained. Put one before the minus.",
            code="wrong_query",
        )
    return " ".join(wanted), [(term.value, term.weight) for term in sentences if term.sign == "-"]


def explain_unknown(
    unknown: Sequence[str],
    model: ImageTextModel,
    terms: Sequence[Term] = (),
    explained: Sequence[Note] = (),
) -> list[Note]:
    """A note on each word that is out of the vocabulary: a better word, or that there is none.

    terms : those of the query, for the lines that the notes suggest
    explained : notes on the query; words of a date that does not exist need no other
    """
    dates = [note.name for note in explained if note.kind == "no_such_date"]
    of_dates = {word for date in dates for word in re.findall(r"\w+", date.lower())}
    notes = []
    for word in (word for word in unknown if word not in of_dates):
        typed = _find_typed(word, terms)
        if is_month(word):
            notes.append(Note("month", typed))
        elif better := suggest_word(typed, model):
            corrected = replace_word(terms, word, better)
            notes.append(Note("similar_word", typed, better, suggestion=write_query(corrected)))
        else:
            notes.append(Note("guessed" if model.reads_unknown_words else "ignored", typed))
    return notes


def _find_typed(word: str, terms: Sequence[Term]) -> str:
    """A word of a query with its capital letters."""
    texts = " ".join(term.value for term in terms if term.kind == "text")
    found = re.search(rf"\b{re.escape(word)}\b", texts, re.IGNORECASE)
    return found[0] if found else word


def explain_rare(terms: Sequence[Term], model: ImageTextModel, unknown: Sequence[str]) -> list[Note]:
    """Notes on misspelled words of the vocabulary, which are read as words.

    terms : those of the query
    unknown : words that have notes of their own
    """
    notes = []
    for term in terms:
        words = re.findall(r"[^\W\d_]+", term.value) if term.kind == "text" and not term.is_quoted else []
        for word in dict.fromkeys(words):
            is_kept = word in term.kept or word in unknown
            if not is_kept and (better := suggest_everyday_word(word, model)):
                suggestion = write_query(replace_word(terms, word, better))
                notes.append(Note("similar_word", word, better, suggestion=suggestion))
    return notes
