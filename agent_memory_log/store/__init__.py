"""The ``Store`` protocol, its synchronous twin and their results."""

from __future__ import annotations

from agent_memory_log.store.protocols import Store, SyncStore
from agent_memory_log.store.results import (
    MAX_FIRST_SEQ,
    AppendResult,
    Erasure,
    Erasures,
    ExpireResult,
    Flaw,
    RunHead,
    RunInfo,
    RunPage,
)

__all__ = [
    "MAX_FIRST_SEQ",
    "AppendResult",
    "Erasure",
    "Erasures",
    "ExpireResult",
    "Flaw",
    "RunHead",
    "RunInfo",
    "RunPage",
    "Store",
    "SyncStore",
]
