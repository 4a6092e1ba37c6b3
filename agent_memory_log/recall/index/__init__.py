"""The index: its documents in a database, and the ranking of the documents that match a question."""

from __future__ import annotations

from agent_memory_log.recall.index.database import IndexLost
from agent_memory_log.recall.index.database_format import FORMAT, IndexFile
from agent_memory_log.recall.index.recall_index import RecallIndex

__all__ = ["FORMAT", "IndexFile", "IndexLost", "RecallIndex"]
