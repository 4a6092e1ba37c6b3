"""Reads orders that last, such as ``whenever I …, give me …``.

An order has a mark that makes it last (``always``, ``whenever I …``, ``from now on``, ``in your answers``) and a
direction (a verb of an order, ``don't``, ``you should``, ``I'd like you to``), after its condition if that comes first.
It is kept whole, with its condition and its reason.
"""

from __future__ import annotations

from agent_memory_log.memory.extraction.keys import Statement, whole_key
from agent_memory_log.memory.extraction.phrases import Phrases
from agent_memory_log.memory.records.kinds import Preference

_MAX_ORDER = 200
_MAX_WORDS = 40
_CLEAR = 0.9


def read_order(phrases: Phrases, sentence: str, hidden: str, start: int) -> Statement | None:
    """Return the order that begins at ``start`` and ends with the sentence, or None if no order begins there.

    ``hidden`` is the sentence with hidden quotes. What follows a colon is usually a text that the user wants, so the
    marks of an order stand before it.
    """
    opener = phrases.openers.match(hidden, start)
    direct = opener.end() if opener else start
    if hidden.endswith("?"):
        direction = phrases.polite.match(hidden, direct)
    else:
        condition = phrases.condition.match(hidden, direct)
        direction = phrases.direction.match(hidden, condition.end() if condition else direct)
    if direction is None:
        return None
    colon = hidden.find(":", direction.start())
    body = hidden[start : colon if colon > 0 else None]
    mark = phrases.lasting.search(body)
    if mark is None:
        return None
    is_in_opener = start + mark.end() <= direct
    return whole_order(phrases, sentence[start + mark.start() if is_in_opener else direct :], body)


def order_after_colon(phrases: Phrases, hidden: str, begin: int) -> tuple[int, ...]:
    """Return the position after the colon of ``I like it brief: when I …``, if an order may begin there."""
    after = hidden.find(": ", begin) + 2
    is_order = after > 1 and phrases.condition.match(hidden, after) and not phrases.direction.match(hidden, begin)
    return (after,) if is_order else ()


def whole_order(phrases: Phrases, order: str, hidden: str) -> Statement | None:
    """Return an order as a preference, or None if it is too long or is only about the current message."""
    order = " ".join(order.strip(" \t.,;:!?").split())
    if len(order) > _MAX_ORDER or len(order.split()) > _MAX_WORDS or phrases.momentary.search(hidden):
        return None
    key = whole_key(order)
    return Statement(Preference(key, order), _CLEAR) if key else None
