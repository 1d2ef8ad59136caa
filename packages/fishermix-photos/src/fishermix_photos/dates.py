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
# Month, day and number of days. New Year 2005 begins on the eve, in 2004.
FEASTS = {
    "christmas": (12, 24, 3),
    "new year's eve": (12, 31, 1),
    "new year": (12, 31, 2),
    "halloween": (10, 31, 1),
}
EARLIEST_YEAR = 1900
ONE_DATE = "The dates were not read: only one date, or one range such as 2018 to 2020, is understood."
_YEAR = r"(?:19|20)\d\d"
_MONTH = (
    r"jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|"
    r"oct(?:ober)?|nov(?:ember)?|dec(?:ember)?"
)
_ORDINAL = r"(?:st|nd|rd|th)?"
_SEASON = "|".join(SEASONS)
_FEAST = r"christmas(?:\s+(?:day|eve))?|new\s+year['’]?s\s+eve|new\s+year(?:['’]?s)?(?:\s+day)?|halloween"


def _period(number: str, needs_year: bool = True) -> str:
    """A regular expression of a period; `number` makes the names of its groups unique."""
    optional = "" if needs_year else "?"
    return (
        rf"(?:(?P<iso{number}>{_YEAR}-(?:0[1-9]|1[0-2])(?:-\d\d)?)"
        rf"|(?:(?P<day{number}>\d{{1,2}}){_ORDINAL}\s+(?:of\s+)?)?(?P<month{number}>{_MONTH})\.?"
        rf"(?:\s+(?P<later_day{number}>\d{{1,2}}){_ORDINAL}(?!\d))?"
        rf"(?:,?\s+(?:of\s+)?(?P<month_year{number}>{_YEAR})){optional}"
        rf"|(?P<season{number}>{_SEASON})(?:\s+(?:of\s+)?(?P<season_year{number}>{_YEAR})){optional}"
        rf"|(?P<feast{number}>{_FEAST})(?:\s+(?:of\s+)?(?P<feast_year{number}>{_YEAR})){optional}"
        rf"|(?P<recent{number}>yesterday|today|this\s+(?:year|month|week)"
        rf"|last\s+(?:year|month|week(?:end)?|{_SEASON}|{_MONTH}|{_FEAST}))"
        rf"|(?P<year{number}>{_YEAR}))"
    )


_FOLLOWED = (
    r"(?=\s*$|\s*[,.;]|\s+(?:in|on|at|with|by|near|and|but|from|under|during|without|of"
    r"|since|after|before|until|till)\b)"
)
# The first date of a range may lack its year, and its month: "may to june 2019", "3-5 may 2019".
_RANGE = re.compile(
    rf"(?:^|(?<=\s))(?:taken\s+)?(?:(?:from|between|in|during|on|since)\s+)?"
    rf"(?:{_period('1', needs_year=False)}|(?P<bare>\d{{1,2}}){_ORDINAL})"
    rf"(?:\s*[-–]\s*|\s+(?:to|and|until|till)\s+){_period('2')}{_FOLLOWED}",
    re.IGNORECASE,
)
_ONE = re.compile(
    rf"(?:^|(?<=[\s,]))(?:taken\s+)?(?:(?P<how>in|from|during|on|of|since|after|before|until|till)\s+)?"
    rf"(?:the\s+)?(?:(?<!new\s)year\s+)?{_period('')}{_FOLLOWED}",
    re.IGNORECASE,
)
_NEGATED = re.compile(r"\b(?:not|no|without|except|excluding)(?:\s+(?:in|from|for))?\s*$", re.IGNORECASE)
# "after march 2019 until 2020" is no range from 2019 on.
_UNFINISHED = re.compile(rf"\b(?:after|before|{_MONTH}|{_SEASON})\.?\s*$", re.IGNORECASE)
_BETWEEN = re.compile(r"\s*(?:,|and|but|,\s*and)?\s*", re.IGNORECASE)  # "since 2015 and before 2019"
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
    if (found := _RANGE.search(text)) and not _UNFINISHED.search(text[: found.start()]):
        first, last = _find_first_days(found, today), _find_days(found, "2", today)
        if first and last:
            return _limit(text, found.span(), min(first[0], last[0]), max(first[1], last[1]))
    for found in _ONE.finditer(text):
        if reading := _read_one(text, found, today):
            return reading
    if found := _ODD.search(text):
        remark = f"'{found[0]}' was not read as a date. Dates are 2019, 2019-07 or 2019-07-14, up to today."
        return Reading(text, remarks=[remark])
    return Reading(text)


def _read_one(text: str, found: re.Match[str], today: date) -> Reading | None:
    """The reading of one date, or of one that bounds another; None if it is a number."""
    days = _find_days(found, "", today)
    how = (found["how"] or "").lower()
    alone = not how and found["year"] and text[found.end() :].strip(" .")
    # "2000 people", "a crowd of 2000 and more": a number, not a year
    if days is None or alone or (how == "of" and found["year"]):
        return None
    start, end = _apply(how, *days)
    span = found.span()
    if start is None or end is None:
        day, at = _find_other_bound(text, found.end(), start is None, today)
        start, end, span = start or day, end or day, (found.start(), at)
    return _limit(text, span, start, end)


def _apply(how: str, start: date, end: date) -> tuple[date | None, date | None]:
    """The first day, and the first day after the last, of what a word such as "since" makes of a period."""
    if how in ("since", "after"):
        return start if how == "since" else end, None
    if how in ("before", "until", "till"):
        return None, start if how == "before" else end
    return start, end


def _find_other_bound(text: str, at: int, is_first: bool, today: date) -> tuple[date | None, int]:
    """The other end of a range such as "since 2015 and before 2019", if there is one, and where it ends."""
    gap = _BETWEEN.match(text, at)
    found = _ONE.match(text, gap.end()) if gap else None
    days = _find_days(found, "", today) if found else None
    if found is None or days is None:
        return None, at
    start, end = _apply((found["how"] or "").lower(), *days)
    wanted, other = (start, end) if is_first else (end, start)
    return (wanted, found.end()) if wanted and not other else (None, at)


def _find_first_days(found: re.Match[str], today: date) -> tuple[date, date] | None:
    """The days of the first period of a range; what it lacks, it has in common with the second one."""
    group, last = found.groupdict(), _find_days(found, "2", today)
    kinds = ("month", "season", "feast")
    named = any(group[f"{kind}1"] and not group[f"{kind}_year1"] for kind in kinds)
    if not named and not group["bare"]:
        return _find_days(found, "1", today)
    if last is None or not any(group[f"{kind}2"] for kind in kinds):
        return None
    year = last[0].year
    if named:
        first = _find_days(found, "1", today, year)
        is_later = first is None or first[0] > last[0]  # "november to february 2019"
        return _find_days(found, "1", today, year - 1) if is_later else first
    if not (group["day2"] or group["later_day2"]) or not 0 < int(group["bare"]) <= last[0].day:
        return None
    day = last[0].replace(day=int(group["bare"]))
    return day, day + timedelta(1)


def _find_days(found: re.Match[str], number: str, today: date, year: int = 0) -> tuple[date, date] | None:
    """The first day of a period and the first day after it; None if there is no such period yet.

    year : the year, if the period has none
    """
    group = found.groupdict().get
    try:
        if text := group(f"recent{number}"):
            return _find_recent(text.lower(), today)
        if text := group(f"season{number}") or group(f"feast{number}"):
            year = int(group(f"season_year{number}") or group(f"feast_year{number}") or year)
            return _check(*_find_named(text, year), today)
        parts = [int(part) for part in (group(f"iso{number}") or group(f"year{number}") or "0").split("-")]
        if text := group(f"month{number}"):
            day = group(f"day{number}") or group(f"later_day{number}")
            parts = [int(group(f"month_year{number}") or year), MONTHS.index(text[:3].lower()) + 1]
            parts += map(int, filter(None, [day]))
        if len(parts) == 3:
            return _check(date(*parts), date(*parts) + timedelta(1), today)
        year, month, months = (*parts, 1) if len(parts) == 2 else (*parts, 1, 12)
        return _check(date(year, month, 1), _first_of_month(year, month + months), today)
    except (ValueError, OverflowError):  # no such day
        return None


def _find_named(text: str, year: int) -> tuple[date, date]:
    """A month, a season or a feast of a year."""
    name = text.lower()
    if name in SEASONS:
        return date(year, SEASONS[name], 1), _first_of_month(year, SEASONS[name] + 3)
    if is_month(name):
        month = MONTHS.index(name[:3]) + 1
        return date(year, month, 1), _first_of_month(year, month + 1)
    plain = re.sub(r"years?\b", "year's", re.sub(r"['’]s?\b", "", " ".join(name.split())))
    feast = next(feast for feast in FEASTS if plain.startswith(feast))
    month, day, days = FEASTS[feast]
    first = date(year - (feast == "new year"), month, day)
    return first, first + timedelta(days)


def _find_recent(text: str, today: date) -> tuple[date, date]:
    """The days of "yesterday", "this month" and so on; "last summer" is the last one that is over."""
    which, _, name = " ".join(text.split()).partition(" ")
    monday = today - timedelta(today.weekday())
    if name == "weekend":
        return monday - timedelta(2), monday
    if name == "year":
        year = today.year - (which == "last")
        return date(year, 1, 1), date(year + 1, 1, 1)
    if name == "month":
        month = today.month - (which == "last")
        return _first_of_month(today.year, month), _first_of_month(today.year, month + 1)
    if name in ("", "week"):
        length = timedelta(7 if name else 1)
        first = (monday if name else today) - length * (which in ("last", "yesterday"))
        return first, first + length
    periods = [_find_named(name, today.year - years) for years in (-1, 0, 1, 2)]
    return next(period for period in periods if period[1] <= today)


def _check(start: date, end: date, today: date) -> tuple[date, date] | None:
    return (start, end) if start.year >= EARLIEST_YEAR and start <= today else None


def _first_of_month(year: int, month: int) -> date:
    return date(year + (month - 1) // 12, (month - 1) % 12 + 1, 1)


def _limit(text: str, span: tuple[int, int], after: date | None, before: date | None) -> Reading:
    """The reading of a text whose words from `span[0]` to `span[1]` are a date, if they are its only one."""
    rest = text[: span[0]], text[span[1] :]
    is_reversed = after is not None and before is not None and after >= before
    if is_reversed or _NEGATED.search(rest[0]) or any(map(_ANOTHER.search, rest)):
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
