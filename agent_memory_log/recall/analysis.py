"""Converts a text or a question to the terms of the index, with its language, dates and other properties."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from agent_memory_log.recall.changes import asks_for_now, kinds_asked, signs_of
from agent_memory_log.recall.dates import dates_in
from agent_memory_log.recall.languages import COMPOUNDING, language_of, stems
from agent_memory_log.recall.nicknames import names_like
from agent_memory_log.recall.questions import Question, asks_for_time, is_question, role_asked_about, wants
from agent_memory_log.recall.words import fold, words


class Analysis(msgspec.Struct, frozen=True):
    """The indexed properties of a text.

    Attributes:
        terms: The terms of the words in their order, with repetitions, followed by the terms of the dates.
        length: The number of words.
        language: The language, as an ISO 639-1 code.
        timed: True if the text mentions a time.
        question: True if the text is a question.
        signs: Whether the text may change an earlier one, and the kinds of its values: the bits of ``signs_of``.
    """

    terms: Sequence[str]
    length: int
    language: str
    timed: bool
    question: bool
    signs: int


def analyse(text: str, at: datetime | None) -> Analysis:
    """Return the properties of a text. ``at`` is the aware time of the text, or None if it is unknown."""
    folded = fold(text)
    text_words = words(folded)
    language = language_of(text_words)
    dates = dates_in(folded, text_words, at)
    terms = [*filter(None, map(stems(language).__getitem__, text_words)), *dates.terms]
    return Analysis(
        terms,
        len(text_words),
        language,
        dates.timed,
        is_question(folded, text_words),
        signs_of(text, folded, text_words, dates.terms),
    )


def ask(query: str, at: datetime | None, languages: Iterable[str]) -> Question:
    """Convert a query to the form in which an index looks it up.

    Args:
        query: The text of the query.
        at: The aware time of the query, or None if it is unknown. Relative dates in the query count from it.
        languages: The languages of the texts in the index, as ISO 639-1 codes.
    """
    folded = fold(query)
    text_words = words(folded)
    own = language_of(text_words)
    tables = [stems(language) for language in (own, *sorted(set(languages) - {own}))]
    dates = dates_in(folded, text_words, at)
    word_terms: dict[str, tuple[str, ...]] = {}
    for word in text_words:
        # The words of "3 March" mean a day, not the number 3 and not a march.
        if word in dates.words:
            continue
        # A function word of the question's language is ignored, even if another language has it as a content word.
        if tables[0][word]:
            forms = (word, *names_like(word))
            word_terms[word] = tuple(dict.fromkeys(term for table in tables for form in forms if (term := table[form])))
    word_terms |= {term: (term,) for term in dates.lookup_terms}
    timed = asks_for_time(folded, text_words)
    return Question(
        tuple(word_terms.items()),
        dates.spans,
        timed,
        own in COMPOUNDING,
        role_asked_about(text_words),
        asks_for_now(text_words),
        kinds_asked(folded, asks_for_time=timed),
        wants(folded),
    )
