"""What a text asks: whether it is a question, whether it asks for a time, and the words it is looked up by."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec


class Question(msgspec.Struct, frozen=True):
    """A query as it is looked up.

    ``words`` are its words and dates, each with the terms it may stand as in the index: one for each language that
    the index holds. ``spans`` are the times it names, in seconds; ``when`` says that it asks for one, ``compounds``
    that its language writes compounds as one word.
    """

    words: tuple[tuple[str, tuple[str, ...]], ...]
    spans: tuple[tuple[float, float], ...]
    when: bool
    compounds: bool


_LAST_CHARACTERS: Final = re.compile(r"？|؟|か[。\s]*$|[吗嗎呢][。\s]*$")  # noqa: RUF001  # the marks of other scripts are meant

_FIRST_WORDS: Final = frozenset(
    """
    what who whom whose when where why how which did do does are is was were can could have has will would should any
    was wer wen wem wann wo wohin woher warum wieso wie welche welcher welches
    qué que quién quien cuándo cuando dónde donde cómo cual cuál cuánto cuanto por
    quoi qui quand où pourquoi comment quel quelle combien est
    cosa chi dove perché come quale quanto quem onde quando como qual quanto
    wat wie waar waarom hoe wanneer welke vad vem var varför hur när hvad hvem hvor hvorfor hvordan hvornår
    co kto gdzie kiedy dlaczego jak что кто где когда почему как зачем сколько який що де коли чому ne kim nerede neden
    """.split()  # noqa: SIM905  # a table to read, not a column of quotes
)
"""Words that questions begin with, for chats in which nobody types the mark."""

_WHEN: Final = frozenset(
    """
    when wann cuándo cuando quand quando wanneer när hvornår når kiedy kdy когда коли kada milloin mikor când πότε
    متى מתי कब
    """.split()  # noqa: SIM905  # a table to read, not a column of quotes
)

_EARLY: Final = 3
"""Words of a question among which one for "when" asks: when was it, and until when was it?"""

_AND: Final = frozenset("and und y et e og och en i и та".split())  # noqa: SIM905  # a table to read

_TIMES_ASKED: Final = re.compile(
    r"\b(?:what|which) (?:\w+ )?(?:day|date|time|month|year|week|season)"
    r"|\bhow (?:long|old|often|soon|many (?:days|weeks|months|years))"
    r"|\bwelche[mnrs]? (?:tag|datum|jahr|monat)|\bwie lange"
    r"|\bqué (?:día|fecha|mes|año)|\bcuánto tiempo|\bquel(?:le)? (?:jour|date|mois|année)|\bcombien de temps"
    r"|\bne zaman|何时|何時|什么时候|什麼時候|哪天|哪年|哪个月|几月|几号|多久|いつ|何月|何日|何年"
    r"|언제|며칠|몇 월|เมื่อไร|เมื่อไหร่|วันไหน|วันที่เท่า"
)


def is_question(folded: str, found: Sequence[str]) -> bool:
    """Whether a text asks something; ``found`` are its words."""
    return (
        "?" in folded
        or (bool(found) and found[0] in _FIRST_WORDS)
        or (not folded.isascii() and bool(_LAST_CHARACTERS.search(folded)))
    )


def asks_when(folded: str, found: Sequence[str]) -> bool:
    """Whether a question asks for a time."""
    # Further on it is a conjunction: what did she say when the boat came?
    first = any(word in _WHEN and (at < _EARLY or found[at - 1] in _AND) for at, word in enumerate(found))
    return first or bool(_TIMES_ASKED.search(folded))
