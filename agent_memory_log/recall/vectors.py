"""Stores the vectors of documents and computes their similarity to a question.

With token vectors it uses late interaction (MaxSim): it takes the most similar document token for each token of the
question, and averages these similarities. To bound the cost, an index with more than ``EXAMINED`` documents compares
tokens only in the best documents by pooled vector and by words. There is no approximate index.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from agent_memory_log.recall.columns import Floats, Numbers
from agent_memory_log.recall.embedding import Embeddings, Vectors

EXAMINED: Final = 500
"""The number of best documents by pooled vector, and of best documents by words, that are compared by tokens."""


class VectorIndex:
    """The vectors of one model, by document number. Not safe for concurrent use by several threads.

    A document needs 4 bytes for each dimension. Each token vector needs 2 bytes for each dimension.
    """

    def __init__(self, dimension: int) -> None:
        """Create an empty index for vectors of ``dimension`` numbers."""
        self.dimension = dimension
        self._pooled: Vectors = np.zeros((16, dimension), np.float32)
        self._rows: list[int] = []
        self._row_of: dict[int, int] = {}
        self._tokens: dict[int, NDArray[np.float16]] = {}

    def __len__(self) -> int:
        return len(self._row_of)

    def __contains__(self, number: int) -> bool:
        return number in self._row_of

    def put(self, number: int, pooled: Vectors, tokens: Vectors | None) -> None:
        """Set the vectors of a document; each must have length 1. ``tokens`` is None if there are no token vectors."""
        row = self._row_of.get(number)
        if row is None:
            row = self._row_of[number] = len(self._rows)
            self._rows.append(number)
            if row == len(self._pooled):
                self._pooled = np.concatenate([self._pooled, np.zeros_like(self._pooled)])
        self._pooled[row] = pooled
        if tokens is not None:
            self._tokens[number] = tokens.astype(np.float16)

    def remove(self, number: int) -> None:
        """Remove the vectors of a document, if it has any. The last row moves to the free row."""
        row = self._row_of.pop(number, None)
        if row is None:
            return
        last = self._rows.pop()
        if last != number:
            self._pooled[row] = self._pooled[len(self._rows)]
            self._rows[row] = last
            self._row_of[last] = row
        self._pooled[len(self._rows)] = 0
        self._tokens.pop(number, None)

    def renumbered(self, numbers: Mapping[int, int]) -> VectorIndex:
        """Return an index with new document numbers. ``numbers`` maps old to new; other documents are left out."""
        remaining = VectorIndex(self.dimension)
        for row, old in enumerate(self._rows):
            if (number := numbers.get(old)) is not None:
                tokens = self._tokens.get(old)
                remaining.put(number, self._pooled[row], None if tokens is None else tokens.astype(np.float32))
        return remaining

    def scores(self, question: Embeddings, words: Floats) -> Floats:
        """Return the vector score of each document from 0 to 1, by document number.

        The document most similar to the question has 1. A document with average similarity, or less, has 0.

        Args:
            question: The vectors of one text.
            words: The score of each document by its words.
        """
        scores = np.zeros(len(words))
        if not self._rows:
            return scores
        rows = np.asarray(self._rows, np.int32)
        pooled = self._pooled[: len(rows)] @ question.pooled[0]
        if question.tokens is None or not len(question.tokens[0]) or not self._tokens:
            scores[rows] = _above_average(pooled)
            return scores
        examined = [
            number for number in self._best(rows, pooled, words) if number in self._tokens and len(self._tokens[number])
        ]
        if examined:
            scores[examined] = _above_average(self._late(question.tokens[0], examined))
        return scores

    @staticmethod
    def _best(rows: Numbers, pooled: Vectors, words: Floats) -> list[int]:
        if len(rows) <= EXAMINED:
            all_documents: list[int] = rows.tolist()
            return all_documents
        by_vector = rows[np.argpartition(-pooled, EXAMINED)[:EXAMINED]]
        by_words = rows[np.argpartition(-words[rows], EXAMINED)[:EXAMINED]]
        best: list[int] = np.union1d(by_vector, by_words).tolist()
        return best

    def _late(self, question: Vectors, numbers: Sequence[int]) -> Floats:
        tokens = [self._tokens[number] for number in numbers]
        starts = np.cumsum([0, *(len(vectors) for vectors in tokens[:-1])])
        similarity = question @ np.concatenate(tokens).astype(np.float32).T
        closest: Floats = np.maximum.reduceat(similarity, starts, axis=1).mean(axis=0, dtype=np.float64)
        return closest


def _above_average(similarity: NDArray[np.floating]) -> Floats:
    mean, most = float(similarity.mean()), float(similarity.max())
    if most - mean < 1e-6:  # noqa: PLR2004  # the differences are rounding errors
        return np.zeros(len(similarity))
    return np.clip((similarity.astype(np.float64) - mean) / (most - mean), 0, None)
