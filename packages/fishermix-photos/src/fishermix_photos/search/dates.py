"""Dates in the words of a query, which become a filter.

parse_dates("dogs in summer 2019")      dogs, taken from 2019-06-01 to 2019-08-31
parse_dates("dogs last summer")         dogs, taken in the last summer that is over
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, timedelta

from fishermix_photos.search.notes import Note

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}  # their first months
EARLIEST_YEAR = 1900
_YEAR = r"(?:19|20)\d\d"
_MONTH = (
    r"jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|"
    r"oct(?:ober)?|nov(?:ember)?|dec(?:ember)?"
)
_SEASON = "|".join(SEASONS)
_NAME = rf"{_MONTH}|{_SEASON}|christmas|new\s+year(?:['’]?s)?"
_DAY = r"\d{1,2}(?!\d)(?:st|nd|rd|th)?"
# "14th of July 2019", "July 14, 2019", "summer of 2019"
_NAMED = rf"(?:{_DAY}\s+(?:of\s+)?)?(?:{_NAME})\.?(?:\s+{_DAY})?(?:,?\s+(?:of\s+)?{_YEAR})?"
_PERIOD = (
    rf"(?P<period>{_YEAR}-(?:0[1-9]|1[0-2])(?:-\d\d)?|{_YEAR}|yesterday|today|this\s+(?:year|month|week)"
    rf"|last\s+(?:year|month|week(?:end)?|{_NAME})|{_NAMED})"
)
_FIRST = re.compile(
    r"(?:^|(?<=[\s,]))(?:taken\s+)?"
    r"(?:(?P<how>in|from|between|during|on|of|since|after|before|until|till)\s+)?"
    rf"(?:the\s+)?(?:(?<!new\s)year\s+)?{_PERIOD}",
    re.IGNORECASE,
)
_FOLLOWED = re.compile(
    r"\s*$|\s*[,.;]|\s+(?:in|on|at|with|by|near|and|but|from|under|during|without|of"
    r"|since|after|before|until|till)\b",
    re.IGNORECASE,
)
# The other end of a range: "to june 2019", "- 2020"
_SECOND = re.compile(
    rf"(?:\s*[-–]\s*|\s+(?:and|to|until|till)\s+){_PERIOD}(?={_FOLLOWED.pattern})", re.IGNORECASE
)
_NEGATED = re.compile(r"\b(?:not|no|without|except|excluding)(?:\s+(?:in|from|for))?\s*$", re.IGNORECASE)
_ANOTHER = re.compile(
    rf"\b(?:between|from|in|on|since|after|before|until|till|or|and|to)\s+(?:\d{{1,2}}\s+)?(?:{_MONTH}|{_YEAR})\b"
    rf"|\b{_YEAR}\s*(?:,|or\b)",
    re.IGNORECASE,
)
_ODD = re.compile(rf"(?<![\w-]){_YEAR}-\d{{1,2}}(?:-\d{{1,2}})?(?![\w-])")
_NAMED_WITH_YEAR = re.compile(rf".*[a-z].*\b{_YEAR}", re.IGNORECASE)
# Most searches have no date, and do not look for one.
_HINT = re.compile(r"\d|\b(?:yesterday|today|last|this|date|undated)\b", re.IGNORECASE)
_UNDATED = re.compile(r"\bundated\b|\b(?:without|with\s+no|no)\s+(?:a\s+)?date\s*$", re.IGNORECASE)
_DAY_OF_NAME = re.compile(
    rf"\s*\b{_DAY}\s+(?:of\s+)?(?={_NAME})|(?<=[a-z])\s+{_DAY}(?=,?\s)|-\d{{1,2}}$", re.IGNORECASE
)


@dataclass(frozen=True)
class DateReading:
    """What a text says of when a photo was taken.

    wanted : the other words; empty if the text is only a date
    after, before, undated : as in `Filter`
    note : what was read, or why nothing was
    """

    wanted: str
    after: str | None = None
    before: str | None = None
    note: Note | None = None
    undated: bool = False

    @property
    def is_date(self) -> bool:
        """Whether the text says when photos were taken."""
        return self.undated or self.after is not None or self.before is not None


def may_be_dated(text: str) -> bool:
    """Whether there may be a date in a text."""
    return _HINT.search(text) is not None


def parse_dates(text: str, today: date | None = None) -> DateReading:
    """The date, or the range of dates, in a text that is written `today`."""
    today = today or date.today()
    if undated := _UNDATED.search(text):
        wanted = " ".join(f"{text[: undated.start()]} {text[undated.end() :]}".split()).strip(" ,;")
        return DateReading(wanted, note=Note("undated", undated[0]), undated=True)
    odd = _ODD.search(text)
    name = odd[0] if odd else ""
    for found in _FIRST.finditer(text):
        if reading := _parse_date(text, found, today):
            return reading
        if not name and _NAMED_WITH_YEAR.fullmatch(found["period"]):  # 31 February 2005
            name = found["period"]
    return DateReading(text, note=_explain_no_date(text, name, today) if name else None)


def _explain_no_date(text: str, name: str, today: date) -> Note:
    """A note on a day that does not exist; it suggests the month of that day."""
    month = _DAY_OF_NAME.sub("", name, count=1).strip()
    if month == name or _find_days(month, today) is None:
        return Note("no_such_date", name)
    return Note("no_such_date", name, month, suggestion=text.replace(name, month))


def _parse_date(text: str, found: re.Match[str], today: date) -> DateReading | None:
    """The reading of a date, or of a range that begins with it; None if it is a number."""
    how = (found["how"] or "").lower()
    period = found["period"]
    end = found.end()
    second = _SECOND.match(text, end)
    if second and how not in ("after", "before", "until", "till"):
        last = _find_days(second["period"], today)
        first = _find_days(period, today) or (last and _share_year(period, second["period"], last, today))
        if first and last:
            span = found.start(), second.end()
            return _limit(text, span, min(first[0], last[0]), max(first[1], last[1]))
    days = _find_days(period, today)
    # "2000 people", "a crowd of 2000 and more": a number, not a year
    is_number = period.isdigit() and (how == "of" or (not how and text[end:].strip(" .")))
    if days is None or is_number or not _FOLLOWED.match(text, end):
        return None
    return _limit(text, (found.start(), end), *_apply(how, *days))


def _apply(how: str, start: date, end: date) -> tuple[date | None, date | None]:
    """The first day, and the first day after the last, of what a word such as "since" makes of a period."""
    if how in ("since", "after"):
        return start if how == "since" else end, None
    if how in ("before", "until", "till"):
        return None, start if how == "before" else end
    return start, end


def _share_year(period: str, second: str, last: tuple[date, date], today: date) -> tuple[date, date] | None:
    """The days of a month, season or feast that has its year in common with the second one."""
    if second[:4].isdigit():
        return None
    year = last[0].year
    first = _find_days(period, today, year)
    is_later = first is None or first[0] > last[0]  # "november to february 2019"
    return _find_days(period, today, year - 1) if is_later else first


def _find_days(text: str, today: date, year: int = 0) -> tuple[date, date] | None:
    """The first day of a period and the first day after it; None if there is no such period yet.

    year : the year, if the period has none
    """
    which, _, name = " ".join(text.lower().split()).partition(" ")
    try:
        if which in ("yesterday", "today", "this", "last"):
            return _find_recent(which, name, today)
        if text[:4].isdigit():
            start, end = _find_calendar_days(*map(int, text.split("-")))
        else:
            (name,), numbers = re.findall(_NAME, text, re.IGNORECASE), re.findall(r"\d+", text)
            year = next((int(number) for number in numbers if len(number) == 4), year)
            start, end = _find_named(name, year, *(int(number) for number in numbers if len(number) < 4))
    except (TypeError, ValueError, OverflowError):  # no such day
        return None
    return (start, end) if start.year >= EARLIEST_YEAR and start <= today else None


def _find_calendar_days(year: int, month: int = 0, day: int = 0) -> tuple[date, date]:
    """A year, one of its months, or a day."""
    if day:
        return date(year, month, day), date(year, month, day) + timedelta(1)
    return date(year, month or 1, 1), _first_of_month(year, month + 1 if month else 13)


def _find_named(name: str, year: int, day: int = 0) -> tuple[date, date]:
    """A month, a season or a feast of a year, or a day of a month."""
    name = name.lower()
    if is_month(name):
        return _find_calendar_days(year, MONTHS.index(name[:3]) + 1, day)
    if day:
        raise ValueError(f"There is no day {day} of {name}.")
    if name in SEASONS:
        return date(year, SEASONS[name], 1), _first_of_month(year, SEASONS[name] + 3)
    if name == "christmas":
        return date(year, 12, 24), date(year, 12, 27)
    return date(year - 1, 12, 31), date(year, 1, 2)  # New Year 2005 begins on the eve, in 2004


def _find_recent(which: str, name: str, today: date) -> tuple[date, date]:
    """The days of "yesterday", "this month" and so on; "last summer" is the last one that is over."""
    monday = today - timedelta(today.weekday())
    if name == "weekend":
        return monday - timedelta(2), monday
    if name == "year":
        return _find_calendar_days(today.year - (which == "last"))
    if name == "month":
        month = today.month - (which == "last")
        return _first_of_month(today.year, month), _first_of_month(today.year, month + 1)
    if name in ("", "week"):
        length = timedelta(7 if name else 1)
        first = (monday if name else today) - length * (which in ("last", "yesterday"))
        return first, first + length
    periods = [_find_named(name, today.year - years) for years in (-1, 0, 1, 2)]
    return next(period for period in periods if period[1] <= today)


def _first_of_month(year: int, month: int) -> date:
    return date(year + (month - 1) // 12, (month - 1) % 12 + 1, 1)


def _limit(text: str, span: tuple[int, int], after: date | None, before: date | None) -> DateReading:
    """The reading of a text whose words from `span[0]` to `span[1]` are a date, if they are its only one."""
    before_it, after_it = text[: span[0]], text[span[1] :]
    if _NEGATED.search(before_it) or _ANOTHER.search(before_it) or _ANOTHER.search(after_it):
        return DateReading(text, note=Note("several_dates"))
    wanted = " ".join(f"{before_it} {after_it}".split()).strip(" ,;")
    if not any(letter.isalnum() for letter in wanted):
        wanted = ""
    first = "" if after is None else after.isoformat()
    last = "" if before is None else (before - timedelta(1)).isoformat()
    note = Note("date", text[span[0] : span[1]].strip(), f"{first}/{last}")
    return DateReading(
        wanted=wanted, after=first or None, before=None if before is None else before.isoformat(), note=note
    )


def is_month(word: str) -> bool:
    """Whether a word is the name of a month, which is a date only with a year."""
    return re.fullmatch(_MONTH, word, re.IGNORECASE) is not None
