"""Dates and negations in the words of a query: a date becomes a filter, "without" a minus.

    read_words("dogs in summer 2019")      dogs, taken from 2019-06-01 to 2019-08-31
    read_words("dogs last summer")         dogs, taken in the last summer that is over
    read_words("a beach without people")   a beach, minus people

Each such reading comes with a remark. Quotation marks keep words as they are.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import date, timedelta

from fishermix_photos.query import NEGATIONS, Filter

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}  # their first months
EARLIEST_YEAR = 1900
ONE_DATE = "The dates were not read: only one date, or one range such as 2018 to 2020, is understood."
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
_LINKS = {"with", "but", "and", "that", "which", "who", "is", "are", "has", "have", "there", "having"}
_PLACES = {"in", "on", "at", "by", "near", "under", "over", "behind", "beside", "above", "below", "around"}
_ENDS = _PLACES | {"with", "during", "but", "while", "from", "into", "inside", "outside", "next", "without"}
_ENDS |= {"against", "where"}
_NAMED_BEFORE = {"it", "them", "there"}  # "a bowl with no fruit in it": the bowl again
MOST_NEGATED_WORDS = 12  # a longer phrase is no answer to "without what?"
_SIGNS = {"sign", "signs", "parking", "smoking", "entry"}  # "a no parking sign" shows one


@dataclass
class Reading:
    """What a text means.

    wanted : the words that describe the photo; empty if the text is only a date
    unwanted : what it must not show
    after, before : as in `Filter`
    remarks : a sentence for each thing that was read into the words
    """

    wanted: str
    unwanted: list[str] = field(default_factory=list)
    after: str | None = None
    before: str | None = None
    remarks: list[str] = field(default_factory=list)

    @property
    def filter(self) -> Filter:
        return Filter(self.after, self.before)


def read_words(text: str, dates: bool = True, today: date | None = None) -> Reading:
    """Read dates, unless `dates` is False, and negations of a text that is written `today`."""
    reading = _read_dates(text, today or date.today()) if dates else Reading(text)
    _read_negations(reading)
    return reading


# Dates


def _read_dates(text: str, today: date) -> Reading:
    for found in _FIRST.finditer(text):
        if reading := _read_date(text, found, today):
            return reading
    if odd := _ODD.search(text):
        remark = f"'{odd[0]}' was not read as a date. Dates are 2019, 2019-07 or 2019-07-14, up to today."
        return Reading(text, remarks=[remark])
    return Reading(text)


def _read_date(text: str, found: re.Match[str], today: date) -> Reading | None:
    """The reading of a date, or of a range that begins with it; None if it is a number."""
    how, period, end = (found["how"] or "").lower(), found["period"], found.end()
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


def _limit(text: str, span: tuple[int, int], after: date | None, before: date | None) -> Reading:
    """The reading of a text whose words from `span[0]` to `span[1]` are a date, if they are its only one."""
    rest = text[: span[0]], text[span[1] :]
    if _NEGATED.search(rest[0]) or any(map(_ANOTHER.search, rest)):
        return Reading(text, remarks=[ONE_DATE])
    wanted = " ".join(" ".join(rest).split()).strip(" ,;")
    wanted = wanted if any(map(str.isalnum, wanted)) else ""
    last = None if before is None else before - timedelta(1)
    when = " ".join([*([f"from {after}"] if after else []), *([f"until {last}"] if last else [])])
    remark = (
        f"'{text[span[0] : span[1]].strip()}' was read as a date: only photos taken {when}. "
        "Put the words in double quotes to search for them instead."
    )
    first, end = (None if day is None else day.isoformat() for day in (after, before))
    return Reading(wanted, [], first, end, [remark])


# Negations


def _read_negations(reading: Reading) -> None:
    words, wanted, at = reading.wanted.split(), list[str](), 0
    while at < len(words):
        phrase = _find_phrase(words, at + 1) if _plain(words[at]) in NEGATIONS else []
        if not phrase or (_plain(words[at]) == "no" and _SIGNS & set(map(_plain, phrase))):
            wanted.append(words[at])
            at += 1
            continue
        while wanted and _plain(wanted[-1]) in _LINKS:
            wanted.pop()
        at += 1 + len(phrase)
        ending = [_plain(word) for word in words[at : at + 2]]
        if len(ending) == 2 and ending[0] in _ENDS and ending[1] in _NAMED_BEFORE:
            at += 2
        while len(phrase) > 1 and _plain(phrase[-1]) in _LINKS:
            phrase.pop()
        phrase = phrase[1:] if len(phrase) > 1 and _plain(phrase[0]) == "any" else phrase
        reading.unwanted.append(" ".join(phrase).strip(",.;"))
    if reading.unwanted:
        reading.wanted = " ".join(wanted).strip(" ,;")
        terms = " ".join([reading.wanted, *(f"- {phrase}" for phrase in reading.unwanted)]).strip()
        reading.remarks.append(
            f"Searching for: {terms}. Put the words in double quotes to search for them as they are."
        )


def _find_phrase(words: list[str], start: int) -> list[str]:
    """The words after a negation that it belongs to."""
    phrase: list[str] = []
    for word in words[start : start + MOST_NEGATED_WORDS]:
        if phrase and (_plain(word) in _ENDS or phrase[-1].endswith((",", ".", ";"))):
            break
        phrase.append(word)
    return phrase


def is_month(word: str) -> bool:
    """Whether a word is the name of a month, which is a date only with a year."""
    return re.fullmatch(_MONTH, word, re.IGNORECASE) is not None


def _plain(word: str) -> str:
    return word.lower().strip(",.;")
