"""Logs that exist on SQLite and on MongoDB: our own two stores, and the sessions of OpenAI's Agents SDK."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

from agent_memory_log import Event, Store, SyncStore, open_store, open_sync_store
from benchmarks.peers.contract import AsyncLog, Log
from benchmarks.peers.messages import openai_item


class OwnLog:
    """A run of our synchronous store."""

    def __init__(self, store: SyncStore) -> None:
        self._store = store

    def messages(self, events: Sequence[Event]) -> list[Event]:
        """See ``Log.messages``."""
        return list(events)

    def append_each(self, batches: Sequence[list[Event]]) -> None:
        """See ``Log.append_each``."""
        for batch in batches:
            self._store.append_events("agent", "run", *batch)

    def load(self) -> int:
        """See ``Log.load``."""
        return len(self._store.load_run("agent", "run").log)


class OwnAsyncLog(AsyncLog):
    """A run of our asynchronous store."""

    def __init__(self, runner: asyncio.Runner, store: Store) -> None:
        super().__init__(runner)
        self._store = store

    def messages(self, events: Sequence[Event]) -> list[Event]:
        """See ``Log.messages``."""
        return list(events)

    async def append(self, batch: list[Event]) -> None:
        """See ``AsyncLog.append``."""
        await self._store.append_events("agent", "run", *batch)

    async def count(self) -> int:
        """See ``AsyncLog.count``."""
        return len((await self._store.load_run("agent", "run")).log)


@contextmanager
def open_own(url: str) -> Generator[Log]:
    """Yield a log in our synchronous store."""
    with open_sync_store(url) as store:
        yield OwnLog(store)


@contextmanager
def open_own_async(url: str) -> Generator[Log]:
    """Yield a log in our asynchronous store."""

    async def opened() -> Store:
        return await open_store(url).__aenter__()

    with asyncio.Runner() as runner:
        store = runner.run(opened())
        try:
            yield OwnAsyncLog(runner, store)
        finally:
            runner.run(store.aclose())


class OpenAiLog(AsyncLog):
    """A session of OpenAI's Agents SDK, on SQLite or on MongoDB."""

    def __init__(self, runner: asyncio.Runner, session: Any) -> None:  # noqa: ANN401  # it may not be installed
        super().__init__(runner)
        self._session = session

    def messages(self, events: Sequence[Event]) -> list[dict[str, Any]]:
        """See ``Log.messages``."""
        return [openai_item(event) for event in events]

    async def append(self, batch: list[dict[str, Any]]) -> None:
        """See ``AsyncLog.append``."""
        await self._session.add_items(batch)

    async def count(self) -> int:
        """See ``AsyncLog.count``."""
        return len(await self._session.get_items())
