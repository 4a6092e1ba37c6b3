"""The in-memory backend: the reference implementation of a store, and a test double.

``open_store("memory:")`` opens a new, empty store. ``open_store("memory:NAME")`` opens the store of that name, which
all handles of the process share. Its data exists until the process ends or ``reset`` is called. The option
``max_event_bytes`` is the size of the largest encoded event in bytes, default 64 MiB.
"""

from agent_memory_log_inmem.backend import backend, reset
from agent_memory_log_inmem.store import MemoryStore, SyncMemoryStore

__all__ = ["MemoryStore", "SyncMemoryStore", "backend", "reset"]
