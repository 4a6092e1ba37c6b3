"""Finds values after names of secrets: ``DB_PASS=…``, ``"apiKey": "…"``, ``my password is …``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Final

from agent_memory_log.secrets.parts import compiled
from agent_memory_log.secrets.reading import Reading
from agent_memory_log.secrets.rules import Name, names
from agent_memory_log.secrets.values import MADE_UP, MIN_LENGTH, NEVER, NOT_SECRET, RANDOM, WORD, strength

_MOST_NESTED: Final = 4


@cache
def _after_name() -> re.Pattern[str]:
    """Return the pattern of the text between a name and its value."""
    return compiled(
        r"(?P<closed>\\{0,3}[\"'`*\])]{0,3}){remark}?"
        r"(?:{annotation}?{belonging}"
        r"(?:(?P<assigned>{assigned})|(?P<element>>)|(?P<listed>(?<=[\"']), ?(?=[\"']))|(?P<called>\((?=[\"']))"
        r"|(?P<stated>{stated})|(?P<moved>{moved}))"
        r"|(?P<beside>{beside}))"
        r"(?P<quote>{opening_quote})?"
    )


@cache
def _harmless_before() -> re.Pattern[str]:
    return compiled(r"{no_token_purpose}[_ .-]?\Z")


@cache
def _describes() -> re.Pattern[str]:
    return compiled("{describing_end}$")


_VALUE = re.compile(r"""[^\s"'`<>;,、。“”«»]{1,400}""")
_UNTIL_QUOTE = {
    '"': re.compile(r'[^"\n]{1,400}'),
    "'": re.compile(r"[^'\n]{1,400}"),
    "`": re.compile(r"[^`\n]{1,400}"),
    "“": re.compile(r"[^”\n]{1,400}"),
    "”": re.compile(r"[^”\n]{1,400}"),
    "„": re.compile(r"[^“”\n]{1,400}"),
    "«": re.compile(r"[^»\n]{1,400}"),
}
_NEXT_PARAMETER = re.compile(r"&(?:amp;)?[A-Za-z_.-]{1,40}=")
_CLAUSE_ENDS = re.compile(r"[ \t]*(?:$|[\n.,;:!?)<\]}|/]|and\b|und\b|y\b|et\b|[-\u2013\u2014][ ]|user|host|port|#)")
_NAME_GOES_ON = (" for ", " of ", " to ", " del ", " de ", " du ", " für ", " von ")
_SHOUTED = re.compile(r"[A-Z0-9_]{2,64}\Z")
_SECTION = re.compile(r"^\[[\w. -]{1,40}\]$", re.MULTILINE)
_LONGEST_SECTION = 200
_MIN_PLAIN = 6


def named_secrets(reading: Reading) -> Iterator[tuple[str, int, int]]:
    """Yield kind, start and end of each secret value after a name."""
    lower = reading.lower
    for hint, rows in names().items():
        place = lower.find(hint)
        done = nested = last_stop = 0
        while place >= 0:
            done = place + len(hint)
            name = _name_at(rows, lower, place)
            if name is not None:
                row, end = name
                done = end
                value = _value_after(reading, row, place, end)
                if value is not None:
                    begin, stop, is_secret = value
                    if is_secret:
                        yield row.kind, begin, stop
                    # A name can be in another name's value. After several, the rest is skipped, to save time.
                    nested = nested + 1 if begin < last_stop else 0
                    last_stop = max(last_stop, stop)
                    if nested >= _MOST_NESTED:
                        done = max(done, last_stop)
                        nested = 0
            place = lower.find(hint, done)


def _name_at(rows: list[Name], lower: str, place: int) -> tuple[Name, int] | None:
    """Return the first of ``rows`` that matches at ``place``, and its end."""
    for name in rows:
        end = name.end_in(lower, place)
        if end is not None:
            if name.kind == "token" and _harmless_before().search(lower, max(0, place - 13), place):
                return None
            return name, end
    return None


def kind_of_name(name: str) -> tuple[str, int] | None:
    """Return the kind of secret that a map key names, and its value's required strength; None for other keys."""
    lower = Reading(name).lower
    for hint, rows in names().items():
        place = lower.rfind(hint)
        row = _name_at(rows, lower, place) if place >= 0 else None
        if row is not None and (row[1] == len(lower) or lower.startswith(_NAME_GOES_ON, row[1])):
            return row[0].kind, row[0].assigned
    return None


def _value_after(reading: Reading, name: Name, start: int, end: int) -> tuple[int, int, bool] | None:
    """Return the start and end of the value after a name, and whether it is a secret; None if there is no value."""
    plain = reading.plain
    after = _after_name().match(plain, end)
    if after is None:
        return None
    begin, stop, quoted = _value_at(plain, after)
    value = plain[begin:stop]
    if value.isdecimal():  # a number may be a password, never a token
        return begin, stop, name.assigned == WORD and len(value) >= MIN_LENGTH and after["beside"] is None
    level = strength(value, quoted=quoted)
    if level == NOT_SECRET or (value.startswith("-") and not quoted):
        return begin, stop, False
    is_password = name.assigned == WORD or (name.kind == "password" and quoted and after["closed"] != "")
    if after["element"] is not None:
        is_secret = level >= name.assigned and plain.startswith("</", stop)
    elif after["beside"] is not None:
        is_option = plain.startswith("--", plain.rfind(" ", 0, start) + 1)
        is_setting = (
            "_" in plain[max(0, start - 10) : end] and _SHOUTED.search(plain, max(0, start - 40), end) is not None
        )
        needed = max(MADE_UP, name.assigned) if is_option or is_setting else name.beside
        is_literal = is_password and (
            is_option or name.beside == WORD or (quoted and plain[start:end].isupper())
        )  # SQL: PASSWORD 'tulips'
        is_secret = (is_literal or (level >= needed and (level == RANDOM or _mixed(value)))) and (
            "," not in after["beside"] or (is_password and any(map(str.isdigit, value)))
        )
    elif after["stated"] is not None:
        is_secret = level >= (WORD if is_password and (quoted or _is_plain_word(plain, begin, stop)) else name.stated)
    elif after["listed"] is not None or after["called"] is not None:
        is_set = plain[start - 3 : start].lower() == "set" or (is_password and plain[start:end].isupper())
        is_define = plain[max(0, start - 40) : start].lower().rfind("define(") >= 0
        is_secret = (is_set or is_define) or (
            (is_password or (after["listed"] is not None and " " not in value and name.stated != NEVER))
            and level >= MADE_UP
            and any(map(str.isdigit, value))
        )
    elif after["moved"] is not None:
        is_secret = (is_password and quoted) or (
            level >= MADE_UP and (is_password or (name.kind == "password" and _mixed(value)))
        )
    else:
        # A single word is ambiguous. It may begin a sentence ("password: try again") or be a variable in code.
        is_whole = (
            quoted
            or (_CLAUSE_ENDS.match(plain, stop) is not None and after["assigned"] != " = ")
            or after["assigned"] == "="
            or _SECTION.search(plain, max(0, begin - _LONGEST_SECTION), begin) is not None
        )
        needed = WORD if is_password and not after["assigned"].endswith("\n") else max(MADE_UP, name.assigned)
        is_secret = level >= needed and (is_whole or level > WORD) and (is_password or quoted or not value.isalpha())
    return begin, stop, is_secret


def _value_at(plain: str, after: re.Match[str]) -> tuple[int, int, bool]:
    """Return the start and end of the value after the match, and whether it is quoted."""
    begin = after.end()
    quote = after["quote"]
    if quote:
        match = _UNTIL_QUOTE[quote[-1]].match(plain, begin)
        if match is None:
            return begin, begin, True
        if match.end() < len(plain) and plain[match.end()] != "\n":
            stop = match.end()
            while stop > begin and plain[stop - 1] == "\\":
                stop -= 1
            return begin, stop, True
    match = _VALUE.match(plain, begin)
    if match is None:
        return begin, begin, False
    stop = match.end()
    parameter = _NEXT_PARAMETER.search(plain, begin, stop)
    if parameter is not None:
        stop = parameter.start()
    while stop > begin and plain[stop - 1] in ".,:?)]}\\" and not (plain[stop - 1] == "}" and "{" in plain[begin:stop]):
        stop -= 1
    if plain.find("です", begin, stop) > begin:
        stop = plain.find("です", begin, stop)
    return begin, stop, False


def _is_plain_word(plain: str, begin: int, stop: int) -> bool:
    """Return whether the value is a single word that does not describe a password."""
    word = plain[begin:stop]
    return (
        len(word) >= _MIN_PLAIN
        and word.isalpha()
        and _describes().search(word.lower()) is None
        and _CLAUSE_ENDS.match(plain, stop) is not None
    )


def _mixed(value: str) -> bool:
    return any(map(str.isalpha, value)) and (any(map(str.isdigit, value)) or not value[1:-1].isalnum())
