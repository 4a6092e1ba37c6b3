"""The lexical index, which scores documents by the words that they share with a question (BM25).

It identifies documents by consecutive numbers from 0.
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

from agent_memory_log.recall.columns import Flags, Floats, Numbers
from agent_memory_log.recall.dates import DATED
from agent_memory_log.recall.questions import Question

SATURATION: Final = 1.0
"""BM25's k1. Higher values let repeated words add more. It is below the usual 1.2 because turns are short."""

LENGTH: Final = 0.4
"""BM25's b. Higher values reduce the scores of long texts more. It is below the usual 0.75: long turns say more."""

LENGTH_OF_ROLES: Final = 0.9
"""BM25's b for turns of a user and an assistant. The long answers of an assistant repeat what others said."""

COMPOUND: Final = 0.7
"""The weight of a match between a compound and the word that it begins with."""

SHORTEST_PART: Final = 4
"""The fewest letters of a part of a compound. Too many words begin with the same three letters."""

MOST_COUNTED: Final = 255
"""The most occurrences of a term in one text that count. A count shares 32 bits with a document number."""

MOST_DOCUMENTS: Final = 1 << 24
"""The maximum number of documents in an index."""

SORTED_PER_NEW: Final = 256
"""With more than this many sorted terms for each new term, inserting the new terms is faster than sorting all terms."""

Matches = Sequence[tuple[Numbers, Floats]]
"""The matches of a word: for each of its terms, the documents that hold the term and their scores.

All compounds of a word, possibly thousands, count as one term. A document occurs once for each compound that it holds.
"""


class LexicalIndex:
    """The terms of documents. Not safe for concurrent use by several threads.

    The cost of an append or a removal depends only on the length of the document. A term stores its
    documents as ``document number << 8 | count``, and a document stores its terms as ``term number << 8 | count``.
    """

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._sorted: list[str] = []
        self._holders: list[array[int]] = []
        self._holder_counts = array("I")
        self._terms = array("I")
        self._starts = array("Q", [0])
        self._lengths = array("I")
        self._length = 0
        self._documents = 0

    def append(self, terms: Iterable[str]) -> None:
        """Index the next document. ``terms`` repeats each term as often as it occurs."""
        self._append(Counter(terms).items())

    def _append(self, counts: Iterable[tuple[str, int]]) -> None:
        document = len(self._lengths) << 8
        length = 0
        numbers = self._numbers
        for term, occurrences in counts:
            count = min(occurrences, MOST_COUNTED)
            # The terms of dates are not words of the text, so they do not count towards its length.
            if term[0] != DATED:
                length += count
            number = numbers.get(term)
            if number is None:
                number = numbers[term] = len(numbers)
                self._holders.append(array("I", (document | count,)))
                self._holder_counts.append(1)
            else:
                self._holders[number].append(document | count)
                self._holder_counts[number] += 1
            self._terms.append(number << 8 | count)
        self._starts.append(len(self._terms))
        self._lengths.append(length)
        self._length += length
        self._documents += 1

    def remove(self, number: int) -> None:
        """Stop counting a document. Its postings remain until ``keeping`` leaves them out."""
        for packed in self._terms[self._starts[number] : self._starts[number + 1]]:
            self._holder_counts[packed >> 8] -= 1
        self._length -= self._lengths[number]
        self._documents -= 1

    def keeping(self, numbers: Sequence[int]) -> LexicalIndex:
        """Return an index with only these documents, renumbered in their order."""
        remaining = LexicalIndex()
        terms = list(self._numbers)
        for number in numbers:
            packed = self._terms[self._starts[number] : self._starts[number + 1]]
            remaining._append((terms[posting >> 8], posting & MOST_COUNTED) for posting in packed)
        return remaining

    def matches(self, question: Question, weights: Mapping[str, float], has_role: Flags) -> list[Matches]:
        """Return the matches of each word of the question. They may include removed documents.

        The scores of a document add up to its share of the question, from 0 to about 1. A word that no document holds
        also counts, so it lowers all scores. ``weights`` has the words whose weight is not 1. ``has_role`` has the
        documents that are turns of a user or an assistant.
        """
        matches: list[Matches] = []
        total_rarity = 0.0
        lengths = np.frombuffer(self._lengths, np.uint32) if self._lengths else np.zeros(0, np.uint32)
        shares = np.where(has_role, LENGTH_OF_ROLES, LENGTH)
        spread = self._documents / max(self._length, 1)
        for word, terms in question.words:
            holding = sum(self._holder_counts[number] for number in self._term_numbers(terms))
            rarity = math.log1p((max(self._documents - holding, 0) + 0.5) / (holding + 0.5)) * weights.get(word, 1.0)
            total_rarity += rarity
            lookups: list[tuple[Sequence[int], float]] = [((number,), rarity) for number in self._term_numbers(terms)]
            if question.compounds and word not in weights and (compounds := self._compounds(terms)):
                lookups.append((compounds, COMPOUND * rarity))
            word_matches: list[tuple[Numbers, Floats]] = []
            for numbers, weight in lookups:
                documents, counts = self._postings(numbers)
                share = shares[documents]
                normal = SATURATION * (1 - share + share * spread * lengths[documents])
                word_matches.append((documents, weight * counts / (counts + normal)))
            matches.append(word_matches)
        if not total_rarity:
            return []
        return [[(documents, scores / total_rarity) for documents, scores in word_matches] for word_matches in matches]

    def _term_numbers(self, terms: Iterable[str]) -> list[int]:
        return [number for term in terms if (number := self._numbers.get(term)) is not None]

    def _compounds(self, terms: Collection[str]) -> list[int]:
        """Return the numbers of terms that begin with a term of ``terms``, or with which a term of ``terms`` begins."""
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
        return self._term_numbers(term for term in related if term not in terms)

    def _in_order(self) -> list[str]:
        # Only some languages need sorted terms, so they are sorted on demand. A few new terms are inserted one by one.
        new = list(islice(reversed(self._numbers), len(self._numbers) - len(self._sorted)))
        if len(new) * SORTED_PER_NEW < len(self._sorted):
            for term in new:
                insort(self._sorted, term)
        elif new:
            self._sorted += new
            self._sorted.sort()
        return self._sorted

    def _postings(self, numbers: Sequence[int]) -> tuple[Numbers, Numbers]:
        packed = np.frombuffer(b"".join([self._holders[number] for number in numbers]), np.uint32)
        return (packed >> 8).astype(np.int32), (packed & MOST_COUNTED).astype(np.int32)
