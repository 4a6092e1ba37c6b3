"""Dates in texts: in digits, in words, and relative to when the text was written.

"March 3rd", "3/3/2024" and "2024-03-03" become the same terms, and so does "yesterday" in a message of 4 March. A text
that names only a month or a day of a month is found by that and, with the year nearest to the message, by the whole
date. A question's dates also say when it may have been talked about.
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
"""What the terms of dates begin with, and no word does."""


class Dates(msgspec.Struct, frozen=True):
    """What a text says of time: the terms of its dates, the spans they cover, whether it speaks of time at all.

    ``terms`` are those it is found by. ``asked`` are those a question is looked up by, the most exact one of each date,
    in place of the words that said it, ``said``. A span is two timestamps in seconds, the second one after its end.
    """

    terms: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    said: frozenset[str] = frozenset()
    spans: tuple[tuple[float, float], ...] = ()
    timed: bool = False


_Found = tuple[int | None, int | None, int | None]  # year, month, day


def dates_in(folded: str, found: Sequence[str], at: datetime | None) -> Dates:
    """The dates of a text that was written, or asked, ``at``; ``found`` are its words.

    Without ``at`` nothing relative is resolved, and what lacks its year stays without it.
    """
    digits = bool(_DIGIT.search(folded))
    unspaced = not folded.isascii() and bool(_UNSPACED_TIMES.search(folded))
    named = not _hints().isdisjoint(found)
    if not digits and not unspaced and not named:
        return _NONE
    timed = unspaced or not _time_words().isdisjoint(found)
    dates: dict[_Found, set[str]] = {}
    for when, written in chain(
        _in_digits(folded) if digits else (),
        _named(found) if named else (),
        ((when, ()) for when in _relative(folded, found, at.date())) if timed and at is not None else (),
    ):
        if when in dates or len(dates) < _MOST_DATES:
            dates.setdefault(when, set()).update(written)
    terms: dict[str, None] = {}
    asked: dict[str, None] = {}
    said: set[str] = set()
    spans: dict[tuple[float, float], None] = {}
    for when, in_words in dates.items():
        if not _possible(when):
            continue
        whole = _with_year(when, at)
        terms |= dict.fromkeys(_terms(whole))
        # A year that nobody said is a guess: good enough to be found by, and not to ask for.
        asked[_terms(when)[-1]] = None
        said.update(in_words)
        if span := _span(whole):
            spans[span] = None
    years = [word for word in found if _YEAR.fullmatch(word)] if digits else []
    if not dates:
        spans |= dict.fromkeys(filter(None, (_span((int(year), None, None)) for year in years)))
    return Dates(tuple(terms), tuple(asked), frozenset(said), tuple(spans), timed or bool(terms or years))


_NONE: Final = Dates()
_MOST_DATES: Final = 256
"""How many different dates of one text count, the first ones: a calendar is found by its words."""

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
"""A word for a day relative to the one it is said on -> days from then."""

_UNSPACED: Final = "\u0e00"
"""Where the scripts begin whose words for days are looked for inside of others: 一昨日 is not 昨日."""

_UNITS: Final[dict[str, int]] = _TABLE["units"]
_COUNTS: Final[dict[str, int]] = _TABLE["counts"]
_WORDS: Final = {name: frozenset(text.split()) for name, text in _TABLE["words"].items()}

_UNSPACED_TIMES: Final = re.compile(
    "[年月日号號周週]|星期|曜|天前|時|小时|去|今朝|今晚|昨|明天|วัน|เดือน|ปี|สัปดาห์|년|월|주|일"
)


@cache
def _time_words() -> frozenset[str]:
    named = {word for word in _months() if word not in _WORDS["doubtful_months"]} | _weekdays().keys()
    return frozenset(fold(word) for word in _WORDS["times"] | named | _RELATIVE_DAYS.keys())


@cache
def _hints() -> frozenset[str]:
    return _time_words() | _months().keys()


@cache
def _months() -> dict[str, int]:
    named: dict[str, int] = {}
    for language in STEMMERS:
        locale = Locale(language)
        tables = [locale.months["format"]["wide"], locale.months["stand-alone"]["wide"]]
        if language == "en":
            tables.append(locale.months["format"]["abbreviated"])
        for table in tables:
            for number, name in table.items():
                cut = words(fold(str(name)))
                if len(cut) == 1 and not cut[0].isdecimal():
                    named.setdefault(cut[0], int(number))
                    named.setdefault(without_accents(cut[0]), int(number))
    return named


@cache
def _weekdays() -> dict[str, int]:
    named: dict[str, int] = {}
    for language in STEMMERS:
        for number, name in Locale(language).days["format"]["wide"].items():
            cut = words(fold(str(name)))
            if len(cut) == 1:
                named.setdefault(cut[0], int(number))
    return named


def _in_digits(folded: str) -> Iterator[tuple[_Found, Sequence[str]]]:
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
            # 4/5/2024 is read both ways: whoever wrote it meant one of them, and two terms cost nothing.
            yield (year, second, first), written
            if match["mark"] == "/":
                yield (year, first, second), written


def _number(digits: str | None) -> int | None:
    return int(digits) if digits else None


def _named(found: Sequence[str]) -> Iterator[tuple[_Found, Sequence[str]]]:
    months = _months()
    for at, word in enumerate(found):
        month = months.get(word)
        if month is None:
            continue
        day, year, first, after = _day(found, at - 1), None, at - 1, at + 1
        if day is None and at > 1 and found[at - 1] in _WORDS["nearly"]:
            day, first = _day(found, at - 2), at - 2
        if day is None:
            day, first = _day(found, after), at
            after += day is not None
        last = after + (after < len(found) and found[after] in _WORDS["nearly"])
        if last < len(found) and _YEAR.fullmatch(found[last]):
            year, after = int(found[last]), last + 1
        sure = word not in _WORDS["doubtful_months"] or (at > 0 and found[at - 1] in _WORDS["before_months"])
        if sure or day is not None or year is not None:
            yield (year, month, day), found[first:after]


def _day(found: Sequence[str], at: int) -> int | None:
    match = _DAY.fullmatch(found[at]) if 0 <= at < len(found) else None
    return int(match[1]) if match and 1 <= int(match[1]) <= _LONGEST_MONTH else None


def _relative(folded: str, found: Sequence[str], today: date) -> Iterator[_Found]:
    if not folded.isascii():
        yield from (_moved(today, _RELATIVE_DAYS[match[0]]) for match in _unspaced_days().finditer(folded))
    weekdays = _weekdays()
    for at, word in enumerate(found):
        before = found[at - 1] if at else ""
        if word in _RELATIVE_DAYS and word[0] < _UNSPACED:
            yield _moved(today, _RELATIVE_DAYS[word])
        elif word in weekdays:
            yield from _weekday(today, weekdays[word], before)
        elif word in _UNITS and before in {"last", "next"}:
            yield _moved_by(today, -1 if before == "last" else 1, word)
        elif word == "ago" and at > 1 and before in _UNITS:
            count = _COUNTS.get(found[at - 2]) or _day(found, at - 2)
            if count:
                yield _moved_by(today, -count, before)


def _weekday(today: date, weekday: int, before: str) -> Iterator[_Found]:
    # On Friday is the last one or the next: both are terms, and whoever asks knows which.
    back = (today.weekday() - weekday) % 7
    if before != "next":
        yield _moved(today, -(back or 7) if before == "last" else -back)
    if before != "last":
        yield _moved(today, 7 - back)


def _moved_by(today: date, count: int, unit: str) -> _Found:
    days = _UNITS[unit]
    year, month, day = _moved(today, count * days)
    return year, month if days < _UNITS["year"] else None, day if days == 1 else None


@cache
def _unspaced_days() -> re.Pattern[str]:
    longest_first = sorted((word for word in _RELATIVE_DAYS if word[0] >= _UNSPACED), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)))


def _moved(today: date, days: int) -> _Found:
    try:
        moved = today + timedelta(days=days)
    except OverflowError:
        return None, None, None
    return moved.year, moved.month, moved.day


def _possible(when: _Found) -> bool:
    year, month, day = when
    if month is None:
        return year is not None
    return 1 <= month <= _MONTHS and (day is None or 1 <= day <= monthrange(2024, month)[1])


def _with_year(when: _Found, at: datetime | None) -> _Found:
    year, month, day = when
    if year is None and month is not None and at is not None:
        # The nearest one, up to half a year back or ahead.
        year = at.year + round((at.month - month) / _MONTHS)
    return year, month, day


def _terms(when: _Found) -> tuple[str, ...]:
    year, month, day = when
    if month is None:
        # Who speaks of last year is found by its number, as who says it is.
        return (str(year),)
    terms = [f"@-{month:02}"]
    if day is not None:
        terms.append(f"@-{month:02}-{day:02}")
    if year is not None:
        terms.append(f"@{year}-{month:02}")
        if day is not None:
            terms.append(f"@{year}-{month:02}-{day:02}")
    return tuple(terms)


def _span(when: _Found) -> tuple[float, float] | None:
    year, month, day = when
    if year is None:
        return None
    try:
        start = datetime(year, month or 1, day or 1, tzinfo=UTC)
        length = 1 if day else monthrange(year, month)[1] if month else 365
        return start.timestamp(), (start + timedelta(length)).timestamp()
    except (ValueError, OverflowError):
        return None
