"""How a query was understood, as plain values: the command and the page put them into words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

NoteKind = Literal[
    "date",  # `name` was read as a date: `meaning` is "FIRST/LAST", two days or one
    "several_dates",  # more than one date, so none was read
    "no_such_date",  # `name` looks like a date, but is none yet or never; `meaning` is a month that is one
    "undated",  # only photos without a date of their own
    "left_out",  # a date was asked for, and `count` photos have none of their own
    "excluded",  # words such as "without": `meaning` is the line with minus signs
    "required",  # only photos named `name`: `count` of them; if `meaning` is "text", or that show it as text
    "preferred",  # photos named `name` come first: `count` of them
    "written",  # photos that show the text `name` come first: `count` of them
    "country",  # only photos of the country `meaning`
    "near",  # only photos taken near the place `name`: within `meaning` kilometers
    "ignored",  # the model does not know the word `name`, knows no similar one, and ignores it
    "guessed",  # the same, but it guesses the meaning from the pieces of the word
    "month",  # `name` is a month, which is a date only with a year
    "similar_word",  # the word `meaning` may be meant instead of `name`
    "corrected",  # `name` was taken for a typing mistake: the search is for `meaning` instead
    # Why nothing was found
    "no_coordinates",  # a place was asked for, and not one of `count` photos has coordinates
    "none_near",  # not one of `count` photos with coordinates is of the place `name`; `meaning` lists others
    "no_folder",  # no folder is called `name`; `meaning` lists folders
    "no_camera",  # no photo was taken with a camera called `name`
    "no_kind",  # no photo has the format `name`; `meaning` lists formats
    "none_undated",  # all photos have a date of their own
    "none_then",  # no photo is of that time; `meaning` is "FIRST/LAST", years of photos
]
REASONS = frozenset(
    ("no_coordinates", "none_near", "no_folder", "no_camera", "no_kind", "none_undated", "none_then")
)


@dataclass(frozen=True)
class Note:
    """Something a user should know about how a query was understood.

    kind : what happened, see `NoteKind`
    name : the words of the query that it is about
    meaning : what they were taken for
    count : the number of photos concerned
    suggestion : a line that may be searched for instead
    """

    kind: NoteKind
    name: str = ""
    meaning: str = ""
    count: int | None = None
    suggestion: str | None = None
