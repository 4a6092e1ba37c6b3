"""The lexical index: which documents hold a question's words, and how much that says (BM25).

A document is known by its number: the first one is 0, and each the one after the last.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Final

import numpy as np

from agent_memory_log.recall.columns import Floats, Numbers
from agent_memory_log.recall.dates import DATED
from agent_memory_log.recall.questions import Question

SATURATION: Final = 1.0
"""BM25's k1, how much a second occurrence of a word adds: less than the usual 1.2, for turns are short."""

LENGTH: Final = 0.4
"""BM25's b, how far long texts are discounted: below the usual 0.75, for a long turn of a talk also says more."""

COMPOUND: Final = 0.7
"""The weight of a word as the beginning of a compound, or of the word that a compound begins with."""

SHORTEST_PART: Final = 4
"""Letters that a part of a compound has at least: fewer begin too many words."""

MOST_COUNTED: Final = 255
"""Occurrences of a term in one text that count: they share 32 bits with the text's number."""

MOST_DOCUMENTS: Final = 1 << 24
"""Documents that can be numbered."""

WORTH_SORTING: Final = 256
"""How many old terms there are for a new one where it is put in its place, as sorting them all takes longer."""

Matches = Sequence[tuple[Numbers, Floats]]
"""What a word finds: for each term that it stands as the documents that hold it, and what each has by that.

The compounds of a word, of which there may be thousands, are one term, and a document is there once for each it holds.
"""


class LexicalIndex:
    """The terms of documents. Not for several threads at once.

    An append costs what the document holds, and so does a removal. Of a term, the documents that hold it are kept as
    ``number << 8 | count``; of a document its terms likewise.
    """

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._sorted: list[str] = []
        self._holders: list[array[int]] = []
        self._holding = array("I")
        self._terms = array("I")
        self._starts = array("Q", [0])
        self._lengths = array("I")
        self._length = 0
        self._documents = 0

    def append(self, terms: Iterable[str]) -> None:
        """Index the next document: its terms, each as often as it occurs."""
        self._append(Counter(terms).items())

    def _append(self, counts: Iterable[tuple[str, int]]) -> None:
        document = len(self._lengths) << 8
        length = 0
        numbers = self._numbers
        for term, occurrences in counts:
            count = min(occurrences, MOST_COUNTED)
            # What a date stands for was not written: it makes no text longer.
            if term[0] != DATED:
                length += count
            number = numbers.get(term)
            if number is None:
                number = numbers[term] = len(numbers)
                self._holders.append(array("I", (document | count,)))
                self._holding.append(1)
            else:
                self._holders[number].append(document | count)
                self._holding[number] += 1
            self._terms.append(number << 8 | count)
        self._starts.append(len(self._terms))
        self._lengths.append(length)
        self._length += length
        self._documents += 1

    def remove(self, number: int) -> None:
        """Count a document no more; its postings stay, to be left out by ``keeping``."""
        for packed in self._terms[self._starts[number] : self._starts[number + 1]]:
            self._holding[packed >> 8] -= 1
        self._length -= self._lengths[number]
        self._documents -= 1

    def keeping(self, numbers: Sequence[int]) -> LexicalIndex:
        """The same with these documents alone, numbered anew in their order."""
        kept = LexicalIndex()
        terms = list(self._numbers)
        for number in numbers:
            packed = self._terms[self._starts[number] : self._starts[number + 1]]
            kept._append((terms[one >> 8], one & MOST_COUNTED) for one in packed)
        return kept

    def matches(self, asked: Question, weights: Mapping[str, float]) -> list[Matches]:
        """What each word of the question finds, among it documents that were removed.

        All that a document has is how much of the question it says, 0 to about 1: a word that no document holds counts
        too, as one that each of them lacks. ``weights`` are those of words that count for less than 1.
        """
        matches: list[Matches] = []
        whole = 0.0
        lengths = np.frombuffer(self._lengths, np.uint32) if self._lengths else np.zeros(0, np.uint32)
        spread = SATURATION * LENGTH * self._documents / max(self._length, 1)
        for word, terms in asked.words:
            holding = sum(self._holding[number] for number in self._known(terms))
            rarity = math.log1p((max(self._documents - holding, 0) + 0.5) / (holding + 0.5)) * weights.get(word, 1.0)
            whole += rarity
            said: list[tuple[Sequence[int], float]] = [((number,), rarity) for number in self._known(terms)]
            if asked.compounds and word not in weights and (compounds := self._compounds(terms)):
                said.append((compounds, COMPOUND * rarity))
            found: list[tuple[Numbers, Floats]] = []
            for numbers, weight in said:
                documents, counts = self._postings(numbers)
                normal = SATURATION * (1 - LENGTH) + spread * lengths[documents]
                found.append((documents, weight * counts / (counts + normal)))
            matches.append(found)
        return [[(documents, scores / whole) for documents, scores in found] for found in matches] if whole else []

    def _known(self, terms: Iterable[str]) -> list[int]:
        return [number for term in terms if (number := self._numbers.get(term)) is not None]

    def _compounds(self, terms: Collection[str]) -> list[int]:
        """The terms that begin with one of ``terms``, or that one of them begins with; not themselves."""
        related: dict[str, None] = {}
        names = self._in_order()
        for term in terms:
            if len(term) < SHORTEST_PART or not term.isalpha():
                continue
            for length in range(SHORTEST_PART, len(term)):
                related[term[:length]] = None
            for at in range(bisect_right(names, term), len(names)):
                if not names[at].startswith(term):
                    break
                related[names[at]] = None
        return self._known(term for term in related if term not in terms)

    def _in_order(self) -> list[str]:
        # Sorted when asked for: only some languages need it, and the few terms since the last time find their places.
        new = list(islice(reversed(self._numbers), len(self._numbers) - len(self._sorted)))
        if len(new) * WORTH_SORTING < len(self._sorted):
            for term in new:
                insort(self._sorted, term)
        elif new:
            self._sorted += new
            self._sorted.sort()
        return self._sorted

    def _postings(self, numbers: Sequence[int]) -> tuple[Numbers, Numbers]:
        packed = np.frombuffer(b"".join([self._holders[number] for number in numbers]), np.uint32)
        return (packed >> 8).astype(np.int32), (packed & MOST_COUNTED).astype(np.int32)
