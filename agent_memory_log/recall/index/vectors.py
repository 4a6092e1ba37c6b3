"""Stores the vectors of documents and computes their similarity to a question.

With token vectors it uses late interaction (MaxSim): it takes the most similar document token for each token of the
question, and averages these similarities. Rare words weigh more if the model says which word a token is part of. To
bound the cost, an index with more than ``EXAMINED`` documents compares tokens only in the best documents by pooled
vector and by words. There is no approximate index.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from agent_memory_log.recall.embedding import Embeddings, Vectors
from agent_memory_log.recall.index.columns import BLOCK, Columns, Floats, Numbers
from agent_memory_log.recall.index.database import Database
from agent_memory_log.recall.words import fold, words

EXAMINED: Final = 500
"""The number of best documents by pooled vector, and of best documents by words, that are compared by tokens."""

_TOKENS: Final = 2
"""The value of the property ``vectors`` of a document with token vectors. Without them it is 1."""


class VectorIndex:
    """The vectors of one model, by document number. Not safe for concurrent use by several threads.

    A document needs 4 bytes for each dimension. Each token vector needs 2 bytes for each dimension. The pooled vectors
    are in memory from the first search with vectors on; the token vectors are in the database.
    """

    def __init__(self, database: Database, columns: Columns) -> None:
        self._database = database
        self._columns = columns
        self._pooled: Vectors | None = None
        self._outdated: set[int] = set()

    @property
    def dimension(self) -> int:
        """The dimension of the vectors, or 0 if there is no model."""
        return self._database.facts.dimension

    @property
    def size(self) -> int:
        """The bytes of the vectors in memory."""
        return 0 if self._pooled is None else self._pooled.nbytes

    def use_model(self, model: str, dimension: int) -> None:
        """Set the model of the vectors, and remove all vectors."""
        facts = self._database.facts
        facts.model, facts.dimension = model, dimension
        for number in np.flatnonzero(self._columns["vectors"]).tolist():
            self.remove(number)
        self.forget()

    def forget(self) -> None:
        """Read all vectors from the database when they are needed next."""
        self._pooled = None
        self._outdated.clear()

    def outdate(self, block: int) -> None:
        """Read a block of documents from the database when it is needed next, because another process changed it."""
        self._outdated.add(block)

    def put(self, number: int, pooled: Vectors, tokens: Vectors | None) -> None:
        """Set the vectors of a document; each must have length 1. ``tokens`` is None if there are no token vectors."""
        token_data = None if tokens is None else tokens.astype(np.float16).tobytes()
        self.put_data(number, pooled.astype(np.float32).tobytes(), token_data)

    def data_of(self, number: int) -> tuple[bytes, bytes | None] | None:
        """Return the stored vectors of a document for ``put_data``, or None if it has none."""
        kind = self._columns["vectors"][number]
        if not kind:
            return None
        return self._database.read("pooled", number), self._database.read("tokens", number) if kind == _TOKENS else None

    def put_data(self, number: int, pooled: bytes, tokens: bytes | None) -> None:
        """Set the vectors of a document from their stored form."""
        self._database.write("pooled", number, pooled)
        if tokens is None:
            self._database.delete("tokens", number)
        else:
            self._database.write("tokens", number, tokens)
        self._columns.put("vectors", number, 1 if tokens is None else _TOKENS)
        self._outdated.add(number // BLOCK)

    def remove(self, number: int) -> None:
        """Remove the vectors of a document, if it has any."""
        if self._columns["vectors"][number]:
            self._database.delete("pooled", number)
            self._database.delete("tokens", number)
            self._columns.put("vectors", number, 0)

    def _read_pooled(self) -> Vectors:
        """Return the pooled vectors by document number. Rows of documents without vectors have any content."""
        count = self._columns.count
        if self._pooled is None:
            self._pooled = np.zeros((count, self.dimension), np.float32)
            self._outdated = set(range(self._columns.blocks))
        elif len(self._pooled) < count:
            room = np.zeros((max(count, 2 * len(self._pooled)), self.dimension), np.float32)
            room[: len(self._pooled)] = self._pooled
            self._pooled = room
        has_vectors = self._columns["vectors"]
        for block in sorted(self._outdated):
            first = block * BLOCK
            rows = self._database.read_range("pooled", first, first + BLOCK - 1)
            numbers = [number for number, _ in rows]
            if numbers != (first + np.flatnonzero(has_vectors[first : first + BLOCK])).tolist() or any(
                len(data) != 4 * self.dimension for _, data in rows
            ):
                raise self._database.damaged(f"vectors of block {block} are missing")
            if rows:
                self._pooled[numbers] = np.frombuffer(b"".join([data for _, data in rows]), np.float32).reshape(
                    len(rows), self.dimension
                )
        self._outdated.clear()
        return self._pooled[:count]

    def scores(self, question: Embeddings, by_words: Floats, weights: Floats | None = None) -> Floats:
        """Return the vector score of each document from 0 to 1, by document number.

        The document most similar to the question has 1. A document with average similarity, or less, has 0.

        Args:
            question: The vectors of one text.
            by_words: The score of each document by its words.
            weights: The weight of each token of the question, or None for equal weights.
        """
        scores = np.zeros(len(by_words))
        kinds = self._columns["vectors"]
        rows = np.flatnonzero(kinds).astype(np.int32)
        if not len(rows):
            return scores
        pooled = (self._read_pooled() @ question.pooled[0])[rows]
        if question.tokens is None or not len(question.tokens[0]) or not (kinds == _TOKENS).any():
            scores[rows] = _above_average(pooled)
            return scores
        examined = [number for number in self._best(rows, pooled, by_words) if kinds[number] == _TOKENS]
        tokens = [self._tokens(number) for number in examined]
        examined = [number for number, some in zip(examined, tokens, strict=True) if len(some)]
        if examined:
            scores[examined] = _above_average(
                _late(question.tokens[0], [some for some in tokens if len(some)], weights)
            )
        return scores

    def _tokens(self, number: int) -> NDArray[np.float16]:
        data = self._database.read("tokens", number)
        if len(data) % (2 * self.dimension):
            raise self._database.damaged(f"the token vectors of document {number} have {len(data)} bytes")
        return np.frombuffer(data, np.float16).reshape(-1, self.dimension)

    @staticmethod
    def _best(rows: Numbers, pooled: Vectors, scores: Floats) -> list[int]:
        if len(rows) <= EXAMINED:
            all_documents: list[int] = rows.tolist()
            return all_documents
        by_vector = rows[np.argpartition(-pooled, EXAMINED)[:EXAMINED]]
        by_words = rows[np.argpartition(-scores[rows], EXAMINED)[:EXAMINED]]
        best: list[int] = np.union1d(by_vector, by_words).tolist()
        return best


def token_weights(question: Embeddings, rarities: Mapping[str, float]) -> Floats | None:
    """Return the weight of each token of a question: the rarity of its word, and 0 for a function word.

    Returns None for equal weights: the model does not give the words of its tokens, or all words are function words.
    """
    if question.words is None:
        return None
    weights = np.array(
        [max((rarities.get(part, 0.0) for part in words(fold(word))), default=0.0) for word in question.words[0]]
    )
    return weights if weights.any() else None


def _late(question: Vectors, tokens: Sequence[NDArray[np.float16]], weights: Floats | None) -> Floats:
    starts = np.cumsum([0, *(len(vectors) for vectors in tokens[:-1])])
    similarity = question @ np.concatenate(tokens).astype(np.float32).T
    closest = np.maximum.reduceat(similarity, starts, axis=1).astype(np.float64)
    average: Floats = np.average(closest, axis=0, weights=weights)
    return average


def _above_average(similarity: NDArray[np.floating]) -> Floats:
    mean, most = float(similarity.mean()), float(similarity.max())
    if most - mean < 1e-6:  # noqa: PLR2004  # the differences are rounding errors
        return np.zeros(len(similarity))
    return np.clip((similarity.astype(np.float64) - mean) / (most - mean), 0, None)
