"""The recall index: documents go in, a question comes, hits come out. Everything it knows is in memory.

Words and vectors say what a text is about; a conversation lifts their sum; stars, age, confidence and the caller's
policy have the last word.

The conversation lifts the sum of both scores, because evidence can be next to a match by words or by vectors.
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
"""The weight of vectors beside words: the text most like the question has as much by them as the best one by words."""

IMPORTANCE: Final = 0.2
"""What a text of five stars gains, as a share of what it has; fewer stars, less."""

RECENCY: Final = 0.2
"""What a rated text of this moment gains, as a share of what it has; half of that ``HALF_LIFE`` later."""

HALF_LIFE: Final = 30 * 86_400.0
"""Seconds in which the gain by recency halves: a month."""

PREFERENCE: Final = 0.5
"""What a preference gains whose key the caller boosts, whether it shares a word with the question or not."""

STARS: Final = 5
"""The most stars there are."""

ALIKE: Final = 9
"""Digits behind the point to which scores are compared."""

_WORTH_REBUILDING: Final = 256
"""Removed documents below which an index is not rebuilt."""


class RecallIndex:
    """The documents of one subject. Not for several threads at once.

    Adding and removing cost what the document holds; when more were removed than are left, the index is
    rebuilt without them. It finds what a new index of the documents left would find.
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
        self._lifting = Column(np.float32)
        self._confidence = Column(np.float32)
        self._expires = Column(np.float64)
        self._lexical = LexicalIndex()
        self._conversations = Conversations()
        self._vectors: VectorIndex | None = None
        self._model = ""

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, document: Document) -> None:
        """Add a document, in place of the one with its id if there is one.

        Raises ``InvalidArgument``, which names the field, and changes nothing then.
        """
        _check(document)
        if document.id in self._numbers:
            self.remove(document.id)
        number = len(self._ids)
        if number >= MOST_DOCUMENTS:
            raise InvalidArgument(f"an index holds at most {MOST_DOCUMENTS:,} documents: search fewer runs at a time")
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
        self._lifting.append(0 if document.lasting else document.importance)
        self._confidence.append(document.confidence)
        self._expires.append(math.inf if document.expires is None else document.expires.timestamp())
        if document.key:
            self._keys.setdefault(document.key, {})[number] = None
            self._key_of[number] = document.key

    def remove(self, document_id: str) -> None:
        """Remove a document and its vectors; nothing happens when there is none with this id."""
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
        kept = np.flatnonzero(self._alive.values).tolist()
        anew = {old: number for number, old in enumerate(kept)}
        self._ids = [self._ids[number] for number in kept]
        self._numbers = {document_id: anew[number] for document_id, number in self._numbers.items()}
        self._languages = [self._languages[number] for number in kept]
        self._keys = {key: {anew[number]: None for number in numbers} for key, numbers in self._keys.items()}
        self._key_of = {anew[number]: key for number, key in self._key_of.items()}
        self._alive = self._alive.keeping(kept)
        self._kind = self._kind.keeping(kept)
        self._stars = self._stars.keeping(kept)
        self._lifting = self._lifting.keeping(kept)
        self._confidence = self._confidence.keeping(kept)
        self._expires = self._expires.keeping(kept)
        self._lexical = self._lexical.keeping(kept)
        self._conversations = self._conversations.keeping(kept)
        if self._vectors is not None:
            self._vectors = self._vectors.renumbered(anew)

    def use_model(self, model: str, dimension: int) -> None:
        """Hold vectors of this model from now on; those of another are dropped, for the two cannot be compared."""
        if self._vectors is None or (model, dimension) != (self._model, self._vectors.dimension):
            self._model = model
            self._vectors = VectorIndex(dimension)

    def put_vectors(self, ids: Iterable[str], embeddings: Embeddings) -> None:
        """Give documents the vectors of the model in use: a row of ``embeddings`` each; unknown ids are passed over.

        Raises ``InvalidArgument`` when no model is in use or the vectors are not of its dimension.
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
            raise InvalidArgument("the index has no model: call use_model before giving it vectors")
        if embeddings.pooled.ndim != 2 or embeddings.pooled.shape[1] != self._vectors.dimension:  # noqa: PLR2004  # rows
            raise InvalidArgument(
                f"vectors of shape {embeddings.pooled.shape} for {self._model} of dimension {self._vectors.dimension}"
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
        """The documents that answer ``query`` best, the best first.

        Of two alike the one that has more by itself, then the newer, then the later in its session, then by id.

        ``now`` is when it is asked: "yesterday" counts from it; what has expired by then is not found. ``kinds``,
        ``since`` (inclusive), ``until`` (exclusive) and ``min_importance`` (stars) choose; what has no time is in no
        span. ``embedded`` is the query's own vectors, by the model in use. A query without a word finds only what
        ``boost_preferences``, a set of keys, lets in. Raises ``InvalidArgument``.
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
        self, query: str, now: datetime, boosted: Collection[str], embedded: Embeddings | None
    ) -> Mapping[str, Floats]:
        asked = ask(query, now, [language for language, texts in self._texts_in.items() if texts])
        alive = self._alive.values
        matches = self._lexical.matches(asked, self._conversations.weights(asked))
        words = np.zeros(len(alive))
        for documents, scores in chain.from_iterable(matches):
            if asked.compounds:
                np.add.at(words, documents, scores)  # several compounds may stand in one text
            else:
                words[documents] += scores
        words *= alive
        parts = {"words": words}
        about = words
        shared = self._conversations.shared(matches)
        if embedded is not None and self._vectors is not None:
            most = float(words.max(initial=0))
            parts["vectors"] = self._vectors.likeness(embedded, words) * (VECTORS * (most or 1.0)) * alive
            about = words + parts["vectors"]
            shared += self._conversations.shared([[(np.arange(len(alive), dtype=np.int32), parts["vectors"])]])
        parts |= self._conversations.lifts(asked, about, shared)
        have = about + sum(parts[name] for name in parts if name not in {"words", "vectors"})
        stars = self._lifting.values
        if stars.any():
            parts["importance"] = have * (IMPORTANCE / STARS * stars)
            age = np.nan_to_num(np.maximum(now.timestamp() - self._conversations.times, 0), nan=math.inf)
            parts["recency"] = have * (stars > 0) * (RECENCY * np.exp2(-age / HALF_LIFE))
            have = have + parts["importance"] + parts["recency"]
        chosen = [number for key in boosted for number in self._keys.get(key, ())]
        if chosen:
            parts["preference"] = np.zeros(len(have))
            parts["preference"][chosen] = PREFERENCE
            have = have + parts["preference"]
        confidence = self._confidence.values
        if (confidence < 1).any():
            parts["confidence"] = have * (confidence.astype(np.float64) - 1)
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
        allowed &= self._confidence.values > 0  # what is nothing but for rounding is nothing
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
        # What differs by rounding alone is alike: the sums of a question and of its answer come out the same.
        total = np.round(total, ALIKE)
        least = float(np.partition(total, -top_k)[-top_k]) if len(total) > top_k else 0.0
        found = np.flatnonzero(total >= least if least > 0 else total > 0)
        scores, times = total[found].tolist(), np.nan_to_num(self._conversations.times[found]).tolist()
        places = [self._conversations.place(number) for number in found.tolist()]
        alone = own[found].tolist()
        order = sorted(
            range(len(places)), key=lambda at: (-scores[at], -alone[at], -times[at], -places[at][0], places[at][1])
        )
        best: list[int] = found[order[:top_k]].tolist()
        return best

    def _hit(self, number: int, score: float, parts: Mapping[str, Floats]) -> DocumentHit:
        shares = {name: share for name in sorted(parts) if (share := float(parts[name][number]))}
        return DocumentHit(self._ids[number] or "", score, shares)


def _check(document: Document) -> None:
    if not document.id:
        raise InvalidArgument("id: a document needs one")
    if not 0 <= document.importance <= STARS:
        raise InvalidArgument(f"importance: {document.importance} is not between 0 and {STARS} stars")
    if not 0 <= document.confidence <= 1:
        raise InvalidArgument(f"confidence: {document.confidence} is not between 0 and 1")
    if not -(2**63) <= document.position < 2**63:
        raise InvalidArgument(f"position: {document.position} does not fit into 64 bits")
    _check_aware({"time": document.time, "expires": document.expires})


def _check_search(top_k: int, times: Mapping[str, datetime | None]) -> None:
    if top_k < 1:
        raise InvalidArgument(f"top_k: {top_k} is not at least 1")
    _check_aware(times)


def _check_aware(times: Mapping[str, datetime | None]) -> None:
    for name, time in times.items():
        if time is not None and time.tzinfo is None:
            raise InvalidArgument(f"{name}: {time} has no time zone; give an aware time, such as datetime.now(UTC)")
