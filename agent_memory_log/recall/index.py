"""The recall index, which holds documents in memory and returns the documents that match a question.

A document's score starts with its words and its vectors. Its conversation, stars, age, confidence and the boosted
preferences then raise or lower the score.

The conversation raises the sum of both scores, because a text with the answer can be next to a match of either kind.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from itertools import chain
from typing import Final

import numpy as np

from agent_memory_log.errors import InvalidArgument
from agent_memory_log.recall.analysis import analyse, ask
from agent_memory_log.recall.columns import Column, Flags, Floats
from agent_memory_log.recall.conversations import Conversations, turn_of
from agent_memory_log.recall.documents import Document, DocumentHit
from agent_memory_log.recall.embedding import Embeddings
from agent_memory_log.recall.lexical import MOST_DOCUMENTS, LexicalIndex
from agent_memory_log.recall.vectors import VectorIndex

VECTORS: Final = 0.75
"""The score of the best match by vectors, as a share of the score of the best match by words."""

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
"""The decimal places to which scores are rounded before they are compared."""

_WORTH_REBUILDING: Final = 256
"""An index with at most this many removed documents is not rebuilt."""


class RecallIndex:
    """An index of the documents of one subject. Not safe for concurrent use by several threads.

    The cost of adding or removing a document depends only on that document's length. If more documents
    were removed than remain, the index rebuilds itself without the removed documents. Removed
    documents never change the results of a search.
    """

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._ids: list[str | None] = []
        self._languages: list[str] = []
        self._texts_in: dict[str, int] = {}
        self._kinds: dict[str, int] = {}
        self._keys: dict[str, dict[int, None]] = {}
        self._key_of: dict[int, str] = {}
        self._alive = Column(np.bool_)
        self._kind = Column(np.int16)
        self._stars = Column(np.float32)
        self._score_stars = Column(np.float32)
        self._confidence = Column(np.float32)
        self._expires = Column(np.float64)
        self._lexical = LexicalIndex()
        self._conversations = Conversations()
        self._vectors: VectorIndex | None = None
        self._model = ""

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, document: Document) -> None:
        """Add a document. It replaces the document with the same id.

        Raises:
            InvalidArgument: A field is invalid, or the index is full. The index is unchanged.
        """
        _check(document)
        if document.id in self._numbers:
            self.remove(document.id)
        number = len(self._ids)
        if number >= MOST_DOCUMENTS:
            raise InvalidArgument(
                f"the index has {MOST_DOCUMENTS:,} documents, which is the limit; search fewer runs at a time"
            )
        analysis = analyse(document.text, document.time)
        self._lexical.append(analysis.terms)
        self._conversations.append(turn_of(document, analysis))
        self._numbers[document.id] = number
        self._ids.append(document.id)
        self._languages.append(analysis.language)
        self._texts_in[analysis.language] = self._texts_in.get(analysis.language, 0) + 1
        self._alive.append(True)
        self._kind.append(self._kinds.setdefault(document.kind, len(self._kinds)))
        self._stars.append(document.importance)
        self._score_stars.append(0 if document.lasting else document.importance)
        self._confidence.append(document.confidence)
        self._expires.append(math.inf if document.expires is None else document.expires.timestamp())
        if document.key:
            self._keys.setdefault(document.key, {})[number] = None
            self._key_of[number] = document.key

    def remove(self, document_id: str) -> None:
        """Remove a document and its vectors. An unknown id is ignored."""
        number = self._numbers.pop(document_id, None)
        if number is None:
            return
        self._ids[number] = None
        self._texts_in[self._languages[number]] -= 1
        self._alive.values[number] = False
        self._lexical.remove(number)
        self._conversations.remove(number)
        if (key := self._key_of.pop(number, None)) is not None:
            del self._keys[key][number]
            if not self._keys[key]:
                del self._keys[key]
        if self._vectors is not None:
            self._vectors.remove(number)
        removed = len(self._ids) - len(self._numbers)
        if removed > max(len(self._numbers), _WORTH_REBUILDING):
            self._rebuild()

    def _rebuild(self) -> None:
        alive = np.flatnonzero(self._alive.values).tolist()
        new_numbers = {old: number for number, old in enumerate(alive)}
        self._ids = [self._ids[number] for number in alive]
        self._numbers = {document_id: new_numbers[number] for document_id, number in self._numbers.items()}
        self._languages = [self._languages[number] for number in alive]
        self._keys = {key: {new_numbers[number]: None for number in numbers} for key, numbers in self._keys.items()}
        self._key_of = {new_numbers[number]: key for number, key in self._key_of.items()}
        self._alive = self._alive.keeping(alive)
        self._kind = self._kind.keeping(alive)
        self._stars = self._stars.keeping(alive)
        self._score_stars = self._score_stars.keeping(alive)
        self._confidence = self._confidence.keeping(alive)
        self._expires = self._expires.keeping(alive)
        self._lexical = self._lexical.keeping(alive)
        self._conversations = self._conversations.keeping(alive)
        if self._vectors is not None:
            self._vectors = self._vectors.renumbered(new_numbers)

    def use_model(self, model: str, dimension: int) -> None:
        """Set the model of the vectors. Vectors of another model are removed, because they cannot be compared."""
        if self._vectors is None or (model, dimension) != (self._model, self._vectors.dimension):
            self._model = model
            self._vectors = VectorIndex(dimension)

    def put_vectors(self, ids: Iterable[str], embeddings: Embeddings) -> None:
        """Set the vectors of documents. Unknown ids are ignored.

        Args:
            ids: The ids of the documents, in the order of the rows of ``embeddings``.
            embeddings: The vectors, made by the model that was passed to ``use_model``.

        Raises:
            InvalidArgument: ``use_model`` was not called, or the vectors have another dimension.
        """
        self._check_vectors(embeddings)
        if self._vectors is None:
            return
        for row, document_id in enumerate(ids):
            number = self._numbers.get(document_id)
            if number is not None:
                tokens = None if embeddings.tokens is None else embeddings.tokens[row]
                self._vectors.put(number, embeddings.pooled[row], tokens)

    def _check_vectors(self, embeddings: Embeddings) -> None:
        if self._vectors is None:
            raise InvalidArgument(
                "the index has no model; call use_model before put_vectors and before a search with vectors"
            )
        if embeddings.pooled.ndim != 2 or embeddings.pooled.shape[1] != self._vectors.dimension:  # noqa: PLR2004  # rows
            raise InvalidArgument(
                f"expected rows of {self._vectors.dimension} numbers for the model {self._model}, "
                f"got vectors of shape {embeddings.pooled.shape}"
            )

    def search(
        self,
        query: str,
        *,
        now: datetime,
        top_k: int = 10,
        kinds: Collection[str] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        min_importance: float = 0,
        boost_preferences: Collection[str] = (),
        embedded: Embeddings | None = None,
    ) -> list[DocumentHit]:
        """Return the documents that match ``query``, the best first.

        Documents with equal scores are ordered by the score of their own words and vectors. Then newer documents come
        first, then documents later in their session, then documents with a smaller id. If the query has no word and
        no vectors, only documents with a key of ``boost_preferences`` are returned.

        Args:
            query: The question, in any language.
            now: The time of the question. Relative dates such as "yesterday" count from it. Documents that expired
                by this time are not returned.
            top_k: The largest number of hits.
            kinds: Only documents of these kinds are returned. None allows every kind.
            since: Only documents from this time on are returned. A document without a time is not returned.
            until: Only documents before this time are returned. A document without a time is not returned.
            min_importance: Only documents with at least this many stars are returned.
            boost_preferences: The keys whose documents gain ``PREFERENCE``.
            embedded: The vectors of the query, made by the model that was passed to ``use_model``.

        Raises:
            InvalidArgument: ``top_k`` is below 1, a time has no time zone, or the vectors do not fit the index.
        """
        _check_search(top_k, {"now": now, "since": since, "until": until})
        if embedded is not None:
            self._check_vectors(embedded)
        parts = self._parts(query, now, boost_preferences, embedded)
        total = np.zeros(len(self._ids))
        for name in sorted(parts):
            total += parts[name]
        allowed = (total > 0) & self._allowed(now, kinds, since, until, min_importance)
        own = parts["words"] + parts.get("vectors", 0.0)
        best = self._best(np.where(allowed, total, 0.0), own, top_k)
        return [self._hit(number, float(total[number]), parts) for number in best]

    def _parts(
        self, query: str, now: datetime, boosted_keys: Collection[str], embedded: Embeddings | None
    ) -> Mapping[str, Floats]:
        question = ask(query, now, [language for language, texts in self._texts_in.items() if texts])
        alive = self._alive.values
        matches = self._lexical.matches(question, self._conversations.weights(question), self._conversations.has_role)
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
        if embedded is not None and self._vectors is not None:
            most = float(words.max(initial=0))
            parts["vectors"] = self._vectors.scores(embedded, words) * (VECTORS * (most or 1.0)) * alive
            relevance = words + parts["vectors"]
            shared += self._conversations.shared([[(np.arange(len(alive), dtype=np.int32), parts["vectors"])]])
        parts |= self._conversations.lifts(question, relevance, shared)
        score = relevance + sum(parts[name] for name in parts if name not in {"words", "vectors"})
        stars = self._score_stars.values
        if stars.any():
            parts["importance"] = score * (IMPORTANCE / STARS * stars)
            age = np.nan_to_num(np.maximum(now.timestamp() - self._conversations.times, 0), nan=math.inf)
            parts["recency"] = score * (stars > 0) * (RECENCY * np.exp2(-age / HALF_LIFE))
            score = score + parts["importance"] + parts["recency"]
        boosted_numbers = [number for key in boosted_keys for number in self._keys.get(key, ())]
        if boosted_numbers:
            parts["preference"] = np.zeros(len(score))
            parts["preference"][boosted_numbers] = PREFERENCE
            score = score + parts["preference"]
        confidence = self._confidence.values
        if (confidence < 1).any():
            parts["confidence"] = score * (confidence.astype(np.float64) - 1)
        return parts

    def _allowed(
        self,
        now: datetime,
        kinds: Collection[str] | None,
        since: datetime | None,
        until: datetime | None,
        min_importance: float,
    ) -> Flags:
        allowed = self._alive.values & (self._expires.values > now.timestamp())
        allowed &= self._confidence.values > 0  # the rounded total of such a document may exceed 0
        if kinds is not None:
            allowed &= np.isin(self._kind.values, [self._kinds[kind] for kind in kinds if kind in self._kinds])
        if since is not None:
            allowed &= self._conversations.times >= since.timestamp()
        if until is not None:
            allowed &= self._conversations.times < until.timestamp()
        if min_importance > 0:
            allowed &= self._stars.values >= min(min_importance, STARS + 1)
        return allowed

    def _best(self, total: Floats, own: Floats, top_k: int) -> list[int]:
        # Scores that differ only by the rounding of their sums count as equal.
        total = np.round(total, DECIMALS)
        least = float(np.partition(total, -top_k)[-top_k]) if len(total) > top_k else 0.0
        numbers = np.flatnonzero(total >= least if least > 0 else total > 0)
        scores, times = total[numbers].tolist(), np.nan_to_num(self._conversations.times[numbers]).tolist()
        positions = [self._conversations.position(number) for number in numbers.tolist()]
        own_scores = own[numbers].tolist()
        order = sorted(
            range(len(positions)),
            key=lambda at: (-scores[at], -own_scores[at], -times[at], -positions[at][0], positions[at][1]),
        )
        best: list[int] = numbers[order[:top_k]].tolist()
        return best

    def _hit(self, number: int, score: float, parts: Mapping[str, Floats]) -> DocumentHit:
        shares = {name: share for name in sorted(parts) if (share := float(parts[name][number]))}
        return DocumentHit(self._ids[number] or "", score, shares)


def _check(document: Document) -> None:
    if not document.id:
        raise InvalidArgument("id: expected a non-empty string")
    if not 0 <= document.importance <= STARS:
        raise InvalidArgument(f"importance: expected 0 to {STARS} stars, got {document.importance}")
    if not 0 <= document.confidence <= 1:
        raise InvalidArgument(f"confidence: expected a number from 0 to 1, got {document.confidence}")
    if not -(2**63) <= document.position < 2**63:
        raise InvalidArgument(f"position: expected a signed 64-bit integer, got {document.position}")
    _check_aware({"time": document.time, "expires": document.expires})


def _check_search(top_k: int, times: Mapping[str, datetime | None]) -> None:
    if top_k < 1:
        raise InvalidArgument(f"top_k: expected an integer from 1, got {top_k}")
    _check_aware(times)


def _check_aware(times: Mapping[str, datetime | None]) -> None:
    for name, time in times.items():
        if time is not None and time.tzinfo is None:
            raise InvalidArgument(f"{name}: {time} has no time zone; pass an aware time, such as datetime.now(UTC)")
