"""The asynchronous and the synchronous in-memory store, on the same data."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator

from agent_memory_log.backend_kit import (
    DEFAULT_MAX_EVENT_BYTES,
    Append,
    AsyncSurface,
    SyncSurface,
    check_after,
    check_ids,
)
from agent_memory_log.events.event import Event
from agent_memory_log.store import AppendResult
from agent_memory_log_inmem.data import Follower, MemoryData


class SyncMemoryStore(SyncSurface[MemoryData, MemoryData]):
    """A ``SyncStore`` in the memory of this process."""

    def __init__(self, data: MemoryData | None = None, max_event_bytes: int = DEFAULT_MAX_EVENT_BYTES) -> None:
        """Open a handle on ``data``, by default on new data.

        ``max_event_bytes`` is the size of the largest encoded event, in bytes.
        """
        super().__init__()
        self._data = self._reader = self._writer = MemoryData() if data is None else data
        self._max_event_bytes = max_event_bytes

    def _append(self, append: Append) -> AppendResult:
        return self._data.append(append)

    def follow(self, agent: str, run: str, *, after: int = 0) -> Generator[Event]:
        """See ``Store.follow``."""
        self._check_open()
        check_ids(agent, run)
        check_after(after)
        follower = Follower(after)
        while True:
            self._check_open()
            seen = self._data.changed.count
            event = self._data.next_event(agent, run, follower)
            if event is None:
                self._data.changed.wait(seen, follower.patience())
            else:
                yield event

    def reset(self) -> None:
        """Empty the data of this store, as if its runs had never existed. Meant for tests."""
        self._check_open()
        self._data.reset()

    def close(self) -> None:
        """See ``Store.aclose``."""
        if self._mark_closed():
            self._data.changed.notify()


class MemoryStore(AsyncSurface[MemoryData, MemoryData]):
    """A ``Store`` in the memory of this process."""

    def __init__(self, data: MemoryData | None = None, max_event_bytes: int = DEFAULT_MAX_EVENT_BYTES) -> None:
        """Open a handle on ``data``, by default on new data.

        ``max_event_bytes`` is the size of the largest encoded event, in bytes.
        """
        super().__init__()
        self._data = self._reader = self._writer = MemoryData() if data is None else data
        self._max_event_bytes = max_event_bytes

    async def _append(self, append: Append) -> AppendResult:
        return self._data.append(append)

    async def follow(self, agent: str, run: str, *, after: int = 0) -> AsyncGenerator[Event]:
        """See ``Store.follow``."""
        self._check_open()
        check_ids(agent, run)
        check_after(after)
        follower = Follower(after)
        while True:
            self._check_open()
            seen = self._data.changed.count
            event = self._data.next_event(agent, run, follower)
            if event is None:
                await self._data.changed.wait_async(seen, follower.patience())
            else:
                yield event

    async def reset(self) -> None:
        """Empty the data of this store, as if its runs had never existed. Meant for tests."""
        self._check_open()
        self._data.reset()

    async def aclose(self) -> None:
        """See ``Store.aclose``."""
        if self._mark_closed():
            self._data.changed.notify()
            self._check_loop()
