"""Reads orders that last, such as ``whenever I …, give me …``.

An order has a mark that makes it last (``always``, ``whenever I …``, ``from now on``, ``in your answers``) and a
direction (a verb of an order, ``don't``, ``you should``, ``I'd like you to``), after its condition if that comes first.
An indirect order, such as ``I'd rather you didn't``, needs no mark if no words bind it to the present task. An order is
kept whole, with its condition and its reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from agent_memory_log.memory.extraction.keys import Statement, whole_key
from agent_memory_log.memory.extraction.phrases import Phrases
from agent_memory_log.memory.records.kinds import Preference

_MAX_ORDER = 200
_MAX_WORDS = 40

_MAX_SPREAD = _MAX_ORDER + _MAX_WORDS * 8
"""The most characters of an order as it is written. ``readable`` shortens longer gaps than 8."""

_CLEAR = 0.9


def read_order(phrases: Phrases, sentence: str, hidden: str, start: int) -> Statement | None:
    """Return the order that begins at ``start`` and ends with the sentence, or None if no order begins there.

    ``hidden`` is the sentence with hidden quotes. What follows a colon is usually a text that the user wants, so the
    marks of an order stand before it.
    """
    opener = phrases.openers.match(hidden, start)
    direct = opener.end() if opener else start
    if len(hidden) - direct > _MAX_SPREAD:
        return None  # without a look at the rest, which a hostile sentence would repeat at each comma
    indirect = phrases.indirect.match(hidden, direct)
    direction = None if hidden.endswith("?") else _direction(phrases, hidden, direct)
    direction = direction or phrases.polite.match(hidden, direct) or indirect
    body = hidden[start : _colon(hidden, direction.start() if direction else direct)]
    reason = next(phrases.reason.finditer(body, direction.end() - start), None) if direction else None
    mark = phrases.lasting.search(body[: reason.start() if reason else None]) if direction else None
    is_free = (
        mark is None
        and indirect is not None
        and all(bound.end() < indirect.end() for bound in phrases.bound.finditer(hidden, direct))
    )
    if mark is None and not is_free and not _is_plain(phrases, hidden, start, direct):
        return None
    if phrases.task_order.match(hidden, direct):
        return None
    begin = start + mark.start() if mark is not None and start + mark.end() <= direct else direct
    return whole_order(phrases, sentence[begin:], body)


def _is_plain(phrases: Phrases, hidden: str, start: int, direct: int) -> bool:
    """Return whether an order that lasts by its object begins at ``direct``. A part of another order does not count."""
    if phrases.plain.match(hidden, direct) is None:
        return False
    return not start or phrases.direction.match(hidden) is None


def read_stated_order(
    phrases: Phrases, text: str, hidden: str, before: int, start: int, end: int
) -> Iterator[Statement]:
    """Yield the order that a sentence of ``text`` is, or that it makes of the sentence that begins at ``before``."""
    sentence = hidden[start:end].rstrip(" \t.!…")
    opener = phrases.openers.match(sentence)
    direct = opener.end() if opener else 0
    colon = sentence.find(": ")
    order = None
    if before < start and phrases.settled.match(sentence, direct):
        if "?" not in hidden[before:start]:
            order = whole_order(phrases, text[before:end], "")
    elif (
        phrases.stated.match(sentence, direct)
        or (colon > 0 and phrases.settled.match(sentence, colon + 2))
        or (any(map(sentence.__contains__, phrases.aimed)) and phrases.anywhere.search(sentence))
    ) and not phrases.task_order.match(sentence, direct):
        order = whole_order(phrases, text[start + direct : end], sentence)
    unless = (phrases.once, phrases.reported, phrases.void)
    if order is not None and not any(words.search(sentence) for words in unless):
        yield order


def _colon(hidden: str, start: int) -> int | None:
    colon = hidden.find(": ", start)
    return colon if colon > 0 else None


def _direction(phrases: Phrases, hidden: str, start: int) -> re.Match[str] | None:
    """Return the direction at ``start``, or after the condition that begins there."""
    condition = phrases.condition.match(hidden, start)
    if condition is None:
        return phrases.direction.match(hidden, start)
    return (
        phrases.direction.match(hidden, condition.end())
        or phrases.direction.match(hidden, start)
        or phrases.reaction.match(hidden, condition.end())
    )


def order_after_colon(phrases: Phrases, hidden: str, begin: int) -> tuple[int, ...]:
    """Return the position after the colon of ``I like it brief: when I …``, if an order may begin there."""
    after = hidden.find(": ", begin) + 2
    may_begin = after > 1 and any(words.match(hidden, after) for words in (phrases.condition, phrases.direction))
    return (after,) if may_begin and not phrases.direction.match(hidden, begin) else ()


def whole_order(phrases: Phrases, order: str, hidden: str) -> Statement | None:
    """Return an order as a preference, or None if it is too long or is only about the current message."""
    order = " ".join(order.strip(" \t.,;:!?").split())
    if len(order) > _MAX_ORDER or len(order.split()) > _MAX_WORDS or phrases.momentary.search(hidden):
        return None
    key = whole_key(order)
    return Statement(Preference(key, order), _CLEAR) if key else None
