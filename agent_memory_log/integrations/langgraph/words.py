"""Searches the items of a LangGraph store by their words, with this library's recall."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from langgraph.store.base import SearchItem

from agent_memory_log.recall import Document, RecallIndex


class Words:
    """An index of the texts of items. Not safe for several threads."""

    def __init__(self) -> None:
        self._index = RecallIndex()
        self._counts: dict[tuple[tuple[str, ...], str], int] = {}

    def put(self, namespace: tuple[str, ...], key: str, texts: Sequence[str], time: datetime) -> None:
        """Set the texts of an item."""
        self.remove(namespace, key)
        for number, text in enumerate(texts):
            self._index.add(Document(id=_document_id(namespace, key, number), text=text, time=time, lasting=True))
        self._counts[namespace, key] = len(texts)

    def remove(self, namespace: tuple[str, ...], key: str) -> None:
        """Remove the texts of an item."""
        for number in range(self._counts.pop((namespace, key), 0)):
            self._index.remove(_document_id(namespace, key, number))

    def search(self, query: str, items: Sequence[SearchItem], now: datetime) -> list[SearchItem]:
        """Return those items that match a question, each with the score of its best text, the best first."""
        hits = self._index.search(query, now=now, top_k=max(1, len(self._index)))
        scores = {hit.id: hit.score for hit in hits}
        for item in items:
            names = range(self._counts.get((item.namespace, item.key), 0))
            item.score = max(
                (scores.get(_document_id(item.namespace, item.key, number), 0.0) for number in names), default=0.0
            )
        return sorted((item for item in items if item.score), key=lambda item: item.score or 0.0, reverse=True)


def _document_id(namespace: tuple[str, ...], key: str, number: int) -> str:
    # A label has no point, so the parts of the id are clear.
    return ".".join([*namespace, str(number), key])
