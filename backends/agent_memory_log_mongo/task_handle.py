"""The base class of the asynchronous store: a handle whose calls are awaited."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Protocol, TypeVar, cast

import pymongo
from pymongo import AsyncMongoClient, MongoClient

from agent_memory_log.backend_kit import AsyncHandle, ChangeSignal
from agent_memory_log.errors import InvalidArgument
from agent_memory_log_mongo.engine.call import Call
from agent_memory_log_mongo.engine.change_stream import PATIENCE_SECONDS
from agent_memory_log_mongo.engine.database import OpenDatabase
from agent_memory_log_mongo.engine.surface import Surface
from agent_memory_log_mongo.settings import Settings

_T = TypeVar("_T")


class Client(Protocol):
    """The methods of ``AsyncMongoClient`` and ``AsyncIOMotorClient`` that this package uses."""

    def __getitem__(self, name: str, /) -> Any:  # noqa: ANN401  # a database of either driver
        ...

    def close(self) -> Awaitable[None] | None:
        """Close all connections. Only pymongo's client returns an awaitable."""
        ...


class Handle(AsyncHandle):
    """A handle that runs its operations in the caller's task."""

    def __init__(self, client: Client, database: str, settings: Settings, *, owns_client: bool) -> None:
        """Raise ``InvalidArgument`` if the client has the wrong type or the database name is invalid."""
        super().__init__()
        if isinstance(client, MongoClient):
            raise InvalidArgument(
                f"{type(self).__name__} takes pymongo's AsyncMongoClient or Motor's AsyncIOMotorClient, got a "
                "MongoClient; use SyncMongoStore for it"
            )
        self._client = client
        self._owns_client = owns_client
        self._is_motor = not isinstance(client, AsyncMongoClient)
        self._closing: asyncio.Future[None] | None = None
        self._database = OpenDatabase(client, database, settings, _TASKS)

    async def _run(self, operation: Callable[[Call], Awaitable[_T]]) -> _T:
        self._check_open()
        return await operation(Call(self._database, self._check_open))

    async def _stream(self, operation: Callable[[Call], AsyncGenerator[_T]]) -> AsyncGenerator[_T]:
        """Yield the items of an operation. Raise ``StoreClosed`` once the handle is closed."""
        items = operation(Call(self._database, self._check_open, is_stream=True))
        try:
            while True:
                self._check_open()
                yield await anext(items)
        except StopAsyncIteration:
            return
        finally:
            await items.aclose()

    async def aclose(self) -> None:
        """Close the handle, as ``Store.aclose`` describes.

        On another event loop, it marks the handle as closed and raises ``StoreClosed``.
        """
        if self._closing is None:
            self._mark_closed()
            self._database.signals.notify_all()
            self._check_loop()
            self._closing = asyncio.ensure_future(self._release())
        self._check_loop()
        await asyncio.shield(self._closing)

    async def _release(self) -> None:
        watching = cast("asyncio.Task[None] | None", self._database.watcher.end())
        if watching is not None:
            # Motor works in threads, which a cancelled task does not stop. Such a thread would use the stream while
            # it is being closed.
            if not self._is_motor:
                watching.cancel()
            await asyncio.wait([watching])
        if self._owns_client:
            with pymongo.timeout(PATIENCE_SECONDS):
                closing = self._client.close()
                if inspect.isawaitable(closing):
                    await closing


async def _acquire(lock: asyncio.Lock, seconds: float) -> bool:
    if not lock.locked():
        return await lock.acquire()
    try:
        async with asyncio.timeout(seconds):
            return await lock.acquire()
    except TimeoutError:
        return False


_TASKS = Surface(asyncio.Lock, _acquire, asyncio.sleep, ChangeSignal.wait_async, asyncio.create_task)
