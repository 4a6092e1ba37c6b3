"""The vectors of documents, and how like a question each document is by them.

Late interaction: each token of the question looks for the token it is most like, and a document is as like the question
as these are on average (MaxSim). What it costs is bounded: beyond ``EXAMINED`` documents only the best ones by pooled
vector and by words are looked at token by token. All is exact: there is no approximate index to keep.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from agent_memory_log.recall.columns import Floats, Numbers
from agent_memory_log.recall.embedding import Embeddings, Vectors

EXAMINED: Final = 500
"""Documents compared token by token: as many of the best by pooled vector, and as many of the best by words."""


class VectorIndex:
    """The vectors of one model, of a fixed ``dimension``, by document number. Not for several threads at once.

    A document needs 4 bytes a dimension, and with token vectors 2 more for each of its tokens and dimensions.
    """

    def __init__(self, dimension: int) -> None:
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
        """Give a document its vectors, of length 1, in place of those it has."""
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
        """Drop a document's vectors, if it has any: the last row takes its place."""
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
        """The same with the documents numbered anew; those without a new number are left out."""
        kept = VectorIndex(self.dimension)
        for row, old in enumerate(self._rows):
            if (number := numbers.get(old)) is not None:
                tokens = self._tokens.get(old)
                kept.put(number, self._pooled[row], None if tokens is None else tokens.astype(np.float32))
        return kept

    def likeness(self, question: Embeddings, words: Floats) -> Floats:
        """How much each document stands out by its vectors, 0 to 1, by number.

        1 is the one most like the question, 0 one no more like it than the average. ``question`` is of one text;
        ``words`` are the scores of the documents by their words.
        """
        likeness = np.zeros(len(words))
        if not self._rows:
            return likeness
        rows = np.asarray(self._rows, np.int32)
        pooled = self._pooled[: len(rows)] @ question.pooled[0]
        if question.tokens is None or not len(question.tokens[0]) or not self._tokens:
            likeness[rows] = _standing_out(pooled)
            return likeness
        examined = [
            number
            for number in self._rows_of_best(rows, pooled, words)
            if number in self._tokens and len(self._tokens[number])
        ]
        if examined:
            likeness[examined] = _standing_out(self._late(question.tokens[0], examined))
        return likeness

    @staticmethod
    def _rows_of_best(rows: Numbers, pooled: Vectors, words: Floats) -> list[int]:
        if len(rows) <= EXAMINED:
            every: list[int] = rows.tolist()
            return every
        by_vector = rows[np.argpartition(-pooled, EXAMINED)[:EXAMINED]]
        by_words = rows[np.argpartition(-words[rows], EXAMINED)[:EXAMINED]]
        best: list[int] = np.union1d(by_vector, by_words).tolist()
        return best

    def _late(self, asked: Vectors, numbers: Sequence[int]) -> Floats:
        tokens = [self._tokens[number] for number in numbers]
        starts = np.cumsum([0, *(len(one) for one in tokens[:-1])])
        alike = asked @ np.concatenate(tokens).astype(np.float32).T
        closest: Floats = np.maximum.reduceat(alike, starts, axis=1).mean(axis=0, dtype=np.float64)
        return closest


def _standing_out(alike: NDArray[np.floating]) -> Floats:
    mean, most = float(alike.mean()), float(alike.max())
    if most - mean < 1e-6:  # noqa: PLR2004  # all are alike: rounding decides nothing
        return np.zeros(len(alike))
    return np.clip((alike.astype(np.float64) - mean) / (most - mean), 0, None)
