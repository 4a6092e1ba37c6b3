"""Reads the preferences and facts that a user states explicitly in a message.

It skips questions, hypothetical sentences (``if I preferred …``), reported speech, quotes, code and quoted mail. It
also skips one-time wishes (``I'd prefer …``, ``that one``, ``just this once``), messages that are taken back (``just
kidding``), and values that do not have the expected form. If a sentence ends with a question, it reads the statement
before and after the question.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from agent_memory_log.memory.extraction.keys import Statement, category, key_words, keyed, whole_key
from agent_memory_log.memory.extraction.orders import order_after_colon, read_order, read_stated_order
from agent_memory_log.memory.extraction.phrases import (
    ALL,
    LANGUAGES,
    WORDS,
    Caseless,
    Phrases,
    Topic,
    has_hint,
    plain_form,
)
from agent_memory_log.memory.extraction.sentences import hide, readable, sentences
from agent_memory_log.memory.records.kinds import Fact, Preference

_NEAR = 300
"""The number of characters before a pronoun in which the relative is searched for that it stands for."""

_MAX_VALUE = 100
_MAX_ORDER = 120
_MAX_WORDS = 14
_MAX_ORDER_WORDS = 20
_MAX_ATTRIBUTE_WORDS = 8
_MAX_LOWER_WORDS = 3
_MAX_TAG_WORDS = 1
_SURE = 0.95
_CLEAR = 0.9
_FAIR = 0.8
_WEAK = 0.6

_CLAUSE = "clause"
"""The topic of a clause about the user that is stored whole, because no other topic fits."""

_EVENT = "event"
"""The topic of a clause about an event that lasts, such as ``moved to Graz last year``. It may hold words of time."""

_ABOUT_USER = (_CLAUSE, "fact:", "preference:likes", "preference:dislikes")
"""The beginnings of the topics whose values describe the user, and not the task."""

_NAMING = ("preferred_name", "form_of_address")
"""The keys of how the user is addressed, which no order replaces."""

_LIST_MARK = re.compile(r"\s{0,8}(?:[-*•]|\d{1,2}[.)])\s+")
_COMMAS = (", ", "; ", " \u2013 ", " \u2014 ", " - ")
_CAPITALS = re.compile(r"[^\W\d_a-zß-öø-ÿ][\w'\u2019.-]*(?:\s+(?:(?:de|da|di|del|la|le|van|von|der|den|am|an)\s+){0,2}"
                       r"[^\W\d_a-zß-öø-ÿ][\w'\u2019.-]*){0,3}")  # fmt: skip

_ALL_HINTS = frozenset(hint for language in ALL for hint in language.hints)
# A hint that contains a shorter hint is redundant, because a text with the longer hint also has the shorter one.
_HINTS = tuple(sorted(hint for hint in _ALL_HINTS if not any(shorter in hint for shorter in _ALL_HINTS - {hint})))


def read_statements(text: str) -> tuple[Statement, ...]:
    """Return the statements of a user's message in their order."""
    text = readable(text)
    plain = plain_form(text)
    if not has_hint(_HINTS, plain):
        return ()
    return tuple(_read(text, tuple(language.phrases for language in ALL if has_hint(language.hints, plain))))


def _read(text: str, languages: tuple[Phrases, ...]) -> Iterator[Statement]:
    hidden = hide(text)
    if any(phrases.withdrawn.search(hidden) for phrases in languages):
        return
    languages = tuple(phrases.of_message(hidden) for phrases in languages)
    before = 0
    for start, end in sentences(hidden):
        earlier = hidden[max(0, start - _NEAR) : start]
        plain_sentence = plain_form(hidden[start:end])
        for phrases in languages:
            sentence, bare = _with_subject(phrases, text[start:end], hidden[start:end], earlier)
            plain = plain_form(bare) if bare != hidden[start:end] else plain_sentence
            statements: tuple[Statement, ...] = ()
            if phrases.may_stand_in(plain):
                read_part = _read_question if bare.rstrip().endswith("?") else _read_sentence
                statements = _not_void(phrases, bare, read_part(phrases, sentence, bare))
                stated = [str(statement.data.value) for statement in statements]
                yield from (*statements, *_mentions(phrases, sentence, bare, stated))
                if statements:
                    continue
            elif phrases.may_order(plain):
                statements = _not_void(phrases, bare, _orders(phrases, sentence, bare))
                yield from statements
            if not statements and not bare.endswith("?") and phrases.may_order(plain):
                yield from read_stated_order(phrases, text, hidden, before, start, end)
        before = start


def _not_void(phrases: Phrases, hidden: str, statements: Iterator[Statement]) -> tuple[Statement, ...]:
    """Return the statements of a sentence, or only its facts if it has words that make its orders void."""
    of_sentence = tuple(statements)
    if of_sentence and phrases.void.search(hidden):
        return tuple(statement for statement in of_sentence if isinstance(statement.data, Fact))
    return of_sentence


def _orders(phrases: Phrases, sentence: str, hidden: str) -> Iterator[Statement]:
    """Yield the order of a sentence that has no words of other statements."""
    hidden = hidden.rstrip(" \t.!…")
    opener = phrases.openers.match(hidden)
    if phrases.task_order.match(hidden, opener.end() if opener else 0):
        return
    for start in (0, *(joint.end() for joint in phrases.joint.finditer(hidden, 0))):
        order = read_order(phrases, sentence, hidden, start)
        if order is not None:
            if not _is_reported(phrases, hidden, start):
                yield order
            return


def _with_subject(phrases: Phrases, sentence: str, hidden: str, earlier: str) -> tuple[str, str]:
    """Return a sentence and its hidden form. If it begins with ``she`` or ``he``, the latest relative replaces it."""
    for pronoun, relative in phrases.subjects:
        names = relative.findall(earlier) if pronoun.match(hidden) else []
        if names:
            for place in reversed([*pronoun.finditer(hidden)]):
                start, end = place.span()
                sentence, hidden = (text[:start] + names[-1] + text[end:] for text in (sentence, hidden))
    return sentence, hidden


def _read_question(phrases: Phrases, sentence: str, hidden: str) -> Iterator[Statement]:
    """Yield the statements before and after the question of a sentence, or the order that is said as a question."""
    hidden = hidden.rstrip()
    for start in (0, *(joint.end() for joint in phrases.joint.finditer(hidden, 0))):
        order = read_order(phrases, sentence, hidden, start)
        if order is not None:
            yield order
            return
    stated = _before_question(phrases, hidden)
    before = tuple(_read_sentence(phrases, sentence[:stated], hidden[:stated]))
    yield from before
    aside = next(phrases.aside.finditer(hidden, stated if before else 0), None)
    if aside is not None:
        yield from _read_sentence(phrases, sentence, hidden.rstrip(" ?"), aside.end())


def _before_question(phrases: Phrases, sentence: str) -> int:
    """Return the length of the part of a sentence before its question, or 0 if it is a question from its beginning.

    Without a known question word, the question is what follows the last comma. A tag such as ``right?`` asks about the
    statement itself.
    """
    question = phrases.asks.search(sentence)
    if question is not None:
        return question.start()
    comma = max(map(sentence.rfind, _COMMAS))
    return comma if comma > 0 and len(sentence[comma + 1 :].split()) > _MAX_TAG_WORDS else 0


def _read_sentence(phrases: Phrases, sentence: str, hidden: str, begin: int = 0) -> Iterator[Statement]:
    """Yield the statements of a sentence from ``begin``. An order of several parts is the rest of its sentence."""
    mark = _LIST_MARK.match(hidden, begin)
    begin = mark.end() if mark else begin
    body = hidden.rstrip(" \t.!…")
    compound = max((part.start() for part in phrases.compound.finditer(body, begin)), default=-1)
    joints = (joint.end() for joint in phrases.joint.finditer(hidden, begin))
    opener = phrases.openers.match(body, begin)
    is_task = phrases.task_order.match(body, opener.end() if opener else begin) is not None
    read = 0
    last_value = ""
    for start in (begin, *order_after_colon(phrases, body, begin), *joints):
        if start < read:
            continue
        opener = phrases.openers.match(body, start)
        position = opener.end() if opener else start
        order = None if is_task else read_order(phrases, sentence, body, start)
        if order is not None and _is_reported(phrases, body, start):
            return
        for statement, value_start in _read_rows(phrases, sentence, body, (position, start), read):
            value = str(statement.data.value)
            is_fact = isinstance(statement.data, Fact)
            if order is not None and _is_part(statement, order, is_whole=position <= compound):
                continue
            if value not in last_value:
                last_value = value
                yield statement
            read = value_start + 1
            order = order if is_fact else None
        if order is not None:
            if order.data.value != last_value:
                yield order
            return


def _is_part(statement: Statement, order: Statement, *, is_whole: bool) -> bool:
    """Return whether a statement says nothing but a part of an order. A whole order has several parts."""
    if isinstance(statement.data, Fact):
        return str(order.data.value) in str(statement.data.value)
    return is_whole and statement.data.key not in _NAMING


def _read_rows(
    phrases: Phrases, sentence: str, body: str, starts: tuple[int, int], read: int
) -> Iterator[tuple[Statement, int]]:
    """Yield the statement of the first pattern that matches at one of ``starts``, and the position of its value."""
    for topic, pattern in phrases.patterns:
        match = pattern.match(body, starts[0]) or (pattern.match(body, starts[1]) if starts[1] < starts[0] else None)
        if match is None or match.end() <= read:
            continue
        if _is_reported(phrases, body, starts[0]):
            return
        read_match = _WHOLE.get(topic.partition(":")[0], _statement)
        statement = read_match(phrases, topic, match, sentence)
        if statement is not None and _is_real(phrases, topic, body[: match.start("value")], statement):
            yield statement, match.start("value")
            return


def _is_reported(phrases: Phrases, hidden: str, position: int) -> bool:
    """Return whether the words before ``position`` attribute a statement to someone else, or make it true only once."""
    return phrases.reported.search(hidden[:position]) is not None or phrases.once.search(hidden) is not None


def _is_real(phrases: Phrases, topic: Topic, before: str, statement: Statement) -> bool:
    """Return whether a statement is not hypothetical and outlasts the task."""
    value = statement.data.value
    if topic.startswith(_ABOUT_USER) and phrases.task.search(value):
        return False
    return not any(map(phrases.unreal.search, (before, value)))


def _statement(phrases: Phrases, topic: Topic, match: re.Match[str], sentence: str) -> Statement | None:
    groups = match.re.groupindex
    value = _cut(phrases, sentence[slice(*match.span("value"))])
    other = _cut(phrases, sentence[slice(*match.span("other"))]) if "other" in groups else ""
    if topic in {"prefers", "habit", "instead"}:
        limits = (_MAX_ORDER, _MAX_ORDER_WORDS) if topic == "habit" else (_MAX_VALUE, _MAX_WORDS)
        if any(not _lasts(phrases, text, *limits) for text in (value, other) if text) or not value:
            return None
        if topic == "prefers":
            return keyed("preferred", category(phrases, value), value, _CLEAR)
        if topic == "habit":
            how = "never" if "never" in groups and match.group("never") else "always"
            return keyed("", key_words(value), f"{how} {value}", _CLEAR)
        if other:
            return keyed("instead_of", key_words(other), f"{value} instead of {other}", _FAIR)
        return None if match.group().casefold().startswith("use my ") else keyed("use", key_words(value), value, _WEAK)
    is_lower = sentence.islower() or sentence.replace("I", "").islower()
    read_value = _attribute if ":" in topic else _personal
    return read_value(phrases, topic, value, other, is_lower=is_lower)


def _mentions(phrases: Phrases, sentence: str, hidden: str, stated: list[str]) -> Iterator[Statement]:
    """Yield the facts that a sentence names in passing, such as ``my cat Luna``, if no statement contains them."""
    for mention in phrases.mentions.finditer(hidden):
        value = _bare(sentence[slice(*mention.span())])
        is_stated = any(value in text or value.endswith(text) for text in stated)
        if not is_stated and not phrases.reported.search(hidden[: mention.start()]):
            relative = mention.groupdict().get("other")
            name = sentence[slice(*mention.span("value"))] if relative else value
            yield Statement(Fact(f"{whole_key(relative)}_name" if relative else whole_key(value), name), _WEAK)


def _clause(phrases: Phrases, topic: Topic, match: re.Match[str], sentence: str) -> Statement | None:
    """Return a clause about the user as a fact whose key is made of its words."""
    stated = sentence[slice(*match.span("value"))]
    value = _bare(stated if topic == _EVENT else _before_end(phrases, stated))
    if topic != _EVENT:
        value = _until(phrases, phrases.task, value)
    if len(value) > _MAX_ORDER or not 1 < len(value.split()) <= _MAX_ORDER_WORDS:
        return None
    if topic.endswith(":proper") and not any(word[0].isupper() for word in value.split()[1:]):
        return None
    if topic.endswith(":regular") and phrases.regular.search(value) is None:
        return None
    key = whole_key(value)
    return Statement(Fact(key, value), _WEAK) if key else None


def _exact(_phrases: Phrases, topic: Topic, match: re.Match[str], sentence: str) -> Statement:
    """Return a fact whose whole value is what the pattern matched, such as a phone number."""
    return Statement(Fact(topic, _bare(sentence[slice(*match.span("value"))]).rstrip("-")), _SURE)


_WHOLE = {_CLAUSE: _clause, _EVENT: _clause} | dict.fromkeys(("user_id", "email", "address", "phone"), _exact)
"""Reads the topics whose value is not cut like the value of an attribute."""


def _attribute(phrases: Phrases, topic: Topic, value: str, other: str, *, is_lower: bool) -> Statement | None:
    """Return the statement of a topic that names its kind and its key, or None if the value does not fit."""
    kind, key, *form = topic.split(":")
    if len(value.split()) > _MAX_ATTRIBUTE_WORDS:
        clause = phrases.joint.search(value)
        value = value[: clause.start() if clause else None].rstrip()
    if "place" in form:
        value = _place_name(value, is_lower=is_lower)
    elif "name" in form:
        value = _name(value)
    if "proper" in form and not any(word[0].isupper() or word[0].isdigit() for word in value.split()[1:]):
        return None
    if not value or len(value.split()) > _MAX_ATTRIBUTE_WORDS or not _lasts(phrases, value, _MAX_VALUE, _MAX_WORDS):
        return None
    parts = {"{value}": key_words(value)[:_MAX_ATTRIBUTE_WORDS], "{other}": key_words(other)}
    for mark, words in parts.items():
        if mark in key:
            if not words:
                return None
            key = key.replace(mark, "_".join(words))
    return Statement(Preference(key, value) if kind == Preference.kind else Fact(key, value), _FAIR)


def _personal(phrases: Phrases, topic: Topic, value: str, other: str, *, is_lower: bool) -> Statement | None:
    """Return a statement about the user, or None if the value does not have the form of its topic."""
    del phrases, other
    if topic == "language":
        language = LANGUAGES.get(value.casefold())
        return None if language is None else Statement(Preference("language", language), _SURE)
    is_lower_name = topic == "called" and len(value.split()) == 1
    name = _place_name(value, is_lower=is_lower) if topic == "home" or is_lower_name else _name(value)
    if not name:
        return None
    if topic == "home":
        return Statement(Fact("home", name), _CLEAR)
    if topic == "called":
        return Statement(Preference("preferred_name", name), _SURE)
    return Statement(Fact("name", name), _SURE)


def _name(value: str) -> str:
    """Return the capitalised words at the start of a value, or ``""`` if it does not start with a name."""
    capitals = _CAPITALS.match(value)
    if capitals is None or capitals.group().split()[0].casefold() in WORDS["not_a_name"]:
        return ""
    return capitals.group().rstrip(".,-'")


def _place_name(value: str, *, is_lower: bool) -> str:
    """Return the name at the start of a value. In a sentence without capital letters, it is a value of a few words."""
    words = value.split()
    is_plain = 0 < len(words) <= _MAX_LOWER_WORDS and all(map(str.isalpha, words))
    if is_lower and is_plain and words[0] not in WORDS["not_a_name"]:
        return value
    return _name(value)


def _cut(phrases: Phrases, value: str) -> str:
    """Return the value without quotes, cut before the sentence changes its subject or turns to the conversation."""
    return _until(phrases, phrases.passing, _before_end(phrases, value))


def _until(phrases: Phrases, words: Caseless, value: str) -> str:
    """Return the clauses of a value before the first of the words, or the whole value if they are in its first."""
    word = words.search(value)
    if word is not None:
        joints = [joint.start() for joint in phrases.joint.finditer(value, 0) if joint.end() <= word.start()]
        value = value[: joints[-1]] if joints else value
    return _bare(value)


def _before_end(phrases: Phrases, value: str) -> str:
    end = phrases.end.search(value)
    return value[: end.start() if end else None]


def _bare(value: str) -> str:
    return " ".join(value.split()).strip(" .,;:!\"'“”„«»`")


def _lasts(phrases: Phrases, value: str, most: int, most_words: int) -> bool:
    """Return whether a value is short enough and can be true outside this conversation."""
    return (
        len(value) <= most and len(value.split()) <= most_words and phrases.passing.search(value) is None
    )  # fmt: skip
