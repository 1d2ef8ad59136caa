"""The notes and filters of a search in the words of the command line."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from fishermix_photos.photos.formats import count_photos
from fishermix_photos.search.notes import Note


def word_notes(notes: Sequence[Note]) -> list[str]:
    """One sentence for each note; unknown words share one."""
    sentences: dict[str, None] = {}  # each once
    for note in notes:
        if note.kind in ("guessed", "ignored"):
            words = [f"'{other.name}'" for other in notes if other.kind == note.kind]
            sentences[_word_unknown(words)] = None
        else:
            sentences[word_note(note)] = None
    return list(sentences)


def word_note(note: Note) -> str:
    """A note as a sentence."""
    match note.kind:
        case "date":
            when = _word_period(note.meaning)
            return f"'{note.name}' was read as a date: only photos taken {when}.{_offer_words(note)}"
        case "several_dates":
            return "A query can have one date, or one range such as 2018 to 2020. These dates were not read."
        case "no_such_date":
            if note.meaning:
                return (
                    f"'{note.name}' is not a day of the calendar. Search that month: {_write_command(note)}"
                )
            return (
                f"'{note.name}' was not read as a date: there is no such day, or it is in the future. Write "
                "2019, 2019-07 or 2019-07-14."
            )
        case "undated":
            return "Only photos without a date of their own."
        case "left_out":
            offer = f"Search them: {_write_command(note)}" if note.suggestion else "--undated searches them."
            return f"Skipped {count_photos(note.count or 0)} without a date of their own. {offer}"
        case "excluded":
            return f"Searching for: {note.meaning}.{_offer_words(note)}"
        case "required":
            named = "named" if note.meaning != "text" else "with the name or text"
            return f"Only photos {named} '{note.name}': {note.count:,}.{_offer_words(note)}"
        case "preferred":
            return f"Photos named '{note.name}' come first: {note.count:,}."
        case "written":
            return f"Photos with the text '{note.name}' come first: {note.count:,}."
        case "country":
            return f"Only photos taken in {note.meaning}."
        case "near":
            return f"Only photos taken within {note.meaning} km of {note.name}."
        case "month":
            return f"To search for the photos of a month, add its year: {note.name} 2024."
        case "similar_word":
            return f"Did you mean {note.meaning} instead of {note.name}?"
        case "corrected":
            instead = f" Search instead for {note.name}: {_write_command(note)}" if note.suggestion else ""
            return f"Showing results for {note.meaning}.{instead}"
        case "no_coordinates":
            count = note.count or 0
            none = (
                "The only photo here has no" if count == 1 else f"None of the {count_photos(count)} here has"
            )
            return f"{none} coordinates, so --near finds nothing."
        case "none_near":
            places = f" Places: {note.meaning}." if note.meaning else ""
            return (
                f"None of the {count_photos(note.count or 0)} with coordinates is near {note.name}.{places}"
            )
        case "no_folder":
            return f"There is no folder called '{note.name}'. Folders: {note.meaning}."
        case "no_camera":
            return f"No photo here was taken with a camera called '{note.name}'."
        case "no_kind":
            return f"There are no {note.name} files here. Kinds: {note.meaning}."
        case "none_undated":
            return "All photos here have a date of their own."
        case "none_then":
            first, _, last = note.meaning.partition("/")
            if not first:
                return "No photo here has a date of its own."
            years = first if first == last else f"{first} to {last}"
            return f"No photo here is from that time: their dates are from {years}."
        case _:
            return f"{note.kind}: {note.name} {note.meaning}"


def _word_unknown(words: Sequence[str]) -> str:
    """A sentence on words in quotes that the model does not know."""
    *others, last = words
    if not others:
        return f"{last} is not an English word that the model knows."
    return f"{', '.join(others)} and {last} are not English words that the model knows."


def _word_period(period: str) -> str:
    """A period FIRST/LAST, of which one day may be missing, in words."""
    first, _, last = period.partition("/")
    if first == last:
        return f"on {first}"
    return " ".join(filter(None, [first and f"from {first}", last and f"until {last}"]))


def _offer_words(note: Note) -> str:
    return f" Search for the words instead: {_write_command(note)}" if note.suggestion else ""


def _write_command(note: Note) -> str:
    """The command that searches for what a note suggests."""
    return f"fishermix search {shlex.quote(note.suggestion or '')}"
