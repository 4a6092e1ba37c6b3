"""Opens a store of a server on each surface, so that one test covers both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from agent_memory_log import Store, open_store, open_sync_store
from agent_memory_log.conformance.threaded import threaded

KINDS = ("async", "sync")


@asynccontextmanager
async def opened(kind: str, url: str) -> AsyncGenerator[Store]:
    """Open a handle of one of ``KINDS``, and close it at the end. The calls of a synchronous handle run in threads."""
    if kind == "async":
        async with open_store(url) as store:
            yield store
        return
    async with threaded(await asyncio.to_thread(open_sync_store, url)) as store:
        yield store
