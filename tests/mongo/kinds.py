"""Opens a store on each kind of client, so that one test covers all of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import pymongo
from motor.motor_asyncio import AsyncIOMotorClient

from agent_memory_log import Store, open_store, open_sync_store
from agent_memory_log.conformance.threaded import threaded
from agent_memory_log_mongo import MongoStore, Settings
from tests.mongo.server import with_database
from tests.waiting import PATIENCE

KINDS = ("async", "sync", "motor")
CLOSING_SECONDS = 2


@asynccontextmanager
async def opened(kind: str, uri: str, *, timeout: float = 2 * PATIENCE) -> AsyncGenerator[Store]:
    """Open a handle on the database of ``uri``, and close it at the end of the block.

    Args:
        kind: The kind of client: one of ``KINDS``. The calls of a synchronous handle run in threads.
        uri: The URI of the database.
        timeout: The limit for each call, in seconds. By default, a call outlasts every wait of a test.
    """
    database = urlsplit(uri).path[1:]
    if kind == "motor":
        client: AsyncIOMotorClient[dict[str, Any]] = AsyncIOMotorClient(uri)
        try:
            async with await MongoStore.open(client, database, Settings(timeout_seconds=timeout)) as store:
                yield store
        finally:
            # Without this limit, the client would wait half a minute for a server that does not respond.
            with pymongo.timeout(CLOSING_SECONDS):
                client.close()
        return
    url = with_database(uri, database, timeoutMS=round(timeout * 1000))
    if kind == "async":
        async with open_store(url) as store:
            yield store
        return
    async with threaded(await asyncio.to_thread(open_sync_store, url)) as synchronous:
        yield synchronous
