"""Finds dates in texts: in digits, in words, and relative to the text's own time.

"March 3rd", "3/3/2024" and "2024-03-03" become the same terms. "Yesterday" in a message of 4 March 2024 gives these
terms too. If a text names a month or a day without a year, it gets terms without a year and terms with the year that
is nearest to the message. The dates of a question also give spans: texts from these times gain score.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import cache
from itertools import chain
from typing import Final

import msgspec
from babel import Locale

from agent_memory_log.recall.languages import STEMMERS
from agent_memory_log.recall.words import fold, without_accents, words
from agent_memory_log.tables import read_table

DATED: Final = "@"
"""The first character of the terms of dates. No word begins with it."""


class Dates(msgspec.Struct, frozen=True):
    """The dates of a text.

    Attributes:
        terms: The terms by which the index finds the text.
        lookup_terms: The terms by which a question looks for its dates: the most exact term of each date.
        words: The words that name the dates. A question looks up ``lookup_terms`` in their place.
        spans: The times that the dates cover, as start and end in seconds since 1970. The end is exclusive.
        timed: True if the text mentions a time, even without a date.
    """

    terms: tuple[str, ...] = ()
    lookup_terms: tuple[str, ...] = ()
    words: frozenset[str] = frozenset()
    spans: tuple[tuple[float, float], ...] = ()
    timed: bool = False


_Date = tuple[int | None, int | None, int | None]  # year, month, day


def dates_in(folded: str, text_words: Sequence[str], at: datetime | None) -> Dates:
    """Return the dates of a text.

    Args:
        folded: The text, folded by ``fold``.
        text_words: The words of the folded text.
        at: The time of the text. Without it, relative dates are ignored and dates get no year.
    """
    digits = bool(_DIGIT.search(folded))
    unspaced = not folded.isascii() and bool(_UNSPACED_TIMES.search(folded))
    hinted = not _hints().isdisjoint(text_words)
    if not digits and not unspaced and not hinted:
        return _NONE
    timed = unspaced or not _time_words().isdisjoint(text_words)
    dates: dict[_Date, set[str]] = {}
    for date_parts, written in chain(
        _in_digits(folded) if digits else (),
        _in_words(text_words) if hinted else (),
        ((date_parts, ()) for date_parts in _relative(folded, text_words, at.date()))
        if timed and at is not None
        else (),
    ):
        if date_parts in dates or len(dates) < _MOST_DATES:
            dates.setdefault(date_parts, set()).update(written)
    terms: dict[str, None] = {}
    lookup_terms: dict[str, None] = {}
    date_words: set[str] = set()
    spans: dict[tuple[float, float], None] = {}
    for date_parts, written_words in dates.items():
        if not _possible(date_parts):
            continue
        completed = _with_year(date_parts, at)
        terms |= dict.fromkeys(_terms(completed))
        # A guessed year helps other questions to find this text, but a question must not require it.
        lookup_terms[_terms(date_parts)[-1]] = None
        date_words.update(written_words)
        if span := _span(completed):
            spans[span] = None
    years = [word for word in text_words if _YEAR.fullmatch(word)] if digits else []
    if not dates:
        spans |= dict.fromkeys(filter(None, (_span((int(year), None, None)) for year in years)))
    return Dates(tuple(terms), tuple(lookup_terms), frozenset(date_words), tuple(spans), timed or bool(terms or years))


_NONE: Final = Dates()
_MOST_DATES: Final = 256
"""The most different dates of a text that the index keeps. Words alone find the later dates of a calendar."""

_DIGIT: Final = re.compile(r"\d")
_NUMERIC: Final = re.compile(
    r"(?<![\d.,/-])(?:"
    r"(?P<y>[12]\d{3})[-/.](?P<m>\d{1,2})[-/.](?P<d>\d{1,2})"
    r"|(?P<a>\d{1,2})(?P<mark>[/.])(?P<b>\d{1,2})[/.](?P<z>[12]\d{3})"
    r"|(?P<dd>\d{1,2})\.(?P<dm>\d{1,2})\.(?!\d)"
    r"|(?:(?P<cy>[12]\d{3})年)?(?P<cm>\d{1,2})月(?:(?P<cd>\d{1,2})[日号號])?"
    r")(?![\d])"
)
_YEAR: Final = re.compile(r"(?:1[89]|20)\d\d")
_DAY: Final = re.compile(r"(\d{1,2})(?:st|nd|rd|th|er|º|o)?")
_LONGEST_MONTH: Final = 31
_MONTHS: Final = 12

_TABLE: Final = read_table(__name__, "dates")
_RELATIVE_DAYS: Final = {
    fold(word): int(offset) for offset, listed in _TABLE["relative_days"].items() for word in listed.split()
}
"""The offset in days of each word that names a day relative to the time of the text."""

_UNSPACED: Final = "\u0e00"
"""The first character of the scripts without spaces. Their words for days are searched inside other text.

The longest word wins, because 一昨日 (two days ago) contains 昨日 (yesterday).
"""

_UNITS: Final[dict[str, int]] = _TABLE["units"]
_COUNTS: Final[dict[str, int]] = _TABLE["counts"]
_WORDS: Final = {name: frozenset(text.split()) for name, text in _TABLE["words"].items()}

_UNSPACED_TIMES: Final = re.compile(
    "[年月日号號周週]|星期|曜|天前|時|小时|去|今朝|今晚|昨|明天|วัน|เดือน|ปี|สัปดาห์|년|월|주|일"
)


@cache
def _time_words() -> frozenset[str]:
    names = {word for word in _months() if word not in _WORDS["doubtful_months"]} | _weekdays().keys()
    return frozenset(fold(word) for word in _WORDS["times"] | names | _RELATIVE_DAYS.keys())


@cache
def _hints() -> frozenset[str]:
    return _time_words() | _months().keys()


@cache
def _months() -> dict[str, int]:
    numbers: dict[str, int] = {}
    for language in STEMMERS:
        locale = Locale(language)
        tables = [locale.months["format"]["wide"], locale.months["stand-alone"]["wide"]]
        if language == "en":
            tables.append(locale.months["format"]["abbreviated"])
        for table in tables:
            for number, name in table.items():
                cut = words(fold(str(name)))
                if len(cut) == 1 and not cut[0].isdecimal():
                    numbers.setdefault(cut[0], int(number))
                    numbers.setdefault(without_accents(cut[0]), int(number))
    return numbers


@cache
def _weekdays() -> dict[str, int]:
    numbers: dict[str, int] = {}
    for language in STEMMERS:
        for number, name in Locale(language).days["format"]["wide"].items():
            cut = words(fold(str(name)))
            if len(cut) == 1:
                numbers.setdefault(cut[0], int(number))
    return numbers


def _in_digits(folded: str) -> Iterator[tuple[_Date, Sequence[str]]]:
    for match in _NUMERIC.finditer(folded):
        written = words(match[0])
        if match["y"]:
            yield (int(match["y"]), int(match["m"]), int(match["d"])), written
        elif match["cm"]:
            yield (_number(match["cy"]), int(match["cm"]), _number(match["cd"])), written
        elif match["dm"]:
            yield (None, int(match["dm"]), int(match["dd"])), written
        else:
            first, second, year = int(match["a"]), int(match["b"]), int(match["z"])
            # 4/5/2024 may mean 4 May or April 5, so the text gets the terms of both.
            yield (year, second, first), written
            if match["mark"] == "/":
                yield (year, first, second), written


def _number(digits: str | None) -> int | None:
    return int(digits) if digits else None


def _in_words(text_words: Sequence[str]) -> Iterator[tuple[_Date, Sequence[str]]]:
    months = _months()
    for at, word in enumerate(text_words):
        month = months.get(word)
        if month is None:
            continue
        day, year, first, after = _day(text_words, at - 1), None, at - 1, at + 1
        if day is None and at > 1 and text_words[at - 1] in _WORDS["nearly"]:
            day, first = _day(text_words, at - 2), at - 2
        if day is None:
            day, first = _day(text_words, after), at
            after += day is not None
        last = after + (after < len(text_words) and text_words[after] in _WORDS["nearly"])
        if last < len(text_words) and _YEAR.fullmatch(text_words[last]):
            year, after = int(text_words[last]), last + 1
        is_month = word not in _WORDS["doubtful_months"] or (at > 0 and text_words[at - 1] in _WORDS["before_months"])
        if is_month or day is not None or year is not None:
            yield (year, month, day), text_words[first:after]


def _day(text_words: Sequence[str], at: int) -> int | None:
    match = _DAY.fullmatch(text_words[at]) if 0 <= at < len(text_words) else None
    return int(match[1]) if match and 1 <= int(match[1]) <= _LONGEST_MONTH else None


def _relative(folded: str, text_words: Sequence[str], today: date) -> Iterator[_Date]:
    if not folded.isascii():
        yield from (_moved(today, _RELATIVE_DAYS[match[0]]) for match in _unspaced_days().finditer(folded))
    weekdays = _weekdays()
    for at, word in enumerate(text_words):
        before = text_words[at - 1] if at else ""
        if word in _RELATIVE_DAYS and word[0] < _UNSPACED:
            yield _moved(today, _RELATIVE_DAYS[word])
        elif word in weekdays:
            yield from _weekday(today, weekdays[word], before)
        elif word in _UNITS and before in {"last", "next"}:
            yield _moved_by(today, -1 if before == "last" else 1, word)
        elif word == "ago" and at > 1 and before in _UNITS:
            count = _COUNTS.get(text_words[at - 2]) or _day(text_words, at - 2)
            if count:
                yield _moved_by(today, -count, before)


def _weekday(today: date, weekday: int, before: str) -> Iterator[_Date]:
    # "On Friday" may mean the last Friday or the next one, so the text gets the terms of both.
    back = (today.weekday() - weekday) % 7
    if before != "next":
        yield _moved(today, -(back or 7) if before == "last" else -back)
    if before != "last":
        yield _moved(today, 7 - back)


def _moved_by(today: date, count: int, unit: str) -> _Date:
    days = _UNITS[unit]
    year, month, day = _moved(today, count * days)
    return year, month if days < _UNITS["year"] else None, day if days == 1 else None


@cache
def _unspaced_days() -> re.Pattern[str]:
    longest_first = sorted((word for word in _RELATIVE_DAYS if word[0] >= _UNSPACED), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)))


def _moved(today: date, days: int) -> _Date:
    try:
        moved = today + timedelta(days=days)
    except OverflowError:
        return None, None, None
    return moved.year, moved.month, moved.day


def _possible(date_parts: _Date) -> bool:
    year, month, day = date_parts
    if month is None:
        return year is not None
    return 1 <= month <= _MONTHS and (day is None or 1 <= day <= monthrange(2024, month)[1])


def _with_year(date_parts: _Date, at: datetime | None) -> _Date:
    year, month, day = date_parts
    if year is None and month is not None and at is not None:
        # The nearest year: the date is at most half a year before or after the message.
        year = at.year + round((at.month - month) / _MONTHS)
    return year, month, day


def _terms(date_parts: _Date) -> tuple[str, ...]:
    year, month, day = date_parts
    if month is None:
        # A year has the same term as its number in a text, so "last year" also finds "2023".
        return (str(year),)
    terms = [f"@-{month:02}"]
    if day is not None:
        terms.append(f"@-{month:02}-{day:02}")
    if year is not None:
        terms.append(f"@{year}-{month:02}")
        if day is not None:
            terms.append(f"@{year}-{month:02}-{day:02}")
    return tuple(terms)


def _span(date_parts: _Date) -> tuple[float, float] | None:
    year, month, day = date_parts
    if year is None:
        return None
    try:
        start = datetime(year, month or 1, day or 1, tzinfo=UTC)
        length = 1 if day else monthrange(year, month)[1] if month else 365
        return start.timestamp(), (start + timedelta(length)).timestamp()
    except (ValueError, OverflowError):
        return None
