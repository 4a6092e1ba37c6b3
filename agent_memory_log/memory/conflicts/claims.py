"""Divides a statement into the parts that are compared: its person, its topic words, its values, and its denials.

``data/claims.toml`` has the words of each language. A text costs time linear in its length.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cache
from itertools import islice
from typing import Any

import msgspec

from agent_memory_log.tables import read_table

_TABLE: dict[str, Any] = read_table(__name__, "claims")

_MAX_TEXT = 600
"""The most characters of a text that are read. Statements are shorter. Longer texts are usually pasted."""

_MAX_TERMS = 24
_MAX_CLAUSES = 16
_GENERAL = 2
"""The most words of a clause that names a group in general. Longer clauses are more specific."""

_SUBJECT = 4
"""The number of words at the beginning of a clause among which its subject is."""

_TOKEN = re.compile(r"[A-Z]+|[€£$]|[a-z]+(?:-[a-z]+)*|\d+(?:[.,:]\d+)*|[^\W\d_]+")
_NAME = re.compile(r"(?<=[a-zß-ÿ,] )[A-ZÀ-Þ]\w+")
_DIGIT = re.compile(r"\d")
_CLOCK = re.compile(r"\b(\d{1,2})(?:[:.h](\d\d))? ?([ap])\.?m\b\.?")
_HOURS = re.compile(r"(?<![:.])\b(\d{1,2})(?: ?h ?(\d\d)?| uhr(?: (\d\d))?| o'clock)\b")
_ORDINAL = re.compile(r"\b(\d+)(?:st|nd|rd|th|er|eme)\b")
_THOUSANDS = re.compile(r"\b(\d{1,3})[.,'](\d{3})\b")
_NOON = 12
_STUB = 4
"""The number of characters that the words of one family share at least: ``Chor`` and ``Chorprobe``."""

OTHER = "other"
"""The person of a clause that means another person only by a pronoun."""

HELPED = "for "
"""The beginning of the person of a clause about something that is done for that person."""

NOT, WITHOUT, ENDED, BEGAN, LIKES, DISLIKES, BREAK = "NOT", "WITHOUT", "ENDED", "BEGAN", "LIKES", "DISLIKES", "BREAK"
_MARKS = (DISLIKES, ENDED, NOT, WITHOUT, BEGAN, LIKES)


class Clause(msgspec.Struct, frozen=True, gc=False):
    """A clause of a statement.

    Attributes:
        person: Its person: ``me``, a word for another person, ``OTHER``, or ``""`` if it is unknown.
        words: The stems of the words that name its topic.
        groups: The groups that it names, such as ``meat`` for a steak.
        group_names: The groups that it names in general, such as ``meat`` for meat, but not for a steak.
        owned: The groups of which the user has a member, such as ``sibling`` for "my sister".
        denied: The groups that its words deny, such as ``meat`` for a vegetarian.
        limits: The words that limit it to a time, such as ``dinner`` in "after dinner".
        stance: 1 if it asserts or likes its words, -1 if it denies or dislikes them.
        attitude: Whether it says what the person likes or dislikes.
        states: The state of the person by the row of states that exclude each other.
        opposites: The side by the row of words that exclude each other.
    """

    person: str
    words: frozenset[str]
    groups: frozenset[str]
    group_names: frozenset[str]
    owned: frozenset[str]
    denied: frozenset[str]
    limits: frozenset[str]
    stance: int
    attitude: bool
    states: Mapping[str, int]
    opposites: Mapping[str, int]


class Claim(msgspec.Struct, frozen=True, gc=False):
    """A statement.

    Attributes:
        language: The code of its language.
        clauses: Its clauses.
        words: The words of all clauses.
        values: The numbers, days and months.
        units: The units of the numbers.
        scopes: The side by the row of places that are apart.
        topics: The topics of its words.
        began: Whether it says that something is new.
        attribute: The words for an attribute of which a person has one value at a time, such as "work at", or ``""``.
        names: The names in it: the words with a capital letter that begin no sentence.
        unreal: Whether it is a question, a wish or a condition.
    """

    language: str
    clauses: tuple[Clause, ...]
    words: frozenset[str]
    values: frozenset[str]
    units: frozenset[str]
    scopes: Mapping[str, int]
    topics: frozenset[str]
    began: bool
    attribute: str
    names: frozenset[str]
    unreal: bool


class _Language:
    """The words and the patterns of a language."""

    def __init__(self, table: dict[str, Any]) -> None:
        self.function_words = frozenset(table["function_words"].split())
        self.light = frozenset(table["light_words"].split())
        self.first_person = frozenset(table["first_person"].split())
        self.mine = frozenset(table["mine"].split())
        self.others = frozenset(table["others"].split())
        self.pronouns = frozenset(table["pronouns"].split())
        self.theirs = frozenset(table["theirs"].split())
        self.for_whom = table["for_whom"]
        self.limits = frozenset(table["limits"].split())
        self.ignored = self.function_words | self.limits
        self.vocabulary = self.function_words | self.light | self.others | self.first_person | self.mine
        self.unreal = re.compile(table["unreal"])
        self.attributes = re.compile(_any_of(table["attributes"]))
        self._endings = re.compile(table["endings"])
        self._irregular: dict[str, str] = {
            form: row.split()[0] for row in table["irregular"].split(",") for form in row.split()[1:]
        }
        self.vocabulary |= {word for mark in _MARKS for word in table[mark.lower()] if word.isalpha()}
        marks = [f"(?P<{mark}>{_any_of(table[mark.lower()])})" for mark in _MARKS]
        self._marks = re.compile("|".join((f"(?P<{BREAK}>{table['break']})", *marks)))
        self._stems: dict[str, str] = {}

    def marked(self, folded: str) -> str:
        """Return a folded text with its marks in capital letters."""
        return self._marks.sub(lambda match: f" {match.lastgroup} ", folded)

    def person(self, word: str) -> str:
        """Return the one word for a person who has more than one: ``mother`` for ``mum``."""
        return self._irregular.get(word, word)

    def stem(self, word: str) -> str:
        """Return the stem of a word."""
        stem = self._stems.get(word)
        if stem is None:
            stem = self._irregular.get(word) or self._without_ending(word)
            if len(self._stems) >= _MOST_STEMS:
                self._stems.clear()
            self._stems[word] = stem
        return stem

    def _without_ending(self, word: str) -> str:
        bare = self._endings.sub("", word)
        if len(bare) < _SHORT:
            return word
        if len(bare) > _SHORT and bare[-1] == bare[-2]:
            bare = bare[:-1]
        return bare.rstrip("ey") if len(bare) > _SHORT else bare


_MOST_STEMS = 20_000
_SHORT = 3


def _any_of(patterns: Sequence[str]) -> str:
    return rf"\b(?:{'|'.join(patterns)})\b(?!-)"


@cache
def _languages() -> dict[str, _Language]:
    return {code: _Language(table) for code, table in _TABLE["languages"].items()}


def _names_of(rows: Mapping[str, str]) -> dict[str, frozenset[str]]:
    """Return the names of the rows that each word is in."""
    names: dict[str, set[str]] = {}
    for name, words in rows.items():
        for word in words.replace("|", " ").split():
            names.setdefault(word, set()).add(name)
    return {word: frozenset(of_word) for word, of_word in names.items()}


def _sides_of(rows: Mapping[str, str]) -> dict[str, tuple[str, int]]:
    """Return the row and the side of each word."""
    return {
        word: (row, side)
        for row, sides in rows.items()
        for side, words in enumerate(sides.split("|"))
        for word in words.split()
    }


_GROUPS = _names_of(_TABLE["groups"])
_GROUP_NAMES = _names_of({name: row.split("|")[0] for name, row in _TABLE["groups"].items()})
_TOPICS = _names_of(_TABLE["topics"])
_OWNED = frozenset(_TABLE["owned"]["groups"].split())
_DENIALS = {word: frozenset(groups.split()) for word, groups in _TABLE["denials"].items()}
_NUMBERS = {word: number for number, words in _TABLE["numbers"].items() for word in words.split()}
_UNITS = {word: unit for unit, words in _TABLE["units"].items() for word in words.split()}
_STATES = _sides_of(_TABLE["states"])
_OPPOSITES = _sides_of(_TABLE["opposites"])
_SCOPES = _sides_of(_TABLE["scopes"])
_PHRASES = re.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in _TABLE["phrases"].items()))
_NONE: frozenset[str] = frozenset()


def fold(text: str) -> str:
    """Return the first characters of a text in the form in which they are compared.

    That is lower case, without accents, with clock times, ordinals and large numbers in one form.
    """
    text = text[:_MAX_TEXT]
    if not text.isascii():
        text = unicodedata.normalize("NFKD", text.replace("\u2019", "'").replace("ß", "ss").replace("œ", "oe"))
        text = "".join(character for character in text if not unicodedata.combining(character))
    text = _PHRASES.sub(lambda match: str(match.lastgroup), text.casefold())
    if _DIGIT.search(text) is None:
        return text
    text = _CLOCK.sub(_clock, text)
    text = _HOURS.sub(lambda match: f"{int(match[1])}:{match[2] or match[3] or '00'}", text)
    text = _ORDINAL.sub(r"\1", text)
    return _THOUSANDS.sub(r"\1\2", text)


def _clock(match: re.Match[str]) -> str:
    hour = int(match[1]) % _NOON + (_NOON if match[3] == "p" else 0)
    return f"{hour}:{match[2] or '00'}"


def terms_of(text: str) -> tuple[str, ...]:
    """Return the terms by which the index finds statements about the same thing: stubs of words, groups and topics."""
    words = _TOKEN.findall(fold(text))
    language = _languages()[_language_of(words)]
    terms: dict[str, None] = {}
    for word in words:
        if word in language.function_words or word[0].isdigit():
            continue
        terms[language.stem(word)[:_STUB]] = None
        terms.update(dict.fromkeys(f"&{name}" for name in _GROUPS.get(word, _NONE) | _DENIALS.get(word, _NONE)))
        terms.update(dict.fromkeys(f"@{topic}" for topic in _TOPICS.get(word, _NONE)))
        if word in _STATES:
            terms[f"={_STATES[word][0]}"] = None
        if len(terms) >= _MAX_TERMS:
            break
    return tuple(terms)


def read_claim(text: str) -> Claim:
    """Return the parts of a statement."""
    folded = fold(text)
    words = _TOKEN.findall(folded)
    code = _language_of(words)
    language = _languages()[code]
    marked = _TOKEN.findall(language.marked(folded))
    clauses = tuple(islice(_clauses(language, marked), _MAX_CLAUSES))
    topical = [word for word in words if word not in language.function_words]
    attribute = language.attributes.search(folded)
    return Claim(
        code,
        clauses,
        words=_NONE.union(*(clause.words for clause in clauses)),
        values=frozenset(_NUMBERS.get(word, word) for word in topical if word in _NUMBERS or word[0].isdigit()),
        units=frozenset(_UNITS[word] for word in topical if word in _UNITS),
        scopes=_sides(_SCOPES, topical),
        topics=_union(_TOPICS, topical),
        began=BEGAN in marked,
        attribute="" if attribute is None else attribute[0],
        names=frozenset(map(fold, _NAME.findall(text[:_MAX_TEXT]))),
        unreal=language.unreal.search(folded) is not None,
    )


def _language_of(words: Sequence[str]) -> str:
    """Return the language that knows most of the words."""
    distinct = set(words)
    languages = _languages()
    return max(languages, key=lambda code: len(languages[code].vocabulary & distinct))


def _clauses(language: _Language, words: Sequence[str]) -> Iterator[Clause]:
    """Yield the clauses. A clause without a person and marks continues the earlier one: "no meat, fish or eggs"."""
    part: list[str] = []
    stance, person, attitude = 1, "", False
    for word in (*words, BREAK):
        if word != BREAK:
            part.append(word)
            continue
        marks = {mark for mark in part if mark.isupper()}
        own_person = _person(language, part)
        if marks or own_person:
            stance, person = _stance(marks), own_person or person
            attitude = not marks.isdisjoint((LIKES, DISLIKES))
        clause = _clause(language, part, person, stance, attitude=attitude)
        if clause is not None:
            yield clause
        part = []


def _stance(marks: AbstractSet[str]) -> int:
    likes = -1 if DISLIKES in marks and LIKES not in marks else 1
    denies = (NOT in marks or ENDED in marks) != (WITHOUT in marks)
    return -likes if denies else likes


def _person(language: _Language, words: Sequence[str]) -> str:
    """Return the person for whom something is done, or else ``me`` for the user, or else the first other person.

    The first other person is the sister in "Gran's sister".
    """
    plain = [word for word in words if not word.isupper()]
    people = [place for place, word in enumerate(plain) if word in language.others]
    helped = [place for place in people if language.for_whom in plain[max(0, place - 2) : place]]
    places = [place for place, word in enumerate(plain) if word in language.first_person]
    places = sorted(places + [place for place in people if place < _SUBJECT])
    owned = [place for place in places if plain[place + 1 : place + 2] != ["s"]]
    if not (helped or places):
        return ""
    place = (helped or owned or places)[0]
    word = plain[place]
    if word in language.first_person:
        return "me"
    if word in language.pronouns:
        return OTHER
    if helped:
        return f"{HELPED}{language.person(word)}"
    possessive = "their " if place and plain[place - 1] in language.theirs else ""
    return possessive + language.person(word)


def _clause(language: _Language, words: Sequence[str], person: str, stance: int, *, attitude: bool) -> Clause | None:
    stems: set[str] = set()
    light: set[str] = set()
    limits: set[str] = set()
    limited = False
    plain = [word for word in words if not word.isupper()]
    topical = [form for word in plain if word not in language.function_words for form in (language.stem(word), word)]
    for word in plain:
        limited = limited or word in language.limits
        if limited and (word in _NUMBERS or word[0].isdigit()):
            limits.add(word)
        if word in language.ignored or word in _UNITS or word in _NUMBERS or word[0].isdigit():
            continue
        stem = language.stem(word)
        (light if word in language.light or language.person(word) in person.split() else stems).add(stem)
        if limited and ENDED not in words:  # "I stopped after the accident" is no limit
            limits.add(stem)
    if not (stems or light):
        return None
    return Clause(
        person,
        frozenset(stems or light),
        _union(_GROUPS, plain),
        _union(_GROUP_NAMES, plain) if len(stems) <= _GENERAL else _NONE,
        _union(_GROUPS, [word for mine, word in _near(plain) if mine in language.mine]) & _OWNED,
        _union(_DENIALS, plain),
        frozenset(limits),
        stance,
        attitude,
        _sides(_STATES, topical),
        _sides(_OPPOSITES, topical),
    )


def _sides(rows: Mapping[str, tuple[str, int]], words: Sequence[str]) -> dict[str, int]:
    """Return the side of each row that the words name. The first word counts: "the window rather than the aisle"."""
    return dict(rows[word] for word in reversed(words) if word in rows)


def _near(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each word with each of the three words after it."""
    return ((word, after) for place, word in enumerate(words) for after in words[place + 1 : place + 4])


def _union(names: Mapping[str, frozenset[str]], words: Sequence[str]) -> frozenset[str]:
    return _NONE.union(*(names[word] for word in words if word in names))
