"""The entry point of the backend: opens the stores of servers."""

from __future__ import annotations

from agent_memory_log.backend_kit import StoreUrl
from agent_memory_log.service.client.address import read_address
from agent_memory_log.service.client.store import RemoteStore
from agent_memory_log.service.client.sync import SyncRemoteStore


class _RemoteBackend:
    async def open_store(self, url: StoreUrl) -> RemoteStore:
        return await RemoteStore.open(read_address(url))

    def open_sync_store(self, url: StoreUrl) -> SyncRemoteStore:
        return SyncRemoteStore.open(read_address(url))


backend = _RemoteBackend()
"""The entry point for ``https:`` and ``http:`` URLs."""
