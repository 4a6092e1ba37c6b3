"""Ranks the documents of an index.

A document's score starts with its words and its vectors. Its conversation, stars, age, confidence and the boosted
preferences then raise or lower the score.

The conversation raises the sum of both scores, because a text with the answer can be next to a match of either kind.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from datetime import datetime
from itertools import chain
from typing import Final

import msgspec
import numpy as np

from agent_memory_log.recall.analysis import ask
from agent_memory_log.recall.documents import DocumentHit
from agent_memory_log.recall.embedding import Embeddings
from agent_memory_log.recall.index.columns import Columns, Flags, Floats
from agent_memory_log.recall.index.conversations import Conversations
from agent_memory_log.recall.index.documents import Documents, Stored
from agent_memory_log.recall.index.lexical import LexicalIndex
from agent_memory_log.recall.index.names import Names
from agent_memory_log.recall.index.vectors import VectorIndex, token_weights
from agent_memory_log.recall.questions import Question
from agent_memory_log.recall.ranking.orders import ordered
from agent_memory_log.recall.ranking.updates import recent_statements, update_gains

VECTORS: Final = 0.75
"""The score of the best match by vectors, as a share of the score of the best match by words."""

WEIGHED_VECTORS: Final = 1.5
"""The same share if the tokens of the question are weighed by the rarity of their words, which makes vectors exact."""

IMPORTANCE: Final = 0.2
"""The gain of a text with five stars, as a share of its score. The gain is proportional to the stars."""

RECENCY: Final = 0.2
"""The gain of a new text that has stars, as a share of its score. The gain halves every ``HALF_LIFE`` seconds."""

HALF_LIFE: Final = 30 * 86_400.0
"""The seconds after which the gain for recency has halved: 30 days."""

PREFERENCE: Final = 0.5
"""The gain of a preference whose key is in ``boost_preferences``, even if it shares no word with the question."""

STARS: Final = 5
"""The highest importance of a document."""

DECIMALS: Final = 9
"""The decimal places to which scores are rounded."""


class Filter(msgspec.Struct, frozen=True):
    """The documents that a search may return, and those that it prefers. See ``RecallIndex.search``."""

    kinds: Collection[str] | None
    since: datetime | None
    until: datetime | None
    min_importance: float
    boost_preferences: Collection[str]
    changes: bool


class Ranking:
    """The ranking of the documents of an index. Not safe for concurrent use by several threads."""

    def __init__(
        self,
        columns: Columns,
        documents: Documents,
        lexical: LexicalIndex,
        conversations: Conversations,
        vectors: VectorIndex,
        kinds: Names,
        languages: Names,
    ) -> None:
        self._columns = columns
        self._documents = documents
        self._lexical = lexical
        self._conversations = conversations
        self._vectors = vectors
        self._kinds = kinds
        self._languages = languages

    def search(
        self, query: str, now: datetime, top_k: int, embedded: Embeddings | None, only: Filter
    ) -> list[DocumentHit]:
        """See ``RecallIndex.search``."""
        question = ask(query, now, self._languages)
        parts = self._parts(question, now, only.boost_preferences, embedded)
        total = np.zeros(self._columns.count)
        for name in sorted(parts):
            total += parts[name]
        total = np.round(total, DECIMALS)  # scores that differ only by the rounding of their sums are equal
        allowed_now = self._allowed(now, only)
        allowed = (total > 0) & allowed_now
        own = parts["words"] + parts.get("vectors", 0.0)
        total = np.where(allowed, total, 0.0)
        gains = update_gains(
            question,
            total,
            own,
            allowed_now,
            self._conversations,
            self._columns,
            self._documents,
            self._lexical,
        )
        if gains is not None:
            parts["update"] = gains
            total = np.round(total + gains, DECIMALS)
        if (in_order := ordered(question, total, self._columns)) is not None:
            parts["order"] = in_order - total
            total = in_order
        if only.changes and total.any():
            parts["recent"] = recent_statements(total, allowed_now, self._columns)
            total = total + parts["recent"]
        best = self._best(total, own, top_k)
        return [_hit(stored, number, float(total[number]), parts) for number, stored in best]

    def _parts(
        self, question: Question, now: datetime, boosted_keys: Collection[str], embedded: Embeddings | None
    ) -> dict[str, Floats]:
        alive = self._columns["alive"]
        matches, rarities = self._lexical.matches(
            question, self._conversations.weights(question), self._conversations.has_role
        )
        words = np.zeros(len(alive))
        for documents, scores in chain.from_iterable(matches):
            if question.compounds:
                np.add.at(words, documents, scores)  # a text may contain several of the compounds
            else:
                words[documents] += scores
        words *= alive
        parts = {"words": words}
        relevance = words
        shared = self._conversations.shared(matches)
        if embedded is not None:
            most = float(words.max(initial=0))
            weights = token_weights(embedded, rarities)
            share = VECTORS if weights is None else WEIGHED_VECTORS
            parts["vectors"] = self._vectors.scores(embedded, words, weights) * (share * (most or 1.0)) * alive
            relevance = words + parts["vectors"]
            shared += self._conversations.shared([[(np.arange(len(alive), dtype=np.int32), parts["vectors"])]])
        parts |= self._conversations.lifts(question, relevance, shared)
        score = relevance + sum(parts[name] for name in parts if name not in {"words", "vectors"})
        stars = self._columns["score_stars"]
        if stars.any():
            parts["importance"] = score * (IMPORTANCE / STARS * stars)
            age = np.nan_to_num(np.maximum(now.timestamp() - self._conversations.times, 0), nan=math.inf)
            parts["recency"] = score * (stars > 0) * (RECENCY * np.exp2(-age / HALF_LIFE))
            score = score + parts["importance"] + parts["recency"]
        boosted_numbers = [number for key in boosted_keys for number in self._documents.with_key(key)]
        if boosted_numbers:
            parts["preference"] = np.zeros(len(score))
            parts["preference"][boosted_numbers] = PREFERENCE
            score = score + parts["preference"]
        confidence = self._columns["confidence"]
        if (confidence[alive] < 1).any():
            parts["confidence"] = score * (confidence.astype(np.float64) - 1)
        return parts

    def _allowed(self, now: datetime, only: Filter) -> Flags:
        columns = self._columns
        allowed: Flags = columns["alive"] & (columns["expires"] > now.timestamp())
        allowed &= columns["confidence"] > 0  # the rounded total of such a document may exceed 0
        if only.kinds is not None:
            numbers = [number for kind in only.kinds if (number := self._kinds.find(kind)) is not None]
            allowed &= np.isin(columns["kind"], numbers)
        if only.since is not None:
            allowed &= self._conversations.times >= only.since.timestamp()
        if only.until is not None:
            allowed &= self._conversations.times < only.until.timestamp()
        if only.min_importance > 0:
            allowed &= columns["stars"] >= min(only.min_importance, STARS + 1)
        return allowed

    def _best(self, total: Floats, own: Floats, top_k: int) -> list[tuple[int, Stored]]:
        numbers = np.flatnonzero(total > 0)
        scores = total[numbers]
        least = float(np.partition(scores, -top_k)[-top_k]) if len(scores) > top_k else 0.0
        best = scores >= least if least > 0 else scores > 0
        numbers, scores = numbers[best], scores[best]
        # The complement of a position orders like its negative, and the least integer has no negative.
        ranks = np.stack([-scores, -own[numbers], -np.nan_to_num(self._conversations.times[numbers])], dtype=np.float64)
        last_rank = ~self._columns["position"][numbers]
        order = np.lexsort((last_rank, *ranks[::-1]))
        ranks, last_rank, numbers = ranks[:, order], last_rank[order], numbers[order]
        if len(numbers) > top_k:  # documents that equal the last one are ordered by their ids
            ties = (ranks == ranks[:, top_k - 1 : top_k]).all(axis=0) & (last_rank == last_rank[top_k - 1])
            end = int(np.flatnonzero(ties)[-1]) + 1
            ranks, last_rank, numbers = ranks[:, :end], last_rank[:end], numbers[:end]
        ordered = [
            (*rank, position, stored.id, number, stored)
            for rank, position, number in zip(ranks.T.tolist(), last_rank.tolist(), numbers.tolist(), strict=True)
            for stored in (self._documents.read(number),)
        ]
        ordered.sort(key=lambda item: item[:-2])
        return [(item[-2], item[-1]) for item in ordered[:top_k]]


def _hit(stored: Stored, number: int, score: float, parts: Mapping[str, Floats]) -> DocumentHit:
    shares = {name: share for name in sorted(parts) if (share := float(parts[name][number]))}
    return DocumentHit(stored.id, score, shares, stored.note)
