"""Loads ``data/phrases.toml``, the phrases with which users state preferences and facts. ``statements`` uses them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import msgspec

from agent_memory_log.tables import read_table, with_parts

Topic = str
"""The topic of a phrase, such as ``prefers`` or ``habit``, or a kind and a key such as ``fact:diet``.

``data/phrases.toml`` describes the forms of a key.
"""

_TABLE = read_table(__name__, "phrases")
_ORDERS = read_table(__name__, "orders")
_PARTS: dict[str, Any] = _TABLE["parts"] | _ORDERS["parts"]

LANGUAGES = {name: language for language, names in _TABLE["languages"].items() for name in names.split()}
"""The names of languages, mapped to the one name that is stored."""

WORDS = {name: frozenset(words.split()) for name, words in _TABLE["words"].items()}
"""Words that are not part of a statement: ``not_a_name``, ``fillers``, ``phrase_ends``."""

_SPELLINGS: dict[str, str] = _TABLE["spellings"]
_SPELLED = re.compile(r"\[[^\]]*\]|[" + "".join(_SPELLINGS) + "]")  # a letter, but not in a set of characters


CALM = ":calm"
"""The end of a topic whose pattern is only for calm messages: short ones, which ask for nothing."""

_MAX_CALM = 300
"""The number of characters of a calm message."""


class Caseless:
    """A case-insensitive pattern. On ASCII text, it is three times as fast as ``re.IGNORECASE``.

    Most texts are ASCII. The pattern has no capital letters, so it can search the lower-case copy of an ASCII text. The
    copy has the same positions. Each of the two forms is compiled for the first text that needs it.
    """

    def __init__(self, source: str) -> None:
        self._source = source

    @cached_property
    def _lower(self) -> re.Pattern[str]:
        return re.compile(self._source)

    @cached_property
    def _any(self) -> re.Pattern[str]:
        return re.compile(self._source, re.IGNORECASE)

    def search(self, text: str) -> re.Match[str] | None:
        """Return the first match."""
        return self._lower.search(text.lower()) if text.isascii() else self._any.search(text)

    def finditer(self, text: str, start: int) -> Iterator[re.Match[str]]:
        """Return all matches from ``start``."""
        return self._lower.finditer(text.lower(), start) if text.isascii() else self._any.finditer(text, start)


class Phrases(msgspec.Struct, frozen=True):
    """The phrases of one language.

    Attributes:
        hints: Lower-case texts. If a message has none of them, no pattern can match.
        order_hints: Lower-case texts. If a sentence has none of them, it is no order.
        openers: Words that may come before a pattern.
        joint: The beginning of a new clause.
        unreal: Words that make what follows them hypothetical.
        once: Words that make the sentence true only once, or a joke.
        withdrawn: Words that take back the whole message, or ask not to store it.
        asks: The beginning of a question after a statement in the same sentence.
        contrast: Words between a preferred thing and the other one.
        head_first: Whether the noun comes before its adjectives.
        reported: Words before a phrase that attribute it to someone else.
        end: The end of a value.
        void: Words anywhere in a sentence that leave only its facts, such as "according to the label".
        momentary: Words in an order that tie it to the current message.
        lasting: Words that make an order hold after the current message.
        reason: The beginning of a reason after an order.
        condition: The condition with which a standing order begins.
        direction: The beginning of what an order tells the assistant to do.
        reaction: What follows the condition of an order, if it is no direction.
        plain: The beginning of an order that lasts by its object, such as ``don't use emojis``.
        indirect: The beginning of an order that is said indirectly, such as ``I'd rather you didn't``.
        bound: Words that bind an indirect order to the present task, such as ``the second file``.
        stated: A statement that says how everything that the assistant makes for the user must be.
        anywhere: The same anywhere in a sentence with one of the texts of ``aimed``.
        aimed: Texts that name the assistant, or each of its answers.
        settled: A sentence that makes the sentence before it an order that lasts.
        task_order: The beginning of a request for a text about orders, which is no order.
        polite: The beginning of an order that is said as a question.
        compound: Words that show that an order has more than one part.
        request: Words that ask the assistant for something.
        aside: The beginning of a statement after a question in the same sentence.
        regular: Words in a clause that make it a habit.
        passing: Words in a value that tie it to the current conversation.
        task: Patterns in a fact that tie it to the task or the day, such as ``my code`` or ``since this morning``.
        subjects: Pairs of a pronoun and the relatives that it may stand for.
        mentions: Facts that a sentence names in passing, also in a question, such as ``my cat Luna``.
        patterns: Pairs of a topic and the pattern of a statement, matched at the beginning of a clause.
        asking: The patterns for a message that asks for something: all but those for calm messages.
    """

    hints: tuple[str, ...]
    order_hints: tuple[str, ...]
    openers: re.Pattern[str]
    joint: Caseless
    unreal: Caseless
    once: Caseless
    withdrawn: Caseless
    asks: Caseless
    contrast: Caseless
    head_first: bool
    reported: Caseless
    end: Caseless
    void: Caseless
    momentary: Caseless
    lasting: Caseless
    reason: Caseless
    condition: re.Pattern[str]
    direction: re.Pattern[str]
    reaction: re.Pattern[str]
    plain: re.Pattern[str]
    indirect: re.Pattern[str]
    bound: Caseless
    stated: re.Pattern[str]
    anywhere: re.Pattern[str]
    aimed: tuple[str, ...]
    settled: re.Pattern[str]
    task_order: re.Pattern[str]
    polite: re.Pattern[str]
    compound: Caseless
    request: Caseless
    aside: Caseless
    regular: Caseless
    passing: Caseless
    task: Caseless
    subjects: tuple[tuple[re.Pattern[str], re.Pattern[str]], ...]
    mentions: re.Pattern[str]
    patterns: tuple[tuple[Topic, re.Pattern[str]], ...]
    asking: tuple[tuple[Topic, re.Pattern[str]], ...]

    def of_message(self, text: str) -> Phrases:
        """Return the phrases for a message. One that asks for something is not read with the patterns for calm ones."""
        is_calm = len(text) <= _MAX_CALM and "?" not in text and self.request.search(text) is None
        return self if is_calm else msgspec.structs.replace(self, patterns=self.asking)

    def may_stand_in(self, plain: str) -> bool:
        """Return whether a pattern could match in a text from ``plain_form``."""
        return has_hint(self.hints, plain)

    def may_order(self, plain: str) -> bool:
        """Return whether a text may have an order. The text is from ``plain_form``."""
        return has_hint(self.order_hints, plain)


def has_hint(hints: tuple[str, ...], plain: str) -> bool:
    """Return whether a text from ``plain_form`` has one of the hints. A cheap filter for most messages."""
    for hint in hints:  # noqa: SIM110  # twice as fast as any(), and each user message passes here
        if hint in plain:
            return True
    return False


def plain_form(text: str) -> str:
    """Return the text in lower case, with single spaces."""
    return " ".join(text.lower().split())


_NOTHING = "(?!)"
"""The pattern of a list that a language does not have. It matches no text."""


def _alternatives(text: str, parts: dict[str, Any] = _PARTS) -> str:
    return with_parts("|".join(text.split()).replace("_", r"\s"), parts).replace(" ", r"\s")


def _words(text: str, parts: dict[str, Any] = _PARTS) -> Caseless:
    return Caseless(_spelled(rf"\b(?:{_alternatives(text, parts)})\b"))


def _openers(text: str) -> re.Pattern[str]:
    longest_first = "|".join(sorted(text.split(), key=len, reverse=True))
    return re.compile(rf"(?:(?:{longest_first})\b[,:.!]?\s+){{0,4}}".replace("_", r"\s"), re.IGNORECASE)


def _joint(text: str) -> Caseless:
    return Caseless(rf"[,;\u2013\u2014(]\s+|\s-\s|\b(?:{_alternatives(text)})\s+")


def _source(text: str, parts: dict[str, Any]) -> str:
    """Return the source of a pattern. A space in it matches any white space. A letter matches its other spellings."""
    return _spelled(with_parts(text, parts).replace(" ?", r"\s?").replace(" ", r"\s+"))


def _spelled(source: str) -> str:
    return _SPELLED.sub(lambda match: _SPELLINGS.get(match.group(), match.group()), source)


def _pattern(text: str, parts: dict[str, Any]) -> re.Pattern[str]:
    """Compile a pattern. Capital letters are checked later, with the value."""
    return re.compile(_source(text, parts), re.IGNORECASE)


def _phrases(table: dict[str, Any], orders: dict[str, Any]) -> Phrases:
    parts = _PARTS | {"passing": table["passing"]} | table.get("parts", {}) | orders["parts"]
    patterns = tuple((topic, _pattern(pattern, parts)) for topic, pattern in table["patterns"])
    return Phrases(
        hints=tuple(table["hints"]),
        order_hints=tuple(orders["hints"]),
        openers=_openers(table["openers"]),
        joint=_joint(table["joint"]),
        unreal=_words(table["unreal"]),
        once=_words(table["once"]),
        withdrawn=_words(table["withdrawn"]),
        asks=Caseless(rf"[,;:\u2013\u2014-]\s+(?:(?:and|so|but|und|y|et)\s+)?(?:{'|'.join(table['asks'].split())})\b"),
        contrast=Caseless(rf"\s(?:{'|'.join(table['contrast'].split())})\s".replace("_", r"\s")),
        head_first=table["head_first"],
        reported=_words(table["reported"]),
        end=Caseless("|".join(table["end"])),
        void=_words(orders["void"], parts),
        momentary=_words(orders["momentary"]),
        lasting=_words(orders["lasting"], parts),
        reason=Caseless(orders["reason"]),
        condition=_pattern("|".join(orders["condition"]), parts),
        direction=_pattern("|".join(orders["direction"]), parts),
        reaction=_pattern("|".join(orders["reaction"]), parts),
        plain=_pattern("|".join(orders["plain"]), parts),
        indirect=_pattern("|".join(orders["indirect"]), parts),
        bound=_words(orders["bound"], parts),
        stated=_pattern("|".join(orders["stated"]), parts),
        anywhere=_pattern("|".join(orders["anywhere"]), parts),
        aimed=tuple(orders["aimed"]),
        settled=_pattern("|".join(orders["settled"]), parts),
        task_order=_pattern("|".join(orders["task"]), parts),
        polite=_pattern("|".join(orders["polite"]), parts),
        compound=Caseless("|".join(orders["compound"])),
        request=_words(table.get("request", _NOTHING)),
        aside=Caseless(_alternatives(table.get("aside", _NOTHING))),
        regular=_words(table.get("regular", _NOTHING)),
        passing=Caseless("|".join(table["passing"])),
        task=Caseless(_source("|".join(table["task"]), parts)),
        subjects=tuple((_pattern(pronoun, parts), _pattern(kin, parts)) for pronoun, kin in table.get("subjects", [])),
        mentions=_pattern("|".join(table.get("mentions", [_NOTHING])), parts),
        patterns=patterns,
        asking=tuple(row for row in patterns if not row[0].endswith(CALM)),
    )


class Language:
    """A language: its hints, and its phrases, which are compiled for the first message that has a hint.

    To compile the phrases of a language takes a tenth of a second or more.
    """

    def __init__(self, table: dict[str, Any], orders: dict[str, Any]) -> None:
        self.hints: tuple[str, ...] = (*table["hints"], *orders["hints"])
        self._table = table
        self._orders = orders

    @cached_property
    def phrases(self) -> Phrases:
        """The compiled phrases."""
        return _phrases(self._table, self._orders)


ALL = tuple(Language(table, _ORDERS["orders"][name]) for name, table in _TABLE["phrases"].items())
