"""Recall: from a question to the texts that answer it, without a model, and better with one.

Everything here works on values in memory: ``Document``s go into a ``RecallIndex``, ``DocumentHit``s come out. Where
documents come from, which are kept warm, and where their vectors are stored is the memory layer's to say.
"""

from __future__ import annotations

from agent_memory_log.errors import InvalidArgument

try:
    from agent_memory_log.recall.documents import Document, DocumentHit
    from agent_memory_log.recall.embedding import Embedded, Embedder, Embeddings, Fixed, embed
    from agent_memory_log.recall.index import RecallIndex
except ModuleNotFoundError as error:
    if (error.name or "").startswith("agent_memory_log"):
        raise
    raise InvalidArgument(
        f"search needs {error.name}, which is not installed: pip install 'agent-memory-log[recall]'"
    ) from error

__all__ = ["Document", "DocumentHit", "Embedded", "Embedder", "Embeddings", "Fixed", "RecallIndex", "embed"]
