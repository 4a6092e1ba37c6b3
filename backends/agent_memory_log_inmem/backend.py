"""The entry point of the backend: converts URLs to named data and opens stores."""

from __future__ import annotations

from agent_memory_log.backend_kit import DEFAULT_MAX_EVENT_BYTES, StoreUrl
from agent_memory_log_inmem.data import MemoryData
from agent_memory_log_inmem.store import MemoryStore, SyncMemoryStore

_data_by_name: dict[str, MemoryData] = {}


class _MemoryBackend:
    async def open_store(self, url: StoreUrl) -> MemoryStore:
        return MemoryStore(*_data_and_limit(url))

    def open_sync_store(self, url: StoreUrl) -> SyncMemoryStore:
        return SyncMemoryStore(*_data_and_limit(url))


backend = _MemoryBackend()
"""The entry point for ``memory:`` URLs."""


def _data_and_limit(url: StoreUrl) -> tuple[MemoryData, int]:
    limit = url.number("max_event_bytes", DEFAULT_MAX_EVENT_BYTES)
    url.finish()
    data = _data_by_name.setdefault(url.location, MemoryData()) if url.location else MemoryData()
    return data, limit


def reset(name: str) -> None:
    """Empty the store ``memory:NAME``, as if its runs had never existed. Open handles stay open. Meant for tests."""
    if name in _data_by_name:
        _data_by_name[name].reset()
