"""The lexical index, which scores documents by the words that they share with a question (BM25).

It identifies documents by consecutive numbers from 0.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final
from zlib import crc32

import msgspec
import numpy as np

from agent_memory_log.recall.dates import DATED
from agent_memory_log.recall.index.columns import Columns, Flags, Floats, Numbers
from agent_memory_log.recall.index.database import Database
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

BLOCK: Final = 12
"""The bits of a document number that one row of postings spans: 4,096 documents."""

RAREST: Final = 8
"""The number of a text's rarest terms by which ``shared_terms`` compares it."""

MOST_COMPARED: Final = 64
"""The number of a text's first terms among which ``shared_terms`` looks for the rarest."""

_TERM_BITS: Final = 24 - BLOCK
_BUCKETS: Final = 4_096
_BUCKETS_IN_MEMORY: Final = 256
_PREFIX: Final = SHORTEST_PART
"""Terms with the same first letters are in one bucket, so that a bucket holds all compounds of a word."""

Matches = Sequence[tuple[Numbers, Floats]]
"""The matches of a word: for each of its terms, the documents that hold the term and their scores.

All compounds of a word, possibly thousands, count as one term. A document occurs once for each compound that it holds.
"""


class _Term(msgspec.Struct, array_like=True):
    """A term of the index: its number, and how many documents hold it."""

    number: int
    holders: int


_Bucket = dict[str, _Term]
_read_bucket = msgspec.msgpack.Decoder(_Bucket).decode


class LexicalIndex:
    """The terms of documents. Not safe for concurrent use by several threads.

    The database has a row for each bucket of terms, and a row of postings for each term and each block of documents
    that hold it. A posting is ``document number << 8 | count``. Additions and removals wait in memory until ``write``.
    """

    def __init__(self, database: Database, columns: Columns) -> None:
        self._database = database
        self._columns = columns
        self.forget()

    def forget(self) -> None:
        """Forget the changes that are not written, and the buckets that are in memory."""
        self._added: dict[str, array[int]] = {}
        self._removed: dict[str, set[int]] = {}
        self._documents: set[int] = set()
        self._read: dict[int, _Bucket] = {}

    def append(self, document: int, terms: Iterable[str]) -> tuple[list[str], int]:
        """Index a document. ``terms`` repeats each term as often as it occurs.

        Returns the terms without repetitions, for ``remove``, and the length of the document in words.
        """
        counts = Counter(terms)
        length = 0
        added = self._added
        self._documents.add(document)
        for term, occurrences in counts.items():
            count = min(occurrences, MOST_COUNTED)
            # The terms of dates are not words of the text, so they do not count towards its length.
            if term[0] != DATED:
                length += count
            postings = added.get(term)
            if postings is None:
                added[term] = array("I", (document << 8 | count,))
            else:
                postings.append(document << 8 | count)
        return list(counts), length

    def remove(self, document: int, terms: Iterable[str]) -> None:
        """Remove a document. ``terms`` are the terms that ``append`` returned."""
        if document in self._documents:
            self.write()
        for term in terms:
            self._removed.setdefault(term, set()).add(document)

    @property
    def waiting(self) -> int:
        """The number of added documents that are not written."""
        return len(self._documents)

    def write(self) -> None:
        """Write all changes to the database."""
        if not self._added and not self._removed:
            return
        changed: dict[int, list[str]] = {}
        for term in dict.fromkeys((*self._removed, *self._added)):
            changed.setdefault(_bucket_of(term), []).append(term)
        for number, terms in changed.items():
            bucket = self._bucket(number)
            for term in terms:
                self._change(bucket, term, self._removed.get(term, frozenset()), self._added.get(term, ()))
            self._put_bucket(number, bucket)
        self.forget()

    def _change(self, bucket: _Bucket, name: str, removed: Iterable[int], added: Iterable[int]) -> None:
        facts = self._database.facts
        term = bucket.get(name)
        if term is None:
            term = bucket[name] = _Term(facts.next_term, 0)
            facts.next_term += 1
        removals: dict[int, set[int]] = {}
        for document in removed:
            removals.setdefault(document >> BLOCK, set()).add(document)
        additions: dict[int, array[int]] = {}
        for posting in added:
            additions.setdefault(posting >> 8 + BLOCK, array("I")).append(posting)
        for block in {*removals, *additions}:
            row = term.number << _TERM_BITS | block
            old = self._database.find("postings", row) or b""
            remaining = _without(old, removals[block]) if block in removals else old
            new = remaining + additions.get(block, array("I")).tobytes()
            term.holders += (len(new) - len(old)) // 4
            if new:
                self._database.write("postings", row, new)
            else:
                self._database.delete("postings", row)
        if term.holders == 0:
            del bucket[name]

    def _bucket(self, number: int) -> _Bucket:
        if not self._database.facts.buckets[number >> 3] >> (number & 7) & 1:
            return {}
        bucket = self._read.get(number)
        if bucket is None:
            try:
                bucket = _read_bucket(self._database.read("buckets", number))
            except msgspec.DecodeError as error:
                raise self._database.damaged(f"the terms of bucket {number} cannot be read") from error
            if len(self._read) >= _BUCKETS_IN_MEMORY:
                self._read.clear()
            self._read[number] = bucket
        return bucket

    def _put_bucket(self, number: int, bucket: _Bucket) -> None:
        exists = bytearray(self._database.facts.buckets)
        if bucket:
            self._database.write("buckets", number, msgspec.msgpack.encode(bucket))
            exists[number >> 3] |= 1 << (number & 7)
        else:
            self._database.delete("buckets", number)
            exists[number >> 3] &= ~(1 << (number & 7))
        self._database.facts.buckets = bytes(exists)

    def matches(
        self, question: Question, weights: Mapping[str, float], has_role: Flags
    ) -> tuple[list[Matches], Mapping[str, float]]:
        """Return the matches of each word of the question, and the rarity of each word.

        The scores of a document add up to its share of the question, from 0 to about 1. A word that no document holds
        also counts, so it lowers all scores. ``weights`` has the words whose weight is not 1. ``has_role`` has the
        documents that are turns of a user or an assistant.
        """
        matches: list[Matches] = []
        rarities: dict[str, float] = {}
        lengths = self._columns["length"]
        documents = int(np.count_nonzero(self._columns["alive"]))
        spread = documents / max(int(lengths.sum(dtype=np.int64)), 1)
        for word, names in question.words:
            terms = [term for name in names if (term := self._bucket(_bucket_of(name)).get(name)) is not None]
            holding = sum(term.holders for term in terms)
            rarity = math.log1p((max(documents - holding, 0) + 0.5) / (holding + 0.5)) * weights.get(word, 1.0)
            rarities[word] = rarity
            lookups: list[tuple[Sequence[_Term], float]] = [((term,), rarity) for term in terms]
            if question.compounds and word not in weights and (compounds := list(self._compounds(names))):
                lookups.append((compounds, COMPOUND * rarity))
            word_matches: list[tuple[Numbers, Floats]] = []
            for lookup, weight in lookups:
                numbers, counts = self._postings(lookup)
                share = np.where(has_role[numbers], LENGTH_OF_ROLES, LENGTH)
                normal = SATURATION * (1 - share + share * spread * lengths[numbers])
                word_matches.append((numbers, weight * counts / (counts + normal)))
            matches.append(word_matches)
        total = sum(rarities.values()) or math.inf
        return [[(numbers, scores / total) for numbers, scores in word_matches] for word_matches in matches], rarities

    def shared_terms(self, terms: Sequence[str]) -> Floats:
        """Return which share of a text's rarest terms each document has, weighed by their rarity, by document number.

        ``terms`` are the terms that ``append`` returned. Only the first of a long text count.
        """
        shared = np.zeros(self._columns.count)
        documents = int(np.count_nonzero(self._columns["alive"]))
        compared = (self._bucket(_bucket_of(name)).get(name) for name in terms[:MOST_COMPARED])
        rarest = sorted(
            (term for term in compared if term is not None and term.holders > 1), key=lambda term: term.holders
        )
        total = 0.0
        for term in rarest[:RAREST]:
            rarity = math.log1p((documents - term.holders + 0.5) / (term.holders + 0.5))
            shared[self._postings((term,))[0]] += rarity
            total += rarity
        return shared / (total or 1.0)

    def _compounds(self, names: Sequence[str]) -> Iterator[_Term]:
        """Yield the terms that begin with a term of ``names``, or with which a term of ``names`` begins."""
        related: _Bucket = {}
        for name in names:
            if len(name) >= SHORTEST_PART and name.isalpha():
                for other, term in self._bucket(_bucket_of(name)).items():
                    if len(other) >= SHORTEST_PART and (other.startswith(name) or name.startswith(other)):
                        related[other] = term
        for name in sorted(related.keys() - set(names)):
            yield related[name]

    def _postings(self, terms: Sequence[_Term]) -> tuple[Numbers, Numbers]:
        rows: list[bytes] = []
        for term in terms:
            first = term.number << _TERM_BITS
            blocks = [data for _, data in self._database.read_range("postings", first, first | (1 << _TERM_BITS) - 1)]
            if sum(map(len, blocks)) != 4 * term.holders:
                raise self._database.damaged(f"postings of term {term.number} are missing")
            rows += blocks
        packed = np.frombuffer(b"".join(rows), np.uint32)
        numbers = (packed >> 8).astype(np.int32)
        if len(numbers) and int(numbers.max()) >= self._columns.count:
            raise self._database.damaged("a posting names an unknown document")
        return numbers, (packed & MOST_COUNTED).astype(np.int32)


def _bucket_of(term: str) -> int:
    # The first letters of dates are equal, and dates have no compounds.
    prefix = term if term[0] == DATED else term[:_PREFIX]
    return crc32(prefix.encode("utf-8", "surrogatepass")) % _BUCKETS


def _without(postings: bytes, documents: set[int]) -> bytes:
    return array("I", [posting for posting in array("I", postings) if posting >> 8 not in documents]).tobytes()
