"""Divides a statement into the parts that are compared: its person, its topic words, its values, and its denials.

``data/claims.toml`` has the words of each language. A text costs time linear in its length.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import islice

import msgspec

from agent_memory_log.memory.conflicts.vocabulary import (
    BEGAN,
    BREAK,
    DENIALS,
    DISLIKES,
    ENDED,
    GROUP_NAMES,
    GROUPS,
    LIKES,
    MAX_TEXT,
    NOT,
    NUMBERS,
    OPPOSITES,
    OWNED,
    SCOPES,
    STATES,
    TOPICS,
    UNITS,
    WITHOUT,
    Language,
    fold,
    language_of,
)

_MAX_TERMS = 24
_MAX_CLAUSES = 16
_GENERAL = 2
"""The most words of a clause that names a group in general. Longer clauses are more specific."""

_SUBJECT = 4
"""The number of words at the beginning of a clause among which its subject is."""

_TOKEN = re.compile(r"[A-Z]+|[€£$]|[a-z]+(?:-[a-z]+)*|\d+(?:[.,:]\d+)*|[^\W\d_]+")
_NONE: frozenset[str] = frozenset()
_NAME = re.compile(r"(?<=[a-zß-ÿ,] )[A-ZÀ-Þ]\w+")
_STUB = 4
"""The number of characters that the words of one family share at least: ``Chor`` and ``Chorprobe``."""

OTHER = "other"
"""The person of a clause that means another person only by a pronoun."""

HELPED = "for "
"""The beginning of the person of a clause about something that is done for that person."""


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
        clauses: Its clauses.
        words: The words of all clauses.
        values: The numbers, days and months.
        units: The units of the numbers.
        scopes: The side by the row of places that are apart.
        topics: The topics of its words.
        began: Whether it says that something is new.
        attribute: The words for an attribute of which a person has one value at a time, such as "work at", or ``""``.
        subject: The word after the article or possessive with which it begins, or ``""``: "red" of "the red bike".
        names: The names in it: the words with a capital letter that begin no sentence.
        unreal: Whether it is a question, a wish or a condition.
    """

    clauses: tuple[Clause, ...]
    words: frozenset[str]
    values: frozenset[str]
    units: frozenset[str]
    scopes: Mapping[str, int]
    topics: frozenset[str]
    began: bool
    attribute: str
    subject: str
    names: frozenset[str]
    unreal: bool


def terms_of(text: str) -> tuple[str, ...]:
    """Return the terms by which the index finds statements about the same thing: stubs of words, groups and topics."""
    words = _TOKEN.findall(fold(text))
    language = language_of(words)
    terms: dict[str, None] = {}
    for word in words:
        if word in language.function_words or word[0].isdigit():
            continue
        terms[language.stem(word)[:_STUB]] = None
        terms.update(dict.fromkeys(f"&{name}" for name in GROUPS.get(word, _NONE) | DENIALS.get(word, _NONE)))
        terms.update(dict.fromkeys(f"@{topic}" for topic in TOPICS.get(word, _NONE)))
        if word in STATES:
            terms[f"={STATES[word][0]}"] = None
        if len(terms) >= _MAX_TERMS:
            break
    return tuple(terms)


def read_claim(text: str) -> Claim:
    """Return the parts of a statement."""
    folded = fold(text)
    words = _TOKEN.findall(folded)
    language = language_of(words)
    marked = _TOKEN.findall(language.marked(folded))
    clauses = tuple(islice(_clauses(language, marked), _MAX_CLAUSES))
    topical = [word for word in words if word not in language.function_words]
    attribute = language.attributes.search(folded)
    return Claim(
        clauses,
        words=_NONE.union(*(clause.words for clause in clauses)),
        values=frozenset(NUMBERS.get(word, word) for word in topical if word in NUMBERS or word[0].isdigit()),
        units=frozenset(UNITS[word] for word in topical if word in UNITS),
        scopes=_sides(SCOPES, topical),
        topics=_union(TOPICS, topical),
        began=BEGAN in marked,
        attribute="" if attribute is None else attribute[0],
        subject=language.stem(words[1]) if _has_subject(language, words) else "",
        names=frozenset(map(fold, _NAME.findall(text[:MAX_TEXT]))),
        unreal=language.unreal.search(folded) is not None,
    )


def _has_subject(language: Language, words: Sequence[str]) -> bool:
    return len(words) > 1 and words[0] in language.determiners and words[1] not in language.function_words


def _clauses(language: Language, words: Sequence[str]) -> Iterator[Clause]:
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


def _person(language: Language, words: Sequence[str]) -> str:
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


def _clause(language: Language, words: Sequence[str], person: str, stance: int, *, attitude: bool) -> Clause | None:
    stems: set[str] = set()
    light: set[str] = set()
    limits: set[str] = set()
    limited = False
    plain = [word for word in words if not word.isupper()]
    topical = [form for word in plain if word not in language.function_words for form in (language.stem(word), word)]
    for word in plain:
        limited = limited or word in language.limits
        if limited and (word in NUMBERS or word[0].isdigit()):
            limits.add(word)
        if word in language.ignored or word in UNITS or word in NUMBERS or word[0].isdigit():
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
        _union(GROUPS, plain),
        _union(GROUP_NAMES, [word for word in plain if not stems or language.stem(word) in stems])
        if len(stems) <= _GENERAL
        else _NONE,
        _union(GROUPS, [word for mine, word in _near(plain) if mine in language.mine]) & OWNED,
        _union(DENIALS, plain),
        frozenset(limits),
        stance,
        attitude,
        _sides(STATES, topical),
        _sides(OPPOSITES, topical),
    )


def _sides(rows: Mapping[str, tuple[str, int]], words: Sequence[str]) -> dict[str, int]:
    """Return the side of each row that the words name. The first word counts: "the window rather than the aisle"."""
    return dict(rows[word] for word in reversed(words) if word in rows)


def _near(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each word with each of the three words after it."""
    return ((word, after) for place, word in enumerate(words) for after in words[place + 1 : place + 4])


def _union(names: Mapping[str, frozenset[str]], words: Sequence[str]) -> frozenset[str]:
    return _NONE.union(*(names[word] for word in words if word in names))
