"""The in-memory backend: the reference implementation of the store's promises, and a test double.

``open_store("memory:")`` is a new, empty store; ``memory:NAME`` is one that every handle of this process shares. Its
data lives as long as the process, or until ``reset``. Options: ``max_event_bytes`` (default 64 MiB).
"""

from agent_memory_log_inmem.backend import backend, reset
from agent_memory_log_inmem.store import MemoryStore, SyncMemoryStore

__all__ = ["MemoryStore", "SyncMemoryStore", "backend", "reset"]
