"""From text to the terms it is indexed by, and to what else a ranking wants to know of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from agent_memory_log.recall.dates import dates_in
from agent_memory_log.recall.languages import COMPOUNDING, language_of, stems
from agent_memory_log.recall.questions import Question, asks_when, is_question
from agent_memory_log.recall.words import fold, words


class Analysis(msgspec.Struct, frozen=True):
    """A text as it is indexed: its terms in order, repeated as they are, those of its dates last; its words' number."""

    terms: Sequence[str]
    length: int
    language: str
    timed: bool
    question: bool


def analyse(text: str, at: datetime | None) -> Analysis:
    """The terms of a text written ``at`` (aware; None: unknown)."""
    folded = fold(text)
    found = words(folded)
    language = language_of(found)
    dates = dates_in(folded, found, at)
    terms = [*filter(None, map(stems(language).__getitem__, found)), *dates.terms]
    return Analysis(terms, len(found), language, dates.timed, is_question(folded, found))


def ask(query: str, at: datetime | None, languages: Iterable[str]) -> Question:
    """A query asked ``at`` of an index that holds ``languages``."""
    folded = fold(query)
    found = words(folded)
    own = language_of(found)
    every = [stems(language) for language in (own, *sorted(set(languages) - {own}))]
    dates = dates_in(folded, found, at)
    asked: dict[str, tuple[str, ...]] = {}
    for word in found:
        # "3 March" is a day, and neither three of anything nor a march.
        if word in dates.said:
            continue
        # A function word of the question's language is one, whatever it means in another.
        if every[0][word]:
            asked[word] = tuple(dict.fromkeys(term for stem in every if (term := stem[word])))
    asked |= {term: (term,) for term in dates.asked}
    return Question(tuple(asked.items()), dates.spans, asks_when(folded, found), own in COMPOUNDING)
