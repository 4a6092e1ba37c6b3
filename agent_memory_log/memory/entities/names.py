"""Finds the names in a text: people, places, products and organizations, mail addresses, URLs and ids.

A name is a run of words with capital letters that grammar does not explain: the beginning of a sentence, a noun of a
language that writes nouns so, a month, a greeting. The tables in ``data/`` have the words of each language. A script
without capital letters has no names here, but mail addresses, URLs and ids are found in every text.

The work is linear in the length of the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from agent_memory_log.memory.entities.aliases import unique_names
from agent_memory_log.memory.entities.languages import Language, given_names, known_names, language_of
from agent_memory_log.memory.entities.tokens import Token, tokens_of

MOST_ENTITIES: Final = 32
"""The most entities of one text. The first ones count."""

MOST_CHARACTERS: Final = 20_000
"""The length of the beginning of a text that is searched for names."""

_MOST_WORDS: Final = 6
"""The most words of a name. A longer run of capital letters is a heading, or shouting."""

_MAY_HAVE_NAMES: Final = re.compile(r"[A-Z@#]|://|www\.|[0-9a-f]-|[^\x00-\x7f]")
"""Every text with a name has a capital letter, a part of an address or of an id, or a character that is not ASCII."""

_INNER_GAPS: Final = frozenset({" ", "\u00a0", " & "})
_ABBREVIATED: Final = frozenset({". ", "."})


def entities_of(text: str) -> tuple[str, ...]:
    """Return the names in a text, each once, in the order in which they first appear.

    Names that differ in case, accents or a title are one name; see ``alias_key``. The longest form is returned. At
    most 32 names are returned, and the first 20,000 characters are read.
    """
    if not _MAY_HAVE_NAMES.search(text):
        return ()
    tokens = list(tokens_of(text[:MOST_CHARACTERS]))
    return unique_names(_Names(tokens))[:MOST_ENTITIES]


class _Names:
    """The names among the tokens of a text."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = tokens
        self._language: Language = language_of(token.folded for token in tokens)
        self._inside = {token.folded for token in tokens if not token.starts and self._may_be_name(token)}

    def __iter__(self) -> Iterator[str]:
        tokens = self._tokens
        shouted = sum(len(token.text) > 1 and token.text.isupper() for token in tokens)
        is_shouted = len(tokens) > _MOST_WORDS and 2 * shouted > len(tokens)
        index = 0
        while index < len(tokens):
            end = index + 1
            if tokens[index].kind == "exact":
                yield tokens[index].text
            elif tokens[index].is_capital and not is_shouted:
                end = self._end_of_run(index)
                begin = self._begin_of_name(index, end)
                if begin < end <= begin + _MOST_WORDS:
                    yield self._joined(begin, end)
            index = end

    def _may_be_name(self, token: Token) -> bool:
        language = self._language
        if token.kind != "word" or not token.is_capital or token.folded in language.ordinary:
            return False
        if token.gap.rstrip().endswith(":") and token.folded in language.openers:  # "rule: Run the linter"
            return False
        return token.is_odd or token.folded not in language.function_words

    def _end_of_run(self, begin: int) -> int:
        """Return the index after the run of words that belong together and begin here."""
        end = begin + 1
        while end < len(self._tokens) and (step := self._next_step(end)):
            end += step
        return end

    def _next_step(self, index: int) -> int:
        """Return how many tokens from here continue a name: 0, 1, or more with words such as ``of the`` inside."""
        before, token = self._tokens[index - 1], self._tokens[index]
        is_short = before.folded in self._language.titles or (len(before.text) == 1 and before.is_capital)
        is_list = token.gap == " & " and not before.text.isalpha()  # "HAT136 & HAT039" are two names
        if before.owns or is_list or not (token.gap in _INNER_GAPS or (is_short and token.gap in _ABBREVIATED)):
            return 0
        if token.kind == "number":  # iPhone 15, but not Ana 15
            return int(before.is_capital and len(before.text) > 1 and before.folded not in known_names())
        if token.is_capital:
            return int(self._may_be_name(token))
        return self._step_over_joints(index)

    def _step_over_joints(self, index: int) -> int:
        """Return the number of tokens up to the word after one or two joints such as ``of the``, or 0."""
        before = self._tokens[index - 1]
        if before.folded in self._language.openers:
            return 0
        for after in range(index + 1, min(index + 3, len(self._tokens))):
            joint, token = self._tokens[after - 1], self._tokens[after]
            if joint.folded not in self._language.joints or joint.owns or token.gap != " ":
                return 0
            if self._may_be_name(token):
                return after - index + 1
        return 0

    def _begin_of_name(self, begin: int, end: int) -> int:
        """Return the index of the first word of the name in a run, or ``end`` if the run is no name."""
        tokens, language = self._tokens, self._language
        if self._is_label(begin, end):
            return end
        while begin < end and not (
            self._may_be_name(tokens[begin]) and (not tokens[begin].starts or self._is_name_at_start(begin, end))
        ):
            begin += 1
        if begin < end and language.capital_nouns:
            begin = self._first_but_noun(begin, end)
        is_alone = begin == end - 1
        return end if is_alone and (len(tokens[begin].text) == 1 or tokens[begin].folded in language.titles) else begin

    def _is_label(self, begin: int, end: int) -> bool:
        """Return whether a run begins a sentence and a colon follows, as in ``Total Price: 12``."""
        is_known = self._tokens[begin].folded in known_names()
        follows = self._tokens[end].gap if end < len(self._tokens) else ""
        return self._tokens[begin].starts and not is_known and follows.lstrip("*").startswith(":")

    def _is_name_at_start(self, index: int, end: int) -> bool:
        """Return whether the first word of a sentence, which always has a capital letter, belongs to a name."""
        token, language = self._tokens[index], self._language
        if token.is_odd or token.folded in language.titles or token.folded in known_names():
            return True
        if token.folded in language.openers or language.capital_nouns:
            return False
        is_run, is_plain = end - index > 1, token.folded.endswith(language.endings)
        if is_run and self._tokens[index + 1].is_capital:  # "Great Britain", but "Meanwhile Ana"
            return self._tokens[index + 1].folded not in given_names() and not is_plain
        is_subject = is_run or token.owns or self._is_verb(index + 1)
        return token.folded in self._inside or (is_subject and not is_plain)

    def _is_verb(self, index: int) -> bool:
        if index == len(self._tokens):
            return False
        return self._tokens[index].gap == " " and self._tokens[index].folded in self._language.verbs

    def _first_but_noun(self, begin: int, end: int) -> int:
        """Return the index of the first word of a run that is a name and not a noun, or ``end``."""
        tokens, language = self._tokens, self._language
        for index in range(begin, end):
            if tokens[index].is_odd or tokens[index].folded in known_names() or tokens[index].folded in language.titles:
                return index
        before = tokens[begin - 1].folded if begin else ""
        is_name = before in language.cues or before in language.places or end - begin > 1
        return begin if is_name and not tokens[begin].folded.endswith(language.endings) else end

    def _joined(self, begin: int, end: int) -> str:
        rest = (token.gap.replace("\u00a0", " ") + token.text for token in self._tokens[begin + 1 : end])
        return self._tokens[begin].text + "".join(rest)
