"""Recall: finds the texts that answer a question. It works without an embedding model, and finds more with one.

It works on values in memory only: add ``Document``s to a ``RecallIndex``, search, and receive ``DocumentHit``s. The
memory layer decides which documents it indexes, which indexes it keeps, and where it stores vectors.
"""

from __future__ import annotations

from agent_memory_log.errors import InvalidArgument

try:
    from agent_memory_log.recall.documents import Document, DocumentHit
    from agent_memory_log.recall.embedding import Embedded, Embedder, Embeddings, Fixed, embed
    from agent_memory_log.recall.index import IndexFile, IndexLost, RecallIndex
except ModuleNotFoundError as error:
    if (error.name or "").startswith("agent_memory_log"):
        raise
    raise InvalidArgument(
        f"search needs {error.name}, which is not installed: pip install 'agent-memory-log[recall]'"
    ) from error

__all__ = [
    "Document",
    "DocumentHit",
    "Embedded",
    "Embedder",
    "Embeddings",
    "Fixed",
    "IndexFile",
    "IndexLost",
    "RecallIndex",
    "embed",
]
